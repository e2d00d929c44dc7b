package service

import (
	"encoding/json"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
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
	Skills    []journal.Skill `json:"skills,omitempty"` // not in lists
	Pending   *Pending        `json:"pending"`
	Error     *store.RunError `json:"error"`
	CreatedAt time.Time       `json:"created_at"`
	EndedAt   *time.Time      `json:"ended_at"`
	PrunedAt  *time.Time      `json:"pruned_at,omitempty"` // when its content was removed
	// Interrupted is set if the run was cut off and nobody drives it.
	Interrupted bool `json:"interrupted,omitempty"`

	// What is not part of the JSON: where the run works, what it was asked (of lists, where it
	// is wanted), and of one run what is known of those around it.
	Workspace string         `json:"-"`
	Prompt    string         `json:"-"` // the beginning of it, in one line; "" = it was pruned
	Driven    bool           `json:"-"` // a process drives it, or may
	Caller    string         `json:"-"` // the agent of the run that started it; "" = not known
	Top       toolcrib.RunID `json:"-"` // the run at the top of it that is resumed; "" = none, or it has ended
	Decided   bool           `json:"-"` // the run below for which it waits does not wait any more
}

// Pending is what a parked run waits for, with what was decided of it so far.
type Pending struct {
	journal.Pending
	Calls []PendingCall `json:"calls,omitempty"`
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
	Arguments  any                   `json:"arguments"`
	Status     toolcrib.ResultStatus `json:"status"` // "" = it has no result yet
	IsError    bool                  `json:"is_error"`
	Result     string                `json:"result"`
	Reason     toolcrib.Reason       `json:"reason"`
	DurationMS int64                 `json:"duration_ms"`
	// Rule decided about the call, and Position is where the configuration says so.
	Rule     string `json:"rule,omitempty"`
	Position string `json:"position,omitempty"`
}

// runOf is a run without its trace, as lists show it.
func (s *Service) runOf(rec store.RunRecord) Run {
	v := Run{
		ID: rec.ID, Status: rec.Status, StopReason: rec.StopReason, Agent: rec.Agent, Model: rec.Model,
		User: rec.User, Actor: rec.Actor, SessionID: rec.Session, ParentID: rec.Parent, Content: rec.Content,
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

// whole adds to a run what its journal has beyond its record.
func (v *Run) whole(s *agent.State) {
	v.Pending, v.Taint, v.Skills = pendingOf(s.Pending, decidedCalls(s)), s.Taint, s.Start.Skills
	v.Trace = make([]TraceCall, 0, len(s.Trace))
	for _, c := range s.Trace {
		v.Trace = append(v.Trace, traceOf(c))
	}
	if v.Children = childrenOf(s); len(v.Children) > 0 {
		spent := s.Spent()
		v.Spent = &spent
	}
}

func traceOf(c *agent.Call) TraceCall {
	t := TraceCall{ID: c.ID, Name: c.Name, Arguments: Arguments(&c.ToolCall)}
	if c.ProviderName != "" {
		t.Name = c.ProviderName
	}
	if r := c.Result; r != nil {
		t.Status, t.IsError, t.Result, t.Reason, t.DurationMS = r.Status, r.IsError, r.Content, r.Reason, r.DurationMS
	}
	if c.Verdict != nil {
		t.Rule, t.Position = c.Verdict.Rule, c.Verdict.Position
	}
	return t
}

// Arguments are an object, or the text that a model sent where it was none.
func Arguments(c *toolcrib.ToolCall) any {
	switch {
	case c.Broken != "":
		return c.Broken
	case len(c.Arguments) == 0:
		return json.RawMessage("{}")
	}
	return c.Arguments
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
