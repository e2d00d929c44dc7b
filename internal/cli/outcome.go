package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// cutOff tells what became of a run that was neither ended nor parked.
func (a *app) cutOff(state *agent.State, err error) error {
	if state == nil || state.Seq == 0 {
		return err
	}
	code := codeOf(err)
	why := strings.TrimPrefix(err.Error(), "run "+string(state.Run)+": ")
	text := fmt.Sprintf("run %s was interrupted: %s", state.Run, why)
	if slices.Contains([]int{exitTerm, exitHangup}, code) || storeFailed(err) {
		text += "; what was done is kept, and it can be resumed: " + a.self() + " runs resume " + string(state.Run)
	}
	return &exitError{code: code, message: text + fmt.Sprintf("\nSee: %s runs show %s", a.self(), state.Run)}
}

// recallCalls shows the calls that were shown before the run was taken up.
func recallCalls(live *render.Live, s *agent.State) {
	if s == nil || s.Turn == nil {
		return
	}
	for _, c := range s.Turn.Calls {
		var edited json.RawMessage
		if c.Decision != nil {
			edited = c.Decision.Arguments
		}
		live.Recall(c.ID, c.Name, c.Arguments, edited)
	}
}

// summary is the last line about a run.
func (a *app) summary(s *agent.State) {
	if f := s.Failed; f != nil {
		text := f.Message
		if f.Ref != "" {
			text += " (" + f.Ref + ")"
		}
		code := string(f.StopReason)
		if f.Code == agent.CodeSchemaMismatch {
			code = f.Code // the provider is not to blame
		}
		a.complain(code + ": " + text)
	}
	if text := incomplete(s); text != "" {
		a.notice("%s", text)
	}
	known := true
	model := s.Start.Agent.Model
	for _, m := range s.Models[:min(s.Model+1, len(s.Models))] {
		known = known && m.Price.Known
		model = m.Ref
	}
	var parts []string
	if len(s.Models) > 0 {
		parts = append(parts, model, render.Tokens(s.Usage, a.service.Estimated(context.Background(), s, known)),
			render.Cost(s.Usage, known))
	}
	if s.Children.Requests > 0 {
		parts = append(parts, "sub-agents: "+render.Tokens(s.Children, s.Children.Estimated)+", "+render.Cost(s.Children,
			!s.Children.Estimated))
	}
	parts = append(parts, render.Duration(s.Driven))
	fmt.Fprintln(a.err, a.style.Dim(a.style.Question(strings.Join(parts, " · "))))
	fmt.Fprintln(a.err, a.style.Dim(a.style.Question(fmt.Sprintf("%s runs show %s (in %s)", a.self(),
		short(s.Run), inHome(a.service.DataDir)))))
}

// incomplete tells why an answer may lack something, and the way to a whole one;
// "" = it is whole, or nothing else is to be said.
func incomplete(s *agent.State) string {
	stopped := ""
	if s.Stopping != nil {
		stopped = s.Stopping.Message
	}
	if s.Done == nil || !s.Done.Truncated || s.Done.StopReason == toolcrib.StopCancelled {
		return stopped
	}
	head := "the answer may be incomplete: "
	if s.Done.Content == "" {
		head = "there is no answer: "
	}
	in := "agents." + s.Start.Agent.Name + "."
	switch s.Done.StopReason {
	case toolcrib.StopMaxIterations:
		return head + fmt.Sprintf("max_iterations (%d) was reached; raise it with --max-iterations N",
			s.Limits().MaxIterations)
	case toolcrib.StopCompleted:
		return head + "the last reply reached the most that the model writes at once; raise " + in +
			"max_output_tokens or use another model"
	case toolcrib.StopWallTime:
		return head + stopped + "; raise " + in + "limits.wall_time"
	case toolcrib.StopBudgetExhausted:
		if s.Stopping != nil && s.Stopping.By == service.ByBudgets {
			return head + stopped + "; raise budgets in the configuration"
		}
		return head + stopped + "; raise " + in + "budget"
	}
	return head + stopped
}

// parked tells what a parked run waits for, and the way on.
func (a *app) parked(ctx context.Context, who toolcrib.Principal, s *agent.State) {
	if s.Pending == nil {
		return
	}
	if s.Pending.Error != nil {
		fmt.Fprintf(a.err, "%s run %s waits for %s\nThen: %s\n", a.style.Yellow("parked:"), short(s.Run),
			outageText(s.Pending),
			strings.Join(a.wayOnFromOutage(s.Run, s.Pending), "\n  or: "))
		return
	}
	top, others := s.Run, waitingBelow(s)-1
	s = a.service.Below(context.WithoutCancel(ctx), s)
	ask := s.Approval
	if ask == nil || s.Pending == nil {
		return
	}
	id := short(ask.ApprovalID)
	what, commands := service.WayOn(a.self(), s.Run, ask, !a.inTerminal || !a.errTerminal)
	which := "run " + short(s.Run)
	if s.Run != top {
		which = fmt.Sprintf("run %s (agent %s, a part of run %s)", short(s.Run), guard.Visible(s.Start.Agent.Name),
			short(top))
	}
	fmt.Fprint(a.err, a.style.Hanging(a.style.Yellow("parked:"), fmt.Sprintf("%s waits for %s (%s):", which, what, id)))
	if text := s.Pending.Question; text != "" {
		if len(ask.Calls) == 0 {
			text = ask.Reason
		}
		fmt.Fprint(a.err, a.style.Hanging(" ", text))
	}
	open := service.OpenCalls(s)
	if n := len(ask.Calls) - len(open); n > 0 {
		fmt.Fprintf(a.err, "  %s\n", a.style.Dim(render.Count(n, "call")+" of it decided already"))
	}
	for _, c := range open {
		fmt.Fprint(a.err, "  "+a.style.Within(2).Call(c.Name, c.Arguments, ""))
		if c.Reason != "" {
			fmt.Fprint(a.err, a.style.Hanging("     ", c.Reason))
		}
	}
	if text := a.anotherText(who, s.Start.Principal.User, ask.Kind); text != "" {
		fmt.Fprintln(a.err, text)
	}
	fmt.Fprintf(a.err, "See: %s approvals show %s\nThen: %s\n", a.self(), id, strings.Join(commands, "\n  or: "))
	if others > 0 {
		fmt.Fprintf(a.err, "%s besides: %s approvals list\n", waitText(others), a.self())
	}
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
func waitingBelow(s *agent.State) int {
	n := 0
	for _, c := range s.Trace {
		if c.Waits != nil && c.Result == nil {
			n++
		}
	}
	return n
}

// exitOf is the exit code of a run that ended or parked (contract §3, §5).
func exitOf(s *agent.State) int {
	switch {
	case s.Status.Parked():
		return exitParked
	case s.Start.Given != nil:
		return exitOfCall(s)
	case s.Status == toolcrib.StatusCancelled:
		return exitCanceled
	case s.Failed != nil && s.Failed.StopReason == toolcrib.StopMaxIterations:
		return exitLimit
	case s.Failed != nil || s.Done == nil:
		return exitFailed
	case s.Done.Content == "" && s.Done.StopReason != toolcrib.StopCompleted: // at a limit
		return exitLimit
	}
	return exitOK
}
