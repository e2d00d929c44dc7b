package serve_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/internal/npmtest"
)

// npm is the folder of a package that scripts/npm installs, where there is a Node to run it.
func npm(t *testing.T, name string) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("SKIP: there is no node")
	}
	return npmtest.Package(t, name)
}

// product is a client as its vendor ships it: the SDK, and what it says it can do.
type product struct {
	name, sdk    string
	major        int
	pin          string
	capabilities string
}

func products() []product {
	const one, two = "@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0"
	const claude, cursor = `{"roots":{"listChanged":true},"elicitation":{}}`,
		`{"tools":true,"prompts":true,"resources":true,"logging":false,"elicitation":{},"roots":{"listChanged":false}}`
	return []product{
		{"claude-code", one, 1, "", claude},
		{"cursor-vscode", one, 1, "", cursor},
		{"claude-code", two, 2, "", claude},
		{"claude-code", two, 2, "2026-07-28", claude},
		{"cursor-vscode", two, 2, "2026-07-28", `{"elicitation":{"form":{}},"roots":{"listChanged":false}}`},
	}
}

// driven is a client that is driven.
type driven struct {
	t      *testing.T
	in     io.WriteCloser
	out    *bufio.Scanner
	stderr bytes.Buffer
	pid    int // of the server
	asked  []map[string]any
	beats  int
}

// start starts a client, which starts the server.
func (p *product) start(h *home, capabilities string) *driven {
	h.t.Helper()
	server := h.command("mcp", "serve")
	env := map[string]string{}
	for _, v := range server.Env {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return p.startAs(h, map[string]any{
		"capabilities": json.RawMessage(capabilities), "command": server.Path, "args": server.Args[1:], "env": env, "cwd": h.work,
	})
}

// startAs starts a client with what it is to know of the server.
func (p *product) startAs(h *home, about map[string]any) *driven {
	h.t.Helper()
	command := exec.Command("node", "testdata/client.mjs")
	d := &driven{t: h.t}
	command.Stderr = &d.stderr
	in, err := command.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = in.Close()
		if err := command.Wait(); err != nil {
			h.t.Errorf("%v\n%s", err, d.stderr.String())
		}
	})
	d.in, d.out = in, bufio.NewScanner(out)
	d.out.Buffer(nil, 4<<20)
	about["major"], about["pin"], about["name"] = p.major, p.pin, p.name
	about["modules"] = filepath.Join(npm(h.t, p.sdk), "node_modules")
	d.send(about)
	var hello struct {
		Connected    struct{ Name string }
		Instructions string
		PID          int
	}
	if d.next("connected", &hello); hello.Connected.Name != "toolcrib" || !strings.Contains(hello.Instructions, "collect_result") {
		h.t.Fatalf("%+v", hello)
	}
	d.pid = hello.PID
	return d
}

func (d *driven) send(v any) {
	d.t.Helper()
	if err := json.NewEncoder(d.in).Encode(v); err != nil {
		d.t.Fatal(err)
	}
}

// next reads up to the line that has one of these keys.
func (d *driven) next(keys string, to any) string {
	d.t.Helper()
	for d.out.Scan() {
		var line map[string]json.RawMessage
		if err := json.Unmarshal(d.out.Bytes(), &line); err != nil {
			d.t.Fatalf("%v: %s", err, d.out.Bytes())
		}
		if asked, ok := line["asked"]; ok {
			var p map[string]any
			_ = json.Unmarshal(asked, &p)
			d.asked = append(d.asked, p)
			continue
		}
		if line["progress"] != nil {
			d.beats++
			continue
		}
		for _, key := range strings.Fields(keys) {
			if line[key] != nil {
				if to != nil {
					if err := json.Unmarshal(d.out.Bytes(), to); err != nil {
						d.t.Fatal(err)
					}
				}
				return key
			}
		}
		d.t.Fatalf("%s\n%s", d.out.Bytes(), d.stderr.String())
	}
	d.t.Fatalf("the client has ended\n%s", d.stderr.String())
	return ""
}

// step is one thing that a client does, and what its person says when they are asked.
type step map[string]any

// call makes a call, and returns its result, or the error that the client got.
func (d *driven) call(s step) (*sdk.CallToolResult, error) {
	d.t.Helper()
	d.send(s)
	return d.result()
}

// result is what comes of the last call.
func (d *driven) result() (*sdk.CallToolResult, error) {
	d.t.Helper()
	var line struct {
		Result *sdk.CallToolResult
		Error  string
	}
	if d.next("result error", &line) == "error" {
		return nil, errors.New(line.Error)
	}
	return line.Result, nil
}

func (d *driven) mustCall(s step) *sdk.CallToolResult {
	d.t.Helper()
	r, err := d.call(s)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

func writing(path string, answer any) step {
	return step{"call": "write_file", "arguments": map[string]any{"path": path, "content": "written"}, "answer": answer}
}

func (h *home) file(name string) string {
	data, err := os.ReadFile(filepath.Join(h.work, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	return string(data)
}

// The official TypeScript clients, with what products say they can do.
func TestTypeScript(t *testing.T) {
	for _, p := range products() {
		t.Run(p.name+"/"+strings.TrimPrefix(p.sdk, "@modelcontextprotocol/")+"/"+p.pin, func(t *testing.T) {
			t.Parallel()
			npm(t, p.sdk)
			needsSleep(t)
			h := newHome(t, "tools: {shell: {allow: [sleep]}, settings: {exec_shell: {confirm: never}}}\n")
			d := p.start(h, p.capabilities)

			// read
			if r := d.mustCall(step{"call": "read_file", "arguments": step{"path": "a.txt"}}); !strings.Contains(textOf(r), "the text of a") {
				t.Errorf("%s", textOf(r))
			}
			if r, err := d.call(step{"call": "get_env", "arguments": step{}}); err == nil && !r.IsError {
				t.Errorf("%s", textOf(r))
			}

			// a write that the client's person approves, denies or dismisses, or that an agent accepts
			// by itself
			approve := step{"action": "accept", "content": step{"decision": "approve"}}
			if r := d.mustCall(writing("b.txt", approve)); r.IsError || h.file("b.txt") != "written" || len(d.asked) != 1 {
				t.Errorf("%s, asked: %v", textOf(r), d.asked)
			}
			if r := d.mustCall(writing("c.txt", step{"action": "decline"})); !r.IsError || !strings.Contains(textOf(r), "approval_denied") {
				t.Errorf("%s", textOf(r))
			}
			var waits []string
			for _, said := range []step{{"action": "cancel"}} {
				waits = append(waits, approvalOf(t, d.mustCall(writing("d.txt", said))))
			}
			if r, err := d.call(writing("d.txt", step{"action": "accept", "content": step{}})); err == nil {
				waits = append(waits, approvalOf(t, r)) // else the client itself has refused the form
			}
			if h.file("c.txt")+h.file("d.txt") != "" {
				t.Error("written")
			}

			// written after a person at toolcrib has approved, and collected
			h.toolcrib(0, "approvals", "approve", waits[0], "--digest", h.digest(waits[0]))
			r := d.mustCall(step{"call": "collect_result", "arguments": step{"approval_id": waits[0]}})
			if r.IsError || h.file("d.txt") != "written" {
				t.Errorf("%s", textOf(r))
			}

			// cancelled
			if why := d.sleeps(h); why == nil {
				t.Error("no error")
			}

			// killed in the middle, and taken up
			seconds := someTime()
			d.send(step{"call": "exec_shell", "arguments": step{"command": "sleep " + seconds}})
			until(t, "it sleeps", func() bool { return running(seconds) })
			server, err := os.FindProcess(d.pid)
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			d.next("error", nil)
			until(t, "its process has gone", func() bool { return !running(seconds) })
			h.toolcrib(3, "runs", "resume", "last")
			if run := h.runs()[0]; run.Pending == nil || run.Pending.Kind != "in_doubt" {
				t.Errorf("%+v", run)
			}
			h.toolcrib(0, "runs", "verify", "--all")
		})
	}
}

// A client that cannot ask, such as Claude Code within an agent, parks every write.
func TestTypeScript_CannotAsk(t *testing.T) {
	for _, p := range products() {
		t.Run(p.name+"/"+strings.TrimPrefix(p.sdk, "@modelcontextprotocol/")+"/"+p.pin, func(t *testing.T) {
			t.Parallel()
			npm(t, p.sdk)
			h := newHome(t, "")
			d := p.start(h, `{"roots":{"listChanged":true}}`)
			id := approvalOf(t, d.mustCall(writing("b.txt", nil)))
			if h.file("b.txt") != "" || len(d.asked) > 0 {
				t.Fatal("written, or asked")
			}
			d.send(step{"call": "collect_result", "arguments": step{"approval_id": id}})
			h.toolcrib(0, "approvals", "approve", id, "--digest", h.digest(id))
			if r, err := d.result(); err != nil || r.IsError || h.file("b.txt") != "written" {
				t.Errorf("%s, %v", textOf(r), err)
			}
		})
	}
}

// times distinguishes the processes of one test from those of others.
var times atomic.Int64

func someTime() string { return strconv.FormatInt(300+times.Add(1), 10) + ".25" }

// sleeps makes a call that the client cancels.
func (d *driven) sleeps(h *home) error {
	d.t.Helper()
	seconds := someTime()
	d.send(step{"call": "exec_shell", "arguments": step{"command": "sleep " + seconds}, "progress": true})
	until(d.t, "it sleeps", func() bool { return running(seconds) })
	d.send(step{"cancel": true})
	_, err := d.result()
	until(d.t, "its process has gone", func() bool { return !running(seconds) })
	until(d.t, "its run was cancelled", func() bool { return h.runs()[0].Status == "cancelled" })
	return err
}

// digest is that of what an approval shows.
func (h *home) digest(id string) string {
	h.t.Helper()
	var view struct {
		Digest string `json:"digest"`
	}
	if err := json.Unmarshal([]byte(h.toolcrib(0, "approvals", "show", id, "--json")), &view); err != nil {
		h.t.Fatal(err)
	}
	return view.Digest
}
