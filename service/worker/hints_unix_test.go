//go:build unix

package worker_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
)

// blind is a store in which a server finds no work by looking for it, and no new events of runs.
type blind struct {
	*postgres.Store
	known bool // whether the runs have the last events that they had before
}

func (b *blind) Undriven(context.Context, string, string, toolcrib.RunID, int) ([]toolcrib.RunID, bool, error) {
	return nil, false, nil
}

func (b *blind) Run(ctx context.Context, run toolcrib.RunID) (store.RunRecord, error) {
	rec, err := b.Store.Run(ctx, run)
	if b.known {
		rec.LastSeq = 1
	}
	return rec, err
}

// hinted returns a house with PostgreSQL and no bus, and opens a blind server in it.
func hinted(t *testing.T) *poolHouse {
	h := newHouse(t, "")
	h.onPostgreSQL()
	h.blind(false)
	return h
}

// blind opens another server, which listens, and finds nothing else.
func (h *poolHouse) blind(known bool) *service.Pool {
	h.t.Helper()
	var db *postgres.Store
	h.wrap = func(s store.Store) store.Store {
		db = s.(*postgres.Store)
		return &blind{db, known}
	}
	h.s, h.pool = h.open(0, nil)
	h.wrap = nil
	waittest.Until(h.t, "the server listens", db.Bus(slog.New(slog.DiscardHandler)).Listening)
	return h.pool
}

// With PostgreSQL and without a bus, servers continue at once what a process of the command line has decided or queued.
func TestHints_FromACommand(t *testing.T) {
	h := hinted(t)
	other := h.pool
	h.blind(false)
	cli := h.command()
	begin := time.Now()
	run, err := cli.Detach(t.Context(), ann, h.request("asks"))
	if err != nil {
		t.Fatal(err)
	}
	h.becomes(run.ID, toolcrib.StatusWaitingForApproval)
	t.Logf("a queued run waits for its approval after %v", time.Since(begin))
	id := h.record(run.ID).Pending.ApprovalID
	a, err := cli.Approval(t.Context(), ann, id)
	if err != nil {
		t.Fatal(err)
	}
	begin = time.Now()
	if _, err := cli.Decide(t.Context(), ann, a, service.Decision{
		CallDecision: journal.CallDecision{Decision: journal.DecisionApprove}, Digest: a.Digest,
	}); err != nil {
		t.Fatal(err)
	}
	h.becomes(run.ID, toolcrib.StatusCompleted)
	t.Logf("a decision was carried out after %v", time.Since(begin))
	if n := h.takenUp(run.ID); n != 2 {
		t.Errorf("%d servers have taken the run up, want one for each wait", n)
	}
	_ = other
}

// The events of a run that one server drives come to a reader on another one, which has nothing but the hints.
func TestHints_FollowedElsewhere(t *testing.T) {
	h := hinted(t)
	first := h.pool
	reads := h.blind(true)
	h.write("slow.script", "- tool_calls: [{name: current_time, arguments: {}}]\n- {text: slowly, delay: 3s}\n")
	d, err := first.Start(t.Context(), ann, h.request("slow"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last toolcrib.Seq
	var latest time.Duration
	err = reads.Follow(ctx, ann, worker.Follow{Run: string(d.ID())}, func(f journal.Frame) error {
		if f.Seq > 0 && f.Seq <= last {
			t.Errorf("event %d after %d", f.Seq, last)
		}
		if f.Event == "lagged" {
			t.Error("a hint counts as a frame that was left out")
		}
		last = max(last, f.Seq)
		for e, err := range h.s.Env.Store.Read(ctx, d.ID(), f.Seq-1) {
			if err == nil {
				latest = time.Since(e.Time)
			}
			break
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the last event came after %v", latest)
	if rec := h.record(d.ID()); rec.Status != toolcrib.StatusCompleted {
		t.Errorf("the run is %s", rec.Status)
	}
}
