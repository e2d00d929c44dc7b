package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/service"
)

// undoLooked is how many turns of a session are looked through for one that wrote.
const undoLooked = 50

// undo puts back what the last turn that changed files has changed. Each file is a
// judged call of write_file, as any other; one that the turn made is removed when that
// call has emptied it.
func (c *chat) undo(ctx context.Context) error {
	if c.p.Session.Info.ID == "" {
		c.front.note("nothing was said in this session yet, so there is nothing to undo")
		return nil
	}
	runs, err := c.a.service.SessionRuns(ctx, c.p.Who, c.p.Session.Info.ID)
	if err != nil {
		return err
	}
	for i := len(runs) - 1; i >= 0 && len(runs)-i <= undoLooked; i-- {
		if runs[i].PrunedAt != nil {
			break
		}
		files, err := c.a.service.WrittenBy(ctx, c.p.Who, runs[i].ID)
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

// undoTurn puts back what one turn wrote; done is false if that is as it was
// already.
func (c *chat) undoTurn(ctx context.Context, rec service.Run, files []*service.Written) (done bool, err error) {
	var back []string
	for _, w := range files {
		now, err := service.FileInWorkspace(rec.Workspace, w.Path)
		hash := service.ContentHash(now)
		if errors.Is(err, fs.ErrNotExist) {
			hash, err = "", nil
		}
		switch {
		case w.Before == w.After, hash == w.Before && err == nil,
			w.Before == "" && err == nil && len(now) == 0 && hash != w.After:
			continue // it is as it was before the turn, or was emptied since
		case err != nil:
			c.front.warn(fmt.Sprintf("%s cannot be read now, so it was not changed", w.Path))
		case rec.Workspace != c.p.Workspace:
			c.front.warn(fmt.Sprintf("%s was written in another workspace, %s; it is left as it is", w.Path, rec.Workspace))
		case hash != w.After:
			c.front.warn(w.Path + " has changed since; it is left as it is")
		default:
			ok, err := c.putBack(ctx, w)
			if err != nil {
				return true, err
			}
			if ok {
				back = append(back, w.Path)
			}
		}
		done = true
	}
	if len(back) > 0 {
		c.undone = append(c.undone, "Your changes of "+strings.Join(back, ", ")+" were undone.")
		c.front.note("the model will be told with your next message")
	}
	return done, nil
}

// putBack writes what a file was before, by a judged call.
func (c *chat) putBack(ctx context.Context, w *service.Written) (ok bool, err error) {
	var before []byte
	if w.Before != "" {
		data, err := c.a.service.Before(ctx, c.p.Who, w)
		switch {
		case errors.Is(err, toolcrib.ErrNotFound):
			c.front.warn(fmt.Sprintf("%s: what it was before is not kept (it was larger than %d kB, held a secret, or was written by an older version)", w.Path, service.MaxBefore>>10))
			return false, nil
		case toolcrib.CodeOf(err) == toolcrib.CodeBadRequest:
			c.front.warn(w.Path + ": what it was before is not text, and write_file writes only text; it is left as it is")
			return false, nil
		case err != nil:
			return false, err
		}
		before = data
	}
	raw, err := json.Marshal(map[string]string{"path": w.Path, "content": string(before)})
	if err != nil {
		return false, err
	}
	run, err := c.givenCall(ctx, undoTool, raw)
	if err != nil || run == nil {
		return false, err
	}
	ok, removal := run.Trace[0].Status == toolcrib.ResultOK, error(nil)
	if w.Before == "" && ok {
		removal = c.a.service.RemoveMade(ctx, c.p.Who, w, run)
	}
	switch {
	case run.Status.Parked():
		c.front.note("the undo waits for a decision: toolcrib approvals show last")
		return false, nil
	case !ok:
		c.front.warn(w.Path + " is left as it is")
		return false, nil
	case removal != nil:
		c.front.warn(fmt.Sprintf("%s did not exist before, but stays: %v", w.Path, removal))
	case w.Before == "":
		c.front.note(w.Path + " did not exist before; it is removed")
	default:
		c.front.note(fmt.Sprintf("%s is as it was (%d bytes)", w.Path, len(before)))
	}
	return true, nil
}

// undoTool is what puts a file back.
const undoTool = "write_file"

// givenCall carries out one call without a model, as tools call does; nil = it was
// cut off, which was told.
func (c *chat) givenCall(ctx context.Context, name string, raw []byte) (*service.Run, error) {
	c.holdMode()
	given := c.a.api.GivenCall(name, raw)
	run, err := c.carry(ctx, c.p.Approve, given, func(ctx context.Context, f service.Front) (service.Run, error) {
		return c.begin(ctx, agent.Task{Given: given}, f)
	})
	if err != nil {
		c.front.warn(strings.TrimSpace(c.a.cutOff(&run, err).Error()))
		return nil, ctxCause(ctx)
	}
	return &run, nil
}
