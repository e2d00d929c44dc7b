package gate_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// A call that would change nothing is not asked about, and runs as one that only reads. Refusals are as for a write,
// and what a rule or the setting always asks is asked.
func TestH16_NoEffect(t *testing.T) {
	idle := &planned{plainTool{writes("idle")}, &toolcrib.Plan{NoEffect: true, Run: tool(writes("idle")).Call}}
	ask := fakeRules{rules: []worldRule{{name: "asks", then: gate.RuleAsk}}}
	for _, c := range []struct {
		name    string
		options gate.Options
		scope   func(*gate.Scope)
		facts   func(*gate.Facts)
		before  string // an earlier call of the turn
		want    toolcrib.Decision
		reason  toolcrib.Reason
	}{
		{name: "by tools.confirm", want: toolcrib.Allow},
		{name: "always", options: gate.Options{Confirm: gate.ConfirmAlways}, want: toolcrib.Ask, reason: toolcrib.ReasonNeedsConfirmation},
		{
			name:    "always by its setting",
			options: gate.Options{Settings: map[string]gate.ToolSettings{"idle": {Confirm: gate.ConfirmAlways}}},
			want:    toolcrib.Ask, reason: toolcrib.ReasonNeedsConfirmation,
		},
		{name: "a rule asks", options: gate.Options{Rules: ask}, want: toolcrib.Ask, reason: toolcrib.ReasonNeedsConfirmation},
		{name: "read only", scope: func(s *gate.Scope) { s.ReadOnly = true }, want: toolcrib.Refuse, reason: toolcrib.ReasonReadOnlyMode},
		{name: "without a person", scope: func(s *gate.Scope) { s.Unattended = true }, want: toolcrib.Allow},
		{name: "tainted", facts: func(f *gate.Facts) { f.Taint = []string{"x"} }, want: toolcrib.Allow},
		{
			name: "tainted, which denies", facts: func(f *gate.Facts) { f.Taint = []string{"x"} },
			scope: func(s *gate.Scope) { s.TaintWrites = gate.TaintDeny }, want: toolcrib.Refuse, reason: toolcrib.ReasonTaintedFlow,
		},
		{
			name: "done before", facts: func(f *gate.Facts) { f.Ran = func(string, []byte, []string) string { return "run_0" } },
			want: toolcrib.Ask, reason: toolcrib.ReasonAlreadyRan,
		},
		{
			name: "denied", facts: func(f *gate.Facts) {
				f.Decided = map[string]gate.Decided{"1": {Decision: journal.DecisionDeny, By: "ann"}}
			}, want: toolcrib.Refuse, reason: toolcrib.ReasonApprovalDenied,
		},
		{name: "after a write", before: "x", want: toolcrib.Ask, reason: toolcrib.ReasonNeedsConfirmation},
		{name: "after a read", before: "r", want: toolcrib.Allow},
		{name: "after a refused write", before: "none", want: toolcrib.Allow},
		{name: "after another without effect", before: "idle", want: toolcrib.Allow},
		{
			name: "carried out by another program", facts: func(f *gate.Facts) { f.Elsewhere = true },
			want: toolcrib.Ask, reason: toolcrib.ReasonNeedsConfirmation,
		},
		{name: "judged as then", facts: func(f *gate.Facts) { f.Past = true }, want: toolcrib.Ask, reason: toolcrib.ReasonNeedsConfirmation},
		{
			name:  "judged as then, when it had none",
			facts: func(f *gate.Facts) { f.Past, f.NoEffect = true, map[string]bool{"1": true} }, want: toolcrib.Allow,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.options.Tools = []toolcrib.Tool{idle, tool(writes("x")), tool(reads("r"))}
			if c.options.Confirm == "" {
				c.options.Confirm = gate.ConfirmWrites
			}
			g := gateOf(t, c.options)
			scope, facts := wide(), offering(g)
			if c.scope != nil {
				c.scope(&scope)
			}
			if c.facts != nil {
				c.facts(&facts)
			}
			turn := []toolcrib.ToolCall{call("1", "idle", `{}`)}
			if c.before != "" {
				turn = append([]toolcrib.ToolCall{call("0", c.before, `{}`)}, turn...)
			}
			all := judge(t, g, alice(), scope, facts, turn...)
			v := all[len(all)-1]
			allowed := c.want == toolcrib.Allow
			if v.Decision != c.want || v.Reason != c.reason || v.NoEffect != allowed || (v.Effect == toolcrib.EffectReadOnly) != allowed {
				t.Errorf("%q %q (%s), %s, want %q %q", v.Decision, v.Reason, v.Message, v.Effect, c.want, c.reason)
			}
		})
	}
}

// lineTool runs command lines. The scope of a call is its argument.
type lineTool struct {
	plainTool
	concern toolcrib.Reason
}

func (l *lineTool) Plan(_ context.Context, c toolcrib.Call) (*toolcrib.Plan, error) {
	var in struct{ Scope string }
	err := json.Unmarshal(c.Arguments, &in)
	p := &toolcrib.Plan{CommandLine: true, Scope: in.Scope, Run: l.Call}
	if l.concern != "" {
		p.Concerns = []toolcrib.Concern{{Reason: l.concern, Why: "runs x"}}
	}
	return p, err
}

// A remembered program covers the lines of the same program and subcommand in its workspace. It lifts the questions of
// tools.confirm and about programs that are not listed, and no other.
func TestH16_RememberedProgram(t *testing.T) {
	dir := t.TempDir()
	ask := fakeRules{rules: []worldRule{{name: "asks", then: gate.RuleAsk}}}
	for _, c := range []struct {
		name    string
		line    string
		concern toolcrib.Reason
		options gate.Options
		scope   func(*gate.Scope)
		taint   []string
		want    toolcrib.Reason
	}{
		{name: "the program", line: `{"scope":"go test","n":2}`},
		{name: "one that is not listed", line: `{"scope":"go test","n":2}`, concern: toolcrib.ReasonUnlistedProgram},
		{name: "another", line: `{"scope":"go vet"}`, concern: toolcrib.ReasonUnlistedProgram, want: toolcrib.ReasonUnlistedProgram},
		{
			name: "another beside it", line: `{"scope":"go test, go vet"}`, concern: toolcrib.ReasonUnlistedProgram,
			want: toolcrib.ReasonUnlistedProgram,
		},
		{name: "none", line: `{"n":1}`, want: toolcrib.ReasonNeedsConfirmation},
		{name: "none, not listed", line: `{"n":1}`, concern: toolcrib.ReasonUnlistedProgram, want: toolcrib.ReasonUnlistedProgram},
		{
			name: "the tool asks", line: `{"scope":"go test"}`, concern: toolcrib.ReasonNeedsConfirmation,
			want: toolcrib.ReasonNeedsConfirmation,
		},
		{name: "a rule asks", line: `{"scope":"go test"}`, options: gate.Options{Rules: ask}, want: toolcrib.ReasonNeedsConfirmation},
		{
			name: "always", line: `{"scope":"go test"}`, concern: toolcrib.ReasonUnlistedProgram,
			options: gate.Options{Settings: map[string]gate.ToolSettings{"sh": {Confirm: gate.ConfirmAlways}}},
			want:    toolcrib.ReasonUnlistedProgram,
		},
		{name: "tainted", line: `{"scope":"go test"}`, taint: []string{"x"}, want: toolcrib.ReasonTaintedFlow},
		{
			name: "another workspace", line: `{"scope":"go test"}`, scope: func(s *gate.Scope) { s.Workspace = t.TempDir() },
			want: toolcrib.ReasonNeedsConfirmation,
		},
		{
			name: "read only", line: `{"scope":"go test"}`, scope: func(s *gate.Scope) { s.ReadOnly = true },
			want: toolcrib.ReasonReadOnlyMode,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.options.Tools, c.options.Confirm = []toolcrib.Tool{&lineTool{plainTool{writes("sh")}, c.concern}}, gate.ConfirmWrites
			g := gateOf(t, c.options)
			scope, facts := wide(), offering(g)
			scope.Workspace = dir
			first := judge(t, g, alice(), scope, facts, call("1", "sh", `{"scope":"go test","n":1}`))[0]
			item := &journal.ApprovalItem{ID: "1", Name: "sh", Effect: first.Effect, Questions: first.Questions, Binding: first.Binding}
			approval := &journal.ConfirmationResolved{ApprovalID: "apr_1", By: "ann"}
			m, ok := journal.Remember{Scope: journal.RememberUser, Calls: journal.RememberProgram}.Extend(approval, item)
			if !ok || m.Program != "go test" || m.Arguments != nil {
				t.Fatal(m, ok)
			}
			facts.Remembered, facts.Taint = []journal.Remembered{m}, c.taint
			if c.scope != nil {
				c.scope(&scope)
			}
			v := judge(t, g, alice(), scope, facts, call("2", "sh", c.line))[0]
			if v.Reason != c.want || (v.Decision == toolcrib.Allow) != (c.want == "") || c.want == "" && v.Approval != "apr_1" {
				t.Errorf("%q %q (%s), want %q", v.Decision, v.Reason, v.Message, c.want)
			}
		})
	}
}
