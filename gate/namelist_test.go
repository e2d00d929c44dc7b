package gate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
)

// N15: a long list is indexed once, and judged by its current contents and its own kind.
func TestN15_LongLists(t *testing.T) {
	g := newGate(t, tool(reads("a")), tool(reads("b")), tool(reads("c")))
	list := strings.Fields("x1 x2 a x4 x5 x6 x7 x8 x9 x10")
	scope := wide()
	scope.AgentTools = list
	offered := func(who toolcrib.Principal) string {
		t.Helper()
		o, err := g.Offer(t.Context(), who, scope)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(o.Record.Names(), " ")
	}
	if have := offered(alice()); have != "a" {
		t.Fatalf("offered %q", have)
	}
	list[2] = "b" // not the first, the middle or the last
	if have := offered(alice()); have != "b" {
		t.Fatalf("the list was changed, and %q is offered", have)
	}
	list[3] = "*"
	who := alice()
	who.Grants = slices.Clone(list) // as grants, * alone means nothing
	if have := offered(who); have != "b" {
		t.Fatalf("granted is b, offered %q", have)
	}
	scope.AgentTools, scope.SkillTools = nil, strings.Fields("x1 x2 a(x:*) x4 x5 x6 x7 x8")
	if have := offered(alice()); have != "a" {
		t.Fatalf("a skill's entry with a pattern: offered %q", have)
	}
	scope.AgentTools = scope.SkillTools // which is no entry of any other list
	if have := offered(alice()); have != "" {
		t.Fatalf("a pattern of arguments on the agent's list: offered %q", have)
	}
	scope.AgentTools, scope.SkillTools = nil, nil
	for i := range 600 { // more lists than are kept
		scope.RunTools = append(slices.Repeat([]string{"y"}, 9), fmt.Sprint("z", i), "c")
		if have := offered(alice()); have != "c" {
			t.Fatalf("list %d: offered %q", i, have)
		}
	}
}

// TestN15_Property_LongListsMeanTheSame pads a list with names that mean no tool, so
// that it is made ready instead of read, and finds the same answers, from the same
// entry.
func TestN15_Property_LongListsMeanTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := []string{}
		for range upTo(t, 7, "length") {
			entries = append(entries, pick(t, "entry", append(worldPatterns(), "files", "odd one", "agent:default", "sql:a/b", "f*", "read_*(a:*)", "write_file(x)", "read_file(")...))
		}
		long := append(slices.Clone(entries), slices.Repeat([]string{"no_such_tool"}, 20)...)
		w := world{
			scope: gate.Scope{Agent: "default", MaxDepth: 1, MaxCalls: 1, HasSkills: true},
			who:   toolcrib.Principal{User: "alice"},
		}
		for _, name := range worldNames() {
			w.tools = append(w.tools, worldTool{spec: reads(name), plain: true})
			w.tools[len(w.tools)-1].spec.Group = pick(t, "group", append(worldGroups(), "")...)
		}
		of := pick(t, "list", func(w *world) *[]string { return &w.scope.AgentTools }, func(w *world) *[]string { return &w.scope.SkillTools },
			func(w *world) *[]string { return &w.who.Grants })
		g := (&celRules{}).gateOf(t, w)
		short := w
		*of(&short) = entries
		*of(&w) = long
		want := g.Explain(context.Background(), short.who, short.scope)
		for i, x := range g.Explain(context.Background(), w.who, w.scope) {
			for k, layer := range x.Layers {
				detail := want[i].Layers[k].Detail
				if len(entries) == 0 {
					detail = layer.Detail // an empty list is told as such
				}
				if layer.Allowed != want[i].Layers[k].Allowed || layer.Detail != detail {
					t.Fatalf("%s, %s of %q: %+v, want %+v", x.Tool, layer.Layer, entries, layer, want[i].Layers[k])
				}
			}
		}
	})
}
