package sqlite_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// exported is a run as another store has it.
func exported(t *testing.T, first *journal.RunStarted, later ...toolcrib.Body) store.Imported {
	t.Helper()
	s := open(t)
	in := store.Imported{Run: "run_i", By: "ann", Contents: map[string][]byte{"ref_1": []byte("whole")}}
	if err := s.Append(t.Context(), in.Run, 0, journaltest.Events(append([]toolcrib.Body{first}, later...)...)...); err != nil {
		t.Fatal(err)
	}
	for e, err := range s.Read(t.Context(), in.Run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		in.Events = append(in.Events, e)
	}
	return in
}

// refused imports, and wants an error that leaves nothing behind.
func refused(t *testing.T, s *sqlite.Store, in store.Imported) error {
	t.Helper()
	before, err := s.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refusal := s.Import(t.Context(), in)
	after, err := s.Head(t.Context())
	if refusal == nil || err != nil || before != after {
		t.Errorf("error %v, head before %v, after %v, %v", refusal, before, after, err)
	}
	if _, _, err := s.Range(t.Context(), in.Run, "ref_1", 0, 1); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("its content: %v", err)
	}
	if _, err := s.VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
	return refusal
}

func TestImport(t *testing.T) {
	s, in := open(t), exported(t, started("ann", "default", "ses_1", ""), completed)
	if err := s.Import(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	var got []toolcrib.Event
	for e, err := range s.Read(t.Context(), in.Run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	if !slices.EqualFunc(got, in.Events, func(a, b toolcrib.Event) bool { return slices.Equal(a.Hash, b.Hash) }) {
		t.Error("the hashes are others")
	}
	if data, _, err := s.Range(t.Context(), in.Run, "ref_1", 0, 10); err != nil || string(data) != "whole" {
		t.Errorf("content %q, %v", data, err)
	}
	if _, err := s.VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Import(t.Context(), in); !errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("again: %v, want a conflict", err)
	}
}

func TestImportRefused(t *testing.T) {
	whole := func(t *testing.T) store.Imported {
		return exported(t, started("ann", "default", "ses_1", ""), completed)
	}
	byToken := started("ann", "default", "", "")
	byToken.Principal.Token = "tok_1"
	for name, in := range map[string]store.Imported{
		"nobody imports it": func() store.Imported { in := whole(t); in.By = ""; return in }(),
		"no events":         func() store.Imported { in := whole(t); in.Events = nil; return in }(),
		"a gap":             func() store.Imported { in := whole(t); in.Events = in.Events[1:]; return in }(),
		"another ID":        func() store.Imported { in := whole(t); in.Run = "run_j"; return in }(),
		"other content": func() store.Imported {
			in := whole(t)
			in.Events[0].Body = started("bob", "default", "", "")
			return in
		}(),
		"it waits":   exported(t, started("ann", "default", "", "")),
		"a child":    exported(t, started("ann", "default", "", "run_p"), completed),
		"of a token": exported(t, byToken, completed),
	} {
		t.Run(name, func(t *testing.T) { _ = refused(t, open(t), in) })
	}
	t.Run("the session is busy", func(t *testing.T) {
		s := open(t)
		early := journaltest.Events(started("ann", "default", "ses_1", ""))
		early[0].Time = early[0].Time.Add(-1e9)
		if err := s.Append(t.Context(), "run_open", 0, early...); err != nil {
			t.Fatal(err)
		}
		if err := refused(t, s, whole(t)); !errors.As(err, new(*store.SessionBusyError)) {
			t.Error(err)
		}
	})
	t.Run("the session has later runs", func(t *testing.T) {
		s := open(t)
		add(t, s, "run_late", 0, started("ann", "default", "ses_1", ""), completed)
		if err := refused(t, s, whole(t)); !errors.Is(err, toolcrib.ErrConflict) {
			t.Error(err)
		}
	})
}

// While a database is copied, nothing is written to it.
func TestCopy_Still(t *testing.T) {
	path := closedAt(t)
	owner := store.Owner{ID: "o", Host: "here", Machine: "this", PID: 7, Started: 9, Lease: time.Minute}
	other := openAt(t, path, sqlite.Options{BusyTimeout: 50 * time.Millisecond, Owner: owner})
	storetest.CopiedStill(t, openAt(t, path, readOnly()).Store, other)
}
