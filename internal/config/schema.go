package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"

	"github.com/toolcrib/toolcrib"
)

// Schema returns the JSON Schema (2020-12) of the configuration file, made from
// the same struct as the loader. The loader is stricter where names refer to one
// another and where a text has a form of its own.
func Schema() []byte {
	root := structSchema(reflect.TypeFor[Config]())
	doc := orderedObject{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", "toolcrib.yaml"},
		{"description", "Configuration of toolcrib. Every key has a default."},
	}
	compact, err := json.Marshal(append(doc, root...))
	if err != nil {
		panic(err) // made of constants; found by every test
	}
	var out bytes.Buffer
	if err := json.Indent(&out, compact, "", "  "); err != nil {
		panic(err)
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// structSchema describes a mapping with known keys. A section that is null is as
// if absent, so null is allowed for it.
func structSchema(t reflect.Type) orderedObject {
	var properties orderedObject
	required := []string{}
	for _, f := range fieldsOf(t) {
		properties = append(properties, orderedField{f.key, f.schema()})
		if f.required {
			required = append(required, f.key)
		}
	}
	typ := any([]string{"object", "null"})
	if len(required) > 0 {
		typ = "object"
	}
	out := orderedObject{{"type", typ}, {"properties", properties}, {"additionalProperties", false}}
	if len(required) > 0 {
		out = append(out, orderedField{"required", required})
	}
	return out
}

func (f field) schema() orderedObject {
	out := f.typeSchema(f.typ)
	if f.doc != "" {
		out = append(orderedObject{{"description", f.doc}}, out...)
	}
	if value, ok := f.defaultJSON(); ok {
		out = append(out, orderedField{"default", value})
	}
	return out
}

// typeSchema describes a value of type t under the tags of f.
func (f field) typeSchema(t reflect.Type) orderedObject {
	switch t {
	case reflect.TypeFor[Value]():
		return f.textSchema()
	case reflect.TypeFor[Duration]():
		return f.orNull(orderedObject{{"type", []string{"string", "integer"}}, {"pattern", durationPattern}, {"minimum", 0}, {"maximum", 0}})
	case reflect.TypeFor[JSON]():
		return orderedObject{{"type", []string{"object", "null"}}}
	case reflect.TypeFor[toolcrib.ToolChoice]():
		name := orderedObject{{"type", "string"}, {"pattern", toolPattern.String()}}
		return orderedObject{{"oneOf", []any{
			orderedObject{{"enum", []string{toolcrib.ChoiceAuto, toolcrib.ChoiceNone, toolcrib.ChoiceRequired}}},
			orderedObject{{"type", "object"}, {"properties", orderedObject{{"name", name}}}, {"required", []string{"name"}}, {"additionalProperties", false}},
		}}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return f.typeSchema(t.Elem())
	case reflect.Struct:
		return structSchema(t)
	case reflect.Map:
		inner := field{words: f.words, format: f.format}
		return orderedObject{
			{"type", []string{"object", "null"}},
			{"propertyNames", orderedObject{{"pattern", keyPattern(f.keys).String()}}},
			{"additionalProperties", inner.typeSchema(t.Elem())},
		}
	case reflect.Slice:
		return f.listSchema(t)
	case reflect.Bool:
		return f.orNull(orderedObject{{"type", "boolean"}})
	case reflect.Int, reflect.Int64:
		return f.orNull(f.bounds(orderedObject{{"type", "integer"}}))
	case reflect.Float64:
		return f.orNull(f.bounds(orderedObject{{"type", "number"}}))
	}
	return f.textSchema()
}

func (f field) textSchema() orderedObject {
	if f.enum != nil {
		return orderedObject{{"enum", f.enum}}
	}
	out := orderedObject{{"type", "string"}}
	if f.words {
		out = orderedObject{{"type", []string{"string", "boolean", "number"}}}
	}
	switch f.format {
	case "name":
		out = append(out, orderedField{"pattern", namePattern.String()})
	case "program":
		out = append(out, orderedField{"pattern", programPattern.String()})
	case "description":
		out = append(out, orderedField{"maxLength", maxDescription})
	}
	if f.min != "" {
		out = append(out, orderedField{"minLength", 1})
	}
	return out
}

func (f field) listSchema(t reflect.Type) orderedObject {
	typ := any([]string{"array", "null"})
	if f.def != "[]" && f.def != "" && !f.null {
		typ = "array"
	}
	inner := field{words: f.words, format: f.format, min: f.min}
	items := inner.typeSchema(t.Elem())
	if f.short != "" {
		items = orderedObject{{"oneOf", []any{orderedObject{{"type", "string"}, {"minLength", 1}}, items}}}
	}
	out := orderedObject{{"type", typ}, {"items", items}}
	if _, most, _, ok := f.intBounds(); ok {
		out = append(out, orderedField{"maxItems", most})
	}
	return out
}

func (f field) bounds(out orderedObject) orderedObject {
	if f.min != "" {
		out = append(out, orderedField{"minimum", json.Number(f.min)})
	}
	if f.max != "" {
		out = append(out, orderedField{"maximum", json.Number(f.max)})
	}
	return out
}

// orNull allows null where a pointer stands for a value that may be left open.
func (f field) orNull(out orderedObject) orderedObject {
	if !f.null {
		return out
	}
	for i, member := range out {
		if member.key != "type" {
			continue
		}
		types, ok := member.value.([]string)
		if !ok {
			types = []string{member.value.(string)} //nolint:forcetypeassert // made above
		}
		out[i].value = append(slices.Clone(types), "null")
	}
	return out
}

// defaultJSON returns the default for the schema.
func (f field) defaultJSON() (any, bool) {
	if f.required {
		return nil, false
	}
	if f.null && (!f.hasDef || f.def == "null") {
		return nil, true
	}
	n := f.defaultNode()
	if n == nil {
		return nil, false
	}
	switch {
	case n.kind == kindList:
		items := make([]string, len(n.items))
		for i, item := range n.items {
			items[i] = item.text
		}
		return items, true
	case n.kind == kindBool:
		return n.text == "true", true
	case n.kind == kindNumber:
		return json.Number(n.text), true
	}
	return n.text, true
}
