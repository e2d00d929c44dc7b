package standing_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// always is an availability in which everything is on.
type always struct{}

func (always) Overrides(context.Context) (gate.Overrides, error) { return gate.Overrides{}, nil }

func toolNames() []string  { return []string{"read_file", "read_skill", "write_file", "web_fetch"} }
func agentNames() []string { return []string{"default", "reader"} }

// may is the set of permitted calls under each agent, by tool, arguments and agent.
func may(t *rapid.T, g *gate.Gate, who toolcrib.Principal) map[string]bool {
	out := map[string]bool{}
	ctx := context.Background()
	for _, agent := range agentNames() {
		refused, err := g.MayRun(ctx, who, agent)
		if err != nil {
			t.Fatal(err)
		}
		out["agent "+agent] = refused == ""
		scope := gate.Scope{Agent: agent, MaxCalls: 64, MaxDepth: 1}
		offer, err := g.Offer(ctx, who, scope)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range g.Explain(ctx, who, scope) {
			if x.Offered != slices.Contains(offer.Record.Names(), x.Tool) {
				t.Fatalf("%s is explained as offered %v, and the offer is %v", x.Tool, x.Offered, offer.Record.Names())
			}
		}
		facts := gate.Facts{Offered: offer.Set()}
		for _, tool := range toolNames() {
			out[agent+" "+tool] = offer.Set()[tool]
			for _, args := range []string{`{"path":"a"}`, `{"path":"b"}`, `{}`} {
				v := g.Judge(ctx, who, scope, facts, []toolcrib.ToolCall{{ID: "c", Name: tool, Arguments: json.RawMessage(args)}})[0]
				out[agent+" "+tool+args] = !v.Refused()
			}
		}
	}
	return out
}

// narrower fails if after permits something that before does not.
func narrower(t *rapid.T, what string, before, after map[string]bool) {
	for key, allowed := range after {
		if allowed && !before[key] {
			t.Fatalf("%s: %s is allowed now", what, key)
		}
	}
}

func drawGrants(t *rapid.T, label string) []string {
	return rapid.SampledFrom([][]string{
		nil, {}, {"read_*"}, {"read_file", "write_file"}, {"web_fetch", "agent:reader"}, {"agent:*r", "agent:default", "read_file"}, {"sql:shop/public.orders"},
	}).Draw(t, label)
}

func drawScope(t *rapid.T, label string) access.Scope {
	list := func(what string, some ...[]string) []string { return rapid.SampledFrom(some).Draw(t, label+" "+what) }
	s := access.Scope{
		Agents: list("agents", nil, nil, []string{}, []string{"reader"}, []string{"d*"}),
		Tools:  list("tools", nil, nil, []string{}, []string{"read_file"}, []string{"read_*", "web_fetch"}),
	}
	if rapid.Bool().Draw(t, label+" params") {
		s.Params = map[string][]any{"path": {"a"}}
	}
	return s
}

// TestM16_Property_NothingWidens: with the real gate over the real directory, adding a
// token, narrowing a scope, or removing grants, a group or a user never permits
// anything that was refused before.
func TestM16_Property_NothingWidens(t *testing.T) {
	w := newWorld(t)
	rapid.Check(t, func(r *rapid.T) {
		_, _ = w.RemoveUser(t.Context(), "bob", by) // left by a check that failed
		_, _ = w.RemoveGroup(t.Context(), "staff", by)
		var tools []toolcrib.Tool
		for _, name := range toolNames() {
			spec := toolcrib.Spec{Name: name, Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go", RequiresAdmin: name == "write_file" && rapid.Bool().Draw(r, "admin only")}
			tools = append(tools, toolcribtest.NewTool(toolcribtest.ToolOptions{Spec: spec}))
		}
		g, err := gate.New(gate.Options{Tools: tools, Availability: always{}, People: w.people})
		if err != nil {
			r.Fatal(err)
		}
		must(t)(w.PutGroup(t.Context(), "staff", access.GroupEdit{Grants: new(drawGrants(r, "group"))}, by))
		u := access.User{Name: "bob", Admin: rapid.Bool().Draw(r, "admin"), Grants: drawGrants(r, "user")}
		if rapid.Bool().Draw(r, "member") {
			u.Groups = []string{"staff"}
		}
		must(t)(w.AddUser(t.Context(), access.NewUser{User: u, Reuse: true}, by))
		bob := toolcrib.Principal{User: "bob"}
		plain := may(r, g, bob)
		if u.Admin && !plain[`default read_file{"path":"a"}`] {
			r.Fatal("an administrator may do nothing")
		}

		scope := drawScope(r, "scope")
		byToken := may(r, g, toolcrib.Principal{User: "bob", Token: w.issue(t, "bob", scope)})
		narrower(r, "a token", plain, byToken)
		scope.Agents, scope.Tools = scope.Agents[:len(scope.Agents)/2], scope.Tools[:len(scope.Tools)/2]
		scope.Params = map[string][]any{"path": {"a"}}
		narrower(r, "a narrower scope", byToken, may(r, g, toolcrib.Principal{User: "bob", Token: w.issue(t, "bob", scope)}))

		if len(u.Grants) > 0 {
			fewer := u.Grants[1:]
			_, err := w.EditUser(t.Context(), "bob", access.Edit{Grants: &fewer}, by) // a conflict if it would widen the agents
			narrower(r, "fewer grants", plain, may(r, g, bob))
			if err != nil && !lastAgent(u.Grants, 0) {
				r.Fatal(err)
			}
			must(t)(w.EditUser(t.Context(), "bob", access.Edit{Grants: &u.Grants}, by))
		}
		if grants := drawnGroup(t, w); len(grants) > 0 {
			_, err := w.PutGroup(t.Context(), "staff", access.GroupEdit{Grants: new(grants[1:])}, by)
			narrower(r, "fewer grants of a group", plain, may(r, g, bob))
			if err != nil && !lastAgent(grants, 0) {
				r.Fatal(err)
			}
			must(t)(w.PutGroup(t.Context(), "staff", access.GroupEdit{Grants: &grants}, by))
		}
		must(t)(w.PutGroup(t.Context(), "staff", access.GroupEdit{Disabled: new(true)}, by))
		narrower(r, "a disabled group", plain, may(r, g, bob))
		no, yes := false, true
		must(t)(w.EditUser(t.Context(), "bob", access.Edit{Admin: &no}, by))
		narrower(r, "no administrator", plain, may(r, g, bob))
		must(t)(w.EditUser(t.Context(), "bob", access.Edit{Disabled: &yes}, by))
		narrower(r, "a disabled user", map[string]bool{}, may(r, g, bob))
		must(t)(w.RemoveUser(t.Context(), "bob", by))
		narrower(r, "a removed user", map[string]bool{}, may(r, g, bob))
	})
}

// lastAgent reports whether the grant at i is the last one that names an agent: without
// any, agents are not restricted by grants (gate.MayRun).
func lastAgent(grants []string, i int) bool {
	n := 0
	for _, grant := range grants {
		if strings.HasPrefix(grant, "agent:") {
			n++
		}
	}
	return strings.HasPrefix(grants[i], "agent:") && n == 1
}

func drawnGroup(t *testing.T, w *world) []string {
	t.Helper()
	groups, err := w.Groups(t.Context())
	if err != nil || len(groups) != 1 {
		t.Fatalf("%v, %v", groups, err)
	}
	return groups[0].Grants
}
