package ui_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/browsertest"
	"github.com/toolcrib/toolcrib/internal/relaytest"
	"github.com/toolcrib/toolcrib/service"
)

// runOf starts a run of an agent, and waits until it has ended or parked.
func (h *house) runOf(token, agent, prompt string) (run service.Run) {
	h.t.Helper()
	body, err := json.Marshal(map[string]string{"agent": agent, "input": prompt})
	if err != nil {
		h.t.Fatal(err)
	}
	h.post(token, "/api/runs", string(body), &run)
	return run
}

const storyScript = `
- thinking: "The person wants to know what is here."
  text: "I look at the **folder** first."
  tool_calls:
    - {name: list_dir, arguments: {path: "."}}
    - {name: read_file, arguments: {path: missing.txt}}
    - {name: nothing_such, arguments: {a: 1}}
- text: "Now I write."
  tool_calls: [{name: write_file, arguments: {path: out.txt, content: "one\ntwo\n"}}]
- text: "# Done\n\nIt is *written*."
`

func TestN25_Story(t *testing.T) {
	h := open(t, map[string]string{"default": hello, "asks": storyScript}, "")
	boss := h.token("boss")
	run := h.runOf(boss, "asks", "List what is here, and write out.txt. \u202e hidden")
	if run.Status != "waiting_for_approval" {
		t.Fatalf("%+v", run)
	}
	for name, o := range map[string]browsertest.Options{"desktop": {}, "phone": browsertest.Options{}.Phone()} {
		tab := h.tab("boss", o)
		tab.Visit(h.url + "/runs/" + string(run.ID))
		tab.WaitText(".ledger", "list_dir")
		tab.Shot("story-" + name)
		if browsertest.Eval[bool](tab, "document.documentElement.scrollWidth > document.documentElement.clientWidth") {
			t.Error("wider than the window")
		}
		tab.Visit(h.url + "/runs")
		tab.WaitText(".runs", "List what is here")
		tab.Shot("runs-" + name)
		if o.Width > 0 { // the page of the run is checked elsewhere
			tab.Axe()
		}
	}
}

func TestN25_StoryLive(t *testing.T) {
	h := open(t, map[string]string{"default": `
- {thinking: "Let me think.", text: "First I look.", tool_calls: [{name: list_directory, arguments: {path: "."}}], delay: 1500ms}
- {text: "All **done**.", delay: 1500ms}
`}, "")
	boss := h.token("boss")
	var run service.Run
	h.post(boss, "/api/runs", `{"input": "look", "detach": true}`, &run)
	tab := h.tab("boss", browsertest.Options{})
	tab.Visit(h.url + "/runs/" + string(run.ID))
	tab.WaitText(".ledger", "The model is answering")
	tab.WaitText(".ledger", "list_directory")
	tab.WaitText(".run-head", "Completed")
	tab.WaitText(".ledger .answer strong", "done")
	tab.Until(`document.querySelector("#announce").textContent === "Completed"`)
	if n := browsertest.Eval[int](tab, `document.querySelectorAll(".entry-round").length`); n != 2 {
		t.Errorf("%d rounds", n)
	}
	tab.Shot("live")
}

// Nobody sees or changes a run of another user, and an unknown one is not found.
func TestN25_StoryForeign(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	ann, bob := h.token("ann"), h.token("bob")
	run := h.runOf(ann, "default", "private words")
	for _, id := range []string{string(run.ID), "run_00000000000000000000000000", "nothing", "%00", "../x"} {
		for _, path := range []string{
			"", "?view=timeline", "/live?after=0", "/events/1", "/events/1/result", "/export", "/verify", "/replay",
		} {
			if status, _, body := h.get(bob, "/runs/"+id+path); status != http.StatusNotFound || strings.Contains(body, "private") {
				t.Errorf("/runs/%s%s: %d", id, path, status)
			}
		}
		for _, path := range []string{"cancel", "message", "resume", "fork"} {
			if status, _, _ := h.form(bob, "/runs/"+id+"/"+path, url.Values{"text": {"x"}}.Encode()); status/100 != 4 {
				t.Errorf("/runs/%s/%s: %d", id, path, status)
			}
		}
	}
	if _, _, body := h.get(bob, "/runs"); strings.Contains(body, "private") || strings.Contains(body, `name="user"`) {
		t.Error("the list shows another user's run, or a filter for users")
	}
	for _, path := range []string{"?before=x", "/events/0", "/events/99", "/events/x"} {
		if status, _, _ := h.get(ann, "/runs/"+string(run.ID)+path); status/100 != 4 {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// The filters of the list are in its address.
func TestN25_RunsFilters(t *testing.T) {
	h := open(t, map[string]string{"default": strings.Repeat(hello, 50), "asks": storyScript}, "")
	ann, boss := h.token("ann"), h.token("boss")
	first := h.runOf(ann, "default", "first question")
	h.runOf(boss, "asks", "second question")
	for query, want := range map[string][2]bool{
		"": {true, true}, "?status=completed": {true, false}, "?status=parked": {false, true}, "?user=ann": {true, false},
		"?agent=asks": {false, true}, "?id=" + string(first.ID): {true, false}, "?id=zzzzzzzz": {false, false},
		"?since=2001-01-01": {true, true}, "?since=2999-01-01": {false, false}, "?session=none": {false, false},
	} {
		status, _, body := h.get(boss, "/runs"+query)
		got := [2]bool{strings.Contains(body, "first question"), strings.Contains(body, "second question")}
		if status != http.StatusOK || got != want && !strings.Contains(query, "id=run") {
			t.Errorf("%s: %d %v", query, status, got)
		}
	}
	for _, query := range []string{"?status=unknown", "?since=yesterday", "?cursor=x"} {
		if status, _, _ := h.get(boss, "/runs"+query); status != http.StatusBadRequest {
			t.Errorf("%s: %d", query, status)
		}
	}
	for range 31 {
		h.runOf(ann, "default", "many")
	}
	_, _, body := h.get(ann, "/runs?agent=default")
	next := regexp.MustCompile(`rel="next" href="([^"]+)"`).FindStringSubmatch(body)
	if next == nil || !strings.Contains(next[1], "agent=default") {
		t.Fatalf("no next page: %q", next)
	}
	if _, _, body := h.get(ann, html.UnescapeString(next[1])); !strings.Contains(body, "first question") {
		t.Error("the next page lacks the first run")
	}
}

// A decision in the story leaves the page where it is, and the run continues there.
func TestN25_StoryDecide(t *testing.T) {
	h := open(t, map[string]string{"default": hello, "asks": storyScript}, "")
	run := h.runOf(h.token("boss"), "asks", "write")
	tab := h.tab("boss", browsertest.Options{})
	tab.Visit(h.url + "/runs/" + string(run.ID))
	tab.Wait(".ledger form[data-decide]")
	tab.Shot("story-decide")
	tab.Axe()
	tab.Type(".say textarea", "half a message")
	browsertest.Eval[bool](tab, "window.still = true")
	tab.Click(".ledger form[data-decide] button[value=approve]")
	tab.WaitText(".run-head", "Completed")
	tab.WaitText(".ledger", "Approved")
	tab.WaitText(".ledger .answer", "It is written")
	if !browsertest.Eval[bool](tab, "window.still && document.querySelector('.say textarea').value === 'half a message'") {
		t.Error("the page was left, or a text was lost")
	}
	tab.Visit(h.url + "/runs/" + string(run.ID) + "?view=timeline")
	tab.Wait(".bars")
	tab.Shot("timeline")
	tab.Axe()
	for seq := 1; ; seq++ {
		status, _, body := h.get(h.token("boss"), fmt.Sprintf("/runs/%s/events/%d", run.ID, seq))
		if status == http.StatusNotFound && seq > 10 {
			break
		}
		if status != http.StatusOK {
			t.Fatalf("event %d: %d", seq, status)
		}
		if strings.Contains(body, "model_request") && seq < 10 {
			tab.Visit(h.url + fmt.Sprintf("/runs/%s/events/%d", run.ID, seq))
			tab.WaitText("main", "Input of the model")
			tab.Shot(fmt.Sprintf("event-%d", seq))
			tab.Axe()
		}
	}
	for _, what := range []string{"verify", "replay"} {
		if _, _, body := h.get(h.token("boss"), "/runs/"+string(run.ID)+"/"+what); !strings.Contains(body, "notice-good") {
			t.Errorf("%s: not good", what)
		}
	}
	_, head, body := h.get(h.token("boss"), "/runs/"+string(run.ID)+"/export")
	if !strings.Contains(head.Get("Content-Disposition"), "attachment") || !strings.Contains(body, `"end":true`) {
		t.Error("the export is not whole")
	}
}

// A second tap in the story, which was for the last approval, decides nothing about the next one.
func TestN25_StorySecondTap(t *testing.T) {
	h := open(t, deciders, "")
	run := h.ask("ann", "writer")
	tab := h.tab("ann", browsertest.Options{}.Phone())
	tab.Visit(h.url + "/runs/" + string(run.ID))
	tab.Wait("[data-state=open] .decide")
	tab.Click(".decide [value=approve]")
	tab.Until(`![undefined, "` + run.Pending.ApprovalID + `"].includes(document.querySelector(".decide")?.dataset.decide)`)
	next := h.waits(run)
	settling(t, tab)
	tab.Tap(".decide [value=approve]")
	tab.Tap(".decide [value=deny]")
	if got, err := h.service.Approval(t.Context(), root, next.ID); err != nil || len(got.Decisions) > 0 {
		t.Errorf("a second tap decided: %+v, %v", got, err)
	}
	browsertest.Eval[bool](tab, `for (const one of document.getAnimations()) one.finish(); true`)
	tab.Tap(".decide [value=deny]")
	h.eventually(run, "completed")
}

// The timeline of a run grows while the run is active, also after a lost connection, and keeps the focus.
func TestN25_TimelineLive(t *testing.T) {
	h := open(t, map[string]string{"late": "- {text: late, delay: 10m}\n", "default": `
- {text: "one", tool_calls: [{name: list_directory, arguments: {path: "."}}], delay: 1s}
- {text: "two", tool_calls: [{name: list_directory, arguments: {path: "."}}], delay: 1s}
- {text: "three", delay: 8s}
`}, "")
	relay := relaytest.New(t, strings.TrimPrefix(h.url, "http://"))
	tab := h.tab("boss", browsertest.Options{})
	tab.Expect("ERR_")
	follow := func(agent string) (page string) {
		var run service.Run
		h.post(h.token("boss"), "/api/runs", `{"input": "look", "agent": "`+agent+`", "detach": true}`, &run)
		page = "http://" + relay.Address() + "/runs/" + string(run.ID) + "?view=timeline"
		tab.Visit(page)
		tab.Wait("[data-state=open] .bars li")
		browsertest.Eval[bool](tab, `window.still = true; document.querySelector(".bars a").focus(); true`)
		return page
	}
	const bars = `[...document.querySelectorAll(".bars li")]`
	follow("late")
	took := browsertest.Eval[string](tab, bars+`[0].innerText`)
	tab.Until(bars + `[0].innerText !== ` + strconv.Quote(took)) // work in progress
	page := follow("default")
	tab.Until(bars + `.length === 5`)
	relay.Cut()
	tab.WaitText(".live", "Connection lost")
	relay.Heal()
	tab.WaitText(".run-head", "Completed")
	tab.Until(`document.querySelector("#announce").textContent === "Completed"`)
	if !browsertest.Eval[bool](tab, `window.still && document.activeElement === document.querySelector(".bars a")`) {
		t.Error("the page was left, or the focus was lost")
	}
	live := browsertest.Eval[[]string](tab, bars+`.map((e) => e.innerText)`)
	tab.Visit(page)
	if loaded := browsertest.Eval[[]string](tab, bars+`.map((e) => e.innerText)`); !slices.Equal(live, loaded) {
		t.Errorf("live: %v\nloaded: %v", live, loaded)
	}
}

// A run is forked from a round, with another prompt; sending the form twice forks once.
func TestN25_StoryFork(t *testing.T) {
	h := open(t, map[string]string{"default": "- {text: one, tool_calls: [{name: list_directory, arguments: {path: .}}]}\n- {text: two}\n- {text: three}\n"}, "")
	run := h.runOf(h.token("boss"), "default", "the first prompt")
	tab := h.tab("boss", browsertest.Options{})
	tab.Visit(h.url + "/runs/" + string(run.ID))
	tab.Click(`a[href$="round=2#fork"]`)
	tab.Wait("#fork-round")
	if round := browsertest.Eval[string](tab, `document.querySelector("#fork-round").value`); round != "2" {
		t.Errorf("round %s", round)
	}
	tab.Type("#fork-text", "another prompt")
	browsertest.Eval[bool](tab, `{ const b = document.querySelector("#fork button.primary"); b.click(); b.click(); true }`)
	tab.WaitText(".trail + h1", "another prompt")
	tab.WaitText("main", "Forked before round 2")
	tab.WaitText(".run-head", "Completed")
	tab.Visit(h.url + "/runs")
	if n := browsertest.Eval[int](tab, `document.querySelectorAll(".runs tbody tr").length`); n != 2 {
		t.Errorf("%d runs", n)
	}
}

// The page takes the stream up again after a lost connection and a restart of the server, and misses nothing.
func TestN25_StoryReconnects(t *testing.T) {
	h := open(t, map[string]string{"default": `
- {text: "one", tool_calls: [{name: list_directory, arguments: {path: "."}}], delay: 1s}
- {text: "two", tool_calls: [{name: list_directory, arguments: {path: "."}}], delay: 2s}
- {text: "three **done**", delay: 2s}
`}, "")
	relay := relaytest.New(t, strings.TrimPrefix(h.url, "http://"))
	var run service.Run
	h.post(h.token("boss"), "/api/runs", `{"input": "look", "detach": true}`, &run)
	tab := h.tab("boss", browsertest.Options{})
	tab.Expect("ERR_")
	tab.Visit("http://" + relay.Address() + "/runs/" + string(run.ID))
	tab.WaitText("[data-state=open]", "Round 1")
	browsertest.Eval[bool](tab, `document.querySelector(".say textarea").value = "typed", window.still = true`)
	relay.Cut()
	tab.WaitText(".live", "Connection lost")
	relay.Heal()
	tab.WaitText(".ledger", "Round 2")
	h.restart()
	tab.WaitText(".ledger .answer strong", "done")
	tab.WaitText(".run-head", "Completed")
	ids := browsertest.Eval[[]string](tab, `[...document.querySelectorAll(".step")].map((e) => e.id)`)
	if !browsertest.Eval[bool](tab, `window.still && document.querySelector(".say textarea").value === "typed"`) {
		t.Error("the page was left, or a text was lost")
	}
	tab.Visit("http://" + relay.Address() + "/runs/" + string(run.ID))
	fresh := browsertest.Eval[[]string](tab, `[...document.querySelectorAll(".step")].map((e) => e.id)`)
	if !slices.Equal(ids, fresh) {
		t.Errorf("live: %v\nloaded: %v", ids, fresh)
	}
}

// A token that ends while the page is open is told, and nothing that was typed is lost.
func TestN25_StorySignedOut(t *testing.T) {
	h := open(t, map[string]string{"default": "- {text: late, delay: 20s}\n"}, "")
	var run service.Run
	h.post(h.token("ann"), "/api/runs", `{"input": "look", "detach": true}`, &run)
	tab := h.tab("ann", browsertest.Options{})
	tab.Expect("401")
	tab.Expect("ERR_")
	tab.Visit(h.url + "/runs/" + string(run.ID))
	tab.WaitText(".ledger", "Round 1")
	tab.Type(".say textarea", "typed")
	if _, err := h.service.People.RemoveUser(t.Context(), root, "ann"); err != nil {
		t.Fatal(err)
	}
	tab.WaitText(".live", "signed out")
	if browsertest.Eval[string](tab, `document.querySelector(".say textarea").value`) != "typed" {
		t.Error("the text was lost")
	}
}

// Sub-agents and teams are a tree with links.
func TestN25_StoryTree(t *testing.T) {
	h := open(t, map[string]string{
		"default": `- {text: I ask, tool_calls: [{name: spawn, arguments: {agent: helper, task: "Say hello"}}, {name: spawn, arguments: {agent: helper, task: "Say more"}}]}` + "\n- {text: done}\n",
		"helper":  hello + hello, "one": hello, "two": hello,
	}, "team: {panels: {pair: {agents: [one, two]}}}\n")
	boss := h.token("boss")
	run := h.runOf(boss, "default", "use a sub-agent")
	var asked service.Run
	h.post(boss, "/api/confer", `{"question": "Why?", "panel": "pair"}`, &asked)
	tab := h.tab("boss", browsertest.Options{})
	for name, id := range map[string]string{"tree": string(run.ID), "team": string(asked.ID)} {
		tab.Visit(h.url + "/runs/" + id)
		tab.WaitText(".ledger", "Run of")
		tab.Shot("story-" + name)
		tab.Visit(h.url + "/runs/" + id + "?view=timeline")
		if n := browsertest.Eval[int](tab, `document.querySelectorAll(".tree .tree li, .tree ul li").length`); n != 2 {
			t.Errorf("%s: %d runs below", name, n)
		}
		tab.Shot("timeline-" + name)
		tab.Axe()
		tab.Click(".tree ul a")
		tab.WaitText(".trail", "parent run")
	}
}

// A call of a tool that there is not says so once.
func TestN25_StoryNoSuchTool(t *testing.T) {
	h := open(t, map[string]string{"default": "- tool_calls: [{name: nothing_such, arguments: {}}]\n- {text: done}\n"}, "")
	boss := h.token("boss")
	run := h.runOf(boss, "default", "go")
	_, _, body := h.get(boss, "/runs/"+string(run.ID))
	if n := strings.Count(strings.ToLower(body), "there is no such tool"); n != 1 {
		t.Errorf("%d times", n)
	}
}

// Hostile texts of a model and of people are shown as text, live and loaded.
func TestN25_StoryHostile(t *testing.T) {
	var script []map[string]any
	texts := hostile()
	for i := 0; i < len(texts); i += 12 {
		var calls []map[string]any
		for _, text := range texts[i:min(i+12, len(texts))] {
			calls = append(calls, map[string]any{"name": text, "arguments": map[string]string{"a": text, text: "b"}})
			calls = append(calls, map[string]any{"name": "read_file", "arguments": map[string]string{"path": text}})
		}
		part := strings.Join(texts[i:min(i+12, len(texts))], "\n\n")
		script = append(script, map[string]any{"text": part, "thinking": part, "tool_calls": calls})
	}
	long := strings.Repeat("A line without an end. ", 5_000)
	script = append(script, map[string]any{
		"text": long, "thinking": long, "tool_calls": []map[string]any{{"name": "read_file", "arguments": map[string]string{"path": long}}},
	}, map[string]any{"text": strings.Join(texts, "\n\n")})
	text, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	h := open(t, map[string]string{"default": string(text)}, "")
	var run service.Run
	body, err := json.Marshal(map[string]any{"input": strings.Join(texts, "\n"), "detach": true, "limits": map[string]int{"max_iterations": 100}})
	if err != nil {
		t.Fatal(err)
	}
	boss := h.token("boss")
	h.post(boss, "/api/runs", string(body), &run)
	tab := h.tab("boss", browsertest.Options{})
	tab.Visit(h.url + "/runs/" + string(run.ID))
	tab.WaitText(".run-head", "ompleted")
	for _, path := range []string{"", "?before=60", "?view=timeline", "/events/1", "/events/2", "/events/4"} {
		tab.Visit(h.url + "/runs/" + string(run.ID) + path)
		browsertest.Eval[bool](tab, `{ for (const d of document.querySelectorAll("details")) d.open = true; true }`)
		if browsertest.Eval[bool](tab, "document.documentElement.scrollWidth > document.documentElement.clientWidth") {
			t.Errorf("%s is wider than the window", path)
		}
		if found := browsertest.Eval[int](tab, `document.querySelectorAll("main script, main img, main iframe, main [onerror], main base, main style, main a[href^='javascript']").length`); found > 0 {
			t.Errorf("%s has %d elements of a hostile text", path, found)
		}
	}
	tab.Visit(h.url + "/runs")
	tab.Wait(".runs")
	if _, _, body := h.get(boss, "/runs/"+string(run.ID)); len(body) > 3<<20 {
		t.Errorf("the page has %d bytes", len(body))
	}
}

// Of a run whose content was removed, the page says so.
func TestN25_StoryPruned(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	boss := h.token("boss")
	run := h.runOf(boss, "default", "private words")
	r := service.PruneRequest{Runs: []string{string(run.ID)}, ContentOnly: true}
	if _, err := h.service.Prune(t.Context(), root, r); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/runs/" + string(run.ID): "was removed", "/runs/" + string(run.ID) + "?view=timeline": "was removed",
		"/runs": string(run.ID), "/runs/" + string(run.ID) + "/events/1": "was pruned",
		"/runs/" + string(run.ID) + "/live": "", "/runs/" + string(run.ID) + "/replay": "notice-bad",
	} {
		status, _, body := h.get(boss, path)
		if status >= 500 || !strings.Contains(body, want) || strings.Contains(body, "private words") {
			t.Errorf("%s: %d", path, status)
		}
	}
}
