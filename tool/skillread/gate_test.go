package skillread_test

import (
	"encoding/json"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/tool/builtin"
)

// The skills of a run decide about read_skill as about any tool (N15, N17): having
// skills grants it to nobody.
func TestN17_ReadSkillPassesTheGate(t *testing.T) {
	_, set := load(t)
	allow := func(entries ...string) []string { return append([]string{}, entries...) }
	tests := []struct {
		name   string
		skills []string
		want   toolcrib.Reason // "" = allowed
	}{
		{"no list", set.AllowedTools(), ""},
		{"no tools", allow(), toolcrib.ReasonSkillAllowlist},
		{"another tool", allow("read_file"), toolcrib.ReasonSkillAllowlist},
		{"by name", allow("read_skill"), ""},
		{"by the name of others", canonical(t, "Skill"), ""},
	}
	for _, tt := range tests {
		g, err := gate.New(gate.Options{Tools: []toolcrib.Tool{made(set)}, Availability: gate.Overrides{}})
		if err != nil {
			t.Fatal(err)
		}
		scope := gate.Scope{Agent: "default", HasSkills: true, SkillTools: tt.skills, Workspace: t.TempDir(), MaxDepth: 3, MaxCalls: 10}
		who := toolcrib.Principal{User: "tester"}
		offer, err := g.Offer(t.Context(), who, scope)
		if err != nil {
			t.Fatal(err)
		}
		if offered := offer.Set()["read_skill"]; offered != (tt.want == "") {
			t.Errorf("%s: offered %v", tt.name, offered)
		}
		verdicts := g.Judge(t.Context(), who, scope, gate.Facts{Offered: map[string]bool{"read_skill": true}},
			[]toolcrib.ToolCall{{ID: "call_1", Name: "read_skill", Arguments: json.RawMessage(`{"name":"pdf"}`)}})
		if len(verdicts) != 1 || verdicts[0].Reason != tt.want || (verdicts[0].Decision == toolcrib.Allow) != (tt.want == "") {
			t.Errorf("%s: %+v", tt.name, verdicts)
		}
	}
}

func canonical(t *testing.T, entry string) []string {
	t.Helper()
	e, err := skill.ParseEntry(entry, builtin.Aliases())
	if err != nil {
		t.Fatal(err)
	}
	return []string{e.String()}
}
