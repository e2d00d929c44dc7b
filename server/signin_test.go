package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service/people"
)

const password = "correct horse battery"

// member adds a user with a password.
func (h *house) member(name string) {
	h.t.Helper()
	if _, err := h.service.People.AddUser(h.t.Context(), root, access.NewUser{User: access.User{Name: name, Admin: name == "boss"}}); err != nil {
		h.t.Fatal(err)
	}
	if err := h.service.People.SetPassword(h.t.Context(), root, name, password); err != nil {
		h.t.Fatal(err)
	}
}

// browser keeps the cookie that a server sets, for all servers of a house.
type browser struct {
	*house
	cookie string // its value
}

// head returns the header with the cookie for a server.
func (b *browser) head(at string) []string {
	if b.cookie == "" {
		return nil
	}
	u, _ := url.Parse(at)
	return []string{"Cookie", "toolcrib_" + u.Port() + "=" + b.cookie}
}

// send sends a request as a page of the server does, and keeps the cookie of the answer.
func (b *browser) send(method, path, body string, head ...string) (int, []byte) {
	b.t.Helper()
	r := b.request(method, path, "", body, head...)
	at := "http://" + r.URL.Host
	for i, cookie := 0, b.head(at); i < len(cookie); i += 2 {
		r.Header.Set(cookie[i], cookie[i+1])
	}
	if r.Header.Get("Origin") == "" {
		r.Header.Set("Origin", at)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range res.Cookies() {
		if b.cookie = c.Value; !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" {
			b.t.Errorf("cookie %v", c)
		}
	}
	b.fits(method, path, res.StatusCode, data)
	return res.StatusCode, data
}

func (b *browser) want(status int, method, path, body string, head ...string) string {
	b.t.Helper()
	got, data := b.send(method, path, body, head...)
	if got != status {
		b.t.Fatalf("%s %s: %d, want %d: %s", method, path, got, status, data)
	}
	return string(data)
}

func (h *house) browser() *browser { return &browser{house: h} }

// signIn signs in with the password of member.
func (b *browser) signIn(name string) {
	b.t.Helper()
	b.want(200, "POST", "/api/sign-in", fmt.Sprintf(`{"user":%q,"password":%q}`, name, password))
}

// A session acts as its user, on every server of the database, until the user signs out; then its cookie is worthless.
func TestSession_Lives(t *testing.T) {
	h := open(t, "")
	h.beside("data")
	h.member("ann")
	b := h.browser()
	b.want(401, "GET", "/api/me", "")
	b.signIn("ann")
	for range 4 {
		if text := b.want(200, "GET", "/api/me", ""); !strings.Contains(text, `"user":"ann"`) {
			t.Error(text)
		}
	}
	b.want(200, "POST", "/api/runs", `{"input":"Say hello."}`)
	kept := *b
	b.want(200, "POST", "/api/sign-out", "")
	if b.cookie != "" {
		t.Error("the cookie stays")
	}
	for range 2 {
		kept.want(401, "GET", "/api/me", "")
	}
}

// The interfaces that other protocols define take no session, and a token in the header comes before one.
func TestSession_OnlyForPages(t *testing.T) {
	h := open(t, "")
	h.member("ann")
	b := h.browser()
	b.signIn("ann")
	if code, _ := b.send("GET", "/v1/models", ""); code != 401 {
		t.Errorf("/v1 with a session: %d", code)
	}
	if code, _ := b.send("POST", "/mcp", "{}"); code != 401 {
		t.Errorf("/mcp with a session: %d", code)
	}
	text := b.want(200, "GET", "/api/me", "", "Authorization", "Bearer "+h.token("bob", signIn))
	if !strings.Contains(text, `"user":"bob"`) {
		t.Error(text)
	}
	b.want(401, "GET", "/api/me", "", "Authorization", "Bearer nonsense")
}

// A page of another origin cannot act by a session, whatever the browser sends of where it comes from.
func TestSession_OtherOrigin(t *testing.T) {
	h := open(t, "server: {cors: ['https://other.example']}\n")
	h.member("ann")
	b := h.browser()
	b.signIn("ann")
	for _, head := range [][]string{
		{"Origin", "https://other.example"},
		{"Origin", "null"},
		{"Origin", "https://evil.example"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
	} {
		for _, path := range []string{"/api/runs", "/api/sign-out", "/api/password"} {
			if code, data := b.send("POST", path, `{}`, head...); code != 403 {
				t.Errorf("%s with %v: %d %s", path, head, code, data)
			}
		}
		code, _ := b.send("GET", "/api/ws", "", append(head, "Upgrade", "websocket", "Connection", "Upgrade")...)
		if code != 403 {
			t.Errorf("a WebSocket with %v: %d", head, code)
		}
		c := h.browser()
		if code, _ := c.send("POST", "/api/sign-in", fmt.Sprintf(`{"user":"ann","password":%q}`, password), head...); code != 403 {
			t.Errorf("a sign-in with %v: %d", head, code)
		}
	}
	b.want(200, "GET", "/api/me", "")
}

// A cookie that was there before is not the one of the session, and a new sign-in ends the old session.
func TestSession_Fixation(t *testing.T) {
	h := open(t, "")
	h.member("ann")
	b := h.browser()
	b.cookie = "CHOSENBYANATTACKER"
	b.signIn("ann")
	first := *b
	if b.cookie == "CHOSENBYANATTACKER" {
		t.Error("the cookie was kept")
	}
	b.signIn("ann")
	if b.cookie == first.cookie {
		t.Error("the same cookie")
	}
	first.want(401, "GET", "/api/me", "")
	for _, forged := range []string{"", "x", strings.Repeat("x", 5000), first.cookie + "A", "../../passwords/aa/" + first.cookie} {
		c := browser{house: h, cookie: forged}
		c.want(401, "GET", "/api/me", "")
	}
}

// A session by an access token has the scope of the token, and ends with it; its runs name it.
func TestM16_SessionByToken(t *testing.T) {
	h := open(t, "")
	scoped, full := h.token("ann", access.Scope{Tools: []string{"read_file"}}), h.token("ann", signIn)
	for _, token := range []string{scoped, full} {
		b := h.browser()
		b.want(200, "POST", "/api/sign-in", fmt.Sprintf(`{"token":%q}`, token))
		run := b.want(200, "POST", "/api/runs", `{"input":"Say hello."}`)
		if !strings.Contains(run, `"user":"ann"`) {
			t.Error(run)
		}
		if me := b.want(200, "GET", "/api/me", ""); strings.Contains(me, h.tokenID(token)) != (token == scoped) {
			t.Error(me)
		}
		h.revoke(token, false)
		b.want(401, "GET", "/api/me", "")
	}
	b := h.browser()
	b.want(401, "POST", "/api/sign-in", fmt.Sprintf(`{"token":%q}`, scoped))
	b.want(401, "POST", "/api/sign-in", `{"token":"nonsense"}`)
	b.want(400, "POST", "/api/sign-in", `{"token":"x","user":"ann"}`)
	b.want(400, "POST", "/api/sign-in", `{}`)
	b.want(400, "POST", "/api/sign-in", `{"user":"ann"}`)
}

// What ends an account or changes its password ends its sessions at once, and their streams within a second.
func TestSession_EndsAtOnce(t *testing.T) {
	h := open(t, "")
	h.script("slow.script", never)
	h.member("ann")
	h.member("boss")
	disabled := true
	for what, happens := range map[string]func(other *browser){
		"password": func(*browser) {
			if err := h.service.People.SetPassword(t.Context(), root, "ann", password); err != nil {
				t.Error(err)
			}
		},
		"disabled": func(*browser) {
			if _, _, err := h.service.People.EditUser(t.Context(), root, "ann", access.Edit{Disabled: &disabled}); err != nil {
				t.Error(err)
			}
		},
		"ended": func(other *browser) { other.want(200, "DELETE", "/api/web-sessions/others", "") },
	} {
		t.Run(what, func(t *testing.T) {
			if _, _, err := h.service.People.EditUser(t.Context(), root, "ann", access.Edit{Disabled: new(bool)}); err != nil {
				t.Fatal(err)
			}
			b, other := h.browser(), h.browser()
			b.signIn("ann")
			other.signIn("ann")
			r := h.request("POST", "/api/runs", "", `{"agent":"slow","input":"Wait."}`, append(b.head(h.url), "Accept", "text/event-stream")...)
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text := h.within(what, res, func() { happens(other) })
			if !strings.Contains(text, "unauthorized") {
				t.Error(text)
			}
			b.want(401, "GET", "/api/me", "")
		})
	}
}

// Own sessions are listed without anything that proves them, and only own ones can be ended.
func TestSession_Own(t *testing.T) {
	h := open(t, "")
	h.member("ann")
	h.member("bob")
	h.member("boss")
	ann, bob, boss := h.browser(), h.browser(), h.browser()
	ann.signIn("ann")
	bob.signIn("bob")
	boss.signIn("boss")
	var list server.WebSessionList
	h.house(ann, &list, "/api/web-sessions")
	if len(list.Sessions) != 1 || list.Sessions[0].Via != people.ViaPassword || list.Sessions[0].User != "ann" {
		t.Fatalf("%+v", list)
	}
	id := list.Sessions[0].ID
	if text := ann.want(200, "GET", "/api/web-sessions", ""); strings.Contains(text, ann.cookie) {
		t.Error(text)
	}
	bob.want(404, "DELETE", "/api/web-sessions/"+id, "")
	bob.want(403, "GET", "/api/web-sessions?user=ann", "")
	boss.want(200, "GET", "/api/web-sessions?user=*", "")
	ann.want(200, "GET", "/api/me", "")
	boss.want(200, "DELETE", "/api/web-sessions/"+id, "")
	ann.want(401, "GET", "/api/me", "")
}

// house reads an answer as a browser does.
func (h *house) house(b *browser, out any, path string) {
	h.t.Helper()
	b.house.want(200, out, "GET", path, "", "", b.head(b.url)...)
}
