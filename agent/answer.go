package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// CodeSchemaMismatch is the code of a run whose answer does not match the agent's output_schema, even
// after a second request.
const CodeSchemaMismatch = "schema_mismatch"

// maxAnswerTries bounds how often an answer that must match a schema is requested.
const maxAnswerTries = 2

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

// mustCheck reports whether the last reply is an answer that must match a schema and has not been
// checked yet.
func (s *State) mustCheck() bool {
	return len(s.Start.Agent.OutputSchema) > 0 && (s.Checked == nil || s.Checked.Request != s.Last.Request)
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

// answerChecked records the outcome. An answer that does not match is requested once more, unless it
// was that of the closing request (X14).
func (s *State) answerChecked(b *journal.AnswerChecked) error {
	if s.Last == nil || s.Last.Request != b.Request {
		return fmt.Errorf("request %d was not the last one answered", b.Request)
	}
	s.Checked = b
	if b.Valid {
		return nil
	}
	s.AnswerTries++
	if s.AnswerTries < maxAnswerTries && !s.Closed {
		s.add(toolcrib.TextMessage(toolcrib.RoleUser, "Your answer does not fit the JSON Schema that was asked for: "+b.Problem+
			"\nAnswer again, with one JSON value that fits it and nothing else."))
		s.Last = nil
	}
	return nil
}

// finishChecked ends a run whose answer was checked against its schema.
func finishChecked(s *State) Step {
	if !s.Checked.Valid {
		step := fail(s, toolcrib.StopProviderFailed, fmt.Sprintf("the answer does not fit output_schema, also when asked for again: %s", s.Checked.Problem))
		step.Code = CodeSchemaMismatch
		return step
	}
	return completed(s.Checked.Answer, false)
}

// Not every API can make a model call a tool, and not every model obeys. So the loop checks the reply,
// whatever the provider (H13, H14): a request that demanded a call and got none gives a notice, and is
// repeated once with the demand in words.

// saysNothing reports whether a reply has neither text nor calls.
func saysNothing(b *journal.Message) bool {
	return !hasCalls(b) && strings.TrimSpace(toolcrib.Message{Parts: b.Parts}.Text()) == ""
}

// asksAgain reports whether the request of a reply is repeated because the model gave no answer, as
// some do after results of tools. A filtered answer is not requested again.
func (s *State) asksAgain(b *journal.Message) bool {
	return saysNothing(b) && !s.empty && !b.Closing && b.Finish != toolcrib.FinishFiltered
}

// Unanswered reports whether the run failed because its model gave no answer, or a filtered one: asked
// again, it may answer.
func (s *State) Unanswered() bool {
	switch {
	case s.Failed == nil || s.Failed.StopReason != toolcrib.StopProviderFailed || s.Stopping != nil:
		return false
	case s.LastFailed != nil:
		return s.LastFailed.Class == toolcrib.ErrRefused
	}
	return s.Last != nil && !hasCalls(s.Last) && (s.empty || s.Last.Finish == toolcrib.FinishFiltered)
}

// demandsCall reports whether a request was sent with a tool choice that asks for a call.
func demandsCall(sent *journal.ModelRequest) bool {
	return sent.OfferHash != "" && (sent.Choice.Mode == toolcrib.ChoiceRequired || sent.Choice.Mode == toolcrib.ChoiceName)
}

// choiceIgnored describes what a reply called instead of the demanded call, or returns "" if it made
// that call.
func choiceIgnored(sent *journal.ModelRequest, calls []journal.ToolCall) string {
	named := sent.Choice.Mode == toolcrib.ChoiceName
	switch {
	case !demandsCall(sent):
	case len(calls) == 0:
		return "none"
	case named && !slices.ContainsFunc(calls, func(c journal.ToolCall) bool { return c.Name == sent.Choice.Name }):
		return "others"
	}
	return ""
}

func demanded(choice toolcrib.ToolChoice) string {
	if choice.Mode == toolcrib.ChoiceName {
		return "the tool " + choice.Name
	}
	return "a tool"
}

// demandAgain returns the text with which a reply without a call is requested once more, or "" if it
// is not.
func (s *State) demandAgain(sent *journal.ModelRequest, b *journal.Message) string {
	if !demandsCall(sent) || s.choiceAgain || hasCalls(b) || b.Finish != toolcrib.FinishStop ||
		b.Iteration >= s.Limits().MaxIterations ||
		strings.TrimSpace(toolcrib.Message{Parts: b.Parts}.Text()) == "" {
		return ""
	}
	return "You were told to call " + demanded(sent.Choice) + ", and called none. Call it now."
}
