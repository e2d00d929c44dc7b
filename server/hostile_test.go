package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/telemetry"
)

// Two users, with tokens of all rights and narrow ones, read every route of the document: no user sees what belongs to
// the other, and a narrow token sees only its own runs. The test covers new routes.
func TestTwoUsers(t *testing.T) {
	h := open(t, "")
	ann, narrow, other := h.token("ann", signIn), h.token("ann", access.Scope{}), h.token("ann", access.Scope{})
	bob, narrowBob := h.token("bob", signIn), h.token("bob", access.Scope{})
	var run, small service.Run
	h.want(200, &run, "POST", "/api/runs", ann, `{"input":"Write the word of ann.","session_id":"trip-of-ann"}`)
	h.want(200, &small, "POST", "/api/runs", narrow, `{"input":"Write a small text.","session_id":"narrow-of-ann"}`)
	var team service.Run
	h.want(200, &team, "POST", "/api/confer", ann, `{"question":"What is the word of ann?","agents":["slow"],"session_id":"talk-of-ann"}`)
	if run.Pending == nil || small.Pending == nil || len(team.Children) != 1 {
		t.Fatalf("%+v %+v %+v", run, small, team)
	}
	child := string(team.Children[0].RunID)
	ask := map[string]string{
		"id": string(run.ID), "user": "ann", "session": "trip-of-ann", "parent": string(team.ID), "agent": "default",
	}
	secrets := func(r *service.Run, words, session string) []string { // names in a request
		return []string{string(r.ID), r.Pending.ApprovalID, r.Pending.Digest, words, session}
	}
	own := secrets(&run, "the word of ann", "trip-of-ann")
	all := append(secrets(&run, "the word of ann", "trip-of-ann"), secrets(&small, "a small text", "narrow-of-ann")...)
	reads, writes := 0, 0
	for pattern, methods := range h.routes {
		for method, op := range methods {
			method = strings.ToUpper(method)
			for _, who := range []struct {
				name, token string
				hidden      []string
			}{
				{"bob", bob, all},
				{"bob's narrow token", narrowBob, all},
				{"another token of ann", other, all},
				{"ann's narrow token", narrow, own},
			} {
				name := method + " " + pattern + " by " + who.name
				ids := []string{string(run.ID), string(team.ID), child}
				if strings.Contains(pattern, "approvals") {
					ids = []string{run.Pending.ApprovalID}
				}
				path := strings.NewReplacer("{name}", "read_file", "{agent}", "default").Replace(pattern)
				switch {
				case op.Security != nil || strings.HasPrefix(pattern, "/mcp"):
					continue
				case strings.Contains(pattern, "{id}"):
					body := ""
					if op.RequestBody != nil {
						body = samples[op.RequestBody.Content["application/json"].Schema.name()]
					}
					want := http.StatusNotFound
					if strings.HasSuffix(op.Summary, ", for administrators") {
						want = http.StatusForbidden // for every ID
					}
					for _, id := range ids {
						writes++
						status, _, data := h.ask(method, strings.Replace(path, "{id}", id, 1), who.token, body)
						if status != want || leaks(data, who.hidden[2:]) != "" {
							t.Errorf("%s: %s: %d %s", name, id, status, data)
						}
					}
				case method == http.MethodGet && pattern != "/api/ws":
					paths := []string{path}
					for _, p := range op.Parameters {
						if about := ask[p.Name]; p.In == "query" && about != "" {
							paths = append(paths, path+"?"+p.Name+"="+about)
						}
					}
					for _, path := range paths {
						reads++
						_, _, data := h.ask(method, path, who.token, "")
						if found := leaks(data, who.hidden, path); found != "" {
							t.Errorf("%s: %s: shows %q", name, path, found)
						}
					}
				}
			}
		}
	}
	if reads < 100 || writes < 100 {
		t.Errorf("%d requests that read, %d about another's", reads, writes)
	}
	// Nothing was changed, and the owners still see it.
	var now service.Run
	h.want(200, &now, "GET", "/api/runs/"+string(run.ID), ann, "")
	if now.Status != run.Status || now.Pending == nil || now.Pending.Digest != run.Pending.Digest {
		t.Errorf("%+v", now)
	}
	h.want(200, nil, "GET", "/api/runs/"+string(small.ID), ann, "")
}

// If a body or a header names something of another user, it does not exist either: sessions, runs, calls, keys of
// requests. What another token of the same user has begun is hidden from a narrow token.
func TestTwoUsers_Named(t *testing.T) {
	h := openClient(t)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	// the run waits all the time
	h.config = strings.Replace(h.config, "client_tool_timeout: 1s", "client_tool_timeout: 1h", 1)
	h.start()
	ann, narrow, bob := h.token("ann", signIn), h.token("ann", access.Scope{}), h.token("bob", signIn)
	var run, waits service.Run
	h.want(200, &run, "POST", "/api/runs", ann, `{"input":"Write the word of ann.","session_id":"trip"}`, "Idempotency-Key", "k")
	h.want(200, &waits, "POST", "/api/runs", ann, `{"agent":"picks","input":"The word of ann.",`+pickTool+`}`)
	call := waits.Trace[0].ID
	res, err := http.DefaultClient.Do(h.request("POST", "/mcp", ann, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`+
		`{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
		"Accept", "application/json, text/event-stream"))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	session := res.Header.Get("Mcp-Session-Id")
	if call == "" || session == "" || run.SessionID == "" {
		t.Fatalf("call %q, session %q, %+v", call, session, run)
	}
	hidden := []string{string(run.ID), string(waits.ID), string(run.SessionID), "word of ann", run.Pending.Digest}
	for _, c := range []struct {
		what, method, path, body string
		head                     []string
		status                   int // 0 means any
	}{
		{"a session's name", "POST", "/api/runs", `{"agent":"slow","input":"Go on.","session_id":"trip"}`, nil, 200},
		{"a session's ID", "POST", "/api/runs", `{"agent":"slow","input":"Go on.","session_id":"` + string(run.SessionID) + `"}`, nil, 404},
		{"its newest run", "POST", "/api/runs", `{"agent":"slow","input":"Go on.","continue":true}`, nil, 0},
		{"a key", "POST", "/api/runs", `{"input":"Write the word of bob.","session_id":"other"}`, []string{"Idempotency-Key", "k"}, 200},
		{"a run to assess", "POST", "/api/assess", `{"run_id":"` + string(run.ID) + `","agents":["slow"],"rubric":[{"id":"a","description":"It is true.","severity":"high"}]}`, nil, 404},
		{"a call's ID", "POST", "/v1/chat/completions", `{"model":"picks","messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"` + call +
			`","type":"function","function":{"name":"pick","arguments":"{}"}}]},{"role":"tool","tool_call_id":"` + call + `","content":"1"}]}`, nil, 0},
		{"an MCP session", "POST", "/mcp", `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, []string{"Mcp-Session-Id", session, "Accept", "application/json, text/event-stream"}, 404},
		{"an MCP session's end", "DELETE", "/mcp", "", []string{"Mcp-Session-Id", session}, 404},
		{"a gate's session", "POST", "/api/gate/decide", `{"tool":"read_file","arguments":{"path":"x"},"session":"` + string(run.SessionID) + `"}`, nil, 0},
	} {
		for who, token := range map[string]string{"bob": bob, "ann's narrow token": narrow} {
			status, _, data := h.ask(c.method, c.path, token, c.body, c.head...)
			if found := leaks(data, hidden, c.body); found != "" || status >= 500 || c.status != 0 && status != c.status &&
				who == "bob" {
				t.Errorf("%s by %s: %d, shows %q: %s", c.what, who, status, found, data)
			}
		}
	}
	// What they have begun under these names is theirs and has nothing of hers; hers has not changed.
	var list api.RunList
	h.want(200, &list, "GET", "/api/runs?limit=100", bob, "")
	for _, r := range list.Runs {
		if _, _, data := h.ask("GET", "/api/runs/"+string(r.ID)+"/messages", bob, ""); leaks(data, hidden) != "" {
			t.Errorf("%s: %s", r.ID, data)
		}
	}
	var now service.Run
	h.want(200, &now, "GET", "/api/runs/"+string(waits.ID), ann, "")
	if now.Status != waits.Status || len(list.Runs) == 0 {
		t.Errorf("%s, %d runs of bob", now.Status, len(list.Runs))
	}
	if _, _, data := h.ask("POST", "/mcp", ann, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, "Mcp-Session-Id", session,
		"Accept", "application/json, text/event-stream"); !bytes.Contains(data, []byte("read_file")) {
		t.Errorf("her MCP session: %s", data)
	}
	// Missing scope of a narrow token has another code than missing rights of its user.
	reader := h.token("boss", access.Scope{Tools: []string{"read_*"}, Agents: []string{"slow"}})
	for _, c := range []struct{ method, path, body, code string }{
		{"POST", "/api/runs", `{"agent":"picks","input":"x"}`, "token_scope_insufficient"},
		{"POST", "/api/tools/call", `{"tool_call_id":"c1","target_capability":"write_file","target_body":{"path":"a","content":"b"},"agent":"slow"}`, "token_scope_insufficient"},
		{"PUT", "/api/tools/shell", `{"enabled":false}`, "forbidden"},
		{"GET", "/api/audit", "", "forbidden"},
	} {
		if status, _, data := h.ask(c.method, c.path, reader, c.body); !bytes.Contains(data, []byte(c.code)) {
			t.Errorf("%s %s: %d %s, want %s", c.method, c.path, status, data, c.code)
		}
	}
}

// leaks returns the parts of an answer that are hidden and were not in the request.
func leaks(data []byte, hidden []string, request ...string) string {
	for _, text := range hidden {
		if bytes.Contains(data, []byte(text)) && !strings.Contains(strings.Join(request, " "), text) {
			return text
		}
	}
	return ""
}

// Connections without requests, half requests, floods and endless bodies hold up no other client, and use bounded
// memory.
func TestHostileConnections(t *testing.T) {
	h := open(t, "")
	ann, eve := h.token("ann", access.Scope{}), h.token("eve", access.Scope{})
	dial := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		return c
	}
	n := 2000
	if testing.Short() {
		n = 300
	}
	for i := range n {
		_, _ = io.WriteString(dial(), []string{
			"", "G", "GET /api/runs HTTP/1.1\r\nHost: localhost\r\nX-", "POST /api/runs HTTP/1.1\r\nHost: localhost\r\n" +
				"Content-Length: 1000000000\r\nAuthorization: Bearer " + eve + "\r\n\r\n{",
		}[i%4])
	}
	for what, w := range map[string]struct {
		head string
		want string // beginning of the answer; "" means any or no answer
	}{
		"many headers":     {"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X-A: b\r\n", 20_000) + "\r\n", "HTTP/1.1 431"},
		"a large one":      {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("a", 200<<10) + "\r\n\r\n", "HTTP/1.1 431"},
		"two lengths":      {"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 400"},
		"no host":          {"GET /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 400"},
		"two hosts":        {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n", "HTTP/1.1 400"},
		"another protocol": {"SSH-2.0-x\r\n\r\n", "HTTP/1.1 400"},
		"a path upwards":   {"GET /api/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404"},
		"two slashes":      {"GET //api/runs HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404"},
		"a dot":            {"GET /api/./runs HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404"},
		"an encoded slash": {"GET /api%2fruns HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404"},
		"a slash behind":   {"GET /api/runs/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404"},
		"a whole address":  {"GET http://evil.example/api/runs HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 403"},
		"CONNECT":          {"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", "HTTP/1.1 403"},
		"an asterisk":      {"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", ""},
	} {
		c := dial()
		_, _ = io.WriteString(c, w.head)
		line, _ := bufio.NewReader(c).ReadString('\n')
		if !strings.HasPrefix(line, w.want) {
			t.Errorf("%s: %q, want %s", what, line, w.want)
		}
	}
	h.want(200, nil, "GET", "/healthz", "", "")
	h.want(200, nil, "GET", "/api/runs", ann, "")

	// A body of a GB is cut off at its bound.
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := h.request("POST", "/api/runs", ann, "{}")
	r.Body, r.ContentLength = io.NopCloser(io.LimitReader(endless{}, 1<<30)), -1
	res, err := http.DefaultClient.Do(r)
	if err == nil {
		if res.Body.Close(); res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a body of 1 GB: %d", res.StatusCode)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.Sys) - int64(before.Sys); grown > 128<<20 {
		t.Errorf("a body of 1 GB costs %d MB", grown>>20)
	}
	// A body that is larger than the arguments of tools is read up to its bound.
	h.want(200, nil, "POST", "/api/runs", ann, `{"agent":"slow","input":"`+strings.Repeat("a ", 1<<20)+`"}`)
}

// The server waits for a bounded number of requests of each user whose bodies do not arrive. The next one is refused at
// once, its connection is closed, and others are not held up.
func TestHalfBodies(t *testing.T) {
	h := open(t, "")
	ann, bob := h.token("ann", access.Scope{}), h.token("bob", access.Scope{})
	half := func() net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, "POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
			"Content-Length: 100\r\nAuthorization: Bearer "+ann+"\r\n\r\n{")
		return c
	}
	becomes := func(n int) {
		t.Helper()
		h.eventually(fmt.Sprintf("%d requests are waited for", n), func() bool { return h.server.Bodies("ann") == n })
	}
	var all []net.Conn
	for range server.MaxBodies {
		all = append(all, half())
	}
	becomes(server.MaxBodies)
	answer, err := io.ReadAll(half()) // to the end
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 429") ||
		!strings.Contains(string(answer), "Retry-After: 1") {
		t.Errorf("one too many: %q, %v", answer, err)
	}
	h.want(429, nil, "POST", "/api/runs", ann, `{"input":"Go."}`)
	h.want(200, nil, "GET", "/api/runs", ann, "")
	h.want(200, nil, "POST", "/api/runs", bob, `{"input":"Go."}`)
	for _, c := range all {
		_ = c.Close()
	}
	becomes(0)
	h.want(200, nil, "POST", "/api/runs", ann, `{"input":"Go."}`)
}

// Forms that do not arrive, without a sign-in, hold up their address alone.
func TestHalfForms(t *testing.T) {
	h := openWith(t, "server: {trusted_proxies: [127.0.0.1]}\n", nil)
	half := func(from string) net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.WriteString(c, "POST /sign-in HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: "+from+"\r\n"+
			"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 6\r\n\r\n")
		return c
	}
	for range server.MaxOpenBodies {
		half("192.0.2.1")
	}
	h.eventually("the forms are waited for", func() bool {
		return h.server.Bodies("address 192.0.2.1") == server.MaxOpenBodies
	})
	for from, want := range map[string]string{"192.0.2.1": "HTTP/1.1 429", "192.0.2.2": "HTTP/1.1 401"} {
		c := half(from)
		_, _ = io.WriteString(c, "user=x")
		answer := make([]byte, len(want))
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != want {
			t.Errorf("%s: %q, %v, want %q", from, answer, err, want)
		}
	}
}

// A server with the maximum of connections answers the next client, whatever the others do, and closes none that it is
// answering.
func TestConnections(t *testing.T) {
	h := openWith(t, "providers: {held: {type: script, file: held.script}}\nagents: {default: {model: held/x}}\n",
		map[string]string{"held.script": "- {text: late, delay: 1h}\n"})
	ann := h.token("ann", access.Scope{})
	h.server.SetMaxConnections(20)
	var run service.Run
	h.want(202, &run, "POST", "/api/runs", ann, `{"input":"Wait.","detach":true}`)
	followed, stream := make(chan string, 1), make(chan struct{})
	go func() {
		followed <- names(h.events(h.request("GET", "/api/runs/"+string(run.ID)+"/events", ann, ""), func(e event) bool {
			if e.name == "run_started" {
				close(stream)
			}
			return false
		}))
	}()
	<-stream
	for _, head := range []string{
		"", "GET /api/runs HTTP/1.1\r\nX-", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nAuthorization: Bearer " + ann + "\r\n\r\n{",
	} {
		dropped := make(chan struct{}, 60)
		for range cap(dropped) {
			c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = io.WriteString(c, head)
			go func() {
				_, _ = io.Copy(io.Discard, c)
				dropped <- struct{}{}
			}()
		}
		for range cap(dropped) - 20 {
			<-dropped
		}
		for range 5 {
			h.want(200, nil, "GET", "/api/runs", ann, "")
		}
	}
	h.want(200, nil, "POST", "/api/runs/"+string(run.ID)+"/cancel", ann, "")
	if got := <-followed; !strings.HasSuffix(got, " done ") {
		t.Errorf("the stream: %s", got)
	}
}

// The parts of a request that an error repeats are bounded, and so are its lists.
func TestLargeBodies(t *testing.T) {
	h := open(t, "")
	ann := h.token("ann", access.Scope{})
	for what, c := range map[string]struct{ path, body string }{
		"unknown fields": {"/api/runs", "{" + manyOf(`"k%d":1`) + "}"},
		"a wrong type":   {"/api/runs", `{"input":"x","agent":["` + strings.Repeat("a", 1<<20) + `"]}`},
		"tools":          {"/api/runs", `{"input":"x","tools":[` + manyOf(`"t%d"`) + "]}"},
		"explained":      {"/api/tools/explain", `{"tools":[` + manyOf(`"t%d"`) + "]}"},
		"messages": {
			"/v1/chat/completions",
			`{"model":"default","messages":[` + manyOf(`{"role":"user","content":"%d"}`) + "]}",
		},
		"a path": {"/api/" + strings.Repeat("x", 32<<10), "{}"},
	} {
		status, _, data := h.ask("POST", c.path, ann, c.body)
		if status/100 != 4 || len(data) > 8<<10 {
			t.Errorf("%s: %d, %d bytes: %.200s", what, status, len(data), data)
		}
	}
}

// manyOf are more values than a list in a request may have.
func manyOf(format string) string {
	all := make([]string, 10_001)
	for i := range all {
		all[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(all, ",")
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// While the database is locked, requests that need to write get 503 with Retry-After, and a running run continues
// afterwards.
func TestLockedDatabase(t *testing.T) {
	h := open(t, "")
	ann := h.token("ann", access.Scope{})
	path := filepath.Join(h.dir, "data", env.DatabaseName)
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var run service.Run
	h.want(202, &run, "POST", "/api/runs", ann, `{"agent":"slow","input":"Count.","detach":true}`)
	hold, err := db.Conn(t.Context())
	if err == nil {
		_, err = hold.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	status, head, data := h.ask("POST", "/api/runs", ann, `{"agent":"slow","input":"Count."}`)
	if status != 503 || head.Get("Retry-After") == "" || !bytes.Contains(data, []byte(`"overloaded"`)) ||
		bytes.Contains(data, []byte(h.dir)) {
		t.Errorf("%d %v %s", status, head, data)
	}
	h.want(200, nil, "GET", "/healthz", "", "")
	if _, err := hold.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	_ = hold.Close()
	h.eventually("the run continues", func() bool {
		h.want(200, &run, "GET", "/api/runs/"+string(run.ID), ann, "")
		return run.Status == "completed"
	})
	h.want(200, &run, "POST", "/api/runs", ann, `{"agent":"slow","input":"Count."}`)
}

// A database that is gone is 503 with Retry-After on every route that needs it, and the server reports that it is not
// ready.
func TestDatabaseGone(t *testing.T) {
	h := open(t, "")
	ann := h.token("ann", access.Scope{})
	h.want(200, nil, "GET", "/readyz", "", "")
	path := filepath.Join(h.dir, "data", env.DatabaseName)
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(path+end, path+".away"+end); err != nil && end == "" {
			t.Fatal(err)
		}
	}
	status, head, data := h.ask("POST", "/api/runs", ann, `{"agent":"slow","input":"Count."}`)
	if status != 503 || head.Get("Retry-After") == "" || bytes.Contains(data, []byte(h.dir)) {
		t.Errorf("%d %v %s", status, head, data)
	}
	h.want(200, nil, "GET", "/healthz", "", "")
}

// A limit applies to each user and address separately, is not forgotten when many others come, and ends after its time.
func TestRateLimit(t *testing.T) {
	h := open(t, "server: {rate_limit: 60}\n")
	ann, bob := h.token("ann", access.Scope{}), h.token("bob", access.Scope{})
	s, err := server.New(server.Options{Service: h.service, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	ask := func(address, token, path string) int {
		r := httptest.NewRequest("GET", path, nil)
		r.RemoteAddr = address
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	began := time.Now()
	exhausted := func(address, token, path string) bool {
		for range 1000 { // one a second comes back meanwhile
			if ask(address, token, path) == 429 {
				return true
			}
		}
		return false
	}
	if !exhausted("192.0.2.1:1", ann, "/api/me") || !exhausted("192.0.2.1:1", "", "/nothing") ||
		!exhausted("[2001:db8::1]:1", "", "/api/openapi.json") {
		t.Error("there is no limit")
	}
	for i := range 12_000 {
		ask(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255), "", "/nothing")
	}
	passed := func(address, token, path string) (n int) {
		for n < 60 && ask(address, token, path) != 429 {
			n++
		}
		return n
	}
	for what, got := range map[string]int{
		"ann": passed("192.0.2.9:1", ann, "/api/me"), "the address": passed("192.0.2.1:2", "", "/nothing"),
		"another address of the same network": passed("[2001:db8::2]:1", "", "/nothing"),
	} {
		if got > 1+int(time.Since(began).Seconds()) { // one a second comes back meanwhile
			t.Errorf("%s after many others: %d", what, got)
		}
	}
	if got := ask("192.0.2.1:1", bob, "/api/me"); got != 200 {
		t.Errorf("bob: %d", got)
	}
	for range 100 {
		if got := ask("192.0.2.1:1", "", "/healthz"); got != 200 {
			t.Fatalf("/healthz: %d", got)
		}
	}
}

// A reloaded configuration applies to the next request. One that opens the server to all is refused.
func TestReload(t *testing.T) {
	h := open(t, "")
	ann := h.token("ann", access.Scope{})
	m := telemetry.NewMetrics("test")
	s, err := server.New(server.Options{Service: h.service, Log: quiet, Metrics: m})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	parse := func(more string) *config.Config {
		c, err := config.Parse(filepath.Join(h.dir, "toolcrib.yaml"), []byte(agents+more))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ask := func(origin string) int {
		r := httptest.NewRequest("GET", "http://localhost/api/me", nil)
		r.Header.Set("Authorization", "Bearer "+ann)
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	if got := ask("https://page.example"); got != 403 {
		t.Errorf("before: %d", got)
	}
	if err := s.Reload(t.Context(), root, parse("server: {cors: ['https://page.example'], rate_limit: 1}\n")); err != nil {
		t.Fatal(err)
	}
	if got := ask("https://page.example"); got != 200 {
		t.Errorf("after: %d", got)
	}
	if got := ask("https://page.example"); got != 429 {
		t.Errorf("the limit: %d", got)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Reload(ended, root, parse("server: {cors: ['https://other.example']}\n")); err == nil {
		t.Error("one that cannot be written down is in effect")
	}
	if got := ask("https://page.example"); got != 429 {
		t.Errorf("after a bad one: %d", got)
	}
}

// A renewed certificate is used for the next connection; files that do not match are not.
func TestTLS_Renewed(t *testing.T) {
	h := open(t, "")
	ann := h.token("ann", access.Scope{})
	cert, key := filepath.Join(h.dir, "cert.pem"), filepath.Join(h.dir, "key.pem")
	renew := func(serial int64, files ...string) {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		about := &x509.Certificate{
			SerialNumber: big.NewInt(serial), DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour),
		}
		der, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
		if err != nil {
			t.Fatal(err)
		}
		pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			block := &pem.Block{Type: "CERTIFICATE", Bytes: der}
			if file == key {
				block = &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}
			}
			if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	renew(1, cert, key)
	var log logged
	s, err := server.New(server.Options{Service: h.service, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l, cert, key) }()
	serial := func() int64 {
		t.Helper()
		c := http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		}}
		r := h.request("GET", "/api/me", ann, "")
		r.URL.Scheme, r.URL.Host = "https", l.Addr().String()
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 200 || res.ProtoMajor != 2 {
			t.Errorf("%s %s", res.Status, res.Proto)
		}
		return res.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Errorf("serial %d", got)
	}
	renew(2, cert) // its key is still missing
	h.eventually("the files do not fit", func() bool {
		if got := serial(); got != 1 {
			t.Fatalf("serial %d", got)
		}
		return strings.Contains(log.String(), "cannot be used")
	})
	renew(3, cert, key)
	h.eventually("the renewed one", func() bool { return serial() == 3 })
	if res, err := http.Get("http://" + l.Addr().String() + "/healthz"); err == nil {
		if _ = res.Body.Close(); res.StatusCode != 400 {
			t.Errorf("without TLS: %s", res.Status)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// logged is a log that is read while it is written.
type logged struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}
