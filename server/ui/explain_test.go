package ui_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/browsertest"
)

func TestExplain(t *testing.T) {
	h := open(t, map[string]string{
		"default": hello,
		"narrow":  "- tool_calls: [{name: write_file, arguments: {path: a.txt, content: x}, id: first}]\n- {text: done}\n",
		"denied":  "- tool_calls: [{name: read_file, arguments: {path: secret.txt}, id: first}]\n- {text: done}\n",
	}, "rules:\n  - {name: nosecrets, tools: [read_file], when: 'args.path.startsWith(\"secret\")', then: deny, message: '"+
		`<b onclick="toolcribCanary(1)">no secrets`+"'}\n")
	boss, alice := h.token("boss"), h.token("alice")
	id := string(h.runOf(alice, "denied", "go").ID)
	why := "/explain?run=" + id + "&call=first"
	tab := h.tab("alice", browsertest.Options{})
	tab.Visit(h.url + "/runs/" + id)
	tab.Click(`a[href^="/explain?run="]`)
	tab.WaitText("main", "rule_denied")
	tab.WaitText(".explain-verdict", "Would be refused")
	tab.WaitText(".ladder", "nosecrets")
	tab.Axe()
	tab.Shot("explain-call")
	if text := tab.Text("main"); strings.Contains(text, "toolcrib.yaml:") {
		t.Error("a user reads the position in the configuration")
	}
	if _, _, text := h.get(boss, why); !strings.Contains(text, "toolcrib.yaml:") {
		t.Error("an administrator does not read the position in the configuration")
	}
	admin := h.tab("boss", browsertest.Options{})
	admin.Visit(h.url + "/explain?user=alice")
	admin.Axe()
	admin.Shot("explain-matrix")
	admin.Click(`a[href*="tool=get_runtime_info"]`)
	admin.WaitText(".rung-decides", "requires_admin")
	admin.Shot("explain-ladder")
	admin.Visit(h.url + "/explain?user=alice&tool=write_file&arguments=" + url.QueryEscape(`{"path":"a","content":"b"}`))
	admin.WaitText(".explain-verdict", "Would need an approval")
	for path, want := range map[string]int{
		"/explain?user=boss":                                          http.StatusForbidden,
		"/explain?agent=nobody":                                       http.StatusBadRequest,
		"/explain?tool=" + url.QueryEscape(hostileText):               http.StatusOK,
		"/explain?run=run_00000000000000000000000000":                 http.StatusNotFound,
		"/explain?run=" + id + "&call=other":                          http.StatusNotFound,
		"/explain?tool=read_file&arguments=%7B%00":                    http.StatusOK,
		"/explain?skill=" + url.QueryEscape(hostileText):              http.StatusOK,
		"/explain?from=-5&q=" + url.QueryEscape(hostileText):          http.StatusOK,
		"/explain?tool=read_file&arguments=%7B%22%E2%80%AE%22%3A1%7D": http.StatusOK,
	} {
		if status, _, text := h.get(alice, path); status != want || strings.Contains(text, "<script>t") {
			t.Errorf("%s: %d, not %d", path, status, want)
		}
	}
	carol := h.token("carol")
	if status, _, _ := h.get(carol, why); status != http.StatusNotFound {
		t.Error("another user may explain the run:", status)
	}
}
