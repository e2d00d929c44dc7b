package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// grants refuses amounts that cannot be granted.
func grants(s *State, g *journal.Granted) error {
	b, all := s.Start.Agent.Budget, s.Limits().MaxIterations+g.Iterations
	switch {
	case g.Iterations < 0 || g.CostUSD < 0 || g.Tokens < 0 || g.Requests < 0:
		return usagef("the amounts must not be negative")
	case all > toolcrib.MaxIterationsCeiling:
		return usagef("%d iterations in all are more than %d", all, toolcrib.MaxIterationsCeiling)
	case g.CostUSD > 0 && b.MaxCostUSD == 0 || g.Tokens > 0 && b.MaxTokens == 0 || g.Requests > 0 && b.MaxRequests == 0:
		return usagef("the run has no such cap to raise")
	case *g == (journal.Granted{By: g.By, Token: g.Token}):
		return usagef("no amount is given")
	}
	return nil
}

// Addition is an addition to a run that has not ended, without driving it; nil fields add nothing.
type Addition struct {
	// Granted raises limits. A run that waits for that can then be resumed. More than
	// [toolcrib.MaxIterationsCeiling] iterations in all, or a negative amount, is bad_request.
	Granted *journal.Granted
	// Model answers from the next request on, instead of the run's own models. It is checked as at the
	// start of a run.
	Model   *journal.ModelInfo
	Message *string // read by the model before its next reply
	By      string  // who adds the model, message and key
	Once    string  // idempotency key of the request, if any
}

// Add records an addition to a run: all of it or, if one part is refused, nothing. If the run has
// ended, that is a conflict.
func (r *Runner) Add(ctx context.Context, run toolcrib.RunID, a Addition) (*State, error) {
	return r.amend(ctx, run, 1, func(s *State, _ error) (bodies []toolcrib.Body, err error) {
		if s.Ended() {
			return nil, stateErrorf(s, "has ended; nothing can be added to it; go on in its session, or fork it")
		}
		if a.Granted != nil {
			bodies, err = append(bodies, a.Granted), grants(s, a.Granted)
		}
		if a.Model != nil && err == nil {
			var chosen []toolcrib.Body
			chosen, err = chooses(s, a.Model, a.By)
			bodies = append(bodies, chosen...)
		}
		if a.Message != nil && err == nil {
			if *a.Message == "" {
				err = usagef("the message is empty")
			}
			bodies = append(bodies, &journal.Said{Text: r.Mask.Clean(*a.Message), By: a.By})
		}
		if a.Once != "" {
			bodies = append(bodies, &journal.Resumed{Once: a.Once, By: a.By})
		}
		return bodies, err
	})
}

// inbox returns the messages that the run has not read.
func (d *driver) inbox(ctx context.Context) ([]journal.Said, error) {
	if d.r.Inbox == nil || d.s.Start.Given != nil {
		return nil, nil
	}
	return d.r.Inbox(ctx, d.s.Run)
}

// listens reports whether the run reads new messages before it carries out a step: before it asks its
// model, and before its normal end.
func (d *driver) listens(ctx context.Context, step core.Step) bool {
	s := d.s
	ends := step.Kind == core.StepFinish && step.Reason == toolcrib.StopCompleted && !s.Closed() && s.Start.Given == nil &&
		s.Iterations < s.Limits().MaxIterations
	return (step.Kind == core.StepAsk || ends) && ctx.Err() == nil
}

// listen adds the messages since the last request to the run. heard reports whether there were any.
func (d *driver) listen(ctx context.Context, step core.Step) (heard bool, err error) {
	s := d.s
	if !d.listens(ctx, step) {
		return false, nil
	}
	var said []journal.Said
	if !d.r.Refuses || d.unread || step.Kind != core.StepAsk || step.Attempt > 1 {
		said, err = d.inbox(ctx)
	}
	if err == nil && d.unread && len(said) == 0 {
		err = fmt.Errorf("run %s: the inbox has none: %w", s.Run, journal.ErrUnread)
	}
	if d.unread = false; err != nil {
		return false, err
	}
	if step.Kind == core.StepAsk && d.r.Said != nil {
		if text := d.r.Said(s.Run); strings.TrimSpace(text) != "" {
			said = append(said, journal.Said{Text: text, By: NameOf(s.Start.Principal)})
		}
	}
	if len(said) == 0 {
		return false, nil
	}
	bodies := make([]toolcrib.Body, len(said))
	for i := range said {
		said[i].Text = d.r.Mask.Clean(said[i].Text)
		bodies[i] = &said[i]
	}
	return true, d.append(ctx, bodies...)
}

// rewind resets the driver to the journal and to the events that were held, after an append was
// refused because of unread messages.
func (d *driver) rewind(ctx context.Context, refused error, held []toolcrib.Event) error {
	if d.r.Inbox == nil { // the messages can never be read
		return fmt.Errorf("%w: agent.Options.Inbox is not set", refused)
	}
	s, err := d.r.Load(context.WithoutCancel(ctx), d.s.Run)
	for i := 0; err == nil && i < len(held); i++ {
		err = core.Fold(s, held[i])
	}
	if err == nil {
		*d.s, d.held = *s, held
	}
	return err
}

// Note adds notices to a run that has not ended.
func (r *Runner) Note(ctx context.Context, run toolcrib.RunID, notices []toolcrib.Notice) (*State, error) {
	return r.amend(ctx, run, 1, func(s *State, _ error) (bodies []toolcrib.Body, err error) {
		if s.Ended() {
			return nil, stateErrorf(s, "has ended")
		}
		for _, n := range notices {
			bodies = append(bodies, &journal.Notice{Notice: n})
		}
		return bodies, nil
	})
}

// checkAnswer checks a person's answer against the question's schema.
func (r *Runner) checkAnswer(s *State, d journal.CallDecision) (journal.CallDecision, error) {
	a := s.Approval
	if len(d.Result) == 0 {
		return d, usagef("the answer is missing")
	}
	answer, err := guard.Canonical(d.Result)
	if err != nil {
		return d, usagef("the answer must be JSON: %v", err)
	}
	if err := gate.CheckAnswer(a.Schema, answer); err != nil {
		// The prefix is meant for models.
		return d, usagef("the answer does not fit the question: %s", strings.TrimPrefix(err.Error(), "invalid_arguments: "))
	}
	if a.Secret() {
		if answer, err = r.sealAnswer(s.Run, answer); err != nil {
			return d, err
		}
	}
	d.Result = r.Mask.MaskJSON(fmt.Appendf(nil, `{"answer":%s}`, answer)) // this is the result that the model reads
	return d, nil
}
