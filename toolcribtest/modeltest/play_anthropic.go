package modeltest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/toolcrib/toolcrib"
)

func anthropicUsage(u toolcrib.TokenUsage) map[string]any {
	return map[string]any{
		"input_tokens":                u.InputTokens - u.CachedInputTokens - u.CacheWriteTokens,
		"cache_read_input_tokens":     u.CachedInputTokens,
		"cache_creation_input_tokens": u.CacheWriteTokens,
		"output_tokens":               u.OutputTokens,
		"output_tokens_details":       map[string]any{"thinking_tokens": u.ReasoningTokens},
	}
}

// input is the object of a call. This API has no other: broken arguments are
// sent as an object that holds them.
func input(c *toolcrib.ToolCall) json.RawMessage {
	if a := arguments(c); jsonObject([]byte(a)) {
		return json.RawMessage(a)
	}
	return encode(map[string]any{"broken": arguments(c)})
}

func anthropicBlocks(r toolcrib.Reply) []map[string]any {
	blocks := []map[string]any{}
	for i := range r.Message.Parts {
		p := &r.Message.Parts[i]
		switch {
		case p.Thinking != nil && p.Thinking.Redacted != "":
			blocks = append(blocks, map[string]any{"type": "redacted_thinking", "data": p.Thinking.Redacted})
		case p.Thinking != nil:
			blocks = append(blocks,
				map[string]any{"type": "thinking", "thinking": p.Thinking.Text, "signature": p.Thinking.Signature})
		case p.ToolCall != nil:
			blocks = append(blocks,
				map[string]any{"type": "tool_use", "id": p.ToolCall.ID, "name": p.ToolCall.Name, "input": input(p.ToolCall)})
		case p.Text != "":
			blocks = append(blocks, map[string]any{"type": "text", "text": p.Text})
		}
	}
	return blocks
}

func anthropicJSON(r toolcrib.Reply) []byte {
	return encode(map[string]any{
		"id": "msg_test", "type": "message", "role": "assistant", "model": modelOf(r), "content": anthropicBlocks(r),
		"stop_reason": Anthropic.reason(r), "stop_sequence": nil, "usage": anthropicUsage(r.Finish.Usage),
	})
}

func anthropicFrames(r toolcrib.Reply, chunk int) [][]byte {
	var frames [][]byte
	add := func(kind string, doc map[string]any) {
		doc["type"] = kind
		frames = append(frames, sseEvent(kind, encode(doc)))
	}
	start := anthropicUsage(r.Finish.Usage)
	start["output_tokens"] = min(1, r.Finish.Usage.OutputTokens)
	delete(start, "output_tokens_details")
	add("message_start", map[string]any{"message": map[string]any{
		"id": "msg_test", "type": "message", "role": "assistant", "model": modelOf(r),
		"content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": start,
	}})
	add("ping", map[string]any{})
	part := 0
	for i := range r.Message.Parts {
		p := &r.Message.Parts[i]
		if p.Thinking == nil && p.ToolCall == nil && p.Text == "" {
			continue
		}
		head, deltas := blockFrames(p, chunk)
		add("content_block_start", map[string]any{"index": part, "content_block": head})
		for _, d := range deltas {
			add("content_block_delta", map[string]any{"index": part, "delta": d})
		}
		add("content_block_stop", map[string]any{"index": part})
		part++
	}
	add("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": Anthropic.reason(r), "stop_sequence": nil},
		"usage": map[string]any{
			"output_tokens":         r.Finish.Usage.OutputTokens,
			"output_tokens_details": map[string]any{"thinking_tokens": r.Finish.Usage.ReasoningTokens},
		},
	})
	add("message_stop", map[string]any{})
	return frames
}

func blockFrames(p *toolcrib.Part, chunk int) (head map[string]any, deltas []map[string]any) {
	each := func(kind, field, text string) {
		for _, s := range pieces(text, chunk) {
			deltas = append(deltas, map[string]any{"type": kind, field: s})
		}
	}
	switch {
	case p.Thinking != nil && p.Thinking.Redacted != "":
		return map[string]any{"type": "redacted_thinking", "data": p.Thinking.Redacted}, nil
	case p.Thinking != nil:
		each("thinking_delta", "thinking", p.Thinking.Text)
		deltas = append(deltas, map[string]any{"type": "signature_delta", "signature": p.Thinking.Signature})
		return map[string]any{"type": "thinking", "thinking": "", "signature": ""}, deltas
	case p.ToolCall != nil:
		// The stream carries arguments as text, broken ones too.
		if a := arguments(p.ToolCall); a != "{}" {
			each("input_json_delta", "partial_json", a)
		}
		return map[string]any{"type": "tool_use", "id": p.ToolCall.ID, "name": p.ToolCall.Name, "input": map[string]any{}},
			deltas
	}
	each("text_delta", "text", p.Text)
	return map[string]any{"type": "text", "text": ""}, deltas
}

// geminiMethod reports whether a request is for a method of the API.
func geminiMethod(r *http.Request) bool {
	model, method := geminiCall(r)
	stream := r.URL.Query().Get("alt") == "sse"
	return model != "" && (stream && method == "streamGenerateContent" || !stream && method == "generateContent")
}

// geminiCall splits MODEL:METHOD.
func geminiCall(r *http.Request) (model, method string) {
	call := r.PathValue("call")
	at := strings.LastIndexByte(call, ':')
	if at < 0 {
		return "", ""
	}
	return call[:at], call[at+1:]
}

// geminiUsage counts reasoning beside the answer, not in it.
func geminiUsage(u toolcrib.TokenUsage) map[string]any {
	usage := map[string]any{
		"promptTokenCount": u.InputTokens, "candidatesTokenCount": u.OutputTokens - u.ReasoningTokens,
		"totalTokenCount": u.InputTokens + u.OutputTokens,
	}
	if u.CachedInputTokens > 0 {
		usage["cachedContentTokenCount"] = u.CachedInputTokens
	}
	if u.ReasoningTokens > 0 {
		usage["thoughtsTokenCount"] = u.ReasoningTokens
	}
	return usage
}

// geminiParts cuts texts into pieces of chunk bytes; 0 = not at all. A Redacted
// is a signature on an empty text.
func geminiParts(r toolcrib.Reply, chunk int) []map[string]any {
	parts := []map[string]any{}
	each := func(text string, thought bool) {
		if chunk <= 0 {
			chunk = max(len(text), 1)
		}
		for _, s := range pieces(text, chunk) {
			p := map[string]any{"text": s}
			if thought {
				p["thought"] = true
			}
			parts = append(parts, p)
		}
	}
	sign := func(p map[string]any, signature string) {
		if signature != "" {
			p["thoughtSignature"] = signature
		}
	}
	for i := range r.Message.Parts {
		p := &r.Message.Parts[i]
		switch {
		case p.Thinking != nil && p.Thinking.Redacted != "":
			parts = append(parts, map[string]any{"text": "", "thoughtSignature": p.Thinking.Redacted})
		case p.Thinking != nil:
			each(p.Thinking.Text, true)
			if len(parts) > 0 {
				sign(parts[len(parts)-1], p.Thinking.Signature)
			}
		case p.ToolCall != nil:
			call := map[string]any{"name": p.ToolCall.Name, "args": input(p.ToolCall)}
			if p.ToolCall.ID != "" {
				call["id"] = p.ToolCall.ID
			}
			one := map[string]any{"functionCall": call}
			sign(one, p.ToolCall.Signature)
			parts = append(parts, one)
		default:
			each(p.Text, false)
		}
	}
	return parts
}

func geminiDoc(r toolcrib.Reply, parts []map[string]any, reason string) map[string]any {
	candidate := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
	if reason != "" {
		candidate["finishReason"] = reason
	}
	doc := map[string]any{"candidates": []any{candidate}, "modelVersion": modelOf(r), "responseId": "resp_test"}
	if r.Finish.Usage.Reported {
		doc["usageMetadata"] = geminiUsage(r.Finish.Usage)
	}
	return doc
}

func geminiJSON(r toolcrib.Reply) []byte {
	return encode(geminiDoc(r, geminiParts(r, 0), Gemini.reason(r)))
}

func geminiFrames(r toolcrib.Reply, chunk int) [][]byte {
	var frames [][]byte
	for _, p := range geminiParts(r, chunk) {
		frames = append(frames, sseEvent("", encode(geminiDoc(r, []map[string]any{p}, ""))))
	}
	return append(frames, sseEvent("", encode(geminiDoc(r, []map[string]any{{"text": ""}}, Gemini.reason(r)))))
}

// responsesItems are the items of a reply. Reasoning comes with encrypted content:
// its signature, or a stand-in.
func responsesItems(r toolcrib.Reply) []map[string]any {
	items := []map[string]any{}
	for i := range r.Message.Parts {
		p := &r.Message.Parts[i]
		id := fmt.Sprintf("%d_test", i)
		switch {
		case p.Thinking != nil:
			summary := []any{}
			if p.Thinking.Text != "" {
				summary = append(summary, map[string]any{"type": "summary_text", "text": p.Thinking.Text})
			}
			items = append(items,
				map[string]any{"id": "rs_" + id, "type": "reasoning", "summary": summary, "encrypted_content": "sealed-" + id})
		case p.ToolCall != nil:
			items = append(items, map[string]any{
				"id": "fc_" + id, "type": "function_call", "status": "completed",
				"call_id": p.ToolCall.ID, "name": p.ToolCall.Name, "arguments": arguments(p.ToolCall),
			})
		case p.Text != "":
			items = append(items, map[string]any{
				"id": "msg_" + id, "type": "message", "status": "completed", "role": "assistant",
				"content": []any{map[string]any{
					"type": "output_text", "text": p.Text, "annotations": []any{},
					"logprobs": []any{},
				}},
			})
		}
	}
	return items
}

func responsesUsage(u toolcrib.TokenUsage) any {
	if !u.Reported {
		return nil
	}
	return map[string]any{
		"input_tokens": u.InputTokens, "output_tokens": u.OutputTokens, "total_tokens": u.InputTokens + u.OutputTokens,
		"input_tokens_details":  map[string]any{"cached_tokens": u.CachedInputTokens},
		"output_tokens_details": map[string]any{"reasoning_tokens": u.ReasoningTokens},
	}
}

// responsesObject is the response object: as it begins, or as it ends.
func responsesObject(r toolcrib.Reply, over bool) map[string]any {
	doc := map[string]any{
		"id": "resp_test", "object": "response", "created_at": 1700000000, "status": "in_progress", "error": nil,
		"incomplete_details": nil,
		"instructions":       nil, "model": modelOf(r), "output": []any{}, "parallel_tool_calls": true, "store": false,
		"usage": nil,
	}
	if !over {
		return doc
	}
	doc["status"], doc["output"], doc["usage"] = "completed", responsesItems(r), responsesUsage(r.Finish.Usage)
	switch reasonOf(r) {
	case toolcrib.FinishLength:
		doc["status"], doc["incomplete_details"] = "incomplete", map[string]any{"reason": "max_output_tokens"}
	case toolcrib.FinishFiltered:
		doc["status"], doc["incomplete_details"] = "incomplete", map[string]any{"reason": "content_filter"}
	}
	return doc
}

func responsesJSON(r toolcrib.Reply) []byte { return encode(responsesObject(r, true)) }

// responsesStream collects the events of a reply.
type responsesStream struct {
	frames [][]byte
	chunk  int
}

func (s *responsesStream) add(kind string, doc map[string]any) {
	doc["type"], doc["sequence_number"] = kind, len(s.frames)
	s.frames = append(s.frames, sseEvent(kind, encode(doc)))
}

func responsesFrames(r toolcrib.Reply, chunk int) [][]byte {
	s := &responsesStream{chunk: chunk}
	s.add("response.created", map[string]any{"response": responsesObject(r, false)})
	for i, item := range responsesItems(r) {
		begun := map[string]any{}
		for name, value := range item {
			begun[name] = value
		}
		switch item["type"] {
		case "reasoning":
			begun["summary"] = []any{}
			delete(begun, "encrypted_content")
		case "function_call":
			begun["arguments"], begun["status"] = "", "in_progress"
		default:
			begun["content"], begun["status"] = []any{}, "in_progress"
		}
		s.add("response.output_item.added", map[string]any{"output_index": i, "item": begun})
		s.inner(i, item)
		s.add("response.output_item.done", map[string]any{"output_index": i, "item": item})
	}
	over := responsesObject(r, true)
	s.add("response."+fmt.Sprint(over["status"]), map[string]any{"response": over})
	return s.frames
}

// inner adds what happens within an item.
func (s *responsesStream) inner(index int, item map[string]any) {
	at := func(more map[string]any) map[string]any {
		more["item_id"], more["output_index"] = item["id"], index
		return more
	}
	switch item["type"] {
	case "reasoning":
		for n, part := range item["summary"].([]any) {
			text := fmt.Sprint(part.(map[string]any)["text"])
			s.add("response.reasoning_summary_part.added",
				at(map[string]any{"summary_index": n, "part": map[string]any{"type": "summary_text", "text": ""}}))
			for _, piece := range pieces(text, s.chunk) {
				s.add("response.reasoning_summary_text.delta", at(map[string]any{"summary_index": n, "delta": piece}))
			}
			s.add("response.reasoning_summary_text.done", at(map[string]any{"summary_index": n, "text": text}))
			s.add("response.reasoning_summary_part.done", at(map[string]any{"summary_index": n, "part": part}))
		}
	case "function_call":
		for _, piece := range pieces(fmt.Sprint(item["arguments"]), s.chunk) {
			s.add("response.function_call_arguments.delta", at(map[string]any{"delta": piece}))
		}
		s.add("response.function_call_arguments.done", at(map[string]any{"arguments": item["arguments"]}))
	default:
		part := item["content"].([]any)[0].(map[string]any)
		empty := map[string]any{"type": "output_text", "text": "", "annotations": []any{}, "logprobs": []any{}}
		s.add("response.content_part.added", at(map[string]any{"content_index": 0, "part": empty}))
		for _, piece := range pieces(fmt.Sprint(part["text"]), s.chunk) {
			s.add("response.output_text.delta",
				at(map[string]any{"content_index": 0, "delta": piece, "logprobs": []any{}, "obfuscation": "x"}))
		}
		s.add("response.output_text.done", at(map[string]any{"content_index": 0, "text": part["text"], "logprobs": []any{}}))
		s.add("response.content_part.done", at(map[string]any{"content_index": 0, "part": part}))
	}
}

// responsesError is an error inside a stream.
func responsesError(kind, message string) []byte {
	return sseEvent("error", encode(map[string]any{
		"type": "error", "sequence_number": 9,
		"error": map[string]any{"type": kind, "code": nil, "message": message, "param": nil},
	}))
}
