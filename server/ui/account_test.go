package ui_test

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/browsertest"
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
