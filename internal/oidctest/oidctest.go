// Package oidctest has an OpenID Connect provider for tests of signing in.
package oidctest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// ClientID and Secret are those of the server that people sign in to.
const (
	ClientID = "crib"
	Secret   = "sesame-0123456789"
)

// Provider is an OpenID Connect provider, which signs in who at once.
type Provider struct {
	*httptest.Server
	key   *rsa.PrivateKey
	who   map[string]any        // claims of the person at the browser
	codes map[string]url.Values // queries of /authorize

	sync.Mutex // guards the fields below
	Down       bool
	Change     func(claims map[string]any)          // changes those of the next ID token
	Sign       func(claims jwt.MapClaims) string    // signs it in place of the provider
	Asked      map[string]int                       // requests by path
	Answer     func(v url.Values, query url.Values) // changes what the browser brings back
	Info       map[string]any                       // what UserInfo adds
}

// New starts a provider, where ann is at the browser.
func New(t *testing.T) *Provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{key: key, codes: map[string]url.Values{}, Asked: map[string]int{}}
	p.Server = httptest.NewServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.Close)
	p.Is("ann-1", map[string]any{"preferred_username": "ann", "groups": []string{"staff"}})
	return p
}

// Is sets the person at the browser.
func (p *Provider) Is(subject string, claims map[string]any) {
	p.Lock()
	defer p.Unlock()
	p.who, p.Change, p.Sign, p.Answer, p.Info = maps.Clone(claims), nil, nil, nil, nil
	p.who["sub"] = subject
}

// Signed returns claims signed by the provider.
func (p *Provider) Signed(claims jwt.MapClaims) string {
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = "one"
	text, _ := token.SignedString(p.key) // the key is valid
	return text
}

func (p *Provider) serve(w http.ResponseWriter, r *http.Request) {
	p.Lock()
	defer p.Unlock()
	p.Asked[r.URL.Path]++
	if p.Down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	say := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // the client may have gone
	}
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		say(map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
			"jwks_uri": p.URL + "/keys", "end_session_endpoint": p.URL + "/end", "userinfo_endpoint": p.URL + "/info",
			"id_token_signing_alg_values_supported": []string{"RS256", "none", "HS256"},
		})
	case "/keys":
		b64 := base64.RawURLEncoding.EncodeToString
		say(map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256", "n": b64(p.key.N.Bytes()),
			"e": b64(big.NewInt(int64(p.key.E)).Bytes()),
		}}})
	case "/authorize":
		q := r.URL.Query()
		if q.Get("client_id") != ClientID || q.Get("code_challenge_method") != "S256" || q.Get("state") == "" ||
			q.Get("nonce") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		code := rand.Text()
		p.codes[code] = q
		back := url.Values{"code": {code}, "state": {q.Get("state")}}
		if p.Answer != nil {
			p.Answer(back, q)
		}
		http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
	case "/token":
		id, secret, _ := r.BasicAuth()
		q, ok := p.codes[r.PostFormValue("code")]
		delete(p.codes, r.PostFormValue("code"))
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if !ok || id != ClientID || secret != Secret || r.PostFormValue("redirect_uri") != q.Get("redirect_uri") ||
			base64.RawURLEncoding.EncodeToString(sum[:]) != q.Get("code_challenge") {
			w.WriteHeader(http.StatusBadRequest)
			say(map[string]string{"error": "invalid_grant"})
			return
		}
		claims := jwt.MapClaims{
			"iss": p.URL, "aud": ClientID, "exp": time.Now().Add(time.Minute).Unix(), "iat": time.Now().Unix(),
			"nonce": q.Get("nonce"),
			"sid":   "session-1",
		}
		maps.Copy(claims, p.who)
		if p.Change != nil {
			p.Change(claims)
		}
		token := p.Signed(claims)
		if p.Sign != nil {
			token = p.Sign(claims)
		}
		say(map[string]any{"access_token": "at", "token_type": "Bearer", "id_token": token, "expires_in": 60})
	case "/end":
		say("signed out")
	case "/info":
		info := map[string]any{"sub": p.who["sub"]}
		maps.Copy(info, p.Info)
		say(info)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}
