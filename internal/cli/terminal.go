package cli

import (
	"context"

	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/service"
)

// asker asks whoever is at the terminal.
type asker struct {
	a   *app
	ask *render.Approver
}

// Answer implements [service.Person].
func (p *asker) Answer(ctx context.Context, q service.Question) (service.Answer, bool, error) {
	if q.Problem != "" && !p.ask.Left(q.Ask.ApprovalID) {
		p.a.complain(q.Problem)
	}
	answer, ok := p.ask.Answer(ctx, questionOf(q))
	return answerOf(answer), ok, nil
}

// questionOf and answerOf turn what a run waits for into what is shown of it, and what a
// person said into what it means.
func questionOf(q service.Question) render.Question {
	shown := render.Question{Ask: q.Ask, Choices: service.Choices(q.Ask.Schema), Another: q.Another, Problem: q.Problem}
	if q.Limit != nil {
		shown.Unit = q.Limit.Unit
	}
	return shown
}

func answerOf(a render.Answer) service.Answer {
	return service.Answer{Decision: a.Decision, Calls: a.Calls, Reason: a.Reason, Remember: a.Remember, Text: a.Text}
}
