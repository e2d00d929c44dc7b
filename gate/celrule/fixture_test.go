package celrule_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
)

// when makes a deny rule for every tool.
func when(condition string) celrule.Rule {
	return celrule.Rule{Name: "r", When: condition, Then: gate.RuleDeny}
}

func compile(t testing.TB, rules ...celrule.Rule) *celrule.Set {
	t.Helper()
	set, err := celrule.New(rules, celrule.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// problems compiles rules that are wrong.
func problems(t testing.TB, o celrule.Options, rules ...celrule.Rule) celrule.Problems {
	t.Helper()
	set, err := celrule.New(rules, o)
	var list celrule.Problems
	if !errors.As(err, &list) || len(list) == 0 || set != nil {
		t.Fatalf("want problems, have %v and set %v", err, set != nil)
	}
	return list
}

// call is a call of exec_shell by alice.
func call(arguments string) gate.RuleInput {
	return gate.RuleInput{
		Tool: "exec_shell", Arguments: json.RawMessage(arguments), Effect: toolcrib.EffectNonIdempotentWrite,
		Targets: []toolcrib.Target{{Kind: "file", Name: "/ws/src/main.go", Write: true}, {Kind: "host", Name: "example.org"}},
		Who:     &toolcrib.Principal{User: "alice", Roles: []string{"dev", "ops"}, Groups: []string{"web"}, Trust: toolcrib.TrustMember},
		Agent:   "default", Run: "run_1", Session: "ses_1", Depth: 1, Workspace: "/ws",
	}
}

// outcome is yes, no, or the error of the only rule of a set.
func outcome(t testing.TB, set *celrule.Set, in gate.RuleInput) string {
	t.Helper()
	switch matches := set.Judge(t.Context(), in); {
	case len(matches) == 0:
		return "no"
	case len(matches) > 1:
		t.Fatalf("%d matches of one rule", len(matches))
		return ""
	case matches[0].Err != nil:
		return "error: " + strings.TrimPrefix(matches[0].Err.Error(), "rule r: ")
	}
	return "yes"
}
