package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
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

// schema7 is a database as an early version of the seventh schema left it, with its keys:
// runs with a model without a price, which it did not note: one ended, one that had a
// model with a price first, one whose request failed, one open, one without its content
// and one removed; and one that has a price.
func schema7(t testing.TB) string {
	t.Helper()
	path := unpacked(t, "schema7.db.gz")
	keys, err := os.ReadFile(filepath.Join("testdata", "schema7.keys"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "keys"), keys, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// unpricedRuns are the runs of whose usage it is known that some has no price.
func unpricedRuns(t *testing.T, s *sqlite.Store) []string {
	t.Helper()
	all, err := s.Usage(t.Context(), store.UsageQuery{By: store.UsageByRun})
	if err != nil || len(all) != 7 {
		t.Fatalf("%d rows, error %v", len(all), err)
	}
	list := []string{}
	for _, r := range all {
		if r.Unpriced {
			list = append(list, r.Key)
		}
	}
	return list
}

// The marks of usage without a price are made from the events, where those are there.
// From then on one that is taken away is found.
func TestSchema7_NoPrice(t *testing.T) {
	path := schema7(t)
	for range 2 {
		s := openAt(t, path, sqlite.Options{})
		verifyAll(t, s)
		want := []string{"run_mixed", "run_free", "run_open", "run_failed"} // by cost, then tokens
		if diff := cmp.Diff(want, unpricedRuns(t, s)); diff != "" {
			t.Errorf("runs without a price (-want +got)\n%s", diff)
		}
	}
	s := openAt(t, path, sqlite.Options{})
	for _, run := range []string{"run_mixed", "run_free", "run_open", "run_failed"} {
		changed := compactCopy(t, s)
		execAt(t, changed, "UPDATE usage SET estimated = estimated & 1 WHERE run_id = '"+run+"'")
		_, err := openAt(t, changed, sqlite.Options{}).VerifyAll(t.Context())
		wantBroken(t, err, "run "+run+": its usage of 2026-02-28 is kept as ")
	}
	o := &spender{t: t, run: "run_open", after: 5, n: 2}
	o.add(s, sunday, o.settle(0, false))
	o.end(s, sunday)
	verifyAll(t, s)
	for _, old := range []store.PruneOptions{{Runs: []toolcrib.RunID{"run_open", "run_mixed"}, ContentOnly: true}, {Runs: []toolcrib.RunID{"run_free"}}} {
		prune(t, s, old)
		verifyAll(t, s)
	}
	execAt(t, s.Path(), "UPDATE usage SET estimated = estimated & 1 WHERE run_id = 'run_free'")
	_, err := s.VerifyAll(t.Context()) // the record of the pruning tells
	wantBroken(t, err, "run run_free: its usage")
}

// compactCopy copies a database that is open, with its keys.
func compactCopy(t *testing.T, s *sqlite.Store) string {
	t.Helper()
	if _, err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	return copied(t, s.Path())
}

// A mark that a version noted, and the record of one that did not, are no change from
// outside; and a run that cannot be read keeps nobody from opening the others.
func TestSchema7_NoPriceMixed(t *testing.T) {
	path := schema7(t)
	execAt(t, path, "UPDATE usage SET estimated = estimated | 2 WHERE run_id = 'run_content'")
	s := openAt(t, path, sqlite.Options{})
	verifyAll(t, s)

	path = schema7(t)
	execAt(t, path, "UPDATE events SET payload = '[]' WHERE kind = 'usage' AND key >> 32 = (SELECT num FROM runs WHERE id = 'run_free')")
	s = openAt(t, path, sqlite.Options{})
	if diff := cmp.Diff([]string{"run_mixed", "run_open", "run_failed"}, unpricedRuns(t, s)); diff != "" {
		t.Errorf("runs without a price (-want +got)\n%s", diff)
	}
	_, err := s.VerifyAll(t.Context())
	wantBroken(t, err, "run_free")
}
