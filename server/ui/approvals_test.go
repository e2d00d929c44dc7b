package ui_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/browsertest"
	"github.com/toolcrib/toolcrib/service"
)

// asking is a model that writes a file, and then says that it is done.
const asking = `- tool_calls:
  - {name: write_file, arguments: {path: notes.txt, content: "one\ntwo\n"}, id: call_1}
- {text: done}
`

// api sends a request to the API, as the user of a token, and decodes the answer.
func (h *house) call(token, method, path, body string, out any) int {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, strings.NewReader(body))
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
	text, err := io.ReadAll(answer.Body)
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		h.t.Fatalf("%s %s: %v: %s", method, path, err, text)
	}
	return answer.StatusCode
}

// ask starts a run of a user that waits, and returns the ID of its approval.
func (h *house) ask(user, agent string) (run service.Run) {
	h.t.Helper()
	h.call(h.token(user), "POST", "/api/runs", `{"agent":"`+agent+`","input":"go"}`, &run)
	if run.Pending == nil {
		h.t.Fatalf("the run does not wait: %+v", run)
	}
	return run
}

func TestApprovals_Phone(t *testing.T) {
	h := open(t, map[string]string{"writer": asking}, "")
	tab := h.tab("ann", browsertest.Options{}.Phone())
	run := h.ask("ann", "writer")
	tab.Visit(h.url + "/approvals")
	tab.Shot("inbox-phone")
	tab.Click("#inbox a")
	tab.Wait("[value=approve]")
	tab.Axe()
	tab.Shot("approval-phone")
	_ = run
}
