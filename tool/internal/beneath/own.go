package beneath

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Machine reports whether an absolute path with symbolic links resolved is in /proc, /sys or /dev.
// These are outside every workspace, even one that is the root of the file system.
func Machine(abs string) bool {
	_, in := Below(filepath.ToSlash(abs), MachineTrees()...)
	return in
}

// MachineTrees returns the trees of [Machine].
func MachineTrees() []string { return []string{"/proc", "/sys", "/dev"} }

// maxOwn bounds the files of toolcrib that are visited.
const maxOwn = 4096

// Own finds files of toolcrib itself, such as its keys and its database, by their other names (hard
// links). They are Paths and everything below, except folders in Except.
type Own struct {
	Paths, Except []string
}

// Other returns a function that reports whether a file is one of toolcrib's, or nil if none of these
// has another name. If there are too many to visit, the function reports true for every file with
// several names.
func (o Own) Other() func(fs.FileInfo) bool {
	var files []fs.FileInfo
	left := maxOwn
	for _, path := range o.Paths {
		_ = filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
			if left--; left < 0 {
				return fs.SkipAll
			}
			switch {
			case err != nil:
				return nil // if it cannot be read, neither can links to it
			case entry.IsDir() && slices.Contains(o.Except, at):
				return fs.SkipDir
			case !entry.Type().IsRegular():
				return nil
			}
			if info, err := entry.Info(); err == nil && Linked(info) {
				files = append(files, info)
			}
			return nil
		})
	}
	if len(files) == 0 && left >= 0 {
		return nil
	}
	return func(info fs.FileInfo) bool {
		return info != nil && info.Mode().IsRegular() && Linked(info) &&
			(left < 0 || slices.ContainsFunc(files, func(own fs.FileInfo) bool { return os.SameFile(own, info) }))
	}
}

// Is reports whether a file of the workspace is one of toolcrib's.
func (o Own) Is(info fs.FileInfo) bool {
	if info == nil || len(o.Paths) == 0 || !info.Mode().IsRegular() || !Linked(info) {
		return false
	}
	other := o.Other()
	return other != nil && other(info)
}
