package serve_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/mcp/serve"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/policy"
)

// porch serves clients over HTTP.
type porch struct {
	*crib
	http *serve.HTTP
	url  string
	now  atomic.Pointer[service.Service]
}

func (c *crib) porch() *porch {
	p := &porch{crib: c}
	p.now.Store(c.s)
	p.http = serve.NewHTTP(serve.HTTPOptions{
		Service: p.now.Load, Version: "1", Self: "toolcrib", Log: slog.New(slog.DiscardHandler),
	})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = p.http.Serve(w, r, &serve.Request{
				Who: c.who, Workspace: c.work, Body: body,
				Fail: func(status int, text string) { http.Error(w, text, status) },
			})
		}
		if err != nil {
			http.Error(w, string(toolcrib.CodeOf(err)), http.StatusTeapot)
		}
	}))
	c.t.Cleanup(func() {
		if err := p.http.Close(context.Background()); err != nil {
			c.t.Error(err)
		}
		front.Close()
	})
	p.url = front.URL
	return p
}

const (
	listTools = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	slowly    = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"agent__helper","arguments":{"task":"Count."}}}`
)

// ask sends a request of a session, and returns the answer: its status, the session that it names, and the rest.
func (p *porch) ask(method, session, body string) (status int, id, text string) {
	p.t.Helper()
	res := p.begin(method, session, body)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("Mcp-Session-Id"), string(data)
}

// begin sends it, and returns when the answer begins.
func (p *porch) begin(method, session, body string, head ...string) *http.Response {
	p.t.Helper()
	q, err := http.NewRequest(method, p.url, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json, text/event-stream")
	q.Header.Set("MCP-Protocol-Version", "2025-11-25")
	if session != "" {
		q.Header.Set("Mcp-Session-Id", session)
	}
	for i := 0; i+1 < len(head); i += 2 {
		q.Header.Set(head[i], head[i+1])
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		p.t.Fatal(err)
	}
	return res
}

// stateless sends a request of a client without a session, and returns the message of the answer.
func (p *porch) stateless(method, name, params string) string {
	p.t.Helper()
	q, err := http.NewRequest(http.MethodPost, p.url, strings.NewReader(
		`{"jsonrpc":"2.0","id":4,"method":"`+method+`","params":`+params+`}`))
	if err != nil {
		p.t.Fatal(err)
	}
	for header, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name,
	} {
		q.Header.Set(header, value)
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, data, ok := strings.Cut(string(text), "\ndata: "); ok {
		return data
	}
	return string(text)
}

// session begins a session.
func (p *porch) session() string {
	p.t.Helper()
	status, id, text := p.ask("POST", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":`+
		`"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	if status != http.StatusOK || id == "" {
		p.t.Fatalf("%d %s", status, text)
	}
	p.ask("POST", id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return id
}

// there reports whether a session is known, and what it lists.
func (p *porch) there(id string) (ok bool, tools string) {
	p.t.Helper()
	status, _, text := p.ask("POST", id, listTools)
	if status != http.StatusOK && text != string(toolcrib.CodeNotFound)+"\n" {
		p.t.Fatalf("%d %s", status, text)
	}
	return status == http.StatusOK, text
}

// slow begins a call of a session that takes as long as the model, and returns the end of its answer.
func (p *porch) slow(id, script string) (answer chan string) {
	p.t.Helper()
	write(p.t, filepath.Join(os.Getenv("HOME"), ".config/toolcrib/demo.script"), script)
	answer = make(chan string, 1)
	go func() {
		_, _, text := p.ask("POST", id, slowly)
		answer <- text
	}()
	until(p.t.(*testing.T), "the agent works", func() bool {
		runs, _, err := p.s.Runs(p.t.Context(), p.who, service.RunsQuery{})
		return err == nil && len(runs) == 2
	})
	return answer
}

// A session ends after half an hour without a request, unless somebody listens or a call is under way.
func TestHTTP_IdleSession(t *testing.T) {
	p := stock(t, "").porch()
	id := p.session()
	p.http.Sweep(29 * time.Minute)
	if ok, _ := p.there(id); !ok {
		t.Fatal("ended after 29 minutes")
	}
	stream := p.begin("GET", id, "")
	p.http.Sweep(2 * time.Hour)
	if ok, _ := p.there(id); !ok {
		t.Error("ended although its client listens")
	}
	_ = stream.Body.Close()
	until(t, "it ends", func() bool {
		p.http.Sweep(31 * time.Minute)
		ok, _ := p.there(id)
		return !ok
	})

	id = p.session()
	answer := p.slow(id, "- {text: one two three four, delay: 1h}\n")
	p.http.Sweep(2 * time.Hour)
	if ok, _ := p.there(id); !ok {
		t.Error("ended in the middle of a call")
	}
	p.ask("DELETE", id, "") // which cancels the call
	<-answer
	if ok, _ := p.there(id); ok {
		t.Error("there after DELETE")
	}
	until(t, "what nobody uses is forgotten", func() bool {
		p.http.Sweep(11 * time.Minute)
		return p.http.Endpoints() == 0
	})
}

// A call whose connection broke is under way until it ends.
func TestHTTP_BrokenConnection(t *testing.T) {
	p := stock(t, "").porch()
	id := p.session()
	write(t, filepath.Join(os.Getenv("HOME"), ".config/toolcrib/demo.script"), "- {text: one, delay: 1h}\n")
	answer := p.begin("POST", id, slowly)
	until(t, "the call is under way", func() bool { return p.http.Calls() == 1 })
	_ = answer.Body.Close()
	until(t, "its connection has gone", func() bool { return p.http.Requests() == 0 })
	p.http.Sweep(2 * time.Hour)
	if ok, _ := p.there(id); !ok || p.http.Calls() != 1 {
		t.Error("its session has ended")
	}
	p.ask("DELETE", id, "")
	until(t, "it is cancelled", func() bool { return p.http.Calls() == 0 })
}

// However much was answered before, a client listens again, and reads the rest of the newest answer.
func TestHTTP_ListensAgain(t *testing.T) {
	p := stock(t, "").porch()
	id := p.session()
	stream := p.begin("GET", id, "")
	if _, err := p.s.Policy.SwitchTool(t.Context(), p.who, policy.SwitchRequest{Tool: "write_file"}); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stream.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), "list_changed") {
	}
	_ = stream.Body.Close()
	for n := 0; n < 2<<20; {
		_, tools := p.there(id)
		n += len(tools)
	}
	_, _, text := p.ask("POST", id, `{"jsonrpc":"2.0","id":5,"method":"ping"}`)
	_, event, _ := strings.Cut(text, "id: ")
	event, _, _ = strings.Cut(event, "\n")
	for what, head := range map[string][]string{"the rest": {"Last-Event-ID", event}, "what is new": nil} {
		until(t, what, func() bool {
			again := p.begin("GET", id, "", head...)
			defer again.Body.Close()
			if again.StatusCode == http.StatusConflict { // the server does not know yet that the connection broke
				return false
			}
			if again.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s", what, again.Status)
			}
			if head == nil {
				return true
			}
			rest, err := io.ReadAll(again.Body)
			if err != nil || !strings.Contains(string(rest), `"id":5,"result"`) {
				t.Errorf("%s: %q, %v", what, rest, err)
			}
			return true
		})
	}
}

// Under a changed configuration a session is not found, so that its client begins one under the new one. What
// is under way ends as it began.
func TestHTTP_Reload(t *testing.T) {
	p := stock(t, "").porch()
	idle, busy := p.session(), p.session()
	if _, tools := p.there(idle); !strings.Contains(tools, `"write_file"`) {
		t.Fatal(tools)
	}
	answer := p.slow(busy, "- {text: one two three four, delay: 1s}\n")
	path := filepath.Join(os.Getenv("HOME"), ".config/toolcrib/toolcrib.yaml")
	write(t, path, strings.Replace(agents, "default: {model: demo/x}", "default: {model: demo/x, tools: [read_file]}", 1))
	c, err := config.Load(config.Source{Path: path, Origin: config.OriginFlag}, nil)
	if err != nil {
		t.Fatal(err)
	}
	next, err := p.s.Reload(t.Context(), p.who, c)
	if err != nil {
		t.Fatal(err)
	}
	p.now.Store(next)
	for name, id := range map[string]string{"idle": idle, "busy": busy} {
		if ok, _ := p.there(id); ok {
			t.Errorf("%s: still under the old configuration", name)
		}
	}
	if _, tools := p.there(p.session()); strings.Contains(tools, `"write_file"`) || !strings.Contains(tools, `"read_file"`) {
		t.Errorf("%s", tools)
	}
	if text := <-answer; !strings.Contains(text, "one two three four") {
		t.Errorf("the call under way: %s", text)
	}
	until(t, "what was under the old configuration is forgotten", func() bool {
		p.http.Sweep(0)
		return p.http.Endpoints() == 1
	})
}
