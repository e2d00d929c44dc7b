package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

// Contract §2: progress begins the timeout of a call again, up to a bound; the time of a person counts for neither.
func TestClock_Progress(t *testing.T) {
	for name, c := range map[string]struct{ every, timeout, held, ends time.Duration }{
		"no progress":   {time.Hour, 10 * time.Second, 0, 10 * time.Second},
		"progress":      {6 * time.Second, 10 * time.Second, 0, 100 * time.Second},
		"too slow":      {11 * time.Second, 10 * time.Second, 0, 10 * time.Second},
		"a long one":    {6 * time.Minute, 20 * time.Minute, 0, time.Hour},
		"a longer one":  {6 * time.Minute, 2 * time.Hour, 0, 2 * time.Hour},
		"with a person": {6 * time.Second, 10 * time.Second, time.Minute, 160 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var bound clock
				began := time.Now()
				bound.start(t.Context(), c.timeout, func() { bound.end(errToolTimeout) })
				defer bound.cancel()
				if c.held > 0 {
					bound.hold()
					time.Sleep(c.held)
					bound.resume()
				}
				tick := time.NewTicker(c.every)
				defer tick.Stop()
				for bound.ctx.Err() == nil {
					select {
					case <-bound.ctx.Done():
					case <-tick.C:
						bound.alive()
					}
				}
				if took := time.Since(began); took != c.ends {
					t.Errorf("it ended after %s, want %s", took, c.ends)
				}
			})
		})
	}
}
