package toolcribtest

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/toolcrib/toolcrib"
)

// ToolOptions describe a [Tool].
type ToolOptions struct {
	Spec   toolcrib.Spec
	Do     func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) // if nil, it returns Output
	Output toolcrib.Output
}

// Tool does what its options say and records its calls. It is safe for concurrent use by many runs.
type Tool struct {
	o ToolOptions

	mu    sync.Mutex
	calls []toolcrib.Call
}

// NewTool returns a tool with options.
func NewTool(o ToolOptions) *Tool { return &Tool{o: o} }

// ReadOnly returns a tool with a name, on by default, that only reads and always returns text.
func ReadOnly(name, text string) *Tool { return says(name, text, toolcrib.EffectReadOnly) }

// Writer returns a tool with a name, on by default, whose calls are writes that must not be repeated,
// and that always returns text.
func Writer(name, text string) *Tool { return says(name, text, toolcrib.EffectNonIdempotentWrite) }

func says(name, text string, effect toolcrib.Effect) *Tool {
	return NewTool(ToolOptions{
		Spec:   toolcrib.Spec{Name: name, Effect: effect, EnabledByDefault: true, Source: "go"},
		Output: toolcrib.Output{Text: text},
	})
}

// Spec returns the given spec.
func (t *Tool) Spec() toolcrib.Spec { return t.o.Spec }

// Call records the call and calls Do of the options, unless ctx has ended.
func (t *Tool) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	recorded := call
	recorded.Arguments = bytes.Clone(call.Arguments)
	t.mu.Lock()
	t.calls = append(t.calls, recorded)
	t.mu.Unlock()
	switch err := ctx.Err(); {
	case err != nil:
		return toolcrib.Output{}, err
	case t.o.Do != nil:
		return t.o.Do(ctx, call)
	}
	return t.o.Output, nil
}

// Calls returns the calls so far, in the order in which they began.
func (t *Tool) Calls() []toolcrib.Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.calls)
}
