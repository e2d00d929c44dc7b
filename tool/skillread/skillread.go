// Package skillread implements read_skill, which reads the skills of a run: text that did not fit in
// the first message, and the files in addition to SKILL.md.
package skillread

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/tool/internal/pattern"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	// Name is the name of the tool, Group its group.
	Name  = "read_skill"
	Group = "skills"

	defaultLimit = 16 << 10
	// maxLimit is chosen so that a result fits the default of 65 536 bytes even if JSON doubles every character.
	maxLimit = 24 << 10

	maxListed      = 50      // skills or files that a result lists
	maxListedBytes = 4 << 10 // bytes of their names and descriptions
	maxExpanded    = 8 << 20 // bytes of a text with its variables substituted
	envelope       = 512     // bytes of a result in addition to its content and lists
	maxNamed       = 10      // skills that an error names
	sniffBytes     = 8 << 10 // bytes that are checked to distinguish text from binary data
)

const parameters = `{
	"type": "object",
	"properties": {
		"name": {"type": "string", "minLength": 1, "maxLength": 64, "description": "Skill to read. Without it the skills of this run are listed."},
		"file": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "File of the skill, such as references/forms.md. Default: its SKILL.md."},
		"offset": {"type": "integer", "minimum": 0, "description": "First byte to return, counted from 0. Default 0."},
		"limit": {"type": "integer", "minimum": 1, "description": "Number of bytes to return. Default 16384, at most 24576. next_offset in the result is the byte to continue with, if there are more."}
	},
	"additionalProperties": false
}`

// Options are the options of [New].
type Options struct {
	// Skills returns the skills of the run that makes the call. The model cannot read others. If nil,
	// or if it returns nil, the run has no skills.
	Skills func(call toolcrib.Call) *skill.Set
	// Variables returns the variables of skill.Set.Text for that run, so that the
	// same text is read here. If nil, there are no variables.
	Variables func(call toolcrib.Call) map[string]string
}

// New returns read_skill.
func New(options Options) []toolcrib.Tool { return []toolcrib.Tool{&readSkill{options}} }

type readSkill struct{ options Options }

type input struct {
	Name   *string `json:"name"`
	File   *string `json:"file"`
	Offset int64   `json:"offset"`
	Limit  int64   `json:"limit"`
}

// listing is the result of a call without a name.
type listing struct {
	Skills []listed `json:"skills"`
	More   int      `json:"more,omitempty"` // number of skills that are not listed
}

type listed struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// piece is the result of a call with a name.
type piece struct {
	Name string `json:"name"`
	File string `json:"file"`
	wire.Piece
	Files     []string `json:"files,omitempty"` // files in addition to SKILL.md; only with the beginning of the text
	MoreFiles int      `json:"more_files,omitempty"`
}

// Spec describes read_skill.
func (t *readSkill) Spec() toolcrib.Spec {
	return wire.Spec(Group, Name, "Read a skill of this run: its text, or a file that belongs to it (file), "+
		"piece by piece. Without a name, list the skills of this run.", parameters, toolcrib.EffectReadOnly)
}

// Plan decodes the arguments.
func (t *readSkill) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	plan, in, err := wire.Plan(call, input{Limit: defaultLimit}, t.run)
	plan.Matches = func(patterns []string) (bool, error) { return in.Name != nil && pattern.Text(patterns, *in.Name), nil }
	return plan, err
}

// Call plans the call and runs the plan.
func (t *readSkill) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, t, call)
}

// run lists the skills of the run, or returns a piece of one, at character bounds: it starts no later than offset,
// and has at least one character. Only approved content is read: a file that has changed since is an error.
func (t *readSkill) run(_ context.Context, call toolcrib.Call, in input) (toolcrib.Output, error) {
	if in.Offset < 0 || in.Limit < 1 {
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.InvalidArguments, "offset must be at least 0 and limit at least 1")
	}
	var set *skill.Set
	if t.options.Skills != nil {
		set = t.options.Skills(call)
	}
	if in.Name == nil {
		if in.File != nil {
			return toolcrib.Output{}, toolcrib.Failf(toolcrib.InvalidArguments, "file needs the name of a skill")
		}
		return wire.Output(list(set, call.MaxBytes))
	}
	s := set.Skill(*in.Name)
	if s == nil {
		return toolcrib.Output{}, unknown(*in.Name, set)
	}
	result, err := t.read(call, s, in)
	if err != nil {
		return toolcrib.Output{}, err
	}
	return wire.Output(result)
}

// unknown returns the error for an unknown name, which lists the skills of the run.
func unknown(name string, set *skill.Set) error {
	names := set.Names()
	if len(names) == 0 {
		return toolcrib.Failf(toolcrib.NotFound, "this run has no skill %q; it has no skills", shown(name))
	}
	more := ""
	if len(names) > maxNamed {
		names, more = names[:maxNamed], ", …"
	}
	return toolcrib.Failf(toolcrib.NotFound, "this run has no skill %q; it has: %s%s", shown(name),
		strings.Join(names, ", "), more)
}

// shown returns a text of the model for an error.
func shown(text string) string { return guard.Visible(guard.Clip(text, 100)) }

// list lists the skills of the run.
func list(set *skill.Set, bound int) listing {
	out := listing{Skills: []listed{}}
	room := listRoom(bound)
	for _, s := range set.Skills() {
		if room -= 2*(len(s.Name)+len(s.Description)) + 40; room < 0 || len(out.Skills) == maxListed {
			out.More++
			continue
		}
		out.Skills = append(out.Skills, listed{Name: s.Name, Description: s.Description})
	}
	return out
}

// listRoom returns the bytes that a list may take in JSON, including escapes.
func listRoom(bound int) int {
	const most = 40 << 10
	if bound <= 0 {
		return most
	}
	return min(most, max(0, bound-envelope))
}

// read returns a piece of the skill's text or of one of its files.
func (t *readSkill) read(call toolcrib.Call, s *skill.Skill, in input) (piece, error) {
	name := skill.FileName
	if in.File != nil {
		cleaned, err := within(*in.File)
		if err != nil {
			return piece{}, err
		}
		name = cleaned
	}
	var data []byte
	if name == skill.FileName {
		var vars map[string]string
		if t.options.Variables != nil {
			vars = t.options.Variables(call)
		}
		data = []byte(s.Expand(vars, maxExpanded))
	} else {
		var err error
		if data, err = file(s, name); err != nil {
			return piece{}, err
		}
	}
	out := piece{Name: s.Name, File: name}
	room := wire.Fitting(call.MaxBytes, envelope, maxLimit)
	if name == skill.FileName && in.Offset == 0 {
		room -= out.files(s, room/4)
	}
	if in.Offset > int64(len(data)) {
		return piece{}, toolcrib.Failf(toolcrib.InvalidArguments, "offset %d is beyond the end: %s has %d bytes",
			in.Offset, shown(name), len(data))
	}
	out.Piece = wire.PieceOf(data, 0, int64(len(data)), in.Offset, max(1, min(in.Limit, maxLimit, room)))
	return out, nil
}

// within returns the name of a file of the skill, or an error if it is outside of the skill.
func within(name string) (string, error) {
	if strings.ContainsAny(name, "\x00\\") {
		return "", toolcrib.Failf(toolcrib.InvalidPath,
			"a file of a skill has neither NUL nor a backslash in its name: %s", shown(name))
	}
	if path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..") {
		return "", toolcrib.Failf(toolcrib.InvalidPath, "path escapes the skill: %s", shown(name))
	}
	return path.Clean(name), nil
}

// file reads a text file of the skill.
func file(s *skill.Skill, name string) ([]byte, error) {
	data, err := s.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, toolcrib.Failf(toolcrib.NotFound,
			"the skill %s has no file %s; read the skill without file to see which it has", s.Name, shown(name))
	case errors.Is(err, skill.ErrChanged):
		return nil, toolcrib.Failf(toolcrib.PermissionDenied,
			"%s of the skill %s has changed since it was approved; a person must review it: toolcrib skills check "+
				"%s", shown(name), s.Name, s.Name)
	case err != nil:
		return nil, err
	}
	if head := data[:min(len(data), sniffBytes)]; bytes.IndexByte(head, 0) >= 0 || !utf8.Valid(data) {
		return nil, toolcrib.Failf(toolcrib.ExecutionFailed, "%s is a binary file (%s, %d bytes) and cannot be read as text",
			shown(name), http.DetectContentType(head[:min(len(head), 512)]), len(data))
	}
	return data, nil
}

// files lists the files of the skill, and returns the bytes that the list takes.
func (p *piece) files(s *skill.Skill, room int64) (taken int64) {
	room = min(room, maxListedBytes)
	for _, f := range s.Files {
		if f.Name == skill.FileName {
			continue
		}
		if size := int64(len(f.Name)) + 4; taken+size <= room && len(p.Files) < maxListed {
			taken += size
			p.Files = append(p.Files, f.Name)
			continue
		}
		p.MoreFiles++
	}
	return taken
}

// BadPattern returns "": any pattern can match the name of a skill.
func (t *readSkill) BadPattern(string) string { return "" }
