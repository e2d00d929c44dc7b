package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// CodeSchemaMismatch is the code of a run whose answer does not match the agent's output_schema, even
// after a second request.
const CodeSchemaMismatch = "schema_mismatch"

// maxAnswerTries bounds how often an answer that must match a schema is requested.
const maxAnswerTries = 2

// mustCheck reports whether the last reply is an answer that must match a schema and has not been
// checked yet.
func (s *State) mustCheck() bool {
	return len(s.Start.Agent.OutputSchema) > 0 && (s.Checked == nil || s.Checked.Request != s.Last.Request)
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
	if s.AnswerTries < maxAnswerTries && !s.Closed() {
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

// AsksAgain reports whether the request of a reply is repeated because the model gave no answer, as
// some do after results of tools. A filtered answer is not requested again.
func (s *State) AsksAgain(b *journal.Message) bool {
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

// ChoiceIgnored returns the notice about a reply that does not make the demanded call, or nil.
func ChoiceIgnored(sent *journal.ModelRequest, calls []journal.ToolCall) *journal.Notice {
	named := sent.Choice.Mode == toolcrib.ChoiceName
	called := "others"
	switch {
	case !demandsCall(sent):
		return nil
	case len(calls) == 0:
		called = "none"
	case !named || slices.ContainsFunc(calls, func(c journal.ToolCall) bool { return c.Name == sent.Choice.Name }):
		return nil
	}
	return journal.Noticef(NoticeChoiceIgnored, "the model was told to call %s and called %s", demanded(sent.Choice), called)
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

// The finish reasons of a conductor whose answer is incomplete because of a budget or the team's time.
// The run ends for the same reason.
const (
	FinishBudget = toolcrib.FinishReason(toolcrib.StopBudgetExhausted)
	FinishTime   = toolcrib.FinishReason(toolcrib.StopWallTime)
)

// Answer returns the answer of a run. Without one the error is a [*toolcrib.Error] with the reason:
// the run failed, was cancelled, was stopped by a limit, waits (then the code is conflict), or has not
// ended. An answer that a limit cut short is returned; Done.Truncated reports that.
func (s *State) Answer() (string, error) {
	switch {
	case s.Failed != nil:
		return "", &toolcrib.Error{
			Code:    toolcrib.Code(s.Failed.Code),
			Message: fmt.Sprintf("run %s failed: %s", s.Run, s.Failed.Message), Ref: s.Failed.Ref,
		}
	case s.Done != nil && s.Done.Status == toolcrib.StatusCompleted && (s.Done.Content != "" || !s.Done.Truncated):
		return s.Done.Content, nil
	case s.Done != nil:
		return "", toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "run %s ended without an answer: %s", s.Run,
			s.Done.StopReason)
	case s.Pending != nil:
		return "", toolcrib.Errorf(toolcrib.CodeConflict, "run %s waits for an approval or an answer (%s %s)", s.Run,
			s.Status, s.Pending.ApprovalID)
	}
	return "", toolcrib.Errorf(toolcrib.CodeConflict, "run %s has not ended (%s)", s.Run, s.Status)
}
