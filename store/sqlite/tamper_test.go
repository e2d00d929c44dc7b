package sqlite_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// tamper says which bytes TestTamperedByte changes; bench/tamper changes all.
var tamper = flag.String("tamper", "sample", "bytes of the database that are changed: sample | all")

// finished returns the path of a closed database that storetest.Fill has filled. Everything is in the one
// file then.
func finished(t *testing.T) string {
	t.Helper()
	at := journaltest.At()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Fill(t, s)
	verifyAll(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s.Path()
}

// part is how a run begins that another one has started.
func part(agent string, parent toolcrib.RunID) *journal.RunStarted {
	b := started("ann", agent, "", parent)
	b.Depth, b.Above = 1, &journal.Above{TaintWrites: "ask"}
	return b
}

// copied copies a closed database and its keys.
func copied(t testing.TB, path string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{filepath.Base(path), "keys"} {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, filepath.Base(path))
}

// What looks at a tampered database, and what a change comes to.
const (
	byOpen   = "found when it is opened"
	byChain  = "found by VerifyAll: the chain, the head or a projection"
	byRead   = "found by VerifyAll: it cannot be read"
	bySQLite = "found by SQLite's own check"
	noRow    = "changed no row"
	missed   = "MISSED"
)

// judge returns how a change of a database is detected. before has its original rows.
func judge(ctx context.Context, path, keys string, before rows) (verdict, detail string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := sqlite.Open(ctx, path, sqlite.Options{ReadOnly: true, Keys: keys})
	if err != nil {
		return byOpen, err.Error()
	}
	defer func() { _ = s.Close() }() // it was only read from
	_, err = s.VerifyAll(ctx)
	var broken *store.ChainError
	switch {
	case errors.As(err, &broken):
		return byChain, err.Error()
	case err != nil:
		return byRead, err.Error()
	}
	if err := s.Check(ctx); err != nil {
		return bySQLite, err.Error()
	}
	after, err := readRows(ctx, path)
	switch {
	case err != nil:
		return missed, err.Error()
	case before == after:
		return noRow, ""
	}
	return missed, "rows are others"
}

// rows is the hash of all that the tables hold, by value and type.
type rows [sha256.Size]byte

func readRows(ctx context.Context, path string) (r rows, err error) {
	db, err := sql.Open("sqlite", path+"?_pragma=query_only(1)")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	h := sha256.New()
	for _, q := range []string{
		"SELECT * FROM runs ORDER BY num", "SELECT * FROM events ORDER BY key", "SELECT * FROM system_events ORDER BY seq",
		"SELECT * FROM system_head", "SELECT * FROM contents ORDER BY num", "SELECT * FROM content_pieces ORDER BY key",
		"SELECT * FROM docs ORDER BY kind, id, user", "SELECT * FROM counters ORDER BY name", "SELECT * FROM usage ORDER BY kind, user, day, run_id, agent, provider, model, tool, rule, decision",
		"SELECT * FROM reservations ORDER BY run_id", "SELECT * FROM said ORDER BY num, hash",
		"SELECT * FROM inbox ORDER BY num", "SELECT * FROM token_calls ORDER BY token", "SELECT * FROM token_minute ORDER BY token, n", "SELECT * FROM state",
		"SELECT * FROM files ORDER BY name",
	} {
		if err := dumpRows(ctx, db, q, func(text string) { _, _ = h.Write([]byte(text)) }); err != nil {
			return r, err
		}
	}
	h.Sum(r[:0])
	return r, nil
}

func dumpRows(ctx context.Context, db *sql.DB, query string, do func(string)) (err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	values, dest := make([]any, len(names)), make([]any, len(names))
	for i := range values {
		dest[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		for _, v := range values {
			do(fmt.Sprintf("%T %#v\n", v, v))
		}
	}
	return rows.Err()
}

// positions are the bytes that are changed: a seeded sample of 2,000, three
// quarters of them such as hold something, or all.
func positions(file []byte) []int {
	var all, used []int
	for i, b := range file {
		all = append(all, i)
		if b != 0 {
			used = append(used, i)
		}
	}
	if *tamper == "all" {
		return all
	}
	sample := 2000
	if testing.Short() {
		sample = 400
	}
	random := rand.New(rand.NewPCG(1, 2)) // any seed will do, as long as it stays
	chosen := map[int]bool{}
	for len(chosen) < sample*3/4 {
		chosen[used[random.IntN(len(used))]] = true
	}
	for len(chosen) < sample {
		chosen[all[random.IntN(len(all))]] = true
	}
	return slices.Sorted(maps.Keys(chosen))
}

// Each byte of the database that is changed is found, or no row is another.
func TestTamperedByte(t *testing.T) {
	path := finished(t)
	keys := filepath.Join(filepath.Dir(path), "keys")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, err := readRows(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if verdict, detail := judge(t.Context(), path, keys, before); verdict != noRow {
		t.Fatalf("as it is, it is %s: %s", verdict, detail)
	}
	at := make(chan int)
	var mu sync.Mutex
	counts := map[string]int{}
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		folder := t.TempDir()
		wg.Go(func() {
			changed := slices.Clone(file)
			for i := range at {
				mask := byte(1) << (i % 8)
				if i%3 == 0 {
					mask = 0xff
				}
				changed[i] ^= mask
				verdict, detail := judgeFile(t, folder, changed, keys, before)
				changed[i] ^= mask
				mu.Lock()
				counts[verdict]++
				mu.Unlock()
				if verdict == missed {
					t.Errorf("byte %d (page %d): %#02x became %#02x: %s", i, i/4096+1, file[i], file[i]^mask, detail)
				}
			}
		})
	}
	for _, i := range positions(file) {
		at <- i
	}
	close(at)
	wg.Wait()
	report(t, counts)
}

// judgeFile judges a file with this content.
func judgeFile(t *testing.T, folder string, content []byte, keys string, before rows) (verdict, detail string) {
	path := filepath.Join(folder, "toolcrib.db")
	for _, end := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + end); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Error(err)
	}
	return judge(t.Context(), path, keys, before)
}

// report prints what was found how.
func report(t *testing.T, counts map[string]int) {
	t.Helper()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	for _, verdict := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%7d of %d %s", counts[verdict], sum, verdict)
	}
}
