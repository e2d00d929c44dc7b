package worker

import "golang.org/x/sys/unix"

// renameNew renames a file, unless there is one of the new name.
func renameNew(from, to string) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}
