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
	"github.com/toolcrib/toolcrib/journal"
)

// byTurn answers by the number of assistant messages, as the script provider
// does, so that a run that continues gets the same replies.
func (w *world) byTurn(replies ...[]toolcrib.Delta) {
	w.reply = func(_ context.Context, _ int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
		n := 0
		for _, m := range req.Messages {
			if m.Role == toolcrib.RoleAssistant {
				n++
			}
		}
		return replies[min(n, len(replies)-1)], nil
	}
}

// cutAfter makes a world whose journal holds the first n events of a run.
func cutAfter(t *testing.T, events []toolcrib.Event, n int, run toolcrib.RunID, confirm gate.ConfirmMode) *world {
	t.Helper()
	w := newWorld(t, confirm)
	head := make([]toolcrib.Event, n)
	copy(head, events)
	if err := w.journal.Append(context.Background(), run, 0, head...); err != nil {
		t.Fatal(err)
	}
	return w
}

// A run that is cut off at any event continues to the same end: what was finished is
// not run again, a read runs again, a write that had started is put to a person.
func TestResume_CutAtEveryEvent(t *testing.T) {
	scenarios := map[string][][]toolcrib.Delta{
		"answer":         {say("done")},
		"parallel reads": {calls("echo", `{"n":1}`, "wait", `{}`, "fails", `{}`), say("done")},
		"writes":         {calls("write", `{"n":1}`, "echo", `{}`), calls("write", `{"n":2}`), say("done")},
		"refusals":       {calls("off", `{}`, "ghost", `{}`, "strict", `{"n":"x"}`), say("done")},
		"cap":            {calls("echo", `{"n":1}`), calls("echo", `{"n":2}`), calls("echo", `{"n":3}`), say("never")},
	}
	for name, replies := range scenarios {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, gate.ConfirmNever)
				w.byTurn(replies...)
				limited := limits(func(l *toolcrib.Limits) { l.MaxIterations = 3 })
				whole := run(t, w, limited)
				events := w.events(t, whole.Run)
				for n := 1; n < len(events); n++ {
					resumeFrom(t, events, n, whole, replies)
				}
			})
		})
	}
}

func resumeFrom(t *testing.T, events []toolcrib.Event, n int, whole *agent.State, replies [][]toolcrib.Delta) {
	t.Helper()
	w := cutAfter(t, events, n, whole.Run, gate.ConfirmNever)
	w.byTurn(replies...)
	before, err := w.runner.Load(t.Context(), whole.Run)
	if err != nil {
		t.Fatal(err)
	}
	if before.Turn != nil && !before.Turn.Whole() {
		return // inside an append, which is all or nothing
	}
	doubtful := map[string]bool{}
	for _, c := range before.Trace {
		if c.Started != nil && c.Started.Write && c.Result == nil {
			doubtful[c.ID] = true
		}
	}
	s, err := w.runner.Resume(t.Context(), whole.Run)
	if err != nil {
		t.Fatalf("cut after %d (%s): %v", n, events[n-1].Body.EventKind(), err)
	}
	for _, c := range before.Trace {
		if c.Result != nil && w.ran[c.ID] > 0 {
			t.Errorf("cut after %d: call %s had finished and ran again", n, c.ID)
		}
	}
	for id := range doubtful {
		if w.ran[id] > 0 {
			t.Errorf("cut after %d: write %s ran again unasked", n, id)
		}
	}
	if len(doubtful) > 0 {
		if s.Status != toolcrib.StatusWaitingForApproval || s.Pending.Kind != string(journal.ApprovalInDoubt) {
			t.Fatalf("cut after %d: a write is in doubt, but the run is %s", n, s.Status)
		}
		d := agent.Decision{
			ApprovalID: s.Pending.ApprovalID, Digest: s.Pending.Digest, Who: me, Decision: journal.DecisionHappened,
		}
		if _, err := w.runner.Decide(t.Context(), s.Run, d); err == nil || !strings.Contains(err.Error(), "is missing; give what it returned") {
			t.Errorf("happened without a result: %v", err)
		}
		d.Result = json.RawMessage(`"written"`)
		if _, err := w.runner.Decide(t.Context(), s.Run, d); err != nil {
			t.Fatal(err)
		}
		if s, err = w.runner.Resume(t.Context(), whole.Run); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := outcome(s), outcome(whole); got != want {
		t.Errorf("cut after %d (%s):\n got %s\nwant %s", n, events[n-1].Body.EventKind(), got, want)
	}
	if err := checkTranscript(s.Messages); err != nil {
		t.Errorf("cut after %d: %v", n, err)
	}
}

// outcome is the end of a run without what may differ after a cut: usage, times,
// IDs.
func outcome(s *agent.State) string {
	if s.Done == nil {
		return fmt.Sprintf("%s %+v", s.Status, s.Failed)
	}
	all := fmt.Sprintf("%s %s %q %v %d:", s.Done.Status, s.Done.StopReason, s.Done.Content, s.Done.Truncated, s.Done.Iterations)
	for _, c := range s.Trace {
		all += fmt.Sprintf(" %s=%s/%s/%s", c.ID, c.Result.Status, c.Result.Reason, c.Result.Content)
	}
	return all
}

// A run that is taken up again and again without progress fails.
func TestResume_WorkerLost(t *testing.T) {
	s, sent := lostWhileAsking(t, true)
	equal(t, "reason", s.Failed.StopReason, toolcrib.StopWorkerLost)
	equal(t, "requests", sent, 3)
	if !s.Usage.Estimated || s.Usage.Requests != 3 {
		t.Errorf("what was sent and not answered is not settled: %+v", s.Usage)
	}
}

// A driver that is stopped (SIGTERM) releases the run, which does not count as a lack of progress.
func TestResume_StoppedIsNotLost(t *testing.T) {
	s, sent := lostWhileAsking(t, false)
	if s.Ended() || sent != 6 {
		t.Errorf("after %d requests the run is %s: %+v", sent, s.Status, s.Failed)
	}
}

// lostWhileAsking takes a run up six times, whose driver is stopped each time while it
// asks the model; killed = and leaves no word of it.
func lostWhileAsking(t *testing.T, killed bool) (s *agent.State, sent int) {
	t.Helper()
	w := newWorld(t, gate.ConfirmNever)
	for n := range 6 {
		ctx, lose := context.WithCancel(t.Context())
		w.reply = func(context.Context, int, *toolcrib.Request) ([]toolcrib.Delta, error) {
			lose()
			return nil, context.Canceled
		}
		var err error
		if n == 0 {
			s, err = w.runner.Run(ctx, task())
		} else {
			s, err = w.runner.Resume(ctx, s.Run)
		}
		lose()
		sent += len(w.requests)
		if err == nil {
			return s, sent
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		events := w.events(t, s.Run)
		if killed {
			events = events[:len(events)-1]
		}
		w = cutAfter(t, events, len(events), s.Run, gate.ConfirmNever)
	}
	return s, sent
}

func parked(t *testing.T) (*world, *agent.State) {
	t.Helper()
	w := newWorld(t, gate.ConfirmWrites)
	w.byTurn(calls("write", `{"n":1}`, "write", `{"n":2}`), say("done"))
	return w, run(t, w)
}

// Of many who decide at the same time one is heard; each call runs once.
func TestDecide_OnceOnly(t *testing.T) {
	w, s := parked(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	heard := 0
	for range 8 {
		wg.Go(func() {
			_, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{ApprovalID: s.Pending.ApprovalID, Digest: s.Pending.Digest, Who: me, Decision: journal.DecisionApprove})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				heard++
			} else if toolcrib.CodeOf(err) != toolcrib.CodeConflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	equal(t, "heard", heard, 1)
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "results", strings.Join(results(s), ","), "write ok ,write ok ")
	equal(t, "ran", len(w.ran), 2)
}

func TestDecide_SingleCalls(t *testing.T) {
	w, s := parked(t)
	first, second := s.Pending.Calls[0].ID, s.Pending.Calls[1].ID
	decide := func(id string, d journal.CallDecision) error {
		_, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{
			ApprovalID: s.Pending.ApprovalID, Who: me, Calls: map[string]journal.CallDecision{id: d},
		})
		return err
	}
	if err := decide(first, journal.CallDecision{Decision: journal.DecisionDeny}); err != nil {
		t.Fatal(err)
	}
	if again, err := w.runner.Resume(t.Context(), s.Run); err != nil || again.Status != toolcrib.StatusWaitingForApproval {
		t.Fatalf("one call is still open: %s %v", again.Status, err)
	}
	if err := decide(first, journal.CallDecision{Decision: journal.DecisionApprove}); err == nil {
		t.Error("a call was decided twice")
	}
	if err := decide(second, journal.CallDecision{Decision: journal.DecisionApprove, Arguments: json.RawMessage(`{"n": 3}`)}); err != nil {
		t.Fatal(err)
	}
	s, err := w.runner.Resume(t.Context(), s.Run)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "results", strings.Join(results(s), ","), "write refused approval_denied,write ok ")
	if !strings.Contains(s.Trace[1].Result.Content, `a person changed the arguments of this call before it ran; it ran with:] {"n":3}`) {
		t.Errorf("the model is not told of the change: %s", s.Trace[1].Result.Content)
	}
	equal(t, "arguments that ran", w.gave[second], `{"n":3}`)
}

func TestDecide_Refused(t *testing.T) {
	w, s := parked(t)
	id := s.Pending.Calls[0].ID
	ok := agent.Decision{ApprovalID: s.Pending.ApprovalID, Digest: s.Pending.Digest, Who: me, Decision: journal.DecisionApprove}
	for name, change := range map[string]func(*agent.Decision){
		"unknown approval": func(d *agent.Decision) { d.ApprovalID = "apr_other" },
		"stale digest":     func(d *agent.Decision) { d.Digest = "00" },
		"unknown call":     func(d *agent.Decision) { d.Calls = map[string]journal.CallDecision{"x": {Decision: "approve"}} },
		"wrong kind":       func(d *agent.Decision) { d.Decision = journal.DecisionRetry },
		"no decision":      func(d *agent.Decision) { d.Decision = "" },
		"edit not JSON": func(d *agent.Decision) {
			d.Calls = map[string]journal.CallDecision{id: {Decision: "approve", Arguments: json.RawMessage(`{"a":1,"a":2}`)}}
		},
		"edit and deny": func(d *agent.Decision) {
			d.Calls = map[string]journal.CallDecision{id: {Decision: "deny", Arguments: json.RawMessage(`{}`)}}
		},
	} {
		d := ok
		change(&d)
		if _, err := w.runner.Decide(t.Context(), s.Run, d); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := w.runner.Decide(t.Context(), s.Run, ok); err != nil {
		t.Errorf("after refused decisions: %v", err)
	}
}

// A call that is no longer allowed does not run, although a person approved it.
func TestResume_JudgesAgain(t *testing.T) {
	w, s := parked(t)
	if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{ApprovalID: s.Pending.ApprovalID, Who: me, Decision: journal.DecisionApprove}); err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(gate.Options{Availability: noOverrides{}})
	if err != nil {
		t.Fatal(err)
	}
	o := w.runner.Options
	o.Gate = g
	if w.runner, err = agent.New(o); err != nil {
		t.Fatal(err)
	}
	if s, err = w.runner.Resume(t.Context(), s.Run); err != nil {
		t.Fatal(err)
	}
	equal(t, "results", strings.Join(results(s), ","), "write refused not_registered,write refused not_registered")
	equal(t, "ran", len(w.ran), 0)
}

func TestExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := parked(t)
		if expired, err := w.runner.Expire(t.Context(), s.Run, time.Hour); expired || err != nil {
			t.Fatal(expired, err)
		}
		time.Sleep(2 * time.Hour)
		if expired, err := w.runner.Expire(t.Context(), s.Run, time.Hour); !expired || err != nil {
			t.Fatal(expired, err)
		}
		s, err := w.runner.Resume(t.Context(), s.Run)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "results", strings.Join(results(s), ","), "write refused approval_denied,write refused approval_denied")
		if s.Driven > time.Minute {
			t.Errorf("the wait counts as driven time: %s", s.Driven)
		}
	})
}

// A fork has the transcript up to a round, and changes nothing of the old run.
func TestFork(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.byTurn(calls("echo", `{"n":1}`), calls("echo", `{"n":2}`), say("done"))
	old := run(t, w)
	before := len(w.events(t, old.Run))
	w.byTurn(nil, say("another end"))
	s, err := forkOf(t.Context(), w.runner, old.Run, 2, old.Start.Principal, "now otherwise", agent.ApproveNone)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "content", s.Done.Content, "another end")
	equal(t, "messages", len(s.Start.Input), 4)
	equal(t, "from", s.Start.ForkedFrom, old.Run)
	equal(t, "old events", len(w.events(t, old.Run)), before)
	if err := checkTranscript(s.Messages); err != nil {
		t.Error(err)
	}
	for _, round := range []int{0, 4, -1} {
		if _, err := forkOf(t.Context(), w.runner, old.Run, round, old.Start.Principal, "", agent.ApproveNone); err == nil {
			t.Errorf("round %d was taken", round)
		}
	}
}

func TestCancel_Parked(t *testing.T) {
	w, s := parked(t)
	s, err := w.runner.Cancel(t.Context(), s.Run, &agent.CancelError{By: "local:test"})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "status", s.Status, toolcrib.StatusCancelled)
	equal(t, "results", strings.Join(results(s), ","), "write cancelled ,write cancelled ")
	if err := w.replayed(s); err != nil {
		t.Error(err)
	}
	if _, err := w.runner.Cancel(t.Context(), s.Run, &agent.CancelError{By: "local:test"}); toolcrib.CodeOf(err) != toolcrib.CodeConflict {
		t.Errorf("cancelled twice: %v", err)
	}
	if _, err := w.runner.Decide(t.Context(), s.Run, agent.Decision{ApprovalID: "x", Decision: journal.DecisionApprove}); toolcrib.CodeOf(err) != toolcrib.CodeConflict {
		t.Errorf("decided after the end: %v", err)
	}
}

// A model that cannot be opened is a request that failed: the next model is taken.
func TestModelThatCannotBeOpened(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.script(say("from two"))
	o := w.runner.Options
	o.Models = func(_ context.Context, m journal.ModelInfo) (toolcrib.Model, error) {
		if m.ID == "one" {
			return nil, errors.New("no key for one")
		}
		return w, nil
	}
	w.runner, _ = agent.New(o)
	s := run(t, w, func(k *agent.Task) {
		k.Models = append(k.Models, journal.ModelInfo{Ref: "fake/two", Provider: "fake", ID: "two"})
	})
	equal(t, "content", s.Done.Content, "from two")
	equal(t, "requests", s.Usage.Requests, 1)
}
