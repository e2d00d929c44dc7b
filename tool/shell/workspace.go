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
	rootDir      = "/"  // a workspace that holds the whole machine
)

func isAbs(path string) bool { return filepath.IsAbs(path) && !strings.ContainsRune(path, 0) }

// workspace is the folder of one call, opened.
type workspace struct{ *beneath.Folder }

func openWorkspace(call toolcrib.Call) (*workspace, error) {
	folder, err := beneath.Open(call)
	return &workspace{folder}, err
}

// errEscapes says that a path leaves the workspace.
var errEscapes = beneath.ErrOutside

// resolve follows a path as the system would. One that leaves the workspace at any point, even
// to come back, is refused. What it returns is a look: that nobody changes a link before
// a program opens it is for the sandbox to see to.
func (w *workspace) resolve(name string) (beneath.Place, error) {
	if name == "" || len(name) > maxPathBytes || strings.ContainsRune(name, 0) {
		return beneath.Place{}, toolcrib.Failf(toolcrib.PermissionDenied, "%s is not a path", quote(name))
	}
	if strings.HasPrefix(name, "/") { // only a plain prefix counts: whatever is spelled otherwise is outside
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

// absent reports whether a program would be told that there is no such file.
func absent(err error) bool { return beneath.Absent(err) || notFolder(err) }

// within reports whether path is folder or below it; both absolute and clean.
func within(path, folder string) bool {
	_, in := beneath.Below(path, folder)
	return in
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
		out.Hidden[i] = beneath.Real(path)
	}
	for i, path := range o.Except {
		out.Except[i] = beneath.Real(path)
	}
	out.own = beneath.Own{Paths: out.Hidden[:len(o.Hidden)], Except: out.Except}
	if o.Caches != "" { // files of commands, and many
		out.own.Except = append(slices.Clone(out.Except), beneath.Real(o.Caches))
	}
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
