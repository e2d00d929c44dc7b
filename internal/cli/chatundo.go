package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// undoLooked is how many turns of a session are looked through for one that wrote.
const undoLooked = 50

// written is a file that a turn wrote, from before its first write to after its
// last.
type written struct {
	run    toolcrib.RunID
	call   string // whose before-image is the oldest
	path   string
	before string // hash; "" = there was no file
	after  string
}

// undo puts back what the last turn that changed files has changed. Each file is a
// judged call of write_file, as any other; one that the turn made is removed when that
// call has emptied it.
func (c *chat) undo(ctx context.Context) error {
	if c.session.info.ID == "" {
		c.front.note("nothing was said in this session yet, so there is nothing to undo")
		return nil
	}
	runs, err := c.a.store.SessionRuns(ctx, c.who.User, c.session.info.ID)
	if err != nil {
		return err
	}
	for i := len(runs) - 1; i >= 0 && len(runs)-i <= undoLooked; i-- {
		if !runs[i].PrunedAt.IsZero() {
			break
		}
		files, err := c.writtenBy(ctx, runs[i].ID)
		if err != nil {
			return err
		}
		if done, err := c.undoTurn(ctx, runs[i], files); done || err != nil {
			return err
		}
	}
	c.front.note("no turn of this session has changed a file that is still as it left it")
	return nil
}

// writtenBy are the files that a run and the runs that it started wrote, by path.
func (c *chat) writtenBy(ctx context.Context, run toolcrib.RunID) ([]*written, error) {
	writes, err := c.writesOf(ctx, run, 0)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(writes, func(x, y write) int { return x.at.Compare(y.at) }) // runs write side by side
	var files []*written
	byPath := map[string]*written{}
	for _, w := range writes {
		one := byPath[w.Path]
		if one == nil {
			one = &written{run: w.run, call: w.call, path: w.Path, before: w.Before}
			byPath[w.Path] = one
			files = append(files, one)
		}
		one.after = w.After
	}
	slices.SortFunc(files, func(x, y *written) int { return strings.Compare(x.path, y.path) })
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

// writesOf are the writes that the journals of a run and of those below it tell of.
func (c *chat) writesOf(ctx context.Context, run toolcrib.RunID, depth int) ([]write, error) {
	var writes []write
	started := map[string]*journal.ToolStarted{}
	for e, err := range c.a.store.Read(ctx, run, 0) {
		if err != nil {
			return nil, err
		}
		switch b := e.Body.(type) {
		case *journal.ToolStarted:
			started[b.ID] = b
		case *journal.ToolResult:
			s, w := started[b.ToolCallID], write{run: run, call: b.ToolCallID, at: e.Time}
			if s == nil || b.Status != toolcrib.ResultOK || json.Unmarshal(s.Prepared, &w.fileWrite) != nil || w.Path == "" || w.After == "" {
				continue
			}
			writes = append(writes, w)
		case *journal.ChildStarted:
			if depth >= undoDepth {
				continue
			}
			below, err := c.writesOf(ctx, b.Run, depth+1)
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

// undoTurn puts back what one turn wrote; done is false if that is as it was
// already.
func (c *chat) undoTurn(ctx context.Context, rec store.RunRecord, files []*written) (done bool, err error) {
	var back []string
	for _, w := range files {
		now, err := fileInWorkspace(rec.Workspace, w.path)
		hash := hashOf(now)
		if errors.Is(err, fs.ErrNotExist) {
			hash, err = "", nil
		}
		switch {
		case w.before == w.after, hash == w.before && err == nil, w.before == "" && err == nil && len(now) == 0 && hash != w.after:
			continue // it is as it was before the turn, or was emptied since
		case err != nil:
			c.front.warn(fmt.Sprintf("%s cannot be read now, so it is left as it is", w.path))
		case rec.Workspace != c.workspace:
			c.front.warn(fmt.Sprintf("%s was written in another workspace, %s; it is left as it is", w.path, rec.Workspace))
		case hash != w.after:
			c.front.warn(w.path + " was changed by somebody else since; it is left as it is")
		default:
			ok, err := c.putBack(ctx, w)
			if err != nil {
				return true, err
			}
			if ok {
				back = append(back, w.path)
			}
		}
		done = true
	}
	if len(back) > 0 {
		c.undone = append(c.undone, back...)
		c.front.note("the model will be told with your next message")
	}
	return done, nil
}

// putBack writes what a file was before, by a judged call.
func (c *chat) putBack(ctx context.Context, w *written) (ok bool, err error) {
	var before []byte
	if w.before != "" {
		data, size, err := c.a.store.Range(ctx, w.run, beforeRef(w.call), 0, maxBefore)
		switch {
		case errors.Is(err, toolcrib.ErrNotFound):
			c.front.warn(fmt.Sprintf("%s: what it was before is not kept (it was larger than %d kB, held a secret, or was written by an older version)", w.path, maxBefore>>10))
			return false, nil
		case err != nil:
			return false, err
		case size != int64(len(data)) || hashOf(data) != w.before || !utf8.Valid(data):
			c.front.warn(w.path + ": what it was before is no text, and write_file writes only text; it is left as it is")
			return false, nil
		}
		before = data
	}
	raw, err := json.Marshal(map[string]string{"path": w.path, "content": string(before)})
	if err != nil {
		return false, err
	}
	state, err := c.givenCall(ctx, "write_file", raw)
	if err != nil || state == nil {
		return false, err
	}
	r, removal := state.Trace[0].Result, error(nil)
	if w.before == "" && r != nil && r.Status == toolcrib.ResultOK {
		removal = c.remove(state.Trace[0].Started, w)
	}
	switch {
	case state.Status.Parked():
		c.front.note("the undo waits for a decision: toolcrib approvals show last")
		return false, nil
	case r == nil || r.Status != toolcrib.ResultOK:
		c.front.warn(w.path + " is left as it is")
		return false, nil
	case removal != nil:
		c.front.warn(fmt.Sprintf("%s did not exist before, but stays: %v", w.path, removal))
	case w.before == "":
		c.front.note(w.path + " did not exist before; it is removed")
	default:
		c.front.note(fmt.Sprintf("%s is as it was (%d bytes)", w.path, len(before)))
	}
	return true, nil
}

// errChanged is of a file that somebody else changes while it is put back.
var errChanged = errors.New("somebody else has changed it meanwhile")

// remove removes a file that a turn made and an undo has just emptied: exactly that
// one, if it is empty, and was before what the turn left.
func (c *chat) remove(started *journal.ToolStarted, w *written) error {
	var emptied fileWrite
	if started == nil || json.Unmarshal(started.Prepared, &emptied) != nil || emptied.Path != w.path || emptied.Before != w.after {
		return errChanged
	}
	root, err := os.OpenRoot(c.workspace)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written by it
	path := filepath.FromSlash(w.path)
	// A link is none of it, whatever it leads to: the path has none since it was written.
	info, err := root.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Size() > 0:
		return errChanged
	}
	return root.Remove(path)
}

// givenCall carries out one call without a model, as tools call does; nil = it was
// cut off, which was told.
func (c *chat) givenCall(ctx context.Context, name string, raw []byte) (*agent.State, error) {
	task := agent.Task{Given: c.a.given(name, raw)}
	if err := c.fill(&task, c.front.note); err != nil {
		return nil, err
	}
	d, err := c.drive(ctx, &task)
	if err != nil {
		return nil, err
	}
	d.seen = []*agent.Call{{ToolCall: *task.Given}}
	state, err := c.carry(ctx, d, true, func(ctx context.Context, r *agent.Runner) (*agent.State, error) { return r.Run(ctx, task) })
	if err != nil {
		c.front.warn(strings.TrimSpace(d.cutOff(state, err).Error()))
		return nil, ctxCause(ctx)
	}
	return state, nil
}
