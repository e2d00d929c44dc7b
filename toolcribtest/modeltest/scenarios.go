package modeltest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
)

// pixel returns a PNG image of one pixel; shade tells images apart.
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
	server := NewServer(s.Dialect, ServerOptions{Steps: Steps(replies...)})
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
