package policy

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// stoppedClock is a clock that only the test advances.
type stoppedClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *stoppedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *stoppedClock) goOn(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A9: a toggle applies at once in the process that made it, after half a second in another one, and at once for a new
// run in any process.
func TestA9_Availability(t *testing.T) {
	clock := &stoppedClock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	openStore := func() store.Store {
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	here, there := openStore(), openStore()
	set := func(s store.Store, kind store.OverrideKind, name string, on bool) {
		t.Helper()
		if _, err := s.SetOverride(t.Context(), store.Override{Kind: kind, Name: name, Enabled: on, By: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(v *availability, when string, tools, groups int) {
		t.Helper()
		over, err := v.Overrides(t.Context())
		if err != nil || len(over.Tools) != tools || len(over.Groups) != groups {
			t.Fatalf("%s: %+v, %v; want %d tools and %d groups", when, over, err, tools, groups)
		}
	}
	running, other := &availability{store: here}, &availability{store: there}
	want(running, "at first", 0, 0)
	want(other, "at first", 0, 0)
	set(here, store.OverrideTool, "x", false)
	want(running, "in this process", 1, 0)
	want(other, "in another one, at the same time", 0, 0)
	want(&availability{store: there}, "a new run in the other one", 1, 0)
	set(here, store.OverrideGroup, "x", true)
	clock.goOn(env.OverrideAge)
	want(other, "half a second later", 1, 1)
	over, _ := other.Overrides(t.Context())
	if over.Tools["x"] || !over.Groups["x"] {
		t.Errorf("tools and groups are mixed up: %+v", over)
	}
	if err := there.Close(); err != nil {
		t.Fatal(err)
	}
	clock.goOn(env.OverrideAge)
	if over, err := other.Overrides(t.Context()); err == nil {
		t.Errorf("what could not be read was answered: %+v", over)
	}
}
