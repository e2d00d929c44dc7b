// Package replay repeats a stored run without calling a model or a tool, and compares each step of the
// core with the journal. Input from outside (replies, verdicts, results, decisions) is taken from the
// journal; everything that the core decides must be the same.
package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
)

// Report is the result of a replay.
type Report struct {
	Run      toolcrib.RunID  `json:"run_id"`
	Events   int             `json:"events"`
	Requests int             `json:"requests"`           // requests whose content was compared by hash
	Children int             `json:"children,omitempty"` // child runs that were compared with their journals
	Status   toolcrib.Status `json:"status"`
}

// DifferenceError reports where a run differs from its journal.
type DifferenceError struct {
	Run   toolcrib.RunID
	Seq   toolcrib.Seq
	Kind  toolcrib.Kind
	What  string
	Want  string // in the journal
	Found string // in the replay
}

func (e *DifferenceError) Error() string {
	return fmt.Sprintf("run %s, event %d (%s): %s: the journal has %s, replay gives %s", e.Run, e.Seq, e.Kind, e.What,
		e.Want, e.Found)
}

// Run replays a run from its journal. For its child runs, it compares only how they began and ended;
// they can be replayed separately. If a step differs, the error is a [*DifferenceError]; other errors
// report a problem with the journal.
func Run(ctx context.Context, j toolcrib.Journal, run toolcrib.RunID) (Report, error) {
	r := replayer{journal: j, state: core.NewState(run), report: Report{Run: run}}
	for e, err := range j.Read(ctx, run, 0) {
		if err != nil {
			return r.report, err
		}
		if err := r.take(ctx, e); err != nil {
			return r.report, err
		}
	}
	r.report.Status = r.state.Status
	return r.report, nil
}

type replayer struct {
	journal  toolcrib.Journal
	state    *core.State
	report   Report
	last     toolcrib.Kind             // kind of the previous event
	children map[string]agent.ChildRun // started children, by their calls
}

// take compares one event with the core's step at this point, then applies it to the state.
func (r *replayer) take(ctx context.Context, e toolcrib.Event) error {
	if r.state.Start != nil {
		if err := r.compare(ctx, e); err != nil {
			return err
		}
	}
	r.report.Events++
	r.last = e.Body.EventKind()
	return core.Fold(r.state, e)
}

func (r *replayer) compare(ctx context.Context, e toolcrib.Event) error {
	c := &comparison{e: e, run: r.state.Run}
	s := r.state
	switch b := e.Body.(type) {
	case *journal.ModelRequest:
		r.report.Requests++
		c.request(s, b)
	case *journal.ModelFailed:
		if b.Class == core.ClassLost {
			c.step(s, core.StepSettle)
		}
	case *journal.Usage:
		c.sum(s, b)
	case *journal.ConfirmationRequired:
		c.step(s, core.StepConfirm)
		c.same("digest", b.Digest, journal.Digest(s.Run, b.Iteration, s.Start.Principal, b.Calls))
	case *journal.Reconciled:
		c.step(s, core.StepReconcile)
	case *journal.ToolStarted:
		c.step(s, core.StepExecute)
	case *journal.ChildStarted:
		r.childStarted(c, b)
	case *journal.ChildParked:
		c.during(s)
	case *journal.ChildResumed:
		r.childResumed(c)
	case *journal.ChildEnded:
		r.childEnded(ctx, c, b)
	case *journal.ToolResult:
		c.answered(s, b.ToolCallID)
		c.result(s, b)
	case *journal.Condensed:
		c.condensed(s, b)
	case *journal.AnswerChecked:
		c.step(s, core.StepCheck)
	case *journal.Stopping:
		if b.Reason != toolcrib.StopCancelled && b.Reason != toolcrib.StopWallTime && b.By == "" {
			step := c.step(s, core.StepStop)
			c.same("reason", b.Reason, step.Reason)
		}
	case *journal.Paused:
		if b.Pending.Run != "" {
			c.step(s, core.StepChildren)
			return c.err
		}
		step, pending := c.step(s, core.StepPark), b.Pending
		if pending.ExpiresAt = nil; step.Pending != nil {
			c.same("pending", &pending, step.Pending)
		}
	case *journal.Done:
		c.done(s, b)
	case *journal.Error:
		c.failed(s, b)
	}
	return c.err
}

// comparison compares one event and records the first difference.
type comparison struct {
	e   toolcrib.Event
	run toolcrib.RunID
	err error
}

// same compares two values as JSON.
func (c *comparison) same(what string, want, found any) {
	if c.err != nil {
		return
	}
	w, f := text(want), text(found)
	if w == f {
		return
	}
	from := 0
	for from < min(len(w), len(f)) && w[from] == f[from] {
		from++
	}
	c.err = &DifferenceError{
		Run: c.run, Seq: c.e.Seq, Kind: c.e.Body.EventKind(), What: what, Want: part(w, from),
		Found: part(f, from),
	}
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// part returns an excerpt of a text from a byte on.
func part(text string, from int) string {
	const most, before = 200, 60
	start := max(min(from-before, len(text)-most), 0)
	end := min(start+most, len(text))
	shown := strings.ToValidUTF8(text[start:end], "")
	if start > 0 {
		shown = "…" + shown
	}
	if end < len(text) {
		shown += "…"
	}
	return shown
}

// step compares the kind of the next step.
func (c *comparison) step(s *core.State, want core.StepKind) core.Step {
	step := core.Next(s)
	c.same("step", want, step.Kind)
	return step
}

func (c *comparison) request(s *core.State, b *journal.ModelRequest) {
	if b.Purpose != "" {
		step := c.step(s, core.StepCondense)
		if c.err == nil {
			step.HoldTo(s, b.UserLeft)
		}
		if c.err == nil && (step.Condense == nil || !step.Condense.Ask) {
			c.same("purpose", b.Purpose, "")
		}
		c.same("attempt", b.Attempt, step.Attempt)
		c.same("delay", b.DelayMS, step.Delay.Milliseconds())
		if c.err == nil {
			c.same("request", b.Hash, core.RequestHash(s, step, ""))
		}
		return
	}
	step := c.step(s, core.StepAsk)
	if c.err != nil {
		return
	}
	step.HoldTo(s, b.UserLeft)
	c.same("iteration", b.Iteration, core.Rounds(s, step))
	c.same("model", b.Model, step.Model)
	c.same("attempt", b.Attempt, step.Attempt)
	c.same("closing", b.Closing, step.Closing)
	c.same("delay", b.DelayMS, step.Delay.Milliseconds())
	c.same("reserved tokens", [3]int64{b.ReservedInput, b.ReservedOutput, int64(b.MaxOutput)},
		[3]int64{step.Reserve.Input, step.Reserve.Output, int64(step.Reserve.MaxOutput)})
	if c.err == nil {
		c.same("tools", b.OfferHash, core.ShownHash(s, step))
		c.same("request", b.Hash, core.RequestHash(s, step, b.OfferHash))
	}
}

// condensed compares which messages are replaced. If a summary was requested, the event comes while
// that request is open.
func (c *comparison) condensed(s *core.State, b *journal.Condensed) {
	if b.Request > 0 {
		if s.Open == nil || s.Open.Request != b.Request {
			c.same("request", b.Request, "none that is open")
		}
		return
	}
	step := c.step(s, core.StepCondense)
	if c.err == nil {
		c.same("messages", [2]int{b.From, b.Messages}, [2]int{step.Condense.From, step.Condense.Messages})
	}
}

func (c *comparison) sum(s *core.State, b *journal.Usage) {
	c.same("requests", b.Sum.Requests, s.Usage.Requests+1)
	c.same("tokens", b.Sum.TotalTokens, s.Usage.TotalTokens+b.Tokens.InputTokens+b.Tokens.OutputTokens)
}

func (c *comparison) result(s *core.State, b *journal.ToolResult) {
	if s.Reconciled(b.ToolCallID) {
		return // a write that its tool reported as done
	}
	step := core.Next(s)
	switch step.Kind {
	case core.StepExecute:
		return
	case core.StepWait:
		if s.WaitsForClient(b.ToolCallID) {
			return
		}
	case core.StepAnswer:
		for _, a := range step.Answers {
			if a.Call.ID != b.ToolCallID {
				continue
			}
			if s.Stopping != nil && b.Status != a.Status {
				return // it had ended, or been refused, when the run was asked to stop
			}
			c.same("status", b.Status, a.Status)
			c.same("reason", b.Reason, a.Reason)
			if a.Raw == nil {
				c.same("content", b.Content, a.Content)
			}
			return
		}
	}
	// A call that was running when the run was asked to stop may have ended by itself.
	if s.Stopping == nil {
		c.same("step", core.StepExecute, step.Kind)
	}
}

func (c *comparison) done(s *core.State, b *journal.Done) {
	step := c.step(s, core.StepFinish)
	c.same("status", b.Status, step.Status)
	c.same("stop reason", b.StopReason, step.Reason)
	c.same("content", b.Content, step.Content)
	c.same("truncated", b.Truncated, step.Truncated)
	c.same("iterations", b.Iterations, s.Iterations)
	c.same("usage", b.Usage, s.Usage)
}

func (c *comparison) failed(s *core.State, b *journal.Error) {
	step := c.step(s, core.StepFinish)
	c.same("status", b.Status, step.Status)
	c.same("stop reason", b.StopReason, step.Reason)
	c.same("code", b.Code, step.Code)
	c.same("message", b.Message, step.Message)
	c.same("iterations", b.Iterations, s.Iterations)
	c.same("usage", b.Usage, s.Usage)
}
