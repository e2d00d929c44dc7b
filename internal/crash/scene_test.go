package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/store"
)

// scene is what the journals amount to at some moment.
type scene struct {
	top   *agent.State
	runs  map[toolcrib.RunID]*agent.State // all of them
	waits *agent.State                    // whose decision is waited for; nil = nobody's
}

// all are the runs, oldest first.
func (n *scene) all() []*agent.State {
	var all []*agent.State
	for _, id := range slices.Sorted(maps.Keys(n.runs)) {
		all = append(all, n.runs[id])
	}
	return all
}

// calls are the calls of all runs.
func (n *scene) calls() []*core.Call {
	var calls []*core.Call
	for _, s := range n.all() {
		calls = append(calls, s.Trace...)
	}
	return calls
}

// look folds the current journals, and checks their invariants. It returns nil if no run exists yet.
func (h *Harness) look(ctx context.Context, s *Story) (now *scene, err error) {
	if len(s.Steps) == 0 {
		return nil, nil
	}
	st, err := openStore(ctx, s.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	page, err := st.Runs(ctx, store.Filter{Limit: store.MaxLimit})
	if err != nil || len(page.Runs) == 0 {
		return nil, err
	}
	if now, err = load(ctx, st, page); err != nil {
		return nil, err
	}
	if now.waits, err = (&agent.Runner{Options: agent.Options{Journal: st}}).WaitsFor(ctx, now.top.Run); err != nil {
		return nil, err
	}
	if s.Scenario.early {
		now.first()
	}
	if len(now.runs) > 1 {
		if _, err := st.VerifyAll(ctx); err != nil {
			s.problemf("verify of all: %v", err)
		}
	}
	s.tree(now)
	times, err := s.executions()
	if err != nil {
		return nil, err
	}
	for _, c := range now.calls() {
		if before, ok := s.finished[c.ID]; ok && before != times[c.ID] {
			s.problemf("call %s had finished, and was executed again", c.ID)
		}
		if c.Result != nil {
			s.finished[c.ID] = times[c.ID]
		}
	}
	return now, nil
}

func load(ctx context.Context, st *synced, page store.Page) (*scene, error) {
	now := &scene{runs: map[toolcrib.RunID]*agent.State{}}
	for i := range page.Runs {
		rec := &page.Runs[i]
		state, err := agent.Load(ctx, st, rec.ID)
		if err != nil {
			return nil, err
		}
		now.runs[rec.ID] = state
		switch {
		case state.Start.Parent != rec.Parent || state.Start.Agent.Name != rec.Agent:
			return nil, fmt.Errorf("the list has run %s as one of %s, below %q", rec.ID, rec.Agent, rec.Parent)
		case rec.Parent != "":
		case now.top != nil:
			return nil, fmt.Errorf("there are %d runs, and several at the top", len(page.Runs))
		default:
			now.top = state
		}
	}
	if now.top == nil {
		return nil, errors.New("there is no run at the top")
	}
	return now, nil
}

// first makes the oldest run that waits by itself the one to be decided on, whether
// those above it know of that or not.
func (n *scene) first() {
	for _, s := range n.all() {
		if !s.Ended() && s.Pending != nil && s.Pending.Run == "" && core.Next(s).Kind == core.StepWait {
			n.waits = s
			return
		}
	}
}
