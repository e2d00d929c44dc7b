package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// plainTool is a tool that does not plan its calls.
type plainTool struct{ spec toolcrib.Spec }

func (p *plainTool) Spec() toolcrib.Spec { return p.spec }

func (p *plainTool) Call(context.Context, toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.Output{Text: "ran " + p.spec.Name}, nil
}

// fullTool plans its calls with functions, each of which may be nil.
type fullTool struct {
	plainTool
	admit   func(toolcrib.Call) error
	effect  func(toolcrib.Call) toolcrib.Effect
	targets func(toolcrib.Call) []toolcrib.Target
	asks    func(toolcrib.Call) []toolcrib.Concern
	files   func() ([]toolcrib.FileState, error)
	content func(toolcrib.Call) []string
	preview func(context.Context, toolcrib.Call) (toolcrib.Preview, error)
}

func (f *fullTool) Spec() toolcrib.Spec {
	s := f.spec
	s.Plans = toolcrib.PlanFacts{Effect: true, Targets: true, Policy: true, Concerns: f.asks != nil}
	return s
}

func (f *fullTool) Plan(_ context.Context, c toolcrib.Call) (*toolcrib.Plan, error) {
	if f.admit != nil {
		if err := f.admit(c); err != nil {
			return nil, err
		}
	}
	p := &toolcrib.Plan{Run: f.Call, Preview: func(ctx context.Context) (toolcrib.Preview, error) {
		if f.preview == nil {
			return toolcrib.Preview{}, errors.New("nothing to show")
		}
		return f.preview(ctx, c)
	}}
	if f.effect != nil {
		if p.Effect = f.effect(c); p.Effect == "" {
			p.Effect = toolcrib.EffectNonIdempotentWrite
		}
	}
	if f.targets != nil {
		p.Targets = f.targets(c)
	}
	if f.asks != nil {
		p.Concerns = f.asks(c)
	}
	if f.content != nil {
		p.Content = f.content(c)
	}
	if f.files != nil {
		p.Files = func(context.Context) ([]toolcrib.FileState, error) { return f.files() }
	}
	return p, nil
}

// reads is the spec of a harmless tool that is on.
func reads(name string) toolcrib.Spec {
	return toolcrib.Spec{
		Name: name, Description: "About " + name, Source: "builtin",
		Effect: toolcrib.EffectReadOnly, EnabledByDefault: true,
	}
}

// writes is the spec of a tool that writes and is on.
func writes(name string) toolcrib.Spec {
	s := reads(name)
	s.Effect = toolcrib.EffectNonIdempotentWrite
	return s
}

func tool(s toolcrib.Spec) toolcrib.Tool { return &plainTool{s} }

// newGate makes a gate of tools without any override.
func newGate(t testing.TB, tools ...toolcrib.Tool) *gate.Gate {
	t.Helper()
	return gateOf(t, gate.Options{Tools: tools})
}

func gateOf(t testing.TB, o gate.Options) *gate.Gate {
	t.Helper()
	if o.Availability == nil {
		o.Availability = gate.Overrides{}
	}
	g, err := gate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// wide is a scope that restricts nothing.
func wide() gate.Scope {
	return gate.Scope{Agent: "default", Workspace: "/ws", MaxDepth: 3, MaxCalls: 64, MaxRepeats: 3}
}

func alice() toolcrib.Principal { return toolcrib.Principal{User: "alice"} }

func root() toolcrib.Principal { return toolcrib.Principal{User: "root", Admin: true} }

func call(id, name, arguments string) toolcrib.ToolCall {
	return toolcrib.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(arguments)}
}

// offering are the facts of a request that offered all tools of the gate.
func offering(g *gate.Gate) gate.Facts {
	f := gate.Facts{Run: "run_1", Session: "ses_1", Offered: map[string]bool{}}
	for _, name := range g.Names() {
		f.Offered[name] = true
	}
	return f
}

// judgeOne judges one call in a wide scope.
func judgeOne(t testing.TB, g *gate.Gate, c toolcrib.ToolCall) gate.Verdict {
	t.Helper()
	return judge(t, g, alice(), wide(), offering(g), c)[0]
}

func judge(t testing.TB, g *gate.Gate, who toolcrib.Principal, s gate.Scope, f gate.Facts, turn ...toolcrib.ToolCall) []gate.Verdict {
	t.Helper()
	verdicts := g.Judge(t.Context(), who, s, f, turn)
	if len(verdicts) != len(turn) {
		t.Fatalf("%d verdicts for %d calls", len(verdicts), len(turn))
	}
	for i, v := range verdicts {
		checkVerdict(t, turn[i], v)
	}
	return verdicts
}

// checkVerdict holds for every verdict there is.
func checkVerdict(t fataler, c toolcrib.ToolCall, v gate.Verdict) {
	t.Helper()
	if v.CallID != c.ID || v.Tool != c.Name {
		t.Fatalf("the verdict is about %s %s, the call is %s %s", v.CallID, v.Tool, c.ID, c.Name)
	}
	if v.Permit.Valid() != (v.Decision == toolcrib.Allow) {
		t.Fatalf("decision %q with permit %v", v.Decision, v.Permit.Valid())
	}
	if v.Refused() != (v.Decision == toolcrib.Refuse) || v.Refused() != (v.Content != "") {
		t.Fatalf("decision %q, refused %v, content %q", v.Decision, v.Refused(), v.Content)
	}
	if v.Decision == toolcrib.Allow && v.Reason != "" || v.Decision != toolcrib.Allow && (v.Reason == "" || v.Message == "") {
		t.Fatalf("decision %q with reason %q and message %q", v.Decision, v.Reason, v.Message)
	}
	if !v.Refused() {
		return
	}
	var content struct {
		Refused bool            `json:"refused"`
		Tool    string          `json:"tool"`
		Reason  toolcrib.Reason `json:"reason"`
		Message string          `json:"message"`
	}
	if err := json.Unmarshal([]byte(v.Content), &content); err != nil {
		t.Fatalf("content %q: %v", v.Content, err)
	}
	if !content.Refused || content.Reason != v.Reason || content.Message != v.Message {
		t.Fatalf("content %s of a verdict %s %q", v.Content, v.Reason, v.Message)
	}
	if !strings.HasPrefix(v.Content, `{"refused":true,"tool":`) {
		t.Fatalf("content %s", v.Content)
	}
}

func wantRefused(t testing.TB, v gate.Verdict, reason toolcrib.Reason, messageHas string) {
	t.Helper()
	if !v.Refused() || v.Reason != reason || !strings.Contains(v.Message, messageHas) {
		t.Fatalf("want refused %s with %q, have %q %s: %q (%s)", reason, messageHas, v.Decision, v.Reason, v.Message, v.Detail)
	}
}

func wantAllowed(t testing.TB, v gate.Verdict) {
	t.Helper()
	if v.Decision != toolcrib.Allow {
		t.Fatalf("want allowed, have %q %s: %q (%s)", v.Decision, v.Reason, v.Message, v.Detail)
	}
}

func wantAsked(t testing.TB, v gate.Verdict) {
	t.Helper()
	if v.Decision != toolcrib.Ask || v.Reason != toolcrib.ReasonNeedsConfirmation {
		t.Fatalf("want asked, have %q %s: %q", v.Decision, v.Reason, v.Message)
	}
}

// approve is an approval of a call as it was asked about.
func approve(asked gate.Verdict) gate.Decided {
	return gate.Decided{
		Decision: journal.DecisionApprove, ApprovalID: "apr_1", By: "bob", Asked: asked.Questions, Binding: asked.Binding,
	}
}

// asked is a call as the gate asks about it.
func asked(t testing.TB, g *gate.Gate, c toolcrib.ToolCall) gate.Verdict {
	t.Helper()
	v := judgeOne(t, g, c)
	if v.Decision != toolcrib.Ask || len(v.Questions) == 0 || v.Binding == nil {
		t.Fatalf("not asked: %+v", v.Verdict)
	}
	return v
}

// fataler is what the tests and the property tests share.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// finder is a tool by which others are found.
type finder struct{ toolcrib.Tool }

func (finder) About(groups []string) string { return fmt.Sprintf("finds tools of %q", groups) }

func finds(s toolcrib.Spec) toolcrib.Tool { return finder{tool(s)} }
