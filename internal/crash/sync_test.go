package crash

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlstore"
)

// syncedEnv names a file for the kinds of barriers that were committed with a full
// sync.
const syncedEnv = "TOOLCRIB_CRASH_SYNCED"

// synced is a store that fails an append with a barrier that was not committed with a full sync, by
// the store's own counters. All processes of the tests use it. Among simultaneous appends of several
// runs the counters cannot be attributed: there it only fails an append if nothing was synced.
type synced struct {
	counting
	begun, over atomic.Int64 // appends
}

// counting is a store that counts its writes.
type counting interface {
	store.Store
	Stats() sqlstore.Stats
}

func (s *synced) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	over := s.over.Load()
	n := s.begun.Add(1)
	before := s.Stats()
	err := s.counting.Append(ctx, run, after, events...)
	now := s.Stats()
	alone := over == n-1 && s.begun.Load() == n
	s.over.Add(1)
	if err != nil {
		return err
	}
	for _, e := range events {
		if !barrier(e.Body) {
			continue
		}
		if now.Synced == before.Synced || alone && now.Synced != before.Synced+1 {
			return fmt.Errorf("%s was committed without a full sync: %+v, before %+v", e.Body.EventKind(), now, before)
		}
		if !alone {
			continue
		}
		if err := note(e.Body.EventKind()); err != nil {
			return err
		}
	}
	return nil
}

// barrier reports whether an event must survive a power loss: before a write runs, a decision, a pause, the end.
func barrier(body toolcrib.Body) bool {
	if b, ok := body.(*journal.ToolStarted); ok {
		return b.Write
	}
	switch body.EventKind() {
	case journal.KindConfirmationRequired, journal.KindConfirmationResolved, journal.KindGranted, journal.KindSaid,
		journal.KindResumed, journal.KindModelChosen, journal.KindPaused, journal.KindDone, journal.KindError:
		return true
	}
	return false
}

func note(kind toolcrib.Kind) error {
	path := os.Getenv(syncedEnv)
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(string(kind) + "\n"); err != nil {
		return err
	}
	return f.Close()
}

// A kill loses nothing that the system has; power loss does. So each kind of
// barrier has to be committed with a full sync, in processes of their own as
// everywhere in this test.
func TestCrash_BarriersAreSynced(t *testing.T) {
	h := harness(t)
	path := filepath.Join(t.TempDir(), "kinds")
	t.Setenv(syncedEnv, path)
	var tales []Tale
	for _, name := range []string{"approval", "message", "limit raised", "cap error", "another model"} {
		tales = append(tales, Tale{Scenario: scenario(t, name)})
	}
	if err := h.PlayAll(t.Context(), tales, jobs, func(s *Story) bool {
		for _, p := range s.Problems {
			t.Errorf("%s: %s", s, p)
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []toolcrib.Kind{
		journal.KindToolStarted, journal.KindConfirmationRequired, journal.KindConfirmationResolved,
		journal.KindGranted, journal.KindSaid, journal.KindModelChosen, journal.KindPaused, journal.KindDone, journal.KindError,
	} {
		if !strings.Contains(string(data), string(kind)+"\n") {
			t.Errorf("no %s was seen to be synced", kind)
		}
	}
}
