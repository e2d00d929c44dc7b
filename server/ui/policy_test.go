package ui_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/toolcrib/toolcrib/internal/browsertest"
)

// setRules replaces the text of the rules as a person who types does.
func setRules(tab *browsertest.Tab, text string) {
	browsertest.Eval[bool](tab, `(() => { const e = document.getElementById("rules"); e.value = `+
		"`"+strings.ReplaceAll(text, "`", "")+"`"+`; e.dispatchEvent(new Event("input", {bubbles: true})); return true })()`)
}

func TestPolicyLab(t *testing.T) {
	h := open(t, map[string]string{"default": hello, "two": twoCalls},
		"mcpServers: {x: {url: 'http://127.0.0.1:1', headers: {Authorization: 'Bearer hunter2-is-secret'}, disabled: true}}\n"+
			"rules:\n  - {name: first, tools: [exec_shell], then: deny}\n# about the server\nserver: {rate_limit: 0}\n")
	boss, alice := h.token("boss"), h.token("alice")
	run := h.runOf(alice, "two", "go")
	h.approveAll(boss, &run)
	tab := h.tab("boss", browsertest.Options{})
	tab.Visit(h.url + "/policy")
	tab.WaitText("main", "Rules in effect")
	tab.Axe()
	if text := browsertest.Eval[string](tab, `document.getElementById("rules").value`); text !=
		"rules:\n  - {name: first, tools: [exec_shell], then: deny}\n" {
		t.Errorf("the rules: %q", text)
	}
	setRules(tab, "rules:\n  - {name: nolist, tools: [list_directory], then: deny}\n")
	tab.WaitText(".lab-changes", "list_directory")
	tab.WaitText(".lab-changes", "nolist")
	tab.Wait(`.lab-changes a[href="/runs/` + string(run.ID) + `"]`)
	tab.Axe()
	tab.Shot("policy-changed")
	first := browsertest.Eval[string](tab, `document.querySelector(".gutter").innerText.trim().split("\n")[0]`)
	setRules(tab, "rules:\n  - name: ok\n    then: ask\n  - {name: broken, when: 'usr == 1', then: deny}\n  - {name: <b>, then: maybe}\n")
	tab.WaitText(".lab-problems", "maybe")
	tab.Wait(".gutter .bad-line")
	tab.Shot("policy-broken")
	setRules(tab, "rules:\n  - {name: ok, when: 'usr == 1', then: deny}\n")
	tab.WaitText(".lab-problems", "usr")
	if text := tab.Text(".lab-problems"); !strings.Contains(text, "Line ") || !strings.Contains(text, ":") || first == "" {
		t.Errorf("the problems have no lines: %s", text)
	}
	tab.Click(`button[value=propose]`)
	tab.WaitText("#policy-proposed", "1 call approved")
	setRules(tab, "rules: []\n")
	tab.Click(`#policy-proposed button`)
	tab.Until(`document.getElementById("rules").value.includes("allow_")`)
	tab.WaitText("#policy-result", "judged")
	tab.Shot("policy-proposed")
	tab.Click("#tab-indents")
	tab.Click("#rules")
	tab.Press(kb.Tab)
	if !browsertest.Eval[bool](tab, `document.activeElement.id == "rules"`) {
		t.Error("the tab key does not indent")
	}
	tab.Press(kb.Escape)
	tab.Press(kb.Tab)
	if browsertest.Eval[bool](tab, `document.activeElement.id == "rules"`) {
		t.Error("the tab key does not leave the rules")
	}
	form := url.Values{"rules": {"rules:\r\n  - {name: second, tools: [exec_shell], then: ask}\r\n"}}.Encode()
	status, head, diff := h.form(boss, "/policy/download", form)
	if status != http.StatusOK || !strings.Contains(head.Get("Content-Disposition"), "attachment") ||
		!strings.Contains(diff, "+  - {name: second") || !strings.Contains(diff, "-  - {name: first") ||
		strings.Contains(diff, "hunter2") || strings.Contains(diff, "about the server") {
		t.Errorf("the download: %d\n%s", status, diff)
	}
	if !strings.Contains(diff, "@@ -"+first+",2 +"+first+",2 @@") {
		t.Errorf("the lines of the download, from %s:\n%s", first, diff)
	}
	for _, path := range []string{"/policy/test", "/policy/propose", "/policy/add", "/policy/download"} {
		if status, _, _ := h.form(alice, path, form); status != http.StatusForbidden {
			t.Errorf("a user may %s: %d", path, status)
		}
	}
	if status, _, _ := h.get(alice, "/policy"); status != http.StatusForbidden {
		t.Error("a user reads the rules:", status)
	}
	if status, _, text := h.form(boss, "/policy/test", form); status != http.StatusOK || !strings.Contains(text, "name: second") {
		t.Error("without a module:", status)
	}
	large := url.Values{"rules": {"# " + strings.Repeat("x", 300<<10)}}.Encode()
	if status, _, _ := h.form(boss, "/policy/test", large); status != http.StatusRequestEntityTooLarge {
		t.Error("a large text:", status)
	}
	tab.Expect("ERR_")
	address := strings.TrimPrefix(h.url, "http://")
	h.stop()
	setRules(tab, "rules:\n  - {name: kept, tools: [list_directory], then: deny}\n")
	tab.WaitText(".lab-failed", "cannot be reached")
	if text := browsertest.Eval[string](tab, `document.getElementById("rules").value`); !strings.Contains(text, "kept") {
		t.Errorf("what was typed while the server was away: %q", text)
	}
	h.start(address)
	tab.Click("button[value=test]")
	tab.WaitText(".lab-changes", "kept")
}
