//go:build unix

package crash

import (
	"fmt"
	"testing"

	"github.com/toolcrib/toolcrib/internal/natstest"
)

// TestServe_Children is TestServe_Sample with servers that have a bus, through which they hand the child runs of their
// runs to each other, unless the one that has the parent is quicker. Both the server of a run and that of a run below it
// die.
func TestServe_Children(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, 1, nil)
	first := theSeed(t)
	for i := range *towns {
		t.Run(fmt.Sprint("seed=", first+uint64(i)), func(t *testing.T) {
			w := newTownIn(t, t.TempDir(), first+uint64(i), townOptions{bus: c.URL()})
			w.sample(3)
			t.Logf("%d child runs were handed over", w.apart)
		})
	}
}
