package modeltest

import (
	"github.com/toolcrib/toolcrib"
)

func openAIReason(r toolcrib.Reply) string {
	switch reasonOf(r) {
	case toolcrib.FinishToolCalls:
		return "tool_calls"
	case toolcrib.FinishLength:
		return "length"
	case toolcrib.FinishFiltered:
		return "content_filter"
	}
	return "stop"
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

func openAIJSON(r toolcrib.Reply) []byte {
	message := map[string]any{"role": "assistant", "content": nil, "refusal": nil}
	var text, thinking string
	var calls []any
	for i := range r.Message.Parts {
		p := &r.Message.Parts[i]
		text += p.Text
		if p.Thinking != nil {
			thinking += p.Thinking.Text
		}
		if c := p.ToolCall; c != nil {
			calls = append(calls, map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": arguments(c)}})
		}
	}
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
		"choices": []any{map[string]any{"index": 0, "message": message, "logprobs": nil, "finish_reason": openAIReason(r)}},
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
			first := map[string]any{"index": calls, "id": p.ToolCall.ID, "type": "function", "function": map[string]any{"name": p.ToolCall.Name, "arguments": ""}}
			delta(map[string]any{"tool_calls": []any{first}}, nil)
			for _, s := range pieces(arguments(p.ToolCall), chunk) {
				delta(map[string]any{"tool_calls": []any{map[string]any{"index": calls, "function": map[string]any{"arguments": s}}}}, nil)
			}
			calls++
		default:
			for _, s := range pieces(p.Text, chunk) {
				delta(map[string]any{"content": s}, nil)
			}
		}
	}
	delta(map[string]any{}, openAIReason(r))
	if u := openAIUsage(r.Finish.Usage); u != nil {
		add([]any{}, u)
	}
	return append(frames, []byte("data: [DONE]\n\n"))
}
