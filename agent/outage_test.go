package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// outage is a provider that fails from a request on, until a moment.
type outage struct {
	from  int // requests that are answered before it
	until time.Time
	err   toolcrib.ModelError
}

// down makes the model of a world fail in an outage.
func (w *world) down(o *outage) {
	reply, answered := w.reply, 0
	w.reply = func(ctx context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
		if answered >= o.from && time.Now().Before(o.until) {
			err := o.err
			return nil, &err
		}
		answered++
		return reply(ctx, n, req)
	}
}

// resumed takes a run up again.
func (w *world) resumed(t *testing.T, s *agent.State) *agent.State {
	t.Helper()
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.replayed(s); err != nil {
		t.Error(err)
	}
	return s
}

var overloaded = toolcrib.ModelError{Class: toolcrib.ErrOverloaded, Status: 503, Message: "HTTP 503"} //nolint:gochecknoglobals // a constant, if Go had them

// Before its first reply a run has nothing to lose: it is retried for retry.first, then
// it fails.
func TestOutage_BeforeTheFirstReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		w.script(say("done"))
		began := time.Now()
		w.down(&outage{until: began.Add(time.Hour), err: overloaded})
		s := run(t, w)
		equal(t, "status", s.Status, toolcrib.StatusFailed)
		equal(t, "reason", s.Failed.StopReason, toolcrib.StopProviderFailed)
		if took := time.Since(began); took < 30*time.Second || took > 45*time.Second {
			t.Errorf("failed after %s", took)
		}
	})
}

// An outage of ten minutes in a run with writes, with restarts in between: the run parks,
// is resumed as often as somebody likes, and has one effect of each write.
func TestOutage_ParksAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		w.byTurn(calls("write", `{"n":1}`, "echo", `{}`), calls("write", `{"n":2}`), say("done"))
		began := time.Now()
		w.down(&outage{from: 1, until: began.Add(100 * time.Minute), err: overloaded})
		s := run(t, w, limits(func(l *toolcrib.Limits) { l.WallTime = time.Minute }))
		if took := time.Since(began); took < 5*time.Minute || took > 7*time.Minute {
			t.Errorf("parked after %s", took)
		}
		equal(t, "status", s.Status, toolcrib.StatusWaitingForProvider)
		equal(t, "kind", s.Pending.Kind, journal.PendingProvider)
		ref := s.Pending.Error.Ref
		equal(t, "error", *s.Pending.Error, journal.Outage{Class: toolcrib.ErrOverloaded, Provider: "fake", Model: "fake/one", Message: "HTTP 503", Ref: ref, RetryMS: 60_000})
		equal(t, "ref", strings.HasPrefix(ref, "ref_"), true)
		for n := range 6 {
			events := w.events(t, s.Run)
			w2 := cutAfter(t, events, len(events), s.Run, gate.ConfirmNever)
			w2.reply, w2.ran, w2.writes = w.reply, w.ran, w.writes
			w = w2
			s = w.resumed(t, s)
			equal(t, "status", s.Status, toolcrib.StatusWaitingForProvider)
			equal(t, "pause", s.Pending.Error.RetryMS, min(int64(time.Hour/time.Millisecond), 60_000<<(n+1)))
			time.Sleep(10 * time.Minute)
		}
		time.Sleep(time.Hour)
		s = w.resumed(t, s)
		equal(t, "content", s.Done.Content, "done")
		equal(t, "writes", w.wrote(), 2)
		equal(t, "calls", len(s.Trace), 3)
		if s.Driven > 10*time.Second {
			t.Errorf("waiting counts as work: %s", s.Driven)
		}
	})
}

// An outage that passes in time parks nothing.
func TestOutage_Passes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		w.byTurn(calls("write", `{}`), say("done"))
		w.down(&outage{from: 1, until: time.Now().Add(4 * time.Minute), err: overloaded})
		s := run(t, w)
		equal(t, "content", s.Done.Content, "done")
		equal(t, "writes", w.wrote(), 1)
	})
}

// Retry-After is waited for as far as it fits.
func TestOutage_RetryAfter(t *testing.T) {
	limited := toolcrib.ModelError{Class: toolcrib.ErrRateLimit, Status: 429, Message: "HTTP 429", RetryAfter: 61 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		w.byTurn(calls("echo", `{}`), say("done"))
		began := time.Now()
		w.down(&outage{from: 1, until: began.Add(time.Minute), err: limited})
		s := run(t, w)
		equal(t, "content", s.Done.Content, "done")
		equal(t, "requests", len(w.requests), 3)
		if took := time.Since(began); took < 61*time.Second || took > 80*time.Second {
			t.Errorf("took %s", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		w.script(say("done"))
		w.down(&outage{until: time.Now().Add(time.Hour), err: limited})
		s := run(t, w)
		equal(t, "requests", len(w.requests), 2)
		if !strings.Contains(s.Failed.Message, "asks to wait 1m1s") {
			t.Error(s.Failed.Message)
		}
	})
}

// What no waiting fixes is not waited for: a run with a reply parks at once, and no server
// tries it again; another model continues from exactly there.
func TestOutage_AnotherModel(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.byTurn(calls("write", `{"n":1}`), say("done"))
	w.down(&outage{from: 1, until: time.Now().Add(time.Hour), err: toolcrib.ModelError{Class: toolcrib.ErrAuth, Status: 401, Message: "HTTP 401"}})
	failing := w.reply
	w.reply = func(ctx context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
		if req.Model == "two" {
			return say("from another"), nil
		}
		return failing(ctx, n, req)
	}
	s := run(t, w, func(k *agent.Task) { k.Agent.Budget.MaxCostUSD = 1 })
	equal(t, "status", s.Status, toolcrib.StatusWaitingForProvider)
	equal(t, "requests", len(w.requests), 2)
	equal(t, "pause", s.Pending.Error.RetryMS, 0)
	if again, err := w.runner.Add(t.Context(), s.Run, agent.Addition{Model: &journal.ModelInfo{Ref: "fake/two", ID: "two"}, By: "me"}); err == nil || again.Seq != s.Seq {
		t.Error("a model without a price was taken under a cap of cost")
	}
	priced := journal.ModelInfo{Ref: "fake/two", Provider: "other", ID: "two", Tools: "none", Price: toolcrib.Price{Input: 3, Output: 4, Known: true}}
	used, err := w.runner.Add(t.Context(), s.Run, agent.Addition{Model: &priced, By: "me"})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "status", used.Status, toolcrib.StatusQueued)
	s = w.resumed(t, s)
	equal(t, "content", s.Done.Content, "from another")
	equal(t, "writes", w.wrote(), 1)
	last := w.requests[len(w.requests)-1]
	if len(w.requests) != 3 || len(last.Tools) != 0 || len(last.Messages) != 3 {
		t.Errorf("%d requests, the last one with %d tools and %d messages", len(w.requests), len(last.Tools), len(last.Messages))
	}
	if cost := s.Usage.CostUSD; cost != (100*1.0+10*2.0+100*3.0+10*4.0)/1e6 {
		t.Errorf("cost %v", cost)
	}
	if _, err := w.runner.Add(t.Context(), s.Run, agent.Addition{Model: &priced, By: "me"}); toolcrib.CodeOf(err) != toolcrib.CodeConflict {
		t.Errorf("an ended run took a model: %v", err)
	}
	fork, err := forkOf(t.Context(), w.runner, s.Run, 2, me, "", agent.ApproveNone)
	if err != nil || fork.Done == nil || fork.Done.Content != "from another" {
		t.Errorf("the fork %+v %v", fork, err)
	}
}

// With retry: 0 nothing is tried again.
func TestOutage_NeverRetried(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	o := w.runner.Options
	o.Retry = &journal.Retry{}
	w.runner, _ = agent.New(o)
	w.byTurn(calls("echo", `{}`), say("done"))
	w.down(&outage{from: 1, until: time.Now().Add(time.Hour), err: overloaded})
	s := run(t, w)
	equal(t, "status", s.Status, toolcrib.StatusWaitingForProvider)
	equal(t, "requests", len(w.requests), 2)
	equal(t, "pause", s.Pending.Error.RetryMS, 0)
}

// An answer that the provider filters is an answer: to ask again changes nothing.
func TestOutage_NotForFilteredAnswers(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.byTurn(calls("echo", `{}`), []toolcrib.Delta{finish(toolcrib.FinishFiltered)})
	equal(t, "status", run(t, w).Status, toolcrib.StatusFailed)
	w = newWorld(t, gate.ConfirmNever)
	w.byTurn(calls("echo", `{}`), say("done"))
	w.down(&outage{from: 1, until: time.Now().Add(time.Hour), err: toolcrib.ModelError{Class: toolcrib.ErrRefused, Message: "no"}})
	equal(t, "status", run(t, w).Status, toolcrib.StatusFailed)
}

// A run that waits for its provider can be cancelled, and can get messages.
func TestOutage_CancelledAndTold(t *testing.T) {
	waiting := func() (*world, *agent.State, *outage) {
		w := newWorld(t, gate.ConfirmNever)
		w.byTurn(calls("write", `{}`), say("done"))
		out := &outage{from: 1, until: time.Now().Add(time.Hour), err: toolcrib.ModelError{Class: toolcrib.ErrAuth, Message: "HTTP 401"}}
		w.down(out)
		s := run(t, w)
		equal(t, "status", s.Status, toolcrib.StatusWaitingForProvider)
		return w, s, out
	}
	w, s, _ := waiting()
	s, err := w.runner.Cancel(t.Context(), s.Run, &agent.CancelError{By: "me"})
	if err != nil || s.Status != toolcrib.StatusCancelled {
		t.Errorf("%s %v", s.Status, err)
	}
	w, s, out := waiting()
	if _, err := w.runner.Add(t.Context(), s.Run, agent.Addition{Message: new("be quick"), By: "me"}); err != nil {
		t.Fatal(err)
	}
	out.until = time.Time{}
	s = w.resumed(t, s)
	equal(t, "content", s.Done.Content, "done")
	equal(t, "told", s.Messages[3].Text(), "be quick")
}

// A sub-agent whose provider fails parks with the run above it; resuming that one continues
// with both, and what its siblings did is not done again.
func TestOutage_OfASubAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFamily(t, gate.ConfirmNever, replies{
			"boss":   {calls("spawn", spawn("helper"), "write", `{}`), say("all done")},
			"helper": {calls("write", `{"n":1}`), say("helped")},
		})
		until := time.Now().Add(30 * time.Minute)
		reply := f.reply
		f.reply = func(ctx context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
			if req.Model == "helper" && len(req.Messages) > 1 && time.Now().Before(until) {
				err := overloaded
				return nil, &err
			}
			return reply(ctx, n, req)
		}
		began := time.Now()
		s := f.start(t, limits(func(l *toolcrib.Limits) { l.ToolTimeout = time.Hour }))
		helper := f.children(t, s.Run)[0]
		if s.Status != toolcrib.StatusWaitingForProvider || s.Pending.Run != helper.Run || s.Pending.Error == nil || time.Since(began) > 10*time.Minute {
			t.Fatalf("after %s the run is %s, pending %+v", time.Since(began), s.Status, s.Pending)
		}
		if waits, err := f.runner.WaitsFor(t.Context(), s.Run); err != nil || waits == nil || waits.Run != helper.Run {
			t.Errorf("waits for %v, %v", waits, err)
		}
		s = f.resume(t, s.Run)
		equal(t, "status", s.Status, toolcrib.StatusWaitingForProvider)
		time.Sleep(time.Hour)
		s = f.resume(t, s.Run)
		equal(t, "content", s.Done.Content, "all done")
		equal(t, "writes", f.wrote(), 2)
	})
}

// A run that got a message, or higher limits, after its driver was lost has not worked in between.
func TestWallTime_NotWhileNobodyDrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		w.byTurn(calls("echo", `{}`), say("done"))
		whole := run(t, w)
		w = cutAfter(t, w.events(t, whole.Run), 5, whole.Run, gate.ConfirmNever)
		w.byTurn(calls("echo", `{}`), say("done"))
		time.Sleep(24 * time.Hour)
		if _, err := w.runner.Add(t.Context(), whole.Run, agent.Addition{Message: new("hello"), By: "me"}); err != nil {
			t.Fatal(err)
		}
		if s := w.resumed(t, whole); s.Done == nil || s.Driven > time.Minute {
			t.Errorf("%s after %s", s.Status, s.Driven)
		}
	})
}

// The journal of a run that waits says all that a server needs to try it again.
func TestOutage_Kept(t *testing.T) {
	raw, err := journal.Encode(&journal.Paused{Status: toolcrib.StatusWaitingForProvider, Pending: journal.Pending{
		Kind: journal.PendingProvider, Error: &journal.Outage{Class: toolcrib.ErrNetwork, Model: "p/m", Message: "no", RetryMS: 1},
	}})
	var kept map[string]any
	if err == nil {
		err = json.Unmarshal(raw, &kept)
	}
	if err != nil || string(raw) != `{"status":"waiting_for_provider","pending":{"kind":"provider","error":{"class":"network","model":"p/m","message":"no","retry_ms":1}}}` {
		t.Errorf("%s %v", raw, err)
	}
}
