package acp_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/internal/cli"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// asToolcrib makes a process of these tests the binary.
const asToolcrib = "TOOLCRIB_TEST_AS_BINARY"

func TestMain(m *testing.M) {
	shell.Main()
	if os.Getenv(asToolcrib) != "" {
		os.Exit(cli.Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// desk is a home for the binary, with a workspace.
type desk struct {
	t          *testing.T
	home, work string
}

// newDesk makes a desk whose model plays a script.
func newDesk(t *testing.T, script string) *desk {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, home: filepath.Join(top, "home"), work: filepath.Join(top, "work")}
	d.write(filepath.Join(d.home, "play.yaml"), script)
	d.write(filepath.Join(d.home, ".config", "toolcrib", "toolcrib.yaml"), `
providers:
  demo: {type: script, file: `+filepath.Join(d.home, "play.yaml")+`}
  other: {type: openai, api_key: "${env:OTHER_KEY}", base_url: http://127.0.0.1:1}
models: {first: {provider: demo, model: first}, second: {provider: demo, model: second}}
agents: {default: {model: first}}
`)
	d.write(filepath.Join(d.work, "sum.txt"), "a - b\n")
	return d
}

func (d *desk) write(name, text string) {
	d.t.Helper()
	err := os.MkdirAll(filepath.Dir(name), 0o700)
	if err == nil {
		err = os.WriteFile(name, []byte(text), 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// read returns the content of a file of the workspace, or "" if it does not exist.
func (d *desk) read(name string) string {
	data, err := os.ReadFile(filepath.Join(d.work, name))
	if err != nil && !os.IsNotExist(err) {
		d.t.Fatal(err)
	}
	return string(data)
}

const otherKey = "sk-other-0123456789abcdef"

func (d *desk) environment() []string {
	return []string{
		"HOME=" + d.home, "PATH=" + os.Getenv("PATH"), "NO_COLOR=1", asToolcrib + "=1", "TMPDIR=" + os.TempDir(),
		"OTHER_KEY=" + otherKey,
	}
}

func (d *desk) command(args ...string) *exec.Cmd {
	d.t.Helper()
	self, err := os.Executable()
	if err != nil {
		d.t.Fatal(err)
	}
	c := exec.Command(self, args...)
	c.Dir, c.Env = d.work, d.environment()
	return c
}

// lastRun is the last run as the command line reports it.
func (d *desk) lastRun() (run struct {
	Status  string `json:"status"`
	Content string `json:"content"`
	Trace   []struct{ Name, Status, Result string }
},
) {
	d.t.Helper()
	out, err := d.command("runs", "show", "last", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &run)
	}
	if err != nil {
		d.t.Fatalf("%v: %s", err, out)
	}
	return run
}

// editor is an editor that sends and receives lines.
type editor struct {
	*desk
	in      io.WriteCloser
	command *exec.Cmd
	lines   chan message // closed when the process has closed its output
	session string
	updates []message // that came meanwhile
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params map[string]any  `json:"params"`
	Result map[string]any  `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

const patience = time.Minute

// open starts toolcrib.
func (d *desk) open(args ...string) *editor {
	d.t.Helper()
	e := &editor{desk: d, command: d.command(append([]string{"acp"}, args...)...), lines: make(chan message, 4096)}
	var err error
	if e.in, err = e.command.StdinPipe(); err != nil {
		d.t.Fatal(err)
	}
	out, err := e.command.StdoutPipe()
	if err == nil {
		err = e.command.Start()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	go func() {
		defer close(e.lines)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			var m message
			if json.Unmarshal([]byte(line), &m) != nil {
				m.Method = "not a message: " + line
			}
			e.lines <- m
		}
	}()
	d.t.Cleanup(func() {
		_ = e.in.Close()
		_ = e.command.Process.Kill()
		for range e.lines {
			continue
		}
		_ = e.command.Wait()
	})
	return e
}

// greet initializes the connection and opens a session.
func (e *editor) greet() *editor {
	e.t.Helper()
	e.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true,"writeTextFile":true},"terminal":true}}}`)
	e.answer("1")
	e.request(2, "session/new", map[string]any{"cwd": e.work, "mcpServers": []any{}})
	e.session, _ = e.answer("2").Result["sessionId"].(string)
	if e.session == "" {
		e.t.Fatal("there is no session")
	}
	return e
}

func (e *editor) send(line string) {
	e.t.Helper()
	if _, err := io.WriteString(e.in, line+"\n"); err != nil {
		e.t.Fatal(err)
	}
}

func (e *editor) encode(v any) {
	e.t.Helper()
	line, err := json.Marshal(v)
	if err != nil {
		e.t.Fatal(err)
	}
	e.send(string(line))
}

func (e *editor) request(id int, method string, params any) {
	e.t.Helper()
	e.encode(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

func (e *editor) reply(id json.RawMessage, result any) {
	e.t.Helper()
	e.encode(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
}

// prompt sends a message in the session.
func (e *editor) prompt(id int, text string) {
	e.t.Helper()
	e.request(id, "session/prompt", map[string]any{
		"sessionId": e.session, "prompt": []any{map[string]any{"type": "text", "text": text}},
	})
}

func (e *editor) cancel() {
	e.t.Helper()
	e.encode(map[string]any{"jsonrpc": "2.0", "method": "session/cancel", "params": map[string]any{"sessionId": e.session}})
}

// next returns the next message that is not an update.
func (e *editor) next() message {
	e.t.Helper()
	for limit := time.After(patience); ; {
		select {
		case m, ok := <-e.lines:
			if !ok {
				e.t.Fatal("toolcrib has ended")
			}
			if m.Method != "session/update" {
				return m
			}
			e.updates = append(e.updates, m)
		case <-limit:
			e.t.Fatal("no message came")
		}
	}
}

// answer returns the answer to a request; a request of toolcrib that comes before it is an error.
func (e *editor) answer(id string) message {
	e.t.Helper()
	m := e.next()
	if m.Method != "" || string(m.ID) != id {
		e.t.Fatalf("want the answer to %s, not %+v", id, m)
	}
	return m
}

// asked returns the next request of toolcrib, which has this method.
func (e *editor) asked(method string) message {
	e.t.Helper()
	m := e.next()
	if m.Method != method {
		e.t.Fatalf("want %s, not %+v", method, m)
	}
	return m
}

// leave closes standard input, and waits for the end of the process.
func (e *editor) leave() {
	e.t.Helper()
	_ = e.in.Close()
	for limit := time.After(patience); ; {
		select {
		case _, ok := <-e.lines:
			if !ok {
				return
			}
		case <-limit:
			e.t.Fatal("toolcrib does not end with its input")
		}
	}
}

// said returns all texts of the updates so far.
func (e *editor) said() string {
	var b strings.Builder
	for _, u := range e.updates {
		text, err := json.Marshal(u.Params)
		if err != nil {
			e.t.Fatal(err)
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	return b.String()
}

// noBuffers answers fs/read_text_file as an editor that has no files, until another message comes.
func (e *editor) noBuffers() message {
	e.t.Helper()
	for {
		m := e.next()
		if m.Method != "fs/read_text_file" {
			return m
		}
		e.encode(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32002, "message": "no such file"}})
	}
}
