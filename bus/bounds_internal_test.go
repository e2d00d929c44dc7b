package bus

import (
	"context"
	"crypto/cipher"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

// Frames are held only for a handler that reads them.
func TestFramesAreRead(t *testing.T) {
	for _, reads := range []bool{false, true} {
		for from := range uint32(2) { // in order, and after a message that is missing
			synctest.Test(t, func(t *testing.T) {
				g := newTarget(t)
				c := newTestCall()
				d := Descriptor{Name: c.name, Reads: reads}
				if err := g.Offer(d, func(ctx context.Context, _ *Exchange) (json.RawMessage, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}); err != nil {
					t.Fatal(err)
				}
				s := g.seal(t, testKeys(t, 1), c)
				g.receive(s.raw)
				synctest.Wait()
				g.Node.mu.Lock()
				x := g.exchanges[s.id]
				g.Node.mu.Unlock()
				g.receive(sealData(s.out, s.id, salt{1}, message{number: from, kind: kindFrame, payload: []byte("\x05token{}")}))
				x.mu.Lock()
				defer x.mu.Unlock()
				held := len(x.link.frames) + len(x.link.early)
				if (held > 0) != reads || x.ended == reads {
					t.Errorf("reads %v: %d frames are held, ended %v", reads, held, x.ended)
				}
			})
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
		synctest.Wait()
		for range 2 { // so that neither generation is empty
			g.call(t, member, c)
			c.id += "1"
		}
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

// A node that has its share of the exchanges that are remembered hears when there is room again: as soon as the envelopes
// of the generation before have expired.
func TestRememberedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		last := byte(0)
		remember := func() error {
			last++
			return g.remember(&Exchange{id: exchangeID{last}, holder: "member"}, g.now().Add(lasts).UnixMilli())
		}
		fill := func() {
			g.Node.mu.Lock()
			defer g.Node.mu.Unlock()
			g.replays.now.by["member"] = maxReplays / 2
		}
		synctest.Wait()
		if err := remember(); err != nil {
			t.Fatal(err)
		}
		fill()
		if err := remember(); err != nil {
			t.Errorf("with room for another generation: %v", err)
		}
		fill()
		var e *toolcrib.Error
		err := remember()
		if want := lasts + clockSkew; !errors.As(err, &e) || e.Code != toolcrib.CodeOverloaded || (e.RetryAfter-want).Abs() > time.Second {
			t.Fatalf("%+v, want overloaded for %s", err, want)
		}
		time.Sleep(e.RetryAfter - 2*time.Second)
		if remember() == nil {
			t.Error("there is room while an envelope could still be accepted")
		}
		time.Sleep(2 * time.Second)
		if err := remember(); err != nil {
			t.Error(err)
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

// A call that is canceled before its open message was unsealed ends as well.
func TestCancelOfQueuedOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		var running atomic.Int64
		d := Descriptor{Name: Name{"test.x", 1, 0}, Timeout: time.Hour, MaxConcurrent: 100}
		if err := g.Offer(d, func(ctx context.Context, _ *Exchange) (json.RawMessage, error) {
			running.Add(1)
			defer running.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		}); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			s := g.seal(t, testKeys(t, 1), newTestCall())
			g.receive(s.raw)
			for range 10 { // the network doubles it
				g.receive(sealData(s.out, s.id, salt{1}, message{kind: kindCancel}))
			}
		}
		synctest.Wait()
		if n := running.Load(); n != 0 {
			t.Errorf("%d handlers run", n)
		}
		g.Node.mu.Lock()
		defer g.Node.mu.Unlock()
		if len(g.opening) != 0 || g.openBytes != 0 || len(g.exchanges) != 0 {
			t.Errorf("%d messages with %d bytes wait, and %d calls are served", len(g.opening), g.openBytes, len(g.exchanges))
		}
	})
}

// Open messages that wait have a bound in number and bytes, as do data messages for them.
func TestQueuedOpensAreBounded(t *testing.T) {
	n := &Node{opening: map[exchangeID][][]byte{}, opens: make(chan []byte, maxOpening), exchanges: map[exchangeID]*Exchange{}}
	raw := func(i int, size int) []byte {
		m := make([]byte, size)
		binary.BigEndian.PutUint32(m[2:], uint32(i))
		return m
	}
	for i := range maxOpening + 10 {
		n.queue(raw(i, openHead+overhead))
	}
	for range 10 {
		n.data(raw(1, dataHead+overhead))
		n.data(raw(1, maxSinceBytes+1))
	}
	if len(n.opening) != maxOpening || len(n.opening[exchangeID(raw(1, 18)[2:])]) != maxSince {
		t.Errorf("%d messages wait", len(n.opening))
	}
	n.opening, n.opens, n.openBytes = map[exchangeID][][]byte{}, make(chan []byte, maxOpening), 0
	for i := range maxOpening {
		n.queue(raw(i, maxOpenBytes))
	}
	if n.openBytes > maxOpeningBytes || len(n.opening) != maxOpeningBytes/maxOpenBytes {
		t.Errorf("%d bytes wait", n.openBytes)
	}
}

// Compiled schemas have a bound in bytes.
func TestSchemasAreBounded(t *testing.T) {
	n := &Node{schemas: map[string]func(any) error{}}
	n.o.Schema = func(json.RawMessage) (func(any) error, error) { return func(any) error { return nil }, nil }
	for _, size := range []int{10, 200 << 10} {
		for i := range maxCompiled + 100 {
			if _, err := n.compiled(fmt.Appendf(nil, "%*d", size, i)); err != nil {
				t.Fatal(err)
			}
		}
		total := 0
		for schema := range n.schemas {
			total += len(schema)
		}
		if total > maxCompiledBytes || total != n.schemaBytes || len(n.schemas) > maxCompiled {
			t.Errorf("%d schemas with %d bytes, counted %d", len(n.schemas), total, n.schemaBytes)
		}
	}
}

// A call waits for one with the same ID, but few do at a time.
func TestJoinedAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		release := make(chan struct{})
		if err := g.Offer(Descriptor{Name: Name{"test.x", 1, 0}}, func(context.Context, *Exchange) (json.RawMessage, error) {
			<-release
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		c := newTestCall()
		c.keep = true
		var all []sealedCall
		for range maxJoined + 3 {
			s := g.seal(t, testKeys(t, 1), c)
			g.receive(s.raw)
			all = append(all, s)
			synctest.Wait()
		}
		close(release)
		synctest.Wait()
		got := map[toolcrib.Code]int{}
		for _, s := range all {
			got[g.result(s)]++
		}
		if got[ResultOK] != maxJoined+1 || got[toolcrib.CodeOverloaded] != 2 {
			t.Errorf("%v", got)
		}
		if got := g.call(t, testKeys(t, 1), c); got != ResultOK {
			t.Errorf("after the end: %q", got)
		}
	})
}

// A node has a share of the bytes that are received and kept.
func TestBytesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		member := testKeys(t, 1)
		c := newTestCall()
		c.name, c.body = listName, make([]byte, 2*partBytes)
		g.reservedBy[member.Public()] = maxReserved/2 - 1
		if got := g.call(t, member, c); got != toolcrib.CodeCapacityExceeded {
			t.Errorf("%q", got)
		}
		c = newTestCall()
		c.name, c.keep = listName, true
		g.keptBytesBy[member.Public()] = maxKeptBytes/2 - 1
		for _, want := range []toolcrib.Code{ResultOK, toolcrib.CodeConflict} { // it was executed, but is not kept
			if got := g.call(t, member, c); got != want {
				t.Errorf("%q, want %s", got, want)
			}
		}
	})
}

// Of an error of the register, the caller gets a reference only.
func TestInternalErrorHasARef(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		g.o.Trust = func(context.Context, Key) (toolcrib.Trust, error) { return "", errors.New("disk /var/x is full") }
		c := newTestCall()
		c.name = listName
		s := g.seal(t, testKeys(t, 1), c)
		g.receive(s.raw)
		synctest.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, raw := range g.sent[s.id] {
			if _, m, ok := openData(s.in, raw); ok && m.kind == kindError {
				e := DecodeError(m.payload)
				if e.Code != toolcrib.CodeInternal || e.Ref == "" || strings.Contains(e.Message, "disk") {
					t.Errorf("%+v", e)
				}
				return
			}
		}
		t.Error("no error was sent")
	})
}

// Forged messages are counted and not traced, and few calls of nodes without trust are traced.
func TestUnknownCallsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		var traced atomic.Int64
		g.o.Trace = func(TraceEvent) { traced.Add(1) }
		g.receive(append([]byte{protocol, formOpen}, make([]byte, 200)...))
		g.receive(append([]byte{protocol, formNext}, make([]byte, 200)...))
		synctest.Wait()
		if traced.Load() != 0 {
			t.Errorf("%d events of messages that cannot be read", traced.Load())
		}
		c := newTestCall()
		c.name = listName
		for range 3 * maxUnknown {
			if got := g.call(t, testKeys(t, 5), c); got != toolcrib.CodeUnauthorized {
				t.Fatalf("%q", got)
			}
		}
		if traced.Load() != maxUnknown {
			t.Errorf("%d events, want %d", traced.Load(), maxUnknown)
		}
		calls := map[string]int64{}
		for _, one := range g.Counters() {
			calls[one.Capability+" "+string(one.Result)] += one.Calls
		}
		if calls["other invalid_signature"] != 2 || calls["other unauthorized"] != 2*maxUnknown {
			t.Errorf("%v", calls)
		}
	})
}
