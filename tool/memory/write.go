package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/diff"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	modeAppend    = "append"
	modeOverwrite = "overwrite"
)

const writeParameters = `{
	"type": "object",
	"properties": {
		"key": {"type": "string", "minLength": 1, "maxLength": 256, "description": "default: memory"},
		"content": {"type": "string"},
		"mode": {"type": "string", "enum": ["append", "overwrite"], "description": "default: append"}
	},
	"required": ["content"],
	"additionalProperties": false
}`

type writeTool struct{ store *Files }

type writeResult struct {
	Message string `json:"message"`
	Path    string `json:"path"`  // memory or memory/KEY, a name for the note and not a file
	Bytes   int    `json:"bytes"` // length of the whole note
}

// prepared is the record of a write in the journal, before it happens.
type prepared struct {
	Key    string      `json:"key"`
	Before string      `json:"before_sha256"` // [Note.Hash]; "" if there was no note
	After  string      `json:"after_sha256"`
	Result writeResult `json:"result"`
}

// write is the plan of one call.
type write struct {
	store *Files
	input
	appends, tainted bool

	prepared *string // hash of the note that prepare found; nil before
}

// Spec describes memory_write. Its effect is that of an append, which must not be repeated.
func (t *writeTool) Spec() toolcrib.Spec {
	return spec("memory_write", "Keep a note for later runs.", writeParameters, toolcrib.EffectNonIdempotentWrite)
}

// Plan decodes the arguments. It refuses an invalid key (C13), and a call without a user. An overwrite
// may be repeated, an append must not.
func (t *writeTool) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	in, err := decode(call)
	c := &write{store: t.store, input: in, appends: in.Mode != modeOverwrite, tainted: call.Tainted}
	switch {
	case err != nil:
	case in.Mode != "" && in.Mode != modeAppend && in.Mode != modeOverwrite:
		err = toolcrib.Failf(toolcrib.InvalidArguments, "mode must be append or overwrite")
	case c.appends && strings.TrimSpace(in.Content) == "":
		err = toolcrib.Failf(toolcrib.InvalidArguments, "there is nothing to append: content is empty")
	}
	if err != nil {
		return nil, err
	}
	plan := &toolcrib.Plan{
		Effect:  toolcrib.EffectNonIdempotentWrite,
		Targets: []toolcrib.Target{{Kind: Target, Name: c.key, Write: true}, {Kind: Target, Name: AllNotes, Write: true}},
		Content: []string{in.Content, modeAppend},
		Preview: c.preview, Prepare: c.prepare, Reconcile: c.reconcile, Run: c.do,
	}
	if !c.appends {
		plan.Effect, plan.Content[1] = toolcrib.EffectIdempotentWrite, modeOverwrite
	}
	return plan, nil
}

// Call plans the call and runs the plan.
func (t *writeTool) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, t, call)
}

// make returns the note after the call.
func (c *write) make(before Note) Note {
	after := Note{Key: c.key, Content: c.Content, Untrusted: c.tainted, Changed: time.Now().UTC()}
	if c.appends && before.Content != "" {
		after.Content = strings.TrimRight(before.Content, "\r\n") + "\n\n" + c.Content
		after.Untrusted = before.Untrusted || c.tainted
	}
	return after
}

// look returns the note before and after the call.
func (c *write) look(ctx context.Context) (before, after Note, err error) {
	before, err = c.store.Get(ctx, c.user, c.key)
	if errors.Is(err, toolcrib.ErrNotFound) {
		before, err = Note{Key: c.key}, nil
	}
	return before, c.make(before), err
}

func (c *write) result(before, after Note) writeResult {
	name := shown(c.key)
	r := writeResult{Path: name, Bytes: len(after.Content)}
	mode := modeOverwrite
	if c.appends {
		mode = modeAppend
	}
	switch {
	case after.Content != "":
		r.Message = fmt.Sprintf("Successfully wrote %d bytes to %s (mode: %s)", len(c.Content), name, mode)
	case before.Content != "":
		r.Message = "Removed " + name
	default:
		r.Message = "There was no note " + name + ", so nothing was removed"
	}
	return r
}

// do writes the note, as a whole or not at all. A prepared overwrite replaces only the version that
// prepare found; an append is added to the current one.
func (c *write) do(ctx context.Context, _ toolcrib.Call) (toolcrib.Output, error) {
	var done writeResult
	err := c.store.Change(ctx, c.user, c.key, func(before Note) (Note, error) {
		if c.prepared != nil && !c.appends && before.Hash() != *c.prepared {
			return before, toolcrib.Failf(toolcrib.ExecutionFailed,
				"%s was changed by someone else just now; nothing was written, read it again", shown(c.key))
		}
		after := c.make(before)
		done = c.result(before, after)
		return after, nil
	})
	if err != nil {
		return toolcrib.Output{}, err
	}
	return wire.Output(done)
}

// prepare returns hashes of the note before and after the call, by which reconcile finds out whether
// the call happened.
func (c *write) prepare(ctx context.Context, _ toolcrib.Call) (json.RawMessage, error) {
	before, after, err := c.look(ctx)
	if err != nil {
		return nil, err
	}
	hash := before.Hash()
	c.prepared = &hash
	return wire.Marshal(prepared{Key: c.key, Before: hash, After: after.Hash(), Result: c.result(before, after)})
}

// reconcile compares the note with the hashes of prepare: if it is as after the call, the call
// happened; if it is as before, it did not; otherwise this remains in doubt.
func (c *write) reconcile(ctx context.Context, _ toolcrib.Call, data json.RawMessage) (toolcrib.Reconciled, error) {
	var record prepared
	if json.Unmarshal(data, &record) != nil || record.Key != c.key || record.Result.Path == "" {
		return toolcrib.Reconciled{}, nil // in doubt without a record
	}
	now, _, err := c.look(ctx)
	if err != nil {
		return toolcrib.Reconciled{}, err
	}
	switch now.Hash() {
	case record.After:
		out, err := wire.Output(record.Result)
		return toolcrib.Reconciled{State: toolcrib.Happened, Output: out}, err
	case record.Before:
		return toolcrib.Reconciled{State: toolcrib.NotHappened}, nil
	}
	return toolcrib.Reconciled{}, nil
}

// preview returns the complete change as a unified diff; bounding it is left to the display.
func (c *write) preview(ctx context.Context) (toolcrib.Preview, error) {
	before, after, err := c.look(ctx)
	if err != nil {
		return toolcrib.Preview{}, err
	}
	name := shown(c.key)
	switch {
	case before.Content == after.Content && after.Content == "":
		return toolcrib.Preview{Kind: "text", Text: "there is no note " + name + ", and there will be none"}, nil
	case before.Content == after.Content:
		text := fmt.Sprintf("%s stays as it is: it has this content already (%d bytes)", name, len(after.Content))
		return toolcrib.Preview{Kind: "text", Text: text}, nil
	}
	return diff.Preview(name, before.Content, after.Content, before.Content == "", after.Content == "")
}
