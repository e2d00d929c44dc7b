package builtin_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// counting counts the plans of a tool, and the arguments that their functions get.
type counting struct {
	toolcrib.Planner
	plans, arguments int
}

func (c *counting) Plan(ctx context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	c.plans++
	plan, err := c.Planner.Plan(ctx, call)
	if err != nil {
		return nil, err
	}
	run, prepare := plan.Run, plan.Prepare
	plan.Run = func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
		c.arguments += len(call.Arguments)
		return run(ctx, call)
	}
	if prepare != nil {
		plan.Prepare = func(ctx context.Context, call toolcrib.Call) (json.RawMessage, error) {
			c.arguments += len(call.Arguments)
			return prepare(ctx, call)
		}
	}
	return plan, nil
}

// From the reply to the effect a call is worked out once: one plan answers all questions of the gate,
// those of an approval too, and is what runs. Its work gets no arguments to read again. The arguments
// were read strictly once, when the reply came.
func TestPlan_Once(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	command, err := shell.New(shell.Options{Path: filepath.SplitList(os.Getenv("PATH"))})
	if err != nil {
		t.Fatal(err)
	}
	all := append(files.New(files.Options{}), command)
	for name, arguments := range map[string]string{
		"write_file": `{"content":"x","path":"a.txt"}`, "read_file": `{"path":"b.txt"}`, "exec_shell": `{"command":"ls -la"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, "b.txt"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var c *counting
		for _, tool := range all {
			if tool.Spec().Name == name {
				c = &counting{Planner: tool.(toolcrib.Planner)}
			}
		}
		g, err := gate.New(gate.Options{Availability: gate.Overrides{}, Tools: []toolcrib.Tool{c}, Confirm: gate.ConfirmAlways})
		if err != nil {
			t.Fatal(err)
		}
		scope := gate.Scope{Workspace: dir, MaxCalls: 1}
		read := g.Read(scope, name, []byte(arguments), true)
		facts := gate.Facts{Run: "run_1", Offered: map[string]bool{name: true}, Read: map[string]*gate.Arguments{"1": read}}
		judge := func() gate.Verdict {
			c.plans = 0
			call := toolcrib.ToolCall{ID: "1", Name: name, Arguments: read.Canonical}
			return g.Judge(t.Context(), toolcrib.Principal{User: "ann", Admin: true}, scope, facts, []toolcrib.ToolCall{call})[0]
		}
		asked := judge()
		if asked.Decision != toolcrib.Ask || c.plans != 1 {
			t.Fatalf("%s: %s %s, planned %d times", name, asked.Decision, asked.Message, c.plans)
		}
		facts.Decided = map[string]gate.Decided{"1": {
			Decision: journal.DecisionApprove, ApprovalID: "apr_1", Asked: asked.Questions, Binding: asked.Binding,
		}}
		v := judge()
		if _, err := v.Permit.Prepare(t.Context()); err != nil {
			t.Fatalf("%s: %s %v", name, v.Message, err)
		}
		if _, err := v.Permit.Execute(t.Context(), gate.Attachments{}); err != nil || c.plans != 1 || c.arguments != 0 {
			t.Errorf("%s: %v, planned %d times, %d bytes of arguments given to the work", name, err, c.plans, c.arguments)
		}
	}
}
