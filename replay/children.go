package replay

import (
	"context"
	"math"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
)

// sharePrecision is the precision, in dollars, for comparing shares: they are rounded to a billionth,
// and machines may differ in the rounding before.
const sharePrecision = 2e-9

// childStarted compares the step for a call that is given to a run of its own.
func (r *replayer) childStarted(c *comparison, b *journal.ChildStarted) {
	c.step(r.state, core.StepExecute)
	run := agent.ChildOf(r.state, b.ID)
	c.same("agent", b.Agent, run.Agent)
	if c.err == nil && run.None != "" {
		c.same("share", b.Share, run.None)
	}
	c.share(b.Share, run.Share)
	if r.children == nil {
		r.children = make(map[string]agent.ChildRun)
	}
	r.children[b.ID] = run
}

// share compares the budget of a child run.
func (c *comparison) share(want, found *journal.Share) {
	if want == nil || found == nil || math.Abs(want.CostUSD-found.CostUSD) > sharePrecision {
		c.same("share", want, found)
		return
	}
	alike := *found
	alike.CostUSD = want.CostUSD
	c.same("share", want, alike)
}

// childResumed compares a resumed child run; several may continue at once.
func (r *replayer) childResumed(c *comparison) {
	if step := core.Next(r.state); step.Kind == core.StepExecute && r.last == journal.KindChildResumed {
		return
	}
	c.step(r.state, core.StepChildren)
}

// during compares the step for an event that occurs while calls run, or are answered because the run is to end.
func (c *comparison) during(s *core.State) {
	if step := core.Next(s); step.Kind != core.StepAnswer && s.Stopping == nil {
		c.same("step", core.StepExecute, step.Kind)
	}
}

// childEnded compares the recorded end of a child run with the journal of that run. A child that never
// began has no journal and no usage; one that was removed or pruned is not compared.
func (r *replayer) childEnded(ctx context.Context, c *comparison, b *journal.ChildEnded) {
	c.during(r.state)
	child, err := agent.Load(ctx, r.journal, b.Run)
	if err != nil && ctx.Err() != nil {
		c.err = ctx.Err()
	}
	if c.err != nil || err != nil || child.Start == nil {
		return
	}
	r.report.Children++
	c.same("the child's parent", r.state.Run, child.Start.Parent)
	c.same("the child's depth", r.state.Start.Depth+1, child.Start.Depth)
	was, known := r.children[b.ID]
	if now := agent.ChildOf(r.state, b.ID); known && now.Agent == was.Agent && now.Task == was.Task {
		c.begins(child.Start, &was) // otherwise a person has changed the call since
	}
	end := child.Ending(b.ID)
	if b.Runs == 0 { // it had not begun by then
		end.Runs, end.Bytes = 0, 0
	}
	c.same("the end of the child", b, end)
}

// begins compares the start of a child run: all its restrictions come from its parent.
func (c *comparison) begins(b *journal.RunStarted, run *agent.ChildRun) {
	task := ""
	if n := len(b.Input); n > 0 {
		task = b.Input[n-1].Text()
	}
	c.same("the child's agent", b.Agent.Name, run.Agent)
	c.same("the child's task", task, run.Task)
	c.same("the child's run_tools", b.RunTools, run.Tools)
	c.same("the child's worker_tools", b.WorkerTools, run.Offer)
	c.same("the child's above", b.Above, run.Above)
	c.share(b.Share, run.Share)
}

// answered checks that the child run of a call has ended before the call is answered.
func (c *comparison) answered(s *core.State, callID string) {
	if s.Turn == nil {
		return
	}
	for _, k := range s.Turn.Calls {
		if k.ID == callID && k.Child != nil && k.ChildEnd == nil {
			c.same("the child's end", toolcrib.Kind("none"), journal.KindChildEnded)
		}
	}
}
