package files

import (
	"context"
	"io/fs"
	"path"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/ignore"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	nameGetTree = "get_tree"

	defaultDepth   = 3
	maxTreeDepth   = 5 // levels of folders
	defaultEntries = 500
	maxTreeEntries = 2000 // of a result
	maxTreeBytes   = 48 << 10
	minTreeBytes   = 1 << 10

	maxTreeVisited = 200_000 // entries read in one call
)

const getTreeParameters = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1, "maxLength": 4096},
		"depth": {"type": "integer", "minimum": 1, "description": "default 3, at most 5"},
		"limit": {"type": "integer", "minimum": 1},
		"ignored": {"type": "boolean"}
	},
	"additionalProperties": false
}`

type treeInput struct {
	pathOf
	Depth   int  `json:"depth"`
	Limit   int  `json:"limit"`
	Ignored bool `json:"ignored"`
}

type treeResult struct {
	Path      string      `json:"path"`
	Entries   []*treeNode `json:"entries"`
	Folders   int         `json:"folders"`
	Files     int         `json:"files"`             // everything that is not a folder
	Ignored   int         `json:"ignored,omitempty"` // files and folders excluded by .gitignore and .ignore
	Truncated bool        `json:"truncated,omitempty"`
	Reason    string      `json:"reason,omitempty"` // why it is truncated
}

// treeNode is one entry of a folder.
type treeNode struct {
	Name string `json:"name"`
	Type string `json:"type"`           // folder | file | link | other
	Size int64  `json:"size,omitempty"` // bytes of a file
	// Entries are the entries of a folder; nil if it was not read because it is too deep or unreadable.
	Entries    *[]*treeNode `json:"entries,omitempty"`
	More       bool         `json:"more,omitempty"` // whether there are entries that are not shown
	Unreadable bool         `json:"unreadable,omitempty"`

	real string       // path in the workspace
	list *ignore.List // ignore rules of the folders above; nil if nothing is ignored
}

// getTree shows the folders and files of a workspace, without protected and hidden ones (N19, N24):
// level by level, until it has limit entries or reaches another bound, and says which.
func getTree(ctx context.Context, call toolcrib.Call, w *workspace, p place, in treeInput) (toolcrib.Output, error) {
	switch {
	case in.Depth < 0 || in.Limit < 0:
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.InvalidArguments, "depth and limit must be at least 1")
	case call.Principal.User == "":
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.PermissionDenied, "this call has no user")
	case w.protected(p) != nil:
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.NotFound, "%s", p.shown)
	}
	found, err := newWalk(ctx, w, in, call.MaxBytes).run(p, in.Ignored)
	if err != nil {
		return toolcrib.Output{}, err
	}
	out, err := wire.Output(found)
	out.Cut = found.Truncated
	return out, err
}

// walk reads a tree for one call.
type walk struct {
	ctx     context.Context
	w       *workspace
	depth   int
	entries int // number of entries that may still be shown
	bytes   int // bytes of JSON that may still be added
	visited int
	result  treeResult
}

func newWalk(ctx context.Context, w *workspace, in treeInput, bound int) *walk {
	k := &walk{ctx: ctx, w: w, depth: defaultDepth, entries: defaultEntries, bytes: maxTreeBytes}
	if in.Depth > 0 {
		k.depth = min(in.Depth, maxTreeDepth)
	}
	if in.Limit > 0 {
		k.entries = min(in.Limit, maxTreeEntries)
	}
	if bound > 0 {
		k.bytes = min(k.bytes, max(bound-minTreeBytes, bound/2))
	}
	return k
}

// run reads one level after the other, so that bounds cut off the deepest levels.
func (k *walk) run(p place, all bool) (treeResult, error) {
	top := &treeNode{real: p.real}
	if !all {
		top.list = ignore.For(k.w.Root, k.w.Dir, p.real)
	}
	dir, err := k.w.openFolder(p)
	if err != nil {
		return treeResult{}, err
	}
	_ = dir.Close() // it was opened only to check that it is a folder
	level := []*treeNode{top}
	for deep := 0; deep < k.depth && !k.result.Truncated; deep++ {
		var next []*treeNode
		for _, n := range level {
			if err := k.look(n); err != nil {
				if n == top || k.ctx.Err() != nil {
					return treeResult{}, err
				}
				n.Unreadable = true
				continue
			}
			for _, child := range *n.Entries {
				if child.Type == typeFolder {
					next = append(next, child)
				}
			}
			if k.result.Truncated {
				break
			}
		}
		level = next
	}
	k.result.Path, k.result.Entries = p.shown, *top.Entries
	return k.result, nil
}

const typeFolder = "folder"

// look reads the entries of one folder, as far as the bounds allow.
func (k *walk) look(n *treeNode) error {
	dir, err := k.w.OpenFolder(n.real, nil)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only read
	entries, more, err := beneath.Entries(k.ctx, dir, min(maxDirectory, maxTreeVisited-k.visited))
	if err != nil {
		return err
	}
	k.visited += len(entries)
	shown := []*treeNode{}
	n.Entries = &shown
	if more {
		n.More = true
		k.stop("a folder has more entries than are looked at")
	}
	list := n.list
	if list != nil {
		list = list.Enter(dir, k.w.Abs(n.real))
	}
	for _, entry := range entries {
		if err := k.ctx.Err(); err != nil {
			return err
		}
		real := path.Join(n.real, entry.Name())
		if abs := k.w.Abs(real); k.w.set.hidden(abs) || k.w.set.protected(abs) {
			continue
		} else if list.Ignores(abs, entry.IsDir()) {
			k.result.Ignored++
			continue
		}
		info, err := dir.Lstat(entry.Name())
		if err != nil {
			continue // it was just removed
		}
		child := describe(info)
		child.real, child.list = real, list
		if !k.room(child) {
			n.More = true
			return nil
		}
		shown = append(shown, child)
		if child.Type == typeFolder {
			k.result.Folders++
		} else {
			k.result.Files++
		}
	}
	return nil
}

func describe(info fs.FileInfo) *treeNode {
	n := &treeNode{Name: info.Name(), Type: "other"}
	switch mode := info.Mode(); {
	case mode.IsDir():
		n.Type = typeFolder
	case mode.IsRegular():
		n.Type, n.Size = "file", info.Size()
	case mode&fs.ModeSymlink != 0:
		n.Type = "link"
	}
	return n
}

// room reports whether the bounds allow another entry, and counts it.
func (k *walk) room(n *treeNode) bool {
	if k.entries == 0 {
		k.stop("limit reached; look at one folder (path), or give a higher limit")
		return false
	}
	data, err := wire.Marshal(n)
	size := len(data) + len(`,"entries":[],"more":true,"unreadable":true`)
	if err != nil || size > k.bytes {
		k.stop("the result would be too large; look at one folder (path)")
		return false
	}
	k.entries--
	k.bytes -= size
	return true
}

func (k *walk) stop(reason string) {
	if !k.result.Truncated {
		k.result.Truncated, k.result.Reason = true, reason
	}
}
