package mcp_test

import (
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/mcp"
)

// The arguments of a call are read once, with the reply: the judged arguments reach the server byte
// for byte, even after a question. A number that no float64 represents, and the order of members,
// would not survive a second reading.
func TestPlan_ArgumentsReadOnce(t *testing.T) {
	const sent = `{"z":123456789012345678901234567890.10,"a":[1e2,"\u00e9"]}`
	for _, confirm := range []bool{false, true} {
		s := program("server")
		s.Confirm = confirm
		tool, err := toolOf(start(t, s, mcp.Options{}), "srv__echo")
		if err != nil {
			t.Fatal(err)
		}
		o := gate.Options{Availability: gate.Overrides{}, Tools: []toolcrib.Tool{tool}, Confirm: gate.ConfirmAlways}
		g, err := gate.New(o)
		if err != nil {
			t.Fatal(err)
		}
		scope := gate.Scope{MaxCalls: 1}
		read := g.Read(scope, "srv__echo", []byte(sent), true)
		facts := gate.Facts{
			Run: "run_1", Offered: map[string]bool{"srv__echo": true}, Read: map[string]*gate.Arguments{"1": read},
		}
		judge := func() gate.Verdict {
			call := toolcrib.ToolCall{ID: "1", Name: "srv__echo", Arguments: read.Canonical}
			return g.Judge(t.Context(), toolcrib.Principal{User: "ann", Admin: true}, scope, facts, []toolcrib.ToolCall{call})[0]
		}
		asked := judge()
		facts.Decided = map[string]gate.Decided{"1": {
			Decision: journal.DecisionApprove, ApprovalID: "apr_1", Asked: asked.Questions, Binding: asked.Binding,
		}}
		v := judge()
		out, err := v.Permit.Execute(t.Context(), gate.Attachments{})
		if err != nil || out.Text != string(read.Canonical) {
			t.Errorf("confirm %v: %s %q, %v; the server got %s, judged was %s",
				confirm, asked.Decision, v.Message, err, out.Text, read.Canonical)
		}
	}
}
