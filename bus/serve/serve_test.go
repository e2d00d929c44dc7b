package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// request returns a call by the user of the tests.
func request(t *testing.T, name, params, input string) bus.Request {
	t.Helper()
	parsed, err := bus.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	r := bus.Request{Name: parsed, Input: json.RawMessage(input), From: bus.Hop{User: root.User, Trust: toolcrib.TrustAnchor}}
	if params != "" {
		r.Params = json.RawMessage(params)
	}
	return r
}

// frames reads the frames of a call until its end, and calls on for each.
func frames(t *testing.T, x *bus.Exchange, on func(bus.Frame)) json.RawMessage {
	t.Helper()
	for {
		f, err := x.Recv(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		on(f)
	}
	out, err := x.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const chatOffer = `bus: {offers: {llm.chat@2.0: {agent: default, params: {model: [play/y]}}}}`

const chatScript = `
- {text: "I search.", tool_calls: [{name: rag_query, arguments: {query: Regenwasser, corpus: notes}}]}
- {text: "In barrels.", usage: {input: 30, output: 3}}
`

const chatTools = `"tools":[{"name":"rag_query","description":"Search.","parameters_schema":{"type":"object","properties":{"query":{"type":"string"}}}}]`

const question = `{"role":"user","content":"Where?"}`

type chatDone struct {
	Output struct {
		Message struct{ Role, Content string }
		Calls   []struct {
			ID, Name  string
			Arguments json.RawMessage
		} `json:"tool_calls"`
	}
	Meta struct {
		StopReason string `json:"stop_reason"`
		TokensOut  int64  `json:"tokens_out"`
		MS         int64
	}
}

// H11, H12: the frames of a call, and both ways in which results of tools reach the model.
func TestH12_BothWays(t *testing.T) {
	h := open(t, t.TempDir(), script+chatOffer, map[string]string{"script.yaml": chatScript})
	ask := func(version, rest string) (*bus.Exchange, error) {
		return h.node.Open(t.Context(), request(t, "llm.chat@"+version, "", `{`+rest+`,`+chatTools+`}`))
	}
	read := func(x *bus.Exchange, on func(id string)) (said string, done chatDone) {
		t.Helper()
		deltas, whole, order := map[string]string{}, map[string]string{}, ""
		raw := frames(t, x, func(f bus.Frame) {
			var d struct {
				Text, ID, Name string
				Delta          string `json:"arguments_delta"`
				Arguments      json.RawMessage
			}
			if err := json.Unmarshal(f.Data, &d); err != nil {
				t.Fatal(err)
			}
			switch f.Event {
			case "token":
				said += d.Text
			case "tool_call_delta":
				deltas[d.ID] += d.Delta
			case "tool_call":
				whole[d.ID] = string(d.Arguments)
				if on != nil {
					on(d.ID)
				}
			}
			if f.Event != "notice" && !strings.HasSuffix(order, f.Event+" ") {
				order += f.Event + " "
			}
		})
		for id, arguments := range whole {
			if compactJSON(t, deltas[id]) != arguments {
				t.Errorf("the pieces of %s are %q, and the call has %q", id, deltas[id], arguments)
			}
		}
		if err := json.Unmarshal(raw, &done); err != nil {
			t.Fatal(err)
		}
		if len(whole) > 0 && !strings.HasPrefix(order, "token tool_call_delta tool_call ") {
			t.Errorf("the frames come as %s", order)
		}
		return said, done
	}
	x, err := ask("2.0", `"messages":[`+question+`],"tool_results":"stream"`)
	if err != nil {
		t.Fatal(err)
	}
	_, streamed := read(x, func(id string) {
		body := `{"tool_call_id":"` + id + `","body":` + chunks + `}`
		if err := x.Send(t.Context(), bus.Frame{Event: "tool_result", Data: json.RawMessage(body)}); err != nil {
			t.Error(err)
		}
	})
	if x, err = ask("1.0", `"messages":[`+question+`]`); err != nil {
		t.Fatal(err)
	}
	said, first := read(x, nil)
	if said != "I search." || first.Meta.StopReason != "tool_calls" || len(first.Output.Calls) != 1 {
		t.Fatalf("%q, %+v", said, first)
	}
	c := first.Output.Calls[0]
	messages := `"messages":[` + question + `,{"role":"assistant","content":"I search.","tool_calls":[{"id":"` + c.ID + `","name":"` + c.Name +
		`","arguments":` + string(c.Arguments) + `}]},{"role":"tool","tool_call_id":"` + c.ID + `","content":` + chunks + `}]`
	if x, err = ask("1.0", messages); err != nil {
		t.Fatal(err)
	}
	said, again := read(x, nil)
	for what, done := range map[string]chatDone{"by frames": streamed, "by a second call": again} {
		if done.Output.Message.Content != "In barrels." || done.Meta.StopReason != "end" || done.Meta.TokensOut != 3 {
			t.Errorf("%s: %+v", what, done)
		}
	}
	if said != "In barrels." {
		t.Errorf("the second call says %q", said)
	}
	runs, _, err := h.Runs(t.Context(), root, service.RunsQuery{})
	if err != nil || len(runs) != 2 {
		t.Errorf("two conversations are %d runs, %v", len(runs), err)
	}
	// A history that this node did not make is a conversation of its own.
	foreign := strings.ReplaceAll(messages, c.ID, "tc_1")
	if x, err = ask("2.0", foreign); err != nil {
		t.Fatal(err)
	}
	if _, done := read(x, nil); done.Output.Message.Content != "In barrels." {
		t.Errorf("another history: %+v", done)
	}
}

// H13, H14, H21: what is asked for and cannot be.
func TestH13_Requests(t *testing.T) {
	h := open(t, t.TempDir(), `
providers: {play: {type: script, file: "DIR/script.yaml"}}
models: {bare: {provider: play, model: bare, tools: none}}
agents: {default: {model: play/x}, bare: {model: bare}}
bus: {offers: {llm.chat@2.0: {agent: default, params: {model: [bare, play/y]}}}}
`, map[string]string{"script.yaml": `- {text: "Plain."}`})
	for i, tt := range []struct {
		what, params, input string
		code                toolcrib.Code
		want, notice        string // want is the answer, or a part of the error
	}{
		{"none", "", `{"messages":[` + question + `],"tool_choice":"none",` + chatTools + `}`, "", "Plain.", ""},
		{"another model", `{"model":"play/y"}`, `{"messages":[` + question + `]}`, "", "Plain.", ""},
		{"without frames", "", `{"messages":[` + question + `],"stream":false}`, "", "Plain.", "-"},
		{"a model without tools", `{"model":"bare"}`, `{"messages":[` + question + `],` + chatTools + `}`, "", "Plain.", "tools_ignored"},
		{"required of it", `{"model":"bare"}`, `{"messages":[` + question + `],"tool_choice":"required",` + chatTools + `}`, "", "Plain.", "tools_ignored"},
		{"a stop text", "", `{"messages":[` + question + `],"stop":["ai"]}`, "", "Pl", ""},
		{"params and fields that are not used", `{"ctx":4096,"modalities":["text"]}`, `{"messages":[` + question + `],"top_p":0.9,"seed":1}`, "", "Plain.", ""},
		{"a tool that is not declared", "", `{"messages":[` + question + `],"tool_choice":{"name":"other"},` + chatTools + `}`, toolcrib.CodeBadRequest, "no tool \"other\"", ""},
		{"required without tools", "", `{"messages":[` + question + `],"tool_choice":"required"}`, toolcrib.CodeBadRequest, "required needs tools", ""},
		{"a tool without tools", "", `{"messages":[` + question + `],"tool_choice":{"name":"other"}}`, toolcrib.CodeBadRequest, "no tool \"other\"", ""},
		{"a misspelt field", "", `{"messages":[` + question + `],"max_token":7}`, toolcrib.CodeBadRequest, `unknown field "max_token"`, ""},
		{"a misspelt field of a message", "", `{"messages":[{"role":"user","contents":"Where?"}]}`, toolcrib.CodeBadRequest, `"contents"`, ""},
		{"a misspelt param", `{"modle":"play/y"}`, `{"messages":[` + question + `]}`, toolcrib.CodeBadRequest, `"modle" of params`, ""},
		{"a field of another type", "", `{"messages":[` + question + `],"max_tokens":"7"}`, toolcrib.CodeBadRequest, "input.max_tokens: has the wrong type: string", ""},
		{"a model that is not offered", `{"model":"play/z"}`, `{"messages":[` + question + `]}`, toolcrib.CodeNotFound, "", ""},
		{"no messages", "", `{"messages":[]}`, toolcrib.CodeBadRequest, "", ""},
		{"a result without a call", "", `{"messages":[` + question + `,{"role":"tool","tool_call_id":"x","content":"y"}]}`, toolcrib.CodeBadRequest, "", ""},
		{"a name with a dot", "", `{"messages":[` + question + `],"tools":[{"name":"rag.query"}]}`, toolcrib.CodeBadRequest, "", ""},
	} {
		version := []string{"1.0", "2.0"}[i%2]
		x, err := h.node.Open(t.Context(), request(t, "llm.chat@"+version, tt.params, tt.input))
		var out json.RawMessage
		var seen []string
		for err == nil {
			var f bus.Frame
			if f, err = x.Recv(t.Context()); err == nil {
				seen = append(seen, f.Event+string(f.Data))
			}
		}
		if errors.Is(err, io.EOF) {
			out, err = x.Result(t.Context())
		}
		if toolcrib.CodeOf(err) != tt.code || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q %q", tt.what, err, tt.code, tt.want)
		}
		var done chatDone
		if err == nil && (json.Unmarshal(out, &done) != nil || done.Output.Message.Content != tt.want) {
			t.Errorf("%s: %s", tt.what, out)
		}
		if stopped := done.Meta.StopReason == "stop_sequence"; stopped != (tt.what == "a stop text") {
			t.Errorf("%s: it ends with %s", tt.what, done.Meta.StopReason)
		}
		all := strings.Join(seen, " ")
		if tt.notice == "-" && len(seen) > 0 || tt.notice != "-" && !strings.Contains(all, tt.notice) {
			t.Errorf("%s: the frames are %s", tt.what, all)
		}
	}
}

// A call that waits for a person says so. When it is made again after the decision, with its ID, it gets the result of the
// same run: nothing is done twice, also after a restart.
func TestH16_CallThatWaits(t *testing.T) {
	dir, post := t.TempDir(), toolcribtest.Writer("post", "posted")
	const text = script + `bus: {offers: {market.post@1.0: {tool: post, timeout: 2s}}}`
	h := open(t, dir, text, map[string]string{"script.yaml": `- {text: x}`}, post)
	r := request(t, "market.post@1.0", "", `{"title":"Beans"}`)
	r.ID = "call-1"
	x, err := h.node.Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	f, err := x.Recv(t.Context())
	if err != nil || f.Event != "confirmation_required" || !strings.Contains(string(f.Data), `"approval_id":"apr_`) {
		t.Fatalf("%s %s, %v", f.Event, f.Data, err)
	}
	if _, err := x.Result(t.Context()); toolcrib.CodeOf(err) != toolcrib.CodeTimeout {
		t.Fatalf("nobody decides: %v", err)
	}
	runs, _, err := h.Runs(t.Context(), root, service.RunsQuery{})
	if err != nil || len(runs) != 1 || runs[0].Status != toolcrib.StatusWaitingForApproval {
		t.Fatalf("%+v, %v", runs, err)
	}
	h.stop()
	h = open(t, dir, text, nil, post)
	h.decide(t, runs[0].ID, journal.DecisionApprove)
	for range 2 {
		out, err := h.node.Call(t.Context(), r)
		if err != nil || string(out) != `"posted"` {
			t.Errorf("made again: %s, %v", out, err)
		}
	}
	if n := len(post.Calls()); n != 1 {
		t.Errorf("it was done %d times", n)
	}
	other := r
	other.Input = json.RawMessage(`{"title":"Peas"}`)
	if _, err := h.node.Call(t.Context(), other); toolcrib.CodeOf(err) != toolcrib.CodeConflict {
		t.Errorf("another call with the ID: %v", err)
	}
}

// A canceled call ends its run; its tool is told within 200 ms, which no test can measure on a loaded machine.
func TestCancel(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	slow := toolcribtest.NewTool(toolcribtest.ToolOptions{
		Spec: toolcrib.Spec{Name: "slow", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go"},
		Do: func(ctx context.Context, _ toolcrib.Call) (toolcrib.Output, error) {
			close(began)
			<-ctx.Done()
			close(ended)
			return toolcrib.Output{}, ctx.Err()
		},
	})
	h := open(t, t.TempDir(), script+`bus: {offers: {test.slow@1.0: {tool: slow}}}`, map[string]string{"script.yaml": `- {text: x}`}, slow)
	x, err := h.node.Open(t.Context(), request(t, "test.slow@1.0", "", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	<-began
	x.Cancel()
	<-ended
	waittest.Until(t, "the run is cancelled", func() bool {
		runs, _, err := h.Runs(t.Context(), root, service.RunsQuery{})
		return err == nil && len(runs) == 1 && runs[0].Status == toolcrib.StatusCancelled
	})
}

// H20, H21
func TestH20_ToolsCall(t *testing.T) {
	c := corpus()
	bad := toolcribtest.NewTool(toolcribtest.ToolOptions{
		Spec: toolcrib.Spec{Name: "bad", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go"},
		Do: func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{}, toolcrib.Failf(toolcrib.ExecutionFailed, "the disk is full")
		},
	})
	broken := toolcribtest.NewTool(toolcribtest.ToolOptions{
		Spec: toolcrib.Spec{Name: "broken", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go"},
		Do: func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{}, errors.New("a secret path")
		},
	})
	h := open(t, t.TempDir(), script+`
bus:
  offers:
    rag.query@1.0:
      tool: corpus
      request: {type: object, properties: {input: {type: object, required: [query]}}, required: [input]}
    test.bad@1.0: {tool: bad}
    test.broken@1.0: {tool: broken}
    test.gone@1.0: {tool: nothing}
`, map[string]string{"script.yaml": `- {text: x}`}, c, bad, broken)
	call := func(target, body string) (string, error) {
		out, err := h.node.Call(t.Context(), request(t, "llm.tools.call@1.0", "{}", `{"tool_call_id":"tc_1","target_capability":"`+target+`","target_body":`+body+`}`))
		return string(out), err
	}
	if out, err := call("rag.query@1.0", `{"params":{"corpus":"notes"},"input":{"query":"rain"}}`); err != nil || out != compactJSON(t, chunks) {
		t.Errorf("%s, %v", out, err)
	}
	if calls := c.Calls(); len(calls) != 1 || string(calls[0].Arguments) != `{"corpus":"notes","query":"rain"}` || calls[0].Principal.Admin {
		t.Errorf("%+v", calls)
	}
	for what, tt := range map[string]struct {
		target, body string
		code         toolcrib.Code
		message      string // the beginning
	}{
		"a body that does not fit":    {"rag.query@1.0", `{"input":{}}`, toolcrib.CodeBadRequest, "target_body does not fit the schema of rag.query@1.0: invalid_arguments: /input"},
		"a body with other fields":    {"rag.query@1.0", `{"query":"rain"}`, toolcrib.CodeSchemaMismatch, ""},
		"an unknown capability":       {"no.such@1.0", `{}`, toolcrib.CodeNotFound, ""},
		"a newer version":             {"rag.query@1.7", `{"input":{"query":"rain"}}`, toolcrib.CodeNotFound, ""},
		"no version":                  {"rag.query", `{}`, toolcrib.CodeBadRequest, `the capability "rag.query": write NAME@MAJOR.MINOR`},
		"a tool that fails":           {"test.bad@1.0", `{"input":{}}`, toolcrib.CodeInternal, "execution failed: the disk is full"},
		"a tool that is not there":    {"test.gone@1.0", `{"input":{}}`, toolcrib.CodeForbidden, ""},
		"arguments that do not fit":   {"rag.query@1.0", `{"input":{"query":7}}`, toolcrib.CodeBadRequest, "invalid_arguments: "},
		"a tool that breaks":          {"test.broken@1.0", `{"input":{}}`, toolcrib.CodeInternal, `tool "broken" failed`},
		"the same argument two times": {"rag.query@1.0", `{"params":{"query":"a"},"input":{"query":"b"}}`, toolcrib.CodeBadRequest, ""},
	} {
		out, err := call(tt.target, tt.body)
		var e *toolcrib.Error
		if !errors.As(err, &e) || e.Code != tt.code || !strings.HasPrefix(e.Message, tt.message) {
			t.Errorf("%s: %s, %v, want %q %q", what, out, err, tt.code, tt.message)
		}
		if tt.code == toolcrib.CodeInternal && (e == nil || e.Ref == "" || strings.Contains(e.Message, "secret")) {
			t.Errorf("%s: %+v", what, e)
		}
	}
	if n := len(c.Calls()); n != 1 {
		t.Errorf("the target was called %d times", n)
	}
}

func compactJSON(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
