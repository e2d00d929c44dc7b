package modeltest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
)

// pixel returns a PNG image of one pixel; shade distinguishes images.
func pixel(t *testing.T, shade string) []byte {
	t.Helper()
	// Gray 128 and gray 0.
	data, err := base64.StdEncoding.DecodeString(map[string]string{
		"gray":  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==",
		"black": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==",
	}[shade])
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// conversation runs a conversation against a server that plays replies, and gives
// what was sent. next adds what the user or the tools say after a reply; nil ends.
func (s HTTPSubject) conversation(t *testing.T, req *toolcrib.Request, replies []toolcrib.Reply, next func(n int, reply toolcrib.Message) []toolcrib.Message) (sent [][]byte, got []toolcrib.Reply) {
	t.Helper()
	server := NewServer(s.Dialect, ServerOptions{Refuses: s.Refuses, Steps: Steps(replies...)})
	model := s.New(t, Target{BaseURL: server.Start(t)})
	if c, ok := model.(toolcrib.Conversational); ok {
		model = c.Conversation()
	}
	for n := range replies {
		reply, err := Collect(t.Context(), model, req)
		if err != nil {
			t.Fatalf("request %d: %v", n, err)
		}
		got = append(got, reply)
		more := next(n, reply.Message)
		if more == nil {
			break
		}
		req.Messages = append(append(req.Messages, reply.Message), more...)
	}
	return server.Requests(), got
}

// answerCalls answers every call of a reply.
func answerCalls(reply toolcrib.Message, files ...toolcrib.File) toolcrib.Message {
	m := toolcrib.Message{Role: toolcrib.RoleTool}
	for _, call := range reply.ToolCalls() {
		m.Parts = append(m.Parts, toolcrib.Part{ToolResult: &toolcrib.ToolResult{CallID: call.ID, Name: call.Name, Content: "result of " + call.Name, Files: files}})
	}
	return m
}

// image sends images of the user and of a tool: each goes out whole, or a text
// is in its place and a notice says so; it is read once, and a file that
// cannot be sent never makes a request fail.
func (s HTTPSubject) image(t *testing.T) {
	stored := map[string][]byte{"one": pixel(t, "gray"), "two": pixel(t, "black"), "odd": []byte("odd-bytes-0123456789")}
	files := map[string]toolcrib.File{
		"one":  {Ref: "one", MediaType: "image/png", Name: "one.png"},
		"two":  {Ref: "two", MediaType: "image/png", Name: "two.png"},
		"odd":  {Ref: "odd", MediaType: "application/x-odd", Name: "odd.bin"},
		"gone": {Ref: "gone", MediaType: "image/png", Name: "gone.png"},
	}
	reads := map[string]int{}
	file := func(ref string) toolcrib.Part {
		f := files[ref]
		return toolcrib.Part{File: &f}
	}
	req := &toolcrib.Request{
		Model: "model-a", Tools: []toolcrib.Spec{{Name: "look"}}, ToolsHash: "1",
		Messages: []toolcrib.Message{{Role: toolcrib.RoleUser, Parts: []toolcrib.Part{{Text: "What is it?"}, file("one"), file("odd"), file("gone")}}},
		Files: func(_ context.Context, ref string) ([]byte, error) {
			reads[ref]++
			if data, ok := stored[ref]; ok {
				return data, nil
			}
			return nil, toolcrib.ErrNotFound
		},
	}
	replies := []toolcrib.Reply{Calls(toolcrib.ToolCall{ID: "call_a", Name: "look", Arguments: json.RawMessage(`{}`)}), Text("gray"), Text("black")}
	sent, got := s.conversation(t, req, replies, func(n int, reply toolcrib.Message) []toolcrib.Message {
		switch n {
		case 0:
			return []toolcrib.Message{answerCalls(reply, files["two"], files["odd"])}
		case 1:
			return []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "and now?")}
		}
		return nil
	})
	last := string(sent[len(sent)-1])
	noticed := func(name string) bool {
		for i := range got {
			for _, n := range got[i].Finish.Notices {
				if n.Code == toolcrib.NoticeFileNotSent && strings.Contains(n.Message, name) {
					return true
				}
			}
		}
		return false
	}
	for _, ref := range []string{"one", "two"} {
		whole := strings.Count(last, base64.StdEncoding.EncodeToString(stored[ref]))
		if name := files[ref].Name; whole != 1 && (whole != 0 || !strings.Contains(last, "[file "+name) || !noticed(name)) {
			t.Errorf("%s: stands %d times in the request, notice %t: %s", name, whole, noticed(name), last)
		}
	}
	for _, ref := range []string{"odd", "gone"} {
		if name := files[ref].Name; !strings.Contains(last, "[file "+name) || !noticed(name) {
			t.Errorf("%s: no text in its place, or no notice (%t): %s", name, noticed(name), last)
		}
	}
	for ref, n := range reads {
		if n > 1 && ref != "odd" {
			t.Errorf("%s was read %d times", ref, n)
		}
	}
}

// noFiles: a model that takes no files gets texts in their place.
func (s HTTPSubject) noFiles(t *testing.T) {
	req := &toolcrib.Request{Model: "model-a", Messages: []toolcrib.Message{{Role: toolcrib.RoleUser, Parts: []toolcrib.Part{
		{File: &toolcrib.File{Ref: "r", MediaType: "image/png", Name: "one.png"}},
	}}}}
	sent, got := s.conversation(t, req, []toolcrib.Reply{Text("ok")}, func(int, toolcrib.Message) []toolcrib.Message { return nil })
	if n := got[0].Finish.Notices; !strings.Contains(string(sent[0]), "[file one.png, image/png]") || len(n) != 1 || n[0].Code != toolcrib.NoticeFileNotSent {
		t.Errorf("notices %v, sent %s", n, sent[0])
	}
}

// structured asks for an answer that fits a schema, in a run with tools: the
// schema is in every request, also when the tools are gone.
func (s HTTPSubject) structured(t *testing.T) {
	const answer, marker = `{"verdict":"yes ✓"}`, "marker_of_the_schema"
	for name, schema := range map[string]string{
		"strict": `{"type":"object","properties":{"verdict":{"type":"string","description":"` + marker + `"}},"required":["verdict"],"additionalProperties":false}`,
		"open":   `{"type":"object","properties":{"verdict":{"type":"string","description":"` + marker + `","minLength":1}},"patternProperties":{"^x-":{"type":"integer"}}}`,
	} {
		for _, model := range []string{"model-a", "claude-opus-4-6", "gpt-5-mini", "gemini-2.5-flash", "gemini-3-pro"} {
			t.Run(name+"/"+model, func(t *testing.T) {
				req := &toolcrib.Request{
					Model: model, System: "Be careful.", Tools: []toolcrib.Spec{{Name: "look"}}, ToolsHash: "1", OutputSchema: json.RawMessage(schema),
					Messages: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "Is it?")},
				}
				call := Calls(toolcrib.ToolCall{ID: "call_a", Name: "look", Arguments: json.RawMessage(`{}`)})
				sent, got := s.conversation(t, req, []toolcrib.Reply{call, Text(answer), Text(answer)}, func(n int, reply toolcrib.Message) []toolcrib.Message {
					switch n {
					case 0:
						return []toolcrib.Message{answerCalls(reply)}
					case 1:
						req.Tools, req.ToolsHash = nil, "2" // as in the closing request of a run
						return []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "Sure?")}
					}
					return nil
				})
				for n := range sent {
					if !strings.Contains(string(sent[n]), marker) {
						t.Errorf("request %d is without the schema: %s", n, sent[n])
					}
				}
				for _, reply := range got[1:] {
					if reply.Message.Text() != answer {
						t.Errorf("answer %q", reply.Message.Text())
					}
				}
			})
		}
	}
}

// prefix: within a run each request begins with the messages of the one before,
// byte for byte, and tools and system text stay: caches of prompts live on it.
func (s HTTPSubject) prefix(t *testing.T) {
	image := toolcrib.File{Ref: "one", MediaType: "image/png", Name: "one.png"}
	req := &toolcrib.Request{
		Model: "model-a", System: "Be careful.", Tools: []toolcrib.Spec{{Name: "f"}, {Name: "g"}}, ToolsHash: "1",
		OutputSchema: json.RawMessage(`{"type":"object"}`),
		Messages:     []toolcrib.Message{{Role: toolcrib.RoleUser, Parts: []toolcrib.Part{{Text: "go"}, {File: &image}}}},
		Files:        func(context.Context, string) ([]byte, error) { return pixel(t, "gray"), nil },
	}
	both := Calls(toolcrib.ToolCall{ID: "call_a", Name: "f", Arguments: json.RawMessage(`{"x":"é"}`)}, toolcrib.ToolCall{ID: "call_b", Name: "g"})
	both.Message.Parts = append([]toolcrib.Part{{Thinking: &toolcrib.Thinking{Text: "hm", Signature: "c2ln"}}, {Text: "First."}}, both.Message.Parts...)
	one := Calls(toolcrib.ToolCall{ID: "call_c", Name: "f", Arguments: json.RawMessage(`{"x":2}`)})
	sent, _ := s.conversation(t, req, []toolcrib.Reply{both, one, Text("{}"), Text("{}")}, func(n int, reply toolcrib.Message) []toolcrib.Message {
		switch n {
		case 0:
			return []toolcrib.Message{answerCalls(reply, image)}
		case 1:
			return []toolcrib.Message{answerCalls(reply)}
		case 2:
			return []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "more")}
		}
		return nil
	})
	var before map[string]json.RawMessage
	for n := range sent {
		var now map[string]json.RawMessage
		if err := json.Unmarshal([]byte(strip(string(sent[n]))), &now); err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"messages", "input", "contents"} {
			if old := before[field]; len(old) > 0 && !bytes.HasPrefix(now[field], old[:len(old)-1]) {
				t.Errorf("request %d does not continue with the %s of the one before:\n%s\n%s", n, field, old, now[field])
			}
		}
		for _, field := range []string{"system", "instructions", "systemInstruction", "tools"} {
			if old := before[field]; n > 0 && !bytes.Equal(old, now[field]) {
				t.Errorf("request %d has another %s:\n%s\n%s", n, field, old, now[field])
			}
		}
		before = now
	}
	if len(before["messages"])+len(before["input"])+len(before["contents"]) == 0 {
		t.Errorf("no list of messages in %s", sent[len(sent)-1])
	}
}

// HostileHistories are valid transcripts that are hard to encode: whatever a run
// went through, the API must take the next request.
func HostileHistories() map[string]*toolcrib.Request {
	user := func(s string) toolcrib.Message { return toolcrib.TextMessage(toolcrib.RoleUser, s) }
	assistant := func(parts ...toolcrib.Part) toolcrib.Message {
		return toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: parts}
	}
	call := func(id, name, args string) toolcrib.Part {
		return toolcrib.Part{ToolCall: &toolcrib.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(args)}}
	}
	results := func(r ...toolcrib.ToolResult) toolcrib.Message {
		m := toolcrib.Message{Role: toolcrib.RoleTool}
		for i := range r {
			m.Parts = append(m.Parts, toolcrib.Part{ToolResult: &r[i]})
		}
		return m
	}
	tools := []toolcrib.Spec{{Name: "f", Description: "does it"}, {Name: "g", Parameters: json.RawMessage(`{"type":"object","properties":[]}`)}}
	ask := func(messages ...toolcrib.Message) *toolcrib.Request {
		return &toolcrib.Request{Model: "model-a", System: "Be careful.", Messages: messages, Tools: tools}
	}
	list := map[string]*toolcrib.Request{
		"only calls":        ask(user("q"), assistant(call("c1", "f", `{}`)), results(toolcrib.ToolResult{CallID: "c1", Name: "f", Content: "ok"})),
		"no arguments":      ask(user("q"), assistant(call("c1", "f", ``)), results(toolcrib.ToolResult{CallID: "c1", Name: "f", Content: "ok"})),
		"parallel":          ask(user("q"), assistant(toolcrib.Part{Text: "both"}, call("c1", "f", `{"x":"\u0000\""}`), call("c2", "g", `{}`)), results(toolcrib.ToolResult{CallID: "c1", Name: "f"}, toolcrib.ToolResult{CallID: "c2", Name: "g", Content: " \n", IsError: true})),
		"results apart":     ask(user("q"), assistant(call("c1", "f", `{}`), call("c2", "g", `{}`)), results(toolcrib.ToolResult{CallID: "c1", Name: "f", Content: "1"}), results(toolcrib.ToolResult{CallID: "c2", Name: "g", Content: "2"})),
		"blank text":        ask(user("q"), assistant(toolcrib.Part{Text: "\n\n"}, call("c1", "f", `{}`)), results(toolcrib.ToolResult{CallID: "c1", Name: "f", Content: "ok"})),
		"note after result": ask(user("q"), assistant(call("c1", "f", `{}`)), results(toolcrib.ToolResult{CallID: "c1", Name: "f", Content: "ok"}), user("note"), user("and another")),
		"users in a row":    ask(user("a"), user("b"), user("c")),
		"empty assistant":   ask(user("a"), assistant(), user("b")),
		"thinking only":     ask(user("a"), assistant(toolcrib.Part{Thinking: &toolcrib.Thinking{Text: "hm"}}), user("b")),
		"foreign thinking":  ask(user("a"), assistant(toolcrib.Part{Thinking: &toolcrib.Thinking{Text: "hm", Signature: "sig", Model: "other/model"}}, call("c1", "f", `{}`)), results(toolcrib.ToolResult{CallID: "c1", Name: "f", Content: "ok"})),
		"own thinking":      ask(user("a"), assistant(toolcrib.Part{Thinking: &toolcrib.Thinking{Text: "hm", Signature: "sig", Model: "p/model-a"}}, toolcrib.Part{Thinking: &toolcrib.Thinking{Redacted: "xyz", Model: "p/model-a"}}, call("c1", "f", `{}`)), results(toolcrib.ToolResult{CallID: "c1", Name: "f", Content: "ok"})),
		"foreign IDs":       ask(user("q"), assistant(call("functions.f:0", "f", `{}`), call("functions.f:1", "f", `{}`)), results(toolcrib.ToolResult{CallID: "functions.f:0", Name: "f", Content: "1"}, toolcrib.ToolResult{CallID: "functions.f:1", Name: "f", Content: "2"})),
		"long ID":           ask(user("q"), assistant(call(strings.Repeat("x", 200), "f", `{}`)), results(toolcrib.ToolResult{CallID: strings.Repeat("x", 200), Name: "f", Content: "1"})),
		"odd tool name":     ask(user("q"), assistant(call("c1", "f(x).y 日本"+strings.Repeat("z", 99), `{}`), call("c2", "", `{}`)), results(toolcrib.ToolResult{CallID: "c1", Name: "f", Content: "refused"}, toolcrib.ToolResult{CallID: "c2", Name: "", Content: "refused"})),
		"bad UTF-8":         ask(user("a\xffb\xc3"), assistant(toolcrib.Part{Text: "\xed\xa0\x80 \u2028 \x1b[0m"}), user("b")),
		"file":              ask(toolcrib.Message{Role: toolcrib.RoleUser, Parts: []toolcrib.Part{{Text: "see"}, {File: &toolcrib.File{Ref: "r", MediaType: "image/png", Name: "a.png"}}}}),
	}
	list["no tools left"] = ask(list["parallel"].Messages...)
	list["no tools left"].Tools = nil
	list["no tools left"].ToolChoice = toolcrib.ToolChoice{Mode: toolcrib.ChoiceRequired}
	for mode, r := range map[string]toolcrib.ToolChoice{"auto": {Mode: "auto"}, "none": {Mode: "none"}, "required": {Mode: "required"}, "name": {Mode: "name", Name: "g"}, "unknown name": {Mode: "name", Name: "nobody"}} {
		list["H13 "+mode] = ask(user("q"))
		list["H13 "+mode].ToolChoice = r
	}
	list["bad tools"] = ask(user("q"))
	list["bad tools"].Tools = badTools()
	hot := 0.7
	for _, level := range []string{"low", "medium", "high", "off"} {
		for name, base := range map[string]*toolcrib.Request{"": list["own thinking"], " foreign": list["foreign thinking"], " forced": list["H13 required"]} {
			r := *base
			r.Reasoning, r.Temperature, r.MaxOutputTokens = level, &hot, 4000
			list["reasoning "+level+name] = &r
		}
	}
	list["small output"] = ask(user("q"))
	list["small output"].Reasoning, list["small output"].MaxOutputTokens = "high", 100
	list["schema"] = ask(user("q"))
	list["schema"].OutputSchema = json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer","minimum":1}},"required":["a"]}`)
	return list
}

// badTools are tools that an API may refuse; one of them must not spoil a request.
func badTools() []toolcrib.Spec {
	return []toolcrib.Spec{
		{Name: "a_good", Parameters: json.RawMessage(`{"type":"object","properties":{"x":{"type":"string"}}}`)},
		{Name: "b_null", Parameters: json.RawMessage(`null`)},
		{Name: "c_list", Parameters: json.RawMessage(`[]`)},
		{Name: "d_string", Parameters: json.RawMessage(`{"type":"string"}`)},
		{Name: "e_broken", Parameters: json.RawMessage(`{"type":`)},
		{Name: "f_untyped", Parameters: json.RawMessage(`{"properties":{"x":true}}`)},
		{Name: "g_union", Parameters: json.RawMessage(`{"oneOf":[{"properties":{"x":{"type":"array"}}}]}`)},
		{Name: "h_nullable", Parameters: json.RawMessage(`{"type":["object","null"],"properties":{"x":{"type":"object","properties":[]}}}`)},
		{Name: "i_" + strings.Repeat("x", 100)},
		{Name: "j bad name"},
		{Name: "k_key", Parameters: json.RawMessage(`{"type":"object","properties":{"a b$":{"type":"string"}}}`)},
		{Name: "l_long", Description: strings.Repeat("long ", 2000)},
	}
}

func (s HTTPSubject) history(t *testing.T) {
	for name, base := range HostileHistories() {
		for _, model := range []string{"model-a", "claude-opus-4-5", "claude-opus-5", "claude-fable-5-1", "claude-3-haiku-20240307", "gpt-5.6", "o3"} {
			t.Run(name+"/"+model, func(t *testing.T) {
				server := NewServer(s.Dialect, ServerOptions{Refuses: s.Refuses})
				req := *base
				req.Model = model
				target := Target{BaseURL: server.Start(t)}
				if _, err := Collect(t.Context(), s.New(t, target), &req); err != nil {
					t.Error(err)
				}
				s.byPieces(t, target, &req, server)
			})
		}
	}
}

// byPieces sends the growing history of one conversation: what is sent in the
// end must be what a model without a memory sends.
func (s HTTPSubject) byPieces(t *testing.T, target Target, req *toolcrib.Request, server *Server) {
	t.Helper()
	model := s.New(t, target)
	whole, ok := model.(toolcrib.Conversational)
	if !ok {
		return
	}
	conversation := whole.Conversation()
	all := req.Messages
	for n := 1; n <= len(all); n++ {
		if all[n-1].Role == toolcrib.RoleAssistant || n < len(all) && all[n].Role == toolcrib.RoleTool {
			continue // the model is only asked when every call has its result
		}
		r := *req
		r.Messages, r.ToolsHash = all[:n:n], "1"
		if _, err := Collect(t.Context(), conversation, &r); err != nil {
			t.Error(fmt.Errorf("after %d messages: %w", n, err))
		}
	}
	requests := server.Requests()
	first, last := string(requests[0]), string(requests[len(requests)-1])
	if strip(first) != strip(last) {
		t.Errorf("a conversation sends other bytes:\n%s\n%s", first, last)
	}
}

// strip leaves out the marks for caches, which move on.
func strip(body string) string {
	return strings.ReplaceAll(body, `,"cache_control":{"type":"ephemeral"}`, "")
}
