package sqlite_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// stopped is a clock that is advanced by the test.
type stopped struct {
	mu  sync.Mutex
	now time.Time
}

func (s *stopped) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *stopped) goOn(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

const halfSecond = 500 * time.Millisecond

// switchedOff are the names in an answer that may be half a second old.
func switchedOff(t *testing.T, s *sqlite.Store) []string {
	t.Helper()
	list, err := s.Overrides(t.Context(), halfSecond)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, o := range list {
		names = append(names, o.Name)
	}
	return names
}

func wantOff(t *testing.T, s *sqlite.Store, when string, want ...string) {
	t.Helper()
	if got := switchedOff(t, s); !slices.Equal(got, want) {
		t.Fatalf("%s: %q is switched off, want %q", when, got, want)
	}
}

func off(name string) store.Override {
	return store.Override{Kind: store.OverrideTool, Name: name, By: "ann"}
}

// A9: what this store changes is seen at once, what another one changes as soon as
// the answer is too old; until then the answer is the same.
func TestA9_OverridesWithin(t *testing.T) {
	clock := &stopped{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	a := openAt(t, t.TempDir()+"/toolcrib.db", sqlite.Options{Now: clock.Now})
	b := openAt(t, a.Path(), sqlite.Options{Now: clock.Now})
	wantOff(t, b, "at first")
	set(t, a, off("x"), true)
	wantOff(t, a, "in the store that made the change", "x")
	clock.goOn(halfSecond - 1)
	wantOff(t, b, "in another one, just before")
	clock.goOn(1)
	wantOff(t, b, "in another one, half a second later", "x")

	set(t, a, off("y"), true)
	set(t, b, off("z"), true)
	wantOff(t, b, "after a change of its own, everything is new", "x", "y", "z")
	if changed, err := a.ResetOverride(t.Context(), store.OverrideTool, "x", "ann"); !changed || err != nil {
		t.Fatal(changed, err)
	}
	wantOff(t, a, "reset", "y", "z")
	set(t, a, off("y"), false)
	wantOff(t, a, "nothing changed", "y", "z")

	if list := overrides(t, b); len(list) != 2 {
		t.Errorf("Overrides is as of now, and gave %+v", list)
	}
	set(t, a, off("w"), true)
	clock.goOn(-time.Hour)
	wantOff(t, b, "a clock that was put back", "w", "y", "z")
}

// Within the age nothing is read: a store that was closed still answers, and no
// longer.
func TestA9_OverridesWithinReadsNothing(t *testing.T) {
	clock := &stopped{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	s := openAt(t, t.TempDir()+"/toolcrib.db", sqlite.Options{Now: clock.Now})
	set(t, s, off("x"), true)
	wantOff(t, s, "open", "x")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantOff(t, s, "closed", "x")
	if _, err := s.Overrides(t.Context(), 0); err == nil {
		t.Error("a closed database was read")
	}
	clock.goOn(halfSecond)
	if list, err := s.Overrides(t.Context(), halfSecond); err == nil {
		t.Errorf("what is too old was answered: %+v", list)
	}
}

// A change that may have been stored, although an error was returned, is seen; and a failed read is an
// error.
func TestA9_OverridesWithinAfterAnError(t *testing.T) {
	clock := &stopped{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	s := openAt(t, t.TempDir()+"/toolcrib.db", sqlite.Options{Now: clock.Now})
	wantOff(t, s, "at first")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.SetOverride(ended, off("x")); err == nil {
		t.Fatal("set in a context that has ended")
	}
	if list, err := s.Overrides(ended, halfSecond); err == nil {
		t.Errorf("nothing was read after the change: %+v", list)
	}
}

// A change between the reading of the version and the noting of it is not lost:
// many readers, one writer, and each change seen by the next look.
func TestA9_OverridesWithinConcurrently(t *testing.T) {
	s := open(t)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if _, err := s.Overrides(t.Context(), time.Microsecond); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for i := range 50 {
		o := off("x")
		o.Enabled = i%2 == 0
		set(t, s, o, true)
		list, err := s.Overrides(t.Context(), time.Hour)
		if err != nil || len(list) != 1 || list[0].Enabled != o.Enabled {
			t.Errorf("change %d is not seen: %+v, %v", i, list, err)
			break
		}
	}
	close(done)
	readers.Wait()
}

// A9: what another process switches off holds half a second later at the latest.
func TestA9_OverridesWithinOfAnotherProcess(t *testing.T) {
	clock := &stopped{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	s := openAt(t, t.TempDir()+"/toolcrib.db", sqlite.Options{Now: clock.Now})
	wantOff(t, s, "at first")
	c := newChild(t, "override", "ann", s.Path())
	c.begin()
	c.stored()
	wantOff(t, s, "within the age")
	clock.goOn(halfSecond)
	wantOff(t, s, "after it", "exec_shell")
	c.end()
}
