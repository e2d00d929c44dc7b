package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
)

// who answers with the name of its node after a while.
func who(n string, after time.Duration) bus.Handler {
	return func(ctx context.Context, _ *bus.Exchange) (json.RawMessage, error) {
		select {
		case <-time.After(after):
			return json.Marshal(n)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// answers counts who answers calls.
func answers(t *testing.T, from *member, r bus.Request, calls int) map[string]int {
	t.Helper()
	by := map[string]int{}
	for range calls {
		got, err := from.Call(t.Context(), r)
		var n string
		if err != nil {
			n = string(toolcrib.CodeOf(err))
		} else if err := json.Unmarshal(got, &n); err != nil {
			t.Fatal(err)
		}
		by[n]++
		time.Sleep(time.Nanosecond) // fake time: until the node has recorded how it went
	}
	return by
}

func TestRoute(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b, c := net.join(t, 0), net.join(t, 1), net.join(t, 2)
		ten := func(d *bus.Descriptor) { d.MaxConcurrent = 10 }
		a.offer(t, "test.local@1.0", who("a", time.Second), ten)
		b.offer(t, "test.local@1.0", who("b", time.Millisecond), ten)
		b.offer(t, "test.fast@1.0", who("b", 50*time.Millisecond))
		c.offer(t, "test.fast@1.1", who("c", 900*time.Millisecond))
		b.offer(t, "test.params@1.0", who("b", 0), func(d *bus.Descriptor) { d.Params = map[string][]any{"corpus": {"notes", 3}} })
		c.offer(t, "test.params@1.0", who("c", 0), func(d *bus.Descriptor) { d.Params = map[string][]any{"corpus": {"mail"}} })
		settle()
		if by := answers(t, a, bus.Request{Name: name(t, "test.local@1.0")}, 5); by["a"] != 5 {
			t.Errorf("calls to a capability of the node itself: %v", by)
		}
		var calls sync.WaitGroup // from 8 of 10 on, others are asked too
		for range 8 {
			calls.Go(func() { _, _ = a.Call(t.Context(), bus.Request{Name: name(t, "test.local@1.0"), To: a.key}) })
		}
		time.Sleep(100 * time.Millisecond)
		if by := answers(t, a, bus.Request{Name: name(t, "test.local@1.0")}, 1); by["b"] != 1 {
			t.Errorf("calls from a busy node: %v", by)
		}
		calls.Wait()
		if by := answers(t, a, bus.Request{Name: name(t, "test.fast@1.0")}, 20); by["b"] < 18 {
			t.Errorf("calls to the faster of two: %v", by)
		}
		if by := answers(t, a, bus.Request{Name: name(t, "test.fast@1.1")}, 3); by["c"] != 3 {
			t.Errorf("calls to the later version: %v", by)
		}
		for corpus, want := range map[string]string{`"notes"`: "b", `3`: "b", `["notes",3]`: "b", `"mail"`: "c", `["mail","notes"]`: "not_found", `"x"`: "not_found", `{}`: "not_found"} {
			if by := answers(t, a, bus.Request{Name: name(t, "test.params@1.0"), Params: json.RawMessage(`{"corpus":` + corpus + `}`)}, 2); by[want] != 2 {
				t.Errorf("corpus %s: %v, want %s", corpus, by, want)
			}
		}
	})
}

// Calls of a session go to the same node, also when another one is faster, until ten minutes after the last.
func TestRoute_Sessions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b, c := net.join(t, 0), net.join(t, 1), net.join(t, 2)
		b.offer(t, "test.x@1.0", who("b", time.Second))
		settle()
		session := bus.Request{Name: name(t, "test.x@1.0"), Session: "s"}
		answers(t, a, session, 1)
		c.offer(t, "test.x@1.0", who("c", time.Millisecond))
		settle()
		answers(t, a, bus.Request{Name: name(t, "test.x@1.0")}, 5)
		for range 3 {
			time.Sleep(9 * time.Minute)
			if by := answers(t, a, session, 1); by["b"] != 1 {
				t.Errorf("a call of the session: %v", by)
			}
		}
		if by := answers(t, a, bus.Request{Name: name(t, "test.x@1.0")}, 3); by["c"] != 3 {
			t.Errorf("calls without a session: %v", by)
		}
		time.Sleep(11 * time.Minute)
		if by := answers(t, a, session, 1); by["c"] != 1 {
			t.Errorf("a call of the session, later: %v", by)
		}
		c.Close()
		settle()
		if by := answers(t, a, session, 1); by["b"] != 1 {
			t.Errorf("the node of the session is gone: %v", by)
		}
	})
}

// A call is repeated at another node if nobody received it, if it was refused, or if that does no harm.
func TestRoute_Failover(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b, c := net.join(t, 0), net.join(t, 1), net.join(t, 2)
		ran := map[string]int{}
		fails := func(_ context.Context, x *bus.Exchange) (json.RawMessage, error) {
			ran[x.Name.Name]++
			return nil, errors.New("broken")
		}
		idempotent := func(d *bus.Descriptor) { d.Idempotent = true }
		b.offer(t, "test.again@1.0", fails, idempotent)
		c.offer(t, "test.again@1.0", fails, idempotent)
		b.offer(t, "test.once@1.0", fails)
		c.offer(t, "test.once@1.0", fails)
		one := func(d *bus.Descriptor) { d.MaxConcurrent = 1 }
		b.offer(t, "test.full@1.0", who("b", time.Minute), one)
		c.offer(t, "test.full@1.0", who("c", time.Minute), one)
		settle()
		_, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.again@1.0")})
		code(t, err, toolcrib.CodeInternal)
		_, err = a.Call(t.Context(), bus.Request{Name: name(t, "test.once@1.0")})
		code(t, err, toolcrib.CodeInternal)
		if ran["test.again"] != 2 || ran["test.once"] != 1 {
			t.Errorf("ran %v", ran)
		}
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() { // from another node: a does not know of it
				for _, to := range []*member{b, c} {
					go func() { _, _ = to.Call(t.Context(), bus.Request{Name: name(t, "test.full@1.0"), To: to.key}) }()
				}
			})
			time.Sleep(time.Second)
		}
		calls.Wait()
		_, err = a.Call(t.Context(), bus.Request{Name: name(t, "test.full@1.0")})
		code(t, err, toolcrib.CodeCapacityExceeded)
		time.Sleep(2 * time.Minute)

		// An instance that ended without a word.
		net.mu.Lock()
		gone := net.nodes[b.box.self]
		delete(net.nodes, b.box.self)
		net.mu.Unlock()
		for range 2 {
			if by := answers(t, a, bus.Request{Name: name(t, "test.full@1.0"), Timeout: 10 * time.Minute}, 1); by["timeout"] != 1 && by["c"] != 1 {
				t.Errorf("%v", by)
			}
			settle() // the place is given back
		}
		net.mu.Lock()
		net.nodes[b.box.self] = gone
		net.mu.Unlock()
	})
}

// A node that fails gets no calls for a minute.
func TestRoute_Quarantine(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b, c := net.join(t, 0), net.join(t, 1), net.join(t, 2)
		broken := true
		ran := 0
		b.offer(t, "test.x@1.0", func(context.Context, *bus.Exchange) (json.RawMessage, error) {
			if ran++; broken {
				return nil, errors.New("broken")
			}
			return json.RawMessage(`"b"`), nil
		})
		settle()
		if by := answers(t, a, bus.Request{Name: name(t, "test.x@1.0")}, 10); by["internal_error"] != 5 || by["capacity_exceeded"] != 5 || ran != 5 {
			t.Errorf("%v, ran %d times", by, ran)
		}
		q := a.Peers()[0].Quarantined
		if len(q) != 1 || q[0].Capability != name(t, "test.x@1.0") || q[0].Reason != toolcrib.CodeInternal || !q[0].Until.After(time.Now()) {
			t.Errorf("the peer is quarantined: %+v", q)
		}
		c.offer(t, "test.x@1.0", who("c", time.Second))
		settle()
		if by := answers(t, a, bus.Request{Name: name(t, "test.x@1.0")}, 5); by["c"] != 5 {
			t.Errorf("another node: %v", by)
		}
		c.Withdraw(name(t, "test.x@1.0"))
		broken = false
		time.Sleep(2 * time.Minute)
		if by := answers(t, a, bus.Request{Name: name(t, "test.x@1.0")}, 5); by["b"] != 5 {
			t.Errorf("after the quarantine: %v", by)
		}
		if q := a.Peers()[0].Quarantined; len(q) > 0 {
			t.Errorf("after the quarantine: %+v", q)
		}
	})
}

// H21: an error that a capability has made for its caller is not a fault of the node, and the call is not made elsewhere.
func TestRoute_AnswerWithError(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b, c := net.join(t, 0), net.join(t, 1), net.join(t, 2)
		ran := 0
		answer := func(context.Context, *bus.Exchange) (json.RawMessage, error) {
			ran++
			return nil, &toolcrib.Error{Code: toolcrib.CodeInternal, Message: "exit status 1", Ref: "run_1"}
		}
		idempotent := func(d *bus.Descriptor) { d.Idempotent = true }
		b.offer(t, "test.x@1.0", answer, idempotent)
		c.offer(t, "test.x@1.0", answer, idempotent)
		b.offer(t, "test.broken@1.0", func(context.Context, *bus.Exchange) (json.RawMessage, error) {
			return nil, errors.New("broken")
		})
		c.offer(t, "test.forward@1.0", func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
			return c.Call(ctx, bus.Request{Name: name(t, "test.broken@1.0"), Via: x})
		})
		settle()
		for range 6 {
			_, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.x@1.0")})
			var e *toolcrib.Error
			if !errors.As(err, &e) || e.Code != toolcrib.CodeInternal || e.Message != "exit status 1" || e.Ref != "run_1" {
				t.Errorf("%+v", err)
			}
			if text := string(bus.EncodeError(err)); strings.Contains(text, "answer") {
				t.Error(text)
			}
		}
		if by := answers(t, a, bus.Request{Name: name(t, "test.forward@1.0")}, 5); by["internal_error"] != 5 {
			t.Errorf("a call that is passed on: %v", by)
		}
		for _, p := range a.Peers() {
			if ran != 6 || len(p.Quarantined) > 0 {
				t.Errorf("ran %d times, %+v", ran, p.Quarantined)
			}
		}
	})
}

// Instances of one node serve its calls, and one that ends hands over.
func TestInstances(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b1, b2 := net.join(t, 0), net.join(t, 1), net.join(t, 1)
		for i, m := range []*member{b1, b2} {
			m.offer(t, "test.x@1.0", who(fmt.Sprint("b", i+1), time.Second), func(d *bus.Descriptor) { d.MaxConcurrent = 2 })
		}
		settle()
		if known, peers := a.Known(), a.Peers(); len(known) != 1 || len(peers) != 1 || len(peers[0].Instances) != 2 {
			t.Errorf("known %+v, peers %+v", known, peers)
		}
		var mu sync.Mutex
		total := map[string]int{}
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				by := answers(t, a, bus.Request{Name: name(t, "test.x@1.0")}, 1)
				mu.Lock()
				defer mu.Unlock()
				for n, times := range by {
					total[n] += times
				}
			})
		}
		calls.Wait()
		if total["b1"] != 2 || total["b2"] != 2 {
			t.Errorf("four calls at a time: %v", total)
		}
		b1.Close()
		settle()
		if by := answers(t, a, bus.Request{Name: name(t, "test.x@1.0")}, 3); by["b2"] != 3 {
			t.Errorf("one instance has ended: %v", by)
		}
	})
}

// Every call leaves an event at both ends, and counts.
func TestH23_Traces(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		b.offer(t, "llm.chat@1.0", func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
			time.Sleep(time.Second)
			if err := x.Send(ctx, bus.Frame{Event: "token", Data: json.RawMessage(`"12345678"`)}); err != nil {
				return nil, err
			}
			return json.RawMessage(`{"meta":{"tokens_in":5,"tokens_out":7}}`), nil
		})
		settle()
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		for range 3 {
			if _, err := a.Call(t.Context(), bus.Request{Name: name(t, "llm.chat@1.0"), Trace: trace, Input: json.RawMessage(`1`)}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := a.Call(t.Context(), bus.Request{Name: name(t, "llm.chat@2.0"), Trace: trace})
		code(t, err, toolcrib.CodeNotFound)
		synctest.Wait() // until both have recorded all
		for m, served := range map[*member]bool{a: false, b: true} {
			var found []bus.TraceEvent
			for _, e := range m.traced() {
				if e.Capability.Name == "llm.chat" {
					found = append(found, e)
				}
			}
			want := 4
			if served {
				want = 3
			}
			if len(found) != want || len(m.traced()) < want {
				t.Fatalf("%d events", len(found))
			}
			in, out := len(`{"input":1}`), len(`"12345678"`)+len(`{"meta":{"tokens_in":5,"tokens_out":7}}`)
			if !served {
				in, out = out, in
			}
			e := found[0]
			if e.From != a.key || e.To != b.key || e.Local || e.Served != served || e.Trace != trace || e.Result != bus.ResultOK ||
				e.Duration < time.Second || e.BytesIn < in || e.BytesOut < out || e.Frames != 1 || !served && (e.TokensIn != 5 || e.TokensOut != 7) {
				t.Errorf("%+v", e)
			}
			calls := map[string]int64{}
			for _, c := range m.Counters() {
				calls[fmt.Sprint(c.Capability, " ", c.Served, " ", c.Result)] = c.Calls
			}
			if calls[fmt.Sprintf("llm.chat@1.0 %v ok", served)] != 3 {
				t.Errorf("%v", calls)
			}
		}
	})
}

// A call that is made again when the instance that has executed it does not receive messages is not executed elsewhere.
func TestRetryIsNotExecutedElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b, c := net.join(t, 0), net.join(t, 1), net.join(t, 2)
		ran := map[string]int{}
		write := func(at string) bus.Handler {
			return func(context.Context, *bus.Exchange) (json.RawMessage, error) { ran[at]++; return nil, nil }
		}
		b.offer(t, "test.write@1.0", write("b"))
		settle()
		r := bus.Request{ID: "once", Name: name(t, "test.write@1.0")}
		if _, err := a.Call(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		c.offer(t, "test.write@1.0", write("c"))
		settle()
		net.mu.Lock()
		delete(net.nodes, b.box.self)
		net.mu.Unlock()
		_, err := a.Call(t.Context(), r)
		code(t, err, toolcrib.CodePartition)
		if ran["b"] != 1 || ran["c"] != 0 {
			t.Errorf("ran %v", ran)
		}
	})
}

// What a node without a transport remembers of its own calls is forgotten as well.
func TestAlone_Forgets(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n, err := bus.New(bus.Options{Keys: keys(t, 0), Trust: func(context.Context, bus.Key) (toolcrib.Trust, error) { return "", nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		ran := 0
		if err := n.Offer(bus.Descriptor{Name: name(t, "test.x@1.0")}, func(context.Context, *bus.Exchange) (json.RawMessage, error) {
			ran++
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			for range 2 {
				if _, err := n.Call(t.Context(), bus.Request{ID: "x", Name: name(t, "test.x@1.0")}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(11 * time.Minute)
		}
		if ran != 2 {
			t.Errorf("ran %d times", ran)
		}
	})
}

// A node without a transport calls itself, with the same checks.
func TestAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		n, err := bus.New(bus.Options{Keys: keys(t, 0), Trust: func(context.Context, bus.Key) (toolcrib.Trust, error) { return "", nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		if err := n.Offer(bus.Descriptor{Name: name(t, "test.echo@1.0")}, echo); err != nil {
			t.Fatal(err)
		}
		if got, err := n.Call(t.Context(), bus.Request{Name: name(t, "test.echo@1.0"), Input: json.RawMessage(`1`)}); err != nil || string(got) != `{"input":1}` {
			t.Errorf("%s, %v", got, err)
		}
		_, err = n.Call(t.Context(), bus.Request{Name: name(t, "test.echo@1.0"), To: "x"})
		code(t, err, toolcrib.CodeNotFound)
		got, err := n.Call(t.Context(), bus.Request{Name: name(t, "node.list@1.0")})
		if err != nil || !strings.Contains(string(got), string(n.Key())) || !strings.Contains(string(got), "test.echo@1.0") {
			t.Errorf("%s, %v", got, err)
		}
	})
}

// When a node closes, its calls end with an error, and it waits for handlers.
func TestClose(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		ended := false
		b.offer(t, "test.wait@1.0", func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
			if err := x.Send(ctx, bus.Frame{Event: "token"}); err != nil {
				return nil, err
			}
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return nil, ctx.Err()
		})
		settle()
		x, err := a.Open(t.Context(), bus.Request{Name: name(t, "test.wait@1.0")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.Recv(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the handler waits
		b.Close()
		if !ended {
			t.Error("the handler has not ended")
		}
		_, err = x.Recv(t.Context())
		code(t, err, toolcrib.CodeOverloaded)
		if errors.Is(err, io.EOF) {
			t.Error("a call that was cut ended well")
		}
		if _, err := b.Call(t.Context(), bus.Request{Name: name(t, "test.wait@1.0")}); err == nil {
			t.Error("a call of a closed node")
		}
	})
}

// A call that ends before it is sent is no trial of a place whose quarantine is over.
func TestRoute_ProbeNotSent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		broken := true
		b.offer(t, "test.often@1.0", func(context.Context, *bus.Exchange) (json.RawMessage, error) {
			if broken {
				return nil, errors.New("broken")
			}
			return nil, nil
		})
		settle()
		call := func() error {
			_, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.often@1.0")})
			return err
		}
		for range 5 {
			code(t, call(), toolcrib.CodeInternal)
		}
		code(t, call(), toolcrib.CodeCapacityExceeded)
		broken = false
		time.Sleep(61 * time.Second) // fake time
		a.lost.Store(true)
		code(t, call(), toolcrib.CodeInternal)
		a.lost.Store(false)
		if err := call(); err != nil {
			t.Error(err)
		}
	})
}
