// Package memory implements memory_read and memory_write, which keep notes of a user from one run
// to the next.
//
// Notes belong to the user that a run acts for; no argument can select those of another. A note that
// a run has written after reading untrusted data is marked, and reading it gives untrusted data
// again, so that text does not become trusted by being stored.
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
	// Target is the kind of the targets of these tools. Their names are keys of notes, and [AllNotes].
	Target = "memory"
	// AllNotes is the name of the target for all notes of a user. Every write has it as a target, so
	// that writes and reads of all notes are executed in order.
	AllNotes = "*"
	// Source is the source of untrusted data that is read from notes.
	Source = "memory"
	// DefaultKey is the key of the note that is used if a call names none.
	DefaultKey = "memory"
	// MaxKeyBytes is the maximum length of a key.
	MaxKeyBytes = 256

	defaultMatches = 20
	maxMatches     = 100
	maxListed      = 256

	// noNote is the message for a note that does not exist (C9).
	noNote = "No memory file found"
)

// New returns memory_read and memory_write.
func New(store *Files) []toolcrib.Tool {
	return []toolcrib.Tool{&readTool{store}, &writeTool{store}}
}

// CheckKey returns an error unless the key of a note has 1 to 256 bytes of UTF-8 and no "..", slash,
// backslash or control character.
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

// shown returns the name of a note for the model. It is not a path that a file tool could open.
func shown(key string) string {
	if key == DefaultKey {
		return "memory"
	}
	return "memory/" + key
}

// input has the arguments of both tools, and the user and key of the note.
type input struct {
	Key *string `json:"key"`

	Query string `json:"query"`
	Limit int    `json:"limit"`

	Content string `json:"content"`
	Mode    string `json:"mode"`

	user, key string
}

// decode decodes the arguments of a call, and checks its user and key.
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
	Cut     bool       `json:"truncated,omitempty"` // whether there are more notes
}

type noteInfo struct {
	Key     string `json:"key"`
	Bytes   int    `json:"bytes"`
	Changed string `json:"changed"` // RFC 3339
}

type searchResult struct {
	Query   string   `json:"query"`
	Matches []string `json:"matches"` // paragraphs
	Keys    []string `json:"keys"`    // key of the note of each match
	Count   int      `json:"count"`
	Cut     bool     `json:"truncated,omitempty"` // whether there are more matches
}

// Spec describes memory_read.
func (t *readTool) Spec() toolcrib.Spec {
	return spec("memory_read", "Read notes of earlier runs: one by key, or paragraphs that contain query. "+
		"Without either: the note \"memory\", and the keys of all.", readParameters, toolcrib.EffectReadOnly)
}

func spec(name, description, parameters string, effect toolcrib.Effect) toolcrib.Spec {
	s := wire.Spec(Group, name, description, parameters, effect)
	s.Plans = toolcrib.PlanFacts{Targets: true, Policy: true, Effect: effect.Writes()}
	return s
}

// Plan decodes the arguments. It refuses an invalid key (C13), and a call without a user.
func (t *readTool) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	in, err := decode(call)
	if err != nil {
		return nil, err
	}
	target := toolcrib.Target{Kind: Target, Name: in.key}
	if in.Key == nil {
		target.Name = AllNotes
	}
	return &toolcrib.Plan{
		Targets: []toolcrib.Target{target},
		Run: func(ctx context.Context, _ toolcrib.Call) (toolcrib.Output, error) {
			return t.read(ctx, in)
		},
	}, nil
}

// Call plans the call and runs the plan.
func (t *readTool) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, t, call)
}

// read reads notes of the user. The output is untrusted if it has anything from a marked note.
func (t *readTool) read(ctx context.Context, in input) (toolcrib.Output, error) {
	var notes []Note
	var err error
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
	return list(in, notes)
}

// list returns the note of the key, and without a key the names of all notes.
func list(in input, notes []Note) (toolcrib.Output, error) {
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
			untrusted = untrusted || note.Untrusted // the key is also untrusted
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

// blankLine matches the separator of paragraphs.
var blankLine = lazyregexp.New(`\r?\n[ \t]*\r?\n\s*`)

func output(result any, cut, untrusted bool) (toolcrib.Output, error) {
	out, err := wire.Output(result)
	out.Cut = cut
	if untrusted {
		out.Untrusted, out.Source = true, Source
	}
	return out, err
}
