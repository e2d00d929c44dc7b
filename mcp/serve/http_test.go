package serve_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// house is the binary as a server.
type house struct {
	*home
	url, token string
	process    *exec.Cmd
	ended      chan error
}

// house starts the server, for the user admin.
func (h *home) house() *house {
	h.t.Helper()
	s := &house{home: h}
	s.start()
	token, err := os.ReadFile(filepath.Join(h.dir, ".local/share/toolcrib/first-token"))
	if err != nil {
		h.t.Fatal(err)
	}
	s.token = strings.TrimSpace(string(token))
	s.work = filepath.Join(h.dir, ".local/share/toolcrib/workspaces/admin")
	write(h.t, filepath.Join(s.work, "a.txt"), "the text of a\n")
	return s
}

func (s *house) start() {
	s.t.Helper()
	s.process, s.ended = s.command("serve", "--listen", "127.0.0.1:0"), make(chan error, 1)
	s.process.Dir = s.t.TempDir()
	stderr, err := s.process.StderrPipe()
	if err == nil {
		err = s.process.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	listens := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if _, at, ok := strings.Cut(lines.Text(), "toolcrib listens on "); ok {
				listens <- at
			}
		}
		s.ended <- s.process.Wait()
	}()
	select {
	case s.url = <-listens:
	case <-time.After(patience):
		s.t.Fatal("the server does not listen")
	}
	s.t.Cleanup(s.stop)
}

// stop ends the server as a service manager does.
func (s *house) stop() {
	if s.process.Process.Signal(syscall.SIGTERM) == nil {
		select {
		case err := <-s.ended:
			s.ended <- err
		case <-time.After(patience):
			s.t.Error("the server does not end")
		}
	}
}

// api sends a request to the API of the server.
func (s *house) api(method, path, body string, to any) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.token)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %s %s %v", method, path, res.Status, data, err)
	}
	if to != nil {
		if err := json.Unmarshal(data, to); err != nil {
			s.t.Fatalf("%v: %s", err, data)
		}
	}
}

// The official TypeScript clients with toolcrib serve: read, written after an approval by the
// client's person or by the API, denied, cancelled.
func TestTypeScript_HTTP(t *testing.T) {
	for i, p := range products() {
		if testing.Short() && i%3 != 0 {
			continue
		}
		t.Run(p.name+"/"+strings.TrimPrefix(p.sdk, "@modelcontextprotocol/")+"/"+p.pin, func(t *testing.T) {
			t.Parallel()
			npm(t, p.sdk)
			h := newHome(t, sleeping+"rules: [{name: ask, tools: [write_file], then: ask}]\n").house()
			d := p.startAs(h.home, map[string]any{"url": h.url + "/mcp", "token": h.token, "capabilities": json.RawMessage(p.capabilities)})
			if r := d.mustCall(step{"call": "read_file", "arguments": step{"path": "a.txt"}}); !strings.Contains(textOf(r), "the text of a") {
				t.Errorf("%s", textOf(r))
			}
			approve := step{"action": "accept", "content": step{"decision": "approve"}}
			if r := d.mustCall(writing("b.txt", approve)); r.IsError || h.file("b.txt") != "written" || len(d.asked) != 1 {
				t.Errorf("%s, asked: %v", textOf(r), d.asked)
			}
			if r := d.mustCall(writing("c.txt", step{"action": "decline"})); !r.IsError || !strings.Contains(textOf(r), "approval_denied") {
				t.Errorf("%s", textOf(r))
			}
			id := approvalIn(t, d.mustCall(writing("d.txt", step{"action": "cancel"})))
			var a struct{ Digest string }
			h.api("GET", "/api/approvals/"+id, "", &a)
			h.api("POST", "/api/approvals/"+id, `{"decision":"approve","digest":"`+a.Digest+`"}`, nil)
			if r := d.mustCall(step{"call": "collect_result", "arguments": step{"approval_id": id}}); r.IsError || h.file("d.txt") != "written" {
				t.Errorf("%s", textOf(r))
			}
			needsSleep(t)
			seconds := someTime()
			d.send(step{"call": "exec_shell", "arguments": step{"command": "sleep " + seconds}})
			until(t, "it sleeps", func() bool { return running(seconds) })
			d.send(step{"cancel": true})
			d.next("error", nil)
			until(t, "its process has gone", func() bool { return !running(seconds) })
			until(t, "its run was cancelled", func() bool {
				var page struct{ Runs []listedRun }
				h.api("GET", "/api/runs", "", &page)
				return page.Runs[0].Status == "cancelled"
			})
		})
	}
}

// What a server behind toolcrib asks reaches the official clients over HTTP, in each generation of the protocol.
func TestTypeScript_AskedByAServerBehind(t *testing.T) {
	for i, p := range products() {
		if i%3 != 0 {
			continue
		}
		t.Run(strings.TrimPrefix(p.sdk, "@modelcontextprotocol/")+"/"+p.pin, func(t *testing.T) {
			t.Parallel()
			npm(t, p.sdk)
			h := behind(t, fixtures(t), "").house()
			d := p.startAs(h.home, map[string]any{"url": h.url + "/mcp", "token": h.token, "capabilities": json.RawMessage(p.capabilities)})
			said := step{"action": "accept", "content": step{"answer": "Ann"}}
			r := d.mustCall(step{"call": "fix__test_input_required_result_elicitation", "arguments": step{}, "answer": said})
			if r.IsError || !strings.Contains(textOf(r), "Hello, Ann!") || len(d.asked) != 1 {
				t.Errorf("%s, asked: %v", textOf(r), d.asked)
			}
		})
	}
}

// fixtures is a proxy to a server whose tools of the MCP server fix get their own names, as a suite
// knows them.
func (s *house) fixtures() *httptest.Server {
	to, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	const prefix = "fix__"
	named := func(name string) string {
		if strings.HasPrefix(name, "test_") || strings.HasPrefix(name, "json_") {
			return prefix + name
		}
		return name
	}
	p := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.URL.Path = "/mcp"
			if host := r.In.Host; strings.HasPrefix(host, "localhost") || strings.HasPrefix(host, "127.0.0.1") {
				r.Out.Host = to.Host
			} else {
				r.Out.Host = host
			}
			if r.In.Header.Get("Origin") == "http://"+r.In.Host {
				r.Out.Header.Set("Origin", s.url)
			}
			r.Out.Header.Set("Authorization", "Bearer "+s.token)
			if name := r.Out.Header.Get("Mcp-Name"); name != "" {
				r.Out.Header.Set("Mcp-Name", named(name))
			}
			body, _ := io.ReadAll(r.In.Body) // a half one is for the server to refuse
			var m map[string]json.RawMessage
			var params map[string]json.RawMessage
			var name string
			if json.Unmarshal(body, &m) == nil && json.Unmarshal(m["params"], &params) == nil &&
				json.Unmarshal(params["name"], &name) == nil && named(name) != name {
				body = bytes.Replace(body, []byte(fmt.Sprintf("%q", name)), []byte(fmt.Sprintf("%q", named(name))), 1)
			}
			r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Content-Length")
			r.Body = &renamed{ReadCloser: r.Body, from: []byte(prefix)}
			return nil
		},
	}
	front := httptest.NewServer(p)
	s.t.Cleanup(front.Close)
	return front
}

// renamed takes a word out of what is read. What the server writes at a time is read at a time.
type renamed struct {
	io.ReadCloser
	from []byte
}

func (r *renamed) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	return copy(p, bytes.ReplaceAll(p[:n], r.from, nil)), err
}
