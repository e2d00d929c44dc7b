package gate

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib/guard"
)

// drawSchema draws a schema as tools have them, most of it plain.
func drawSchema(t *rapid.T, depth int) map[string]any {
	s := map[string]any{}
	if rapid.IntRange(0, 5).Draw(t, "noted") == 0 {
		s["description"] = "a note"
	}
	types := []string{"null", "boolean", "number", "integer", "string", "array", "object"}
	switch rapid.IntRange(0, 9).Draw(t, "types") {
	case 0:
	case 1:
		s["type"] = []any{rapid.SampledFrom(types).Draw(t, "type"), rapid.SampledFrom(types).Draw(t, "other")}
		if a := s["type"].([]any); a[0] == a[1] {
			s["type"] = a[0]
		}
	default:
		s["type"] = rapid.SampledFrom(types).Draw(t, "type")
	}
	bound := func(key string, from, to int) {
		if rapid.IntRange(0, 5).Draw(t, key+"?") == 0 {
			s[key] = rapid.IntRange(from, to).Draw(t, key)
		}
	}
	bound("minimum", -3, 3)
	bound("maximum", -3, 5)
	for _, key := range []string{"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"} {
		bound(key, 0, 3)
	}
	switch rapid.IntRange(0, 20).Draw(t, "more") {
	case 0:
		s["enum"] = []any{"a", "bc", ""}
	case 1:
		s["enum"] = []any{"a", 1, nil}
	case 2:
		s["minimum"] = 1.5
	case 3:
		s["exclusiveMaximum"] = 2
	case 4:
		s["pattern"] = "^a"
	case 5:
		s["not"] = map[string]any{"type": "string"}
	case 6:
		s["maximum"] = json.Number("99999999999999999999")
	case 7:
		s["const"] = "a"
	case 8:
		s["uniqueItems"] = true
	case 9:
		s["enum"] = []any{"a"}
		s["multipleOf"] = 2
	}
	if depth == 0 {
		return s
	}
	if rapid.IntRange(0, 2).Draw(t, "items?") == 0 {
		s["items"] = drawSchema(t, depth-1)
	}
	if rapid.Bool().Draw(t, "object?") {
		properties := map[string]any{}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "\"", "\u202e"}), 0, 3, rapid.ID).Draw(t, "properties") {
			properties[name] = drawSchema(t, depth-1)
		}
		s["properties"] = properties
		if rapid.Bool().Draw(t, "closed?") {
			s["additionalProperties"] = rapid.SampledFrom([]any{true, false, false, map[string]any{"type": "string"}}).Draw(t, "additional")
		}
		if rapid.Bool().Draw(t, "required?") {
			s["required"] = []any{rapid.SampledFrom([]string{"a", "b", "d"}).Draw(t, "required")}
		}
	}
	return s
}

func drawValue(t *rapid.T, depth int) any {
	kinds := 5
	if depth > 0 {
		kinds = 8
	}
	switch rapid.IntRange(0, kinds).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return json.Number(rapid.SampledFrom([]string{"0", "1", "-2", "3", "-0", "1.0", "1.5", "1e2", "2E0", "-1e-1", "999999999999999", "1000000000000000", "99999999999999999999", "1e400"}).Draw(t, "number"))
	case 3, 4, 5:
		return rapid.SampledFrom([]string{"", "a", "bc", "abcd", "äö", "\u00e4\u0301b", "\"\\", "\u202ea"}).Draw(t, "text")
	case 6:
		items := make([]any, rapid.IntRange(0, 4).Draw(t, "n"))
		for i := range items {
			items[i] = drawValue(t, depth-1)
		}
		return items
	}
	members := map[string]any{}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "\"", "\u202e"}), 0, 4, rapid.ID).Draw(t, "members") {
		members[name] = drawValue(t, depth-1)
	}
	return members
}

// H4: the quick answer never accepts what the library refuses.
func TestH4_QuickSchemaAcceptsOnlyWhatTheLibraryDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := drawSchema(t, 2)
		doc["type"] = "object"
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		_, s, _, err := compileSchema(raw, false)
		if err != nil {
			t.Skip(err)
		}
		if s.quick == nil {
			return
		}
		text, err := json.Marshal(drawValue(t, 3))
		if err != nil {
			t.Fatal(err)
		}
		canonical, value, err := guard.ReadArguments(text)
		if err != nil || !s.quick.surely(value) {
			return
		}
		if err := s.validate(value); err != nil {
			t.Fatalf("%s is taken (canonical %s): %v", text, canonical, err)
		}
	})
}

// H4: ordinary schemas and arguments have the quick answer; whatever else a schema
// says keeps it from having a quick form.
func TestH4_QuickSchemaIsUsed(t *testing.T) {
	const ordinary = `{"type":"object","description":"d","properties":{
		"path":{"type":"string","description":"p","minLength":1,"maxLength":4096},
		"limit":{"type":"integer","minimum":1,"maximum":1000,"default":20},
		"ratio":{"type":"number"},"mode":{"type":"string","enum":["a","b"]},
		"all":{"type":"boolean"},"names":{"type":"array","items":{"type":"string"},"maxItems":3},
		"at":{"type":["integer","null"]}},
		"required":["path"],"additionalProperties":false}`
	_, s, _, err := compileSchema(json.RawMessage(ordinary), false)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		`{"path":"x","limit":5,"ratio":1.5e3,"mode":"b","all":true,"names":["q"],"at":null}`: true,
		`{"path":"x","at":-7}`:               true,
		`{"path":"a \"b\" \n äö","limit":1}`: true,
		`{}`:                                 false,
		`{"path":""}`:                        false,
		`{"path":"x","limit":0}`:             false,
		`{"path":"x","limit":1001}`:          false,
		`{"path":"x","mode":"c"}`:            false,
		`{"path":"x","other":1}`:             false,
		`{"path":"x","names":[1]}`:           false,
		`{"path":"x","names":["","","",""]}`: false,
		`{"path":null}`:                      false,
		`[]`:                                 false,
	} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.quick.surely(value); got != want {
			t.Errorf("%s: quickly valid: %v, want %v", text, got, want)
		}
		if err := s.validate(value); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, more := range []string{
		`"$ref":"#/$defs/x"`, `"not":{}`, `"allOf":[{}]`, `"anyOf":[{}]`, `"oneOf":[{}]`, `"if":{}`, `"const":1`,
		`"patternProperties":{"a":{}}`, `"propertyNames":{}`, `"dependentRequired":{"a":["b"]}`, `"dependentSchemas":{"a":{}}`,
		`"unevaluatedProperties":false`, `"minProperties":1`, `"enum":[{}]`, `"additionalProperties":{"type":"string"}`,
		`"properties":{"a":{"pattern":"x"}}`, `"properties":{"a":{"multipleOf":2}}`, `"properties":{"a":{"exclusiveMinimum":2}}`,
		`"properties":{"a":{"format":"date"}}`, `"properties":{"a":{"contains":{}}}`, `"properties":{"a":{"uniqueItems":true}}`,
		`"properties":{"a":{"prefixItems":[{}]}}`, `"properties":{"a":{"minimum":0.5}}`, `"properties":{"a":false}`,
		`"properties":{"a":{"contentEncoding":"base64"}}`, `"$schema":"http://json-schema.org/draft-07/schema#"`,
	} {
		_, s, _, err := compileSchema(json.RawMessage(`{"type":"object","$defs":{"x":{}},`+more+`}`), false)
		if err != nil {
			t.Errorf("%s: %v", more, err)
			continue
		}
		if s.quick != nil {
			// A format that is only a note, as in 2020-12, changes nothing.
			if !strings.Contains(more, "format") && !strings.Contains(more, "contentEncoding") {
				t.Errorf("%s has a quick form", more)
			}
		}
	}
}
