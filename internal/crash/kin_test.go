package crash

import (
	"math"
	"path/filepath"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
)

// tree checks the invariants of a run tree: a run begins after its parent has named it, once, and a
// run below one that has ended has ended.
func (s *Story) tree(now *scene) {
	calls := map[toolcrib.RunID]string{}
	for _, parent := range now.all() {
		for _, c := range parent.Trace {
			if c.Child == nil {
				continue
			}
			if other, ok := calls[c.Child.Run]; ok {
				s.problemf("calls %s and %s are answered by the same run", other, c.ID)
			}
			calls[c.Child.Run] = c.ID
			child := now.runs[c.Child.Run]
			switch {
			case child == nil:
			case child.Start.Parent != parent.Run || child.Start.Agent.Name != c.Child.Agent || child.Start.Depth != parent.Start.Depth+1:
				s.problemf("the run of call %s is one of %s at depth %d, below %q", c.ID, child.Start.Agent.Name, child.Start.Depth, child.Start.Parent)
			case !child.Ended() && (parent.Ended() || c.Result != nil || c.ChildEnd != nil):
				s.problemf("call %s is over, and the run that answers it is %s", c.ID, child.Status)
			}
		}
	}
	for id, run := range now.runs {
		if _, named := calls[id]; !named && run.Start.Parent != "" {
			s.problemf("run %s of %s was started by no call", id, run.Start.Agent.Name)
		}
	}
}

// kin goes through the journal of a run and looks at what it says of those that it
// started.
func (s *Story) kin(parent *agent.State, events []toolcrib.Event, now *scene) {
	runs, ended := map[string]toolcrib.RunID{}, map[string]bool{}
	for _, e := range events {
		switch b := e.Body.(type) {
		case *journal.ChildStarted:
			if runs[b.ID] != "" {
				s.problemf("call %s started run %s after %s", b.ID, b.Run, runs[b.ID])
			}
			runs[b.ID] = b.Run
		case *journal.ChildEnded:
			ended[b.ID] = true
			s.told(b, now.runs[b.Run])
		case *journal.ToolResult:
			if run := runs[b.ToolCallID]; run != "" && now.runs[run] != nil && !ended[b.ToolCallID] {
				s.problemf("call %s was answered, and nothing was said of the end of its run", b.ToolCallID)
			}
		}
	}
	sum := parent.Usage
	for _, c := range parent.Trace {
		if c.Child == nil || now.runs[c.Child.Run] == nil {
			continue
		}
		spent := now.runs[c.Child.Run].Spent()
		sum = added(sum, spent)
		if share := c.Child.Share; share != nil {
			s.within("the share of "+c.ID, spent, toolcrib.Budget{MaxCostUSD: share.CostUSD, MaxTokens: share.Tokens, MaxRequests: share.Requests})
		}
	}
	if spent := parent.Spent(); sum.Requests != spent.Requests || sum.TotalTokens != spent.TotalTokens || math.Abs(sum.CostUSD-spent.CostUSD) > 1e-9 {
		s.problemf("run %s has spent %+v, and it and those below it %+v", parent.Run, spent, sum)
	}
}

// told checks how a parent recorded the end of a child run. child is nil if it never began.
func (s *Story) told(b *journal.ChildEnded, child *agent.State) {
	switch {
	case child == nil && (b.Status != toolcrib.StatusCancelled || b.Usage != toolcrib.Usage{}):
		s.problemf("the run of call %s never began, and ended as %s with %+v", b.ID, b.Status, b.Usage)
	case child == nil:
	case b.Status != child.Status || b.Usage != child.Spent():
		s.problemf("the run of call %s ended as %s with %+v, and its parent was told %s with %+v", b.ID, child.Status, child.Spent(), b.Status, b.Usage)
	}
}

// budget checks that the whole run tree stayed within the budget of the run at the top, and that no
// request is missing.
func (s *Story) budget(now *scene) error {
	if s.Scenario.team == nil {
		return nil
	}
	asked, err := lines(filepath.Join(s.dir, askedFile))
	if err != nil {
		return err
	}
	spent := now.top.Spent()
	if len(asked) > spent.Requests {
		s.problemf("%d requests reached a model, and %d were counted", len(asked), spent.Requests)
	}
	b, more := s.Scenario.budget, now.top.Granted
	if b.MaxRequests > 0 {
		b.MaxRequests += more.Requests
	}
	if b.MaxTokens > 0 {
		b.MaxTokens += more.Tokens
	}
	if b.MaxCostUSD > 0 {
		b.MaxCostUSD += more.CostUSD
	}
	s.within("the budget", spent, b)
	return nil
}

func (s *Story) within(what string, u toolcrib.Usage, b toolcrib.Budget) {
	if b.MaxRequests > 0 && u.Requests > b.MaxRequests || b.MaxTokens > 0 && u.TotalTokens > b.MaxTokens || b.MaxCostUSD > 0 && u.CostUSD > b.MaxCostUSD+1e-9 {
		s.problemf("%s is %+v, and %+v was spent", what, b, u)
	}
}

func added(a, b toolcrib.Usage) toolcrib.Usage {
	a.Requests += b.Requests
	a.TotalTokens += b.TotalTokens
	a.CostUSD += b.CostUSD
	return a
}
