package worker_test

import (
	"cmp"
	"crypto/rand"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// The run of a server on another machine that has died continues when its owner has stopped the work even if it lives: a
// third of the lease after its time has passed, and not before. It is found while the time that is left passes.
func TestPool_OfALostServer(t *testing.T) {
	lasts := 3 * time.Second // as a server takes leases
	if testing.Short() {
		lasts = 900 * time.Millisecond
	}
	h := newHouse(t, "")
	h.s, h.pool = h.open(lasts*4/3, nil)
	h.write("slow.script", "- {text: never, delay: 10m}\n")
	d := h.start("slow")
	owner := *h.s.Env.Owner()
	if err := h.pool.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.s.Drivers.Close(); err != nil {
		t.Fatal(err)
	}
	path := h.s.Env.Store.Path()
	was := h.takenUp(d.ID())
	owner.ID, owner.Machine = rand.Text(), "elsewhere"
	theirs, err := sqlite.Open(t.Context(), path, sqlite.Options{Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	renewed := time.Now()
	_, err = theirs.TakeLease(t.Context(), d.ID(), lasts, false)
	if err = cmp.Or(err, theirs.Close()); err != nil {
		t.Fatal(err)
	}
	h.open(lasts*4/3, nil)
	waittest.Until(t, "another server continues the run", func() bool { return h.takenUp(d.ID()) > was })
	took := time.Since(renewed)
	if took < lasts*4/3 {
		t.Errorf("it continues %v after the last renewal, while its owner may still work on it", took)
	}
	t.Logf("continued %v after the last renewal of a lease of %v", took, lasts)
}
