package sqlite_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// login adds an event to the system journal.
func login(t testing.TB, s *sqlite.Store, text string) {
	t.Helper()
	if err := s.AppendSystem(t.Context(), store.SystemEvent{Kind: "login", Payload: json.RawMessage(`"` + text + `"`)}); err != nil {
		t.Fatal(err)
	}
}

func wantBroken(t testing.TB, err error, what string) {
	t.Helper()
	var broken *store.ChainError
	if !errors.As(err, &broken) || !strings.Contains(err.Error(), what) {
		t.Errorf("error %v, want a broken chain (%s)", err, what)
	}
}

func TestKeyFileIsMadeOnce(t *testing.T) {
	s := open(t)
	keys := filepath.Join(filepath.Dir(s.Path()), "keys")
	info, err := os.Stat(keys)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("mode %v, error %v", info, err)
	}
	before, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	openAt(t, s.Path(), sqlite.Options{})
	if after, err := os.ReadFile(keys); err != nil || string(after) != string(before) {
		t.Errorf("opening again has changed the key file (error %v)", err)
	}
	names, err := filepath.Glob(filepath.Join(filepath.Dir(keys), ".keys*"))
	if err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, error %v", names, err)
	}
}

func TestKeyFileElsewhere(t *testing.T) {
	o := sqlite.Options{Keys: filepath.Join(t.TempDir(), "secrets", "toolcrib.keys")}
	a := openAt(t, filepath.Join(t.TempDir(), "a.db"), o)
	b := openAt(t, filepath.Join(t.TempDir(), "b.db"), o)
	for name, want := range map[string]os.FileMode{o.Keys: 0o600, filepath.Dir(o.Keys): 0o700 | os.ModeDir} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, error %v; want %v", name, info.Mode(), err, want)
		}
	}
	for _, s := range []*sqlite.Store{a, b} {
		login(t, s, "x")
		if _, err := s.VerifySystem(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(s.Path()), "keys")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("another key file: error %v", err)
		}
	}
}

// Without its keys a database is not opened for writing, and nothing is said
// about its journal; somebody has to accept it, and that stays visible.
func TestKeyFileMissing(t *testing.T) {
	path := closedAt(t)
	keys := filepath.Join(filepath.Dir(path), "keys")
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if !errors.Is(err, store.ErrKeys) || !strings.Contains(err.Error(), keys) {
		t.Fatalf("store %v, error %v; want ErrKeys that names %s", s, err, keys)
	}
	s = openAt(t, path, sqlite.Options{ReadOnly: true})
	if _, err := s.VerifySystem(t.Context(), nil); !errors.Is(err, store.ErrKeys) {
		t.Errorf("verify: error %v, want ErrKeys", err)
	}
	if _, err := s.VerifyAll(t.Context()); !errors.Is(err, store.ErrKeys) {
		t.Errorf("verify all: error %v, want ErrKeys", err)
	}
	if _, err := s.Head(t.Context()); !errors.Is(err, store.ErrKeys) {
		t.Errorf("head: error %v, want ErrKeys", err)
	}
	s = openAt(t, path, sqlite.Options{AdoptBy: "ann"})
	if v, err := s.VerifySystem(t.Context(), nil); err != nil || v.Adopted == 0 {
		t.Errorf("%+v, error %v; want it adopted", v, err)
	}
	events := systemEvents(t, s, 0)
	last := events[len(events)-1]
	if last.Kind != store.SystemHeadAdopted || !strings.Contains(string(last.Payload), `"by":"ann"`) {
		t.Errorf("last event %s %s", last.Kind, last.Payload)
	}
	openAt(t, path, sqlite.Options{AdoptBy: "ann"})
	if n := len(systemEvents(t, s, 0)); n != len(events) {
		t.Errorf("adopted again: %d events, had %d", n, len(events))
	}
}

// What a process that was killed has left where new keys are made, and cannot be removed, is an error of keys.
func TestKeyFilePending(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new.db")
	pending := path + "-keys"
	if err := os.MkdirAll(filepath.Join(pending, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if s, err := sqlite.Open(t.Context(), path, sqlite.Options{}); !errors.Is(err, store.ErrKeys) || !strings.Contains(err.Error(), pending) {
		t.Fatalf("store %v, error %v; want ErrKeys that names %s", s, err, pending)
	}
}

// The key file of another database is reported, and seals nothing here; an administrator may accept it
// anyway.
func TestKeyFileOfAnother(t *testing.T) {
	path := closedAt(t)
	other := closedAt(t)
	mine, theirs := filepath.Join(filepath.Dir(path), "keys"), filepath.Join(filepath.Dir(other), "keys")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{Keys: theirs})
	if !errors.Is(err, store.ErrKeys) || !strings.Contains(err.Error(), theirs) || !strings.Contains(err.Error(), "other keys") {
		t.Fatalf("store %v, error %v; want ErrKeys that names %s", s, err, theirs)
	}
	for range 2 { // and it was left as it was
		s = openAt(t, path, sqlite.Options{Keys: mine})
		login(t, s, "ann")
		if v, err := s.VerifySystem(t.Context(), nil); err != nil || v.Adopted != 0 {
			t.Errorf("%+v, error %v", v, err)
		}
	}
	ro := openAt(t, path, sqlite.Options{Keys: theirs, ReadOnly: true})
	_, err = ro.VerifySystem(t.Context(), nil)
	wantBroken(t, err, "is the key file the right one?")
	s = openAt(t, path, sqlite.Options{Keys: theirs, AdoptBy: "ann"})
	if v, err := s.VerifySystem(t.Context(), nil); err != nil || v.Adopted == 0 {
		t.Errorf("%+v, error %v; want it adopted", v, err)
	}
	last := systemEvents(t, s, 0)
	if e := last[len(last)-1]; e.Kind != store.SystemHeadAdopted || !strings.Contains(string(e.Payload), `"by":"ann"`) {
		t.Errorf("last event %s %s", e.Kind, e.Payload)
	}
	if s, err := sqlite.Open(t.Context(), path, sqlite.Options{Keys: mine}); !errors.Is(err, store.ErrKeys) {
		t.Errorf("the key of before: store %v, error %v; want ErrKeys", s, err)
	}
}

func TestKeyFileDamaged(t *testing.T) {
	path := closedAt(t)
	keys := filepath.Join(filepath.Dir(path), "keys")
	for name, text := range map[string]string{"empty": "", "garbage": "x", "large": strings.Repeat("x", 1<<20)} {
		if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, by := range []string{"", "ann"} { // a file that is there is never replaced
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{AdoptBy: by})
			if !errors.Is(err, store.ErrKeys) {
				t.Errorf("%s: store %v, error %v; want ErrKeys", name, s, err)
			}
		}
	}
}

// The end of the system journal can be neither cut nor rewritten; nothing is added to
// one that was, until somebody has accepted it.
func TestHeadFindsChanges(t *testing.T) {
	other := open(t)
	login(t, other, "x")
	for name, c := range map[string]struct{ change, what string }{
		"cut":             {`DELETE FROM system_events WHERE seq = 3`, "ends at event 2, and its head says 3"},
		"cut, with head":  {`DELETE FROM system_events WHERE seq = 3; UPDATE system_head SET seq = 2, hash = (SELECT hash FROM system_events WHERE seq = 2)`, "not sealed with this key"},
		"all":             {`DELETE FROM system_events; DELETE FROM system_head`, "head is gone"},
		"all but head":    {`DELETE FROM system_events`, "ends at event 0"},
		"head":            {`DELETE FROM system_head`, "head is gone"},
		"number":          {`UPDATE system_head SET seq = 2`, "not sealed with this key"},
		"mac":             {`UPDATE system_head SET record = zeroblob(150)`, "not sealed with this key"},
		"hash":            {`UPDATE system_head SET hash = zeroblob(32)`, "not sealed with this key"},
		"another's":       {`ATTACH '` + other.Path() + `' AS o; DELETE FROM system_events; INSERT INTO system_events SELECT * FROM o.system_events; DELETE FROM system_head; INSERT INTO system_head SELECT * FROM o.system_head`, "not sealed with this key"},
		"two more events": {`INSERT INTO system_events SELECT 4, kind, time, payload, payload_hash, hash FROM system_events WHERE seq = 3`, "does not follow"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			for _, text := range []string{"a", "b", "c"} {
				login(t, s, text)
			}
			execAt(t, s.Path(), c.change)
			_, err := s.VerifySystem(t.Context(), nil)
			wantBroken(t, err, c.what)
			err = s.AppendSystem(t.Context(), store.SystemEvent{Kind: "login", Payload: json.RawMessage(`1`)})
			wantBroken(t, err, "")
			wantNothingDone(t, s.Append(t.Context(), "run_new", 0, note("x")...))
			for _, err := range errorsOfAll(t, s) {
				wantBroken(t, err, "")
			}
			if name == "two more events" {
				return // nobody can accept a chain that breaks
			}
			s = openAt(t, s.Path(), sqlite.Options{AdoptBy: "ann"})
			if v, err := s.VerifySystem(t.Context(), nil); err != nil || v.Adopted == 0 {
				t.Errorf("accepted: %+v, error %v", v, err)
			}
			login(t, s, "later")
			verifyAll(t, s)
		})
	}
}

// errorsOfAll is what both ways to verify the system journal say.
func errorsOfAll(t testing.TB, s *sqlite.Store) []error {
	t.Helper()
	_, err1 := s.VerifySystem(t.Context(), nil)
	_, err2 := s.VerifyAll(t.Context())
	return []error{err1, err2}
}

// A store that was replaced by an old copy, with its key file, is consistent; only a head that was
// kept elsewhere shows the difference.
func TestHeadShowsRollBack(t *testing.T) {
	s := open(t)
	empty, err := s.Head(t.Context())
	if err != nil || empty.Seq != 0 {
		t.Fatalf("%+v, error %v", empty, err)
	}
	login(t, s, "a")
	copied := filepath.Join(t.TempDir(), "copy.db")
	execAt(t, s.Path(), "VACUUM INTO '"+copied+"'")
	early, err := s.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	login(t, s, "b")
	head, err := s.Head(t.Context())
	if err != nil || head.Seq != 2 || head.Time.IsZero() {
		t.Fatalf("%+v, error %v", head, err)
	}
	for _, h := range []store.Head{empty, early, head} {
		if v, err := s.VerifySystem(t.Context(), &h); err != nil || v.Events != 2 {
			t.Errorf("against %+v: %+v, error %v", h, v, err)
		}
	}
	old := openAt(t, copied, sqlite.Options{Keys: filepath.Join(filepath.Dir(s.Path()), "keys")})
	if _, err := old.VerifySystem(t.Context(), nil); err != nil {
		t.Errorf("the copy itself: %v", err)
	}
	if _, err := old.VerifySystem(t.Context(), &early); err != nil {
		t.Errorf("against the head of its time: %v", err)
	}
	_, err = old.VerifySystem(t.Context(), &head)
	wantBroken(t, err, "older copy")
	login(t, old, "another b") // and continues from there
	_, err = old.VerifySystem(t.Context(), &head)
	wantBroken(t, err, "rewritten")
	forged := head
	forged.Seq = 1
	_, err = s.VerifySystem(t.Context(), &forged)
	wantBroken(t, err, "not sealed")
}
