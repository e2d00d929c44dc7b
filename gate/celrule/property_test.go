package celrule_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
)

// fakeTool is a tool with a given effect.
type fakeTool struct{ spec toolcrib.Spec }

func (f fakeTool) Spec() toolcrib.Spec { return f.spec }

func (f fakeTool) Call(context.Context, toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.Output{Text: "done"}, nil
}

// world is what a decision about one call depends on.
type world struct {
	rules   []celrule.Rule
	confirm gate.ConfirmMode
	setting gate.ConfirmMode
	who     toolcrib.Principal
	taint   []string
	nobody  bool
	call    toolcrib.ToolCall
	effect  toolcrib.Effect
}

// conditions hold, do not, or cannot be evaluated, as the arguments will have it.
func conditions() []string {
	return []string{
		``, `true`, `false`, `args.n == 1`, `args.n > 1`, `args.missing`, `has(args.missing)`, `args.n / args.z == 1`,
		`args.s.startsWith("a")`, `args.s.matches("^[ab]+$")`, `args.list.exists(x, x == args.n)`, `args.list.all(x, x / args.z == 0)`,
		`effect == "read_only"`, `tainted`, `admin`, `user == "alice"`, `tool == "read"`, `args.list.all(x, args.list.all(y, [1, 2].all(z, x == y || z > 0)))`,
	}
}

func drawRule(t *rapid.T, name string) celrule.Rule {
	r := celrule.Rule{
		Name: name, When: rapid.SampledFrom(conditions()).Draw(t, "when"),
		Then:    rapid.SampledFrom([]gate.RuleThen{gate.RuleAllow, gate.RuleAsk, gate.RuleDeny}).Draw(t, "then"),
		Message: rapid.SampledFrom([]string{"", "because " + name}).Draw(t, "message"),
	}
	if rapid.Bool().Draw(t, "some tools") {
		r.Tools = rapid.SliceOfN(rapid.SampledFrom([]string{"read", "write", "*", "re??", "other"}), 0, 2).Draw(t, "tools")
		if r.Tools == nil {
			r.Tools = []string{}
		}
	}
	return r
}

func drawWorld(t *rapid.T) world {
	w := world{
		confirm: rapid.SampledFrom([]gate.ConfirmMode{gate.ConfirmNever, gate.ConfirmWrites, gate.ConfirmAlways}).Draw(t, "confirm"),
		setting: rapid.SampledFrom([]gate.ConfirmMode{"", "", gate.ConfirmAlways}).Draw(t, "setting"),
		who:     toolcrib.Principal{User: rapid.SampledFrom([]string{"", "alice"}).Draw(t, "user"), Admin: rapid.Bool().Draw(t, "admin")},
		nobody:  rapid.IntRange(0, 3).Draw(t, "nobody asks") == 0,
		effect:  rapid.SampledFrom([]toolcrib.Effect{"", toolcrib.EffectReadOnly, toolcrib.EffectIdempotentWrite}).Draw(t, "effect"),
	}
	if rapid.Bool().Draw(t, "tainted") {
		w.taint = []string{"https://example.org"}
	}
	args := map[string]any{}
	for key, values := range map[string][]any{"n": {1, 2.5, "1"}, "z": {0, 1}, "s": {"ab", 7}, "list": {[]int{}, []int{1, 2}, "x"}} {
		if rapid.IntRange(0, 4).Draw(t, "has "+key) > 0 {
			args[key] = rapid.SampledFrom(values).Draw(t, key)
		}
	}
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	w.call = toolcrib.ToolCall{ID: "call_1", Name: rapid.SampledFrom([]string{"read", "write"}).Draw(t, "tool"), Arguments: raw}
	for i := range rapid.IntRange(0, 5).Draw(t, "rules") {
		w.rules = append(w.rules, drawRule(t, fmt.Sprint("rule", i)))
	}
	return w
}

// judge returns the verdict of the gate on the call of a world, and the results of the rules alone.
func (w world) judge(t *rapid.T) (gate.Verdict, []gate.RuleMatch) {
	set, err := celrule.New(w.rules, celrule.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kept := &keeper{Rules: set}
	o := gate.Options{Availability: gate.Overrides{}, Confirm: w.confirm, Rules: kept, Settings: map[string]gate.ToolSettings{}}
	for _, name := range []string{"read", "write"} {
		o.Tools = append(o.Tools, fakeTool{toolcrib.Spec{Name: name, Effect: w.effect, EnabledByDefault: true, Source: "go"}})
		if w.setting != "" {
			o.Settings[name] = gate.ToolSettings{Confirm: w.setting}
		}
	}
	g, err := gate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	scope := gate.Scope{Agent: "default", MaxDepth: 3, MaxCalls: 8, Unattended: w.nobody, Workspace: "/ws"}
	facts := gate.Facts{Run: "run_1", Session: "ses_1", Offered: map[string]bool{"read": true, "write": true}, Taint: w.taint}
	verdicts := g.Judge(context.Background(), w.who, scope, facts, []toolcrib.ToolCall{w.call})
	return verdicts[0], kept.matches
}

// keeper keeps what the rules said.
type keeper struct {
	gate.Rules
	matches []gate.RuleMatch
}

func (k *keeper) Judge(ctx context.Context, in gate.RuleInput) []gate.RuleMatch {
	k.matches = k.Rules.Judge(ctx, in)
	return k.matches
}

// leave orders decisions by what they let happen.
func leave(v gate.Verdict) int {
	return slices.Index([]toolcrib.Decision{toolcrib.Refuse, toolcrib.Ask, toolcrib.Allow}, v.Decision)
}

// TestProperty_RulesNarrow adds a rule that denies or asks, and finds nothing
// wider; an added allow lifts no more than the question of tools.confirm.
func TestProperty_RulesNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		before, _ := w.judge(t)
		added := drawRule(t, "added")
		w.rules = slices.Insert(slices.Clone(w.rules), rapid.IntRange(0, len(w.rules)).Draw(t, "at"), added)
		after, _ := w.judge(t)
		if added.Then != gate.RuleAllow && leave(after) > leave(before) {
			t.Fatalf("%s %q made %q of %q", added.Then, added.When, after.Decision, before.Decision)
		}
		if added.Then == gate.RuleAllow && leave(after) > leave(before) {
			if w.setting == gate.ConfirmAlways || before.Reason != toolcrib.ReasonNeedsConfirmation || before.Rule != "" {
				t.Fatalf("allow lifted %q %s (rule %q, tools.settings %q)", before.Decision, before.Reason, before.Rule, w.setting)
			}
		}
	})
}

// TestProperty_RulesHaveNoOrder shuffles the rules, and finds the same decision.
func TestProperty_RulesHaveNoOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		before, matched := w.judge(t)
		shuffled := w
		shuffled.rules = rapid.Permutation(w.rules).Draw(t, "order")
		after, again := shuffled.judge(t)
		if before.Decision != after.Decision || before.Reason != after.Reason {
			t.Fatalf("%q %s, in another order %q %s", before.Decision, before.Reason, after.Decision, after.Reason)
		}
		if len(matched) != len(again) {
			t.Fatalf("%d matches, in another order %d", len(matched), len(again))
		}
		inOrder := func(list []gate.RuleMatch, rules []celrule.Rule) bool {
			return slices.IsSortedFunc(list, func(a, b gate.RuleMatch) int { return position(rules, a) - position(rules, b) })
		}
		if !inOrder(matched, w.rules) || !inOrder(again, shuffled.rules) {
			t.Fatalf("matches out of order: %v, %v", matched, again)
		}
	})
}

func position(rules []celrule.Rule, m gate.RuleMatch) int {
	return slices.IndexFunc(rules, func(r celrule.Rule) bool { return r.Name == m.Name })
}

// TestProperty_RulesDecide holds the gate's decision to what each rule said: one
// that could not be evaluated refuses, deny beats ask beats allow, and a rule about
// other tools says nothing.
func TestProperty_RulesDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		v, matches := w.judge(t)
		said := map[gate.RuleThen]bool{}
		failed := false
		for _, m := range matches {
			r := w.rules[position(w.rules, m)]
			if m.Then != r.Then || m.Message != r.Message || m.Name != r.Name {
				t.Fatalf("%+v is not %+v", m, r)
			}
			if r.Tools != nil && !slices.ContainsFunc(r.Tools, func(p string) bool {
				return p == w.call.Name || p == "*" || p == "re??" && w.call.Name == "read"
			}) {
				t.Fatalf("a rule about %v was asked about %s", r.Tools, w.call.Name)
			}
			failed = failed || m.Err != nil
			said[m.Then] = said[m.Then] || m.Err == nil
		}
		switch {
		case failed || said[gate.RuleDeny]:
			if !v.Refused() || v.Reason != toolcrib.ReasonRuleDenied {
				t.Fatalf("%+v: %q %s", matches, v.Decision, v.Reason)
			}
		case v.Reason == toolcrib.ReasonRuleDenied:
			t.Fatalf("%+v: %s", matches, v.Reason)
		case said[gate.RuleAsk] && v.Decision == toolcrib.Allow:
			t.Fatalf("%+v: %q", matches, v.Decision)
		}
	})
}

// TestRules_ManyGoroutines judges by one set from many sides at once (race
// detector).
func TestRules_ManyGoroutines(t *testing.T) {
	var rules []celrule.Rule
	for i, c := range conditions() {
		rules = append(rules, celrule.Rule{Name: fmt.Sprint("r", i), When: c, Then: gate.RuleAsk})
	}
	set := compile(t, rules...)
	in := call(`{"n":1,"z":0,"s":"ab","list":[1,2]}`)
	describe := func(list []gate.RuleMatch) string {
		var b strings.Builder
		for _, m := range list {
			fmt.Fprintln(&b, m.Name, m.Err)
		}
		return b.String()
	}
	want := describe(set.Judge(t.Context(), in))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 50 {
				mine := in
				mine.Tool = fmt.Sprint("tool", i, n%7)
				if got := describe(set.Judge(t.Context(), mine)); got != want {
					t.Errorf("%s, want %s", got, want)
				}
				set.About(mine.Tool)
			}
		})
	}
	wg.Wait()
}
