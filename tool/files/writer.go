package files

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

// change is what a call would do to one file.
type change struct {
	path    string
	content func(before []byte, shown string) ([]byte, error) // the file's new content
	edits   bool                                              // content wants the old one, so there must be one
	message func(shown string, after int) string
}

// writer is what write_file and edit_file have in common: both make the content of
// a file from a call, and differ in how.
type writer struct {
	pathPolicy
	spec toolcrib.Spec
	read func(call toolcrib.Call) (change, error)
}

// prepared is what the journal keeps of a write that is about to happen.
type prepared struct {
	Path         string `json:"path"`          // in the workspace, links resolved
	BeforeSHA256 string `json:"before_sha256"` // "" = there was no file
	AfterSHA256  string `json:"after_sha256"`
	BeforeBytes  int64  `json:"before_bytes"`
	AfterBytes   int64  `json:"after_bytes"`
}

type writeResult struct {
	Message string `json:"message"`
}

// Spec describes the tool.
func (t *writer) Spec() toolcrib.Spec { return t.spec }

// Targets names the file that is written, links resolved as far as it exists.
func (t *writer) Targets(call toolcrib.Call) []toolcrib.Target { return t.targets(call, true) }

// with opens the workspace and finds the file of call, again if it moves.
func (t *writer) with(ctx context.Context, call toolcrib.Call, do func(*workspace, place, change) error) error {
	c, err := t.read(call)
	if err != nil {
		return err
	}
	w, err := t.set.open(call)
	if err != nil {
		return err
	}
	defer w.Close()
	return w.at(ctx, c.path, func(p place) error {
		if strings.HasSuffix(c.path, "/") {
			return toolcrib.Failf(toolcrib.InvalidPath, "the path ends in a slash, so it names a folder: %s", c.path)
		}
		if err := w.protected(p); err != nil {
			return err
		}
		if p.info != nil {
			if err := regular(p.info, p.shown); err != nil {
				return err
			}
		}
		return do(w, p, c)
	})
}

// plan returns what the file is and what it would become.
func (c change) plan(ctx context.Context, w *workspace, p place) (before version, old, after []byte, err error) {
	if !c.edits {
		if before, err = w.version(ctx, p); err != nil {
			return before, nil, nil, err
		}
		after, err = c.content(nil, p.shown)
		return before, nil, after, err
	}
	f, info, err := w.openRead(p)
	if err != nil {
		return before, nil, nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := readWhole(ctx, f, info, p.shown)
	if err != nil {
		return before, nil, nil, err
	}
	old = []byte(text)
	before = version{hash: hashOf(old), bytes: int64(len(old)), info: info}
	after, err = c.content(old, p.shown)
	return before, old, after, err
}

// Call writes the file, as a whole or not at all.
func (t *writer) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	expected, compare := t.set.recall(call)
	var result writeResult
	err := t.with(ctx, call, func(w *workspace, p place, c change) error {
		unlock, err := t.set.lock(ctx, w.Abs(p.real))
		if err != nil {
			return err
		}
		defer unlock()
		before, _, after, err := c.plan(ctx, w, p)
		if compare && (err == nil || before.hash != "") && before.hash != expected {
			return toolcrib.Failf(toolcrib.ExecutionFailed, "%s was changed by somebody else just now; nothing was written, read it again", p.shown)
		}
		if err := t.set.approved(call, w.Abs(p.real), p.shown, before, err); err != nil {
			return err
		}
		if err := w.replace(ctx, p, before, after); err != nil {
			return err
		}
		t.set.wrote(call.Run, w.Abs(p.real), before.state(), "sha256:"+hashOf(after))
		result.Message = c.message(p.shown, len(after))
		return nil
	})
	if err != nil {
		return toolcrib.Output{}, err
	}
	return wire.Output(result)
}

// Prepare hashes the file before and after, so that it can be told later whether
// the call happened. A call that cannot work fails here already.
func (t *writer) Prepare(ctx context.Context, call toolcrib.Call) (json.RawMessage, error) {
	var record prepared
	err := t.with(ctx, call, func(w *workspace, p place, c change) error {
		before, _, after, err := c.plan(ctx, w, p)
		if err := t.set.approved(call, w.Abs(p.real), p.shown, before, err); err != nil {
			return err
		}
		record = prepared{
			Path: p.real, BeforeSHA256: before.hash, BeforeBytes: before.bytes,
			AfterSHA256: hashOf(after), AfterBytes: int64(len(after)),
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.set.remember(call, record.BeforeSHA256)
	return wire.Marshal(record)
}

// Reconcile compares the file with the hashes of Prepare: as after, the call
// happened; as before, it did not; anything else is in doubt.
func (t *writer) Reconcile(ctx context.Context, call toolcrib.Call, data json.RawMessage) (toolcrib.Reconciled, error) {
	var record prepared
	if err := json.Unmarshal(data, &record); err != nil || record.AfterSHA256 == "" {
		return toolcrib.Reconciled{}, nil // nothing to tell by
	}
	var done toolcrib.Reconciled
	err := t.with(ctx, call, func(w *workspace, p place, c change) error {
		if p.real != record.Path {
			return nil // the path leads elsewhere now
		}
		if dir, err := w.OpenFolder(p.dir(), nil); err == nil {
			_ = discard(dir, w.temporary) // what the killed driver has left; a try
			_ = dir.Close()
		}
		now, err := w.version(ctx, p)
		if err != nil {
			return err
		}
		switch now.hash {
		case record.AfterSHA256:
			done.State = toolcrib.Happened
			done.Output, err = wire.Output(writeResult{Message: c.message(p.shown, int(record.AfterBytes))})
			return err
		case record.BeforeSHA256:
			done.State = toolcrib.NotHappened
		}
		return nil
	})
	if made := (*toolcrib.ToolError)(nil); errors.As(err, &made) {
		return toolcrib.Reconciled{}, nil // unreadable now: a person must look
	}
	return done, err
}
