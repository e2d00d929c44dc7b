package service

import (
	"context"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/store"
)

// Tool is a tool as contract §9 has it.
type Tool struct {
	gate.State
	Calls  int64 `json:"calls"`
	Errors int64 `json:"errors"`
}

// Tools returns all tools, and whether they are enabled. They are no secret of anybody who
// is known here.
func (s *Service) Tools(ctx context.Context, who toolcrib.Principal) ([]Tool, error) {
	if err := somebody(who); err != nil {
		return nil, err
	}
	g, _, err := s.lookingGate("")
	if err != nil {
		return nil, err
	}
	states, err := g.States(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.Usage(ctx, store.UsageQuery{By: store.UsageByTool, Limit: store.MaxUsageRows})
	if err != nil {
		return nil, err
	}
	uses := make(map[string]store.UsageRow, len(rows))
	for _, r := range rows {
		uses[r.Key] = r
	}
	s.tellMCP(s.mcp.all(), s.Notice)
	tools := make([]Tool, len(states))
	for i, t := range states {
		tools[i] = Tool{State: t, Calls: uses[t.Name].Calls, Errors: uses[t.Name].Errors}
	}
	return tools, nil
}

// Tool returns the tool of a name.
func (s *Service) Tool(ctx context.Context, who toolcrib.Principal, name string) (Tool, error) {
	tools, err := s.Tools(ctx, who)
	if err != nil {
		return Tool{}, err
	}
	for _, t := range tools {
		if t.Name == name {
			return t, nil
		}
	}
	return Tool{}, noTool(name, tools)
}

func noTool(name string, tools []Tool) error {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	if near := guard.Nearest(name, names); near != "" {
		return toolcrib.Errorf(toolcrib.CodeNotFound, "there is no tool %q; did you mean %q?", name, near)
	}
	return toolcrib.Errorf(toolcrib.CodeNotFound, "there is no tool %q", name)
}

// SwitchRequest asks to switch a tool or a group of tools.
type SwitchRequest struct {
	Tool, Group string // one of them
	Enabled     bool
	Reset       bool // the default holds again, instead
}

// Switched is what became of a switch.
type Switched struct {
	Changed bool   // false = it was so already
	Tools   []Tool // that it is about, as they are now; none = what was reset no longer exists
}

// SwitchTool sets or resets an override, for administrators. It holds at the next call,
// also in runs that go on.
func (s *Service) SwitchTool(ctx context.Context, who toolcrib.Principal, q SwitchRequest) (out Switched, err error) {
	if _, err := Administrator(who); err != nil {
		return out, err
	}
	if err := s.OpenFor(ctx, who); err != nil {
		return out, err
	}
	o := store.Override{Kind: store.OverrideTool, Name: q.Tool, Enabled: q.Enabled, By: agent.NameOf(who)}
	if q.Group != "" {
		o.Kind, o.Name = store.OverrideGroup, q.Group
	}
	if err := s.switchable(ctx, who, q, o); err != nil {
		return out, err
	}
	if q.Reset {
		out.Changed, err = s.store.ResetOverride(ctx, o.Kind, o.Name, o.By)
	} else {
		out.Changed, err = s.store.SetOverride(ctx, o)
	}
	if err != nil {
		return out, err
	}
	tools, err := s.Tools(ctx, who)
	for _, t := range tools {
		if q.isAbout(t) {
			out.Tools = append(out.Tools, t)
		}
	}
	return out, err
}

func (q *SwitchRequest) isAbout(t Tool) bool {
	if q.Group != "" {
		return t.Group == q.Group
	}
	return t.Name == q.Tool
}

// switchable refuses names that mean nothing. What was switched can be reset always: the
// tool may have gone since.
func (s *Service) switchable(ctx context.Context, who toolcrib.Principal, q SwitchRequest, o store.Override) error {
	if q.Reset {
		overrides, err := s.store.Overrides(ctx)
		if err != nil {
			return err
		}
		for _, old := range overrides {
			if old.Kind == o.Kind && old.Name == o.Name {
				return nil
			}
		}
	}
	tools, err := s.Tools(ctx, who)
	if err != nil {
		return err
	}
	for _, t := range tools {
		if q.isAbout(t) {
			return nil
		}
	}
	if q.Group == toolcrib.GroupClient { // its tools come with runs
		return nil
	}
	if q.Group != "" {
		return toolcrib.Errorf(toolcrib.CodeNotFound, "there is no group %q", q.Group)
	}
	return noTool(q.Tool, tools)
}
