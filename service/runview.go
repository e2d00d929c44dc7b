package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// Run is a run, as in the API.
type Run = api.Run

// pendingOf returns what a run waits for. decided has the decisions on its calls by ID.
func pendingOf(p *journal.Pending, decided map[string]string) *api.Pending {
	if p == nil {
		return nil
	}
	v := &api.Pending{Pending: *p}
	for _, c := range p.Calls {
		v.Calls = append(v.Calls, api.PendingCall{ApprovalItem: c, Decision: decided[c.ID]})
	}
	return v
}

func childrenOf(s *agent.State) []api.Child {
	var all []api.Child
	for _, c := range s.Trace {
		if c.Child == nil {
			continue
		}
		v := api.Child{CallID: c.ID, RunID: c.Child.Run, Agent: c.Child.Agent, Share: c.Child.Share}
		switch {
		case c.ChildEnd != nil:
			v.Status, v.StopReason, v.Usage = c.ChildEnd.Status, c.ChildEnd.StopReason, &c.ChildEnd.Usage
		case c.Waits != nil:
			v.Status = c.Waits.Status
		}
		all = append(all, v)
	}
	return all
}

// runOf returns a run without its trace, and without whether it was interrupted.
func (s *Service) runOf(who toolcrib.Principal, rec store.RunRecord) Run {
	if !s.Env.ReadsDetails(who) {
		rec = rec.Public()
	}
	v := Run{
		ID: rec.ID, Status: rec.Status, StopReason: rec.StopReason, Agent: rec.Agent, Model: rec.Model,
		User: rec.User, Actor: rec.Actor, Token: rec.Token,
		SessionID: rec.Session, ParentID: rec.Parent, Content: rec.Content,
		Truncated: rec.Truncated, Iterations: rec.Iterations, Usage: rec.Usage, Pending: pendingOf(rec.Pending, nil),
		Error: rec.Error, CreatedAt: rec.CreatedAt, Workspace: rec.Workspace, Site: rec.Site,
	}
	if !rec.EndedAt.IsZero() {
		ended := rec.EndedAt
		v.EndedAt = &ended
	}
	if !rec.PrunedAt.IsZero() {
		pruned := rec.PrunedAt
		v.PrunedAt = &pruned
	}
	return v
}

// wholeOf returns a run from its record and its journal.
func (s *Service) wholeOf(ctx context.Context, who toolcrib.Principal, rec store.RunRecord, state *agent.State) Run {
	state = s.Env.StateFor(who, state)
	v := s.withRelated(ctx, who, rec)
	whole(&v, state)
	v.Team = s.teamReport(ctx, who, state)
	v.Approve = string(s.keptApprove(state))
	v.TokensEstimated = state.Usage.Estimated && (!v.Unpriced || state.TokensEstimated)
	v.Children = slices.DeleteFunc(v.Children, func(c api.Child) bool {
		if c.Status != toolcrib.StatusCancelled {
			return false
		}
		// Its ID is in the journal of the run above before it begins. Some cannot be started.
		_, err := s.Env.Store.Run(ctx, c.RunID)
		return errors.Is(err, toolcrib.ErrNotFound)
	})
	return v
}

// outcome returns a run that was driven. It is empty if the run is not in the journal.
func (s *Service) outcome(ctx context.Context, who toolcrib.Principal, state *agent.State, err error) (Run, error) {
	if state == nil || state.Seq == 0 || state.Start == nil {
		return Run{}, err
	}
	ctx = context.WithoutCancel(ctx)
	rec, failed := s.Env.Store.Run(ctx, state.Run)
	if failed != nil {
		return Run{ID: state.Run, Status: state.Status}, cmp.Or(err, failed)
	}
	if state.Status.Parked() { // others may have continued it since
		rec.Status, rec.StopReason, rec.Content, rec.Error, rec.EndedAt = state.Status, "", "", nil, time.Time{}
		rec.Iterations, rec.Usage = state.Iterations, state.Usage
	}
	return s.wholeOf(ctx, who, rec, state), err
}

// whole adds the fields that are in the journal of a run.
func whole(v *Run, s *agent.State) {
	v.Pending, v.Taint, v.Skills = pendingOf(s.Pending, decidedCalls(s)), s.Taint, s.Start.Skills
	if v.Pending != nil && s.Approval != nil {
		v.Pending.Reason = s.Approval.Reason
	}
	v.Course = api.Course{
		MaxIterations: s.Limits().MaxIterations, DrivenMS: s.Driven.Milliseconds(), LastModel: s.Start.Agent.Model,
		Compact: s.Start.Compact, Condensed: s.Epoch, ForkedFrom: s.Start.ForkedFrom, ForkedRound: s.Start.ForkedRound,
	}
	if s.Stopping != nil {
		v.Stopping, v.StoppedBy = s.Stopping.Message, s.Stopping.By
	}
	for _, m := range s.Models[:min(s.Model+1, len(s.Models))] {
		v.Unpriced, v.LastModel = v.Unpriced || !m.Price.Known, m.Ref
	}
	v.Context, v.ContextSize = s.Context()
	v.Trace = make([]api.TraceCall, 0, len(s.Trace))
	for _, c := range s.Trace {
		v.Trace = append(v.Trace, traceOf(c))
	}
	if v.Children = childrenOf(s); len(v.Children) > 0 {
		spent := s.Spent()
		v.Spent = &spent
	}
}

// shownTo returns the run without positions in the configuration, unless who may read it.
func shownTo(who toolcrib.Principal, v Run) Run {
	for i := range v.Trace {
		if !env.ReadsConfig(who) {
			v.Trace[i].Position = ""
		}
	}
	return v
}

func traceOf(c *core.Call) api.TraceCall {
	t := api.TraceCall{ID: c.ID, Name: c.Name, Arguments: journal.ViewCall(&c.ToolCall).Arguments}
	if c.ProviderName != "" {
		t.Name = c.ProviderName
	}
	t.Converted = c.Converted
	if r := c.Result; r != nil {
		t.Status, t.IsError, t.Result, t.Reason, t.DurationMS = r.Status, r.IsError, r.Content, r.Reason, r.DurationMS
		t.Untrusted = r.Untrusted
	}
	if c.Decision != nil {
		t.Edited = c.Decision.Arguments
	}
	if c.Verdict != nil {
		t.Rule, t.Position = c.Verdict.Rule, c.Verdict.Position
	}
	return t
}

// openCalls returns the calls of the open approval without a decision.
func openCalls(s *agent.State) []journal.ApprovalItem {
	decided := decidedCalls(s)
	var open []journal.ApprovalItem
	for _, item := range s.Approval.Calls {
		if decided[item.ID] == "" {
			open = append(open, item)
		}
	}
	return open
}

// decidedCalls returns the decisions on the calls of the open approval, by their IDs.
func decidedCalls(s *agent.State) map[string]string {
	decided := map[string]string{}
	if s.Approval == nil {
		return decided
	}
	for _, c := range s.Trace {
		switch {
		case c.DecidedBy != nil && c.DecidedBy.ApprovalID == s.Approval.ApprovalID:
			decided[c.ID] = c.Decision.Decision
		case c.Doubt != nil:
			decided[c.ID] = c.Doubt.Decision
		case c.Answer != nil:
			decided[c.ID] = c.Answer.Decision
		}
	}
	return decided
}
