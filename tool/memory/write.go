package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	nameWrite = "memory_write"

	modeAppend    = "append"
	modeOverwrite = "overwrite"

	// maxTries is how often a note that others write too is tried again.
	maxTries = 64
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
	options Options
	seen    wire.Seen
}

type writeInput struct {
	Key     *string `json:"key"`
	Content string  `json:"content"`
	Mode    string  `json:"mode"`
}

func (in *writeInput) key() string {
	if in.Key == nil {
		return DefaultKey
	}
	return *in.Key
}

type writeResult struct {
	Message string `json:"message"`
	Path    string `json:"path"`  // memory or memory/KEY: what to call the note, no file of the workspace
	Bytes   int    `json:"bytes"` // of the whole note
}

// prepared is what the journal keeps of a write that is about to happen.
type prepared struct {
	Key    string      `json:"key"`
	Before string      `json:"before_sha256"` // [Note.Hash]; "" = there was no note
	After  string      `json:"after_sha256"`
	Result writeResult `json:"result"`
}

// change is a call, understood.
type change struct {
	user, key, content string
	appends, tainted   bool
}

// Spec describes memory_write. The worst that it does is to append: twice is not
// once.
func (t *writeTool) Spec() toolcrib.Spec {
	return wire.Spec(Group, nameWrite, "Keep a note for later runs.", writeParameters, toolcrib.EffectNonIdempotentWrite)
}

func read(call toolcrib.Call) (change, error) {
	var in writeInput
	user, err := decode(call, &in)
	if err != nil {
		return change{}, err
	}
	c := change{user: user, key: in.key(), content: in.Content, appends: in.Mode != modeOverwrite, tainted: call.Tainted}
	switch {
	case in.Mode != "" && in.Mode != modeAppend && in.Mode != modeOverwrite:
		return change{}, toolcrib.Failf(toolcrib.InvalidArguments, "mode must be append or overwrite")
	case c.appends && strings.TrimSpace(c.content) == "":
		return change{}, toolcrib.Failf(toolcrib.InvalidArguments, "there is nothing to append: content is empty")
	}
	return c, nil
}

// Admit refuses an invalid key (C13), and a call that nobody makes.
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

// Targets names the note that is written.
func (t *writeTool) Targets(call toolcrib.Call) []toolcrib.Target {
	c, err := read(call)
	if err != nil {
		return nil
	}
	return []toolcrib.Target{{Kind: Target, Name: c.key, Write: true}, {Kind: Target, Name: AllNotes, Write: true}}
}

// look returns the note as it is and as the call would make it.
func (t *writeTool) look(ctx context.Context, c change) (before, after Note, err error) {
	before, err = t.options.Store.Get(ctx, c.user, c.key)
	if errors.Is(err, toolcrib.ErrNotFound) {
		before, err = Note{Key: c.key}, nil
	}
	if err != nil {
		return before, before, err
	}
	after = Note{Key: c.key, Content: c.content, Untrusted: c.tainted, Changed: t.options.Now().UTC()}
	if c.appends && before.Content != "" {
		after.Content = strings.TrimRight(before.Content, "\r\n") + "\n\n" + c.content
		after.Untrusted = before.Untrusted || c.tainted
	}
	return before, after, nil
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
		r.Message = fmt.Sprintf("Successfully wrote %d bytes to %s (mode: %s)", len(c.content), name, mode)
	case before.Content != "":
		r.Message = "Removed " + name
	default:
		r.Message = "There was no note " + name + ", so nothing was removed"
	}
	return r
}

// Call writes the note, as a whole or not at all. An overwrite that was prepared
// replaces the version that was there then, and no other; an append goes to the end
// of whatever is there.
func (t *writeTool) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	expected, compare := t.seen.Take(call)
	if err := ctx.Err(); err != nil {
		return toolcrib.Output{}, err
	}
	c, err := read(call)
	if err != nil {
		return toolcrib.Output{}, err
	}
	for range maxTries {
		before, after, err := t.look(ctx, c)
		if err != nil {
			return toolcrib.Output{}, err
		}
		if compare && !c.appends && before.Hash() != expected {
			break
		}
		err = t.options.Store.Put(ctx, c.user, after, before.Hash())
		if err == nil {
			return wire.Output(c.result(before, after))
		}
		if !errors.Is(err, ErrChanged) {
			return toolcrib.Output{}, err
		}
	}
	return toolcrib.Output{}, &toolcrib.ToolError{
		Kind: toolcrib.ExecutionFailed, Err: ErrChanged,
		Message: shown(c.key) + " was changed by somebody else just now; nothing was written, read it again",
	}
}

// Prepare hashes the note before and after, so that it is known later whether the
// call happened.
func (t *writeTool) Prepare(ctx context.Context, call toolcrib.Call) (json.RawMessage, error) {
	c, err := read(call)
	if err != nil {
		return nil, err
	}
	before, after, err := t.look(ctx, c)
	if err != nil {
		return nil, err
	}
	t.seen.Keep(call, before.Hash())
	return wire.Marshal(prepared{Key: c.key, Before: before.Hash(), After: after.Hash(), Result: c.result(before, after)})
}

// Reconcile compares the note with the hashes of Prepare: as after, the call
// happened; as before, it did not; anything else is in doubt.
func (t *writeTool) Reconcile(
	ctx context.Context, call toolcrib.Call, data json.RawMessage,
) (toolcrib.Reconciled, error) {
	var record prepared
	c, err := read(call)
	if err != nil || json.Unmarshal(data, &record) != nil || record.Key != c.key || record.Result.Path == "" {
		return toolcrib.Reconciled{}, nil // nothing to tell by
	}
	now, _, err := t.look(ctx, c)
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

// Preview shows what the call would change as a unified diff, whole: who shows it to a
// person bounds it.
func (t *writeTool) Preview(ctx context.Context, call toolcrib.Call) (toolcrib.Preview, error) {
	c, err := read(call)
	if err != nil {
		return toolcrib.Preview{}, err
	}
	before, after, err := t.look(ctx, c)
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
	from, to := "a/"+name, "b/"+name
	if before.Content == "" {
		from = "/dev/null"
	}
	if after.Content == "" {
		to = "/dev/null"
	}
	diff, err := udiff.ToUnified(from, to, before.Content, udiff.Lines(before.Content, after.Content),
		udiff.DefaultContextLines)
	if err != nil {
		return toolcrib.Preview{}, fmt.Errorf("preview of %s: %w", name, err)
	}
	return toolcrib.Preview{Kind: "diff", Text: diff}, nil
}
