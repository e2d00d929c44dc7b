package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service"
)

// versions are the generations of the protocol: with sessions, and without.
var versions = []string{"2025-11-25", "2026-07-28"}

// bearer adds a token to requests, and counts sessions.
type bearer struct {
	token   string
	session string // the last session that an answer named
}

func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && res.Header.Get("Mcp-Session-Id") != "" {
		b.session = res.Header.Get("Mcp-Session-Id")
	}
	return res, err
}

// editor connects a client like an editor to a path of the server. answer returns the answers of its person. If nil,
// the client cannot ask.
func (h *house) editor(path, token, version string, answer func(*sdk.ElicitParams) *sdk.ElicitResult,
	o *sdk.ClientOptions,
) (*sdk.ClientSession, *bearer) {
	h.t.Helper()
	if o == nil {
		o = &sdk.ClientOptions{}
	}
	o.Capabilities = &sdk.ClientCapabilities{}
	if answer != nil {
		o.ElicitationHandler = func(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return answer(req.Params), nil
		}
	}
	b := &bearer{token: token}
	client := sdk.NewClient(&sdk.Implementation{Name: "an editor", Version: "1"}, o)
	session, err := client.Connect(h.t.Context(), &sdk.StreamableClientTransport{
		Endpoint: h.url + path, HTTPClient: &http.Client{Transport: b}, MaxRetries: -1,
	}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = session.Close() })
	return session, b
}

func called(t *testing.T, c *sdk.ClientSession, name string, arguments any) *sdk.CallToolResult {
	t.Helper()
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func said(r *sdk.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String()
}

func approving(*sdk.ElicitParams) *sdk.ElicitResult {
	return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": "approve"}}
}

var writing = map[string]any{"path": "b.txt", "content": "written"}

// The tools of an agent over HTTP, in both generations of the protocol. They read, and write after the client's person
// or one at toolcrib has approved, and do no more than the token may.
func TestMCP(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			h := open(t, "")
			ann, narrow := h.token("ann", signIn), h.token("ann", access.Scope{Tools: []string{"list_directory"}})
			work := filepath.Join(h.dir, "data", "workspaces", "ann")
			written := func(name string) string {
				data, _ := os.ReadFile(filepath.Join(work, name)) // may not exist
				return string(data)
			}
			c, b := h.editor("/mcp", ann, version, approving, nil)
			if (b.session == "") != (version >= "2026-07-28") {
				t.Errorf("the session is %q", b.session)
			}
			r := called(t, c, "write_file", writing)
			if r.IsError || written("b.txt") != "written" {
				t.Fatalf("%s, %q", said(r), written("b.txt"))
			}
			if r = called(t, c, "read_file", map[string]any{"path": "b.txt"}); !strings.Contains(said(r), "written") {
				t.Errorf("%s", said(r))
			}
			id, _ := r.Meta["toolcrib/run_id"].(string)
			var run service.Run
			if h.want(200, &run, "GET", "/api/runs/"+id, ann, ""); run.User != "ann" || len(run.Trace) != 1 {
				t.Errorf("%+v", run)
			}
			read, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "toolcrib://runs/" + id})
			if err != nil || !strings.Contains(read.Contents[0].Text, id) {
				t.Errorf("%+v %v", read, err)
			}

			// A client that cannot ask: the approval is decided over the API, and the run continues by itself.
			c, _ = h.editor("/mcp/short", ann, version, nil, nil)
			r = called(t, c, "write_file", map[string]any{"path": "c.txt", "content": "later"})
			view, _ := r.StructuredContent.(map[string]any)
			approval, _ := view["approval_id"].(string)
			if strings.Contains(said(r), "--resume") {
				t.Errorf("the server continues it by itself: %s", said(r))
			}
			var a service.Approval
			h.want(200, &a, "GET", "/api/approvals/"+approval, ann, "")
			h.want(200, nil, "POST", "/api/approvals/"+approval, ann, `{"decision":"approve","digest":"`+a.Digest+`"}`)
			r = called(t, c, "collect_result", map[string]any{"approval_id": approval})
			if r.IsError || written("c.txt") != "later" {
				t.Errorf("%s, %q", said(r), written("c.txt"))
			}

			// No more than the token may, and nothing of other users.
			c, _ = h.editor("/mcp", narrow, version, approving, nil)
			tools, err := c.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) != 2 {
				t.Errorf("%+v %v", tools, err)
			}
			c, _ = h.editor("/mcp", h.token("bob", signIn), version, approving, nil)
			if _, err := c.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "toolcrib://runs/" + id}); err == nil {
				t.Error("bob reads ann's run")
			}
			if r := called(t, c, "collect_result", map[string]any{"approval_id": approval}); !r.IsError {
				t.Errorf("bob collects %s", said(r))
			}
		})
	}
}

// Clients are notified of a tool that is switched off or on, and of the progress of a call.
func TestMCP_Hears(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			h := open(t, "")
			changed, progress := make(chan bool, 16), make(chan string, 16)
			c, _ := h.editor("/mcp", h.token("ann", signIn), version, nil, &sdk.ClientOptions{
				ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { changed <- true },
				ProgressNotificationHandler: func(_ context.Context, q *sdk.ProgressNotificationClientRequest) {
					progress <- q.Params.Message
				},
			})
			boss := h.token("boss", signIn)
			for _, on := range []bool{false, true} {
				h.eventually("the client is told", func() bool { // once its stream exists
					for _, now := range []bool{!on, on} {
						h.want(200, nil, "PUT", "/api/tools/read_file", boss, fmt.Sprintf(`{"enabled":%v}`, now))
					}
					select {
					case <-changed:
						return true
					case <-time.After(time.Second):
						return false
					}
				})
				tools, err := c.ListTools(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if slices.ContainsFunc(tools.Tools, func(t *sdk.Tool) bool { return t.Name == "read_file" }) != on {
					t.Errorf("listed: %v", !on)
				}
			}
		})
	}
}

// post sends a message like a client that was written by hand.
func (h *house) post(token, message string, head ...string) (*http.Response, string) {
	h.t.Helper()
	r := h.request("POST", "/mcp", token, message,
		append([]string{"Accept", "application/json, text/event-stream"}, head...)...)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return res, string(data)
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
	`"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

// begins begins a session.
func (h *house) begins(token string) string {
	h.t.Helper()
	res, text := h.post(token, initialize)
	id := res.Header.Get("Mcp-Session-Id")
	if res.StatusCode != 200 || id == "" || !strings.Contains(text, "collect_result") {
		h.t.Fatalf("%d %v %s", res.StatusCode, res.Header, text)
	}
	h.post(token, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "Mcp-Session-Id", id)
	return id
}

// A session belongs to the principal that began it, with the rights at that time, and ends with DELETE.
func TestMCP_Sessions(t *testing.T) {
	h := open(t, "")
	ann, bob := h.token("ann", signIn), h.token("bob", signIn)
	narrow := h.token("ann", access.Scope{})
	id := h.begins(ann)
	const list = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	if res, text := h.post(ann, list, "Mcp-Session-Id", id); res.StatusCode != 200 ||
		!strings.Contains(text, "read_file") {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	for name, one := range map[string]struct{ token, id string }{
		"another user's": {bob, id}, "by another token of the user": {narrow, id}, "one that never was": {ann, id[1:] + "A"},
		"a strange one": {ann, "../../x"},
	} {
		for _, method := range []string{"GET", "DELETE", "POST"} {
			status, _, data := h.ask(method, "/mcp", one.token, list, "Mcp-Session-Id", one.id,
				"Accept", "application/json, text/event-stream")
			if status != 404 || !bytes.Contains(data, []byte(`"error":"not_found"`)) {
				t.Errorf("%s, %s: %d %s", name, method, status, data)
			}
		}
	}
	if status, _, data := h.ask("POST", "/mcp/slow", ann, list, "Mcp-Session-Id", id, "Accept",
		"application/json, text/event-stream"); status != 404 {
		t.Errorf("at another agent: %d %s", status, data)
	}
	if status, _, data := h.ask("DELETE", "/mcp", ann, "", "Mcp-Session-Id", id); status != 204 {
		t.Errorf("DELETE: %d %s", status, data)
	}
	if res, text := h.post(ann, list, "Mcp-Session-Id", id); res.StatusCode != 404 {
		t.Errorf("after DELETE: %d %s", res.StatusCode, text)
	}

	// The sessions of a user are bounded; a new one replaces the oldest.
	first := h.begins(ann)
	for range 32 {
		h.begins(ann)
	}
	if res, _ := h.post(ann, list, "Mcp-Session-Id", first); res.StatusCode != 404 {
		t.Errorf("the first of 33: %d", res.StatusCode)
	}
	other := h.begins(bob)
	if res, _ := h.post(bob, list, "Mcp-Session-Id", other); res.StatusCode != 200 {
		t.Errorf("bob's: %d", res.StatusCode)
	}
}

// Untrusted data that a call has read taints the session or, without a session, the token, also after a restart of the
// server.
func TestMCP_Taint(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			h := open(t, "tools: {settings: {read_file: {untrusted: true}}}\n")
			ann := h.token("ann", signIn)
			asked := 0
			editor := func() *sdk.ClientSession {
				c, _ := h.editor("/mcp", ann, version, func(p *sdk.ElicitParams) *sdk.ElicitResult {
					asked++
					return approving(p)
				}, nil)
				return c
			}
			c := editor()
			if r := called(t, c, "write_file", writing); r.IsError || asked != 1 {
				t.Fatalf("%s, asked %d times", said(r), asked)
			}
			marks := regexp.MustCompile("CC_CANARY_[0-9A-F]{16}")
			canary := marks.FindString(said(called(t, c, "read_file", map[string]any{"path": "b.txt"})))
			if text := said(called(t, c, "read_file", map[string]any{"path": canary})); canary == "" ||
				!strings.Contains(text, "[CANARY_REDACTED]") {
				t.Errorf("the canary %q in a later call: %s", canary, text)
			}
			escaped := json.RawMessage(strings.Replace(strconv.Quote(canary), "C", `\u0043`, 1))
			if text := said(called(t, c, "read_file",
				map[string]any{"path": escaped})); !strings.Contains(text, "[CANARY_REDACTED]") {
				t.Errorf("the canary with an escape in a later call: %s", text)
			}
			// The data of a run of another client, which is read as a resource, and of concurrent calls.
			other := editor()
			read, err := other.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "toolcrib://runs/last"})
			if err != nil {
				t.Fatal(err)
			}
			canaries := marks.FindAllString(read.Contents[0].Text, -1)
			var all sync.WaitGroup
			texts := make([]string, 8)
			for i := range texts {
				all.Go(func() { texts[i] = said(called(t, other, "read_file", map[string]any{"path": "b.txt"})) })
			}
			all.Wait()
			canaries = append(canaries, marks.FindAllString(strings.Join(texts, "\n"), -1)...)
			for _, one := range canaries {
				if text := said(called(t, other, "read_file",
					map[string]any{"path": one})); !strings.Contains(text, "[CANARY_REDACTED]") {
					t.Errorf("%s in a later call: %s", one, text)
				}
			}
			if len(canaries) < 9 {
				t.Errorf("marks: %s", canaries)
			}
			if _, _, events := h.ask("GET", "/api/runs/last/export", ann,
				""); !strings.Contains(string(events), `"canary_leak"`) {
				t.Errorf("no notice of it: %s", events)
			}
			if r := called(t, c, "write_file", map[string]any{"path": "c.txt", "content": "x"}); asked != 1 ||
				r.StructuredContent == nil {
				t.Errorf("asked %d times: %s", asked, said(r))
			}
			if version == versions[0] {
				return
			}
			if err := h.stop(); err != nil {
				t.Fatal(err)
			}
			h.start()
			c = editor()
			if r := called(t, c, "write_file", map[string]any{"path": "d.txt", "content": "x"}); asked != 1 ||
				r.StructuredContent == nil {
				t.Errorf("after a restart: asked %d times: %s", asked, said(r))
			}
		})
	}
}

// meta is the _meta of a request without a session.
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

const slowCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{` + meta +
	`,"name":"agent__slow","arguments":{"task":"Count."}}}`

// Without a session, a client that closes its response stream cancels the call. In a session that does not cancel the
// call, but DELETE does.
func TestMCP_Closed(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			h := open(t, "")
			h.script("slow.script", never)
			ann := h.token("ann", signIn)
			message, head := slowCall, []string{"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", version}
			if version == versions[0] {
				message = strings.Replace(slowCall, meta+",", "", 1)
				head = append(head, "Mcp-Session-Id", h.begins(ann))
			} else {
				head = append(head, "Mcp-Method", "tools/call", "Mcp-Name", "agent__slow")
			}
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan string, 1)
			go func() {
				res, err := http.DefaultClient.Do(h.request("POST", "/mcp", ann, message, head...).WithContext(ctx))
				if err != nil {
					left <- err.Error()
					return
				}
				defer res.Body.Close()
				data, err := io.ReadAll(res.Body)
				left <- fmt.Sprintf("%d %s %v", res.StatusCode, data, err)
			}()
			runs := func() (page api.RunList) {
				h.want(200, &page, "GET", "/api/runs", ann, "")
				return page
			}
			h.eventually("it has begun", func() bool {
				select {
				case text := <-left:
					t.Fatal(text)
				default:
				}
				return len(runs().Runs) == 2
			})
			leave()
			is := func(status string) func() bool {
				return func() bool {
					return !slices.ContainsFunc(runs().Runs, func(r service.Run) bool { return string(r.Status) != status })
				}
			}
			if version == versions[1] {
				h.eventually("cancelled", is("cancelled"))
				return
			}
			<-left
			h.connected(0) // the server has seen that the client is gone
			if !is("running")() {
				t.Fatalf("%+v", runs().Runs)
			}
			if status, _, data := h.ask("DELETE", "/mcp", ann, "", head[4:]...); status != 204 {
				t.Errorf("%d %s", status, data)
			}
			h.eventually("cancelled", is("cancelled"))
		})
	}
}

// A client whose connection breaks during a call reads the rest.
func TestMCP_TakenUp(t *testing.T) {
	h := open(t, "")
	ann, bob := h.token("ann", signIn), h.token("bob", signIn)
	head := []string{
		"Accept", "application/json, text/event-stream", "MCP-Protocol-Version", versions[0], "Mcp-Session-Id", h.begins(ann),
	}
	ctx, cut := context.WithCancel(t.Context())
	defer cut()
	res, err := http.DefaultClient.Do(h.request("POST", "/mcp", ann, strings.Replace(slowCall, meta+",", "", 1),
		head...).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var id string
	for lines := bufio.NewScanner(res.Body); id == "" && lines.Scan(); {
		id, _ = strings.CutPrefix(lines.Text(), "id: ")
		if !strings.HasPrefix(lines.Text(), "id: ") {
			id = ""
		}
	}
	cut()
	if id == "" {
		t.Fatal("no event has an ID")
	}
	head = append(head, "Last-Event-ID", id)
	for _, late := range []bool{false, true} { // while it runs, and after its end
		var data []byte
		h.eventually("the server knows that the connection broke", func() (ok bool) {
			status, _, text := h.ask("GET", "/mcp", ann, "", head...)
			data = text
			return status == 200
		})
		if strings.Count(string(data), "one two three four") != 1 {
			t.Errorf("late %v: %s", late, data)
		}
	}
	if status, _, data := h.ask("GET", "/mcp", bob, "", head...); status != 404 {
		t.Errorf("bob: %d %s", status, data)
	}
	head[len(head)-1] = "nonsense_7"
	if status, _, data := h.ask("GET", "/mcp", ann, "", head...); status != 400 {
		t.Errorf("nonsense: %d %s", status, data)
	}
}

// Streams and sessions end with the server, and the runs of calls continue at the next start.
func TestMCP_Restart(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			h := open(t, "")
			text := "- {text: one two three four, delay: 3s}\n"
			if err := os.WriteFile(filepath.Join(h.dir, "slow.script"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			ann := h.token("ann", signIn)
			c, _ := h.editor("/mcp", ann, version, nil, nil)
			failed := make(chan error, 1)
			go func() {
				r, err := c.CallTool(context.Background(), &sdk.CallToolParams{
					Name: "agent__slow", Arguments: map[string]any{"task": "Count."},
				})
				if err == nil {
					err = fmt.Errorf("it was answered: %s", said(r))
				}
				failed <- err
			}()
			var page api.RunList
			h.eventually("it has begun", func() bool {
				h.want(200, &page, "GET", "/api/runs", ann, "")
				return len(page.Runs) == 2
			})
			begun := time.Now()
			if err := h.stop(); err != nil || time.Since(begun) > time.Minute {
				t.Fatalf("it ended after %v with %v", time.Since(begun), err)
			}
			select {
			case err := <-failed:
				t.Log(err)
			case <-time.After(time.Minute):
				t.Fatal("the call hangs")
			}
			h.start()
			h.eventually("it continues", func() bool {
				h.want(200, &page, "GET", "/api/runs", ann, "")
				return page.Runs[0].Status == "completed" && page.Runs[1].Status == "completed"
			})
		})
	}
}

// The bounds of runs apply to calls, and a call that is refused for them can be made again.
func TestMCP_RunsAreBounded(t *testing.T) {
	h := open(t, "server: {max_runs_per_user: 1}\n")
	if err := os.WriteFile(filepath.Join(h.dir, "slow.script"), []byte("- {text: never, delay: 10m}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	ann := h.token("ann", signIn)
	c, _ := h.editor("/mcp", ann, versions[0], nil, nil)
	var first service.Run
	h.want(202, &first, "POST", "/api/runs", ann, `{"agent":"slow","input":"Count.","detach":true}`)
	if r := called(t, c, "list_directory", map[string]any{"path": "."}); !r.IsError ||
		!strings.Contains(said(r), "max_runs_per_user") {
		t.Errorf("%s", said(r))
	}
	other, _ := h.editor("/mcp", h.token("bob", signIn), versions[1], nil, nil)
	if r := called(t, other, "list_directory", map[string]any{"path": "."}); r.IsError {
		t.Errorf("bob: %s", said(r))
	}
	h.want(200, nil, "POST", "/api/runs/"+string(first.ID)+"/cancel", ann, "")
	h.eventually("it may be made", func() bool {
		return !called(t, c, "list_directory", map[string]any{"path": "."}).IsError
	})
}

// A client without a valid token learns where to get one, as the protocol defines it.
func TestMCP_Authorization(t *testing.T) {
	h := open(t, "server: {cors: ['https://crib.example']}\n")
	h.token("ann", signIn)
	expired := h.expired("ann")
	for _, one := range []struct{ token, path, host, want string }{
		{"", "/mcp", "", h.url + "/.well-known/oauth-protected-resource/mcp"},
		{"nonsense", "/mcp/slow", "", h.url + "/.well-known/oauth-protected-resource/mcp/slow"},
		{expired, "/mcp", "crib.example", "https://crib.example/.well-known/oauth-protected-resource/mcp"},
	} {
		head := []string{"Accept", "application/json, text/event-stream"}
		if one.host != "" {
			head = append(head, "Host", one.host)
		}
		status, header, _ := h.ask("POST", one.path, one.token, initialize, head...)
		got := header.Get("WWW-Authenticate")
		if status != 401 || !strings.HasPrefix(got, "Bearer ") ||
			!strings.Contains(got, `resource_metadata="`+one.want+`"`) ||
			strings.Contains(got, "invalid_token") != (one.token != "") {
			t.Errorf("%q: %d %s", one.token, status, got)
		}
		_, at, _ := strings.Cut(one.want, "://")
		at = at[strings.Index(at, "/"):]
		var r server.Resource
		_, _, data := h.ask("GET", at, "", "", head[2:]...)
		want := strings.Replace(one.want, "/.well-known/oauth-protected-resource", "", 1)
		if err := json.Unmarshal(data, &r); err != nil || r.Resource != want || !slices.Contains(r.Methods, "header") {
			t.Errorf("%s, want %s", data, want)
		}
	}
}

// Invalid messages of clients are answered with errors like those of the API.
func TestMCP_BadRequests(t *testing.T) {
	h := open(t, "server: {max_body_bytes: 4096}\n")
	ann := h.token("ann", signIn)
	for name, one := range map[string]struct {
		body string
		head []string
		want int
	}{
		"no JSON":          {"{", nil, 400},
		"a number":         {"7", nil, 400},
		"no method":        {`{"jsonrpc":"2.0","id":1}`, nil, 202}, // it is taken for an answer
		"nothing accepted": {initialize, []string{"Accept", "text/html"}, 400},
		"another type":     {initialize, []string{"Content-Type", "text/plain"}, 415},
		"another version":  {initialize, []string{"MCP-Protocol-Version", "1999-01-01"}, 400},
		"too large":        {strings.Repeat(" ", 5000), nil, 413},
		"no parameters":    {`{"jsonrpc":"2.0","id":1,"method":"initialize"}`, nil, 0},
		"deep":             {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + strings.Repeat("[", 1500), nil, 400},
		"null for no ID":   {`{"jsonrpc":"2.0","id":null,"method":"notifications/initialized"}`, nil, 202},
		"an odd ID":        {`{"jsonrpc":"2.0","id":{},"method":"no/such"}`, nil, 400},
		"no version":       {`{"id":1,"method":"no/such"}`, nil, 400},
		"no meta":          {`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, []string{"MCP-Protocol-Version", "2026-07-28"}, 400},
	} {
		res, text := h.post(ann, one.body, one.head...)
		if one.want != 0 && res.StatusCode != one.want {
			t.Errorf("%s: %d %s", name, res.StatusCode, text)
		}
		if strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: as text: %s", name, text)
		}
		if res.StatusCode >= 400 && !strings.Contains(text, `"error"`) {
			t.Errorf("%s: %s", name, text)
		}
	}
	h.want(405, nil, "GET", "/mcp", ann, "", "Accept", "text/event-stream")
	h.want(404, nil, "GET", "/mcp/nobody", ann, "", "Accept", "text/event-stream")

	// A call that cannot be executed is a JSON-RPC error, in a session and without.
	for _, head := range [][]string{nil, {"Mcp-Session-Id", h.begins(ann)}} {
		for call, want := range map[string]string{
			`"id":12345678901234567890,"method":"no/such"`: `"error":{"code":-32601,"message":"method not found: \"no/such\""},"id":12345678901234567890`,
			`"id":"a","method":"tools/call"`:               `"id":"a","error":{"code":-32602,`,
		} {
			res, text := h.post(ann, `{"jsonrpc":"2.0",`+call+`}`, head...)
			if res.StatusCode != 200 || !strings.Contains(text, want) {
				t.Errorf("%s: %d %s", call, res.StatusCode, text)
			}
		}
	}
	// Each message of a batch is answered separately, as up to 2025-03-26.
	batch := `[{"jsonrpc":"2.0","id":1,"method":"no/such"},{"jsonrpc":"2.0","id":"b","method":"tools/call"},` +
		`{"jsonrpc":"2.0","method":"notifications/other"},{"jsonrpc":"2.0","id":3,"method":"ping"},` +
		`{"jsonrpc":"2.0","id":4,"method":"notifications/initialized"}]`
	for _, head := range [][]string{nil, {"Mcp-Session-Id", h.begins(ann), "MCP-Protocol-Version", "2025-03-26"}} {
		res, text := h.post(ann, batch, head...)
		for _, want := range []string{
			`"id":1,"error":{"code":-32601,`, `"id":"b","error":{"code":-32602,`, `"id":3,"result":{}`,
			`"id":4,"error":{"code":-32601,`,
		} {
			if res.StatusCode != 200 || strings.Count(text, want) != 1 || strings.Count(text, `"jsonrpc"`) != 4 {
				t.Errorf("%s: %d %s", want, res.StatusCode, text)
			}
		}
	}
	res, text := h.post(ann, `{"jsonrpc":"2.0","id":1,"method":"no/such"}`, "MCP-Protocol-Version", "2026-07-28")
	if !strings.Contains(text, `-32601`) {
		t.Errorf("%d %s", res.StatusCode, text)
	}

	// By hand, without a session, as with curl.
	res, text = h.post(ann, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_directory","arguments":{"path":"."}}}`)
	if res.StatusCode != 200 || !strings.Contains(text, `entries`) {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}
