package config

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"reflect"
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
		out := append(object{{"description", m.docs[at]}}, schemaField{f, m, at}.describe(f.Type)...)
		if n := f.DefaultNode(); !f.Required && (n != nil || f.Null) {
			out = append(out, member{"default", json.RawMessage(n.JSON())})
		}
		properties = append(properties, member{f.Key, out})
		if f.Required {
			required = append(required, f.Key)
		}
	}
	out := append(typed(required == nil, "object"), member{"properties", properties},
		member{"additionalProperties", false})
	if required != nil {
		out = append(out, member{"required", required})
	}
	return out
}

// typed allows values of some types, and null beside them.
func typed(null bool, types ...string) object {
	switch {
	case null:
		return object{{"type", append(types, "null")}}
	case len(types) == 1:
		return object{{"type", types[0]}}
	}
	return object{{"type", types}}
}

// describe describes a value of type t under the tags of f.
func (f schemaField) describe(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[Value]():
		return f.text()
	case reflect.TypeFor[Duration]():
		return append(typed(f.Null, "string", "integer"), object{
			{"pattern", yamltree.DurationPattern}, {"minimum", 0}, {"maximum", 0},
		}...)
	case reflect.TypeFor[JSON]():
		return typed(true, "object")
	case reflect.TypeFor[ToolChoice]():
		name := object{{"type", "string"}, {"pattern", toolPattern.String()}}
		return object{{"oneOf", []any{object{{"enum", choiceModes}}, object{
			{"type", "object"},
			{"properties", object{{"name", name}}},
			{"required", []string{"name"}},
			{"additionalProperties", false},
		}}}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return f.describe(t.Elem())
	case reflect.Struct:
		return f.object(t, f.path)
	case reflect.Map:
		return append(typed(true, "object"), object{
			{"propertyNames", object{{"pattern", keyPattern(f.Keys).String()}}},
			{"additionalProperties", schemaField{f.Inner(), f.schemaMaker, f.path + ".*"}.describe(t.Elem())},
		}...)
	case reflect.Slice:
		items := schemaField{f.Inner(), f.schemaMaker, f.path + "[]"}.describe(t.Elem())
		if f.Short != "" {
			items = object{{"oneOf", []any{object{{"type", "string"}, {"minLength", 1}}, items}}}
		}
		null := f.Default == "[]" || f.Default == "" || f.Null
		return f.bounds(append(typed(null, "array"), member{"items", items}), "", "maxItems")
	case reflect.Bool:
		return typed(f.Null, "boolean")
	case reflect.Int, reflect.Int64:
		return f.bounds(typed(f.Null, "integer"), "minimum", "maximum")
	case reflect.Float64:
		return f.bounds(typed(f.Null, "number"), "minimum", "maximum")
	}
	return f.text()
}

func (f schemaField) text() object {
	out := typed(false, "string")
	switch {
	case f.Enum != nil:
		return object{{"enum", f.Enum}}
	case f.Format == "provider":
		return object{{"enum", append([]string{""}, providers.Names(nil)...)}}
	case f.Words:
		out = typed(false, "string", "boolean", "number")
	case f.Format == "description":
		out = append(out, member{"maxLength", maxDescription})
	}
	if f.Format == "name" || f.Format == "program" {
		out = append(out, member{"pattern", map[string]string{
			"name": namePattern.String(), "program": programPattern.String(),
		}[f.Format]})
	}
	if f.Min != "" {
		out = append(out, member{"minLength", 1})
	}
	return out
}

// bounds adds min and max under these names; "" = the tag means something else here.
func (f schemaField) bounds(out object, least, most string) object {
	if f.Min != "" && least != "" {
		out = append(out, member{least, json.Number(f.Min)})
	}
	if f.Max != "" {
		out = append(out, member{most, json.Number(f.Max)})
	}
	return out
}
