package bus_test

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/bus"
)

// required sets the trust that a capability requires.
func required(trust toolcrib.Trust) func(*bus.Descriptor) {
	return func(d *bus.Descriptor) { d.Trust = trust }
}

// M16, H19: a call needs the trust that its capability requires: the least of the node and its user.
func TestH19_Trust(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		ran := 0
		serve := func(context.Context, *bus.Exchange) (json.RawMessage, error) { ran++; return nil, nil }
		levels := []toolcrib.Trust{toolcrib.TrustMember, toolcrib.TrustTrusted, toolcrib.TrustAnchor, bus.TrustSelf}
		for _, level := range levels {
			b.offer(t, "test."+string(level)+"@1.0", serve, required(level))
		}
		settle()
		rank := func(trust toolcrib.Trust) int {
			for i, level := range levels {
				if level == trust {
					return i + 1
				}
			}
			return 0
		}
		for _, node := range append(levels[:3:3], toolcrib.TrustUnknown, "boss") {
			for _, user := range append(levels[:3:3], toolcrib.TrustUnknown, "none", "boss") {
				for _, level := range levels {
					b.setTrust(a.key, node)
					r := bus.Request{Name: name(t, "test."+string(level)+"@1.0"), To: b.key, From: bus.Hop{User: "anna", Trust: user}}
					had := rank(node)
					if user == "none" {
						r.From = bus.Hop{}
					} else {
						had = min(had, rank(user))
					}
					ran = 0
					_, err := a.Call(t.Context(), r)
					if may := had >= rank(level) && level != bus.TrustSelf; may != (err == nil) || may != (ran == 1) {
						t.Errorf("node %q, user %q, required %q: %v, ran %d times", node, user, level, err, ran)
					} else if err != nil {
						code(t, err, toolcrib.CodeUnauthorized)
					}
				}
			}
		}
		ran = 0
		if _, err := b.Call(t.Context(), bus.Request{Name: name(t, "test.self@1.0")}); err != nil || ran != 1 {
			t.Errorf("a node calls itself: %v", err)
		}
		_, err := b.Call(t.Context(), bus.Request{Name: name(t, "test.trusted@1.0"), From: bus.Hop{User: "anna", Trust: toolcrib.TrustMember}})
		code(t, err, toolcrib.CodeUnauthorized)
	})
}

// M16: a token makes an unknown node a member for what it covers, and narrows what a trusted node may call.
func TestM16_Tokens(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		calls := map[string]int{}
		for _, n := range []string{"rag.query@1.2", "rag.other@1.0", "rag.trusted@1.0"} {
			b.offer(t, n, func(_ context.Context, x *bus.Exchange) (json.RawMessage, error) {
				if x.Caller.Claims == nil || x.Caller.Claims.ID != "tok_1" {
					t.Errorf("claims of the caller: %+v", x.Caller.Claims)
				}
				calls[x.Name.String()]++
				return nil, nil
			}, func(d *bus.Descriptor) {
				if d.Name.Name == "rag.trusted" {
					d.Trust = toolcrib.TrustTrusted
				}
			})
		}
		settle()
		b.token["good"] = &access.Claims{ID: "tok_1", Scope: access.Scope{
			Capabilities: []string{"rag.query@1.1", "rag.trusted@1.0"}, Params: map[string][]any{"corpus": {"notes"}},
		}}
		for _, trust := range []toolcrib.Trust{toolcrib.TrustUnknown, toolcrib.TrustMember, toolcrib.TrustTrusted, toolcrib.TrustAnchor} {
			b.setTrust(a.key, trust)
			trusted := toolcrib.CodeUnauthorized
			if trust == toolcrib.TrustTrusted || trust == toolcrib.TrustAnchor {
				trusted = ""
			}
			for _, tt := range []struct {
				name, params, token string
				want                toolcrib.Code
			}{
				{"rag.query@1.0", `{"corpus":"notes"}`, "good", ""},
				{"rag.query@1.0", `{"corpus":["notes"]}`, "good", ""},
				{"rag.query@1.0", `{"corpus":"mail"}`, "good", toolcrib.CodeScopeInsufficient},
				{"rag.query@1.0", ``, "good", toolcrib.CodeScopeInsufficient},
				{"rag.other@1.0", `{"corpus":"notes"}`, "good", toolcrib.CodeScopeInsufficient},
				{"rag.query@1.0", `{"corpus":"notes"}`, "bad", toolcrib.CodeTokenInvalid},
				{"rag.trusted@1.0", `{"corpus":"notes"}`, "good", trusted},
			} {
				clear(calls)
				_, err := a.Call(t.Context(), bus.Request{Name: name(t, tt.name), To: b.key, Params: json.RawMessage(tt.params), Token: tt.token})
				if toolcrib.CodeOf(err) != tt.want || (len(calls) == 1) != (tt.want == "") {
					t.Errorf("%q calls %s %s with %q: %v, want %q", trust, tt.name, tt.params, tt.token, err, tt.want)
				}
			}
		}
		b.setTrust(a.key, toolcrib.TrustUnknown)
		_, err := a.Call(t.Context(), bus.Request{Name: name(t, "rag.query@1.0"), To: b.key, From: bus.Hop{User: "anna"}, Token: "good", Params: json.RawMessage(`{"corpus":"notes"}`)})
		code(t, err, toolcrib.CodeUnauthorized) // the token is the node's; its user stays unknown
		none := net.join(t, 2, func(o *bus.Options) { o.Token = nil })
		none.offer(t, "rag.query@1.0", echo)
		settle()
		_, err = a.Call(t.Context(), bus.Request{Name: name(t, "rag.query@1.0"), To: none.key, Token: "good"})
		code(t, err, toolcrib.CodeTokenInvalid)
	})
}

// M16: a call that is made again with its ID counts once, whether the node or the handler joins it. One that was refused for
// want of calls was not counted.
func TestM16_RetriesCountOnce(t *testing.T) {
	for _, joins := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			net := newNetwork()
			counted, most := 0, 2
			a, b := net.join(t, 0), net.join(t, 1, func(o *bus.Options) {
				o.Count = func(context.Context, *access.Claims) error {
					if counted >= most {
						return toolcrib.Errorf(toolcrib.CodeScopeInsufficient, "no call is left")
					}
					counted++
					return nil
				}
			})
			b.offer(t, "rag.query@1.0", echo, func(d *bus.Descriptor) { d.Joins = joins })
			b.token["good"] = &access.Claims{ID: "tok_1", Scope: access.Scope{Capabilities: []string{"rag.query@1.0"}}}
			settle()
			call := func(id string, want toolcrib.Code) {
				t.Helper()
				_, err := a.Call(t.Context(), bus.Request{ID: id, Name: name(t, "rag.query@1.0"), To: b.key, Token: "good"})
				code(t, err, want)
			}
			for _, id := range []string{"one", "one", "two", "one", "two"} {
				call(id, "")
			}
			for range 2 {
				call("three", toolcrib.CodeScopeInsufficient)
			}
			if most++; counted != 2 {
				t.Errorf("joins %v: counted %d calls", joins, counted)
			}
			time.Sleep(2 * time.Second)
			call("three", "")
			time.Sleep(11 * time.Minute)
			call("one", toolcrib.CodeScopeInsufficient)
		})
	}
}

// A call that a node makes for another call has the least trust of all nodes and users on its way, and names them.
func TestH18_Lineage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b, c := net.join(t, 0), net.join(t, 1), net.join(t, 2)
		for _, at := range []*member{a, b, c} {
			for _, of := range []*member{a, b, c} {
				at.setTrust(of.key, toolcrib.TrustTrusted)
			}
		}
		var caller bus.Caller
		ran := 0
		c.offer(t, "test.last@1.0", func(_ context.Context, x *bus.Exchange) (json.RawMessage, error) {
			caller, ran = x.Caller, ran+1
			return nil, nil
		}, required(toolcrib.TrustTrusted))
		forward := func(n string) bus.Handler {
			return func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
				return b.Call(ctx, bus.Request{Name: name(t, n), Via: x, From: bus.Hop{User: "bert", Trust: toolcrib.TrustAnchor}})
			}
		}
		b.offer(t, "test.inner@1.0", forward("test.last@1.0")) // within the node
		b.offer(t, "test.first@1.0", forward("test.inner@1.0"))
		settle()
		call := func() error {
			_, err := a.Call(t.Context(), bus.Request{
				Name: name(t, "test.first@1.0"), From: bus.Hop{User: "anna", Trust: toolcrib.TrustTrusted, Agent: "research", Run: "run_1", Call: "call_1"},
			})
			return err
		}
		if err := call(); err != nil {
			t.Fatal(err)
		}
		l := caller.Lineage
		if len(l) != 3 || l[0] != (bus.Hop{Node: a.key, User: "anna", Trust: "trusted", Agent: "research", Run: "run_1", Call: "call_1"}) ||
			l[1].Node != b.key || l[2].Node != b.key || caller.Node != b.key || caller.User != "anna" || caller.Trust != "trusted" {
			t.Errorf("caller %+v", caller)
		}
		c.setTrust(a.key, toolcrib.TrustMember) // c knows a as less than b does
		code(t, call(), toolcrib.CodeUnauthorized)
		c.setTrust(a.key, toolcrib.TrustUnknown)
		code(t, call(), toolcrib.CodeUnauthorized)
		if ran != 1 {
			t.Errorf("the last capability ran %d times", ran)
		}
	})
}

// A node that is trusted later finds the capabilities soon: it does not wait for the next regular list.
func TestTrustedLater(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		b.setTrust(a.key, toolcrib.TrustUnknown)
		b.offer(t, "rag.query@1.0", echo)
		settle()
		call := func() error {
			_, err := a.Call(t.Context(), bus.Request{Name: name(t, "rag.query@1.0")})
			return err
		}
		code(t, call(), toolcrib.CodeNotFound)
		b.setTrust(a.key, toolcrib.TrustMember)
		time.Sleep(7 * time.Second) // fake time
		synctest.Wait()
		if err := call(); err != nil {
			t.Error(err)
		}
	})
}

// A capability that calls itself ends at the eighth call, on one node and over two.
func TestH18_RecursionEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		ran := 0
		for _, m := range []*member{a, b} {
			other := map[*member]*member{a: b, b: a}[m]
			m.offer(t, "test.self@1.0", func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
				ran++
				return m.Call(ctx, bus.Request{Name: x.Name, Via: x})
			})
			m.offer(t, "test.pingpong@1.0", func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
				ran++
				return m.Call(ctx, bus.Request{Name: x.Name, Via: x, To: other.key})
			})
		}
		settle()
		for _, n := range []string{"test.self@1.0", "test.pingpong@1.0"} {
			ran = 0
			_, err := a.Call(t.Context(), bus.Request{Name: name(t, n)})
			code(t, err, toolcrib.CodeBadRequest)
			if ran != 8 {
				t.Errorf("%s ran %d times, want 8", n, ran)
			}
		}
	})
}

// What a node lists depends on the trust in who asks.
func TestOffersAreListedByTrust(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		for _, level := range []toolcrib.Trust{toolcrib.TrustMember, toolcrib.TrustTrusted, toolcrib.TrustAnchor, bus.TrustSelf} {
			b.offer(t, "test."+string(level)+"@1.0", echo, required(level))
		}
		for i, level := range []toolcrib.Trust{toolcrib.TrustUnknown, toolcrib.TrustMember, toolcrib.TrustTrusted, toolcrib.TrustAnchor} {
			b.setTrust(a.key, level)
			for range 30 { // the list is asked for again after a minute
				settle()
			}
			if known := a.Known(); len(known) != i {
				t.Errorf("%q knows %d capabilities, want %d", level, len(known), i)
			}
		}
		if known := b.Known(); len(known) != 4 {
			t.Errorf("a node knows %d of its own capabilities", len(known))
		}
		a.setTrust(b.key, toolcrib.TrustUnknown) // a does not call nodes that it does not know
		for range 5 {
			settle()
		}
		if known, peers := a.Known(), a.Peers(); len(known) != 0 || len(peers) != 1 || peers[0].Trust != "" {
			t.Errorf("%d capabilities of an unknown node, peers %+v", len(known), peers)
		}
		_, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.member@1.0")})
		code(t, err, toolcrib.CodeNotFound)
		if _, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.member@1.0"), To: b.key}); err != nil {
			t.Errorf("a call to a given node: %v", err)
		}
	})
}

// node.list has the capabilities of each node that the one which is asked knows, as far as its caller may call them.
func TestNodeList(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b, c := net.join(t, 0), net.join(t, 1), net.join(t, 2)
		a.offer(t, "test.own@1.0", echo)
		b.offer(t, "test.member@1.0", echo)
		b.offer(t, "test.trusted@1.0", echo, required(toolcrib.TrustTrusted))
		b.setTrust(a.key, toolcrib.TrustAnchor)
		settle()
		for caller, want := range map[*member]string{a: "test.member@1.0 test.trusted@1.0", c: "test.member@1.0"} {
			raw, err := caller.Call(t.Context(), bus.Request{Name: name(t, "node.list@1.0"), To: a.key})
			if err != nil {
				t.Fatal(err)
			}
			var listed struct {
				Nodes []struct {
					Node         bus.Key
					Capabilities []string
				}
			}
			if err := json.Unmarshal(raw, &listed); err != nil {
				t.Fatal(err)
			}
			got := map[bus.Key]string{}
			for _, n := range listed.Nodes {
				if got[n.Node] = strings.Join(n.Capabilities, " "); n.Capabilities == nil {
					t.Errorf("%s has no list", n.Node)
				}
			}
			if all := map[bus.Key]string{a.key: "test.own@1.0", b.key: want, c.key: ""}; !maps.Equal(got, all) {
				t.Errorf("listed %v, want %v", got, all)
			}
		}
	})
}
