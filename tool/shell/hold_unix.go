//go:build unix

package shell

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/toolcrib/toolcrib/internal/standin"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

// errMoved says that another process changed the workspace at the wrong moment.
var errMoved = errors.New("the workspace was changed while the sandbox was made")

func (h *held) identify() error {
	info, err := os.Lstat(h.Path)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		h.Dev, h.Ino = uint64(stat.Dev), uint64(stat.Ino) //nolint:unconvert // of other types elsewhere
	}
	return nil
}

// verify reports what is not mounted as it was meant.
func verify(all []held) error {
	for _, h := range all {
		now := h
		if err := now.identify(); err != nil || now.Dev != h.Dev || now.Ino != h.Ino {
			return errMoved
		}
	}
	return nil
}

// hold makes ready what bubblewrap keeps from being written. What does not exist gets a
// stand-in, since only what is there can be mounted. release removes those, unless
// another process has a job in this workspace: then that one does.
func (l *launcher) hold(s *survey) (release func(), err error) {
	lock, err := os.Open(l.Dir)
	if err != nil {
		return nil, fault("the workspace folder cannot be opened", err)
	}
	_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH) // without locks, whoever ends first removes them
	release = func() {
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			for _, path := range s.absent {
				standin.Remove(path)
			}
		}
		_ = lock.Close()
	}
	paths := s.found
	if slices.Contains(paths, l.Dir) {
		paths = []string{l.Dir}
	} else {
		for _, path := range s.absent {
			if foundAfterwards(path) {
				continue
			}
			switch err := standin.Make(path); {
			case err == nil, errors.Is(err, fs.ErrExist): // or it was just created: then that is held
				paths = append(paths, path)
			case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission) && !mine(filepath.Dir(path)):
				// Nobody of this user can make it.
			default:
				release()
				return nil, fault("protected names could not be held", err)
			}
		}
	}
	if l.Held, err = mounts(l.Dir, paths); err != nil {
		release()
		return nil, fault("protected files could not be held", err)
	}
	return release, nil
}

// foundAfterwards reports whether a name gets no stand-in: a folder called AGENTS.md would
// get in the way of whoever means *.md.
// Git takes what is in its folder for what it is called.
func foundAfterwards(path string) bool {
	return strings.EqualFold(filepath.Ext(path), ".md") || inGit(path)
}

func mine(path string) bool {
	info, err := os.Lstat(path)
	return err != nil || beneath.Mine(info)
}

// mounts returns what is mounted for paths in dir, a folder before what is in it. Of very
// many, those nearest to dir are taken: a person has been asked.
func mounts(dir string, paths []string) ([]held, error) {
	depth := func(path string) int { return strings.Count(path, string(filepath.Separator)) }
	paths = slices.Clone(paths)
	slices.SortStableFunc(paths, func(a, b string) int { return cmp.Compare(depth(a), depth(b)) })
	all := map[string]held{}
	for _, path := range paths[:min(len(paths), maxProtected)] {
		if info, err := os.Lstat(path); err != nil {
			return nil, err
		} else if info.Mode()&fs.ModeSymlink != 0 {
			continue // what it leads to is held, the link itself cannot be
		}
		all[path] = held{Path: path}
		for above := filepath.Dir(path); above != dir && within(above, dir); above = filepath.Dir(above) {
			if _, known := all[above]; !known {
				all[above] = held{Path: above, open: true}
			}
		}
	}
	list := make([]held, 0, len(all))
	for _, h := range all {
		if err := h.identify(); err != nil {
			return nil, err
		}
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b held) int { return cmp.Compare(a.Path, b.Path) })
	return list, nil
}
