package server_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/service/policy"
)

// Agents that ann and bob may use, and one that they may not. Each prompt, and the name of each rule's file, is a mark.
const seenAgents = `
providers: {demo: {type: script, file: demo.script}, quiet: {type: script, file: quiet.script}}
agents:
  default: {model: demo/x, system: PROMPT-OF-DEFAULT}
  reader: {model: quiet/x, system: PROMPT-OF-READER}
  concealed: {model: quiet/x, description: ABOUT-CONCEALED, system: PROMPT-OF-CONCEALED, tools: [read_file], output_schema: {title: SCHEMA-OF-CONCEALED}}
team: {panels: {panel-of-concealed: {agents: [concealed]}, panel-of-reader: {agents: [reader]}}}
rules: [{name: writes, tools: [write_file], when: "true", then: ask}]
`

// seen is a data folder with runs of several users and tokens, and the marks that each must not see.
type seen struct {
	*house
	tokens map[string]string // by kind
	runs   map[string]string // by the kind that started it
	asks   map[string]string // approval that each waits for
}

// kinds are the kinds of tokens: no token, one of a user with a scope, of the same user with all rights, of another
// user, of a carrier, and of an administrator.
var kinds = []string{"nobody", "scoped", "other scoped", "ann", "bob", "bearer", "other bearer", "scoped boss", "boss"}

// openSeen starts a run for each kind, which waits for an approval after a remembered one.
func openSeen(t *testing.T) *seen {
	t.Helper()
	return seenIn(t, openWith(t, seenAgents, seenScripts))
}

var seenScripts = map[string]string{"demo.script": "- {text: none}\n", "quiet.script": "- {text: done}\n"}

func seenIn(t *testing.T, in *house) *seen {
	t.Helper()
	h := &seen{house: in, tokens: map[string]string{}, runs: map[string]string{}, asks: map[string]string{}}
	for _, name := range []string{"ann.private", "bob.private", "boss"} {
		u := access.User{Name: name, Admin: name == "boss"}
		if !u.Admin {
			u.Grants = []string{"read_*", "write_*", "agent:default", "agent:reader"}
		}
		if _, err := h.service.People.AddUser(t.Context(), root, access.NewUser{User: u}); err != nil {
			t.Fatal(err)
		}
	}
	narrow := access.Scope{Tools: []string{"write_file"}, Agents: []string{"default", "reader"}}
	for kind, r := range map[string]people.TokenRequest{
		"scoped": {User: "ann.private", Scope: narrow}, "other scoped": {User: "ann.private", Scope: narrow},
		"ann": {User: "ann.private", Scope: signIn}, "bob": {User: "bob.private", Scope: signIn},
		"bearer": {Bearer: true, Scope: narrow}, "other bearer": {Bearer: true, Scope: narrow},
		"scoped boss": {User: "boss", Scope: narrow}, "boss": {User: "boss", Scope: signIn},
	} {
		r.Via = "api"
		made, err := h.service.People.CreateToken(t.Context(), root, r)
		if err != nil {
			t.Fatal(err)
		}
		h.tokens[kind] = made.Token
	}
	for _, kind := range kinds[1:] {
		h.begin(kind)
	}
	return h
}

// mark returns the text in everything that a run of a kind says and writes.
func mark(kind string) string {
	return "RUN-OF-" + strings.ToUpper(strings.ReplaceAll(kind, " ", "")) + "-"
}

// begin starts a run of a kind. Its first call is remembered for the user, and the next one waits.
func (h *seen) begin(kind string) {
	h.t.Helper()
	h.script("demo.script", fmt.Sprintf(`
- {text: %[1]sTEXT, tool_calls: [{name: write_file, arguments: {path: %[1]sfile, content: %[1]scontent}}]}
- {tool_calls: [{name: write_file, arguments: {path: %[1]sother, content: %[1]scontent}}]}
`, mark(kind)))
	var run service.Run
	h.want(200, &run, "POST", "/api/runs", h.tokens[kind],
		`{"input":"`+mark(kind)+`INPUT","session_id":"`+mark(kind)+`session"}`)
	user := h.tokens[kind]
	switch kind { // a token with a scope remembers nothing
	case "scoped", "other scoped":
		user = h.tokens["ann"]
	case "scoped boss", "bearer", "other bearer":
		user = h.tokens["boss"]
	}
	h.want(200, nil, "POST", "/api/approvals/"+run.Pending.ApprovalID, user,
		`{"decision":"approve","digest":"`+run.Pending.Digest+`","remember":"user"}`)
	first := run.Pending.ApprovalID
	h.eventually("the next call waits", func() bool {
		h.want(200, &run, "GET", "/api/runs/"+string(run.ID), h.tokens[kind], "")
		return run.Pending != nil && run.Pending.ApprovalID != first
	})
	h.runs[kind], h.asks[kind] = string(run.ID), run.Pending.ApprovalID
}

// mayNot returns the marks that no answer to a kind contains.
func (h *seen) mayNot(kind string) (marks []string) {
	if kind == "boss" {
		return nil
	}
	marks = []string{"PROMPT-OF-", "-OF-CONCEALED", "ABOUT-CONCEALED", "panel-of-concealed", "toolcrib.yaml"}
	for _, other := range kinds[1:] {
		own := other == kind || kind == "ann" && strings.HasSuffix(other, "scoped")
		if !own {
			marks = append(marks, mark(other), h.runs[other], h.asks[other])
		}
	}
	for user, of := range map[string][]string{"ann.private": {"ann", "scoped", "other scoped"}, "bob.private": {"bob"}} {
		if !slices.Contains(of, kind) {
			marks = append(marks, user)
		}
	}
	return marks
}

// row has the requests for a route: its path with all stored IDs, and bodies.
type row struct {
	of     []string // values for {id} and the like; nil if the path has none
	query  []string // queries, one for each request
	bodies []string
	head   []string
	shows  []string                 // marks that an administrator reads there, which shows that the request is right
	may    []string                 // marks that the owner of the run may read
	ask    func(kind string) []byte // if set, replaces the request
}

// rows are the requests for every route of the table.
func (h *seen) rows() map[string]row {
	var runs, asks, kept, sessions []string
	for _, kind := range kinds[1:] {
		runs, asks = append(runs, h.runs[kind]), append(asks, h.asks[kind])
		sessions = append(sessions, mark(kind)+"session")
	}
	var remembered server.RememberedList
	h.want(200, &remembered, "GET", "/api/remembered", h.tokens["boss"], "")
	for _, m := range remembered.Remembered {
		kept = append(kept, m.ID)
	}
	all := []string{"RUN-OF-ANN-", "RUN-OF-SCOPED-", "RUN-OF-BEARER-", "RUN-OF-BOB-"}
	hidden := `"agent":"concealed"`
	file := "toolcrib.yaml"
	return map[string]row{
		"GET /healthz": {}, "GET /readyz": {}, "GET /api/openapi.json": {},
		"GET /metrics": {},
		"GET /.well-known/oauth-protected-resource/mcp":         {},
		"GET /.well-known/oauth-protected-resource/mcp/{agent}": {of: []string{"concealed"}},

		"GET /api/runs": {query: []string{
			"prompts=true", "user=ann.private", "user=bob.private", "user=anonymous", "agent=default",
			"status=parked&prompts=true",
		}, shows: append(all, "ann.private", "bob.private")},
		"POST /api/runs":              {bodies: []string{`{"input":"x",` + hidden + `}`}},
		"GET /api/runs/{id}":          {of: runs, shows: append(all, file)},
		"GET /api/runs/{id}/events":   {of: runs, query: []string{"until=now"}, shows: all},
		"GET /api/runs/{id}/messages": {of: runs, shows: all},
		"GET /api/runs/{id}/verify":   {of: runs}, "GET /api/runs/{id}/replay": {of: runs},
		"GET /api/runs/{id}/export":  {of: runs, shows: append(all, "PROMPT-OF-DEFAULT"), may: []string{"PROMPT-OF-", file}},
		"GET /api/runs/{id}/written": {of: runs}, "POST /api/runs/{id}/written": {of: runs, bodies: []string{
			`{"path":"out.txt","by":"` + runs[0] + `"}`,
		}},
		"POST /api/runs/prune":             {bodies: []string{`{"runs":["` + runs[0] + `"],"check":true}`}},
		"POST /api/runs/import":            {bodies: []string{`{"export":""}`}},
		"POST /api/runs/{id}/tool_results": {of: runs, bodies: []string{`{"tool_call_id":"call_1","body":1}`}},
		"POST /api/runs/{id}/message":      {of: runs, bodies: []string{`{"text":"x"}`}},
		"POST /api/runs/{id}/resume":       {of: runs, bodies: []string{`{}`}},
		"POST /api/runs/{id}/fork":         {of: runs, bodies: []string{`{"detach":true}`}},
		"POST /api/runs/{id}/cancel":       {of: runs},

		"GET /api/approvals":          {shows: append(all, file)},
		"GET /api/approvals/{id}":     {of: asks, shows: append(all, file)},
		"POST /api/approvals/{id}":    {of: asks, bodies: []string{`{"decision":"approve","check":true}`}},
		"GET /api/remembered":         {query: []string{"all=true"}, shows: all},
		"DELETE /api/remembered/{id}": {of: kept, shows: all},

		"GET /api/tools": {}, "GET /api/tools/{name}": {of: []string{"write_file"}},
		"PUT /api/tools/{name}":                   {of: []string{"write_file"}, bodies: []string{`{"enabled":true}`}},
		"DELETE /api/tools/{name}/override":       {of: []string{"write_file"}},
		"PUT /api/tool-groups/{name}":             {of: []string{"files"}, bodies: []string{`{"enabled":true}`}},
		"DELETE /api/tool-groups/{name}/override": {of: []string{"files"}},
		"POST /api/tools/explain":                 {bodies: h.explained(runs), shows: append(all, file)},
		"POST /api/tools/call":                    {bodies: []string{`{"target_capability":"read_file","target_body":{"path":"x"},` + hidden + `}`}},
		"POST /api/gate/decide": {bodies: []string{
			`{"tool":"Read","arguments":{"file_path":"x"}}`, `{"tool":"Write"}`,
			`{"tool":"Write","arguments":{"file_path":"x","content":"y"}}`,
		}},
		"GET /api/agents": {shows: []string{"PROMPT-OF-READER", "PROMPT-OF-CONCEALED", "ABOUT-CONCEALED", file}},
		"GET /api/models": {query: []string{"known=true"}},
		"GET /api/skills": {}, "GET /api/skills/{name}": {of: []string{"x"}},
		"GET /api/sessions":         {query: []string{"user=ann.private", "user=bob.private", "id=last"}, shows: all},
		"DELETE /api/sessions/{id}": {of: sessions, bodies: []string{`{"check":true}`}},
		"GET /api/usage": {
			query: []string{"by=run", "by=user", "by=session", "by=tool", "user=ann.private", "by=agent"},
			shows: append(h.all(), "ann.private", "bob.private"),
		},
		"GET /api/audit": {
			query: []string{"user=ann.private", "run=" + runs[0]},
			shows: []string{"ann.private", runs[0], file},
		},
		"GET /api/me":               {},
		"POST /api/channels/{name}": {of: []string{"x"}, bodies: []string{`{"chat":"c","sender":"s","text":"x"}`}},
		"GET /api/bus":              {}, "GET /api/bus/capabilities": {query: []string{"node=x"}}, "GET /api/bus/trace": {},

		"POST /api/sign-in":  {bodies: []string{`{"user":"ann.private","password":"wrong wrong wrong"}`, `{"token":"x"}`}},
		"POST /api/sign-out": {}, "GET /api/web-sessions": {query: []string{"user=ann.private", "user=*"}},
		"DELETE /api/web-sessions/{id}": {of: []string{"web_0123456789abcdef", "others"}},
		"POST /api/password":            {bodies: []string{`{"old":"wrong wrong wrong","password":"another password"}`}},
		"POST /api/password/link":       {bodies: []string{`{"link":"x","password":"another password"}`}},
		"GET /api/tokens":               {},
		"POST /api/tokens":              {bodies: []string{`{"label":"x","agents":["concealed"]}`, `{"tools":["read_file"]}`}},
		"DELETE /api/tokens/{id}":       {of: []string{"tok_AAAAAAAAAAAAAAAAAAAAAAAAAA"}},

		"GET /api/mcp/prompts": {}, "POST /api/mcp/prompts": {bodies: []string{`{"prompt":{"server":"notes","name":"tell"}}`}},
		"POST /api/mcp/resources": {bodies: []string{`{"server":"notes","uri":"note://one"}`}},

		"POST /api/confer":     {bodies: []string{`{"question":"x","agents":["concealed"]}`, `{"question":"x","panel":"panel"}`}},
		"POST /api/coordinate": {bodies: []string{`{"question":"x","agents":["concealed","default"],"synthesizer":"concealed"}`}},
		"POST /api/assess":     {bodies: h.assessed(runs)},

		"POST /mcp": {
			ask:   func(kind string) []byte { return h.speakMCP(kind, "/mcp", runs, asks) },
			shows: []string{mark("boss")},
		},
		"POST /mcp/{agent}": {ask: func(kind string) []byte {
			return append(h.speakMCP(kind, "/mcp/concealed", runs, asks), h.speakMCP(kind, "/mcp/default", runs, asks)...)
		}},
		"GET /mcp": {}, "GET /mcp/{agent}": {of: []string{"concealed"}},
		"DELETE /mcp": {}, "DELETE /mcp/{agent}": {of: []string{"concealed"}},

		"GET /v1/models": {shows: []string{"panel-of-concealed"}}, "GET /v1/models/{model}": {of: []string{"concealed"}},
		"GET /v1/models/{kind}/{model}": {of: []string{"concealed"}},
		"POST /v1/chat/completions": {bodies: []string{
			`{"model":"agent/concealed","messages":[{"role":"user","content":"x"}]}`,
			`{"model":"confer/panel-of-reader","messages":[{"role":"user","content":"x"}]}`,
		}},
		"POST /v1/responses": {bodies: []string{`{"model":"agent/concealed","input":"x"}`}},
		"GET /api/ws":        {ask: func(kind string) []byte { return h.overSocket(kind, runs, asks) }, shows: all},
	}
}

// explained returns requests about remembered approvals and every run.
func (h *seen) explained(runs []string) []string {
	bodies := []string{
		`{"agent":"concealed"}`, `{"agent":"default"}`, `{"user":"ann.private"}`, `{"user":"bob.private"}`,
		`{"tool":"write_file","arguments":{"path":"another","content":"x"}}`,
	}
	for _, run := range runs {
		bodies = append(bodies, `{"run":"`+run+`"}`)
	}
	return bodies
}

func (h *seen) assessed(runs []string) (bodies []string) {
	rubric := `"rubric":[{"id":"a","description":"It is true.","severity":"high"}]}`
	for _, run := range runs {
		bodies = append(bodies, `{"run_id":"`+run+`","agents":["reader"],`+rubric)
	}
	return append(bodies, `{"answer":"x","agents":["concealed"],`+rubric)
}

// all returns the IDs of the runs.
func (h *seen) all() (ids []string) {
	for _, kind := range kinds[1:] {
		ids = append(ids, h.runs[kind])
	}
	return ids
}

// speakMCP sends messages of the Model Context Protocol about every run, and returns the answers.
func (h *seen) speakMCP(kind, path string, runs, asks []string) []byte {
	var all bytes.Buffer
	send := func(method, name, params string) {
		r := h.request("POST", path, h.tokens[kind], `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+
			`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			"MCP-Protocol-Version", "2026-07-28", "Accept", "application/json, text/event-stream", "Mcp-Method", method)
		if name != "" {
			r.Header.Set("Mcp-Name", name)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			h.t.Fatal(err)
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil {
			h.t.Fatal(err)
		}
		all.Write(without(data, name))
	}
	uris := []string{"toolcrib://runs", "toolcrib://approvals"}
	for i, id := range runs {
		uris = append(uris, "toolcrib://runs/"+id, "toolcrib://approvals/"+asks[i])
	}
	for _, uri := range uris {
		send("resources/read", uri, `"uri":"`+uri+`",`)
	}
	for _, method := range []string{"server/discover", "tools/list", "resources/list", "prompts/list"} {
		send(method, "", "")
	}
	send("tools/call", "agent__concealed", `"name":"agent__concealed","arguments":{"task":"x"},`)
	return all.Bytes()
}

// overSocket sends the messages of a WebSocket about every run.
func (h *seen) overSocket(kind string, runs, asks []string) []byte {
	if kind == "nobody" {
		_, _, data := h.ask("GET", "/api/ws", "", "")
		return data
	}
	s := h.socket(h.tokens[kind])
	var all bytes.Buffer
	for i, id := range runs {
		s.send(`{"type":"join","id":"j","run_id":"` + id + `"}`)
		s.send(`{"type":"approval","id":"a","approval_id":"` + asks[i] + `","decision":"approve","check":true,"digest":"0"}`)
		for answers := 0; answers < 2; {
			f, err := s.next()
			if err != nil {
				h.t.Fatal(err)
			}
			if f.ID != "" {
				answers++
			}
			text, _ := json.Marshal(f)
			all.Write(without(text, id+" "+asks[i]))
		}
	}
	return all.Bytes()
}

// changes are routes that would change the answers of the others. Only kinds that may not use them send them.
func (h *seen) changes(name, id, kind string) bool {
	method, path, _ := strings.Cut(name, " ")
	if method == "GET" || !strings.Contains(path, "{id}") || path == "/api/approvals/{id}" {
		return false
	}
	for _, other := range kinds[1:] {
		if id == h.runs[other] && !slices.Contains(h.mayNot(kind), id) {
			return true
		}
	}
	return false
}

// No answer to a kind of token contains anything of a run, a user or an agent that it may not see. A new route needs a
// row.
func TestEveryAnswer_HoldsOnlyWhatItsTokenMaySee(t *testing.T) {
	h := openSeen(t)
	h.everyPage()
	h.everyAnswer(kinds)
}

// everyAnswer sends all requests for every route, with tokens of these kinds: those with the fewest rights come first.
func (h *seen) everyAnswer(kinds []string) {
	t := h.t
	t.Helper()
	rows, asked := h.rows(), 0
	for _, method := range []string{"get", "post", "put", "delete"} { // routes that remove something come last
		for pattern, methods := range h.routes {
			if _, ok := methods[method]; !ok {
				continue
			}
			name := strings.ToUpper(method) + " " + pattern
			r, ok := rows[name]
			if !ok {
				t.Errorf("%s has no row: what must an answer not hold?", name)
				continue
			}
			delete(rows, name)
			for _, kind := range kinds {
				answers := h.answers(name, &r, kind)
				asked += len(answers)
				never := h.mayNot(kind)
				for what, answer := range answers {
					answer = without(answer, what)
					for _, m := range never {
						if bytes.Contains(answer, []byte(m)) && !slices.Contains(r.may, m) {
							t.Errorf("%s\n reads %s in\n%s\n%.3000s", kind, m, what, answer)
						}
					}
				}
				for _, m := range r.shows {
					found := false
					for _, answer := range answers {
						found = found || bytes.Contains(answer, []byte(m))
					}
					if kind == "boss" && !found {
						t.Errorf("%s: an administrator does not read %s: this shows nothing", name, m)
					}
				}
			}
		}
	}
	for name := range rows {
		t.Errorf("%s: there is no such route", name)
	}
	t.Logf("%d answers", asked)
}

// answers returns the answers of a route to a kind, by request.
func (h *seen) answers(name string, r *row, kind string) map[string][]byte {
	method, pattern, _ := strings.Cut(name, " ")
	out := map[string][]byte{}
	if r.ask != nil {
		out[name] = r.ask(kind)
		return out
	}
	ids, bodies := r.of, r.bodies
	if ids == nil {
		ids = []string{""}
	}
	if bodies == nil {
		bodies = []string{""}
	}
	for _, id := range ids {
		if h.changes(name, id, kind) {
			continue
		}
		path := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(pattern, id)
		if pattern == "/v1/models/{kind}/{model}" {
			path = "/v1/models/agent/" + id
		}
		for _, query := range r.queries() {
			for _, body := range bodies {
				at := path
				if query != "" {
					at += "?" + query
				}
				_, header, data := h.ask(method, at, h.tokens[kind], body, r.head...)
				out[method+" "+at+" "+body] = data
				h.begun(out, kind, at, header, data)
			}
		}
	}
	return out
}

// begun adds what a kind reads of a run that an answer has begun.
func (h *seen) begun(out map[string][]byte, kind, at string, _ http.Header, data []byte) {
	var run struct {
		ID    string `json:"id"`
		RunID string `json:"run_id"`
	}
	_ = json.Unmarshal(data, &run)
	if id := cmp.Or(run.RunID, run.ID); strings.HasPrefix(id, "run_") && !slices.Contains(h.all(), id) {
		for _, of := range []string{"", "/export", "/messages", "/events?until=now"} {
			_, _, out[at+": "+of] = h.ask("GET", "/api/runs/"+id+of, h.tokens[kind], "")
		}
	}
}

// queries returns the queries for a path, including none, unless that would be an endless stream.
func (r *row) queries() []string {
	if len(r.query) == 1 && r.query[0] == "until=now" {
		return r.query
	}
	return append([]string{""}, r.query...)
}

// without returns an answer without the text of the request, which errors repeat.
func without(answer []byte, asked string) []byte {
	for _, word := range regexp.MustCompile(`[\w.-]{9,}`).FindAllString(asked, -1) {
		answer = bytes.ReplaceAll(answer, []byte(word), nil)
	}
	return answer
}

// The counts of tools do not include the calls of other users.
func TestToolCounts_AreOnesOwn(t *testing.T) {
	h := openSeen(t)
	runs := int64(len(kinds) - 1)
	for kind, want := range map[string]int64{"boss": runs, "ann": 3, "bob": 1, "scoped": 0, "scoped boss": 0} {
		var tool policy.Tool
		h.want(200, &tool, "GET", "/api/tools/write_file", h.tokens[kind], "")
		if tool.Calls != want {
			t.Errorf("%s reads %d calls, want %d", kind, tool.Calls, want)
		}
	}
}
