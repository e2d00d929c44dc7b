package render

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// child is the agent that answers a call.
func (t *Story) child(call string) string {
	if b := t.started[call]; b != nil {
		return b.Agent
	}
	return "the sub-agent"
}

// above says what a run is part of, and what it may spend of that.
func (t *Story) above(b *journal.RunStarted) {
	switch {
	case b.Parent == "":
		return
	case b.Given != nil:
		t.field("started by", string(b.Parent))
		return
	}
	t.field("part of", toolcrib.ShortID(b.Parent)+around(", called by agent ", t.Caller, ""))
	if s := b.Share; s != nil {
		t.field("may spend", joined(", ", some(s.CostUSD, dollars), some(s.Tokens, tokens),
			some(s.Requests, counted("request")), some(s.Runs, counted("run"))))
	}
}

// childStarted says which run answers a call, and what it was told.
func (t *Story) childStarted(b *journal.ChildStarted) {
	t.started[b.ID] = b
	head := Line(b.Agent, 64) + ": "
	fmt.Fprintf(t.Out, "%s %s%s\n", t.Style.Cyan("→"), t.Style.Bold(head),
		cutLine(t.taskOf(b.ID), t.Style.width()-len(head)-2))
	t.under(toolcrib.ShortID(b.Run))
}

// taskOf is the first line of what a call gives to another agent.
func (t *Story) taskOf(call string) string {
	var arguments json.RawMessage
	if c := t.calls[call]; c != nil {
		arguments = c.Arguments
	}
	if edited, ok := t.edited[call]; ok {
		arguments = edited
	}
	var of struct {
		Task string `json:"task"`
	}
	if json.Unmarshal(arguments, &of) != nil {
		return ""
	}
	text, _, more := strings.Cut(strings.TrimSpace(of.Task), "\n")
	if more {
		text += " …"
	}
	return text
}

// childParked says what a run below waits for, and where that is decided.
func (t *Story) childParked(b *journal.ChildParked) {
	t.note(t.child(b.ID) + " waits " + WaitsFor(&b.Pending))
	where := toolcrib.ShortID(b.Pending.ApprovalID)
	if b.Pending.Run != "" && b.Pending.Run != b.Run {
		where = strings.TrimSpace(where + " of " + toolcrib.ShortID(b.Pending.Run))
	}
	if where != "" {
		t.under(where)
	}
	t.wayTo(b.Run)
}

// WaitsFor is what a parked run waits for, in words.
func WaitsFor(p *journal.Pending) string {
	calls := make([]string, len(p.Calls))
	for i, c := range p.Calls {
		calls[i] = strings.TrimSpace(c.Name + " " + Arguments(c.Arguments, 60))
	}
	what := strings.Join(calls, ", ")
	switch {
	case p.Error != nil:
		return fmt.Sprintf("for its provider (%s): %s: %s", p.Error.Model, p.Error.Class, p.Error.Message)
	case p.Question != "":
		return "for an answer: " + p.Question
	case p.Kind == string(journal.ApprovalInDoubt):
		return "for your decision on " + what
	case p.Kind == string(journal.ApprovalInput):
		return "for an answer to " + what
	case p.Kind == string(journal.ApprovalCall):
		return "for an approval of " + what
	}
	return "for the result of " + what
}

// paused says that the run waits, and for which one, if that is another.
func (t *Story) paused(b *journal.Paused) {
	text := "parked: " + string(b.Status)
	if b.Pending.Error != nil || b.Pending.Kind == journal.PendingClientTool {
		text = "parked: waits " + WaitsFor(&b.Pending)
	}
	if b.Pending.Run != "" {
		text += ", as " + toolcrib.ShortID(b.Pending.Run) + " is"
	}
	t.note(text)
}

// childEnded says, under the result of a call, how the run has ended that answered it.
func (t *Story) childEnded(call string) {
	b := t.ended[call]
	if b == nil { // no other run answered it, or that was never begun
		return
	}
	text := t.child(call) + " " + string(b.Status)
	if string(b.StopReason) != string(b.Status) {
		text += " (" + string(b.StopReason) + ")"
	}
	known, estimated := knownOf(b.Usage)
	used := inAndOut(b.Usage, known, estimated)
	if whole := text + " · " + used; ansi.StringWidth(whole)+4 <= t.Style.width() {
		text, used = whole, ""
	}
	t.under(text)
	if used != "" {
		t.under(used)
	}
	t.wayTo(b.Run)
}

// inAndOut says what was used, without what of it was cached: the stories of the runs
// tell that.
func inAndOut(u toolcrib.Usage, known, estimated bool) string {
	u.CachedInputTokens = 0
	return Tokens(u, estimated) + " · " + Cost(u, known)
}

// knownOf reports whether a price is known of what a run and those below it have used,
// and whether tokens may be estimates. The sum alone says no more.
func knownOf(u toolcrib.Usage) (known, estimated bool) {
	known = u.CostUSD > 0 || !u.Estimated
	return known, known && u.Estimated
}

// withChildren prints the sum of what the run and those below it have used.
func (t *Story) withChildren(own toolcrib.Usage) {
	if len(t.ended) == 0 {
		return
	}
	sum, known, estimated := own, t.known, t.estimated
	for _, b := range t.ended {
		k, e := knownOf(b.Usage)
		known, estimated = known && k, estimated || e
		sum = sum.Plus(b.Usage)
	}
	fmt.Fprintln(t.Out, t.Style.Dim("  with sub-agents: "+inAndOut(sum, known, estimated)))
}

// wayTo says how another run is shown.
func (t *Story) wayTo(run toolcrib.RunID) {
	self := t.Self
	if self == "" {
		self = "toolcrib"
	}
	t.under("its story: " + self + " runs show " + toolcrib.ShortID(run))
}

// under writes a line that belongs to the one before.
func (t *Story) under(text string) { fmt.Fprintln(t.Out, t.Style.Dim("    "+Line(text, 4096))) }

// Frame shows one event in one line of at most width columns (0 = any number): its
// number, its kind, and what it says.
func Frame(f journal.Frame, width int) string {
	text := fmt.Sprintf("%5d  %-21s  %s", f.Seq, f.Event, frameText(f))
	text = strings.TrimRight(guard.Visible(oneLine(text)), " ")
	if width > 0 {
		text = cut(text, width, false)
	}
	return text
}

// oneLine shows the ends of lines as they are written in source code.
func oneLine(text string) string {
	return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(text)
}

func frameText(f journal.Frame) string {
	switch d := f.Data.(type) {
	case journal.CallView:
		return d.ID + " " + d.Name + " " + string(d.Arguments)
	case journal.CallStartedView:
		return d.ID + " " + d.Name
	case journal.ResultView:
		return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", d.ToolCallID, d.Status, d.Reason, resultText(d.Content)))
	case journal.MessageView:
		if d.Text != "" {
			return d.Text
		}
	case journal.DoneView:
		return fmt.Sprintf("%s (%s) %s", d.Status, d.StopReason, d.Content)
	case journal.ErrorView:
		return fmt.Sprintf("%s (%s) %s", d.Status, d.StopReason, d.Message)
	}
	raw, err := json.Marshal(f.Data)
	if err != nil {
		return ""
	}
	return string(raw)
}
