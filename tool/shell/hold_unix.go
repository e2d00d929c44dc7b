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
	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
)

// share prevents other processes from removing stand-ins in the workspace when their jobs end. release removes those of
// g, unless another process has a job in the workspace: then that process does.
func (l *launcher) share(g *guarded) (release func(), err error) {
	lock, err := os.Open(l.Dir)
	if err != nil {
		return nil, fault("the workspace folder cannot be opened", err)
	}
	_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_SH) // without locks, the job that ends first removes them
	return func() {
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			for _, path := range g.seen.absent {
				removeStandins(path, l.Dir)
			}
		}
		_ = lock.Close()
	}, nil
}

// removeStandins removes the stand-in at path, and those above it.
func removeStandins(path, dir string) {
	for ; path != dir && within(path, dir); path = filepath.Dir(path) {
		standin.Remove(path)
	}
}

// Tidy removes the stand-ins for protected paths and names that a killed process left in a workspace, unless a command
// is running there.
func Tidy(workspace string, protected, names []string) {
	dir := beneath.Real(workspace)
	lock, err := os.Open(dir)
	if err != nil {
		return
	}
	defer func() { _ = lock.Close() }()
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return
	}
	for _, name := range names {
		removeStandins(filepath.Join(dir, name), dir)
	}
	for _, path := range protected {
		removeStandins(own(path), dir)
	}
}

// hold prepares the read-only mounts of bubblewrap. Missing protected paths get stand-ins, since only existing files
// can be mounted.
func (l *launcher) hold(s *survey) (err error) {
	paths := s.found
	if slices.Contains(paths, l.Dir) {
		paths = []string{l.Dir}
	} else {
		for _, path := range s.absent {
			if foundAfterwards(path) {
				continue
			}
			switch err := standin.Make(path); {
			case err == nil, errors.Is(err, fs.ErrExist): // in the latter case another process just created it
				paths = append(paths, path)
			case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission) && !mine(filepath.Dir(path)):
				// Processes of this user cannot create it either.
			default:
				return fault("protected names could not be held", err)
			}
		}
	}
	if l.Held, err = mounts(l.Dir, paths); err != nil {
		return fault("protected files could not be held", err)
	}
	return nil
}

// foundAfterwards reports whether a path gets no stand-in, so that a change is only detected afterwards: a folder named
// AGENTS.md would disturb commands with *.md, and git would read stand-ins in its folder.
func foundAfterwards(path string) bool {
	return strings.EqualFold(filepath.Ext(path), ".md") || inGit(path)
}

func mine(path string) bool {
	info, err := os.Lstat(path)
	return err != nil || beneath.Mine(info)
}

// mounts returns the mounts for paths in dir, parents first. Of more than maxProtected paths it takes those nearest to
// dir: a person has been asked then.
func mounts(dir string, paths []string) ([]jail.Held, error) {
	depth := func(path string) int { return strings.Count(path, string(filepath.Separator)) }
	paths = slices.Clone(paths)
	slices.SortStableFunc(paths, func(a, b string) int { return cmp.Compare(depth(a), depth(b)) })
	all := map[string]jail.Held{}
	for _, path := range paths[:min(len(paths), maxProtected)] {
		if info, err := os.Lstat(path); err != nil {
			return nil, err
		} else if info.Mode()&fs.ModeSymlink != 0 {
			continue // its target is mounted, a link cannot be
		}
		all[path] = jail.Held{Path: path}
		for above := filepath.Dir(path); above != dir && within(above, dir); above = filepath.Dir(above) {
			if _, known := all[above]; !known {
				all[above] = jail.Held{Path: above, Open: true}
			}
		}
	}
	list := make([]jail.Held, 0, len(all))
	for _, h := range all {
		if err := h.Identify(); err != nil {
			return nil, err
		}
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b jail.Held) int { return cmp.Compare(a.Path, b.Path) })
	return list, nil
}
