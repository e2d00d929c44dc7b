package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/server/openai"
	"github.com/toolcrib/toolcrib/service"
)

// v1House is a server with agents for programs that use the APIs of OpenAI.
func v1House(t *testing.T) *house {
	t.Helper()
	scripts := map[string]string{
		"hello":   strings.Repeat("- {text: Hello there., usage: {input: 10, cached_input: 4, output: 3}, delay: 20ms}\n", 501),
		"steps":   "- text: I look.\n  thinking: Hm.\n  tool_calls: [{name: list_directory, arguments: {}}]\n- {text: It is empty.}\n",
		"json":    "- text: On it.\n  tool_calls: [{name: list_directory, arguments: {}}]\n- {text: '{\"n\": 4}'}\n",
		"failing": "- {error: auth}\n",
		"breaks":  "- text: I look.\n  tool_calls: [{name: list_directory, arguments: {}}]\n  usage: {input: 5, output: 2}\n- {error: auth}\n",
		"cut":     "- {text: Once upon a, finish: length}\n",
		"slow":    "- {text: one two three four, delay: 400ms}\n",
		"slower":  "- {text: at last, delay: 1s}\n",
		"midway":  "- {text: '" + strings.Repeat("I was about to say. ", 30) + "', error: auth}\n",
		"weather": "- {tool_calls: [{name: get_weather, arguments: {city: Berlin}}], usage: {input: 5, output: 5}}\n- {text: Sunny in Berlin., usage: {input: 9, output: 1}}\n- {text: You are welcome.}\n",
		"pair":    "- tool_calls: [{name: get_weather, arguments: {city: Bonn}}, {name: get_weather, arguments: {city: Rome}}]\n- {text: Sunny.}\n",
		"writes":  "- tool_calls: [{name: write_file, arguments: {path: out.txt, content: hello}}]\n- {text: done}\n",
		"amends":  "- tool_calls: [{name: write_file, arguments: {path: out.txt, content: hello again}}]\n- {text: done}\n",
		"sends":   "- tool_calls: [{name: spawn, arguments: {agent: amends, task: Write.}}]\n- {text: all of it}\n",
	}
	return scripted(t, scripts, "team: {panels: {two: {agents: [hello, cut]}}}\n")
}

func TestV1_Models(t *testing.T) {
	h := v1House(t)
	var list server.V1Models
	h.want(200, &list, "GET", "/v1/models", h.token("ann", signIn), "")
	all := ""
	for _, m := range list.Data {
		all += m.ID + " "
	}
	if !strings.Contains(all, "agent/default ") || !strings.Contains(all, "agent/hello ") || list.Object != "list" {
		t.Errorf("%+v", list)
	}
	narrow := h.token("bob", access.Scope{Agents: []string{"hello"}})
	h.want(200, &list, "GET", "/v1/models", narrow, "")
	if len(list.Data) != 1 || list.Data[0].ID != "agent/hello" {
		t.Errorf("%+v", list)
	}
}

// A model is found by its name, with the slash literal or encoded, and by that of its agent.
func TestV1_Model(t *testing.T) {
	h := v1House(t)
	narrow := h.token("bob", access.Scope{Agents: []string{"hello"}})
	for name, want := range map[string]string{
		"agent/hello": "agent/hello", "hello": "agent/hello", url.PathEscape("agent/hello"): "agent/hello", "agent/steps": "",
		"nobody": "", "confer/two": "", "agent%2f..%2fhello": "", "agent": "",
	} {
		status, _, data := h.ask("GET", "/v1/models/"+name, narrow, "")
		var m server.V1Model
		if err := json.Unmarshal(data, &m); err != nil || m.ID != want || (status == 200) != (want != "") || status != 200 &&
			status != 404 {
			t.Errorf("%s: %d %s", name, status, data)
		}
		if status == 404 && name != "agent%2f..%2fhello" && !strings.Contains(string(data), `"code":"model_not_found"`) {
			t.Errorf("%s: %s", name, data)
		}
	}
}

func chatBody(model, more string) string {
	return `{"model":"` + model + `","messages":[{"role":"user","content":"Say hello."}]` + more + `}`
}

// chunks reads a stream of Chat Completions.
func (h *house) chunks(r *http.Request) (all []openai.ChatCompletion, text, end string) {
	h.t.Helper()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		h.t.Fatalf("%d %s", res.StatusCode, res.Header)
	}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
		case strings.HasPrefix(data, "{"):
			var c openai.ChatCompletion
			if err := json.Unmarshal([]byte(data), &c); err != nil {
				h.t.Fatal(err)
			}
			if all = append(all, c); len(c.Choices) > 0 && c.Choices[0].Delta != nil && c.Choices[0].Delta.Content != nil {
				text += *c.Choices[0].Delta.Content
			}
			end = data
		default:
			end = data
		}
	}
	return all, text, end
}

func TestV1_Chat(t *testing.T) {
	h := v1House(t)
	ann := h.token("ann", access.Scope{})
	var c openai.ChatCompletion
	h.want(200, &c, "POST", "/v1/chat/completions", ann, chatBody("agent/hello", ""))
	if c.Object != "chat.completion" || c.Model != "agent/hello" || len(c.Choices) != 1 ||
		*c.Choices[0].Message.Content != "Hello there." ||
		*c.Choices[0].Finish != "stop" || c.Usage.Prompt != 10 || c.Usage.Completion != 3 ||
		c.Usage.PromptDetails.Cached != 4 {
		t.Errorf("%+v", c)
	}
	var run service.Run
	h.want(200, &run, "GET", "/api/runs/"+string(c.Toolcrib.RunID), ann, "")
	if run.Agent != "hello" || run.Content != "Hello there." {
		t.Errorf("%+v", run)
	}

	all, text, end := h.chunks(h.request("POST", "/v1/chat/completions", ann,
		chatBody("hello", `,"stream":true,"stream_options":{"include_usage":true}`)))
	if text != "Hello there." || end != "[DONE]" || all[0].Choices[0].Delta.Role != "assistant" {
		t.Errorf("%q %q %+v", text, end, all)
	}
	last, finish := all[len(all)-1], all[len(all)-2]
	_, _, raw := h.ask("POST", "/v1/chat/completions", ann, chatBody("hello", `,"stream":true,"stream_options":{"include_usage":true}`))
	if n := strings.Count(string(raw), `"usage":null`); n != strings.Count(string(raw), `"finish_reason"`) || n < 3 {
		t.Errorf("every chunk but the last says that its usage is null: %s", raw)
	}
	if last.Usage == nil || last.Usage.Total != 13 || len(last.Choices) != 0 || *finish.Choices[0].Finish != "stop" ||
		finish.Toolcrib == nil {
		t.Errorf("%+v %+v", finish, last)
	}

	// Text before the answer is in a stream, and not in an answer that is sent as a whole.
	h.want(200, &c, "POST", "/v1/chat/completions", ann, chatBody("steps", ""))
	if *c.Choices[0].Message.Content != "It is empty." || c.Choices[0].Message.Reasoning != "Hm." {
		t.Errorf("%+v", c.Choices[0].Message)
	}
	all, text, _ = h.chunks(h.request("POST", "/v1/chat/completions", ann, chatBody("steps", `,"stream":true`)))
	if text != "I look.\n\nIt is empty." || all[1].Choices[0].Delta.Reasoning != "Hm." &&
		all[2].Choices[0].Delta.Reasoning != "Hm." {
		t.Errorf("%q %+v", text, all)
	}
	// With a schema the answer is one JSON value, in a stream as well.
	format := `,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}}`
	_, text, _ = h.chunks(h.request("POST", "/v1/chat/completions", ann, chatBody("json", format+`,"stream":true`)))
	if text != `{"n":4}` {
		t.Errorf("%q", text)
	}
	h.want(200, &c, "POST", "/v1/chat/completions", ann, chatBody("cut", ""))
	if *c.Choices[0].Finish != "length" || !c.Toolcrib.Truncated {
		t.Errorf("%+v", c)
	}
}

// The fields that usual clients send are accepted: an answer ends before the first stop text, a model learns how much
// to think, and fields that change no answer are ignored.
func TestV1_Fields(t *testing.T) {
	h := v1House(t)
	ann := h.token("ann", signIn)
	var c openai.ChatCompletion
	for _, more := range []string{`,"stop":"there"`, `,"stop":["xyz","there"],"stream":false`} {
		if h.want(200, &c, "POST", "/v1/chat/completions", ann,
			chatBody("hello", more)); *c.Choices[0].Message.Content != "Hello " || *c.Choices[0].Finish != "stop" {
			t.Errorf("%s: %+v", more, c.Choices[0].Message)
		}
	}
	_, text, _ := h.chunks(h.request("POST", "/v1/chat/completions", ann,
		chatBody("steps", `,"stream":true,"stop":["k.","is e"]`)))
	if !strings.HasSuffix(text, "loo\n\nIt ") || strings.Contains(text, "look") { // the first piece may be sent twice
		t.Errorf("%q", text)
	}
	// The text of an approval for a person is not the model's text.
	if h.want(200, &c, "POST", "/v1/chat/completions", ann,
		chatBody("writes", `,"stop":["a"]`)); !strings.Contains(*c.Choices[0].Message.Content, "/approvals/apr_") {
		t.Errorf("%+v", c.Choices[0].Message)
	}
	h.want(200, &c, "POST", "/v1/chat/completions", ann, chatBody("hello", `,"seed":7,"reasoning_effort":"minimal","verbosity":"low",
		"service_tier":"flex","prediction":{"type":"content","content":"x"},"stream_options":{"include_obfuscation":true}`))
	var export []byte
	_, _, export = h.ask("GET", "/api/runs/"+string(c.Toolcrib.RunID)+"/export", ann, "")
	if !strings.Contains(string(export), `"reasoning":"low"`) {
		t.Error("the model is not told how much to think")
	}
	h.want(200, nil, "POST", "/v1/responses", ann, `{"model":"hello","input":"x","reasoning":{"effort":"high","summary":"auto"},"text":{"verbosity":"low"},"truncation":"auto"}`)
	for _, more := range []string{
		`,"stop":[""]`, `,"stop":[1]`, `,"stop":"` + strings.Repeat("x", 300) + `"`,
		`,"reasoning_effort":"huge"`, `,"top_p":0.5`,
	} {
		h.want(400, nil, "POST", "/v1/chat/completions", ann, chatBody("hello", more))
	}
	h.want(400, nil, "POST", "/v1/chat/completions", ann, chatBody("confer/two", `,"reasoning_effort":"low"`))
}

func TestV1_Failures(t *testing.T) {
	h := v1House(t)
	ann := h.token("ann", access.Scope{})
	check := func(path, body string, status int, kind, code, param string) {
		t.Helper()
		got, header, data := h.ask("POST", path, ann, body)
		var f openai.ErrorBody
		_ = json.Unmarshal(data, &f)
		if f.Error.Param == nil {
			f.Error.Param = new(string)
		}
		if got != status || f.Error.Type != kind || f.Error.Code != code || *f.Error.Param != param || f.Error.Message == "" {
			t.Errorf("%.200s: %d %s, want %d %s %s %s", body, got, data, status, kind, code, param)
		}
		if again := header.Get("x-should-retry"); again != "false" {
			t.Errorf("%.200s: x-should-retry is %q", body, again)
		}
	}
	const chat, responses, invalid = "/v1/chat/completions", "/v1/responses", "invalid_request_error"
	check(chat, chatBody("nobody", ""), 404, invalid, "model_not_found", "model")
	check(chat, chatBody("failing", ""), 502, "server_error", "provider_failed", "")
	check(responses, `{"model":"failing","input":"x"}`, 502, "server_error", "provider_failed", "")
	check(chat, chatBody("hello", `,"nonsense":1`), 400, invalid, "schema_mismatch", "")
	check(chat, chatBody("hello", `,"n":2`), 400, invalid, "bad_request", "n")
	check(chat, `{"model":"hello","messages":[]}`, 400, invalid, "bad_request", "messages")
	check(chat, `{"model":"hello","messages":[{"role":"system","content":"x"}]}`, 400, invalid, "bad_request", "messages")
	for _, model := range []string{"hello", "confer/two"} { // null means absent
		check(chat, `{"model":"`+model+`","messages":null}`, 400, invalid, "bad_request", "")
		check(responses, `{"model":"`+model+`","input":null}`, 400, invalid, "bad_request", "")
	}
	check(responses, `{"model":"hello","input":"x","previous_response_id":"resp_1"}`, 400, invalid, "bad_request", "previous_response_id")
	check(responses, `{"model":"hello","input":"x","conversation":"conv_1"}`, 400, invalid, "bad_request", "conversation")

	// In a stream, an error before the first word is an error of the request.
	check(chat, chatBody("failing", `,"stream":true`), 502, "server_error", "provider_failed", "")
}

func TestV1_Responses(t *testing.T) {
	h := v1House(t)
	ann := h.token("ann", access.Scope{})
	var r openai.Response
	h.want(200, &r, "POST", "/v1/responses", ann, `{"model":"agent/hello","input":"x","metadata":{"a":"b"}}`)
	if r.Object != "response" || r.Status != "completed" || len(r.Output) != 1 ||
		(*r.Output[0].Content)[0].Text != "Hello there." ||
		r.Usage.Total != 13 || string(r.Metadata) != `{"a":"b"}` {
		t.Errorf("%+v", r)
	}
	all := h.events(h.request("POST", "/v1/responses", ann, `{"model":"steps","input":[{"role":"user","content":"x"}],"stream":true}`), nil)
	var order []string
	for i, e := range all {
		var v struct {
			Type     string
			Sequence int `json:"sequence_number"`
		}
		if err := json.Unmarshal([]byte(e.data), &v); err != nil || v.Type != e.name || v.Sequence != i {
			t.Errorf("event %d: %s %s %v", i, e.name, e.data, err)
		}
		if name := strings.TrimPrefix(e.name, "response."); name != "output_text.delta" || order[len(order)-1] != name {
			order = append(order, name)
		}
	}
	message := "output_item.added content_part.added output_text.delta output_text.done content_part.done output_item.done "
	if got := strings.Join(order, " "); got != "created in_progress "+message+message+"completed" {
		t.Errorf("%s", got)
	}
	var last struct{ Response openai.Response }
	if err := json.Unmarshal([]byte(all[len(all)-1].data), &last); err != nil || len(last.Response.Output) != 2 {
		t.Errorf("%+v %v", last, err)
	}
	// A failed request reports the usage until then.
	all = h.events(h.request("POST", "/v1/responses", ann, `{"model":"breaks","input":"x","stream":true}`), nil)
	end := all[len(all)-1]
	if err := json.Unmarshal([]byte(end.data), &last); err != nil || end.name != "response.failed" ||
		last.Response.Usage == nil || last.Response.Usage.Total != 7 {
		t.Errorf("%+v %v", end, err)
	}
}

// A server tool that needs an approval ends the answer with a text. When the client asks again, it gets the answer of
// the run.
func TestV1_Approval(t *testing.T) {
	h := v1House(t)
	ann := h.token("ann", signIn)
	var c openai.ChatCompletion
	body := chatBody("writes", "")
	h.want(200, &c, "POST", "/v1/chat/completions", ann, body, "Idempotency-Key", "k")
	p := c.Toolcrib.Pending
	if *c.Choices[0].Finish != "stop" || p == nil || !strings.Contains(*c.Choices[0].Message.Content, p.ApprovalID) ||
		!strings.Contains(*c.Choices[0].Message.Content, h.url+"/approvals/") ||
		c.Toolcrib.Status != "waiting_for_approval" {
		t.Fatalf("%+v", c)
	}
	h.want(200, nil, "POST", "/api/approvals/"+p.ApprovalID, ann, `{"decision":"approve","digest":"`+p.Digest+`"}`)
	run := c.Toolcrib.RunID
	h.eventually("the same request gets the answer", func() bool {
		c = openai.ChatCompletion{}
		h.want(200, &c, "POST", "/v1/chat/completions", ann, body, "Idempotency-Key", "k")
		return c.Toolcrib.Status == "completed"
	})
	if c.Toolcrib.RunID != run || *c.Choices[0].Message.Content != "done" {
		t.Errorf("%+v", c)
	}
	_, text, _ := h.chunks(h.request("POST", "/v1/chat/completions", ann, chatBody("amends", `,"stream":true`)))
	if !strings.Contains(text, "/approvals/apr_") {
		t.Errorf("%q", text)
	}
}

// A panel is asked like an agent.
func TestV1_Confer(t *testing.T) {
	h := v1House(t)
	ann := h.token("ann", access.Scope{})
	var list server.V1Models
	if h.want(200, &list, "GET", "/v1/models", ann, ""); list.Data[len(list.Data)-1].ID != "confer/two" {
		t.Errorf("%+v", list)
	}
	var c openai.ChatCompletion
	h.want(200, &c, "POST", "/v1/chat/completions", ann, chatBody("confer/two", ""))
	if text := *c.Choices[0].Message.Content; !strings.Contains(text, "Hello there.") ||
		!strings.Contains(text, "Once upon a") {
		t.Errorf("%q", text)
	}
	if c.Usage == nil || c.Usage.Prompt == 0 || c.Usage.Total == 0 { // usage of its agents
		t.Errorf("%+v", c.Usage)
	}
	_, text, end := h.chunks(h.request("POST", "/v1/chat/completions", ann, chatBody("confer/two", `,"stream":true`)))
	if text != *c.Choices[0].Message.Content || end != "[DONE]" {
		t.Errorf("%q, want %q", text, *c.Choices[0].Message.Content)
	}
	h.want(404, nil, "POST", "/v1/chat/completions", ann, chatBody("confer/nobody", ""))
	h.want(400, nil, "POST", "/v1/chat/completions", ann, chatBody("confer/two", `,"temperature":1`))
}

// A repeat is a request with the same key, or a retry, which gets the one run whose answer was not fully sent. Any
// other request is a new one, whatever its body.
func TestV1_Retry(t *testing.T) {
	h := v1House(t)
	h.server.SetRetryWindow(10 * time.Minute)
	ann, bob := h.token("ann", access.Scope{}), h.token("bob", access.Scope{})
	ask := func(token string, head ...string) (c openai.ChatCompletion) {
		t.Helper()
		h.want(200, &c, "POST", "/v1/chat/completions", token, chatBody("slow", ""), head...)
		return c
	}
	atOnce := func(head ...string) map[string]openai.ChatCompletion {
		answers, different := make([]openai.ChatCompletion, 3), map[string]openai.ChatCompletion{}
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i] = ask(ann, head...) })
		}
		all.Wait()
		for _, c := range answers {
			different[c.ID] = c
		}
		return different
	}
	if all := atOnce(); len(all) != 3 {
		t.Errorf("three samples are %d runs", len(all))
	}
	keyed := ask(ann, "Idempotency-Key", "one")
	if all := atOnce("Idempotency-Key", "one"); len(all) != 1 || all[keyed.ID].Created != keyed.Created {
		t.Errorf("%+v, want %s", all, keyed.ID)
	}
	h.want(409, nil, "POST", "/v1/chat/completions", ann, chatBody("hello", ""), "Idempotency-Key", "one")
	if again := ask(ann, "Idempotency-Key", "one", "x-stainless-retry-count", "1"); again.ID != keyed.ID {
		t.Errorf("%s, want %s", again.ID, keyed.ID)
	}

	// An answered request is not repeated. One that was cut off is, by one retry of the same token.
	first := ask(ann, "x-stainless-retry-count", "1")
	h.script("slow.script", "- {text: cut off, delay: 2s}\n")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if res, err := http.DefaultClient.Do(h.request("POST", "/v1/chat/completions", ann,
		chatBody("slow", "")).WithContext(ctx)); err == nil {
		_ = res.Body.Close()
		t.Fatal("it was answered")
	}
	h.script("slow.script", "- {text: another, delay: 400ms}\n")
	if c := ask(bob, "x-stainless-retry-count", "1"); *c.Choices[0].Message.Content != "another" {
		t.Errorf("the request of another user counts: %+v", c)
	}
	if c := ask(ann, "x-stainless-retry-count", "0"); *c.Choices[0].Message.Content != "another" {
		t.Errorf("a first try is taken for a retry: %+v", c)
	}
	texts := ""
	for id, c := range atOnce("x-stainless-retry-count", "1") {
		if texts += *c.Choices[0].Message.Content + " "; id == first.ID {
			t.Errorf("%s was answered before", id)
		}
	}
	if len(texts) != len("cut off another another ") || strings.Count(texts, "cut off") != 1 {
		t.Errorf("the retries: %s", texts)
	}
}

// A repeat of a failed request does not get the failure again: it begins again if nothing took effect, otherwise its
// run continues, so that nothing takes effect twice.
func TestV1_FailedIsRepeated(t *testing.T) {
	h := v1House(t)
	ann := h.token("ann", access.Scope{})
	const path = "/v1/chat/completions"
	count := func(name string) int {
		var list api.RunList
		h.want(200, &list, "GET", "/api/runs?agent="+name, ann, "")
		return len(list.Runs)
	}
	looks := "- text: I look.\n  tool_calls: [{name: list_directory, arguments: {}}]\n"
	for _, keyed := range []bool{true, false} {
		before, head := count("failing"), []string{"x-stainless-retry-count", "1"}
		if keyed {
			head = []string{"Idempotency-Key", "first"}
		}
		h.script("failing.script", "- {error: auth}\n")
		for range 3 {
			h.want(502, nil, "POST", path, ann, chatBody("failing", ""), head...)
		}
		if n := count("failing"); n != before+3 {
			t.Errorf("%v: %d runs", head, n-before)
		}
		h.script("failing.script", "- {text: It works., delay: 200ms}\n")
		var c, again openai.ChatCompletion
		h.want(200, &c, "POST", path, ann, chatBody("failing", ""), head...)
		h.want(200, &again, "POST", path, ann, chatBody("failing", ""), head...)
		if (c.ID == again.ID) != keyed || *again.Choices[0].Message.Content != "It works." {
			t.Errorf("%v: %+v", head, again)
		}

		if before = count("breaks"); keyed {
			head[1] = "second"
		}
		h.script("breaks.script", looks+"- {error: auth}\n")
		for range 2 {
			h.want(502, nil, "POST", path, ann, chatBody("breaks", ""), head...)
		}
		h.script("breaks.script", looks+"- {text: It is empty.}\n")
		h.want(200, &c, "POST", path, ann, chatBody("breaks", ""), head...)
		if *c.Choices[0].Message.Content != "It is empty." {
			t.Errorf("%v: %+v", head, c)
		}
		if n := count("breaks"); n != before+1 {
			t.Errorf("%v: %d runs", head, n-before)
		}

		// A run that has ended is continued by another run.
		if keyed {
			head[1] = "third"
		}
		h.script("breaks.script", looks+"- {error: refused}\n")
		h.want(502, nil, "POST", path, ann, chatBody("breaks", ""), head...)
		h.script("breaks.script", "- {text: Nothing is there.}\n")
		h.want(200, &c, "POST", path, ann, chatBody("breaks", ""), head...)
		var run service.Run
		h.want(200, &run, "GET", "/api/runs/"+string(c.Toolcrib.RunID), ann, "")
		if *c.Choices[0].Message.Content != "Nothing is there." || run.ForkedFrom == "" {
			t.Errorf("%v: %+v", head, run)
		}
		_, _, kept := h.ask("GET", "/api/runs/"+string(run.ID)+"/export", ann, "")
		if text := string(kept); !strings.Contains(text, `"retrying"`) || strings.Contains(text, "reply_empty") {
			t.Errorf("%v: the notice of another failure: %.2000s", head, text)
		}
	}
}

// The run of a client that disconnects ends if the client does not return.
func TestV1_Gone(t *testing.T) {
	h := v1House(t)
	h.server.SetRetryWindow(10 * time.Minute)
	ann := h.token("ann", access.Scope{})
	runs := func() int {
		var list api.RunList
		h.want(200, &list, "GET", "/api/runs", ann, "")
		return len(list.Runs)
	}
	slow := func(name, delay string) {
		text := "- {text: one two three four, delay: " + delay + "}\n"
		if err := os.WriteFile(filepath.Join(h.dir, name+".script"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leave := func(body string, head ...string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		left, before := make(chan error, 1), runs()
		go func() {
			res, err := http.DefaultClient.Do(h.request("POST", "/v1/chat/completions", ann, body, head...).WithContext(ctx))
			if err == nil {
				_ = res.Body.Close()
			}
			left <- err
		}()
		h.eventually("it has begun", func() bool { return runs() > before })
		cancel()
		if err := <-left; err == nil {
			t.Fatal("it was answered")
		}
	}
	status := func() string {
		var run service.Run
		h.want(200, &run, "GET", "/api/runs/last", ann, "")
		return string(run.Status)
	}
	// It returns in time.
	slow("slow", "4s")
	leave(chatBody("slow", ""))
	var c openai.ChatCompletion
	h.want(200, &c, "POST", "/v1/chat/completions", ann, chatBody("slow", ""), "x-stainless-retry-count", "1")
	if *c.Choices[0].Message.Content != "one two three four" {
		t.Errorf("%+v", c)
	}
	if n := runs(); n != 1 {
		t.Errorf("%d runs", n)
	}
	// It does not return; with a key it may return later.
	h.server.SetRetryWindow(100 * time.Millisecond)
	slow("slower", "10m")
	leave(chatBody("slower", ""))
	h.eventually("cancelled", func() bool { return status() == "cancelled" })
	slow("slower", "4s")
	leave(chatBody("slower", ""), "Idempotency-Key", "k")
	h.eventually("completed", func() bool { return status() == "completed" })
}

const weatherTools = `"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`

// turn returns a request with the client's call and its result.
func turn(c openai.ChatCompletion, result, more string) string {
	call, err := json.Marshal(c.Choices[0].Message.Calls[0])
	if err != nil {
		panic(err)
	}
	return `{"model":"weather","messages":[{"role":"user","content":"Berlin?"},{"role":"assistant","content":null,"tool_calls":[` +
		string(call) + `]},{"role":"tool","tool_call_id":"` + c.Choices[0].Message.Calls[0].ID + `","content":"` + result +
		`"}` + more + `],` +
		weatherTools + `}`
}

// A client's calls park the run, and the next request brings their results, once.
func TestV1_ClientTools(t *testing.T) {
	h := v1House(t)
	ann, bob := h.token("ann", access.Scope{}), h.token("bob", access.Scope{})
	const path = "/v1/chat/completions"
	begins := `{"model":"weather","messages":[{"role":"user","content":"Berlin?"}],` + weatherTools + `}`
	var c, again openai.ChatCompletion
	h.want(200, &c, "POST", path, ann, begins, "Idempotency-Key", "k")
	m := c.Choices[0].Message
	if *c.Choices[0].Finish != "tool_calls" || len(m.Calls) != 1 || m.Content != nil ||
		c.Toolcrib.Status != "waiting_for_tool" ||
		m.Calls[0].ID != openai.CallID(c.Toolcrib.RunID, 1) ||
		m.Calls[0].Function != (openai.ChatFunction{Name: "get_weather", Arguments: `{"city":"Berlin"}`}) {
		t.Fatalf("%+v %+v", c, m)
	}
	if h.want(200, &again, "POST", path, ann, begins, "Idempotency-Key", "k"); again.ID != c.ID ||
		again.Choices[0].Message.Calls[0] != m.Calls[0] {
		t.Errorf("%+v is not %+v", again, c)
	}
	if h.want(200, &again, "POST", path, ann, begins); again.Choices[0].Message.Calls[0].ID == m.Calls[0].ID {
		t.Errorf("another request has the same calls: %+v", again)
	}
	// Calls of another user, and unknown ones.
	id := m.Calls[0].ID
	h.want(404, nil, "POST", path, bob, turn(c, "sunny", ""))
	h.want(404, nil, "POST", path, ann, strings.ReplaceAll(turn(c, "sunny", ""), id, openai.CallID(c.Toolcrib.RunID, 2)))
	h.want(404, nil, "POST", path, ann, strings.ReplaceAll(turn(c, "sunny", ""), id,
		"call_run_"+strings.Repeat("0", 26)+"_1"))

	var last openai.ChatCompletion
	h.want(200, &last, "POST", path, ann, turn(c, "sunny", ""))
	if last.Toolcrib.RunID != c.Toolcrib.RunID || last.ID == c.ID ||
		*last.Choices[0].Message.Content != "Sunny in Berlin." || last.Usage.Total != 10 {
		t.Errorf("%+v", last)
	}
	if h.want(200, &again, "POST", path, ann, turn(c, "sunny", "")); again.ID != last.ID ||
		*again.Choices[0].Message.Content != "Sunny in Berlin." {
		t.Errorf("%+v is not %+v", again, last)
	}
	if h.want(200, &again, "POST", path, ann, turn(c, "rainy", "")); again.Toolcrib.RunID == c.Toolcrib.RunID {
		t.Errorf("another result is not read: %+v", again)
	}
	// The first request is still answered with the calls.
	if h.want(200, &again, "POST", path, ann, begins, "Idempotency-Key", "k"); again.ID != c.ID ||
		len(again.Choices[0].Message.Calls) != 1 {
		t.Errorf("%+v is not %+v", again, c)
	}
	// The conversation continues in a new run.
	h.want(200, &again, "POST", path, ann, turn(c, "sunny", `,{"role":"assistant","content":"Sunny."},{"role":"user","content":"Thanks."}`))
	if again.Toolcrib.RunID == c.Toolcrib.RunID {
		t.Errorf("%+v", again)
	}

	// A message after the results is read with them; a stream has the calls as well.
	all, _, _ := h.chunks(h.request("POST", path, ann, strings.Replace(begins, "{", `{"stream":true,`, 1)))
	c.Choices[0].Message = &openai.ChatMsg{Calls: all[len(all)-2].Choices[0].Delta.Calls}
	if *all[len(all)-1].Choices[0].Finish != "tool_calls" || len(c.Choices[0].Message.Calls) != 1 ||
		*c.Choices[0].Message.Calls[0].Index != 0 {
		t.Fatalf("%+v", all)
	}
	h.want(200, &last, "POST", path, ann, turn(c, "sunny", `,{"role":"user","content":"In one word."}`))
	var run service.Run
	h.want(200, &run, "GET", "/api/runs/"+string(last.Toolcrib.RunID), ann, "")
	if len(run.Trace) != 1 || run.Status != "completed" {
		t.Errorf("%+v", run)
	}
	h.want(400, nil, "POST", path, ann, strings.Replace(begins, `"get_weather"`, `"write_file"`, 1))
	h.want(400, nil, "POST", path, ann, strings.Replace(begins, `{"model"`, `{"tool_choice":{"type":"function","function":{"name":"other"}},"model"`, 1))

	var r openai.Response
	h.want(200, &r, "POST", "/v1/responses", ann, `{"model":"weather","input":"Berlin?","tools":[{"type":"function","name":"get_weather","parameters":{"type":"object"},"strict":true}]}`)
	if len(r.Output) != 1 || r.Output[0].Type != "function_call" || *r.Output[0].Arguments != `{"city":"Berlin"}` {
		t.Fatalf("%+v", r)
	}
	item, err := json.Marshal(r.Output[0])
	if err != nil {
		t.Fatal(err)
	}
	h.want(200, &r, "POST", "/v1/responses", ann, `{"model":"weather","input":[{"role":"user","content":"Berlin?"},`+string(item)+
		`,{"type":"function_call_output","call_id":"`+r.Output[0].CallID+`","output":"sunny"}]}`)
	if len(r.Output) != 1 || (*r.Output[0].Content)[0].Text != "Sunny in Berlin." || r.Usage.Total != 10 {
		t.Errorf("%+v", r)
	}
}

// heard returns the messages that a run has read.
func (h *house) heard(run, token string) (all []string) {
	h.t.Helper()
	for _, e := range h.events(h.request("GET", run+"/events", token, ""), func(e event) bool { return e.name == "done" }) {
		if e.name == "user_message" {
			all = append(all, e.data)
		}
	}
	return all
}

// pairTurn returns a request with the results of both calls of the agent pair, and more messages.
func pairTurn(h *house, c openai.ChatCompletion, result, more string) string {
	calls, err := json.Marshal(c.Choices[0].Message.Calls)
	if err != nil {
		h.t.Fatal(err)
	}
	ask := `{"model":"pair","messages":[{"role":"user","content":"Berlin?"},{"role":"assistant","tool_calls":` + string(calls) + `}`
	for _, call := range c.Choices[0].Message.Calls {
		ask += `,{"role":"tool","tool_call_id":"` + call.ID + `","content":"` + result + `"}`
	}
	return ask + more + `],` + weatherTools + `}`
}

// A rejected request adds nothing to the run. One with a result of a call that was answered differently continues the
// run: the first result applies.
func TestV1_AnsweredElsewhere(t *testing.T) {
	h := v1House(t)
	ann := h.token("ann", access.Scope{})
	const path = "/v1/chat/completions"
	var c openai.ChatCompletion
	h.want(200, &c, "POST", path, ann, `{"model":"pair","messages":[{"role":"user","content":"Berlin?"}],`+weatherTools+`}`)
	at := "/api/runs/" + string(c.Toolcrib.RunID)
	h.want(200, nil, "POST", at+"/tool_results", ann, `{"tool_call_id":"call_1","body":"sunny"}`)
	picture := `,{"role":"user","content":[{"type":"text","text":"Look."},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}`
	h.want(400, nil, "POST", path, ann, pairTurn(h, c, "rainy", picture))
	h.want(413, nil, "POST", path, ann, pairTurn(h, c, "rainy", `,{"role":"user","content":"One."},{"role":"user","content":"`+strings.Repeat("a", 70_000)+`"}`))
	h.want(200, &c, "POST", path, ann, pairTurn(h, c, "rainy", `,{"role":"user","content":"In one word."},{"role":"user","content":"Now."}`))
	var run service.Run
	h.want(200, &run, "GET", at, ann, "")
	if string(c.Toolcrib.RunID) != string(run.ID) || !strings.Contains(run.Trace[0].Result, "sunny") ||
		!strings.Contains(run.Trace[1].Result, "rainy") {
		t.Errorf("%+v %+v", c.Toolcrib, run.Trace)
	}
	if got := fmt.Sprint(h.heard(at, ann)); got != `[{"text":"In one word.\n\nNow.","by":"ann"}]` {
		t.Errorf("heard: %s", got)
	}
}

// A request with results for a run that asks for something else is answered by another run, which has the conversation,
// its taint, and its effects; the waiting run is cancelled.
func TestV1_HandOff(t *testing.T) {
	mixed := "- tool_calls: [{name: write_file, arguments: {path: out.txt, content: x}}, {name: read_file, arguments: {path: out.txt}}]\n" +
		"- tool_calls: [{name: get_weather, arguments: {city: Rome}}]\n- text: as it was\n"
	h := openWith(t, `
providers: {mixed: {type: script, file: mixed.script}, other: {type: script, file: other.script}}
agents: {default: {model: mixed/x, system: Be kind., taint: {writes: allow}}, other: {model: other/x}}
tools: {confirm: never, settings: {read_file: {untrusted: true}}}
server: {client_tool_timeout: 1h}
`, map[string]string{"mixed.script": mixed, "other.script": strings.Repeat("- text: other\n", 3)})
	ann := h.token("ann", signIn)
	const format = `"response_format":{"type":"json_object"}`
	const tool = `"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}`
	for _, responses := range []bool{false, true} {
		path := "/v1/chat/completions"
		if responses {
			path = "/v1/responses"
		}
		// body returns a request; if call is "", without results.
		body := func(model, system, tools, more, call, result, said string) string {
			switch {
			case tools != "" && responses:
				tools = `{"type":"function",` + tools + `}`
			case tools != "":
				tools = `{"type":"function","function":{` + tools + `}}`
			}
			items := `{"role":"user","content":"Rome?"}`
			if call != "" && responses {
				items += `,{"type":"function_call","call_id":"` + call + `","name":"get_weather","arguments":"{}"},` +
					`{"type":"function_call_output","call_id":"` + call + `","output":"` + result + `"}`
			} else if call != "" {
				items += `,{"role":"assistant","tool_calls":[{"id":"` + call + `","type":"function","function":{"name":"get_weather","arguments":"{}"}}]},` +
					`{"role":"tool","tool_call_id":"` + call + `","content":"` + result + `"}`
			}
			if said != "" {
				items += `,{"role":"user","content":"` + said + `"}`
			}
			if responses {
				return `{"model":"` + model + `","instructions":"` + system + `","input":[` + items + `],"tools":[` + tools + `]` +
					more + `}`
			}
			return `{"model":"` + model + `","messages":[{"role":"system","content":"` + system + `"},` + items + `],"tools":[` + tools + `]` + more + `}`
		}
		answer := func(body string) (run service.Run) {
			t.Helper()
			var a struct{ Toolcrib openai.Extra }
			h.want(200, &a, "POST", path, ann, body)
			return h.runOf(ann, string(a.Toolcrib.RunID))
		}
		for name, ask := range map[string]func(call string) string{
			"the same": func(call string) string {
				return body("default", "One.", tool, `,"tool_choice":"none"`, call, "sunny", "")
			},
			"the same, and a message": func(call string) string { return body("default", "One.", tool, "", call, "sunny", "Now.") },
			"instructions":            func(call string) string { return body("default", "Two.", tool, "", call, "sunny", "") },
			"instructions, message":   func(call string) string { return body("default", "Two.", tool, "", call, "sunny", "Now.") },
			"no tools":                func(call string) string { return body("default", "One.", "", "", call, "sunny", "") },
			"another tool": func(call string) string {
				return body("default", "One.", strings.ReplaceAll(tool, "city", "town"), "", call, "sunny", "")
			},
			"a format": func(call string) string {
				more := "," + format
				if responses {
					more = `,"text":{"format":{"type":"json_object"}}`
				}
				return body("default", "One.", tool, more, call, "sunny", "")
			},
			"another agent": func(call string) string { return body("other", "One.", tool, "", call, "sunny", "") },
		} {
			h.script("mixed.script", mixed)
			first := answer(body("default", "One.", tool, "", "", "", ""))
			if first.Status != "waiting_for_tool" || len(first.Trace) != 3 || !slices.Contains(first.Taint, "read_file") {
				t.Fatalf("%s: %+v", name, first)
			}
			// Whatever the round of a script: the same write, and the end.
			again := "- tool_calls: [{name: write_file, arguments: {path: out.txt, content: x}}]\n"
			same := strings.HasPrefix(name, "the same")
			if !same && name != "another agent" && name != "no tools" {
				h.script("mixed.script", again+again+again)
			}
			second := answer(ask(openai.CallID(first.ID, 3)))
			first = h.runOf(ann, string(first.ID))
			switch {
			case same:
				if second.ID != first.ID || second.Content != "as it was" {
					t.Errorf("%s: another run: %+v", name, second)
				}
				continue
			case second.ID == first.ID || first.Status != "cancelled":
				t.Errorf("%s: %s (%s) is answered by %s", name, first.ID, first.Status, second.ID)
			case !slices.Contains(second.Taint, "read_file"):
				t.Errorf("%s: the new run is tainted by %q", name, second.Taint)
			case name != "another agent" && name != "no tools" &&
				(second.Pending == nil || !strings.Contains(second.Pending.Reason, "call_1 of "+string(first.ID))):
				t.Errorf("%s: what took effect is done again: %+v %+v", name, second, second.Pending)
			}
			_, _, kept := h.ask("GET", "/api/runs/"+string(second.ID)+"/export", ann, "")
			if text := string(kept); !strings.Contains(text, "sunny") || !strings.Contains(text, `"already_ran"`) {
				t.Errorf("%s: the new run has no conversation, or no notice: %.3000s", name, text)
			}
			// Results for a run that has ended are read by another run as well.
			if third := answer(body("default", "One.", tool, "", openai.CallID(first.ID, 3), "late",
				"")); third.ID == first.ID || third.ID == second.ID {
				t.Errorf("%s: late results: %+v", name, third)
			}
		}
	}
}

// Late results are read by another run, and so are those that a client has edited.
func TestV1_LateResults(t *testing.T) {
	h := v1House(t)
	h.restart("team:", "server: {client_tool_timeout: 1s}\nteam:")
	ann := h.token("ann", access.Scope{})
	const path = "/v1/chat/completions"
	var c, late openai.ChatCompletion
	h.want(200, &c, "POST", path, ann, `{"model":"weather","messages":[{"role":"user","content":"Berlin?"}],`+weatherTools+`}`)
	h.eventually("the time is over", func() bool { return h.runOf(ann, string(c.Toolcrib.RunID)).Status == "completed" })
	for _, said := range []string{"", `,{"role":"user","content":"In one word."}`} {
		h.want(200, &late, "POST", path, ann, turn(c, "sunny", said))
		if late.Toolcrib.RunID == c.Toolcrib.RunID || *late.Choices[0].Message.Content == "" ||
			late.Toolcrib.Status != "completed" {
			t.Errorf("%+v", late)
		}
	}
}

// An agent without tools runs its client's tools, including those with names of tools that the server does not offer
// it, or that were switched off there. If the server offers the tool, the request is rejected.
func TestV1_ClientToolsAlone(t *testing.T) {
	h := openWith(t, "providers: {reads: {type: script, file: reads.script}}\n"+
		"agents:\n  default: {model: reads/x}\n  alone: {model: reads/x, tools: []}\n  other: {model: reads/x, tools: [list_directory]}\n",
		map[string]string{"reads.script": "- {tool_calls: [{name: read_file, arguments: {path: x}}]}\n- {text: Done.}\n"})
	ann := h.token("ann", access.Scope{})
	const path, tools = "/v1/chat/completions", `,"tools":[{"type":"function","function":{"name":"read_file","parameters":{"type":"object"}}}]`
	h.want(400, nil, "POST", path, ann, chatBody("default", tools))
	for _, name := range []string{"alone", "other", "default"} {
		if name == "default" {
			h.want(200, nil, "PUT", "/api/tools/read_file", h.token("boss", signIn), `{"enabled":false}`)
		}
		var c openai.ChatCompletion
		h.want(200, &c, "POST", path, ann, chatBody(name, tools))
		if m := c.Choices[0].Message; len(m.Calls) != 1 || m.Calls[0].Function.Name != "read_file" {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// Of different concurrent requests with results for one run, one continues it and leaves its message there; the others
// leave nothing in it.
func TestV1_AtOnce(t *testing.T) {
	h := v1House(t)
	ann := h.token("ann", access.Scope{})
	const path = "/v1/chat/completions"
	for i := range 5 {
		var c openai.ChatCompletion
		h.want(200, &c, "POST", path, ann, fmt.Sprintf(`{"model":"pair","messages":[{"role":"user","content":"Berlin %d?"}],`, i)+weatherTools+`}`)
		at := "/api/runs/" + string(c.Toolcrib.RunID)
		won := make([]bool, 4)
		var all sync.WaitGroup
		for n := range won {
			body := pairTurn(h, c, fmt.Sprintf("weather %d", n), fmt.Sprintf(`,{"role":"user","content":"message %d"}`, n))
			all.Go(func() {
				status, _, data := h.ask("POST", path, ann, body)
				var answer openai.ChatCompletion
				if err := json.Unmarshal(data, &answer); status != 200 || err != nil {
					t.Errorf("%d %s", status, data)
					return
				}
				won[n] = answer.Toolcrib.RunID == c.Toolcrib.RunID
			})
		}
		all.Wait()
		heard := h.heard(at, ann)
		n := slices.Index(won, true)
		if len(heard) != 1 || n < 0 || slices.Contains(won[n+1:], true) ||
			!strings.Contains(heard[0], fmt.Sprintf("message %d", n)) {
			t.Errorf("%v continued it; it heard %v", won, heard)
		}
	}
}

// Invalid input of a careless or hostile client is an error for it, and affects no other client.
func TestV1_Hostile(t *testing.T) {
	h := v1House(t)
	ann := h.token("ann", access.Scope{})
	many := strings.Repeat(`{"role":"user","content":"x"},{"role":"assistant","content":"y"},`, 500)
	var c openai.ChatCompletion
	h.want(200, &c, "POST", "/v1/chat/completions", ann, `{"model":"hello","messages":[`+many+`{"role":"user","content":"Say hello."}]}`)
	image := `{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		strings.Repeat("A", 2<<20) + `"}}]}`
	h.want(200, &c, "POST", "/v1/chat/completions", ann, `{"model":"hello","messages":[`+image+`]}`)
	h.want(200, &c, "POST", "/v1/chat/completions", ann,
		`{"model":"hello","messages":[`+image+`,{"role":"assistant","content":"A cat."},{"role":"user","content":"Sure?"}]}`)
	for name, body := range map[string]string{
		"deep":     `{"model":"hello","messages":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`,
		"no model": `{"messages":[{"role":"user","content":"x"}]}`,
		"a path":   `{"model":"agent/../../etc/passwd","messages":[{"role":"user","content":"x"}]}`,
		"a key":    `{"model":"hello","model":"x","messages":[{"role":"user","content":"x"}]}`,
		"a schema": chatBody("hello", `,"response_format":{"type":"json_schema","json_schema":{"schema":{"type":7}}}`),
		"a tool":   chatBody("hello", `,"tools":[{"type":"function","function":{"name":"x","parameters":{"type":"array"}}}]`),
		"a name":   chatBody("hello", `,"tools":[{"type":"function","function":{"name":"../x"}}]`),
		"tools":    chatBody("hello", `,"tools":[`+strings.Repeat(`{"type":"function","function":{"name":"x"}},`, 200)+`{}]`),
		"control":  chatBody("hello\\u0000\\u202e", ""),
	} {
		status, _, data := h.ask("POST", "/v1/chat/completions", ann, body)
		if status != 400 && status != 404 {
			t.Errorf("%s: %d %.300s", name, status, data)
		}
	}
	h.want(200, &c, "POST", "/v1/chat/completions", ann, chatBody("hello", ""))
	// A keyword of a client tool's schema that cannot be checked is not an error.
	for _, odd := range []string{
		`"pattern":"^(?!x)"`, `"required":true`, `"description":null`, `"type":"any"`, `"$ref":"#/gone"`,
		`"exclusiveMinimum":true`,
	} {
		h.want(200, &c, "POST", "/v1/chat/completions", ann, chatBody("hello", `,"tools":[{"type":"function","function":{"name":"x",`+
			`"parameters":{"type":"object","properties":{"a":{`+odd+`}}}}}]`))
	}
}

// A restarted server knows the requests of before: its clients ask again at once.
func TestV1_Restart(t *testing.T) {
	h := v1House(t)
	ann, bob := h.token("ann", access.Scope{}), h.token("bob", access.Scope{})
	const path = "/v1/chat/completions"
	var calls, c openai.ChatCompletion
	h.want(200, &calls, "POST", path, ann, `{"model":"weather","messages":[{"role":"user","content":"Berlin?"}],`+weatherTools+`}`)
	h.want(200, &c, "POST", path, ann, turn(calls, "sunny", ""))
	ended := c.ID
	h.script("slower.script", never)
	client := &http.Client{Timeout: 200 * time.Millisecond}
	if res, err := client.Do(h.request("POST", path, ann, chatBody("slower", ""))); err == nil {
		_ = res.Body.Close()
		t.Fatal("it was answered")
	}
	h.script("slower.script", "- {text: at last}\n")
	h.restart("", "")
	if h.want(200, &c, "POST", path, ann, chatBody("slower", ""), "x-stainless-retry-count",
		"1"); *c.Choices[0].Message.Content != "at last" {
		t.Errorf("%+v", c)
	}
	var list api.RunList
	if h.want(200, &list, "GET", "/api/runs?agent=slower", ann, ""); len(list.Runs) != 1 {
		t.Errorf("%d runs", len(list.Runs))
	}
	h.want(200, &c, "POST", path, bob, chatBody("slower", ""))
	if c.Toolcrib.RunID == list.Runs[0].ID {
		t.Error("the run of another user")
	}
	h.want(200, &c, "POST", path, ann, turn(calls, "sunny", ""))
	if c.ID != ended || *c.Choices[0].Message.Content != "Sunny in Berlin." || c.Usage.Total != 10 {
		t.Errorf("%+v is not %s", c, ended)
	}
	// So is one whose results came with a message; another message is another request.
	said := `,{"role":"user","content":"In one word."}`
	var begun, first openai.ChatCompletion
	h.want(200, &begun, "POST", path, ann, `{"model":"weather","messages":[{"role":"user","content":"Berlin again?"}],`+weatherTools+`}`)
	h.want(200, &first, "POST", path, ann, turn(begun, "sunny", said))
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h.start()
	if h.want(200, &c, "POST", path, ann, turn(begun, "sunny", said)); c.ID != first.ID {
		t.Errorf("%+v is not %+v", c, first)
	}
	if h.want(200, &c, "POST", path, ann, turn(begun, "sunny", `,{"role":"user","content":"In two words."}`)); c.ID == first.ID {
		t.Errorf("%+v", c)
	}
	for _, another := range []string{"rainy", "sun", "", "untrusted"} {
		if h.want(200, &c, "POST", path, ann, turn(calls, another, "")); c.Toolcrib.RunID == calls.Toolcrib.RunID {
			t.Errorf("%q: %+v", another, c)
		}
	}
}

// Requests beyond the bound push out the oldest, and are answered.
func TestV1_ManyRequests(t *testing.T) {
	h := v1House(t)
	h.server.KeepRequests(2)
	ann := h.token("ann", access.Scope{})
	for i := range 4 {
		h.want(200, nil, "POST", "/v1/chat/completions", ann, chatBody("hello", ""), "Idempotency-Key",
			strings.Repeat("k", i+1))
	}
	if n := h.server.Kept(); n != 2 {
		t.Errorf("%d are kept", n)
	}
}
