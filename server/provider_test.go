package server_test

import (
	"crypto/rand"
	"crypto/rsa"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/oidctest"
	"github.com/toolcrib/toolcrib/store"
)

// byProvider opens a server whose people sign in by a provider.
func byProvider(t *testing.T, more string) (*house, *oidctest.Provider) {
	t.Helper()
	p := oidctest.New(t)
	h := open(t, "server: {oidc: {issuer: '"+p.URL+"', client_id: crib, client_secret: sesame-0123456789"+more+"}}\n")
	return h, p
}

// jar is a browser that follows redirects and keeps cookies by their names.
type jar struct {
	*house
	cookies map[string]string
}

func (h *house) jar() *jar { return &jar{house: h, cookies: map[string]string{}} }

func (j *jar) get(at string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(j.t.Context(), "GET", at, nil)
	if err != nil {
		return nil, err
	}
	for name, value := range j.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_ = res.Body.Close()
	for _, c := range res.Cookies() {
		if j.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(j.cookies, c.Name)
		}
	}
	return res, nil
}

// signIn goes the whole way, and returns the status of the end and where it leads.
func (j *jar) signIn() (int, string) {
	j.t.Helper()
	at := j.url + "/api/oidc?next=/runs?status=failed"
	for range 5 {
		res, err := j.get(at)
		if err != nil {
			j.t.Fatal(err)
		}
		next := res.Header.Get("Location")
		if next == "" || strings.HasPrefix(next, "/") {
			return res.StatusCode, next
		}
		at = next
	}
	j.t.Fatal("too many redirects")
	return 0, ""
}

func (j *jar) browser() *browser {
	u, _ := url.Parse(j.url)
	return &browser{house: j.house, cookie: j.cookies["toolcrib_"+u.Port()]}
}

// A person who is known to the provider alone gets an account, with the groups and roles that the provider says.
func TestOIDC_Create(t *testing.T) {
	h, p := byProvider(t, ", create: true, groups_claim: groups, roles: {staff: [approver]}, admins: [chiefs]")
	if _, _, err := h.service.People.PutGroup(t.Context(), root, "staff", access.GroupEdit{}); err != nil {
		t.Fatal(err)
	}
	j := h.jar()
	if status, next := j.signIn(); status != 303 || next != "/runs?status=failed" {
		t.Fatalf("%d %s", status, next)
	}
	b := j.browser()
	if me := b.want(200, "GET", "/api/me", ""); !strings.Contains(me, `"user":"ann"`) || !strings.Contains(me, `"approver"`) ||
		!strings.Contains(me, `"groups":["staff"]`) || strings.Contains(me, `"admin":true`) {
		t.Error(me)
	}
	if list := b.want(200, "GET", "/api/web-sessions", ""); !strings.Contains(list, `"via":"oidc"`) || strings.Contains(list, "id_token") {
		t.Error(list)
	}
	p.Is("ann-1", map[string]any{"preferred_username": "renamed", "groups": []string{"chiefs"}})
	if status, _ := j.signIn(); status != 303 {
		t.Fatal(status)
	}
	if me := j.browser().want(200, "GET", "/api/me", ""); !strings.Contains(me, `"user":"ann"`) || strings.Contains(me, `"approver"`) || !strings.Contains(me, `"admin":true`) {
		t.Error(me)
	}
	p.Is("ann-1", map[string]any{}) // no claim: no group
	j.signIn()
	if me := j.browser().want(200, "GET", "/api/me", ""); strings.Contains(me, `"admin":true`) {
		t.Error(me)
	}
	out := j.browser().want(200, "POST", "/api/sign-out", "")
	if !strings.Contains(out, p.URL+"/end?") || !strings.Contains(out, "id_token_hint") {
		t.Error(out)
	}
}

// Nobody gets the account of another one: not by a name that exists or looks like one, and not by a subject of another
// person. An administrator links the two.
func TestOIDC_NoTakeover(t *testing.T) {
	h, p := byProvider(t, ", create: true")
	h.member("ann")
	h.member("boss")
	for _, name := range []any{"ann", "ANN", "boss", "b0ss", "admin:x", "anonymous", "", nil, 7, "a\u202eb", strings.Repeat("x", 500)} {
		p.Is("subject-of-mallory", map[string]any{"preferred_username": name})
		if status, next := h.jar().signIn(); status < 400 {
			t.Errorf("%v: %d %s", name, status, next)
		}
	}
	for claim, name := range map[string]any{"email_verified": false, "other": true} {
		p.Is("subject-of-mallory", map[string]any{"email": "mallory@example.com", claim: name})
		if status, next := h.jar().signIn(); status < 400 {
			t.Errorf("%v: %d %s", name, status, next)
		}
	}
	id := access.Identity{Issuer: p.URL, Subject: "ann-1"}
	if _, _, err := h.service.People.EditUser(t.Context(), root, "ann", access.Edit{Identity: &id}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.service.People.EditUser(t.Context(), root, "boss", access.Edit{Identity: &id}); toolcrib.CodeOf(err) != toolcrib.CodeConflict {
		t.Errorf("two users with one identity: %v", err)
	}
	p.Is("ann-1", map[string]any{"preferred_username": "boss"})
	j := h.jar()
	if status, _ := j.signIn(); status != 303 {
		t.Fatal(status)
	}
	if me := j.browser().want(200, "GET", "/api/me", ""); !strings.Contains(me, `"user":"ann"`) {
		t.Error(me)
	}
	if _, _, err := h.service.People.EditUser(t.Context(), root, "ann", access.Edit{Disabled: new(true)}); err != nil {
		t.Fatal(err)
	}
	if status, _ := h.jar().signIn(); status != 403 {
		t.Errorf("a disabled user: %d", status)
	}
	page, err := h.service.People.Audit(t.Context(), root, store.AuditFilter{Kinds: []toolcrib.Kind{access.SignInFailed}}, "")
	if err != nil || len(page.Entries) < 10 {
		t.Errorf("%d entries, %v", len(page.Entries), err)
	}
}

// Without create, only users whom an administrator has linked sign in.
func TestOIDC_NotCreated(t *testing.T) {
	h, _ := byProvider(t, "")
	if status, _ := h.jar().signIn(); status != 403 {
		t.Error(status)
	}
	if _, err := h.service.People.User(t.Context(), root, "ann"); toolcrib.CodeOf(err) != toolcrib.CodeNotFound {
		t.Error(err)
	}
}

// What is wrong in an ID token or in what the browser brings back begins no session.
func TestOIDC_Hostile(t *testing.T) {
	h, p := byProvider(t, ", create: true")
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	change := func(claim string, value any) func() {
		return func() {
			p.Change = func(claims map[string]any) {
				if claims[claim] = value; value == nil {
					delete(claims, claim)
				}
			}
		}
	}
	sign := func(method jwt.SigningMethod, key any) func() {
		return func() {
			p.Sign = func(claims jwt.MapClaims) string {
				token := jwt.NewWithClaims(method, claims)
				token.Header["kid"] = "one"
				text, _ := token.SignedString(key)
				return text
			}
		}
	}
	back := func(name, value string) func() {
		return func() { p.Answer = func(v, _ url.Values) { v.Set(name, value) } }
	}
	for what, do := range map[string]func(){
		"audience":      change("aud", "somebody-else"),
		"no audience":   change("aud", nil),
		"two audiences": change("aud", []string{"crib", "other"}),
		"other party":   change("azp", "other"),
		"issuer":        change("iss", "https://evil.example"),
		"expired":       change("exp", time.Now().Add(-5*time.Minute).Unix()),
		"future":        change("iat", time.Now().Add(time.Hour).Unix()),
		"not yet":       change("nbf", time.Now().Add(time.Hour).Unix()),
		"nonce":         change("nonce", "another"),
		"no nonce":      change("nonce", nil),
		"no subject":    change("sub", ""),
		"alg none":      sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType),
		"alg HS256":     sign(jwt.SigningMethodHS256, []byte("sesame-0123456789")),
		"other key":     sign(jwt.SigningMethodRS256, other),
		"no ID token":   func() { p.Sign = func(jwt.MapClaims) string { return "" } },
		"not a token":   func() { p.Sign = func(jwt.MapClaims) string { return strings.Repeat("x.", 100_000) } },
		"state":         back("state", "another"),
		"no state":      back("state", ""),
		"code":          back("code", "another"),
		"provider":      back("iss", "https://evil.example"),
		"error":         back("error", "access_denied\x1b[31m"),
	} {
		p.Is("ann-1", map[string]any{"preferred_username": "ann"})
		p.Lock()
		do()
		p.Unlock()
		j := h.jar()
		if status, next := j.signIn(); status < 400 || status > 403 {
			t.Errorf("%s: %d %s", what, status, next)
		}
		if b := j.browser(); b.cookie != "" {
			t.Errorf("%s: a session", what)
		}
	}
	p.Is("ann-1", map[string]any{"preferred_username": "ann"})
	// Clocks may differ a little.
	p.Lock()
	change("exp", time.Now().Add(-10*time.Second).Unix())()
	p.Unlock()
	if status, _ := h.jar().signIn(); status != 303 {
		t.Errorf("a clock that is 10 s behind: %d", status)
	}
}

// A sign-in ends in the browser where it began, and once.
func TestOIDC_BoundToBrowser(t *testing.T) {
	h, _ := byProvider(t, ", create: true")
	begin := func(j *jar) string { // the address to which the provider sends the browser
		res, err := j.get(h.url + "/api/oidc")
		if err != nil {
			t.Fatal(err)
		}
		res, err = j.get(res.Header.Get("Location"))
		if err != nil {
			t.Fatal(err)
		}
		return res.Header.Get("Location")
	}
	mallory, ann := h.jar(), h.jar()
	hers := begin(mallory)
	his := begin(ann)
	if res, _ := ann.get(hers); res.StatusCode != 400 {
		t.Errorf("the sign-in of another browser: %d", res.StatusCode)
	}
	if res, _ := h.jar().get(his); res.StatusCode != 400 {
		t.Errorf("without a cookie: %d", res.StatusCode)
	}
	if res, _ := mallory.get(hers); res.StatusCode != 303 {
		t.Errorf("in its own browser: %d", res.StatusCode)
	}
	if res, _ := mallory.get(hers); res.StatusCode != 400 {
		t.Errorf("a second time: %d", res.StatusCode)
	}
	for _, next := range []string{"https://evil.example", "//evil.example", `/\evil.example`, "javascript:alert(1)", "/x\r\nSet-Cookie: a=b"} {
		j := h.jar()
		res, err := j.get(h.url + "/api/oidc?next=" + url.QueryEscape(next))
		if err != nil {
			t.Fatal(err)
		}
		if res, err = j.get(res.Header.Get("Location")); err == nil {
			res, err = j.get(res.Header.Get("Location"))
		}
		if err != nil || res.Header.Get("Location") != "/" {
			t.Errorf("%q: %s, %v", next, res.Header.Get("Location"), err)
		}
	}
}

// A server starts and works while the provider is down, and uses it as soon as it is there.
func TestOIDC_ProviderDown(t *testing.T) {
	p := oidctest.New(t)
	p.Down = true
	h := open(t, "server: {oidc: {issuer: '"+p.URL+"', client_id: crib, client_secret: sesame-0123456789, create: true}}\n")
	j := h.jar()
	for range 20 {
		if status, _ := j.signIn(); status != 503 {
			t.Fatal(status)
		}
	}
	p.Lock()
	if p.Asked["/.well-known/openid-configuration"] > 5 {
		t.Errorf("it is asked %d times", p.Asked["/.well-known/openid-configuration"])
	}
	p.Down = false
	p.Unlock()
	h.eventually("the provider is used", func() bool { status, _ := j.signIn(); return status == 303 })
}

// The provider ends sessions by a token of its own.
func TestOIDC_BackChannelLogout(t *testing.T) {
	h, p := byProvider(t, ", create: true")
	j := h.jar()
	if status, _ := j.signIn(); status != 303 {
		t.Fatal(status)
	}
	b := j.browser()
	post := func(token string) int {
		res, err := http.PostForm(h.url+"/api/oidc/logout", url.Values{"logout_token": {token}})
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	event := map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}
	claims := jwt.MapClaims{
		"iss": p.URL, "aud": "crib", "exp": time.Now().Add(time.Minute).Unix(), "iat": time.Now().Unix(), "jti": "1",
		"events": event, "sid": "session-1", "sub": "ann-1",
	}
	with := func(name string, value any) jwt.MapClaims {
		c := maps.Clone(claims)
		c[name] = value
		return c
	}
	for what, token := range map[string]string{
		"nothing": "", "audience": p.Signed(with("aud", "x")), "nonce": p.Signed(with("nonce", "x")),
		"no event": p.Signed(with("events", map[string]any{})), "expired": p.Signed(with("exp", 1)),
	} {
		if status := post(token); status < 400 {
			t.Errorf("%s: %d", what, status)
		}
	}
	if status := post(p.Signed(with("sub", "bob-1"))); status != 200 {
		t.Errorf("another subject: %d", status)
	}
	b.want(200, "GET", "/api/me", "")
	if status := post(p.Signed(claims)); status != 200 {
		t.Error(status)
	}
	b.want(401, "GET", "/api/me", "")
}

// Who loses the group that restricted them, or is in no known group, gets no rights by that.
func TestOIDC_GroupsNeverWiden(t *testing.T) {
	h, p := byProvider(t, ", create: true, groups_claim: groups")
	grants := []string{"read_file"}
	if _, _, err := h.service.People.PutGroup(t.Context(), root, "staff", access.GroupEdit{Grants: &grants}); err != nil {
		t.Fatal(err)
	}
	if status, next := h.jar().signIn(); status != 303 {
		t.Fatalf("%d %s", status, next)
	}
	for _, claims := range []map[string]any{{}, {"groups": []string{"unknown"}}} {
		p.Is("ann-1", claims)
		if status, next := h.jar().signIn(); status != http.StatusForbidden {
			t.Errorf("%v: %d %s", claims, status, next)
		}
	}
	u, err := h.service.People.User(t.Context(), root, "ann")
	if err != nil || len(u.Effective) != 1 {
		t.Errorf("%+v, %v", u, err)
	}
	p.Is("eve-1", map[string]any{"preferred_username": "eve"})
	if status, next := h.jar().signIn(); status != http.StatusForbidden {
		t.Errorf("another user: %d %s", status, next)
	}
}

// Claims that only UserInfo has are used.
func TestOIDC_UserInfo(t *testing.T) {
	h, p := byProvider(t, ", create: true, user_claim: nick, groups_claim: memberOf, admins: [chiefs]")
	p.Is("ann-1", map[string]any{})
	p.Lock()
	p.Info = map[string]any{"nick": "nan", "memberOf": []string{"chiefs"}}
	p.Unlock()
	j := h.jar()
	if status, next := j.signIn(); status != 303 {
		t.Fatal(status, next)
	}
	if me := j.browser().want(200, "GET", "/api/me", ""); !strings.Contains(me, `"user":"nan"`) || !strings.Contains(me, `"admin":true`) {
		t.Error(me)
	}
	p.Lock()
	p.Info["sub"] = "mallory"
	p.Unlock()
	if status, _ := h.jar().signIn(); status != 503 && status != 401 {
		t.Errorf("UserInfo about another: %d", status)
	}
}
