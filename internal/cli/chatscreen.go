package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/tui"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// screenFront is a conversation on a terminal that can draw.
type screenFront struct {
	chat   *chat
	screen *tui.Screen
}

// chatOnScreen holds the conversation on the terminal.
func (a *app) chatOnScreen(ctx context.Context, c *chat, history *tui.History) error {
	f := &screenFront{chat: c}
	talk := tui.New(tui.Options{
		Talk: f, In: a.in, Out: os.Stdout, Environ: os.Environ(), Look: tui.LookOf(os.Getenv, runtime.GOOS), History: history,
	})
	f.screen, c.front = talk.Screen(), f
	// What is said beside the conversation would be written into the drawing.
	stderr, beside := a.err, a.beside
	a.err, a.beside = f.screen, f.screen
	defer func() { a.err, a.beside = stderr, beside }()
	ctx, stop := terminated(ctx)
	defer stop()
	err := talk.Run(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return &exitError{code: codeOf(cause)}
	}
	if err != nil {
		return err
	}
	return c.left()
}

// terminated gives a context that ends with SIGTERM or SIGHUP, which leave a run
// resumable; ctrl-c is a key of the conversation, and a signal of its kind from
// elsewhere ends it as SIGTERM does.
func terminated(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case s := <-signals:
			signal.Stop(signals) // the next one ends the process at once
			_, cause := meaning(s, "a signal")
			cancel(cause)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
		<-ended
	}
}

// Begin implements [tui.Talk].
func (f *screenFront) Begin(ctx context.Context, s *tui.Screen) {
	s.Note("toolcrib chat: /help tells the commands, ctrl-d leaves")
	f.told(ctx, f.chat.began(ctx))
}

// Do implements [tui.Talk].
func (f *screenFront) Do(ctx context.Context, line string, _ *tui.Screen) (leave bool) {
	return f.told(ctx, f.chat.do(ctx, line))
}

// told tells an error; leave is set if it ends the conversation.
func (f *screenFront) told(ctx context.Context, err error) (leave bool) {
	switch {
	case err == nil:
	case errors.Is(err, errLeave):
		return true
	case ctxCause(ctx) != nil:
		return true
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || codeOf(err) == exitCanceled):
		f.note("stopped before it began")
	default:
		f.warn(err.Error())
	}
	return false
}

// Complete implements [tui.Talk].
func (f *screenFront) Complete(line string) []string { return f.chat.complete(line) }

func (f *screenFront) note(text string)      { f.screen.Note(text) }
func (f *screenFront) warn(text string)      { f.screen.Warn(text) }
func (f *screenFront) print(text string)     { f.screen.Text(text) }
func (f *screenFront) status(parts []string) { f.screen.Status(parts) }

func (f *screenFront) parked(d *drive, s *agent.State) {
	if s.Pending != nil && s.Pending.Error != nil {
		f.note("this turn waits for " + outageText(s.Pending) + "; /decide asks it again, /cancel ends it")
		return
	}
	at := d.a.below(context.Background(), s)
	if at.Approval == nil { // somebody has decided meanwhile
		f.note("this turn waits; /decide continues it, /cancel ends it")
		return
	}
	if text := anotherText(d.config, d.who, at.Start.Principal.User, at.Approval.Kind); text != "" {
		_, commands := wayOn(d.a.self(), at.Run, at.Approval, true)
		f.note(text + ":\n  " + strings.Join(commands, "\n  or: "))
	}
	whose := "this turn"
	if at.Run != s.Run {
		whose = "agent " + at.Start.Agent.Name + " of this turn"
	}
	f.note(fmt.Sprintf("%s waits (%s); /decide continues it, /cancel ends it", whose, words(s.Status)))
}

// screenWatcher shows the frames of a run.
type screenWatcher struct {
	screen *tui.Screen
	given  bool
}

func (screenWatcher) Start() {}
func (screenWatcher) Stop()  {}

// Frame shows a frame. Of one call without a model only what a person decided is
// worth a line: the conversation tells the rest.
func (w screenWatcher) Frame(f journal.Frame) {
	if w.given && f.Event != string(journal.KindConfirmationResolved) && f.Event != string(journal.KindToolResult) {
		return
	}
	w.screen.Frame(f)
}

// carry implements [front].
func (f *screenFront) carry(ctx context.Context, c *chat, d *drive, given bool, begin begin) (*agent.State, error) {
	ctx, stop := stoppable(ctx, nameOf(c.who))
	defer stop()
	ctx, unwatch := d.cancellable(ctx)
	defer unwatch()
	d.screen = true
	options, err := d.options(screenWatcher{f.screen, given}, f.screen)
	if err != nil {
		return nil, err
	}
	runner, err := agent.New(options)
	if err != nil {
		return nil, err
	}
	for _, seen := range d.seen {
		f.screen.Frame(journal.Frame{Event: string(journal.KindToolCall), Data: journal.ViewCall(&seen.ToolCall)})
	}
	state, err := begin(ctx, runner)
	state, err = f.onward(ctx, d, runner, state, err)
	if err == nil {
		d.announceLeft(ctx, state)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), toolGrace)
	defer cancel()
	if late := runner.Wait(ending); late != nil {
		options.Log.WarnContext(ctx, "tools were left behind", "error", late)
	}
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	return state, err
}

// stoppable gives a context that ends as a run wants it: cancelled if the person
// stopped the turn, left as it is for anything else.
func stoppable(parent context.Context, by string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	unhook := context.AfterFunc(parent, func() {
		cause := context.Cause(parent)
		if errors.Is(cause, tui.ErrStopped) {
			cause = &agent.CancelError{By: by}
		}
		cancel(cause)
	})
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// onward continues a run as long as the person answers what it waits for.
func (f *screenFront) onward(ctx context.Context, d *drive, r *agent.Runner, state *agent.State, err error) (*agent.State, error) {
	for err == nil && state != nil && state.Pending != nil {
		goesOn, failed := d.answerEach(ctx, r, state, func(at *agent.State) (bool, error) { return f.answer(ctx, d, r, at) })
		var cancelled *agent.CancelError
		switch {
		case errors.As(context.Cause(ctx), &cancelled):
			return r.Cancel(context.WithoutCancel(ctx), state.Run, cancelled.By)
		case context.Cause(ctx) != nil:
			return state, context.Cause(ctx)
		case failed != nil:
			return state, failed
		case !goesOn:
			return state, nil
		}
		state, err = r.Resume(ctx, state.Run)
	}
	return state, err
}

// answer puts to the person what a run waits for, until the answer can be meant; false =
// it is left.
func (f *screenFront) answer(ctx context.Context, d *drive, r *agent.Runner, s *agent.State) (bool, error) {
	if !d.answers(s) {
		return false, nil
	}
	for problem := ""; ; {
		if expired, err := d.expire(ctx, r, s); expired || err != nil {
			return expired, err
		}
		decided, err := f.decide(ctx, d, r, s, problem)
		switch {
		case ctx.Err() != nil:
			return decided, err
		case wrongUsage(err):
			problem = err.Error()
			continue
		case service.IsConflict(err): // somebody else was quicker
			f.note("this was decided elsewhere in the meantime")
		case toolcrib.CodeOf(err) == toolcrib.CodeForbidden:
			f.warn(errorText(err))
			return false, nil
		}
		return decided, err
	}
}

// decide puts to the person what a run waits for; false = it is left.
func (f *screenFront) decide(ctx context.Context, d *drive, r *agent.Runner, s *agent.State, problem string) (bool, error) {
	open := *s.Approval
	open.Calls = service.OpenCalls(s)
	word := agent.Decision{ApprovalID: open.ApprovalID, Digest: open.Digest, Who: d.who}
	limit := open.Kind == journal.ApprovalInput && len(s.Approval.Calls) == 0
	switch {
	case open.Kind == journal.ApprovalCall && d.approve != agent.ApproveDeny && d.another(s):
		return false, nil
	case open.Kind == journal.ApprovalCall && d.approve != agent.ApproveAsk,
		open.Kind == journal.ApprovalInput && d.approve == agent.ApproveDeny:
		return d.decide(ctx, r, s)
	case open.Kind == journal.ApprovalInput:
		open.Calls = s.Approval.Calls
	}
	q := tui.Question{Ask: open, Choices: choicesOf(open.Schema), Problem: problem}
	if limit {
		q.Unit = limitOf(open.Reason).unit
	}
	a, ok := f.screen.Ask(ctx, q)
	switch {
	case !ok || a.Later:
		return false, nil
	case limit && a.Decision == "":
		granted, err := limitOf(open.Reason).more(a.Text)
		if err != nil {
			return false, err
		}
		granted.By = nameOf(d.who)
		_, err = r.Grant(ctx, s.Run, granted)
		return err == nil, err
	case a.Decision == journal.DecisionAnswer:
		result, err := answerJSON(open.Schema, a.Text)
		if err != nil {
			return false, err
		}
		word.Result = result
	}
	word.Decision, word.Calls, word.Reason, word.Remember = a.Decision, a.Calls, a.Reason, a.Remember
	_, err := r.Decide(ctx, s.Run, word)
	return err == nil, err
}

// driven reports whether some process continues a run at the moment.
func (a *app) driven(run toolcrib.RunID) bool {
	data, err := a.dataDir()
	return err == nil && service.NewLockFiles(data).Driven(run)
}
