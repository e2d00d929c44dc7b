package sqlite_test

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// tokenEnds is when the token of counting expires.
var tokenEnds = saturday.Add(time.Hour)

// counting returns a store with two runs by the access token tok_1, whose verdicts report three
// counted calls, one of them judged twice. Four were counted: a process died before it stored the
// verdict.
func counting(t *testing.T, now time.Time) *sqlite.Store {
	t.Helper()
	s := openAt(t, filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{Now: func() time.Time { return now }})
	at, ends := access.UnixTime(saturday.Unix()), access.UnixTime(tokenEnds.Unix())
	if _, err := s.Access().AddToken(t.Context(), access.Issued{Claims: access.Claims{
		Issuer: "root", Subject: "ann", Audience: access.DefaultAudience, IssuedAt: at, NotBefore: at, Expires: ends, ID: "tok_1", Via: "cli",
	}}, "root"); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		take(t, s, saturday)
	}
	judged := func(iteration int, again bool, verdicts ...journal.Verdict) toolcrib.Body {
		return &journal.Verdicts{Iteration: iteration, Again: again, Verdicts: verdicts}
	}
	verdict := func(id string, counted bool) journal.Verdict {
		v := journal.Verdict{CallID: id, Tool: "read_file", Counted: counted}
		if counted {
			v.Decision = toolcrib.Allow
		}
		return v
	}
	for run, bodies := range map[toolcrib.RunID][]toolcrib.Body{
		"run_a": {judged(1, false, verdict("c1", true), verdict("c2", false)), judged(1, true, verdict("c1", true)), judged(2, false, verdict("c1", true))},
		"run_b": {judged(1, false, verdict("c1", true))},
	} {
		start := started("ann", "default", "", "")
		start.Principal.Token = "tok_1"
		add(t, s, run, 0, append([]toolcrib.Body{start}, append(bodies, completed)...)...)
	}
	plain := started("ann", "default", "", "") // by no token
	add(t, s, "run_c", 0, plain, judged(1, false, verdict("c1", true)), completed)
	return s
}

func take(t *testing.T, s *sqlite.Store, at time.Time) {
	t.Helper()
	if err := s.Access().Take(t.Context(), "tok_1", access.Limits{Expires: tokenEnds}, at); err != nil {
		t.Fatal(err)
	}
}

// How many calls a token has used is not fewer than the verdicts prove; it may be more.
func TestM16_VerifyTokenCalls(t *testing.T) {
	s := counting(t, saturday)
	verifyAll(t, s)
	execAt(t, s.Path(), "UPDATE token_calls SET calls = 3")
	verifyAll(t, s)
	execAt(t, s.Path(), "UPDATE token_calls SET calls = 2")
	_, err := s.VerifyAll(t.Context())
	wantBroken(t, err, "the access token tok_1 has 2 calls counted, and the verdicts prove 3; the stored data was changed from outside")
	execAt(t, s.Path(), "DELETE FROM token_calls")
	_, err = s.VerifyAll(t.Context())
	wantBroken(t, err, "the access token tok_1 has 0 calls counted, and the verdicts prove 3")

	take(t, s, saturday)
	take(t, s, saturday)
	prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_b"}, ContentOnly: true}) // its verdicts prove nothing any more
	verifyAll(t, s)
	prune(t, s, store.PruneOptions{Runs: []toolcrib.RunID{"run_a"}})
	execAt(t, s.Path(), "DELETE FROM token_calls")
	verifyAll(t, s)
}

// The count of a token is never forgotten, however long ago it has expired, and not put
// back to a lower one.
func TestM16_VerifyForgottenCalls(t *testing.T) {
	for name, tt := range map[string]struct {
		now    time.Time
		change string
		broken bool
	}{
		"gone, long over":  {tokenEnds.AddDate(0, 0, 91), "DELETE FROM token_calls", true},
		"lower, long over": {tokenEnds.AddDate(0, 0, 91), "UPDATE token_calls SET calls = 1", true},
		"gone, just over":  {tokenEnds.AddDate(0, 0, 89), "DELETE FROM token_calls", true},
	} {
		s := counting(t, tt.now)
		execAt(t, s.Path(), tt.change)
		if _, err := s.VerifyAll(t.Context()); (err != nil) != tt.broken {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is over long since takes no room but a row, and the calls in all are kept.
func TestM16_CallsAreKept(t *testing.T) {
	s := counting(t, saturday)
	limits := access.Limits{PerMinute: 3, Total: 5, Expires: tokenEnds}
	for i, at := range []time.Time{saturday, saturday.AddDate(1, 0, 0)} {
		if err := s.Access().Take(t.Context(), []string{"tok_1", "tok_2"}[i], limits, at); err != nil {
			t.Fatal(err)
		}
	}
	var minutes int
	if err := outside(t, s.Path()).QueryRowContext(t.Context(), "SELECT count(*) FROM token_minute WHERE token = 'tok_1'").Scan(&minutes); err != nil || minutes != 0 {
		t.Errorf("%d calls of a minute that is over are kept, error %v", minutes, err)
	}
	if left, err := s.Access().Left(t.Context(), "tok_1", limits, saturday); err != nil || left.Total != 0 {
		t.Errorf("%+v, error %v", left, err)
	}
	verifyAll(t, s)
}

// Two processes never take the same place.
func TestM16_QuotaOfTwoProcesses(t *testing.T) {
	const each, limit = 40, 51
	path := filepath.Join(t.TempDir(), "toolcrib.db")
	for token, l := range map[string]access.Limits{"tok_1": {Total: limit}, "tok_2": {PerMinute: limit}} {
		var all sync.WaitGroup
		var taken, other atomic.Int64
		for _, s := range []*sqlite.Store{openAt(t, path, sqlite.Options{}), openAt(t, path, sqlite.Options{})} {
			for worker := range 2 {
				all.Go(func() {
					for i := range each {
						at := saturday.Add(time.Duration(i*(1-2*worker)) * time.Millisecond) // their clocks differ
						err := s.Access().Take(t.Context(), token, l, at)
						var refusal *access.QuotaError
						switch {
						case err == nil:
							taken.Add(1)
						case !errors.As(err, &refusal):
							other.Add(1)
						}
					}
				})
			}
		}
		all.Wait()
		if taken.Load() != limit || other.Load() != 0 {
			t.Errorf("%+v: %d calls were taken, want %d; %d could not be counted", l, taken.Load(), limit, other.Load())
		}
	}
}
