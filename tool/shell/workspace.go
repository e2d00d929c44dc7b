package shell

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

const (
	maxPathBytes = 4096 // PATH_MAX of Linux
	maxLinks     = 40   // symbolic links on one path, as Linux has it

	rootDir = "/" // a workspace that holds the whole machine
)

func isAbs(path string) bool { return filepath.IsAbs(path) && !strings.ContainsRune(path, 0) }

// workspace is the folder of one call, opened.
type workspace struct {
	root  *os.Root
	given string // as the call names it
	dir   string // absolute, symbolic links resolved
}

func openWorkspace(call toolcrib.Call) (*workspace, error) {
	if call.Workspace == "" {
		return nil, toolcrib.Failf(toolcrib.PermissionDenied, "this run has no workspace")
	}
	if !isAbs(call.Workspace) {
		return nil, toolcrib.Failf(toolcrib.PermissionDenied, "the workspace of this run is not given as an absolute path")
	}
	dir, err := filepath.EvalSymlinks(call.Workspace)
	if err == nil && beneath.Machine(dir) {
		return nil, beneath.InMachine()
	}
	if err == nil {
		var root *os.Root
		if root, err = os.OpenRoot(dir); err == nil {
			return &workspace{root: root, given: filepath.Clean(call.Workspace), dir: dir}, nil
		}
	}
	return nil, &toolcrib.ToolError{Kind: toolcrib.ExecutionFailed, Message: "the workspace folder cannot be opened", Err: err}
}

func (w *workspace) close() { _ = w.root.Close() } // a folder opened for reading has nothing to lose

// abs is the absolute path of a resolved one.
func (w *workspace) abs(real string) string { return filepath.Join(w.dir, filepath.FromSlash(real)) }

// errEscapes says that a path leaves the workspace.
var errEscapes = errors.New("path escapes workspace")

// place is where a path of a command leads.
type place struct {
	real string      // relative to the workspace, symbolic links resolved
	info fs.FileInfo // nil: there is nothing
}

// resolve follows a path as the system would: component by component, so that
// "link/.." is the folder above what the link leads to. A path that leaves the
// workspace on its way, even to come back, is refused. What it returns is a look:
// that nobody changes a link before a program opens it is for the sandbox to see to.
func (w *workspace) resolve(name string) (place, error) {
	p, err := w.follow(name)
	if err == nil && beneath.Machine(w.abs(p.real)) {
		return p, errEscapes
	}
	return p, err
}

func (w *workspace) follow(name string) (place, error) {
	if name == "" || len(name) > maxPathBytes || strings.ContainsRune(name, 0) {
		return place{}, toolcrib.Failf(toolcrib.PermissionDenied, "%s is no path", quote(name))
	}
	inside, err := w.inside(name)
	if err != nil {
		return place{}, err
	}
	p := place{real: "."}
	if p.info, err = w.root.Lstat("."); err != nil {
		return p, err
	}
	pending, links := strings.Split(inside, "/"), 0
	for len(pending) > 0 {
		next := pending[0]
		pending = pending[1:]
		switch next {
		case "", ".":
			continue
		case "..":
			if p.real == "." {
				return p, errEscapes
			}
			p.real = path.Dir(p.real)
			continue
		}
		at := path.Join(p.real, next)
		info, err := w.root.Lstat(at)
		switch {
		case err == nil && info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return p, toolcrib.Failf(toolcrib.PermissionDenied, "too many symbolic links: %s", quote(name))
			}
			target, fromRoot, err := w.link(at)
			if err != nil {
				return p, err
			}
			if fromRoot {
				p.real = "."
			}
			pending = append(strings.Split(target, "/"), pending...)
			continue
		case err != nil && absent(err):
			return w.missing(p, next, pending)
		case err != nil:
			return p, err
		}
		p.real = at
	}
	p.info, err = w.root.Lstat(p.real)
	if err != nil && absent(err) {
		p.info, err = nil, nil
	}
	return p, err
}

// absent reports whether a program would be told that there is no such file.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || notFolder(err)
}

// missing ends the search where there is nothing; the rest must not leave either.
func (w *workspace) missing(p place, next string, pending []string) (place, error) {
	p.info = nil
	for _, name := range append([]string{next}, pending...) {
		if name == ".." && p.real == "." {
			return p, errEscapes
		}
		p.real = path.Join(p.real, name)
	}
	return p, nil
}

// inside makes an absolute path below the workspace a relative one. Only a plain
// prefix counts: whatever is spelled otherwise is outside.
func (w *workspace) inside(name string) (string, error) {
	if !strings.HasPrefix(name, "/") {
		return name, nil
	}
	for _, folder := range []string{w.given, w.dir} {
		rest, ok := strings.CutPrefix(name, strings.TrimSuffix(folder, "/"))
		if ok && (rest == "" || rest[0] == '/') {
			return strings.TrimLeft(rest, "/"), nil
		}
	}
	return "", errEscapes
}

func (w *workspace) link(at string) (target string, fromRoot bool, err error) {
	text, err := w.root.Readlink(at)
	if err != nil {
		return "", false, err
	}
	if !strings.HasPrefix(text, "/") {
		return text, false, nil
	}
	text, err = w.inside(text)
	return text, true, err
}

// within reports whether path is folder or below it; both absolute and clean.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, string(filepath.Separator))+string(filepath.Separator))
}

// resolved returns the options with the links resolved in the paths that are
// compared with: for one call, since they may come to be at any time. In a workspace
// that is the root of the file system, the machine's own trees are hidden.
func (o *Options) resolved(dir string) *Options {
	out := *o
	hidden := o.Hidden
	if dir == rootDir {
		hidden = slices.Concat(hidden, beneath.MachineTrees())
	}
	out.Hidden, out.Except = make([]string, len(hidden)), make([]string, len(o.Except))
	for i, path := range hidden {
		out.Hidden[i] = real(path)
	}
	for i, path := range o.Except {
		out.Except[i] = real(path)
	}
	out.own = beneath.Own{Paths: out.Hidden[:len(o.Hidden)], Except: out.Except}
	return &out
}

// hides reports whether abs may not even be read. The longest path counts.
func (o *Options) hides(abs string) bool {
	longest, hidden := -1, false
	for _, path := range o.Hidden {
		if within(abs, path) && len(path) > longest {
			longest, hidden = len(path), true
		}
	}
	for _, path := range o.Except {
		if within(abs, path) && len(path) >= longest {
			longest, hidden = len(path), false
		}
	}
	return hidden
}

// holdsHidden reports whether something hidden is below the folder abs.
func (o *Options) holdsHidden(abs string) bool {
	for _, path := range o.Hidden {
		if path != abs && within(path, abs) {
			return true
		}
	}
	return false
}

// real resolves the symbolic links of an absolute path as far as it exists.
func real(path string) string {
	clean, rest := filepath.Clean(path), ""
	for at := clean; ; at = filepath.Dir(at) {
		if found, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(found, rest)
		}
		if filepath.Dir(at) == at {
			return clean
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}
