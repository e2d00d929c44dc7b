package ui_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/internal/browsertest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/service"
)

// approveAll approves what a run waits for, and returns its last call when it has ended.
func (h *house) approveAll(token string, run *service.Run) (last api.TraceCall) {
	h.t.Helper()
	h.post(token, "/api/approvals/"+run.Pending.ApprovalID, `{"decision":"approve","digest":"`+run.Pending.Digest+`"}`, nil)
	waittest.Until(h.t, "the run has ended", func() bool {
		now, err := h.service.Run(h.t.Context(), root, string(run.ID))
		if err != nil {
			h.t.Fatal(err)
		}
		if now.Status.Ended() {
			last = now.Trace[len(now.Trace)-1]
		}
		return now.Status.Ended()
	})
	return last
}

// twoCalls writes a file, which a person must approve, and then lists the folder.
const twoCalls = "- tool_calls: [{name: write_file, arguments: {path: a.txt, content: x}}]\n" +
	"- tool_calls: [{name: list_directory, arguments: {}, id: second}]\n- {text: done}\n"

// mcpServer is an MCP server with tools of these names and texts.
func mcpServer(t *testing.T, tools ...*sdk.Tool) string {
	t.Helper()
	server := sdk.NewServer(&sdk.Implementation{Name: hostileText, Title: hostileText, Version: hostileText},
		&sdk.ServerOptions{Instructions: hostileText})
	for _, one := range tools {
		server.AddTool(one, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: hostileText}}}, nil
		})
	}
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	t.Cleanup(h.Close)
	return h.URL
}

// trusts accepts the tools of an MCP server.
func (h *house) trusts(name string) {
	h.t.Helper()
	r, err := h.service.MCP.Review(h.t.Context(), root, name)
	if err == nil {
		err = h.service.MCP.Accept(h.t.Context(), root, r, r.Digest)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// hostileText is a text that must never be taken for a part of a page.
const hostileText = `</p><img src=x onerror=toolcribCanary(1)>"><script>toolcribCanary(1)</script>'\u202e{{.}}javascript:toolcribCanary(1)`

func TestTools_Switch(t *testing.T) { // A6, A7
	h := open(t, map[string]string{"default": hello, "two": twoCalls}, "")
	boss := h.token("boss")
	run := h.runOf(boss, "two", "go")
	tab := h.tab("boss", browsertest.Options{})
	tab.Visit(h.url + "/tools?q=list_dir")
	tab.Axe()
	tab.Click(`#tool-list_directory button[value=off]`)
	tab.WaitText("#tool-list_directory .tool-now", "Off")
	tab.WaitText("#tool-list_directory .tool-now", "by boss")
	tab.Shot("tools-off")
	if last := h.approveAll(boss, &run); last.Name != "list_directory" || last.Reason != "tool_disabled" {
		t.Errorf("the next call of a running run: %+v", last)
	}
	const again = "tool=list_directory&to=off&next=/tools"
	for range 2 {
		if status, head, text := h.form(boss, "/tools/switch", again); status != http.StatusSeeOther ||
			head.Get("Location") != "/tools#tool-list_directory" {
			t.Error(status, head, text)
		}
	}
	alice := h.token("alice")
	if status, _, text := h.form(alice, "/tools/switch", again); status != http.StatusForbidden {
		t.Error(status, text)
	}
	if _, _, text := h.get(alice, "/tools"); strings.Contains(text, "/tools/switch") || !strings.Contains(text, "tool-list_directory") {
		t.Error("a user sees switches, or no tools")
	}
	tab.Click(`#tool-list_directory button[value=reset]`)
	tab.WaitText("#tool-list_directory .tool-now", "by default")
	tab.Visit(h.url + "/tools?group=files")
	tab.Click(`.tool-group-head button[value=off]`)
	tab.WaitText("#tool-read_file .tool-now", "group off by boss")
	tab.Click(`.tool-group-head button[value=reset]`)
	tab.WaitText("#tool-read_file .tool-now", "by default")
	for _, body := range []string{"", "tool=a&group=b&to=on", "tool=list_directory&to=x"} {
		if status, _, _ := h.form(boss, "/tools/switch", body); status != http.StatusBadRequest {
			t.Error(body, status)
		}
	}
	if status, _, text := h.form(boss, "/tools/switch", "tool=list_dir&to=on"); status != http.StatusNotFound {
		t.Error(status, text)
	}
}

func TestTools_Call(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "tools: {settings: {list_directory: {confirm: always}}}\n")
	tab := h.tab("boss", browsertest.Options{})
	tab.Visit(h.url + "/tools/get_runtime_info")
	tab.Axe()
	tab.Click(".tool-call .primary")
	tab.WaitText("#result", "Done")
	tab.Shot("tool-called")
	tab.Visit(h.url + "/tools/list_directory")
	tab.Axe()
	tab.Shot("tool-form")
	tab.Visit(h.url + "/tools/read_file")
	tab.Type("[name='argument/path']", "nothing.txt")
	tab.Click(".tool-call .primary")
	tab.WaitText("#result", "Failed")
	tab.Until(`document.querySelector("[name='argument/path']").value == "nothing.txt"`)
	boss := h.token("boss")
	send := func(name, arguments, once string) (int, string, string) {
		status, head, text := h.form(boss, "/tools/"+name+"/call",
			url.Values{"agent": {"default"}, "arguments": {arguments}, "once": {once}}.Encode())
		return status, head.Get("Location"), text
	}
	_, first, _ := send("get_runtime_info", "{}", "key")
	if _, second, _ := send("get_runtime_info", "{}", "key"); first != second || !strings.Contains(first, "?run=run_") {
		t.Errorf("the form sent twice: %s, %s", first, second)
	}
	if _, to, text := send("list_directory", "{}", "a"); !strings.HasPrefix(to, "/approvals/apr_") {
		t.Error(to, text)
	}
	for _, arguments := range []string{`{"path":5}`, `[]`, `{"path":`, `{"a":1,"a":2}`} {
		if status, _, text := send("read_file", arguments, arguments); status != http.StatusBadRequest ||
			!strings.Contains(text, strings.ReplaceAll(arguments, `"`, "&#34;")) {
			t.Error(arguments, status, text)
		}
	}
	for _, path := range []string{"/tools/nothing", "/tools/get_runtime_info?run=run_00000000000000000000000000"} {
		if status, _, _ := h.get(boss, path); status != http.StatusNotFound {
			t.Error(path, status)
		}
	}
}

func TestTools_Hostile(t *testing.T) {
	schema := func(v any) json.RawMessage {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	type object = map[string]any
	tools := []*sdk.Tool{{
		Name: "bad", Title: hostileText, Description: hostileText + strings.Repeat(" long", 1000),
		InputSchema: schema(object{"type": "object", "title": hostileText, "description": hostileText, "properties": object{
			hostileText: object{"type": "string", "description": hostileText, "default": hostileText},
			"kind":      object{"enum": []string{hostileText, "b"}, "title": hostileText}, "__proto__": object{"type": "string"},
		}, "required": []string{hostileText}}),
	}}
	texts, properties := hostile(), object{}
	for i, text := range texts {
		tools = append(tools, &sdk.Tool{
			Name: fmt.Sprintf("h_%03d", i), Title: text, Description: text, InputSchema: schema(object{"type": "object"}),
		})
		if i < 190 {
			properties[fmt.Sprintf("p%03d", i)] = object{
				"type": "string", "title": text, "description": texts[len(texts)-1-i], "default": text, "enum": []string{text, "b"},
			}
		}
	}
	tools = append(tools, &sdk.Tool{Name: "wide", InputSchema: schema(object{"type": "object", "properties": properties})})
	foes := len(tools)
	for i := range 1000 {
		tools = append(tools, &sdk.Tool{
			Name: fmt.Sprintf("tool_%03d", i), Description: strings.Repeat("does a thing ", 10),
			InputSchema: schema(object{"type": "object", "properties": object{"path": object{"type": "string"}}}),
		})
	}
	h := open(t, map[string]string{"default": hello},
		"mcpServers: {foe: {url: '"+mcpServer(t, tools[:foes]...)+"'}, many: {url: '"+mcpServer(t, tools[foes:]...)+"'}}\n")
	h.trusts("foe")
	h.trusts("many")
	tab := h.tab("boss", browsertest.Options{})
	for _, path := range []string{
		"/tools?source=mcp:foe", "/tools?source=mcp:foe&from=100", "/tools?source=mcp:foe&from=200", "/tools/foe__bad",
		"/tools/foe__wide", "/explain?q=foe", "/explain?tool=foe__h_001", "/tools?q=" + url.QueryEscape(hostileText),
		"/tools?group=" + url.QueryEscape(hostileText),
	} {
		tab.Visit(h.url + path)
		tab.Wait("h1")
	}
	boss := h.token("boss")
	h.get(boss, "/tools") // the first request starts what the next ones use
	began := time.Now()
	status, _, text := h.get(boss, "/tools?source=mcp:many")
	took := time.Since(began)
	t.Logf("%d bytes in %s", len(text), took)
	if status != http.StatusOK || len(text) > 150<<10 || strings.Count(text, `id="tool-`) != 100 ||
		!strings.Contains(text, "from=100") {
		t.Errorf("a page of 1,000 tools: %d, %d bytes", status, len(text))
	}
}

// Names of MCP servers and of their tools are text on the pages about tools, approvals and runs.
func TestTools_HostileNames(t *testing.T) {
	const foe, near = `a<img src=x onerror=b>c`, `a"><script>toolcribCanary(1)</script>`
	names := []string{
		"<img src=x onerror=toolcribCanary(1)>", `"onmouseover="toolcribCanary(1)`, "</a><script>toolcribCanary(1)", "javascript:toolcribCanary(1)",
		"../../account", "\u202eexe.txt", "%2e%2e", "__proto__",
	}
	var tools []*sdk.Tool
	for _, name := range names {
		tools = append(tools, &sdk.Tool{
			Name: name, Title: hostileText, Description: hostileText, InputSchema: json.RawMessage(`{"type":"object"}`),
		})
	}
	address := mcpServer(t, tools...)
	file, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		foe: map[string]string{"type": "http", "url": address}, near: map[string]string{"type": "http", "url": address},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir()) // what is there is trusted
	h := &house{t: t, dir: t.TempDir(), project: filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "toolcrib")}
	if err := errors.Join(os.Mkdir(h.project, 0o700), os.WriteFile(filepath.Join(h.project, ".mcp.json"), file, 0o600)); err != nil {
		t.Fatal(err)
	}
	tool := unsafeInName.ReplaceAllString(foe+"__"+names[0], "_")
	h.write("default.script", "- {tool_calls: [{name: "+tool+", arguments: {}, id: one}]}\n- {text: done}\n")
	h.write("toolcrib.yaml", "providers: {default: {type: script, file: default.script}}\nagents: {default: {model: default/x}}\n")
	h.start("127.0.0.1:0")
	t.Cleanup(func() { h.stop() })
	h.trusts(foe)
	run := h.ask("boss", "default")
	tab := h.tab("boss", browsertest.Options{}.Phone())
	story, approval := "/runs/"+string(run.ID), "/approvals/"+run.Pending.ApprovalID
	for _, path := range []string{
		"/tools?q=onerror", "/tools?source=" + url.QueryEscape("mcp:"+foe), "/tools/" + tool, "/explain?q=onerror", "/explain?tool=" + tool,
		"/", "/approvals", approval, approval + "/edit?call=one", story, story + "?view=timeline", "/audit?run=" + string(run.ID),
	} {
		h.calm(tab, path)
		if text := browsertest.Eval[string](tab, "document.body.textContent"); path != "/" && !strings.Contains(text, tool[:30]) {
			t.Errorf("%s does not show the tool", path)
		}
	}
	tab.Visit(h.url + "/tools?q=onerror")
	if text := browsertest.Eval[string](tab, "document.body.textContent"); !strings.Contains(text, "mcp:"+foe) {
		t.Error("the name of the server is not shown as it is")
	}
	h.approveAll(h.token("boss"), &run)
	for _, path := range []string{story, "/usage?by=tool", approval, "/approvals?show=decided"} {
		h.calm(tab, path)
	}
}

// unsafeInName matches characters that a tool's name cannot have.
var unsafeInName = regexp.MustCompile(`[^A-Za-z0-9_-]`)
