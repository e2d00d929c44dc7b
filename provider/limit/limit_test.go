package limit_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/limit"
	"github.com/toolcrib/toolcrib/toolcribtest"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// A model under limits is a model, with the fake of toolcribtest inside.
func TestModel_Conforms(t *testing.T) {
	modeltest.Run(t, modeltest.Subject{Thinking: true, New: func(_ *testing.T, replies ...toolcrib.Reply) toolcrib.Model {
		return limit.New(toolcribtest.NewModelFunc(func(_ int, req *toolcrib.Request) toolcribtest.Reply {
			turn := 0
			for i := range req.Messages {
				if req.Messages[i].Role == toolcrib.RoleAssistant {
					turn++
				}
			}
			r := replies[min(turn, len(replies)-1)]
			return toolcribtest.Reply{Parts: r.Message.Parts, Finish: r.Finish}
		}), limit.Options{Name: "p", MaxConcurrent: 3})
	}})
}

// server is a model whose requests last until the test ends them.
type server struct {
	mu      sync.Mutex
	running int
	most    int
	sent    []time.Duration // since the first one
	names   []string
	began   time.Time
	reply   func(ctx context.Context, n int) error // n counts from 1; errEnd means a reply without an end
}

var errEnd = errors.New("ends without an end")

func (s *server) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		s.mu.Lock()
		if s.began.IsZero() {
			s.began = time.Now()
		}
		s.sent = append(s.sent, time.Since(s.began))
		s.names = append(s.names, req.Model)
		n := len(s.sent)
		s.running++
		s.most = max(s.most, s.running)
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			s.running--
			s.mu.Unlock()
		}()
		if !yield(toolcrib.Delta{Text: "x"}, nil) {
			return
		}
		var err error
		if s.reply != nil {
			err = s.reply(ctx, n)
		}
		switch {
		case errors.Is(err, errEnd):
		case err != nil:
			yield(toolcrib.Delta{}, err)
		default:
			yield(toolcrib.Delta{Finish: &toolcrib.Finish{Reason: toolcrib.FinishStop}}, nil)
		}
	}
}

func lasts(d time.Duration) func(context.Context, int) error {
	return func(ctx context.Context, _ int) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func class(c toolcrib.ErrorClass) error { return &toolcrib.ModelError{Class: c, Message: "scripted"} }

func fails(c toolcrib.ErrorClass) func(context.Context, int) error {
	return func(context.Context, int) error { return class(c) }
}

// send sends one request and reads its reply to the end.
func send(ctx context.Context, m toolcrib.Model, name string) error {
	for _, err := range m.Stream(ctx, &toolcrib.Request{Model: name}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// sendAll sends n requests concurrently, in this order, and returns a function that waits
// for them and returns their errors.
func sendAll(ctx context.Context, m toolcrib.Model, n int) (wait func() []error) {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = send(ctx, m, fmt.Sprint(i)) })
		synctest.Wait()
	}
	return func() []error { all.Wait(); return errs }
}

func seconds(all []time.Duration) string {
	var out []string
	for _, d := range all {
		out = append(out, fmt.Sprint(d.Round(time.Millisecond).Seconds()))
	}
	return strings.Join(out, " ")
}

// inOrder reports whether no request was sent before one that arrived earlier. Requests that
// are let through at the same moment have no order.
func (s *server) inOrder() bool {
	for i := range s.names {
		for j := range i {
			if s.sent[j] < s.sent[i] && s.names[j] > s.names[i] {
				return false
			}
		}
	}
	return true
}

func unsent(t *testing.T, err error, class toolcrib.ErrorClass) *toolcrib.ModelError {
	t.Helper()
	var e *toolcrib.ModelError
	if !errors.As(err, &e) || e.Class != class || !e.Unsent || e.Provider != "p" {
		t.Fatalf("got %v, want class %s of p, unsent", err, class)
	}
	return e
}

func none(t *testing.T, errs []error) {
	t.Helper()
	for i, err := range errs {
		if err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
}

func TestMaxConcurrent_InOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for most, at := range map[int]string{1: "0 1 2 3 4 5 6", 2: "0 0 1 1 2 2 3"} {
			s := &server{reply: lasts(time.Second)}
			m := limit.New(s, limit.Options{MaxConcurrent: most})
			none(t, sendAll(t.Context(), m, 7)())
			if s.most != most || seconds(s.sent) != at || !s.inOrder() {
				t.Errorf("most %d at a time, at %s, in order %v", s.most, seconds(s.sent), s.names)
			}
		}
	})
}

func TestRequestsPerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{reply: lasts(time.Second)}
		m := limit.New(s, limit.Options{RequestsPerMinute: 3})
		none(t, sendAll(t.Context(), m, 7)())
		if seconds(s.sent) != "0 0 0 60 60 60 120" || !s.inOrder() {
			t.Errorf("sent at %s, in order %v", seconds(s.sent), s.names)
		}
	})
}

func TestWaiting_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, o := range []limit.Options{{Name: "p", MaxConcurrent: 1}, {Name: "p", RequestsPerMinute: 1}} {
			s := &server{reply: lasts(10 * time.Second)}
			m := limit.New(s, o)
			first := sendAll(t.Context(), m, 1)
			ctx, cancel := context.WithCancel(t.Context())
			second := sendAll(ctx, m, 1) // the first of the line
			third := sendAll(ctx, m, 1)  // after it
			last := sendAll(t.Context(), m, 1)
			cancel()
			for _, err := range append(second(), third()...) {
				if unsent(t, err, toolcrib.ErrOther); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, want to know that it was cancelled", err)
				}
			}
			none(t, append(first(), last()...))
			if len(s.sent) != 2 {
				t.Errorf("%d requests were sent", len(s.sent))
			}
		}
		done, cancel := context.WithCancel(t.Context())
		cancel()
		s := &server{}
		unsent(t, send(done, limit.New(s, limit.Options{Name: "p"}), ""), toolcrib.ErrOther)
		if len(s.sent) > 0 {
			t.Error("a request that was over before it began was sent")
		}
	})
}

func TestWaiting_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{reply: lasts(time.Hour)}
		m := limit.New(s, limit.Options{Name: "p", MaxConcurrent: 1, MaxWaiting: 2, MaxWait: time.Minute})
		wait := sendAll(t.Context(), m, 4)
		began := time.Now()
		errs := wait()
		for _, err := range errs[1:] {
			unsent(t, err, toolcrib.ErrOverloaded)
		}
		if errs[0] != nil || !strings.Contains(errs[3].Error(), "2 requests wait") ||
			!strings.Contains(errs[1].Error(), "1m0s") {
			t.Errorf("got %v", errs)
		}
		if d := time.Since(began); d != time.Hour {
			t.Errorf("it took %s", d)
		}
	})
}

// When a stream ends, for any reason, its place is released once.
func TestPlace_IsGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		m := limit.New(s, limit.Options{MaxConcurrent: 1, Failures: -1})
		for range 3 {
			for range m.Stream(t.Context(), &toolcrib.Request{}) {
				break
			}
			s.reply = fails(toolcrib.ErrNetwork)
			_ = send(t.Context(), m, "")
			s.reply = func(context.Context, int) error { return errEnd }
			_ = send(t.Context(), m, "")
			s.reply = func(context.Context, int) error { panic("adapter") }
			func() {
				defer func() {
					if recover() != "adapter" {
						t.Error("the panic was swallowed")
					}
				}()
				_ = send(t.Context(), m, "")
			}()
			func() {
				defer func() { _ = recover() }()
				for range m.Stream(t.Context(), &toolcrib.Request{}) {
					panic("reader")
				}
			}()
			s.reply = nil
			seq := m.Stream(t.Context(), &toolcrib.Request{})
			for range 2 { // each turn of the loop is a separate request
				for _, err := range seq {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		s.most, s.reply = 0, lasts(time.Second)
		none(t, sendAll(t.Context(), m, 3)())
		if s.most != 1 {
			t.Errorf("%d at a time", s.most)
		}
	})
}

func TestBreaker_OpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{reply: fails(toolcrib.ErrOverloaded)}
		m := limit.New(s, limit.Options{Name: "p", Failures: 3, Open: 30 * time.Second})
		for range 3 {
			if err := send(t.Context(), m, ""); err == nil || err.Error() != class(toolcrib.ErrOverloaded).Error() {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		if e := unsent(t, send(t.Context(), m, ""), toolcrib.ErrOverloaded); e.RetryAfter != 20*time.Second ||
			len(s.sent) != 3 {
			t.Errorf("retry after %s, %d requests sent", e.RetryAfter, len(s.sent))
		}
		time.Sleep(20 * time.Second)
		// One trial, and no other request meanwhile.
		s.reply = func(context.Context, int) error { time.Sleep(5 * time.Second); return class(toolcrib.ErrTimeout) }
		trial := sendAll(t.Context(), m, 1)
		unsent(t, send(t.Context(), m, ""), toolcrib.ErrOverloaded)
		trial()
		if len(s.sent) != 4 {
			t.Fatalf("%d requests sent, want one trial", len(s.sent))
		}
		if e := unsent(t, send(t.Context(), m, ""), toolcrib.ErrOverloaded); e.RetryAfter != 30*time.Second {
			t.Errorf("retry after %s, want the whole time again", e.RetryAfter)
		}
		time.Sleep(30 * time.Second)
		s.reply = nil
		none(t, []error{send(t.Context(), m, ""), send(t.Context(), m, "")})
		s.reply = fails(toolcrib.ErrNetwork)
		for range 3 {
			_ = send(t.Context(), m, "")
		}
		if len(s.sent) != 9 {
			t.Errorf("%d requests sent: the count did not start over", len(s.sent))
		}
	})
}

// A canceled trial has no outcome, and the next request may be the trial.
func TestBreaker_ATrialGivenUpBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{reply: fails(toolcrib.ErrNetwork)}
		m := limit.New(s, limit.Options{Name: "p", Failures: 1, Open: time.Second})
		_ = send(t.Context(), m, "")
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		s.reply = lasts(time.Hour)
		trial := sendAll(ctx, m, 1)
		cancel()
		if err := trial()[0]; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		s.reply = func(context.Context, int) error { panic("adapter") }
		func() {
			defer func() { _ = recover() }()
			_ = send(t.Context(), m, "")
		}()
		for range m.Stream(t.Context(), &toolcrib.Request{}) {
			break
		}
		s.reply = nil
		none(t, []error{send(t.Context(), m, ""), send(t.Context(), m, "")})
	})
}

func TestBreaker_WhatCounts(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tt := range []struct {
		name   string
		err    error
		counts bool
	}{
		{"overloaded", class(toolcrib.ErrOverloaded), true},
		{"network", class(toolcrib.ErrNetwork), true},
		{"network before it was sent", &toolcrib.ModelError{Class: toolcrib.ErrNetwork, Unsent: true}, true},
		{"timeout", class(toolcrib.ErrTimeout), true},
		{"status 500", &toolcrib.ModelError{Class: toolcrib.ErrOther, Status: 500}, true},
		{"broken off", errEnd, true},
		{"other", class(toolcrib.ErrOther), false},
		{"auth", class(toolcrib.ErrAuth), false},
		{"auth before it was sent", &toolcrib.ModelError{Class: toolcrib.ErrAuth, Unsent: true}, false},
		{"bad request", class(toolcrib.ErrBadRequest), false},
		{"context length", class(toolcrib.ErrContextLength), false},
		{"refused", class(toolcrib.ErrRefused), false},
		{"rate limit", class(toolcrib.ErrRateLimit), false},
		{"cancelled", cancelled.Err(), false},
		{"no model error", errors.New("odd"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &server{reply: func(context.Context, int) error { return tt.err }}
			m := limit.New(s, limit.Options{Name: "p", Failures: 2})
			for range 3 {
				_ = send(t.Context(), m, "")
			}
			if opened := len(s.sent) == 2; opened != tt.counts {
				t.Errorf("%d of 3 requests were sent", len(s.sent))
			}
		})
	}
}

func TestBreaker_OnlyInARowAndWithinTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{reply: func(_ context.Context, n int) error {
			if n%3 == 0 {
				return nil
			}
			return class(toolcrib.ErrOverloaded)
		}}
		m := limit.New(s, limit.Options{Failures: 3})
		for range 9 {
			_ = send(t.Context(), m, "")
		}
		if len(s.sent) != 9 {
			t.Errorf("open after %d requests, although every third was answered", len(s.sent))
		}
		s.reply = fails(toolcrib.ErrOverloaded)
		for range 4 {
			_ = send(t.Context(), m, "")
			time.Sleep(40 * time.Second)
		}
		if len(s.sent) != 13 {
			t.Errorf("open after %d requests, although they failed far apart", len(s.sent))
		}
	})
}

// A request that its run canceled has no outcome, whatever its error.
func TestBreaker_CancelledRequestsNeverCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{reply: func(ctx context.Context, _ int) error { <-ctx.Done(); return class(toolcrib.ErrNetwork) }}
		m := limit.New(s, limit.Options{Failures: 1})
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			one := sendAll(ctx, m, 1)
			cancel()
			one()
		}
		if len(s.sent) != 3 {
			t.Errorf("%d requests sent, want 3", len(s.sent))
		}
	})
}

// Requests that wait when the circuit opens fail at once, and requests that were
// in flight then do not open it again.
func TestBreaker_NobodyWaitsForAProviderThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{reply: func(_ context.Context, n int) error {
			time.Sleep(time.Duration(n) * time.Second)
			return class(toolcrib.ErrOverloaded)
		}}
		m := limit.New(s, limit.Options{Name: "p", MaxConcurrent: 2, RequestsPerMinute: 2, Failures: 1})
		began := time.Now()
		errs := sendAll(t.Context(), m, 5)()
		if d := time.Since(began); d != 2*time.Second || len(s.sent) != 2 {
			t.Errorf("it took %s and %d requests", d, len(s.sent))
		}
		for _, err := range errs[2:] {
			if e := unsent(t, err, toolcrib.ErrOverloaded); e.RetryAfter != 30*time.Second {
				t.Errorf("retry after %s", e.RetryAfter)
			}
		}
		if e := unsent(t, send(t.Context(), m, ""), toolcrib.ErrOverloaded); e.RetryAfter != 29*time.Second {
			t.Errorf("retry after %s, want what is left since the first failure", e.RetryAfter)
		}
	})
}

func TestRateLimit_HoldsBackTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for asked, want := range map[time.Duration]string{0: "0 0 0", 7 * time.Second: "0 0 7", time.Hour: "0 0 60"} {
			s := &server{reply: func(_ context.Context, n int) error {
				if n > 1 {
					return nil
				}
				return &toolcrib.ModelError{Class: toolcrib.ErrRateLimit, Status: 429, RetryAfter: asked}
			}}
			m := limit.New(s, limit.Options{})
			own := m.Conversation()
			if err := send(t.Context(), own, ""); err == nil {
				t.Fatal("no error")
			}
			var other sync.WaitGroup
			other.Go(func() { none(t, []error{send(t.Context(), m, "")}) })
			synctest.Wait()
			none(t, []error{send(t.Context(), own, "")}) // its run has already waited
			other.Wait()
			if got := seconds(s.sent); got != want {
				t.Errorf("asked for %s: sent at %s, want %s", asked, got, want)
			}
		}
	})
}

func TestConversations_ShareTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &conversational{}
		s.reply = lasts(time.Second)
		m := limit.New(s, limit.Options{MaxConcurrent: 1})
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { none(t, []error{send(t.Context(), m.Conversation(), "")}) })
		}
		all.Wait()
		if s.most != 1 || s.talks != 3 {
			t.Errorf("%d at a time in %d conversations", s.most, s.talks)
		}
		if m.Unwrap() != toolcrib.Model(s) {
			t.Error("the model inside is another")
		}
		plain := limit.New(&server{}, limit.Options{})
		if own, ok := plain.Conversation().(*limit.Model); !ok || own.Unwrap() != plain.Unwrap() {
			t.Error("the conversation of a model without conversations is with another model")
		}
	})
}

type conversational struct {
	server
	talks int
}

func (c *conversational) Conversation() toolcrib.Model {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.talks++
	return &c.server
}

// With any outcomes of requests, the bounds are kept, every place is released,
// and no request waits forever.
func TestLimits_Property(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.IntRange(1, 4).Draw(rt, "most")
		rate := rapid.SampledFrom([]int{0, 3, 10}).Draw(rt, "rate")
		n := rapid.IntRange(1, 20).Draw(rt, "n")
		ends := rapid.SliceOfN(rapid.IntRange(0, 5), n, n).Draw(rt, "ends")
		gaps := rapid.SliceOfN(rapid.IntRange(0, 20), n, n).Draw(rt, "gaps")
		patience := rapid.SliceOfN(rapid.SampledFrom([]int{1, 30, 100000}), n, n).Draw(rt, "patience")
		synctest.Test(t, func(t *testing.T) {
			s := &server{reply: func(ctx context.Context, k int) error {
				if err := lasts(time.Duration(1+k%5)*time.Second)(ctx, k); err != nil {
					return err
				}
				switch ends[k-1] {
				case 1:
					return class(toolcrib.ErrOverloaded)
				case 2:
					return &toolcrib.ModelError{Class: toolcrib.ErrRateLimit, RetryAfter: 5 * time.Second}
				case 3:
					return errEnd
				case 4:
					panic("adapter")
				}
				return nil
			}}
			m := limit.New(s, limit.Options{MaxConcurrent: most, RequestsPerMinute: rate, Failures: 2, Open: 10 * time.Second})
			var all sync.WaitGroup
			for i := range n {
				time.Sleep(time.Duration(gaps[i]) * time.Second)
				all.Go(func() {
					defer func() { _ = recover() }()
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(patience[i])*time.Second)
					defer cancel()
					_ = send(ctx, m, "")
				})
			}
			all.Wait()
			if s.most > most || s.running != 0 {
				t.Errorf("%d at a time, at most %d allowed; %d left", s.most, most, s.running)
			}
			for i := rate; rate > 0 && i < len(s.sent); i++ {
				if s.sent[i]-s.sent[i-rate] < time.Minute {
					t.Errorf("more than %d requests in a minute: %s", rate, seconds(s.sent))
				}
			}
			time.Sleep(2 * time.Minute)
			s.reply, s.most = lasts(time.Second), 0
			if err := sendAll(t.Context(), m, 1)()[0]; err != nil {
				t.Errorf("afterwards: %v", err)
			}
			if rate == 0 {
				none(t, sendAll(t.Context(), m, most)())
				if s.most != most {
					t.Errorf("%d places of %d came back", s.most, most)
				}
			}
		})
	})
}

// shared is part of some limits, which a test sets, and what was told to the other processes.
type shared struct {
	local      limit.Local
	mu         sync.Mutex
	concurrent int
	rate       int
	told       []string
}

func (s *shared) Part() (concurrent, perMinute int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.concurrent, s.rate
}

func (s *shared) Changed(int, int, int) {}

func (s *shared) Tell(down bool, d time.Duration) { s.told = append(s.told, fmt.Sprint(down, " ", d)) }

func (s *shared) set(concurrent, rate int) {
	s.mu.Lock()
	s.concurrent, s.rate = concurrent, rate
	s.mu.Unlock()
	s.local.Changed()
}

// A process keeps to its part of limits that it shares with others, and continues when the part grows.
func TestShare_Part(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, part := &server{reply: lasts(time.Second)}, &shared{rate: 100}
		m := limit.New(s, limit.Options{MaxConcurrent: 3, RequestsPerMinute: 100, Share: func(l limit.Local) limit.Share {
			part.local = l
			return part
		}})
		done := sendAll(t.Context(), m, 4)
		synctest.Wait()
		if running, waiting, sent, ok := part.local.Use(); running != 0 || waiting != 4 || sent != 0 || !ok {
			t.Errorf("%d run, %d wait, %d sent, %v", running, waiting, sent, ok)
		}
		part.set(2, 3)
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		s.mu.Lock() // the next one is sent soon
		most, sent := s.most, len(s.sent)
		s.mu.Unlock()
		if most != 2 || sent != 3 {
			t.Errorf("%d at a time, %d sent", most, sent)
		}
		none(t, done())
	})
}

// A pause that the provider asks of one process applies to the others. That it is down for one of them makes the others
// careful: each finds out by itself, since the reason may be the network of the one.
func TestShare_Holds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var err error
		s := &server{reply: func(context.Context, int) error { return err }}
		part := &shared{concurrent: 9, rate: 99}
		m := limit.New(s, limit.Options{Failures: 3, Open: 10 * time.Second, Share: func(l limit.Local) limit.Share {
			part.local = l
			return part
		}})
		asked := func(want bool, class toolcrib.ErrorClass) {
			t.Helper()
			if err = nil; class != "" {
				err = &toolcrib.ModelError{Class: class}
			}
			before := len(s.sent)
			_ = send(t.Context(), m, "")
			if got := len(s.sent) > before; got != want {
				t.Errorf("the provider was asked: %v, want %v", got, want)
			}
		}
		part.local.Hold(true, time.Hour)
		asked(true, "") // it is reached here
		asked(true, toolcrib.ErrNetwork)
		asked(true, toolcrib.ErrNetwork)
		asked(true, "")
		part.local.Hold(true, time.Hour)
		asked(true, toolcrib.ErrNetwork)
		asked(false, toolcrib.ErrNetwork)
		part.local.Hold(true, 0) // it answers another process
		asked(true, toolcrib.ErrNetwork)
		asked(false, "")
		part.local.Hold(true, 0)
		asked(true, "")
		asked(true, "")
		began := time.Now()
		part.local.Hold(false, 5*time.Second)
		if err := send(t.Context(), m, ""); err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("error %v after %s", err, time.Since(began))
		}
		err = &toolcrib.ModelError{Class: toolcrib.ErrRateLimit, RetryAfter: 5 * time.Second}
		_ = send(t.Context(), m, "")
		if want := "[true 10s true 10s true 0s false 5s]"; fmt.Sprint(part.told) != want {
			t.Errorf("told %v, want %s", part.told, want)
		}
	})
}
