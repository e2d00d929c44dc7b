package people_test

import (
	"slices"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/service/people"
)

// Tokens that users have made are removed a month after they have become invalid. Those of administrators and those
// that sign in stay.
func TestOwnTokens_Removed(t *testing.T) {
	p := opened(t, t.TempDir(), "anna")
	forward := stopped(p)
	ctx, anna := t.Context(), toolcrib.Principal{User: "anna"}
	issue := func(label string) people.Token {
		t.Helper()
		v, err := p.CreateOwnToken(ctx, anna, people.TokenRequest{Label: label, TTL: time.Hour, Via: "api"})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	labels := func() (all []string) {
		t.Helper()
		list, err := p.OwnTokens(ctx, anna)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range list {
			all = append(all, v.Label)
		}
		return all
	}
	for label, scope := range map[string]access.Scope{"given": {}, "signs in": {SignIn: true}} {
		q := people.TokenRequest{User: "anna", Label: label, Scope: scope, TTL: time.Hour, Via: "cli"}
		if _, err := p.CreateToken(ctx, root, q); err != nil {
			t.Fatal(err)
		}
		forward(time.Second)
	}
	given := labels()
	issue("first")
	forward(time.Second)
	issue("second")
	forward(29 * 24 * time.Hour)
	issue("third")
	if got := labels(); !slices.Equal(got, append([]string{"third", "second", "first"}, given...)) {
		t.Errorf("after 29 days: %v", got)
	}
	forward(2 * 24 * time.Hour)
	if err := p.Upkeep(ctx); err != nil {
		t.Fatal(err)
	}
	if got := labels(); !slices.Equal(got, append([]string{"third"}, given...)) {
		t.Errorf("after 31 days: %v", got)
	}
}

// However many a user makes and revokes, few are kept.
func TestOwnTokens_Bounded(t *testing.T) {
	p := opened(t, t.TempDir(), "anna")
	ctx, anna := t.Context(), toolcrib.Principal{User: "anna"}
	for range 205 {
		v, err := p.CreateOwnToken(ctx, anna, people.TokenRequest{Via: "api"})
		if err == nil {
			_, err = p.RevokeOwnToken(ctx, anna, v.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if list, err := p.OwnTokens(ctx, anna); err != nil || len(list) != 201 { // the last was revoked after it was made
		t.Errorf("%d tokens, %v", len(list), err)
	}
}

// A changed password leaves one's tokens, until one revokes them all. What asks by one of them keeps that one.
func TestOwnTokens_Revoked(t *testing.T) {
	p := opened(t, t.TempDir(), "anna", "bob")
	ctx := t.Context()
	scope := access.Scope{SignIn: true}
	token, err := p.CreateToken(ctx, root, people.TokenRequest{User: "anna", Scope: scope, Via: "cli"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := p.CreateToken(ctx, root, people.TokenRequest{User: "bob", Scope: scope, Via: "cli"})
	if err != nil {
		t.Fatal(err)
	}
	anna, err := p.ActBy(ctx, "", token.Token)
	if err != nil {
		t.Fatal(err)
	}
	var mine []people.Token
	for range 3 {
		v, err := p.CreateOwnToken(ctx, anna, people.TokenRequest{Via: "api"})
		if err != nil {
			t.Fatal(err)
		}
		mine = append(mine, v)
	}
	if err := p.ChangePassword(ctx, anna, "192.0.2.1", password, "another good password", ""); err != nil {
		t.Fatal(err)
	}
	if left, err := p.ValidTokens(ctx, anna); err != nil || len(left) != 4 {
		t.Fatalf("%d tokens, %v", len(left), err)
	}
	if n, err := p.RevokeOwnTokens(ctx, anna); err != nil || n != 3 {
		t.Fatalf("%d revoked, %v", n, err)
	}
	for _, v := range mine {
		if code := codeOf(p.ActBy(ctx, "", v.Token)); code != toolcrib.CodeTokenRevoked {
			t.Error(code)
		}
	}
	for _, v := range []people.Token{token, other} {
		if _, err := p.ActBy(ctx, "", v.Token); err != nil {
			t.Error(err)
		}
	}
	if left, err := p.ValidTokens(ctx, anna); err != nil || len(left) != 1 || left[0].ID != token.ID {
		t.Errorf("%+v, %v", left, err)
	}
}
