package modeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

var (
	toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	blockID  = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

// object is a JSON object as encoding/json decodes it.
type object = map[string]any

// Check reports what the API of d would refuse in a request body for a model, and what
// requirements 4c.2, N8, N12, N13 and N14 forbid; nil if nothing. Only Gemini, which
// names the model in the path, needs one; if "", nothing is known of it. One check of
// the transcript holds for all dialects: every call has exactly one result, right after
// its turn and in order; IDs match; arguments are objects; a list of tools is sorted and
// never empty. The shape of requests beyond that is what the vendors' own types decode,
// which the tests of module oracle compare.
func (d Dialect) Check(model string, body []byte) error {
	doc, err := readStrict(body)
	if err != nil {
		return err
	}
	c := &checker{names: toolName}
	fields, ok := doc.(object)
	if !ok {
		return errors.New("the body must be an object")
	}
	if d != Gemini {
		c.wrong(text(fields["model"]) == "", "model: is missing")
	}
	apis[d].check(c, model, fields)
	c.wrong(len(c.open) > 0, "the calls %q are not answered (N12)", c.open)
	return errors.Join(c.errs...)
}

// checker walks over the transcript of a request and collects what is wrong.
type checker struct {
	errs []error

	names *regexp.Regexp // of tools
	ids   *regexp.Regexp // of calls; if nil, they need none
	tools []string       // offered

	turn string   // whose turn it is, where turns must alternate
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

// only returns v, which must be an object with no other fields than those.
func (c *checker) only(where string, v any, fields string) object {
	o, ok := v.(object)
	c.wrong(!ok, "%s: must be an object", where)
	known := strings.Fields(fields)
	for name := range o {
		c.wrong(!slices.Contains(known, name), "%s: unknown field %q", where, name)
	}
	return o
}

// list returns v, which must be a list that is not empty.
func (c *checker) list(where string, v any) []any {
	l, _ := v.([]any)
	c.wrong(len(l) == 0, "%s: must be a list that is not empty", where)
	return l
}

// oneOf wants one of words, unless v is absent.
func (c *checker) oneOf(where string, v any, words string) {
	c.wrong(v != nil && !slices.Contains(strings.Fields(words), fmt.Sprint(v)), "%s: unknown value %v", where, v)
}

// within wants a number in a range, unless v is absent.
func (c *checker) within(where string, v any, least, most float64) {
	n, ok := v.(float64)
	c.wrong(v != nil && (!ok || n < least || n > most), "%s: must be %v to %v, is %v", where, least, most, v)
}

// offer checks one tool of an offer, whose schema is checked elsewhere.
func (c *checker) offer(where, name string) {
	c.wrong(!c.names.MatchString(name), "%s: name %q does not match %s", where, name, c.names)
	c.wrong(slices.Contains(c.tools, name), "%s: name %q twice", where, name)
	c.wrong(len(c.tools) > 0 && c.tools[len(c.tools)-1] > name, "%s: tools are not sorted by name (C5)", where)
	c.tools = append(c.tools, name)
}

// chosen wants a tool that must be called to be offered.
func (c *checker) chosen(name string) {
	c.wrong(!slices.Contains(c.tools, name), "tool_choice: %q is not in tools", name)
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

// next begins a turn where they must alternate.
func (c *checker) next(where, role, assistant string) {
	if c.turn == "" {
		c.turn = assistant
	}
	c.wrong(role != "user" && role != assistant, "%s: role %q", where, role)
	c.wrong(role == c.turn, "%s: two turns of the %s in a row, or no user at the start", where, role)
	c.turn = role
}

// last wants the conversation to end with the user.
func (c *checker) last() { c.wrong(c.turn != "user", "the last turn must be the user's") }

// readStrict decodes one JSON value; a member may not be there twice, and nothing may
// follow.
func readStrict(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	v, err := readValue(dec, "")
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("something follows the JSON value")
	}
	return v, nil
}

func readValue(dec *json.Decoder, path string) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("%s: no valid JSON: %w", path, err)
	}
	switch token {
	case json.Delim('['):
		list := []any{}
		for dec.More() {
			v, err := readValue(dec, fmt.Sprintf("%s[%d]", path, len(list)))
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = dec.Token()
		return list, err
	case json.Delim('{'):
		o := object{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, fmt.Errorf("%s: no valid JSON: %w", path, err)
			}
			name := fmt.Sprint(key)
			if _, ok := o[name]; ok {
				return nil, fmt.Errorf("%s: member %q twice", path, name)
			}
			if o[name], err = readValue(dec, path+"."+name); err != nil {
				return nil, err
			}
		}
		_, err = dec.Token()
		return o, err
	}
	return token, nil
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

// blank reports whether v is not text, or one of white space only.
func blank(v any) bool { return strings.TrimSpace(text(v)) == "" }

func jsonObject(raw []byte) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(raw, &o) == nil && o != nil
}

// objectSchema checks the schema of a tool's parameters.
func (c *checker) objectSchema(where string, v any) {
	schema, _ := v.(object)
	c.wrong(schema["type"] != "object", "%s: must be a schema of type object, is %v", where, schema["type"])
	_, ok := schema["properties"].(object)
	c.wrong(!ok, "%s: properties must be an object", where)
	for _, word := range []string{"oneOf", "anyOf", "allOf", "not", "enum"} {
		c.wrong(schema[word] != nil, "%s: %s at the top", where, word)
	}
	c.propertySchemas(where, schema)
}

func (c *checker) propertySchemas(where string, schema object) {
	properties, ok := schema["properties"].(object)
	c.wrong(schema["properties"] != nil && !ok, "%s: properties must be an object", where)
	for name, v := range properties {
		p, ok := v.(object)
		c.wrong(!ok, "%s.%s: a schema must be an object", where, name)
		c.wrong(p["type"] == "array" && p["items"] == nil, "%s.%s: array schema missing items", where, name)
		c.propertySchemas(where+"."+name, p)
	}
}
