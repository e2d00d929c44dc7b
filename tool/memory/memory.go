// Package memory has the tools that keep notes of a user from one run to the next:
// memory_read and memory_write (C9; contract §11).
//
// Notes belong to the user that a run acts for; no argument can name another one's.
// A note that a run has written after it had read untrusted data is marked, and
// what is read of it is untrusted data again: so untrusted words do not become
// trusted by being written down.
package memory

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	// Group is the group of the tools of this package.
	Group = "memory"
	// Target is the kind of the targets of the tools of this package. Its names are
	// keys of notes, and [AllNotes].
	Target = "memory"
	// AllNotes is the name of the target that means all notes of a user. Every
	// write touches it, so that a look at all notes and a write keep their order.
	AllNotes = "*"
	// Source is the source of untrusted data that comes out of memory.
	Source = "memory"
	// DefaultKey is the note that is meant when a call names none.
	DefaultKey = "memory"
	// MaxKeyBytes is the length of a key (C13).
	MaxKeyBytes = 256

	defaultMatches = 20
	maxMatches     = 100
	maxListed      = 256

	// noNote is what a reader gets for a note that does not exist (C9).
	noNote = "No memory file found"
)

// New returns memory_read and memory_write.
func New(store *Files) []toolcrib.Tool {
	return []toolcrib.Tool{&readTool{store}, &writeTool{store: store}}
}

// CheckKey says what is wrong with the key of a note (C13): it has 1 to 256 bytes
// of UTF-8 and no "..", slash, backslash or control character.
func CheckKey(key string) error {
	switch {
	case key == "":
		return toolcrib.Failf(toolcrib.InvalidArguments, "the key is empty")
	case len(key) > MaxKeyBytes:
		return toolcrib.Failf(toolcrib.InvalidArguments, "the key has %d bytes, at most %d are allowed", len(key),
			MaxKeyBytes)
	case !utf8.ValidString(key):
		return toolcrib.Failf(toolcrib.InvalidArguments, "the key is not valid UTF-8")
	case strings.Contains(key, ".."), strings.ContainsAny(key, `/\`), strings.ContainsFunc(key, unicode.IsControl):
		return toolcrib.Failf(toolcrib.InvalidArguments, "the key must not contain \"..\", a slash, a backslash or a control character")
	}
	return nil
}

// shown names a note to the model. It is not a path that a file tool could open.
func shown(key string) string {
	if key == DefaultKey {
		return "memory"
	}
	return "memory/" + key
}

// input is the arguments of a call, and whose note they are about; each tool has some of them.
type input struct {
	Key *string `json:"key"`

	Query string `json:"query"`
	Limit int    `json:"limit"`

	Content string `json:"content"`
	Mode    string `json:"mode"`

	user, key string
}

// decode reads arguments and checks whom and what they are about.
func decode(call toolcrib.Call) (in input, err error) {
	if in.user = call.Principal.User; in.user == "" {
		return in, toolcrib.Failf(toolcrib.PermissionDenied, "notes belong to a user, and this call has none")
	}
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return in, err
	}
	if in.key = DefaultKey; in.Key != nil {
		in.key = *in.Key
	}
	if err := CheckKey(in.key); err != nil {
		return in, err
	}
	if in.Limit < 0 {
		return in, toolcrib.Failf(toolcrib.InvalidArguments, "limit must be at least 1")
	}
	return in, nil
}

const readParameters = `{
	"type": "object",
	"properties": {
		"key": {"type": "string", "minLength": 1, "maxLength": 256},
		"query": {"type": "string", "minLength": 1, "maxLength": 1000},
		"limit": {"type": "integer", "minimum": 1}
	},
	"additionalProperties": false
}`

type readTool struct{ store *Files }

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
	return wire.Spec(Group, "memory_read", "Read notes of earlier runs: one by key, or paragraphs that contain query. "+
		"Without either: the note \"memory\", and the keys of all.", readParameters, toolcrib.EffectReadOnly)
}

// Admit refuses an invalid key (C13), and a call that nobody makes.
func (t *readTool) Admit(call toolcrib.Call) error {
	_, err := decode(call)
	return err
}

// Targets names the note, or all of them.
func (t *readTool) Targets(call toolcrib.Call) []toolcrib.Target {
	in, err := decode(call)
	switch {
	case err != nil:
		return nil
	case in.Key == nil:
		return []toolcrib.Target{{Kind: Target, Name: AllNotes}}
	}
	return []toolcrib.Target{{Kind: Target, Name: in.key}}
}

// Call reads notes of the acting user. What comes out of a marked note is
// untrusted.
func (t *readTool) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	in, err := decode(call)
	if err != nil {
		return toolcrib.Output{}, err
	}
	var notes []Note
	if in.Key == nil {
		notes, err = t.store.List(ctx, in.user)
	} else {
		var note Note
		if note, err = t.store.Get(ctx, in.user, in.key); err == nil {
			notes = []Note{note}
		}
	}
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		return toolcrib.Output{}, err
	}
	if in.Query != "" {
		return search(in, notes)
	}
	return tell(in, notes)
}

func tell(in input, notes []Note) (toolcrib.Output, error) {
	result := readResult{Message: noNote}
	untrusted := false
	for _, note := range notes {
		if note.Key == in.key {
			result.Content, result.Message = note.Content, ""
			untrusted = untrusted || note.Untrusted
		}
	}
	if in.Key == nil {
		most := min(cmp.Or(in.Limit, maxListed), maxListed)
		for _, note := range notes[:min(len(notes), most)] {
			result.Notes = append(result.Notes, noteInfo{
				note.Key, len(note.Content), note.Changed.UTC().Format("2006-01-02T15:04:05Z"),
			})
			untrusted = untrusted || note.Untrusted // its name is untrusted, too
		}
		result.Cut = len(notes) > most
	}
	return output(result, result.Cut, untrusted)
}

func search(in input, notes []Note) (toolcrib.Output, error) {
	result := searchResult{Query: in.Query, Matches: []string{}, Keys: []string{}}
	most := min(cmp.Or(in.Limit, defaultMatches), maxMatches)
	query, untrusted := strings.ToLower(in.Query), false
	for _, note := range notes {
		for _, paragraph := range blankLine.Split(note.Content, -1) { // C9
			if paragraph = strings.TrimSpace(paragraph); !strings.Contains(strings.ToLower(paragraph), query) {
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

// blankLine is what is between paragraphs.
var blankLine = lazyregexp.New(`\r?\n[ \t]*\r?\n\s*`)

func output(result any, cut, untrusted bool) (toolcrib.Output, error) {
	out, err := wire.Output(result)
	out.Cut = cut
	if untrusted {
		out.Untrusted, out.Source = true, Source
	}
	return out, err
}
