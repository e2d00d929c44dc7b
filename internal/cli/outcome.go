package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
)

// cutOff tells what became of a run that was neither ended nor parked.
func (d *drive) cutOff(state *agent.State, err error) error {
	if state == nil || state.Seq == 0 {
		return err
	}
	code := codeOf(err)
	text := fmt.Sprintf("run %s was cut off: %v", state.Run, err)
	if slices.Contains([]int{exitTerm, exitHangup}, code) {
		text += "; what was done is kept and it can be taken up again: toolcrib runs resume " + string(state.Run)
	}
	return &exitError{code: code, message: text + fmt.Sprintf("\nSee: toolcrib runs show %s", state.Run)}
}

// summary is the last line about a run.
func (d *drive) summary(s *agent.State) {
	a := d.a
	if f := s.Failed; f != nil {
		text := f.Message
		if f.Ref != "" {
			text += " (" + f.Ref + ")"
		}
		a.complain(string(f.StopReason) + ": " + text)
	}
	if s.Stopping != nil && s.Stopping.Message != "" {
		a.notice("%s", s.Stopping.Message)
	}
	known := true
	model := s.Start.Agent.Model
	for _, m := range s.Start.Models[:min(s.Model+1, len(s.Start.Models))] {
		known = known && m.Price.Known
		model = m.Ref
	}
	var parts []string
	if len(s.Start.Models) > 0 {
		parts = append(parts, model, render.Tokens(s.Usage, known), render.Cost(s.Usage, known))
	}
	parts = append(parts, render.Duration(s.Driven))
	fmt.Fprintln(a.err, a.style.Dim(guard.Visible(strings.Join(parts, " · "))))
	fmt.Fprintln(a.err, a.style.Dim(guard.Visible(fmt.Sprintf("toolcrib runs show %s (kept in %s)", s.Run, d.dbPath))))
}

// parked tells what a parked run waits for, and the way on.
func (d *drive) parked(s *agent.State) {
	if s.Pending == nil {
		return
	}
	a := d.a
	ask := s.Approval
	if ask == nil {
		return
	}
	id := guard.Visible(ask.ApprovalID)
	what, commands := wayOn(s.Run, ask, !a.inTerminal || !a.errTerminal)
	fmt.Fprintf(a.err, "%s run %s waits for %s (%s):\n", a.style.Yellow("parked:"), s.Run, what, id)
	if text := s.Pending.Question; text != "" {
		if len(ask.Calls) == 0 {
			text = ask.Reason
		}
		fmt.Fprintf(a.err, "  %s\n", guard.Visible(text))
	}
	for _, c := range s.Pending.Calls {
		fmt.Fprint(a.err, "  "+a.style.Call(c.Name, c.Arguments, ""))
		if c.Reason != "" {
			fmt.Fprintf(a.err, "      %s\n", a.style.Dim(guard.Visible(c.Reason)))
		}
	}
	fmt.Fprintf(a.err, "See: toolcrib approvals show %s\nThen: %s\n", id, strings.Join(commands, "\n  or: "))
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
	case s.Done.Content == "" && (s.Done.StopReason == toolcrib.StopBudgetExhausted || s.Done.StopReason == toolcrib.StopWallTime):
		return exitLimit
	}
	return exitOK
}
