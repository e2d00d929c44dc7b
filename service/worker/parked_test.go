package worker_test

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

var parked = flag.Int("parked", 1000, "how many runs wait in TestPool_ManyParked")

// Runs that wait need no memory on any server, however many they are: neither for their approvals and times, which each
// sweep looks for, nor for what was begun here.
func TestPool_ManyParked(t *testing.T) {
	h := newHouse(t, "approvals: {expire: 24h}\n")
	var stores [2]*cutOff
	var pools [2]*service.Pool
	for i := range pools {
		h.wrap = func(s store.Store) store.Store { stores[i] = &cutOff{Store: s}; return stores[i] }
		h.s, pools[i] = h.open(time.Minute, nil)
	}
	settled := func() uint64 {
		t.Helper()
		for _, s := range stores {
			before := s.swept.Load()
			waittest.Until(t, "two sweeps", func() bool { return s.swept.Load() >= before+2 })
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := settled()
	for i := range *parked {
		run := toolcrib.RunID(fmt.Sprintf("run_%026d", i))
		bodies := []toolcrib.Body{
			&journal.RunStarted{
				Format: journal.Format, Agent: toolcrib.Agent{Name: "asks"}, Principal: ann, Driver: "server",
				Input: []toolcrib.Message{{Role: toolcrib.RoleUser, Parts: []toolcrib.Part{{Text: "Go."}}}},
			},
			&journal.Paused{
				Status:  toolcrib.StatusWaitingForApproval,
				Pending: journal.Pending{Kind: "approval", ApprovalID: fmt.Sprintf("apr_%026d", i)},
			},
		}
		events := make([]toolcrib.Event, len(bodies))
		for k, body := range bodies {
			events[k] = toolcrib.Event{Time: time.Now(), Body: body}
		}
		if err := h.s.Env.Store.Append(t.Context(), run, 0, events...); err != nil {
			t.Fatal(err)
		}
	}
	after := settled()
	for i, p := range pools {
		if drives, runs, failed, followed := p.Held(); drives+runs+failed+followed+p.Workers() > 1 { // one waits for the queue
			t.Errorf("server %d holds %d drives, %d runs, %d failures, %d followed runs, %d workers", i+1, drives, runs, failed,
				followed, p.Workers())
		}
	}
	more := int64(after) - int64(before)
	t.Logf("%d runs: %d KiB more on two servers", *parked, more>>10)
	if more > 2<<20+int64(*parked)*100 {
		t.Errorf("%d parked runs take %d KiB", *parked, more>>10)
	}
}
