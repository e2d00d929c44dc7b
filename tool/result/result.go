// Package result has read_result, which reads on in a tool's result that was too
// long to be shown whole (contract §7).
package result

import (
	"context"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	// Group is the group of the tools of this package.
	Group = "results"

	// Name is the tool's name: the runtime mentions refs in cut results only while a
	// tool of this name is offered.
	Name = "read_result"

	defaultLimit = 16 << 10
	// maxLimit is such that the result fits the usual 65 536 bytes even if every
	// character is one that JSON doubles.
	maxLimit = 30 << 10
)

const parameters = `{
	"type": "object",
	"properties": {
		"ref": {"type": "string", "minLength": 1, "maxLength": 200},
		"offset": {"type": "integer", "minimum": 0},
		"limit": {"type": "integer", "minimum": 1, "description": "bytes, at most 30720"}
	},
	"required": ["ref"],
	"additionalProperties": false
}`

// Options for [New].
type Options struct {
	// Contents holds the cleaned results under refs that begin with "res_"; other
	// keys are not the model's to read. nil = every ref is unknown.
	Contents toolcrib.Contents
	// Untrusted reports whether the result behind ref came from an untrusted tool, and
	// its source: what is read of it keeps the mark. nil = all of them count as
	// untrusted.
	Untrusted func(run toolcrib.RunID, ref string) (source string, untrusted bool)
}

// New returns read_result.
func New(options Options) []toolcrib.Tool { return []toolcrib.Tool{&readResult{options}} }

type readResult struct{ options Options }

type input struct {
	Ref    string `json:"ref"`
	Offset int64  `json:"offset"`
	Limit  int64  `json:"limit"`

	most int64 // bytes that fit the bound of the call
}

type output struct {
	Content    string `json:"content"`
	Offset     int64  `json:"offset"`                // of content, moved back to the start of a character
	NextOffset int64  `json:"next_offset,omitempty"` // to continue with; absent at the end
	TotalBytes int64  `json:"total_bytes"`
}

// refPattern is what the refs of results look like.
var refPattern = lazyregexp.New(`^res_[A-Za-z0-9_-]{1,128}$`)

// Spec describes read_result.
func (t *readResult) Spec() toolcrib.Spec {
	return toolcrib.Spec{
		Name:        Name,
		Description: "Read more of a result that was cut, by the reference in it.",
		Parameters:  json.RawMessage(parameters), Effect: toolcrib.EffectReadOnly,
		Group: Group, Source: "builtin", EnabledByDefault: true,
	}
}

// Call returns a piece of a result of the same run, at character bounds: it starts
// no later than offset, and holds at least one character.
func (t *readResult) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	if err := ctx.Err(); err != nil {
		return toolcrib.Output{}, err
	}
	in := input{Limit: defaultLimit}
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return toolcrib.Output{}, err
	}
	if in.Offset < 0 || in.Limit < 1 {
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.InvalidArguments, "offset must be at least 0 and limit at least 1")
	}
	if t.options.Contents == nil || !refPattern.MatchString(in.Ref) {
		return toolcrib.Output{}, unknown(in.Ref)
	}
	in.most = fitting(call.MaxBytes)
	result, err := t.piece(ctx, call.Run, in)
	if err != nil {
		return toolcrib.Output{}, err
	}
	out, err := wire.Output(result)
	out.Untrusted = true
	if t.options.Untrusted != nil {
		out.Source, out.Untrusted = t.options.Untrusted(call.Run, in.Ref)
	}
	switch {
	case !out.Untrusted:
		out.Source = ""
	case out.Source == "":
		out.Source = Name
	}
	return out, err
}

// envelope is what a piece needs besides its content.
const envelope = 128

// fitting is how many bytes of a result surely fit a bound: as JSON a byte can
// become two (a quote), rarely six, and a piece that is cut once more by its own
// bound would have to be read by yet another reference.
func fitting(bound int) int64 {
	if bound <= 0 {
		return maxLimit
	}
	return max(16, int64(bound-envelope)/2)
}

func unknown(ref string) error {
	return toolcrib.Failf(toolcrib.NotFound, "no result with the reference %q in this run", ref)
}

func (t *readResult) piece(ctx context.Context, run toolcrib.RunID, in input) (output, error) {
	// A few bytes more on either side show where the characters at the edges begin.
	from := max(0, in.Offset-(utf8.UTFMax-1))
	limit := min(in.Limit, maxLimit, in.most)
	data, size, err := t.options.Contents.Range(ctx, run, in.Ref, from, in.Offset-from+limit+utf8.UTFMax)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound):
		return output{}, unknown(in.Ref)
	case err != nil:
		return output{}, err
	case in.Offset > size:
		return output{}, toolcrib.Failf(toolcrib.InvalidArguments, "offset %d is beyond the end: the result has %d bytes",
			in.Offset, size)
	}
	start := min(int(in.Offset-from), len(data))
	end := min(start+int(limit), len(data))
	start = backToRune(data, start)
	if end = backToRune(data, end); end <= start && start < len(data) {
		_, width := utf8.DecodeRune(data[start:])
		end = start + width
	}
	result := output{Content: string(data[start:end]), Offset: from + int64(start), TotalBytes: size}
	if next := from + int64(end); next < size {
		result.NextOffset = next
	}
	return result, nil
}

// backToRune moves at back to the start of the character that it is in. In what is
// no UTF-8 it stays.
func backToRune(data []byte, at int) int {
	if at >= len(data) {
		return len(data)
	}
	for back := range min(utf8.UTFMax, at+1) {
		if utf8.RuneStart(data[at-back]) {
			return at - back
		}
	}
	return at
}
