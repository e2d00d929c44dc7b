package files

import (
	"context"
	"io/fs"
	"os"
	"path"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	nameListDirectory = "list_directory"

	maxListed    = 10_000  // entries of a result
	maxDirectory = 100_000 // entries of one folder that are read
)

const listDirectoryParameters = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1, "maxLength": 4096}
	},
	"additionalProperties": false
}`

type listDirectoryResult struct {
	Entries   []listEntry `json:"entries"`
	Truncated bool        `json:"truncated,omitempty"` // whether there are more
}

type listEntry struct {
	Name      string `json:"name"`
	IsDir     bool   `json:"is_dir"`
	Size      int64  `json:"size"` // bytes; 0 for a folder
	IsSymlink bool   `json:"is_symlink,omitempty"`
}

// listDirectory lists one folder. A link is described by its target if that is inside the workspace,
// and only as a link otherwise.
func listDirectory(ctx context.Context, _ toolcrib.Call, w *workspace, p place, _ pathOf) (toolcrib.Output, error) {
	result, err := w.list(ctx, p)
	if err != nil {
		return toolcrib.Output{}, err
	}
	out, err := wire.Output(result)
	out.Cut = result.Truncated
	return out, err
}

// openFolder opens the folder at p.
func (w *workspace) openFolder(p place) (*os.Root, error) {
	if err := w.hidden(p); err != nil {
		return nil, err
	}
	switch {
	case p.info == nil:
		return nil, toolcrib.Failf(toolcrib.NotFound, "%s", p.shown)
	case !p.info.IsDir():
		return nil, toolcrib.Failf(toolcrib.InvalidPath, "%s is not a folder", p.shown)
	}
	return w.OpenFolder(p.real, nil)
}

func (w *workspace) list(ctx context.Context, p place) (listDirectoryResult, error) {
	dir, err := w.openFolder(p)
	if err != nil {
		return listDirectoryResult{}, err
	}
	defer dir.Close() //nolint:errcheck // only read
	found, more, err := beneath.Entries(ctx, dir, maxDirectory)
	if err != nil {
		return listDirectoryResult{}, err
	}
	result := listDirectoryResult{Entries: []listEntry{}, Truncated: more}
	for i, entry := range found {
		if i%256 == 0 && ctx.Err() != nil {
			return listDirectoryResult{}, ctx.Err()
		}
		at := path.Join(p.real, entry.Name())
		if w.set.hidden(w.Abs(at)) {
			continue
		}
		if len(result.Entries) == maxListed {
			result.Truncated = true
			break
		}
		info, err := dir.Lstat(entry.Name())
		if err != nil {
			continue // it was just removed
		}
		result.Entries = append(result.Entries, w.entry(at, info))
	}
	return result, nil
}

func (w *workspace) entry(at string, info fs.FileInfo) listEntry {
	e := listEntry{Name: info.Name(), IsSymlink: info.Mode()&fs.ModeSymlink != 0}
	if e.IsSymlink {
		target, err := w.find(at)
		if err != nil || target.info == nil || w.hidden(target) != nil {
			return e
		}
		info = target.info
	}
	e.IsDir = info.IsDir()
	if info.Mode().IsRegular() {
		e.Size = info.Size()
	}
	return e
}
