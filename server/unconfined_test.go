package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/service"
)

// If a server has no sandbox, only administrators and users that the configuration names run programs that are not in
// the built-in table. Neither an approval nor an earlier one helps (tool_policy).
func TestC12_NoSandbox(t *testing.T) {
	h := &house{
		t: t, dir: t.TempDir(), walls: "switched off",
		config: agents + "tools: {confirm: never, shell: {allow: [cat, ls, printenv], unconfined: [ann]}}\n",
	}
	h.script("slow.script", scripts["slow.script"])
	h.script("demo.script", "- tool_calls: [{name: exec_shell, arguments: {command: \"sh -c 'cat ../*/k*'\"}}]\n- {text: done}\n")
	h.start()
	t.Cleanup(func() { _ = h.stop() })
	ann, boss := h.token("ann", signIn), h.token("boss", signIn)
	refused := func(text string) bool {
		return strings.Contains(text, "tool_policy") && strings.Contains(text, "tools.shell.unconfined")
	}
	results := func(run service.Run) string {
		var of struct{ Messages json.RawMessage }
		h.want(200, &of, "GET", "/api/runs/"+string(run.ID)+"/messages", boss, "")
		return string(of.Messages)
	}
	var asks, run service.Run
	h.want(200, &asks, "POST", "/api/runs", ann, `{"input":"Go."}`)
	if asks.Status != "waiting_for_approval" {
		t.Fatalf("named: %+v", asks)
	}
	h.restart(", unconfined: [ann]", "")
	h.want(200, nil, "POST", "/api/approvals/"+asks.Pending.ApprovalID, ann,
		`{"decision":"approve","digest":"`+asks.Pending.Digest+`"}`)
	h.eventually("the end", func() bool {
		h.want(200, &run, "GET", "/api/runs/"+string(asks.ID), ann, "")
		return run.Status == "completed"
	})
	if got := results(asks); !refused(got) {
		t.Errorf("approved before: %s", got)
	}
	call := func(status int, token, line string) (called api.ToolCalled) {
		t.Helper()
		body, err := json.Marshal(map[string]any{
			"target_capability": "exec_shell", "target_body": map[string]any{"command": line},
		})
		if err != nil {
			t.Fatal(err)
		}
		h.want(status, &called, "POST", "/api/tools/call", token, string(body))
		return called
	}
	narrow := h.token("ann", access.Scope{Tools: []string{"exec_shell"}})
	for _, line := range []string{"id", "printenv", "sh -c id", "cat x > y", "ls -l $HOME", "cat a.txt | tr a b"} {
		for _, token := range []string{ann, narrow} {
			if got := call(200, token, line); got.Status != "refused" || !refused(got.Content) {
				t.Errorf("%s: %+v", line, got)
			}
		}
	}
	h.want(200, &run, "POST", "/api/runs", ann, `{"input":"Go.","approve":"all"}`)
	if got := results(run); run.Status != "completed" || !refused(got) {
		t.Errorf("approved at the start: %s %s", run.Status, got)
	}
	if status, _, text := h.ask("POST", "/v1/chat/completions", ann, `{"model":"default","messages":[{"role":"user","content":"Go."}]}`); status != 200 || !strings.Contains(string(text), "done") {
		t.Errorf("/v1: %d %s", status, text)
	}
	_, text := h.post(ann, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec_shell","arguments":{"command":"id"}}}`)
	if !strings.Contains(text, "tools.shell.unconfined") {
		t.Errorf("/mcp: %s", text)
	}
	var why json.RawMessage
	h.want(200, &why, "POST", "/api/tools/explain", ann, `{"tool":"exec_shell","arguments":{"command":"id"}}`)
	if !strings.Contains(string(why), "tools.shell.unconfined") {
		t.Errorf("explain: %s", why)
	}
	for token, of := range map[string]string{ann: "", boss: "exec_shell has no sandbox (switched off), so programs that " +
		"are not in its built-in table run only for administrators; see toolcrib doctor"} {
		var me api.Me
		if h.want(200, &me, "GET", "/api/me", token, ""); me.NoSandbox != of {
			t.Errorf("me: %q", me.NoSandbox)
		}
	}
	call(202, ann, "ls") // its path was judged; without a sandbox it needs an approval
	call(202, boss, "id")
	h.restart("printenv]", "printenv], unconfined: [bob, 'group:makers']")
	call(202, h.token("bob", signIn), "id")
	if got := call(200, ann, "id"); got.Status != "refused" {
		t.Errorf("another is named: %+v", got)
	}
	if _, _, err := h.service.People.PutGroup(t.Context(), root, "makers", access.GroupEdit{}); err != nil {
		t.Fatal(err)
	}
	makers := []string{"makers"}
	if _, _, err := h.service.People.EditUser(t.Context(), root, "ann", access.Edit{Groups: &makers}); err != nil {
		t.Fatal(err)
	}
	call(202, ann, "id")
}
