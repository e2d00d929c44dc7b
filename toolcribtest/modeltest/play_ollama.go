package modeltest

import (
	"encoding/json"

	"github.com/toolcrib/toolcrib"
)

func ollamaReason(r toolcrib.Reply) string {
	if reasonOf(r) == toolcrib.FinishLength {
		return "length"
	}
	return "stop"
}

func ollamaObject(r toolcrib.Reply, message map[string]any) map[string]any {
	return map[string]any{"model": modelOf(r), "created_at": "2026-01-02T03:04:05.678901Z", "message": message, "done": false}
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
	doc["done"], doc["done_reason"] = true, ollamaReason(r)
	doc["total_duration"], doc["load_duration"] = 4883583458, 1334875
	if u := r.Finish.Usage; u.Reported {
		doc["prompt_eval_count"], doc["prompt_eval_duration"] = u.InputTokens, 342546000
		doc["eval_count"], doc["eval_duration"] = u.OutputTokens, 4535599000
	}
	return doc
}

func ollamaJSON(r toolcrib.Reply) []byte {
	message := map[string]any{"role": "assistant"}
	var text, thinking string
	var calls []any
	for i := range r.Message.Parts {
		p := &r.Message.Parts[i]
		text += p.Text
		if p.Thinking != nil {
			thinking += p.Thinking.Text
		}
		if p.ToolCall != nil {
			calls = append(calls, ollamaCall(p.ToolCall, len(calls)))
		}
	}
	message["content"] = text
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
