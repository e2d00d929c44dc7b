package files

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

const (
	maxLinks = 40 // symbolic links on one path, as Linux has it
	maxTries = 16 // how often a path that changes under the tool is tried again
)

// errMoved says that a path was changed between the look and the open.
var errMoved = beneath.ErrMoved

// workspace is the folder of one call, opened.
type workspace struct {
	root  *os.Root
	given string // as the call names it
	dir   string // absolute, symbolic links resolved
	set   *settings

	temporary string // the name under which this call writes before it renames
}

// place is a path of a call, found.
type place struct {
	shown string      // cleaned, relative to the workspace, with slashes: what is said
	real  string      // the same with symbolic links resolved: what is opened
	info  fs.FileInfo // nil: there is nothing
}

func (p place) dir() string  { return path.Dir(p.real) }
func (p place) base() string { return path.Base(p.real) }

// open opens the workspace of call. An empty or relative one is refused.
func (s *settings) open(call toolcrib.Call) (*workspace, error) {
	if call.Workspace == "" {
		return nil, toolcrib.Failf(toolcrib.PermissionDenied, "this run has no workspace")
	}
	if !filepath.IsAbs(call.Workspace) {
		return nil, toolcrib.Failf(toolcrib.PermissionDenied, "the workspace of this run is not given as an absolute path")
	}
	dir, err := filepath.EvalSymlinks(call.Workspace)
	if err == nil && beneath.Machine(dir) {
		return nil, beneath.InMachine()
	}
	if err == nil {
		var root *os.Root
		if root, err = os.OpenRoot(dir); err == nil {
			return &workspace{
				root: root, given: filepath.Clean(call.Workspace), dir: dir, set: s, temporary: temporaryName(call),
			}, nil
		}
	}
	return nil, &toolcrib.ToolError{Kind: toolcrib.ExecutionFailed, Message: "the workspace folder cannot be opened", Err: err}
}

func (w *workspace) close() { _ = w.root.Close() } // a folder opened for reading has nothing to lose

// abs is the absolute path of a resolved one, as rules about paths want it.
func (w *workspace) abs(real string) string { return filepath.Join(w.dir, filepath.FromSlash(real)) }

// relative makes the path of a call relative to the workspace, or refuses it (C11).
// It looks at the text only.
func (w *workspace) relative(name string) (string, error) {
	return beneath.Relative(name, w.given, w.dir)
}

func escapes(name string) error {
	return toolcrib.Failf(toolcrib.InvalidPath, "path escapes workspace: %s", name)
}

// find resolves the path of a call as far as it exists. A symbolic link that
// leaves the workspace is refused; errors of the file system come as they are.
// What find returns is a look, not a promise: what is opened later is checked
// again by [workspace.descend].
func (w *workspace) find(name string) (place, error) {
	p, err := w.follow(name)
	if err == nil && beneath.Machine(w.abs(p.real)) {
		return p, escapes(p.shown)
	}
	return p, err
}

func (w *workspace) follow(name string) (place, error) {
	shown, err := w.relative(name)
	if err != nil {
		return place{}, err
	}
	p := place{shown: shown, real: "."}
	if p.info, err = w.root.Lstat("."); err != nil {
		return p, err
	}
	if shown == "." {
		return p, nil
	}
	pending := strings.Split(shown, "/")
	for links := 0; len(pending) > 0; {
		next, rest := pending[0], pending[1:]
		if next == "" || next == "." {
			pending = rest
			continue
		}
		if next == ".." { // only ever comes out of a link
			if p.real == "." {
				return p, escapes(shown)
			}
			p.real, pending = path.Dir(p.real), rest
			continue
		}
		at := path.Join(p.real, next)
		info, err := w.root.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return w.absent(p, pending)
		case err != nil:
			return p, err
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return p, toolcrib.Failf(toolcrib.InvalidPath, "too many symbolic links: %s", shown)
			}
			target, err := w.readlink(at, shown)
			if err != nil {
				return p, err
			}
			if target.fromRoot {
				p.real = "."
			}
			pending = append(target.parts, rest...)
			continue
		}
		p.real, p.info, pending = at, info, rest
	}
	if p.info, err = w.root.Lstat(p.real); err != nil {
		return p, err
	}
	return p, nil
}

// absent ends the search at the first component that does not exist.
func (w *workspace) absent(p place, missing []string) (place, error) {
	p.info = nil
	for _, name := range missing {
		if name == ".." && p.real == "." {
			return p, escapes(p.shown)
		}
		p.real = path.Join(p.real, name)
	}
	return p, nil
}

type linkTarget struct {
	parts    []string
	fromRoot bool
}

func (w *workspace) readlink(at, shown string) (linkTarget, error) {
	text, err := w.root.Readlink(at)
	if err != nil {
		return linkTarget{}, err
	}
	if filepath.IsAbs(text) {
		// Only a plain prefix counts as inside: whatever is spelled otherwise is outside.
		inside, ok := beneath.Below(text, w.dir, w.given)
		if !ok {
			return linkTarget{}, escapes(shown)
		}
		return linkTarget{parts: strings.Split(filepath.ToSlash(inside), "/"), fromRoot: true}, nil
	}
	if filepath.VolumeName(text) != "" {
		return linkTarget{}, escapes(shown)
	}
	return linkTarget{parts: strings.Split(filepath.ToSlash(text), "/")}, nil
}

// descend opens a folder given by its resolved path, component by component, and
// refuses a symbolic link at each: so the folder that is open at the end is the
// one that was found, or errMoved is returned (the check and the open are one).
// With create it makes what is missing, mode 0755 less the umask.
func (w *workspace) descend(real string, create bool) (*os.Root, error) {
	at, err := w.root.OpenRoot(".")
	if err != nil || real == "." {
		return at, err
	}
	for name := range strings.SplitSeq(real, "/") {
		next, err := step(at, name, create)
		_ = at.Close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

// step opens the folder name in parent, itself and no link to another.
func step(parent *os.Root, name string, create bool) (*os.Root, error) {
	if create {
		switch err := parent.Mkdir(name, 0o755); {
		case err == nil:
			if err := syncFolder(parent); err != nil {
				return nil, err
			}
		case !errors.Is(err, fs.ErrExist):
			return nil, err
		}
	}
	return beneath.Step(parent, name)
}

// openFile opens the regular file name in dir for reading, itself and no link to
// another. It never waits for the other end of a FIFO.
func (w *workspace) openFile(dir *os.Root, name, shown string) (*os.File, fs.FileInfo, error) {
	entry, err := dir.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if err := regular(entry, shown); err != nil {
		return nil, nil, err
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular() || !os.SameFile(entry, info):
		err = errMoved
	case w.set.own.Is(info):
		err = protectedPath(shown)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// regular refuses what is not a regular file, in words for the model.
func regular(info fs.FileInfo, shown string) error {
	mode := info.Mode()
	switch {
	case mode.IsRegular():
		return nil
	case mode&fs.ModeSymlink != 0:
		return errMoved // links were resolved before: this one is new
	case mode.IsDir():
		return toolcrib.Failf(toolcrib.InvalidPath, "%s is a folder; list_directory shows what is in it", shown)
	case mode&fs.ModeNamedPipe != 0:
		return toolcrib.Failf(toolcrib.InvalidPath, "%s is a named pipe, not a regular file", shown)
	case mode&fs.ModeSocket != 0:
		return toolcrib.Failf(toolcrib.InvalidPath, "%s is a socket, not a regular file", shown)
	case mode&fs.ModeDevice != 0:
		return toolcrib.Failf(toolcrib.InvalidPath, "%s is a device, not a regular file", shown)
	}
	return toolcrib.Failf(toolcrib.InvalidPath, "%s is not a regular file", shown)
}

func protectedPath(shown string) error {
	return toolcrib.Failf(toolcrib.PermissionDenied, "protected path: %s", shown)
}

// hidden refuses what tools may not even read.
func (w *workspace) hidden(p place) error {
	if w.set.hidden(w.abs(p.real)) || w.set.own.Is(p.info) {
		return protectedPath(p.shown)
	}
	return nil
}

// protected refuses what tools may not write.
func (w *workspace) protected(p place) error {
	if w.set.hidden(w.abs(p.real)) || w.set.protected(w.abs(p.real)) {
		return protectedPath(p.shown)
	}
	return nil
}
