// Package ask implements ask_user: a typed question of the model to the person. It is not
// executed: the run parks as waiting_for_input until a person answers.
package ask

import (
	"context"
	"encoding/json"

	"github.com/toolcrib/toolcrib"
)

// Name of the tool.
const Name = "ask_user"

// New makes ask_user.
func New() toolcrib.Tool { return asker{} }

type asker struct{}

// Spec implements [toolcrib.Tool].
func (asker) Spec() toolcrib.Spec {
	return toolcrib.Spec{
		Name:        Name,
		Description: "Ask the person what only they can answer, if you cannot do without it.",
		Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"question":{"type":"string","minLength":1,"maxLength":4000},` +
			`"schema":{"type":"object","description":"JSON Schema; default: text"}},` +
			`"required":["question"],"additionalProperties":false}`),
		Effect: toolcrib.EffectReadOnly, Group: "people", Source: "builtin", EnabledByDefault: true,
		AnsweredBy: toolcrib.ByPerson,
	}
}

// Call implements [toolcrib.Tool]. It is never reached: the loop takes the answer
// of the person instead.
func (asker) Call(context.Context, toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.Output{}, toolcrib.Failf(toolcrib.ExecutionFailed, "a person answers this question, and nobody has")
}
