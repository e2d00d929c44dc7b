package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/tool/ask"
)

// targeted is a tool that touches the file named by its argument.
type targeted struct {
	*fn
	write bool
}

func (t targeted) Plan(_ context.Context, c toolcrib.Call) (*toolcrib.Plan, error) {
	var args struct{ Path string }
	mustDecode(c.Arguments, &args)
	plan := planOf(t.fn, c)
	plan.Targets = []toolcrib.Target{{Kind: toolcrib.TargetFile, Name: args.Path, Write: t.write}}
	return plan, nil
}

// planOf returns a plan that does what Call of a tool does.
func planOf(f *fn, c toolcrib.Call) *toolcrib.Plan {
	return &toolcrib.Plan{Run: func(ctx context.Context, now toolcrib.Call) (toolcrib.Output, error) {
		now.Arguments = c.Arguments
		return f.Call(ctx, now)
	}}
}

// withTools makes a world whose gate knows these tools instead.
func withTools(t testing.TB, w *world, mask *guard.Masker, tools ...toolcrib.Tool) {
	t.Helper()
	g, err := gate.New(gate.Options{Tools: tools, Availability: noOverrides{}, Confirm: gate.ConfirmNever})
	if err != nil {
		t.Fatal(err)
	}
	o := w.runner.Options
	o.Gate, o.Mask = g, mask
	if w.runner, err = agent.New(o); err != nil {
		t.Fatal(err)
	}
}

// Calls on the same file run one after another in their order; others do not wait
// for them.
func TestSameTargetInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		var mu sync.Mutex
		var log []string
		note := func(s string) {
			mu.Lock()
			log = append(log, s)
			mu.Unlock()
		}
		tool := func(name string, write bool) toolcrib.Tool {
			effect := toolcrib.EffectReadOnly
			if write {
				effect = toolcrib.EffectIdempotentWrite
			}
			return targeted{write: write, fn: &fn{w: w, spec: toolcrib.Spec{Name: name, Effect: effect, EnabledByDefault: true}, call: func(_ context.Context, c toolcrib.Call) (toolcrib.Output, error) {
				note("+" + c.ID)
				time.Sleep(10 * time.Millisecond)
				note("-" + c.ID)
				return toolcrib.Output{Text: "ok"}, nil
			}}}
		}
		withTools(t, w, nil, tool("put", true), tool("get", false))
		w.script(calls("put", `{"path":"/w/a"}`, "get", `{"path":"/w/a"}`, "get", `{"path":"/w/a"}`, "put", `{"path":"/w/a"}`, "put", `{"path":"/w/b"}`, "get", `{"path":"/w"}`), say("ok"))
		run(t, w, limits(func(l *toolcrib.Limits) { l.MaxParallel = 8 }))
		at := map[string]int{}
		for i, s := range log {
			at[s] = i
		}
		before := func(a, b string) {
			t.Helper()
			if at[a] >= at[b] {
				t.Errorf("%s is not before %s: %v", a, b, log)
			}
		}
		before("-call_1", "+call_2") // a read after the write it follows
		before("-call_1", "+call_3")
		before("+call_2", "-call_3") // two reads together
		before("+call_3", "-call_2")
		before("-call_2", "+call_4") // a write after both reads
		before("-call_3", "+call_4")
		before("+call_5", "-call_1") // another file does not wait
		before("-call_4", "+call_6") // a folder waits for what is in it
		before("-call_5", "+call_6")
	})
}

// H18: a tool that calls itself stops at max_depth, and every nested call is a run
// of its own with its parent's name in it.
func TestH18_DepthStopsAToolThatCallsItself(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	deepest := 0
	var inner toolcrib.Invoked
	self := &fn{w: w, spec: toolcrib.Spec{Name: "self", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Nested: true}}
	self.call = func(ctx context.Context, c toolcrib.Call) (toolcrib.Output, error) {
		deepest = max(deepest, c.Depth)
		got, err := c.Invoke(ctx, "self", nil)
		if err != nil {
			return toolcrib.Output{}, err
		}
		if got.Status == toolcrib.ResultRefused {
			inner = got
		}
		return toolcrib.Output{Text: "depth " + fmt.Sprint(c.Depth)}, nil
	}
	withTools(t, w, nil, self)
	w.script(calls("self", `{}`), say("ok"))
	s := run(t, w, limits(func(l *toolcrib.Limits) { l.MaxDepth = 3 }))
	equal(t, "deepest", deepest, 2)
	equal(t, "refused", inner.Reason, toolcrib.ReasonDepthExceeded)
	equal(t, "result", s.Trace[0].Result.Content, "depth 0")
}

// failing is a journal that stops taking events at the n-th append.
type failing struct {
	toolcrib.Journal
	left int
	err  error
}

func (f *failing) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	if f.left--; f.left < 0 {
		return f.err
	}
	return f.Journal.Append(ctx, run, after, events...)
}

// Once the journal cannot be written, nothing more happens: no tool runs whose
// start was not written down, and the driver says why it stopped.
func TestJournalFailsAtEveryAppend(t *testing.T) {
	for _, want := range []error{toolcrib.ErrConflict, errors.New("disk full")} {
		for n := range 12 {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, gate.ConfirmNever)
				o := w.runner.Options
				o.Journal = &failing{Journal: w.journal, left: n, err: want}
				w.runner, _ = agent.New(o)
				w.script(calls("write", `{}`, "wait", `{}`), calls("write", `{"n":2}`), say("ok"))
				s, err := w.runner.Run(t.Context(), task())
				if err == nil {
					if s.Done == nil {
						t.Errorf("append %d: no error and no end", n)
					}
					return
				}
				if !errors.Is(err, want) {
					t.Errorf("append %d: %v", n, err)
				}
				if err := w.runner.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				started := map[string]bool{}
				if s != nil {
					for _, e := range w.events(t, s.Run) {
						if b, ok := e.Body.(*journal.ToolStarted); ok {
							started[b.ID] = true
						}
					}
				}
				for id := range w.ran {
					if !started[id] {
						t.Errorf("append %d: call %s ran without a start in the journal", n, id)
					}
				}
			})
		}
	}
}

// A secret that toolcrib was given is masked in the journal, in what the model
// reads and in the live stream, also where it is split over deltas.
func TestSecretsAreMasked(t *testing.T) {
	const secret = "s3cr3t-value-1234"
	w := newWorld(t, gate.ConfirmNever)
	leak := &fn{w: w, spec: toolcrib.Spec{Name: "leak", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true}}
	leak.call = func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
		return toolcrib.Output{Text: "the key is " + secret}, nil
	}
	bad := &fn{w: w, spec: toolcrib.Spec{Name: "bad", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true}}
	bad.call = func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
		return toolcrib.Output{}, errors.New("no access with " + secret)
	}
	withTools(t, w, guard.NewMasker(guard.Secret{Name: "api", Value: secret}), leak, bad)
	split := calls("leak", `{"x":"`+secret[:7], "bad", `{}`)
	split = append(split[:1:1], append([]toolcrib.Delta{{ToolCall: &toolcrib.ToolCallDelta{Index: 0, Arguments: secret[7:] + `"}`}}}, split[1:]...)...)
	w.script(split, []toolcrib.Delta{{Text: "it is " + secret[:7]}, {Text: secret[7:]}, finish(toolcrib.FinishStop)})
	s := run(t, w, func(k *agent.Task) { k.Prompt = "my key: " + secret })
	for _, e := range w.events(t, s.Run) {
		b, err := journal.Encode(e.Body)
		if err != nil || strings.Contains(string(b), secret) {
			t.Errorf("event %d %s: %s %v", e.Seq, e.Body.EventKind(), b, err)
		}
	}
	live := ""
	for _, f := range w.frames {
		live += fmt.Sprint(f.Data)
	}
	if strings.Contains(live, secret) || strings.Contains(live, secret[:7]) || strings.Contains(live, secret[7:]) {
		t.Errorf("shown: %s", live)
	}
}

// lingering is a write whose preparation takes until the run is cancelled.
type lingering struct{ *fn }

func (l lingering) Plan(_ context.Context, c toolcrib.Call) (*toolcrib.Plan, error) {
	plan := planOf(l.fn, c)
	plan.Prepare = func(ctx context.Context, _ toolcrib.Call) (json.RawMessage, error) {
		<-ctx.Done()
		return json.RawMessage(`{}`), nil
	}
	return plan, nil
}

// A write that is ready only after the run was cancelled does not start, even if its tool ignores its
// context.
func TestCancel_NoWriteStartsAfterIt(t *testing.T) {
	for range 20 { // which of two that are ready is taken first is chance
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			tool := lingering{&fn{w: w, spec: toolcrib.Spec{Name: "put", EnabledByDefault: true}}}
			tool.call = newEcho
			withTools(t, w, nil, tool)
			w.script(calls("put", `{}`), say("never"))
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(&agent.CancelError{By: "test"}) })
			s, err := w.runner.Run(ctx, task())
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "ran", len(w.ran), 0)
			equal(t, "results", strings.Join(results(s), ","), "put cancelled ")
		})
	}
}

// A nested call that would wait for a person does not stay behind as a parked run.
func TestH18_NestedCallDoesNotStayParked(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	var got toolcrib.Invoked
	outer := &fn{w: w, spec: toolcrib.Spec{Name: "outer", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Nested: true}}
	outer.call = func(ctx context.Context, c toolcrib.Call) (_ toolcrib.Output, err error) {
		got, err = c.Invoke(ctx, "ask_user", json.RawMessage(`{"question":"Which?"}`))
		return toolcrib.Output{Text: "ok"}, err
	}
	withTools(t, w, nil, outer, ask.New())
	var mu sync.Mutex
	ended := map[toolcrib.RunID]string{}
	o := w.runner.Options
	o.Watch = func(run toolcrib.RunID, f journal.Frame) {
		mu.Lock()
		defer mu.Unlock()
		ended[run] = f.Event
	}
	w.runner, _ = agent.New(o)
	w.script(calls("outer", `{}`), say("ok"))
	run(t, w, func(k *agent.Task) { k.Approve = agent.ApproveAll })
	equal(t, "reason", got.Reason, toolcrib.ReasonNeedsConfirmation)
	equal(t, "runs", len(ended), 2)
	for id, last := range ended {
		equal(t, "last event of "+string(id), last, "done")
	}
}

// What a nested call waits for may be answered while the call around it runs: the time that a
// person takes does not count against that call's timeout, the rest does.
func TestH18_NestedCallIsAnswered(t *testing.T) {
	for _, after := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			var got toolcrib.Invoked
			outer := &fn{w: w, spec: toolcrib.Spec{
				Name: "outer", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Timeout: time.Minute,
			}}
			outer.call = func(ctx context.Context, c toolcrib.Call) (_ toolcrib.Output, err error) {
				time.Sleep(40 * time.Second)
				got, err = c.Invoke(ctx, "ask_user", json.RawMessage(`{"question":"Which?"}`))
				if err != nil {
					return toolcrib.Output{}, err
				}
				select {
				case <-time.After(10*time.Second + after):
				case <-ctx.Done():
					return toolcrib.Output{}, ctx.Err()
				}
				return toolcrib.Output{Text: "ok"}, nil
			}
			withTools(t, w, nil, outer, ask.New())
			o := w.runner.Options
			o.Nested = func(ctx context.Context, r *agent.Runner, s *agent.State) (*agent.State, error) {
				time.Sleep(5 * time.Minute)
				_, err := r.Decide(ctx, s.Run, agent.Decision{
					ApprovalID: s.Approval.ApprovalID, Digest: s.Approval.Digest, Who: s.Start.Principal,
					Decision: journal.DecisionAnswer, Result: json.RawMessage(`"this"`),
				})
				if err != nil {
					return s, err
				}
				return r.Resume(ctx, s.Run)
			}
			w.runner, _ = agent.New(o)
			w.script(calls("outer", `{}`), say("ok"))
			s := run(t, w, func(k *agent.Task) { k.Approve = agent.ApproveAsk })
			equal(t, "answer", got.Content, `{"answer":"this"}`)
			want := toolcrib.ResultOK
			if after > 0 {
				want = toolcrib.ResultTimeout
			}
			equal(t, "status", s.Trace[0].Result.Status, want)
		})
	}
}

// A shutdown leaves the run as it is: a call that was cut off keeps no result.
func TestShutdownLeavesTheRunResumable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		w.script(calls("slow", `{}`), say("never"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		s, err := w.runner.Run(ctx, task())
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		equal(t, "status", s.Status, toolcrib.StatusRunning)
		equal(t, "result", s.Trace[0].Result, nil)
		if s.Trace[0].Started == nil {
			t.Error("the start is missing")
		}
	})
}

// Results are written down in the order of the calls; the result of a write does
// not wait for a read before it.
func TestResultsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gate.ConfirmNever)
		w.script(calls("slow", `{}`, "echo", `{}`, "ghost", `{}`, "write", `{}`, "wait", `{}`), say("ok"))
		s := run(t, w)
		var order []string
		for _, e := range w.events(t, s.Run) {
			if b, ok := e.Body.(*journal.ToolResult); ok {
				order = append(order, b.Name)
			}
		}
		equal(t, "order", strings.Join(order, " "), "write slow echo ghost wait")
	})
}

// A short result that grows too long by being made fit is kept whole and has a
// reference, as any that is cut.
func TestResultThatGrowsIsKept(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	grows := &fn{w: w, spec: toolcrib.Spec{Name: "grows", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, MaxResultBytes: 4096}}
	text := strings.Repeat("\u202e", 160) // 480 bytes, and 1,280 when they are shown
	grows.call = func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
		return toolcrib.Output{Text: text}, nil
	}
	reads := &fn{w: w, spec: toolcrib.Spec{Name: "read_result", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true}, call: newEcho}
	withTools(t, w, nil, grows, reads)
	w.script(calls("grows", `{}`), say("ok"))
	s := run(t, w, limits(func(l *toolcrib.Limits) { l.MaxResultBytes = 1024 }))
	r := s.Trace[0].Result
	if r.Ref == "" || !r.Truncated || !strings.Contains(r.Content, r.Ref) {
		t.Fatalf("result: %+v", r)
	}
	whole, _, err := w.journal.Range(t.Context(), s.Run, r.Ref, 0, 1<<20)
	if err != nil || len(whole) != len(text)/3*len("[U+202E]") {
		t.Errorf("%d bytes are kept: %v", len(whole), err)
	}
}
