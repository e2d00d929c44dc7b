package sqlite_test

import (
	"crypto/rand"
	"path/filepath"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// open opens a new database that is closed at the end of the test.
func open(t testing.TB) *sqlite.Store {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "data", "toolcrib.db"), sqlite.Options{})
}

func openAt(t testing.TB, path string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, o)
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

// TestStore is the suite of all stores.
func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, now func() time.Time) func() store.Store {
		path := filepath.Join(t.TempDir(), "data", "toolcrib.db")
		return func() store.Store {
			return openAt(t, path, sqlite.Options{Now: now, Owner: store.Owner{
				ID: rand.Text(), Host: "here", Machine: "this", PID: 7, Started: 9, Lease: time.Minute,
			}})
		}
	})
}

func readOnly() sqlite.Options { return sqlite.Options{ReadOnly: true} }
