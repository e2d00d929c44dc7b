package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/yamltree"
)

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

// shown turns a piece of the configuration into what is printed: objects, lists, texts,
// words, numbers, and JSON as it was written, which is YAML too.
func shown(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case Value:
		return x.shown()
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
		return shown(v.Elem())
	case reflect.Struct:
		out := object{}
		for _, f := range yamltree.Fields(v.Type()) {
			out = append(out, member{f.Key, shown(v.Field(f.Index))})
		}
		return out
	case reflect.Map:
		out := object{}
		for _, key := range sortedKeys(v) {
			out = append(out, member{key, shown(v.MapIndex(reflect.ValueOf(key)))})
		}
		return out
	case reflect.Slice:
		if v.IsNil() {
			return nil
		}
		out := make([]any, v.Len())
		for i := range out {
			out[i] = shown(v.Index(i))
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
	walk(reflect.ValueOf(c).Elem(), func(v Value) {
		if parts, _ := v.segments(); !hasRefs(parts) && v.raw != "" {
			for _, secret := range v.secretsOf(join(parts)) {
				out = append(out, guard.Secret{Name: v.at.Key, Value: secret})
			}
		}
	})
	return out
}

// FindSecrets fills in every reference, so that r.OnSecret is called with all secrets that
// the configuration was given, also of those that are not needed now. What cannot be
// filled in is an error of [Value.Resolve] at use.
func (c *Config) FindSecrets(r Resolver) {
	walk(reflect.ValueOf(c).Elem(), func(v Value) {
		if parts, _ := v.segments(); hasRefs(parts) {
			_, _ = v.Resolve(r) // what cannot be filled in is an error at use
		}
	})
}

// walk calls visit for every Value.
func walk(v reflect.Value, visit func(Value)) {
	if value, ok := v.Interface().(Value); ok {
		visit(value)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, f := range yamltree.Fields(v.Type()) {
			walk(v.Field(f.Index), visit)
		}
	case reflect.Map:
		for _, key := range sortedKeys(v) {
			walk(v.MapIndex(reflect.ValueOf(key)), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), visit)
		}
	}
}

func sortedKeys(m reflect.Value) []string {
	keys := make([]string, 0, m.Len())
	for _, k := range m.MapKeys() {
		keys = append(keys, k.String())
	}
	slices.Sort(keys)
	return keys
}

// shown returns the masked form, and a path as it takes effect.
func (v Value) shown() string {
	text := v.masked()
	parts, _ := v.segments()
	if hasRefs(parts) || v.secret != "" {
		return text
	}
	if whole, err := v.absolute(join(parts)); err == nil && (v.format == "path" || v.format == "workspace") {
		return strings.ReplaceAll(whole, "${", "$${")
	}
	return text
}

// plain is what every version of YAML reads as the same text without quotes.
var plain = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_/.-]*$`)

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
