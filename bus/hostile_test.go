package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
)

// Messages that are sent again, at once or later, execute nothing.
func TestReplay(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		ran := 0
		var mu sync.Mutex
		b.offer(t, "test.count@1.0", func(context.Context, *bus.Exchange) (json.RawMessage, error) {
			mu.Lock()
			defer mu.Unlock()
			ran++
			return nil, nil
		})
		settle()
		for range 3 { // the last in a session
			if _, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.count@1.0"), Input: json.RawMessage(`1`)}); err != nil {
				t.Fatal(err)
			}
			settle()
		}
		net.mu.Lock()
		sent, to := bytesCopy(net.sent), append([]bus.Address(nil), net.to...)
		net.mu.Unlock()
		for _, wait := range []time.Duration{0, time.Second, 30 * time.Second, 80 * time.Second, 100 * time.Second, 10 * time.Minute} {
			time.Sleep(wait)
			for range 3 {
				for i, message := range sent {
					net.post(to[i], message)
					for at := range net.all() { // and to everybody else
						net.post(at, message)
					}
				}
			}
		}
		settle()
		if ran != 3 {
			t.Errorf("the capability ran %d times", ran)
		}
		if _, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.count@1.0")}); err != nil || ran != 4 {
			t.Errorf("a call after that: ran %d times, %v", ran, err)
		}
	})
}

// Calls after the first are made in a session, for ten minutes. After a restart of the other node, or if it does not know
// the session, there is a new one.
func TestSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		ran := 0
		count := func(context.Context, *bus.Exchange) (json.RawMessage, error) { ran++; return nil, nil }
		b.offer(t, "test.count@1.0", count)
		settle()
		call := func() (form string, err error) {
			net.mu.Lock()
			before := len(net.sent)
			net.mu.Unlock()
			_, err = a.Call(t.Context(), bus.Request{Name: name(t, "test.count@1.0")})
			net.mu.Lock()
			defer net.mu.Unlock()
			for i, m := range net.sent[before:] {
				if net.to[before+i].Node == b.key && m[1] != 'D' {
					form += string(m[1])
				}
			}
			return form, err
		}
		expect := func(when string, forms ...string) {
			t.Helper()
			for _, want := range forms {
				if got, err := call(); err != nil || got != want {
					t.Errorf("%s: form %s, want %s, %v", when, got, want, err)
				}
			}
		}
		expect("at first", "O", "N", "N")
		time.Sleep(9*time.Minute + 50*time.Second)
		expect("later", "N")
		time.Sleep(11 * time.Second)
		expect("after ten minutes", "O", "N")
		b.Close()
		b = net.join(t, 1)
		b.offer(t, "test.count@1.0", count)
		settle()
		expect("after a restart", "O", "N")
		if ran != 8 {
			t.Fatalf("ran %d times", ran)
		}
		net.fault = func(_ bus.Address, message []byte) []time.Duration {
			if message[1] == 'N' {
				return nil
			}
			return []time.Duration{0}
		}
		form, err := call()
		code(t, err, toolcrib.CodePartition)
		if form != "N" {
			t.Errorf("form %s", form)
		}
		expect("after silence", "O")
		if ran != 9 {
			t.Errorf("ran %d times", ran)
		}
	})
}

// Cards that are sent again bring nobody back.
func TestReplayedCards(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		b.offer(t, "test.x@1.0", echo)
		settle()
		if len(a.Peers()) != 1 || len(a.Known()) != 1 {
			t.Fatal("they do not know each other")
		}
		b.Close()
		for _, wait := range []time.Duration{0, 30 * time.Second, 40 * time.Second, time.Hour} {
			time.Sleep(wait)
			net.mu.Lock()
			cards := bytesCopy(net.cards)
			net.mu.Unlock()
			for _, card := range slices.Backward(cards) {
				net.post(a.box.self, card)
			}
			settle()
			if len(a.Known()) != 0 || len(a.Peers()) != 0 && !a.Peers()[0].Skewed {
				t.Errorf("%s later: %+v, %+v", wait, a.Known(), a.Peers())
			}
		}
	})
}

// A call with an ID continues when the network is cut, and a retry gets its result.
func TestRetryAfterPartition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		ran := 0
		b.offer(t, "test.slow@1.0", func(ctx context.Context, _ *bus.Exchange) (json.RawMessage, error) {
			ran++
			select {
			case <-time.After(5 * time.Minute):
				return json.RawMessage(`7`), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}, func(d *bus.Descriptor) { d.Timeout = 10 * time.Minute })
		settle()
		r := bus.Request{ID: "call-1", Name: name(t, "test.slow@1.0"), To: b.key}
		cut := time.AfterFunc(time.Minute, func() {
			net.mu.Lock()
			defer net.mu.Unlock()
			net.fault = func(bus.Address, []byte) []time.Duration { return nil }
		})
		_, err := a.Call(t.Context(), r)
		code(t, err, toolcrib.CodePartition)
		cut.Stop()
		net.mu.Lock()
		net.fault = nil
		net.mu.Unlock()
		time.Sleep(30 * time.Second)
		if got, err := a.Call(t.Context(), r); err != nil || string(got) != "7" || ran != 1 {
			t.Errorf("%s, %v, ran %d times", got, err, ran)
		}
	})
}

func bytesCopy(all [][]byte) (copies [][]byte) {
	for _, one := range all {
		copies = append(copies, bytes.Clone(one))
	}
	return copies
}

func (n *network) all() map[bus.Address]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[bus.Address]bool{}
	for at := range n.nodes {
		all[at] = true
	}
	return all
}

// Each byte of each message of a call is changed, and each message is cut at each length: nothing is executed that was
// changed, and the call is answered right or not at all.
func TestChangedMessages(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		b.offer(t, "test.echo@1.0", func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
			if string(x.Body) != `{"input":"original"}` {
				t.Errorf("the body is %s", x.Body)
			}
			return x.Body, x.Send(ctx, bus.Frame{Event: "token", Data: json.RawMessage(`"t"`)})
		})
		settle()
		// The messages of a call are changed one after another: which, and how.
		var target, seen int
		var change func([]byte) []byte
		net.fault = func(_ bus.Address, message []byte) []time.Duration {
			if message[1] != 'C' {
				if seen++; seen == target {
					copy(message, change(bytes.Clone(message)))
				}
			}
			return []time.Duration{0}
		}
		for target = 1; target <= 4; target++ { // open, accepted, frame, done
			step := 1
			if testing.Short() {
				step = 7
			}
			for at := 0; at < 1200; at += step {
				seen = 0
				change = func(m []byte) []byte {
					if at < len(m) {
						m[at] ^= 1 << (at % 8)
					}
					return m
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				got, err := a.Call(ctx, bus.Request{Name: name(t, "test.echo@1.0"), To: b.key, Input: json.RawMessage(`"original"`)})
				cancel()
				if err == nil && string(got) != `{"input":"original"}` {
					t.Errorf("message %d, byte %d: %s", target, at, got)
				}
				if c := toolcrib.CodeOf(err); err != nil && c != toolcrib.CodePartition && c != toolcrib.CodeNotFound {
					t.Errorf("message %d, byte %d: %v", target, at, err)
				}
				if err != nil {
					settle()
				}
			}
		}
	})
}

// A network that loses, doubles, delays and reorders messages: a call ends with its answer or with partition, and is
// executed at most once.
func TestBadNetwork(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		ran := map[string]int{}
		var mu sync.Mutex
		b.offer(t, "test.stream@1.0", func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
			mu.Lock()
			ran[x.ID]++
			mu.Unlock()
			for i := range 40 {
				if err := x.Send(ctx, bus.Frame{Event: "token", Data: json.RawMessage(fmt.Sprint(i))}); err != nil {
					return nil, err
				}
			}
			return x.Body, nil
		}, func(d *bus.Descriptor) { d.MaxConcurrent = 1000 })
		settle()
		r := rand.New(rand.NewPCG(1, 2))
		var random sync.Mutex
		for _, lose := range []float64{0, 0.01, 0.2} {
			f := shuffled(r, lose)
			net.mu.Lock()
			net.fault = func(to bus.Address, message []byte) []time.Duration {
				random.Lock()
				defer random.Unlock()
				return f(to, message)
			}
			net.mu.Unlock()
			var calls sync.WaitGroup
			good, lost := 0, 0
			for i := range 200 {
				calls.Go(func() {
					input := fmt.Sprintf(`{"call":%d}`, i)
					x, err := a.Open(t.Context(), bus.Request{Name: name(t, "test.stream@1.0"), To: b.key, Input: json.RawMessage(input)})
					frames := 0
					for err == nil {
						var f bus.Frame
						if f, err = x.Recv(t.Context()); err == nil {
							if string(f.Data) != fmt.Sprint(frames) {
								t.Errorf("call %d, frame %d: %s", i, frames, f.Data)
							}
							frames++
						}
					}
					var got json.RawMessage
					if errors.Is(err, io.EOF) {
						got, err = x.Result(t.Context())
					}
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil && frames == 40 && string(got) == `{"input":`+input+`}`:
						good++
					case toolcrib.CodeOf(err) == toolcrib.CodePartition:
						lost++
					default:
						t.Errorf("call %d: %d frames, %s, %v", i, frames, got, err)
					}
				})
			}
			calls.Wait()
			t.Logf("%v%% of messages lost: %d calls ended, %d with partition", lose*100, good, lost)
			if lose == 0 && lost > 0 || lose > 0 && lost == 0 {
				t.Errorf("%v%% of messages lost: %d calls ended, %d with partition", lose*100, good, lost)
			}
			net.mu.Lock()
			net.fault = nil
			net.mu.Unlock()
			settle()
		}
		for id, times := range ran {
			if times != 1 {
				t.Errorf("call %s ran %d times", id, times)
			}
		}
	})
}

// A clock that is off by a day: the error has both times.
func TestClockIsOff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		b.skew.Store(int64(24 * time.Hour))
		ran := false
		b.offer(t, "test.x@1.0", func(context.Context, *bus.Exchange) (json.RawMessage, error) { ran = true; return nil, nil })
		settle()
		settle()
		settle()
		settle()
		settle()
		if peers := a.Peers(); len(peers) != 1 || !peers[0].Skewed || len(a.Known()) != 0 {
			t.Errorf("peers %+v, known %+v", peers, a.Known())
		}
		_, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.x@1.0"), To: b.key})
		code(t, err, toolcrib.CodeExpired)
		now := time.Now().UTC()
		for _, day := range []string{now.Format("2006-01-02"), now.Add(24 * time.Hour).Format("2006-01-02")} {
			if !strings.Contains(err.Error(), day) {
				t.Errorf("%v does not name %s", err, day)
			}
		}
		if ran {
			t.Error("the call was executed")
		}
	})
}

// A call whose context ends at any moment is forgotten, at both ends.
func TestCancelAtAnyMoment(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		running := make(chan int, 1)
		running <- 0
		count := func(by int) {
			running <- <-running + by
		}
		wait := func(ctx context.Context, _ *bus.Exchange) (json.RawMessage, error) {
			count(1)
			defer count(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		many := func(d *bus.Descriptor) { d.Timeout, d.MaxConcurrent = time.Hour, 1000 }
		a.offer(t, "test.wait@1.0", wait, many)
		b.offer(t, "test.wait@1.0", wait, many)
		settle()
		var calls sync.WaitGroup
		for i := range 300 {
			to := map[int]*member{0: a, 1: b}[i%2]
			ctx, cancel := context.WithCancel(t.Context())
			calls.Go(func() {
				_, err := a.Call(ctx, bus.Request{Name: name(t, "test.wait@1.0"), To: to.key})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
			})
			calls.Go(func() {
				for range i { // let the call come some way
					runtime.Gosched()
				}
				cancel()
			})
		}
		calls.Wait()
		settle()
		if n := <-running; n != 0 {
			t.Errorf("%d handlers run", n)
		}
	})
}

func TestCancelReachesTheHandler(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		ended := make(chan time.Time, 1)
		started := make(chan struct{}, 1)
		wait := func(ctx context.Context, _ *bus.Exchange) (json.RawMessage, error) {
			started <- struct{}{}
			<-ctx.Done()
			ended <- time.Now()
			return nil, ctx.Err()
		}
		b.offer(t, "test.wait@1.0", wait, func(d *bus.Descriptor) { d.Timeout = time.Hour })
		a.offer(t, "test.here@1.0", wait, func(d *bus.Descriptor) { d.Timeout = time.Hour })
		settle()
		for _, n := range []string{"test.wait@1.0", "test.here@1.0"} {
			for _, how := range []string{"Cancel", "context", "at once"} {
				ctx, cancel := context.WithCancel(t.Context())
				x, err := a.Open(ctx, bus.Request{Name: name(t, n)})
				if err != nil {
					t.Fatal(err)
				}
				if how != "at once" {
					<-started
					time.Sleep(time.Minute)
				}
				now := time.Now()
				if how == "context" {
					cancel()
				} else {
					x.Cancel()
				}
				if how == "at once" {
					settle() // the handler may not have begun
					for len(started) > 0 {
						<-started
						<-ended
					}
				} else if d := (<-ended).Sub(now); d > 200*time.Millisecond {
					t.Errorf("%s, %s: the handler ended after %s", n, how, d)
				}
				if _, err := x.Result(t.Context()); !errors.Is(err, context.Canceled) {
					t.Errorf("%s, %s: %v", n, how, err)
				}
				cancel()
			}
		}
	})
}

// A handler that does not end: the caller gets timeout, in time, and the place stays taken until it does.
func TestTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		release := make(chan struct{})
		defer close(release)
		b.offer(t, "test.stuck@1.0", func(context.Context, *bus.Exchange) (json.RawMessage, error) {
			<-release
			return nil, nil
		}, func(d *bus.Descriptor) { d.Timeout, d.MaxConcurrent = 5*time.Second, 2 })
		settle()
		for _, tt := range []struct{ asked, want time.Duration }{{0, 5 * time.Second}, {2 * time.Second, 2 * time.Second}} {
			began := time.Now()
			_, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.stuck@1.0"), To: b.key, Timeout: tt.asked})
			code(t, err, toolcrib.CodeTimeout)
			if took := time.Since(began); took < tt.want || took > tt.want+100*time.Millisecond {
				t.Errorf("it took %s, want %s", took, tt.want)
			}
		}
		_, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.stuck@1.0"), To: b.key})
		code(t, err, toolcrib.CodeCapacityExceeded)
		var e *toolcrib.Error
		if !errors.As(err, &e) || e.RetryAfter <= 0 {
			t.Errorf("no retry_after in %v", err)
		}
	})
}

// The network is cut while a call runs: both ends notice within 15 seconds of silence.
func TestH_Partition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		ended := make(chan error, 1)
		b.offer(t, "test.wait@1.0", func(ctx context.Context, _ *bus.Exchange) (json.RawMessage, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, ctx.Err()
		}, func(d *bus.Descriptor) { d.Timeout = time.Hour })
		settle()
		x, err := a.Open(t.Context(), bus.Request{Name: name(t, "test.wait@1.0")})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute) // a silent call is kept alive
		net.mu.Lock()
		net.fault = func(bus.Address, []byte) []time.Duration { return nil }
		net.mu.Unlock()
		began := time.Now()
		_, err = x.Result(t.Context())
		code(t, err, toolcrib.CodePartition)
		code(t, <-ended, toolcrib.CodePartition)
		if took := time.Since(began); took > 17*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// An instance that has ended without a word is noticed within 5 seconds at the other end of its calls, if the bus reports
// that messages to it are not delivered.
func TestH_KilledPeer(t *testing.T) {
	for _, killed := range []string{"serving", "calling"} {
		inBubble(t, func(t *testing.T) {
			net := newNetwork()
			a, b := net.join(t, 0), net.join(t, 1)
			ended := make(chan error, 1)
			b.offer(t, "test.wait@1.0", func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
				if err := x.Send(ctx, bus.Frame{Event: "token"}); err != nil {
					return nil, err
				}
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return nil, ctx.Err()
			}, func(d *bus.Descriptor) { d.Timeout = time.Hour })
			settle()
			x, err := a.Open(t.Context(), bus.Request{Name: name(t, "test.wait@1.0")})
			if err == nil {
				_, err = x.Recv(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			at := b.box.self
			if killed == "calling" {
				at = a.box.self
			}
			for range 7 {
				time.Sleep(time.Minute + time.Second) // it is kept alive
			}
			net.mu.Lock()
			delete(net.nodes, at)
			net.mu.Unlock()
			began := time.Now()
			if killed == "calling" {
				err = <-ended
			} else {
				_, err = x.Result(t.Context())
			}
			code(t, err, toolcrib.CodePartition)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the %s node: it took %s", killed, took)
			}
		})
	}
}

// A call that is made again with its ID is executed once, and gets the same result.
func TestRetryJoins(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b, c := net.join(t, 0), net.join(t, 1), net.join(t, 2)
		ran := 0
		var mu sync.Mutex
		serve := func(_ context.Context, x *bus.Exchange) (json.RawMessage, error) {
			mu.Lock()
			ran++
			n := ran
			mu.Unlock()
			time.Sleep(20 * time.Second)
			return json.RawMessage(fmt.Sprint(n)), nil
		}
		b.offer(t, "test.slow@1.0", serve)
		c.offer(t, "test.slow@1.0", serve)
		settle()
		r := bus.Request{ID: "call-1", Name: name(t, "test.slow@1.0"), Input: json.RawMessage(`1`)}
		var calls sync.WaitGroup
		for range 5 {
			calls.Go(func() {
				if got, err := a.Call(t.Context(), r); err != nil || string(got) != "1" {
					t.Errorf("%s, %v", got, err)
				}
			})
			settle()
		}
		calls.Wait()
		time.Sleep(9 * time.Minute)
		if got, err := a.Call(t.Context(), r); err != nil || string(got) != "1" || ran != 1 {
			t.Errorf("later: %s, %v, ran %d times", got, err, ran)
		}
		other := r
		other.Input = json.RawMessage(`2`)
		_, err := a.Call(t.Context(), other)
		code(t, err, toolcrib.CodeConflict)
		if got, err := c.Call(t.Context(), r); err != nil || string(got) == "1" { // another node's ID is another call
			t.Errorf("the call of another node: %s, %v", got, err)
		}
	})
}

func TestLargeBodies(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		for _, m := range []*member{a, b} {
			err := m.Offer(bus.Descriptor{Name: name(t, "test.large@1.0"), Reads: true}, func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
				f, err := x.Recv(ctx)
				if err != nil {
					return nil, err
				}
				return x.Body, x.Send(ctx, f)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		settle()
		frame := json.RawMessage(`"` + strings.Repeat("f", bus.MaxFrame-2) + `"`)
		for _, to := range []*member{a, b} {
			for _, size := range []int{10, 60_000, 65_500, 65_536, 70_000, 1 << 20, bus.MaxBody - 20} {
				input := json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
				x, err := a.Open(t.Context(), bus.Request{Name: name(t, "test.large@1.0"), To: to.key, Input: input})
				if err != nil {
					t.Fatal(err)
				}
				if err := x.Send(t.Context(), bus.Frame{Event: "data", Data: frame}); err != nil {
					t.Fatal(err)
				}
				f, err := x.Recv(t.Context())
				if err != nil || !bytes.Equal(f.Data, frame) {
					t.Fatalf("a frame of %d bytes, %v", len(f.Data), err)
				}
				got, err := x.Result(t.Context())
				if err != nil || len(got) != len(input)+len(`{"input":}`) {
					t.Errorf("%d bytes: %d, %v", size, len(got), err)
				}
				if err := x.Send(t.Context(), bus.Frame{Event: "late"}); err == nil {
					t.Error("a frame after the end")
				}
			}
		}
		_, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.large@1.0"), To: b.key, Input: json.RawMessage(`"` + strings.Repeat("x", bus.MaxBody) + `"`)})
		code(t, err, toolcrib.CodeTooLarge)
	})
}

// Hundreds of random messages, and beginnings of real ones, to a node: it serves others meanwhile.
func TestGarbage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		net := newNetwork()
		a, b := net.join(t, 0), net.join(t, 1)
		b.offer(t, "test.echo@1.0", echo)
		settle()
		if _, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.echo@1.0"), Input: json.RawMessage(`1`)}); err != nil {
			t.Fatal(err)
		}
		net.mu.Lock()
		sent := bytesCopy(net.sent)
		net.mu.Unlock()
		r := rand.New(rand.NewPCG(3, 4))
		for range 500 {
			m := bytes.Clone(sent[r.IntN(len(sent))])
			switch m = m[:r.IntN(len(m)+1)]; r.IntN(3) {
			case 0:
				for i := range m {
					m[i] = byte(r.Uint32())
				}
			case 1:
				m = append([]byte{1, "COD"[r.IntN(3)]}, m...)
			}
			for at := range net.all() {
				net.post(at, m)
			}
		}
		for at := range net.all() {
			net.post(at, append([]byte{1, 'O'}, make([]byte, 8<<20)...))
		}
		settle()
		if _, err := a.Call(t.Context(), bus.Request{Name: name(t, "test.echo@1.0"), Input: json.RawMessage(`1`)}); err != nil {
			t.Error(err)
		}
	})
}
