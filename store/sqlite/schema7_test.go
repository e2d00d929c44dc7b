package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// A database of schema 7 differs in the condition of the audit log's index only, and
// its audit log is the same when it was brought up to date.
func TestSchema7(t *testing.T) {
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &spender{t: t, run: "run_a"}
	p.start(s, saturday, "ann", "default", "", "")
	p.ask(s, saturday, 0, 1, false)
	p.end(s, sunday)
	want := auditLines(audit(t, s, store.AuditFilter{}).Entries)
	if err := s.Close(); err != nil || len(want) == 0 {
		t.Fatalf("%q, error %v", want, err)
	}
	execAt(t, path, `DROP INDEX events_audit;
		CREATE INDEX events_audit ON events (time, key)
			WHERE kind IN ('run_started', 'verdicts', 'confirmation_required', 'confirmation_resolved', 'granted', 'stopping');
		DELETE FROM goose_db_version WHERE version_id > 7;
		PRAGMA user_version = 7`)
	wantOpenError(t, path, sqlite.Options{ReadOnly: true}, store.ErrReadOnly)
	s = openAt(t, path, sqlite.Options{})
	if diff := cmp.Diff(want, auditLines(audit(t, s, store.AuditFilter{}).Entries)); diff != "" {
		t.Errorf("audit log (-want +got)\n%s", diff)
	}
	verifyAll(t, s)
}
