package gate_test

import (
	"encoding/json"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// A remembered decision lifts the question of tools.confirm, and nothing else.
func TestH16_RememberedLiftsOneThing(t *testing.T) {
	any := journal.Remembered{Tool: "x", Source: "builtin", Effect: toolcrib.EffectNonIdempotentWrite, Scope: "run", ApprovalID: "apr_1", By: "ann"}
	one := any
	one.Arguments = json.RawMessage(`{"n":1}`)
	mild := any
	mild.Effect = toolcrib.EffectIdempotentWrite
	other := any
	other.Tool = "y"
	elsewhere := any
	elsewhere.Source = "client"
	for _, c := range []struct {
		name       string
		remembered journal.Remembered
		settings   gate.ConfirmMode
		scope      func(*gate.Scope)
		want       toolcrib.Decision
		reason     toolcrib.Reason
	}{
		{"tool", any, "", nil, toolcrib.Allow, ""},
		{"same arguments", one, "", nil, toolcrib.Allow, ""},
		{"a tool of the same name", elsewhere, "", nil, toolcrib.Ask, toolcrib.ReasonNeedsConfirmation},
		{"another tool", other, "", nil, toolcrib.Ask, toolcrib.ReasonNeedsConfirmation},
		{"a worse effect", mild, "", nil, toolcrib.Ask, toolcrib.ReasonNeedsConfirmation},
		{"nothing", journal.Remembered{}, "", nil, toolcrib.Ask, toolcrib.ReasonNeedsConfirmation},
		{"always asks", any, gate.ConfirmAlways, nil, toolcrib.Ask, toolcrib.ReasonNeedsConfirmation},
		{"read only", any, "", func(s *gate.Scope) { s.ReadOnly = true }, toolcrib.Refuse, toolcrib.ReasonReadOnlyMode},
		{"not of the agent", any, "", func(s *gate.Scope) { s.AgentTools = []string{} }, toolcrib.Refuse, toolcrib.ReasonAgentAllowlist},
		{"nobody asks", any, "", func(s *gate.Scope) { s.Unattended = true }, toolcrib.Allow, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gateOf(t, gate.Options{
				Tools: []toolcrib.Tool{tool(writes("x"))}, Settings: map[string]gate.ToolSettings{"x": {Confirm: c.settings}},
			})
			scope := wide()
			scope.Workspace = ""
			if c.scope != nil {
				c.scope(&scope)
			}
			facts := gate.Facts{Offered: map[string]bool{"x": true}, Remembered: []journal.Remembered{c.remembered}}
			v := g.Judge(t.Context(), alice(), scope, facts, []toolcrib.ToolCall{call("1", "x", `{"n":1}`)})[0]
			if v.Decision != c.want || v.Reason != c.reason {
				t.Fatalf("%q %q (%s), want %q %q", v.Decision, v.Reason, v.Message, c.want, c.reason)
			}
		})
	}
}

// What is remembered keeps lifting its question once a person has answered the others: one
// answer is enough.
func TestH16_RememberedBesideADecision(t *testing.T) {
	m := journal.Remembered{Tool: "x", Source: "builtin", Effect: toolcrib.EffectNonIdempotentWrite, Scope: "user", ApprovalID: "apr_9", By: "ann"}
	g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(writes("x"))}})
	scope, facts := wide(), gate.Facts{
		Offered: map[string]bool{"x": true}, Taint: []string{"example.com"}, Remembered: []journal.Remembered{m},
	}
	scope.Workspace = ""
	judge := func() gate.Verdict {
		return g.Judge(t.Context(), alice(), scope, facts, []toolcrib.ToolCall{call("1", "x", `{"n":1}`)})[0]
	}
	first := judge()
	if first.Decision != toolcrib.Ask || len(first.Questions) != 1 || first.Reason != toolcrib.ReasonTaintedFlow {
		t.Fatalf("%+v", first)
	}
	decided := approve(first)
	facts.Decided = map[string]gate.Decided{"1": decided}
	if v := judge(); v.Decision != toolcrib.Allow || v.Approval != decided.ApprovalID || v.ApprovedBy != "" || v.Detail != "" {
		t.Errorf("asked twice: %+v", v)
	}
	facts.Remembered = nil // meanwhile it was revoked
	if v := judge(); v.Decision != toolcrib.Ask {
		t.Errorf("%+v", v)
	}
}

// What was remembered of calls that wrote no file holds for none that writes one, whatever else fits. What was
// remembered of a file or folder holds for each built-in tool that writes files.
func TestH16_RememberedWithoutAFile(t *testing.T) {
	x := &fullTool{files: func() ([]toolcrib.FileState, error) {
		return []toolcrib.FileState{{Path: "/w/a", State: "sha256:1"}}, nil
	}}
	x.spec = writes("x")
	x.targets = func(toolcrib.Call) []toolcrib.Target {
		return []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: "/w/a", Write: true}}
	}
	g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{x}})
	m := journal.Remembered{Tool: "x", Source: "builtin", Effect: toolcrib.EffectNonIdempotentWrite, Scope: "user", ApprovalID: "apr_1", By: "ann"}
	same := m
	same.Arguments = json.RawMessage(`{"n":1}`)
	right := m
	right.Path = "/w/a"
	folder, other, foreign := right, right, right
	folder.Path, folder.Folder, folder.Tool, other.Tool = "/w", true, "y", "y"
	foreign.Tool, foreign.Source = "y", "client"
	line := other
	line.Arguments = json.RawMessage(`{"n":1}`)
	scope := wide()
	scope.Workspace = ""
	for name, c := range map[string]struct {
		m    journal.Remembered
		want toolcrib.Decision
	}{
		"the tool": {m, toolcrib.Ask}, "the same arguments": {same, toolcrib.Ask}, "the file": {right, toolcrib.Allow},
		"the file by another tool": {other, toolcrib.Allow}, "the folder by another tool": {folder, toolcrib.Allow},
		"by a tool from elsewhere": {foreign, toolcrib.Ask}, "the arguments of another tool": {line, toolcrib.Ask},
	} {
		facts := gate.Facts{Offered: map[string]bool{"x": true}, Remembered: []journal.Remembered{c.m}}
		if v := g.Judge(t.Context(), alice(), scope, facts, []toolcrib.ToolCall{call("1", "x", `{"n":1}`)})[0]; v.Decision != c.want {
			t.Errorf("%s: %q: %s", name, v.Decision, v.Message)
		}
	}
}
