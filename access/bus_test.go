package access_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// Keys of nodes.
var (
	issuer = strings.Repeat("A", 43)
	bearer = strings.Repeat("B", 43)
)

func forBus() access.Request {
	return access.Request{
		By: admin(), Issuer: issuer, Subject: bearer, Audience: access.BusAudience, Via: "cli", Scope: access.Scope{
			Capabilities: []string{"rag.query@1.0"}, Params: map[string][]any{"corpus": {"notes"}}, RatePerMinute: 5, MaxCalls: 9,
		},
	}
}

func busVerifier(s *access.Signer, after time.Duration) *access.Verifier {
	v := verifier(s, after)
	v.Audience = access.BusAudience
	return v
}

func TestM16_TokenOfTheBus(t *testing.T) {
	s := newSigner(t, 1)
	token, issued := issue(t, s, forBus())
	got, err := busVerifier(s, 0).Verify(t.Context(), token)
	if err != nil || !cmp.Equal(issued, got) {
		t.Fatalf("%v (-issued +verified):\n%s", err, cmp.Diff(issued, got))
	}
	parts := strings.Split(strings.TrimPrefix(token, "hntoken://v1/"), ".")
	if len(parts) != 3 || strings.HasPrefix(parts[0], "hntoken") {
		t.Fatalf("token %s", token)
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Iss, Sub, Aud, Jti string
		Iat, Nbf, Exp      int64
		Scope              struct {
			Capabilities []string         `json:"capabilities"`
			Params       map[string][]any `json:"params_constraints"`
			Rate         int64            `json:"rate_limit_per_minute"`
			Calls        int64            `json:"max_calls_total"`
		}
		Via string `json:"issued_via"`
	}
	if err := json.Unmarshal(raw, &claims); err != nil {
		t.Fatal(err)
	}
	if claims.Iss != issuer || claims.Sub != bearer || claims.Aud != "bus" || claims.Jti != got.ID || claims.Via != "cli" ||
		claims.Exp-claims.Iat != 3600 || claims.Nbf != claims.Iat {
		t.Errorf("claims %s", raw)
	}
	if sc := claims.Scope; !cmp.Equal(sc.Capabilities, []string{"rag.query@1.0"}) || sc.Rate != 5 || sc.Calls != 9 ||
		!cmp.Equal(sc.Params, map[string][]any{"corpus": {"notes"}}) {
		t.Errorf("scope %s", raw)
	}
	if shown, err := access.ReadUnverified(token, access.BusAudience); err != nil || shown.ID != got.ID {
		t.Errorf("unverified %+v, %v", shown, err)
	}
}

// The error map of HearthNet's M16. The codes of revoked issuers and of scopes are tested where they are decided.
func TestM16_ErrorsOfTheBus(t *testing.T) {
	s := newSigner(t, 1)
	token, _ := issue(t, s, forBus())
	signed := strings.TrimPrefix(token, access.BusPrefix)
	if _, err := access.ReadUnverified(access.BusPrefix+"a.b.c", access.BusAudience); toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
		t.Errorf("malformed parts: %v", err)
	}
	plain, _ := issue(t, s, access.Request{})
	later := forBus()
	later.NotBefore = noon().Add(time.Hour)
	notYet, _ := issue(t, s, later)
	other, _ := issue(t, newSigner(t, 2), forBus())
	revoked := busVerifier(s, 0)
	revoked.Revoked = func(context.Context, access.Claims) (string, error) { return "it is", nil }
	for _, tt := range []struct {
		what  string
		v     *access.Verifier
		token string
		code  toolcrib.Code
	}{
		{"empty", busVerifier(s, 0), "", toolcrib.CodeBadRequest},
		{"a password", busVerifier(s, 0), "hunter2", toolcrib.CodeBadRequest},
		{"cut", busVerifier(s, 0), token[:60], toolcrib.CodeBadRequest},
		{"too long", busVerifier(s, 0), token + strings.Repeat("a", access.MaxTokenBytes), toolcrib.CodeBadRequest},
		{"another signature", busVerifier(s, 0), other, toolcrib.CodeTokenInvalid},
		{"no signature", busVerifier(s, 0), token[:strings.LastIndex(token, ".")+1], toolcrib.CodeTokenInvalid},
		{"expired", busVerifier(s, time.Hour), token, toolcrib.CodeTokenExpired},
		{"not yet", busVerifier(s, 0), notYet, toolcrib.CodeTokenExpired},
		{"an access token with the other prefix", busVerifier(s, 0), access.BusPrefix + strings.TrimPrefix(plain, access.TokenPrefix), toolcrib.CodeUnauthorized},
		{"an access token", busVerifier(s, 0), plain, toolcrib.CodeBadRequest},
		{"as an access token", verifier(s, 0), access.TokenPrefix + signed, toolcrib.CodeUnauthorized},
		{"where access tokens are expected", verifier(s, 0), token, toolcrib.CodeTokenInvalid},
		{"revoked", revoked, token, toolcrib.CodeTokenRevoked},
	} {
		c, err := tt.v.Verify(t.Context(), tt.token)
		refused(t, tt.what, err, tt.code)
		if !cmp.Equal(c, access.Claims{}) {
			t.Errorf("%s: claims %+v", tt.what, c)
		}
	}
}

// A token that is changed at any byte never passes.
func TestM16_TokenOfTheBusChangedAtEachByte(t *testing.T) {
	s := newSigner(t, 1)
	token, _ := issue(t, s, forBus())
	v := busVerifier(s, 0)
	for i := range len(token) {
		for _, to := range []byte{token[i] ^ 1, token[i] ^ 0x20, token[i] ^ 0x80, 'A', '_', '.', 0} {
			if to == token[i] {
				continue
			}
			changed := token[:i] + string([]byte{to}) + token[i+1:]
			if _, err := v.Verify(t.Context(), changed); err == nil {
				t.Fatalf("byte %d as %q passes: %s", i, to, changed)
			}
		}
		if _, err := v.Verify(t.Context(), token[:i]); err == nil {
			t.Fatalf("the first %d bytes pass", i)
		}
		if _, err := v.Verify(t.Context(), token[:i]+token[i+1:]); err == nil {
			t.Fatalf("without byte %d it passes", i)
		}
	}
	if _, err := v.Verify(t.Context(), token); err != nil {
		t.Fatal(err)
	}
}

func TestM16_WhoMayIssueForTheBus(t *testing.T) {
	s := newSigner(t, 1)
	for what, tt := range map[string]struct {
		change func(*access.Request)
		code   toolcrib.Code
	}{
		"by a token": {func(r *access.Request) { r.By.Token = "tok_1" }, toolcrib.CodeForbidden},
		"by a token, with its claims": {func(r *access.Request) {
			r.By.Token, r.Maker = "tok_1", &access.Claims{ID: "tok_1", Expires: 1 << 40}
		}, toolcrib.CodeForbidden},
		"no administrator":   {func(r *access.Request) { r.By.Admin = false }, toolcrib.CodeForbidden},
		"nobody":             {func(r *access.Request) { r.By.User = "" }, toolcrib.CodeUnauthorized},
		"no issuer":          {func(r *access.Request) { r.Issuer = "" }, toolcrib.CodeBadRequest},
		"for nobody":         {func(r *access.Request) { r.Subject = "" }, toolcrib.CodeBadRequest},
		"no capabilities":    {func(r *access.Request) { r.Scope.Capabilities = nil }, toolcrib.CodeBadRequest},
		"nothing":            {func(r *access.Request) { r.Scope.Capabilities = []string{} }, toolcrib.CodeBadRequest},
		"a tool":             {func(r *access.Request) { r.Scope.Tools = []string{"read_file"} }, toolcrib.CodeBadRequest},
		"an agent":           {func(r *access.Request) { r.Scope.Agents = []string{"default"} }, toolcrib.CodeBadRequest},
		"all of the rights":  {func(r *access.Request) { r.Scope = access.Scope{SignIn: true} }, toolcrib.CodeBadRequest},
		"no version":         {func(r *access.Request) { r.Scope.Capabilities = []string{"rag.query"} }, toolcrib.CodeBadRequest},
		"a lifetime of ages": {func(r *access.Request) { r.TTL = 2 * access.MaxTTL }, toolcrib.CodeBadRequest},
	} {
		r := forBus()
		tt.change(&r)
		token, _, err := s.Issue(r, noon())
		refused(t, what, err, tt.code)
		if token != "" {
			t.Errorf("%s: a token", what)
		}
	}
}
