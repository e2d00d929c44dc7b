package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	text := toolcrib.Message{Parts: last.Parts}.Text()
	answer, err := d.structured(text)
	if err != nil {
		// Models put an answer into a code fence, and explain it. If exactly one value fits, it is meant.
		var fits []json.RawMessage
		values := valuesIn(text)
		for _, value := range values {
			found, problem := d.structured(value)
			if problem == nil {
				fits = append(fits, found)
			} else if len(values) == 1 {
				err = problem
			}
		}
		if len(fits) == 1 {
			answer, err = fits[0], nil
		}
	}
	if err != nil {
		b.Problem = strings.TrimPrefix(err.Error(), "invalid_arguments: ")
	} else {
		b.Valid, b.Answer = true, string(answer)
	}
	return d.hold(b)
}

// structured returns the JSON value in a text, if it is valid against the agent's schema.
func (d *driver) structured(text string) (json.RawMessage, error) {
	answer, err := guard.Canonical(json.RawMessage(strings.TrimSpace(text)))
	if err != nil {
		return nil, fmt.Errorf("the answer is not one JSON value: %w", err)
	}
	// Escapes in its strings are resolved only now.
	answer = d.r.Mask.MaskJSON(guard.CleanJSON(answer))
	return answer, gate.CheckAnswer(d.s.Start.Agent.OutputSchema, answer)
}

// maxValues bounds how often a text is searched for a value, since each search may read all of it.
const maxValues = 100

// valuesIn returns the objects, lists and fenced values in a text, without those in another value.
func valuesIn(text string) (values []string) {
	if _, rest, ok := strings.Cut(text, "```"); ok && strings.Count(rest, "```") == 1 {
		_, body, _ := strings.Cut(rest, "\n")
		body, _, _ = strings.Cut(body, "```")
		if json.Valid([]byte(body)) {
			return []string{body}
		}
	}
	for range maxValues {
		at := strings.IndexAny(text, "{[")
		if at < 0 {
			break
		}
		var value json.RawMessage
		from := json.NewDecoder(strings.NewReader(text[at:]))
		switch err := from.Decode(&value); {
		case errors.Is(err, io.ErrUnexpectedEOF): // cut off: what is in it is not the answer
			return values
		case err != nil:
			text = text[at+1:]
			continue
		}
		values, text = append(values, string(value)), text[at+int(from.InputOffset()):]
	}
	return values
}
