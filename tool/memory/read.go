package memory

import (
	"context"
	"errors"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	nameRead = "memory_read"

	defaultMatches = 20
	maxMatches     = 100
	maxListed      = 256

	// noNote is what a reader gets for a note that does not exist (C9).
	noNote = "No memory file found"
)

const readParameters = `{
	"type": "object",
	"properties": {
		"key": {"type": "string", "minLength": 1, "maxLength": 256},
		"query": {"type": "string", "minLength": 1, "maxLength": 1000},
		"limit": {"type": "integer", "minimum": 1}
	},
	"additionalProperties": false
}`

type readTool struct{ options Options }

type readInput struct {
	Key   *string `json:"key"`
	Query string  `json:"query"`
	Limit int     `json:"limit"`
}

func (in *readInput) key() string {
	if in.Key == nil {
		return DefaultKey
	}
	return *in.Key
}

// all reports whether the call looks at every note.
func (in *readInput) all() bool { return in.Key == nil }

type readResult struct {
	Content string     `json:"content"`
	Message string     `json:"message,omitempty"`
	Notes   []noteInfo `json:"notes,omitempty"`
	Cut     bool       `json:"truncated,omitempty"` // there are more notes
}

type noteInfo struct {
	Key     string `json:"key"`
	Bytes   int    `json:"bytes"`
	Changed string `json:"changed"` // RFC 3339
}

type searchResult struct {
	Query   string   `json:"query"`
	Matches []string `json:"matches"` // paragraphs
	Keys    []string `json:"keys"`    // of the note of each
	Count   int      `json:"count"`
	Cut     bool     `json:"truncated,omitempty"` // there are more
}

// Spec describes memory_read.
func (t *readTool) Spec() toolcrib.Spec {
	return wire.Spec(Group, nameRead, "Read notes of earlier runs: one by key, or paragraphs that contain query. "+
		"Without either: the note \"memory\", and the keys of all.", readParameters, toolcrib.EffectReadOnly)
}

func (t *readTool) read(call toolcrib.Call) (user string, in readInput, err error) {
	user, err = decode(call, &in)
	if err == nil && in.Limit < 0 {
		err = toolcrib.Failf(toolcrib.InvalidArguments, "limit must be at least 1")
	}
	return user, in, err
}

// Admit refuses an invalid key (C13), and a call that nobody makes.
func (t *readTool) Admit(call toolcrib.Call) error {
	_, _, err := t.read(call)
	return err
}

// Targets names the note, or all of them.
func (t *readTool) Targets(call toolcrib.Call) []toolcrib.Target {
	_, in, err := t.read(call)
	switch {
	case err != nil:
		return nil
	case in.all():
		return []toolcrib.Target{{Kind: Target, Name: AllNotes}}
	}
	return []toolcrib.Target{{Kind: Target, Name: in.key()}}
}

// Call reads notes of the acting user. What comes out of a marked note is
// untrusted.
func (t *readTool) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	if err := ctx.Err(); err != nil {
		return toolcrib.Output{}, err
	}
	user, in, err := t.read(call)
	if err != nil {
		return toolcrib.Output{}, err
	}
	var notes []Note
	if in.all() {
		notes, err = t.options.Store.List(ctx, user)
	} else {
		notes, err = t.one(ctx, user, in.key())
	}
	if err != nil {
		return toolcrib.Output{}, err
	}
	if in.Query != "" {
		return search(in, notes)
	}
	return tell(in, notes)
}

func (t *readTool) one(ctx context.Context, user, key string) ([]Note, error) {
	note, err := t.options.Store.Get(ctx, user, key)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []Note{note}, nil
}

func tell(in readInput, notes []Note) (toolcrib.Output, error) {
	result := readResult{Message: noNote}
	untrusted := false
	for _, note := range notes {
		if note.Key == in.key() {
			result.Content, result.Message = note.Content, ""
			untrusted = untrusted || note.Untrusted
		}
	}
	if in.all() {
		most := bound(in.Limit, maxListed, maxListed)
		for _, note := range notes[:min(len(notes), most)] {
			result.Notes = append(result.Notes, noteInfo{
				note.Key, len(note.Content),
				note.Changed.UTC().Format("2006-01-02T15:04:05Z"),
			})
			untrusted = untrusted || note.Untrusted // its name is untrusted, too
		}
		result.Cut = len(notes) > most
	}
	return output(result, result.Cut, untrusted)
}

func search(in readInput, notes []Note) (toolcrib.Output, error) {
	result := searchResult{Query: in.Query, Matches: []string{}, Keys: []string{}}
	most := bound(in.Limit, defaultMatches, maxMatches)
	query, untrusted := strings.ToLower(in.Query), false
	for _, note := range notes {
		for _, paragraph := range paragraphs(note.Content) {
			if !strings.Contains(strings.ToLower(paragraph), query) {
				continue
			}
			if len(result.Matches) == most {
				result.Cut = true
				break
			}
			result.Matches, result.Keys = append(result.Matches, paragraph), append(result.Keys, note.Key)
			untrusted = untrusted || note.Untrusted
		}
	}
	result.Count = len(result.Matches)
	return output(result, result.Cut, untrusted)
}

func output(result any, cut, untrusted bool) (toolcrib.Output, error) {
	out, err := wire.Output(result)
	out.Cut = cut
	if untrusted {
		out.Untrusted, out.Source = true, Source
	}
	return out, err
}

// blankLine is what is between paragraphs.
var blankLine = lazyregexp.New(`\r?\n[ \t]*\r?\n\s*`)

// paragraphs splits a text at blank lines (C9).
func paragraphs(text string) []string {
	var found []string
	for _, p := range blankLine.Split(text, -1) {
		if p = strings.TrimSpace(p); p != "" {
			found = append(found, p)
		}
	}
	return found
}

// bound is a limit as it holds: the default if none was given, never more than most.
func bound(asked, normal, most int) int {
	if asked <= 0 {
		return normal
	}
	return min(asked, most)
}
