package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// cutOff tells what became of a run that was neither ended nor parked.
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

// recallCalls shows the calls that were shown before the run was taken up.
func recallCalls(live *render.Live, run *service.Run) {
	for _, c := range openCalls(run) {
		live.Recall(c.ID, c.Name, c.Arguments, c.Edited)
	}
}

// openCalls are the calls of a run that have no result yet; none of nil.
func openCalls(run *service.Run) (open []service.TraceCall) {
	if run == nil {
		return nil
	}
	for _, c := range run.Trace {
		if c.Status == "" {
			open = append(open, c)
		}
	}
	return open
}

// summary is the last line about a run.
func (a *app) summary(run *service.Run) {
	if f := run.Error; f != nil {
		text := f.Message
		if f.Ref != "" {
			text += " (" + f.Ref + ")"
		}
		code := string(run.StopReason)
		if f.Code == string(toolcrib.CodeSchemaMismatch) {
			code = f.Code // the provider is not to blame
		}
		a.complain(code + ": " + text)
	}
	if text := incomplete(run); text != "" {
		a.notice("%s", text)
	}
	var parts []string
	if run.LastModel != "" {
		parts = append(parts, run.LastModel, render.Tokens(run.Usage, run.TokensEstimated),
			render.Cost(run.Usage, !run.Unpriced))
	}
	var below spent
	for _, c := range run.Children {
		if c.Usage != nil {
			below.sum(*c.Usage)
		}
	}
	if u := below.usage; u.Requests > 0 {
		parts = append(parts, "sub-agents: "+render.Tokens(u, u.Estimated)+", "+render.Cost(u, !u.Estimated))
	}
	parts = append(parts, render.Duration(run.Duration()))
	fmt.Fprintln(a.err, a.style.Dim(a.style.Question(strings.Join(parts, " · "))))
	fmt.Fprintln(a.err, a.style.Dim(a.style.Question(fmt.Sprintf("%s runs show %s (in %s)", a.self(),
		short(run.ID), a.place()))))
}

// incomplete tells why an answer may lack something, and the way to a whole one;
// "" = it is whole, or nothing else is to be said.
func incomplete(run *service.Run) string {
	stopped := run.Stopping
	if !run.Truncated || run.Error != nil || run.StopReason == toolcrib.StopCancelled {
		return stopped
	}
	head := "the answer may be incomplete: "
	if run.Content == "" {
		head = "there is no answer: "
	}
	in := "agents." + run.Agent + "."
	switch run.StopReason {
	case toolcrib.StopMaxIterations:
		return head + fmt.Sprintf("max_iterations (%d) was reached; raise it with --max-iterations N", run.MaxIterations)
	case toolcrib.StopCompleted:
		return head + "the last reply reached the most that the model writes at once; raise " + in +
			"max_output_tokens or use another model"
	case toolcrib.StopWallTime:
		return head + stopped + "; raise " + in + "limits.wall_time"
	case toolcrib.StopBudgetExhausted:
		if run.StoppedBy == service.ByBudgets {
			return head + stopped + "; raise budgets in the configuration"
		}
		return head + stopped + "; raise " + in + "budget"
	}
	return head + stopped
}

// parked tells what a parked run waits for, and the way on.
func (a *app) parked(ctx context.Context, who toolcrib.Principal, run *service.Run) {
	if run.Pending == nil {
		return
	}
	if run.Pending.Error != nil {
		fmt.Fprintf(a.err, "%s run %s waits for %s\nThen: %s\n", a.style.Yellow("parked:"), short(run.ID),
			outageText(&run.Pending.Pending),
			strings.Join(a.wayOnFromOutage(run.ID, &run.Pending.Pending), "\n  or: "))
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
	what, commands := service.WayOn(a.self(), at.ID, ask, !a.inTerminal || !a.errTerminal)
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
		fmt.Fprint(a.err, "  "+a.style.Within(2).Call(c.Name, c.Arguments, ""))
		if c.Reason != "" {
			fmt.Fprint(a.err, a.style.Hanging("     ", c.Reason))
		}
	}
	if text := a.anotherText(who, at.User, ask.Kind); text != "" {
		fmt.Fprintln(a.err, text)
	}
	fmt.Fprintf(a.err, "See: %s approvals show %s\nThen: %s\n", a.self(), id, strings.Join(commands, "\n  or: "))
	if others := waitingBelow(run) - 1; others > 0 {
		fmt.Fprintf(a.err, "%s besides: %s approvals list\n", waitText(others), a.self())
	}
}

// waitsIn is the run whose decision a parked run waits for: itself, or one below it; nil if
// that is not known, or somebody has decided meanwhile.
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

// outageText is the provider that a run waits for, and what is wrong with it.
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

// wayOnFromOutage are the commands that continue with a run which waits for its provider.
func (a *app) wayOnFromOutage(run toolcrib.RunID, p *journal.Pending) []string {
	if add := p.Error.Adds(); add != "" {
		return []string{fmt.Sprintf("%s runs resume %s%s", a.self(), short(cmp.Or(p.Run, run)), add)}
	}
	again := fmt.Sprintf("%s runs resume %s", a.self(), short(run))
	return []string{again, again + " --model PROVIDER/MODEL"}
}

func waitText(subAgents int) string {
	if subAgents == 1 {
		return "1 sub-agent waits"
	}
	return fmt.Sprintf("%d sub-agents wait", subAgents)
}

// waitingBelow is how many sub-agents of a run wait for a person.
func waitingBelow(run *service.Run) (n int) {
	for _, c := range run.Children {
		if c.Status.Parked() {
			n++
		}
	}
	return n
}

// exitOf is the exit code of a run that ended or parked (contract §3, §5).
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
	case run.Content == "" && run.StopReason != toolcrib.StopCompleted: // at a limit
		return exitLimit
	}
	return exitOK
}
