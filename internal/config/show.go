package config

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Show prints the effective configuration as YAML: every key, defaults filled in,
// paths absolute, secrets masked, references as they were written. Read again it
// is the same configuration, but for what is masked, which is refused.
func Show(c *Config) []byte {
	s := shower{}
	s.dict(reflect.ValueOf(c).Elem(), 0)
	return s.out.Bytes()
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

// FindSecrets fills in every reference, so that r.OnSecret hears of all secrets that
// the configuration was given, also of those that are not needed now. What cannot be
// filled in is told by [Value.Resolve] at use.
func (c *Config) FindSecrets(r Resolver) {
	walk(reflect.ValueOf(c).Elem(), func(v Value) {
		if parts, _ := v.segments(); hasRefs(parts) {
			_, _ = v.Resolve(r) // what cannot be filled in is told at use
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
		for _, f := range fieldsOf(v.Type()) {
			walk(v.Field(f.index), visit)
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

type shower struct{ out bytes.Buffer }

func (s *shower) key(name string, indent int) {
	s.out.WriteString(strings.Repeat("  ", indent))
	s.out.WriteString(quote(name))
	s.out.WriteByte(':')
}

// dict writes the fields of a struct, a line each.
func (s *shower) dict(v reflect.Value, indent int) {
	for _, f := range fieldsOf(v.Type()) {
		s.key(f.key, indent)
		s.value(v.Field(f.index), indent)
	}
}

// value writes a value after its key, and ends the line.
func (s *shower) value(v reflect.Value, indent int) {
	if text, ok := s.inline(v); ok {
		s.out.WriteString(" " + text + "\n")
		return
	}
	s.out.WriteByte('\n')
	switch v.Kind() {
	case reflect.Pointer:
		s.dict(v.Elem(), indent+1)
	case reflect.Struct:
		s.dict(v, indent+1)
	case reflect.Map:
		for _, key := range sortedKeys(v) {
			s.key(key, indent+1)
			s.value(v.MapIndex(reflect.ValueOf(key)), indent+1)
		}
	case reflect.Slice: // of structs
		for i := range v.Len() {
			item := shower{}
			item.dict(v.Index(i), indent+2)
			s.out.WriteString(strings.Repeat("  ", indent+1) + "- " + strings.TrimLeft(item.out.String(), " "))
		}
	}
}

// inline returns what fits on the line of its key.
func (s *shower) inline(v reflect.Value) (string, bool) {
	switch x := v.Interface().(type) {
	case Value:
		return quote(x.shown()), true
	case Duration:
		return x.String(), true
	case JSON:
		return string(orNull(x)), true
	case toolcrib.ToolChoice:
		if x.Mode == toolcrib.ChoiceName {
			return "{name: " + quote(x.Name) + "}", true
		}
		return x.Mode, true
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "null", true
		}
		return s.inline(v.Elem())
	case reflect.Map:
		return "{}", v.Len() == 0
	case reflect.Slice:
		return s.inlineList(v)
	case reflect.String:
		return quote(v.String()), true
	case reflect.Bool:
		return strconv.FormatBool(v.Bool()), true
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10), true
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64), true
	}
	return "", false
}

func (s *shower) inlineList(v reflect.Value) (string, bool) {
	if v.IsNil() {
		return "null", true
	}
	items := make([]string, v.Len())
	for i := range items {
		text, ok := s.inline(v.Index(i))
		if !ok {
			return "", false
		}
		items[i] = text
	}
	return "[" + strings.Join(items, ", ") + "]", true
}

// orNull keeps the JSON of a schema or of extra fields as it was written: JSON is
// YAML too.
func orNull(j JSON) []byte {
	if j == nil {
		return []byte("null")
	}
	return j
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
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		return strconv.Quote(text)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
