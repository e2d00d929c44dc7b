package gate_test

import (
	"encoding/json"
	"testing"

	"github.com/toolcrib/toolcrib/gate"
)

// A schema of an answer may refer to its own parts.
func TestAnswerSchema_RefersToItself(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"},"next":{"$ref":"#"}},"required":["a"],
		"$defs":{"x":{"type":"string"}}}`)
	if err := gate.CheckSchema(schema); err != nil {
		t.Fatal(err)
	}
	for answer, want := range map[string]string{
		`{"a":"b"}`:              "",
		`{"a":"b","next":{}}`:    "invalid_arguments: /answer/next/a: expected a value (required), got nothing",
		`{"a":1}`:                "invalid_arguments: /answer/a: expected string, got number 1",
		`"x"`:                    `invalid_arguments: /answer: expected object, got string "x"`,
		`{"a":"b","a":"c"}`:      `invalid_arguments: duplicate key "a" (at /answer, byte 19)`,
		`{"a":"b","next":"yes"}`: `invalid_arguments: /answer/next: expected object, got string "yes"`,
	} {
		have := ""
		if err := gate.CheckAnswer(schema, json.RawMessage(answer)); err != nil {
			have = err.Error()
		}
		if have != want {
			t.Errorf("%s\nhave %s\nwant %s", answer, have, want)
		}
	}
}

// What no answer could be held against is a problem of the schema as well.
func TestSchemaProblem(t *testing.T) {
	for schema, want := range map[string]string{
		`true`: "",
		`{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{}}}`: "",
		`{"properties":{"a":{"type":3}}}`:                            "is not a valid JSON Schema, at /properties/a/type",
		`{"$ref":"https://example.com/x"}`:                           "is not a valid JSON Schema: it refers to what is outside of it",
		`{"$ref":"#/$defs/x"}`:                                       "is not a valid JSON Schema: a reference or pattern in it is wrong",
		`{"$dynamicRef":"#x"}`:                                       "is not a valid JSON Schema: $dynamicRef is not supported",
	} {
		if have := gate.SchemaProblem(json.RawMessage(schema)); have != want {
			t.Errorf("%s\nhave %q\nwant %q", schema, have, want)
		}
		if err := gate.CheckSchema(json.RawMessage(schema)); (err == nil) != (want == "") {
			t.Errorf("%s: %v", schema, err)
		}
	}
}
