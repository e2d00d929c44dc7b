package config

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
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

// Show prints the effective configuration as YAML: every key, defaults filled in,
// paths absolute, secrets masked, references as they were written. Read again it
// is the same configuration, but for what is masked, which is refused.
func Show(c *Config) []byte {
	var b bytes.Buffer
	writeYAML(&b, shown(reflect.ValueOf(c).Elem()), "")
	return b.Bytes()[1:] // without the line break before a mapping
}

// ShowJSON is [Show] as one JSON value, of a whole [Config] or a part of one: the same keys in
// the same order, with null where Show writes null; durations are texts such as 30s.
func ShowJSON(c any) json.RawMessage {
	return json.RawMessage(yamltree.AppendJSON(nil, shown(reflect.ValueOf(c))))
}

// object is a JSON object that keeps the order of its keys.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON writes the keys in their order.
func (o object) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			out = append(out, ',')
		}
		out = yamltree.AppendJSON(append(yamltree.AppendJSON(out, m.key), ':'), m.value)
	}
	return append(out, '}'), nil
}

// word is a text that needs no quotes in YAML.
type word string

// shown turns a piece of the configuration into what is printed.
func shown(v reflect.Value) any { return written(v, func(v Value) any { return v.shown() }) }

// written turns a piece of the configuration into objects, lists, texts, words, numbers,
// and JSON as it was written, which is YAML too. value is called for each [Value].
func written(v reflect.Value, value func(Value) any) any {
	switch x := v.Interface().(type) {
	case Value:
		return value(x)
	case Duration:
		return word(x.String())
	case JSON:
		if x == nil {
			return nil
		}
		return json.RawMessage(x)
	case ToolChoice:
		if x.Mode == toolcrib.ChoiceName {
			return json.RawMessage(yamltree.AppendJSON(nil, object{{"name", x.Name}}))
		}
		return word(x.Mode)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return written(v.Elem(), value)
	case reflect.Struct:
		out := object{}
		for _, f := range yamltree.Fields(v.Type()) {
			out = append(out, member{f.Key, written(v.Field(f.Index), value)})
		}
		return out
	case reflect.Map:
		out := object{}
		for _, key := range v.MapKeys() {
			out = append(out, member{key.String(), written(v.MapIndex(key), value)})
		}
		slices.SortFunc(out, func(a, b member) int { return strings.Compare(a.key, b.key) })
		return out
	case reflect.Slice:
		if v.IsNil() {
			return nil
		}
		out := make([]any, v.Len())
		for i := range out {
			out[i] = written(v.Index(i), value)
		}
		return out
	}
	return v.Interface()
}

// writeYAML writes a value after its key, and ends the line.
func writeYAML(b *bytes.Buffer, v any, indent string) {
	switch x := v.(type) {
	case object:
		if len(x) > 0 {
			b.WriteByte('\n')
			for _, m := range x {
				b.WriteString(indent + quote(m.key) + ":")
				writeYAML(b, m.value, indent+"  ")
			}
			return
		}
	case []any:
		if len(x) > 0 && isObject(x[0]) {
			b.WriteByte('\n')
			for _, item := range x {
				var inner bytes.Buffer
				writeYAML(&inner, item, indent+"  ")
				b.WriteString(indent + "- " + strings.TrimLeft(inner.String(), "\n "))
			}
			return
		}
	}
	b.WriteString(" " + inline(v) + "\n")
}

func isObject(v any) bool {
	_, ok := v.(object)
	return ok
}

// inline writes what fits on the line of its key.
func inline(v any) string {
	switch x := v.(type) {
	case string:
		return quote(x)
	case word:
		return string(x)
	case []any:
		items := make([]string, len(x))
		for i := range x {
			items[i] = inline(x[i])
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return string(yamltree.AppendJSON(nil, v)) // JSON is YAML too
}

// Secrets returns the secrets that are written out in the configuration, so that
// they can be masked from the start. References are not filled in.
func (c *Config) Secrets() []guard.Secret {
	var out []guard.Secret
	for _, v := range c.values() {
		parts, _ := v.segments()
		if text, ok := literal(parts); ok && v.raw != "" {
			for _, secret := range v.secretsOf(text) {
				out = append(out, guard.Secret{Name: v.at.Key, Value: secret})
			}
		}
	}
	return out
}

// FindSecrets fills in every reference, so that r.OnSecret is called with all secrets that
// the configuration was given, also of those that are not needed now. What cannot be
// filled in is an error of [Value.Resolve] at use.
func (c *Config) FindSecrets(r Resolver) {
	for _, v := range c.values() {
		if !strings.Contains(v.raw, "${") { // most of them, and each run asks
			continue
		}
		parts, _ := v.segments()
		if _, plain := literal(parts); !plain {
			_, _ = v.Resolve(r) // its user gets the error
		}
	}
}

// values returns every text of the configuration that may hold references.
func (c *Config) values() []Value {
	if c.texts != nil {
		return c.texts()
	}
	return c.readTexts()
}

func (c *Config) readTexts() (all []Value) {
	written(reflect.ValueOf(c).Elem(), func(v Value) any { all = append(all, v); return nil })
	return all
}

// shown returns the masked form, and a path as it takes effect.
func (v Value) shown() string {
	parts, _ := v.segments()
	text, plain := literal(parts)
	if whole, err := v.absolute(text); plain && v.secret == "" && err == nil && whole != text {
		return strings.ReplaceAll(whole, "${", "$${")
	}
	return v.masked()
}

// plain is what every version of YAML reads as the same text without quotes.
var plain = lazyregexp.New(`^[A-Za-z_/][A-Za-z0-9_/.-]*$`)

// notText are plain words that some version of YAML takes for something else.
func notText(word string) bool {
	switch strings.ToLower(word) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf":
		return true
	}
	return false
}

// quote writes a text as a YAML scalar: plain if that is beyond doubt, else as a
// JSON string, which is YAML too.
func quote(text string) string {
	if plain.MatchString(text) && !notText(text) {
		return text
	}
	return string(yamltree.AppendJSON(nil, text))
}
