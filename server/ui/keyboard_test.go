package ui_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/toolcrib/toolcrib/internal/browsertest"
	"github.com/toolcrib/toolcrib/server/ui"
)

// pagePatterns returns the patterns of all pages, without what is not shown as one: files, streams and downloads.
func pagePatterns(t *testing.T) (mux *http.ServeMux, all map[string]bool) {
	t.Helper()
	pages, err := ui.New(ui.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mux, all = http.NewServeMux(), map[string]bool{}
	for _, one := range pages.Routes() {
		mux.Handle(one.Pattern, http.NotFoundHandler())
		all[one.Pattern] = strings.HasPrefix(one.Pattern, "GET ")
	}
	for _, no := range []string{
		"GET /assets/{version}/{file...}", "GET /favicon.ico", "GET /approvals/live", "GET /runs/{id}/live", "GET /runs/{id}/export",
		"GET /runs/{id}/events/{seq}/result", "GET /usage.csv", "GET /audit/export", "GET /audit/head",
	} {
		delete(all, no)
	}
	return mux, all
}

// On each page the Tab key leads to everything, in order, with a visible focus, and back again.
func TestPages_Keyboard(t *testing.T) {
	h := open(t, map[string]string{"default": hello, "writer": deciders["writer"], "two": deciders["two"]}, "")
	h.member("boss")
	boss := h.token("boss")
	ended, waits := h.runOf(boss, "default", "Say hello."), h.ask("boss", "writer")
	h.ask("boss", "two")
	run, approval := "/runs/"+string(waits.ID), "/approvals/"+waits.Pending.ApprovalID
	tab, phone := h.tab("boss", browsertest.Options{}), h.tab("boss", browsertest.Options{}.Phone())
	tab.Expect("404")
	visitor := h.visitor(browsertest.Options{})
	mux, left := pagePatterns(t)
	for _, path := range []string{
		"/", "/?session=" + string(waits.SessionID), "/sessions", "/compare?run=" + string(ended.ID), "/runs", run,
		run + "?view=timeline", run + "/events/2", run + "/verify", run + "/replay", "/runs/" + string(ended.ID) + "?round=1",
		"/approvals", approval, approval + "/edit?call=call_1", "/tools?group=files", "/tools/write_file", "/explain?q=file",
		"/explain?tool=write_file", "/policy", "/usage", "/audit", "/account", "/people", "/people/boss", "/nothing",
		"/sign-in", "/password",
	} {
		on := tab
		if path == "/sign-in" || path == "/password" {
			on = visitor
		}
		on.Visit(h.url + path)
		if path == approval || path == "/approvals" {
			on.Wait("[data-ready]")
		}
		walk(on)
		h.skips(on)
		_, pattern := mux.Handler(httptest.NewRequest(http.MethodGet, path, nil))
		delete(left, pattern)
	}
	for _, path := range []string{"/", run, approval, "/tools?group=files", "/people/boss"} { // where bars are at the bottom
		phone.Visit(h.url + path)
		walk(phone)
	}
	for pattern, page := range left {
		if page {
			t.Errorf("%s: no page of it was tried", pattern)
		}
	}
}

// walk walks over a page, once its modules have shown their buttons.
func walk(tab *browsertest.Tab) {
	tab.Until(`document.readyState === "complete" && !document.querySelector("[data-module=reveal][hidden], .needs-script[hidden]")`)
	tab.Walk()
}

// skips uses the link that leads to the content.
func (h *house) skips(tab *browsertest.Tab) {
	h.t.Helper()
	tab.Reach(".skip")
	if !browsertest.Eval[bool](tab, `document.activeElement.getBoundingClientRect().top >= 0`) {
		h.t.Error("the link to the content is out of sight")
	}
	tab.Press(kb.Enter)
	tab.Until(`document.activeElement.id === "main"`)
	tab.Press(kb.Tab)
	if !browsertest.Eval[bool](tab, `!document.activeElement.closest(".bar, .skip")`) {
		h.t.Errorf("%s: the content does not follow", browsertest.Eval[string](tab, "location.pathname"))
	}
}

// enterOn presses the Enter key on an element that the Tab key leads to.
func enterOn(tab *browsertest.Tab, selector string) {
	tab.Reach(selector)
	tab.Press(kb.Enter)
}

// From signing in to signing out, keys do what people come for.
func TestPages_KeyboardWork(t *testing.T) {
	h := open(t, map[string]string{"default": hello, "writer": deciders["writer"]}, "")
	h.member("boss")
	tab := h.visitor(browsertest.Options{})
	tab.Visit(h.url + "/")
	tab.Until(`document.activeElement.id === "user"`)
	for _, key := range []string{"boss", kb.Tab, password, kb.Enter} {
		tab.Press(key)
	}
	at(tab, "/")
	keysAsk(t, tab)
	keysStory(t, tab)
	keysInbox(tab)
	keysTools(t, tab)
	keysPolicy(t, tab)
	keysAccount(t, h, tab)
}

// keysAsk chooses an agent, sends a prompt, approves the first call and denies the second with a reason.
func keysAsk(t *testing.T, tab *browsertest.Tab) {
	tab.Until(`document.activeElement.id === "prompt"`)
	tab.Press("write twice")
	tab.Reach("#agent")
	tab.Press(kb.ArrowDown)
	tab.Until(`location.search === "?agent=writer" && document.activeElement.id === "agent"`)
	tab.Reach("#readonly")
	tab.Press(" ")
	tab.Until(`location.search.includes("readonly") && document.activeElement.id === "readonly"`)
	tab.Press(" ")
	tab.Until(`!location.search.includes("readonly") && document.activeElement.id === "readonly"`)
	enterOn(tab, "#ask .primary")
	tab.Wait(".story form.decide")
	first := browsertest.Eval[string](tab, `document.querySelector(".decide").dataset.decide`)
	enterOn(tab, ".decide [data-key=approve]")
	tab.Until(`(document.querySelector(".decide")?.dataset.decide ?? "` + first + `") !== "` + first + `"`)
	tab.Reach(".decide [name=reason]")
	tab.Press("one is enough")
	tab.Press(kb.Enter) // decides nothing
	if !browsertest.Eval[bool](tab, `document.activeElement.value === "one is enough"`) {
		t.Error("the reason is lost")
	}
	enterOn(tab, ".decide [data-key=deny]")
	tab.WaitText(".run-head", "Completed")
	tab.WaitText(".decision", "one is enough")
}

// keysStory opens the run from the list, walks from event to event, and forks it.
func keysStory(t *testing.T, tab *browsertest.Tab) {
	enterOn(tab, ".nav a[href='/runs']")
	at(tab, "/runs")
	enterOn(tab, ".runs-prompt a")
	tab.Wait(".ledger")
	story := browsertest.Eval[string](tab, "location.pathname")
	enterOn(tab, ".step:nth-child(2) .step-at a")
	tab.Until(`location.pathname.includes("/events/")`)
	event := browsertest.Eval[string](tab, "location.pathname")
	enterOn(tab, "a[rel=prev]")
	tab.Until(`location.pathname.includes("/events/") && location.pathname !== "` + event + `" && document.readyState === "complete"`)
	enterOn(tab, ".trail a[href='"+story+"']")
	at(tab, story)
	enterOn(tab, ".tabs a[href$='view=timeline']")
	tab.Wait(".bars")
	enterOn(tab, ".bars a")
	tab.Until(`location.hash.startsWith("#e")`)
	enterOn(tab, "a[href$='round=2#fork']")
	at(tab, story+"?round=2")
	tab.Press(kb.Tab) // the form follows, not the beginning of the page
	if !browsertest.Eval[bool](tab, `!!document.activeElement.closest("#fork")`) {
		t.Errorf("after the link the focus is on %s", browsertest.Eval[string](tab, "document.activeElement.outerHTML.slice(0, 200)"))
	}
	tab.Reach("#fork-text")
	tab.Press("another way")
	enterOn(tab, "#fork .primary")
	tab.WaitText(".trail + h1", "another way")
	tab.Wait(".decide")
}

// keysInbox denies in the inbox what the forked run waits for.
func keysInbox(tab *browsertest.Tab) {
	enterOn(tab, ".nav a[href='/approvals']")
	at(tab, "/approvals")
	tab.Wait("[data-ready]")
	enterOn(tab, "[data-key=help]")
	tab.Wait("dialog[open]")
	tab.Press(kb.Escape)
	tab.Until(`!document.querySelector("dialog[open]") && document.activeElement.matches("[data-key=help]")`)
	enterOn(tab, "#inbox a")
	tab.Wait("[data-ready]")
	tab.Reach("[name=reason]")
	tab.Press("not again")
	tab.Press(kb.Enter)
	tab.Until(`location.search === "?said=deny" && document.readyState === "complete"`) // of this or the next approval
	enterOn(tab, ".nav a[href='/approvals']")
	at(tab, "/approvals")
	enterOn(tab, "a[href$='show=decided']")
	tab.WaitText("#inbox", "not again")
}

// keysTools switches a tool off and on, and asks who may use it.
func keysTools(t *testing.T, tab *browsertest.Tab) {
	enterOn(tab, ".nav a[href='/tools']")
	at(tab, "/tools")
	tab.Reach("[name=q]")
	tab.Press("list_dir")
	tab.Press(kb.Enter)
	tab.Until(`location.search.includes("q=list_dir")`)
	for _, to := range []string{"off", "on"} {
		enterOn(tab, "#tool-list_directory button[value="+to+"]")
		tab.WaitText("#tool-list_directory .tool-now", map[string]string{"off": "Off", "on": "On"}[to])
		tab.Until(`document.readyState === "complete"`)
		tab.Press(kb.Tab)
		if !browsertest.Eval[bool](tab, `!!document.activeElement.closest("#tool-list_directory")`) {
			t.Errorf("after the switch the focus is on %s", browsertest.Eval[string](tab, "document.activeElement.outerHTML.slice(0, 200)"))
		}
	}
	enterOn(tab, "main a[href='/explain']")
	at(tab, "/explain")
	tab.Reach("[name=tool]")
	tab.Press("read_file")
	tab.Press(kb.Enter)
	tab.WaitText("h1", "read_file")
	tab.Wait(".ladder")
}

// keysPolicy edits a rule, and reads in the audit log what was decided.
func keysPolicy(t *testing.T, tab *browsertest.Tab) {
	enterOn(tab, ".nav a[href='/policy']")
	at(tab, "/policy")
	tab.Wait("#tab-indents") // its module shows it
	tab.Reach("#rules")
	tab.Press(kb.ArrowDown)
	tab.Press("  - {name: nowrite, tools: [write_file], then: deny}")
	tab.WaitText(".lab-changes", "nowrite")
	enterOn(tab, ".lab [value=test]")
	tab.WaitText(".lab-changes", "nowrite")
	enterOn(tab, ".nav a[href='/audit']")
	at(tab, "/audit")
	tab.Reach("#kind")
	tab.Press(kb.ArrowDown)
	enterOn(tab, ".filters button")
	tab.Until(`/kind=[a-z]/.test(location.search)`)
	enterOn(tab, "[action='/audit/verify'] .primary")
	tab.Wait("#verified.notice-good")
}

// keysAccount makes a token, revokes it, and signs out.
func keysAccount(t *testing.T, h *house, tab *browsertest.Tab) {
	enterOn(tab, ".who")
	at(tab, "/account")
	enterOn(tab, "#token-make summary")
	tab.Reach("#label")
	tab.Press("by keys")
	enterOn(tab, "#token-make .primary")
	tab.Until(`document.activeElement.id === "new-token"`)
	token := tab.Text("#new-token .secret")
	revoke := "#tokens tbody .act > .danger"
	enterOn(tab, revoke)
	inDialog := `!!document.activeElement.closest(":popover-open")`
	tab.Until(inDialog)
	tab.Press(kb.Escape)
	tab.Until(`!document.querySelector(":popover-open") && document.activeElement.matches("` + revoke + `")`)
	tab.Press(kb.Enter)
	tab.Until(inDialog)
	tab.Back()
	if !browsertest.Eval[bool](tab, `document.activeElement.matches(":popover-open form .danger")`) {
		t.Errorf("before the button that cancels is %s", browsertest.Eval[string](tab, "document.activeElement.outerHTML.slice(0, 200)"))
	}
	tab.Press(kb.Enter)
	tab.Wait("#tokens-over")
	if status, _ := h.program(token, http.MethodGet, "/api/me", ""); status != http.StatusUnauthorized {
		t.Errorf("a revoked token: %d", status)
	}
	enterOn(tab, "form[action='/sign-out'] button")
	at(tab, "/sign-in?out=yes")
}
