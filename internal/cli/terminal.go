package cli

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// asker asks whoever sits at the terminal.
type asker struct {
	a   *app
	ask *render.Approver
}

const leaveIt = "empty: leave it waiting"

// Answer implements [service.Person].
func (p *asker) Answer(ctx context.Context, q service.Question) (service.Answer, bool, error) {
	ask := &q.Ask
	if p.ask.Left(ask.ApprovalID) {
		return service.Answer{}, false, nil
	}
	if q.Problem != "" {
		p.a.complain(q.Problem)
	}
	switch {
	case q.Limit != nil:
		a, ok := p.limit(ctx, &q)
		return a, ok, nil
	case ask.Kind == journal.ApprovalInDoubt:
		a := service.Answer{Decision: journal.DecisionMixed, Calls: map[string]journal.CallDecision{}}
		for _, c := range ask.Calls {
			one, ok := p.doubt(ctx, ask.ApprovalID, &c, q.Another)
			if !ok {
				break
			}
			a.Calls[c.ID] = one
		}
		return a, len(a.Calls) > 0, nil
	case ask.Kind == journal.ApprovalInput:
		a, ok := p.question(ctx, &q)
		return a, ok, nil
	}
	word, ok, err := p.ask.Decide(ctx, q.Run, ask)
	return service.Answer{Decision: word.Decision, Calls: word.Calls, Reason: word.Reason, Remember: word.Remember}, ok, err
}

func (p *asker) question(ctx context.Context, q *service.Question) (service.Answer, bool) {
	head, asked := "The model asks you:", q.Ask.Question
	if choices := service.Choices(q.Ask.Schema); choices != "" {
		asked += "\n" + choices
	}
	if q.Problem != "" {
		head = ""
	}
	text, ok := p.ask.Ask(ctx, q.Ask.ApprovalID, head, asked, "your answer ("+leaveIt+")? ")
	return service.Answer{Decision: journal.DecisionAnswer, Text: text}, ok
}

func (p *asker) limit(ctx context.Context, q *service.Question) (service.Answer, bool) {
	head := "A limit was reached: " + q.Ask.Reason
	if q.Problem != "" {
		head = ""
	}
	question := fmt.Sprintf("how many %s more (%s: no more, the run ends with what it has; %s)? ", q.Limit.Unit, render.KeyNo, leaveIt)
	text, ok := p.ask.Ask(ctx, q.Ask.ApprovalID, head, "", question)
	if render.Pressed(render.YesKeys(false), text) == render.KeyNo {
		return service.Answer{Decision: journal.DecisionDeny}, ok
	}
	return service.Answer{Text: text}, ok
}

// doubt asks what became of a call; another = only another person may have it run once
// more.
func (p *asker) doubt(ctx context.Context, approval string, c *journal.ApprovalItem, another bool) (word journal.CallDecision, ok bool) {
	head := "The run was cut off while this call ran; nobody knows whether it took effect."
	if another {
		head += " Only another person may run it once more."
	}
	key, ok := p.ask.AskKey(ctx, approval, head, c, render.DoubtKeys(another))
	switch key {
	case render.KeyRetry:
		word.Decision = journal.DecisionRetry
	case render.KeyNo:
		word.Decision = journal.DecisionNotHappened
	case render.KeyHappened:
		var text string
		text, ok = p.ask.Ask(ctx, approval, "", "", "what is its result, for the model to read? ")
		word.Decision, word.Result = journal.DecisionHappened, render.JSONOrText(text)
	}
	return word, ok
}
