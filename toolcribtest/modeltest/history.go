package modeltest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
)

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
				server := NewServer(s.Dialect, ServerOptions{})
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
