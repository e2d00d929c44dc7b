// Package tree has get_tree: the folders and files of a run's workspace at a glance,
// without what is protected (N19, N24; contract §11).
package tree

import (
	"context"
	"errors"
	"syscall"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/ignore"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/internal/nolink"
	"github.com/toolcrib/toolcrib/tool/internal/pattern"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	// Name of the tool.
	Name = "get_tree"
	// Group is the group of the tool.
	Group = "files"

	defaultDepth = 3
	maxDepth     = 5 // levels of folders (requirements 1b)
	defaultLimit = 500
	maxLimit     = 2000 // entries of a result
	maxBytes     = 48 << 10
	minBytes     = 1 << 10

	maxFolder  = 100_000 // entries of one folder that are looked at
	maxVisited = 200_000 // entries looked at in one call
)

const parameters = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1, "maxLength": 4096},
		"depth": {"type": "integer", "minimum": 1, "description": "default 3, at most 5"},
		"limit": {"type": "integer", "minimum": 1},
		"ignored": {"type": "boolean"}
	},
	"additionalProperties": false
}`

// Options for [New].
type Options struct {
	// Excluded reports which files and folders the acting user does not see, by absolute
	// path with symbolic links resolved; nil = none. It is called often and by many
	// calls at once.
	Excluded func(who toolcrib.Principal, abs string) bool
}

// New returns get_tree.
func New(options Options) []toolcrib.Tool {
	if options.Excluded == nil {
		options.Excluded = func(toolcrib.Principal, string) bool { return false }
	}
	return []toolcrib.Tool{&getTree{options}}
}

type getTree struct{ options Options }

type input struct {
	Path    string `json:"path"`
	Depth   int    `json:"depth"`
	Limit   int    `json:"limit"`
	Ignored bool   `json:"ignored"`
}

type result struct {
	Path      string  `json:"path"`
	Entries   []*node `json:"entries"`
	Folders   int     `json:"folders"`
	Files     int     `json:"files"`             // and whatever else is no folder
	Ignored   int     `json:"ignored,omitempty"` // files and folders that .gitignore and .ignore left out
	Truncated bool    `json:"truncated,omitempty"`
	Reason    string  `json:"reason,omitempty"` // why it is truncated
}

// node is one entry of a folder.
type node struct {
	Name string `json:"name"`
	Type string `json:"type"`           // folder | file | link | other
	Size int64  `json:"size,omitempty"` // bytes of a file
	// Entries of a folder; absent if it was not looked into, because it lies too deep
	// or cannot be read.
	Entries    *[]*node `json:"entries,omitempty"`
	More       bool     `json:"more,omitempty"` // there are entries that are not shown
	Unreadable bool     `json:"unreadable,omitempty"`

	real string       // path in the workspace
	list *ignore.List // of the folders above; nil if nothing is ignored
}

// Spec describes get_tree.
func (t *getTree) Spec() toolcrib.Spec {
	return wire.Spec(Group, Name, "Show the folders and files of the workspace as a tree.", parameters,
		toolcrib.EffectReadOnly)
}

// place is where a call begins.
type place struct {
	beneath.Place
	folder *beneath.Folder
	shown  string
}

// open finds the folder of the call. What the acting user must not see is not
// there.
func (t *getTree) open(call toolcrib.Call) (p place, in input, err error) {
	in = input{Path: "."}
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return p, in, err
	}
	if in.Depth < 0 || in.Limit < 0 {
		return p, in, toolcrib.Failf(toolcrib.InvalidArguments, "depth and limit must be at least 1")
	}
	if call.Principal.User == "" {
		return p, in, toolcrib.Failf(toolcrib.PermissionDenied, "this call has no user")
	}
	if p.folder, err = beneath.Open(call); err != nil {
		return p, in, err
	}
	if p.shown, err = p.folder.Clean(in.Path); err == nil {
		p.Place, err = p.folder.Resolve(p.shown, beneath.Absent)
	}
	if err == nil && t.options.Excluded(call.Principal, p.folder.Abs(p.Real)) {
		err = toolcrib.Failf(toolcrib.NotFound, "%s", p.shown)
	}
	if err != nil {
		p.folder.Close()
		return p, in, failure(err, p.shown)
	}
	return p, in, nil
}

// failure turns an error of the file system into one that a model can read (C15).
func failure(err error, shown string) error {
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, nolink.ErrMoved) {
		return &toolcrib.ToolError{Kind: toolcrib.InvalidPath, Message: shown + " is not a folder", Err: err}
	}
	return beneath.Failure(err, shown)
}

// Admit refuses a path outside the workspace, by its text or its links (C11).
func (t *getTree) Admit(call toolcrib.Call) error {
	p, _, err := t.open(call)
	if err != nil {
		if made := (*toolcrib.ToolError)(nil); errors.As(err, &made) && made.Kind == toolcrib.NotFound {
			return nil // the call itself says so
		}
		return err
	}
	p.folder.Close()
	return nil
}

// Targets names the folder that is shown.
func (t *getTree) Targets(call toolcrib.Call) []toolcrib.Target {
	p, _, err := t.open(call)
	if err != nil {
		return nil
	}
	defer p.folder.Close()
	return []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: p.folder.Abs(p.Real), Tree: true}}
}

// Call shows the tree, level by level, until it has limit entries or met another of
// its bounds, and says which.
func (t *getTree) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	if err := ctx.Err(); err != nil {
		return toolcrib.Output{}, err
	}
	p, in, err := t.open(call)
	if err != nil {
		return toolcrib.Output{}, err
	}
	defer p.folder.Close()
	w := newWalk(ctx, p, in, call.MaxBytes)
	w.excluded = func(abs string) bool { return t.options.Excluded(call.Principal, abs) }
	found, err := w.run(p)
	if err != nil {
		return toolcrib.Output{}, failure(err, p.shown)
	}
	out, err := wire.Output(found)
	out.Cut = found.Truncated
	return out, err
}

// AllowedBy reports whether patterns of the skills allow the folder of a call.
func (t *getTree) AllowedBy(patterns []string, call toolcrib.Call, targets []toolcrib.Target) (bool, error) {
	in := input{Path: "."}
	err := wire.Decode(call.Arguments, &in)
	return err == nil && pattern.Path(patterns, in.Path, call.Workspace, targets, true), err
}

// BadPattern says why a pattern can match no folder; "" if it can.
func (t *getTree) BadPattern(text string) string { return pattern.BadPath(text, true) }
