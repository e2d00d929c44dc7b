package shell

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

const rootDir = "/" // as a workspace it contains the whole machine

func isAbs(path string) bool { return filepath.IsAbs(path) && !strings.ContainsRune(path, 0) }

// workspace is the open workspace of one call.
type workspace struct{ *beneath.Folder }

func openWorkspace(call toolcrib.Call) (*workspace, error) {
	folder, err := beneath.Open(call)
	return &workspace{folder}, err
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

func refuse(format string, args ...any) error {
	return toolcrib.Failf(toolcrib.PermissionDenied, format, args...)
}
