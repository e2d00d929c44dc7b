package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Bounds of the before-images of files.
const (
	maxBefore    = 1 << 20  // bytes of a file that is kept; a larger one cannot be put back
	maxBeforeRun = 32 << 20 // bytes of all that one driver keeps
)

// beforeRef names the before-image of a call in the content store of its run.
func beforeRef(callID string) string { return "before/" + callID }

// fileWrite is what the journal keeps of a write of a file before it happens, as
// the file tools prepare it.
type fileWrite struct {
	Path   string `json:"path"`          // in the workspace, links resolved
	Before string `json:"before_sha256"` // "" = there was no file
	After  string `json:"after_sha256"`
}

// beforeImages is a journal that keeps what a file was before a tool writes it:
// when the start of the write is written down, which is before it happens. What
// cannot be kept is not; the write goes on, and cannot be undone.
type beforeImages struct {
	toolcrib.Journal
	contents  toolcrib.Contents
	mask      *guard.Masker
	workspace string
	kept      atomic.Int64
}

// journaled is the journal that the drive writes to.
func (d *drive) journaled() toolcrib.Journal {
	return &beforeImages{Journal: d.a.store, contents: d.a.store, mask: d.a.mask(), workspace: d.workspace}
}

// Append implements [toolcrib.Journal].
func (b *beforeImages) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	for _, e := range events {
		if s, ok := e.Body.(*journal.ToolStarted); ok && s.Write && len(s.Prepared) > 0 {
			b.keep(ctx, run, s)
		}
	}
	return b.Journal.Append(ctx, run, after, events...)
}

func (b *beforeImages) keep(ctx context.Context, run toolcrib.RunID, s *journal.ToolStarted) {
	var w fileWrite
	if json.Unmarshal(s.Prepared, &w) != nil || w.Path == "" || w.Before == "" || w.Before == w.After {
		return
	}
	data, err := fileInWorkspace(b.workspace, w.Path)
	if err != nil || hashOf(data) != w.Before || b.kept.Add(int64(len(data))) > maxBeforeRun {
		return
	}
	// A file with a secret in it is not copied into the database.
	if !bytes.Equal(b.mask.MaskBytes(bytes.Clone(data)), data) {
		return
	}
	_ = b.contents.Put(ctx, run, beforeRef(s.ID), data) // without it the write cannot be undone, no more
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

var errNoPlainFile = errors.New("is not a regular file, or too large")

// fileInWorkspace reads a file by its path in a workspace: a regular one that no
// link leads out of, of at most maxBefore bytes.
func fileInWorkspace(workspace, path string) ([]byte, error) {
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // only read
	f, err := root.OpenFile(filepath.FromSlash(path), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxBefore {
		return nil, errNoPlainFile
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBefore+1))
	if err == nil && len(data) > maxBefore {
		err = errNoPlainFile
	}
	return data, err
}
