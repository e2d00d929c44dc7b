package bound_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/tool/bound"
)

// node answers calls, and records them.
type node struct {
	known []bus.Known
	calls []bus.Request
	out   string
	err   error
}

func (n *node) Known() []bus.Known { return n.known }

func (n *node) Call(_ context.Context, _ *toolcrib.Call, r bus.Request) (json.RawMessage, error) {
	n.calls = append(n.calls, r)
	return json.RawMessage(n.out), n.err
}

func known(name string, keys ...bus.Key) (all []bus.Known) {
	for _, key := range keys {
		all = append(all, bus.Known{Descriptor: bus.Descriptor{Name: parse(name)}, Node: key, Local: key == "self"})
	}
	return all
}

func parse(name string) bus.Name {
	n, err := bus.ParseName(name)
	if err != nil {
		panic(err)
	}
	return n
}

func plan(t *testing.T, n *node, o bound.Options, arguments string) *toolcrib.Plan {
	t.Helper()
	tool, err := bound.New(n, o, "k")
	if err != nil {
		t.Fatal(err)
	}
	p, err := tool.(toolcrib.Planner).Plan(t.Context(), toolcrib.Call{Run: "run_1", ID: "call_1", Arguments: json.RawMessage(arguments)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// H5: the body of a call.
func TestH5_Body(t *testing.T) {
	predefined := func(name string) bound.Options {
		all := bound.Predefined(nil)
		return all[slices.IndexFunc(all, func(o bound.Options) bool { return o.Name == name })]
	}
	for what, tt := range map[string]struct {
		o                             bound.Options
		arguments, name, params, body string
	}{
		"default":       {bound.Options{Name: "x", Capability: parse("a.b@1.2")}, `{"n":1}`, "a.b@1.2", "", `{"n":1}`},
		"no argument":   {bound.Options{Name: "x", Capability: parse("a.b@1.2")}, `{}`, "a.b@1.2", "", `{}`},
		"params":        {bound.Options{Name: "x", Capability: parse("a.b@1.0"), Params: map[string]any{"corpus": "notes"}}, `{"q":"r"}`, "a.b@1.0", `{"corpus":"notes"}`, `{"q":"r"}`},
		"search_corpus": {predefined("search_corpus"), `{"corpus":"notes","query":"r"}`, "rag.query@1.0", `{"corpus":"notes"}`, `{"query":"r"}`},
		"without it":    {predefined("search_corpus"), `{"query":"r"}`, "rag.query@1.0", "", `{"query":"r"}`},
		"composition": {
			bound.Options{Name: "x", Capability: parse("llm.tools.call@1.0"), Params: map[string]any{"target_capability": "a.b@1.0", "p": 1}},
			`{"n":1}`, "llm.tools.call@1.0", "",
			`{"target_body":{"input":{"n":1},"params":{"p":1}},"target_capability":"a.b@1.0","tool_call_id":"call_1"}`,
		},
	} {
		n := &node{out: `{"ok":true}`}
		out, err := plan(t, n, tt.o, tt.arguments).Run(t.Context(), toolcrib.Call{})
		if err != nil || string(out.JSON) != n.out || out.IsError {
			t.Errorf("%s: %+v, %v", what, out, err)
		}
		if r := n.calls[0]; r.Name.String() != tt.name || string(r.Params) != tt.params || string(r.Input) != tt.body || r.ID == "" {
			t.Errorf("%s: %s params %s input %s", what, r.Name, r.Params, r.Input)
		}
	}
}

// H6, H21: an error keeps its code, and is a result.
func TestH6_Errors(t *testing.T) {
	for _, code := range []toolcrib.Code{
		toolcrib.CodeBadRequest, toolcrib.CodeTimeout, toolcrib.CodeInternal, toolcrib.CodeScopeInsufficient, toolcrib.CodeUnauthorized,
		toolcrib.CodeCapacityExceeded, toolcrib.CodePartition,
	} {
		n := &node{err: toolcrib.Errorf(code, "why")}
		out, err := plan(t, n, bound.Options{Name: "x", Capability: parse("a.b@1.0"), Effect: toolcrib.EffectReadOnly}, `{}`).Run(t.Context(), toolcrib.Call{})
		if err != nil || !out.IsError || string(out.JSON) != `{"error":"`+string(code)+`","message":"why"}` {
			t.Errorf("%s: %+v, %v", code, out, err)
		}
	}
	n := &node{err: context.Canceled}
	if _, err := plan(t, n, bound.Options{Name: "x", Capability: parse("a.b@1.0")}, `{}`).Run(t.Context(), toolcrib.Call{}); err == nil {
		t.Error("a call that was cut off has a result")
	}
}

// A write that was cut off is asked for again at the node that the journal names, with its ID.
func TestReconcile(t *testing.T) {
	n := &node{known: known("a.b@1.3", "far", "self", "zoo"), out: `"done"`}
	o := bound.Options{Name: "x", Capability: parse("a.b@1.0"), Effect: toolcrib.EffectNonIdempotentWrite}
	p := plan(t, n, o, `{"n":1}`)
	raw, err := p.Prepare(t.Context(), toolcrib.Call{})
	if err != nil || !strings.Contains(string(raw), `"node":"self"`) {
		t.Fatalf("%s, %v", raw, err)
	}
	if _, err := p.Run(t.Context(), toolcrib.Call{}); err != nil {
		t.Fatal(err)
	}
	n.known = known("a.b@1.3", "far") // whatever there is now
	again := plan(t, n, o, `{"n":1}`)
	found, err := again.Reconcile(t.Context(), toolcrib.Call{}, raw)
	if err != nil || found.State != toolcrib.Happened || string(found.Output.JSON) != `"done"` {
		t.Errorf("%+v, %v", found, err)
	}
	if a, b := n.calls[0], n.calls[1]; a.ID != b.ID || a.To != "self" || b.To != "self" || string(a.Input) != string(b.Input) {
		t.Errorf("called %+v, then %+v", a, b)
	}
	old := strings.Replace(string(raw), `"at":"20`, `"at":"19`, 1)
	for what, prepared := range map[string]string{"the node is gone": string(raw), "long ago": old, "broken": `{}`} {
		n.err = toolcrib.Errorf(toolcrib.CodePartition, "gone")
		if found, err := again.Reconcile(t.Context(), toolcrib.Call{}, json.RawMessage(prepared)); err != nil || found.State != toolcrib.InDoubt {
			t.Errorf("%s: %+v, %v", what, found, err)
		}
	}
	if n := len(n.calls); n != 3 {
		t.Errorf("%d calls", n)
	}
	if p := plan(t, n, bound.Options{Name: "x", Capability: parse("a.b@1.0"), Effect: toolcrib.EffectReadOnly}, `{}`); p.Prepare != nil {
		t.Error("a read is prepared")
	}
}

func TestH15_Predefined(t *testing.T) {
	var names, on []string
	for _, o := range bound.Predefined([]string{"translate", "no_such"}) {
		names = append(names, o.Name)
		if o.Enabled {
			on = append(on, o.Name)
		}
		tool, err := bound.New(&node{}, o, "*")
		if err != nil {
			t.Fatal(err)
		}
		spec := tool.Spec()
		if writes := o.Name == "market_post" || o.Name == "chat_send"; spec.Effect.Writes() != writes || !spec.Untrusted || !spec.Sink {
			t.Errorf("%+v", spec)
		}
	}
	want := "search_corpus list_corpora translate list_marketplace find_neighbour describe_image transcribe_audio market_post chat_send"
	if got := strings.Join(names, " "); got != want || strings.Join(on, " ") != "translate" {
		t.Errorf("%s, on %s", got, on)
	}
	o := bound.Options{Capability: parse("a.b@1.2")}
	for what, tt := range map[string]struct {
		known  []bus.Known
		source string
		ok     bool
	}{
		"none": {nil, "", false}, "older": {known("a.b@1.1", "x"), "", false}, "newer": {known("a.b@1.3", "x"), "x", true},
		"another major": {known("a.b@2.2", "x"), "", false}, "two": {known("a.b@1.2", "x", "y"), "*", true},
	} {
		if source, ok := o.Source(tt.known); source != tt.source || ok != tt.ok {
			t.Errorf("%s: %q, %t", what, source, ok)
		}
	}
}
