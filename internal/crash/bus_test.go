//go:build unix

package crash

import (
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/internal/natstest"
)

// TestServe_SharedLimit has two servers with one bus keep max_concurrent of a provider together, while runs of both
// wait for it.
func TestServe_SharedLimit(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, 1, nil)
	w := newTownIn(t, t.TempDir(), 1, townOptions{limits: ", max_concurrent: 1", bus: c.URL()})
	w.hold = func(string, int) <-chan struct{} {
		held := make(chan struct{})
		time.AfterFunc(20*time.Millisecond, func() { close(held) })
		return held
	}
	w.open()
	w.open()
	for _, p := range w.visits(4, 0) {
		t.Error(p)
	}
	w.end()
	if w.most != 1 {
		t.Errorf("%d requests at a time, with max_concurrent: 1", w.most)
	}
}
