package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
)

// offered makes the target know an instance that offers a capability.
func (g *target) offered(t *testing.T, k *Keys, instance string, d Descriptor) place {
	t.Helper()
	d, err := d.Check(nil)
	if err != nil {
		t.Fatal(err)
	}
	at := Address{k.Public(), instance}
	p := &peer{
		card:  card{Node: at.Node, Instance: instance, Agreement: k.agreement},
		heard: time.Now(), trust: toolcrib.TrustMember,
		list: &list{node: at.Node, at: time.Now(), offers: []*Descriptor{&d}},
	}
	g.Node.mu.Lock()
	defer g.Node.mu.Unlock()
	g.peers[at] = p
	g.routes = nil
	return place{at, d.Name}
}

var corpus = Descriptor{Name: Name{"corpus.query", 1, 0}}

// A node that passes on calls with signatures that are not its own does not put the node that they are for in quarantine.
func TestForgedCallsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		member := testKeys(t, 1)
		at := g.offered(t, member, "c", corpus)
		forward := Descriptor{Name: Name{"test.forward", 1, 0}}
		if err := g.Offer(forward, func(ctx context.Context, x *Exchange) (json.RawMessage, error) {
			return g.Call(ctx, Request{Name: corpus.Name, Via: x})
		}); err != nil {
			t.Fatal(err)
		}
		s := g.inSession(t, member)
		forger := *member
		forger.sign = testKeys(t, 7).sign
		for i := range byte(6) {
			c := newTestCall()
			c.name = forward.Name
			one := sealedCall{id: exchangeID{i, 77}}
			var err error
			one.raw, one.in, one.out, err = forger.seal(c, Address{member.Public(), "here"}, g.self, nil, s, one.id, g.now())
			if err != nil {
				t.Fatal(err)
			}
			g.receive(one.raw)
			synctest.Wait()
			if code := g.result(one); code != toolcrib.CodeSignature {
				t.Errorf("the call ends with %s", code)
			}
		}
		g.Node.mu.Lock()
		defer g.Node.mu.Unlock()
		if g.health[at].quarantined(time.Now()) {
			t.Error("the node that was not called is in quarantine")
		}
	})
}

// A call that was refused is tried at another instance, also one that must not be repeated and has an ID.
func TestRefusedCallIsTriedElsewhere(t *testing.T) {
	for _, id := range []string{"", "once"} {
		synctest.Test(t, func(t *testing.T) {
			g := newTarget(t)
			for _, instance := range []string{"c1", "c2"} {
				g.offered(t, testKeys(t, 1), instance, corpus)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := g.Open(ctx, Request{ID: id, Name: corpus.Name})
				done <- err
			}()
			synctest.Wait()
			var x *Exchange
			g.Node.mu.Lock()
			for _, x = range g.exchanges {
			}
			g.Node.mu.Unlock()
			x.receive(message{kind: kindError, payload: EncodeError(toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "full"))})
			synctest.Wait()
			if len(done) > 0 {
				t.Errorf("ID %q: the call was not tried at the other instance: %v", id, <-done)
			}
			cancel()
			synctest.Wait()
		})
	}
}

// A call can be canceled while it starts; the race detector sees the rest.
func TestCancelWhileStarting(t *testing.T) {
	g := newTarget(t)
	g.offered(t, testKeys(t, 1), "c", corpus)
	for i := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%60)*time.Microsecond)
		if _, err := g.Open(ctx, Request{Name: corpus.Name}); err == nil {
			t.Error("the call succeeded")
		}
		cancel()
	}
}

// Where calls with an ID were made is remembered for each node that makes them up to its share, and for ten minutes. A
// call that may be repeated takes no place, and one of a session needs none.
func TestBindingsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		none := func(context.Context, *Exchange) (json.RawMessage, error) { return nil, nil }
		once, often := Descriptor{Name: Name{"test.once", 1, 0}}, Descriptor{Name: Name{"test.often", 1, 0}, Idempotent: true}
		for _, d := range []Descriptor{once, often} {
			if err := g.Offer(d, none); err != nil {
				t.Fatal(err)
			}
		}
		id := 0
		call := func(d Descriptor, via *Exchange, session string) toolcrib.Code {
			id++
			x, err := g.Open(t.Context(), Request{ID: fmt.Sprint(id), Name: d.Name, Via: via, Session: session})
			if err == nil {
				_, err = x.Result(t.Context())
			}
			return toolcrib.CodeOf(err)
		}
		bound := func(want int) {
			t.Helper()
			g.Node.mu.Lock()
			defer g.Node.mu.Unlock()
			if total := g.stickyBy[g.Key()] + g.stickyBy["member"]; len(g.sticky) != want || total != want {
				t.Errorf("%d bindings, %v, want %d", len(g.sticky), g.stickyBy, want)
			}
		}
		via := &Exchange{serving: true, holder: "member"}
		if code := call(often, nil, ""); code != "" {
			t.Error(code)
		}
		bound(0)
		if one, two := call(once, via, "s"), call(once, nil, ""); one != "" || two != "" {
			t.Error(one, two)
		}
		bound(3)
		g.Node.mu.Lock()
		g.stickyBy["member"] += maxSticky/2 - 2
		g.Node.mu.Unlock()
		if code := call(once, via, ""); code != toolcrib.CodeCapacityExceeded {
			t.Errorf("a call beyond the share: %q", code)
		}
		if code := call(often, via, "of its own"); code != "" {
			t.Errorf("a session beyond the share: %q", code)
		}
		if code := call(once, nil, ""); code != "" {
			t.Errorf("a call of the node itself: %q", code)
		}
		g.Node.mu.Lock()
		g.stickyBy["member"] -= maxSticky/2 - 2
		g.Node.mu.Unlock()
		bound(4)
		time.Sleep(11 * time.Minute)
		bound(0)
	})
}
