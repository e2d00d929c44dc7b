package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
)

var stranger = toolcrib.Output{Text: "ignore", Untrusted: true, Source: "evil.example"} //nolint:gochecknoglobals // a constant, if Go had them

// What a sibling of the same turn has read says nothing against a run that had begun
// before: it continues as it was decided, whichever process takes it up.
func TestChild_TaintOfASiblingComesTooLate(t *testing.T) {
	for name, turn := range map[string][]string{
		"a tool":        {"spawn", spawn("helper"), "draw", `{}`},
		"another agent": {"spawn", spawn("helper"), "spawn", spawn("third")},
	} {
		for _, word := range []string{gate.TaintAsk, gate.TaintDeny} {
			f := newFamily(t, gate.ConfirmWrites, replies{
				"boss":   {calls(turn...), say("all done")},
				"helper": {calls("write", `{}`), say("written")},
				"third":  {calls("draw", `{}`), say("drawn")},
			})
			f.tools["draw"] = stranger
			s := f.start(t, func(k *agent.Task) { k.Agent.TaintWrites = word })
			f.decide(t, f.children(t, s.Run)[0].Run, journal.DecisionApprove)
			f.drivenBy(t, nil, f.journal)
			s = f.resume(t, s.Run)
			if s.Done == nil || s.Trace[0].Result.Content != "written" || f.wrote() != 1 {
				t.Errorf("%s, %s: %s, %+v, wrote %d", name, word, s.Status, s.Trace[0].Verdict, f.wrote())
			}
		}
	}
}

// The arguments of a call whose own run has begun cannot be changed: that run has its task already.
func TestChild_NoOtherTaskOnceBegun(t *testing.T) {
	f := newFamily(t, gate.ConfirmWrites, replies{
		"boss":   {calls("spawn", spawn("helper")), say("all done")},
		"helper": {calls("write", `{}`), say("written")},
	})
	s := f.start(t)
	f.decide(t, s.Pending.Run, journal.DecisionApprove)
	// Today's policy asks about each call, so spawn is asked about although its run has
	// begun.
	g, err := gate.New(gate.Options{Tools: f.all, Availability: noOverrides{}, Confirm: gate.ConfirmAlways})
	if err != nil {
		t.Fatal(err)
	}
	f.drivenBy(t, g, f.journal)
	s = f.resume(t, s.Run)
	if s.Approval == nil || s.Approval.Calls[0].Name != "spawn" {
		t.Fatalf("the run is %s", s.Status)
	}
	_, err = f.runner.Decide(t.Context(), s.Run, agent.Decision{ApprovalID: s.Approval.ApprovalID, Who: me, Calls: map[string]journal.CallDecision{
		"call_1": {Decision: journal.DecisionApprove, Arguments: []byte(`{"agent":"third","task":"x"}`)},
	}})
	if toolcrib.CodeOf(err) != toolcrib.CodeBadRequest || !strings.Contains(err.Error(), string(f.children(t, s.Run)[0].Run)) {
		t.Errorf("changed arguments: %v", err)
	}
	f.decide(t, s.Run, journal.DecisionDeny)
	if s = f.resume(t, s.Run); s.Done == nil || f.children(t, s.Run)[0].Status != toolcrib.StatusCancelled || f.wrote() != 0 {
		t.Errorf("after a deny: %+v, the child %s", s.Done, f.children(t, s.Run)[0].Status)
	}
}

// timed is a tool that takes some time.
func timed(f *family, name string, effect toolcrib.Effect, takes time.Duration) toolcrib.Tool {
	return &fn{
		spec: toolcrib.Spec{Name: name, Effect: effect, EnabledByDefault: true, Source: "go"}, w: f.world,
		call: func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			time.Sleep(takes)
			return toolcrib.Output{Text: "done"}, nil
		},
	}
}

// A child run that cannot be driven now does not interrupt its siblings.
func TestChild_SiblingsLandFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driven := true
		f := newFamily(t, gate.ConfirmNever, replies{
			"boss":   {calls("spawn", spawn("helper"), "slowly", `{}`), say("all done")},
			"helper": {say("helped")},
		}, func(f *family, o *gate.Options) {
			o.Tools = append(o.Tools, timed(f, "slowly", toolcrib.EffectNonIdempotentWrite, 300*time.Millisecond))
			f.options = func(o *agent.Options) {
				o.Claim = func(context.Context, toolcrib.RunID) (func(), error) {
					if driven {
						return nil, errors.New("another process is running it")
					}
					return func() {}, nil
				}
			}
		})
		s, err := f.runner.Run(t.Context(), f.begin())
		if err == nil || s.Trace[1].Result == nil || s.Trace[1].Result.Content != "done" {
			t.Fatalf("the sibling: %+v (%v)", s.Trace[1].Result, err)
		}
		driven = false
		if s = f.resume(t, s.Run); s.Done == nil || s.Done.Content != "all done" || f.wrote() != 1 {
			t.Errorf("ended as %s, wrote %d", s.Status, f.wrote())
		}
	})
}

// childless takes no event of a child run.
type childless struct{ *inmemory.Journal }

func (j childless) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	if b, ok := events[0].Body.(*journal.RunStarted); ok && b.Parent != "" {
		return errCut
	}
	return j.Journal.Append(ctx, run, after, events...)
}

// A run whose child never gets under way is not taken up forever (worker_lost).
func TestChild_NeverUnderWay(t *testing.T) {
	f := newFamily(t, gate.ConfirmNever, replies{"boss": {calls("spawn", spawn("helper")), say("all done")}, "helper": {say("x")}})
	f.drivenBy(t, nil, childless{f.journal})
	s, err := f.runner.Run(t.Context(), f.begin())
	if !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	for n := 0; !s.Ended(); n++ {
		if n == 10 {
			t.Fatalf("taken up %d times, and %s", n, s.Status)
		}
		s, _ = f.runner.Resume(t.Context(), s.Run) // the error is that of the child
	}
	if s.Failed == nil || s.Failed.StopReason != toolcrib.StopWorkerLost {
		t.Errorf("ended as %+v", s.Failed)
	}
}

// Whoever sits there is shown what is still open of an approval, and nothing that has
// expired.
func TestChild_AskedAboutWhatIsOpen(t *testing.T) {
	for name, expires := range map[string]time.Duration{"open": time.Hour, "expired": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var shown []int
				f := newFamily(t, gate.ConfirmWrites, replies{
					"boss":   {calls("spawn", spawn("helper"), "slowly", `{}`), say("all done")},
					"helper": {calls("write", `{"a":1}`, "write", `{"a":2}`), say("over")},
				}, func(f *family, o *gate.Options) {
					o.Tools = append(o.Tools, timed(f, "slowly", toolcrib.EffectReadOnly, 300*time.Millisecond))
					f.options = func(o *agent.Options) {
						o.Expires, o.Approver = expires, shownTo(func(ask *journal.ConfirmationRequired) string {
							shown = append(shown, len(ask.Calls))
							return journal.DecisionDeny
						})
					}
				})
				time.AfterFunc(50*time.Millisecond, func() {
					for _, run := range f.journal.Runs() {
						if s, err := f.runner.Load(context.Background(), run); err == nil && s.Start.Parent != "" {
							_, err := f.runner.Decide(context.Background(), run, agent.Decision{ApprovalID: s.Approval.ApprovalID, Who: me, Calls: map[string]journal.CallDecision{"call_1": {Decision: journal.DecisionApprove}}})
							if err != nil {
								t.Error(err)
							}
						}
					}
				})
				s := f.start(t, func(k *agent.Task) { k.Approve = agent.ApproveAsk })
				want := map[string]int{"open": 1, "expired": 0}[name]
				if s.Done == nil || len(shown) != want || want == 1 && shown[0] != 1 || f.wrote() != 1 {
					t.Errorf("%s: shown %v, wrote %d", s.Status, shown, f.wrote())
				}
			})
		})
	}
}

type shownTo func(*journal.ConfirmationRequired) string

func (a shownTo) Decide(_ context.Context, _ toolcrib.RunID, ask *journal.ConfirmationRequired) (journal.ConfirmationResolved, bool, error) {
	return journal.ConfirmationResolved{Decision: a(ask)}, true, nil
}

// All that waits below is found, in the order of the calls.
func TestChild_AllWaiting(t *testing.T) {
	f := newFamily(t, gate.ConfirmWrites, replies{
		"boss":   {calls("spawn", spawn("helper"), "spawn", spawn("third")), say("all done")},
		"helper": {calls("spawn", spawn("third")), say("helped")}, "third": {calls("write", `{}`), say("third")},
	})
	s := f.start(t)
	below := f.children(t, f.children(t, s.Run)[0].Run)[0].Run
	third := f.children(t, s.Run)[1].Run
	all, err := f.runner.AllWaiting(t.Context(), s.Run)
	if err != nil || len(all) != 2 || all[0].Run != below || all[1].Run != third {
		t.Fatalf("%d wait (%v)", len(all), err)
	}
	f.decide(t, below, journal.DecisionApprove)
	if all, err = f.runner.AllWaiting(t.Context(), s.Run); err != nil || len(all) != 1 || all[0].Run != third {
		t.Errorf("then %d wait (%v)", len(all), err)
	}
}
