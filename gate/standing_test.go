package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// people answers with one standing, or an error.
type people struct {
	standing gate.Standing
	err      error
}

func (p people) Standing(context.Context, toolcrib.Principal) (gate.Standing, error) {
	return p.standing, p.err
}

// scopeToken is a token for the agent default and the tool get with {"n":1}.
type scopeToken struct {
	left  int
	taken int
}

func (s *scopeToken) Agent(name string) error { return s.must(name == "default") }

func (s *scopeToken) Offers(agent, tool string) error {
	return s.must(agent == "default" && tool != "other")
}

func (s *scopeToken) Covers(_, _ string, args json.RawMessage) error {
	return s.must(string(args) == `{"n":1}`)
}

func (s *scopeToken) Room(context.Context) error { return s.must(s.left > 0) }

func (s *scopeToken) Take(ctx context.Context) error {
	if err := s.Room(ctx); err != nil {
		return err
	}
	s.left--
	s.taken++
	return nil
}

func (s *scopeToken) must(ok bool) error {
	if !ok {
		return errors.New("the token does not cover it")
	}
	return nil
}

func standingGate(t *testing.T, p gate.People) *gate.Gate {
	t.Helper()
	anything := func(s toolcrib.Spec) toolcrib.Spec {
		s.Parameters = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)
		return s
	}
	g, err := gate.New(gate.Options{
		Tools:        []toolcrib.Tool{tool(anything(reads("get"))), tool(anything(reads("other"))), tool(anything(writes("put")))},
		Availability: gate.Overrides{}, People: p,
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func judgeAs(t *testing.T, g *gate.Gate, who toolcrib.Principal, facts gate.Facts, name, args string) gate.Verdict {
	t.Helper()
	facts.Offered = map[string]bool{"get": true, "other": true, "put": true}
	return g.Judge(t.Context(), who, gate.Scope{Agent: "default", MaxCalls: 9, MaxDepth: 3}, facts,
		[]toolcrib.ToolCall{{ID: "c", Name: name, Arguments: json.RawMessage(args)}})[0]
}

// N18: what the principal says of itself is worth nothing where there is somebody
// who knows; what cannot be found out, or is about somebody else, refuses.
func TestN18_StandingOfToday(t *testing.T) {
	admin := toolcrib.Principal{User: "ann", Admin: true}
	for _, c := range []struct {
		name    string
		people  gate.People
		who     toolcrib.Principal
		allowed bool
		detail  string
	}{
		{"nobody knows better", nil, admin, true, ""},
		{"as the principal says", people{standing: gate.Standing{Principal: admin}}, admin, true, ""},
		{"the grant is gone", people{standing: gate.Standing{Principal: toolcrib.Principal{User: "ann", Grants: []string{"put"}}}}, admin, false, "no grant"},
		{"disabled", people{standing: gate.Standing{Principal: admin, Refused: "ann is disabled"}}, admin, false, "ann is disabled"},
		{"another user", people{standing: gate.Standing{Principal: toolcrib.Principal{User: "root", Admin: true}}}, admin, false, "another one"},
		{"unknown", people{err: errors.New("the disk is gone")}, admin, false, "the disk is gone"},
		{"the zero answer", people{}, admin, false, "another one"},
		{"a token that nobody knows", nil, toolcrib.Principal{User: "ann", Token: "tok"}, false, "tokens cannot be looked up"},
		{"a token without a scope", people{standing: gate.Standing{Principal: toolcrib.Principal{User: "ann", Token: "tok"}}}, toolcrib.Principal{User: "ann", Token: "tok"}, false, "not known"},
		{"a scope without a token", people{standing: gate.Standing{Principal: admin, Token: &scopeToken{}}}, admin, false, "token does not cover"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := standingGate(t, c.people)
			tool, args := "get", `{"n":2}`
			v := judgeAs(t, g, c.who, gate.Facts{}, tool, args)
			if v.Refused() == c.allowed || !c.allowed && (v.Reason != toolcrib.ReasonNotPermitted || !strings.Contains(v.Detail, c.detail)) {
				t.Errorf("%+v", v.Verdict)
			}
			refused, err := g.MayRun(t.Context(), c.who, "default")
			if c.name != "the grant is gone" && c.name != "a scope without a token" && (refused == "" && err == nil) != c.allowed {
				t.Errorf("may run: %q %v", refused, err)
			}
			offer, err := g.Offer(t.Context(), c.who, gate.Scope{Agent: "default"})
			if offered := err == nil && offer.Set()["get"]; offered != c.allowed && c.name != "a scope without a token" {
				t.Errorf("offered: %v %v", offer.Record.Names(), err)
			}
		})
	}
}

// M16: a token's scope holds over names, arguments and calls, and never gives what
// the user has not.
func TestM16_TokenNarrows(t *testing.T) {
	who := toolcrib.Principal{User: "ann", Admin: true, Token: "tok"}
	for _, c := range []struct {
		name, tool, args string
		left             int
		facts            gate.Facts
		decision         toolcrib.Decision
		reason           toolcrib.Reason
		taken            int
	}{
		{"covered", "get", `{"n":1}`, 1, gate.Facts{}, toolcrib.Allow, "", 1},
		{"another tool", "other", `{"n":1}`, 1, gate.Facts{}, toolcrib.Refuse, toolcrib.ReasonNotPermitted, 0},
		{"other arguments", "get", `{"n":2}`, 1, gate.Facts{}, toolcrib.Refuse, toolcrib.ReasonNotPermitted, 0},
		{"used up", "get", `{"n":1}`, 0, gate.Facts{}, toolcrib.Refuse, toolcrib.ReasonBudgetExhausted, 0},
		{"counted before", "get", `{"n":1}`, 0, gate.Facts{Counted: map[string]bool{"c": true}}, toolcrib.Allow, "", 0},
		{"only looked at", "get", `{"n":1}`, 1, gate.Facts{DryRun: true}, toolcrib.Allow, "", 0},
		{"used up, only looked at", "get", `{"n":1}`, 0, gate.Facts{DryRun: true}, toolcrib.Refuse, toolcrib.ReasonBudgetExhausted, 0},
		{"asked: no place is taken", "put", `{"n":1}`, 1, gate.Facts{}, toolcrib.Ask, toolcrib.ReasonNeedsConfirmation, 0},
		{"used up: nobody is asked", "put", `{"n":1}`, 0, gate.Facts{}, toolcrib.Refuse, toolcrib.ReasonBudgetExhausted, 0},
		{"approved", "put", `{"n":1}`, 1, gate.Facts{Decided: map[string]gate.Decided{"c": {Decision: journal.DecisionApprove, Asked: confirmed("put"), Unbound: true}}}, toolcrib.Allow, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			token := &scopeToken{left: c.left}
			g := standingGate(t, people{standing: gate.Standing{Principal: who, Token: token}})
			v := judgeAs(t, g, who, c.facts, c.tool, c.args)
			if v.Decision != c.decision || v.Reason != c.reason || token.taken != c.taken {
				t.Errorf("taken %d: %+v", token.taken, v.Verdict)
			}
			if counted := c.decision == toolcrib.Allow && !c.facts.DryRun; v.Counted != counted || v.Permit.Valid() != (c.decision == toolcrib.Allow) {
				t.Errorf("counted %v: %+v", v.Counted, v.Verdict)
			}
		})
	}
}

// Contract §5: which agents a user may use; administrators all.
func TestN18_GrantsOfAgents(t *testing.T) {
	for _, c := range []struct {
		grants  []string
		admin   bool
		allowed bool
	}{
		{nil, false, true},
		{[]string{}, false, true},
		{[]string{"get"}, false, true},
		{[]string{"agent:default"}, false, true},
		{[]string{"agent:def*"}, false, true},
		{[]string{"agent:other"}, false, false},
		{[]string{"agent:other"}, true, true},
		{[]string{"agent:*"}, false, false}, // no wildcard by accident
		{[]string{"agent:"}, false, false},
	} {
		g := standingGate(t, nil)
		refused, err := g.MayRun(t.Context(), toolcrib.Principal{User: "ann", Admin: c.admin, Grants: c.grants}, "default")
		if err != nil || (refused == "") != c.allowed {
			t.Errorf("%v: %q %v", c.grants, refused, err)
		}
	}
}

// Contract §5.5, §6: grants of agents hold at each call and in the offer, not only
// before a model is asked.
func TestN18_GrantsOfAgentsAtACall(t *testing.T) {
	g := standingGate(t, nil)
	for grant, allowed := range map[string]bool{"agent:default": true, "agent:other": false} {
		who := toolcrib.Principal{User: "ann", Grants: []string{grant, "get"}}
		v := judgeAs(t, g, who, gate.Facts{}, "get", `{"n":1}`)
		if v.Refused() == allowed || !allowed && v.Reason != toolcrib.ReasonNotPermitted {
			t.Errorf("%s: %+v", grant, v.Verdict)
		}
		if o, err := g.Offer(t.Context(), who, gate.Scope{Agent: "default"}); err != nil || o.Set()["get"] != allowed {
			t.Errorf("%s: offered %v %v", grant, o.Record.Names(), err)
		}
		if err := g.MayApprove(t.Context(), who, gate.Scope{Agent: "default"}, "get"); (err == nil) != allowed {
			t.Errorf("%s: approves: %v", grant, err)
		}
	}
}

// H16: an approver passes the same layers.
func TestH16_ApproverPassesTheGate(t *testing.T) {
	g := standingGate(t, nil)
	scope := gate.Scope{Agent: "default"}
	if err := g.MayApprove(t.Context(), toolcrib.Principal{User: "bob"}, scope, "get", "put"); err != nil {
		t.Error(err)
	}
	err := g.MayApprove(t.Context(), toolcrib.Principal{User: "bob", Grants: []string{"get"}}, scope, "get", "put")
	var no *gate.ApproverError
	if !errors.As(err, &no) || no.Tool != "put" || no.Reason != toolcrib.ReasonNotPermitted {
		t.Error(err)
	}
	if err := (*gate.Gate)(nil).MayApprove(t.Context(), toolcrib.Principal{User: "bob"}, scope, "get"); err == nil {
		t.Error("no gate lets approve")
	}
}

// M16, N18: one gate, and what the principal may do changes between two offers in one
// thing that decides.
func TestM16_OfferCacheTellsStandingsApart(t *testing.T) {
	w := &world{people: worldPeople{kind: peopleSame}}
	g := gateOf(t, gate.Options{
		Tools:  []toolcrib.Tool{tool(reads("read_file")), tool(reads("write_file")), tool(reads("ghost"))},
		People: current{w}, Availability: gate.Overrides{},
	})
	covers := func(tools ...string) *worldToken { return &worldToken{agents: []string{"default"}, tools: tools} }
	by := toolcrib.Principal{User: "alice", Token: "tok_1"}
	for range 2 {
		for _, c := range []struct {
			name   string
			who    toolcrib.Principal
			people worldPeople
			want   string
		}{
			{"as the principal says", alice(), worldPeople{kind: peopleSame}, "ghost read_file write_file"},
			{"granted nothing", alice(), worldPeople{kind: peopleToday, today: toolcrib.Principal{User: "alice", Grants: []string{}}}, ""},
			{"granted one", alice(), worldPeople{kind: peopleToday, today: toolcrib.Principal{User: "alice", Grants: []string{"ghost"}}}, "ghost"},
			{"disabled", alice(), worldPeople{kind: peopleRefused}, ""},
			{"a token", by, worldPeople{kind: peopleSame, token: covers("read_file")}, "read_file"},
			{"with another scope", by, worldPeople{kind: peopleSame, token: covers("write_file")}, "write_file"},
			{"that nobody knows", by, worldPeople{kind: peopleSame}, ""},
			{"a scope of nothing", alice(), worldPeople{kind: peopleSame, token: &worldToken{}}, ""},
			{"a scope of nothing, without a token", alice(), worldPeople{kind: peopleSame, token: covers()}, ""},
		} {
			w.people = c.people
			o, err := g.Offer(t.Context(), c.who, wide())
			if have := strings.Join(o.Record.Names(), " "); err != nil || have != c.want {
				t.Fatalf("%s: offered %q, want %q (%v)", c.name, have, c.want, err)
			}
		}
	}
}

// M16: a token that does not cover an agent gives no run of it.
func TestM16_TokenOfAnotherAgent(t *testing.T) {
	who := toolcrib.Principal{User: "ann", Admin: true, Token: "tok"}
	g := standingGate(t, people{standing: gate.Standing{Principal: who, Token: &scopeToken{left: 1}}})
	for agent, want := range map[string]bool{"default": true, "other": false, "": false} {
		if refused, err := g.MayRun(t.Context(), who, agent); err != nil || (refused == "") != want {
			t.Errorf("agent %q: %q %v", agent, refused, err)
		}
	}
	w := world{people: worldPeople{kind: peoplePanic}}
	g = standingGate(t, current{&w})
	if refused, err := g.MayRun(t.Context(), who, "default"); err == nil {
		t.Errorf("nobody knows, and the run is %q", refused)
	}
}

// N18: a grant of an agent grants no tool, whatever the tool's group is called.
func TestN18_GrantOfAnAgentIsNoGroup(t *testing.T) {
	spec := reads("a")
	spec.Group = "agent:default"
	g := newGate(t, tool(spec), tool(reads("b")))
	for _, padding := range []int{0, 20} { // a list that is read, and one that is made ready
		who := alice()
		who.Grants = append(slices.Repeat([]string{"x"}, padding), "agent:default", "b")
		if o, err := g.Offer(t.Context(), who, wide()); err != nil || !slices.Equal(o.Record.Names(), []string{"b"}) {
			t.Errorf("offered %q (%v)", o.Record.Names(), err)
		}
	}
}

// A question to a person whose answer could be held against nothing is not put.
func TestAskUser_SchemaThatIsNone(t *testing.T) {
	spec := reads("ask_user")
	spec.AnsweredBy = toolcrib.ByPerson
	g := newGate(t, tool(spec))
	wantRefused(t, judgeOne(t, g, call("1", "ask_user", `{"question":"?","schema":{"type":7}}`)), toolcrib.ReasonInvalidArguments, "/schema")
	wantAllowed(t, judgeOne(t, g, call("1", "ask_user", `{"question":"?","schema":{"type":"string"}}`)))
}

// confirmed is the question of tools.confirm about a tool that writes.
func confirmed(tool string) []journal.Question {
	return []journal.Question{{
		Reason: toolcrib.ReasonNeedsConfirmation, Setting: "tools.confirm", Mode: "writes", Effect: toolcrib.EffectNonIdempotentWrite,
		Text: tool + " writes (non_idempotent_write); tools.confirm is writes",
	}}
}
