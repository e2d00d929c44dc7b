package config

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
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
	schema := schemaMaker{descriptions()}.object(reflect.TypeFor[Config](), "")
	schema["$schema"], schema["title"] = "https://json-schema.org/draft/2020-12/schema", "toolcrib.yaml"
	schema["description"] = "Configuration of toolcrib. Every key has a default."
	var out bytes.Buffer
	if err := json.Indent(&out, yamltree.AppendJSON(nil, schema), "", "  "); err != nil {
		panic(err) // made of constants; found by every test
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// object is a JSON object.
type object = map[string]any

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
	properties := object{}
	var required []string
	for _, f := range yamltree.Fields(t) {
		at := strings.TrimPrefix(path+"."+f.Key, ".")
		one := schemaField{f, m, at}.describe(f.Type)
		one["description"] = m.docs[at]
		if n := f.DefaultNode(); !f.Required && (n != nil || f.Null) {
			one["default"] = json.RawMessage(n.JSON())
		}
		properties[f.Key] = one
		if f.Required {
			required = append(required, f.Key)
		}
	}
	out := typed(required == nil, "object")
	out["properties"], out["additionalProperties"] = properties, false
	if required != nil {
		out["required"] = required
	}
	return out
}

// typed allows values of some types, and null beside them.
func typed(null bool, types ...string) object {
	switch {
	case null:
		return object{"type": append(types, "null")}
	case len(types) == 1:
		return object{"type": types[0]}
	}
	return object{"type": types}
}

// describe describes a value of type t under the tags of f.
func (f schemaField) describe(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[Value]():
		return f.text()
	case reflect.TypeFor[Duration]():
		out := typed(f.Null, "string", "integer")
		out["pattern"], out["minimum"], out["maximum"] = yamltree.DurationPattern, 0, 0
		return out
	case reflect.TypeFor[JSON]():
		return typed(true, "object")
	case reflect.TypeFor[ToolChoice]():
		return object{"oneOf": []any{object{"enum": choiceModes}, object{
			"type":                 "object",
			"properties":           object{"name": object{"type": "string", "pattern": toolPattern.String()}},
			"required":             []string{"name"},
			"additionalProperties": false,
		}}}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return f.describe(t.Elem())
	case reflect.Struct:
		return f.object(t, f.path)
	case reflect.Map:
		out := typed(true, "object")
		out["propertyNames"] = object{"pattern": keyPattern(f.Keys).String()}
		out["additionalProperties"] = schemaField{f.Inner(), f.schemaMaker, f.path + ".*"}.describe(t.Elem())
		return out
	case reflect.Slice:
		items := schemaField{f.Inner(), f.schemaMaker, f.path + "[]"}.describe(t.Elem())
		if f.Short != "" {
			items = object{"oneOf": []any{object{"type": "string", "minLength": 1}, items}}
		}
		out := typed(f.Default == "[]" || f.Default == "" || f.Null, "array")
		out["items"] = items
		return f.bounds(out, "", "maxItems")
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
		return object{"enum": f.Enum}
	case f.Format == "provider":
		return object{"enum": append([]string{""}, providers.Names(nil)...)}
	case f.Words:
		out = typed(false, "string", "boolean", "number")
	case f.Format == "description":
		out["maxLength"] = maxDescription
	}
	switch f.Format {
	case "name":
		out["pattern"] = namePattern.String()
	case "program":
		out["pattern"] = programPattern.String()
	}
	if f.Min != "" {
		out["minLength"] = 1
	}
	return out
}

// bounds adds min and max under these names; "" = the tag means something else here.
func (f schemaField) bounds(out object, least, most string) object {
	if f.Min != "" && least != "" {
		out[least] = json.Number(f.Min)
	}
	if f.Max != "" {
		out[most] = json.Number(f.Max)
	}
	return out
}

// Show prints the effective configuration as YAML: every key, defaults filled in,
// paths absolute, secrets masked, references as they were written. Read again it
// is the same configuration, but for what is masked, which is refused.
func Show(c *Config) []byte {
	return block(written(reflect.ValueOf(c).Elem(), Value.shown), "")
}

// ShowJSON is [Show] as one JSON value, of a whole [Config] or a part of one: the same keys in
// the same order, with null where Show writes null; durations are texts such as 30s.
func ShowJSON(c any) json.RawMessage { return written(reflect.ValueOf(c), Value.shown).JSON() }

// written turns a piece of the configuration into the tree of a file that says it. value
// is called for each [Value].
func written(v reflect.Value, value func(Value) string) *yamltree.Node {
	text := func(text string) *yamltree.Node { return &yamltree.Node{Kind: yamltree.Text, Text: text} }
	out := &yamltree.Node{Kind: yamltree.Null}
	switch x := v.Interface().(type) {
	case Value:
		return text(value(x))
	case Duration:
		return text(x.String())
	case JSON:
		most := limits() // as JSON it may be longer than the file it comes from
		most.Bytes, most.Tokens = 8*most.Bytes, 8*most.Tokens
		if tree, errs := yamltree.Parse(x, most); len(errs) == 0 {
			return tree
		}
		return text(string(x))
	case ToolChoice:
		if x.Mode != toolcrib.ChoiceName {
			return text(x.Mode)
		}
		return &yamltree.Node{Kind: yamltree.Map, Entries: []yamltree.Entry{{Key: "name", Value: text(x.Name)}}}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return written(v.Elem(), value)
		}
	case reflect.Struct:
		out.Kind = yamltree.Map
		for _, f := range yamltree.Fields(v.Type()) {
			out.Entries = append(out.Entries, yamltree.Entry{Key: f.Key, Value: written(v.Field(f.Index), value)})
		}
	case reflect.Map:
		out.Kind = yamltree.Map
		for _, key := range v.MapKeys() {
			out.Entries = append(out.Entries, yamltree.Entry{Key: key.String(), Value: written(v.MapIndex(key), value)})
		}
		slices.SortFunc(out.Entries, func(a, b yamltree.Entry) int { return strings.Compare(a.Key, b.Key) })
	case reflect.Slice:
		if v.IsNil() {
			break
		}
		out.Kind = yamltree.List
		for i := range v.Len() {
			out.Items = append(out.Items, written(v.Index(i), value))
		}
	case reflect.String:
		return text(v.String())
	case reflect.Bool:
		out.Kind, out.Text = yamltree.Bool, strconv.FormatBool(v.Bool())
	default:
		out.Kind, out.Text = yamltree.Number, string(yamltree.AppendJSON(nil, v.Interface()))
	}
	return out
}

// block writes a mapping in lines that begin with indent.
func block(n *yamltree.Node, indent string) []byte {
	var b bytes.Buffer
	writeYAML(&b, n, indent)
	return b.Bytes()[1:] // without the line break before it
}

// writeYAML writes a value after its key, and ends the line.
func writeYAML(b *bytes.Buffer, n *yamltree.Node, indent string) {
	switch {
	case len(n.Entries) > 0:
		b.WriteByte('\n')
		for _, e := range n.Entries {
			b.WriteString(indent + quote(e.Key) + ":")
			writeYAML(b, e.Value, indent+"  ")
		}
	case len(n.Items) > 0 && n.Items[0].Kind == yamltree.Map:
		b.WriteByte('\n')
		for _, item := range n.Items {
			var inner bytes.Buffer
			writeYAML(&inner, item, indent+"  ")
			b.WriteString(indent + "- " + strings.TrimLeft(inner.String(), "\n "))
		}
	default:
		b.WriteString(" " + inline(n) + "\n")
	}
}

// inline writes what fits on the line of its key.
func inline(n *yamltree.Node) string {
	switch n.Kind {
	case yamltree.Text:
		return quote(n.Text)
	case yamltree.List:
		items := make([]string, len(n.Items))
		for i := range items {
			items[i] = inline(n.Items[i])
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return string(n.JSON()) // which is YAML too
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

// FindSecrets fills in every reference, so that r.OnSecret is called with all secrets that the configuration was
// given, and returns what is wrong then. What cannot be filled in is an error of [Value.Resolve] at use.
func (c *Config) FindSecrets(r Resolver) (wrong Errors) {
	var e Error
	for _, v := range c.values() {
		if strings.Contains(v.raw, "${") { // few have one, and each run asks
			if _, err := v.Resolve(r); errors.As(err, &e) && e.Ref == "" {
				wrong = append(wrong, e)
			}
		}
	}
	return wrong
}

// values returns every text of the configuration that may hold references.
func (c *Config) values() []Value {
	if c.texts != nil {
		return c.texts()
	}
	return c.readTexts()
}

func (c *Config) readTexts() (all []Value) {
	written(reflect.ValueOf(c).Elem(), func(v Value) string { all = append(all, v); return "" })
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
var plain = lazyregexp.New(`^([A-Za-z_/][A-Za-z0-9_/.-]*|([0-9]+(d|h|m|s|ms))+)$`)

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
