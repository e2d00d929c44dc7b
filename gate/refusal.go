package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// refusal is what a step of the judgement says against a call; nil = nothing.
type refusal struct {
	reason      toolcrib.Reason // "" = the step's
	message     string          // for the model
	hint        string          // for the model and its operator
	rule        string
	schemaError json.RawMessage
	position    string // for operators
	detail      string // for operators
}

func refuse(message string) *refusal { return &refusal{message: message} }

// refused writes a refusal into a verdict. What people read of it as well is cleaned here,
// the rest by [guard.Refusal].
func (v *Verdict) refused(r *refusal) {
	v.Decision, v.Reason = toolcrib.Refuse, r.reason
	v.Message = cut(guard.Clean(r.message), maxMessageBytes)
	v.OperatorHint, v.Rule = cut(guard.Clean(r.hint), maxMessageBytes), r.rule
	v.SchemaError = r.schemaError
	v.Position, v.Detail = r.position, cut(r.detail, maxDetailBytes)
	v.Permit, v.Preview, v.Approval = Permit{}, nil, ""
	v.Questions, v.Changed, v.Binding = nil, "", nil
	v.Content = guard.Refusal{
		Tool: shown(v.Tool), Reason: v.Reason, Message: v.Message,
		OperatorHint: v.OperatorHint, Rule: v.Rule, SchemaError: v.SchemaError,
	}.JSON()
}

// encode writes JSON as it is meant to be read, without HTML escapes. What it is
// given can always be written.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Bounds of texts that the gate keeps or shows.
const (
	maxMessageBytes = 2 << 10 // what a model reads of a refusal
	maxDetailBytes  = 4 << 10 // what an operator reads
	maxShownName    = 128     // a name as a model wrote it
)

// panicError is a panic of a tool or layer, as an error.
type panicError struct {
	value any
	stack string
}

func (e *panicError) Error() string {
	return cut(fmt.Sprintf("panic: %v\n%s", e.value, e.stack), maxDetailBytes)
}

// contain runs f and returns its error, and a panic of f as an error: no tool and
// no layer can bring the process down.
func contain(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{value: v, stack: string(debug.Stack())}
		}
	}()
	return f()
}

// cut shortens s to at most limit bytes, at the start of a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const dots = "…"
	end := max(0, limit-len(dots))
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + dots
}

// shown is a name as it may be repeated in a text, which is cleaned as a whole when the
// verdict leaves.
func shown(name string) string { return cut(name, maxShownName) }
