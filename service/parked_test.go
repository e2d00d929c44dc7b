package service_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// parked starts a run that waits for an approval.
func parked(t *testing.T, s *service.Service) toolcrib.RunID {
	t.Helper()
	run, err := s.Start(t.Context(), root, service.StartRequest{Prompt: "Write.", Workspace: t.TempDir()}, service.Front{})
	if err != nil || run.Status != toolcrib.StatusWaitingForApproval {
		t.Fatalf("the run is %s, error %v", run.Status, err)
	}
	return run.ID
}

// approveLast approves the newest pending approval.
func approveLast(t *testing.T, s *service.Service) {
	t.Helper()
	v, err := s.Approval(t.Context(), root, "last")
	if err != nil {
		t.Fatal(err)
	}
	yes := service.Decision{CallDecision: journal.CallDecision{Decision: journal.DecisionApprove}, Digest: v.Digest}
	if _, err := s.Decide(t.Context(), root, v, yes); err != nil {
		t.Fatal(err)
	}
}

func recordOf(t *testing.T, s *service.Service, run toolcrib.RunID) store.RunRecord {
	t.Helper()
	rec, err := s.Env.Store.Run(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// The events that another process appends to a parked run, after this process has read it and before it appends
// itself, are in the stream of the resumed run, once and in order.
func TestResume_WrittenMeanwhile(t *testing.T) {
	s := open(t)
	run := parked(t, s)
	says := func(text string) {
		e := toolcrib.Event{
			Seq: recordOf(t, s, run).LastSeq + 1, Time: time.Now(), Body: &journal.Said{Text: text, By: "ann"},
		}
		if err := s.Env.Store.Append(t.Context(), run, e.Seq-1, e); err != nil {
			t.Error(err)
		}
	}
	says("earlier")
	approveLast(t, s)
	var seqs []toolcrib.Seq
	var kinds []string
	_, err := s.Resume(t.Context(), root, service.ResumeRequest{Run: string(run)}, service.Front{
		SincePause: true, Watch: func(f journal.Frame) {
			if f.Seq == 0 {
				return
			}
			seqs, kinds = append(seqs, f.Seq), append(kinds, f.Event)
			if f.Event == string(journal.KindConfirmationResolved) {
				says("meanwhile") // the run was read, and is not resumed yet
			}
		},
	})
	want := []string{"user_message", "confirmation_resolved", "user_message", "tool_started"}
	if err != nil || len(kinds) < 5 || !slices.Equal(kinds[:4], want) || kinds[len(kinds)-1] != "done" ||
		!slices.IsSorted(seqs) || len(slices.Compact(slices.Clone(seqs))) != len(seqs) {
		t.Errorf("%q %v, %v; want first %q", kinds, seqs, err, want)
	}
}

// staleStore returns older records of a run first.
type staleStore struct {
	store.Store
	old []store.RunRecord
}

func (s *staleStore) Run(ctx context.Context, run toolcrib.RunID) (store.RunRecord, error) {
	if len(s.old) > 0 {
		rec := s.old[0]
		s.old = s.old[1:]
		return rec, nil
	}
	return s.Store.Run(ctx, run)
}

// A run that continues while it is read is not shown as one that waits for nothing.
func TestRun_OfOneMoment(t *testing.T) {
	t.Parallel()
	s := open(t)
	run := parked(t, s)
	waiting := recordOf(t, s, run)
	approveLast(t, s)
	if _, err := s.Resume(t.Context(), root, service.ResumeRequest{Run: string(run)}, service.Front{}); err != nil {
		t.Fatal(err)
	}
	s.Env.Store = &staleStore{s.Env.Store, []store.RunRecord{waiting}}
	v, err := s.Run(t.Context(), root, string(run))
	if err != nil || v.Status != toolcrib.StatusCompleted {
		t.Errorf("the run is %s (%v) with pending %+v", v.Status, err, v.Pending)
	}
}

// unanswered is a person who answers no question.
type unanswered struct{}

func (unanswered) Answer(context.Context, service.Question) (a service.Answer, ok bool, err error) {
	return a, false, nil
}

// What a tool runs beyond its call has ended when a run that has parked is left: until then this process drives the run,
// and no other one continues it. It lasts while a person is asked here.
func TestRun_LeftAfterItsWork(t *testing.T) {
	var s *service.Service
	ended := make(chan string, 1)
	began := toolcribtest.NewTool(toolcribtest.ToolOptions{
		Spec: toolcrib.Spec{Name: "begin", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go"},
		Do: func(_ context.Context, call toolcrib.Call) (out toolcrib.Output, err error) {
			call.Behind(func(ctx context.Context) {
				<-ctx.Done()
				ended <- s.Drivers.Processes(context.WithoutCancel(ctx), call.Run)[call.Run]
			})
			return out, nil
		},
	})
	s = openWith(t, "- tool_calls: [{name: begin, arguments: {}}]\n"+writes, began)
	run, err := s.Start(t.Context(), root, service.StartRequest{Prompt: "Write.", Workspace: t.TempDir()},
		service.Front{Person: unanswered{}})
	if err != nil || run.Status != toolcrib.StatusWaitingForApproval {
		t.Fatalf("the run is %s, error %v", run.Status, err)
	}
	select {
	case by := <-ended:
		if by == "" {
			t.Error("no process drove the run when the work ended")
		}
	default:
		t.Error("the run was left before the work had ended")
	}
	if by := s.Drivers.Processes(t.Context(), run.ID)[run.ID]; by != "" {
		t.Errorf("the run is driven by %s", by)
	}
}
