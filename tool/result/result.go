// Package result implements read_result, which reads the rest of a tool's result that was cut.
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

	// Name is the name of the tool. Cut results have references only if a tool of this name is
	// offered.
	Name = "read_result"

	defaultLimit = 16 << 10
	// maxLimit makes the result fit into the usual 65 536 bytes even if JSON doubles every character.
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
	// Contents has the cleaned results under refs that begin with "res_". Models cannot read its
	// other keys. It must not be nil.
	Contents toolcrib.Contents
	// Untrusted reports whether the result with this ref is untrusted data, and its source. Parts
	// of it are marked likewise. If nil, all results are untrusted.
	Untrusted func(run toolcrib.RunID, ref string) (source string, untrusted bool)
}

// New returns read_result.
func New(options Options) []toolcrib.Tool { return []toolcrib.Tool{&readResult{options}} }

type readResult struct{ options Options }

type input struct {
	Ref    string `json:"ref"`
	Offset int64  `json:"offset"`
	Limit  int64  `json:"limit"`

	most int64 // bytes that fit into the bound of the call
}

// refPattern matches the refs of results.
var refPattern = lazyregexp.New(`^res_[A-Za-z0-9_-]{1,128}$`)

// Spec describes read_result.
func (t *readResult) Spec() toolcrib.Spec {
	return wire.Spec(Group, Name, "Read more of a result that was cut, by the reference in it.", parameters,
		toolcrib.EffectReadOnly)
}

// Call returns a part of a result of the same run. It begins and ends between characters, starts at
// offset or at the beginning of the character there, and has at least one character.
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

// envelope is the number of bytes that a piece needs in addition to its content. Without it, the piece
// itself would be cut, and need another reference.
const envelope = 128

func unknown(ref string) error {
	return toolcrib.Failf(toolcrib.NotFound, "no result with the reference %q in this run", ref)
}

func (t *readResult) piece(ctx context.Context, run toolcrib.RunID, in input) (wire.Piece, error) {
	// A few more bytes on either side show where the characters at the ends begin.
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
