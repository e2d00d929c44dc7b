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

// Bounds of the before-images of files.
const (
	maxBefore    = 1 << 20  // bytes of a file that is kept; a larger one cannot be put back
	maxBeforeRun = 32 << 20 // bytes of all that one driver keeps
)

// beforeRef names the before-image of a call in the content store of its run.
func beforeRef(callID string) string { return "before/" + callID }

// fileWrite is the record of a write that the file tools prepare, journaled before the write.
type fileWrite struct {
	Path   string `json:"path"`          // in the workspace, links resolved
	Before string `json:"before_sha256"` // "" = there was no file
	After  string `json:"after_sha256"`
}

// beforeImages is a journal that keeps what a file was before a tool writes it: when the start of the write is
// written down, which is before it happens. What cannot be kept is not; the write continues, and cannot be undone.
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
	// A file with a secret in it is not copied into the database.
	if !bytes.Equal(b.mask.MaskBytes(bytes.Clone(data)), data) {
		return
	}
	_ = b.contents.Put(ctx, run, beforeRef(s.ID), data) // without it the write cannot be undone, no more
}

// contentHash is the hash of what a file holds, as the journal has it.
func contentHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// fileInWorkspace reads a file by its path in a workspace: a regular one that no
// link leads out of, of at most maxBefore bytes.
func fileInWorkspace(workspace, path string) ([]byte, error) {
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // only read
	return safefile.ReadIn(root, filepath.FromSlash(path), maxBefore)
}

// Written is a file that a turn wrote, from before its first write to after its last.
type Written struct {
	Run    toolcrib.RunID
	Call   string // whose before-image is the oldest
	Path   string
	Before string // hash; "" = there was no file
	After  string
}

// before is what a file was before it was written. problem says why that is not known.
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

// WrittenBy are the files that a run and the runs that it started wrote, by path.
func (s *Service) WrittenBy(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID) ([]*Written, error) {
	if _, err := s.Env.Find(ctx, who, string(run)); err != nil {
		return nil, err
	}
	writes, err := s.writesOf(ctx, run, 0)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(writes, func(x, y write) int { return x.at.Compare(y.at) }) // runs write side by side
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

// write is one write of a file that went well.
type write struct {
	fileWrite
	run  toolcrib.RunID
	call string
	at   time.Time
}

// undoDepth is how deep runs that runs have started are looked into.
const undoDepth = 10

// writesOf are the writes that the journals of a run and of those below it report.
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

// errChanged is of a file that someone else changes while it is put back.
var errChanged error = toolcrib.Errorf(toolcrib.CodeConflict, "it was changed by something else in the meantime")

// Remove removes a file that a turn made and an undo has just emptied: exactly that
// one, if it is empty, and was before what the turn left.
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
	// A link is not that file, whatever it leads to: what was written there was no link.
	info, err := root.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil: // something else is in its place
		return errors.Join(errChanged, err)
	case !info.Mode().IsRegular() || info.Size() > 0:
		return errChanged
	}
	return root.Remove(path)
}
