package acp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/acp"
	"github.com/toolcrib/toolcrib/internal/waittest"
)

const writesAndEnds = `
- {tool_calls: [{name: write_file, arguments: {path: new.txt, content: "new"}}]}
- {text: "The end."}
`

// Lines that are not messages, or not requests that there are, are answered, and nothing else happens.
func TestACP_BrokenMessages(t *testing.T) {
	t.Parallel()
	e := newDesk(t, writesAndEnds).open()
	for _, tt := range []struct {
		line string
		code int
	}{
		{`{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}`, -32600}, // before initialize
		{`no JSON`, -32700},
		{`[]`, -32700},
		{`[{"jsonrpc":"2.0","id":7,"method":"initialize"}]`, -32700},
		{`"text"`, -32700},
		{`{}`, -32600},
		{`{"jsonrpc":"2.0","id":7}{"jsonrpc":"2.0","id":8}`, -32700},
		{strings.Repeat("[", 100000), -32700},
		{`{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"` + strings.Repeat("x", 11<<20) + `"}}`, -32700},
		{`{"jsonrpc":"2.0","id":7,"method":"initialize","params":[]}`, -32602},
		{`{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"one"}}`, -32602},
	} {
		e.send(tt.line)
		if m := e.next(); m.Error == nil || m.Error.Code != tt.code {
			t.Errorf("%.60s: %+v, want the error %d", tt.line, m, tt.code)
		}
	}
	e.greet()
	for _, tt := range []struct {
		method string
		params any
		code   int
	}{
		{"session/unknown", nil, -32601},
		{"authenticate", map[string]any{"methodId": "x"}, -32601},
		{"session/prompt", map[string]any{"sessionId": "ses_wrong", "prompt": []any{}}, -32002},
		{"session/prompt", map[string]any{"sessionId": e.session, "prompt": []any{}}, -32602},
		{"session/prompt", map[string]any{"sessionId": e.session, "prompt": []any{map[string]any{"type": "audio", "data": "", "mimeType": "x"}}}, -32602},
		{"session/prompt", map[string]any{"sessionId": e.session, "prompt": []any{map[string]any{"type": "image", "data": "%", "mimeType": "image/png"}}}, -32602},
		{"session/prompt", map[string]any{"sessionId": e.session, "prompt": []any{map[string]any{"type": "image", "data": "AAEC", "mimeType": "image/png"}}}, -32602},
		{"session/load", map[string]any{"sessionId": "acp-wrong", "cwd": e.work, "mcpServers": []any{}}, -32002},
		{"session/load", map[string]any{"sessionId": "", "cwd": e.work, "mcpServers": []any{}}, -32602},
		{"session/new", map[string]any{"cwd": "relative", "mcpServers": []any{}}, -32602},
		{"session/new", map[string]any{"cwd": filepath.Join(e.home, "nothing"), "mcpServers": []any{}}, -32602},
		{"session/set_mode", map[string]any{"sessionId": e.session, "modeId": "everything"}, -32602},
		{"session/set_config_option", map[string]any{"sessionId": e.session, "configId": "model", "value": "nobody"}, -32602},
		{"session/set_config_option", map[string]any{"sessionId": e.session, "configId": "x", "value": "y"}, -32602},
		{"session/close", map[string]any{"sessionId": "wrong"}, -32002},
	} {
		e.request(9, tt.method, tt.params)
		if m := e.answer("9"); m.Error == nil || m.Error.Code != tt.code {
			t.Errorf("%s %v: %+v %+v, want the error %d", tt.method, tt.params, m, m.Error, tt.code)
		}
	}
	e.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"wrong"}}`)
	for range 5000 { // notifications that there are not
		e.send(`{"jsonrpc":"2.0","method":"document/didOpen","params":{}}`)
	}
	e.send(`{"jsonrpc":"2.0","id":99,"result":{}}`) // an answer without a request
	e.request(10, "session/list", map[string]any{})
	if m := e.answer("10"); m.Error != nil {
		t.Error(m.Error)
	}
}

// A question that the editor does not answer decides nothing, whatever it says.
func TestACP_NoDecision(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]any{
		"cancelled": map[string]any{"outcome": map[string]any{"outcome": "cancelled"}},
		"unknown":   map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": "allow"}},
		"later":     map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": "later"}},
		"empty":     map[string]any{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newDesk(t, writesAndEnds).open().greet()
			e.prompt(3, "write")
			m := e.noBuffers()
			if m.Method != "session/request_permission" {
				t.Fatal(m)
			}
			e.reply(m.ID, outcome)
			if m := e.answer("3"); m.Result["stopReason"] != "end_turn" {
				t.Errorf("%+v %+v", m, m.Error)
			}
			if run := e.lastRun(); run.Status != "waiting_for_approval" || e.read("new.txt") != "" {
				t.Errorf("%+v, %q", run, e.read("new.txt"))
			}
			if !strings.Contains(e.said(), "/decide continues it") {
				t.Error(e.said())
			}
			e.prompt(4, "/decide")
			m = e.noBuffers()
			e.reply(m.ID, map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": "yes"}})
			if m := e.noBuffers(); m.Result["stopReason"] != "end_turn" || e.read("new.txt") != "new" {
				t.Errorf("%+v %+v", m, m.Error)
			}
		})
	}
}

// An editor that never answers a question can cancel the turn, and ask for nothing else meanwhile.
func TestACP_HangingQuestion(t *testing.T) {
	t.Parallel()
	e := newDesk(t, writesAndEnds).open().greet()
	e.prompt(3, "write")
	if m := e.noBuffers(); m.Method != "session/request_permission" {
		t.Fatal(m)
	}
	e.prompt(4, "another")
	if m := e.answer("4"); m.Error == nil || !strings.Contains(m.Error.Message, "a turn of this session is running") {
		t.Errorf("%+v", m)
	}
	e.request(5, "session/load", map[string]any{"sessionId": e.session, "cwd": e.work, "mcpServers": []any{}})
	if m := e.answer("5"); m.Error == nil {
		t.Errorf("%+v", m)
	}
	e.cancel()
	for m := e.next(); ; m = e.next() {
		if m.Method == "$/cancel_request" {
			continue
		}
		if string(m.ID) != "3" || m.Result["stopReason"] != "cancelled" {
			t.Errorf("%+v %+v", m, m.Error)
		}
		break
	}
	if run := e.lastRun(); run.Status != "cancelled" || e.read("new.txt") != "" {
		t.Errorf("%+v", run)
	}
}

// A cancellation that comes right after the prompt, and one of the request, stop the turn.
func TestACP_CancelAtOnce(t *testing.T) {
	t.Parallel()
	e := newDesk(t, `
- {text: "a long answer", delay: 30s}
`).open().greet()
	e.prompt(3, "talk")
	e.cancel()
	if m := e.answer("3"); m.Result["stopReason"] != "cancelled" {
		t.Errorf("%+v %+v", m, m.Error)
	}
	e.prompt(4, "talk")
	e.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":4}}`)
	if m := e.answer("4"); m.Result["stopReason"] != "cancelled" {
		t.Errorf("%+v %+v", m, m.Error)
	}
}

// An editor that goes away while it is asked leaves a run that waits, and the process ends.
func TestACP_EditorGone(t *testing.T) {
	t.Parallel()
	e := newDesk(t, writesAndEnds).open().greet()
	e.prompt(3, "write")
	if m := e.noBuffers(); m.Method != "session/request_permission" {
		t.Fatal(m)
	}
	e.leave()
	if run := e.lastRun(); run.Status != "waiting_for_approval" || e.read("new.txt") != "" {
		t.Errorf("%+v", run)
	}
}

// More requests than are allowed at a time are refused, and the others are answered.
func TestACP_ManyRequests(t *testing.T) {
	t.Parallel()
	e := newDesk(t, `
- {text: "slow", delay: 60s}
`).open().greet()
	for i := range acp.MaxRequests {
		e.request(100+i, "session/new", map[string]any{"cwd": e.work, "mcpServers": []any{}})
		id := e.answer(fmt.Sprint(100 + i)).Result["sessionId"]
		e.request(200+i, "session/prompt", map[string]any{
			"sessionId": id, "prompt": []any{map[string]any{"type": "text", "text": "x"}},
		})
	}
	e.request(3, "session/list", map[string]any{})
	if m := e.answer("3"); m.Error == nil || m.Error.Code != -32000 {
		t.Errorf("%+v", m)
	}
	e.leave()
}

// A file with unsaved changes is read as the editor has it, with secrets masked, and is not written. Files that tools
// may not read are not asked for.
func TestACP_Unsaved(t *testing.T) {
	t.Parallel()
	d := newDesk(t, `
- tool_calls:
    - {name: read_file, arguments: {path: sum.txt}}
    - {name: read_file, arguments: {path: sum.txt, offset: 2, limit: 1}}
    - {name: read_file, arguments: {path: ../home/play.yaml}}
    - {name: read_file, arguments: {path: link}}
- {tool_calls: [{name: edit_file, arguments: {path: sum.txt, old_text: "a - b", new_text: "a + b"}}]}
- {tool_calls: [{name: write_file, arguments: {path: sum.txt, content: "a + b"}}]}
- {tool_calls: [{name: write_file, arguments: {path: .git/config, content: "x"}}]}
- {text: "The end."}
`)
	if err := os.Symlink(d.home, filepath.Join(d.work, "link")); err != nil {
		t.Skip(err)
	}
	e := d.open().greet()
	e.prompt(3, "fix it")
	asked := map[string]int{}
	for {
		m := e.next()
		if m.Method != "fs/read_text_file" {
			if string(m.ID) != "3" || m.Result["stopReason"] != "end_turn" {
				t.Errorf("%+v %+v", m, m.Error)
			}
			break
		}
		name, _ := m.Params["path"].(string)
		asked[name]++
		e.reply(m.ID, map[string]any{"content": "a * b\nkey " + otherKey + "\n"})
	}
	if len(asked) != 1 || asked[filepath.Join(d.work, "sum.txt")] == 0 {
		t.Errorf("the editor was asked for %v", asked)
	}
	trace := d.lastRun().Trace
	if len(trace) != 7 {
		t.Fatal(trace)
	}
	for i, want := range []struct{ status, text string }{
		{"ok", "a * b"},
		{"ok", "key [secret:"},
		{"refused", "escapes workspace"},
		{"refused", ""},
		{"error", "save it first"},
		{"error", "save it first"},
		{"refused", "protected"},
	} {
		if got := trace[i]; got.Status != want.status || !strings.Contains(got.Result, want.text) {
			t.Errorf("%d: %+v, want %+v", i, got, want)
		}
	}
	if whole := e.said() + fmt.Sprint(trace); strings.Contains(whole, otherKey) {
		t.Error("a secret was shown")
	}
	if d.read("sum.txt") != "a - b\n" {
		t.Errorf("%q", d.read("sum.txt"))
	}
}

// A buffer that changes after the approval is found before the write; one that differs in line endings only is saved.
func TestACP_ChangedAfterApproval(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]string{"changed": "a * b", "saved": "a - b\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newDesk(t, `
- {tool_calls: [{name: edit_file, arguments: {path: sum.txt, old_text: "a - b", new_text: "a + b"}}]}
- {text: "The end."}
`).open().greet()
			e.prompt(3, "fix it")
			buffer := "a - b"
			for {
				m := e.next()
				switch m.Method {
				case "fs/read_text_file":
					e.reply(m.ID, map[string]any{"content": buffer})
					continue
				case "session/request_permission":
					buffer = after
					e.reply(m.ID, map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": "yes"}})
					continue
				}
				break
			}
			want, text := "a - b\n", "save it first"
			if name == "saved" {
				want, text = "a + b\n", "edited"
			}
			if trace := e.lastRun().Trace; e.read("sum.txt") != want || !strings.Contains(trace[0].Result, text) {
				t.Errorf("%q, %+v", e.read("sum.txt"), trace)
			}
		})
	}
}

// An editor that does not return a file holds up a read for a moment, and a write is refused.
func TestACP_HangingBuffer(t *testing.T) {
	t.Parallel()
	e := newDesk(t, `
- {tool_calls: [{name: write_file, arguments: {path: sum.txt, content: "x"}}]}
- {text: "The end."}
`).open().greet()
	e.prompt(3, "write")
	if m := e.asked("fs/read_text_file"); m.Params["path"] != filepath.Join(e.work, "sum.txt") {
		t.Error(m)
	}
	begun := time.Now()
	for m := e.next(); string(m.ID) != "3"; m = e.next() {
		if m.Method == "session/request_permission" {
			t.Fatal("a write that fails was asked about")
		}
	}
	if run := e.lastRun(); !strings.Contains(run.Trace[0].Result, "did not say") || e.read("sum.txt") != "a - b\n" {
		t.Errorf("%+v after %v", run, time.Since(begun))
	}
}

// A server that the editor names is neither started nor offered before it is configured and reviewed.
func TestACP_EditorsMCPServer(t *testing.T) {
	t.Parallel()
	e := newDesk(t, `
- {text: "The end."}
`).open()
	e.greet()
	mark := filepath.Join(e.home, "started")
	e.request(5, "session/new", map[string]any{"cwd": e.work, "mcpServers": []any{
		map[string]any{"name": "evil", "command": "/bin/sh", "args": []string{"-c", "touch " + mark}, "env": []any{}},
	}})
	e.session, _ = e.answer("5").Result["sessionId"].(string)
	e.prompt(6, "hello")
	e.answer("6")
	if _, err := os.Stat(mark); err == nil {
		t.Error("it was started")
	}
	if said := e.said(); !strings.Contains(said, "mcp review evil") || !strings.Contains(said, "mcp add evil") {
		t.Error(said)
	}
}

// A session has the configuration, the skills and the MCP servers of its own folder, once the person trusts them, and not
// those of another session.
func TestACP_ConfigurationOfTheFolder(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "- {text: From the user.}\n- {text: Again from the user.}\n")
	there := filepath.Join(filepath.Dir(d.work), "there")
	d.write(filepath.Join(there, "toolcrib.yaml"), `
providers: {near: {type: script, file: play.yaml}}
models: {near: {provider: near, model: x}}
agents: {default: {model: near, skills: [greet]}}
`)
	d.write(filepath.Join(there, "play.yaml"), "- tool_calls: [{name: list_directory, arguments: {path: .}}]\n- {text: From there.}\n")
	d.write(filepath.Join(there, ".claude", "skills", "greet", "SKILL.md"), "---\nname: greet\ndescription: Greets.\n---\nGreet.\n")
	d.write(filepath.Join(there, ".mcp.json"), `{"mcpServers": {"near": {"command": "/bin/false"}}}`)
	e := d.open().greet()
	here := e.session
	newThere := map[string]any{"cwd": there, "mcpServers": []any{map[string]any{
		"name": "near", "command": "/bin/false", "args": []string{}, "env": []any{},
	}}}
	e.request(3, "session/new", newThere)
	if m := e.answer("3"); m.Error == nil || !strings.Contains(m.Error.Message, "toolcrib trust "+there) {
		t.Errorf("not trusted: %+v", m)
	}
	out, _ := d.command("trust", there).CombinedOutput()
	_, digest, _ := strings.Cut(string(out), "--digest ")
	if out, err := d.command("trust", there, "--digest", strings.TrimSpace(digest)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	e.request(4, "session/new", newThere)
	m := e.answer("4")
	near, _ := m.Result["sessionId"].(string)
	if offered := fmt.Sprint(m.Result["models"]); !strings.Contains(offered, "near") || !strings.Contains(offered, "second") {
		t.Errorf("models: %s, %+v", offered, m.Error)
	}
	for i, want := range map[int]string{5: `"text":"there."`, 6: `"text":"user."`} {
		if e.session = here; i == 5 {
			e.session = near
		}
		e.updates = nil
		e.prompt(i, "hello")
		e.answer(fmt.Sprint(i))
		if said := e.said(); !strings.Contains(said, want) || strings.Contains(said, "mcp review") {
			t.Errorf("%s", said)
		}
	}
	e.leave()
}

// When the last session of a folder is closed, its MCP servers end, and a later session has the configuration as it is
// then. A list of sessions starts and keeps nothing.
func TestACP_ClosedFolder(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "- {text: One.}\n")
	own, mark := filepath.Join(d.home, ".config", "toolcrib", "toolcrib.yaml"), filepath.Join(d.home, "pid")
	before, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	serve := d.command()
	d.write(own, string(before)+fmt.Sprintf(`
mcpServers:
  near: {command: /bin/sh, args: [-c, 'echo $$ >%s; exec "$0" mcp serve', %s], env: {%s: "1", HOME: %s}}
`, mark, serve.Path, asToolcrib, filepath.Join(d.home, "server")))
	d.write(filepath.Join(d.home, "server", ".config", "toolcrib", "toolcrib.yaml"), string(before))
	out, _ := d.command("mcp", "review", "near").CombinedOutput()
	_, digest, _ := strings.Cut(string(out), "--digest ")
	if out, err := d.command("mcp", "review", "near", "--digest", strings.TrimSpace(digest)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	e := d.open().greet()
	first := e.session
	e.request(3, "session/new", map[string]any{"cwd": e.work, "mcpServers": []any{}})
	e.session, _ = e.answer("3").Result["sessionId"].(string)
	e.prompt(4, "hello")
	e.answer("4")
	pid, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal("the server was not started: ", err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	if err != nil {
		t.Fatal(err)
	}
	server, err := os.FindProcess(number)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Release() //nolint:errcheck // the test ends
	d.write(own, strings.ReplaceAll(string(before), "agents: {", "agents: {more: {model: second}, "))
	closing := func(id int, session string) {
		e.request(id, "session/close", map[string]any{"sessionId": session})
		if m := e.answer(fmt.Sprint(id)); m.Error != nil {
			t.Errorf("%+v", m.Error)
		}
	}
	agents := func(id int, want bool) {
		t.Helper()
		e.request(id, "session/new", map[string]any{"cwd": e.work, "mcpServers": []any{}})
		m := e.answer(fmt.Sprint(id))
		if got := strings.Contains(fmt.Sprint(m.Result["configOptions"]), "more"); m.Error != nil || got != want {
			t.Errorf("%d: the agent of the new configuration: %t, %+v", id, got, m.Error)
		}
		e.session, _ = m.Result["sessionId"].(string)
	}
	closing(5, e.session)
	agents(6, false) // the first session is still open
	closing(7, e.session)
	if err := server.Signal(syscall.Signal(0)); err != nil {
		t.Error("the server has ended: ", err)
	}
	closing(8, first)
	waittest.Until(t, "the server ends", func() bool { return server.Signal(syscall.Signal(0)) != nil })
	e.request(9, "session/list", map[string]any{"cwd": e.work})
	if m := e.answer("9"); m.Error != nil || len(m.Result["sessions"].([]any)) != 1 {
		t.Errorf("%+v %+v", m.Result, m.Error)
	}
	agents(10, true)
	e.leave()
}
