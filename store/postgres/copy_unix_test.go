//go:build unix

package postgres_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// shown is what the lists of a store show, and the head of its system journal.
func shown(t *testing.T, s store.Store) map[string]any {
	t.Helper()
	ctx, all := t.Context(), map[string]any{}
	keep := func(name string) func(any, error) {
		return func(v any, err error) {
			all[name], all["error of "+name] = v, fmt.Sprint(err)
		}
	}
	keep("head")(s.Head(ctx))
	soon := time.Now().Add(time.Hour)
	for i, f := range []store.Filter{
		{},
		{Limit: 3},
		{Deciding: true},
		{Freed: true},
		{Holds: true},
		{Retry: soon},
		{Waiting: soon},
		{Tainted: true},
		{Token: "tok_1"},
		{Agent: "helper"},
		{Session: "ses_1"},
		{Beside: "ses_1"},
		{Parent: "run_lead"},
		{TopLevel: true, User: "ann"},
		{Approval: "apr_1"},
		{Since: soon},
		{Once: "h"},
		{Status: []toolcrib.Status{toolcrib.StatusCompleted, toolcrib.StatusFailed}, Cursor: "5"},
	} {
		keep(fmt.Sprint("runs ", i))(s.Runs(ctx, f))
	}
	for i, f := range []store.AuditFilter{
		{OldestFirst: true},
		{User: "ann", Limit: 3},
		{Run: "run_done"},
		{Kinds: []toolcrib.Kind{store.AuditApprovalDecided}},
		{Until: soon},
		{OldestFirst: true, Limit: 4, Since: journaltest.At().Add(-time.Hour)},
	} {
		for n := range 3 {
			page, err := s.Audit(ctx, f)
			keep(fmt.Sprint("audit ", i, " page ", n))(page, err)
			f.Cursor = page.Next
		}
	}
	keep("open")(s.OpenRuns(ctx))
	keep("rules")(s.RuleCounts(ctx, 0))
	keep("changed")(s.LastChanged(ctx, "login", "x"))
	keep("tree")(s.TreeUse(ctx, "run_lead"))
	keep("sessions of a token")(s.Sessions(ctx, store.SessionFilter{Token: "tok_1"}))
	keep("a session")(s.Session(ctx, "ann", "ses_1"))
	keep("sessions")(s.Sessions(ctx, store.SessionFilter{}))
	keep("audit")(s.Audit(ctx, store.AuditFilter{Limit: store.MaxLimit}))
	keep("users")(s.Access().Users(ctx, "", 0))
	keep("tokens")(s.Access().Tokens(ctx, "", "", 0))
	keep("remembered")(s.ListRemembered(ctx, store.RememberedFilter{Revoked: true}))
	keep("overrides")(s.Overrides(ctx, 0))
	for _, by := range []store.UsageBy{
		store.UsageTotal, store.UsageByDay, store.UsageByUser, store.UsageByAgent, store.UsageByModel, store.UsageByProvider,
		store.UsageByTool, store.UsageBySession, store.UsageByRun,
	} {
		keep("usage by " + string(by))(s.Usage(ctx, store.UsageQuery{By: by}))
		keep("usage of bob by " + string(by))(s.Usage(ctx, store.UsageQuery{By: by, User: "bob", Until: soon}))
	}
	b, _, err := s.Range(ctx, "run_all", "res_1", 0, 1<<20)
	keep("kept")(string(b), err)
	verified, err := s.VerifyAll(ctx)
	if keep("verified")(verified, err); err != nil {
		t.Error(err)
	}
	return all
}

// ignored leaves out what depends on when it was done.
var ignored = cmp.FilterPath(func(p cmp.Path) bool {
	name := p.Last().String()
	return name == ".Time" || name == ".Hash" || name == ".Payload" || name == ".Next"
}, cmp.Ignore())

// From SQLite to PostgreSQL and back, everything stays as it was, with the same keys.
func TestMigrate_FromSQLite(t *testing.T) {
	empty(t)              // skips the test without PostgreSQL
	const name = "german" // the order of text is that of its bytes, whatever the collation
	admin(t, "postgres", "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING UTF8 LOCALE_PROVIDER icu ICU_LOCALE 'de'")
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
	at := time.Now().Add(48 * time.Hour)
	var results, lists [2]any
	for i, s := range []store.Store{s, back} {
		result, err := s.ApplyRetention(t.Context(), store.Retention{Runs: 24 * time.Hour, Content: time.Hour}, at)
		if err != nil {
			t.Error(err)
		}
		all := shown(t, s)
		delete(all, "head") // sealed at different times
		results[i], lists[i] = result, all
	}
	if diff := cmp.Diff(results[1], results[0]) + cmp.Diff(lists[1], lists[0], ignored); diff != "" {
		t.Errorf("after retention (-SQLite +PostgreSQL)\n%s", diff)
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

// While a database is copied, nothing is written to it.
func TestMigrate_Still(t *testing.T) {
	_, address, keys := migrated(t)
	owner := store.Owner{ID: "o", Host: "here", Machine: "this", PID: 7, Started: 9, Lease: time.Minute}
	other := openAt(t, address, postgres.Options{Keys: keys, BusyTimeout: 100 * time.Millisecond, Owner: owner})
	storetest.CopiedStill(t, openAt(t, address, postgres.Options{Keys: keys, ReadOnly: true}).Store, other)
}
