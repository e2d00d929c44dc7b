package guard

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEscapeJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":"é 日 😀 \n"}`:                                 `{"a":"é 日 😀 \n"}`,
		"[\"\x7f\u0080\u009b31m\u009f\u00a0\"]":            "[\"\\u007f\\u0080\\u009b31m\\u009f\u00a0\"]",
		"[\"\u061c\u200e\u200f\u202a\u202e\u2066\u2069\"]": `["\u061c\u200e\u200f\u202a\u202e\u2066\u2069"]`,
		"[\n  \"\u202e\"\n]\n":                             "[\n  \"\\u202e\"\n]\n",
		"[\"\U000e0041\U000e01ef\U0001f600\"]":             `["\udb40\udc41\udb40\uddef😀"]`,
		"":                                                 "",
	} {
		if got := string(EscapeJSON([]byte(in))); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestEscapeJSONProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in bytes.Buffer
		enc := json.NewEncoder(&in)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(drawValue(t, 3)); err != nil {
			t.Fatal(err)
		}
		got := EscapeJSON(in.Bytes())
		var want, means any
		if json.Unmarshal(in.Bytes(), &want) != nil || json.Unmarshal(got, &means) != nil || !reflect.DeepEqual(want, means) {
			t.Fatalf("%q became %q", in.Bytes(), got)
		}
		if at := strings.IndexFunc(string(got), func(r rune) bool {
			return r >= 0x7f && r <= 0x9f || r == 0x61c || r == 0x200e || r == 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r >= 0xe0000 && r <= 0xe01ef
		}); at >= 0 {
			t.Fatalf("%q acts", got)
		}
	})
}
