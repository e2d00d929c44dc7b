package ui_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/browsertest"
	"github.com/toolcrib/toolcrib/service"
)

// post sends a request with a JSON body to the API.
func (h *house) post(token, path, body string, into any) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, h.url+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		h.t.Fatalf("%s %s: %s", path, body, answer.Status)
	}
	if into != nil {
		if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
			h.t.Fatal(err)
		}
	}
}

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
		tab.Axe()
		if browsertest.Eval[bool](tab, "document.documentElement.scrollWidth > innerWidth") {
			t.Error("wider than the window")
		}
		tab.Visit(h.url + "/runs")
		tab.WaitText(".runs", "List what is here")
		tab.Shot("runs-" + name)
		tab.Axe()
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
