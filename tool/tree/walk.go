package tree

import (
	"context"
	"io/fs"
	"path"

	"github.com/toolcrib/toolcrib/internal/ignore"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

// walk is one look at a tree.
type walk struct {
	ctx      context.Context
	folder   *beneath.Folder
	excluded func(abs string) bool
	depth    int
	all      bool // what is ignored, too
	entries  int  // that may still be shown
	bytes    int  // that they may still have, as JSON
	visited  int
	result   result
}

func newWalk(ctx context.Context, p place, in input, bound int) *walk {
	w := &walk{ctx: ctx, folder: p.folder, all: in.Ignored, depth: defaultDepth, entries: defaultLimit, bytes: maxBytes}
	if in.Depth > 0 {
		w.depth = min(in.Depth, maxDepth)
	}
	if in.Limit > 0 {
		w.entries = min(in.Limit, maxLimit)
	}
	if bound > 0 {
		w.bytes = min(w.bytes, max(bound-minBytes, bound/2))
	}
	w.result = result{Path: p.shown}
	return w
}

// run looks at one level after the other, so that a bound takes away what lies
// deepest.
func (w *walk) run(p place) (result, error) {
	top := &node{real: p.Real}
	if !w.all {
		top.list = ignore.For(w.folder.Root, w.folder.Dir, p.Real)
	}
	level := []*node{top}
	for deep := 0; deep < w.depth && len(level) > 0; deep++ {
		var next []*node
		for _, n := range level {
			err := w.look(n)
			switch {
			case err == nil:
			case n == top || w.ctx.Err() != nil:
				return result{}, err
			default:
				n.Unreadable = true
				continue
			}
			for _, child := range *n.Entries {
				if child.Type == typeFolder {
					next = append(next, child)
				}
			}
			if w.result.Truncated {
				next = nil
				break
			}
		}
		level = next
	}
	w.result.Entries = *top.Entries
	return w.result, nil
}

const (
	typeFolder = "folder"
	typeFile   = "file"
	typeLink   = "link"
	typeOther  = "other"
)

// look reads the entries of one folder, as many as there is room for.
func (w *walk) look(n *node) error {
	dir, err := w.folder.OpenFolder(n.real, nil)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // only read
	entries, more, err := beneath.Entries(w.ctx, dir, min(maxFolder, maxVisited-w.visited))
	if err != nil {
		return err
	}
	w.visited += len(entries)
	shown := []*node{}
	n.Entries = &shown
	if more {
		n.More = true
		w.stop("a folder has more entries than are looked at")
	}
	list := n.list
	if list != nil {
		list = list.Enter(dir, w.folder.Abs(n.real))
	}
	for _, entry := range entries {
		real := path.Join(n.real, entry.Name())
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if w.excluded(w.folder.Abs(real)) {
			continue
		}
		if list.Ignores(w.folder.Abs(real), entry.IsDir()) {
			w.result.Ignored++
			continue
		}
		info, err := dir.Lstat(entry.Name())
		if err != nil {
			continue // gone since
		}
		child := describe(info, real)
		child.list = list
		if !w.room(child) {
			n.More = true
			return nil
		}
		shown = append(shown, child)
		if child.Type == typeFolder {
			w.result.Folders++
		} else {
			w.result.Files++
		}
	}
	return nil
}

func describe(info fs.FileInfo, real string) *node {
	n := &node{Name: info.Name(), Type: typeOther, real: real}
	switch mode := info.Mode(); {
	case mode.IsDir():
		n.Type = typeFolder
	case mode.IsRegular():
		n.Type, n.Size = typeFile, info.Size()
	case mode&fs.ModeSymlink != 0:
		n.Type = typeLink
	}
	return n
}

// room reports whether one more entry may be shown.
func (w *walk) room(n *node) bool {
	if w.entries == 0 {
		w.stop("limit reached; look at one folder (path), or give a higher limit")
		return false
	}
	data, err := wire.Marshal(n)
	size := len(data) + len(`,"entries":[],"more":true,"unreadable":true`)
	if err != nil || size > w.bytes {
		w.stop("the result would be too large; look at one folder (path)")
		return false
	}
	w.entries--
	w.bytes -= size
	return true
}

func (w *walk) stop(reason string) {
	if !w.result.Truncated {
		w.result.Truncated, w.result.Reason = true, reason
	}
}
