package gemini_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/gemini"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// answer sends req to a model that answers with reply.
func answer(t *testing.T, req *toolcrib.Request, status int, reply string) (toolcrib.Reply, error) {
	t.Helper()
	o := gemini.Options{}
	o.Transport, o.NoStream = &recorder{reply: []byte(reply), status: status}, true
	m, err := gemini.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return modeltest.Collect(t.Context(), m, req)
}

// adopted changes a reply as the loop does: it sets the name of the model that reasoned.
func adopted(r toolcrib.Reply, model string) toolcrib.Message {
	for i := range r.Message.Parts {
		if p := &r.Message.Parts[i]; p.Thinking != nil {
			p.Thinking.Model = "google/" + model
		}
	}
	return r.Message
}

// Each recorded turn is sent back unchanged, part by part with its signatures, to
// the model that made it; another model gets none of them.
func TestSignaturesGoBackExactly(t *testing.T) {
	const (
		one = `"thoughtSignature":"c2lnbmF0dXJlLW9uZQ=="`
		two = `"thoughtSignature":"c2lnbmF0dXJlLXR3bw=="`
	)
	for name, parts := range map[string]string{
		"call":           `{"functionCall":{"name":"f","args":{"a":1}},` + one + `}`,
		"parallel":       `{"functionCall":{"id":"x1","name":"f","args":{}},` + one + `},{"functionCall":{"id":"x2","name":"g","args":{}}}`,
		"both signed":    `{"functionCall":{"id":"x1","name":"f","args":{}},` + one + `},{"functionCall":{"id":"x2","name":"g","args":{}},` + two + `}`,
		"signed text":    `{"text":"It is "},{"text":"fünf.",` + one + `}`,
		"first signed":   `{"text":"It is ",` + one + `},{"text":"five."}`,
		"empty at end":   `{"text":"It is."},{"text":"",` + one + `}`,
		"empty first":    `{"text":"",` + one + `},{"text":"It is."}`,
		"two texts":      `{"text":"a",` + one + `},{"text":"b",` + two + `}`,
		"text and call":  `{"text":"Let me see.",` + one + `},{"functionCall":{"name":"f","args":{}},` + two + `}`,
		"signed thought": `{"text":"hm","thought":true,` + one + `},{"functionCall":{"name":"f","args":{}},` + two + `}`,
		"empty and call": `{"text":"",` + one + `},{"functionCall":{"name":"f","args":{}},` + two + `}`,
	} {
		for _, model := range []string{"gemini-3-pro-preview", "gemini-2.5-flash"} {
			reply, err := answer(t, modeltest.Request("q"), 200, `{"candidates":[{"content":{"parts":[`+parts+`],"role":"model"},"finishReason":"STOP"}]}`)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(reply.Message.Text(), "signature") {
				t.Errorf("%s: a signature in the text %q", name, reply.Message.Text())
			}
			made := modeltest.Request("q")
			made.Model = model
			reply, err = answer(t, made, 200, `{"candidates":[{"content":{"parts":[`+parts+`],"role":"model"},"finishReason":"STOP"}]}`)
			if err != nil {
				t.Fatal(err)
			}
			made.Messages = append(made.Messages, adopted(reply, model))
			if calls := reply.Message.ToolCalls(); len(calls) > 0 {
				results := toolcrib.Message{Role: toolcrib.RoleTool}
				for _, c := range calls {
					results.Parts = append(results.Parts, toolcrib.Part{ToolResult: &toolcrib.ToolResult{CallID: c.ID, Name: c.Name, Content: "ok"}})
				}
				made.Messages = append(made.Messages, results)
			}
			r, _ := send(t, gemini.Options{}, made)
			if !bytes.Contains(r.body, []byte(`{"role":"model","parts":[`+parts+`]}`)) {
				t.Errorf("%s of %s went back as\n%s\nwant\n%s", name, model, r.body, parts)
			}
			made.Model = "gemini-3.5-flash"
			if r, _ := send(t, gemini.Options{}, made); bytes.Contains(r.body, []byte("c2lnb")) {
				t.Errorf("%s: another model got a signature: %s", name, r.body)
			}
		}
	}
}

func TestSignatures_ForeignCallsGetTheDocumentedStandIn(t *testing.T) {
	req := modeltest.Request("q")
	req.Messages = append(
		req.Messages,
		toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{
			{ToolCall: &toolcrib.ToolCall{ID: "a", Name: "f", Signature: "fc_123"}}, {ToolCall: &toolcrib.ToolCall{ID: "b", Name: "f"}},
		}},
		toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{{ToolResult: &toolcrib.ToolResult{CallID: "a", Name: "f"}}, {ToolResult: &toolcrib.ToolResult{CallID: "b", Name: "f"}}}},
	)
	for model, want := range map[string]int{"gemini-3-flash-preview": 1, "gemini-flash-latest": 1, "gemini-2.5-pro": 0, "other": 0} {
		req.Model = model
		r, _ := send(t, gemini.Options{}, req)
		if got := bytes.Count(r.body, []byte(`"thoughtSignature":"skip_thought_signature_validator"`)); got != want ||
			bytes.Contains(r.body, []byte("fc_123")) {
			t.Errorf("%s: %d stand-ins, want %d: %s", model, got, want, r.body)
		}
	}
}

// A call that the API could not read reaches the loop as a broken call, which the
// model can fix; it does not end the run like an empty reply.
func TestMalformedFunctionCall(t *testing.T) {
	const reply = `{"candidates":[{"content":{},"finishReason":"MALFORMED_FUNCTION_CALL","finishMessage":"Malformed function call: print(default_api.get_weather(city='Paris'))"}]}`
	req := modeltest.Request("q")
	req.Tools = []toolcrib.Spec{{Name: "get_time"}, {Name: "get_weather"}}
	r, err := answer(t, req, 200, reply)
	if err != nil {
		t.Fatal(err)
	}
	calls := r.Message.ToolCalls()
	if len(calls) != 1 || calls[0].Name != "get_weather" || !strings.Contains(string(calls[0].Arguments), "print(") || json.Valid(calls[0].Arguments) || r.Finish.Reason != toolcrib.FinishToolCalls {
		t.Errorf("reply %+v, calls %+v", r, calls)
	}
	if got := codes(r); len(got) != 1 || got[0] != gemini.NoticeStopped {
		t.Errorf("notices %v", got)
	}
	r, err = answer(t, req, 200, `{"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL"}]}`)
	if err != nil || len(r.Message.ToolCalls()) != 1 || r.Message.ToolCalls()[0].Name != "" {
		t.Errorf("without a message: reply %+v, error %v", r, err)
	}
	req.Tools = nil
	if r, err = answer(t, req, 200, reply); err != nil || len(r.Message.Parts) != 0 ||
		r.Finish.Reason != toolcrib.FinishOther {
		t.Errorf("without tools: reply %+v, error %v", r, err)
	}
}

func TestFinishReasons(t *testing.T) {
	for reason, want := range map[string]toolcrib.FinishReason{
		"STOP": toolcrib.FinishStop, "MAX_TOKENS": toolcrib.FinishLength, "SAFETY": toolcrib.FinishFiltered, "RECITATION": toolcrib.FinishFiltered,
		"BLOCKLIST": toolcrib.FinishFiltered, "PROHIBITED_CONTENT": toolcrib.FinishFiltered, "SPII": toolcrib.FinishFiltered, "LANGUAGE": toolcrib.FinishFiltered,
		"OTHER": toolcrib.FinishOther, "UNEXPECTED_TOOL_CALL": toolcrib.FinishOther, "TOO_MANY_TOOL_CALLS": toolcrib.FinishOther, "SOMETHING_NEW": toolcrib.FinishOther,
	} {
		r, err := answer(t, modeltest.Request("q"), 200, `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"`+reason+`","finishMessage":"said so"}]}`)
		if err != nil || r.Finish.Reason != want {
			t.Errorf("%s: reason %s, error %v", reason, r.Finish.Reason, err)
		}
		told := len(codes(r)) == 1 && strings.Contains(r.Finish.Notices[0].Message, reason+": said so")
		if told != (want == toolcrib.FinishFiltered || want == toolcrib.FinishOther) {
			t.Errorf("%s: notices %v", reason, r.Finish.Notices)
		}
	}
	r, err := answer(t, modeltest.Request("q"), 200, `{"promptFeedback":{"blockReason":"SAFETY"}}`)
	if err != nil || r.Finish.Reason != toolcrib.FinishFiltered ||
		!strings.Contains(r.Finish.Notices[0].Message, "SAFETY") {
		t.Errorf("blocked prompt: %+v, error %v", r.Finish, err)
	}
	if _, err := answer(t, modeltest.Request("q"), 200, `{"candidates":[{"finishReason":"FINISH_REASON_UNSPECIFIED"}]}`); err == nil {
		t.Error("a reply without a reason counts as whole")
	}
}

func TestErrors(t *testing.T) {
	status := func(code int, status, message, details string) string {
		return `{"error":{"code":` + string(rune('0'+code/100)) + `00,"message":"` + message + `","status":"` + status + `","details":[` + details + `]}}`
	}
	for name, tt := range map[string]struct {
		status  int
		body    string
		class   toolcrib.ErrorClass
		wait    time.Duration
		noTools bool
	}{
		"bad key":            {status: 400, body: status(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}`), class: toolcrib.ErrAuth},
		"too long":           {status: 400, body: status(400, "INVALID_ARGUMENT", "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).", ""), class: toolcrib.ErrContextLength},
		"too long in a list": {status: 400, body: "[" + status(400, "INVALID_ARGUMENT", "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).", "") + "]", class: toolcrib.ErrContextLength},
		"quota": {
			status: 429, body: status(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota. Please retry in 34.07s.", `{"@type":"type.googleapis.com/google.rpc.QuotaFailure"},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay" : "34.5s"}`),
			class: toolcrib.ErrRateLimit, wait: 34500 * time.Millisecond,
		},
		"endless wait":     {status: 429, body: status(429, "RESOURCE_EXHAUSTED", "slow down", `{"retryDelay":"9e99s"}`), class: toolcrib.ErrRateLimit, wait: 24 * time.Hour},
		"odd wait":         {status: 429, body: status(429, "RESOURCE_EXHAUSTED", "slow down", `{"retryDelay":"soon"}`), class: toolcrib.ErrRateLimit},
		"no functions":     {status: 400, body: status(400, "INVALID_ARGUMENT", "Function calling is not enabled for models/gemma-3-27b-it", ""), class: toolcrib.ErrBadRequest, noTools: true},
		"not with JSON":    {status: 400, body: status(400, "INVALID_ARGUMENT", "Function calling with a response mime type: 'application/json' is unsupported", ""), class: toolcrib.ErrBadRequest},
		"other":            {status: 400, body: status(400, "INVALID_ARGUMENT", "Invalid value at contents", ""), class: toolcrib.ErrBadRequest},
		"cancelled":        {status: 499, body: status(499, "CANCELLED", "The operation was cancelled.", ""), class: toolcrib.ErrOverloaded},
		"deadline":         {status: 504, body: status(504, "DEADLINE_EXCEEDED", "Deadline expired", ""), class: toolcrib.ErrTimeout},
		"overloaded":       {status: 503, body: status(503, "UNAVAILABLE", "The model is overloaded.", ""), class: toolcrib.ErrOverloaded},
		"leaked key":       {status: 403, body: status(403, "PERMISSION_DENIED", "Your API key was reported as leaked.", ""), class: toolcrib.ErrAuth},
		"inside, no code":  {status: 200, body: `{"error":{"message":"busy","status":"UNAVAILABLE"}}`, class: toolcrib.ErrOverloaded},
		"inside, code 429": {status: 200, body: `{"error":{"code":429,"message":"busy","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"2s"}]}}`, class: toolcrib.ErrRateLimit, wait: 2 * time.Second},
	} {
		_, err := answer(t, modeltest.Request("q"), tt.status, tt.body)
		var e *toolcrib.ModelError
		if !errors.As(err, &e) {
			t.Errorf("%s: error %v", name, err)
			continue
		}
		if e.Class != tt.class || e.RetryAfter != tt.wait || e.NoTools != tt.noTools {
			t.Errorf("%s: class %s, wait %s, no tools %t (%v)", name, e.Class, e.RetryAfter, e.NoTools, err)
		}
	}
}

// files opens files by their ref.
// pngHead is the beginning of an image, because the type of a file is checked.
const pngHead = "\x89PNG\r\n\x1a\n"

func files(_ context.Context, ref string) ([]byte, error) {
	switch ref {
	case "gone":
		return nil, toolcrib.ErrNotFound
	case "huge":
		return append([]byte(pngHead), make([]byte, toolcrib.MaxFileBytes)...), nil
	case "large":
		return append([]byte(pngHead), make([]byte, toolcrib.MaxFileBytes-len(pngHead))...), nil
	case "r1":
		return []byte(pngHead + "data of r1"), nil
	case "empty":
		return nil, nil
	}
	return []byte("data of " + ref), nil
}

func TestFiles(t *testing.T) {
	const inline = `{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgpkYXRhIG9mIHIx"}}`
	file := func(ref, kind string) toolcrib.File {
		return toolcrib.File{Ref: ref, MediaType: kind, Name: "n.bin"}
	}
	part := func(f toolcrib.File) toolcrib.Part { return toolcrib.Part{File: &f} }
	req := modeltest.Request("see")
	req.Files = files
	req.Messages[0].Parts = append(req.Messages[0].Parts, part(file("r1", "image/PNG; q=1")), part(file("r2", "application/zip")), part(file("gone", "image/png")), part(file("huge", "image/png")), part(file("empty", "image/png")))
	r, reply := send(t, gemini.Options{}, req)
	if want := `{"text":"see"},` + inline + `,{"text":"[file n.bin, application/zip]"},{"text":"[file n.bin, image/png]"}`; !bytes.Contains(r.body, []byte(want)) {
		t.Errorf("body %s", r.body)
	}
	if got := codes(reply); len(got) != 4 || got[0] != toolcrib.NoticeFileNotSent {
		t.Errorf("notices %v", got)
	}
	req.Files = nil
	if r, reply := send(t, gemini.Options{}, req); bytes.Contains(r.body, []byte("inlineData")) || len(codes(reply)) != 5 {
		t.Errorf("a model without files: body %s, notices %v", r.body, codes(reply))
	}
}

func TestFiles_OfResults(t *testing.T) {
	req := modeltest.Request("q")
	req.Files = files
	req.Messages = append(
		req.Messages,
		toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{{ToolCall: &toolcrib.ToolCall{ID: "a", Name: "f"}}, {ToolCall: &toolcrib.ToolCall{ID: "b", Name: "f"}}}},
		toolcrib.Message{Role: toolcrib.RoleTool, Parts: []toolcrib.Part{
			{ToolResult: &toolcrib.ToolResult{CallID: "a", Name: "f", Content: "1", Files: []toolcrib.File{{Ref: "r1", MediaType: "image/png"}, {Ref: "r2", MediaType: "audio/wav"}, {Ref: "gone", MediaType: "image/png"}}}},
			{ToolResult: &toolcrib.ToolResult{CallID: "b", Name: "f", Content: "2"}},
		}},
	)
	const (
		png = `{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgpkYXRhIG9mIHIx"}}`
		wav = `{"inlineData":{"mimeType":"audio/wav","data":"ZGF0YSBvZiByMg=="}}`
	)
	for model, want := range map[string]string{
		"gemini-3.5-flash": `{"functionResponse":{"id":"a","name":"f","response":{"result":"1"},"parts":[` + png + `]}},` + wav + `,{"text":"[file gone, image/png]"},{"functionResponse":{"id":"b"`,
		"gemini-2.5-flash": `{"functionResponse":{"id":"a","name":"f","response":{"result":"1"}}},` + png + `,` + wav + `,{"text":"[file gone, image/png]"},{"functionResponse":{"id":"b"`,
	} {
		req.Model = model
		r, reply := send(t, gemini.Options{}, req)
		if !bytes.Contains(r.body, []byte(want)) || len(codes(reply)) != 1 {
			t.Errorf("%s: notices %v, body\n%s\nwant\n%s", model, codes(reply), r.body, want)
		}
	}
}

// All files of a conversation together stay below the size of a request, also
// over many turns; files that were sent are sent again unchanged.
func TestFiles_Bounded(t *testing.T) {
	o := gemini.Options{}
	r := &recorder{}
	o.Transport = r
	m, err := gemini.New(o)
	if err != nil {
		t.Fatal(err)
	}
	conversation := m.Conversation()
	req := modeltest.Request("q")
	req.Files = files
	sent := 0
	for range 3 {
		req.Messages = append(req.Messages, toolcrib.Message{Role: toolcrib.RoleUser, Parts: []toolcrib.Part{{File: &toolcrib.File{Ref: "large", MediaType: "image/png"}}}})
		reply, err := modeltest.Collect(t.Context(), conversation, req)
		if err != nil {
			t.Fatal(err)
		}
		if len(codes(reply)) == 0 {
			sent++
		}
	}
	if sent != 2 || len(r.body) > 100<<20 {
		t.Errorf("%d files were sent, %d bytes", sent, len(r.body))
	}
}

func TestFiles_CancelledConversationGoesOn(t *testing.T) {
	o := gemini.Options{}
	r := &recorder{}
	o.Transport = r
	m, err := gemini.New(o)
	if err != nil {
		t.Fatal(err)
	}
	conversation := m.Conversation()
	ctx, cancel := context.WithCancel(t.Context())
	req := modeltest.Request("q")
	req.Messages[0].Parts = append(req.Messages[0].Parts, toolcrib.Part{File: &toolcrib.File{Ref: "r1", MediaType: "image/png"}})
	req.Files = func(ctx context.Context, _ string) ([]byte, error) {
		cancel()
		return nil, ctx.Err()
	}
	if _, err := modeltest.Collect(ctx, conversation, req); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	req.Files = files
	if _, err := modeltest.Collect(t.Context(), conversation, req); err != nil ||
		!bytes.Contains(r.body, []byte("inlineData")) {
		t.Errorf("the file is lost for good: %v %s", err, r.body)
	}
}
