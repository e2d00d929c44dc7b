//go:build unix

package shell

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const scratchPrefix = "toolcrib-shell-"

// scratchAge is how old a folder must be before it is looked at whether anybody
// still has it: a new one is not locked yet.
const scratchAge = time.Minute

// maxSwept bounds how many folders one call clears away.
const maxSwept = 64

// scratch is the folder for temporary files of one call. It is locked as long as
// this process lives, so that what a killed process left behind can be told from
// what is in use.
type scratch struct {
	path string
	lock *os.File
}

func newScratch() (*scratch, error) {
	made, err := os.MkdirTemp("", scratchPrefix)
	if err != nil {
		return nil, err
	}
	path, err := filepath.EvalSymlinks(made)
	if err != nil {
		_ = os.Remove(made)
		return nil, err
	}
	s := &scratch{path: path}
	// A file system without locks loses nothing but the clearing.
	if s.lock, err = os.Open(path); err == nil {
		_ = syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	return s, nil
}

func (s *scratch) remove() {
	removeAll(s.path)
	if s.lock != nil {
		_ = s.lock.Close()
	}
}

// sweep clears away what killed processes of this user left behind.
func sweep(now time.Time) {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range left[:min(len(left), maxSwept)] {
		if abandoned(path, now) {
			removeAll(path)
		}
	}
}

// abandoned reports whether a folder is this user's own, old enough, and nobody's.
func abandoned(path string, now time.Time) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < scratchAge {
		return false
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Getuid() {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// removeAll removes a folder, also one whose rights were taken away.
func removeAll(folder string) {
	if os.RemoveAll(folder) == nil {
		return
	}
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(folder)
}
