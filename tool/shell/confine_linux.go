package shell

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// noNewPrivileges keeps set-user-ID programs from being what they are.
func noNewPrivileges() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

const read = ll.AccessFSReadFile

// apart tells folders from files, which have fewer rights. What does not exist is
// neither.
func apart(paths []string) (folders, files []string) {
	for _, path := range paths {
		switch info, err := os.Stat(path); {
		case err != nil:
		case info.IsDir():
			folders = append(folders, path)
		default:
			files = append(files, path)
		}
	}
	return folders, files
}

// restrict puts the rules on this process and all that it starts. Of what newer
// kernels can restrict, this kernel's part is taken; a kernel without Landlock is
// an error.
func (r *rules) restrict() error {
	if r.ABI < 1 {
		return errors.New("no Landlock")
	}
	var granted []landlock.Rule
	grant := func(folder, file landlock.AccessFSSet, paths []string) {
		folders, files := apart(paths)
		granted = append(granted,
			landlock.PathAccess(folder, folders...).IgnoreIfMissing(), landlock.PathAccess(file, files...).IgnoreIfMissing())
	}
	grant(read|ll.AccessFSReadDir|ll.AccessFSExecute, read|ll.AccessFSExecute, r.Read)
	grant(read|ll.AccessFSReadDir, read, r.Data)
	grant(ll.AccessFSReadDir, 0, r.Folders)
	folders, files := apart(r.Write)
	write := landlock.RWDirs(folders...).IgnoreIfMissing()
	if r.ABI >= 2 {
		write = write.WithRefer() // files move between folders of the workspace
	}
	granted = append(granted, write,
		landlock.PathAccess(read|ll.AccessFSExecute|ll.AccessFSWriteFile|ll.AccessFSTruncate, files...).IgnoreIfMissing(),
		landlock.PathAccess(read|ll.AccessFSWriteFile, devNull).IgnoreIfMissing(),
		landlock.PathAccess(read, "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom").IgnoreIfMissing())
	config := landlock.V11.BestEffort()
	if r.Closed {
		return config.Restrict(granted...)
	}
	return errors.Join(config.RestrictPaths(granted...), config.RestrictScoped())
}

// noSockets takes away, from all threads and all that is started, the calls that
// make sockets and what could make them in another way. A pair of connected sockets
// can still be made. A program of another machine type cannot make any system call
// but fails instead.
func noSockets() error {
	if seccompArch == 0 {
		return nil
	}
	const (
		allow = unix.SECCOMP_RET_ALLOW
		deny  = unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)
	)
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	// jump goes on with the next instruction, or passes over some.
	jump := func(kind uint16, value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | kind | unix.BPF_K, K: value, Jt: yes, Jf: no}
	}
	answer := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	filter := []unix.SockFilter{
		load(4), // arch
		jump(unix.BPF_JEQ, seccompArch, 0, 5),
		load(0),                              // number of the call
		jump(unix.BPF_JGE, 0x40000000, 3, 0), // x32
		jump(unix.BPF_JEQ, unix.SYS_SOCKET, 2, 0),
		jump(unix.BPF_JEQ, unix.SYS_IO_URING_SETUP, 1, 0),
		answer(allow),
		answer(deny),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := noNewPrivileges(); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	switch errno {
	case 0, unix.ENOSYS, unix.EINVAL: // a kernel without filters: Report.Seccomp says so
		return nil
	}
	return errno
}
