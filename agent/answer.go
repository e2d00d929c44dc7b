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

// CodeSchemaMismatch is the code of a run whose answer does not fit the agent's
// output_schema, even when asked for again.
const CodeSchemaMismatch = "schema_mismatch"

// maxAnswerTries is how often an answer that must fit a schema is asked for.
const maxAnswerTries = 2

// checkSchema refuses an output_schema that no answer could be held against.
func checkSchema(schema json.RawMessage) error {
	if len(schema) == 0 {
		return nil
	}
	if err := gate.CheckSchema(schema); err != nil {
		return usagef("output_schema: %v", err)
	}
	return nil
}

// mustCheck reports whether the last reply is an answer that has to fit a schema and
// was not held against it yet.
func (s *State) mustCheck() bool {
	return len(s.Start.Agent.OutputSchema) > 0 && (s.Checked == nil || s.Checked.Request != s.Last.Request)
}

// check holds the answer against the agent's schema.
func (d *driver) check(ctx context.Context) error {
	last := d.s.Last
	b := &journal.AnswerChecked{Request: last.Request}
	answer, err := structured(toolcrib.Message{Parts: last.Parts}.Text())
	if err == nil {
		// Its strings are read as they are meant only now.
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

// structured reads the one JSON value of an answer, which models like to put into
// a code fence.
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

// answerChecked notes the outcome; an answer that does not fit is asked for once
// more, unless it was that of the closing request (X14).
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

// finishChecked ends a run whose answer was held against its schema.
func finishChecked(s *State) Step {
	if !s.Checked.Valid {
		step := fail(s, toolcrib.StopProviderFailed, fmt.Sprintf("the answer does not fit output_schema, also when asked for again: %s", s.Checked.Problem))
		step.Code = CodeSchemaMismatch
		return step
	}
	return completed(s.Checked.Answer, false)
}

// Not every API can make a model call a tool, and not every model that is told to does.
// So the loop looks at what came, whoever the provider is (H13, H14): a request that
// demanded a call and got none gives a notice, and is asked once more in words.

// saysNothing reports whether a reply has neither text nor calls.
func saysNothing(b *journal.Message) bool {
	return !hasCalls(b) && strings.TrimSpace(toolcrib.Message{Parts: b.Parts}.Text()) == ""
}

// asksAgain reports whether the request of a reply is sent once more, since the model gave no answer,
// as some do after results of tools. An answer that was filtered stays filtered.
func (s *State) asksAgain(b *journal.Message) bool {
	return saysNothing(b) && !s.empty && !b.Closing && b.Finish != toolcrib.FinishFiltered
}

// Unanswered reports whether the run failed because its model gave no answer, or one that was filtered:
// asked again, it may answer.
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

// choiceIgnored says what a reply called in place of the call that was demanded; "" = that call came.
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

// demandAgain decides whether a reply without a call is asked for once more, and what is
// said then; "" = no.
func (s *State) demandAgain(sent *journal.ModelRequest, b *journal.Message) string {
	if !demandsCall(sent) || s.choiceAgain || hasCalls(b) || b.Finish != toolcrib.FinishStop ||
		b.Iteration >= s.Limits().MaxIterations ||
		strings.TrimSpace(toolcrib.Message{Parts: b.Parts}.Text()) == "" {
		return ""
	}
	return "You were told to call " + demanded(sent.Choice) + ", and called none. Call it now."
}
