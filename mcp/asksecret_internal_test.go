package mcp

import (
	"encoding/json"
	"testing"
)

func TestSecretFields(t *testing.T) {
	for fields, want := range map[string]string{
		`{"password":{"type":"string"}}`:                                            "password",
		`{"userPassword":{"type":"string"},"user":{"type":"string"}}`:               "userPassword",
		`{"api_key":{"type":"string"},"n":{"type":"integer"}}`:                      "api_key",
		`{"x":{"type":"string","title":"Access token"}}`:                            "x",
		`{"x":{"type":"string","description":"Your credit card number."}}`:          "x",
		`{"x":{"type":"string","format":"password"}}`:                               "x",
		`{"x":{"type":"string","writeOnly":true}}`:                                  "x",
		`{"pin":{"type":"integer"}}`:                                                "pin",
		`{"API-KEY":{}}`:                                                            "API-KEY",
		`{"key":{"type":"string"}}`:                                                 "key",
		`{"max_tokens":{"type":"integer"}}`:                                         "",
		`{"name":{"type":"string"}}`:                                                "",
		`{"keyboard":{"type":"string"},"monkey":{"type":"string"}}`:                 "",
		`{"token_type":{"type":"string","enum":["a","b"]},"ok":{"type":"boolean"}}`: "",
	} {
		var schema map[string]json.RawMessage
		if err := json.Unmarshal([]byte(fields), &schema); err != nil {
			t.Fatal(err)
		}
		got := secretFields("Please fill in.", schema)
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !got[want]) {
			t.Errorf("%s: %v", fields, got)
		}
	}
	two := map[string]json.RawMessage{"value": json.RawMessage(`{"type":"string"}`), "n": json.RawMessage(`{"type":"integer"}`)}
	if got := secretFields("Enter your password:", two); len(got) != 1 || !got["value"] {
		t.Errorf("by the message: %v", got)
	}
}
