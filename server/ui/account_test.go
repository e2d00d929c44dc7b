package ui_test

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/browsertest"
	"github.com/toolcrib/toolcrib/internal/oidctest"
)

func TestAccount(t *testing.T) {
	h := open(t, map[string]string{"default": hello, "writer": hello}, "")
	h.member("ann")
	elsewhere := h.visitor(browsertest.Options{NoScript: true})
	elsewhere.Visit(h.url + "/account")
	enter(elsewhere, "ann", password)
	tab := h.visitor(browsertest.Options{})
	tab.Visit(h.url + "/account")
	enter(tab, "ann", password)
	at(tab, "/account")
	tab.WaitText("section:has(#sessions)", "this one")
	tab.Click("#token-make summary")
	tab.Type("#label", "<img src=x onerror=toolcribCanary(1)>")
	tab.Click("input[value=writer]")
	tab.Axe()
	tab.Shot("account")
	tab.Click("#token-make .primary")
	tab.Wait("#new-token")
	h.fits(tab)
	tab.Axe()
	tab.Shot("account-token")
	token := tab.Text("#new-token .secret")
	if code, run := h.program(token, "POST", "/api/runs", `{"agent":"writer","input":"go"}`); !strings.Contains(run, `"completed"`) {
		t.Errorf("a run of the agent: %d %s", code, run)
	}
	if code, run := h.program(token, "POST", "/api/runs", `{"input":"go"}`); strings.Contains(run, `"completed"`) {
		t.Errorf("a run of another agent: %d %s", code, run)
	}
	tab.Click("#tokens tbody tr:first-child .act > .danger")
	tab.Wait(".confirm:popover-open")
	tab.Axe()
	tab.Shot("account-revoke")
	send(tab, ".confirm:popover-open form .danger")
	tab.Wait("#tokens-over")
	if code, _ := h.program(token, "GET", "/api/me", ""); code != 401 {
		t.Errorf("a revoked token: %d", code)
	}
	send(tab, "form[action$='/others/end'] button")
	send(elsewhere, ".nav a[href='/runs']")
	elsewhere.WaitText(".notice", "has ended")
	tab.Type("#old", "not the password")
	tab.Type("#password", "another horse battery")
	tab.Click("form[action='/account/password'] > button")
	tab.WaitText(".form-error", "wrong")
	send(tab, "form[action='/sign-out'] button")
	tab.WaitText(".notice", "signed out")
	at(tab, "/sign-in?out=yes")
}

// With the other sessions or the old password, the own tokens can be revoked. The page lists those that remain valid.
func TestAccount_RevokeTokens(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	h.member("ann")
	phone := h.visitor(browsertest.Options{Language: "de", Dark: true}.Phone())
	tab, signedIn := h.visitor(browsertest.Options{}), h.visitor(browsertest.Options{NoScript: true})
	for _, one := range []*browsertest.Tab{phone, tab, signedIn} {
		one.Visit(h.url + "/account")
		enter(one, "ann", password)
		at(one, "/account")
	}
	tab.Visit(h.url + "/account")
	send(tab, "form[action$='/others/end'] button")
	at(tab, "/account?said=others")
	tab.WaitText("#said", "One access token remains valid")
	signedIn.Visit(h.url + "/account")
	enter(signedIn, "ann", password)
	token := h.token("ann")
	valid := func(want int) {
		t.Helper()
		if code, _ := h.program(token, "GET", "/api/me", ""); code != want {
			t.Errorf("a token: %d, want %d", code, want)
		}
	}
	set := func(old, fresh string) {
		tab.Type("#old", old)
		tab.Type("#password", fresh)
		send(tab, "form[action='/account/password'] > button")
		at(tab, "/account?said=password")
	}
	set(password, "another horse battery")
	tab.WaitText("#said", "2 access tokens remain valid")
	tab.Axe()
	tab.Shot("account-remain")
	valid(200)
	phone.Visit(h.url + "/account?said=password")
	enter(phone, "ann", "another horse battery")
	phone.WaitText("#said", "2 Zugriffstoken bleiben gültig")
	h.fits(phone)
	phone.Axe()
	phone.Shot("phone-account-remain")
	tab.Visit(h.url + "/account")
	tab.Click("form[action$='/others/end'] [name=revoke]")
	send(tab, "form[action$='/others/end'] button")
	tab.WaitText("#said", "no valid access tokens")
	valid(401)
	token = h.token("ann")
	valid(200)
	tab.Visit(h.url + "/account")
	tab.Click("form[action='/account/password'] [name=revoke]")
	set("another horse battery", password)
	tab.WaitText("#said", "no valid access tokens")
	valid(401)
}

// The audit log does not show the removal of a token's record as an act of a user.
func TestAudit_TokenRemoved(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	boss := h.token("boss")
	h.token("ann")
	tokens, err := h.service.People.OwnTokens(t.Context(), toolcrib.Principal{User: "ann"})
	if err != nil || len(tokens) != 1 {
		t.Fatal(tokens, err)
	}
	id := tokens[0].ID
	if _, err := h.service.Env.Store.Access().RemoveToken(t.Context(), id, "regular upkeep"); err != nil {
		t.Fatal(err)
	}
	_, _, body := h.get(boss, "/audit?kind=token_removed")
	if !strings.Contains(body, "The record of the token "+id+", which was no longer valid, was removed") {
		t.Error(body)
	}
}

// A provider that adds users adds a removed one again.
func TestPeople_RemoveText(t *testing.T) {
	const returns = "does not keep the person out"
	p := oidctest.New(t)
	for _, create := range []string{"true", "false"} {
		h := open(t, map[string]string{"default": hello}, "server: {oidc: {issuer: '"+p.URL+"', client_id: "+oidctest.ClientID+
			", client_secret: "+oidctest.Secret+", create: "+create+"}}\n")
		h.token("ann")
		boss := h.token("boss")
		if _, _, page := h.get(boss, "/people/ann"); strings.Contains(page, returns) != (create == "true") {
			t.Errorf("create: %s: the page does not fit", create)
		}
	}
}

func TestPeople(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	h.member("boss")
	if _, _, err := h.service.People.PutGroup(t.Context(), root, "staff", access.GroupEdit{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/people", "/people/boss"} {
		if status, _, _ := h.get(h.token("ann"), path); status != 403 {
			t.Errorf("%s for a user: %d", path, status)
		}
	}
	tab := h.visitor(browsertest.Options{})
	tab.Expect("404")
	tab.Expect("400")
	tab.Expect("409")
	tab.Visit(h.url + "/people")
	enter(tab, "boss", password)
	tab.Axe()
	tab.Click("#add summary")
	tab.Shot("people")
	tab.Type("#name", "b ob")
	tab.Click("#add .primary")
	tab.WaitText(".form-error", "space")
	browsertest.Eval[bool](tab, "(document.getElementById('name').value = '', true)")
	tab.Type("#name", "bob")
	tab.Type("#display", `"><img src=x onerror=toolcribCanary(1)>`)
	tab.Click("#add [name=group]")
	send(tab, "#add .primary")
	at(tab, "/people/bob?said=added")
	tab.Axe()
	tab.Shot("person")
	send(tab, "form[action$='/link'] button")
	link := tab.Text("#link .secret")
	tab.Shot("person-link")
	bob := h.visitor(browsertest.Options{})
	bob.Visit(link)
	bob.Wait("#password")
	bob.Type("#password", password)
	send(bob, ".primary")
	at(bob, "/")
	tab.Visit(h.url + "/people/bob")
	tab.Click("input[name=restricted][value=yes]")
	tab.Type("#grants", "read_file\nagent:default")
	send(tab, "form[action='/people/bob'] .primary")
	tab.WaitText(".facts", "default")
	bob.Visit(h.url + "/account")
	bob.WaitText(".facts", "read_file")
	bob.Click("#token-make summary")
	bob.Type("#label", "typed")
	tab.Click("button.danger[popovertarget=disable]")
	tab.Wait("#disable:popover-open")
	send(tab, "#disable form .danger")
	tab.WaitText(".head", "disabled")
	bob.Click("#token-make .primary")
	bob.WaitText(".form-error a[target=_blank]", "new tab")
	if typed := browsertest.Eval[string](bob, "document.getElementById('label').value"); typed != "typed" {
		t.Errorf("what was typed: %q", typed)
	}
	bob.Visit(h.url + "/account")
	bob.WaitText(".notice", "has ended")
	earlier := "changed=2026-01-01T00:00:00Z&restricted=yes&grants=read_file+agent:default"
	if status, _, answer := h.form(h.token("boss"), "/people/bob", earlier); status != 409 {
		t.Errorf("a form that shows an earlier state: %d %s", status, answer)
	}
	tab.Visit(h.url + "/people?q=zzz")
	tab.Wait(".empty")
	tab.Visit(h.url + "/people/nobody-here")
	tab.WaitText("h1", "Not found")
	phone := h.tab("boss", browsertest.Options{Dark: true, Language: "de"}.Phone())
	for _, path := range []string{"/people", "/people/bob", "/account"} {
		phone.Visit(h.url + path)
		h.fits(phone)
		phone.Axe()
		phone.Shot("phone-" + path[len(path)-3:])
	}
}
