package bus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/bus"
)

var someTrust = rapid.SampledFrom([]toolcrib.Trust{toolcrib.TrustUnknown, toolcrib.TrustMember, toolcrib.TrustTrusted, toolcrib.TrustAnchor})

// step is a node on the way of a call, the user for whom it asks, and the token that it presents.
type step struct {
	node  int
	user  bool
	trust toolcrib.Trust
	token string
}

// graph is a generated community: the trust of each node in each other, what its capability requires, and a way.
type graph struct {
	trust    [][]toolcrib.Trust
	required []toolcrib.Trust
	tokens   []map[string]access.Scope // that each node accepts
	way      []step                    // the last one serves the call
}

func drawGraph(r *rapid.T) graph {
	nodes := rapid.IntRange(2, 4).Draw(r, "nodes")
	var g graph
	for range nodes {
		g.trust = append(g.trust, rapid.SliceOfN(someTrust, nodes, nodes).Draw(r, "trust"))
		g.required = append(g.required, rapid.SampledFrom([]toolcrib.Trust{toolcrib.TrustMember, toolcrib.TrustTrusted, toolcrib.TrustAnchor, bus.TrustSelf}).Draw(r, "required"))
		scopes := map[string]access.Scope{}
		for _, token := range []string{"one", "two"} {
			scopes[token] = access.Scope{
				Capabilities: rapid.SliceOfN(rapid.SampledFrom([]string{"test.end@1.0", "test.forward@1.0", "test.none@1.0"}), 0, 2).Draw(r, "scope"),
				Params:       rapid.SampledFrom([]map[string][]any{nil, {"corpus": {"a"}}, {"corpus": {"b"}}}).Draw(r, "params"),
			}
		}
		g.tokens = append(g.tokens, scopes)
	}
	for range rapid.IntRange(2, 5).Draw(r, "length") {
		g.way = append(g.way, step{
			rapid.IntRange(0, nodes-1).Draw(r, "node"), rapid.Bool().Draw(r, "user"), someTrust.Draw(r, "user trust"),
			rapid.SampledFrom([]string{"", "", "one", "two", "forged"}).Draw(r, "token"),
		})
	}
	return g
}

// run makes the call, and returns how often its end ran, and whom it ran for.
func (g graph) run(t *testing.T) (ran int, who bus.Caller) {
	net := newNetwork()
	var all []*member
	for i := range g.required {
		m := net.join(t, byte(i))
		for token, scope := range g.tokens[i] {
			m.token[token] = &access.Claims{ID: token, Scope: scope}
		}
		all = append(all, m)
	}
	call := func(ctx context.Context, at int, via *bus.Exchange) (json.RawMessage, error) {
		from, to := g.way[at], g.way[at+1]
		r := bus.Request{Name: bus.Name{Name: "test.forward", Major: 1}, To: all[to.node].key, Token: from.token, Via: via}
		r.Params = json.RawMessage(fmt.Sprintf(`{"corpus":"a","at":%d}`, at+1))
		if at+1 == len(g.way)-1 {
			r.Name.Name = "test.end"
		}
		if from.user {
			r.From = bus.Hop{User: "anna", Trust: from.trust}
		}
		return all[from.node].Call(ctx, r)
	}
	for i, m := range all {
		for j, other := range all {
			m.setTrust(other.key, g.trust[i][j])
		}
		m.offer(t, "test.end@1.0", func(_ context.Context, x *bus.Exchange) (json.RawMessage, error) {
			ran, who = ran+1, x.Caller
			return nil, nil
		}, required(g.required[i]))
		m.offer(t, "test.forward@1.0", func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
			var body struct{ Params struct{ At int } }
			if err := json.Unmarshal(x.Body, &body); err != nil {
				return nil, err
			}
			return call(ctx, body.Params.At, x)
		})
	}
	settle()
	if _, err := call(t.Context(), 0, nil); (err == nil) != (ran == 1) {
		t.Errorf("the call: %v, and its end ran %d times", err, ran)
	}
	for _, m := range all {
		m.Close()
	}
	return ran, who
}

// M16, H19: whatever the nodes trust, and whatever tokens they present: nothing runs that the first node, or any on the
// way, could not have called directly.
func TestH19_NothingRunsByDetour(t *testing.T) {
	ran, refused := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		g := drawGraph(r)
		problem := ""
		synctest.Test(t, func(t *testing.T) {
			times, who := g.run(t)
			if times == 0 {
				refused++
				return
			}
			ran++
			end := g.way[len(g.way)-1]
			if times > 1 || len(who.Lineage) != len(g.way)-1 {
				problem = fmt.Sprintf("it ran %d times, for %+v", times, who)
			}
			for i, s := range g.way[:len(g.way)-1] {
				direct := g
				direct.way = []step{s, end}
				if i < len(g.way)-2 {
					direct.way[0].token = "" // it was for another node
				}
				if again, _ := direct.run(t); again != 1 {
					problem = fmt.Sprintf("step %d of the way cannot call it", i)
				}
			}
		})
		if problem != "" {
			r.Fatalf("%s: %+v", problem, g)
		}
	})
	t.Logf("%d calls ran, %d were refused", ran, refused)
	if !testing.Short() && (ran == 0 || refused == 0) { // which has few cases
		t.Errorf("%d calls ran, %d were refused: the test shows nothing", ran, refused)
	}
}
