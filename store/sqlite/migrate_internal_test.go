package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// between is a connection on which something happens before its second query.
type between struct {
	db      *sql.DB
	queries int
	then    func()
}

func (b *between) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if b.queries++; b.queries == 2 {
		b.then()
	}
	return b.db.QueryRowContext(ctx, query, args...)
}

// A process that looks at a new database while another one migrates it does not
// take it for that of another program.
func TestVersionWhileAnotherMigrates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	if err := makeFile(path, false); err != nil {
		t.Fatal(err)
	}
	db, err := openDB(path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }() // only read from
	b := &between{db: db, then: func() {
		if err := upgrade(t.Context(), path, Options{Keys: path + "-keys"}.withDefaults()); err != nil {
			t.Fatal(err)
		}
	}}
	if v, err := readVersion(t.Context(), b, path); err != nil || v != schemaVersion {
		t.Errorf("version %d, error %v; want %d", v, err, schemaVersion)
	}
}

// Stores that all open a new path at once make one database.
func TestOpenAtOnce(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "data", "toolcrib.db")
		start := make(chan struct{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				<-start
				s, err := Open(t.Context(), path, Options{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
	}
}
