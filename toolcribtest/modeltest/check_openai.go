package modeltest

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
)

// The top-level fields of requests that adapters may send.
const (
	openAIFields = "model messages tools tool_choice parallel_tool_calls stream stream_options temperature top_p " +
		"max_tokens " +
		"max_completion_tokens reasoning_effort response_format stop seed n user metadata store service_tier verbosity " +
		"prompt_cache_key frequency_penalty presence_penalty logit_bias logprobs top_logprobs"
	llamaCppFields  = openAIFields + " chat_template_kwargs cache_prompt top_k min_p"
	responsesFields = "model input instructions tools tool_choice parallel_tool_calls stream stream_options store " +
		"include " +
		"temperature top_p max_output_tokens max_tool_calls reasoning text metadata service_tier prompt_cache_key " +
		"safety_identifier truncation"
	ollamaFields = "model messages tools stream format options keep_alive think truncate shift logprobs top_logprobs"
	// ollamaOptions are the fields of options.
	ollamaOptions = "num_ctx num_predict num_keep num_batch num_gpu main_gpu num_thread seed top_k repeat_last_n " +
		"temperature " +
		"top_p min_p typical_p repeat_penalty presence_penalty frequency_penalty use_mmap stop"
)

var (
	chatID      = regexp.MustCompile(`^.{1,40}$`)
	responsesID = regexp.MustCompile(`^.{1,64}$`)
)

// openAI checks a request of Chat Completions.
func (c *checker) openAI(_ string, doc object) {
	c.only("", doc, openAIFields)
	c.chat(doc)
}

// chat checks what all servers of Chat Completions take.
func (c *checker) chat(doc object) {
	c.ids = chatID
	c.wrong(doc["max_tokens"] != nil && doc["max_completion_tokens"] != nil,
		"max_tokens and max_completion_tokens exclude each other")
	c.openAIParameters(doc)
	c.oneOf("reasoning_effort", doc["reasoning_effort"], "none minimal low medium high xhigh max")
	c.functions(doc)
	c.choice(doc["tool_choice"], "function", "name")
	for i, v := range c.list("messages", doc["messages"]) {
		where := fmt.Sprintf("messages[%d]", i)
		m := c.only(where, v, "role content name refusal tool_calls tool_call_id")
		c.wrong(m["role"] != "assistant" && m["tool_calls"] != nil, "%s: only the assistant calls", where)
		c.wrong(m["role"] != "tool" && m["tool_call_id"] != nil, "%s: only results have tool_call_id", where)
		switch m["role"] {
		case "system", "developer", "user":
			c.say(where)
			c.content(where, m["content"], "text image_url file input_audio")
		case "assistant":
			c.say(where)
			c.chatCalls(where, m)
		case "tool":
			_, ok := m["content"].(string)
			c.wrong(!ok, "%s.content: must be a string", where)
			c.result(where, text(m["tool_call_id"]), "")
		default:
			c.wrong(true, "%s: unknown role %v", where, m["role"])
		}
	}
}

func (c *checker) openAIParameters(doc object) {
	c.wrong(doc["stream_options"] != nil && doc["stream"] != true, "stream_options: only with stream")
	c.within("temperature", doc["temperature"], 0, 2)
}

// chatCalls checks a turn of the assistant.
func (c *checker) chatCalls(where string, m object) {
	if _, ok := m["tool_calls"]; !ok {
		c.wrong(m["content"] == nil, "%s.content: may only be null with tool_calls", where)
		return
	}
	c.wrong(m["content"] == "", `%s.content: must be null, not "", beside tool_calls (4c.2)`, where)
	for i, v := range c.list(where+".tool_calls (1c.4)", m["tool_calls"]) {
		inner := fmt.Sprintf("%s.tool_calls[%d]", where, i)
		call := c.only(inner, v, "id type function")
		c.wrong(call["type"] != "function", "%s.type: must be function", inner)
		f := c.only(inner, call["function"], "name arguments")
		c.call(inner, text(call["id"]), text(f["name"]), parsed(f["arguments"]))
	}
}

// content checks what a message holds: a text, or parts of types.
func (c *checker) content(where string, v any, types string) {
	if _, ok := v.(string); ok {
		return
	}
	for _, part := range c.list(where+".content: must not be null", v) {
		p := c.only(where, part, "type text image_url file input_audio detail filename file_data")
		c.oneOf(where+".type", fmt.Sprint(p["type"]), types)
		_, isText := p["text"].(string)
		switch p["type"] {
		case "text", "input_text":
			c.wrong(!isText, "%s: a text without text", where)
		case "input_image":
			c.wrong(!strings.HasPrefix(text(p["image_url"]), "data:image/"), "%s: an input_image without data", where)
		case "input_file":
			c.wrong(p["filename"] == nil || !strings.HasPrefix(text(p["file_data"]), "data:"),
				"%s: an input_file that is not whole", where)
		}
	}
}

// functions checks the tools of Chat Completions, which Ollama has too.
func (c *checker) functions(doc object) {
	if _, ok := doc["tools"]; !ok {
		return
	}
	for i, v := range c.list("tools (N8)", doc["tools"]) {
		where := fmt.Sprintf("tools[%d]", i)
		tool := c.only(where, v, "type function")
		c.wrong(tool["type"] != "function", "%s.type: must be function", where)
		f := c.only(where, tool["function"], "name description parameters strict")
		c.offer(where, text(f["name"]))
		c.objectSchema(where, f["parameters"])
	}
}

// choice checks tool_choice, which names a tool at a path.
func (c *checker) choice(v any, path ...string) {
	c.wrong(v != nil && len(c.tools) == 0, "tool_choice: only with tools")
	named, ok := v.(object)
	if !ok {
		c.oneOf("tool_choice", v, "auto none required")
		return
	}
	c.wrong(named["type"] != "function", "tool_choice.type: must be function")
	c.chosen(text(at(named, path...)))
}

// llamaCpp checks what llama-server refuses or passes over, besides what
// Chat Completions does.
func (c *checker) llamaCpp(_ string, doc object) {
	_, named := doc["tool_choice"].(object)
	c.wrong(named, "tool_choice: llama-server takes no named tool, and would choose by itself")
	c.wrong(doc["tools"] != nil && (doc["response_format"] != nil || doc["grammar"] != nil || doc["json_schema"] != nil),
		"response_format: one grammar cannot hold both calls and the answer")
	c.wrong(doc["parallel_tool_calls"] != nil && doc["tools"] == nil, "parallel_tool_calls: only with tools")
	c.grammarSafe(doc["tools"])
	c.only("", doc, llamaCppFields)
	c.chat(doc)
}

// grammarSafe finds the words of schemas that llama-server turns into no grammar,
// or into one that it refuses: any of them fails the whole request.
func (c *checker) grammarSafe(v any) {
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			c.grammarSafe(inner)
		}
	case object:
		n, _ := v["maxLength"].(float64)
		c.wrong(n > 2000, "maxLength: more repetitions than a grammar may have")
		p, ok := v["pattern"].(string)
		c.wrong(ok && (!strings.HasPrefix(p, "^") || !strings.HasSuffix(p, "$")), "pattern: must begin with ^ and end with $")
		for _, inner := range v {
			c.grammarSafe(inner)
		}
	}
}

// ollama checks a request of /api/chat. The API takes IDs of calls, but knows results by
// their place, so that none is on the wire (N14).
func (c *checker) ollama(_ string, doc object) {
	c.only("", doc, ollamaFields)
	c.wrong(doc["truncate"] != false, "truncate: must be false, or a long prompt is cut silently")
	if v, ok := doc["options"]; ok {
		options := c.only("options", v, ollamaOptions)
		c.wrong(len(options) == 0, "options: empty; leave it out")
		for name, value := range options {
			_, isText := value.(string)
			c.wrong(isText && name != "stop", "options.%s: is a text", name)
		}
	}
	c.oneOf("think", doc["think"], "true false low medium high max")
	_, isSchema := doc["format"].(object)
	c.wrong(doc["format"] != nil && doc["format"] != "json" && !isSchema, `format: must be "json" or a JSON Schema`)
	c.wrong(doc["format"] != nil && doc["tools"] != nil, "format: keeps the model from calling tools")
	c.functions(doc)
	for i, v := range c.list("messages", doc["messages"]) {
		where := fmt.Sprintf("messages[%d]", i)
		c.ollamaMessage(where, v, i == 0)
	}
}

func (c *checker) ollamaMessage(where string, v any, first bool) {
	fields := map[string]string{
		"system": "role content", "user": "role content images", "tool": "role content tool_name",
		"assistant": "role content thinking tool_calls",
	}[text(at(v, "role"))]
	c.wrong(fields == "", "%s: unknown role %v", where, at(v, "role"))
	m := c.only(where, v, fields+" role content")
	_, isText := m["content"].(string)
	c.wrong(!isText, "%s.content: must be a string", where)
	if m["role"] == "tool" {
		c.wrong(!toolName.MatchString(text(m["tool_name"])), "%s.tool_name: is missing or no name", where)
		c.result(where, "", "")
		return
	}
	c.say(where)
	c.wrong(m["role"] == "system" && !first,
		"%s: the templates of many models take role system at the beginning only", where)
	if images, ok := m["images"]; ok {
		for _, image := range c.list(where+".images", images) {
			data, err := base64.StdEncoding.DecodeString(text(image))
			c.wrong(err != nil || len(data) == 0, "%s.images: no base64", where)
		}
	}
	c.wrong(m["thinking"] == "", "%s.thinking: must not be empty; leave it out", where)
	calls, ok := m["tool_calls"]
	if !ok {
		c.wrong(m["role"] == "assistant" && m["content"] == "", "%s.content: the turn says nothing", where)
		return
	}
	for i, call := range c.list(where+".tool_calls (1c.4)", calls) {
		inner := fmt.Sprintf("%s.tool_calls[%d]", where, i)
		f := c.only(inner, c.only(inner, call, "function")["function"], "name arguments")
		c.call(inner, "", text(f["name"]), f["arguments"])
	}
}

// responses checks a request of Responses that keeps no state on the server.
func (c *checker) responses(_ string, doc object) {
	c.ids = responsesID
	c.only("", doc, responsesFields)
	c.wrong(doc["store"] != false, "store: must be false")
	c.within("max_output_tokens", doc["max_output_tokens"], 1, 1e9)
	c.openAIParameters(doc)
	if include, ok := doc["include"].([]any); ok {
		for _, one := range include {
			c.oneOf("include", one, "reasoning.encrypted_content")
		}
	}
	c.oneOf("reasoning.effort", at(doc, "reasoning", "effort"), "none minimal low medium high xhigh")
	if f, ok := at(doc, "text", "format").(object); ok {
		c.oneOf("text.format.type", fmt.Sprint(f["type"]), "text json_object json_schema")
		_, isSchema := f["schema"].(object)
		c.wrong(f["type"] == "json_schema" && (!isSchema || !toolName.MatchString(text(f["name"]))),
			"text.format: needs a name and a schema that is an object")
	}
	if tools, ok := doc["tools"]; ok {
		for i, v := range c.list("tools (N8)", tools) {
			where := fmt.Sprintf("tools[%d]", i)
			tool := c.only(where, v, "type name description parameters strict")
			c.wrong(tool["type"] != "function", "%s.type: must be function", where)
			c.wrong(tool["strict"] != false, "%s.strict: must be false; it is true by default", where)
			c.offer(where, text(tool["name"]))
			c.objectSchema(where, tool["parameters"])
		}
	}
	c.choice(doc["tool_choice"], "name")
	reasoning := false // the item before is reasoning, which must lead to something
	for i, v := range c.list("input", doc["input"]) {
		where := fmt.Sprintf("input[%d]", i)
		item := c.only(where, v, "type role phase status content id call_id name arguments output summary encrypted_content")
		kind := text(item["type"])
		if kind == "" && item["role"] != nil {
			kind = "message" // it may be left out
		}
		own := kind == "reasoning" || kind == "function_call" || kind == "message" && item["role"] == "assistant"
		c.wrong(reasoning && !own, "%s: reasoning without the item that follows it", where)
		reasoning = kind == "reasoning"
		c.responsesItem(where, kind, item)
	}
	c.wrong(reasoning, "input: reasoning without the item that follows it")
}

func (c *checker) responsesItem(where, kind string, item object) {
	switch kind {
	case "message":
		c.oneOf(where+".role", fmt.Sprint(item["role"]), "user system developer assistant")
		if item["role"] != "assistant" {
			c.say(where)
			c.content(where, item["content"], "input_text input_image input_file")
			return
		}
		c.wrong(text(item["content"]) == "", "%s.content: an assistant's is a text", where)
		c.oneOf(where+".phase", item["phase"], "commentary final_answer")
	case "reasoning":
		sealed := text(item["encrypted_content"]) != ""
		c.wrong(!sealed || !strings.HasPrefix(text(item["id"]), "rs_") || item["summary"] == nil,
			"%s: reasoning needs id, summary and encrypted_content", where)
	case "function_call":
		c.call(where, text(item["call_id"]), text(item["name"]), parsed(item["arguments"]))
	case "function_call_output":
		c.result(where, text(item["call_id"]), "")
		c.content(where, item["output"], "input_text input_image input_file")
	default:
		c.wrong(true, "%s.type: %q", where, kind)
	}
}
