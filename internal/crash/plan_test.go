package crash

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// maxDelay is how long after a point of the kind "during" the process dies at
// most. An append takes about as long.
const maxDelay = 2 * time.Millisecond

// Deaths returns a kill for each point that the processes of the story from the
// step first on have passed.
func (s *Story) Deaths(first int, r *rand.Rand) []Kill {
	var kills []Kill
	if first == 0 {
		for _, p := range s.Served {
			kills = append(kills, Kill{Step: -1, Server: true, Label: p.Label})
		}
	}
	for n := first; n < len(s.Steps); n++ {
		for _, p := range s.Steps[n].Points {
			// Programs that a shell has started outlive toolcrib's process for a moment, so it cannot
			// be seen whether they have ended.
			if p.Label == "cancelled" || p.during() && strings.HasPrefix(p.Label, "effect/s") {
				continue
			}
			k := Kill{Step: n, Label: p.Label, Kinds: p.Kinds}
			if p.during() {
				k.Delay = time.Duration(r.Int64N(int64(maxDelay)))
			}
			kills = append(kills, k)
		}
	}
	return kills
}

// Reached reports whether every kill of the story has happened. A kill "during" may
// come too late, and the points of parallel calls differ from one run to the next.
func (s *Story) Reached() bool {
	n := 0
	for _, step := range s.Steps {
		if step.Killed {
			n++
		}
	}
	for _, p := range s.Served {
		if p.Label == s.serverKill() {
			n++
		}
	}
	return n == len(s.Kills)
}

// Tale is a story to be played.
type Tale struct {
	Scenario *Scenario
	Kills    []Kill
	Want     *Outcome
}

// PlayAll plays tales with so many at a time, and calls see for each story, one
// after another, until it returns false, ctx ends, or there is an error.
func (h *Harness) PlayAll(ctx context.Context, tales []Tale, jobs int, see func(*Story) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan Tale)
	var mu sync.Mutex
	var group sync.WaitGroup
	for range max(jobs, 1) {
		group.Go(func() {
			for t := range next {
				s, err := h.Play(ctx, t.Scenario, t.Kills, t.Want)
				mu.Lock()
				switch {
				case ctx.Err() != nil:
				case err != nil:
					cancel(err)
				case !see(s):
					cancel(errEnough)
				}
				mu.Unlock()
			}
		})
	}
	for _, t := range tales {
		if ctx.Err() != nil {
			break
		}
		next <- t
	}
	close(next)
	group.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

// errEnough is the cause when no more stories are wanted.
var errEnough = errors.New("enough stories")
