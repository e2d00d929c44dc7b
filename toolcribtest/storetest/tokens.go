package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"pgregory.net/rapid"
)

// epoch is an arbitrary time.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func issued(id, subject string) access.Issued {
	at := access.UnixTime(epoch.Unix())
	return access.Issued{
		Label: "for the build",
		Claims: access.Claims{
			Issuer: "local:root", Subject: subject, Audience: access.DefaultAudience, IssuedAt: at, NotBefore: at,
			Expires: at + 3600, ID: id, Via: "cli",
			Scope: access.Scope{
				Agents: []string{}, Tools: []string{"read_*"}, Params: map[string][]any{"corpus": {"a", true}},
				RatePerMinute: 5,
			},
		},
	}
}

// tokens tests a store of tokens. open returns an empty one, which the test's cleanup closes.
func tokens(t *testing.T, open func(t *testing.T) access.Tokens) {
	t.Helper()
	t.Run("a token is kept as issued", func(t *testing.T) {
		s, want := open(t), issued("tok_1", "anna")
		c, err := s.AddToken(t.Context(), want, by)
		if err != nil {
			t.Fatal(err)
		}
		check(t, c, access.TokenIssued, "tok_1")
		want.IssuedBy = by
		got, err := s.Token(t.Context(), "tok_1")
		if err != nil || !cmp.Equal(want, got) {
			t.Errorf("%v (-want +got):\n%s", err, cmp.Diff(want, got))
		}
		if c.Token == nil || !cmp.Equal(*c.Token, got) {
			t.Errorf("the change tells %+v", c.Token)
		}
		_, err = s.Token(t.Context(), "tok_2")
		refused(t, err, toolcrib.CodeNotFound)
	})
	t.Run("numbers of a scope are kept as written", func(t *testing.T) { keepsNumbers(t, open(t)) })
	t.Run("an ID is used once", func(t *testing.T) {
		s := open(t)
		changed(t)(s.AddToken(t.Context(), issued("tok_1", "anna"), by))
		_, err := s.AddToken(t.Context(), issued("tok_1", "bert"), by)
		refused(t, err, toolcrib.CodeConflict)
		if got, err := s.Token(t.Context(), "tok_1"); err != nil || got.Claims.Subject != "anna" {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("bad ones are refused", func(t *testing.T) {
		s, bad := open(t), issued("tok_1", "anna")
		bad.Claims.Expires = bad.Claims.IssuedAt
		_, err := s.AddToken(t.Context(), bad, by)
		refused(t, err, toolcrib.CodeBadRequest)
		_, err = s.AddToken(t.Context(), issued("tok_1", "anna"), "")
		refused(t, err, toolcrib.CodeBadRequest)
	})
	t.Run("revoked once, and for good", func(t *testing.T) { revokes(t, open(t)) })
	t.Run("a removed one was not issued", func(t *testing.T) {
		s := open(t)
		changed(t)(s.AddToken(t.Context(), issued("tok_1", "anna"), by))
		changed(t)(s.AddToken(t.Context(), issued("tok_2", "anna"), by))
		c, err := s.RemoveToken(t.Context(), "tok_1", by)
		if err != nil {
			t.Fatal(err)
		}
		check(t, c, access.TokenRemoved, "tok_1")
		_, err = s.Token(t.Context(), "tok_1")
		refused(t, err, toolcrib.CodeNotFound)
		_, err = s.RemoveToken(t.Context(), "tok_1", by)
		refused(t, err, toolcrib.CodeNotFound)
		if list, err := s.Tokens(t.Context(), "anna", "", 0); err != nil || len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
	})
	t.Run("lists", func(t *testing.T) { listsTokens(t, open(t)) })
}

// keepsNumbers tests that values of parameters are unchanged when they are read: a float cannot
// represent some, and 1.0 is not 1 (access.Scope).
func keepsNumbers(t *testing.T, s access.Tokens) {
	for i, number := range []json.Number{
		"9007199254740993", "10000000000000000000000001", "1.0", "1e2", "1e400", "-0",
		"0.30000000000000004",
	} {
		id := fmt.Sprintf("tok_%d", i)
		want := issued(id, "anna")
		want.Claims.Scope = access.Scope{Params: map[string][]any{"n": {number}}}
		changed(t)(s.AddToken(t.Context(), want, by))
		for range 2 { // the second time it was revoked, and so stored again
			got, err := s.Token(t.Context(), id)
			if err != nil || !cmp.Equal(got.Claims, want.Claims) {
				t.Errorf("%s is read as %v, %v", number, got.Claims.Scope.Params, err)
			}
			args := json.RawMessage(`{"n":` + string(number) + `}`)
			if err := got.Claims.Scope.Covers(access.Target{Tool: "x"}, args); err != nil {
				t.Errorf("%s: %v", args, err)
			}
			changed(t)(s.RevokeToken(t.Context(), id, by))
		}
	}
	if all, err := s.Tokens(t.Context(), "", "", 0); err != nil || len(all) != 7 {
		t.Errorf("%d tokens, %v", len(all), err)
	}
}

func revokes(t *testing.T, s access.Tokens) {
	already := issued("tok_1", "anna")
	already.Revoked, already.RevokedBy = epoch, "somebody" // not set by the caller
	changed(t)(s.AddToken(t.Context(), already, by))
	if got, err := s.Token(t.Context(), "tok_1"); err != nil || !got.Revoked.IsZero() {
		t.Fatalf("%+v, %v", got, err)
	}
	first, err := s.RevokeToken(t.Context(), "tok_1", by)
	if err != nil {
		t.Fatal(err)
	}
	check(t, first, access.TokenRevoked, "tok_1")
	again, err := s.RevokeToken(t.Context(), "tok_1", "local:other")
	if err != nil || again.By != by || !again.At.Equal(first.At) {
		t.Errorf("revoked again: %+v, %v; want the first change", again, err)
	}
	got, err := s.Token(t.Context(), "tok_1")
	if err != nil || !got.Revoked.Equal(first.At) || got.RevokedBy != by {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = s.RevokeToken(t.Context(), "tok_2", by)
	refused(t, err, toolcrib.CodeNotFound)
}

func listsTokens(t *testing.T, s access.Tokens) {
	for i := range 5 {
		changed(t)(s.AddToken(t.Context(), issued(fmt.Sprintf("tok_%d", i), []string{"anna", "bert"}[i%2]), by))
	}
	ids := func(user, after string, limit int) (out []string) {
		list, err := s.Tokens(t.Context(), user, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range list {
			out = append(out, one.Claims.ID)
		}
		return out
	}
	for _, tt := range []struct {
		user, after string
		limit       int
		want        []string
	}{
		{"", "", 0, []string{"tok_0", "tok_1", "tok_2", "tok_3", "tok_4"}},
		{"", "tok_1", 2, []string{"tok_2", "tok_3"}},
		{"anna", "", 0, []string{"tok_0", "tok_2", "tok_4"}},
		{"bert", "tok_1", 9, []string{"tok_3"}},
		{"cleo", "", 0, nil},
	} {
		if got := ids(tt.user, tt.after, tt.limit); !slices.Equal(got, tt.want) {
			t.Errorf("tokens of %q after %q, %d: %q, want %q", tt.user, tt.after, tt.limit, got, tt.want)
		}
	}
}

// removedUsersTokens tests that the tokens of a user are revoked when the user is removed, for a
// store that has both.
func removedUsersTokens(t *testing.T, s interface {
	access.Directory
	access.Tokens
},
) {
	t.Helper()
	addUser(t, s, access.User{Name: "anna"})
	addUser(t, s, access.User{Name: "bert"})
	changed(t)(s.AddToken(t.Context(), issued("tok_1", "anna"), by))
	changed(t)(s.AddToken(t.Context(), issued("tok_2", "bert"), by))
	changed(t)(s.RemoveUser(t.Context(), "anna", by))
	for id, want := range map[string]bool{"tok_1": true, "tok_2": false, "tok_3": true} {
		claims := issued(id, map[bool]string{true: "anna", false: "bert"}[want]).Claims
		if why, err := access.WhyRevoked(t.Context(), s, s, claims); err != nil || (why != "") != want {
			t.Errorf("%s is revoked: %q, %v", id, why, err)
		}
	}
	if got, err := s.Token(t.Context(), "tok_1"); err != nil || got.Revoked.IsZero() {
		t.Errorf("the token of a removed user: %+v, %v", got, err)
	}
	changed(t)(s.AddUser(t.Context(), access.NewUser{User: access.User{Name: "anna"}, Reuse: true}, by))
	if why, err := access.WhyRevoked(t.Context(), s, s, issued("tok_1", "anna").Claims); err != nil || why == "" {
		t.Errorf("a token came back to life with the name: %v", err)
	}
}

// quota tests a quota. open returns one without counts, which the test's cleanup closes.
func quota(t *testing.T, open func(t *testing.T) access.Quota) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, access.Quota){
		"M16 calls a minute":           perMinute,
		"a clock that was far ahead":   wasAhead,
		"the edge of a minute":         edges,
		"what cannot be counted":       impossible,
		"in parallel, never overspent": parallel,
		"a look counts nothing":        looking,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
	t.Run("M16 any calls at any time", func(t *testing.T) { anyCalls(t, open(t)) })
}

// took checks the result of Take; bucket is "" for success.
func took(t *testing.T, err error, bucket string, retry time.Duration) {
	t.Helper()
	var q *access.QuotaError
	switch {
	case bucket == "" && err == nil:
	case bucket != "" && errors.As(err, &q) && q.Bucket == bucket && q.RetryAfter == retry:
	default:
		t.Errorf("got %v, want bucket %q and retry after %s", err, bucket, retry)
	}
}

func perMinute(t *testing.T, q access.Quota) {
	l := access.Limits{PerMinute: 2}
	for _, tt := range []struct {
		second int
		bucket string
		retry  time.Duration
	}{
		{0, "", 0},
		{50, "", 0},
		{59, access.BucketMinute, time.Second},
		{60, "", 0}, // the first one was a minute ago
		{61, access.BucketMinute, 49 * time.Second}, // any 60 seconds, not those of the clock
		{110, "", 0},
		{119, access.BucketMinute, time.Second},
	} {
		took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(time.Duration(tt.second)*time.Second)), tt.bucket, tt.retry)
	}
}

// wasAhead tests that a clock that is ahead for a while does not reset the calls of a token.
func wasAhead(t *testing.T, q access.Quota) {
	l := access.Limits{Total: 2, PerMinute: 2, Expires: epoch.Add(time.Hour)}
	took(t, q.Take(t.Context(), "tok_1", l, epoch), "", 0)
	took(t, q.Take(t.Context(), "tok_1", l, epoch), "", 0)
	took(t, q.Take(t.Context(), "tok_2", access.Limits{Total: 1}, epoch.AddDate(5, 0, 0)), "", 0)
	took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(time.Minute)), access.BucketTotal, 0)
	if left, err := q.Left(t.Context(), "tok_1", l, epoch.Add(time.Minute)); err != nil || left.Total != 0 {
		t.Errorf("%+v, %v", left, err)
	}
}

// edges tests that a call is counted for exactly a minute.
func edges(t *testing.T, q access.Quota) {
	l := access.Limits{PerMinute: 1}
	took(t, q.Take(t.Context(), "tok_1", l, epoch), "", 0)
	took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(access.Minute-1)), access.BucketMinute, 1)
	took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(access.Minute)), "", 0)
	took(t, q.Take(t.Context(), "tok_1", l, epoch.Add(access.Minute)), access.BucketMinute, access.Minute)
}

func impossible(t *testing.T, q access.Quota) {
	for name, err := range map[string]error{
		"no token":     q.Take(t.Context(), "", access.Limits{}, epoch),
		"no time":      q.Take(t.Context(), "tok_1", access.Limits{}, time.Time{}),
		"long ago":     q.Take(t.Context(), "tok_1", access.Limits{}, time.Date(1969, 12, 31, 0, 0, 0, 0, time.UTC)),
		"far ahead":    q.Take(t.Context(), "tok_1", access.Limits{}, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)),
		"negative":     q.Take(t.Context(), "tok_1", access.Limits{Total: -1}, epoch),
		"negative too": q.Take(t.Context(), "tok_1", access.Limits{PerMinute: -1}, epoch),
	} {
		if err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Take(ctx, "tok_1", access.Limits{}, epoch); err == nil {
		t.Error("a context that has ended: taken")
	}
}

func parallel(t *testing.T, q access.Quota) {
	const workers, each, limit = 8, 10, 17
	for _, l := range []access.Limits{{Total: limit}, {PerMinute: limit}} {
		token := fmt.Sprintf("tok_%d", l.Total)
		var all sync.WaitGroup
		var taken, other atomic.Int64
		for range workers {
			all.Go(func() {
				for range each {
					err := q.Take(t.Context(), token, l, epoch)
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
		all.Wait()
		if taken.Load() != limit || other.Load() != 0 {
			t.Errorf("%+v: %d calls were taken, want %d; %d could not be counted", l, taken.Load(), limit, other.Load())
		}
	}
}

// anyCalls compares with a simple count.
func anyCalls(t *testing.T, q access.Quota) {
	round := 0
	rapid.Check(t, func(r *rapid.T) {
		round++
		token := fmt.Sprintf("tok_any_%d", round)
		l := access.Limits{
			PerMinute: rapid.Int64Range(0, 4).Draw(r, "minute"),
			Total:     rapid.Int64Range(0, 8).Draw(r, "total"),
		}
		var kept []time.Time
		at := epoch
		for _, step := range rapid.SliceOfN(rapid.IntRange(-5, 40), 1, 15).Draw(r, "steps") {
			at = at.Add(time.Duration(step) * time.Second)
			now, inMinute := at, int64(0)
			if n := len(kept); n > 0 && kept[n-1].After(now) {
				now = kept[n-1]
			}
			for _, k := range kept {
				if k.After(now.Add(-access.Minute)) {
					inMinute++
				}
			}
			left, err := q.Left(context.Background(), token, l, at)
			if err != nil {
				r.Fatal(err)
			}
			if l.Total > 0 && left.Total != l.Total-int64(len(kept)) || l.PerMinute > 0 && left.Minute != l.PerMinute-inMinute {
				r.Fatalf("%+v at %s after %v: left %+v", l, at, kept, left)
			}
			want := (l.Total == 0 || int64(len(kept)) < l.Total) && (l.PerMinute == 0 || inMinute < l.PerMinute)
			err = q.Take(context.Background(), token, l, at)
			if got := err == nil; got != want {
				r.Fatalf("%+v at %s after %v: taken %v, want %v", l, at, kept, got, want)
			}
			if refusal := left.Refusal(); !sameRefusal(refusal, err) {
				r.Fatalf("%+v at %s after %v: the look said %v, and it was %v", l, at, kept, refusal, err)
			}
			if want {
				kept = append(kept, now)
			}
		}
	})
}

func sameRefusal(a, b error) bool {
	var x, y *access.QuotaError
	if !errors.As(a, &x) || !errors.As(b, &y) {
		return a == nil && b == nil
	}
	return *x == *y
}

func looking(t *testing.T, q access.Quota) {
	l := access.Limits{PerMinute: 2, Total: 3}
	for range 5 {
		left, err := q.Left(t.Context(), "tok_1", l, epoch)
		if err != nil || left.Total != 3 || left.Minute != 2 || left.Refusal() != nil {
			t.Errorf("%+v, %v", left, err)
		}
	}
	for name, bad := range map[string]access.Limits{"negative": {Total: -1}, "negative too": {PerMinute: -1}} {
		if _, err := q.Left(t.Context(), "tok_1", bad, epoch); err == nil {
			t.Errorf("%s: looked", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Left(ctx, "tok_1", l, epoch); err == nil {
		t.Error("a context that has ended: looked")
	}
}
