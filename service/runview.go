package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/team"
)

// Run is a run as contract §9 has it.
type Run struct {
	ID         toolcrib.RunID      `json:"id"`
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason"`
	Agent      string              `json:"agent"`
	Model      string              `json:"model"`
	User       string              `json:"user"`
	Actor      string              `json:"actor,omitempty"`
	Token      string              `json:"token_id,omitempty"` // of the access token that started it
	SessionID  toolcrib.SessionID  `json:"session_id"`
	ParentID   toolcrib.RunID      `json:"parent_id"`
	Content    string              `json:"content"`
	Truncated  bool                `json:"truncated"`
	Iterations int                 `json:"iterations"`
	Trace      []TraceCall         `json:"trace,omitzero"` // not in lists
	Usage      toolcrib.Usage      `json:"usage"`
	// with all runs below it that have ended; not in lists
	Spent    *toolcrib.Usage `json:"usage_with_children,omitempty"`
	Children []Child         `json:"children,omitempty"` // the runs that it started; not in lists
	// sources of untrusted data that it has read; not in lists
	Taint     []string        `json:"taint,omitempty"`
	canary    string          // of the data in it
	Asked     string          `json:"-"`                // see [journal.RunStarted]
	Skills    []journal.Skill `json:"skills,omitempty"` // not in lists
	Pending   *Pending        `json:"pending"`
	Error     *store.RunError `json:"error"`
	CreatedAt time.Time       `json:"created_at"`
	EndedAt   *time.Time      `json:"ended_at"`
	PrunedAt  *time.Time      `json:"pruned_at,omitempty"` // when its content was removed
	// Interrupted is set if the run was cut off and nobody drives it.
	Interrupted bool   `json:"interrupted,omitempty"`
	Workspace   string `json:"workspace,omitempty"`
	// Prompt is the beginning of what it was asked, in one line; only in lists, where it is
	// wanted, and "" if it was pruned.
	Prompt string `json:"prompt,omitempty"`
	// Team is what the agents of a team have said; not in lists.
	Team *team.Report `json:"team,omitempty"`
	Around
	Course
}

// Around is what is known of the runs around a run; not in lists.
type Around struct {
	LastSeq toolcrib.Seq       `json:"last_seq,omitempty"` // the number of its last event
	Driver  string             `json:"driver,omitempty"`   // whose it is: cli or server
	Driven  bool               `json:"driven,omitempty"`   // a process drives it, or may
	Beside  toolcrib.SessionID `json:"beside,omitempty"`   // the session in which a person made its given call
	Caller  string             `json:"caller,omitempty"`   // the agent of the run that started it; "" = not known
	// Top is the run at the top of it, which is the one to be resumed; "" = none, or it has ended.
	Top     toolcrib.RunID `json:"top_id,omitempty"`
	Decided bool           `json:"decided,omitempty"` // the run below for which it waits does not wait any more
}

// Course is how a run went, as far as its journal is there; not in lists.
type Course struct {
	// Stopping says why it ends before the model was done, and StoppedBy what ends it.
	Stopping      string `json:"stopping,omitempty"`
	StoppedBy     string `json:"stopped_by,omitempty"`
	MaxIterations int    `json:"max_iterations,omitempty"` // with what was granted
	DrivenMS      int64  `json:"driven_ms,omitempty"`      // under a driver; not while a person decides
	LastModel     string `json:"last_model,omitempty"`     // that answered, or will; "" = the run has none
	// Unpriced is set if no price is known of a model that it used, and TokensEstimated if
	// some of its tokens were estimated.
	Unpriced        bool           `json:"unpriced,omitempty"`
	TokensEstimated bool           `json:"tokens_estimated,omitempty"`
	Context         int64          `json:"context_tokens,omitempty"` // how much the next request would have, estimated
	ContextSize     int64          `json:"context_size,omitempty"`   // the model's; 0 = unknown
	Approve         agent.Approve  `json:"approve,omitempty"`        // all or deny: it keeps to it
	Compact         bool           `json:"compact,omitempty"`        // it only condenses what was said
	Condensed       int            `json:"condensed,omitempty"`      // how often what was said was condensed or dropped
	ForkedFrom      toolcrib.RunID `json:"forked_from,omitempty"`
	ForkedRound     int            `json:"forked_round,omitempty"`
}

// Duration is the time under a driver.
func (c *Course) Duration() time.Duration { return time.Duration(c.DrivenMS) * time.Millisecond }

// Pending is what a parked run waits for, with what was decided of it so far.
type Pending struct {
	journal.Pending
	Calls  []PendingCall `json:"calls,omitempty"`
	Reason string        `json:"reason,omitempty"` // why a person is asked; not in lists
}

// Ask is the approval that the run waits for, with all of its calls.
func (p *Pending) Ask() *journal.ConfirmationRequired {
	ask := &journal.ConfirmationRequired{
		ApprovalID: p.ApprovalID, Digest: p.Digest, Kind: journal.ApprovalKind(p.Kind),
		Reason: p.Reason, Question: p.Question, Schema: p.Schema,
	}
	for _, c := range p.Calls { // those of the embedded one are not read from JSON
		ask.Calls = append(ask.Calls, c.ApprovalItem)
	}
	return ask
}

// Open are its calls that nobody has decided on yet.
func (p *Pending) Open() (open []journal.ApprovalItem) {
	for _, c := range p.Calls {
		if c.Decision == "" {
			open = append(open, c.ApprovalItem)
		}
	}
	return open
}

type PendingCall struct {
	journal.ApprovalItem
	Decision string `json:"decision,omitempty"` // "" = open; not in lists
}

// pendingOf views what a run waits for; decided are the words on its calls by ID.
func pendingOf(p *journal.Pending, decided map[string]string) *Pending {
	if p == nil {
		return nil
	}
	v := &Pending{Pending: *p}
	for _, c := range p.Calls {
		v.Calls = append(v.Calls, PendingCall{ApprovalItem: c, Decision: decided[c.ID]})
	}
	return v
}

// Child is a run that answers a call of another.
type Child struct {
	CallID     string              `json:"call_id"`
	RunID      toolcrib.RunID      `json:"run_id"`
	Agent      string              `json:"agent"`
	Status     toolcrib.Status     `json:"status,omitempty"` // "" = it continues, or was cut off
	StopReason toolcrib.StopReason `json:"stop_reason,omitempty"`
	Share      *journal.Share      `json:"share,omitempty"` // what it may spend of this run's budget; absent = no cap
	Usage      *toolcrib.Usage     `json:"usage,omitempty"` // with the runs below it, when it has ended
}

func childrenOf(s *agent.State) []Child {
	var all []Child
	for _, c := range s.Trace {
		if c.Child == nil {
			continue
		}
		v := Child{CallID: c.ID, RunID: c.Child.Run, Agent: c.Child.Agent, Share: c.Child.Share}
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

type TraceCall struct {
	ID         string                `json:"id"`
	Name       string                `json:"name"`
	Arguments  json.RawMessage       `json:"arguments"` // an object; the text as it came if it was none
	Status     toolcrib.ResultStatus `json:"status"`    // "" = it has no result yet
	IsError    bool                  `json:"is_error"`
	Result     string                `json:"result"`
	Reason     toolcrib.Reason       `json:"reason"`
	DurationMS int64                 `json:"duration_ms"`
	// Rule decided about the call, and Position is where the configuration says so.
	Rule     string `json:"rule,omitempty"`
	Position string `json:"position,omitempty"`
	// Converted says what was converted in the arguments that the model sent.
	Converted []string `json:"converted,omitempty"`
	// Edited are the arguments that a person gave in place of the model's.
	Edited    json.RawMessage `json:"edited_arguments,omitempty"`
	Untrusted bool            `json:"untrusted,omitempty"` // the result is untrusted data
}

// runOf is a run without its trace, as lists show it.
func (s *Service) runOf(who toolcrib.Principal, rec store.RunRecord) Run {
	if !s.Env.ReadsDetails(who) {
		rec = rec.Public()
	}
	v := Run{
		ID: rec.ID, Status: rec.Status, StopReason: rec.StopReason, Agent: rec.Agent, Model: rec.Model,
		User: rec.User, Actor: rec.Actor, Token: rec.Token,
		SessionID: rec.Session, ParentID: rec.Parent, Content: rec.Content,
		Truncated: rec.Truncated, Iterations: rec.Iterations, Usage: rec.Usage, Pending: pendingOf(rec.Pending, nil),
		Error: rec.Error, CreatedAt: rec.CreatedAt, Workspace: rec.Workspace, Interrupted: s.interrupted(rec),
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

// wholeOf is a run of which the journal was read: its record, and what the journal has beyond.
func (s *Service) wholeOf(ctx context.Context, who toolcrib.Principal, rec store.RunRecord, state *agent.State) Run {
	state = s.Env.StateFor(who, state)
	v := s.around(ctx, who, rec)
	v.whole(state)
	v.Team = s.teamReport(ctx, who, state)
	v.Approve = s.keptApprove(state)
	v.TokensEstimated = state.Usage.Estimated && (!v.Unpriced || state.TokensEstimated)
	v.Children = slices.DeleteFunc(v.Children, func(c Child) bool {
		if c.Status != toolcrib.StatusCancelled {
			return false
		}
		// Its ID is in the journal of the run above before it begins, and some cannot
		// be started.
		_, err := s.Env.Store.Run(ctx, c.RunID)
		return errors.Is(err, toolcrib.ErrNotFound)
	})
	return v
}

// outcome is what has become of a run that was driven; empty if nothing of it was written
// down.
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

// whole adds to a run what its journal has beyond its record.
func (v *Run) whole(s *agent.State) {
	v.Pending, v.Taint, v.Skills = pendingOf(s.Pending, decidedCalls(s)), s.Taint, s.Start.Skills
	v.canary, v.Asked = s.Start.Canary, s.Start.Asked
	if v.Pending != nil && s.Approval != nil {
		v.Pending.Reason = s.Approval.Reason
	}
	v.Course = Course{
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
	v.Trace = make([]TraceCall, 0, len(s.Trace))
	for _, c := range s.Trace {
		v.Trace = append(v.Trace, traceOf(c))
	}
	if v.Children = childrenOf(s); len(v.Children) > 0 {
		spent := s.Spent()
		v.Spent = &spent
	}
}

// shownTo is the run without the places of the configuration, unless who reads that.
func (v Run) shownTo(who toolcrib.Principal) Run {
	for i := range v.Trace {
		if !env.ReadsConfig(who) {
			v.Trace[i].Position = ""
		}
	}
	return v
}

func traceOf(c *core.Call) TraceCall {
	t := TraceCall{ID: c.ID, Name: c.Name, Arguments: journal.ViewCall(&c.ToolCall).Arguments}
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

// OpenCalls are the calls of the open approval that nobody has decided on yet.
func OpenCalls(s *agent.State) []journal.ApprovalItem {
	decided := decidedCalls(s)
	var open []journal.ApprovalItem
	for _, item := range s.Approval.Calls {
		if decided[item.ID] == "" {
			open = append(open, item)
		}
	}
	return open
}

// decidedCalls are the words on the calls of the open approval, by their IDs.
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
