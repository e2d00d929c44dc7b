package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/provider/wire"
)

// Bounds of a schema as it is sent. A reference is written out where it is used,
// so that a small schema could become a huge one.
const (
	maxSchemaNodes = 5000
	maxSchemaDepth = 30
	maxSchemaBytes = 1 << 20
	maxHintBytes   = 200
)

// parameters brings the schema of a tool's parameters into what the API takes; nil if the
// tool has none: the field is left out then.
func parameters(schema json.RawMessage) (json.RawMessage, error) {
	switch strings.TrimSpace(string(schema)) {
	case "", "null", "true", "[]":
		return nil, nil
	}
	root, err := parse(schema)
	if err != nil {
		return nil, err
	}
	p := projector{root: root}
	top := p.top()
	if properties, _ := top.get("properties").(object); p.err != nil || len(properties) == 0 {
		return nil, p.err
	}
	return p.members(top, 0).encode(nil), p.err
}

// top is the schema of the parameters themselves, which must be an object: what
// a reference or a combinator at the top says is merged into it.
func (p *projector) top() object {
	whole, _ := p.root.(object)
	top := p.flat(whole, 0)
	p.refs = nil
	if whole == nil || top.get("type") != nil && !p.is(top, "object") {
		p.fail("its schema is not of type object")
	}
	merged := object{{"type", json.RawMessage(`"object"`)}}
	for _, f := range top {
		if !slices.Contains([]string{"type", "anyOf", "oneOf", "enum", "const"}, f.name) {
			merged = append(merged, f)
		}
	}
	required := merged.get("required") // what one branch asks for another may not
	for _, word := range [...]string{"anyOf", "oneOf"} {
		branches, _ := top.get(word).([]any)
		for _, branch := range branches {
			branch, _ := branch.(object)
			merged = p.merge(merged, p.flat(branch, 0))
		}
	}
	return merged.set("required", required)
}

// is reports whether a type is that, or a list with it.
func (p *projector) is(o object, kind string) bool {
	list, ok := o.get("type").([]any)
	if !ok {
		list = []any{o.get("type")}
	}
	return slices.ContainsFunc(list, func(one any) bool { return string(raw(one)) == `"`+kind+`"` })
}

// answerSchema brings a schema of the answer into what responseJsonSchema takes;
// nil = not without losing more than limits that can be told in words. The
// answer is checked against the whole schema elsewhere.
func answerSchema(raw json.RawMessage) []byte {
	root, err := parse(raw)
	if _, ok := root.(object); err != nil || !ok {
		return nil
	}
	p := projector{root: root}
	out := p.schema(root, 0)
	if p.err != nil || p.lossy {
		return nil
	}
	return out.encode(nil)
}

// projector writes a JSON Schema in the subset that the API documents for
// responseJsonSchema and parametersJsonSchema: $ref is written out, const becomes
// enum, oneOf becomes anyOf, allOf is merged. Limits that the subset does not know
// go into the description, for the model to read; the gate judges calls by the
// tool's own schema.
type projector struct {
	root  any
	nodes int
	bytes int
	refs  []string // being written out
	lossy bool     // something was left out that no description mentions
	err   error
}

func (p *projector) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// grow counts parts of the schema as it is sent.
func (p *projector) grow(n int) bool {
	if p.nodes += n; p.nodes > maxSchemaNodes {
		p.fail("its schema has more than %d parts once its references are resolved", maxSchemaNodes)
	}
	return p.err == nil
}

// write counts bytes of the schema as it is sent that are in none of its parts.
func (p *projector) write(n int) bool {
	if p.bytes += n; p.bytes > maxSchemaBytes {
		p.fail("its schema is longer than %d bytes once its references are resolved", maxSchemaBytes)
	}
	return p.err == nil
}

func (p *projector) schema(v any, depth int) object {
	o, ok := v.(object)
	if !p.grow(1) || !ok || depth > maxSchemaDepth {
		p.lossy = p.lossy || depth > maxSchemaDepth || string(raw(v)) == "false"
		return object{}
	}
	open := len(p.refs)
	defer func() { p.refs = p.refs[:open] }()
	return p.members(p.flat(o, depth), depth)
}

func raw(v any) json.RawMessage {
	r, _ := v.(json.RawMessage)
	return r
}

// flat writes out what a reference names, with what is beside it, and merges the branches
// of allOf: properties and required add up, of anything else the first counts. A
// reference into itself ends: anything goes there.
func (p *projector) flat(o object, depth int) object {
	flat := object{}
	for _, f := range o {
		if f.name != "$ref" && f.name != "allOf" {
			flat = append(flat, f)
		}
	}
	if depth > maxSchemaDepth || p.err != nil {
		p.lossy = true
		return flat
	}
	if ref := o.text("$ref"); slices.Contains(p.refs, ref) {
		p.lossy = true
	} else if ref != "" {
		target, ok := find(p.root, ref)
		if !ok {
			p.fail("its schema refers to %q, which is not in it", wire.Clip(ref, 80))
		}
		p.refs = append(p.refs, ref)
		inner, _ := target.(object)
		flat = p.merge(flat, p.flat(inner, depth+1))
	}
	branches, _ := o.get("allOf").([]any)
	for _, v := range branches {
		open := len(p.refs)
		branch, _ := v.(object)
		flat = p.merge(flat, p.flat(branch, depth+1))
		p.refs = p.refs[:open] // what is in a branch may refer to it again
	}
	return flat
}

func (p *projector) merge(a, b object) object {
	if !p.grow(1 + len(b)) {
		return a
	}
	for _, f := range b {
		have := a.get(f.name)
		more, isObject := f.value.(object)
		list, isList := f.value.([]any)
		switch {
		case have == nil:
			a = append(a, f)
		case f.name == "properties" && isObject && p.grow(len(more)):
			properties, _ := have.(object)
			if !p.grow(max(0, len(properties)-maxSchemaNodes)) {
				return a
			}
			properties = slices.Clone(properties)
			for _, inner := range more {
				if properties.get(inner.name) == nil {
					properties = append(properties, inner)
				}
			}
			a = a.set(f.name, properties)
		case f.name == "required" && isList:
			required, _ := have.([]any)
			if !p.grow(max(0, len(required)+len(list)-maxSchemaNodes)) {
				return a
			}
			a = a.set(f.name, append(slices.Clone(required), list...))
		case f.name != "title" && f.name != "description" && f.name != "type":
			p.lossy = true
		}
	}
	return a
}

// object is a JSON object whose members keep their order: a model answers in the
// order of a schema's properties. A name may be in it twice. A value is an object, a list ([]any) or the
// JSON text of anything else (json.RawMessage).
type object []field

type field struct {
	name  string
	value any
}

func (o object) get(name string) any {
	for i := range o {
		if o[i].name == name {
			return o[i].value
		}
	}
	return nil
}

// text is a member that is a string, "" if it is not.
func (o object) text(name string) string {
	raw, _ := o.get(name).(json.RawMessage)
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// set replaces a member, or adds it.
func (o object) set(name string, value any) object {
	for i := range o {
		if o[i].name == name {
			o[i].value = value
			return o
		}
	}
	return append(o, field{name, value})
}

// add adds a member, unless there is one of that name or value is nil.
func (o object) add(name string, value any) object {
	if value == nil || o.get(name) != nil {
		return o
	}
	return append(o, field{name, value})
}

// encode appends the JSON of an object.
func (o object) encode(dst []byte) []byte {
	dst = append(dst, '{')
	for i, f := range o {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = encode(append(wire.AppendString(dst, f.name), ':'), f.value)
	}
	return append(dst, '}')
}

func encode(dst []byte, value any) []byte {
	switch v := value.(type) {
	case object:
		return v.encode(dst)
	case []any:
		dst = append(dst, '[')
		for i, one := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = encode(dst, one)
		}
		return append(dst, ']')
	}
	return append(dst, raw(value)...)
}

// parse reads the JSON of a schema.
func parse(raw []byte) (any, error) {
	if len(raw) > maxSchemaBytes {
		return nil, fmt.Errorf("its schema is longer than %d bytes", maxSchemaBytes)
	}
	c := wire.NewCursor(raw)
	v := value(&c)
	if c.End() != nil || !json.Valid(raw) {
		return nil, errors.New("its schema is not JSON, or nested too deep")
	}
	return v, nil
}

func value(c *wire.Cursor) any {
	switch c.Peek() {
	case '{':
		o := object{}
		c.Enter('{')
		for {
			key, ok := c.Key()
			if !ok {
				return o
			}
			name := strings.ToValidUTF8(string(key), "\uFFFD")
			o = append(o, field{name, value(c)})
		}
	case '[':
		list := []any{}
		c.Enter('[')
		for c.Next() {
			list = append(list, value(c))
		}
		return list
	case '"':
		return json.RawMessage(wire.AppendString(nil, c.String()))
	}
	return json.RawMessage(c.Raw())
}

// find follows a JSON pointer of a reference, such as #/$defs/node.
func find(root any, ref string) (any, bool) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok || pointer != "" && pointer[0] != '/' {
		return nil, false
	}
	v := root
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		o, isObject := v.(object)
		if !isObject {
			return nil, false
		}
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		if v = o.get(step); v == nil {
			return nil, false
		}
	}
	return v, true
}
