// Package plan implements update_plan: the steps of a longer task and their progress, for a person to
// see. It changes nothing; the plan is the call itself.
package plan

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool"
)

// Name is the name of the tool.
const Name = "update_plan"

// Bounds of a plan, which are also in its schema.
const (
	MaxSteps     = 40
	MaxStepChars = 400
)

// Step is a step of a plan.
type Step struct {
	Step   string `json:"step"`
	Status string `json:"status,omitempty"` // pending (or ""), in_progress, done (or completed)
}

// marks precede the steps, by their status.
var marks = map[string]string{"": "[ ] ", "pending": "[ ] ", "in_progress": "[>] ", "done": "[x] ", "completed": "[x] "}

// New returns update_plan.
func New() toolcrib.Tool {
	return tool.MustFunc(toolcrib.Spec{
		Name:        Name,
		Description: "Show your plan for a longer task. Repeat it as steps end.",
		Parameters: json.RawMessage(`{"type":"object","properties":{"steps":{"type":"array","minItems":1,"maxItems":40,"items":{"type":"object",` +
			`"properties":{"step":{"type":"string","minLength":1,"maxLength":400},"status":{"enum":["pending","in_progress","done","completed"]}},` +
			`"required":["step"],"additionalProperties":false}}},"required":["steps"],"additionalProperties":false}`),
		Effect: toolcrib.EffectReadOnly, Group: "people", Source: "builtin",
	}, func(_ context.Context, _ toolcrib.Call, in struct {
		Steps []Step `json:"steps"`
	},
	) (string, error) {
		if len(in.Steps) == 0 || len(in.Steps) > MaxSteps {
			return "", toolcrib.Failf(toolcrib.InvalidArguments, "a plan has 1 to %d steps, not %d", MaxSteps, len(in.Steps))
		}
		rows := make([]string, len(in.Steps))
		for i, s := range in.Steps {
			mark, text := marks[s.Status], strings.Join(strings.Fields(s.Step), " ")
			if mark == "" || text == "" || len(text) > 4*MaxStepChars {
				return "", toolcrib.Failf(toolcrib.InvalidArguments,
					"step %d needs a text, and as its status pending, in_progress or done", i+1)
			}
			rows[i] = mark + text
		}
		return strings.Join(rows, "\n"), nil
	})
}
