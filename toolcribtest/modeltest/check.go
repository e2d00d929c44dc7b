package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	strict "github.com/go-json-experiment/json"
)

var (
	toolName   = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	geminiName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$`)

	// callIDs are what an API takes as the ID of a call. The others need none.
	callIDs = map[Dialect]*regexp.Regexp{
		OpenAI:    regexp.MustCompile(`^.{1,40}$`),
		LlamaCpp:  regexp.MustCompile(`^.{1,40}$`),
		Responses: regexp.MustCompile(`^.{1,64}$`),
		Anthropic: regexp.MustCompile(`^[a-zA-Z0-9_-]+$`),
	}
)

// object is a JSON object as encoding/json decodes it.
type object = map[string]any

// Check reports what is wrong with a request body whatever API it is for; nil if nothing. Every call has
// exactly one result, right after its turn and in order; IDs match; arguments are objects;
// a list of tools is sorted and never empty, and its schemas are of type object. That a
// request has the fields and types of its API is what the vendors' own types say, in the
// tests of module oracle; what an API refuses besides is for [HTTPSubject.Refuses].
func (d Dialect) Check(body []byte) error {
	var doc object
	if err := strict.Unmarshal(body, &doc); err != nil { // no member twice, nothing after it
		return fmt.Errorf("no JSON object: %w", err)
	}
	c := &checker{names: toolName, ids: callIDs[d]}
	if d == Gemini { // the model is in the path
		c.names = geminiName
	} else {
		c.wrong(text(doc["model"]) == "", "model: is missing")
	}
	if tools, ok := doc["tools"]; ok {
		c.offer(d, c.list("tools (N8)", tools))
	}
	c.choice(doc["tool_choice"])
	c.choice(doc["toolConfig"])
	switch d {
	case Anthropic:
		c.turns(d, c.list("messages", doc["messages"]), "content")
	case Gemini:
		c.turns(d, c.list("contents", doc["contents"]), "parts")
	case Responses:
		c.items(c.list("input", doc["input"]))
	default:
		c.messages(d, c.list("messages", doc["messages"]))
	}
	c.wrong(len(c.open) > 0, "the calls %q are not answered (N12)", c.open)
	return errors.Join(c.errs...)
}

// checker walks over the transcript of a request and collects what is wrong.
type checker struct {
	errs []error

	names *regexp.Regexp // of tools
	ids   *regexp.Regexp // of calls; if nil, they need none
	tools []string       // offered

	open []waiter // calls that wait for their results
	used []string // IDs of calls
}

// waiter is a call that waits for its result.
type waiter struct{ id, name string }

func (c *checker) wrong(is bool, format string, args ...any) bool {
	if is {
		c.errs = append(c.errs, fmt.Errorf(format, args...))
	}
	return is
}

// list returns v, which must be a list that is not empty.
func (c *checker) list(where string, v any) []any {
	l, _ := v.([]any)
	c.wrong(len(l) == 0, "%s: must be a list that is not empty", where)
	return l
}

// offer checks the tools of a request.
func (c *checker) offer(d Dialect, tools []any) {
	if d == Gemini && len(tools) > 0 {
		c.wrong(len(tools) > 1, "tools: must hold one list of functions (N8)")
		tools = c.list("tools[0] (N8)", at(tools[0], "functionDeclarations"))
	}
	for i, tool := range tools {
		where := fmt.Sprintf("tools[%d]", i)
		if inner := at(tool, "function"); inner != nil {
			tool = inner
		}
		name := text(at(tool, "name"))
		c.wrong(!c.names.MatchString(name), "%s: name %q does not match %s", where, name, c.names)
		c.wrong(slices.Contains(c.tools, name), "%s: name %q twice", where, name)
		c.wrong(len(c.tools) > 0 && c.tools[len(c.tools)-1] > name, "%s: tools are not sorted by name (C5)", where)
		c.tools = append(c.tools, name)
		switch d {
		case Gemini: // has rules of its own for schemas
		case Anthropic:
			c.schema(where, at(tool, "input_schema"))
		default:
			c.schema(where, at(tool, "parameters"))
		}
	}
}

// schema checks the schema of a tool's parameters.
func (c *checker) schema(where string, v any) {
	schema, _ := v.(object)
	c.wrong(schema["type"] != "object", "%s: must be a schema of type object, is %v", where, schema["type"])
	c.wrong(schema["properties"] == nil, "%s: properties must be an object", where)
	for _, word := range []string{"oneOf", "anyOf", "allOf", "not", "enum"} {
		c.wrong(schema[word] != nil, "%s: %s at the top", where, word)
	}
	c.properties(where, schema)
}

func (c *checker) properties(where string, schema object) {
	properties, ok := schema["properties"].(object)
	c.wrong(schema["properties"] != nil && !ok, "%s: properties must be an object (1c.4)", where)
	for name, v := range properties {
		p, ok := v.(object)
		c.wrong(!ok, "%s.%s: a schema must be an object", where, name)
		c.wrong(p["type"] == "array" && p["items"] == nil, "%s.%s: array schema missing items", where, name)
		c.properties(where+"."+name, p)
	}
}

// choice wants a tool that must be called to be offered, wherever it is named.
func (c *checker) choice(v any) {
	c.wrong(v != nil && len(c.tools) == 0, "tool_choice: only with tools")
	names, _ := at(v, "functionCallingConfig", "allowedFunctionNames").([]any)
	for _, name := range append(names, at(v, "name"), at(v, "function", "name")) {
		c.wrong(name != nil && !slices.Contains(c.tools, text(name)), "tool_choice: %q is not in tools", name)
	}
}

// say is any content but calls and results.
func (c *checker) say(where string) {
	c.wrong(len(c.open) > 0, "%s: the calls %q have no result right after their turn (N12)", where, c.open)
	c.open = nil
}

// call is a call of a tool by the assistant.
func (c *checker) call(where, id, name string, arguments any) {
	if c.ids != nil {
		c.wrong(!c.ids.MatchString(id), "%s: ID %q does not match %s", where, id, c.ids)
		c.wrong(slices.Contains(c.used, id), "%s: ID %q twice, it was used before", where, id)
	}
	c.wrong(!c.names.MatchString(name), "%s: name %q does not match %s", where, name, c.names)
	_, ok := arguments.(object)
	c.wrong(!ok, "%s: the arguments must be an object (N13, N14)", where)
	c.used = append(c.used, id)
	c.open = append(c.open, waiter{id, name})
}

// result is the result of a call; name is compared unless it is empty.
func (c *checker) result(where, id, name string) {
	if c.wrong(len(c.open) == 0, "%s: the result of %q answers no call of the turn before (N12)", where, id+name) {
		return
	}
	next := c.open[0]
	c.open = c.open[1:]
	c.wrong(id != next.id, "%s: result with ID %q, waiting for %q (N12)", where, id, next.id)
	c.wrong(name != "" && name != next.name, "%s: result of %q, waiting for %q (N12)", where, name, next.name)
}

// messages reads Chat Completions, and Ollama, whose arguments are objects, not texts.
func (c *checker) messages(d Dialect, list []any) {
	for i, m := range list {
		where := fmt.Sprintf("messages[%d]", i)
		if at(m, "role") == "tool" {
			_, ok := at(m, "content").(string)
			c.wrong(!ok, "%s.content: must be a string", where)
			c.result(where, text(at(m, "tool_call_id")), "")
			continue
		}
		c.say(where)
		calls := at(m, "tool_calls")
		c.wrong(calls == nil && at(m, "content") == nil, "%s.content: may only be null with tool_calls", where)
		if calls == nil {
			continue
		}
		c.wrong(d != Ollama && at(m, "content") == "", `%s.content: must be null, not "", beside tool_calls (4c.2)`, where)
		for n, call := range c.list(where+".tool_calls (1c.4)", calls) {
			id, name, arguments := at(call, "id"), at(call, "function", "name"), at(call, "function", "arguments")
			if d != Ollama {
				arguments = parsed(arguments)
			}
			c.call(fmt.Sprintf("%s.tool_calls[%d]", where, n), text(id), text(name), arguments)
		}
	}
}

// turns reads APIs where user and assistant take turns, and a turn holds blocks. It is
// stricter than they are in this: two turns of one side never follow each other.
func (c *checker) turns(d Dialect, list []any, content string) {
	before := ""
	for i, m := range list {
		where, role := fmt.Sprintf("turn %d", i), text(at(m, "role"))
		user := role == "user"
		c.wrong(role == before || before == "" && !user,
			"%s: two turns of the %s in a row, or no user at the start", where, role)
		before = role
		blocks, _ := at(m, content).([]any)
		if text(at(m, content)) == "" {
			c.list(where+"."+content, at(m, content))
		}
		if !user {
			c.say(where)
		}
		for _, b := range blocks {
			call, result := at(b, "functionCall"), at(b, "functionResponse")
			said := text(at(b, "text"))
			switch {
			case at(b, "type") == "tool_use":
				c.call(where, text(at(b, "id")), text(at(b, "name")), at(b, "input"))
			case call != nil:
				c.call(where, text(at(call, "id")), text(at(call, "name")), at(call, "args"))
			case at(b, "type") == "tool_result":
				c.result(where, text(at(b, "tool_use_id")), "")
			case result != nil:
				c.wrong(text(at(result, "name")) == "", "%s: a result without name (N12)", where)
				c.result(where, text(at(result, "id")), text(at(result, "name")))
			case user && (d == Anthropic || said != "" && !strings.HasPrefix(said, "[file ")):
				c.say(where) // Gemini takes the text that replaces a file between results
			}
		}
		if user {
			c.say(where)
		}
	}
	c.wrong(before != "user", "the last turn must be the user's")
}

// items reads the input of the Responses API.
func (c *checker) items(list []any) {
	for i, item := range list {
		where := fmt.Sprintf("input[%d]", i)
		switch at(item, "type") {
		case "function_call":
			c.call(where, text(at(item, "call_id")), text(at(item, "name")), parsed(at(item, "arguments")))
		case "function_call_output":
			c.result(where, text(at(item, "call_id")), "")
		default:
			if role := at(item, "role"); role != nil && role != "assistant" {
				c.say(where)
			}
		}
	}
}

// parsed returns the JSON value that a text holds; nil if v is none.
func parsed(v any) (value any) {
	if s, ok := v.(string); ok && json.Unmarshal([]byte(s), &value) == nil {
		return value
	}
	return nil
}

// at returns what is at a path of an object; nil if nothing.
func at(v any, path ...string) any {
	for _, name := range path {
		o, _ := v.(object)
		v = o[name]
	}
	return v
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func jsonObject(raw []byte) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(raw, &o) == nil && o != nil
}
