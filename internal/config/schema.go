package config

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/internal/providers"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// keysText describes every key: its path, * for a name and [] for an entry of a list, and
// below it, indented, what it means.
//
//go:embed keys.txt
var keysText string

// descriptions returns what keys mean, by path.
func descriptions() map[string]string {
	found, path := map[string]string{}, ""
	for line := range strings.Lines(keysText) {
		text, isText := strings.CutPrefix(line, "  ")
		if text = strings.TrimSpace(text); !isText {
			path = text
			continue
		}
		found[path] = strings.TrimSpace(found[path] + " " + text)
	}
	return found
}

// Schema returns the JSON Schema (2020-12) of the configuration file, made from
// the same struct as the loader. The loader is stricter where names refer to one
// another and where a text has a form of its own.
func Schema() []byte {
	var out bytes.Buffer
	compact := yamltree.AppendJSON(nil, append(object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", "toolcrib.yaml"},
		{"description", "Configuration of toolcrib. Every key has a default."},
	}, schemaMaker{descriptions()}.object(reflect.TypeFor[Config](), "")...))
	if err := json.Indent(&out, compact, "", "  "); err != nil {
		panic(err) // made of constants; found by every test
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// schemaMaker makes schemas with the descriptions of keys.
type schemaMaker struct{ docs map[string]string }

// schemaField is a field under whose tags a value is described.
type schemaField struct {
	yamltree.Field
	schemaMaker
	path string
}

// object describes a mapping with known keys. A section that is null is as if absent, so
// null is allowed for it.
func (m schemaMaker) object(t reflect.Type, path string) object {
	var properties object
	var required []string
	for _, f := range yamltree.Fields(t) {
		at := strings.TrimPrefix(path+"."+f.Key, ".")
		properties = append(properties, member{f.Key, schemaField{f, m, at}.schema()})
		if f.Required {
			required = append(required, f.Key)
		}
	}
	out := object{{"type", []string{"object", "null"}}, {"properties", properties}, {"additionalProperties", false}}
	if len(required) > 0 {
		out[0].value = "object"
		out = append(out, member{"required", required})
	}
	return out
}

func (f schemaField) schema() object {
	out := append(object{{"description", f.docs[f.path]}}, f.typeSchema(f.Type)...)
	if value, ok := f.defaultJSON(); ok {
		out = append(out, member{"default", value})
	}
	return out
}

// typeSchema describes a value of type t under the tags of f.
func (f schemaField) typeSchema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[Value]():
		return f.textSchema()
	case reflect.TypeFor[Duration]():
		types := []string{"string", "integer"}
		return f.orNull(object{{"type", types}, {"pattern", yamltree.DurationPattern}, {"minimum", 0}, {"maximum", 0}})
	case reflect.TypeFor[JSON]():
		return object{{"type", []string{"object", "null"}}}
	case reflect.TypeFor[ToolChoice]():
		name := object{{"type", "string"}, {"pattern", toolPattern.String()}}
		return object{{"oneOf", []any{
			object{{"enum", choiceModes}},
			object{
				{"type", "object"},
				{"properties", object{{"name", name}}},
				{"required", []string{"name"}},
				{"additionalProperties", false},
			},
		}}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return f.typeSchema(t.Elem())
	case reflect.Struct:
		return f.object(t, f.path)
	case reflect.Map:
		return object{
			{"type", []string{"object", "null"}},
			{"propertyNames", object{{"pattern", keyPattern(f.Keys).String()}}},
			{"additionalProperties", schemaField{f.Inner(), f.schemaMaker, f.path + ".*"}.typeSchema(t.Elem())},
		}
	case reflect.Slice:
		return f.listSchema(t)
	case reflect.Bool:
		return f.orNull(object{{"type", "boolean"}})
	case reflect.Int, reflect.Int64:
		return f.orNull(f.bounds(object{{"type", "integer"}}, "minimum", "maximum"))
	case reflect.Float64:
		return f.orNull(f.bounds(object{{"type", "number"}}, "minimum", "maximum"))
	}
	return f.textSchema()
}

func (f schemaField) textSchema() object {
	out := object{{"type", "string"}}
	switch {
	case f.Enum != nil:
		return object{{"enum", f.Enum}}
	case f.Format == "provider":
		return object{{"enum", append([]string{""}, providers.Names(nil)...)}}
	case f.Words:
		out = object{{"type", []string{"string", "boolean", "number"}}}
	}
	switch f.Format {
	case "name":
		out = append(out, member{"pattern", namePattern.String()})
	case "program":
		out = append(out, member{"pattern", programPattern.String()})
	case "description":
		out = append(out, member{"maxLength", maxDescription})
	}
	if f.Min != "" {
		out = append(out, member{"minLength", 1})
	}
	return out
}

func (f schemaField) listSchema(t reflect.Type) object {
	typ := any([]string{"array", "null"})
	if f.Default != "[]" && f.Default != "" && !f.Null {
		typ = "array"
	}
	items := schemaField{f.Inner(), f.schemaMaker, f.path + "[]"}.typeSchema(t.Elem())
	if f.Short != "" {
		items = object{{"oneOf", []any{object{{"type", "string"}, {"minLength", 1}}, items}}}
	}
	f.Min = ""
	return f.bounds(object{{"type", typ}, {"items", items}}, "", "maxItems")
}

func (f schemaField) bounds(out object, least, most string) object {
	if f.Min != "" {
		out = append(out, member{least, json.Number(f.Min)})
	}
	if f.Max != "" {
		out = append(out, member{most, json.Number(f.Max)})
	}
	return out
}

// orNull allows null where a pointer stands for a value that may be left open. The type
// is the first member.
func (f schemaField) orNull(out object) object {
	if !f.Null {
		return out
	}
	types, ok := out[0].value.([]string)
	if !ok {
		types = []string{out[0].value.(string)} //nolint:forcetypeassert // made above
	}
	out[0].value = append(slices.Clone(types), "null")
	return out
}

// defaultJSON returns the default for the schema.
func (f schemaField) defaultJSON() (any, bool) {
	n := f.DefaultNode()
	switch {
	case f.Required:
		return nil, false
	case n == nil:
		return nil, f.Null
	case n.Kind == yamltree.List:
		items := make([]string, len(n.Items))
		for i, item := range n.Items {
			items[i] = item.Text
		}
		return items, true
	case n.Kind == yamltree.Bool:
		return n.IsTrue(), true
	case n.Kind == yamltree.Number:
		return json.Number(n.Text), true
	}
	return n.Text, true
}
