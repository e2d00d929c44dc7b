package celrule_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
)

// fifty are fifty rules, five of which are about exec_shell.
func fifty() []celrule.Rule {
	rules := []celrule.Rule{
		{Name: "pushes", Tools: []string{"exec_shell"}, When: `args.command.startsWith("git push")`, Then: gate.RuleAsk},
		{Name: "deletes", Tools: []string{"exec_*"}, When: `args.command.contains("rm -rf") || args.command.matches("^\\s*mkfs")`, Then: gate.RuleDeny},
		{Name: "tainted", When: `tainted && effect != "read_only" && !admin`, Then: gate.RuleAsk},
		{Name: "outside", Tools: []string{"exec_shell", "write_file"}, When: `targets.exists(t, t.write && !t.name.startsWith(workspace + "/"))`, Then: gate.RuleDeny},
		{Name: "people", Tools: []string{"exec_shell"}, When: `user in ["mallory", "trudy"] || "guests" in groups`, Then: gate.RuleDeny},
	}
	for i := len(rules); i < 50; i++ {
		rules = append(rules, celrule.Rule{
			Name: fmt.Sprint("rule", i), Tools: []string{fmt.Sprintf("tool_%d", i), fmt.Sprintf("other_%d_*", i)},
			When: fmt.Sprintf(`args.n > %d && args.name.startsWith("x")`, i), Then: gate.RuleDeny,
		})
	}
	return rules
}

func benchInput() gate.RuleInput {
	return gate.RuleInput{
		Tool: "exec_shell", Arguments: json.RawMessage(`{"command":"git status --short","cwd":"src","timeout_s":30}`),
		Effect: toolcrib.EffectReadOnly, Targets: []toolcrib.Target{{Kind: "file", Name: "/ws/src"}},
		Who: &toolcrib.Principal{User: "alice", Groups: []string{"dev"}}, Agent: "default", Run: "run_1", Session: "ses_1", Workspace: "/ws",
	}
}

// BenchmarkJudge_FiftyRules judges one call by the five of fifty rules that are
// about its tool.
func BenchmarkJudge_FiftyRules(b *testing.B) {
	set, err := celrule.New(fifty(), celrule.Options{})
	if err != nil {
		b.Fatal(err)
	}
	in := benchInput()
	b.ReportAllocs()
	for b.Loop() {
		if m := set.Judge(b.Context(), in); len(m) != 0 {
			b.Fatal(m)
		}
	}
}

// BenchmarkJudge_OtherTool judges a call that only the rule for every tool is about.
func BenchmarkJudge_OtherTool(b *testing.B) {
	set, err := celrule.New(fifty(), celrule.Options{})
	if err != nil {
		b.Fatal(err)
	}
	in := benchInput()
	in.Tool = "read_file"
	b.ReportAllocs()
	for b.Loop() {
		if m := set.Judge(b.Context(), in); len(m) != 0 {
			b.Fatal(m)
		}
	}
}

// BenchmarkJudge_OneRule shows what a condition of each kind costs.
func BenchmarkJudge_OneRule(b *testing.B) {
	for _, r := range fifty()[:5] {
		b.Run(r.Name, func(b *testing.B) {
			set, err := celrule.New([]celrule.Rule{r}, celrule.Options{})
			if err != nil {
				b.Fatal(err)
			}
			in := benchInput()
			b.ReportAllocs()
			for b.Loop() {
				set.Judge(b.Context(), in)
			}
		})
	}
}

func BenchmarkNew_FiftyRules(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := celrule.New(fifty(), celrule.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
