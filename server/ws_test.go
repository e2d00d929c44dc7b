package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/service"
)

// socket is a WebSocket of a test.
type socket struct {
	h    *house
	conn *websocket.Conn
}

type socketFrame struct {
	Run   string          `json:"run_id"`
	Seq   int             `json:"seq"`
	Event string          `json:"event"`
	ID    string          `json:"id"`
	Data  json.RawMessage `json:"data"`
}

func (h *house) dial(token string, head ...string) (*socket, error) {
	h.t.Helper()
	header := http.Header{"Authorization": {"Bearer " + token}}
	for i := 0; i < len(head); i += 2 {
		header.Set(head[i], head[i+1])
	}
	conn, res, err := websocket.Dial(h.t.Context(), h.at()+"/api/ws", &websocket.DialOptions{HTTPHeader: header})
	if res != nil && res.Body != nil {
		_ = res.Body.Close()
	}
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(-1)
	h.t.Cleanup(func() { _ = conn.CloseNow() })
	return &socket{h, conn}, nil
}

func (h *house) socket(token string) *socket {
	h.t.Helper()
	s, err := h.dial(token)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func (s *socket) send(text string) {
	s.h.t.Helper()
	if err := s.conn.Write(s.h.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		s.h.t.Fatal(err)
	}
}

func (s *socket) next() (f socketFrame, err error) {
	ctx, cancel := context.WithTimeout(s.h.t.Context(), 2*time.Minute)
	defer cancel()
	_, data, err := s.conn.Read(ctx)
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	return f, err
}

// until reads frames up to one that matches.
func (s *socket) until(is func(socketFrame) bool) (all []socketFrame) {
	s.h.t.Helper()
	for {
		f, err := s.next()
		if err != nil {
			s.h.t.Fatalf("%v after %+v", err, all)
		}
		if all = append(all, f); is(f) {
			return all
		}
	}
}

func (s *socket) wants(id, event, part string) socketFrame {
	s.h.t.Helper()
	all := s.until(func(f socketFrame) bool {
		return f.ID == id && f.Seq == 0 && (f.Event == "error" || f.Event == "accepted")
	})
	f := all[len(all)-1]
	if f.Event != event || !strings.Contains(string(f.Data), part) || f.Run != "" {
		s.h.t.Errorf("%s: %+v, want %s with %s", id, f, event, part)
	}
	return f
}

func isEvent(names ...string) func(socketFrame) bool {
	return func(f socketFrame) bool {
		for _, name := range names {
			if f.Event == name {
				return true
			}
		}
		return false
	}
}

// H12: a run whose client executes its tools over a WebSocket ends like one over POST. Decisions, messages and
// cancelling work there as well.
func TestH12_WebSocket(t *testing.T) {
	h := openClient(t)
	ann := h.token("ann", access.Scope{})
	s := h.socket(ann)
	s.send(`{"type":"run","body":{"agent":"picks","input":"Pick.",` + pickTool + `}}`)
	var text strings.Builder
	seen := 0
	for done := false; !done; {
		f, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		if f.Seq > 0 && f.Seq <= seen {
			t.Errorf("event %d after %d", f.Seq, seen)
		}
		seen = max(seen, f.Seq)
		fmt.Fprintf(&text, "%s ", f.Event)
		switch f.Event {
		case "paused":
			var paused struct{ Pending api.Pending }
			if err := json.Unmarshal(f.Data, &paused); err != nil || paused.Pending.Kind != "client_tool" {
				t.Fatalf("%v %s", err, f.Data)
			}
			for _, c := range paused.Pending.Calls {
				s.send(fmt.Sprintf(`{"type":"tool_result","run_id":%q,"tool_call_id":%q,"body":{"card":"seven"}}`, f.Run, c.ID))
			}
		case "done":
			if done = true; !strings.Contains(string(f.Data), "seven of nine") {
				t.Errorf("%s", f.Data)
			}
		}
	}
	if got := text.String(); strings.Count(got, "tool_result ") != 3 || strings.Count(got, "run_started") != 1 ||
		strings.Count(got, "token ") < 1 {
		t.Errorf("%s", got)
	}

	s.send(`{"type":"run","id":"w","body":{"input":"Write."}}`)
	paused := s.until(isEvent("paused"))
	var pending struct{ Pending api.Pending }
	last := paused[len(paused)-1]
	if err := json.Unmarshal(last.Data, &pending); err != nil {
		t.Fatal(err)
	}
	approve := fmt.Sprintf(`{"type":"approval","id":"%%s","approval_id":%q,"decision":"approve","digest":%q}`, pending.Pending.ApprovalID, pending.Pending.Digest)
	s.send(strings.Replace(fmt.Sprintf(approve, "stale"), pending.Pending.Digest, "0", 1))
	s.wants("stale", "error", `"conflict"`)
	s.send(fmt.Sprintf(`{"type":"message","id":"m","run_id":%q,"text":"Hurry."}`, last.Run))
	s.wants("m", "accepted", last.Run)
	s.send(fmt.Sprintf(approve, "a"))
	got := fmt.Sprint(s.until(isEvent("done", "error")))
	for _, part := range []string{"confirmation_resolved", "tool_result", "user_message", "done"} {
		if !strings.Contains(got, part) {
			t.Errorf("no %s in %s", part, got)
		}
	}

	h.script("talks.script", never)
	s.send(`{"type":"run","id":"d","body":{"agent":"talks","input":"Talk.","detach":true}}`)
	var named struct {
		RunID string `json:"run_id"`
	}
	if err := json.Unmarshal(s.wants("d", "accepted", "run_").Data, &named); err != nil {
		t.Fatal(err)
	}
	s.send(fmt.Sprintf(`{"type":"join","id":"j","run_id":%q}`, named.RunID))
	s.wants("j", "accepted", named.RunID)
	s.send(fmt.Sprintf(`{"type":"join","id":"jj","run_id":%q}`, named.RunID))
	s.wants("jj", "error", `"conflict"`)
	s.send(fmt.Sprintf(`{"type":"cancel","run_id":%q}`, named.RunID))
	all := s.until(isEvent("done"))
	if got := string(all[len(all)-1].Data); !strings.Contains(got, "cancelled") {
		t.Error(got)
	}
	s.send(fmt.Sprintf(`{"type":"cancel","id":"c","run_id":%q}`, last.Run))
	s.wants("c", "error", `"conflict"`)

	// A client that reconnects joins where it was.
	again := h.socket(ann)
	again.send(fmt.Sprintf(`{"type":"join","run_id":%q,"after":%d}`, last.Run, last.Seq))
	rest := again.until(isEvent("done"))
	if rest[0].Event != "confirmation_resolved" || rest[0].Seq <= last.Seq {
		t.Errorf("%+v", rest[0])
	}
}

// An invalid message causes an error frame and nothing else; runs of other users do not exist.
func TestWebSocketBadInput(t *testing.T) {
	h := openClient(t)
	ann, bob := h.token("ann", access.Scope{}), h.token("bob", access.Scope{})
	var run service.Run
	h.want(200, &run, "POST", "/api/runs", ann, `{"input":"Write."}`)
	s := h.socket(bob)
	for _, c := range []struct{ text, code string }{
		{`{`, "bad_request"},
		{`[]`, "bad_request"},
		{`{"type":1}`, "bad_request"},
		{`{"type":"run","id":1,"body":{"input":"x"}}`, `bad_request","message":"the message must be a JSON object with a type: /id: must not be number`},
		{`{"type":"nothing"}`, "bad_request"},
		{`{"type":"run","type":"join"}`, "bad_request"},
		{`{"type":"run"}`, "schema_mismatch"},
		{`{"type":"run","body":{"input":"x","nonsense":1}}`, "schema_mismatch"},
		{`{"type":"run","body":{"input":""}}`, "bad_request"},
		{`{"type":"run","body":{"agent":"nobody","input":"x"}}`, "bad_request"},
		{`{"type":"join","run_id":7}`, "schema_mismatch"},
		{`{"type":"join","run_id":"nonsense"}`, "not_found"},
		{`{"type":"join","run_id":"../../etc/passwd"}`, "not_found"},
		{fmt.Sprintf(`{"type":"join","run_id":%q}`, run.ID), "not_found"},
		{fmt.Sprintf(`{"type":"join","run_id":%q,"after":-1}`, run.ID), "schema_mismatch"},
		{fmt.Sprintf(`{"type":"cancel","run_id":%q}`, run.ID), "not_found"},
		{fmt.Sprintf(`{"type":"message","run_id":%q,"text":"x"}`, run.ID), "not_found"},
		{fmt.Sprintf(`{"type":"tool_result","run_id":%q,"tool_call_id":"call_1","body":1}`, run.ID), "not_found"},
		{fmt.Sprintf(`{"type":"approval","approval_id":%q,"decision":"deny","digest":"0"}`, run.Pending.ApprovalID), "not_found"},
		{`{"type":"run","body":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, "bad_request"},
	} {
		s.send(c.text)
		f, err := s.next()
		if err != nil {
			t.Fatalf("%.80s: %v", c.text, err)
		}
		if f.Event != "error" || f.Run != "" || !strings.Contains(string(f.Data), `"error":"`+c.code+`"`) ||
			!strings.Contains(string(f.Data), "req_") {
			t.Errorf("%.80s: %+v, want %s", c.text, f, c.code)
		}
	}
	if err := s.conn.Write(t.Context(), websocket.MessageBinary, []byte{0, 1, 2}); err != nil {
		t.Fatal(err)
	}
	if f, err := s.next(); err != nil || f.Event != "error" {
		t.Errorf("%v %+v", err, f)
	}
	s.send(`{"type":"run","id":"ok","body":{"agent":"slow","input":"Count."}}`)
	s.until(isEvent("done"))
	if err := s.conn.Write(t.Context(), websocket.MessageText, make([]byte, 11<<20)); err == nil {
		if _, err := s.next(); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
			t.Errorf("a huge message: %v", err)
		}
	}
	for _, head := range [][]string{
		{"Origin", "https://evil.example"},
		{"Authorization", "Bearer nonsense"},
		{"Authorization", ""},
	} {
		if _, err := h.dial(ann, head...); err == nil {
			t.Errorf("%v: connected", head)
		}
	}
	h.want(400, nil, "GET", "/api/ws", ann, "")
	// A run continues without its client, and a server that ends reports it.
	s = h.socket(ann)
	s.send(`{"type":"run","body":{"agent":"talks","input":"Talk."}}`)
	first := s.until(isEvent("run_started"))[0]
	_ = s.conn.CloseNow()
	h.eventually("its end", func() bool {
		h.want(200, &run, "GET", "/api/runs/"+first.Run, ann, "")
		return run.Status == "completed"
	})
	s = h.socket(ann)
	left := make(chan error, 1)
	go func() {
		_, err := s.next()
		left <- err
	}()
	if err := h.stop(); err != nil {
		t.Error(err)
	}
	if err := <-left; websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the server ended: %v", err)
	}
}

// A client that reads too slowly is asked to join again, and then misses nothing.
func TestWebSocketSlow(t *testing.T) {
	h := openClient(t)
	ann := h.token("ann", access.Scope{})
	h.server.Slow(0)
	s := h.socket(ann)
	s.send(`{"type":"run","body":{"agent":"talks","input":"Talk."}}`)
	var run string
	var seen []int
	for {
		f, err := s.next()
		if err != nil {
			if websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
				t.Errorf("%v, want 1013", err)
			}
			break
		}
		if run = f.Run; f.Seq > 0 {
			seen = append(seen, f.Seq)
		}
	}
	h.server.Slow(time.Minute)
	again := h.socket(ann)
	again.send(fmt.Sprintf(`{"type":"join","run_id":%q,"after":%d}`, run, seen[len(seen)-1]))
	for _, f := range again.until(isEvent("done")) {
		if f.Seq > 0 {
			seen = append(seen, f.Seq)
		}
	}
	var kept []int
	for _, e := range h.events(h.request("GET", "/api/runs/"+run+"/events", ann, ""), nil) {
		if e.id > 0 {
			kept = append(kept, e.id)
		}
	}
	if !slices.Equal(seen, kept) {
		t.Errorf("it has read %v of %v", seen, kept)
	}
}

// A run that cannot be followed does not begin: its client has no ID and would start a second one. A run that was left
// can be joined at once, and sends nothing until then.
func TestWebSocketJoins(t *testing.T) {
	h := openClient(t)
	ann := h.token("ann", access.Scope{})
	s := h.socket(ann)
	var run service.Run
	const most = 64
	for range most {
		h.want(200, &run, "POST", "/api/runs", ann, `{"input":"Write."}`)
		s.send(fmt.Sprintf(`{"type":"join","id":"j","run_id":%q}`, run.ID))
		s.wants("j", "accepted", string(run.ID))
	}
	s.send(`{"type":"run","id":"more","body":{"input":"One more."}}`)
	s.wants("more", "error", "capacity_exceeded")
	var list api.RunList
	h.want(200, &list, "GET", "/api/runs?limit=100", ann, "")
	if len(list.Runs) != most {
		t.Errorf("%d runs, want %d", len(list.Runs), most)
	}
}

// A run stays joined until it ends; a client that has read its end can join it again.
func TestWebSocketJoinsEnded(t *testing.T) {
	h := openClient(t)
	ann := h.token("ann", access.Scope{})
	s := h.socket(ann)
	var run service.Run
	h.want(200, &run, "POST", "/api/runs", ann, `{"input":"Write."}`)
	h.want(200, nil, "POST", "/api/runs/"+string(run.ID)+"/cancel", ann, "")
	for i := range 50 {
		s.send(fmt.Sprintf(`{"type":"join","run_id":%q}`, run.ID))
		for _, f := range s.until(isEvent("done", "error")) {
			if f.Run == "" {
				t.Fatalf("join %d after the end: %s", i, f.Data)
			}
		}
	}
}

// An approval is decided as soon as its event is sent, by whatever route the client gets it.
func TestContract9_DecidedAtOnce(t *testing.T) {
	h := openWith(t, `
providers: {writes: {type: script, file: writes.script}, asks: {type: script, file: asks.script}}
agents: {default: {model: writes/x}, asks: {model: asks/x}}
`, map[string]string{
		"writes.script": "- tool_calls: [{name: memory_write, arguments: {key: log, content: a, mode: append}}]\n- {text: done}\n",
		"asks.script":   "- tool_calls: [{name: ask_user, arguments: {question: Which?}}]\n- {text: done}\n",
	})
	ann := h.token("ann", signIn)
	type asked struct {
		ID     string `json:"approval_id"`
		Digest string
	}
	for agent, word := range map[string]string{"default": `"decision":"approve"`, "asks": `"answer":"seven"`} {
		begin, s := `{"agent":"`+agent+`","input":"Go."}`, h.socket(ann)
		for i := range 30 {
			var ask asked
			var data []byte
			var decided api.Decided
			if i%2 == 0 {
				all := h.events(h.request("POST", "/api/runs", ann, begin, "Accept", "text/event-stream"), func(e event) bool {
					return e.name == "confirmation_required"
				})
				data = []byte(all[len(all)-1].data)
			} else {
				s.send(`{"type":"run","body":` + begin + `}`)
				all := s.until(isEvent("confirmation_required"))
				data = all[len(all)-1].Data
			}
			if err := json.Unmarshal(data, &ask); err != nil {
				t.Fatal(err)
			}
			decision := word + `,"digest":"` + ask.Digest + `"}`
			if i%2 == 0 {
				h.want(200, &decided, "POST", "/api/approvals/"+ask.ID, ann, "{"+decision)
			} else {
				s.send(`{"type":"approval","id":"now","approval_id":"` + ask.ID + `",` + decision)
				if err := json.Unmarshal(s.wants("now", "accepted", ask.ID).Data, &decided); err != nil {
					t.Fatal(err)
				}
			}
			h.eventually("its end", func() bool {
				var run service.Run
				h.want(200, &run, "GET", "/api/runs/"+string(decided.Run), ann, "")
				return run.Status == toolcrib.StatusCompleted
			})
		}
	}
}
