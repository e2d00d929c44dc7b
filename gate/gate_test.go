package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

func from(source string, s toolcrib.Spec) toolcrib.Spec {
	s.Source = source
	return s
}

func withSchema(s toolcrib.Spec, schema string) toolcrib.Spec {
	s.Parameters = json.RawMessage(schema)
	return s
}

type panickingSpec struct{ plainTool }

func (*panickingSpec) Spec() toolcrib.Spec { panic("no spec") }

func TestN2_NewRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		options gate.Options
		want    []string // parts of the error
	}{
		{"no availability", gate.Options{}, []string{"Availability"}},
		{
			"same name",
			gate.Options{Tools: []toolcrib.Tool{tool(from("builtin", reads("read_file"))), tool(from("mcp:files", reads("read_file")))}},
			[]string{`"read_file"`, "builtin", "mcp:files"},
		},
		{
			"names that differ in case only",
			gate.Options{Tools: []toolcrib.Tool{tool(from("builtin", reads("read_file"))), tool(from("mcp:files", reads("Read_File")))}},
			[]string{`"read_file"`, `"Read_File"`, "builtin", "mcp:files"},
		},
		{"bad name", gate.Options{Tools: []toolcrib.Tool{tool(reads("a b"))}}, []string{"a b"}},
		{"nil tool", gate.Options{Tools: []toolcrib.Tool{nil}}, []string{"tool 1", "nil"}},
		{"panic in Spec", gate.Options{Tools: []toolcrib.Tool{&panickingSpec{}}}, []string{"tool 1", "panic"}},
		{"bad schema", gate.Options{Tools: []toolcrib.Tool{tool(withSchema(reads("x"), `{"type":"objekt"}`))}}, []string{"x (builtin)", "type"}},
		{"unknown effect", gate.Options{Tools: []toolcrib.Tool{tool(toolcrib.Spec{Name: "x", Effect: "sometimes"})}}, []string{"sometimes"}},
		{"confirm", gate.Options{Confirm: "maybe"}, []string{"tools.confirm", "maybe"}},
		{"settings confirm", gate.Options{Settings: map[string]gate.ToolSettings{"x": {Confirm: "maybe"}}}, []string{"tools.settings.x.confirm"}},
		{"settings timeout", gate.Options{Settings: map[string]gate.ToolSettings{"x": {Timeout: -1}}}, []string{"tools.settings.x.timeout"}},
		{"settings bytes", gate.Options{Settings: map[string]gate.ToolSettings{"x": {MaxResultBytes: 255}}}, []string{"tools.settings.x.max_result_bytes", "256"}},
		{"protected path", gate.Options{Protected: gate.Protected{Touch: []string{"data"}}}, []string{"data", "absolute"}},
		{"protected name", gate.Options{Protected: gate.Protected{Names: []string{"a/b"}}}, []string{"a/b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "no availability" {
				c.options.Availability = gate.Overrides{}
			}
			_, err := gate.New(c.options)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not have %q", err, want)
				}
			}
		})
	}
}

func TestForeignToolThatIsBrokenStopsNothing(t *testing.T) {
	deep := strings.Repeat(`{"properties":{"a":`, 40) + "{}" + strings.Repeat("}}", 40)
	for name, schema := range map[string]string{
		"twice":   `{"type":"object","type":"object"}`,
		"no JSON": `{`,
		"deep":    deep,
		"large":   `{"description":"` + strings.Repeat("x", 300<<10) + `"}`,
		"number":  `{"properties":{"a":{"minimum":1e999999}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, tool(reads("good")), tool(from("mcp:x", withSchema(reads("bad"), schema))))
			offer, err := g.Offer(t.Context(), alice(), wide())
			if err != nil || !slices.Equal(offer.Record.Names(), []string{"good"}) {
				t.Fatalf("offer %v, %v", offer.Record.Names(), err)
			}
			v := judgeOne(t, g, call("1", "bad", `{}`))
			wantRefused(t, v, toolcrib.ReasonToolDisabled, "bad is not available")
			if !strings.Contains(v.Detail, "unusable") || strings.Contains(v.Content, "unusable") {
				t.Fatalf("detail %q, content %s", v.Detail, v.Content)
			}
			states, err := g.States(t.Context())
			if err != nil || states[0].Unusable == "" || states[0].Enabled || states[1].Unusable != "" {
				t.Fatalf("states %+v, %v", states, err)
			}
		})
	}
}

// The spec that a model reads is clean, whoever wrote it, and calls are checked against that spec.
func TestC14_SpecsAreClean(t *testing.T) {
	const hidden = "\x1b[2J\u009b\u202e\U000e0041"
	for source, schema := range map[string]string{
		"mcp:x": "{\"title\":\"T" + hidden[4:] + "\",\"properties\":{\"p\u009b\U000e0041\":{\"enum\":[\"v\\u009b\"]," +
			"\"default\":\"d\\u202e\"}},\"required\":[\"p\\u009b\\udb40\\udc41\"],\"additionalProperties\":false}",
		"client": `{"properties":{"p\u001b":{"enum":["v\u007f"],"description":"\u001b]8;;x\u0007y"}},"required":["p\u001b"]}`,
		"bus:y":  `{"properties":{"p":{"enum":["v\u0000"]}},"required":["p"]}`,
	} {
		spec := from(source, withSchema(reads("t"), schema))
		spec.Description = "Reads." + hidden
		g := newGate(t, tool(spec))
		offer, err := g.Offer(t.Context(), alice(), wide())
		if err != nil || len(offer.Specs) != 1 {
			t.Fatalf("%s: %+v, %v", source, offer, err)
		}
		got := offer.Specs[0]
		if got.Description != "Reads.[2J[U+202E]" || guard.Clean(string(got.Parameters)) != string(got.Parameters) ||
			strings.Contains(string(got.Parameters), `\u`) {
			t.Errorf("%s: shown %q, %s", source, got.Description, got.Parameters)
		}
		for arguments, want := range map[string]bool{`{"p":"v"}`: true, `{"p":"w"}`: false, `{"p\u009b":"v"}`: false} {
			if v := judgeOne(t, g, call("1", "t", arguments)); (v.Reason != toolcrib.ReasonInvalidArguments) != want {
				t.Errorf("%s: %s is %+v", source, arguments, v)
			}
		}
	}
}

func TestC5_N4_N8_Offer(t *testing.T) {
	off := reads("off")
	off.EnabledByDefault = false
	adminOnly := reads("only_admin")
	adminOnly.RequiresAdmin = true
	g := newGate(t, tool(reads("b")), tool(reads("a_2")), tool(reads("a_1")), tool(off), tool(adminOnly), tool(writes("w")))
	for _, c := range []struct {
		name  string
		who   toolcrib.Principal
		scope func(*gate.Scope)
		want  []string
	}{
		{"A4: no list is the enabled set, sorted", alice(), func(*gate.Scope) {}, []string{"a_1", "a_2", "b", "w"}},
		{"N18: an administrator", root(), func(*gate.Scope) {}, []string{"a_1", "a_2", "b", "only_admin", "w"}},
		{"N18: nobody acting", toolcrib.Principal{Admin: true}, func(*gate.Scope) {}, []string{"a_1", "a_2", "b", "w"}},
		{"N4: ghosts are dropped", alice(), func(s *gate.Scope) { s.RunTools = []string{"b", "ghost"} }, []string{"b"}},
		{"A5: a list cannot switch on", alice(), func(s *gate.Scope) { s.RunTools = []string{"off", "b"} }, []string{"b"}},
		{"globs", alice(), func(s *gate.Scope) { s.AgentTools = []string{"a_*"} }, []string{"a_1", "a_2"}},
		{"intersection", alice(), func(s *gate.Scope) {
			s.AgentTools, s.SkillTools, s.RunTools, s.WorkerTools = []string{"*"}, []string{"a_*", "b"}, []string{"a_1", "b", "w"}, []string{"?", "a_2"}
		}, []string{"b"}},
		{"N8: an empty list", alice(), func(s *gate.Scope) { s.SkillTools = []string{} }, []string{}},
		{"read only does not change the offer", alice(), func(s *gate.Scope) { s.ReadOnly = true }, []string{"a_1", "a_2", "b", "w"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := wide()
			c.scope(&s)
			for range 2 { // the same each time
				o, err := g.Offer(t.Context(), c.who, s)
				if err != nil {
					t.Fatal(err)
				}
				if have := o.Record.Names(); !slices.Equal(have, c.want) {
					t.Fatalf("offered %v, want %v", have, c.want)
				}
				for i, spec := range o.Specs {
					if spec.Name != c.want[i] || !o.Set()[spec.Name] || len(o.Set()) != len(c.want) {
						t.Fatalf("spec %d is %s, set %v", i, spec.Name, o.Set())
					}
				}
			}
		})
	}
}

// TestOfferTellsPoliciesApart asks for offers that differ in one thing that
// decides, one after the other.
func TestOfferTellsPoliciesApart(t *testing.T) {
	adminOnly := reads("only_admin")
	adminOnly.RequiresAdmin = true
	g := newGate(t, tool(reads("a")), tool(reads("b")), tool(adminOnly))
	user, narrow := alice(), wide()
	granted, empty, admin := user, user, user
	granted.Grants, empty.Grants, admin.Admin = []string{"a"}, []string{}, true
	narrow.RunTools = []string{"a"}
	for range 2 {
		for _, c := range []struct {
			who   toolcrib.Principal
			scope gate.Scope
			want  string
		}{
			{user, wide(), "a b"},
			{granted, wide(), "a"},
			{empty, wide(), ""},
			{admin, wide(), "a b only_admin"},
			{user, narrow, "a"},
			{user, gate.Scope{AgentTools: []string{"b"}}, "b"},
			{user, gate.Scope{SkillTools: []string{}}, ""},
			{user, gate.Scope{WorkerTools: []string{"a", "b"}}, "a b"},
			{user, gate.Scope{WorkerTools: []string{"ab"}}, ""},
		} {
			o, err := g.Offer(t.Context(), c.who, c.scope)
			if have := strings.Join(o.Record.Names(), " "); err != nil || have != c.want {
				t.Fatalf("%+v %+v: offered %q, want %q (%v)", c.who, c.scope, have, c.want, err)
			}
		}
	}
}

// Policies whose lists read the same one after the other, and part in other places.
func TestOfferTellsListsApart(t *testing.T) {
	for _, c := range []struct{ narrow, wide gate.Scope }{
		{gate.Scope{RunTools: []string{"a_", "b"}}, gate.Scope{RunTools: []string{"a", "_b"}}},
		{
			gate.Scope{AgentTools: []string{"a"}, SkillTools: []string{"\x01"}, RunTools: []string{"a"}, WorkerTools: []string{}},
			gate.Scope{AgentTools: []string{"a", ""}, WorkerTools: []string{"a", ""}},
		},
	} {
		g := newGate(t, tool(reads("a")))
		for range 2 {
			for scope, want := range map[*gate.Scope]int{&c.narrow: 0, &c.wide: 1} {
				if o, err := g.Offer(t.Context(), alice(), *scope); err != nil || len(o.Specs) != want {
					t.Fatalf("%+v: %q is offered, want %d (%v)", scope, o.Record.Names(), want, err)
				}
			}
		}
	}
}

// A4: the overrides change in one of their two halves, and the other one is the very
// same.
func TestA4_OfferLooksAtBothHalves(t *testing.T) {
	spec := reads("a")
	spec.Group = "g"
	tools, groups := map[string]bool{}, map[string]bool{}
	s := &switches{over: gate.Overrides{Tools: tools, Groups: groups}}
	g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(spec)}, Availability: s})
	for i, c := range []struct {
		over gate.Overrides
		want int
	}{
		{gate.Overrides{Tools: tools, Groups: groups}, 1},
		{gate.Overrides{Tools: tools, Groups: map[string]bool{"g": false}}, 0},
		{gate.Overrides{Tools: tools, Groups: groups}, 1},
		{gate.Overrides{Tools: map[string]bool{"a": false}, Groups: groups}, 0},
		{gate.Overrides{Tools: tools, Groups: groups}, 1},
	} {
		s.over = c.over
		if o, err := g.Offer(t.Context(), alice(), wide()); err != nil || len(o.Specs) != c.want {
			t.Fatalf("%d: %q is offered, want %d (%v)", i, o.Record.Names(), c.want, err)
		}
	}
}

// writersLayer looks at what the gate's own layers do not.
type writersLayer struct{}

func (writersLayer) Reason() toolcrib.Reason { return "readers_only" }

func (writersLayer) Judge(q *gate.Query) gate.Answer {
	return gate.Answer{Allowed: q.Scope != nil && !q.Scope.ReadOnly, Detail: "no readers"}
}

// Further layers have a say in each offer.
func TestOfferOfFurtherLayers(t *testing.T) {
	g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(reads("a"))}, Layers: []gate.Layer{writersLayer{}}})
	for i, want := range []int{1, 0, 1, 0} {
		scope := wide()
		scope.ReadOnly = want == 0
		if o, err := g.Offer(t.Context(), alice(), scope); err != nil || len(o.Specs) != want {
			t.Fatalf("%d: %q is offered, want %d (%v)", i, o.Record.Names(), want, err)
		}
	}
}

func TestOfferHash(t *testing.T) {
	hash := func(tools ...toolcrib.Tool) string {
		o, err := newGate(t, tools...).Offer(t.Context(), alice(), wide())
		if err != nil || len(o.Record.Hash) != 64 {
			t.Fatalf("hash %q, %v", o.Record.Hash, err)
		}
		return o.Record.Hash
	}
	base := hash(tool(reads("a")), tool(reads("b")))
	if base != hash(tool(reads("b")), tool(reads("a"))) {
		t.Error("the order of tools changes the hash")
	}
	other := reads("b")
	other.Description = "Something else"
	for name, have := range map[string]string{
		"fewer tools":         hash(tool(reads("a"))),
		"no tools":            hash(),
		"another description": hash(tool(reads("a")), tool(other)),
		"another schema":      hash(tool(reads("a")), tool(withSchema(reads("b"), `{"type":"object","required":["x"]}`))),
	} {
		if have == base {
			t.Errorf("%s: the same hash", name)
		}
	}
	if hash(tool(withSchema(reads("a"), ` { "type" : "object" } `))) != hash(tool(withSchema(reads("a"), ``))) {
		t.Error("space in a schema changes the hash, or an empty schema is not one of an object")
	}
}

func TestEmptySchemaIsAnObject(t *testing.T) {
	for _, schema := range []string{``, `{}`, `null`, ` { } `} {
		o, err := newGate(t, tool(withSchema(reads("a"), schema))).Offer(t.Context(), alice(), wide())
		if err != nil || string(o.Specs[0].Parameters) != `{"type":"object"}` {
			t.Fatalf("%q: %s, %v", schema, o.Specs[0].Parameters, err)
		}
	}
}

// switches is an availability that a test changes.
type switches struct {
	over gate.Overrides
	err  error
	bad  bool
}

func (s *switches) Overrides(context.Context) (gate.Overrides, error) {
	if s.bad {
		panic("store gone")
	}
	return s.over, s.err
}

func TestA2_A9_ToggleHoldsAtOnce(t *testing.T) {
	s := &switches{}
	off := reads("off")
	off.EnabledByDefault = false
	g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(reads("on")), tool(off)}, Availability: s})
	for _, step := range []struct {
		over gate.Overrides
		want []string
	}{
		{gate.Overrides{}, []string{"on"}},
		{gate.Overrides{Tools: map[string]bool{"off": true}}, []string{"off", "on"}},
		{gate.Overrides{Tools: map[string]bool{"off": true, "on": false}}, []string{"off"}},
		{gate.Overrides{}, []string{"on"}},
	} {
		s.over = step.over
		o, err := g.Offer(t.Context(), alice(), wide())
		if err != nil || !slices.Equal(o.Record.Names(), step.want) {
			t.Fatalf("%+v: offered %v, %v, want %v", step.over, o.Record.Names(), err, step.want)
		}
		for _, name := range g.Names() {
			if have := judgeOne(t, g, call("1", name, `{}`)).Decision == toolcrib.Allow; have != slices.Contains(step.want, name) {
				t.Fatalf("%+v: %s allowed: %v", step.over, name, have)
			}
		}
	}
}

func TestUnreadableOverridesRefuseEverything(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx context.Context
		s   *switches
	}{
		"error":   {t.Context(), &switches{err: errors.New("disk on fire")}},
		"panic":   {t.Context(), &switches{bad: true}},
		"context": {ended, &switches{}},
	} {
		t.Run(name, func(t *testing.T) {
			g := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(reads("a"))}, Availability: c.s})
			if o, err := g.Offer(c.ctx, root(), wide()); err == nil || len(o.Specs) != 0 {
				t.Fatalf("offer %+v, %v", o, err)
			}
			if _, err := g.States(c.ctx); c.s.err != nil && err == nil {
				t.Fatal("states without error")
			}
			v := g.Judge(c.ctx, root(), wide(), offering(g), []toolcrib.ToolCall{call("1", "a", `{}`)})[0]
			wantRefused(t, v, toolcrib.ReasonToolDisabled, "a is not available")
			if v.Detail == "" || strings.Contains(v.Content, "fire") {
				t.Fatalf("detail %q, content %s", v.Detail, v.Content)
			}
			if x := g.Explain(c.ctx, root(), wide())[0]; x.Offered || x.Reason != toolcrib.ReasonToolDisabled {
				t.Fatalf("explained %+v", x)
			}
		})
	}
}

func TestA3_States(t *testing.T) {
	a, b := reads("a"), writes("b")
	a.Group, b.EnabledByDefault, b.RequiresAdmin = "files", false, true
	g := gateOf(t, gate.Options{
		Tools:        []toolcrib.Tool{tool(b), tool(a)},
		Availability: gate.Overrides{Tools: map[string]bool{"b": true, "a": true}, Groups: map[string]bool{"files": false}},
	})
	states, err := g.States(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	have, err := json.Marshal(states)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"name":"a","description":"About a","parameters":{"type":"object"},"source":"builtin","effect":"read_only","group":"files",` +
		`"requires_admin":false,"enabled":false,"enabled_by_default":true,"overridden":true,"group_disabled":true},` +
		`{"name":"b","description":"About b","parameters":{"type":"object"},"source":"builtin","effect":"non_idempotent_write","group":"",` +
		`"requires_admin":true,"enabled":true,"enabled_by_default":false,"overridden":true}]`
	if string(have) != want {
		t.Fatalf("have %s\nwant %s", have, want)
	}
}

func TestZeroValuesDeny(t *testing.T) {
	var zero gate.Gate
	var none *gate.Gate
	for _, g := range []*gate.Gate{&zero, none} {
		v := g.Judge(t.Context(), root(), wide(), gate.Facts{Offered: map[string]bool{"a": true}}, []toolcrib.ToolCall{call("1", "a", `{}`)})[0]
		wantRefused(t, v, toolcrib.ReasonNotRegistered, "tool not found: a")
		if o, err := g.Offer(t.Context(), root(), wide()); err == nil || len(o.Specs) > 0 {
			t.Fatalf("offer %v, %v", o, err)
		}
		if x := g.Explain(t.Context(), root(), wide(), "a")[0]; x.Offered {
			t.Fatalf("%+v", x)
		}
	}
	g := newGate(t, tool(reads("a")))
	wantRefused(t, judge(t, g, toolcrib.Principal{}, gate.Scope{}, gate.Facts{}, call("1", "a", `{}`))[0], toolcrib.ReasonTooManyCalls, "")
	wantRefused(t, judge(t, g, alice(), wide(), gate.Facts{}, call("1", "a", `{}`))[0], toolcrib.ReasonNotOffered, "")
	var nothing gate.Verdict
	if nothing.Permit.Valid() || !nothing.Refused() || !(gate.Verdict{Verdict: journal.Verdict{Decision: toolcrib.Allow}}).Refused() {
		t.Fatal("the zero verdict lets run")
	}
	if _, err := nothing.Permit.Execute(t.Context(), gate.Attachments{}); !errors.Is(err, gate.ErrNoPermit) {
		t.Fatalf("the zero permit runs: %v", err)
	}
}

func TestExplain(t *testing.T) {
	nested := writes("nested")
	nested.Nested = true
	g := gateOf(t, gate.Options{
		Tools:        []toolcrib.Tool{tool(reads("a")), tool(nested)},
		Availability: gate.Overrides{Tools: map[string]bool{"a": false}},
		Positions:    func(key string) string { return "toolcrib.yaml:7 " + key },
	})
	s := wide()
	s.AgentTools, s.RunTools, s.ReadOnly, s.Unattended, s.Depth = []string{"nested", "ghost*"}, []string{"a", "phantom"}, true, true, 3
	x := g.Explain(t.Context(), alice(), s, "a", "nested", "ghost")
	if len(x) != 3 {
		t.Fatalf("%d explanations", len(x))
	}
	if a := x[0]; a.Offered || a.Reason != toolcrib.ReasonToolDisabled || len(a.Layers) != 8 ||
		a.Layers[4].Allowed || a.Layers[4].Position != "toolcrib.yaml:7 agents.default.tools" ||
		!slices.Equal(a.Layers[4].Unknown, []string{"ghost*"}) || !slices.Equal(a.Layers[6].Unknown, []string{"phantom"}) ||
		!a.Layers[6].Allowed || a.Description != "About a" || a.Source != "builtin" || a.Confirm.Asks {
		t.Fatalf("a: %+v", a)
	}
	if n := x[1]; n.Offered || n.Reason != toolcrib.ReasonRunAllowlist || !n.Confirm.Asks ||
		n.Confirm.Position != "toolcrib.yaml:7 tools.confirm" || len(n.Notes) != 4 {
		t.Fatalf("nested: %+v", n)
	}
	if ghost := x[2]; ghost.Registered || ghost.Offered || ghost.Reason != toolcrib.ReasonNotRegistered {
		t.Fatalf("ghost: %+v", ghost)
	}
	if all := g.Explain(t.Context(), alice(), s); len(all) != 2 || all[0].Tool != "a" || all[1].Tool != "nested" {
		t.Fatalf("all: %+v", all)
	}
	if u := g.UnknownNames([]string{"a", "x", "n*", "y?"}); !slices.Equal(u, []string{"x", "y?"}) {
		t.Fatalf("unknown %v", u)
	}
}

func TestUnknownSettings(t *testing.T) {
	g := gateOf(t, gate.Options{
		Tools:    []toolcrib.Tool{tool(reads("a"))},
		Settings: map[string]gate.ToolSettings{"a": {}, "z": {}, "b": {}},
	})
	if u := g.UnknownSettings(); !slices.Equal(u, []string{"b", "z"}) {
		t.Fatal(u)
	}
}

func TestFurtherLayerNarrows(t *testing.T) {
	g := gateOf(t, gate.Options{
		Tools:  []toolcrib.Tool{tool(reads("a")), tool(reads("b"))},
		Layers: []gate.Layer{onlyLayer{"a"}},
	})
	o, err := g.Offer(t.Context(), root(), wide())
	if err != nil || !slices.Equal(o.Record.Names(), []string{"a"}) {
		t.Fatalf("offer %v, %v", o.Record.Names(), err)
	}
	wantRefused(t, judgeOne(t, g, call("1", "b", `{}`)), "only", "b is not available in this run")
	panicking := gateOf(t, gate.Options{Tools: []toolcrib.Tool{tool(reads("a"))}, Layers: []gate.Layer{onlyLayer{"panic"}}})
	v := judgeOne(t, panicking, call("1", "a", `{}`))
	wantRefused(t, v, "only", "")
	if !strings.Contains(v.Detail, "panic") {
		t.Fatalf("detail %q", v.Detail)
	}
}

// onlyLayer allows one tool, and panics if that is called panic.
type onlyLayer struct{ name string }

func (onlyLayer) Reason() toolcrib.Reason { return "only" }

func (l onlyLayer) Judge(q *gate.Query) gate.Answer {
	if l.name == "panic" {
		panic("layer")
	}
	return gate.Answer{Allowed: q.Spec != nil && q.Spec.Name == l.name, Detail: "only " + l.name}
}

func TestConcurrentUse(t *testing.T) {
	tools := make([]toolcrib.Tool, 20)
	for i := range tools {
		tools[i] = tool(withSchema(reads(fmt.Sprintf("t%02d", i)), `{"type":"object","properties":{"n":{"type":"integer"}}}`))
	}
	g := newGate(t, tools...)
	done := make(chan error)
	for w := range 8 {
		go func() {
			for i := range 50 {
				s := wide()
				s.RunTools = []string{fmt.Sprintf("t%02d", (w+i)%20)}
				o, err := g.Offer(context.Background(), alice(), s)
				if err != nil || !slices.Equal(o.Record.Names(), s.RunTools) {
					done <- fmt.Errorf("offer %v: %w", o.Record.Names(), err)
					return
				}
				f := gate.Facts{Offered: o.Set()}
				if v := g.Judge(context.Background(), alice(), s, f, []toolcrib.ToolCall{call("1", s.RunTools[0], `{"n":1}`)})[0]; v.Refused() {
					done <- errors.New(v.Message)
					return
				}
			}
			done <- nil
		}()
	}
	timeout := time.After(time.Minute)
	for range 8 {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-timeout:
			t.Fatal("stuck")
		}
	}
}
