package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/team"
)

// driving starts or continues a run that a front watches.
type driving func(ctx context.Context, f service.Front) (service.Run, error)

// show drives a run, shows its events in a format, and returns its outcome as an exit code.
func (a *app) show(ctx context.Context, format string, who toolcrib.Principal, approve agent.Approve,
	do driving,
) error {
	var live *render.Live
	if format != outputEvents {
		live = a.live()
		if format == outputJSON {
			live.Out = io.Discard
		}
	}
	return a.shown(ctx, format, live, nil, who, approve, do)
}

// showAgents is like show for a run of a team. Its answers are shown together, with each agent's calls.
func (a *app) showAgents(ctx context.Context, who toolcrib.Principal, approve agent.Approve, diff bool,
	do driving,
) error {
	live := a.live()
	live.Out, live.Team = io.Discard, true
	known := live.Known
	live.Known = func(n toolcrib.Notice) bool { return n.Code == core.NoticeInnerCall || known(n) }
	return a.shown(ctx, outputText, live, func(run *service.Run) {
		if run.Team != nil {
			a.showTeam(a.out, run.Team, run.Content, diff)
		}
	}, who, approve, do)
}

// shown is like show with its own screen, which may be nil. answer writes the answer if the screen does
// not show it.
func (a *app) shown(ctx context.Context, format string, live *render.Live, answer func(run *service.Run),
	who toolcrib.Principal, approve agent.Approve, do driving,
) error {
	run, err := a.carry(ctx, live, a.frameWriter(), who, approve, do)
	if err != nil {
		return a.cutOff(&run, err)
	}
	if answer != nil {
		answer(&run)
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

// frameWriter returns a function that writes frames as NDJSON, each in one write.
func (a *app) frameWriter() func(journal.Frame) {
	return func(f journal.Frame) {
		_ = printJSON(a.out, f, false) // output keeps the error and reports it
	}
}

func (a *app) live() *render.Live {
	return &render.Live{
		Out: a.out, Err: a.err, OutTerminal: a.outTerminal, ErrTerminal: a.errTerminal, Style: a.style, Known: a.api.Known,
	}
}

// carry drives a run until it ends, pauses, or a signal arrives. Its frames are shown live, or passed
// to watch if live is nil; if both are nil, they are not shown. Unless approve says otherwise, the
// person at the terminal is asked what the run waits for.
func (a *app) carry(ctx context.Context, live *render.Live, watch func(journal.Frame), who toolcrib.Principal,
	approve agent.Approve, do driving,
) (run service.Run, err error) {
	var stderr io.Writer = a.err
	shown := live != nil
	if shown {
		stderr, watch = live, live.Frame
	}
	defer func(before io.Writer) { a.noticeTo = before }(a.noticeTo)
	a.noticeTo = stderr
	ctx, stop := a.interruptible(ctx, agent.NameOf(who), stderr)
	defer stop()
	f := service.Front{Watch: watch, SincePause: !shown, Hurry: a.hurry}
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
		approver := &render.Approver{In: answers, Out: a.err, Style: a.style, By: agent.NameOf(who), Hint: hintText}
		if shown {
			approver.Hold, approver.Release = live.Hold, live.Release
		}
		f.Approver, f.Person = approver, &asker{a, approver, answers}
	}
	driven := false
	f.Driving = func(before *service.Run) {
		if shown {
			for _, c := range openCalls(before) { // shown before the run was resumed
				live.Frame(journal.Frame{Event: string(journal.KindToolCall), Data: c})
			}
			live.Start()
			driven = true
		}
	}
	defer func() {
		if driven {
			live.Stop()
		}
	}()
	return do(ctx, f)
}

// hintText returns the rule that would permit a call that is asked about on the terminal.
func hintText(c *journal.ApprovalItem) string { return proposedText(propose.Asked(c)) }

// asker asks the person at the terminal.
type asker struct {
	a       *app
	ask     *render.Approver
	answers *terminal.Input
}

// Answer implements [service.Person].
func (p *asker) Answer(ctx context.Context, q service.Question) (service.Answer, bool, error) {
	if p.a.remote != nil { // a question of a call may end before it is answered, and the run with it
		defer context.AfterFunc(ctx, p.answers.Cancel)()
	}
	if q.Problem != "" && !p.ask.Left(q.Ask.ApprovalID) {
		p.a.complain(q.Problem)
	}
	answer, ok := p.ask.Answer(ctx, questionOf(q))
	return answerOf(answer), ok, nil
}

// questionOf and answerOf translate a question of a run into its presentation, and a person's answer
// back.
func questionOf(q service.Question) render.Question {
	shown := render.Question{
		Ask: q.Ask, Choices: service.Choices(q.Ask.Schema), Another: q.Another, Problem: q.Problem, Session: q.Session,
	}
	shown.Options, shown.Many = service.AnswerOptions(q.Ask.Schema)
	if q.Limit != nil {
		shown.Unit = q.Limit.Unit
	}
	return shown
}

func answerOf(a render.Answer) service.Answer {
	return service.Answer{Decision: a.Decision, Calls: a.Calls, Reason: a.Reason, Remember: a.Remember, Text: a.Text}
}

// cutOff reports a run that neither ended nor parked.
func (a *app) cutOff(run *service.Run, err error) error {
	if run.ID == "" {
		return err
	}
	code := codeOf(err)
	why := strings.TrimPrefix(err.Error(), "run "+string(run.ID)+": ")
	text := fmt.Sprintf("run %s was interrupted: %s", run.ID, why)
	if a.remote != nil {
		text = fmt.Sprintf("run %s is no longer watched: %s; the server continues it", run.ID, why)
	} else if slices.Contains([]int{exitTerm, exitHangup}, code) || storeFailed(err) {
		text += "; what was done is kept, and it can be resumed: " + a.self() + " runs resume " + string(run.ID)
	}
	return &exitError{code: code, message: text + fmt.Sprintf("\nSee: %s runs show %s", a.self(), run.ID)}
}

// openCalls returns the calls of a run without a result, as running. It returns none if run is nil.
func openCalls(run *service.Run) (open []journal.CallView) {
	if run == nil {
		return nil
	}
	for _, c := range run.Trace {
		if len(c.Edited) > 0 {
			c.Arguments = c.Edited
		}
		if c.Status == "" {
			open = append(open, journal.CallView{ID: c.ID, Name: c.Name, Arguments: c.Arguments})
		}
	}
	return open
}

// summary writes the last line about a run.
func (a *app) summary(run *service.Run) {
	if f := run.Error; f != nil {
		text := f.Message
		if f.Ref != "" {
			text += " (" + f.Ref + ")"
		}
		code := string(run.StopReason)
		if f.Code == string(toolcrib.CodeSchemaMismatch) {
			code = f.Code // not the provider's fault
		}
		a.complain(code + ": " + strings.TrimPrefix(text, code+": "))
	}
	if text := a.unknownModel(run); text != "" {
		a.notice("%s", text)
	}
	if text := incomplete(run); text != "" {
		a.notice("%s", text)
	}
	var parts []string
	if run.LastModel != "" {
		parts = append(parts, run.LastModel, render.Tokens(run.Usage, run.TokensEstimated),
			render.Cost(run.Usage, !run.Unpriced))
	}
	var u toolcrib.Usage // usage of the sub-agents
	for _, c := range run.Children {
		if c.Usage != nil {
			u = u.Plus(*c.Usage)
		}
	}
	if u.Requests > 0 {
		parts = append(parts, "sub-agents: "+render.Tokens(u, u.Estimated)+", "+render.Cost(u, !u.Estimated))
	}
	parts = append(parts, render.Duration(run.Duration()))
	fmt.Fprintln(a.err, a.style.Dim(a.style.Question(strings.Join(parts, " · "))))
	// The command is copied, so it is not wrapped.
	text := fmt.Sprintf("%s runs show %s (in %s)", a.self(), short(run.ID), a.place())
	fmt.Fprintln(a.err, a.style.Dim(guard.Visible(text)))
}

// unknownModel names a similar model if the model of a failed run is unknown. Otherwise it returns "".
func (a *app) unknownModel(run *service.Run) string {
	if run.Error == nil || a.remote != nil || !strings.Contains(run.Model, "/") {
		return ""
	}
	if near := a.service.Models.Near(run.Model); near != "" {
		return fmt.Sprintf("%s is not a known model; did you mean %s?", run.Model, near)
	}
	return ""
}

// incomplete says why an answer may be incomplete and how to get a complete one. It returns "" if it is
// complete, or if nothing needs to be said.
func incomplete(run *service.Run) string {
	stopped := run.Stopping
	if !run.Truncated || run.Error != nil || run.StopReason == toolcrib.StopCancelled {
		return stopped
	}
	head := "the answer may be incomplete: "
	if run.Content == "" || run.Team != nil && !run.Team.Answered() {
		head = "there is no answer: "
	}
	if run.Team != nil && stopped == "" {
		stopped = "see the reason of each agent"
	}
	in := "agents." + run.Agent + "."
	switch run.StopReason {
	case toolcrib.StopMaxIterations:
		return head + fmt.Sprintf("max_iterations (%d) was reached; raise it with --max-iterations N", run.MaxIterations)
	case toolcrib.StopCompleted:
		return head + "the last reply reached the most that the model may write; raise " + in +
			"max_output_tokens or use another model"
	case toolcrib.StopWallTime:
		if run.StoppedBy == agent.BySession {
			return head + stopped + "; raise " + in + "session"
		}
		if run.Team != nil {
			return head + stopped + "; raise --max-time, or limits.wall_time of the agents"
		}
		return head + stopped + "; raise " + in + "limits.wall_time"
	case toolcrib.StopBudgetExhausted:
		switch run.StoppedBy {
		case service.ByBudgets:
			return head + stopped + "; raise budgets in the configuration"
		case agent.BySession:
			return head + stopped + "; raise " + in + "session"
		}
		if run.Team != nil {
			return head + stopped + "; raise --max-cost, or budget and session of the agents"
		}
		return head + stopped + "; raise " + in + "budget"
	}
	return head + stopped
}

// parked says what a parked run waits for and how to continue.
func (a *app) parked(ctx context.Context, who toolcrib.Principal, run *service.Run) {
	if run.Pending == nil {
		return
	}
	if run.Pending.Error != nil {
		fmt.Fprintf(a.err, "%s run %s waits for %s\nThen: %s\n", a.style.Yellow("parked:"), short(run.ID),
			outageText(&run.Pending.Pending), strings.Join(a.outageCommands(run), "\n  or: "))
		return
	}
	if run.Pending.Kind == journal.PendingClientTool {
		fmt.Fprintf(a.err, "%s run %s waits %s\n", a.style.Yellow("parked:"), short(run.ID),
			render.WaitsFor(&run.Pending.Pending))
		return
	}
	at := a.waitsIn(ctx, who, run)
	if at == nil {
		return
	}
	ask := at.Pending.Ask()
	id := short(ask.ApprovalID)
	what, commands := service.NextCommands(a.self(), a.resumer(at.Driver), at.ID, ask, !a.inTerminal || !a.errTerminal)
	which := "run " + short(at.ID)
	if at.ID != run.ID {
		which = fmt.Sprintf("run %s (agent %s, a part of run %s)", short(at.ID), guard.Visible(at.Agent), short(run.ID))
	}
	fmt.Fprint(a.err, a.style.Hanging(a.style.Yellow("parked:"), fmt.Sprintf("%s waits for %s (%s):", which, what, id)))
	if text := ask.Question; text != "" {
		if len(ask.Calls) == 0 {
			text = ask.Reason
		}
		fmt.Fprint(a.err, a.style.Hanging(" ", text))
	}
	open := at.Pending.Open()
	if n := len(ask.Calls) - len(open); n > 0 {
		fmt.Fprintf(a.err, "  %s\n", a.style.Dim(render.Count(n, "call")+" of it decided already"))
	}
	for _, c := range open {
		fmt.Fprint(a.err, "  "+a.style.Call(c.Name, c.Arguments, ""))
		if c.Reason != "" {
			fmt.Fprint(a.err, a.style.Hanging("     ", c.Reason))
		}
	}
	if text := a.anotherText(who, at.User, ask.Kind); text != "" {
		fmt.Fprintln(a.err, text)
	}
	fmt.Fprintf(a.err, "See: %s approvals show %s\nThen: %s\n", a.self(), id, strings.Join(commands, "\n  or: "))
	switch others := waitingBelow(run) - 1; {
	case others == 1:
		fmt.Fprintf(a.err, "1 sub-agent waits besides: %s approvals list\n", a.self())
	case others > 1:
		fmt.Fprintf(a.err, "%d sub-agents wait besides: %s approvals list\n", others, a.self())
	}
}

// waitsIn returns the run whose decision a parked run waits for: itself, or one below it. It returns
// nil if that is unknown or has been decided meanwhile.
func (a *app) waitsIn(ctx context.Context, who toolcrib.Principal, run *service.Run) *service.Run {
	if run.Pending == nil || run.Pending.Run == "" {
		return run
	}
	below, err := a.api.Run(context.WithoutCancel(ctx), who, string(run.Pending.Run))
	if err != nil || below.Pending == nil || below.Pending.ApprovalID == "" {
		return nil
	}
	return &below
}

// outageText names the provider that a run waits for, and the error.
func outageText(p *journal.Pending) string {
	out, where := p.Error, "its provider"
	if p.Run != "" {
		where = "the provider of " + short(p.Run)
	}
	text := fmt.Sprintf("%s (%s): %s: %s", where, out.Model, out.Class, out.Message)
	if out.Ref != "" {
		text += " (" + out.Ref + ")"
	}
	return guard.Visible(text)
}

// outageCommands returns the commands that continue a run that waits for its provider.
func (a *app) outageCommands(run *service.Run) []string {
	resume := a.resumer(run.Driver) + " runs resume "
	if add := run.Pending.Error.Adds(); add != "" {
		return []string{resume + short(cmp.Or(run.Pending.Run, run.ID)) + add}
	}
	again := resume + short(run.ID)
	return []string{again, again + " --model PROVIDER/MODEL"}
}

// waitingBelow counts the sub-agents of a run that wait for a person.
func waitingBelow(run *service.Run) (n int) {
	for _, c := range run.Children {
		if c.Status.Parked() {
			n++
		}
	}
	return n
}

// exitOf returns the exit code of a run that has ended or parked.
func exitOf(run *service.Run) int {
	switch {
	case run.Status.Parked():
		return exitParked
	case run.Model == "" && len(run.Trace) == 1: // a given call, without a model
		return exitOfCall(run)
	case run.Status == toolcrib.StatusCancelled:
		return exitCanceled
	case run.Error != nil && run.StopReason == toolcrib.StopMaxIterations:
		return exitLimit
	case run.Error != nil || !run.Status.Ended():
		return exitFailed
	case run.Team != nil && run.Team.Tool == string(team.Coordinate) && run.Team.Synthesis == nil:
		return exitLimit
	case run.StopReason != toolcrib.StopCompleted && (run.Content == "" || run.Team != nil && !run.Team.Answered()):
		return exitLimit // at a limit
	}
	return exitOK
}

func (a *app) runsResumeCommand(cmd *cobra.Command) {
	var f runFlags
	var q service.ResumeRequest
	approveFlag(cmd, &f)
	flags := cmd.Flags()
	flags.Func("add-iterations", "", more(&q.Add.Iterations))
	flags.Func("add-cost", "", more(&q.Add.CostUSD))
	flags.Func("add-tokens", "", more(&q.Add.Tokens))
	flags.Func("add-requests", "", more(&q.Add.Requests))
	flags.Func("model", "", filled(&q.Model))
	flags.StringVar(&q.Message, "message", "", "")
	outputFlags(cmd, &f)
	a.doing(cmd, nil, func(c call) error {
		switch {
		case q.Add.CostUSD >= service.MaxAddedCost:
			return usagef("--add-cost: must be less than %d", int(service.MaxAddedCost))
		case flags.Changed("message") && strings.TrimSpace(q.Message) == "":
			return usagef("--message: must not be empty")
		case len(q.Message) > maxStdin:
			return usagef("--message: must have at most %d bytes", maxStdin)
		}
		q.Run, q.Message = c.arg(), guard.Clean(q.Message)
		return a.resume(c, q, &f)
	})
}

// resume resumes a run and drives it until it ends or parks again.
func (a *app) resume(ctx context.Context, q service.ResumeRequest, f *runFlags) error {
	format, err := f.format()
	if err != nil {
		return err
	}
	s, who, err := a.opened(ctx, a.changing)
	if err != nil {
		return err
	}
	if q.Approve, err = a.resumeApproval(ctx, who, q, f); err != nil {
		return err
	}
	do := func(ctx context.Context, front service.Front) (service.Run, error) {
		return s.Resume(ctx, who, q, front)
	}
	if run, err := a.topOf(ctx, who, q.Run); err == nil && run.Team != nil {
		a.hurries()
		if format == outputText {
			return a.showAgents(ctx, who, q.Approve, false, do)
		}
	}
	return a.show(ctx, format, who, q.Approve, do)
}

// hurries makes the first ctrl-c take the answers that the agents of a team have given so far. A server
// is not told.
func (a *app) hurries() {
	if a.remote == nil {
		a.hurry = make(chan *agent.CancelError, 1)
	}
}

// topOf returns the run at the top of those that started a run.
func (a *app) topOf(ctx context.Context, who toolcrib.Principal, id string) (run service.Run, err error) {
	for run, err = a.api.Run(ctx, who, id); err == nil && run.ParentID != ""; {
		run, err = a.api.Run(ctx, who, string(run.ParentID))
	}
	return run, err
}

// resumeApproval returns how this process handles calls that need an approval. A run that was started
// with approve or refuse for everything keeps that mode.
func (a *app) resumeApproval(ctx context.Context, who toolcrib.Principal, q service.ResumeRequest,
	f *runFlags,
) (agent.Approve, error) {
	kept, err := a.api.KeptApprove(ctx, who, q)
	switch {
	case err != nil:
		return "", noSuch("runs", err, q.Run)
	case kept == "":
		return a.approval(f)
	case f.approve != "" && f.approve != kept:
		return "", usagef("--approve %s: run %s was started with --approve %s, which holds until it ends", f.approve,
			q.Run, kept)
	}
	return kept, nil
}

// resumeDecided continues a run after a decision about it. If a process drives the run at the top, that
// process continues by itself once the rest of its turn is done.
func (a *app) resumeDecided(ctx context.Context, run toolcrib.RunID, f *runFlags) error {
	err := a.resume(ctx, service.ResumeRequest{Run: string(run), Decided: true}, f)
	var elsewhere *service.ElsewhereError
	if !errors.As(err, &elsewhere) {
		return err
	}
	fmt.Fprintln(a.err, shortIDs(fmt.Sprintf("%v; `%s runs events %s --follow` shows it", err, a.self(), elsewhere.Top)))
	return nil
}
