package gemini

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// Bounds of a schema. References are expanded, so that a small schema could become a huge one.
const (
	maxSchemaBytes = 1 << 20 // of the schema, and of the parts that references are replaced by
	refBytes       = 200     // counted for each reference in addition
	maxSchemaDepth = 30
	maxHintBytes   = 200
)

// parameters converts the schema of a tool's parameters into the API's subset. It returns nil
// if the tool has none; the field is omitted then.
func parameters(schema json.RawMessage) (json.RawMessage, error) {
	switch strings.TrimSpace(string(schema)) {
	case "", "null", "true", "[]":
		return nil, nil
	}
	root, err := parse(schema)
	if err != nil {
		return nil, err
	}
	p := projector{root: root, left: maxSchemaBytes}
	top := p.top()
	if properties, _ := top.get("properties").(object); p.err != nil || len(properties) == 0 {
		return nil, p.err
	}
	return encode(nil, p.members(top, 0)), p.err
}

// answerSchema converts a schema of the answer into the subset of responseJsonSchema, or
// returns nil if that would lose more than limits that a description can mention. The
// answer is checked against the whole schema elsewhere.
func answerSchema(raw json.RawMessage) []byte {
	root, err := parse(raw)
	if _, ok := root.(object); err != nil || !ok {
		return nil
	}
	p := projector{root: root, left: maxSchemaBytes}
	out := p.schema(root, 0)
	if p.err != nil || p.lossy {
		return nil
	}
	return encode(nil, out)
}

// projector converts a JSON Schema into the subset that the API documents for
// responseJsonSchema and parametersJsonSchema. All models, including those of generation 3, reject
// a whole request if one tool has a $ref with members next to it, to a place outside of $defs, or
// in a required property that leads to itself; so references are expanded. They ignore const, allOf
// and most limits: const becomes enum, allOf is merged, and limits are added to the description for
// the model. The gate judges calls by the tool's own schema.
type projector struct {
	root  any
	left  int      // bytes that references may still be replaced by
	refs  []string // references that are being expanded
	lossy bool     // something was left out that no description mentions
	err   error
}

func (p *projector) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// spend counts n bytes that a schema grows by, or that are copied, and reports whether there are
// any left.
func (p *projector) spend(n int) bool {
	if p.left -= n; p.left < 0 {
		p.fail("its schema is longer than %d bytes once its references are resolved", maxSchemaBytes)
	}
	return p.err == nil
}

// top returns the schema of the parameters, which must be an object: a reference
// or a combinator at the top is merged into it.
func (p *projector) top() object {
	whole, _ := p.root.(object)
	top := p.flat(whole, 0)
	p.refs = nil
	if whole == nil || top.get("type") != nil && !slices.Contains(listOf(top.get("type")), any("object")) {
		p.fail("its schema is not of type object")
	}
	merged := object{{"type", "object"}}
	for _, f := range top {
		if !slices.Contains([]string{"type", "anyOf", "oneOf", "enum", "const"}, f.name) {
			merged = append(merged, f)
		}
	}
	required := merged.get("required") // of a branch, required does not apply to the others
	for _, word := range [...]string{"anyOf", "oneOf"} {
		branches, _ := top.get(word).([]any)
		for _, branch := range branches {
			branch, _ := branch.(object)
			merged = p.merge(merged, p.flat(branch, 0))
		}
	}
	return merged.set("required", required)
}

func (p *projector) schema(v any, depth int) object {
	o, ok := v.(object)
	if p.err != nil || !ok || depth > maxSchemaDepth {
		p.lossy = p.lossy || depth > maxSchemaDepth || v == false
		return object{}
	}
	open := len(p.refs)
	defer func() { p.refs = p.refs[:open] }()
	return p.members(p.flat(o, depth), depth)
}

// flat expands a reference, with the members next to it, and merges the branches
// of allOf: properties and required are combined, of any other member the first is kept. A
// recursive reference is replaced by a schema without restrictions.
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
	if ref, _ := o.get("$ref").(string); slices.Contains(p.refs, ref) {
		p.lossy = true
	} else if ref != "" {
		p.refs = append(p.refs, ref)
		if part := p.find(ref); p.spend(refBytes + len(encode(nil, part))) {
			flat = p.merge(flat, p.flat(part, depth+1))
		}
	}
	branches, _ := o.get("allOf").([]any)
	for _, v := range branches {
		open := len(p.refs)
		branch, _ := v.(object)
		flat = p.merge(flat, p.flat(branch, depth+1))
		p.refs = p.refs[:open] // a branch may use the reference again
	}
	return flat
}

// find returns the value of a reference, a JSON pointer such as #/$defs/node.
func (p *projector) find(ref string) object {
	pointer, ok := strings.CutPrefix(ref, "#")
	v := p.root
	for i, step := range strings.Split(pointer, "/") {
		if i == 0 {
			ok = ok && step == ""
			continue
		}
		o, _ := v.(object)
		v = o.get(strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
	}
	if !ok || v == nil {
		p.fail("its schema refers to %q, which is not in it", wire.Clip(ref, 80))
	}
	o, _ := v.(object)
	return o
}

func (p *projector) merge(a, b object) object {
	for _, f := range b {
		have := a.get(f.name)
		switch more := f.value.(type) {
		case object:
			if properties, ok := have.(object); ok && f.name == "properties" {
				properties = slices.Clone(properties)
				for _, inner := range more {
					if p.spend(len(properties)) {
						properties = properties.add(inner.name, inner.value)
					}
				}
				a = a.set(f.name, properties)
				continue
			}
		case []any:
			if required, ok := have.([]any); ok && f.name == "required" && p.spend(len(required)+len(more)) {
				a = a.set(f.name, slices.Concat(required, more))
				continue
			}
		}
		if have == nil {
			a = append(a, f)
		} else {
			p.lossy = p.lossy || f.name != "title" && f.name != "description" && f.name != "type"
		}
	}
	return a
}

var (
	// formats and types are those that the API documents.
	formats = []any{"date-time", "date", "time", "float", "double", "int32", "int64"}
	types   = []any{"string", "number", "integer", "boolean", "object", "array", "null"}

	// propertyName matches names of parameters. The API documents letters, digits
	// and underscores, but also accepts the usual names.
	propertyName = lazyregexp.New(`^[A-Za-z0-9_.$@:/-]{1,64}$`)
)

// members returns the members of a schema that the API accepts, in its order.
func (p *projector) members(o object, depth int) object {
	out, hints := object{}, []string(nil)
	for _, f := range o {
		list, _ := f.value.([]any)
		inner, isObject := f.value.(object)
		text, isText := f.value.(string)
		_, isNumber := f.value.(json.Number)
		switch {
		case f.name == "type":
			out = out.add(f.name, typeNames(f.value))
		case isNumber && slices.Contains([]string{"minItems", "maxItems", "minimum", "maximum"}, f.name),
			f.name == "format" && slices.Contains(formats, f.value):
			out = out.add(f.name, f.value)
		case f.name == "title", f.name == "description":
			if isText && text != "" {
				out = out.add(f.name, text)
			}
		case f.name == "enum":
			out = out.add("enum", p.enum(list))
		case f.name == "const":
			out = out.add("enum", p.enum([]any{f.value}))
		case f.name == "properties":
			out = out.add(f.name, p.properties(inner, depth))
		case f.name == "required":
			out = out.add(f.name, required(list, o))
		case f.name == "items" && list == nil, f.name == "additionalProperties" && isObject && len(inner) > 0:
			if out.get(f.name) == nil {
				out = out.add(f.name, p.schema(f.value, depth+1))
			}
		case f.name == "additionalProperties" && f.value == false:
			out = out.add(f.name, false)
		case f.name == "items": // a list, as in older drafts
			out = p.branches(out, "prefixItems", list, depth)
		case f.name == "prefixItems", f.name == "anyOf", f.name == "oneOf":
			out = p.branches(out, strings.Replace(f.name, "oneOf", "anyOf", 1), list, depth)
		case slices.Contains(described, f.name) && (isNumber || f.value == true || isText && len(text) <= maxHintBytes):
			hints = append(hints, f.name+": "+string(encode(nil, f.value)))
		case slices.Contains(lost, f.name):
			p.lossy = true
		}
	}
	if slices.Contains(listOf(o.get("type")), any("array")) && out.get("prefixItems") == nil {
		out = out.add("items", object{}) // an array without items is rejected
	}
	if len(hints) > 0 {
		text, _ := out.get("description").(string)
		out = out.set("description", strings.TrimSpace(text+" ("+strings.Join(hints, ", ")+")"))
	}
	return out
}

var (
	// described are limits without a field in the API, which are added to the description.
	described = []string{
		"format", "pattern", "default", "minLength", "maxLength", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
		"uniqueItems", "minProperties", "maxProperties",
	}
	// lost are members that the API cannot express and no description mentions.
	lost = []string{
		"not", "if", "then", "else", "patternProperties", "contains", "dependentSchemas", "dependentRequired",
		"dependencies", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef",
	}
)

// listOf returns v if it is a list, otherwise a list of v.
func listOf(v any) []any {
	if list, ok := v.([]any); ok {
		return list
	}
	return []any{v}
}

// some returns the list, or nil if it is empty.
func some(list []any) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

// typeNames returns the valid names in a type, or nil if it has none.
func typeNames(v any) any {
	var names []any
	for _, one := range listOf(v) {
		if slices.Contains(types, one) && !slices.Contains(names, one) {
			names = append(names, one)
		}
	}
	if len(names) == 1 {
		return names[0]
	}
	return some(names)
}

// enum returns the values that are strings or numbers, the only ones that the API accepts.
// An enumeration with other values except null is left out.
func (p *projector) enum(list []any) any {
	var values []any
	for _, v := range list {
		switch v.(type) {
		case string, json.Number:
			values = append(values, v)
		case nil:
		default:
			p.lossy = true
			return nil
		}
	}
	return some(values)
}

func (p *projector) properties(list object, depth int) any {
	out, seen := object{}, make(map[string]bool)
	for _, one := range list {
		switch {
		case p.err != nil:
			return nil
		case seen[one.name]:
			continue
		case !propertyName.MatchString(one.name):
			p.fail("this API does not accept the parameter name %q", wire.Clip(one.name, 80))
		}
		out = append(out, field{one.name, p.schema(one.value, depth+1)})
		seen[one.name] = true
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// required returns the names that are among the properties; the API rejects others.
func required(list []any, o object) any {
	properties, _ := o.get("properties").(object)
	known := make(map[string]bool, len(properties))
	for _, one := range properties {
		known[one.name] = true
	}
	var names []any
	for _, v := range list {
		if name, ok := v.(string); ok && known[name] {
			names, known[name] = append(names, v), false
		}
	}
	return some(names)
}

// branches adds a list of schemas under a name that is not used yet.
func (p *projector) branches(out object, name string, list []any, depth int) object {
	if len(list) == 0 {
		return out
	}
	if out.get(name) != nil {
		p.lossy = true
		return out
	}
	schemas := make([]any, len(list))
	for i, v := range list {
		schemas[i] = p.schema(v, depth+1)
	}
	return out.add(name, schemas)
}

// object is a JSON object whose members keep their order, because a model answers in the
// order of a schema's properties. It may have duplicate names. A value is an object, a list
// ([]any), a string, a json.Number, a bool or nil.
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

func (o object) set(name string, value any) object {
	for i := range o {
		if o[i].name == name {
			o[i].value = value
			return o
		}
	}
	return append(o, field{name, value})
}

// add appends a member, unless there is one of that name or value is nil.
func (o object) add(name string, value any) object {
	if value == nil || o.get(name) != nil {
		return o
	}
	return append(o, field{name, value})
}

func encode(dst []byte, value any) []byte {
	switch v := value.(type) {
	case object:
		open := byte('{')
		for _, f := range v {
			dst = encode(append(wire.AppendString(append(dst, open), f.name), ':'), f.value)
			open = ','
		}
		if len(v) == 0 {
			dst = append(dst, open)
		}
		return append(dst, '}')
	case []any:
		open := byte('[')
		for _, one := range v {
			dst = encode(append(dst, open), one)
			open = ','
		}
		return append(dst, ']') // lists are never empty
	case string:
		return wire.AppendString(dst, v)
	case json.Number:
		return append(dst, v...)
	case bool:
		return strconv.AppendBool(dst, v)
	}
	return append(dst, "null"...)
}

func parse(raw []byte) (any, error) {
	if len(raw) > maxSchemaBytes {
		return nil, fmt.Errorf("its schema is longer than %d bytes", maxSchemaBytes)
	}
	if !json.Valid(raw) {
		return nil, errors.New("its schema is not JSON, or nested too deep")
	}
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	return value(in), nil
}

// value reads a value of a valid text.
func value(in *json.Decoder) any {
	token, _ := in.Token()
	switch token {
	case json.Delim('{'):
		o := object{}
		for in.More() {
			name, _ := in.Token()
			o = append(o, field{name.(string), value(in)})
		}
		_, _ = in.Token()
		return o
	case json.Delim('['):
		list := []any{}
		for in.More() {
			list = append(list, value(in))
		}
		_, _ = in.Token()
		return list
	}
	return token
}
