//go:build unix

package crash

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/internal/natstest"
)

// TestServe_SharedLimit has two servers with one bus keep max_concurrent of a provider together, while runs of both
// wait for it.
func TestServe_SharedLimit(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	w := newTownIn(t, t.TempDir(), 1, townOptions{limits: ", max_concurrent: 1", bus: c.URL()})
	w.hold = func(string, int) <-chan struct{} {
		held := make(chan struct{})
		time.AfterFunc(20*time.Millisecond, func() { close(held) })
		return held
	}
	w.open()
	w.open()
	for _, p := range w.visits(4) {
		t.Error(p)
	}
	w.end()
	if w.most != 1 {
		t.Errorf("%d requests at a time, with max_concurrent: 1", w.most)
	}
}

// TestServe_Bus has the nodes of a NATS cluster die, its connections cut, and the whole cluster come back empty, while
// servers on one data folder die as well. Each run ends as it does without that, each effect happens once, and each
// stream is whole.
func TestServe_Bus(t *testing.T) {
	first := theSeed(t)
	for i := range *towns {
		t.Run(fmt.Sprint("seed=", first+uint64(i)), func(t *testing.T) {
			c := natstest.Start(t, 3, nil)
			w := newTownIn(t, t.TempDir(), first+uint64(i), townOptions{limits: ", max_concurrent: 3", bus: c.URL()})
			w.plan[1+w.r.IntN(150)] = "kill"
			w.plan[1+w.r.IntN(150)] = "stop"
			w.open()
			w.open()
			w.open()
			over := make(chan struct{})
			var trouble sync.WaitGroup
			var what []string
			trouble.Go(func() { what = disturb(c, rand.New(rand.NewPCG(first+uint64(i), 2)), over) })
			problems := w.visits(6)
			close(over)
			trouble.Wait()
			w.end()
			problems = append(problems, w.verify()...)
			if len(problems) > 0 {
				t.Errorf("plan %v, bus %v:\n    %s", w.plan, what, strings.Join(problems, "\n    "))
			}
			t.Logf("%d servers, %d operations, bus %v", w.opened, w.ops, what)
		})
	}
}

// disturb does something to a cluster again and again, until over is closed, and returns what.
func disturb(c *natstest.Cluster, r *rand.Rand, over <-chan struct{}) (did []string) {
	for n := 0; ; n++ {
		select {
		case <-over:
			return did
		case <-time.After(time.Duration(r.IntN(400)) * time.Millisecond):
		}
		what := []string{"kill", "cut", "empty", "stall"}[(n+r.IntN(2))%4]
		did = append(did, what)
		pause := time.After(time.Duration(100+r.IntN(900)) * time.Millisecond)
		node := r.IntN(3)
		switch what {
		case "kill":
			c.Kill(node)
			<-pause
			c.Restart(node)
			c.Await()
		case "cut":
			c.Cut()
			<-pause
			c.Heal()
		case "empty":
			c.Empty()
		case "stall":
			c.Relay(node).Stall()
			<-pause
			c.Heal()
		}
	}
}
