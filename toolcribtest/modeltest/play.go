package modeltest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
)

// play answers one request with one step.
func (s *Server) play(w http.ResponseWriter, r *http.Request, step Step, body []byte) {
	if s.dialect == Gemini { // it asks for a stream in the path
		body = encode(map[string]any{"stream": r.URL.Query().Get("alt") == "sse"})
	}
	select {
	case <-time.After(step.Latency):
	case <-r.Context().Done():
		return
	}
	if step.Hang {
		<-r.Context().Done()
		return
	}
	for name, value := range step.Header {
		w.Header().Set(name, value)
	}
	if step.Status != 0 && !step.MidStream {
		s.fail(w, step.Status, step.ErrorType, step.ErrorText)
		return
	}
	answer, kind := s.answer(step, body)
	w.Header().Set("Content-Type", kind)
	if kind == jsonType {
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	}
	_, _ = w.Write(answer) // the client notices
}

const (
	streamType = "text/event-stream"
	jsonType   = "application/json"
)

func (s *Server) answer(step Step, body []byte) (answer []byte, contentType string) {
	var ask struct {
		Stream bool `json:"stream"`
	}
	_ = json.Unmarshal(body, &ask) // a body that is not JSON was refused before
	if !ask.Stream {
		return s.dialect.JSON(step.Reply), jsonType
	}
	frames := s.dialect.Frames(step.Reply, 16)
	if step.MidStream {
		failed := s.dialect.frame(s.dialect.errorBody(step.ErrorType, step.ErrorText))
		switch s.dialect {
		case Anthropic:
			failed = sseEvent("error", s.dialect.errorBody(step.ErrorType, step.ErrorText))
		case Responses:
			failed = responsesError(step.ErrorType, step.ErrorText)
		}
		frames = append(frames[:len(frames)/2], failed)
	}
	return bytes.Join(frames, nil), s.dialect.streamType()
}

// api is what the dialects do in their own ways.
type api struct {
	path   string // of the chat
	key    string // the header with the key, and what is before it
	whole  func(toolcrib.Reply) []byte
	frames func(r toolcrib.Reply, chunk int) [][]byte
}

const bearer = "Authorization Bearer "

var apis = map[Dialect]api{
	OpenAI:    {"/chat/completions", bearer, openAIJSON, openAIFrames},
	LlamaCpp:  {"/chat/completions", bearer, openAIJSON, openAIFrames},
	Responses: {"/responses", bearer, responsesJSON, responsesFrames},
	Anthropic: {"/messages", "X-Api-Key ", anthropicJSON, anthropicFrames},
	Ollama:    {"/api/chat", bearer, ollamaJSON, ollamaFrames},
	Gemini:    {"/models/{call...}", "X-Goog-Api-Key ", geminiJSON, geminiFrames},
}

// JSON encodes a reply in one piece.
func (d Dialect) JSON(r toolcrib.Reply) []byte { return apis[d].whole(r) }

// Frames encodes a reply as server-sent events, with at most chunk bytes of text
// in one.
func (d Dialect) Frames(r toolcrib.Reply, chunk int) [][]byte { return apis[d].frames(r, chunk) }

func sseEvent(name string, data []byte) []byte {
	out := make([]byte, 0, len(data)+len(name)+16)
	if name != "" {
		out = append(append(append(out, "event: "...), name...), '\n')
	}
	return append(append(append(out, "data: "...), data...), "\n\n"...)
}

// pieces cuts a text into pieces of about n bytes, at characters.
func pieces(s string, n int) []string {
	var out []string
	start := 0
	for i := range s {
		if i-start >= n {
			out = append(out, s[start:i])
			start = i
		}
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

// reasons are the words for why a reply ended. That it stopped stands for what has none.
var reasons = map[Dialect]map[toolcrib.FinishReason]string{
	OpenAI: {
		toolcrib.FinishStop: "stop", toolcrib.FinishToolCalls: "tool_calls", toolcrib.FinishLength: "length",
		toolcrib.FinishFiltered: "content_filter",
	},
	Anthropic: {
		toolcrib.FinishStop: "end_turn", toolcrib.FinishToolCalls: "tool_use", toolcrib.FinishLength: "max_tokens",
		toolcrib.FinishFiltered: "refusal",
	},
	Ollama: {toolcrib.FinishStop: "stop", toolcrib.FinishLength: "length"},
	Gemini: {
		toolcrib.FinishStop: "STOP", toolcrib.FinishLength: "MAX_TOKENS", toolcrib.FinishFiltered: "SAFETY",
		toolcrib.FinishOther: "OTHER",
	},
}

func (d Dialect) reason(r toolcrib.Reply) string {
	return cmp.Or(reasons[d][reasonOf(r)], reasons[d][toolcrib.FinishStop])
}

// reasonOf is why a reply ended, guessed if it does not say.
func reasonOf(r toolcrib.Reply) toolcrib.FinishReason {
	if r.Finish.Reason == "" && len(r.Message.ToolCalls()) > 0 {
		return toolcrib.FinishToolCalls
	}
	return cmp.Or(r.Finish.Reason, toolcrib.FinishStop)
}

func modelOf(r toolcrib.Reply) string { return cmp.Or(r.Finish.Model, "model-a") }

// arguments are sent as a string, {} for none.
func arguments(c *toolcrib.ToolCall) string {
	switch {
	case c.Broken != "":
		return c.Broken
	case len(c.Arguments) == 0:
		return "{}"
	}
	return string(c.Arguments)
}

func openAIUsage(u toolcrib.TokenUsage) any {
	if !u.Reported {
		return nil
	}
	return map[string]any{
		"prompt_tokens": u.InputTokens, "completion_tokens": u.OutputTokens, "total_tokens": u.InputTokens + u.OutputTokens,
		"prompt_tokens_details":     map[string]any{"cached_tokens": u.CachedInputTokens},
		"completion_tokens_details": map[string]any{"reasoning_tokens": u.ReasoningTokens},
	}
}

// joined is a reply in one piece: its texts, its reasoning and its calls, each made by call.
func joined(r toolcrib.Reply, call func(c *toolcrib.ToolCall, index int) map[string]any) (text, thinking string,
	calls []any,
) {
	for i := range r.Message.Parts {
		p := &r.Message.Parts[i]
		text += p.Text
		if p.Thinking != nil {
			thinking += p.Thinking.Text
		}
		if p.ToolCall != nil {
			calls = append(calls, call(p.ToolCall, len(calls)))
		}
	}
	return text, thinking, calls
}

func openAIJSON(r toolcrib.Reply) []byte {
	message := map[string]any{"role": "assistant", "content": nil, "refusal": nil}
	text, thinking, calls := joined(r, func(c *toolcrib.ToolCall, _ int) map[string]any {
		return map[string]any{
			"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": arguments(c)},
		}
	})
	if text != "" || len(calls) == 0 {
		message["content"] = text
	}
	if thinking != "" {
		message["reasoning_content"] = thinking
	}
	if len(calls) > 0 {
		message["tool_calls"] = calls
	}
	doc := map[string]any{
		"id": "chatcmpl-test", "object": "chat.completion", "created": 1700000000, "model": modelOf(r),
		"choices": []any{map[string]any{"index": 0, "message": message, "logprobs": nil, "finish_reason": OpenAI.reason(r)}},
	}
	if u := openAIUsage(r.Finish.Usage); u != nil {
		doc["usage"] = u
	}
	return encode(doc)
}

func openAIFrames(r toolcrib.Reply, chunk int) [][]byte {
	var frames [][]byte
	add := func(choices []any, usage any) {
		doc := map[string]any{
			"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1700000000, "model": modelOf(r),
			"choices": choices, "usage": usage,
		}
		frames = append(frames, sseEvent("", encode(doc)))
	}
	delta := func(d map[string]any, reason any) {
		add([]any{map[string]any{"index": 0, "delta": d, "logprobs": nil, "finish_reason": reason}}, nil)
	}
	delta(map[string]any{"role": "assistant", "content": nil, "refusal": nil}, nil)
	calls := 0
	for i := range r.Message.Parts {
		p := &r.Message.Parts[i]
		switch {
		case p.Thinking != nil:
			for _, s := range pieces(p.Thinking.Text, chunk) {
				delta(map[string]any{"reasoning_content": s}, nil)
			}
		case p.ToolCall != nil:
			first := map[string]any{
				"index": calls, "id": p.ToolCall.ID, "type": "function",
				"function": map[string]any{"name": p.ToolCall.Name, "arguments": ""},
			}
			delta(map[string]any{"tool_calls": []any{first}}, nil)
			for _, s := range pieces(arguments(p.ToolCall), chunk) {
				delta(map[string]any{"tool_calls": []any{map[string]any{
					"index":    calls,
					"function": map[string]any{"arguments": s},
				}}}, nil)
			}
			calls++
		default:
			for _, s := range pieces(p.Text, chunk) {
				delta(map[string]any{"content": s}, nil)
			}
		}
	}
	delta(map[string]any{}, OpenAI.reason(r))
	if u := openAIUsage(r.Finish.Usage); u != nil {
		add([]any{}, u)
	}
	return append(frames, []byte("data: [DONE]\n\n"))
}

func ollamaObject(r toolcrib.Reply, message map[string]any) map[string]any {
	return map[string]any{
		"model": modelOf(r), "created_at": "2026-01-02T03:04:05.678901Z", "message": message,
		"done": false,
	}
}

// ollamaCall is a call as current versions send it, with an ID. Arguments that
// are not JSON come as a string.
func ollamaCall(c *toolcrib.ToolCall, index int) map[string]any {
	var args any = arguments(c)
	if json.Valid([]byte(arguments(c))) {
		args = json.RawMessage(arguments(c))
	}
	call := map[string]any{"function": map[string]any{"index": index, "name": c.Name, "arguments": args}}
	if c.ID != "" {
		call["id"] = c.ID
	}
	return call
}

func ollamaEnd(r toolcrib.Reply, doc map[string]any) map[string]any {
	doc["done"], doc["done_reason"] = true, Ollama.reason(r)
	doc["total_duration"], doc["load_duration"] = 4883583458, 1334875
	if u := r.Finish.Usage; u.Reported {
		doc["prompt_eval_count"], doc["prompt_eval_duration"] = u.InputTokens, 342546000
		doc["eval_count"], doc["eval_duration"] = u.OutputTokens, 4535599000
	}
	return doc
}

func ollamaJSON(r toolcrib.Reply) []byte {
	text, thinking, calls := joined(r, ollamaCall)
	message := map[string]any{"role": "assistant", "content": text}
	if thinking != "" {
		message["thinking"] = thinking
	}
	if len(calls) > 0 {
		message["tool_calls"] = calls
	}
	return encode(ollamaEnd(r, ollamaObject(r, message)))
}

func ollamaFrames(r toolcrib.Reply, chunk int) [][]byte {
	var frames [][]byte
	say := func(content string, more map[string]any) {
		message := map[string]any{"role": "assistant", "content": content}
		for name, value := range more {
			message[name] = value
		}
		frames = append(frames, Ollama.frame(encode(ollamaObject(r, message))))
	}
	calls := 0
	for i := range r.Message.Parts {
		p := &r.Message.Parts[i]
		switch {
		case p.Thinking != nil:
			for _, s := range pieces(p.Thinking.Text, chunk) {
				say("", map[string]any{"thinking": s})
			}
		case p.ToolCall != nil:
			say("", map[string]any{"tool_calls": []any{ollamaCall(p.ToolCall, calls)}})
			calls++
		default:
			for _, s := range pieces(p.Text, chunk) {
				say(s, nil)
			}
		}
	}
	end := ollamaEnd(r, ollamaObject(r, map[string]any{"role": "assistant", "content": ""}))
	return append(frames, Ollama.frame(encode(end)))
}

// streamType is the content type of a stream.
func (d Dialect) streamType() string {
	if d == Ollama {
		return "application/x-ndjson"
	}
	return streamType
}

// frame makes one frame of a stream.
func (d Dialect) frame(data []byte) []byte {
	if d == Ollama {
		return append(bytes.Clone(data), '\n')
	}
	return sseEvent("", data)
}

// endless are ways to continue with a stream for size bytes and more, without an
// end; text is a frame with text.
func (d Dialect) endless(text []byte, size int) map[string][]byte {
	repeat := func(piece string) []byte { return bytes.Repeat([]byte(piece), 1+size/len(piece)) }
	if d == Ollama {
		return map[string][]byte{
			"text": repeat(string(text)), "one line": append([]byte(`{"message":{"content":"`), repeat("a")...),
			"blank lines": repeat("\n"),
		}
	}
	return map[string][]byte{
		"text": repeat(string(text)), "one line": append([]byte(`data: "`), repeat("a")...), "comments": repeat(": ping\n\n"),
		"data lines": repeat("data:\n"),
	}
}

// kinds are kinds of errors by Anthropic's names, with their HTTP status where an API tells them by
// it, and Google's names. Any other is a bad request.
var kinds = map[string]struct {
	status int
	google string
}{
	"authentication_error": {http.StatusUnauthorized, "UNAUTHENTICATED"},
	"permission_error":     {http.StatusForbidden, "PERMISSION_DENIED"},
	"not_found_error":      {http.StatusNotFound, "NOT_FOUND"},
	"request_too_large":    {http.StatusRequestEntityTooLarge, "INVALID_ARGUMENT"},
	"rate_limit_error":     {http.StatusTooManyRequests, "RESOURCE_EXHAUSTED"},
	"api_error":            {http.StatusInternalServerError, "INTERNAL"},
	"server_error":         {http.StatusInternalServerError, "INTERNAL"},
	"overloaded_error":     {http.StatusServiceUnavailable, "UNAVAILABLE"},
	"unavailable_error":    {http.StatusServiceUnavailable, "UNAVAILABLE"},
}

// errorBody is an error in the shape of d. Ollama's is a text; with the status beside it, as it
// passes on those of ollama.com.
func (d Dialect) errorBody(kind, message string) []byte {
	k, ok := kinds[kind]
	if !ok {
		k.status, k.google = http.StatusBadRequest, "INVALID_ARGUMENT"
	}
	inner := map[string]any{"type": kind, "message": message}
	switch d {
	case Anthropic:
		return encode(map[string]any{"type": "error", "error": inner, "request_id": "req_test"})
	case Ollama:
		return encode(map[string]any{"StatusCode": k.status, "Status": http.StatusText(k.status), "error": message})
	case LlamaCpp:
		inner["code"] = k.status
	case Gemini:
		inner = map[string]any{"code": k.status, "message": message, "status": k.google}
	default:
		inner["param"], inner["code"] = nil, nil
	}
	return encode(map[string]any{"error": inner})
}

// OllamaShow is an answer of /api/show for a model with these capabilities.
func OllamaShow(capabilities ...string) string {
	return `{"license":"","parameters":"stop                           \"<|eot_id|>\"\nnum_ctx                        8192","details":{"family":"llama","families":["llama"]},` +
		`"model_info":{"general.architecture":"llama","llama.attention.head_count":32,"llama.context_length":131072},"capabilities":["` + strings.Join(capabilities, `","`) + `"]}`
}

// LlamaCppProps is an answer of /props for a model whose chat template knows
// tools, or does not.
func LlamaCppProps(tools bool) string {
	known := strconv.FormatBool(tools)
	return `{"default_generation_settings":{"n_ctx":8192},"total_slots":4,"model_path":"model-a.gguf","modalities":{"vision":true,"audio":false},` +
		`"chat_template_caps":{"supports_tools":` + known + `,"supports_tool_calls":` + known +
		`,"supports_parallel_tool_calls":true},"build_info":"b9000-test"}`
}
