package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/service"
)

// failing is a provider that refuses, breaks off, or is down after its first reply.
func failing(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.HasPrefix(r.URL.Path, "/refuses"):
			w.WriteHeader(401)
			fmt.Fprint(w, `{"error":{"message":"Incorrect key provided to worker-7"}}`)
		case strings.HasPrefix(r.URL.Path, "/breaks"):
			w.WriteHeader(500)
			fmt.Fprint(w, `pg: password=hunter2 at worker-7`)
		case strings.Contains(string(body), `"role":"tool"`):
			w.WriteHeader(503)
			fmt.Fprint(w, `{"error":{"message":"worker-7 is down"}}`)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function",`+
				`"function":{"name":"list_directory","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`+"\n\ndata: [DONE]\n\n")
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Only administrators read the message of a provider and the position of its key in the configuration, by every route.
// Users get the class, and the ref under which the log has the rest (N21).
func TestContract9_DetailsAreForAdministrators(t *testing.T) {
	url := failing(t)
	text := "retry: {first: 0, max_elapsed: 0}\nproviders:\n"
	agents := "agents:\n  keyless: {model: keyless/x}\n"
	for i := range 60 { // a provider that fails too often is not asked for a while
		for _, kind := range []string{"refuses", "breaks", "later"} {
			name := kind + strconv.Itoa(i)
			text += "  " + name + ": {type: openai, base_url: " + url + "/" + name + "/v1, api_key: wrong-key-of-worker-7}\n"
			agents += "  " + name + ": {model: " + name + "/x}\n"
		}
	}
	text += "  keyless: {type: openai, api_key: '${env:NO_SUCH_KEY}'}\n" + agents
	used := 0
	fresh := func(kind string) string {
		used++
		if kind == "keyless" {
			return kind
		}
		return kind + strconv.Itoa(used%60)
	}
	classes := map[string]string{"refuses": "auth", "breaks": "overloaded", "later": "overloaded", "keyless": ""}
	h := openWith(t, text+"team: {panels: {all: {agents: [refuses0, refuses1]}}}\n", nil)
	boss := h.token("boss", signIn)
	for who, token := range map[string]string{
		"a user": h.token("ann", signIn), "an access token": h.token("bob", access.Scope{}),
		"an administrator's access token": h.token("boss", access.Scope{}),
	} {
		t.Run(who, func(t *testing.T) {
			sees := func(door, answer string, want ...string) {
				t.Helper()
				for _, secret := range []string{"worker-7", "hunter2", "toolcrib.yaml", "NO_SUCH_KEY", "api_key", "goroutine"} {
					if i := strings.Index(answer, secret); i >= 0 {
						t.Errorf("%s tells %s: …%s", door, secret, answer[max(0, i-200):min(len(answer), i+50)])
					}
				}
				for _, want := range want {
					if !strings.Contains(answer, want) {
						t.Errorf("%s lacks %q: %.600s", door, want, answer)
					}
				}
			}
			get := func(path string, want ...string) {
				t.Helper()
				_, _, data := h.ask("GET", path, token, "")
				sees(path, string(data), want...)
			}
			post := func(path, body, accept string, want ...string) string {
				t.Helper()
				_, _, data := h.ask("POST", path, token, body, "Accept", accept)
				sees(path+" "+body+" "+accept, string(data), want...)
				return string(data)
			}
			for kind, class := range classes {
				var want []string
				if class != "" {
					want = []string{class, "ref_"}
				}
				for _, accept := range []string{"application/json", "text/event-stream"} {
					stream := fmt.Sprintf(`,"stream":%v}`, accept != "application/json")
					post("/api/runs", `{"agent":"`+fresh(kind)+`","input":"Hi."}`, accept, want...)
					post("/v1/chat/completions", `{"model":"`+fresh(kind)+`","messages":[{"role":"user","content":"Hi."}]`+stream, accept, want...)
					post("/v1/responses", `{"model":"`+fresh(kind)+`","input":"Hi."`+stream, accept, want...)
				}
			}
			for _, kind := range []string{"refuses", "later"} {
				var run service.Run
				h.want(200, &run, "POST", "/api/runs", token, `{"agent":"`+fresh(kind)+`","input":"Hi."}`)
				at, class := "/api/runs/"+string(run.ID), classes[kind]
				get(at, class, "ref_")
				get("/api/runs?limit=200", class, "ref_")
				get(at+"/export", class, "ref_")
				for _, path := range []string{"/events?until=now", "/messages", "/verify", "/replay"} {
					get(at + path)
				}
				post("/api/tools/explain", `{"tool":"list_directory","arguments":{},"run":"`+string(run.ID)+`"}`, "")
			}
			get("/api/approvals")
			get("/api/sessions")
			for _, team := range []string{"confer", "coordinate", "assess"} {
				body := `{"question":"Why?","answer":"So.","agents":["refuses0","` + fresh("breaks") + `"]}`
				if team != "assess" {
					body = `{"question":"Why?","agents":["refuses0","` + fresh("breaks") + `"]}`
				}
				for _, accept := range []string{"application/json", "text/event-stream"} {
					post("/api/"+team, body, accept)
				}
			}
			post("/v1/chat/completions", `{"model":"confer/all","messages":[{"role":"user","content":"Hi."}]}`, "")

			s := h.socket(token)
			s.send(`{"type":"run","id":"one","body":{"agent":"refuses0","input":"Hi."}}`)
			all := s.until(func(f socketFrame) bool { return f.Event == "error" })
			sees("a WebSocket", string(all[len(all)-1].Data), "auth", "ref_")

			c, _ := h.editor("/mcp/refuses0", token, versions[0], nil, nil)
			tools, err := c.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, tool := range tools.Tools {
				arguments := map[string]any{"task": "Hi."}
				if tool.Name == "confer" {
					arguments = map[string]any{"question": "Why?", "agents": []string{"refuses0", fresh("breaks")}}
				}
				if !slices.Contains([]string{"confer", "coordinate", "refuses0", "keyless"}, tool.Name) {
					continue
				}
				if r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: tool.Name, Arguments: arguments}); err == nil {
					sees("MCP's "+tool.Name, said(r)+fmt.Sprint(r.StructuredContent))
				} else {
					sees("MCP's "+tool.Name, err.Error())
				}
			}
		})
	}
	if log := h.log.take(); !strings.Contains(log, "Incorrect key provided to worker-7") ||
		!strings.Contains(log, `"user":"ann"`) {
		t.Errorf("the log lacks the details: %.2000s", log)
	}
	var run service.Run
	h.want(200, &run, "POST", "/api/runs", boss, `{"agent":"refuses0","input":"Hi."}`)
	if run.Error == nil || !strings.Contains(run.Error.Message, "worker-7") || run.Error.Ref == "" {
		t.Errorf("an administrator reads %+v", run.Error)
	}
	for _, e := range h.events(h.request("GET", "/api/runs/"+string(run.ID)+"/events", boss, ""), nil) {
		if e.name == "error" && !strings.Contains(e.data, "worker-7") {
			t.Errorf("an administrator reads %s", e.data)
		}
	}
}

// ofRun returns the lines of the log about a run.
var ofRun = regexp.MustCompile(`(?m)^.*"run":".*\n`)

// The notices of a request are one line of the log with the user and the request, of bounded length, however many of
// its tools are unknown (N4).
func TestN4_UnknownToolsAreOneLine(t *testing.T) {
	h := open(t, "  lost: {model: slow/x, tools: [no_tool, also_none]}\n")
	ann := h.token("ann", access.Scope{})
	names := make([]string, 9_999)
	for i := range names {
		names[i] = strconv.Quote(strings.Repeat("n", 200) + strconv.Itoa(i))
	}
	list := strings.Join(names, ",")
	line := func(door, id string) {
		t.Helper()
		log := ofRun.ReplaceAllString(h.log.take(), "")
		if strings.Count(log, "\n") != 1 || !strings.Contains(log, "tools: there is no tool") ||
			!strings.Contains(log, `"user":"ann"`) ||
			!strings.Contains(log, `"request_id":"`+id) || len(log) > 4<<10 {
			t.Errorf("%s: %d lines, %d bytes: %.1000s", door, strings.Count(log, "\n"), len(log), log)
		}
	}
	h.log.take()
	h.want(200, nil, "POST", "/api/runs", ann, `{"agent":"lost","input":"x","tools":[`+list+`]}`, "X-Request-ID",
		"req-run")
	line("run", "req-run")
	h.want(200, nil, "POST", "/api/runs", ann, `{"agent":"lost","input":"x"}`, "X-Request-ID", "req-agent")
	line("agent", "req-agent")
	h.want(200, nil, "POST", "/api/tools/call", ann, `{"target_capability":"list_directory","target_body":{"path":"."},"tools":["list_directory",`+
		list+`]}`, "X-Request-ID", "req-call")
	line("call", "req-call")
	h.want(200, nil, "POST", "/v1/chat/completions", ann, `{"model":"agent/lost","messages":[{"role":"user","content":"x"}]}`,
		"X-Request-ID", "req-v1")
	line("/v1", "req-v1")
	s := h.socket(ann)
	s.send(`{"type":"run","id":"1","body":{"agent":"lost","input":"x","tools":[` + list + `]}}`)
	for f, err := s.next(); f.ID != "1"; f, err = s.next() {
		if err != nil {
			t.Fatal(err)
		}
	}
	line("WebSocket", "req_")
}
