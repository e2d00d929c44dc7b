package ui_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/toolcrib/toolcrib/internal/browsertest"
	"github.com/toolcrib/toolcrib/internal/oidctest"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/people"
)

const password = "correct horse battery"

// member adds a user with a password.
func (h *house) member(user string) {
	h.t.Helper()
	h.token(user)
	if err := h.service.People.SetPassword(h.t.Context(), root, user, password); err != nil {
		h.t.Fatal(err)
	}
}

// visitor opens a tab of somebody who has not signed in.
func (h *house) visitor(o browsertest.Options) *browsertest.Tab {
	h.t.Helper()
	tab := browsertest.Open(h.t, o)
	tab.Expect("401")
	return tab
}

// enter signs a member in, in a tab that shows the page for it.
func enter(tab *browsertest.Tab, user, password string) {
	tab.Wait("#user")
	browsertest.Eval[bool](tab, "(document.getElementById('user').value = '', true)")
	tab.Type("#user", user)
	tab.Type("#password", password)
	send(tab, "form:has(#password) button:not([type=button])")
}

// send clicks a button that leads to another page, and waits for that.
func send(tab *browsertest.Tab, button string) {
	browsertest.Eval[bool](tab, "window.left = true")
	tab.Click(button)
	tab.Until("!window.left && document.readyState == 'complete'")
}

// at waits for the page with this path and query.
func at(tab *browsertest.Tab, path string) {
	tab.Until("location.pathname + location.search == '" + path + "' && document.readyState == 'complete'")
}

func TestSignIn_Password(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	h.member("ann")
	tab := h.visitor(browsertest.Options{})
	tab.Expect("429")
	tab.Visit(h.url + "/runs?status=failed")
	at(tab, "/sign-in?next=%2Fruns%3Fstatus%3Dfailed")
	tab.Axe()
	tab.Shot("sign-in")
	for range 5 {
		enter(tab, "ann", "wrong")
		tab.WaitText("#wrong", "wrong")
	}
	if name := browsertest.Eval[string](tab, "document.getElementById('user').value"); name != "ann" {
		t.Errorf("the name that was typed: %q", name)
	}
	tab.Axe()
	locked := func() bool {
		return browsertest.Eval[bool](tab, `document.getElementById("wrong").innerText.includes("Too many")`)
	}
	for range 8 { // each failure makes the next attempt wait twice as long
		if !locked() {
			enter(tab, "ann", "wrong")
		}
	}
	if !locked() {
		t.Error("nothing holds up somebody who guesses")
	}
	tab.Shot("sign-in-locked")
	if err := h.service.People.SetPassword(t.Context(), root, "ann", password); err != nil {
		t.Fatal(err)
	}
	tab.Until(`!document.querySelector('#wrong time') || new Date(document.querySelector('#wrong time').dateTime) < new Date()`)
	enter(tab, "ann", password)
	at(tab, "/runs?status=failed")
	tab.Visit(h.url + "/sign-in?next=/usage")
	at(tab, "/usage")
	if _, err := h.service.People.EndWebSession(t.Context(), root, h.session("ann"), ""); err != nil {
		t.Fatal(err)
	}
	send(tab, ".nav a[href='/runs']")
	tab.WaitText(".notice", "has ended")
	enter(tab, "ann", password)
	at(tab, "/runs")
}

// session returns the ID of the session of a user, who has one.
func (h *house) session(user string) string {
	h.t.Helper()
	list, err := h.service.People.WebSessions(h.t.Context(), root, user)
	if err != nil || len(list) != 1 {
		h.t.Fatalf("the sessions of %s: %v, %v", user, list, err)
	}
	return list[0].ID
}

func TestSignIn_Keyboard(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	h.member("ann")
	tab := h.visitor(browsertest.Options{Dark: true, Language: "de"}.Phone())
	tab.Visit(h.url + "/sign-in")
	tab.Until("document.activeElement.id == 'user'")
	h.fits(tab)
	tab.Shot("sign-in-phone")
	for _, key := range []string{"ann", kb.Tab, password, kb.Tab} {
		tab.Press(key)
	}
	tab.Until("document.activeElement.matches('.reveal')")
	tab.Press(kb.Enter)
	tab.Until("document.getElementById('password').type == 'text'")
	tab.Press(kb.Tab)
	tab.Press(kb.Enter)
	at(tab, "/")
}

func TestSignIn_Token(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	token := h.token("boss")
	tab := h.visitor(browsertest.Options{NoScript: true})
	tab.Visit(h.url + "/usage")
	tab.Click("details summary")
	tab.Type("#token", token+"x")
	send(tab, "form:has(#token) button:not([type=button])")
	tab.WaitText("#wrong", "not valid")
	tab.Shot("sign-in-token")
	tab.Type("#token", token)
	send(tab, "form:has(#token) button:not([type=button])")
	at(tab, "/usage")
}

// Nothing leads to another server, and what was typed or is in the address is text.
func TestSignIn_Hostile(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	for _, next := range []string{"//evil.example", "https://evil.example/", "/%5cevil.example", "javascript:x", "/%09/evil.example"} {
		_, _, body := h.get("", "/sign-in?next="+next)
		body, _, _ = strings.Cut(body, "<footer")
		if strings.Contains(body, "evil") || !strings.Contains(body, `name="next" value="/"`) {
			t.Errorf("%s: %s", next, body)
		}
	}
	tab := h.visitor(browsertest.Options{})
	tab.Visit(h.url + `/sign-in?failed="><img src=x onerror=toolcribCanary(1)>&next=/runs?"><script>toolcribCanary(1)</script>`)
	enter(tab, `"><img src=x onerror=toolcribCanary(1)>`, "x")
	tab.WaitText("#wrong", "wrong")
	if n := browsertest.Eval[int](tab, "document.images.length"); n != 0 {
		t.Errorf("%d images", n)
	}
}

func TestSignIn_None(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "server: {auth: none}\n")
	if _, _, body := h.get("", "/sign-in"); !strings.Contains(body, "has no sign-in") || strings.Contains(body, "<form method=\"post\" action=\"/sign-in\"") {
		t.Error(body)
	}
}

// A page that is open asks the server again and again. That is no use of the session, which ends as if the page were
// closed.
func TestSignIn_OpenPagesAreNoUse(t *testing.T) {
	h := open(t, map[string]string{"default": "- {text: late, delay: 10m}\n"}, "server: {session: {idle: 30m}}\n")
	h.member("ann")
	tab := h.visitor(browsertest.Options{})
	tab.Visit(h.url + "/account")
	enter(tab, "ann", password)
	at(tab, "/account")
	var run service.Run
	h.post(h.token("ann"), "/api/runs", `{"input": "wait", "detach": true}`, &run)
	polled := func(n int) {
		tab.Until(fmt.Sprintf(`performance.getEntriesByType("resource").filter((e) =>
			e.initiatorType === "fetch" && e.name.includes("/compare?")).length >= %d`, n))
	}
	tab.Visit(h.url + "/compare?run=" + string(run.ID))
	polled(1)
	used := h.usedBefore("ann", 20*time.Minute)
	browsertest.Eval[bool](tab, `performance.clearResourceTimings(); true`)
	polled(2)
	if got := h.lastUse("ann"); !got.Equal(used) {
		t.Errorf("last used at %s, and not at %s: a request that the page has sent by itself counts", got, used)
	}
	tab.Visit(h.url + "/runs/" + string(run.ID))
	if got := h.lastUse("ann"); !got.After(used.Add(time.Minute)) {
		t.Errorf("last used at %s: a page that a person opens does not count", got)
	}
	tab.Wait("[data-state=open]")
	h.usedBefore("ann", time.Hour)
	tab.WaitText(".live", "signed out")
}

// lastUse returns when the session of a user was used last.
func (h *house) lastUse(user string) time.Time {
	h.t.Helper()
	list, err := h.service.People.WebSessions(h.t.Context(), root, user)
	if err != nil || len(list) != 1 {
		h.t.Fatalf("the sessions of %s: %v, %v", user, list, err)
	}
	return list[0].Seen
}

// usedBefore has all sessions be last used so long ago, and returns when that was.
func (h *house) usedBefore(user string, ago time.Duration) (at time.Time) {
	h.t.Helper()
	at = time.Now().UTC().Truncate(time.Second).Add(-ago)
	all, err := h.service.Env.Store.SomeFiles(h.t.Context(), env.SessionFolder, env.SessionFolder)
	if err != nil || len(all) != 1 {
		h.t.Fatalf("%d sessions: %v", len(all), err)
	}
	for name := range all {
		err := h.service.Env.Store.ChangeFile(h.t.Context(), name, func(before []byte) ([]byte, error) {
			var w map[string]any // with what only the service knows
			if err := json.Unmarshal(before, &w); err != nil || w["user"] != user || w["seen_at"] == nil {
				return nil, fmt.Errorf("%s: the session of %v: %w", name, w["user"], err)
			}
			w["seen_at"] = at
			return json.Marshal(w)
		})
		if err != nil {
			h.t.Fatal(err)
		}
	}
	return at
}

func TestPasswordLink(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	token := h.token("ann")
	link := h.link("ann")
	tab := h.visitor(browsertest.Options{})
	tab.Expect("400")
	tab.Visit(h.url + link.Link)
	tab.Wait("#password")
	tab.Axe()
	tab.Shot("password")
	if where := browsertest.Eval[string](tab, "location.href + document.getElementById('user').value"); where != h.url+"/passwordann" {
		t.Errorf("at %s", where)
	}
	browsertest.Eval[bool](tab, "(document.getElementById('password').minLength = 1, true)")
	tab.Type("#password", "short")
	send(tab, ".primary")
	tab.WaitText(".notice-bad", "12")
	tab.Type("#password", password)
	send(tab, ".primary")
	at(tab, "/account?said=password")
	tab.WaitText("#said", "One access token remains valid")
	if code, _ := h.program(token, "GET", "/api/me", ""); code != 200 {
		t.Errorf("a token that was not to be revoked: %d", code)
	}
	tab.Visit(h.url + h.link("ann").Link)
	tab.Wait("#password")
	tab.Type("#password", password)
	tab.Click("[name=revoke]")
	send(tab, ".primary")
	at(tab, "/")
	if code, _ := h.program(token, "GET", "/api/me", ""); code != 401 {
		t.Errorf("a token that was to be revoked: %d", code)
	}
	again := h.visitor(browsertest.Options{NoScript: true, Language: "de"})
	again.Visit(h.url + "/password")
	again.Type("#link", h.url+link.Link)
	send(again, ".primary")
	again.WaitText(".notice-bad strong", "Dieser Link ist ungültig")
	again.WaitText(".notice-bad [lang=en]", "the link is not valid")
	again.Shot("password-link-used")
}

// link returns a new link by which a user sets a password.
func (h *house) link(user string) people.PasswordLink {
	h.t.Helper()
	link, err := h.service.People.PasswordLink(h.t.Context(), root, user)
	if err != nil {
		h.t.Fatal(err)
	}
	return link
}

// A person whom the provider knows sees only their own runs. Signing out there too is a click away.
func TestSignIn_Provider(t *testing.T) {
	p := oidctest.New(t)
	h := open(t, map[string]string{"default": hello}, "server: {oidc: {issuer: '"+p.URL+"', client_id: "+oidctest.ClientID+
		", client_secret: "+oidctest.Secret+", create: true}}\n")
	others := h.runs("bob", "default", "bob's own text")
	tab := h.visitor(browsertest.Options{})
	tab.Expect("404")
	tab.Visit(h.url + "/runs")
	tab.Wait("a[href^='/api/oidc']")
	tab.Axe()
	tab.Shot("sign-in-provider")
	send(tab, "a[href^='/api/oidc']")
	at(tab, "/runs")
	tab.WaitText(".who", "ann")
	if text := tab.Text("main"); strings.Contains(text, "bob") {
		t.Errorf("the runs of others: %s", text)
	}
	tab.Visit(h.url + "/runs/" + others)
	tab.WaitText("h1", "Not found")
	tab.Visit(h.url + "/account")
	send(tab, "form[action='/sign-out'] button")
	tab.Until("location.href.startsWith('" + p.URL + "/end?')")
	p.Is("mallory", map[string]any{"preferred_username": "bob"})
	tab.Visit(h.url + "/sign-in?next=/usage")
	send(tab, "a[href^='/api/oidc']")
	tab.WaitText("#wrong", "provider")
	if where := browsertest.Eval[string](tab, "location.pathname"); where != "/sign-in" {
		t.Errorf("a sign-in that failed leads to %s", where)
	}
	still := h.visitor(browsertest.Options{NoScript: true})
	p.Is("ann-1", map[string]any{})
	still.Visit(h.url + "/account")
	send(still, "a[href^='/api/oidc']")
	at(still, "/account")
	send(still, "form[action='/sign-out'] button")
	still.Wait("a[href^='" + p.URL + "/end?']")
}
