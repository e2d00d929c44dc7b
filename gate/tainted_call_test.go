package gate_test

import (
	"context"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
)

// seesTaint records whether its calls were marked as tainted.
type seesTaint struct {
	spec toolcrib.Spec
	told []bool
}

func (s *seesTaint) Spec() toolcrib.Spec { return s.spec }

func (s *seesTaint) Plan(_ context.Context, c toolcrib.Call) (*toolcrib.Plan, error) {
	s.told = append(s.told, c.Tainted)
	return &toolcrib.Plan{Run: s.Call}, nil
}

func (s *seesTaint) Call(_ context.Context, c toolcrib.Call) (toolcrib.Output, error) {
	s.told = append(s.told, c.Tainted)
	return toolcrib.Output{Text: "ok"}, nil
}

// A tool sees whether the run has read untrusted data, so that the data it stores remains marked.
func TestX7_ToolsAreToldOfTaint(t *testing.T) {
	for _, taint := range [][]string{nil, {"example.com"}} {
		s := &seesTaint{spec: reads("x")}
		g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{s}})
		facts := gate.Facts{Offered: map[string]bool{"x": true}, Taint: taint}
		v := g.Judge(t.Context(), alice(), wide(), facts, []toolcrib.ToolCall{call("1", "x", `{}`)})[0]
		if _, err := v.Permit.Execute(t.Context(), gate.Attachments{}); err != nil {
			t.Fatal(err)
		}
		for _, told := range s.told {
			if told != (taint != nil) {
				t.Errorf("taint %v: told %v", taint, s.told)
			}
		}
		if len(s.told) != 2 {
			t.Errorf("told %d times", len(s.told))
		}
	}
}

// N19: who was granted tables may use the tool that shows them, and no other.
func TestN19_GrantOfTables(t *testing.T) {
	who := toolcrib.Principal{User: "bob", Grants: []string{"sql:shop/public.orders"}}
	g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(reads("describe_tables")), tool(reads("read_file"))}})
	offer, err := g.Offer(t.Context(), who, wide())
	if err != nil || len(offer.Specs) != 1 || offer.Specs[0].Name != "describe_tables" {
		t.Fatalf("%v %+v", err, offer.Record)
	}
}
