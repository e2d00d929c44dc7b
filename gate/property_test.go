package gate_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// world is everything that a decision depends on.
type world struct {
	tools     []toolcrib.Tool
	over      gate.Overrides
	confirm   gate.ConfirmMode
	settings  map[string]gate.ToolSettings
	protected gate.Protected
	who       toolcrib.Principal
	scope     gate.Scope
	facts     gate.Facts
	turn      []toolcrib.ToolCall
}

func worldNames() []string {
	return []string{"read_file", "read_dir", "write_file", "gh__get", "gh__put", "spawn"}
}

func drawWorld(t *rapid.T) world {
	w := world{
		over:    gate.Overrides{Tools: drawSwitches(t, "tools", worldNames()), Groups: drawSwitches(t, "groups", []string{"files", "gh"})},
		confirm: rapid.SampledFrom([]gate.ConfirmMode{"", gate.ConfirmNever, gate.ConfirmWrites, gate.ConfirmAlways}).Draw(t, "confirm"),
		who: toolcrib.Principal{
			User:  rapid.SampledFrom([]string{"", "alice"}).Draw(t, "user"),
			Admin: rapid.Bool().Draw(t, "admin"), Grants: drawList(t, "grants", []string{"files", "gh", "read_*", "spawn"}),
		},
		settings: map[string]gate.ToolSettings{},
	}
	for _, name := range worldNames() {
		if rapid.IntRange(0, 5).Draw(t, "registered") > 0 {
			w.tools = append(w.tools, drawTool(t, name))
		}
		if rapid.IntRange(0, 5).Draw(t, "settings") == 0 {
			w.settings[name] = gate.ToolSettings{Confirm: rapid.SampledFrom([]gate.ConfirmMode{gate.ConfirmNever, gate.ConfirmAlways}).Draw(t, "setting")}
		}
	}
	if rapid.Bool().Draw(t, "protects") {
		w.protected.Names = []string{".git"}
	}
	patterns := append(worldNames(), "*", "read_*", "gh__*", "ghost", "[x", "")
	w.scope = gate.Scope{
		Agent: "default", AgentTools: drawList(t, "agent", patterns), SkillTools: drawList(t, "skill", patterns),
		RunTools: drawList(t, "run", patterns), WorkerTools: drawList(t, "worker", patterns),
		ReadOnly: rapid.IntRange(0, 4).Draw(t, "readOnly") == 0, NobodyAsks: rapid.IntRange(0, 3).Draw(t, "nobody") == 0,
		Depth: rapid.IntRange(0, 2).Draw(t, "depth"), MaxDepth: rapid.IntRange(0, 3).Draw(t, "maxDepth"),
		MaxCalls: rapid.IntRange(0, 8).Draw(t, "maxCalls"), MaxRepeats: rapid.IntRange(0, 2).Draw(t, "maxRepeats"),
		Workspace: "/ws",
	}
	repeated := rapid.IntRange(0, 2).Draw(t, "repeated")
	w.facts = gate.Facts{
		Repeated: func(string, []byte) int { return repeated }, Offered: map[string]bool{}, Decided: map[string]gate.Decided{},
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "calls") {
		w.turn = append(w.turn, drawCall(t, fmt.Sprint(i), &w.facts))
	}
	return w
}

func drawTool(t *rapid.T, name string) toolcrib.Tool {
	spec := toolcrib.Spec{
		Name: name, Source: "go", EnabledByDefault: rapid.IntRange(0, 3).Draw(t, "default") > 0,
		Effect:        rapid.SampledFrom([]toolcrib.Effect{"", toolcrib.EffectReadOnly, toolcrib.EffectIdempotentWrite}).Draw(t, "effect"),
		Group:         rapid.SampledFrom([]string{"", "files", "gh"}).Draw(t, "group"),
		RequiresAdmin: rapid.IntRange(0, 4).Draw(t, "requiresAdmin") == 0, Nested: name == "spawn",
	}
	if rapid.Bool().Draw(t, "strict") {
		spec.Parameters = []byte(`{"type":"object","required":["n"]}`)
	}
	f := &fullTool{plainTool: plainTool{spec}}
	switch rapid.IntRange(0, 8).Draw(t, "behaviour") {
	case 0:
		f.admit = func(toolcrib.Call) error { return toolcrib.Failf(toolcrib.PermissionDenied, "no") }
	case 1:
		f.targets = func(toolcrib.Call) []toolcrib.Target {
			return []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: "/ws/.git/x", Write: true}}
		}
	case 2:
		f.effect = func(toolcrib.Call) toolcrib.Effect { panic("effect") }
	case 3:
		return &plainTool{spec}
	}
	return f
}

func drawCall(t *rapid.T, id string, f *gate.Facts) toolcrib.ToolCall {
	c := call(id, rapid.SampledFrom(append(worldNames(), "ghost")).Draw(t, "name"), rapid.SampledFrom([]string{`{}`, `{"n":1}`}).Draw(t, "arguments"))
	switch rapid.IntRange(0, 12).Draw(t, "flaw") {
	case 0:
		c.Cut = true
	case 1:
		c.Duplicate = true
	case 2:
		c.Broken, c.Problem = "{", "no end"
	}
	f.Offered[c.Name] = rapid.IntRange(0, 5).Draw(t, "offered") > 0
	switch rapid.IntRange(0, 4).Draw(t, "decided") {
	case 0:
		f.Decided[id] = gate.Decided{Decision: journal.DecisionApprove, ApprovalID: "apr_1"}
	case 1:
		f.Decided[id] = gate.Decided{Decision: journal.DecisionDeny, By: "bob"}
	}
	return c
}

func drawList(t *rapid.T, label string, from []string) []string {
	if rapid.IntRange(0, 2).Draw(t, label+"?") > 0 {
		return nil
	}
	return rapid.SliceOfN(rapid.SampledFrom(from), 0, 4).Draw(t, label)
}

func drawSwitches(t *rapid.T, label string, from []string) map[string]bool {
	return rapid.MapOfN(rapid.SampledFrom(from), rapid.Bool(), 0, 3).Draw(t, label)
}

// outcome is what a world leads to.
type outcome struct {
	offered  []string
	verdicts []gate.Verdict
	explain  map[string]gate.Explanation
}

func (w world) decide(t *rapid.T, layers ...gate.Layer) outcome {
	g, err := gate.New(gate.Options{
		Tools: w.tools, Availability: w.over, Confirm: w.confirm, Settings: w.settings, Protected: w.protected, Layers: layers,
	})
	if err != nil {
		t.Fatal(err)
	}
	offer, err := g.Offer(context.Background(), w.who, w.scope)
	if err != nil {
		t.Fatal(err)
	}
	again, err := g.Offer(context.Background(), w.who, w.scope)
	if err != nil || !slices.Equal(again.Record.Names(), offer.Record.Names()) || again.Record.Hash != offer.Record.Hash {
		t.Fatalf("offered %v, then %v (%v)", offer.Record.Names(), again.Record.Names(), err)
	}
	o := outcome{
		offered:  offer.Record.Names(),
		verdicts: g.Judge(context.Background(), w.who, w.scope, w.facts, w.turn),
		explain:  map[string]gate.Explanation{},
	}
	for _, x := range g.Explain(context.Background(), w.who, w.scope, append(worldNames(), "ghost")...) {
		o.explain[x.Tool] = x
	}
	return o
}

// order is contract §6's order.
func order(r toolcrib.Reason) int {
	return slices.Index([]toolcrib.Reason{
		"parse_error", "duplicate_call_id", "too_many_calls", "not_registered", "tool_disabled", "requires_admin", "not_permitted",
		"agent_allowlist", "skill_allowlist", "run_allowlist", "worker_allowlist", "not_offered", "depth_exceeded", "invalid_arguments",
		"tool_policy", "protected_path", "read_only_mode", "repeated_call", "needs_confirmation", "approval_denied",
	}, r)
}

func TestProperty_ExplainIsTheDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		o := w.decide(t)
		for name, x := range o.explain {
			if x.Offered != slices.Contains(o.offered, name) {
				t.Fatalf("%s: explained as offered %v, offer %v", name, x.Offered, o.offered)
			}
			first := slices.IndexFunc(x.Layers, func(a gate.LayerAnswer) bool { return !a.Allowed })
			if x.Offered != (first < 0) || first >= 0 && x.Layers[first].Layer != x.Reason {
				t.Fatalf("%s: %s is not the first refusing layer of %+v", name, x.Reason, x.Layers)
			}
		}
		for i, v := range o.verdicts {
			checkVerdict(t, w.turn[i], v)
			if order(v.Reason) < 0 && v.Decision != toolcrib.Allow {
				t.Fatalf("reason %q", v.Reason)
			}
			x := o.explain[v.Tool]
			byLayers := order(v.Reason) >= order("not_registered") && order(v.Reason) <= order("worker_allowlist")
			if byLayers && v.Reason != x.Reason {
				t.Fatalf("%s was refused as %s and is explained as %s", v.Tool, v.Reason, x.Reason)
			}
			if !x.Offered && (order(v.Reason) > order(x.Reason) || v.Decision != toolcrib.Refuse) {
				t.Fatalf("%s: %q %s past the layer %s", v.Tool, v.Decision, v.Reason, x.Reason)
			}
			if v.Decision == toolcrib.Allow && (!slices.Contains(o.offered, v.Tool) || !w.facts.Offered[v.Tool]) {
				t.Fatalf("%s is allowed and not offered", v.Tool)
			}
		}
	})
}

// narrowings are the ways to restrict a world.
func narrowings(t *rapid.T) map[string]func(*world) {
	name := rapid.SampledFrom(worldNames()).Draw(t, "narrowed")
	list := rapid.SliceOfN(rapid.SampledFrom(append(worldNames(), "gh__*")), 0, 3).Draw(t, "list")
	narrow := func(old []string) []string {
		if old == nil {
			return list
		}
		return old[:len(old)/2]
	}
	return map[string]func(*world){
		"agent list":  func(w *world) { w.scope.AgentTools = narrow(w.scope.AgentTools) },
		"skill list":  func(w *world) { w.scope.SkillTools = narrow(w.scope.SkillTools) },
		"run list":    func(w *world) { w.scope.RunTools = narrow(w.scope.RunTools) },
		"worker list": func(w *world) { w.scope.WorkerTools = narrow(w.scope.WorkerTools) },
		"grants":      func(w *world) { w.who.Grants = narrow(w.who.Grants) },
		"tool off":    func(w *world) { w.over.Tools = with(w.over.Tools, name) },
		"group off":   func(w *world) { w.over.Groups = with(w.over.Groups, "files") },
		"no admin":    func(w *world) { w.who.Admin = false },
		"nobody":      func(w *world) { w.who = toolcrib.Principal{Grants: w.who.Grants} },
		"read only":   func(w *world) { w.scope.ReadOnly = true },
		"nobody asks": func(w *world) { w.scope.NobodyAsks = true },
		"protected":   func(w *world) { w.protected.Names = []string{".git"} },
		"fewer calls": func(w *world) { w.scope.MaxCalls /= 2 },
		"less deep":   func(w *world) { w.scope.MaxDepth = 0 },
		"not offered": func(w *world) { w.facts.Offered = map[string]bool{name: w.facts.Offered[name]} },
		"undecided":   func(w *world) { w.facts.Decided = nil },
		"always ask": func(w *world) {
			w.settings = map[string]gate.ToolSettings{}
			for _, n := range worldNames() {
				w.settings[n] = gate.ToolSettings{Confirm: gate.ConfirmAlways}
			}
		},
	}
}

func with(m map[string]bool, off string) map[string]bool {
	out := map[string]bool{off: false}
	for k, v := range m {
		if k != off {
			out[k] = v
		}
	}
	return out
}

// TestProperty_NothingWidens restricts a world in every way, and finds that no
// tool is offered and no call allowed that was not before. Taking decisions away
// may turn a deny into a question; that is no leave either.
func TestProperty_NothingWidens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		before := w.decide(t)
		for how, narrow := range narrowings(t) {
			narrower := w
			narrow(&narrower)
			notWider(t, how, before, narrower.decide(t), how != "undecided")
		}
		notWider(t, "a further layer", before, w.decide(t, onlyLayer{"read_file"}), true)
	})
}

func notWider(t *rapid.T, how string, before, after outcome, strict bool) {
	for _, name := range after.offered {
		if !slices.Contains(before.offered, name) {
			t.Fatalf("%s: %s is offered, and was not before", how, name)
		}
	}
	for i, v := range after.verdicts {
		was := before.verdicts[i]
		if v.Decision == toolcrib.Allow && was.Decision != toolcrib.Allow && (strict || was.Decision != toolcrib.Refuse) {
			t.Fatalf("%s: %s is allowed, and was %q %s before", how, v.Tool, was.Decision, was.Reason)
		}
		if strict && v.Decision == toolcrib.Ask && was.Decision == toolcrib.Refuse {
			t.Fatalf("%s: %s is asked about, and was refused as %s before", how, v.Tool, was.Reason)
		}
	}
}

func TestProperty_ZeroWorldDenies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		switch rapid.IntRange(0, 2).Draw(t, "zero") {
		case 0:
			w.tools = nil
		case 1:
			w.facts = gate.Facts{}
		case 2:
			w.scope = gate.Scope{}
		}
		for _, v := range w.decide(t).verdicts {
			if !v.Refused() || v.Permit.Valid() {
				t.Fatalf("%+v", v)
			}
		}
	})
}
