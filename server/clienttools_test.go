package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// clientAgents are agents whose scripts call the client's tools.
const clientAgents = `
  picks: {model: picks/x}
  none: {model: picks/x, tools: []}
  talks: {model: talks/x}
server: {client_tool_timeout: 1s}
`

const pickTool = `"client_tools":[{"name":"pick","description":"picks","parameters":{"type":"object","properties":{"n":{"type":"integer"}}}}]`

func openClient(t *testing.T) *house {
	t.Helper()
	was := scripts
	scripts = map[string]string{
		"picks.script": "- tool_calls: [{name: pick, arguments: {n: 1}}, {name: list_directory, arguments: {}}]\n" +
			"- tool_calls: [{name: pick, arguments: {n: 2}}]\n- {text: seven of nine}\n",
		"talks.script": "- {text: one two three, delay: 600ms}\n- {text: heard, delay: 50ms}\n",
	}
	defer func() { scripts = was }()
	for name, text := range was {
		scripts[name] = text
	}
	h := open(t, "") // also writes the scripts
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.config = strings.Replace(agents, "slow.script}}", "slow.script}, picks: {type: script, file: picks.script}, talks: {type: script, file: talks.script}}", 1) +
		clientAgents
	h.start()
	t.Cleanup(func() { _ = h.stop() })
	return h
}

// H12: a client may answer a call as soon as it is announced, while other calls of the turn still run.
func TestH12_EarlyResults(t *testing.T) {
	h := openClient(t)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.config = strings.Replace(h.config, "client_tool_timeout: 1s", "client_tool_timeout: 1h", 1)
	h.start()
	ann := h.token("ann", access.Scope{})
	for range 5 {
		s := h.socket(ann)
		s.send(`{"type":"run","body":{"agent":"picks","input":"Pick.",` + pickTool + `}}`)
		for answered := 0; answered < 2; {
			f := s.until(isEvent("tool_call", "error"))
			last := f[len(f)-1]
			if last.Event == "error" {
				t.Fatalf("%s", last.Data)
			}
			if strings.Contains(string(last.Data), `"pick"`) {
				var call struct{ ID string }
				if err := json.Unmarshal(last.Data, &call); err != nil {
					t.Fatal(err)
				}
				s.send(fmt.Sprintf(`{"type":"tool_result","run_id":%q,"tool_call_id":%q,"body":"seven"}`, last.Run, call.ID))
				answered++
			}
		}
		f := s.until(isEvent("done", "error"))
		if last := f[len(f)-1]; last.Event != "done" || !strings.Contains(string(last.Data), "seven of nine") {
			t.Errorf("%s %s", last.Event, last.Data)
		}
	}
	// The same by POST, and for a run that does not wait for it.
	var run service.Run
	h.want(202, &run, "POST", "/api/runs", ann, `{"agent":"picks","input":"Pick.","detach":true,`+pickTool+`}`)
	h.eventually("the call", func() bool {
		h.want(200, &run, "GET", "/api/runs/"+string(run.ID), ann, "")
		return len(run.Trace) > 0
	})
	h.want(200, nil, "POST", "/api/runs/"+string(run.ID)+"/tool_results", ann, `{"tool_call_id":"call_1","body":1}`)
}

// H12: a run whose client executes calls has the same answer by POST and by a new request with the transcript.
func TestH12_ClientTools(t *testing.T) {
	h := openClient(t)
	h.restart("client_tool_timeout: 1s", "client_tool_timeout: 1h")
	ann, bob := h.token("ann", access.Scope{}), h.token("bob", access.Scope{})
	var run service.Run
	h.want(200, &run, "POST", "/api/runs", ann, `{"agent":"picks","input":"Pick.",`+pickTool+`}`)
	if run.Status != "waiting_for_tool" || run.Pending.Kind != "client_tool" || len(run.Pending.Calls) != 1 ||
		run.Pending.ExpiresAt == nil || run.Trace[1].Status != "ok" {
		t.Fatalf("%+v %+v", run, run.Pending)
	}
	at := "/api/runs/" + string(run.ID) + "/tool_results"
	h.want(404, nil, "POST", at, bob, `{"tool_call_id":"call_1","body":1}`)
	h.want(404, nil, "POST", at, ann, `{"tool_call_id":"call_7","body":1}`)
	h.want(400, nil, "POST", at, ann, `{"tool_call_id":"call_1"}`)
	h.want(400, nil, "POST", at, ann, `{"tool_call_id":"call_1","body":1,"results":[{"tool_call_id":"call_1","body":1}]}`)
	stream := make(chan []event)
	go func() { stream <- h.events(h.request("GET", "/api/runs/"+string(run.ID)+"/events", ann, ""), nil) }()
	h.want(200, nil, "POST", at, ann, `{"tool_call_id":"call_1","body":{"card":"seven"}}`)
	h.want(409, nil, "POST", at, ann, `{"tool_call_id":"call_1","body":1}`)
	h.eventually("the second call", func() bool {
		h.want(200, &run, "GET", "/api/runs/"+string(run.ID), ann, "")
		return run.Status == "waiting_for_tool" && run.Pending.Calls[0].ID == "call_3"
	})
	h.want(200, nil, "POST", at, ann, `{"results":[{"tool_call_id":"call_3","body":"no cards left","is_error":true}]}`)
	h.eventually("its end", func() bool {
		h.want(200, &run, "GET", "/api/runs/"+string(run.ID), ann, "")
		return run.Status == "completed"
	})
	h.want(409, nil, "POST", at, ann, `{"tool_call_id":"call_3","body":1}`)
	if run.Content != "seven of nine" || !strings.Contains(run.Trace[0].Result, `{"card":"seven"}`) ||
		!run.Trace[2].IsError {
		t.Errorf("%+v", run)
	}
	if got := names(<-stream); strings.Count(got, "paused") != 2 || strings.Count(got, "tool_result") != 3 ||
		!strings.HasSuffix(got, "done ") {
		t.Errorf("the stream: %s", got)
	}

	// The fallback is a new request with the transcript.
	messages := `{"role":"user","content":"Pick."},{"role":"assistant","tool_calls":[{"id":"a","name":"pick","arguments":{"n":1}}]},{"role":"tool","tool_call_id":"a","content":"seven"}`
	var again service.Run
	h.want(200, &again, "POST", "/api/runs", ann, `{"agent":"picks","messages":[`+messages+`],`+pickTool+`}`)
	if again.Status != "waiting_for_tool" {
		t.Fatalf("%+v", again)
	}
	messages += `,{"role":"assistant","tool_calls":[{"id":"b","name":"pick","arguments":{"n":2}}]},{"role":"tool","tool_call_id":"b","content":"none"}`
	h.want(200, &again, "POST", "/api/runs", ann, `{"agent":"picks","messages":[`+messages+`],`+pickTool+`}`)
	if again.Status != "completed" || again.Content != run.Content || fmt.Sprint(again.Taint) != "[client:pick]" {
		t.Errorf("%+v", again)
	}
	for _, bad := range []string{
		`{"agent":"picks"}`, `{"agent":"picks","input":"x","messages":[{"role":"user","content":"y"}]}`,
		`{"agent":"picks","messages":[{"role":"system","content":"y"}]}`, `{"agent":"picks","messages":[{"role":"user","content":"y"}],"session_id":"trip"}`,
		`{"agent":"picks","messages":[` + messages + `,{"role":"tool","tool_call_id":"b","content":"again"}]}`,
		`{"agent":"picks","input":"x","client_tools":[{"name":"read_file"}]}`, `{"agent":"picks","input":"x","client_tools":[{"name":"a b"}]}`,
		`{"agent":"picks","input":"x","client_tools":[{"name":"a","effect":"none"}]}`, `{"agent":"picks","input":"x","client_tools":[{"name":"a"},{"name":"A"}]}`,
		`{"agent":"picks","input":"x","client_tools":[{"name":"a","parameters":{"type":"string"}}]}`, `{"agent":"picks","input":"x","client_tools":[{"name":"a","parameters":1}]}`,
		`{"agent":"picks","input":"x","limits":{"wall_time":"soon"}}`, `{"agent":"picks","input":"x","limits":{"max_depth":-1}}`,
		`{"agent":"picks","input":"x","limits":{"on_limit":"ask_me"}}`, `{"agent":"picks","input":"x","limits":{"max_result_bytes":10}}`,
	} {
		h.want(400, nil, "POST", "/api/runs", ann, bad)
	}
	// Neither the agent's list nor the request's choice of the agent's tools applies to them.
	h.want(200, &run, "POST", "/api/runs", ann, `{"agent":"none","input":"Pick.",`+pickTool+`}`)
	if run.Status != "waiting_for_tool" || run.Trace[1].Reason != "agent_allowlist" {
		t.Errorf("%s %+v", run.Status, run.Trace)
	}
	h.want(200, &run, "POST", "/api/runs", ann, `{"agent":"picks","input":"Pick.","tools":[],`+pickTool+`}`)
	if run.Status != "waiting_for_tool" || run.Trace[1].Reason != "run_allowlist" {
		t.Errorf("%s %+v", run.Status, run.Trace)
	}
	// A call that writes, as its client says, needs an approval before the client gets it.
	h.want(200, &run, "POST", "/api/runs", ann, `{"agent":"picks","input":"Pick.","client_tools":[{"name":"pick","effect":"non_idempotent_write"}]}`)
	// Another tool may have its name in another run.
	person := h.token("ann", signIn)
	approve := fmt.Sprintf(`{"decision":"approve","digest":%q,"remember":`, run.Pending.Digest)
	for _, more := range []string{`"user"}`, `"user","remember_calls":"tool"}`, `"user","remember_calls":"arguments"}`} {
		h.want(400, nil, "POST", "/api/approvals/"+run.Pending.ApprovalID, person, approve+more)
	}
	if run.Status != "waiting_for_approval" {
		t.Fatalf("%+v", run)
	}
	h.want(200, nil, "POST", "/api/approvals/"+run.Pending.ApprovalID, ann,
		`{"decision":"approve","digest":"`+run.Pending.Digest+`"}`)
	h.eventually("its client's turn", func() bool {
		h.want(200, &run, "GET", "/api/runs/"+string(run.ID), ann, "")
		return run.Status == "waiting_for_tool"
	})
	// A run does not wait longer for a client that does not answer.
	h.restart("client_tool_timeout: 1h", "client_tool_timeout: 1s")
	h.want(200, &run, "POST", "/api/runs", ann, `{"agent":"picks","input":"Pick.",`+pickTool+`}`)
	h.eventually("a timeout", func() bool {
		h.want(200, &run, "GET", "/api/runs/"+string(run.ID), ann, "")
		return run.Status == "waiting_for_tool" && run.Trace[0].Status == "timeout" || run.Status == "completed"
	})
}

// A run that waits for its client survives the end of the server, and holds no memory there.
func TestH12_Restart(t *testing.T) {
	h := openClient(t)
	ann := h.token("ann", access.Scope{})
	var run service.Run
	h.want(200, &run, "POST", "/api/runs", ann, `{"agent":"picks","input":"Pick.",`+pickTool+`}`)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.config = strings.Replace(h.config, "client_tool_timeout: 1s", "client_tool_timeout: 1h", 1)
	h.start()
	at := "/api/runs/" + string(run.ID)
	h.eventually("the timeout of a run of before", func() bool {
		h.want(200, &run, "GET", at, ann, "")
		return run.Trace[0].Status == "timeout"
	})
	h.eventually("the next call", func() bool {
		h.want(200, &run, "GET", at, ann, "")
		return run.Status == "waiting_for_tool"
	})
	big, err := json.Marshal(map[string]string{"text": strings.Repeat("long ", 40_000)})
	if err != nil {
		t.Fatal(err)
	}
	h.want(200, nil, "POST", at+"/tool_results", ann, `{"tool_call_id":"call_3","body":`+string(big)+`}`)
	h.eventually("its end", func() bool {
		h.want(200, &run, "GET", at, ann, "")
		return run.Status == "completed"
	})
	if got := run.Trace[2].Result; len(got) > 70_000 || !strings.Contains(got, "_truncated_json") {
		t.Errorf("%d bytes: %.200s", len(got), got)
	}
	report, err := h.service.Verify(t.Context(), root, "", nil)
	if err != nil {
		t.Errorf("%v %+v", err, report)
	}
}

// A message is stored before the request is answered, and read once, whenever it comes. A run that has ended takes
// none.
func TestMessages(t *testing.T) {
	h := openClient(t)
	ann, bob := h.token("ann", access.Scope{}), h.token("bob", access.Scope{})
	h.script("talks.script", "- {text: one two three, delay: 3s}\n- {text: heard}\n")
	var run service.Run
	h.want(202, &run, "POST", "/api/runs", ann, `{"agent":"talks","input":"Talk.","detach":true}`)
	at := "/api/runs/" + string(run.ID)
	h.want(404, nil, "POST", at+"/message", bob, `{"text":"hi"}`)
	h.want(400, nil, "POST", at+"/message", ann, `{"text":" \u0000"}`)
	h.want(413, nil, "POST", at+"/message", ann, `{"text":"`+strings.Repeat("a", 70_000)+`"}`)
	h.want(200, nil, "POST", at+"/message", ann, `{"text":"first"}`)
	h.want(200, nil, "POST", at+"/message", ann, `{"text":"second"}`)
	h.eventually("its end", func() bool {
		h.want(200, &run, "GET", at, ann, "")
		return run.Status == "completed"
	})
	if run.Content != "heard" {
		t.Errorf("%+v", run)
	}
	h.want(409, nil, "POST", at+"/message", ann, `{"text":"late"}`)
	var said []string
	for _, e := range h.events(h.request("GET", at+"/events", ann, ""), nil) {
		if e.name == "user_message" {
			said = append(said, e.data)
		}
	}
	if got := strings.Join(said, " "); got != `{"text":"first","by":"ann"} {"text":"second","by":"ann"}` {
		t.Error(got)
	}
	// A parked run keeps messages, up to a bound.
	h.want(200, &run, "POST", "/api/runs", ann, `{"input":"Write."}`)
	at = "/api/runs/" + string(run.ID)
	for i := range 32 {
		h.want(200, nil, "POST", at+"/message", ann, fmt.Sprintf(`{"text":"number %d"}`, i))
	}
	h.want(429, nil, "POST", at+"/message", ann, `{"text":"too many"}`)
	h.want(200, nil, "POST", "/api/approvals/"+run.Pending.ApprovalID, ann,
		`{"decision":"approve","digest":"`+run.Pending.Digest+`"}`)
	h.eventually("its end", func() bool {
		h.want(200, &run, "GET", at, ann, "")
		return run.Status == "completed"
	})
	if got := names(h.events(h.request("GET", at+"/events", ann, ""), nil)); strings.Count(got, "user_message") != 32 {
		t.Error(got)
	}
	if _, err := h.service.Verify(t.Context(), root, "", nil); err != nil {
		t.Error(err)
	}
}

// A message that another process stores is read before the next request as well, however soon that comes.
func TestMessagesByAnotherProcess(t *testing.T) {
	h := openClient(t)
	var script strings.Builder
	for i := range 150 {
		fmt.Fprintf(&script, "- {tool_calls: [{name: list_directory, arguments: {path: '%d'}}], delay: 30ms}\n", i)
	}
	h.script("talks.script", script.String())
	other, err := sqlite.Open(t.Context(), filepath.Join(h.dir, "data", env.DatabaseName), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ann := h.token("ann", access.Scope{})
	var run service.Run
	h.want(202, &run, "POST", "/api/runs", ann, `{"agent":"talks","input":"Talk.","detach":true,"limits":{"max_iterations":150}}`)
	var kept []time.Time
	for i := range 4 {
		err := other.PutMessage(t.Context(), run.ID,
			store.Message{ID: fmt.Sprint("msg_", i), Text: "hi", By: "ann", At: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, time.Now())
		h.eventually("the message is read", func() bool {
			all, err := other.Messages(t.Context(), run.ID)
			return err == nil && len(all) == 0
		})
	}
	var asked []time.Time
	for e, err := range other.Read(t.Context(), run.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Body.(type) {
		case *journal.ModelRequest:
			asked = append(asked, e.Time)
		case *journal.Said:
			late := 0 // a request may have been about to begin
			for _, at := range asked {
				if at.After(kept[0]) {
					late++
				}
			}
			if kept = kept[1:]; late > 1 {
				t.Errorf("%d requests began before the message was read", late)
			}
		}
	}
	if len(kept) > 0 {
		t.Errorf("%d messages were not read", len(kept))
	}
}

// However messages race with the end of a run, each is refused or is in its events once.
func TestMessagesRaceWithTheEnd(t *testing.T) {
	h := openClient(t)
	if err := os.WriteFile(filepath.Join(h.dir, "talks.script"),
		[]byte(strings.Repeat("- {text: one, delay: 20ms}\n", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	ann := h.token("ann", access.Scope{})
	runs := 20
	if testing.Short() {
		runs = 6
	}
	for range runs {
		var run service.Run
		h.want(202, &run, "POST", "/api/runs", ann, `{"agent":"talks","input":"Talk.","detach":true,"limits":{"max_iterations":100}}`)
		at := "/api/runs/" + string(run.ID)
		var kept atomic.Int32
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 12 * time.Millisecond)
				for n := range 8 {
					status, _, data := h.ask("POST", at+"/message", ann, fmt.Sprintf(`{"text":"%d.%d"}`, i, n))
					switch {
					case status == 200:
						kept.Add(1)
					case status == 409 && bytes.Contains(data, []byte("ended")), status == 429:
					default:
						t.Errorf("%d %s", status, data)
					}
				}
			})
		}
		all.Wait()
		seen := map[string]bool{}
		for _, e := range h.events(h.request("GET", at+"/events", ann, ""), nil) {
			if e.name == "user_message" {
				if seen[e.data] {
					t.Errorf("twice: %s", e.data)
				}
				seen[e.data] = true
			}
		}
		if len(seen) != int(kept.Load()) {
			t.Errorf("%d were kept, %d were read", kept.Load(), len(seen))
		}
	}
}
