package service

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Bounds of the before-images of files, in bytes.
const (
	maxBefore    = 1 << 20  // of a file; a larger one cannot be put back
	maxBeforeRun = 32 << 20 // of all files that one driver keeps
)

// beforeRef returns the name of the before-image of a call in the content store of its run.
func beforeRef(callID string) string { return "before/" + callID }

// fileWrite is the record of a write that the file tools journal before the write.
type fileWrite struct {
	Path   string `json:"path"`          // in the workspace, with links resolved
	Before string `json:"before_sha256"` // "" if there was no file
	After  string `json:"after_sha256"`
}

// beforeImages is a journal that keeps the content of a file when the start of a write is appended, which is before the
// write. If it cannot keep the content, the write continues and cannot be undone.
type beforeImages struct {
	toolcrib.Journal
	contents  toolcrib.Contents
	mask      *guard.Masker
	workspace string
	wrote     func(context.Context, toolcrib.RunID, []toolcrib.Event)
	kept      atomic.Int64
}

// Append implements [toolcrib.Journal].
func (b *beforeImages) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq,
	events ...toolcrib.Event,
) error {
	for _, e := range events {
		if s, ok := e.Body.(*journal.ToolStarted); ok && s.Write && len(s.Prepared) > 0 {
			b.keep(ctx, run, s)
		}
	}
	err := b.Journal.Append(ctx, run, after, events...)
	if err == nil {
		b.wrote(ctx, run, events)
	}
	return err
}

func (b *beforeImages) keep(ctx context.Context, run toolcrib.RunID, s *journal.ToolStarted) {
	var w fileWrite
	if json.Unmarshal(s.Prepared, &w) != nil || w.Path == "" || w.Before == "" || w.Before == w.After {
		return
	}
	data, err := fileInWorkspace(b.workspace, w.Path)
	if err != nil || contentHash(data) != w.Before || b.kept.Add(int64(len(data))) > maxBeforeRun {
		return
	}
	// A file that contains a secret is not copied into the database.
	if !bytes.Equal(b.mask.MaskBytes(bytes.Clone(data)), data) {
		return
	}
	_ = b.contents.Put(ctx, run, beforeRef(s.ID), data) // without it the write cannot be undone
}

// contentHash returns the hash of the content of a file, as it is in the journal.
func contentHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// fileInWorkspace reads a regular file of at most maxBefore bytes in a workspace. Links that lead out of the workspace
// are not followed.
func fileInWorkspace(workspace, path string) ([]byte, error) {
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // only read
	return safefile.ReadIn(root, filepath.FromSlash(path), maxBefore)
}

// Written is a file that a run wrote, from before its first write to after its last.
type Written struct {
	Run    toolcrib.RunID
	Call   string // the call with the oldest before-image
	Path   string
	Before string // hash, or "" if there was no file
	After  string
}

// before returns the content of a file before it was written. problem says why it is not known.
func (s *Service) before(ctx context.Context, w *Written) (text, problem string, err error) {
	data, size, err := s.Env.Store.Range(ctx, w.Run, beforeRef(w.Call), 0, maxBefore)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound):
		return "", fmt.Sprintf("%s: what it was before is not kept (it was larger than %d kB, held a secret, or was written by an "+
			"older version)", w.Path, maxBefore>>10), nil
	case err == nil && (size != int64(len(data)) || contentHash(data) != w.Before || !utf8.Valid(data)):
		return "", w.Path + ": what it was before is not text, and write_file writes only text; it is left as it is", nil
	}
	return string(data), "", err
}

// WrittenBy returns the files that a run and the runs below it wrote, by path.
func (s *Service) WrittenBy(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID) ([]*Written, error) {
	if _, err := s.Env.Find(ctx, who, string(run)); err != nil {
		return nil, err
	}
	writes, err := s.writesOf(ctx, run, 0)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(writes, func(x, y write) int { return x.at.Compare(y.at) }) // runs write concurrently
	var files []*Written
	byPath := map[string]*Written{}
	for _, w := range writes {
		one := byPath[w.Path]
		if one == nil {
			one = &Written{Run: w.run, Call: w.call, Path: w.Path, Before: w.Before}
			byPath[w.Path] = one
			files = append(files, one)
		}
		one.After = w.After
	}
	slices.SortFunc(files, func(x, y *Written) int { return strings.Compare(x.Path, y.Path) })
	return files, nil
}

// write is one successful write of a file.
type write struct {
	fileWrite
	run  toolcrib.RunID
	call string
	at   time.Time
}

// undoDepth bounds the depth of the runs below a run that are looked at.
const undoDepth = 10

// writesOf returns the writes in the journals of a run and of the runs below it.
func (s *Service) writesOf(ctx context.Context, run toolcrib.RunID, depth int) ([]write, error) {
	var writes []write
	started := map[string]*journal.ToolStarted{}
	for e, err := range s.Env.Store.Read(ctx, run, 0) {
		if err != nil {
			return nil, err
		}
		switch b := e.Body.(type) {
		case *journal.ToolStarted:
			started[b.ID] = b
		case *journal.ToolResult:
			begun, w := started[b.ToolCallID], write{run: run, call: b.ToolCallID, at: e.Time}
			if begun == nil || b.Status != toolcrib.ResultOK || json.Unmarshal(begun.Prepared, &w.fileWrite) != nil ||
				w.Path == "" || w.After == "" {
				continue
			}
			writes = append(writes, w)
		case *journal.ChildStarted:
			if depth >= undoDepth {
				continue
			}
			below, err := s.writesOf(ctx, b.Run, depth+1)
			switch {
			case errors.Is(err, toolcrib.ErrNotFound), errors.Is(err, store.ErrPruned):
			case err != nil:
				return nil, err
			}
			writes = append(writes, below...)
		}
	}
	return writes, nil
}

// errChanged is the error for a file that was changed while it was put back.
var errChanged error = toolcrib.Errorf(toolcrib.CodeConflict, "it was changed by something else in the meantime")

// Remove removes a file that a run made, if an undo has just emptied it and it was before what the run left.
func (w *Written) Remove(workspace string, started *journal.ToolStarted) error {
	var emptied fileWrite
	if started == nil || json.Unmarshal(started.Prepared, &emptied) != nil || emptied.Path != w.Path ||
		emptied.Before != w.After {
		return errChanged
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return errors.Join(errChanged, err)
	}
	defer root.Close() //nolint:errcheck // nothing is written by it
	path := filepath.FromSlash(w.Path)
	// A link is not that file, because the write did not make a link.
	info, err := root.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil: // another file is in its place
		return errors.Join(errChanged, err)
	case !info.Mode().IsRegular() || info.Size() > 0:
		return errChanged
	}
	return root.Remove(path)
}
