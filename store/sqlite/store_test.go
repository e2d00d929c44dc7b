package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
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

func TestJournal(t *testing.T) {
	journaltest.Run(t, func(t *testing.T) toolcrib.Journal { return open(t) })
}

func TestContents(t *testing.T) {
	journaltest.RunContents(t, func(t *testing.T) toolcrib.Contents { return open(t) })
}

func readOnly() sqlite.Options { return sqlite.Options{ReadOnly: true} }

func TestN11_Ledger(t *testing.T) {
	journaltest.RunLedger(t, func(t *testing.T) journaltest.LedgerStore { return open(t) })
}

func TestFamilies(t *testing.T) {
	journaltest.RunFamilies(t, func(t *testing.T, now func() time.Time) journaltest.FamilyStore {
		return openAt(t, filepath.Join(t.TempDir(), "data", "toolcrib.db"), sqlite.Options{Now: now})
	})
}
