package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// schema3 is a database as the third schema left it, with its keys: runs of two
// users over two days, in sessions, one of them open, one a sub-run, one without its
// content, and two that were removed, one of them in two steps.
func schema3(t testing.TB) string {
	t.Helper()
	path := unpacked(t, "schema3.db.gz")
	keys, err := os.ReadFile(filepath.Join("testdata", "schema3.keys"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "keys"), keys, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A database of schema 3 is brought up to date: usage and sessions are made from
// what is there, and it is verified, for ever.
func TestSchema3(t *testing.T) {
	path := schema3(t)
	wantOpenError(t, path, sqlite.Options{ReadOnly: true}, store.ErrReadOnly)
	for range 2 {
		s := openAt(t, path, sqlite.Options{})
		all := verifyAll(t, s)
		if all.Runs != 5 || all.Removed != 2 || all.Pruned == 0 || all.System.Adopted != 0 {
			t.Errorf("%+v", all)
		}
		for name, c := range schema3Usage() {
			if diff := cmp.Diff(c.want, lines(t, s, c.q)); diff != "" {
				t.Errorf("%s (-want +got)\n%s", name, diff)
			}
		}
		for user, want := range map[string]store.SessionInfo{
			"ann": {ID: "work", Name: "work", User: "ann", Title: "the first question of ann", Runs: 2, LastRun: "run_open", Status: toolcrib.StatusRunning},
			"bob": {ID: "work", Name: "work", User: "bob", Title: "the first question of bob", Runs: 1, LastRun: "run_b", Status: toolcrib.StatusCompleted},
		} {
			got := session(t, s, user, "work")
			want.CreatedAt, want.UpdatedAt = got.CreatedAt, got.UpdatedAt
			if diff := cmp.Diff(want, got); diff != "" || !got.CreatedAt.Before(got.UpdatedAt) {
				t.Errorf("session of %s, made %s (-want +got)\n%s", user, got.CreatedAt, diff)
			}
		}
		if info := session(t, s, "ann", "ses_1"); info.Title != "" || info.LastRun != "run_pruned" {
			t.Errorf("%+v", info)
		}
	}
	s := openAt(t, path, sqlite.Options{})
	p := &spender{t: t, run: "run_open", after: 11} // its models are known from its events
	p.add(s, saturday, p.settle(0.5, false))
	if got := lines(t, s, store.UsageQuery{By: store.UsageByModel, Until: saturday}); len(got) != 1 || got[0] != "anthropic/claude-sonnet-4-6: 1 runs, 1 requests, 100+10 tokens, 0.50 USD, 0 calls, 0 errors" {
		t.Errorf("%q", got)
	}
	prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_pruned", "run_a"}})
	verifyAll(t, s)
}

func schema3Usage() map[string]struct {
	q    store.UsageQuery
	want []string
} {
	return map[string]struct {
		q    store.UsageQuery
		want []string
	}{
		"run": {store.UsageQuery{By: store.UsageByRun}, []string{
			"run_a: 1 runs, 2 requests, 200+20 tokens, 0.00 USD, 0 calls, 0 errors",
			"run_b: 1 runs, 2 requests, 200+20 tokens, 0.00 USD, 0 calls, 0 errors",
			"run_child: 1 runs, 2 requests, 200+20 tokens, 0.00 USD, 0 calls, 0 errors",
			"run_open: 1 runs, 2 requests, 200+20 tokens, 0.00 USD, 0 calls, 0 errors",
			"run_pruned: 1 runs, 2 requests, 200+20 tokens, 0.00 USD, 0 calls, 0 errors",
		}},
		"model": {store.UsageQuery{By: store.UsageByModel}, []string{
			"anthropic/claude-sonnet-4-6: 4 runs, 4 requests, 400+40 tokens, 0.00 USD, 8 calls, 4 errors, 4 refused, 28 ms",
			"openai/gpt-5-mini: 4 runs, 4 requests, 400+40 tokens, 0.00 USD, 8 calls, 4 errors, 4 refused, 28 ms",
			"/small: 1 runs, 2 requests, 200+20 tokens, 0.00 USD, 0 calls, 0 errors", // of its content there is no more
			": 0 runs, 0 requests, 0+0 tokens, 0.00 USD, 12 calls, 6 errors",         // of runs without content
		}},
		"tool": {store.UsageQuery{By: store.UsageByTool}, []string{ // also of those that were removed
			"exec_shell: 0 runs, 0 requests, 0+0 tokens, 0.00 USD, 14 calls, 14 errors, 8 refused, 0 ms",
			"read_file: 0 runs, 0 requests, 0+0 tokens, 0.00 USD, 14 calls, 0 errors, 0 refused, 56 ms",
		}},
	}
}

// Without its keys a database is not brought up to date, and left as it is; somebody
// who accepts that does both.
func TestSchema3WithoutKeys(t *testing.T) {
	path := schema3(t)
	keys := filepath.Join(filepath.Dir(path), "keys")
	if err := os.Remove(keys); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if !errors.Is(err, store.ErrKeys) {
		t.Fatalf("store %v, error %v; want ErrKeys", s, err)
	}
	if _, err := os.Stat(keys); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key file was made: error %v", err)
	}
	s = openAt(t, path, sqlite.Options{AdoptBy: "ann"})
	if all := verifyAll(t, s); all.System.Adopted == 0 || all.Runs != 5 {
		t.Errorf("%+v", all)
	}
}

// A break of the system journal is not hidden by bringing the database up to date.
func TestSchema3KeepsBreaks(t *testing.T) {
	path := schema3(t)
	execAt(t, path, "DELETE FROM system_events WHERE seq = (SELECT max(seq) FROM system_events)")
	s := openAt(t, path, sqlite.Options{})
	_, err := s.VerifySystem(t.Context())
	wantBroken(t, err, "not as it was sealed")
}
