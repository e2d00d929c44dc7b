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

type writeTool struct {
	store *Files
	seen  wire.Seen
}

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

// change is a decoded call.
type change struct {
	input
	appends, tainted bool
}

// Spec describes memory_write. Its effect is that of an append, which must not be repeated.
func (t *writeTool) Spec() toolcrib.Spec {
	return wire.Spec(Group, "memory_write", "Keep a note for later runs.", writeParameters,
		toolcrib.EffectNonIdempotentWrite)
}

func read(call toolcrib.Call) (change, error) {
	in, err := decode(call)
	c := change{input: in, appends: in.Mode != modeOverwrite, tainted: call.Tainted}
	switch {
	case err != nil:
	case in.Mode != "" && in.Mode != modeAppend && in.Mode != modeOverwrite:
		err = toolcrib.Failf(toolcrib.InvalidArguments, "mode must be append or overwrite")
	case c.appends && strings.TrimSpace(in.Content) == "":
		err = toolcrib.Failf(toolcrib.InvalidArguments, "there is nothing to append: content is empty")
	}
	return c, err
}

// Admit refuses an invalid key (C13), and a call without a user.
func (t *writeTool) Admit(call toolcrib.Call) error {
	_, err := read(call)
	return err
}

// EffectOf distinguishes an overwrite, which may be repeated, from an append.
func (t *writeTool) EffectOf(call toolcrib.Call) toolcrib.Effect {
	if c, err := read(call); err == nil && !c.appends {
		return toolcrib.EffectIdempotentWrite
	}
	return toolcrib.EffectNonIdempotentWrite
}

// Targets returns the note that is written, and [AllNotes].
func (t *writeTool) Targets(call toolcrib.Call) []toolcrib.Target {
	c, err := read(call)
	if err != nil {
		return nil
	}
	return []toolcrib.Target{{Kind: Target, Name: c.key, Write: true}, {Kind: Target, Name: AllNotes, Write: true}}
}

// make returns the note after the call.
func (c change) make(before Note) Note {
	after := Note{Key: c.key, Content: c.Content, Untrusted: c.tainted, Changed: time.Now().UTC()}
	if c.appends && before.Content != "" {
		after.Content = strings.TrimRight(before.Content, "\r\n") + "\n\n" + c.Content
		after.Untrusted = before.Untrusted || c.tainted
	}
	return after
}

// look decodes a call, and returns the note before and after it.
func (t *writeTool) look(ctx context.Context, call toolcrib.Call) (c change, before, after Note, err error) {
	if c, err = read(call); err != nil {
		return c, before, after, err
	}
	before, err = t.store.Get(ctx, c.user, c.key)
	if errors.Is(err, toolcrib.ErrNotFound) {
		before, err = Note{Key: c.key}, nil
	}
	return c, before, c.make(before), err
}

func (c change) result(before, after Note) writeResult {
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

// Call writes the note, as a whole or not at all. A prepared overwrite replaces only the version that
// Prepare found; an append is added to the current one.
func (t *writeTool) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	expected, compare := t.seen.Take(call)
	c, err := read(call)
	if err != nil {
		return toolcrib.Output{}, err
	}
	var done writeResult
	err = t.store.Change(ctx, c.user, c.key, func(before Note) (Note, error) {
		if compare && !c.appends && before.Hash() != expected {
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

// Prepare returns hashes of the note before and after the call, by which Reconcile finds out whether
// the call happened.
func (t *writeTool) Prepare(ctx context.Context, call toolcrib.Call) (json.RawMessage, error) {
	c, before, after, err := t.look(ctx, call)
	if err != nil {
		return nil, err
	}
	t.seen.Keep(call, before.Hash())
	return wire.Marshal(prepared{Key: c.key, Before: before.Hash(), After: after.Hash(), Result: c.result(before, after)})
}

// Reconcile compares the note with the hashes of Prepare: if it is as after the call, the call
// happened; if it is as before, it did not; otherwise this remains in doubt.
func (t *writeTool) Reconcile(
	ctx context.Context, call toolcrib.Call, data json.RawMessage,
) (toolcrib.Reconciled, error) {
	var record prepared
	c, err := read(call)
	if err != nil || json.Unmarshal(data, &record) != nil || record.Key != c.key || record.Result.Path == "" {
		return toolcrib.Reconciled{}, nil // in doubt without a record
	}
	_, now, _, err := t.look(ctx, call)
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

// Preview returns the complete change as a unified diff; bounding it is left to the display.
func (t *writeTool) Preview(ctx context.Context, call toolcrib.Call) (toolcrib.Preview, error) {
	c, before, after, err := t.look(ctx, call)
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
