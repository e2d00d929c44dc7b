package modeltest

import (
	"encoding/json"
	"fmt"

	"github.com/toolcrib/toolcrib"
)

// Responses is OpenAI's Responses API, as it is used without state on the server.
const Responses Dialect = "responses"

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
			items = append(items, map[string]any{"id": "rs_" + id, "type": "reasoning", "summary": summary, "encrypted_content": "sealed-" + id})
		case p.ToolCall != nil:
			items = append(items, map[string]any{
				"id": "fc_" + id, "type": "function_call", "status": "completed",
				"call_id": p.ToolCall.ID, "name": p.ToolCall.Name, "arguments": arguments(p.ToolCall),
			})
		case p.Text != "":
			items = append(items, map[string]any{
				"id": "msg_" + id, "type": "message", "status": "completed", "role": "assistant",
				"content": []any{map[string]any{"type": "output_text", "text": p.Text, "annotations": []any{}, "logprobs": []any{}}},
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
		"id": "resp_test", "object": "response", "created_at": 1700000000, "status": "in_progress", "error": nil, "incomplete_details": nil,
		"instructions": nil, "model": modelOf(r), "output": []any{}, "parallel_tool_calls": true, "store": false, "usage": nil,
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
			s.add("response.reasoning_summary_part.added", at(map[string]any{"summary_index": n, "part": map[string]any{"type": "summary_text", "text": ""}}))
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
			s.add("response.output_text.delta", at(map[string]any{"content_index": 0, "delta": piece, "logprobs": []any{}, "obfuscation": "x"}))
		}
		s.add("response.output_text.done", at(map[string]any{"content_index": 0, "text": part["text"], "logprobs": []any{}}))
		s.add("response.content_part.done", at(map[string]any{"content_index": 0, "part": part}))
	}
}

// responsesError is an error inside a stream.
func responsesError(kind, message string) []byte {
	return sseEvent("error", encode(map[string]any{"type": "error", "sequence_number": 9, "error": map[string]any{"type": kind, "code": nil, "message": message, "param": nil}}))
}

// responsesTurns counts the turns of the assistant: runs of items that it made.
func responsesTurns(body []byte) (n int) {
	var doc struct {
		Input []struct {
			Type string `json:"type"`
			Role string `json:"role"`
		} `json:"input"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return 0
	}
	inside := false
	for _, item := range doc.Input {
		own := item.Type == "reasoning" || item.Type == "function_call" || item.Role == "assistant"
		if own && !inside {
			n++
		}
		inside = own
	}
	return n
}
