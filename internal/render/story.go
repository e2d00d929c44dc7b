package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Story prints a stored run from its journal: the prompt, each turn with verdicts and results, its
// cost, and why it ended.
type Story struct {
	Out    io.Writer
	Style  Style
	Whole  bool   // whether results and thoughts are shown completely instead of folded
	Caller string // agent of the run that started this one, or "" if unknown
	Self   string // command to show in hints, toolcrib if ""

	calls     map[string]*journal.ToolCall
	verdicts  map[string]*journal.Verdict
	edited    map[string]json.RawMessage // arguments given by a person, by call
	taint     []string                   // sources of untrusted data so far
	sinks     string                     // value of taint.writes, which decides on sinks of a tainted run
	known     bool                       // whether the price of every model is known
	estimated bool                       // whether tokens were estimated
	began     time.Time
	started   map[string]*journal.ChildStarted // children, by the call that they answer
	ended     map[string]*journal.ChildEnded   // likewise
}

// Tell prints the next event of the run.
func (t *Story) Tell(e toolcrib.Event) {
	switch b := e.Body.(type) {
	case *journal.RunStarted:
		t.start(e.Time, b)
	case *journal.TakenUp:
		if b.Epoch > 1 {
			t.note(fmt.Sprintf("resumed by %s", b.Worker))
		}
	case *journal.Message:
		t.message(b)
	case *journal.ModelFailed:
		t.failed(b)
	case *journal.ToolCall:
		if t.calls[b.ID] = b; len(b.Converted) > 0 {
			t.note("the arguments of " + b.Name + " were converted: " + strings.Join(b.Converted, "; "))
		}
	case *journal.Verdicts:
		for i := range b.Verdicts {
			t.verdicts[b.Verdicts[i].CallID] = &b.Verdicts[i]
		}
	case *journal.ConfirmationRequired:
		t.asked(b)
	case *journal.ConfirmationResolved:
		t.resolved(b)
	case *journal.Granted:
		t.granted(b)
	case *journal.Said:
		fmt.Fprintf(t.Out, "%s %s %s\n", t.Style.Bold("❯"), guard.Visible(b.Text), t.Style.Dim("("+guard.Visible(b.By)+")"))
	case *journal.Reconciled:
		t.reconciled(b)
	case *journal.Usage:
		t.spent(b)
	case *journal.ToolResult:
		t.result(b)
	case *journal.Condensed:
		t.note(fmt.Sprintf("%s were replaced (%s): about %s tokens became %s", Count(b.Messages, "message"), b.Strategy,
			Number(b.Before), Number(b.After)))
	case *journal.AnswerChecked:
		if !b.Valid {
			t.note("the answer does not fit the output_schema: " + b.Problem)
		}
	case *journal.Notice:
		t.note(b.Code + ": " + b.Message)
	case *journal.Stopping:
		t.note("stopping: " + string(b.Reason) + ": " + b.Message)
	case *journal.ChildStarted:
		t.childStarted(b)
	case *journal.ChildParked:
		t.childParked(b)
	case *journal.ChildResumed:
		t.note(t.child(b.ID) + " continues")
	case *journal.ChildEnded:
		t.ended[b.ID] = b
	case *journal.Paused:
		t.paused(b)
	case *journal.Forgotten:
		t.note("approval " + b.ApprovalID + " is no longer remembered for calls of " + b.Tool + ", by " + b.By)
	case *journal.Released:
		t.note("released, to be resumed: " + b.Cause)
	case *journal.ModelChosen:
		t.known = t.known && b.Model.Price.Known
		t.note("continues with " + b.Model.Ref + ", by " + b.By)
	case *journal.Done:
		t.done(e.Time, b)
	case *journal.Error:
		t.failure(e.Time, b)
	}
}

func (t *Story) start(at time.Time, b *journal.RunStarted) {
	s := t.Style
	t.calls, t.verdicts, t.edited = map[string]*journal.ToolCall{}, map[string]*journal.Verdict{},
		map[string]json.RawMessage{}
	t.taint, t.sinks = slices.Clone(b.Taint), b.Agent.TaintWrites
	t.started, t.ended = map[string]*journal.ChildStarted{}, map[string]*journal.ChildEnded{}
	t.began, t.known, t.estimated = at, true, false
	models := make([]string, len(b.Models))
	for i, m := range b.Models {
		models[i] = m.Ref
		t.known = t.known && m.Price.Known
	}
	who := b.Principal.User
	if b.Principal.Actor != "" {
		who += " (asked by " + b.Principal.Actor + ")"
	}
	t.field("agent", b.Agent.Name)
	t.field("model", strings.Join(models, ", then "))
	t.field("user", who)
	t.field("session", toolcrib.ShortID(b.Session))
	t.above(b)
	t.field("workspace", b.Workspace)
	t.field("started", at.Local().Format("2006-01-02 15:04:05 MST"))
	t.field("offered", offered(b.Offer))
	t.field("skills", skillNames(b.Skills))
	t.field("tainted by", strings.Join(b.Taint, ", "))
	if g := b.Given; g != nil {
		t.calls[g.ID] = &journal.ToolCall{Iteration: 1, ToolCall: *g}
	}
	if n := len(b.Input); n > 0 && b.Given == nil {
		fmt.Fprintf(t.Out, "\n%s %s\n", s.Bold("❯"), guard.Visible(b.Input[n-1].Text()))
		for _, p := range b.Input[n-1].Parts {
			if p.File != nil {
				t.note("attached: " + fileText(*p.File))
			}
		}
	}
	fmt.Fprintln(t.Out)
}

func skillNames(skills []journal.Skill) string {
	names := make([]string, len(skills))
	for i, s := range skills {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

// fileText names a file of a transcript.
func fileText(f toolcrib.File) string {
	name := f.Name
	if name == "" {
		name = f.Ref
	}
	return fmt.Sprintf("%s (%s, %s bytes)", name, f.MediaType, Number(f.Bytes))
}

func offered(o journal.Offer) string {
	if len(o.Tools) == 0 {
		return "no tools"
	}
	return Count(len(o.Tools), "tool") + ": " + strings.Join(o.Names(), ", ")
}

func (t *Story) field(name, value string) {
	if value != "" {
		fmt.Fprintf(t.Out, "%s %s\n", t.Style.Dim(fmt.Sprintf("%-11s", name)), Line(value, 4096))
	}
}

func (t *Story) note(text string) {
	fmt.Fprintln(t.Out, t.Style.Dim("· "+Line(text, 4096)))
}

func (t *Story) message(b *journal.Message) {
	for _, p := range b.Parts {
		switch {
		case p.Thinking != nil && p.Thinking.Text != "":
			t.thought(p.Thinking.Text)
		case p.ToolCall == nil && p.Thinking == nil && strings.TrimSpace(p.Text) != "":
			fmt.Fprintln(t.Out, guard.Visible(strings.TrimSpace(p.Text)))
		}
	}
	if b.Finish == toolcrib.FinishLength || b.Finish == toolcrib.FinishFiltered {
		t.note("the reply ended early: " + string(b.Finish))
	}
}

// foldedThinking is how many lines of a folded thought are shown.
const foldedThinking = 3

func (t *Story) thought(text string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, l := range lines {
		if !t.Whole && i == foldedThinking {
			fmt.Fprintln(t.Out, t.Style.Dim("  … "+Count(len(lines)-i, "more line")))
			return
		}
		fmt.Fprintln(t.Out, t.Style.Dim("  "+guard.Visible(l)))
	}
}

func (t *Story) failed(b *journal.ModelFailed) {
	text := fmt.Sprintf("request %d failed: %s: %s", b.Request, b.Class, b.Message) + around(" (", b.Ref, ")")
	fmt.Fprintln(t.Out, t.Style.Red("✗ "+Line(text, 4096)))
}

func (t *Story) asked(b *journal.ConfirmationRequired) {
	what := "? asked for approval"
	switch b.Kind {
	case journal.ApprovalInDoubt:
		what = "? in doubt: " + Line(b.Reason, 4096)
	case journal.ApprovalInput:
		what = "? asked: " + Line(b.Question, 4096)
	}
	fmt.Fprintf(t.Out, "%s %s\n", t.Style.Yellow(what), t.Style.Dim(guard.Visible(toolcrib.ShortID(b.ApprovalID))))
	for _, c := range b.Calls {
		fmt.Fprintf(t.Out, "  %s %s", Line(c.Name, 64), Arguments(c.Arguments, t.Style.width()-len(c.Name)-4))
		why := string(c.Effect) + " · " + c.Reason
		if v := t.verdicts[c.ID]; v != nil {
			why += around(" (", v.Position, ")")
		}
		fmt.Fprintln(t.Out)
		t.under(why)
	}
}

func (t *Story) resolved(b *journal.ConfirmationResolved) {
	one, edited := b.Overall()
	text := decided(one)
	if edited && one == journal.DecisionApprove {
		text += " with other arguments"
	}
	text += " by " + b.By
	if b.Remember != nil {
		text += ", remembered for the " + b.Remember.Scope
	}
	t.note(text + around(": ", b.Reason, ""))
	differ := false
	for id, d := range b.Calls {
		if len(d.Arguments) > 0 {
			t.edited[id] = d.Arguments
		}
		differ = differ || d.Decision != one || len(d.Arguments) > 0 || len(d.Result) > 0
	}
	if !differ {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(b.Calls)) {
		t.decision(id, b.Calls[id])
	}
}

// decision prints the decision on one call.
func (t *Story) decision(id string, d journal.CallDecision) {
	text := id + ": " + decided(d.Decision)
	switch {
	case len(d.Arguments) > 0:
		text += ", with other arguments: " + string(d.Arguments)
	case len(d.Result) > 0:
		text += ": " + string(d.Result)
	}
	t.under(text)
}

// granted prints the limits that a person raised.
func (t *Story) granted(b *journal.Granted) {
	var parts []string
	add := func(given bool, text string) {
		if given {
			parts = append(parts, text)
		}
	}
	add(b.Iterations > 0, Count(b.Iterations, "round"))
	add(b.Requests > 0, Count(b.Requests, "request"))
	add(b.Tokens > 0, Number(b.Tokens)+" tokens")
	add(b.CostUSD > 0, dollars(b.CostUSD))
	t.note(strings.Join(parts, ", ") + " more granted by " + b.By)
}

// reconciled prints whether an interrupted write took effect.
func (t *Story) reconciled(b *journal.Reconciled) {
	text := "was cut off; nobody knows whether it took effect"
	switch b.State {
	case toolcrib.Happened:
		text = "was cut off after it had taken effect"
	case toolcrib.NotHappened:
		text = "was cut off before it took effect; it runs again"
	}
	t.note(b.ID + " " + text)
}

// spent prints the usage and cost of one request.
func (t *Story) spent(b *journal.Usage) {
	u := toolcrib.Usage{
		InputTokens: b.Tokens.InputTokens, CachedInputTokens: b.Tokens.CachedInputTokens, OutputTokens: b.Tokens.OutputTokens,
		TotalTokens: b.Tokens.InputTokens + b.Tokens.OutputTokens, CostUSD: b.CostUSD, Estimated: b.Estimated,
	}
	t.estimated = t.estimated || b.Estimated || t.known && b.Sum.Estimated
	t.note(fmt.Sprintf("request %d: %s · %s", b.Request, Tokens(u, b.Estimated), Cost(u, t.known)))
}

// arguments returns the arguments with which a call ran.
func (t *Story) arguments(call string) json.RawMessage {
	if edited, ok := t.edited[call]; ok {
		return edited
	}
	c := t.calls[call]
	switch {
	case c == nil:
		return nil
	case c.Broken != "":
		return json.RawMessage(c.Broken)
	}
	return c.Arguments
}

func (t *Story) result(b *journal.ToolResult) {
	name := b.Name
	c := t.calls[b.ToolCallID]
	if c != nil {
		name = cmp.Or(c.ProviderName, c.Name)
	}
	fmt.Fprint(t.Out, t.Style.Call(name, t.arguments(b.ToolCallID), b.Status))
	if _, ok := t.edited[b.ToolCallID]; ok && c != nil {
		t.under("a person gave these arguments; the model's: " + Arguments(c.Arguments, 4096))
	}
	most := foldedLines
	if t.Whole {
		most = 0
	}
	fmt.Fprint(t.Out, t.Style.Fold(b.View(), most, ""))
	for _, f := range b.Files {
		t.under("file: " + fileText(f))
	}
	t.childEnded(b.ToolCallID)
	if v := t.verdicts[b.ToolCallID]; v != nil {
		t.verdict(v)
	}
	t.tainted(b)
	if b.FaultRef != "" {
		t.under(b.FaultRef + ": " + b.Fault)
	}
}

// tainted prints the consequences of a result with new untrusted sources.
func (t *Story) tainted(b *journal.ToolResult) {
	if !b.Untrusted {
		return
	}
	var sources []string
	for _, source := range append([]string{b.Source}, b.Sources...) {
		if !slices.Contains(t.taint, source) {
			sources, t.taint = append(sources, source), append(t.taint, source)
		}
	}
	if len(sources) == 0 {
		return
	}
	then := "what writes or can carry data out is asked about from here on"
	switch t.sinks {
	case "deny":
		then = "what writes or can carry data out is refused from here on"
	case "allow":
		then = "taint.writes is allow: nothing follows"
	}
	t.note(fmt.Sprintf("the run has read untrusted data of %s: %s", strings.Join(sources, ", "), then))
}

// verdict prints the details of a verdict that are not for the model.
func (t *Story) verdict(v *journal.Verdict) {
	effect, approval := "", ""
	if v.Decision == toolcrib.Allow && v.Effect.Writes() {
		effect = string(v.Effect.OrStrictest())
	}
	if !strings.Contains(v.Detail, v.Approval) {
		approval = around("allowed by ", toolcrib.ShortID(v.Approval), "")
	}
	if text := joined(" · ", effect, approval, around("rule ", v.Rule, ""), v.Position, v.Detail); text != "" {
		t.under(text)
	}
}

func (t *Story) done(at time.Time, b *journal.Done) {
	mark := t.Style.Green("✓")
	if b.Status != toolcrib.StatusCompleted || b.Truncated {
		mark = t.Style.Yellow("■")
	}
	text := string(b.StopReason)
	if b.Truncated {
		text += ", the answer is cut or not final"
	}
	t.end(mark, text, at, b.Iterations, b.Usage)
}

func (t *Story) failure(at time.Time, b *journal.Error) {
	code := string(b.StopReason) + ": "
	text := code + strings.TrimPrefix(b.Message, code) + around(" (", b.Ref, ")")
	t.end(t.Style.Red("✗"), text, at, b.Iterations, b.Usage)
}

func (t *Story) end(mark, text string, at time.Time, iterations int, u toolcrib.Usage) {
	fmt.Fprintf(t.Out, "\n%s %s\n", mark, Line(text, 4096))
	fmt.Fprintln(t.Out, t.Style.Dim(fmt.Sprintf("  %s · %s · %s · %s",
		Count(iterations, "round"), Tokens(u, t.estimated), Cost(u, t.known), Duration(at.Sub(t.began)))))
	t.withChildren(u)
}

// around adds before and after to a text that is not empty.
func around(before, text, after string) string {
	if text == "" {
		return ""
	}
	return before + text + after
}

// joined joins the texts that are not empty.
func joined(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), separator)
}

// Count formats a number with a noun: 1 round, 2 rounds.
func Count(n int, word string) string { return guard.Count(n, word) }

// child returns the agent that answers a call.
func (t *Story) child(call string) string {
	if b := t.started[call]; b != nil {
		return b.Agent
	}
	return "the sub-agent"
}

// above prints the parent of a run.
func (t *Story) above(b *journal.RunStarted) {
	if b.Parent != "" && b.Given != nil {
		t.field("started by", string(b.Parent))
	} else if b.Parent != "" {
		t.field("part of", toolcrib.ShortID(b.Parent)+around(", called by agent ", t.Caller, ""))
	}
}

// childStarted prints the run that answers a call, and its task.
func (t *Story) childStarted(b *journal.ChildStarted) {
	t.started[b.ID] = b
	var of struct {
		Task string `json:"task"`
	}
	_ = json.Unmarshal(t.arguments(b.ID), &of)
	head := Line(b.Agent, 64) + ":"
	fmt.Fprintf(t.Out, "%s %s %s\n", t.Style.Cyan("→"), t.Style.Bold(head), Line(of.Task, t.Style.width()-len(head)-3))
	t.under(toolcrib.ShortID(b.Run))
}

// childParked prints the event that a child run waits for, and where it can be decided.
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

// WaitsFor describes the event that a parked run waits for.
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

// paused prints that the run waits, and for which other run, if any.
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

// childEnded prints, after the result of a call, how the child run that answered it ended.
func (t *Story) childEnded(call string) {
	b := t.ended[call]
	if b == nil { // no child run answered it, or it never began
		return
	}
	text := t.child(call) + " " + string(b.Status)
	if string(b.StopReason) != string(b.Status) {
		text += " (" + string(b.StopReason) + ")"
	}
	priced := b.Usage.CostUSD > 0 // ChildEnded does not say whether prices are known
	t.under(text + " · " + inAndOut(b.Usage, priced || !b.Usage.Estimated, priced && b.Usage.Estimated))
	t.wayTo(b.Run)
}

// inAndOut formats usage without cached tokens, which the stories of the child runs show.
func inAndOut(u toolcrib.Usage, known, estimated bool) string {
	u.CachedInputTokens = 0
	return Tokens(u, estimated) + " · " + Cost(u, known)
}

// withChildren prints the usage of the run and all runs below it.
func (t *Story) withChildren(own toolcrib.Usage) {
	if len(t.ended) == 0 {
		return
	}
	sum, known, estimated := own, t.known, t.estimated
	for _, b := range t.ended {
		known = known && (b.Usage.CostUSD > 0 || !b.Usage.Estimated)
		estimated = estimated || b.Usage.CostUSD > 0 && b.Usage.Estimated
		sum = sum.Plus(b.Usage)
	}
	fmt.Fprintln(t.Out, t.Style.Dim("  with sub-agents: "+inAndOut(sum, known, estimated)))
}

// wayTo prints the command that shows another run.
func (t *Story) wayTo(run toolcrib.RunID) {
	t.under("its story: " + cmp.Or(t.Self, "toolcrib") + " runs show " + toolcrib.ShortID(run))
}

// under prints a line that belongs to the one before.
func (t *Story) under(text string) {
	for _, row := range Wrap(Line(text, 4096), t.Style.columns()-4) {
		fmt.Fprintln(t.Out, t.Style.Dim("    "+row))
	}
}

// Frame formats an event as one line of at most width columns, or of any length if width is 0: its
// number, kind and content.
func Frame(f journal.Frame, width int) string {
	text := fmt.Sprintf("%5d  %-21s  %s", f.Seq, f.Event, frameText(f))
	text = strings.TrimRight(guard.Visible(oneLine(text)), " ")
	if width > 0 {
		text = cut(text, width, false)
	}
	return text
}

// oneLine escapes line breaks.
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
