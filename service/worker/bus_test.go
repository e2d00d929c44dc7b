package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/queue"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
)

// A run that one server drives is followed on another one: each piece of a reply comes at once, and every event once.
func TestBus_FollowedElsewhere(t *testing.T) {
	const pieces = 20
	seen, over := make(chan string, 1000), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		say := func(text string) {
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":"+
				"[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", text)
			w.(http.Flusher).Flush()
		}
		for waiting := true; waiting; { // the reader may not be there yet
			say("-")
			select {
			case <-seen:
				waiting = false
			case <-time.After(20 * time.Millisecond):
			case <-over:
				return
			}
		}
		for i := range pieces {
			text := fmt.Sprint("piece ", i, ";")
			say(text)
			for got := ""; got != text; { // no piece waits for the end of the reply
				select {
				case got = <-seen:
				case <-over:
					return
				}
			}
		}
		_, _ = io.WriteString(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":"+
			"[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	defer api.Close()
	defer close(over)
	t.Setenv("POOL_TEST_API", api.URL)
	h := poolOn(t, "bus: {url: '"+natstest.Start(t, 1, nil).URL()+"'}\n", 0, nil)
	_, other := h.open(0, nil)
	d := h.start("remote")
	var last toolcrib.Seq
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := other.Follow(ctx, ann, worker.Follow{Run: string(d.ID())}, func(f journal.Frame) error {
		if f.Event == journal.FrameToken {
			seen <- f.Data.(journal.TextView).Text
		}
		if f.Seq > 0 && f.Seq <= last {
			t.Errorf("event %d after %d", f.Seq, last)
		}
		last = max(last, f.Seq)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if rec := h.record(d.ID()); rec.Status != toolcrib.StatusCompleted || rec.LastSeq != last {
		t.Errorf("%s, event %d of %d", rec.Status, last, rec.LastSeq)
	}
}

// idle is a queue that gives out no run.
type idle struct{ queue.Queue }

func (idle) Take(ctx context.Context) (toolcrib.RunID, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// The pieces of a reply reach a reader on a third server when another server has taken the run over.
func TestBus_FollowedAfterTakeover(t *testing.T) {
	seen, asked := make(chan string, 1000), make(chan struct{}, 10)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		for {
			_, _ = io.WriteString(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":"+
				"[{\"index\":0,\"delta\":{\"content\":\"piece;\"}}]}\n\n")
			w.(http.Flusher).Flush()
			select {
			case <-time.After(20 * time.Millisecond):
			case <-r.Context().Done():
				return
			}
		}
	}))
	defer api.Close()
	t.Setenv("POOL_TEST_API", api.URL)
	h := newHouse(t, "bus: {url: '"+natstest.Start(t, 1, nil).URL()+"'}\n")
	_, reads := h.open(0, func(q queue.Queue) queue.Queue { return idle{q} })
	first, pool := h.open(0, nil)
	h.s, h.pool = first, pool
	d := h.start("remote")
	ctx, cancel := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() {
		followed <- reads.Follow(ctx, ann, worker.Follow{Run: string(d.ID())}, func(f journal.Frame) error {
			if f.Event == journal.FrameToken {
				select {
				case seen <- f.Data.(journal.TextView).Text:
				default:
				}
			}
			return nil
		})
	}()
	<-asked
	<-seen
	h.s, h.pool = h.open(0, nil)
	if err := errors.Join(pool.Close(t.Context()), first.Drivers.Close()); err != nil {
		t.Fatal(err)
	}
	<-asked // by the other server
	for len(seen) > 0 {
		<-seen
	}
	select {
	case <-seen:
	case <-time.After(patience):
		t.Error("no piece of a reply after the run was taken over")
	}
	cancel()
	<-followed
	if _, err := h.pool.Cancel(t.Context(), ann, string(d.ID())); err != nil {
		t.Error(err)
	}
}

// A run that one server drives is cancelled on another one.
func TestBus_CancelledElsewhere(t *testing.T) {
	h := poolOn(t, "bus: {url: '"+natstest.Start(t, 1, nil).URL()+"'}\n", 0, nil)
	_, other := h.open(0, nil)
	h.write("slow.script", "- {text: never, delay: 10m}\n")
	d := h.start("slow")
	run, err := other.Cancel(t.Context(), ann, string(d.ID()))
	if err != nil || run.Status != toolcrib.StatusCancelled {
		t.Errorf("%s, %v", run.Status, err)
	}
}

// One server sweeps for all that take from one queue: the one with the lease. When that ends, another one does. Without the
// bus each one sweeps.
func TestBus_OneSweep(t *testing.T) {
	cluster := natstest.Start(t, 1, nil)
	h := newHouse(t, "bus: {url: '"+cluster.URL()+"'}\n")
	other := processOn(t, filepath.Join(h.dir, "data"), time.Hour) // stands for a server that sweeps
	if _, err := other.Env.Store.TakeLease(t.Context(), "sweep", time.Hour, false); err != nil {
		t.Fatal(err)
	}
	var servers []*cutOff
	h.wrap = func(s store.Store) store.Store {
		servers = append(servers, &cutOff{Store: s})
		return servers[len(servers)-1]
	}
	for range 3 {
		h.open(0, nil)
	}
	each := func(what string, more int32, n func(*cutOff) int32) {
		var was []int32
		for _, s := range servers {
			was = append(was, n(s))
		}
		waittest.Until(t, what, func() bool {
			for i, s := range servers {
				if n(s) < was[i]+more {
					return false
				}
			}
			return true
		})
	}
	sweeps := func(s *cutOff) int32 { return s.swept.Load() }
	looks := func(s *cutOff) int32 { return s.looked.Load() }
	each("each server looks who sweeps", 1, looks) // one that was not connected yet may have swept
	before := sweeps(servers[0]) + sweeps(servers[1]) + sweeps(servers[2])
	each("each server looks who sweeps", 3, looks)
	if n := sweeps(servers[0]) + sweeps(servers[1]) + sweeps(servers[2]) - before; n != 0 {
		t.Errorf("%d sweeps, although another server sweeps", n)
	}
	if err := other.Env.Store.EndLeases(t.Context(), other.Env.Owner().ID); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "one sweeps", func() bool { return sweeps(servers[0])+sweeps(servers[1])+sweeps(servers[2]) > before })
	leases, err := other.Env.Store.Leases(t.Context(), store.LeaseFilter{Runs: []toolcrib.RunID{"sweep"}})
	if err != nil || len(leases) != 1 || leases[0].Owner.ID == other.Env.Owner().ID {
		t.Errorf("the lease is %+v, error %v", leases, err)
	}
	cluster.Cut()
	each("each server sweeps", 2, sweeps)
	cluster.Heal()
	each("each server looks who sweeps", 1, looks)
}
