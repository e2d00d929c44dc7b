package gate

import (
	"bytes"
	"encoding/json"

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
