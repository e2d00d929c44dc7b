package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// If a database is missing or empty while its keys or its write-ahead log exist, opening it fails, and
// no new one is created.
func TestLost(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"without tables": func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, append([]byte("SQLite format 3\x00"), make([]byte, 84)...), 0o600))
		},
		"missing, log left": func(path string) error {
			return errors.Join(os.WriteFile(path+"-wal", []byte("x"), 0o600), os.Remove(filepath.Join(filepath.Dir(path), "keys")), os.Remove(path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := closedAt(t)
			if err := lose(path); err != nil {
				t.Fatal(err)
			}
			before := folder(t, path)
			for range 2 {
				for _, o := range []sqlite.Options{{}, {ReadOnly: true}, {AdoptBy: "ann"}} {
					if name == "without tables" {
						if s, err := sqlite.Open(t.Context(), path, o); err == nil {
							t.Errorf("it was opened (error of closing %v)", s.Close())
						}
						continue
					}
					wantOpenError(t, path, o, store.ErrLost)
				}
			}
			if after := folder(t, path); name != "without tables" && !equal(before, after) {
				t.Errorf("the folder had %v, and has %v", before, after)
			}
		})
	}
}

// folder returns the names and sizes of the files in the folder of a database.
func folder(t *testing.T, path string) map[string]int64 {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	sizes := make(map[string]int64)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		sizes[e.Name()] = info.Size()
	}
	return sizes
}

func equal(a, b map[string]int64) bool {
	for name, size := range a {
		if got, ok := b[name]; !ok || got != size {
			return false
		}
	}
	return len(a) == len(b)
}

// Making a database can be cut off at any point, and the next start continues: before it
// was there, and before its keys had their name.
func TestCreationCutOff(t *testing.T) {
	path := closedAt(t)
	keys := filepath.Join(filepath.Dir(path), "keys")
	if err := os.Rename(keys, path+"-keys"); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, path, sqlite.Options{})
	verifyAll(t, s)
	if _, err := os.Stat(path + "-keys"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the waiting keys: error %v", err)
	}

	path = filepath.Join(t.TempDir(), "toolcrib.db")
	for _, name := range []string{path, path + "-keys"} { // what the first steps leave
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = openAt(t, path, sqlite.Options{})
	add(t, s, "run_a", 0, completed)
	verifyAll(t, s)
}

// A database of before the first release is not read, and not touched.
func TestOlderIsNotTouched(t *testing.T) {
	path := closedAt(t)
	execAt(t, path, "PRAGMA user_version = 9")
	wantOpenError(t, path, sqlite.Options{}, store.ErrOlder)
	wantOpenError(t, path, readOnly(), store.ErrOlder)
}

// A database file that is removed or replaced while in use refuses appends, which would be lost.
func TestReplacedWhileOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file cannot be removed there")
	}
	for name, replace := range map[string]func(path string) error{
		"removed":     os.Remove,
		"log removed": func(path string) error { return os.Remove(path + "-wal") },
		"replaced": func(path string) error {
			b, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
		},
		"folder moved": func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+"-moved") },
	} {
		t.Run(name, func(t *testing.T) {
			s := openAt(t, filepath.Join(t.TempDir(), "data", "toolcrib.db"), sqlite.Options{})
			add(t, s, "run_a", 0, started("ann", "default", "", ""))
			if err := replace(s.Path()); err != nil {
				t.Fatal(err)
			}
			wantReplaced := func(err error) {
				if !errors.Is(err, store.ErrReplaced) {
					t.Errorf("error %v, want ErrReplaced", err)
				}
			}
			wantReplaced(s.Append(t.Context(), "run_a", 1, barrier()...))
			for range 2 {
				for _, err := range []error{
					s.Append(t.Context(), "run_a", 2, note("plain")...),
					s.Append(t.Context(), "run_b", 0, note("new")...),
					s.Put(t.Context(), "run_a", "res_1", []byte("x")), s.Writable(t.Context()),
				} {
					wantReplaced(err)
				}
			}
		})
	}
}

// Damage that was found keeps new runs away, in every process, until nothing is found
// any more, or somebody has accepted it; runs that are whole go on.
func TestDamageIsKept(t *testing.T) {
	path := closedAt(t)
	s := openAt(t, path, sqlite.Options{})
	add(t, s, "run_whole", 0, started("ann", "default", "", ""))
	add(t, s, "run_bad", 0, started("ann", "default", "", ""), completed)
	execAt(t, path, "UPDATE events SET kind = 'x' WHERE key = "+storetest.KeyOf("run_bad", "2"))
	add(t, s, "run_new", 0, started("ann", "default", "", ""), completed) // nobody knows yet
	if _, err := s.Verify(t.Context(), "run_bad"); err == nil {
		t.Fatal("nothing is found")
	}
	other := openAt(t, path, sqlite.Options{})
	for _, s := range []*sqlite.Store{s, other} {
		if err := s.Append(t.Context(), "run_newer", 0, note("x")...); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("a new run: error %v, want ErrDamaged", err)
		}
		if err := s.Damage(t.Context()); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("error %v, want ErrDamaged", err)
		}
	}
	add(t, other, "run_whole", 1, completed)

	if all, err := other.AcceptDamage(t.Context(), "ann"); err != nil || len(all.Problems) != 1 {
		t.Fatalf("%+v, error %v", all, err)
	}
	if events := systemEvents(t, other, 0); events[len(events)-1].Kind != store.SystemDamageAccepted {
		t.Errorf("last event %s", events[len(events)-1].Kind)
	}
	_, err := s.VerifyAll(t.Context()) // still says so, and that is known
	wantBroken(t, err, "run_bad")
	add(t, s, "run_newer", 0, started("ann", "default", "", ""), completed)
	execAt(t, path, "UPDATE events SET kind = 'x' WHERE key = "+storetest.KeyOf("run_new", "2"))
	_, err = s.VerifyAll(t.Context())
	wantBroken(t, err, "run_new ")
	if err := s.Append(t.Context(), "run_newest", 0, note("x")...); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("a new run, with new damage: error %v, want ErrDamaged", err)
	}
	execAt(t, path, "UPDATE events SET kind = 'done' WHERE kind = 'x'") // restored
	verifyAll(t, s)
	add(t, s, "run_newest", 0, completed)
}

// A database that was copied without its log while it was in use is incomplete, which is noticed,
// until somebody accepts it; no other copy is taken for one.
func TestCopiedWithoutLog(t *testing.T) {
	in := func(t *testing.T) *sqlite.Store {
		s := openAt(t, filepath.Join(t.TempDir(), "data", "toolcrib.db"), sqlite.Options{})
		add(t, s, "run_a", 0, started("ann", "default", "", ""))
		add(t, s, "run_b", 0, started("ann", "default", "", ""), completed)
		return s
	}
	copied := func(t *testing.T, from *sqlite.Store, ends ...string) string {
		path := filepath.Join(t.TempDir(), "toolcrib.db")
		for _, end := range ends {
			data, err := os.ReadFile(from.Path() + end)
			if end == "keys" {
				data, err = os.ReadFile(filepath.Join(filepath.Dir(from.Path()), end))
				end = "/../" + end
			}
			if err := errors.Join(err, os.WriteFile(filepath.Join(filepath.Dir(path), "toolcrib.db"+end), data, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	marked := func(t *testing.T, s *sqlite.Store) { // waits until the mark is in the file
		t.Helper()
		waittest.Until(t, "the mark is in the file", func() bool {
			data, err := os.ReadFile(s.Path())
			return err == nil && string(data[68:72]) == "tcrl"
		})
	}
	// settled waits until, with what is in the log, it has no mark, and the file has it.
	settled := func(t *testing.T, s *sqlite.Store) {
		db := outside(t, s.Path())
		waittest.Until(t, "the mark has left the log", func() bool {
			marked(t, s)
			var id int64
			err := db.QueryRowContext(t.Context(), "PRAGMA application_id").Scan(&id)
			return err == nil && id == 0x74637262
		})
	}
	whole := func(t *testing.T, path string) {
		t.Helper()
		for _, o := range []sqlite.Options{readOnly(), {}, readOnly(), {}} {
			s, err := sqlite.Open(t.Context(), path, o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.VerifyAll(t.Context()); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Run("in use", func(t *testing.T) {
		s := in(t)
		marked(t, s)
		path := copied(t, s, "", "keys")
		before := folder(t, path)
		for range 2 {
			wantOpenError(t, path, readOnly(), store.ErrIncomplete)
			wantOpenError(t, path, sqlite.Options{}, store.ErrIncomplete)
		}
		if after := folder(t, path); !equal(before, after) {
			t.Errorf("the folder had %v, and has %v", before, after)
		}
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{AdoptBy: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		if last := systemEvents(t, s, 0); last[len(last)-1].Kind != store.SystemHeadAdopted {
			t.Errorf("last event %s", last[len(last)-1].Kind)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		whole(t, path)
	})
	t.Run("in use again", func(t *testing.T) { // of several, one was closed
		s := in(t)
		other := openAt(t, s.Path(), sqlite.Options{})
		add(t, other, "run_c", 0, started("ann", "default", "", ""))
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; { // a look at the file in the background can be in its way
			done, err := s.Compact(t.Context())
			if err != nil || time.Now().After(end) {
				t.Fatalf("compacted: %v, error %v", done, err)
			}
			if done {
				break
			}
		}
		openAt(t, s.Path(), sqlite.Options{})
		add(t, s, "run_d", 0, started("ann", "default", "", ""))
		marked(t, s)
		wantOpenError(t, copied(t, s, "", "keys"), sqlite.Options{}, store.ErrIncomplete)
	})
	t.Run("killed", func(t *testing.T) { whole(t, copied(t, in(t), "", "-wal", "keys")) })
	t.Run("killed, and looked at", func(t *testing.T) { // by a program that moves the log into the file and removes it
		s := in(t)
		settled(t, s)
		add(t, s, "run_c", 0, started("ann", "default", "", ""), completed)
		path := copied(t, s, "", "-wal", "keys")
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "SELECT count(*) FROM runs"); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the log is still there (%v)", err)
		}
		whole(t, path)
		again := openAt(t, path, sqlite.Options{})
		add(t, again, "run_d", 0, started("ann", "default", "", ""))
		marked(t, again)
		wantOpenError(t, copied(t, s, "", "keys"), sqlite.Options{}, store.ErrIncomplete)
		wantOpenError(t, copied(t, again, "", "keys"), sqlite.Options{}, store.ErrIncomplete)
	})
	t.Run("after its log was moved", func(t *testing.T) { // by SQLite, as it grew long
		s := in(t)
		marked(t, s)
		for i := range 400 {
			add(t, s, toolcrib.RunID(fmt.Sprintf("run_%d", i)), 0, started("ann", "default", "", ""),
				&journal.Notice{Notice: toolcrib.Notice{Message: strings.Repeat("x", 20_000)}})
		}
		settled(t, s)
		add(t, s, "run_z", 0, completed)
		wantOpenError(t, copied(t, s, "", "keys"), sqlite.Options{}, store.ErrIncomplete)
		path := copied(t, s, "", "-wal", "keys")
		execAt(t, path, "PRAGMA wal_checkpoint(TRUNCATE)")
		if err := os.Remove(path + "-wal"); err != nil {
			t.Fatal(err)
		}
		whole(t, path)
	})
	t.Run("closed", func(t *testing.T) {
		s := in(t)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		whole(t, copied(t, s, "", "keys"))
	})
	t.Run("by SQLite", func(t *testing.T) {
		s := in(t)
		path := copied(t, s, "keys")
		execAt(t, s.Path(), "VACUUM INTO '"+path+"'")
		whole(t, path)
	})
}
