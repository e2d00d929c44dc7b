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
		parts, _ := v.segments()
		if _, plain := literal(parts); !plain {
			_, _ = v.Resolve(r)
		}
	}
}

// values returns every text of the configuration that may hold references.
func (c *Config) values() (all []Value) {
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
