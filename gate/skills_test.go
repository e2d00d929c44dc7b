package gate_test

import (
	"errors"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
)

// N15: an entry of allowed-tools may narrow the arguments of a tool; what cannot be
// judged is refused.
func TestN15_SkillArguments(t *testing.T) {
	only := func(want bool, err error) gate.SkillArguments {
		return func([]string, string, *toolcrib.Plan) (bool, error) { return want, err }
	}
	for _, c := range []struct {
		name    string
		entries []string
		judge   gate.SkillArguments
		want    toolcrib.Decision
	}{
		{"no restriction", nil, nil, toolcrib.Allow},
		{"nothing", []string{}, only(true, nil), toolcrib.Refuse},
		{"by name", []string{"x"}, only(false, nil), toolcrib.Allow},
		{"by glob", []string{"*"}, only(false, nil), toolcrib.Allow},
		{"by name and pattern", []string{"x(a:*)", "x"}, only(false, nil), toolcrib.Allow},
		{"pattern holds", []string{"x(a:*)"}, only(true, nil), toolcrib.Allow},
		{"pattern does not hold", []string{"x(a:*)"}, only(false, nil), toolcrib.Refuse},
		{"pattern with an error", []string{"x(a:*)"}, only(true, errors.New("unclear")), toolcrib.Refuse},
		{"nobody can judge", []string{"x(a:*)"}, nil, toolcrib.Refuse},
		{"another tool's pattern", []string{"y(a:*)"}, only(true, nil), toolcrib.Refuse},
		{"broken entry", []string{"("}, only(true, nil), toolcrib.Refuse},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(reads("x"))}, SkillArguments: c.judge})
			scope := wide()
			scope.SkillTools = c.entries
			v := g.Judge(t.Context(), alice(), scope, gate.Facts{Offered: map[string]bool{"x": true}}, []toolcrib.ToolCall{call("1", "x", `{}`)})[0]
			if v.Decision != c.want || c.want == toolcrib.Refuse && v.Reason != toolcrib.ReasonSkillAllowlist {
				t.Fatalf("%q %q: %s", v.Decision, v.Reason, v.Message)
			}
		})
	}
}

// Without skills there is nothing to read: read_skill is not offered, and does not run if a model
// calls it anyway. Skills do not grant it.
func TestN17_ReadSkillNeedsSkills(t *testing.T) {
	for _, c := range []struct {
		name   string
		skills bool
		list   []string
		want   bool
	}{
		{"no skills", false, nil, false},
		{"no skills, on the list", false, []string{"read_skill"}, false},
		{"skills", true, nil, true},
		{"skills that do not name it", true, []string{"x"}, false},
		{"skills that name it", true, []string{"read_skill(a)"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(reads("x")), tool(reads("read_skill"))}})
			scope := wide()
			scope.HasSkills, scope.SkillTools = c.skills, c.list
			for range 2 {
				offer, err := g.Offer(t.Context(), alice(), scope)
				if err != nil || offer.Set()["read_skill"] != c.want {
					t.Fatal(offer.Record.Names(), err)
				}
				other := scope
				other.HasSkills = !c.skills
				if offer, err = g.Offer(t.Context(), alice(), other); err != nil || offer.Set()["read_skill"] == c.want && c.want {
					t.Fatal(offer.Record.Names(), err)
				}
			}
			v := g.Judge(t.Context(), alice(), scope, gate.Facts{Offered: map[string]bool{"read_skill": true}}, []toolcrib.ToolCall{call("1", "read_skill", `{}`)})[0]
			if !c.want && v.Reason != toolcrib.ReasonSkillAllowlist {
				t.Fatalf("%q %q", v.Decision, v.Reason)
			}
			if x := g.Explain(t.Context(), alice(), scope, "read_skill")[0]; x.Offered != c.want {
				t.Fatalf("%+v", x)
			}
		})
	}
}
