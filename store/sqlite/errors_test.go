package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/store/sqlstore"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// outside opens the file as another program would.
func outside(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // nothing was written that could be lost
	return db
}

func execAt(t testing.TB, path, query string) {
	t.Helper()
	if _, err := outside(t, path).ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

// closedAt makes a database with one run in it and closes it.
func closedAt(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	add(t, s, "run_a", 0, started("ann", "default", "", ""), &journal.Notice{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantOpenError(t *testing.T, path string, o sqlite.Options, want error) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, o)
	if err == nil {
		err = errors.Join(errors.New("opened"), s.Close())
	}
	if !errors.Is(err, want) {
		t.Errorf("open: error %v, want %v", err, want)
		return
	}
	if text := err.Error(); !strings.Contains(text, path) || strings.Contains(text, "SELECT") {
		t.Errorf("the error must name the file, and no SQL: %s", text)
	}
}

func TestOpenMakesPrivateFiles(t *testing.T) {
	s := open(t)
	add(t, s, "run_a", 0, &journal.Notice{})
	dir, err := os.Stat(filepath.Dir(s.Path()))
	if err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, error %v", dir.Mode(), err)
	}
	files, err := filepath.Glob(s.Path() + "*")
	if err != nil || len(files) < 3 {
		t.Errorf("files %v, error %v; want the database, -wal and -shm", files, err)
	}
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, error %v", name, info.Mode(), err)
		}
	}
}

func TestOpenOddPaths(t *testing.T) {
	for _, name := range []string{"a b.db", "what?x=1.db", "50%25.db", "#1.db", "ü&;=.db"} {
		path := filepath.Join(t.TempDir(), name)
		s := openAt(t, path, sqlite.Options{})
		add(t, s, "run_a", 0, &journal.Notice{})
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenKeepsWhatIsThere(t *testing.T) {
	path := closedAt(t)
	s := openAt(t, path, sqlite.Options{})
	if rec, err := s.Run(t.Context(), "run_a"); err != nil || rec.LastSeq != 2 {
		t.Errorf("%+v, error %v", rec, err)
	}
	add(t, s, "run_a", 2, &journal.Notice{})
	if v, err := s.Verify(t.Context(), "run_a"); err != nil || v.Events != 3 {
		t.Errorf("%+v, error %v", v, err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// A copy made by VACUUM INTO is in another journal mode; it is put right.
func TestOpenRestoredCopy(t *testing.T) {
	path := closedAt(t)
	execAt(t, path, "VACUUM INTO '"+path+".copy'")
	s := openAt(t, path+".copy", sqlite.Options{})
	var mode string
	if err := outside(t, s.Path()).QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
		t.Errorf("journal mode %s, error %v", mode, err)
	}
	add(t, s, "run_a", 2, &journal.Notice{})
}

func TestNewerIsNotTouched(t *testing.T) {
	path := closedAt(t)
	execAt(t, path, "PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, path, sqlite.Options{}, store.ErrNewer)
	wantOpenError(t, path, sqlite.Options{ReadOnly: true}, store.ErrNewer)
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the newer database was changed (error %v)", err)
	}
}

func TestAnotherProgramsDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.db")
	execAt(t, path, "CREATE TABLE cookies (a)")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, path, sqlite.Options{}, store.ErrCorrupt)
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the database of another program was changed (error %v)", err)
	}
}

func TestGarbage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("no database\n"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, path, sqlite.Options{}, store.ErrCorrupt)
	wantOpenError(t, path, sqlite.Options{ReadOnly: true}, store.ErrCorrupt)
}

// A file that was cut, or overwritten in the middle, is reported when it is used.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"cut":         func(b []byte) []byte { return b[:len(b)/2] },
		"cut, uneven": func(b []byte) []byte { return b[:len(b)/2+7] },
		"overwritten": func(b []byte) []byte { return append(b[:4096:4096], bytes.Repeat([]byte{0xa5}, len(b)-4096)...) },
		"header only": func(b []byte) []byte { return b[:100] },
		"half a page": func(b []byte) []byte { return b[:2048] },
		"page 1 gone": func(b []byte) []byte { return append(bytes.Repeat([]byte{0}, 4096), b[4096:]...) },
	} {
		t.Run(name, func(t *testing.T) {
			path := closedAt(t)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := use(t, path); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("error %v, want ErrCorrupt", err)
			}
		})
	}
}

// use does what a program would with a store, up to the first error.
func use(t *testing.T, path string) (err error) {
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Check(t.Context()); err == nil {
		t.Error("the damage is not found by Check")
	} else if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Check: error %v, want ErrCorrupt", err)
	}
	if err := s.Append(t.Context(), "run_a", 2, journaltest.Events(&journal.Notice{})...); err != nil {
		return err
	}
	for _, err := range s.Read(t.Context(), "run_a", 0) {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestFolderInPlaceOfFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, path, sqlite.Options{}, store.ErrUnavailable)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, filepath.Join(file, "toolcrib.db"), sqlite.Options{}, store.ErrUnavailable)
}

// Another program that holds the lock makes writes fail after the timeout;
// reading goes on, nothing is stored, and later it works.
func TestLocked(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{BusyTimeout: 20 * time.Millisecond})
	add(t, s, "run_a", 0, &journal.Notice{})
	other, err := outside(t, s.Path()).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }() // its transaction has ended by then
	if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	err = s.Append(t.Context(), "run_a", 1, journaltest.Events(&journal.Notice{})...)
	if !errors.Is(err, store.ErrLocked) || errors.Is(err, toolcrib.ErrConflict) {
		t.Errorf("append: error %v, want ErrLocked", err)
	}
	if err := s.Put(t.Context(), "run_a", "r", []byte("x")); !errors.Is(err, store.ErrLocked) {
		t.Errorf("put: error %v, want ErrLocked", err)
	}
	if rec, err := s.Run(t.Context(), "run_a"); err != nil || rec.LastSeq != 1 {
		t.Errorf("run: %+v, error %v", rec, err)
	}
	if _, err := other.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	add(t, s, "run_a", 1, &journal.Notice{})
}

// An append that waits for the lock can be given up at once, and then stores
// nothing when the lock is free.
func TestGivenUpWhileLocked(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{BusyTimeout: time.Minute})
	other, err := outside(t, s.Path()).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }() // its transaction has ended by then
	if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			run := toolcrib.RunID(fmt.Sprint("run_", i))
			if err := s.Append(ctx, run, 0, journaltest.Events(&journal.Notice{})...); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want DeadlineExceeded", err)
			}
		})
	}
	wg.Wait()
	if _, err := other.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	add(t, s, "run_new", 0, &journal.Notice{})
	page, err := s.Runs(t.Context(), store.Filter{})
	if err != nil || len(page.Runs) != 1 {
		t.Errorf("runs %v, error %v; want run_new only", ids(page.Runs), err)
	}
}

// A full database stores nothing by halves, also not of the appends that share a
// transaction with one that has no room; with room, the same append works.
func TestFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Limit(t.Context(), 100); err != nil { // of 4 KiB each
		t.Fatal(err)
	}
	big := strings.Repeat("x", 50<<10)
	result := func() []toolcrib.Event {
		return journaltest.Events(&journal.ToolResult{Content: big}, &journal.ToolStarted{Write: true}, &journal.ToolResult{Content: big})
	}
	var after toolcrib.Seq
	for err == nil {
		if err = s.Append(t.Context(), "run_a", after, result()...); err == nil {
			after += 3
		}
	}
	if !errors.Is(err, store.ErrFull) || after == 0 {
		t.Fatalf("after %d events: error %v, want ErrFull", after, err)
	}
	if err := s.Put(t.Context(), "run_a", "r", []byte(big+big+big)); !errors.Is(err, store.ErrFull) {
		t.Errorf("put: error %v, want ErrFull", err)
	}
	var wg sync.WaitGroup
	for i := range 8 { // small ones have room
		wg.Go(func() {
			if err := s.Append(t.Context(), "run_a", after, result()...); !errors.Is(err, store.ErrFull) {
				t.Errorf("error %v, want ErrFull", err)
			}
			if i == 0 {
				if err := s.Append(t.Context(), "run_small", 0, journaltest.Events(&journal.Notice{})...); err != nil {
					t.Errorf("a small append: %v", err)
				}
			}
		})
	}
	wg.Wait()
	rec, err := s.Run(t.Context(), "run_a")
	if err != nil || rec.LastSeq != after {
		t.Errorf("last event %d, error %v; want %d", rec.LastSeq, err, after)
	}
	if _, _, err := s.Range(t.Context(), "run_a", "r", 0, 1); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("half a content is stored: error %v", err)
	}
	if err := errors.Join(s.Check(t.Context()), s.Close()); err != nil {
		t.Error(err)
	}
	roomy := openAt(t, path, sqlite.Options{})
	if err := roomy.Append(t.Context(), "run_a", after, result()...); err != nil {
		t.Errorf("append with room: %v", err)
	}
	if v, err := roomy.Verify(t.Context(), "run_a"); err != nil || v.Events != int(after)+3 {
		t.Errorf("%+v, error %v", v, err)
	}
}

func TestReadOnlyOption(t *testing.T) {
	path := closedAt(t)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := openAt(t, path, sqlite.Options{ReadOnly: true})
	for name, err := range map[string]error{
		"append": s.Append(t.Context(), "run_a", 2, journaltest.Events(&journal.Notice{})...),
		"put":    s.Put(t.Context(), "run_a", "r", nil),
		"system": s.AppendSystem(t.Context(), store.SystemEvent{Kind: "x", Payload: []byte("1")}),
	} {
		if !errors.Is(err, store.ErrReadOnly) {
			t.Errorf("%s: error %v, want ErrReadOnly", name, err)
		}
	}
	if v, err := s.Verify(t.Context(), "run_a"); err != nil || v.Events != 2 {
		t.Errorf("%+v, error %v", v, err)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("reading has changed the file (error %v)", err)
	}
	missing := filepath.Join(t.TempDir(), "none", "toolcrib.db")
	wantOpenError(t, missing, sqlite.Options{ReadOnly: true}, store.ErrUnavailable)
	if _, err := os.Stat(filepath.Dir(missing)); err == nil {
		t.Error("opening for reading has made a folder")
	}
}

func TestTooLarge(t *testing.T) {
	s := open(t)
	err := s.Put(t.Context(), "run_a", "r", make([]byte, store.MaxContentBytes+1))
	if !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("put: error %v, want ErrTooLarge", err)
	}
	event := &journal.ToolResult{Content: strings.Repeat("x", store.MaxEventBytes)}
	if err := s.Append(t.Context(), "run_a", 0, journaltest.Events(event)...); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("append: error %v, want ErrTooLarge", err)
	}
	if err := s.Append(t.Context(), "run_a", 1<<32-2, journaltest.Events(&journal.Notice{}, &journal.Notice{})...); err == nil {
		t.Error("an append beyond the last number was taken")
	}
}

// Close waits for the appends that were begun; later ones are refused.
func TestClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	s := openAt(t, path, sqlite.Options{})
	const runs = 20
	var stored [runs]toolcrib.Seq
	var wg sync.WaitGroup
	begun := make(chan struct{}, runs)
	for i := range runs {
		wg.Go(func() {
			run := toolcrib.RunID(fmt.Sprint("run_", i))
			for {
				err := s.Append(t.Context(), run, stored[i], journaltest.Events(&journal.Notice{})...)
				if err != nil {
					if !errors.Is(err, store.ErrClosed) {
						t.Errorf("append to a store that is closed: error %v, want ErrClosed", err)
					}
					return
				}
				if stored[i]++; stored[i] == 2 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range runs {
		<-begun
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if _, err := s.Run(t.Context(), "run_0"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("run of a closed store: error %v, want ErrClosed", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	again := openAt(t, path, sqlite.Options{})
	for i, want := range stored {
		if rec, err := again.Run(t.Context(), toolcrib.RunID(fmt.Sprint("run_", i))); err != nil || rec.LastSeq != want {
			t.Errorf("run_%d is at event %d, error %v; want %d", i, rec.LastSeq, err, want)
		}
	}
}

// A process that has the database open stops where a later version takes it over.
func TestSchemaChangesWhileOpen(t *testing.T) {
	s := open(t)
	at := add(t, s, "run_a", 0, started("ann", "default", "", ""))
	execAt(t, s.Path(), "UPDATE state SET version = 99, oldest = 99")
	if err := s.Append(t.Context(), "run_a", at, journaltest.Events(completed)...); !errors.Is(err, store.ErrNewer) {
		t.Errorf("append: %v, want ErrNewer", err)
	}
	execAt(t, s.Path(), fmt.Sprintf("UPDATE state SET version = %d, oldest = 24", sqlstore.Baseline+len(sqlstore.Known())))
	add(t, s, "run_a", at, completed)
	if _, err := s.VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
}
