package wire_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib/provider/wire"
)

const anyType = `["object","array","string","number","boolean","null"]`

func TestGrammarSchema(t *testing.T) {
	object := func(x string) string { return `{"type":"object","properties":{"x":` + x + `}}` }
	same := []string{
		`{"type":"object","properties":{}}`,
		object(`{"type":"string","description":"it","maxLength":64,"pattern":"^[a-z0-9_-]{1,32}$"}`),
		object(`{"type":"array","items":{"type":"string"},"maxItems":10}`),
		object(`{"enum":["a",1,null]}`),
		object(`{"type":"integer","minimum":-1,"maximum":99}`),
		`{"type":"object","properties":{"x":{"$ref":"#/$defs/a~1b"}},"$defs":{"a/b":{"type":"string"}}}`,
	}
	for _, s := range same {
		if got, err := wire.GrammarSchema(json.RawMessage(s)); err != nil || string(got) != s {
			t.Errorf("%s became %s, error %v", s, got, err)
		}
	}
	changed := map[string]string{
		`{"type":"string","pattern":"\\S"}`:                                        `{"type":"string"}`,
		`{"type":"string","pattern":"^\\d+$"}`:                                     `{"type":"string"}`,
		`{"type":"string","pattern":"^(?=x)x$"}`:                                   `{"type":"string"}`,
		`{"type":"string","minLength":1,"maxLength":65536}`:                        `{"minLength":1,"type":"string"}`,
		`{"type":"array","maxItems":5,"items":{"type":"string","maxLength":5}}`:    `{"items":{"type":"string"},"maxItems":5,"type":"array"}`,
		`{"type":"array","maxItems":5000,"items":{"type":"string","maxLength":5}}`: `{"items":{"maxLength":5,"type":"string"},"type":"array"}`,
		`{"type":"integer","maximum":9007199254740993000}`:                         `{"type":"integer"}`,
		`{"description":"whatever"}`:                                               `{"description":"whatever","type":` + anyType + `}`,
		`{}`:                                                                       `{"type":` + anyType + `}`,
		`{"type":"array","items":true}`:                                            `{"items":{"type":` + anyType + `},"type":"array"}`,
		`{"$ref":"https://example.com/schema.json"}`:                               `{"type":` + anyType + `}`,
		`{"$ref":"#/$defs/nowhere"}`:                                               `{"type":` + anyType + `}`,
		`{"type":"string","not":{"const":"x"}}`:                                    `{"type":"string"}`,
	}
	for in, want := range changed {
		got, err := wire.GrammarSchema(json.RawMessage(object(in)))
		want = `{"properties":{"x":` + want + `},"type":"object"}`
		if err != nil || string(got) != want {
			t.Errorf("%s became\n%s, error %v, want\n%s", in, got, err, want)
		}
	}
	if _, err := wire.GrammarSchema(json.RawMessage(`{"type":`)); err == nil {
		t.Error("a broken schema is no error")
	}
}

// A converted schema is valid: a second pass changes nothing.
func TestGrammarSchema_IsStable(t *testing.T) {
	words := []string{"type", "pattern", "maxLength", "minItems", "maxItems", "items", "anyOf", "properties", "$ref", "not", "enum", "maximum", "description", "additionalProperties"}
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			kind := rapid.IntRange(0, 6).Draw(t, "kind")
			switch {
			case kind == 0:
				return rapid.Bool().Draw(t, "bool")
			case kind == 1:
				return rapid.IntRange(-10, 100_000).Draw(t, "number")
			case kind == 2:
				return rapid.SampledFrom([]string{"string", "object", "^a$", "a", "#/properties/x", "#/"}).Draw(t, "string")
			case kind == 3 && depth < 4:
				return rapid.SliceOfN(value(depth+1), 0, 3).Draw(t, "list")
			case depth < 4:
				return rapid.MapOfN(rapid.SampledFrom(words), value(depth+1), 0, 4).Draw(t, "object")
			}
			return nil
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		in, err := json.Marshal(value(0).Draw(t, "schema"))
		if err != nil {
			t.Fatal(err)
		}
		once, err := wire.GrammarSchema(in)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := wire.GrammarSchema(once)
		if err != nil || string(twice) != string(once) {
			t.Errorf("%s became %s and then %s, error %v", in, once, twice, err)
		}
	})
}
