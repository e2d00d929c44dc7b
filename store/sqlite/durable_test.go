package sqlite_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// killed is a database with events that are still in its -wal file: their process
// was killed.
func killed(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	c := newChild(t, "die later", "p", path)
	c.begin()
	c.stored()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait() // tells that it was killed
	return path
}

// A -wal file whose end never reached the disk, as after power loss, gives the
// events before it: the chain holds, nothing is there by halves, and the run continues.
func TestTornWriteAheadLog(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"cut inside of the last page": func(b []byte) []byte { return b[:len(b)-100] },
		"last page of zeros":          func(b []byte) []byte { return append(b[:len(b)-4096:len(b)-4096], make([]byte, 4096)...) },
		"a bit of the last page":      func(b []byte) []byte { b[len(b)-7] ^= 4; return b },
		"a bit in the middle":         func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"nothing but the head":        func(b []byte) []byte { return b[:32] },
		"garbage behind it":           func(b []byte) []byte { return append(b, bytes.Repeat([]byte("x"), 5000)...) },
	} {
		t.Run(name, func(t *testing.T) {
			path := killed(t)
			b, err := os.ReadFile(path + "-wal")
			if err != nil || len(b) < 8<<10 {
				t.Fatalf("%d bytes, error %v", len(b), err)
			}
			if err := os.WriteFile(path+"-wal", damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(path + "-shm"); err != nil { // it does not survive either
				t.Fatal(err)
			}
			s := openAt(t, path, sqlite.Options{})
			rec, err := s.Run(t.Context(), "run_a")
			if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
				t.Fatal(err)
			}
			if whole := name == "garbage behind it"; (rec.LastSeq == childEvents) != whole {
				t.Errorf("%d of %d events", rec.LastSeq, childEvents)
			}
			add(t, s, "run_a", rec.LastSeq, &journal.Notice{})
			if all := verifyAll(t, s); all.Events != int(rec.LastSeq)+1 {
				t.Errorf("%+v after %d events", all, rec.LastSeq)
			}
		})
	}
}

// Each page of the database in turn is of garbage or zeros: that is found, and never
// taken for a database that holds.
func TestBadPage(t *testing.T) {
	original := closedAt(t)
	whole, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 4096 {
		for name, fill := range map[string]byte{"garbage": 0xa5, "zeros": 0} {
			path := copied(t, original)
			b := bytes.Clone(whole)
			copy(b[at:], bytes.Repeat([]byte{fill}, 4096))
			if bytes.Equal(b, whole) {
				continue
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			verdict, detail := judge(t.Context(), path, filepath.Join(filepath.Dir(path), "keys"), rows{})
			if verdict != byOpen && verdict != byRead && verdict != bySQLite && verdict != byChain {
				t.Errorf("page %d of %s: %s %s", at/4096+1, name, verdict, detail)
			}
		}
	}
}

// A clock that was set back does not change the order of events, which follows their numbers, and
// makes nothing expire.
func TestClockSetBack(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	s := openAt(t, filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{Now: func() time.Time { return now }})
	made := newSession(t, s, "ann", "work")
	p := &spender{t: t, run: "run_a"}
	p.start(s, now, "ann", "default", made.ID, "")
	now = now.AddDate(-30, 0, 0)
	p.ask(s, now, 0, 1, false)
	p.end(s, now)
	later := newSession(t, s, "ann", "later") // made earlier, by the clock
	add(t, s, "run_b", 0, started("ann", "default", made.ID, ""), completed)

	rec, err := s.Run(t.Context(), "run_a")
	if err != nil || !rec.EndedAt.Before(rec.CreatedAt) || rec.LastSeq != 5 {
		t.Errorf("%+v, error %v", rec, err)
	}
	if last, err := store.LastRun(t.Context(), s, "ann", made.ID); err != nil || last.ID != "run_b" {
		t.Errorf("last run %s, error %v", last.ID, err)
	}
	if made.ID <= later.ID {
		t.Errorf("IDs %s, %s", made.ID, later.ID)
	}
	if rows := lines(t, s, store.UsageQuery{By: store.UsageByDay}); len(rows) != 1 || rows[0][:10] != "1996-03-01" {
		t.Errorf("%q", rows)
	}
	result := retain(t, s, store.Retention{Runs: 24 * time.Hour}, now) // the clock is still wrong
	if len(result.Removed) != 0 {
		t.Errorf("%+v", result)
	}
	verifyAll(t, s)
}

// A journal that ends before its run's row says so names the event that is missing.
func TestMissingAtTheEnd(t *testing.T) {
	path := copied(t, closedAt(t))
	execAt(t, path, "DELETE FROM events WHERE key & 0xffffffff = 2")
	s := openAt(t, path, sqlite.Options{})
	var last error
	for _, err := range s.Read(t.Context(), "run_a", 0) {
		last = err
	}
	wantBroken(t, last, "breaks at event 2: the event is missing")
	_, err := s.VerifyAll(t.Context())
	wantBroken(t, err, "run_a")
	if err := s.Append(t.Context(), "run_b", 0, note("a new run")...); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("a new run: error %v, want ErrDamaged", err)
	}
}
