package shell

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/internal/standin"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

const (
	maxVisits      = 200_000   // entries of a workspace that are visited
	maxProtected   = 1000      // protected paths that are mounted read-only
	maxGuarded     = 20_000    // files and folders below a protected path that are compared
	maxGuardedSize = 256 << 20 // bytes below a protected path that are compared
	maxGuardDepth  = 12        // depth to which the siblings of hidden paths are granted; see grant
)

// survey is a list of the protected paths of a workspace.
type survey struct {
	found  []string          // existing paths, and the targets of links among them
	led    []string          // the targets among found
	absent []string          // missing paths, each cut after its first missing element
	links  map[string]string // links to another protected name in the same folder, which can be restored
	unsure string            // why some path cannot be protected from writing, or ""
}

// inGit reports whether a path is below a folder .git.
func inGit(path string) bool { return strings.Contains(filepath.ToSlash(path), "/.git/") }

// protects reports whether a name is protected anywhere in the workspace.
func (o *Options) protects(name string) bool {
	return slices.ContainsFunc(o.ProtectedNames, func(n string) bool { return strings.EqualFold(n, name) })
}

// survey finds the protected paths of a workspace. Names directly in the workspace, and protected
// paths, are always found, however many files there are.
func (o *Options) survey(dir string) *survey { return o.look(dir, o.visits, nil) }

// resurvey repeats a complete survey after a command. It also visits entries that the command
// created, and folders from which it removed permissions.
func (o *Options) resurvey(w *workspace) *survey { return o.look(w.Dir, o.visits+maxFiles, w) }

// look visits the entries of a workspace. If w is not nil, it makes folders readable first.
func (o *Options) look(dir string, visits int, w *workspace) *survey {
	s := &survey{links: map[string]string{}}
	for _, path := range o.Protected {
		if path = own(path); within(path, dir) {
			o.add(s, dir, path)
		} else if within(dir, path) {
			o.add(s, dir, dir)
		}
	}
	for _, name := range o.ProtectedNames {
		o.add(s, dir, filepath.Join(dir, name))
	}
	visited := visits
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			if info, infoErr := os.Lstat(path); infoErr == nil && beneath.Mine(info) { // a program could make it readable
				s.doubt("a folder cannot be read")
			}
			return nil
		case o.hides(path):
			return fs.SkipDir
		case path == dir:
			return nil
		}
		if visits--; visits < 0 {
			s.doubt(fmt.Sprintf("the workspace has more than %d files", visited))
			return fs.SkipAll
		}
		if w != nil && entry.IsDir() {
			w.openUp(path, 0o500)
		}
		if !o.protects(entry.Name()) {
			return nil
		}
		o.add(s, dir, path)
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	slices.Sort(s.found)
	slices.Sort(s.absent)
	s.found, s.absent = slices.Compact(s.found), slices.Compact(s.absent)
	if len(s.found) > maxProtected {
		s.doubt(fmt.Sprintf("there are more than %d protected files", maxProtected))
	}
	return s
}

// own returns a path with links resolved, except in its last element.
func own(path string) string {
	return filepath.Join(beneath.Real(filepath.Dir(path)), filepath.Base(path))
}

func (s *survey) doubt(why string) {
	if s.unsure == "" {
		s.unsure = why
	}
}

// add adds a protected path.
func (o *Options) add(s *survey, dir, path string) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.absent = append(s.absent, firstMissing(dir, path))
		return
	case err == nil && o.git && info.IsDir() && filepath.Base(path) == ".git" && !standin.Is(path):
		for _, name := range gitSteering() {
			o.add(s, dir, filepath.Join(path, filepath.FromSlash(name)))
		}
		return
	case err != nil:
		s.doubt("a protected file cannot be looked at")
		return
	case standin.Is(path):
		s.absent = append(s.absent, path)
		return
	case info.Mode()&fs.ModeSymlink != 0:
		target := beneath.Real(path)
		if beside, err := os.Readlink(path); err == nil && target == filepath.Join(filepath.Dir(path), beside) &&
			o.protects(filepath.Base(beside)) && standin.Exists(target) {
			s.links[path] = beside
		} else {
			s.doubt("a protected name is a symbolic link")
		}
		if target != path && target != dir && within(target, dir) {
			s.found, s.led = append(s.found, target), append(s.led, target)
		}
	case info.Mode().IsRegular() && beneath.Linked(info):
		s.doubt("a protected file has another name (a hard link)")
	}
	s.found = append(s.found, path)
}

// firstMissing returns a missing path below dir, cut after its first missing element. A stand-in counts as missing.
func firstMissing(dir, path string) string {
	for parent := filepath.Dir(path); parent != dir && within(parent, dir); parent = filepath.Dir(parent) {
		if standin.Exists(parent) {
			break
		}
		path = parent
	}
	return path
}

// guarded is the state of protected paths before a call.
type guarded struct {
	set    *Options
	w      *workspace
	seen   *survey
	before *prints
	kept   bool     // whether bubblewrap protects the known paths
	held   []string // paths that the program cannot have changed
}

// prints are fingerprints of protected paths.
type prints struct {
	of     map[string]string // by path; "" if it does not exist
	unsure string            // why not everything was compared, or ""
}

// changed returns the protected paths that have changed. unsure says why there may be others, or is "".
func (g *guarded) changed() (paths []string, unsure string) {
	again := g.set.survey
	if g.seen.unsure == "" {
		again = func(string) *survey { return g.set.resurvey(g.w) }
	}
	now := again(g.w.Dir)
	after := g.look(now)
	for path := range g.before.of {
		if g.before.of[path] != after.of[path] {
			paths = append(paths, path)
		}
	}
	for path, print := range after.of {
		// the target of a new link is not new itself
		if _, known := g.before.of[path]; !known && print != "" && !slices.Contains(now.led, path) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths, after.unsure
}

// undo reverts changes that bubblewrap could not prevent. A protected name that the command
// created directly in the workspace or in .git, or, if a sandbox is required, anywhere, is
// renamed; a link that it replaced is restored. undo returns the other changed paths, and the new
// names.
func (g *guarded) undo(changed []string) (left, aside []string) {
	suffix := ".set-aside-" + strings.ToLower(rand.Text()[:8])
	for _, path := range changed {
		link, isLink := g.seen.links[path]
		isNew := g.before.of[path] == "" && (g.seen.unsure == "" || slices.Contains(g.seen.absent, path))
		switch {
		case !g.kept, !isLink && !isNew, isNew && g.set.Sandbox != SandboxRequired && filepath.Dir(path) != g.w.Dir &&
			!inGit(path):
			left = append(left, path)
			continue
		}
		name, err := filepath.Rel(g.w.Dir, path)
		if err == nil {
			err = g.w.setAside(name, suffix, g.set.protects)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // the command removed a link
		}
		if err == nil && isLink {
			err = g.w.Root.Symlink(link, name)
		}
		if err != nil {
			left = append(left, path)
			continue
		}
		aside = append(aside, path+suffix)
	}
	return left, aside
}

// setAside renames a file or folder, and all protected names below it.
func (w *workspace) setAside(name, suffix string, protects func(string) bool) error {
	all := []string{name}
	info, err := w.Root.Lstat(name)
	if err == nil && info.IsDir() {
		err = fs.WalkDir(w.Root.FS(), filepath.ToSlash(name), func(at string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				w.openUp(w.Abs(at), 0o500)
			}
			if err == nil && at != all[0] && protects(entry.Name()) {
				all = append(all, at)
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	for _, at := range slices.Backward(all) { // children first
		w.openUp(w.Abs(path.Dir(at)), 0o700)
		err = errors.Join(err, w.Root.Rename(at, at+suffix))
	}
	return err
}

// openUp gives this user permissions on a folder, which a command may have removed. Root does not need them.
func (w *workspace) openUp(abs string, rights fs.FileMode) {
	name, err := filepath.Rel(w.Dir, abs)
	if err != nil || os.Geteuid() == 0 {
		return
	}
	if info, err := w.Root.Lstat(name); err == nil && info.IsDir() && info.Mode()&rights != rights {
		_ = w.Root.Chmod(name, info.Mode().Perm()|rights)
	}
}

// look returns the fingerprints of all protected paths that the program could change.
func (g *guarded) look(s *survey) *prints {
	p := &prints{of: map[string]string{}, unsure: s.unsure}
	add := func(path string, linked bool) {
		whole := true
		if p.of[path], whole = fingerprint(path, linked); !whole {
			p.unsure = "a protected folder has too much in it to be compared"
		}
	}
	for _, path := range slices.Concat(s.found, s.absent) {
		if !slices.Contains(g.held, path) {
			add(path, false)
		}
	}
	for _, path := range g.set.Protected {
		if !within(own(path), g.w.Dir) { // with bubblewrap it can only be changed through a hard link
			add(filepath.Clean(path), g.kept)
		}
	}
	return p
}

// fingerprint returns a hash of a file or folder and everything below it, or "" if it does not exist. If linked is
// true, only files with several hard links are included. whole reports whether it was within the bounds.
func fingerprint(path string, linked bool) (print string, whole bool) {
	if standin.Is(path) {
		return "", true
	}
	sum := sha256.New()
	seen := false
	entries, bytes := maxGuarded, int64(maxGuardedSize)
	_ = filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if entries--; entries < 0 || bytes < 0 {
			return fs.SkipAll
		}
		info, err := entry.Info()
		if err != nil || linked && !(info.Mode().IsRegular() && beneath.Linked(info)) {
			return nil
		}
		seen = true
		_, _ = fmt.Fprintf(sum, "%q %v\n", at, info.Mode())
		switch {
		case info.IsDir() && ofObjects(at):
			return fs.SkipDir
		case info.Mode().IsRegular():
			if f, err := os.Open(at); err == nil {
				n, _ := io.Copy(sum, io.LimitReader(f, bytes+1))
				bytes -= n
				_ = f.Close()
			}
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(at)
			_, _ = fmt.Fprintf(sum, "%q\n", target)
		}
		return nil
	})
	if !seen {
		return "", true
	}
	return string(sum.Sum(nil)), entries >= 0 && bytes >= 0
}

// ofObjects reports whether a folder contains only git objects. They are named by their hashes and
// start no program. In objects only info can, by naming other places for objects.
func ofObjects(path string) bool {
	parts := strings.Split(filepath.ToSlash(path), "/")
	at := slices.Index(parts, ".git")
	n := len(parts)
	return at >= 0 && n > at+2 && parts[n-2] == "objects" && parts[n-1] != "info"
}
