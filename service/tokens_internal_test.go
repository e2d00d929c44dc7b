package service

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// Of tokens that were issued within one second the one that was issued last comes first,
// whatever their IDs are.
func TestM16_TokensNewestFirst(t *testing.T) {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Access().AddUser(t.Context(), access.NewUser{User: access.User{Name: "anna"}}, "local:root"); err != nil {
		t.Fatal(err)
	}
	const n = 60
	var issued []access.Issued
	for i, at := range rand.Perm(n) {
		one := access.Issued{Claims: access.Claims{
			Issuer: "local:root", Subject: "anna", Audience: access.DefaultAudience, ID: fmt.Sprintf("tok_%03d", at), Via: "cli",
			IssuedAt: access.UnixTime(1767355200 + i/20), NotBefore: access.UnixTime(1767355200 + i/20), Expires: 1767358800,
		}}
		if _, err := s.Access().AddToken(t.Context(), one, "local:root"); err != nil {
			t.Fatal(err)
		}
		issued = append(issued, one)
	}
	list, err := s.Access().Tokens(t.Context(), "", "", 0)
	if err != nil || len(list) != n {
		t.Fatalf("%d tokens, %v", len(list), err)
	}
	if err := (&Service{folder: &folder{store: s}}).newestFirst(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i, got := range list {
		if want := issued[n-1-i].Claims.ID; got.Claims.ID != want {
			t.Fatalf("place %d: %s, want %s", i, got.Claims.ID, want)
		}
	}
}
