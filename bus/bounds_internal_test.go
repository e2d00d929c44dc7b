package bus

import (
	"context"
	"crypto/cipher"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// target is a node that other keys send messages to, without a node of their own. It trusts the key of seed 1 only.
type target struct {
	*Node
	ahead atomic.Int64  // nanoseconds // of its clock
	hold  chan struct{} // if not nil, calls are not admitted before it is closed
	mu    sync.Mutex
	sent  map[exchangeID][][]byte
	last  uint64
}

func (g *target) Send(_ Address, message []byte, _ func()) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := exchangeID(message[2:18])
	g.sent[id] = append(g.sent[id], message)
	return nil
}

func (g *target) Broadcast([]byte) error                        { return nil }
func (g *target) Receive(Address, func([]byte)) (func(), error) { return func() {}, nil }
func (g *target) MaxBytes() int                                 { return 1 << 20 }
func (g *target) now() time.Time                                { return time.Now().Add(time.Duration(g.ahead.Load())) }

func newTarget(t *testing.T) *target {
	t.Helper()
	member := testKeys(t, 1).Public()
	g := &target{sent: map[exchangeID][][]byte{}}
	var err error
	g.Node, err = New(Options{
		Keys: testKeys(t, 9), Transport: g, Now: g.now,
		Trust: func(_ context.Context, k Key) (toolcrib.Trust, error) {
			if g.hold != nil {
				<-g.hold
			}
			if k == member {
				return toolcrib.TrustMember, nil
			}
			return "", nil
		},
		Token: func(context.Context, string, Key) (*access.Claims, error) {
			return nil, toolcrib.Errorf(toolcrib.CodeTokenInvalid, "unknown token")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// sealed is a call that a key has made.
type sealedCall struct {
	id      exchangeID
	raw     []byte
	in, out cipher.AEAD
}

func (g *target) seal(t *testing.T, k *Keys, c *call) sealedCall {
	t.Helper()
	g.last++
	s := sealedCall{}
	binary.BigEndian.PutUint64(s.id[:], g.last)
	var err error
	s.raw, s.in, s.out, err = k.seal(c, Address{k.Public(), "here"}, g.self, g.o.Keys.agreement, nil, s.id, g.now())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// result returns the code of the error that answers a call, "ok", or "" without an answer.
func (g *target) result(s sealedCall) toolcrib.Code {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, raw := range g.sent[s.id] {
		if _, m, ok := openData(s.in, raw); ok && m.kind == kindError {
			return DecodeError(m.payload).Code
		} else if ok && m.kind == kindDone {
			return ResultOK
		}
	}
	return ""
}

// call makes a call, and returns its result.
func (g *target) call(t *testing.T, k *Keys, c *call) toolcrib.Code {
	t.Helper()
	s := g.seal(t, k, c)
	g.receive(s.raw)
	synctest.Wait()
	return g.result(s)
}

// Nothing of a body is held before the node is ready for it, and no more than was reserved.
func TestBodyIsBounded(t *testing.T) {
	for _, ready := range []bool{false, true} {
		for _, k := range []kind{kindBody, kindFrame, kindDone} {
			for from := range uint32(2) { // in order, and after a message that is missing
				t.Run(fmt.Sprint(ready, k, from), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						g := newTarget(t)
						c := newTestCall()
						c.name, c.body = listName, make([]byte, 3*partBytes)
						if !ready {
							c.body = c.body[:1]
							g.hold = make(chan struct{})
							defer close(g.hold)
						}
						s := g.seal(t, testKeys(t, 1), c)
						g.receive(s.raw)
						synctest.Wait()
						g.Node.mu.Lock()
						x := g.exchanges[s.id]
						g.Node.mu.Unlock()
						if x == nil {
							t.Fatal("the call is not served")
						}
						for i := range uint32(reorder - 1) {
							m := message{number: from + i, kind: k | more, payload: make([]byte, partBytes)}
							g.receive(sealData(s.out, s.id, salt{1}, m))
						}
						x.mu.Lock()
						defer x.mu.Unlock()
						held := len(x.link.partial)
						for _, m := range x.link.early {
							held += len(m.payload)
						}
						if held > 4*partBytes || !ready && held > 0 {
							t.Errorf("%d bytes are held", held)
						}
					})
				})
			}
		}
	}
}

// The lists of peers are looked after in little time, though thousands are unknown.
func TestManyUnknownPeers(t *testing.T) {
	n := &Node{peers: map[Address]*peer{}, fetching: map[Key]bool{}}
	for i := range maxPeers {
		at := Address{Key(fmt.Sprint(i)), "x"}
		n.peers[at] = &peer{card: card{Node: at.Node, Instance: at.Instance}}
	}
	began := time.Now()
	n.refresh()
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %s", took)
	}
}

// Nodes without trust hold a share of the places for calls, whatever their number; others are served meanwhile.
func TestServedShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		hold := Descriptor{Name: Name{"node.hold", 1, 0}, MaxConcurrent: mostConcurrent}
		if err := g.OfferOwn(hold, func(ctx context.Context, _ *Exchange) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}); err != nil {
			t.Fatal(err)
		}
		c := newTestCall()
		c.name, c.timeout = hold.Name, time.Second
		overloaded := 0
		for i := range maxServed {
			k := testKeys(t, byte(20+i%100))
			s := g.seal(t, k, c)
			g.receive(s.raw)
			if i%100 == 0 {
				synctest.Wait()
				if g.result(s) == toolcrib.CodeOverloaded {
					overloaded++
				}
			}
		}
		synctest.Wait()
		c.name = listName
		if got := g.call(t, testKeys(t, 1), c); got != ResultOK {
			t.Errorf("a member: %q", got)
		}
		if overloaded == 0 {
			t.Error("no call was refused")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		g.Node.mu.Lock()
		defer g.Node.mu.Unlock()
		if g.served != 0 || len(g.servedBy) != 0 {
			t.Errorf("%d calls are served, %v", g.served, g.servedBy)
		}
	})
}

// What every node may call takes a body of one part, and leaves nothing behind.
func TestOpenOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		c := newTestCall()
		c.name, c.body, c.keep = offersName, json.RawMessage(`{}`), true
		if got := g.call(t, testKeys(t, 5), c); got != ResultOK {
			t.Fatalf("%q", got)
		}
		c.body = make([]byte, partBytes+1)
		if got := g.call(t, testKeys(t, 5), c); got != toolcrib.CodeTooLarge {
			t.Errorf("a large body: %q", got)
		}
		c = newTestCall()
		c.name, c.token = listName, "nonsense"
		if got := g.call(t, testKeys(t, 5), c); got != toolcrib.CodeTokenInvalid {
			t.Errorf("an invalid token: %q", got)
		}
		g.Node.mu.Lock()
		defer g.Node.mu.Unlock()
		if len(g.kept) != 0 || len(g.replays.now.ids) != 0 {
			t.Errorf("%d calls and %d exchanges are kept", len(g.kept), len(g.replays.now.ids))
		}
	})
}

// A node that has its share of what is remembered is told so, and others are served.
func TestRememberedShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		c := newTestCall()
		c.name, c.keep = listName, true
		member := testKeys(t, 1)
		g.call(t, member, c)
		for _, tt := range []struct {
			table shares
			all   int
			want  toolcrib.Code
		}{{g.keptBy, maxKept, toolcrib.CodeCapacityExceeded}, {g.replays.now.by, maxReplays, toolcrib.CodeOverloaded}} {
			before := tt.table[member.Public()]
			tt.table[member.Public()] = tt.all / 2
			c.id += "2"
			if got := g.call(t, member, c); got != tt.want {
				t.Errorf("%q, want %s", got, tt.want)
			}
			tt.table[member.Public()], tt.table[""] = before, tt.all/8
			if got := g.call(t, member, c); got != ResultOK {
				t.Errorf("%q though others have all of their share", got)
			}
		}
	})
}

// A call that is sent again after the clock was set back is not executed again.
func TestReplay_ClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		ran := 0
		if err := g.Offer(Descriptor{Name: Name{"test.x", 1, 0}}, func(context.Context, *Exchange) (json.RawMessage, error) {
			ran++
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		s := g.seal(t, testKeys(t, 1), newTestCall())
		for range 2 {
			g.receive(s.raw)
			synctest.Wait()
			time.Sleep(3 * replayLasts)
			g.ahead.Add(-int64(3 * replayLasts))
			synctest.Wait()
		}
		if ran != 1 {
			t.Errorf("the call was executed %d times", ran)
		}
		g.ahead.Store(0)
		if got := g.call(t, testKeys(t, 1), newTestCall()); got != ResultOK || ran != 2 {
			t.Errorf("with the right clock: %q", got)
		}
	})
}

// A node serves the values of its params only, also when it is called directly.
func TestParamsAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		d := Descriptor{Name: Name{"test.x", 1, 0}, Params: map[string][]any{"corpus": {"notes"}}}
		if err := g.Offer(d, func(context.Context, *Exchange) (json.RawMessage, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		for corpus, want := range map[string]toolcrib.Code{"notes": ResultOK, "private": toolcrib.CodeNotFound} {
			c := newTestCall()
			c.body = json.RawMessage(`{"params":{"corpus":"` + corpus + `"}}`)
			if got := g.call(t, testKeys(t, 1), c); got != want {
				t.Errorf("%s: %q, want %q", corpus, got, want)
			}
		}
	})
}
