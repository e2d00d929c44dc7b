package ui_test

import (
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/browsertest"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// used calls two tools, one of which is refused.
const used = `- {tool_calls: [{name: get_runtime_info, arguments: {}}, {name: read_file, arguments: {path: ../x}}], usage: {input: 1200, output: 80}}
- {text: done, usage: {input: 2400, output: 40}}
`

const usedConfig = `  priced: {model: priced}
models:
  priced: {provider: default, model: y, price: {input: 3, output: 15}}
budgets:
  - {user: "*", requests_per_day: 10, tokens_per_month: 100000}
  - {user: boss, requests_per_day: 2, cost_usd_per_month: 1}
`

// runs makes a run of a user over the API and returns its ID.
func (h *house) runs(user, agent, input string) string {
	h.t.Helper()
	body := fmt.Sprintf(`{"agent": %q, "input": %q}`, agent, input)
	var run struct{ ID string }
	h.api(user, http.MethodPost, "/api/runs", body, &run)
	return run.ID
}

// api calls the API as a user and reads its answer.
func (h *house) api(user, method, path, body string, into any) {
	h.t.Helper()
	status, text := h.program(h.token(user), method, path, body)
	if status >= 300 {
		h.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		h.t.Fatal(err)
	}
}

func TestUsage(t *testing.T) {
	h := open(t, map[string]string{"default": used, "free": used}, usedConfig)
	h.runs("boss", "priced", "a")
	h.runs("ann", "priced", "b")
	h.runs("ann", "free", "c")
	t.Run("numbers", func(t *testing.T) {
		for _, by := range service.UsageRows() {
			h.sameNumbers(t, "boss", by)
		}
		h.sameNumbers(t, "ann", "model")
		if _, _, body := h.get(h.token("ann"), "/usage"); !strings.Contains(body, "<h3>ann</h3>") ||
			strings.Contains(body, "<h3>boss</h3>") {
			t.Error("a user does not see their own budgets only")
		}
		if status, _, _ := h.get(h.token("ann"), "/usage?user=boss"); status != http.StatusForbidden {
			t.Errorf("the usage of others: %d", status)
		}
		if status, _, body := h.get(h.token("ann"), "/usage?since=yesterday"); status != http.StatusBadRequest ||
			!strings.Contains(body, "yesterday") {
			t.Errorf("an invalid day: %d", status)
		}
	})
	for name, o := range map[string]browsertest.Options{
		"desktop": {}, "phone": browsertest.Options{Dark: true}.Phone(), "german": {Language: "de"},
	} {
		t.Run(name, func(t *testing.T) {
			h := *h
			h.t = t
			tab := h.tab("boss", o)
			for _, by := range []string{"day", "user", "model", "tool"} {
				tab.Visit(h.url + "/usage?by=" + by)
				tab.Wait(".plot rect")
				h.fits(tab)
				tab.Shot("usage-" + by + "-" + name)
			}
			tab.Axe()
			if name == "desktop" {
				if text := tab.Text(".budget:last-of-type"); !strings.Contains(text, "boss") {
					t.Errorf("budgets: %s", text)
				}
				tab.WaitText(".budget", "used up")
			}
		})
	}
}

// fits fails the test if the page is wider than the window.
func (h *house) fits(tab *browsertest.Tab) {
	h.t.Helper()
	if browsertest.Eval[bool](tab, "document.documentElement.scrollWidth > document.documentElement.clientWidth") {
		h.t.Errorf("%s is wider than the window", browsertest.Eval[string](tab, "location.href"))
	}
}

// sameNumbers compares the table and the file of the page with the API.
func (h *house) sameNumbers(t *testing.T, user, by string) {
	t.Helper()
	var u service.Usage
	h.api(user, http.MethodGet, "/api/usage?by="+by, "", &u)
	token := h.token(user)
	_, _, page := h.get(token, "/usage?by="+by)
	tbody := page[strings.Index(page, "<tbody>"):strings.Index(page, "</tbody>")]
	rows := strings.Split(tbody, "<tr>")[1:]
	_, _, text := h.get(token, "/usage.csv?by="+by)
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(lines) != len(u.Rows)+1 || len(rows) != len(u.Rows) || len(rows) == 0 {
		t.Fatalf("%s: %d rows, %d lines, %d in the API, %v", by, len(rows), len(lines), len(u.Rows), err)
	}
	for i, r := range u.Rows {
		for _, want := range []string{
			fmt.Sprintf(`data-value="%v"`, r.CostUSD), ">" + thousands(r.InputTokens) + "<", ">" + thousands(r.OutputTokens) + "<",
			">" + thousands(r.Requests) + "<", r.Key,
		} {
			if !strings.Contains(rows[i], want) {
				t.Errorf("%s: row %d does not have %s: %s", by, i, want, rows[i])
			}
		}
		if unknown := r.Unpriced && r.CostUSD == 0; unknown != strings.Contains(rows[i], ">?<") {
			t.Errorf("%s: an unknown cost: %s", by, rows[i])
		}
		want := []string{r.Key, fmt.Sprint(r.Runs), fmt.Sprint(r.Requests), fmt.Sprint(r.InputTokens)}
		if !slices.Equal(lines[i+1][:4], want) || lines[i+1][9] != strconv.FormatFloat(r.CostUSD, 'f', -1, 64) {
			t.Errorf("%s: line %v, want %v", by, lines[i+1], want)
		}
	}
}

func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

func TestUsage_Empty(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	for _, address := range []string{"/usage", "/usage?since=&until=", "/usage?by=run&since=2020-01-01&until=2020-01-02"} {
		if status, _, body := h.get(h.token("ann"), address); status != http.StatusOK || !strings.Contains(body, "class=\"empty\"") {
			t.Errorf("%s: %d", address, status)
		}
	}
	if status, _, _ := h.get(h.token("ann"), "/usage?by=%3Cimg%3E"); status != http.StatusBadRequest {
		t.Errorf("rows that do not exist: %d", status)
	}
}

func TestAudit(t *testing.T) {
	h := open(t, map[string]string{"default": used}, usedConfig)
	run := h.runs("ann", "default", "a")
	for _, path := range []string{"/audit", "/audit/export", "/audit/head"} {
		if status, _, _ := h.get(h.token("ann"), path); status != http.StatusForbidden {
			t.Errorf("%s for a user: %d", path, status)
		}
	}
	for name, o := range map[string]browsertest.Options{
		"desktop": {}, "phone": browsertest.Options{Dark: true}.Phone(), "without-script": {NoScript: true, Language: "de"},
	} {
		t.Run(name, func(t *testing.T) {
			h := *h
			h.t = t
			tab := h.tab("boss", o)
			tab.Visit(h.url + "/audit?run=" + run)
			tab.WaitText(".entries", "read_file")
			tab.Click(".entry details summary")
			h.fits(tab)
			if !o.NoScript {
				tab.Axe()
			}
			tab.Shot("audit-" + name)
			tab.Click("form[action='/audit/verify'] .primary")
			tab.Wait("#verified.notice-good")
			tab.Visit(h.url + "/audit?kind=refused&user=ann")
			tab.WaitText(".entries", "read_file")
			tab.Visit(h.url + "/audit?kind=user_removed")
			tab.Wait(".empty")
		})
	}
	_, head, text := h.get(h.token("boss"), "/audit/export")
	if !strings.Contains(head.Get("Content-Disposition"), "attachment") || !strings.HasPrefix(text, `{"toolcrib_audit":`) {
		t.Errorf("the export: %v %.100s", head, text)
	}
	if _, err := store.VerifyExport(strings.NewReader(text), nil, store.Head{}); err != nil {
		t.Errorf("the export: %v", err)
	}
	_, _, kept := h.get(h.token("boss"), "/audit/head")
	h.damage(run)
	tab := h.tab("boss", browsertest.Options{})
	tab.Visit(h.url + "/audit")
	tab.Click("#kept summary")
	tab.Type("#head", kept)
	tab.Click("form[action='/audit/verify'] .primary")
	tab.Wait("#verified.notice-bad")
	tab.WaitText("#verified", run)
	tab.Shot("audit-damaged")
}

// damage changes an event of a run in the database.
func (h *house) damage(run string) {
	h.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(h.dir, "data", env.DatabaseName)+"?_pragma=busy_timeout(10000)")
	if err != nil {
		h.t.Fatal(err)
	}
	defer db.Close()
	_, err = db.Exec(`UPDATE events SET payload = replace(payload, 'read_file', 'list_file')
		WHERE kind = 'verdicts' AND key >> 32 = (SELECT num FROM runs WHERE id = ?)`, run)
	if err != nil {
		h.t.Fatal(err)
	}
}

func TestAudit_Kinds(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	_, _, body := h.get(h.token("boss"), "/audit")
	if strings.Contains(body, ">audit.") || strings.Contains(body, "%!") {
		t.Error("a kind of entries has no text")
	}
	var page store.AuditPage
	h.api("boss", http.MethodGet, "/api/audit?limit=1", "", &page)
	if len(page.Entries) != 1 || page.Next == "" {
		t.Fatalf("%d entries, next %q", len(page.Entries), page.Next)
	}
	if status, _, _ := h.get(h.token("boss"), "/audit?cursor=x"); status != http.StatusBadRequest {
		t.Errorf("an invalid cursor: %d", status)
	}
}
