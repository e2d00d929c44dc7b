//go:build unix

package postgres_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// shown is what the lists of a store show, and the head of its system journal.
func shown(t *testing.T, s store.Store) map[string]any {
	t.Helper()
	ctx, all := t.Context(), map[string]any{}
	keep := func(name string) func(any, error) {
		return func(v any, err error) {
			t.Helper()
			if all[name] = v; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	keep("head")(s.Head(ctx))
	keep("runs")(s.Runs(ctx, store.Filter{Limit: store.MaxLimit}))
	keep("sessions")(s.Sessions(ctx, store.SessionFilter{}))
	keep("audit")(s.Audit(ctx, store.AuditFilter{Limit: store.MaxLimit}))
	keep("users")(s.Access().Users(ctx, "", 0))
	keep("tokens")(s.Access().Tokens(ctx, "", "", 0))
	keep("remembered")(s.ListRemembered(ctx, store.RememberedFilter{Revoked: true}))
	keep("overrides")(s.Overrides(ctx, 0))
	for _, by := range []store.UsageBy{store.UsageTotal, store.UsageByDay, store.UsageByModel, store.UsageByTool, store.UsageByRun} {
		keep("usage by " + string(by))(s.Usage(ctx, store.UsageQuery{By: by}))
	}
	b, _, err := s.Range(ctx, "run_all", "res_1", 0, 1<<20)
	keep("kept")(string(b), err)
	verified, err := s.VerifyAll(ctx)
	keep("verified")(verified, err)
	return all
}

// From SQLite to PostgreSQL and back, everything stays as it was, with the same keys.
func TestMigrate_FromSQLite(t *testing.T) {
	name := empty(t)
	dir := t.TempDir()
	from, err := sqlite.Open(t.Context(), filepath.Join(dir, "from", "toolcrib.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close() //nolint:errcheck // only read at the end
	storetest.Fill(t, from)
	want := shown(t, from)

	address, keys := server.URL(name).String(), filepath.Join(dir, "server", "keys")
	o := postgres.MigrateOptions{Keys: keys, From: from.Store}
	if _, err := postgres.Migrate(t.Context(), address, o); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, address, postgres.Options{Keys: keys})
	if diff := cmp.Diff(want, shown(t, s)); diff != "" {
		t.Errorf("in PostgreSQL (-want +got)\n%s", diff)
	}
	back, err := sqlite.Open(t.Context(), filepath.Join(dir, "back", "toolcrib.db"), sqlite.Options{From: s.Store})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close() //nolint:errcheck // only read at the end
	if diff := cmp.Diff(want, shown(t, back)); diff != "" {
		t.Errorf("back in SQLite (-want +got)\n%s", diff)
	}
	for _, s := range []store.Store{s, back} {
		if err := s.Append(t.Context(), "run_new", 0, numbered(0, true)...); err != nil {
			t.Error(err)
		}
		if err := s.Put(t.Context(), "run_new", "res_1", []byte("x")); err != nil {
			t.Error(err)
		}
		if page, err := s.Runs(t.Context(), store.Filter{Limit: 1}); err != nil || page.Runs[0].ID != toolcrib.RunID("run_new") {
			t.Errorf("%+v, %v", page, err)
		}
	}
}
