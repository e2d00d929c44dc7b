package people

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/service/env"
	notes "github.com/toolcrib/toolcrib/tool/memory"
)

// Note is what memory_write has kept for a user.
type Note = notes.Note

// NoteFiles returns the notes of all users.
func (p *People) NoteFiles() *notes.Files {
	return notes.In(p.env.Files(), env.MemoryFolder, notes.Limits{})
}

// ownsNotes returns an error if who has no notes to look at: an access token reaches them
// by the tools that are in its scope only.
func ownsNotes(who toolcrib.Principal) error {
	switch {
	case who.Token != "":
		return toolcrib.Errorf(toolcrib.CodeScopeInsufficient,
			"an access token reaches notes by memory_read and memory_write only, in its scope")
	case who.User == "":
		return toolcrib.Errorf(toolcrib.CodeForbidden, "notes belong to a user, and none is given")
	}
	return nil
}

// Notes returns the notes of who, sorted by key.
func (p *People) Notes(ctx context.Context, who toolcrib.Principal) ([]Note, error) {
	if err := ownsNotes(who); err != nil {
		return nil, err
	}
	list, err := p.NoteFiles().List(ctx, who.User)
	return append([]Note{}, list...), err
}

// Note returns one note of who.
func (p *People) Note(ctx context.Context, who toolcrib.Principal, key string) (Note, error) {
	err := ownsNotes(who)
	if err == nil {
		err = asBadRequest(notes.CheckKey(key))
	}
	if err != nil {
		return Note{}, err
	}
	note, err := p.NoteFiles().Get(ctx, who.User, key)
	if errors.Is(err, toolcrib.ErrNotFound) {
		err = toolcrib.Errorf(toolcrib.CodeNotFound, "there is no note %s", key)
	}
	return note, err
}

// SetNote writes a note of who in place of before, the note that was looked at (without
// content = there was none); no content removes it. It is a conflict if the note has
// changed since. The mark of untrusted data stays, and the audit log says who did it.
func (p *People) SetNote(ctx context.Context, who toolcrib.Principal, before Note, content string) (Note, error) {
	err := ownsNotes(who)
	if err == nil {
		err = asBadRequest(notes.CheckKey(before.Key))
	}
	if err != nil {
		return Note{}, err
	}
	if err := p.env.OpenFor(ctx, who); err != nil { // for the audit log
		return Note{}, err
	}
	after := Note{Key: before.Key, Content: content, Untrusted: before.Untrusted, Changed: time.Now().UTC()}
	err = p.NoteFiles().Change(ctx, who.User, before.Key, func(now Note) (Note, error) {
		if now.Hash() != before.Hash() {
			return now, toolcrib.Errorf(toolcrib.CodeConflict,
				"the note %s was changed in the meantime; nothing was written", before.Key)
		}
		return after, nil
	})
	if err != nil {
		return after, asBadRequest(err)
	}
	kind := env.KindNoteChanged
	if content == "" {
		kind = env.KindNoteRemoved
	}
	return after, p.env.Record(ctx, kind, map[string]string{"name": before.Key, "user": who.User, "by": agent.NameOf(who)})
}

// asBadRequest is an error of a tool about its arguments as one about a request.
func asBadRequest(err error) error {
	var tool *toolcrib.ToolError
	if errors.As(err, &tool) {
		return env.BadRequestf("%s", strings.TrimPrefix(tool.Message, "invalid_arguments: "))
	}
	return err
}
