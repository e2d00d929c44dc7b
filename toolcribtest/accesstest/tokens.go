package accesstest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// epoch is some time.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func issued(id, subject string) access.Issued {
	at := access.UnixTime(epoch.Unix())
	return access.Issued{
		Label: "for the build",
		Claims: access.Claims{
			Issuer: "local:root", Subject: subject, Audience: access.DefaultAudience, IssuedAt: at, NotBefore: at, Expires: at + 3600, ID: id, Via: "cli",
			Scope: access.Scope{Agents: []string{}, Tools: []string{"read_*"}, Params: map[string][]any{"corpus": {"a", true}}, RatePerMinute: 5},
		},
	}
}

// RunTokens checks a store of tokens. open returns an empty one, which is closed by
// the test's cleanup.
func RunTokens(t *testing.T, open func(t *testing.T) access.Tokens) {
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
		done(t)(s.AddToken(t.Context(), issued("tok_1", "anna"), by))
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
	t.Run("lists", func(t *testing.T) { listsTokens(t, open(t)) })
}

// keepsNumbers checks that a value of a parameter is not another one when it is read:
// a float has no room for some, and 1.0 is not 1 (access.Scope).
func keepsNumbers(t *testing.T, s access.Tokens) {
	for i, number := range []json.Number{"9007199254740993", "10000000000000000000000001", "1.0", "1e2", "1e400", "-0", "0.30000000000000004"} {
		id := fmt.Sprintf("tok_%d", i)
		want := issued(id, "anna")
		want.Claims.Scope = access.Scope{Params: map[string][]any{"n": {number}}}
		done(t)(s.AddToken(t.Context(), want, by))
		for range 2 { // the second time it was revoked, and so written again
			got, err := s.Token(t.Context(), id)
			if err != nil || !cmp.Equal(got.Claims, want.Claims) {
				t.Errorf("%s is read as %v, %v", number, got.Claims.Scope.Params, err)
			}
			args := json.RawMessage(`{"n":` + string(number) + `}`)
			if err := got.Claims.Scope.Covers(access.Target{Tool: "x"}, args); err != nil {
				t.Errorf("%s: %v", args, err)
			}
			done(t)(s.RevokeToken(t.Context(), id, by))
		}
	}
	if all, err := s.Tokens(t.Context(), "", "", 0); err != nil || len(all) != 7 {
		t.Errorf("%d tokens, %v", len(all), err)
	}
}

func revokes(t *testing.T, s access.Tokens) {
	already := issued("tok_1", "anna")
	already.Revoked, already.RevokedBy = epoch, "somebody" // not for the caller to say
	done(t)(s.AddToken(t.Context(), already, by))
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
		done(t)(s.AddToken(t.Context(), issued(fmt.Sprintf("tok_%d", i), []string{"anna", "bert"}[i%2]), by))
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

// RunRemovedUsersTokens checks that the tokens of a user are revoked when the user is
// removed, for a store that keeps both.
func RunRemovedUsersTokens(t *testing.T, s interface {
	access.Directory
	access.Tokens
},
) {
	t.Helper()
	add(t, s, access.User{Name: "anna"})
	add(t, s, access.User{Name: "bert"})
	done(t)(s.AddToken(t.Context(), issued("tok_1", "anna"), by))
	done(t)(s.AddToken(t.Context(), issued("tok_2", "bert"), by))
	done(t)(s.RemoveUser(t.Context(), "anna", by))
	for id, want := range map[string]bool{"tok_1": true, "tok_2": false, "tok_3": true} {
		claims := issued(id, map[bool]string{true: "anna", false: "bert"}[want]).Claims
		if why, err := access.WhyRevoked(t.Context(), s, s, claims); err != nil || (why != "") != want {
			t.Errorf("%s is revoked: %q, %v", id, why, err)
		}
	}
	if got, err := s.Token(t.Context(), "tok_1"); err != nil || got.Revoked.IsZero() {
		t.Errorf("the token of a removed user: %+v, %v", got, err)
	}
	done(t)(s.AddUser(t.Context(), access.NewUser{User: access.User{Name: "anna"}, Reuse: true}, by))
	if why, err := access.WhyRevoked(t.Context(), s, s, issued("tok_1", "anna").Claims); err != nil || why == "" {
		t.Errorf("a token came back to life with the name: %v", err)
	}
}
