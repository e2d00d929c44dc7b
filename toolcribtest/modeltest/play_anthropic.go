package modeltest

import (
	"encoding/json"

	"github.com/toolcrib/toolcrib"
)

func anthropicReason(r toolcrib.Reply) string {
	switch reasonOf(r) {
	case toolcrib.FinishToolCalls:
		return "tool_use"
	case toolcrib.FinishLength:
		return "max_tokens"
	case toolcrib.FinishFiltered:
		return "refusal"
	}
	return "end_turn"
}

func anthropicUsage(u toolcrib.TokenUsage) map[string]any {
	return map[string]any{
		"input_tokens":                u.InputTokens - u.CachedInputTokens - u.CacheWriteTokens,
		"cache_read_input_tokens":     u.CachedInputTokens,
		"cache_creation_input_tokens": u.CacheWriteTokens,
		"output_tokens":               u.OutputTokens,
		"output_tokens_details":       map[string]any{"thinking_tokens": u.ReasoningTokens},
	}
}

// input is the object of a call. This API knows no other: broken arguments are
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
			blocks = append(blocks, map[string]any{"type": "thinking", "thinking": p.Thinking.Text, "signature": p.Thinking.Signature})
		case p.ToolCall != nil:
			blocks = append(blocks, map[string]any{"type": "tool_use", "id": p.ToolCall.ID, "name": p.ToolCall.Name, "input": input(p.ToolCall)})
		case p.Text != "":
			blocks = append(blocks, map[string]any{"type": "text", "text": p.Text})
		}
	}
	return blocks
}

func anthropicJSON(r toolcrib.Reply) []byte {
	return encode(map[string]any{
		"id": "msg_test", "type": "message", "role": "assistant", "model": modelOf(r),
		"content": anthropicBlocks(r), "stop_reason": anthropicReason(r), "stop_sequence": nil,
		"usage": anthropicUsage(r.Finish.Usage),
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
		"delta": map[string]any{"stop_reason": anthropicReason(r), "stop_sequence": nil},
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
		return map[string]any{"type": "tool_use", "id": p.ToolCall.ID, "name": p.ToolCall.Name, "input": map[string]any{}}, deltas
	}
	each("text_delta", "text", p.Text)
	return map[string]any{"type": "text", "text": ""}, deltas
}
