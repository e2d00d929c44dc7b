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

// keysText has the description of every key, indented below its path, in which * stands for a name
// and [] for an entry of a list.
//
//go:embed keys.txt
var keysText string

// descriptions returns the descriptions of keys, by path.
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

// Schema returns the JSON Schema (2020-12) of the configuration file, derived from the same struct
// as the loader. The loader also checks references between names and the formats of texts.
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

// schemaMaker makes schemas with descriptions of keys.
type schemaMaker struct{ docs map[string]string }

// schemaField makes the schema of a field.
type schemaField struct {
	yamltree.Field
	schemaMaker
	path string
}

// object returns the schema of a mapping with known keys. Null is allowed, since a section that is
// null is treated as absent.
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

// typed returns a schema for values of some types and, if null is true, for null.
func typed(null bool, types ...string) object {
	switch {
	case null:
		return object{"type": append(types, "null")}
	case len(types) == 1:
		return object{"type": types[0]}
	}
	return object{"type": types}
}

// describe returns the schema of a value of type t with the tags of f.
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
	case reflect.TypeFor[Network]():
		return object{"oneOf": []any{object{"enum": []any{false, "ask"}}, object{
			"type": "array", "items": object{"type": "string"}, "maxItems": maxNetwork,
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

// bounds adds min and max under these names. If least is "", min has another meaning for the type.
func (f schemaField) bounds(out object, least, most string) object {
	if f.Min != "" && least != "" {
		out[least] = json.Number(f.Min)
	}
	if f.Max != "" {
		out[most] = json.Number(f.Max)
	}
	return out
}

// Show returns the effective configuration as YAML: every key, with defaults, absolute paths,
// masked secrets, and references as they were written. Parsing it gives the same configuration,
// but masked secrets are refused.
func Show(c *Config) []byte {
	return block(written(reflect.ValueOf(c).Elem(), Value.shown), "")
}

// ShowOrigin is [Show] with the file and line of each value, or default, in a comment.
func ShowOrigin(c *Config) []byte {
	root := written(reflect.ValueOf(c).Elem(), Value.shown)
	root.SetPath("")
	y := yamlWriter{note: func(n *yamltree.Node) string { return "  # " + c.Origin(n.Path) }}
	y.write(root, "")
	return y.Bytes()[1:]
}

// Origins returns the positions of the keys that are written, by key path.
func (c *Config) Origins() map[string]string {
	all := map[string]string{}
	for path, n := range c.nodes {
		if n.Entries == nil && n.Kind != yamltree.Map && path != "" {
			all[path] = c.Origin(path)
		}
	}
	return all
}

// Origin is [Config.Position] with the positions of all files if the entries of a list come from
// several.
func (c *Config) Origin(path string) string {
	n := c.nodes[path]
	if n == nil {
		return "default"
	}
	var all []string
	files := map[string]bool{}
	for _, item := range n.Items {
		if !files[item.File] {
			files[item.File] = true
			all = append(all, at(item))
		}
	}
	if len(all) < 2 {
		return at(n)
	}
	return strings.Join(all, ", ")
}

// ShowJSON is [Show] as JSON, for a [Config] or a part of one. The keys have the same order, and
// durations are strings such as 30s.
func ShowJSON(c any) json.RawMessage { return written(reflect.ValueOf(c), Value.shown).JSON() }

// written converts a part of the configuration into the tree of a YAML file. value is called for
// each [Value].
func written(v reflect.Value, value func(Value) string) *yamltree.Node {
	text := func(text string) *yamltree.Node { return &yamltree.Node{Kind: yamltree.Text, Text: text} }
	out := &yamltree.Node{Kind: yamltree.Null}
	switch x := v.Interface().(type) {
	case Value:
		return text(value(x))
	case Duration:
		return text(x.String())
	case JSON:
		most := limits() // JSON may be longer than the YAML that it comes from
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
	case Network:
		switch {
		case x.Ask:
			return text("ask")
		case x.Hosts != nil:
			return written(reflect.ValueOf(x.Hosts), value)
		}
		return written(reflect.ValueOf(false), value)
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

// block formats a mapping as lines that begin with indent.
func block(n *yamltree.Node, indent string) []byte {
	y := yamlWriter{note: func(*yamltree.Node) string { return "" }}
	y.write(n, indent)
	return y.Bytes()[1:] // without the leading line break
}

// yamlWriter formats a tree. note returns what is added to the line of a value.
type yamlWriter struct {
	bytes.Buffer
	note func(*yamltree.Node) string
}

// write writes a value after its key, and ends the line.
func (y *yamlWriter) write(n *yamltree.Node, indent string) {
	switch {
	case len(n.Entries) > 0:
		y.WriteByte('\n')
		for _, e := range n.Entries {
			y.WriteString(indent + quote(e.Key) + ":")
			y.write(e.Value, indent+"  ")
		}
	case len(n.Items) > 0 && n.Items[0].Kind == yamltree.Map:
		y.WriteByte('\n')
		for _, item := range n.Items {
			inner := yamlWriter{note: y.note}
			inner.write(item, indent+"  ")
			y.WriteString(indent + "- " + strings.TrimLeft(inner.String(), "\n "))
		}
	default:
		y.WriteString(" " + inline(n) + y.note(n) + "\n")
	}
}

// inline formats a value for the line of its key.
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
	return string(n.JSON()) // JSON is YAML
}

// Secrets returns the literal secrets in the configuration, so that they can be masked from the
// start. References are not resolved.
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

// FindSecrets resolves every reference, so that r.OnSecret is called with all secrets, and returns the errors of the
// resolved values. References that cannot be resolved are not errors here, but when [Value.Resolve] is called for use.
func (c *Config) FindSecrets(r Resolver) (wrong Errors) {
	var e Error
	for _, v := range c.values() {
		if strings.Contains(v.raw, "${") { // for speed: few have one, and each run calls this
			if _, err := v.Resolve(r); errors.As(err, &e) && e.Ref == "" {
				wrong = append(wrong, e)
			}
		}
	}
	return wrong
}

// values returns all values of the configuration that may contain references.
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

// shown returns the masked form, with a path made absolute.
func (v Value) shown() string {
	parts, _ := v.segments()
	text, plain := literal(parts)
	if whole, err := v.absolute(text); plain && v.secret == "" && err == nil && whole != text {
		return strings.ReplaceAll(whole, "${", "$${")
	}
	return v.masked()
}

// plain matches texts that every version of YAML reads as the same string without quotes.
var plain = lazyregexp.New(`^([A-Za-z_/][A-Za-z0-9_/.-]*|([0-9]+(d|h|m|s|ms))+)$`)

// notText reports whether some version of YAML reads a plain word as another type.
func notText(word string) bool {
	switch strings.ToLower(word) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf":
		return true
	}
	return false
}

// quote formats a text as a YAML scalar: plain if that is unambiguous, otherwise as a JSON string,
// which is also YAML.
func quote(text string) string {
	if plain.MatchString(text) && !notText(text) {
		return text
	}
	return string(yamltree.AppendJSON(nil, text))
}
