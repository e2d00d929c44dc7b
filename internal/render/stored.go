package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Event narrates the next stored event.
func (n *Narrator) Event(e toolcrib.Event) {
	switch b := e.Body.(type) {
	case *journal.RunStarted:
		n.start(e, b)
	case *journal.Message:
		n.message(b)
	case *journal.ToolCall:
		n.called(&b.ToolCall)
		if len(b.Converted) > 0 {
			show(n.Note, "the arguments of "+b.Name+" were converted: "+strings.Join(b.Converted, "; "))
		}
	case *journal.Verdicts:
		for i := range b.Verdicts {
			n.call(b.Verdicts[i].CallID).verdict = &b.Verdicts[i]
		}
	case *journal.ConfirmationRequired:
		n.required(b)
	case *journal.ConfirmationResolved:
		n.resolved(b)
	case *journal.ToolResult:
		n.stored(b)
	case *journal.Notice:
		show(n.Notice, b.Notice)
	case *journal.ModelFailed:
		show(n.Fault, fmt.Sprintf("request %d failed: %s: %s", b.Request, b.Class, b.Message)+around(" (", b.Ref, ")"))
	case *journal.Said:
		show(n.Head, Head{"❯", b.By, b.Text})
	case *journal.ChildStarted:
		n.childStarted(b)
	case *journal.ChildParked:
		n.childParked(b)
	case *journal.ChildEnded:
		n.call(b.ID).ended = b
		n.ended = append(n.ended, b)
	case *journal.Done:
		mark := cmp.Or(when(b.Status != toolcrib.StatusCompleted || b.Truncated, "■"), "✓")
		text := string(b.StopReason) + when(b.Truncated, ", the answer is cut or not final")
		n.over(mark, text, e, b.Iterations, b.Usage)
	case *journal.Error:
		code := string(b.StopReason) + ": "
		n.over("✗", code+strings.TrimPrefix(b.Message, code)+around(" (", b.Ref, ")"), e, b.Iterations, b.Usage)
	default:
		if text := n.sentence(e.Body); text != "" {
			show(n.Note, text)
		}
	}
}

// sentence describes an event for which one sentence is enough, or returns "".
func (n *Narrator) sentence(body toolcrib.Body) string {
	switch b := body.(type) {
	case *journal.TakenUp:
		if b.Epoch > 1 {
			return "resumed by " + b.Worker
		}
	case *journal.Usage:
		return n.request(b)
	case *journal.Granted:
		return joined(", ", when(b.Iterations > 0, Count(b.Iterations, "round")),
			when(b.Requests > 0, Count(b.Requests, "request")), when(b.Tokens > 0, Number(b.Tokens)+" tokens"),
			when(b.CostUSD > 0, dollars(b.CostUSD))) + " more granted by " + b.By
	case *journal.Reconciled:
		return b.ID + " was cut off" + cmp.Or(map[toolcrib.ReconciledState]string{
			toolcrib.Happened: " after it had taken effect", toolcrib.NotHappened: " before it took effect; it runs again",
		}[b.State], "; nobody knows whether it took effect")
	case *journal.Condensed:
		return fmt.Sprintf("%s were replaced (%s): about %s tokens became %s", Count(b.Messages, "message"), b.Strategy,
			Number(b.Before), Number(b.After))
	case *journal.AnswerChecked:
		if !b.Valid {
			return "the answer does not fit the output_schema: " + b.Problem
		}
	case *journal.Stopping:
		return "stopping: " + string(b.Reason) + ": " + b.Message
	case *journal.ChildResumed:
		return n.agent(b.ID) + " continues"
	case *journal.Paused:
		return paused(b)
	case *journal.Forgotten:
		return "approval " + b.ApprovalID + " is no longer remembered for calls of " + b.Tool + ", by " + b.By
	case *journal.Released:
		return "released, to be resumed: " + b.Cause
	case *journal.ModelChosen:
		n.known = n.known && b.Model.Price.Known
		return "continues with " + b.Model.Ref + ", by " + b.By
	}
	return ""
}

func (n *Narrator) start(e toolcrib.Event, b *journal.RunStarted) {
	*n = Narrator{View: n.View, began: e.Time, taint: slices.Clone(b.Taint), sinks: b.Agent.TaintWrites}
	n.known = !slices.ContainsFunc(b.Models, func(m journal.ModelInfo) bool { return !m.Price.Known })
	if b.Given != nil {
		n.called(b.Given)
	}
	show(n.Start, b)
}

func (n *Narrator) message(b *journal.Message) {
	for _, p := range b.Parts {
		switch {
		case p.Thinking != nil && p.Thinking.Text != "":
			show(n.Thought, p.Thinking.Text)
		case p.ToolCall == nil && p.Thinking == nil:
			show(n.Reply, Reply{Text: p.Text})
		}
	}
	if b.Finish == toolcrib.FinishLength || b.Finish == toolcrib.FinishFiltered {
		show(n.Note, "the reply ended early: "+string(b.Finish))
	}
}

func (n *Narrator) called(call *toolcrib.ToolCall) {
	c := n.call(call.ID)
	c.CallView = journal.CallView{ID: call.ID, Name: cmp.Or(call.ProviderName, call.Name), Arguments: call.Arguments}
	if call.Broken != "" {
		c.Arguments = json.RawMessage(call.Broken)
	}
}

// required narrates a question to a person, with the reason for each call.
func (n *Narrator) required(b *journal.ConfirmationRequired) {
	text := "asked for approval"
	switch b.Kind {
	case journal.ApprovalInDoubt:
		text = "in doubt: " + Line(b.Reason, 4096)
	case journal.ApprovalInput:
		text = "asked: " + Line(b.Question, 4096)
	}
	show(n.Head, Head{"?", b.ApprovalID, text})
	for _, c := range b.Calls {
		show(n.Head, Head{Name: c.Name, Text: string(c.Arguments)})
		why := string(c.Effect) + " · " + c.Reason
		if v := n.call(c.ID).verdict; v != nil {
			why += around(" (", v.Position, ")")
		}
		show(n.Detail, why)
	}
}

func (n *Narrator) resolved(b *journal.ConfirmationResolved) {
	one, edited := b.Overall()
	text := decided(one) + when(edited && one == journal.DecisionApprove, " with other arguments") + " by " + b.By
	if b.Remember != nil {
		text += ", remembered for the " + b.Remember.Scope
	}
	show(n.Note, text+around(": ", b.Reason, ""))
	differ := false
	for id, d := range b.Calls {
		if len(d.Arguments) > 0 {
			c := n.call(id)
			if !c.edited {
				c.edited, c.model = true, c.Arguments
			}
			c.Arguments = d.Arguments
		}
		differ = differ || d.Decision != one || len(d.Arguments) > 0 || len(d.Result) > 0
	}
	if !differ {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(b.Calls)) {
		d := b.Calls[id]
		given := cmp.Or(around(", with other arguments: ", string(d.Arguments), ""), around(": ", string(d.Result), ""))
		show(n.Detail, id+": "+decided(d.Decision)+given)
	}
}

// request describes the usage and cost of one request.
func (n *Narrator) request(b *journal.Usage) string {
	u := toolcrib.Usage{
		InputTokens: b.Tokens.InputTokens, CachedInputTokens: b.Tokens.CachedInputTokens, OutputTokens: b.Tokens.OutputTokens,
		TotalTokens: b.Tokens.InputTokens + b.Tokens.OutputTokens, CostUSD: b.CostUSD, Estimated: b.Estimated,
	}
	n.estimated = n.estimated || b.Estimated || n.known && b.Sum.Estimated
	return fmt.Sprintf("request %d: %s · %s", b.Request, Tokens(u, b.Estimated), Cost(u, n.known))
}

// stored narrates a stored result, with the details that are not for the model.
func (n *Narrator) stored(b *journal.ToolResult) {
	c := n.result(b.View())
	for _, f := range b.Files {
		show(n.Detail, "file: "+fileText(f))
	}
	if c.ended != nil {
		n.childEnded(c.ended)
	}
	if v := c.verdict; v != nil {
		text := joined(" · ", when(v.Decision == toolcrib.Allow && v.Effect.Writes(), string(v.Effect.OrStrictest())),
			when(!strings.Contains(v.Detail, v.Approval), around("allowed by ", toolcrib.ShortID(v.Approval), "")),
			around("rule ", v.Rule, ""), v.Position, v.Detail)
		if text != "" {
			show(n.Detail, text)
		}
	}
	n.tainted(b)
	if b.FaultRef != "" {
		show(n.Detail, b.FaultRef+": "+b.Fault)
	}
}

// tainted narrates the consequences of a result with new untrusted sources.
func (n *Narrator) tainted(b *journal.ToolResult) {
	var sources []string
	for _, source := range append([]string{b.Source}, b.Sources...) {
		if b.Untrusted && !slices.Contains(n.taint, source) {
			sources, n.taint = append(sources, source), append(n.taint, source)
		}
	}
	if len(sources) == 0 {
		return
	}
	then := cmp.Or(map[string]string{
		"deny":  "what writes or can carry data out is refused from here on",
		"allow": "taint.writes is allow: nothing follows",
	}[n.sinks], "what writes or can carry data out is asked about from here on")
	show(n.Note, fmt.Sprintf("the run has read untrusted data of %s: %s", strings.Join(sources, ", "), then))
}

// over narrates the end of the run, the cost of it, and that of it and all runs below it.
func (n *Narrator) over(mark, text string, e toolcrib.Event, iterations int, u toolcrib.Usage) {
	show(n.Head, Head{Mark: mark, Text: text})
	show(n.Cost, fmt.Sprintf("%s · %s · %s · %s", Count(iterations, "round"), Tokens(u, n.estimated), Cost(u, n.known),
		Duration(e.Time.Sub(n.began))))
	if len(n.ended) == 0 {
		return
	}
	known, estimated := n.known, n.estimated
	for _, b := range n.ended {
		known = known && (b.Usage.CostUSD > 0 || !b.Usage.Estimated)
		estimated = estimated || b.Usage.CostUSD > 0 && b.Usage.Estimated
		u = u.Plus(b.Usage)
	}
	show(n.Cost, "with sub-agents: "+inAndOut(u, known, estimated))
}

// inAndOut formats usage without cached tokens, which the stories of the child runs show.
func inAndOut(u toolcrib.Usage, known, estimated bool) string {
	u.CachedInputTokens = 0
	return Tokens(u, estimated) + " · " + Cost(u, known)
}

// agent returns the agent of the child run that answers a call.
func (n *Narrator) agent(call string) string { return cmp.Or(n.call(call).agent, "the sub-agent") }

func (n *Narrator) childStarted(b *journal.ChildStarted) {
	c := n.call(b.ID)
	c.agent = b.Agent
	var of struct {
		Task string `json:"task"`
	}
	_ = json.Unmarshal(c.Arguments, &of)
	show(n.Head, Head{"→", b.Agent, of.Task})
	show(n.Detail, toolcrib.ShortID(b.Run))
}

// childParked narrates what a child run waits for, and where it can be decided.
func (n *Narrator) childParked(b *journal.ChildParked) {
	show(n.Note, n.agent(b.ID)+" waits "+WaitsFor(&b.Pending))
	of := when(b.Pending.Run != b.Run, around(" of ", toolcrib.ShortID(b.Pending.Run), ""))
	if where := strings.TrimSpace(toolcrib.ShortID(b.Pending.ApprovalID) + of); where != "" {
		show(n.Detail, where)
	}
	show(n.Run, toolcrib.ShortID(b.Run))
}

func (n *Narrator) childEnded(b *journal.ChildEnded) {
	stop := string(b.StopReason)
	text := n.agent(b.ID) + " " + string(b.Status) + when(stop != string(b.Status), " ("+stop+")")
	priced := b.Usage.CostUSD > 0 // ChildEnded does not say whether prices are known
	show(n.Detail, text+" · "+inAndOut(b.Usage, priced || !b.Usage.Estimated, priced && b.Usage.Estimated))
	show(n.Run, toolcrib.ShortID(b.Run))
}

// WaitsFor describes what a parked run waits for.
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

// paused describes what the run waits for, and for which other run, if any.
func paused(b *journal.Paused) string {
	text := "parked: " + string(b.Status)
	if b.Pending.Error != nil || b.Pending.Kind == journal.PendingClientTool {
		text = "parked: waits " + WaitsFor(&b.Pending)
	}
	return text + around(", as ", toolcrib.ShortID(b.Pending.Run), " is")
}

// fileText names a file of a transcript.
func fileText(f toolcrib.File) string {
	return fmt.Sprintf("%s (%s, %s bytes)", cmp.Or(f.Name, f.Ref), f.MediaType, Number(f.Bytes))
}

// around adds before and after to a text that is not empty.
func around(before, text, after string) string {
	if text == "" {
		return ""
	}
	return before + text + after
}

// when returns text if a condition is true.
func when(condition bool, text string) string {
	if condition {
		return text
	}
	return ""
}

// joined joins the texts that are not empty.
func joined(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), separator)
}
