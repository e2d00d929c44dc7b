package ui_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/browsertest"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
)

// evilText is a text that must be shown and never be run.
const evilText = `<img src=x onerror=toolcribCanary(1)>"><script>toolcribCanary(2)</script>`

// deciders are models that ask people.
var deciders = map[string]string{
	"writer": `- tool_calls: [{name: write_file, arguments: {path: notes.txt, content: "one\ntwo\n"}, id: call_1}]
- tool_calls: [{name: write_file, arguments: {path: notes.txt, content: "three\n"}, id: call_2}]
- {text: done}
`,
	"two": `- tool_calls:
  - {name: write_file, arguments: {path: a.txt, content: a}, id: call_a}
  - {name: write_file, arguments: {path: b.txt, content: b}, id: call_b}
- {text: done}
`,
	"asker": `- tool_calls: [{name: ask_user, id: call_q, arguments: {question: "Where to?", schema: {type: object,
    required: [city, count, fast], properties: {city: {type: string, title: City}, count: {type: integer, minimum: 1},
    fast: {type: boolean}, class: {enum: [first, second]}, tags: {type: array, items: {type: string}}, note: {type: string}}}}}]
- {text: done}
`,
	"evil": `- tool_calls:
  - {name: write_file, id: "<img src=x onerror=toolcribCanary(3)>", arguments: {path: "<img src=x onerror=toolcribCanary(1)>.txt", content: "<script>toolcribCanary(2)</script>\u202e\u200b\n"}}
- tool_calls: [{name: ask_user, arguments: {question: "<img src=x onerror=toolcribCanary(1)>\"><script>toolcribCanary(2)</script>", schema: {type: object,
    title: "<script>toolcribCanary(4)</script>", properties: {"\"><img src=x onerror=toolcribCanary(1)>": {enum: ["<img src=x onerror=toolcribCanary(1)>", b], description: "<script>toolcribCanary(2)</script>"}}}}}]
- {text: done}
`,
	"short": `- tool_calls: [{name: list_directory, arguments: {path: .}}]
- {text: done}
`,
}

const moreAgents = "  limited: {model: short/x, limits: {max_iterations: 1, on_limit: ask}}\n"

// ask starts a run of a user that waits.
func (h *house) ask(user, agent string) service.Run {
	h.t.Helper()
	run := h.runOf(h.token(user), agent, "go")
	if run.Pending == nil {
		h.t.Fatalf("the run does not wait: %+v", run)
	}
	return run
}

// file returns the content of a file in the workspace of a user, or "" if it is missing.
func (h *house) file(user, name string) string {
	text, err := os.ReadFile(filepath.Join(h.dir, "data", "workspaces", user, name))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	return string(text)
}

// shows opens the approval that a run waits for.
func (h *house) shows(tab *browsertest.Tab, run service.Run) {
	h.t.Helper()
	tab.Visit(h.url + "/approvals/" + run.Pending.ApprovalID)
	tab.Wait(".decide")
}

// press clicks a button as a person does, who has seen the page for a moment.
func press(tab *browsertest.Tab, selector string) {
	tab.Until("getComputedStyle(document.querySelector(" + strconv.Quote(selector) + ")).pointerEvents !== 'none'")
	tab.Click(selector)
}

// settling has the form to decide be as it is 0.3 seconds after it has appeared.
func settling(t *testing.T, tab *browsertest.Tab) {
	t.Helper()
	if n := browsertest.Eval[int](tab, `{
		const bar = document.querySelector(".decide-bar");
		bar.hidden = true;
		bar.getBoundingClientRect();
		bar.hidden = false;
		const all = document.getAnimations().filter((a) => a.animationName === "settle");
		for (const one of all) { one.pause(); one.currentTime = 300; }
		all.length;
	}`); n == 0 {
		t.Error("the buttons take clicks at once")
	}
}

// at runs one part of a test with the server of all.
func (h *house) at(t *testing.T, name string, do func(t *testing.T, h *house)) {
	t.Run(name, func(t *testing.T) {
		one := *h
		one.t = t
		do(t, &one)
	})
}

func TestN25_Approvals(t *testing.T) {
	h := open(t, deciders, moreAgents)
	h.at(t, "phone", approveOnPhone)
	h.at(t, "reason", denyWithReason)
	h.at(t, "edit", editArguments)
	h.at(t, "remember", rememberCalls)
	h.at(t, "each", decideEach)
	h.at(t, "question", answerQuestion)
	h.at(t, "limit", raiseLimit)
	h.at(t, "together", decideTogether)
	h.at(t, "keys", keyboardOnly)
	h.at(t, "plain", withoutScript)
	h.at(t, "hostile", hostileTexts)
	h.at(t, "foreign", foreignApproval)
	h.at(t, "doubt", inDoubt)
}

func approveOnPhone(t *testing.T, h *house) {
	tab := h.tab("ann", browsertest.Options{}.Phone())
	h.ask("ann", "two")
	first := h.ask("ann", "writer")
	tab.Visit(h.url + "/approvals")
	tab.Axe()
	tab.Shot("inbox-phone")
	tab.Click("#inbox a")
	tab.Wait("[value=approve]")
	tab.Axe()
	tab.Shot("approval-phone")
	small := browsertest.Eval[int](tab, `[...document.querySelectorAll(".decide-buttons button")].filter(
		(b) => b.getBoundingClientRect().height < 44 || b.getBoundingClientRect().bottom > innerHeight).length`)
	if small > 0 || browsertest.Eval[bool](tab, "document.documentElement.scrollWidth > document.documentElement.clientWidth") {
		t.Errorf("%d buttons are too small or out of reach, or the page is too wide", small)
	}
	press(tab, "[value=approve]")
	tab.WaitText(".notice", "Approved")
	tab.WaitText("h1", "two wants to make 2 calls") // the next one
	// A second tap, which was for the last approval, decides nothing.
	settling(t, tab)
	tab.Tap("[value=approve]")
	h.eventually(first, "waiting_for_approval")
	if got := h.file("ann", "notes.txt") + h.file("ann", "a.txt"); got != "one\ntwo\n" {
		t.Errorf("the files have %q", got)
	}
	browsertest.Eval[bool](tab, `for (const one of document.getAnimations()) one.finish(); true`)
	press(tab, "[value=deny]")
	tab.WaitText(".notice", "Denied")
	tab.WaitText(".diff", "+three")
	tab.WaitText(".earlier", "Approved")
	press(tab, "[value=approve]")
	tab.WaitText(".empty", "Nothing is waiting")
	tab.Until(`document.getElementById("waiting-count").parentNode.hidden`)
	// The browser's button leads to the page as it is now.
	tab.Do(chromedp.NavigateBack())
	tab.WaitText("[data-outcome]", "Approved")
}

func denyWithReason(t *testing.T, h *house) {
	tab := h.tab("bob", browsertest.Options{})
	run := h.ask("bob", "writer")
	h.shows(tab, run)
	tab.Type("[name=reason]", "not this <b>file</b>")
	press(tab, "[value=deny]")
	tab.WaitText(".notice, .empty", "Denied")
	tab.Visit(h.url + "/approvals?show=decided")
	tab.WaitText("#inbox", "not this <b>file</b>")
	tab.Shot("decided")
	if h.file("bob", "notes.txt") != "" {
		t.Error("the call ran")
	}
}

func editArguments(t *testing.T, h *house) {
	tab := h.tab("cyn", browsertest.Options{})
	tab.Expect("400")
	run := h.ask("cyn", "writer")
	h.shows(tab, run)
	tab.Click("[data-key=edit]")
	tab.Wait("#edit-json")
	tab.Axe()
	tab.Shot("edit")
	browsertest.Eval[bool](tab, `document.getElementById("edit-json").value = '{"path":'; true`)
	tab.Click(`[value="approve json"]`)
	tab.WaitText(".form-error", "not valid")
	browsertest.Eval[bool](tab, `document.querySelector("[name='f/content']").value = "other\n"; true`)
	tab.Click(`[value="preview fields"]`)
	tab.WaitText("[data-preview]", "+other")
	tab.Click(`[value="approve fields"]`)
	tab.WaitText(".notice", "Approved")
	if got := h.file("cyn", "notes.txt"); got != "other\n" {
		t.Errorf("the file has %q", got)
	}
}

func rememberCalls(t *testing.T, h *house) {
	tab := h.tab("dan", browsertest.Options{})
	run := h.ask("dan", "writer")
	h.shows(tab, run)
	tab.Click(".remember summary")
	tab.WaitText(".remember-covers", "Writes of notes.txt")
	tab.Shot("remember")
	browsertest.Eval[bool](tab, `document.querySelector("[name=remember]").value = "run"; true`)
	press(tab, "[value=approve]")
	tab.WaitText(".empty", "Nothing is waiting") // its second write passes
	if got := h.eventually(run, "completed"); got.Status != "completed" {
		t.Errorf("the run is %s", got.Status)
	}
	if got := h.file("dan", "notes.txt"); got != "three\n" {
		t.Errorf("the file has %q", got)
	}
}

func decideEach(t *testing.T, h *house) {
	tab := h.tab("eve", browsertest.Options{})
	run := h.ask("eve", "two")
	h.shows(tab, run)
	tab.Axe()
	tab.Shot("two")
	press(tab, `[value="deny call_a"]`)
	tab.WaitText(".decide-call .status", "Denied")
	press(tab, "[value=approve]")
	tab.WaitText(".empty", "Nothing is waiting")
	h.eventually(run, "completed")
	if a, b := h.file("eve", "a.txt"), h.file("eve", "b.txt"); a != "" || b != "b" {
		t.Errorf("the files have %q and %q", a, b)
	}
}

func answerQuestion(t *testing.T, h *house) {
	tab := h.tab("fay", browsertest.Options{})
	tab.Expect("400")
	run := h.ask("fay", "asker")
	h.shows(tab, run)
	tab.Axe()
	tab.Shot("question")
	tab.Type("[name='answer/city']", "Köln")
	tab.Type("[name='answer/count']", "two")
	tab.Click("[name='answer/fast'][value=false]")
	press(tab, "[value=answer]")
	tab.WaitText(".field-error", "whole number")
	browsertest.Eval[bool](tab, `document.querySelector("[name='answer/count']").value = "2"; true`)
	tab.Click("[value=answer]")
	tab.WaitText(".empty", "Nothing is waiting")
	got := h.eventually(run, "completed")
	if text, _ := json.Marshal(got.Trace); !strings.Contains(string(text), `"city\":\"Köln\"`) &&
		!strings.Contains(string(text), "Köln") {
		t.Errorf("the answer did not arrive: %s", text)
	}
}

func raiseLimit(t *testing.T, h *house) {
	tab := h.tab("gus", browsertest.Options{})
	tab.Expect("400")
	run := h.ask("gus", "limited")
	h.shows(tab, run)
	tab.Type("[name=amount]", "many")
	press(tab, "[value=grant]")
	tab.WaitText(".form-error", "number")
	browsertest.Eval[bool](tab, `document.querySelector("[name=amount]").value = "3"; true`)
	tab.Click("[value=grant]")
	tab.WaitText(".notice", "limit was raised")
	h.eventually(run, "completed")
}

func decideTogether(t *testing.T, h *house) {
	if _, err := h.service.People.AddUser(t.Context(), root, access.NewUser{
		User: access.User{Name: "ivy", Roles: []string{"approver"}},
	}); err != nil {
		t.Fatal(err)
	}
	one, two := h.tab("hal", browsertest.Options{}), h.tab("ivy", browsertest.Options{})
	two.Expect("409")
	run := h.ask("hal", "writer")
	h.shows(one, run)
	h.shows(two, run)
	stale := browsertest.Eval[string](two, `document.querySelector("[name=digest]").value`)
	two.Type("[name=reason]", "typed by ivy")
	one.Type("[name=reason]", "fine")
	press(one, "[value=approve]")
	two.WaitText("[data-outcome]", "hal")
	two.WaitText("[data-outcome]", "fine")
	// Her click would come too late. What she typed is still there.
	browsertest.Eval[bool](two, `document.querySelector("[value=deny]").disabled = false; true`)
	two.Click("[value=deny]")
	two.WaitText(".form-error", "Approved")
	if got := browsertest.Eval[string](two, `document.querySelector("[name=reason]").value`); got != "typed by ivy" {
		t.Errorf("the reason is %q", got)
	}
	// A form that is sent twice is a conflict in words, and keeps what was typed.
	status, body := h.decideForm(h.token("ivy"), "/approvals/"+run.Pending.ApprovalID,
		url.Values{"do": {"deny"}, "digest": {stale}, "reason": {"once more"}})
	if status != http.StatusConflict || !strings.Contains(body, "hal") || !strings.Contains(body, "This has been decided") {
		t.Errorf("status %d: %s", status, body)
	}
	// The inbox of the other loses it, and gets the next one, by itself.
	two.Visit(h.url + "/approvals")
	next := h.waits(run)
	two.Wait("#item-" + next.ID)
	h.post(h.token("hal"), "/api/approvals/"+next.ID, `{"decision":"deny","digest":"`+next.Digest+`"}`, nil)
	two.Until(`!document.getElementById("item-` + next.ID + `")`)
	fresh := h.ask("hal", "two")
	two.Wait("#item-" + fresh.Pending.ApprovalID)
	two.Until(`document.getElementById("waiting-count").innerText == document.querySelectorAll("#inbox a").length`)
}

func keyboardOnly(t *testing.T, h *house) {
	tab := h.tab("jon", browsertest.Options{})
	first := h.ask("jon", "writer")
	h.ask("jon", "two")
	tab.Visit(h.url + "/approvals")
	tab.Until(`document.querySelectorAll("#inbox a").length === 2`)
	tab.Wait("[data-ready]")
	tab.Press("?")
	tab.Wait("dialog[open]")
	tab.Shot("keys")
	tab.Press(kb.Escape)
	tab.Press("j")
	tab.Press("j")
	tab.Press(kb.Enter)
	tab.WaitText("h1", "writer wants to call")
	tab.Wait("[data-ready]")
	tab.Press("d")
	browsertest.Eval[bool](tab, `document.querySelector("[name=reason]").value = ""; true`) // the driver types it, too
	for _, key := range "a j e?" {                                                          // typed, so no keys of the page
		tab.Press(string(key))
	}
	tab.Press(kb.Enter)
	tab.WaitText("h1", "two wants to make 2 calls")
	if v := h.decided(first); v.Decisions[0].Decision != "deny" || v.Decisions[0].Reason != "a j e?" {
		t.Errorf("%+v", v.Decisions)
	}
	tab.Wait("[data-ready]")
	tab.Until("performance.now() > 2000")
	tab.Press("a")
	tab.Until(`location.search.includes("said=approve")`)
}

func withoutScript(t *testing.T, h *house) {
	tab := h.tab("kim", browsertest.Options{NoScript: true})
	tab.Expect("400")
	tab.Expect("409")
	run := h.ask("kim", "asker")
	tab.Visit(h.url + "/approvals")
	tab.Click("#inbox a")
	tab.Wait("[value=answer]")
	token, at := h.token("kim"), "/approvals/"+run.Pending.ApprovalID
	status, body := h.decideForm(token, at, url.Values{
		"do": {"answer"}, "digest": {run.Pending.Digest}, "answer/city": {"Bonn"}, "answer/count": {"x"},
	})
	if status != http.StatusBadRequest || !strings.Contains(body, "Bonn") || !strings.Contains(body, "not a whole number") ||
		!strings.Contains(body, "This is required") {
		t.Errorf("status %d: %s", status, body)
	}
	status, _ = h.decideForm(token, at, url.Values{
		"do": {"answer"}, "digest": {run.Pending.Digest}, "answer/city": {"Bonn"}, "answer/count": {"4"}, "answer/fast": {"true"},
	})
	if status != http.StatusSeeOther {
		t.Errorf("status %d", status)
	}
	run = h.ask("kim", "writer")
	h.shows(tab, run)
	tab.Type("[value=deny]", kb.Enter)
	tab.Wait(".notice-good")
	// A stale form does not decide.
	run = h.ask("kim", "writer")
	status, body = h.decideForm(token, "/approvals/"+run.Pending.ApprovalID, url.Values{"do": {"approve"}, "digest": {"stale"}, "reason": {"kept"}})
	if status != http.StatusConflict || !strings.Contains(body, "kept") || !strings.Contains(body, "look again") {
		t.Errorf("status %d: %s", status, body)
	}
	// Neither do links: a program that follows them changes nothing.
	for _, query := range []string{"?do=approve&digest=" + run.Pending.Digest, "/edit?call=call_1&do=approve"} {
		h.get(token, "/approvals/"+run.Pending.ApprovalID+query)
	}
	if v := h.waits(run); v.ID != run.Pending.ApprovalID {
		t.Error("a link decided")
	}
}

func hostileTexts(t *testing.T, h *house) {
	tab := h.tab("lea", browsertest.Options{})
	tab.Expect("400")
	run := h.ask("lea", "evil")
	tab.Visit(h.url + "/approvals")
	tab.Wait("#inbox a")
	h.shows(tab, run)
	if text := tab.Text("main"); !strings.Contains(text, "<script>toolcribCanary(2)</script>[U+202E][U+200B]") {
		t.Errorf("hidden characters are not shown: %s", text)
	}
	if text := browsertest.Eval[string](tab, `document.querySelector(".call-values").textContent`); !strings.Contains(text, "[U+202E][U+200B]") {
		t.Errorf("hidden characters of arguments are not shown: %s", text)
	}
	tab.Shot("hostile")
	tab.Visit(h.url + "/approvals/" + run.Pending.ApprovalID + "/edit?call=" + url.QueryEscape("<img src=x onerror=toolcribCanary(3)>"))
	h.shows(tab, run)
	tab.Type("[name=reason]", evilText)
	press(tab, "[value=deny]")
	tab.WaitText(".notice", "Denied")
	tab.Visit(h.url + "/approvals/" + h.waits(run).ID)
	tab.WaitText("h1", "evil has a question")
	press(tab, "[value=answer]")
	tab.WaitText(".notice", "Answered")
	tab.Visit(h.url + "/approvals?show=decided")
	tab.WaitText("#inbox", evilText)
	for _, path := range []string{"/approvals?show=" + url.QueryEscape(evilText), "/approvals/" + url.PathEscape(evilText), "/approvals?said=" + url.QueryEscape(evilText)} {
		if _, _, body := h.get(h.token("lea"), path); strings.Contains(body, "<img") || strings.Contains(body, "<script>") {
			t.Errorf("%s is interpreted", path)
		}
	}
}

func foreignApproval(t *testing.T, h *house) {
	run := h.ask("mia", "writer")
	token := h.token("nat")
	for _, path := range []string{
		"/approvals/" + run.Pending.ApprovalID, "/approvals/" + run.Pending.ApprovalID + "/edit?call=call_1",
		"/approvals/apr_00000000000000000000000000", "/approvals/last", "/approvals/x",
	} {
		if status, _, body := h.get(token, path); status != http.StatusNotFound || strings.Contains(body, "write_file") {
			t.Errorf("%s: status %d", path, status)
		}
		if status, _ := h.decideForm(token, path, url.Values{"do": {"approve"}, "digest": {run.Pending.Digest}, "call": {"call_1"}}); status != http.StatusNotFound {
			t.Errorf("%s: status %d", path, status)
		}
	}
	if _, _, body := h.get(token, "/approvals"); strings.Contains(body, run.Pending.ApprovalID) {
		t.Error("it is in the inbox of another user")
	}
}

// inDoubt is last: it starts another server.
func inDoubt(t *testing.T, h *house) {
	run := h.ask("oto", "writer")
	h.lost(run)
	tab := h.tab("oto", browsertest.Options{})
	h.eventually(run, "waiting_for_approval")
	doubt := h.waits(run)
	tab.Visit(h.url + "/approvals/" + doubt.ID)
	tab.WaitText("h1", "take effect")
	tab.Axe()
	tab.Shot("doubt")
	press(tab, "[value=not_happened]")
	tab.WaitText(".notice", "counts as not happened")
	if v := h.decided(run); len(v.Decisions) == 0 {
		t.Error("nothing was decided")
	}
}

// lost has the server of a run end in the middle of a write, as if the machine had lost power, and starts it again.
func (h *house) lost(run service.Run) {
	h.t.Helper()
	h.stop()
	c, err := config.Load(config.Source{Path: filepath.Join(h.dir, "toolcrib.yaml"), Origin: config.OriginFlag}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	s := service.New(env.Options{
		Config: c, DataDir: filepath.Join(h.dir, "data"), Driver: "server", NoSandbox: func() string { return "" },
	})
	if err := s.Env.OpenFor(h.t.Context(), root); err != nil {
		h.t.Fatal(err)
	}
	v, err := s.Approval(h.t.Context(), root, run.Pending.ApprovalID)
	if err == nil {
		_, err = s.Decide(h.t.Context(), root, v, service.Decision{
			CallDecision: journal.CallDecision{Decision: journal.DecisionApprove}, Digest: v.Digest,
		})
	}
	if err != nil {
		h.t.Fatal(err)
	}
	var last toolcrib.Seq
	now := time.Now().UTC().Truncate(time.Microsecond)
	for e, err := range s.Env.Store.Read(h.t.Context(), run.ID, 0) {
		if err != nil {
			h.t.Fatal(err)
		}
		last = e.Seq
	}
	err = s.Env.Store.Append(h.t.Context(), run.ID, last,
		toolcrib.Event{Time: now, Body: &journal.Verdicts{Again: true, Verdicts: []journal.Verdict{{
			CallID: "call_1", Tool: "write_file", Decision: toolcrib.Allow, Effect: toolcrib.EffectNonIdempotentWrite,
		}}}},
		toolcrib.Event{Time: now, Body: &journal.ToolStarted{ID: "call_1", Name: "write_file", Write: true}})
	if err != nil {
		h.t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		h.t.Fatal(err)
	}
	h.start(strings.TrimPrefix(h.url, "http://"))
	h.t.Cleanup(func() { h.stop() })
}

// With notifications on, one appears for a new approval while the person does not look at the page, and leads to it.
// Of many approvals, pages show each once, while others decide; pages that are open follow.
func TestN25_ApprovalsPages(t *testing.T) {
	h := open(t, deciders, "")
	const many = 120
	ann := h.token("ann")
	pages := func() (all [][]string, at []string) {
		for next := "/approvals"; next != ""; {
			status, _, body := h.get(ann, next)
			if status != http.StatusOK || len(all) > many {
				t.Fatalf("%s: %d", next, status)
			}
			at, next = append(at, next), ""
			var ids []string
			for _, m := range itemID.FindAllStringSubmatch(body, -1) {
				ids = append(ids, m[1])
			}
			if m := nextPage.FindStringSubmatch(body); m != nil {
				next = html.UnescapeString(m[1])
			}
			all = append(all, ids)
		}
		return all, at
	}
	var want []string // newest first
	for range many {
		want = append(want, h.ask("ann", "two").Pending.ApprovalID)
	}
	slices.Reverse(want)
	all, at := pages()
	if got := slices.Concat(all...); !slices.Equal(got, want) || len(all) != 3 || len(all[0]) != 50 {
		t.Fatalf("%d approvals on %d pages, want %d", len(got), len(all), many)
	}
	tab := h.tab("ann", browsertest.Options{})
	tab.Visit(h.url + at[1])
	tab.Wait("[data-ready] #inbox a[rel=next]")
	tab.Axe()
	tab.Shot("inbox-page")
	mine, older := all[1][20], all[1][49]
	first, err := h.service.Approval(t.Context(), root, all[0][0])
	if err != nil {
		t.Fatal(err)
	}
	h.post(ann, "/api/approvals/"+first.ID, `{"decision":"deny","digest":"`+first.Digest+`"}`, nil)
	tab.Visit(h.url + "/approvals/" + mine)
	tab.Wait(`a[rel=prev][href$="` + all[1][19] + `"]`)
	tab.Wait(`a[rel=next][href$="` + all[1][21] + `"]`)
	tab.Visit(h.url + "/approvals/" + older)
	tab.Wait(`a[rel=next][href$="` + all[2][0] + `"]`)
	watching := h.tab("ann", browsertest.Options{})
	watching.Visit(h.url + at[1])
	watching.Wait("[data-ready] #item-" + mine)
	tab.Visit(h.url + at[1])
	send(tab, "#item-"+mine)
	press(tab, "[name=do][value=deny]")
	tab.WaitText(".notice-good", "Denied")
	watching.Until(`!document.getElementById("item-` + mine + `")`)
	got, _ := pages()
	for _, id := range []string{first.ID, mine} {
		want = slices.DeleteFunc(want, func(one string) bool { return one == id })
	}
	if !slices.Equal(slices.Concat(got...), want) {
		t.Errorf("%d approvals, want %d", len(slices.Concat(got...)), len(want))
	}
}

var (
	itemID   = regexp.MustCompile(`id="item-(apr_[0-9A-Z]+)"`)
	nextPage = regexp.MustCompile(`rel="next" href="([^"]+)"`)
)

func TestN25_Notifications(t *testing.T) {
	h := open(t, deciders, "")
	tab := h.tab("ann", browsertest.Options{})
	tab.Grant("notifications")
	tab.Visit(h.url + "/approvals")
	tab.Wait("[data-ready]")
	browsertest.Eval[bool](tab, `{
		window.shown = [];
		window.Notification = class extends Notification {
			constructor(...all) { super(...all); this.addEventListener("show", () => shown.push(this)); }
		};
		true;
	}`)
	tab.Click("[data-notify]")
	tab.Wait("[data-notify][aria-pressed=true]")
	tags := func() string { return browsertest.Eval[string](tab, `shown.map((one) => one.tag).join(" ")`) }
	seen := h.ask("ann", "two")
	tab.Wait("#item-" + seen.Pending.ApprovalID)
	if got := tags(); got != "" {
		t.Errorf("a notification of what the person sees: %s", got)
	}
	tab.Hide()
	first := h.ask("ann", "writer").Pending
	tab.Until("shown.length === 1")
	h.post(h.token("ann"), "/api/approvals/"+seen.Pending.ApprovalID, `{"decision":"deny","digest":"`+seen.Pending.Digest+`"}`, nil)
	tab.Until(`!document.getElementById("item-` + seen.Pending.ApprovalID + `")`)
	second := h.ask("ann", "asker").Pending
	tab.Until("shown.length === 2")
	if got := tags(); got != first.ApprovalID+" "+second.ApprovalID {
		t.Errorf("notifications of %s, want %s and %s", got, first.ApprovalID, second.ApprovalID)
	}
	browsertest.Eval[bool](tab, `shown[0].dispatchEvent(new Event("click"))`)
	at(tab, "/approvals/"+first.ApprovalID)
}

func TestN25_ApprovalsFourEyes(t *testing.T) {
	h := open(t, deciders, "approvals: {four_eyes: true, expire: 1s}\n")
	tab := h.tab("ann", browsertest.Options{})
	run := h.ask("ann", "writer")
	at := "/approvals/" + run.Pending.ApprovalID
	tab.Visit(h.url + at)
	tab.WaitText("main", "somebody else must approve")
	tab.Shot("four-eyes")
	if status, body := h.decideForm(h.token("ann"), at, url.Values{"do": {"approve"}, "digest": {run.Pending.Digest}}); status != http.StatusForbidden && status != http.StatusConflict {
		t.Errorf("status %d: %s", status, body)
	}
	h.eventually(run, "completed")
	status, body := h.decideForm(h.token("boss"), at, url.Values{"do": {"approve"}, "digest": {run.Pending.Digest}})
	if status != http.StatusConflict || !strings.Contains(body, "expired") {
		t.Errorf("status %d: %s", status, body)
	}
	if h.file("ann", "notes.txt") != "" {
		t.Error("the call ran")
	}
}

// decideForm sends a form, and returns the page that answers.
func (h *house) decideForm(token, path string, values url.Values) (status int, body string) {
	h.t.Helper()
	status, _, body = h.form(token, path, values.Encode())
	return status, body
}

// eventually waits until a run has a status.
func (h *house) eventually(run service.Run, status string) (now service.Run) {
	h.t.Helper()
	waittest.Until(h.t, "run "+string(run.ID)+" is "+status, func() bool {
		var err error
		now, err = h.service.Run(h.t.Context(), root, string(run.ID))
		return err == nil && string(now.Status) == status && (now.Pending == nil || now.Pending.ApprovalID != run.Pending.ApprovalID)
	})
	return now
}

// waits returns the approval that a run waits for.
func (h *house) waits(run service.Run) *service.Approval {
	h.t.Helper()
	var found *service.Approval
	waittest.Until(h.t, "run "+string(run.ID)+" waits", func() bool {
		all, err := h.service.Approvals(h.t.Context(), root)
		for _, v := range all {
			if v.Run == run.ID {
				found = v
			}
		}
		return err == nil && found != nil
	})
	return found
}

// decided returns the approval that a run waited for at first.
func (h *house) decided(run service.Run) *service.Approval {
	h.t.Helper()
	v, err := h.service.Approval(h.t.Context(), root, run.Pending.ApprovalID)
	if err != nil {
		h.t.Fatal(err)
	}
	return v
}
