package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/npmtest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/mcp"
)

// ofNPM is a reference server, as a program on standard input.
func ofNPM(t *testing.T, name string, args ...string) mcp.Server {
	t.Helper()
	dir := npmtest.Package(t, "@modelcontextprotocol/"+name+"@2026.8.31")
	main := filepath.Join(dir, "node_modules/@modelcontextprotocol", name, "dist/index.js")
	return mcp.Server{Name: "srv", Command: npmtest.Node(t), Args: append([]string{main}, args...), Env: map[string]string{}}
}

// calling calls a tool and wants an output without an error.
func calling(t *testing.T, c *mcp.Client, name, arguments string) toolcrib.Output {
	t.Helper()
	out, err := callOf(t.Context(), c, "srv__"+name, arguments)
	if err != nil || out.IsError {
		t.Errorf("%s%s: %+v, %v", name, arguments, out, err)
	}
	return out
}

// The reference servers, installed from npm, also with the transport of 2024-11-05, which
// server-everything still supports.
func TestNPM_Everything(t *testing.T) {
	for _, transport := range []string{"stdio", "sse", "streamableHttp"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			s := ofNPM(t, "server-everything", transport)
			if transport != "stdio" {
				s = overHTTP(t, s, transport)
			}
			c := start(t, s, mcp.Options{})
			if state := c.State(); !state.Running || !strings.HasPrefix(state.Server, "mcp-servers/everything") {
				t.Fatalf("state = %+v", state)
			}
			everything(t, c)
		})
	}
}

// overHTTP starts a server and returns it as an address.
func overHTTP(t *testing.T, s mcp.Server, transport string) mcp.Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	cmd := exec.Command(s.Command, s.Args...)
	cmd.Env = append(os.Environ(), "PORT="+strconv.Itoa(port))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	at := fmt.Sprintf("127.0.0.1:%d", port)
	waittest.Until(t, "it listens", func() bool {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	path := map[string]string{"sse": "/sse", "streamableHttp": "/mcp"}[transport]
	return mcp.Server{Name: "srv", URL: "http://" + at + path, SSE: transport == "sse"}
}

func everything(t *testing.T, c *mcp.Client) {
	t.Helper()
	if out := calling(t, c, "echo", `{"message":"hello"}`); out.Text != "Echo: hello" {
		t.Errorf("echo = %+v", out)
	}
	if out := calling(t, c, "get-structured-content", `{"location":"Chicago"}`); !strings.Contains(string(out.JSON), `"temperature"`) {
		t.Errorf("structured = %+v", out)
	}
	if out := calling(t, c, "get-tiny-image", `{}`); len(out.Files) != 1 || out.Files[0].MediaType != "image/png" {
		t.Errorf("image = %+v", out)
	}
	if out := calling(t, c, "get-resource-links", `{"count":2}`); strings.Count(out.Text, "[resource ") != 2 {
		t.Errorf("links = %+v", out)
	}
	if out := calling(t, c, "get-resource-reference", `{"resourceType":"Text","resourceId":1}`); !strings.Contains(out.Text, "[resource demo://") {
		t.Errorf("reference = %+v", out)
	}

	// Progress, and a call that is cancelled in the middle.
	long, err := toolOf(c, "srv__trigger-long-running-operation")
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan float64, 100)
	call := toolcrib.Call{
		Arguments: json.RawMessage(`{"duration":1,"steps":4}`), Progress: func(_ string, f float64) { told <- f },
	}
	if out, err := long.Call(t.Context(), call); err != nil || !strings.Contains(out.Text, "completed") || len(told) == 0 {
		t.Errorf("long: %+v, %v, %d times told", out, err, len(told))
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	call.Arguments = json.RawMessage(`{"duration":600,"steps":6000}`)
	call.Progress = func(string, float64) { cancel(stop) }
	if _, err := long.Call(ctx, call); !errors.Is(err, stop) {
		t.Errorf("cancelled: %v", err)
	}

	// A form, and an address to open.
	for name, answers := range map[string][]string{
		"trigger-elicitation-request": append([]string{`"Ann"`}, slices.Repeat([]string{`"-"`}, 30)...),
		"trigger-url-elicitation":     {`true`, `true`},
	} {
		var tool toolcrib.Tool
		// It is listed once the server knows what the client can do.
		waittest.Until(t, name+" is listed", func() bool {
			tool, err = toolOf(c, "srv__"+name)
			return err == nil
		})
		p := &person{t: t, answers: answers}
		out, err := tool.Call(t.Context(), toolcrib.Call{
			Run: "run_1", Arguments: json.RawMessage(`{"url":"https://id.example/","errorPath":true,"message":"Sign in."}`), Invoke: p.invoke,
		})
		if err != nil || out.IsError || !strings.Contains(out.Text, "the person answered") || len(p.asked) == 0 {
			t.Errorf("%s: %+v, %v; asked %q", name, out, err, p.asked)
		}
	}

	// Resources and prompts.
	servers := func() map[string]*mcp.Client { return map[string]*mcp.Client{"srv": c} }
	for _, tool := range mcp.ResourceTools(servers) {
		arguments, want := `{}`, "demo://resource/"
		if tool.Spec().Name == mcp.ReadResource {
			arguments, want = `{"server":"srv","uri":"demo://resource/dynamic/text/1"}`, "Resource 1"
		}
		out, err := tool.Call(t.Context(), toolcrib.Call{Arguments: json.RawMessage(arguments)})
		if err != nil || !strings.Contains(out.Text+string(out.JSON), want) {
			t.Errorf("%s: %+v, %v", tool.Spec().Name, out, err)
		}
	}
	out, err := c.Prompt(t.Context(), "args-prompt", map[string]string{"city": "Ulm", "state": "BW"})
	if err != nil || out.Text != "What's weather in Ulm, BW?" {
		t.Errorf("prompt: %+v, %v", out, err)
	}
}

func TestNPM_Filesystem(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, ofNPM(t, "server-filesystem", dir), mcp.Options{})
	path, err := json.Marshal(filepath.Join(dir, "note.txt"))
	if err != nil {
		t.Fatal(err)
	}
	calling(t, c, "write_file", fmt.Sprintf(`{"path":%s,"content":"hello"}`, path))
	if data, err := os.ReadFile(filepath.Join(dir, "note.txt")); err != nil || string(data) != "hello" {
		t.Errorf("written: %q, %v", data, err)
	}
	if out := calling(t, c, "read_text_file", fmt.Sprintf(`{"path":%s}`, path)); !strings.Contains(out.Text+string(out.JSON), "hello") {
		t.Errorf("read = %+v", out)
	}
	out, err := callOf(t.Context(), c, "srv__read_text_file", `{"path":"/etc/passwd"}`)
	if err != nil || !out.IsError || !strings.Contains(out.Text+string(out.JSON), "denied") {
		t.Errorf("outside: %+v, %v", out, err)
	}
}

func TestNPM_Memory(t *testing.T) {
	s := ofNPM(t, "server-memory")
	s.Env["MEMORY_FILE_PATH"] = filepath.Join(t.TempDir(), "memory.jsonl")
	c := start(t, s, mcp.Options{})
	calling(t, c, "create_entities", `{"entities":[{"name":"Ann","entityType":"person","observations":["likes tea"]}]}`)
	if out := calling(t, c, "search_nodes", `{"query":"tea"}`); !strings.Contains(out.Text+string(out.JSON), "Ann") {
		t.Errorf("found = %+v", out)
	}
}
