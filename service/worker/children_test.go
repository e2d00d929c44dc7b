//go:build unix

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/queue"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store/postgres"
)

// giver is a queue from which its server takes nothing.
type giver struct{ queue.Queue }

func (giver) Take(ctx context.Context) (toolcrib.RunID, error) {
	<-ctx.Done()
	return "", context.Cause(ctx)
}

// tree is two servers on one database. The agent remote waits.
type tree struct {
	*poolHouse
	other *service.Pool
	asked atomic.Int32
	free  chan struct{} // closed when the model of remote may answer
}

func gives(q queue.Queue) queue.Queue { return giver{q} }

// treeOn returns two servers on a PostgreSQL or, if its address is "", on a data folder. one and two wrap their queues.
func treeOn(t *testing.T, database string, one, two func(queue.Queue) queue.Queue) *tree {
	t.Helper()
	w := &tree{free: make(chan struct{})}
	api := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the end of the connection is not seen
		w.asked.Add(1)
		select {
		case <-w.free:
		case <-r.Context().Done():
			return
		}
		_, _ = io.WriteString(rw, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":"+
			"[{\"index\":0,\"delta\":{\"content\":\"waited\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(api.Close)
	t.Setenv("POOL_TEST_API", api.URL)
	w.poolHouse = newHouse(t, "bus: {url: '"+natstest.Start(t, 1, nil).URL()+"'}\ndatabase: '"+database+"'\n")
	if database != "" {
		keys := filepath.Join(w.dir, "data", env.KeysName)
		if _, err := postgres.Migrate(t.Context(), database, postgres.MigrateOptions{Keys: keys}); err != nil {
			t.Fatal(err)
		}
	}
	w.s, w.pool = w.open(0, one)
	_, w.other = w.open(0, two)
	waittest.Until(t, "the servers know each other", func() bool { return !w.pool.Alone() && !w.other.Alone() })
	return w
}

// onEach runs a test on both databases.
func onEach(t *testing.T, test func(t *testing.T, database string)) {
	t.Run("SQLite", func(t *testing.T) { test(t, "") })
	t.Run("PostgreSQL", func(t *testing.T) {
		s, err := postgrestest.Start(t.Context())
		if errors.Is(err, postgrestest.ErrMissing) {
			t.Skip("SKIPPED: ", err, "; nothing was tried with PostgreSQL")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		})
		test(t, s.URL("postgres").String())
	})
}

// child waits until the n-th sub-agent of a run has begun, and returns its run.
func (w *tree) child(run toolcrib.RunID, n int) (child toolcrib.RunID) {
	w.t.Helper()
	waittest.Until(w.t, "a sub-agent begins", func() bool {
		s := w.load(run)
		if len(s.Trace) > n && s.Trace[n].Child != nil {
			child = s.Trace[n].Child.Run
		}
		return child != ""
	})
	return child
}

func (w *tree) load(run toolcrib.RunID) *agent.State {
	w.t.Helper()
	s, err := agent.Load(w.t.Context(), w.s.Env.Store, run)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// starts starts a run, and returns when the other server has its second sub-agent, which waits for its model.
func (w *tree) starts(name string) (run, child toolcrib.RunID) {
	w.t.Helper()
	run = w.start(name).ID()
	child = w.child(run, 1)
	waittest.Until(w.t, "the sub-agent asks its model", func() bool { return w.asked.Load() > 0 })
	if !w.other.HasWorker(child) || w.pool.HasWorker(child) || w.other.HasWorker(w.child(run, 0)) {
		w.t.Fatalf("the run of the second sub-agent is not driven by the other server")
	}
	return run, child
}

// A sub-agent that works beside another one is driven by another server, and the run above continues with its answer.
func TestChildren_HandedOver(t *testing.T) {
	onEach(t, func(t *testing.T, database string) {
		w := treeOn(t, database, gives, nil)
		run, child := w.starts("pair")
		close(w.free)
		w.becomes(run, toolcrib.StatusCompleted)
		s, below := w.load(run), w.load(child)
		if s.Done.Content != "all done" || s.Trace[1].Result.Content != "waited" || below.Epochs != 1 {
			t.Errorf("%q, %q, taken up %d times", s.Done.Content, s.Trace[1].Result.Content, below.Epochs)
		}
		first := w.load(w.child(run, 0))
		if end := s.Trace[1].ChildEnd; end.Usage != below.Spent() || s.Spent().Requests != 4 ||
			s.Trace[0].Child.Share.Requests+s.Trace[1].Child.Share.Requests != 8 || first.Spent().Requests != 1 {
			t.Errorf("spent %+v, of it %+v by the first and %+v by the second", s.Spent(), first.Spent(), end.Usage)
		}
		for _, c := range s.Trace {
			if got := w.load(c.Child.Run).Start.Share; *got != *c.Child.Share {
				t.Errorf("%s has the share %+v, and %+v was set aside", c.ID, got, c.Child.Share)
			}
		}
	})
}

// The journals of a tree are the same wherever its runs are driven, without IDs, times and sizes.
func TestChildren_SameJournals(t *testing.T) {
	told := func(apart bool) (all []string) {
		w := treeOn(t, "", gives, nil)
		close(w.free)
		if !apart {
			if err := w.other.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			waittest.Until(t, "the server is alone", w.pool.Alone)
		}
		run := w.start("pair").ID()
		w.becomes(run, toolcrib.StatusCompleted)
		varies := regexp.MustCompile(`[a-z]+_[0-9A-Z]{26}|[0-9a-f]{64}|CC_CANARY_[0-9A-F]{16}|,?"(duration_ms|first_token_ms|bytes|worked_ns)":\d+|/[^"]*`)
		for _, run := range []toolcrib.RunID{run, w.child(run, 0), w.child(run, 1)} {
			at := len(all)
			for e, err := range w.s.Env.Store.Read(t.Context(), run, 0) {
				if err != nil {
					t.Fatal(err)
				}
				text, err := json.Marshal(e.Body)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, string(e.Body.EventKind())+" "+varies.ReplaceAllString(string(text), ""))
			}
			if at == 0 {
				slices.Sort(all) // its sub-agents end in any order
			}
		}
		return all
	}
	if diff := cmp.Diff(told(false), told(true)); diff != "" {
		t.Errorf("driven by one server (-) and by two (+): %s", diff)
	}
}

// What cancels a run, or ends its wall time, ends a sub-agent that another server drives, with the same events.
func TestChildren_Ended(t *testing.T) {
	onEach(t, func(t *testing.T, database string) {
		w := treeOn(t, database, gives, nil)
		run, child := w.starts("pair")
		if _, err := w.other.Cancel(t.Context(), ann, string(child)); toolcrib.CodeOf(err) != toolcrib.CodeConflict {
			t.Errorf("cancelled alone: %v", err)
		}
		if _, err := w.pool.Cancel(t.Context(), ann, string(run)); err != nil {
			t.Fatal(err)
		}
		s, below := w.load(run), w.load(child)
		if s.Status != toolcrib.StatusCancelled || below.Status != toolcrib.StatusCancelled || below.Stopping.By != ann.User {
			t.Errorf("the run is %s, the sub-agent %s, %+v", s.Status, below.Status, below.Stopping)
		}
		if end := s.Trace[1].ChildEnd; end == nil || end.Usage != below.Spent() {
			t.Errorf("spent %+v, and its parent has %+v", below.Spent(), end)
		}
		w.asked.Store(0)
		run, child = w.starts("hasty")
		w.becomes(run, toolcrib.StatusCompleted)
		if s, below = w.load(run), w.load(child); s.Done.StopReason != toolcrib.StopWallTime ||
			below.Done == nil || below.Done.StopReason != toolcrib.StopWallTime || below.Epochs != 1 {
			t.Errorf("the run ended as %+v, the sub-agent as %+v", s.Done, below.Done)
		}
	})
}

// A sub-agent whose server is gone is continued by the server of the run above, which has waited for it. A server that
// gets the run above waits for a sub-agent that another one drives.
func TestChildren_ServerGone(t *testing.T) {
	onEach(t, func(t *testing.T, database string) {
		w := treeOn(t, database, gives, nil)
		run, child := w.starts("pair")
		if err := w.other.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "its model is asked again", func() bool { return w.asked.Load() > 1 })
		close(w.free)
		w.becomes(run, toolcrib.StatusCompleted)
		if n := w.takenUp(child); n != 2 {
			t.Errorf("the sub-agent was taken up %d times", n)
		}
	})
	onEach(t, func(t *testing.T, database string) {
		w := treeOn(t, database, gives, nil)
		run, child := w.starts("pair")
		w.open(0, nil)
		if err := w.pool.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the run is taken up", func() bool { return w.takenUp(run) == 2 })
		close(w.free)
		w.becomes(run, toolcrib.StatusCompleted)
		if s := w.load(run); w.takenUp(child) != 1 || s.Trace[1].Result.Content != "waited" || w.asked.Load() != 1 {
			t.Errorf("the sub-agent was taken up %d times, and asked %d times", w.takenUp(child), w.asked.Load())
		}
	})
}

// A sub-agent that parks on another server is decided on and continued like any other.
func TestChildren_Parked(t *testing.T) {
	w := treeOn(t, "", gives, nil)
	close(w.free)
	w.write("pair.script", "- tool_calls:\n  - {name: spawn, arguments: {agent: default, task: go}}\n"+
		"  - {name: spawn, arguments: {agent: asks, task: go}}\n- {text: all done}\n")
	run := w.start("pair").ID()
	w.becomes(run, toolcrib.StatusWaitingForApproval)
	child := w.child(run, 1)
	waittest.Until(t, "no worker has the parked run", func() bool { return !w.other.HasWorker(child) })
	w.decide(child)
	w.pool.Wake(child)
	w.becomes(run, toolcrib.StatusCompleted)
	if s := w.load(run); s.Trace[1].Result.Content != "done" {
		t.Errorf("%+v", s.Trace[1].Result)
	}
}

// A sub-agent that no other server takes is driven by the server of the run above.
func TestChildren_NotTaken(t *testing.T) {
	for name, one := range map[string]func(queue.Queue) queue.Queue{"none takes it": gives, "it comes back": nil} {
		t.Run(name, func(t *testing.T) {
			w := treeOn(t, "", one, gives)
			close(w.free)
			run := w.start("pair").ID()
			w.becomes(run, toolcrib.StatusCompleted)
			if n := w.takenUp(w.child(run, 1)); n != 1 {
				t.Errorf("taken up %d times", n)
			}
		})
	}
}

// Sub-agents of runs of other servers take at most half of the places of a server: with all of them, its own runs could
// not continue.
func TestChildren_LeaveRoom(t *testing.T) {
	w := treeOn(t, "", gives, nil)
	var all []*worker.Drive
	for range w.other.Most() / 2 {
		d, err := w.other.Reserve("", "")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	full := w.start("pair").ID()
	child := w.child(full, 1)
	waittest.Until(t, "the sub-agent asks its model", func() bool { return w.asked.Load() > 0 })
	if w.other.HasWorker(child) {
		t.Error("a server that is half full has taken the run of a sub-agent")
	}
	if _, err := w.pool.Cancel(t.Context(), ann, string(full)); err != nil { // its provider answers one at a time
		t.Fatal(err)
	}
	all[0].Release(nil)
	w.asked.Store(0)
	run, _ := w.starts("pair") // of which the other server has the second sub-agent
	close(w.free)
	w.becomes(run, toolcrib.StatusCompleted)
	for _, d := range all[1:] {
		d.Release(nil)
	}
}
