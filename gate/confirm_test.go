package gate_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

func TestH16_ConfirmByEffect(t *testing.T) {
	for _, c := range []struct {
		mode, setting gate.ConfirmMode
		effect        toolcrib.Effect
		asks          bool
		why           string
	}{
		{"", "", toolcrib.EffectReadOnly, false, ""},
		{"", "", toolcrib.EffectIdempotentWrite, true, "x writes (idempotent_write); tools.confirm is writes"},
		{gate.ConfirmWrites, "", "", true, "x writes (non_idempotent_write); tools.confirm is writes"},
		{gate.ConfirmNever, "", "", false, ""},
		{gate.ConfirmAlways, "", toolcrib.EffectReadOnly, true, "x only reads; tools.confirm is always"},
		{gate.ConfirmNever, gate.ConfirmAlways, toolcrib.EffectReadOnly, true, "x only reads; tools.settings.x.confirm is always"},
		{gate.ConfirmAlways, gate.ConfirmNever, "", false, ""},
		{gate.ConfirmAlways, gate.ConfirmWrites, toolcrib.EffectReadOnly, false, ""},
		{gate.ConfirmNever, gate.ConfirmWrites, "", true, "x writes (non_idempotent_write); tools.settings.x.confirm is writes"},
	} {
		t.Run(fmt.Sprintf("%s %s %s", c.mode, c.setting, c.effect), func(t *testing.T) {
			spec := reads("x")
			spec.Effect = c.effect
			g := gateOf(t, gate.Options{
				Tools: []toolcrib.Tool{tool(spec)}, Confirm: c.mode,
				Settings:  map[string]gate.ToolSettings{"x": {Confirm: c.setting}},
				Positions: func(key string) string { return "f.yaml:3 " + key },
			})
			v := judgeOne(t, g, call("1", "x", `{}`))
			if (v.Decision == toolcrib.Ask) != c.asks || v.Message != c.why {
				t.Fatalf("%q: %q, want %q", v.Decision, v.Message, c.why)
			}
			if !c.asks {
				return
			}
			key := "tools.confirm"
			if c.setting != "" {
				key = "tools.settings.x.confirm"
			}
			if v.Position != "f.yaml:3 "+key {
				t.Fatalf("position %q", v.Position)
			}
			x := g.Explain(t.Context(), alice(), wide(), "x")[0].Confirm
			if !x.Asks || x.Why != v.Message || x.Position != v.Position {
				t.Fatalf("explained %+v", x)
			}
		})
	}
}

func TestDecisions(t *testing.T) {
	const why = "x writes (non_idempotent_write); tools.confirm is writes"
	g := newGate(t, tool(writes("x")))
	shown := asked(t, g, call("1", "x", `{}`))
	other, unbound, nothing := shown, approve(shown), approve(shown)
	other.Questions = []journal.Question{{
		Reason: toolcrib.ReasonNeedsConfirmation, Setting: "tools.confirm", Mode: "always", Effect: toolcrib.EffectReadOnly, Text: why,
	}}
	unbound.Binding, unbound.Unbound = nil, true
	nothing.Asked = nil
	never := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(writes("x"))}, Confirm: gate.ConfirmNever})
	decide := func(d gate.Decided) func(*gate.Scope, *gate.Facts) {
		return func(_ *gate.Scope, f *gate.Facts) { f.Decided = map[string]gate.Decided{"1": d} }
	}
	deny := func(by, reason string) gate.Decided {
		return gate.Decided{Decision: journal.DecisionDeny, ApprovalID: "apr_1", By: by, Reason: reason}
	}
	for _, c := range []struct {
		name    string
		g       *gate.Gate
		change  func(*gate.Scope, *gate.Facts)
		want    toolcrib.Decision
		reason  toolcrib.Reason
		message string
	}{
		{"undecided", g, func(*gate.Scope, *gate.Facts) {}, toolcrib.Ask, toolcrib.ReasonNeedsConfirmation, why},
		{"approved", g, decide(approve(shown)), toolcrib.Allow, "", ""},
		{"approved by nobody who was shown it", g, decide(unbound), toolcrib.Allow, "", ""},
		{"approved for another reason in the same words: asked again", g, decide(approve(other)), toolcrib.Ask, toolcrib.ReasonNeedsConfirmation, why},
		{"approved, and nobody knows what: asked again", g, decide(nothing), toolcrib.Ask, toolcrib.ReasonNeedsConfirmation, why},
		{"no decision", g, decide(gate.Decided{}), toolcrib.Ask, toolcrib.ReasonNeedsConfirmation, why},
		{"an unknown decision", g, decide(gate.Decided{Decision: "mixed"}), toolcrib.Ask, toolcrib.ReasonNeedsConfirmation, why},
		{"a decision on another call", g, func(_ *gate.Scope, f *gate.Facts) {
			f.Decided = map[string]gate.Decided{"2": approve(shown)}
		}, toolcrib.Ask, toolcrib.ReasonNeedsConfirmation, why},
		{"denied", g, decide(deny("bob", "not on fridays.")), toolcrib.Refuse, toolcrib.ReasonApprovalDenied, "x was denied by bob: not on fridays. Do not repeat this call."},
		{"denied without words", g, decide(deny("bob", "")), toolcrib.Refuse, toolcrib.ReasonApprovalDenied, "x was denied by bob. Do not repeat this call."},
		{"expired", g, decide(deny("", "expired")), toolcrib.Refuse, toolcrib.ReasonApprovalDenied, "x was denied by the person who was asked: expired. Do not repeat this call."},
		{"denied, though it would not be asked now", never, decide(deny("bob", "no")), toolcrib.Refuse, toolcrib.ReasonApprovalDenied, "x was denied by bob: no. Do not repeat this call."},
		{"nobody asks", g, func(s *gate.Scope, _ *gate.Facts) { s.Unattended = true }, toolcrib.Refuse, toolcrib.ReasonNeedsConfirmation, "x needs a person's approval, and nobody can give one in this run. Continue without it."},
		{"nobody asks, and nothing needs to", never, func(s *gate.Scope, _ *gate.Facts) { s.Unattended = true }, toolcrib.Allow, "", ""},
		{"nobody asks, but it is approved", g, func(s *gate.Scope, f *gate.Facts) {
			s.Unattended = true
			decide(approve(shown))(s, f)
		}, toolcrib.Allow, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, f := wide(), offering(c.g)
			c.change(&s, &f)
			v := judge(t, c.g, alice(), s, f, call("1", "x", `{}`))[0]
			if v.Decision != c.want || v.Reason != c.reason || v.Message != c.message {
				t.Fatalf("have %q %s %q", v.Decision, v.Reason, v.Message)
			}
			if want := f.Decided["1"].ApprovalID; v.Decision == toolcrib.Allow && v.Approval != want {
				t.Fatalf("approval %q, want %q", v.Approval, want)
			}
		})
	}
}

// A rule's message cannot imitate another question: the approval covers that rule's question alone.
func TestH16_RuleFakesNoQuestion(t *testing.T) {
	const faked = "x writes (non_idempotent_write); tools.confirm is writes"
	asking := fakeRules{rules: []worldRule{{name: "r; " + faked + "; y", then: gate.RuleAsk}}}
	ask := judgeOne(t, gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(writes("x"))}, Confirm: gate.ConfirmNever, Rules: asking}), call("1", "x", `{}`))
	wantAsked(t, ask)
	if strings.Contains(ask.Message, ";") {
		t.Fatalf("one question reads like several: %q", ask.Message)
	}
	g := newGate(t, tool(writes("x")))
	f := offering(g)
	f.Decided = map[string]gate.Decided{"1": approve(ask)}
	wantAsked(t, judge(t, g, alice(), wide(), f, call("1", "x", `{}`))[0])
}

func TestApprovedIsJudgedAgain(t *testing.T) {
	s := &switches{}
	g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(writes("x"))}, Availability: s})
	f := offering(g)
	f.Decided = map[string]gate.Decided{"1": approve(asked(t, g, call("1", "x", `{}`)))}
	wantAllowed(t, judge(t, g, alice(), wide(), f, call("1", "x", `{}`))[0])
	s.over = gate.Overrides{Tools: map[string]bool{"x": false}}
	wantRefused(t, judge(t, g, alice(), wide(), f, call("1", "x", `{}`))[0], toolcrib.ReasonToolDisabled, "")
}

func TestPreview(t *testing.T) {
	long := strings.Repeat("line\n", 30)
	for _, c := range []struct {
		name    string
		preview func(context.Context, toolcrib.Call) (toolcrib.Preview, error)
		check   func(toolcrib.Preview, string) bool // preview, detail
	}{
		{"short", func(_ context.Context, c toolcrib.Call) (toolcrib.Preview, error) {
			return toolcrib.Preview{Kind: "diff", Text: "+" + string(c.Arguments) + "\n"}, nil
		}, func(p toolcrib.Preview, _ string) bool { return p.Kind == "diff" && p.Text == `+{"a":1}` }},
		{"many lines", func(context.Context, toolcrib.Call) (toolcrib.Preview, error) {
			return toolcrib.Preview{Kind: "diff", Text: long}, nil
		}, func(p toolcrib.Preview, _ string) bool {
			return p.Text == strings.Repeat("line\n", 13)+"… 11 more lines\n"+strings.TrimSuffix(strings.Repeat("line\n", 6), "\n")
		}},
		{"exactly 20", func(context.Context, toolcrib.Call) (toolcrib.Preview, error) {
			return toolcrib.Preview{Text: long[:100]}, nil
		}, func(p toolcrib.Preview, _ string) bool {
			return p.Kind == "text" && p.Text == strings.TrimSuffix(long[:100], "\n")
		}},
		{"a long line", func(context.Context, toolcrib.Call) (toolcrib.Preview, error) {
			return toolcrib.Preview{Text: strings.Repeat("ü", 501)}, nil
		}, func(p toolcrib.Preview, _ string) bool {
			return p.Text == strings.Repeat("ü", 326)+"…[13 more]…"+strings.Repeat("ü", 162)
		}},
		{"megabytes", func(context.Context, toolcrib.Call) (toolcrib.Preview, error) {
			return toolcrib.Preview{Text: strings.Repeat("x", 5<<20)}, nil
		}, func(p toolcrib.Preview, _ string) bool {
			return strings.HasSuffix(p.Text, "x") && utf8.RuneCountInString(p.Text) <= 500 && strings.Contains(p.Text, "…[5242396 more]…")
		}},
		{"hidden characters", func(context.Context, toolcrib.Call) (toolcrib.Preview, error) {
			return toolcrib.Preview{Text: "a\u202eb\x1b[2J"}, nil
		}, func(p toolcrib.Preview, _ string) bool { return p.Text == "a[U+202E]b[U+001B][2J" }},
		{"an error", func(context.Context, toolcrib.Call) (toolcrib.Preview, error) {
			return toolcrib.Preview{Text: "half"}, errors.New("password=1")
		}, func(p toolcrib.Preview, detail string) bool {
			return p.Text == "The preview failed." && strings.Contains(detail, "password=1")
		}},
		{"an error made to be shown", func(context.Context, toolcrib.Call) (toolcrib.Preview, error) {
			return toolcrib.Preview{}, toolcrib.Failf(toolcrib.NotFound, "notes.txt")
		}, func(p toolcrib.Preview, _ string) bool { return p.Text == "The preview failed: not found: notes.txt" }},
		{"a panic", func(context.Context, toolcrib.Call) (toolcrib.Preview, error) { panic("boom") }, func(p toolcrib.Preview, detail string) bool {
			return p.Text == "The preview failed." && strings.Contains(detail, "it panicked") && !strings.Contains(detail, "boom")
		}},
		{"bounded in time", func(ctx context.Context, _ toolcrib.Call) (toolcrib.Preview, error) {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > time.Minute {
				return toolcrib.Preview{Text: "no deadline"}, nil
			}
			return toolcrib.Preview{Text: "ok"}, nil
		}, func(p toolcrib.Preview, _ string) bool { return p.Text == "ok" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGate(t, &fullTool{plainTool: plainTool{writes("x")}, preview: c.preview})
			v := judgeOne(t, g, call("1", "x", `{"a":1}`))
			wantAsked(t, v)
			if v.Preview == nil || !c.check(*v.Preview, v.Detail) {
				t.Fatalf("preview %+v, detail %q", v.Preview, v.Detail)
			}
		})
	}
	t.Run("only for an ask", func(t *testing.T) {
		asked := 0
		f := &fullTool{plainTool: plainTool{reads("x")}, preview: func(context.Context, toolcrib.Call) (toolcrib.Preview, error) {
			asked++
			return toolcrib.Preview{}, nil
		}}
		if v := judgeOne(t, newGate(t, f), call("1", "x", `{}`)); v.Preview != nil || asked != 0 {
			t.Fatalf("preview %+v, asked %d times", v.Preview, asked)
		}
	})
}

// askingTool asks about some of its calls itself.
type askingTool struct {
	plainTool
	why, instead string
	reason       toolcrib.Reason
	forRun       bool
}

func (a *askingTool) Plan(context.Context, toolcrib.Call) (*toolcrib.Plan, error) {
	p := &toolcrib.Plan{Run: a.Call}
	if a.why != "" {
		p.Concerns = []toolcrib.Concern{{Reason: cmp.Or(a.reason, toolcrib.ReasonNeedsConfirmation), Why: a.why, Instead: a.instead, Run: a.forRun}}
	}
	return p, nil
}

// A tool's own question is lifted by a person's decision alone.
func TestH16_AToolAsks(t *testing.T) {
	asking := &askingTool{plainTool: plainTool{reads("x")}, why: "shows; more"}
	options := gate.Options{Tools: []toolcrib.Tool{asking}, Confirm: gate.ConfirmNever, Rules: fakeRules{rules: []worldRule{{name: "yes", then: gate.RuleAllow}}}}
	v := judgeOne(t, gateOf(t, options), call("1", "x", `{}`))
	if v.Decision != toolcrib.Ask || v.Reason != toolcrib.ReasonNeedsConfirmation || v.Message != "x shows, more" {
		t.Fatalf("%q %s: %q", v.Decision, v.Reason, v.Message)
	}
	asking.why = ""
	if v := judgeOne(t, gateOf(t, options), call("1", "x", `{}`)); v.Decision != toolcrib.Allow {
		t.Fatalf("%q: %q", v.Decision, v.Message)
	}
}

// A concern that is answered for the run is not asked about again; one that is answered for a call is.
func TestH16_AToolAsksOnceForARun(t *testing.T) {
	asking := &askingTool{plainTool: plainTool{writes("x")}, why: "reaches a.test", forRun: true}
	g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{asking}, Confirm: gate.ConfirmNever})
	first := judgeOne(t, g, call("1", "x", `{}`))
	if first.Decision != toolcrib.Ask || len(first.Questions) != 1 || !first.Questions[0].Run {
		t.Fatalf("%+v", first)
	}
	facts, scope := offering(g), wide()
	facts.Agreed = first.Questions
	if v := judge(t, g, alice(), scope, facts, call("2", "x", `{"a":1}`))[0]; v.Decision != toolcrib.Allow {
		t.Errorf("%q: %q", v.Decision, v.Message)
	}
	asking.why = "reaches b.test"
	if v := judge(t, g, alice(), scope, facts, call("2", "x", `{}`))[0]; v.Decision != toolcrib.Ask {
		t.Errorf("another host: %q: %q", v.Decision, v.Message)
	}
	asking.why, asking.forRun = "reaches a.test", false
	if v := judge(t, g, alice(), scope, facts, call("2", "x", `{}`))[0]; v.Decision != toolcrib.Ask {
		t.Errorf("of each call: %q: %q", v.Decision, v.Message)
	}
}

// A program that is not listed is asked about whatever tools.confirm says. A remembered approval of
// the same arguments answers that; --approve all does not, and without a person the model reads how to
// allow it.
func TestUnlistedProgram(t *testing.T) {
	asking := &askingTool{plainTool{writes("x")}, "runs y", "List y.", toolcrib.ReasonUnlistedProgram, false}
	g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{asking}, Confirm: gate.ConfirmNever})
	dir := t.TempDir()
	scope := wide()
	scope.Workspace = dir
	facts := offering(g)
	v := judge(t, g, alice(), scope, facts, call("1", "x", `{"a":1}`))[0]
	if v.Decision != toolcrib.Ask || v.Reason != toolcrib.ReasonUnlistedProgram || !v.ForAPerson() {
		t.Fatalf("%q %s: %q", v.Decision, v.Reason, v.Message)
	}
	item := &journal.ApprovalItem{
		ID: "1", Name: "x", Arguments: json.RawMessage(`{"a":1}`), Effect: v.Effect, Questions: v.Questions, Binding: v.Binding,
	}
	approval := &journal.ConfirmationResolved{ApprovalID: "apr_1", By: "ann"}
	for kind, want := range map[string]toolcrib.Decision{
		journal.RememberArguments: toolcrib.Allow, journal.RememberTool: toolcrib.Ask,
	} {
		m, ok := journal.Remember{Scope: journal.RememberUser, Calls: kind}.Extend(approval, item)
		if !ok {
			t.Fatal(kind)
		}
		facts.Remembered = []journal.Remembered{m}
		if v := judge(t, g, alice(), scope, facts, call("1", "x", `{"a":1}`))[0]; v.Decision != want || want == toolcrib.Allow && v.Approval != "apr_1" {
			t.Errorf("%s: %q: %q, approval %q", kind, v.Decision, v.Message, v.Approval)
		}
		if v := judge(t, g, alice(), scope, facts, call("1", "x", `{"a":2}`))[0]; v.Decision != toolcrib.Ask {
			t.Errorf("%s, other arguments: %q: %q", kind, v.Decision, v.Message)
		}
		other := scope
		other.Workspace = t.TempDir()
		if v := judge(t, g, alice(), other, facts, call("1", "x", `{"a":1}`))[0]; v.Decision != toolcrib.Ask {
			t.Errorf("%s, another workspace: %q: %q", kind, v.Decision, v.Message)
		}
	}
	facts.Remembered = nil
	for _, set := range []func(*gate.Scope){
		func(s *gate.Scope) { s.AllApproved = true },
		func(s *gate.Scope) { s.Unattended = true },
	} {
		alone := scope
		set(&alone)
		v := judge(t, g, alice(), alone, facts, call("1", "x", `{"a":1}`))[0]
		wantRefused(t, v, toolcrib.ReasonUnlistedProgram,
			"x needs a person's approval, and nobody can give one in this run. x runs y. List y. Continue without it.")
	}
}

// matches are rules that give the same answers on every call.
type matches []gate.RuleMatch

func (m matches) Judge(context.Context, gate.RuleInput) []gate.RuleMatch { return m }

func (m matches) About(string) []gate.RuleInfo { return nil }

// What a rule may deny is a person's to answer: where everything is approved
// beforehand it is refused, whatever other rules ask or allow.
func TestUndecidedDenyIsNobodysToApprove(t *testing.T) {
	ask, mayAsk := gate.RuleMatch{RuleInfo: gate.RuleInfo{Name: "asks", Then: gate.RuleAsk}}, gate.RuleMatch{RuleInfo: gate.RuleInfo{Name: "asks", Then: gate.RuleAsk}, Undecided: true}
	allow := gate.RuleMatch{RuleInfo: gate.RuleInfo{Name: "allows", Then: gate.RuleAllow}}
	mayDeny := gate.RuleMatch{RuleInfo: gate.RuleInfo{Name: "denies", Then: gate.RuleDeny}, Undecided: true}
	for _, c := range []struct {
		name  string
		rules matches
		grave bool // only a person's word answers
	}{
		{"it may deny", matches{mayDeny}, true},
		{"another asks before it", matches{ask, mayDeny}, true},
		{"another may ask before it", matches{mayAsk, mayDeny}, true},
		{"another allows", matches{allow, mayDeny}, true},
		{"no answer at all", matches{{RuleInfo: gate.RuleInfo{Name: "denies"}, Undecided: true}}, true},
		{"it may ask", matches{mayAsk}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(writes("x"))}, Confirm: gate.ConfirmNever, Rules: c.rules})
			v := judgeOne(t, g, call("1", "x", `{}`))
			if v.Decision != toolcrib.Ask || (v.Reason == toolcrib.ReasonRuleDenied) != c.grave || v.ForAPerson() != c.grave {
				t.Fatalf("for a person: %v, of %+v", v.ForAPerson(), v.Questions)
			}
			f := offering(g)
			f.Decided = map[string]gate.Decided{"1": approve(v)}
			wantAllowed(t, judge(t, g, alice(), wide(), f, call("1", "x", `{}`))[0])

			all := wide()
			all.AllApproved = true
			v = judge(t, g, alice(), all, offering(g), call("1", "x", `{}`))[0]
			if !c.grave {
				wantAsked(t, v)
				return
			}
			wantRefused(t, v, toolcrib.ReasonRuleDenied, "")
			if v.Rule != "denies" || !strings.Contains(v.Detail, "--approve all") {
				t.Fatalf("rule %q, detail %q", v.Rule, v.Detail)
			}
		})
	}
}
