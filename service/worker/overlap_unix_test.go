//go:build unix

package worker_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/relaytest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/service"
)

// lateness measures how late timers of this process are, until most is called.
func lateness() (most func() time.Duration) {
	var late time.Duration
	var running sync.WaitGroup
	over := make(chan struct{})
	running.Go(func() {
		const every = 10 * time.Millisecond
		for at := time.Now(); ; at = time.Now() {
			select {
			case <-over:
				return
			case <-time.After(every):
				late = max(late, time.Since(at)-every)
			}
		}
	})
	return func() time.Duration {
		close(over)
		running.Wait()
		return late
	}
}

// If the connection to the database stalls, in either direction, a server stops the work on its run before another one
// can have it, by the clock of the database.
func TestDrivers_NoOverlap(t *testing.T) {
	h := newHouse(t, "")
	database := h.onPostgreSQL()
	open := func(address string) *service.Service {
		h.write("toolcrib.yaml", poolConfig+"database: '"+address+"'\n")
		return h.command()
	}
	relay := relaytest.New(t, filepath.Join(database.Dir(), ".s.PGSQL.5432"))
	at := database.URL("postgres")
	theirs := open(at.String())
	at.Host, at.RawQuery = relay.Address(), "sslmode=disable"
	ours := open(at.String())
	clock := func() time.Time {
		now, err := theirs.Env.Store.Clock(t.Context())
		if err != nil {
			t.Error(err)
		}
		return now
	}
	// Between the two, 200 ms pass, of which a busy machine may take some.
	const least, most = 100 * time.Millisecond, 50 * time.Millisecond
	ways := map[toolcrib.RunID]func(){"run_there": relay.StallThere, "run_back": relay.StallBack}
	if testing.Short() {
		delete(ways, "run_back")
	}
	for run, stall := range ways {
		t.Run(string(run), func(t *testing.T) {
			waittest.Until(t, "the machine is quick enough to see it", func() bool {
				stopped := make(chan time.Time, 1)
				leave := takes(t, ours, run, func(error) { stopped <- clock() })
				stall()
				var began time.Time
				late := lateness()
				waittest.Until(t, "another process has the run", func() bool {
					leave, err := theirs.Drivers.Take(t.Context(), run, nil)
					if began = clock(); err == nil {
						leave()
					}
					return err == nil
				})
				free := began.Sub(<-stopped)
				relay.Heal()
				leave()
				if late := late(); late > most {
					t.Logf("timers were %v late", late)
					return false
				}
				if free < least {
					t.Errorf("no process has the run for %v, want %v at least", free, least)
				}
				t.Logf("no process had the run for %v", free)
				return true
			})
		})
	}
}
