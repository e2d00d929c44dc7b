package modeltest

import (
	"fmt"
	"slices"
)

const anthropicFields = "model messages max_tokens system tools tool_choice thinking output_config stream " +
	"temperature top_p " +
	"top_k stop_sequences metadata service_tier cache_control"

// anthropic checks a request of Messages. It is stricter than the API in one thing: roles
// must alternate.
func (c *checker) anthropic(_ string, doc object) {
	c.ids = blockID
	c.only("", doc, anthropicFields)
	bound, _ := doc["max_tokens"].(float64)
	c.wrong(bound < 1, "max_tokens: must be at least 1")
	c.within("temperature", doc["temperature"], 0, 1)
	if tools, ok := doc["tools"]; ok {
		for i, v := range c.list("tools (N8)", tools) {
			where := fmt.Sprintf("tools[%d]", i)
			tool := c.only(where, v, "type name description input_schema cache_control")
			c.oneOf(where+".type", tool["type"], "custom")
			c.offer(where, text(tool["name"]))
			c.wrong(tool["description"] != nil && blank(tool["description"]), "%s.description: is blank", where)
			c.objectSchema(where, tool["input_schema"])
		}
	}
	thinking := c.anthropicThinking(doc, bound)
	if choice, ok := doc["tool_choice"]; ok {
		c.anthropicChoice(c.only("tool_choice", choice, "type name disable_parallel_tool_use"), thinking)
	}
	if blocks, ok := doc["system"].([]any); ok {
		for _, b := range blocks {
			c.wrong(at(b, "type") != "text", "system: must be text")
			c.anthropicBlock("system", b)
		}
	}
	turns := c.list("messages", doc["messages"])
	for i, v := range turns {
		where := fmt.Sprintf("messages[%d]", i)
		m := c.only(where, v, "role content")
		c.next(where, text(m["role"]), "assistant")
		blocks := c.anthropicTurn(where, m)
		calls := slices.ContainsFunc(blocks, func(b any) bool { return at(b, "type") == "tool_use" })
		if thinking == "enabled" && calls && i == len(turns)-2 {
			kind := text(at(blocks[0], "type"))
			c.wrong(kind != "thinking" && kind != "redacted_thinking",
				"%s: with thinking on, the turn must begin with thinking", where)
		}
	}
	c.last()
	marks := c.cacheMarks(doc)
	c.wrong(marks > 4, "cache_control: %d marks, at most 4", marks)
}

// anthropicThinking returns how the model thinks; "" if it does not.
func (c *checker) anthropicThinking(doc object, bound float64) string {
	v, ok := doc["thinking"]
	if !ok {
		return ""
	}
	t := c.only("thinking", v, "type budget_tokens display")
	c.oneOf("thinking.type", fmt.Sprint(t["type"]), "enabled adaptive disabled")
	budget, given := t["budget_tokens"].(float64)
	c.wrong(t["type"] != "enabled" && given, "thinking.budget_tokens: only with type enabled")
	c.wrong(t["type"] == "enabled" && (budget < 1024 || budget >= bound),
		"thinking.budget_tokens: must be at least 1024 and less than max_tokens")
	if t["type"] == "disabled" {
		return ""
	}
	c.wrong(doc["temperature"] != nil && doc["temperature"] != 1.0, "temperature: does not go with thinking")
	return text(t["type"])
}

func (c *checker) anthropicChoice(choice object, thinking string) {
	c.wrong(len(c.tools) == 0, "tool_choice: only with tools")
	c.oneOf("tool_choice.type", fmt.Sprint(choice["type"]), "auto none any tool")
	forced := choice["type"] == "any" || choice["type"] == "tool"
	c.wrong(forced && thinking != "", "tool_choice: a forced tool does not go with thinking")
	c.wrong(choice["type"] != "tool" && choice["name"] != nil, "tool_choice.name: only with type tool")
	if choice["type"] == "tool" {
		c.chosen(text(choice["name"]))
	}
}

// anthropicTurn checks the content of a turn, and returns it.
func (c *checker) anthropicTurn(where string, m object) []any {
	blocks := []any{object{"type": "text", "text": m["content"]}}
	if _, ok := m["content"].(string); !ok {
		blocks = c.list(where+".content", m["content"])
	}
	if m["role"] == "assistant" {
		c.say(where)
	}
	for _, v := range blocks {
		b := c.anthropicBlock(where, v)
		own := false
		switch b["type"] {
		case "tool_use":
			own = true
			c.call(where, text(b["id"]), text(b["name"]), b["input"])
		case "thinking", "redacted_thinking":
			own = true
		case "tool_result":
			c.result(where, text(b["tool_use_id"]), "")
			c.wrong(m["role"] != "user", "%s: tool_result in a turn of the assistant", where)
		default:
			if m["role"] == "user" {
				c.say(where)
			}
		}
		c.wrong(own && m["role"] == "user", "%s: %v in a turn of the user", where, b["type"])
	}
	if m["role"] == "user" {
		c.say(where)
	}
	return blocks
}

func (c *checker) anthropicBlock(where string, v any) object {
	fields := map[string]string{
		"text": "text", "tool_use": "id name input", "tool_result": "tool_use_id content is_error",
		"thinking": "thinking signature", "redacted_thinking": "data", "image": "source", "document": "source title",
	}[text(at(v, "type"))]
	c.wrong(fields == "", "%s: a block of type %v", where, at(v, "type"))
	b := c.only(where, v, fields+" type cache_control")
	switch b["type"] {
	case "text":
		c.wrong(blank(b["text"]), "%s.text: is blank, must hold more than white space", where)
	case "thinking":
		c.wrong(b["thinking"] == nil || text(b["signature"]) == "", "%s: thinking needs thinking and signature", where)
		c.wrong(b["cache_control"] != nil, "%s: thinking takes no cache_control", where)
	case "redacted_thinking":
		c.wrong(text(b["data"]) == "", "%s: redacted_thinking needs data", where)
	case "image", "document":
		c.anthropicSource(where, text(b["type"]), b["source"])
	case "tool_result":
		failed := b["is_error"] == true
		c.wrong(failed && b["content"] == nil, "%s.content: must not be empty with is_error", where)
		inner, isList := b["content"].([]any)
		c.wrong(b["content"] != nil && !isList && blank(b["content"]), "%s.content: is blank; leave it out", where)
		for _, one := range inner {
			c.wrong(failed && at(one, "type") != "text", "%s.content: must be text with is_error", where)
			c.anthropicBlock(where+".content", one)
		}
	}
	return b
}

func (c *checker) anthropicSource(where, kind string, v any) {
	source := c.only(where+".source", v, "type media_type data")
	c.wrong(text(source["data"]) == "", "%s.source.data: is empty", where)
	is := fmt.Sprintf("%s %v %v", kind, source["type"], source["media_type"])
	c.wrong(!slices.Contains([]string{
		"image base64 image/png", "image base64 image/jpeg", "image base64 image/gif", "image base64 image/webp",
		"document base64 application/pdf", "document text text/plain",
	}, is), "%s.source: %s", where, is)
}

// cacheMarks counts the marks for the cache, wherever they are.
func (c *checker) cacheMarks(v any) (n int) {
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			n += c.cacheMarks(inner)
		}
	case object:
		for name, inner := range v {
			switch name {
			case "cache_control":
				n++
				c.wrong(at(inner, "type") != "ephemeral", "cache_control: %v", inner)
				c.oneOf("cache_control.ttl", at(inner, "ttl"), "5m 1h")
			case "input", "input_schema": // what the model or a tool says
			default:
				n += c.cacheMarks(inner)
			}
		}
	}
	return n
}
