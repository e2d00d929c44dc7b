package agent_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/replay"
)

// holdsNow checks the invariants of every run of the tree.
func (t *teller) holdsNow() error {
	for i, req := range t.requests {
		if err := checkTranscript(req.Messages); err != nil {
			return fmt.Errorf("request %d, to %s: %w", i, req.Model, err)
		}
	}
	for _, run := range t.journal.Runs() {
		if err := t.holdsOf(run); err != nil {
			return fmt.Errorf("run %s: %w", run, err)
		}
	}
	return nil
}

// holdsOf checks one run: each prefix of its journal folds and says what comes next,
// nothing starts without leave or twice, and replay finds nothing.
func (t *teller) holdsOf(run toolcrib.RunID) error {
	s, ends, started := core.NewState(run), 0, map[string]int{}
	for e, err := range t.journal.Read(context.Background(), run, 0) {
		if err == nil {
			err = core.Fold(s, e)
		}
		if err != nil {
			return err
		}
		core.Next(s)
		switch b := e.Body.(type) {
		case *journal.ToolStarted:
			if b.Write {
				started[b.ID]++
			}
		case *journal.Done, *journal.Error:
			ends++
		}
	}
	for id, n := range started {
		if n > 1+t.retried[string(run)+id] {
			return fmt.Errorf("write %s started %d times, and a person had it tried again %d times", id, n, t.retried[string(run)+id])
		}
	}
	if s.Ended() != (ends == 1) || ends > 1 {
		return fmt.Errorf("%d ends, and is %s", ends, s.Status)
	}
	_, err := replay.Run(context.Background(), t.journal, run)
	return err
}

// holds checks the tree after the run at the top has ended.
func (t *teller) holds(tt *testing.T) error {
	if len(t.journal.Runs()) == 0 {
		return nil
	}
	if err := t.holdsNow(); err != nil {
		return err
	}
	runs := map[toolcrib.RunID]*agent.State{}
	for _, run := range t.journal.Runs() {
		s, err := agent.Load(context.Background(), t.journal, run)
		if err != nil {
			return err
		}
		runs[run] = s
	}
	sent := 0
	for _, n := range t.asked {
		sent += n
	}
	top := t.top()
	if counted := top.Spent().Requests; counted < sent {
		return fmt.Errorf("%d requests were sent, %d are counted", sent, counted)
	}
	for _, s := range runs {
		if err := holdsTogether(s, runs); err != nil {
			return fmt.Errorf("run %s of %s: %w", s.Run, s.Start.Agent.Name, err)
		}
		if err := t.holdsBudget(s, runs); err != nil {
			return fmt.Errorf("run %s of %s: %w", s.Run, s.Start.Agent.Name, err)
		}
	}
	if err := t.holdsCalls(runs); err != nil {
		return err
	}
	return t.holdsCut(tt, runs)
}

// holdsTogether checks a run against those that it has started.
func holdsTogether(s *agent.State, runs map[toolcrib.RunID]*agent.State) error {
	nested := s.Start.Given != nil && s.Start.Parent != ""
	if !s.Ended() && !nested {
		return fmt.Errorf("it is %s, and the run at the top has ended", s.Status)
	}
	var sum toolcrib.Usage
	for _, c := range s.Trace {
		if c.Child == nil {
			continue
		}
		if c.ChildEnd == nil || c.Result == nil {
			return fmt.Errorf("the run of call %s: end %+v, result %+v", c.ID, c.ChildEnd, c.Result)
		}
		child := runs[c.Child.Run]
		if child == nil {
			if c.ChildEnd.Usage != (toolcrib.Usage{}) || c.ChildEnd.Status != toolcrib.StatusCancelled {
				return fmt.Errorf("the run of call %s never began, and has ended as %+v", c.ID, c.ChildEnd)
			}
			continue
		}
		if child.Start.Parent != s.Run || child.Status != c.ChildEnd.Status || child.Spent() != c.ChildEnd.Usage {
			return fmt.Errorf("the run of call %s is %s and has spent %+v, but was kept as %+v", c.ID, child.Status, child.Spent(), c.ChildEnd)
		}
		sum.Requests += c.ChildEnd.Usage.Requests
		sum.TotalTokens += c.ChildEnd.Usage.TotalTokens
		sum.CostUSD += c.ChildEnd.Usage.CostUSD
	}
	if got := s.Children; got.Requests != sum.Requests || got.TotalTokens != sum.TotalTokens || math.Abs(got.CostUSD-sum.CostUSD) > 1e-9 {
		return fmt.Errorf("its children have spent %+v, and it knows of %+v", sum, got)
	}
	if parent := s.Start.Parent; parent != "" && !nested {
		named := 0
		for _, c := range runs[parent].Trace {
			if c.Child != nil && c.Child.Run == s.Run {
				named++
			}
		}
		if named != 1 {
			return fmt.Errorf("run %s names it %d times", parent, named)
		}
	}
	return nil
}

// over is by how much the requests of a run and those below it have passed what was
// reserved for them, as estimates do.
func (t *teller) over(s *agent.State, runs map[toolcrib.RunID]*agent.State) (tokens int64, usd float64) {
	var sent *journal.ModelRequest
	for e := range t.journal.Read(context.Background(), s.Run, 0) {
		switch b := e.Body.(type) {
		case *journal.ModelRequest:
			sent = b
		case *journal.Usage:
			tokens += max(0, b.Tokens.InputTokens+b.Tokens.OutputTokens-sent.ReservedInput-sent.ReservedOutput)
			usd += max(0, b.CostUSD-sent.ReservedUSD)
		}
	}
	for _, c := range s.Trace {
		if c.Child != nil && runs[c.Child.Run] != nil {
			n, u := t.over(runs[c.Child.Run], runs)
			tokens, usd = tokens+n, usd+u
		}
	}
	return tokens, usd
}

// holdsBudget checks the budgets of a run that hold: requests exactly, tokens and cost but
// for the error of estimates.
func (t *teller) holdsBudget(s *agent.State, runs map[toolcrib.RunID]*agent.State) error {
	tokens, usd := t.over(s, runs)
	spent := s.Spent()
	within := func(what string, share journal.Share) error {
		switch {
		case share.Requests > 0 && spent.Requests > share.Requests:
			return fmt.Errorf("%s: %d requests of %d", what, spent.Requests, share.Requests)
		case share.Tokens > 0 && spent.TotalTokens > share.Tokens+tokens:
			return fmt.Errorf("%s: %d tokens of %d, and the estimates were wrong by %d", what, spent.TotalTokens, share.Tokens, tokens)
		case share.CostUSD > 0 && spent.CostUSD > share.CostUSD+usd+1e-9:
			return fmt.Errorf("%s: $%g of $%g, and the estimates were wrong by $%g", what, spent.CostUSD, share.CostUSD, usd)
		}
		return nil
	}
	if b := s.Budget(); b.Mode == "" || b.Mode == toolcrib.BudgetEnforce {
		if err := within("budget", journal.Share{CostUSD: b.MaxCostUSD, Tokens: b.MaxTokens, Requests: b.MaxRequests}); err != nil {
			return err
		}
	}
	if s.Start.Share != nil {
		return within("share", *s.Start.Share)
	}
	return nil
}

// holdsCalls checks what was run: once, but for what a person had tried again, and nothing
// that a run above would not have been let run.
func (t *teller) holdsCalls(runs map[toolcrib.RunID]*agent.State) error {
	ran := map[string]int{}
	for _, c := range t.executed {
		s := runs[c.Run]
		if s == nil {
			return fmt.Errorf("call %s ran in run %s, of which nothing is written down", c.ID, c.Run)
		}
		if c.Name == "write" || c.Name == "put" {
			ran[string(c.Run)+c.ID]++
		}
		if n, most := ran[string(c.Run)+c.ID], 1+t.retried[string(c.Run)+c.ID]; n > most {
			return fmt.Errorf("write %s of run %s ran %d times, and was to run %d times at most", c.ID, c.Run, n, most)
		}
		for at := s; at.Start.Parent != ""; at = runs[at.Start.Parent] {
			if err := t.mayRun(runs[at.Start.Parent], at, c); err != nil {
				return fmt.Errorf("run %s of %s: %w", c.Run, s.Start.Agent.Name, err)
			}
		}
	}
	return nil
}

// mayRun asks the gate whether a run above would have been let run a call.
func (t *teller) mayRun(above, below *agent.State, c toolcrib.Call) error {
	p := above.Start
	scope := gate.Scope{
		Agent: p.Agent.Name, AgentTools: p.Agent.Tools, SkillTools: p.SkillTools, RunTools: p.RunTools, WorkerTools: p.WorkerTools, HasSkills: len(p.Skills) > 0,
		ReadOnly: p.Agent.ReadOnly, TaintWrites: p.Agent.TaintWrites, Workspace: p.Workspace, MaxDepth: 100, MaxCalls: 100,
	}
	facts := gate.Facts{Run: p.Parent, Offered: map[string]bool{c.Name: true}, Taint: below.Start.Taint, DryRun: true}
	if c.Tainted && len(facts.Taint) == 0 {
		facts.Taint = []string{"what it has read itself"}
	}
	v := t.gate.Judge(context.Background(), p.Principal, scope, facts, []toolcrib.ToolCall{{ID: c.ID, Name: c.Name, Arguments: c.Arguments}})[0]
	if v.Decision == toolcrib.Refuse {
		return fmt.Errorf("call %s of %s ran, and run %s above would not have been let run it: %s (%s)", c.ID, c.Name, above.Run, v.Reason, v.Message)
	}
	return nil
}

// holdsCut cuts the story after some events, as a lost process does, and plays it to an end
// again.
func (t *teller) holdsCut(tt *testing.T, runs map[toolcrib.RunID]*agent.State) error {
	if t.cut {
		return nil
	}
	for range 2 {
		n := 1 + t.pick(len(t.log))
		again := newTeller(tt, t.saga)
		again.cut, again.position = true, t.position
		for k, v := range t.retried {
			again.retried[k] = v
		}
		for _, l := range t.log[:n] {
			if err := again.journal.Append(context.Background(), l.run, l.event.Seq-1, l.event); err != nil {
				return err
			}
		}
		again.log = t.log[:n:n]
		for _, run := range again.journal.Runs() {
			s, err := agent.Load(context.Background(), again.journal, run)
			if err != nil {
				return err
			}
			if s.Turn != nil && !s.Turn.Whole() {
				return nil // inside an append, which is all or nothing
			}
		}
		if s := again.top(); s == nil || s.Ended() {
			continue
		}
		if err := again.toItsEnd(tt); err != nil {
			return fmt.Errorf("cut after event %d of %s: %w", t.log[n-1].event.Seq, t.log[n-1].run, err)
		}
		if err := again.holds(tt); err != nil {
			return fmt.Errorf("cut after event %d of %s: %w", t.log[n-1].event.Seq, t.log[n-1].run, err)
		}
		if again.top().Start.Agent.Name != "boss" || runs[again.top().Run] == nil {
			return errors.New("another run is at the top")
		}
	}
	return nil
}
