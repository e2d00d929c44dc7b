package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

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

// schemas remembers what became of the schemas of tools, so that a tool costs
// its work once and not in every run. It is bounded, and safe for use by many.
type schemas struct {
	mu    sync.Mutex
	known map[string]projected
	bytes int
}

type projected struct {
	schema json.RawMessage
	err    error
}

const maxKnownSchemas = 4 << 20

// parameters returns the schema of a tool's parameters as the API takes it; nil
// if the tool has none: the field is left out then.
func (s *schemas) parameters(raw json.RawMessage) (json.RawMessage, error) {
	s.mu.Lock()
	known, ok := s.known[string(raw)]
	s.mu.Unlock()
	if ok {
		return known.schema, known.err
	}
	schema, err := parameters(raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || s.bytes > maxKnownSchemas {
		s.known, s.bytes = make(map[string]projected), 0
	}
	s.known[string(raw)] = projected{schema, err}
	s.bytes += len(raw) + len(schema) + 64
	return schema, err
}

func parameters(schema json.RawMessage) (json.RawMessage, error) {
	switch strings.TrimSpace(string(schema)) {
	case "", "null", "true", "[]":
		return nil, nil
	}
	if len(schema) > maxSchemaBytes {
		return nil, fmt.Errorf("its schema is longer than %d bytes", maxSchemaBytes)
	}
	if !json.Valid(schema) {
		return nil, errors.New("its schema is no JSON")
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
	out := p.members(nil, top, 0)
	return out, p.err
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
		return nil, errors.New("its schema is no JSON object")
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

// namesObject tells whether a type is object, or a list with it.
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
	out := p.schema(nil, root, 0)
	if p.err != nil || p.lossy {
		return nil
	}
	return out
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
	lossy bool     // something was left out that no description tells
	err   error
}

func (p *projector) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *projector) schema(dst []byte, v any, depth int) []byte {
	if p.nodes++; p.nodes > maxSchemaNodes {
		p.fail("its schema has more than %d parts once its references are resolved", maxSchemaNodes)
	}
	o, ok := v.(object)
	if !ok || depth > maxSchemaDepth || p.err != nil {
		p.lossy = p.lossy || depth > maxSchemaDepth || string(raw(v)) == "false"
		return append(dst, `{}`...)
	}
	if ref := o.text("$ref"); ref != "" {
		return p.reference(dst, o, ref, depth)
	}
	if branches, ok := o.get("allOf").([]any); ok {
		merged := p.allOf(o, branches, depth)
		if p.err != nil {
			return append(dst, `{}`...)
		}
		o = merged
	}
	return p.members(dst, o, depth)
}

func raw(v any) json.RawMessage {
	r, _ := v.(json.RawMessage)
	return r
}

// reference writes out what a reference names, with what stands beside it. A
// reference into itself ends: anything goes there.
func (p *projector) reference(dst []byte, o object, ref string, depth int) []byte {
	if slices.Contains(p.refs, ref) {
		p.lossy = true
		return append(dst, `{}`...)
	}
	target, ok := find(p.root, ref)
	if !ok {
		p.fail("its schema refers to %q, which is not in it", wire.Clip(ref, 80))
		return dst
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
	dst = p.schema(dst, merged, depth)
	p.refs = p.refs[:len(p.refs)-1]
	return dst
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
				more = nil // the next step tells
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

// propertyName is what a parameter's name may be. The API says letters, digits
// and underscores, and takes what is usual besides.
var propertyName = regexp.MustCompile(`^[A-Za-z0-9_.$@:/-]{1,64}$`)

// members writes what the API takes, in the order of the schema.
func (p *projector) members(dst []byte, o object, depth int) []byte {
	w := writer{buf: append(dst, '{')}
	hint := p.hint(o)
	for _, f := range o {
		switch f.name {
		case "type", "minItems", "maxItems", "minimum", "maximum":
			p.plain(&w, f)
		case "title":
			if r := raw(f.value); len(r) > 0 && r[0] == '"' {
				w.raw(f.name, r)
			}
		case "description":
			if text := o.text(f.name); text+hint != "" {
				w.text(f.name, strings.TrimSpace(text+" "+hint))
				hint = ""
			}
		case "format":
			if slices.Contains(formats, o.text(f.name)) {
				w.raw(f.name, raw(f.value))
			}
		case "enum", "const":
			p.enum(&w, f)
		case "properties":
			p.properties(&w, f, depth)
		case "required":
			required(&w, o)
		case "items":
			p.items(&w, f, depth)
		case "additionalProperties":
			p.additional(&w, f, depth)
		case "prefixItems", "anyOf", "oneOf":
			p.branches(&w, f, depth)
		case "not", "if", "then", "else", "patternProperties", "contains", "dependentSchemas", "dependentRequired", "dependencies", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef":
			p.lossy = true
		}
	}
	if isArray(o) && !slices.Contains(w.names, "prefixItems") {
		w.raw("items", []byte(`{}`)) // an array without is refused
	}
	if hint != "" {
		w.text("description", hint)
	}
	return append(w.buf, '}')
}

func isArray(o object) bool {
	list, ok := o.get("type").([]any)
	if !ok {
		list = []any{o.get("type")}
	}
	return slices.ContainsFunc(list, func(one any) bool { return string(raw(one)) == `"array"` })
}

// writer writes the members of an object; the first of a name counts.
type writer struct {
	buf   []byte
	names []string
}

func (w *writer) name(name string) bool {
	if slices.Contains(w.names, name) {
		return false
	}
	if len(w.names) > 0 {
		w.buf = append(w.buf, ',')
	}
	w.names = append(w.names, name)
	w.buf = append(wire.AppendString(w.buf, name), ':')
	return true
}

func (w *writer) raw(name string, value []byte) {
	if w.name(name) {
		w.buf = append(w.buf, value...)
	}
}

func (w *writer) text(name, value string) {
	if w.name(name) {
		w.buf = wire.AppendString(w.buf, value)
	}
}

// formats are those that the API documents.
var formats = []string{"date-time", "date", "time", "float", "double", "int32", "int64"}

// hint tells in words what the API has no field for.
func (p *projector) hint(o object) string {
	var all []string
	for _, f := range o {
		switch f.name {
		case "format":
			if slices.Contains(formats, o.text(f.name)) {
				continue
			}
		case "pattern", "default", "minLength", "maxLength", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems", "minProperties", "maxProperties":
		default:
			continue
		}
		if r := raw(f.value); len(r) > 0 && string(r) != "null" && len(r) <= maxHintBytes {
			all = append(all, f.name+": "+string(r))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "(" + strings.Join(all, ", ") + ")"
}

// types are the names that a type may have.
var types = []string{"string", "number", "integer", "boolean", "object", "array", "null"}

// plain writes a type or a number as it is.
func (p *projector) plain(w *writer, f field) {
	if f.name != "type" {
		if r := raw(f.value); len(r) > 0 && (r[0] == '-' || r[0] >= '0' && r[0] <= '9') {
			w.raw(f.name, r)
		}
		return
	}
	list, ok := f.value.([]any)
	if !ok {
		list = []any{f.value}
	}
	var names []string
	for _, one := range list {
		var name string
		if json.Unmarshal(raw(one), &name) == nil && slices.Contains(types, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
	case 1:
		w.text(f.name, names[0])
	default:
		w.name(f.name)
		w.buf = append(w.buf, '[')
		for i, name := range names {
			w.buf = wire.AppendString(separated(w.buf, i), name)
		}
		w.buf = append(w.buf, ']')
	}
}

func separated(dst []byte, i int) []byte {
	if i > 0 {
		return append(dst, ',')
	}
	return dst
}

// enum writes the values that are strings or numbers; the API takes no others.
// An enumeration that holds others beside null is left out.
func (p *projector) enum(w *writer, f field) {
	list, ok := f.value.([]any)
	if f.name == "const" {
		list, ok = []any{f.value}, true
	}
	if !ok {
		return
	}
	var values [][]byte
	for _, v := range list {
		r := raw(v)
		switch {
		case string(r) == "null":
		case len(r) > 0 && (r[0] == '"' || r[0] == '-' || r[0] >= '0' && r[0] <= '9'):
			values = append(values, r)
		default:
			p.lossy = true
			return
		}
	}
	if len(values) == 0 || !w.name("enum") {
		return
	}
	w.buf = append(w.buf, '[')
	for i, v := range values {
		w.buf = append(separated(w.buf, i), v...)
	}
	w.buf = append(w.buf, ']')
}

func (p *projector) properties(w *writer, f field, depth int) {
	list, ok := f.value.(object)
	if !ok || len(list) == 0 || !w.name(f.name) {
		return
	}
	w.buf = append(w.buf, '{')
	seen := make(map[string]bool, min(len(list), maxSchemaNodes))
	for _, one := range list {
		switch {
		case p.err != nil:
			return
		case seen[one.name]:
			continue
		case !propertyName.MatchString(one.name):
			p.fail("this API does not take the parameter name %q", wire.Clip(one.name, 80))
		}
		w.buf = append(wire.AppendString(separated(w.buf, len(seen)), one.name), ':')
		w.buf = p.schema(w.buf, one.value, depth+1)
		seen[one.name] = true
	}
	w.buf = append(w.buf, '}')
}

// required writes the names that are among the properties: others are refused.
func required(w *writer, o object) {
	list, _ := o.get("required").([]any)
	properties, _ := o.get("properties").(object)
	var names []string
	if len(list) > maxSchemaNodes || len(properties) > maxSchemaNodes {
		return
	}
	for _, v := range list {
		var name string
		if json.Unmarshal(raw(v), &name) == nil && properties.get(name) != nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 || !w.name("required") {
		return
	}
	w.buf = append(w.buf, '[')
	for i, name := range names {
		w.buf = wire.AppendString(separated(w.buf, i), name)
	}
	w.buf = append(w.buf, ']')
}

// items writes the schema of elements; a list of schemas, as older drafts have
// it, is prefixItems.
func (p *projector) items(w *writer, f field, depth int) {
	if list, ok := f.value.([]any); ok {
		p.branches(w, field{"prefixItems", list}, depth)
		return
	}
	if w.name(f.name) {
		w.buf = p.schema(w.buf, f.value, depth+1)
	}
}

func (p *projector) additional(w *writer, f field, depth int) {
	if o, ok := f.value.(object); ok && len(o) > 0 {
		if w.name(f.name) {
			w.buf = p.schema(w.buf, o, depth+1)
		}
		return
	}
	if string(raw(f.value)) == "false" {
		w.raw(f.name, []byte("false"))
	}
}

func (p *projector) branches(w *writer, f field, depth int) {
	list, ok := f.value.([]any)
	if !ok || len(list) == 0 {
		return
	}
	name := f.name
	if name == "oneOf" {
		name = "anyOf"
	}
	if !w.name(name) {
		p.lossy = true
		return
	}
	w.buf = append(w.buf, '[')
	for i, v := range list {
		w.buf = p.schema(separated(w.buf, i), v, depth+1)
	}
	w.buf = append(w.buf, ']')
}
