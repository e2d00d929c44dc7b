// Package result has read_result, which reads on in a tool's result that was too
// long to be shown whole (contract §7).
package result

import (
	"context"
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
	// keys are not the model's to read. It must not be nil.
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

// refPattern is what the refs of results look like.
var refPattern = lazyregexp.New(`^res_[A-Za-z0-9_-]{1,128}$`)

// Spec describes read_result.
func (t *readResult) Spec() toolcrib.Spec {
	return wire.Spec(Group, Name, "Read more of a result that was cut, by the reference in it.", parameters,
		toolcrib.EffectReadOnly)
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
	if !refPattern.MatchString(in.Ref) {
		return toolcrib.Output{}, unknown(in.Ref)
	}
	in.most = wire.Fitting(call.MaxBytes, envelope, maxLimit)
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

// envelope is what a piece needs besides its content. One that is cut once more by its own bound would
// have to be read by yet another reference.
const envelope = 128

func unknown(ref string) error {
	return toolcrib.Failf(toolcrib.NotFound, "no result with the reference %q in this run", ref)
}

func (t *readResult) piece(ctx context.Context, run toolcrib.RunID, in input) (wire.Piece, error) {
	// A few bytes more on either side show where the characters at the edges begin.
	from := max(0, in.Offset-(utf8.UTFMax-1))
	limit := min(in.Limit, maxLimit, in.most)
	data, size, err := t.options.Contents.Range(ctx, run, in.Ref, from, in.Offset-from+limit+utf8.UTFMax)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound):
		return wire.Piece{}, unknown(in.Ref)
	case err != nil:
		return wire.Piece{}, err
	case in.Offset > size:
		return wire.Piece{}, toolcrib.Failf(toolcrib.InvalidArguments, "offset %d is beyond the end: the result has %d bytes",
			in.Offset, size)
	}
	return wire.PieceOf(data, from, size, in.Offset, limit), nil
}
