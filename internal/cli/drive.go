package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// driving starts a run or continues one, watched by a front.
type driving func(ctx context.Context, f service.Front) (service.Run, error)

// show drives a run, shows what happens in a format, and says by the exit code what became
// of it.
func (a *app) show(ctx context.Context, format string, who toolcrib.Principal, approve agent.Approve,
	do driving,
) error {
	var show watcher = &jsonWatcher{out: a.out}
	if format != outputEvents {
		live := a.live()
		if format == outputJSON {
			live.Out = io.Discard
		}
		show = live
	}
	run, err := a.carry(ctx, show, who, approve, do)
	if err != nil {
		return a.cutOff(&run, err)
	}
	if format != outputEvents {
		a.summary(&run)
	}
	if format == outputJSON {
		if err := printJSON(a.out, run, true); err != nil {
			return err
		}
	}
	a.parked(ctx, who, &run)
	a.keepNoLonger(ctx)
	return silent(exitOf(&run))
}

// watcher shows the frames of a run.
type watcher interface {
	Start()
	Frame(f journal.Frame)
	Stop()
}

// jsonWatcher writes frames as NDJSON (contract §8), each in one write.
type jsonWatcher struct {
	out *output
	buf strings.Builder
}

func (*jsonWatcher) Start() {}
func (*jsonWatcher) Stop()  {}

func (w *jsonWatcher) Frame(f journal.Frame) {
	w.buf.Reset()
	if printJSON(&w.buf, f, false) == nil {
		_, _ = w.out.Write([]byte(w.buf.String())) // kept and told by output itself
	}
}

func (a *app) live() *render.Live {
	return &render.Live{
		Out: a.out, Err: a.err, OutTerminal: a.outTerminal, ErrTerminal: a.errTerminal, Style: a.style,
		Known: a.api.Known,
	}
}

// carry drives a run to its end, its pause, or a signal. Whoever is at the terminal is asked
// what it waits for, unless approve says otherwise.
func (a *app) carry(ctx context.Context, show watcher, who toolcrib.Principal, approve agent.Approve,
	do driving,
) (run service.Run, err error) {
	var stderr io.Writer = a.err
	live, shown := show.(*render.Live)
	if shown {
		stderr = live
	}
	defer func(before io.Writer) { a.beside = before }(a.beside)
	a.beside = stderr
	ctx, stop := a.interruptible(ctx, nameOf(who), stderr)
	defer stop()
	f := service.Front{Watch: show.Frame, SincePause: !shown}
	if a.remote == nil {
		if f.Log, err = a.logger(stderr, shown); err != nil {
			return run, err
		}
	}
	if approve == agent.ApproveAsk || approve == agent.ApproveAll && a.inTerminal && a.errTerminal {
		answers, err := terminal.Open(a.in, a.err)
		if err != nil {
			return run, fmt.Errorf("the terminal: %v", err)
		}
		defer answers.Close()
		unhook := context.AfterFunc(ctx, answers.Cancel)
		defer unhook()
		approver := &render.Approver{In: answers, Out: a.err, Style: a.style, By: nameOf(who), Hint: hintText}
		if shown {
			approver.Hold, approver.Release = live.Hold, live.Release
		}
		f.Approver, f.Person = approver, &asker{a, approver}
	}
	driven := false
	f.Driving = func(before *service.Run) {
		if shown {
			recallCalls(live, before)
		}
		show.Start()
		driven = true
	}
	defer func() {
		if driven {
			show.Stop()
		}
	}()
	return do(ctx, f)
}

// hintText is the rule that would let a call pass that is asked about on the terminal.
func hintText(c *journal.ApprovalItem) string { return proposedText(propose.Asked(c)) }

// nameOf names who acts; with --as both names.
func nameOf(who toolcrib.Principal) string { return agent.NameOf(who) }

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
	shown := render.Question{
		Ask: q.Ask, Choices: service.Choices(q.Ask.Schema),
		Options: service.AnswerOptions(q.Ask.Schema), Another: q.Another, Problem: q.Problem,
	}
	if q.Limit != nil {
		shown.Unit = q.Limit.Unit
	}
	return shown
}

func answerOf(a render.Answer) service.Answer {
	return service.Answer{Decision: a.Decision, Calls: a.Calls, Reason: a.Reason, Remember: a.Remember, Text: a.Text}
}
