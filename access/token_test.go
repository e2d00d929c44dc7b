package access_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

func noon() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

func seed(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

func newSigner(t testing.TB, b byte) *access.Signer {
	t.Helper()
	s, err := access.NewSigner(seed(b))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func notRevoked(context.Context, access.Claims) (string, error) { return "", nil }

// verifier returns a verifier at some time after noon.
func verifier(s *access.Signer, after time.Duration) *access.Verifier {
	return &access.Verifier{
		Keys: []access.PublicKey{s.Public()}, Audience: access.DefaultAudience, Revoked: notRevoked,
		Now: func() time.Time { return noon().Add(after) },
	}
}

func admin() toolcrib.Principal { return toolcrib.Principal{User: "local:root", Admin: true} }

func issue(t testing.TB, s *access.Signer, r access.Request) (string, access.Claims) {
	t.Helper()
	if r.By.User == "" {
		r.By = admin()
	}
	if r.Subject == "" {
		r.Subject = "anna"
	}
	if r.Via == "" {
		r.Via = "cli"
	}
	token, c, err := s.Issue(r, noon())
	if err != nil {
		t.Fatal(err)
	}
	return token, c
}

func TestM16_IssueAndVerify(t *testing.T) {
	s := newSigner(t, 1)
	token, issued := issue(t, s, access.Request{Scope: access.Scope{
		Agents: []string{"default"}, Tools: []string{"read_*"}, Capabilities: []string{"rag.query@1.0"},
		Params: map[string][]any{"corpus": {"a", "b", 7, true}}, RatePerMinute: 5, MaxCalls: 9,
	}})
	if !strings.HasPrefix(token, "toolcrib_v1_ey") {
		t.Errorf("token %.20s…", token)
	}
	got, err := verifier(s, 0).Verify(t.Context(), token)
	if err != nil || !cmp.Equal(issued, got) {
		t.Errorf("%v (-issued +verified):\n%s", err, cmp.Diff(issued, got))
	}
	if got.Expires.Time() != noon().Add(time.Hour) || got.NotBefore.Time() != noon() || got.IssuedAt.Time() != noon() {
		t.Errorf("times %s, %s, %s", got.IssuedAt.Time(), got.NotBefore.Time(), got.Expires.Time())
	}
	if got.Issuer != "local:root" || got.Subject != "anna" || got.Audience != "toolcrib" || got.Via != "cli" || !strings.HasPrefix(got.ID, "tok_") {
		t.Errorf("claims %+v", got)
	}
	if l := got.Limits(); l.PerMinute != 5 || l.Total != 9 || !l.Expires.Equal(got.Expires.Time()) {
		t.Errorf("limits %+v", l)
	}
	if _, again := issue(t, s, access.Request{}); again.ID == got.ID {
		t.Error("two tokens have one ID")
	}
}

// A token is verified each time; only its signature is not verified again.
func TestM16_VerifyAgain(t *testing.T) {
	s := newSigner(t, 1)
	token, _ := issue(t, s, access.Request{TTL: time.Hour})
	v := verifier(s, 0)
	now, revoked := noon(), ""
	v.Now = func() time.Time { return now }
	v.Revoked = func(context.Context, access.Claims) (string, error) { return revoked, nil }
	want := func(token string, code toolcrib.Code) {
		t.Helper()
		if _, err := v.Verify(t.Context(), token); toolcrib.CodeOf(err) != code {
			t.Errorf("%v, want %q", err, code)
		}
	}
	want(token, "")
	want(token, "")
	other := "A"
	if token[len(token)-2] == 'A' {
		other = "B"
	}
	want(token[:len(token)-2]+other+token[len(token)-1:], toolcrib.CodeTokenInvalid)
	revoked = "it was revoked"
	want(token, toolcrib.CodeTokenRevoked)
	revoked, now = "", noon().Add(time.Hour)
	want(token, toolcrib.CodeTokenExpired)
}

// The claims have the names of M16, and the token is a JSON Web Signature that any
// library can read.
func TestM16_Claims(t *testing.T) {
	s := newSigner(t, 1)
	token, _ := issue(t, s, access.Request{Scope: access.Scope{Capabilities: []string{"rag.query@1.0"}, Params: map[string][]any{"corpus": {"a"}}, RatePerMinute: 1, MaxCalls: 2}})
	parts := strings.Split(strings.TrimPrefix(token, access.TokenPrefix), ".")
	var header, claims map[string]any
	for i, to := range []*map[string]any{&header, &claims} {
		data, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err == nil {
			err = json.Unmarshal(data, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if header["alg"] != "EdDSA" || header["kid"] != s.Public().ID || len(header) != 3 {
		t.Errorf("header %v", header)
	}
	scope, _ := claims["scope"].(map[string]any)
	for _, name := range []string{"iss", "sub", "aud", "iat", "exp", "nbf", "jti", "scope", "issued_via"} {
		if _, ok := claims[name]; !ok {
			t.Errorf("there is no claim %s in %v", name, claims)
		}
	}
	for _, name := range []string{"agents", "tools", "capabilities", "params_constraints", "rate_limit_per_minute", "max_calls_total"} {
		if _, ok := scope[name]; !ok {
			t.Errorf("there is no %s in the scope %v", name, scope)
		}
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || !ed25519.Verify(s.Public().Key, []byte(parts[0]+"."+parts[1]), signature) {
		t.Errorf("the signature is none of the text: %v", err)
	}
}

// The same key file makes the same key everywhere. The vector was made by another
// program.
func TestM16_KeyOfTheKeyFile(t *testing.T) {
	keys, err := store.ParseKeys([]byte("toolcrib keys 1\nroot " + strings.Repeat("0b", 32) + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := access.NewSigner(keys.Derive(access.KeyPurpose))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Public().ID; got != "66298180efd213d6" {
		t.Errorf("key %s", got)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		if got := fmt.Sprintf(verb, s); got != "signer" {
			t.Errorf("%s prints %s", verb, got)
		}
	}
	for _, bad := range [][]byte{nil, {}, seed(1)[1:]} {
		if s, err := access.NewSigner(bad); err == nil {
			t.Errorf("a key of %d bytes signs: %v", len(bad), s)
		}
	}
}

func TestM16_Times(t *testing.T) {
	s := newSigner(t, 1)
	plain, _ := issue(t, s, access.Request{TTL: time.Minute})
	later, _ := issue(t, s, access.Request{TTL: time.Minute, NotBefore: noon().Add(time.Hour)})
	for _, tt := range []struct {
		what, token string
		after       time.Duration
		ok          bool
		words       string
	}{
		{"at once", plain, 0, true, ""},
		{"the last second", plain, time.Minute - 1, true, ""},
		{"expired", plain, time.Minute, false, "expired at"},
		{"long expired", plain, 1000 * time.Hour, false, "expired at"},
		{"by a clock that goes behind", plain, -access.ClockSkew, true, ""},
		{"clock set back", plain, -access.ClockSkew - 1, false, "set the clock"},
		{"clock set back by years", plain, -20000 * time.Hour, false, "set the clock"},
		{"not valid yet", later, time.Hour - 1, false, "will be from 2026-01-02T13:00:00Z"},
		{"valid now", later, time.Hour, true, ""},
		{"over", later, time.Hour + time.Minute, false, "expired at"},
	} {
		_, err := verifier(s, tt.after).Verify(t.Context(), tt.token)
		if tt.ok {
			if err != nil {
				t.Errorf("%s: %v", tt.what, err)
			}
			continue
		}
		refused(t, tt.what, err, toolcrib.CodeTokenExpired)
		if err != nil && !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v; want %q in it", tt.what, err, tt.words)
		}
	}
}

func TestM16_Errors(t *testing.T) {
	s := newSigner(t, 1)
	token, _ := issue(t, s, access.Request{})
	other, _ := issue(t, newSigner(t, 2), access.Request{})
	elsewhere, _ := issue(t, s, access.Request{Audience: "another"})
	broken := verifier(s, 0)
	broken.Revoked = func(context.Context, access.Claims) (string, error) { return "", errors.New("disk") }
	gone := verifier(s, 0)
	gone.Revoked = func(context.Context, access.Claims) (string, error) { return "it is", nil }
	good := verifier(s, 0)
	for _, tt := range []struct {
		what  string
		v     *access.Verifier
		token string
		code  toolcrib.Code
	}{
		{"empty", good, "", toolcrib.CodeTokenInvalid},
		{"only the prefix", good, access.TokenPrefix, toolcrib.CodeTokenInvalid},
		{"no prefix", good, strings.TrimPrefix(token, access.TokenPrefix), toolcrib.CodeTokenInvalid},
		{"another version", good, strings.Replace(token, "_v1_", "_v2_", 1), toolcrib.CodeTokenInvalid},
		{"a password", good, "hunter2", toolcrib.CodeTokenInvalid},
		{"too long", good, token + strings.Repeat("a", access.MaxTokenBytes), toolcrib.CodeTokenInvalid},
		{"four parts", good, token + ".a", toolcrib.CodeTokenInvalid},
		{"line end", good, token + "\n", toolcrib.CodeTokenInvalid},
		{"a line end inside", good, token[:len(token)-5] + "\r\n" + token[len(token)-5:], toolcrib.CodeTokenInvalid},
		{"padding", good, token + "=", toolcrib.CodeTokenInvalid},
		{"another key", good, other, toolcrib.CodeTokenInvalid},
		{"another audience", good, elsewhere, toolcrib.CodeUnauthorized},
		{"revoked", gone, token, toolcrib.CodeTokenRevoked},
		{"nobody knows whether revoked", broken, token, toolcrib.CodeInternal},
		{"zero verifier", &access.Verifier{}, token, toolcrib.CodeInternal},
		{"nil verifier", nil, token, toolcrib.CodeInternal},
		{"no keys", &access.Verifier{Audience: good.Audience, Revoked: good.Revoked, Now: good.Now}, token, toolcrib.CodeTokenInvalid},
	} {
		c, err := tt.v.Verify(t.Context(), tt.token)
		refused(t, tt.what, err, tt.code)
		if !cmp.Equal(c, access.Claims{}) {
			t.Errorf("%s: claims %+v", tt.what, c)
		}
		if err != nil && len(tt.token) > 40 && strings.Contains(err.Error(), tt.token[20:40]) {
			t.Errorf("%s: the error holds a part of the token: %v", tt.what, err)
		}
	}
}

// forge assembles a token, signed with the seed if sign is set.
func forge(header, claims string, sign bool) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	var signature []byte
	if sign {
		signature = ed25519.Sign(ed25519.NewKeyFromSeed(seed(1)), []byte(text))
	}
	return access.TokenPrefix + text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

const goodClaims = `{"iss":"local:root","sub":"anna","aud":"toolcrib","iat":1767355200,"nbf":1767355200,"exp":1767358800,"jti":"tok_1","scope":{"agents":null,"tools":null,"capabilities":null},"issued_via":"cli"}`

func TestM16_AlgorithmConfusion(t *testing.T) {
	s := newSigner(t, 1)
	kid := s.Public().ID
	header := `{"alg":"EdDSA","kid":"` + kid + `","typ":"toolcrib+jwt"}`
	if _, err := verifier(s, 0).Verify(t.Context(), forge(header, goodClaims, true)); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	for what, header := range map[string]string{
		"none":         `{"alg":"none","kid":"` + kid + `","typ":"toolcrib+jwt"}`,
		"HS256":        `{"alg":"HS256","kid":"` + kid + `","typ":"toolcrib+jwt"}`,
		"RS256":        `{"alg":"RS256","kid":"` + kid + `","typ":"toolcrib+jwt"}`,
		"Ed448":        `{"alg":"Ed448","kid":"` + kid + `","typ":"toolcrib+jwt"}`,
		"a number":     `{"alg":1,"kid":"` + kid + `","typ":"toolcrib+jwt"}`,
		"no alg":       `{"kid":"` + kid + `","typ":"toolcrib+jwt"}`,
		"no kid":       `{"alg":"EdDSA","typ":"toolcrib+jwt"}`,
		"kid is a map": `{"alg":"EdDSA","kid":{"a":1},"typ":"toolcrib+jwt"}`,
		"another kid":  `{"alg":"EdDSA","kid":"../../keys","typ":"toolcrib+jwt"}`,
		"JWT":          `{"alg":"EdDSA","kid":"` + kid + `","typ":"JWT"}`,
		"own key":      `{"alg":"EdDSA","kid":"` + kid + `","typ":"toolcrib+jwt","jwk":{"kty":"OKP","crv":"Ed25519"}}`,
		"crit":         `{"alg":"EdDSA","kid":"` + kid + `","typ":"toolcrib+jwt","crit":["b64"],"b64":false}`,
	} {
		for _, sign := range []bool{true, false} {
			_, err := verifier(s, 0).Verify(t.Context(), forge(header, goodClaims, sign))
			refused(t, fmt.Sprintf("%s, signed %v", what, sign), err, toolcrib.CodeTokenInvalid)
		}
	}
	for what, header := range map[string]string{"no JSON": `{`, "a list": `[]`} {
		_, err := verifier(s, 0).Verify(t.Context(), forge(header, goodClaims, true))
		refused(t, what, err, toolcrib.CodeTokenInvalid)
	}
	_, err := verifier(s, 0).Verify(t.Context(), forge(``, goodClaims, true))
	refused(t, "empty", err, toolcrib.CodeTokenInvalid)
}

// Claims that are signed with the right key but are incomplete or unknown.
func TestM16_SignedButNotUnderstood(t *testing.T) {
	s := newSigner(t, 1)
	header := `{"alg":"EdDSA","kid":"` + s.Public().ID + `","typ":"toolcrib+jwt"}`
	for old, to := range map[string]string{
		`"sub":"anna",`:                ``,
		`"sub":"anna"`:                 `"sub":""`,
		`"jti":"tok_1",`:               ``,
		`"exp":1767358800,`:            ``,
		`"exp":1767358800`:             `"exp":1767355200`,
		`"exp":1767358800,"jti"`:       `"exp":9223372036854775807,"jti"`,
		`"iat":1767355200`:             `"iat":0`,
		`"nbf":1767355200`:             `"nbf":1767355199`,
		`"iat":1767355200,`:            `"iat":1767355200.5,`,
		`"scope":{"agents":null`:       `"scope":{"hosts":["a"],"agents":null`,
		`"issued_via"`:                 `"only_from":"10.0.0.0/8","issued_via"`,
		`"tools":null`:                 `"tools":["*"]`,
		`"capabilities":null`:          `"capabilities":["rag.*@1.0"]`,
		`"capabilities":null}`:         `"capabilities":null,"max_calls_total":-1}`,
		`"capabilities":null},`:        `"capabilities":null,"within":[]},`,
		`"aud":"toolcrib"`:             `"aud":["toolcrib","bus"]`,
		`"issued_via":"cli"}`:          `"issued_via":"cli"} `,
		`"capabilities":null},"issued`: `"capabilities":null,"params_constraints":{"a":[{"b":1}]}},"issued`,
	} {
		claims := strings.Replace(goodClaims, old, to, 1)
		if claims == goodClaims {
			t.Fatalf("%s is not there", old)
		}
		_, err := verifier(s, 0).Verify(t.Context(), forge(header, claims, true))
		if to == `"issued_via":"cli"} ` { // a space after it is JSON anyway
			if err != nil {
				t.Errorf("%s: %v", to, err)
			}
			continue
		}
		refused(t, to, err, toolcrib.CodeTokenInvalid)
	}
	_, err := verifier(s, 0).Verify(t.Context(), forge(header, ``, true))
	refused(t, "empty", err, toolcrib.CodeTokenInvalid)
	for _, claims := range []string{`{`, goodClaims + goodClaims, `null`, `[]`, `"a"`, `{}`} {
		_, err := verifier(s, 0).Verify(t.Context(), forge(header, claims, true))
		refused(t, claims, err, toolcrib.CodeTokenInvalid)
	}
}

func TestM16_CutOrChangedAnywhere(t *testing.T) {
	s := newSigner(t, 1)
	token, _ := issue(t, s, access.Request{Scope: access.Scope{Tools: []string{"read_*"}}})
	v := verifier(s, 0)
	for i := range token {
		if c, err := v.Verify(t.Context(), token[:i]); err == nil {
			t.Fatalf("cut at %d: %+v", i, c)
		}
		if c, err := v.Verify(t.Context(), token[i+1:]); err == nil {
			t.Fatalf("cut up to %d: %+v", i, c)
		}
		for _, b := range []byte("A_-.z9 \n\x00\xff") {
			changed := token[:i] + string(b) + token[i+1:]
			if c, err := v.Verify(t.Context(), changed); err == nil && changed != token {
				t.Fatalf("changed at %d to %q: %+v", i, b, c)
			}
			if c, err := v.Verify(t.Context(), token[:i]+string(b)+token[i:]); err == nil {
				t.Fatalf("%q put in at %d: %+v", b, i, c)
			}
		}
	}
}

func TestM16_AnyChange(t *testing.T) {
	s := newSigner(t, 1)
	token, _ := issue(t, s, access.Request{})
	other, _ := issue(t, s, access.Request{Subject: "bert"})
	v := verifier(s, 0)
	rapid.Check(t, func(r *rapid.T) {
		changed := []byte(token)
		switch rapid.IntRange(0, 2).Draw(r, "kind") {
		case 0:
			changed[rapid.IntRange(0, len(changed)-1).Draw(r, "at")] = rapid.Byte().Draw(r, "byte")
		case 1: // parts of two valid tokens
			a, b := strings.Split(token, "."), strings.Split(other, ".")
			for i := range a {
				if rapid.Bool().Draw(r, "other") {
					a[i] = b[i]
				}
			}
			changed = []byte(strings.Join(a, "."))
		default:
			from := rapid.IntRange(0, len(changed)-1).Draw(r, "from")
			to := rapid.IntRange(from, len(changed)).Draw(r, "to")
			changed = append(bytes.Clone(changed[:from]), changed[to:]...)
		}
		if c, err := v.Verify(context.Background(), string(changed)); err == nil && string(changed) != token && string(changed) != other {
			r.Fatalf("%s was taken as %+v", changed, c)
		}
	})
}

// A token with one changed character still has the form of a token, and is
// rejected for its signature with an error that does not reveal the position, unless the change
// breaks the form: the prefix, or the number of parts.
func TestM16_EachCharacterChanged(t *testing.T) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	s := newSigner(t, 1)
	token, _ := issue(t, s, access.Request{})
	v := verifier(s, 0)
	said := map[string]bool{}
	for at := range len(token) {
		for k, to := range []byte(alphabet + ".=+/ \n") {
			if token[at] == to || testing.Short() && (at+k)%7 != 0 {
				continue
			}
			changed := token[:at] + string(to) + token[at+1:]
			misshapen := at < len(access.TokenPrefix) || token[at] == '.' || strings.IndexByte(alphabet, to) < 0
			c, err := v.Verify(t.Context(), changed)
			refused(t, fmt.Sprintf("%q at %d", to, at), err, toolcrib.CodeTokenInvalid)
			if !cmp.Equal(c, access.Claims{}) {
				t.Errorf("%q at %d: claims %+v", to, at, c)
			}
			if err != nil && !misshapen {
				said[err.Error()] = true
			}
		}
	}
	if len(said) != 1 {
		t.Errorf("it is told in %d ways what was changed: %v", len(said), said)
	}
	for _, cut := range []string{token[:len(token)-1], token[:len(token)-2], token[:strings.LastIndexByte(token, '.')+1], token + "A", access.TokenPrefix + "a.b.c"} {
		_, err := v.Verify(t.Context(), cut)
		refused(t, "cut", err, toolcrib.CodeTokenInvalid)
	}
	for _, none := range []string{access.TokenPrefix + "..", access.TokenPrefix + "a..", access.TokenPrefix + ".b.c", access.TokenPrefix + "a.b"} {
		_, err := v.Verify(t.Context(), none)
		refused(t, none, err, toolcrib.CodeTokenInvalid)
	}
}

// If there are several keys, the header must name the one that signed.
func TestM16_NamesAnotherKey(t *testing.T) {
	one, two := newSigner(t, 1), newSigner(t, 2)
	v := verifier(one, 0)
	v.Keys = append(v.Keys, two.Public())
	for _, s := range []*access.Signer{one, two} {
		token, _ := issue(t, s, access.Request{})
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Errorf("signed by %s: %v", s.Public().ID, err)
		}
	}
	header := `{"alg":"EdDSA","kid":"` + two.Public().ID + `","typ":"toolcrib+jwt"}`
	_, err := v.Verify(t.Context(), forge(header, goodClaims, true))
	refused(t, "names the other key", err, toolcrib.CodeTokenInvalid)
}

func TestM16_WhoMayIssue(t *testing.T) {
	s := newSigner(t, 1)
	anna := toolcrib.Principal{User: "anna"}
	for _, tt := range []struct {
		what string
		r    access.Request
		code toolcrib.Code
		sub  string
	}{
		{"an administrator, for anybody", access.Request{By: admin(), Subject: "anna"}, "", "anna"},
		{"an administrator, for a bearer", access.Request{By: admin(), Subject: access.Bearer}, "", "*"},
		{"a user, for themselves", access.Request{By: anna, Subject: "anna"}, "", "anna"},
		{"a user, for nobody named", access.Request{By: anna}, "", "anna"},
		{"a user, for another one", access.Request{By: anna, Subject: "bert"}, toolcrib.CodeForbidden, ""},
		{"a user, for a bearer", access.Request{By: anna, Subject: access.Bearer}, toolcrib.CodeForbidden, ""},
		{"nobody", access.Request{Subject: "anna"}, toolcrib.CodeUnauthorized, ""},
		{"a token, for its user", access.Request{By: toolcrib.Principal{User: "anna", Token: "tok_1"}}, toolcrib.CodeForbidden, ""},
		{"a token of an administrator", access.Request{By: toolcrib.Principal{User: "root", Admin: true, Token: "tok_1"}, Subject: "anna"}, toolcrib.CodeForbidden, ""},
		{"for who sits at the keyboard", access.Request{By: admin()}, toolcrib.CodeBadRequest, ""},
		{"for no name", access.Request{By: admin(), Subject: "a b"}, toolcrib.CodeBadRequest, ""},
		{"too short", access.Request{By: admin(), Subject: "anna", TTL: time.Millisecond}, toolcrib.CodeBadRequest, ""},
		{"negative", access.Request{By: admin(), Subject: "anna", TTL: -time.Hour}, toolcrib.CodeBadRequest, ""},
		{"too long", access.Request{By: admin(), Subject: "anna", TTL: access.MaxTTL + time.Second}, toolcrib.CodeBadRequest, ""},
		{"too late", access.Request{By: admin(), Subject: "anna", NotBefore: noon().Add(2 * access.MaxTTL)}, toolcrib.CodeBadRequest, ""},
		{"a bad scope", access.Request{By: admin(), Subject: "anna", Scope: access.Scope{Tools: []string{"*"}}}, toolcrib.CodeBadRequest, ""},
		{"a large scope", access.Request{By: admin(), Subject: "anna", Scope: access.Scope{Params: map[string][]any{"a": {strings.Repeat("x", 1000), strings.Repeat("y", 1000)}, "b": {strings.Repeat("x", 1000), strings.Repeat("y", 1000), strings.Repeat("z", 1000)}}}}, toolcrib.CodeBadRequest, ""},
	} {
		tt.r.Via = "cli"
		token, c, err := s.Issue(tt.r, noon())
		if tt.code == "" {
			if err != nil || c.Subject != tt.sub || c.Issuer != tt.r.By.User {
				t.Errorf("%s: %+v, %v", tt.what, c, err)
			}
			continue
		}
		if refused(t, tt.what, err, tt.code); token != "" {
			t.Errorf("%s: there is a token", tt.what)
		}
	}
}

func TestM16_ActsFor(t *testing.T) {
	for _, tt := range []struct {
		subject, caller, want string
	}{
		{"anna", "", "anna"},
		{"anna", "anna", "anna"},
		{"anna", "bert", ""},
		{access.Bearer, "bert", "bert"},
		{access.Bearer, "", ""},
		{"", "", ""},
		{"", "bert", ""},
	} {
		got, err := access.Claims{Subject: tt.subject}.ActsFor(tt.caller)
		if got != tt.want {
			t.Errorf("%q presented by %q acts for %q", tt.subject, tt.caller, got)
		}
		if tt.want == "" {
			refused(t, tt.subject+" by "+tt.caller, err, toolcrib.CodeUnauthorized)
		}
	}
}

// people opens an empty directory.
func people(t *testing.T) store.People {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Access()
}

func TestM16_WhyRevoked(t *testing.T) {
	m := people(t)
	s := newSigner(t, 1)
	for _, name := range []string{"anna", "bert"} {
		if _, err := m.AddUser(t.Context(), access.NewUser{User: access.User{Name: name, Admin: true}}, "local:root"); err != nil {
			t.Fatal(err)
		}
	}
	v := verifier(s, 0)
	v.Revoked = func(ctx context.Context, c access.Claims) (string, error) { return access.WhyRevoked(ctx, m, m, c) }
	token, c := issue(t, s, access.Request{By: toolcrib.Principal{User: "bert", Admin: true}, Subject: "anna"})
	_, err := v.Verify(t.Context(), token)
	refused(t, "never kept", err, toolcrib.CodeTokenRevoked)
	if _, err := m.AddToken(t.Context(), access.Issued{Claims: c}, "bert"); err != nil {
		t.Fatal(err)
	}
	check := func(what string, good bool) {
		t.Helper()
		_, err := v.Verify(t.Context(), token)
		if good && err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if !good {
			refused(t, what, err, toolcrib.CodeTokenRevoked)
		}
	}
	check("kept", true)
	yes, no := true, false
	for _, name := range []string{"anna", "bert"} {
		for _, to := range []*bool{&yes, &no} {
			if _, err := m.EditUser(t.Context(), name, access.Edit{Disabled: to}, "local:root"); err != nil {
				t.Fatal(err)
			}
			check(fmt.Sprintf("%s disabled: %v", name, *to), !*to)
		}
	}
	if _, err := m.RemoveUser(t.Context(), "bert", "local:root"); err != nil {
		t.Fatal(err)
	}
	check("the issuer was removed", false)
	local, c := issue(t, s, access.Request{Subject: "anna"})
	if _, err := m.AddToken(t.Context(), access.Issued{Claims: c}, "local:root"); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), local); err != nil {
		t.Errorf("issued by who sits at the keyboard: %v", err)
	}
	if _, err := m.RevokeToken(t.Context(), c.ID, "local:root"); err != nil {
		t.Fatal(err)
	}
	_, err = v.Verify(t.Context(), local)
	refused(t, "revoked", err, toolcrib.CodeTokenRevoked)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = v.Verify(ctx, local)
	refused(t, "the store cannot be asked", err, toolcrib.CodeInternal)
}

// Setting back the clock does not revive an expired token.
func TestM16_ClockSetBack(t *testing.T) {
	now := noon()
	clock := access.NewClock(func() time.Time { return now }, time.Time{})
	s := newSigner(t, 1)
	token, _ := issue(t, s, access.Request{TTL: time.Minute})
	v := verifier(s, 0)
	v.Now = clock.Now
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	now = noon().Add(time.Minute)
	_, err := v.Verify(t.Context(), token)
	refused(t, "expired", err, toolcrib.CodeTokenExpired)
	now = noon()
	_, err = v.Verify(t.Context(), token)
	refused(t, "expired, and the clock set back", err, toolcrib.CodeTokenExpired)
	v.Now = access.NewClock(func() time.Time { return noon() }, noon().Add(time.Hour)).Now
	_, err = v.Verify(t.Context(), token)
	refused(t, "after a restart", err, toolcrib.CodeTokenExpired)
	if got := access.NewClock(nil, time.Time{}).Now(); got.IsZero() {
		t.Error("the real clock stands at zero")
	}
}

func FuzzM16_Verify(f *testing.F) {
	s := newSigner(f, 1)
	token, _ := issue(f, s, access.Request{})
	f.Add(token)
	f.Add(forge(`{"alg":"EdDSA","kid":"`+s.Public().ID+`","typ":"toolcrib+jwt"}`, goodClaims, false))
	f.Add(access.TokenPrefix + "e30.e30.")
	f.Add("")
	v := verifier(s, 0)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := v.Verify(t.Context(), text)
		var e *toolcrib.Error
		switch {
		case err == nil && c.Subject == "anna" && c.Issuer == "local:root": // issued by another process of this test
		case err == nil || !errors.As(err, &e):
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	})
}

func BenchmarkM16_Verify(b *testing.B) {
	s := newSigner(b, 1)
	token, _ := issue(b, s, access.Request{Scope: access.Scope{Tools: []string{"read_*"}, Params: map[string][]any{"corpus": {"a"}}}})
	v := verifier(s, 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(b.Context(), token); err != nil {
			b.Fatal(err)
		}
	}
}

// A token without a lifetime of its own ends with the token that asks for it, also if that is a second older.
func TestM16_DefaultLifetimeOfMade(t *testing.T) {
	s := newSigner(t, 1)
	_, maker := issue(t, s, access.Request{By: toolcrib.Principal{User: "anna"}})
	r := access.Request{By: toolcrib.Principal{User: "anna", Token: maker.ID}, Subject: "anna", Via: "api", Maker: &maker}
	_, made, err := s.Issue(r, noon().Add(time.Second))
	if err != nil || made.Expires != maker.Expires {
		t.Errorf("expires %v, not %v; %v", made.Expires, maker.Expires, err)
	}
	r.TTL = time.Hour
	_, _, err = s.Issue(r, noon().Add(time.Second))
	refused(t, "a later end", err, toolcrib.CodeBadRequest)
	r.TTL = 0
	_, _, err = s.Issue(r, maker.Expires.Time())
	refused(t, "after the end of its maker", err, toolcrib.CodeBadRequest)
}
