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
	maxProtected   = 1000      // protected paths that are kept from being written
	maxGuarded     = 20_000    // files and folders below one of them that are compared
	maxGuardedSize = 256 << 20 // bytes of them that are compared
	maxGuardDepth  = 12        // folders deep that what is beside something hidden is granted
)

// survey is what a workspace has that is protected.
type survey struct {
	found  []string          // protected paths that exist, and what links among them lead to
	led    []string          // the latter
	absent []string          // those that do not: each the first part of its path that is missing
	links  map[string]string // protected names that lead to another one beside them, which can be put back
	unsure string            // why not all of them can be kept from being written; "" = all can
}

// inGit reports whether a path is in a repository's own folder.
func inGit(path string) bool { return strings.Contains(filepath.ToSlash(path), "/.git/") }

// protects reports whether a name is protected wherever it is.
func (o *Options) protects(name string) bool {
	return slices.ContainsFunc(o.ProtectedNames, func(n string) bool { return strings.EqualFold(n, name) })
}

// survey looks for what is protected. Names directly in the workspace, and paths that are
// protected by themselves, are always looked up, whatever else there is.
func (o *Options) survey(dir string) *survey { return o.look(dir, o.visits, nil) }

// resurvey looks once more after a command of which everything was known before: also
// at what it made, and in folders that it closed.
func (o *Options) resurvey(w *workspace) *survey { return o.look(w.Dir, o.visits+maxFiles, w) }

// look visits the entries of a workspace. With w it opens folders that cannot be read.
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
			if info, infoErr := os.Lstat(path); infoErr == nil && beneath.Mine(info) { // a program could open it up
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

// own is the place of a path, not of what it leads to if it is itself a link.
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

// firstMissing returns the part of a path below dir with which it begins to be missing; in a stand-in all is.
func firstMissing(dir, path string) string {
	for parent := filepath.Dir(path); parent != dir && within(parent, dir); parent = filepath.Dir(parent) {
		if standin.Exists(parent) {
			break
		}
		path = parent
	}
	return path
}

// guarded is what protected paths were like before a call.
type guarded struct {
	set    *Options
	w      *workspace
	seen   *survey
	before *prints
	kept   bool     // bubblewrap keeps the program from what could be foreseen
	held   []string // what the program cannot have changed
}

// prints stand for the content of protected paths; "" = there is nothing.
type prints struct {
	of     map[string]string
	unsure string // why not everything was looked at
}

// changed returns the protected paths that are not what they were, and why there may be
// others.
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
		// else it is the link that is new
		if _, known := g.before.of[path]; !known && print != "" && !slices.Contains(now.led, path) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths, after.unsure
}

// undo takes back what bubblewrap could not prevent: a protected name that the command
// made directly in the workspace, or, where a sandbox is required, anywhere in it, gets
// another name; a link that it replaced is put back. It returns the paths that are left,
// and the new names.
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
			err = nil // a link that is gone
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

// setAside renames a file or folder, and all that protects names below it.
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
	for _, at := range slices.Backward(all) { // what is in a folder before the folder
		w.openUp(w.Abs(path.Dir(at)), 0o700)
		err = errors.Join(err, w.Root.Rename(at, at+suffix))
	}
	return err
}

// openUp gives this user rights to a folder, such as a command took away. Root needs none.
func (w *workspace) openUp(abs string, rights fs.FileMode) {
	name, err := filepath.Rel(w.Dir, abs)
	if err != nil || os.Geteuid() == 0 {
		return
	}
	if info, err := w.Root.Lstat(name); err == nil && info.IsDir() && info.Mode()&rights != rights {
		_ = w.Root.Chmod(name, info.Mode().Perm()|rights)
	}
}

// look returns prints of all protected paths that the program could change.
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
		if !within(own(path), g.w.Dir) { // which bubblewrap mounts read-only, so that only a hard link can change it
			add(filepath.Clean(path), g.kept)
		}
	}
	return p
}

// fingerprint stands for what a file or a folder with all that is in it holds; "" =
// there is nothing. whole reports whether everything went into it; with linked, that is the files with hard links.
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

// ofObjects reports whether a folder holds git's objects, which are named by what is in
// them and start nothing: of objects, only info says where else git looks for some.
func ofObjects(path string) bool {
	parts := strings.Split(filepath.ToSlash(path), "/")
	at := slices.Index(parts, ".git")
	n := len(parts)
	return at >= 0 && n > at+2 && parts[n-2] == "objects" && parts[n-1] != "info"
}
