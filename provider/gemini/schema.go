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
	if len(schema) > maxSchemaBytes {
		return nil, fmt.Errorf("its schema is longer than %d bytes", maxSchemaBytes)
	}
	if !json.Valid(schema) {
		return nil, errors.New("its schema is not JSON")
	}
	root, err := parse(schema)
	if err != nil {
		return nil, errors.New("its schema is nested too deep")
	}
	p := projector{root: root}
	top, err := p.top()
	if err != nil {
		return nil, err
	}
	if properties, _ := top.get("properties").(object); len(properties) == 0 {
		return nil, p.err
	}
	return p.members(top, 0).encode(nil), p.err
}

// top is the schema of the parameters themselves, which must be an object: what
// a reference or a combinator at the top says is merged into it.
func (p *projector) top() (object, error) {
	top, ok := p.root.(object)
	for n := 0; ok && top.text("$ref") != ""; n++ {
		target, found := find(p.root, top.text("$ref"))
		if !found || n == maxSchemaDepth {
			return nil, fmt.Errorf("its schema refers to %q, which is not in it", wire.Clip(top.text("$ref"), 80))
		}
		top, ok = target.(object)
	}
	if !ok {
		return nil, errors.New("its schema is not a JSON object")
	}
	merged := object{{"type", json.RawMessage(`"object"`)}}
	for _, f := range top {
		switch f.name {
		case "type":
			if !namesObject(f.value) {
				return nil, errors.New("its schema is not of type object")
			}
		case "allOf", "anyOf", "oneOf", "enum", "const":
		default:
			merged = append(merged, f)
		}
	}
	for _, word := range [...]string{"allOf", "anyOf", "oneOf"} {
		branches, _ := top.get(word).([]any)
		before, _ := merged.get("required").([]any)
		merged = p.allOf(merged, branches, 0)
		if word != "allOf" && merged.get("required") != nil {
			// What one branch asks for another may not.
			merged = merged.set("required", before)
		}
	}
	return merged, p.err
}

// namesObject reports whether a type is object, or a list with it.
func namesObject(v any) bool {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	return slices.ContainsFunc(list, func(one any) bool { return string(raw(one)) == `"object"` })
}

// answerSchema brings a schema of the answer into what responseJsonSchema takes;
// nil = not without losing more than limits that can be told in words. The
// answer is checked against the whole schema elsewhere.
func answerSchema(raw json.RawMessage) []byte {
	if !json.Valid(raw) {
		return nil
	}
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
	refs  []string // being written out
	lossy bool     // something was left out that no description mentions
	err   error
}

func (p *projector) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *projector) schema(v any, depth int) object {
	if p.nodes++; p.nodes > maxSchemaNodes {
		p.fail("its schema has more than %d parts once its references are resolved", maxSchemaNodes)
	}
	o, ok := v.(object)
	if !ok || depth > maxSchemaDepth || p.err != nil {
		p.lossy = p.lossy || depth > maxSchemaDepth || string(raw(v)) == "false"
		return object{}
	}
	if ref := o.text("$ref"); ref != "" {
		return p.reference(o, ref, depth)
	}
	if branches, ok := o.get("allOf").([]any); ok {
		merged := p.allOf(o, branches, depth)
		if p.err != nil {
			return object{}
		}
		o = merged
	}
	return p.members(o, depth)
}

func raw(v any) json.RawMessage {
	r, _ := v.(json.RawMessage)
	return r
}

// reference writes out what a reference names, with what is beside it. A
// reference into itself ends: anything goes there.
func (p *projector) reference(o object, ref string, depth int) object {
	if slices.Contains(p.refs, ref) {
		p.lossy = true
		return object{}
	}
	target, ok := find(p.root, ref)
	if !ok {
		p.fail("its schema refers to %q, which is not in it", wire.Clip(ref, 80))
		return object{}
	}
	merged := object{}
	if t, ok := target.(object); ok {
		merged = slices.Clone(t)
	}
	for _, f := range o {
		if f.name != "$ref" {
			merged = merged.set(f.name, f.value)
		}
	}
	p.refs = append(p.refs, ref)
	defer func() { p.refs = p.refs[:len(p.refs)-1] }()
	return p.schema(merged, depth)
}

// allOf merges the branches into one schema: properties and required add up, of
// anything else the first counts.
func (p *projector) allOf(o object, branches []any, depth int) object {
	merged := object{}
	for _, f := range o {
		if f.name != "allOf" {
			merged = append(merged, f)
		}
	}
	for _, b := range branches {
		branch, ok := b.(object)
		for n := 0; ok && n <= maxSchemaDepth; n++ {
			ref := branch.text("$ref")
			if ref == "" {
				break
			}
			target, found := find(p.root, ref)
			if !found || n+depth > maxSchemaDepth {
				p.fail("its schema refers to %q, which is not in it", wire.Clip(ref, 80))
				return merged
			}
			branch, ok = target.(object)
		}
		if inner, has := branch.get("allOf").([]any); has && depth < maxSchemaDepth {
			branch = p.allOf(branch, inner, depth+1)
		}
		merged = p.merge(merged, branch)
	}
	return merged
}

func (p *projector) merge(a, b object) object {
	if p.nodes += len(b); p.nodes > maxSchemaNodes {
		p.fail("its schema has more than %d parts once its references are resolved", maxSchemaNodes)
		return a
	}
	for _, f := range b {
		have := a.get(f.name)
		more, isObject := f.value.(object)
		list, isList := f.value.([]any)
		switch {
		case have == nil:
			a = append(a, f)
		case f.name == "properties" && isObject:
			properties, _ := have.(object)
			properties = slices.Clone(properties)
			if p.nodes += len(more); p.nodes > maxSchemaNodes {
				more = nil // the next step decides
			}
			for _, inner := range more {
				if properties.get(inner.name) == nil {
					properties = append(properties, inner)
				}
			}
			a = a.set(f.name, properties)
		case f.name == "required" && isList:
			required, _ := have.([]any)
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

// parse reads valid JSON.
func parse(raw []byte) (any, error) {
	c := wire.NewCursor(raw)
	v := value(&c)
	return v, c.End()
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
