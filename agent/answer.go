package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// checkSchema refuses an output_schema that cannot be used to check an answer.
func checkSchema(schema json.RawMessage) error {
	if len(schema) == 0 {
		return nil
	}
	if err := gate.CheckSchema(schema); err != nil {
		return usagef("output_schema: %v", err)
	}
	return nil
}

// check checks the answer against the agent's schema.
func (d *driver) check(ctx context.Context) error {
	last := d.s.Last
	b := &journal.AnswerChecked{Request: last.Request}
	answer, err := structured(toolcrib.Message{Parts: last.Parts}.Text())
	if err == nil {
		// Escapes in its strings are resolved only now.
		answer = d.r.Mask.MaskJSON(guard.CleanJSON(answer))
		err = gate.CheckAnswer(d.s.Start.Agent.OutputSchema, answer)
	}
	if err != nil {
		b.Problem = strings.TrimPrefix(err.Error(), "invalid_arguments: ")
	} else {
		b.Valid, b.Answer = true, string(answer)
	}
	return d.hold(b)
}

// structured reads the one JSON value of an answer, which may be in a code fence.
func structured(text string) (json.RawMessage, error) {
	text = strings.TrimSpace(text)
	if rest, ok := strings.CutPrefix(text, "```"); ok {
		if _, body, ok := strings.Cut(rest, "\n"); ok {
			text = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(body), "```"))
		}
	}
	answer, err := guard.Canonical(json.RawMessage(text))
	if err != nil {
		return nil, fmt.Errorf("the answer is not one JSON value: %w", err)
	}
	return answer, nil
}
