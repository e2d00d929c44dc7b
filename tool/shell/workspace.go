package shell

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

const (
	maxPathBytes = 4096 // PATH_MAX of Linux
	rootDir      = "/"  // as a workspace it contains the whole machine
)

func isAbs(path string) bool { return filepath.IsAbs(path) && !strings.ContainsRune(path, 0) }

// workspace is the open workspace of one call.
type workspace struct{ *beneath.Folder }

func openWorkspace(call toolcrib.Call) (*workspace, error) {
	folder, err := beneath.Open(call)
	return &workspace{folder}, err
}

// errEscapes says that a path leaves the workspace.
var errEscapes = beneath.ErrOutside

// resolve resolves a path as the system would. It refuses a path that leaves the workspace at any
// point, even if it returns. The result may be outdated when a program opens the path, if a link
// was changed in between; this is left to the sandbox.
func (w *workspace) resolve(name string) (beneath.Place, error) {
	if name == "" || len(name) > maxPathBytes || strings.ContainsRune(name, 0) {
		return beneath.Place{}, toolcrib.Failf(toolcrib.PermissionDenied, "%s is not a path", quote(name))
	}
	if strings.HasPrefix(name, "/") { // only a literal prefix is inside, whatever it resolves to
		inside, ok := beneath.Below(name, w.Given, w.Dir)
		if !ok {
			return beneath.Place{}, errEscapes
		}
		name = inside
	}
	p, err := w.Resolve(name, absent)
	if errors.Is(err, beneath.ErrLinks) {
		err = toolcrib.Failf(toolcrib.PermissionDenied, "too many symbolic links: %s", quote(name))
	}
	return p, err
}

// absent reports whether err is what a program gets for a missing file.
func absent(err error) bool { return beneath.Absent(err) || notFolder(err) }

// within reports whether path is folder or below it; both absolute and clean.
func within(path, folder string) bool {
	_, in := beneath.Below(path, folder)
	return in
}

// resolved returns the options with links resolved in Hidden and Except. This is done for each
// call, since links may change. If the workspace is the root of the file system, the machine's
// own trees are also hidden.
func (o *Options) resolved(dir string) *Options {
	out := *o
	hidden := o.Hidden
	if dir == rootDir {
		hidden = slices.Concat(hidden, beneath.MachineTrees())
	}
	out.Hidden, out.Except = make([]string, len(hidden)), make([]string, len(o.Except))
	for i, path := range hidden {
		out.Hidden[i] = beneath.Real(path)
	}
	for i, path := range o.Except {
		out.Except[i] = beneath.Real(path)
	}
	out.own = beneath.Own{Paths: out.Hidden[:len(o.Hidden)], Except: out.Except}
	if o.Caches != "" { // many files, all written by commands
		out.own.Except = append(slices.Clone(out.Except), beneath.Real(o.Caches))
	}
	return &out
}

// hides reports whether abs is hidden. The longest path decides.
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

// holdsHidden reports whether a hidden path is below the folder abs.
func (o *Options) holdsHidden(abs string) bool {
	for _, path := range o.Hidden {
		if path != abs && within(path, abs) {
			return true
		}
	}
	return false
}
