//go:build unix

package crash

import (
	"fmt"
	"testing"

	"github.com/toolcrib/toolcrib/internal/natstest"
)

// TestServe_Children is TestServe_Sample with servers that have a bus, through which they hand the child runs of their
// runs to each other. Both the server of a run and that of a run below it die. Before, none does.
func TestServe_Children(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	w := newTownIn(t, t.TempDir(), 1, townOptions{bus: c.URL()})
	w.open()
	w.open()
	for _, p := range append(w.visits(4, 0), w.verify()...) {
		t.Error(p)
	}
	if w.end(); w.apart == 0 {
		t.Error("no child run was handed over")
	}
	t.Logf("%d child runs were handed over", w.apart)
	first := theSeed(t)
	for i := range *towns {
		t.Run(fmt.Sprint("seed=", first+uint64(i)), func(t *testing.T) {
			w := newTownIn(t, t.TempDir(), first+uint64(i), townOptions{bus: c.URL()})
			w.sample(3)
			t.Logf("%d child runs were handed over", w.apart)
		})
	}
}
