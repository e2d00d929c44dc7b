package beneath

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Machine reports whether an absolute path, its symbolic links resolved, lies in one
// of the trees in which the system shows itself and its devices. They are outside of
// every workspace, also of one that is the root of the file system.
func Machine(abs string) bool {
	_, in := Below(filepath.ToSlash(abs), MachineTrees()...)
	return in
}

// MachineTrees returns the trees of [Machine].
func MachineTrees() []string { return []string{"/proc", "/sys", "/dev"} }

// maxOwn bounds the files of toolcrib that are looked at.
const maxOwn = 4096

// Own finds the files of toolcrib itself (its keys, its database) that have more than
// one name: files and folders of Paths with all below, but for what is below Except.
type Own struct {
	Paths, Except []string
}

// Other returns a function that reports whether a file is one of them, or nil if none
// of toolcrib's files has another name. Where not all of its files could be looked at,
// every file with more than one name counts.
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
				return nil // it cannot be read, so no link to it can be either
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

// Is reports whether a file of the workspace is one of them.
func (o Own) Is(info fs.FileInfo) bool {
	if info == nil || len(o.Paths) == 0 || !info.Mode().IsRegular() || !Linked(info) {
		return false
	}
	other := o.Other()
	return other != nil && other(info)
}
