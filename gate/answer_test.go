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
