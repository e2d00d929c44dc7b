package sqlite_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

func withClock(t *testing.T) (*sqlite.Store, *stopped) {
	clock := &stopped{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	return openAt(t, t.TempDir()+"/toolcrib.db", sqlite.Options{Now: clock.Now}), clock
}

func overrides(t *testing.T, s *sqlite.Store) []store.Override {
	t.Helper()
	list, err := s.Overrides(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func set(t *testing.T, s *sqlite.Store, o store.Override, want bool) {
	t.Helper()
	if changed, err := s.SetOverride(t.Context(), o); err != nil || changed != want {
		t.Fatalf("set %+v: changed %v, error %v; want %v", o, changed, err, want)
	}
}

func systemEvents(t *testing.T, s *sqlite.Store, after toolcrib.Seq) []store.SystemEvent {
	t.Helper()
	events, err := s.SystemEvents(t.Context(), after)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func TestA1_A2_A7_Overrides(t *testing.T) {
	s, clock := withClock(t)
	start := clock.Now()
	set := func(t *testing.T, s *sqlite.Store, o store.Override, want bool) {
		t.Helper()
		clock.goOn(time.Second)
		set(t, s, o, want)
	}
	if list := overrides(t, s); len(list) != 0 {
		t.Errorf("a new store has overrides %v, want none", list)
	}
	tool := store.Override{Kind: store.OverrideTool, Name: "write_file", Enabled: false, By: "ann"}
	group := store.Override{Kind: store.OverrideGroup, Name: "write_file", Enabled: true, By: "bob"}
	set(t, s, tool, true)
	set(t, s, group, true)
	again := tool
	again.By = "eve"
	set(t, s, again, false) // the same toggle twice: one row, as it was
	tool.At, group.At = start.Add(1*time.Second), start.Add(2*time.Second)
	if diff := cmp.Diff([]store.Override{group, tool}, overrides(t, s)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	again.Enabled, again.At = true, start.Add(4*time.Second)
	set(t, s, again, true) // both ways
	if diff := cmp.Diff([]store.Override{group, again}, overrides(t, s)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, want := range []bool{true, false} {
		clock.goOn(time.Second)
		if changed, err := s.ResetOverride(t.Context(), store.OverrideTool, "write_file", "ann"); err != nil || changed != want {
			t.Errorf("reset: changed %v, error %v; want %v", changed, err, want)
		}
	}
	if diff := cmp.Diff([]store.Override{group}, overrides(t, s)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	wantSystem(t, s, []string{
		`1 override_set {"kind":"tool","name":"write_file","enabled":false,"by":"ann","at":"2026-01-01T00:00:01Z"}`,
		`2 override_set {"kind":"group","name":"write_file","enabled":true,"by":"bob","at":"2026-01-01T00:00:02Z"}`,
		`3 override_set {"kind":"tool","name":"write_file","enabled":true,"by":"eve","at":"2026-01-01T00:00:04Z"}`,
		`4 override_reset {"kind":"tool","name":"write_file","enabled":true,"by":"ann","at":"2026-01-01T00:00:05Z"}`,
	})
}

func wantSystem(t *testing.T, s *sqlite.Store, want []string) {
	t.Helper()
	var got []string
	for _, e := range systemEvents(t, s, 0) {
		got = append(got, fmt.Sprintf("%d %s %s", e.Seq, e.Kind, e.Payload))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("system journal (-want +got)\n%s", diff)
	}
	if v, err := s.VerifySystem(t.Context(), nil); err != nil || v.Events != len(want) {
		t.Errorf("system journal: %+v, error %v", v, err)
	}
}

func TestA7_OverrideRefused(t *testing.T) {
	s := open(t)
	if _, err := s.SetOverride(t.Context(), store.Override{Kind: "agent", Name: "x"}); err == nil {
		t.Error("an override of an agent was stored")
	}
	if _, err := s.ResetOverride(t.Context(), store.OverrideTool, "", "ann"); err == nil {
		t.Error("an override without a name was reset")
	}
	if n := len(systemEvents(t, s, 0)); n != 0 {
		t.Errorf("%d system events of nothing", n)
	}
}

// A9: the next look sees what any process has changed, however often it looked
// before; and the version rises with changes of overrides only.
func TestA9_OverridesAreSeenAtOnce(t *testing.T) {
	a := open(t)
	b := openAt(t, a.Path(), sqlite.Options{})
	last := uint64(0)
	for i := range 20 {
		writer, reader := a, b
		if i%3 == 0 {
			writer, reader = b, a
		}
		set(t, writer, store.Override{Kind: store.OverrideTool, Name: "read_file", Enabled: i%2 == 0, By: "ann"}, true)
		for _, s := range []*sqlite.Store{reader, writer, reader} {
			if list := overrides(t, s); len(list) != 1 || list[0].Enabled != (i%2 == 0) {
				t.Fatalf("change %d is not seen: %+v", i, list)
			}
		}
		version, err := reader.OverridesVersion(t.Context())
		if err != nil || version <= last {
			t.Fatalf("change %d: version %d after %d, error %v", i, version, last, err)
		}
		last = version
		add(t, writer, toolcrib.RunID(fmt.Sprint("run_", i)), 0, &journal.Notice{})
		if version, err := reader.OverridesVersion(t.Context()); err != nil || version != last {
			t.Fatalf("an append has changed the version of overrides from %d to %d, error %v", last, version, err)
		}
	}
}

func TestSystemJournal(t *testing.T) {
	s, clock := withClock(t)
	events := []store.SystemEvent{
		{Kind: "login", Payload: json.RawMessage(`{"user":"<ann>"}`)},
		{Kind: "config", Payload: json.RawMessage(`null`), Time: journaltest.At()},
	}
	if err := s.AppendSystem(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	if events[0].Seq != 1 || events[1].Seq != 2 || events[0].Time != clock.Now() || events[1].Time != journaltest.At() {
		t.Errorf("appended as %+v", events)
	}
	if diff := cmp.Diff(events, systemEvents(t, s, 0)); diff != "" {
		t.Errorf("(-appended +read)\n%s", diff)
	}
	for _, bad := range []store.SystemEvent{{Kind: "x"}, {Payload: json.RawMessage(`1`)}, {Kind: "x", Payload: json.RawMessage(`{`)}} {
		if err := s.AppendSystem(t.Context(), events[0], bad); err == nil {
			t.Errorf("%+v was stored", bad)
		}
	}
	const many = 300 // more than a page
	for range many {
		if err := s.AppendSystem(t.Context(), store.SystemEvent{Kind: "x", Payload: json.RawMessage(`1`)}); err != nil {
			t.Fatal(err)
		}
	}
	if got := systemEvents(t, s, 2); len(got) != many || got[0].Seq != 3 {
		t.Errorf("%d events after 2, want %d", len(got), many)
	}
	if v, err := s.VerifySystem(t.Context(), nil); err != nil || v.Events != many+2 {
		t.Errorf("%+v, error %v", v, err)
	}
}

// Each park and end leaves an anchor, with the hash of the run's chain then.
func TestAnchors(t *testing.T) {
	s := open(t)
	paused := &journal.Paused{Status: toolcrib.StatusWaitingForApproval}
	failed := &journal.Error{Status: toolcrib.StatusFailed}
	events := journaltest.Events(started("ann", "default", "", ""), paused)
	if err := s.Append(t.Context(), "run_a", 0, events...); err != nil {
		t.Fatal(err)
	}
	add(t, s, "run_a", 2, &journal.TakenUp{})
	end := journaltest.Events(failed)
	if err := s.Append(t.Context(), "run_a", 3, end...); err != nil {
		t.Fatal(err)
	}
	wantSystem(t, s, []string{
		fmt.Sprintf(`1 anchor {"run_id":"run_a","seq":2,"hash":"%x","status":"waiting_for_approval","num":1}`, events[1].Hash),
		fmt.Sprintf(`2 anchor {"run_id":"run_a","seq":4,"hash":"%x","status":"failed","num":1}`, end[0].Hash),
	})
	if v, err := s.Verify(t.Context(), "run_a"); err != nil || v != (store.Verified{Events: 4, Anchors: 2, Sealed: 4}) {
		t.Errorf("%+v, error %v", v, err)
	}
}

// The chain is the one of package journal over what Read gives.
func TestChain(t *testing.T) {
	s := open(t)
	want := journaltest.Events(journaltest.Bodies()...)
	if err := s.Append(t.Context(), "run_a", 0, want[:5]...); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), "run_a", 5, want[5:]...); err != nil {
		t.Fatal(err)
	}
	var prev []byte
	for e, err := range s.Read(t.Context(), "run_a", 0) {
		if err != nil {
			t.Fatal(err)
		}
		payload, err := journal.Encode(e.Body)
		if err != nil {
			t.Fatal(err)
		}
		prev = journal.ChainHash(prev, "run_a", e.Seq, e.Body.EventKind(), e.Time, journal.PayloadHash(payload))
		if string(prev) != string(e.Hash) {
			t.Fatalf("event %d (%s) has another hash", e.Seq, e.Body.EventKind())
		}
	}
}

func TestVerifyFindsChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change string
		seq    toolcrib.Seq
	}{
		"content":         {`UPDATE events SET payload = replace(payload, 'ann', 'eve') WHERE key & 0xff = 1`, 1},
		"content, hash":   {`UPDATE events SET payload_hash = x'00' WHERE key & 0xff = 2`, 2},
		"time":            {`UPDATE events SET time = time + 1 WHERE key & 0xff = 3`, 3},
		"kind":            {`UPDATE events SET kind = 'stopping' WHERE key & 0xff = 3`, 3},
		"removed":         {`DELETE FROM events WHERE key & 0xff = 2`, 3},
		"cut off":         {`DELETE FROM events WHERE key & 0xff = 4; UPDATE runs SET last_seq = 3, last_hash = (SELECT hash FROM events WHERE key & 0xff = 3)`, 3},
		"row":             {`UPDATE runs SET last_hash = x'00'`, 4},
		"anchor":          {`UPDATE system_events SET payload = replace(payload, '"hash":"', '"hash":"00')`, 4},
		"another run's":   {`UPDATE runs SET id = 'run_b'; UPDATE system_events SET payload = replace(payload, 'run_a', 'run_b')`, 1},
		"content, pruned": {`UPDATE events SET payload = NULL WHERE key & 0xff = 1`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			add(t, s, "run_a", 0, started("ann", "default", "", ""), &journal.TakenUp{}, &journal.Notice{}, completed)
			run := toolcrib.RunID("run_a")
			if name == "another run's" {
				run = "run_b"
			}
			execAt(t, s.Path(), c.change)
			_, err := s.Verify(t.Context(), run)
			var broken *store.ChainError
			if !errors.As(err, &broken) || broken.Seq != c.seq {
				t.Errorf("error %v, want one at event %d", err, c.seq)
			}
		})
	}
}

func TestVerifySystemFindsChanges(t *testing.T) {
	s := open(t)
	set(t, s, store.Override{Kind: store.OverrideTool, Name: "x", By: "ann"}, true)
	set(t, s, store.Override{Kind: store.OverrideTool, Name: "y", By: "ann"}, true)
	execAt(t, s.Path(), `UPDATE system_events SET payload = replace(payload, 'ann', 'eve') WHERE seq = 2`)
	var broken *store.ChainError
	if v, err := s.VerifySystem(t.Context(), nil); !errors.As(err, &broken) || broken.Seq != 2 {
		t.Errorf("%+v, error %v; want a broken chain at 2", v, err)
	}
}
