package gate_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
)

const losslessSchema = `{"type":"object","required":["n"],"additionalProperties":false,"$defs":{"deep":{"type":"object","properties":{"m":{"type":"integer"}}}},"properties":{
	"n":{"type":"integer","minimum":0},"x":{"type":"number"},"b":{"type":"boolean"},"s":{"type":"string"},"o":{"$ref":"#/$defs/deep"},
	"l":{"type":"array","items":{"type":"integer"}},"e":{"enum":["a","b"]},"u":{"anyOf":[{"type":"integer"},{"type":"null"}]},
	"w":{"type":["string","integer"]},"any":{},"ab":{"oneOf":[{"type":"boolean"},{"type":"integer"}]}}}`

// Contract §11: arguments that can only mean one thing are converted, each value once; the rest is not.
func TestContract11_Lossless(t *testing.T) {
	spec := toolcrib.Spec{Name: "t", Description: "d", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go", Parameters: json.RawMessage(losslessSchema)}
	g, err := gate.New(gate.Options{Tools: []toolcrib.Tool{&plainTool{spec}}, Availability: gate.Overrides{}})
	if err != nil {
		t.Fatal(err)
	}
	for sent, want := range map[string]string{
		// What can only mean one thing.
		`{"n":"5"}`:                                           `{"n":5}`,
		`{"n":1,"x":"-1.5","b":"true"}`:                       `{"b":true,"n":1,"x":-1.5}`,
		`{"n":1,"s":null,"e":null,"o":null}`:                  `{"n":1}`,
		`{"n":1,"o":"{\"m\": 2}","l":"[1,2]"}`:                `{"l":[1,2],"n":1,"o":{"m":2}}`,
		`{"n":1,"l":["1",2],"o":{"m":"3"}}`:                   `{"l":[1,2],"n":1,"o":{"m":3}}`,
		`{"n":1,"o":"{\"m\": \"2\"}"}`:                        `{"n":1,"o":{"m":2}}`,
		`{"n":1,"u":"7","ab":"false"}`:                        `{"ab":false,"n":1,"u":7}`,
		"```json\n{\"n\": 1}\n```":                            `{"n":1}`,
		"```\n{\"n\": \"1\"}\n```\n":                          `{"n":1}`,
		`{"n":1}}`:                                            `{"n":1}`,
		`{"n":1,"o":{"m":2}}` + "\n}":                         `{"n":1,"o":{"m":2}}`,
		`"{\"n\":1}"`:                                         `{"n":1}`,
		`{"n":1,"s":"5","w":"5","any":"5","u":null,"l":"[]"}`: `{"any":"5","l":[],"n":1,"s":"5","u":null,"w":"5"}`,
		// What is valid as it is, or may mean something else.
		`{"n":1}`: "", `{"n":1,"w":"5","any":null,"u":null}`: "",
		`{"n":null}`: "", `{"n":"5.0"}`: "", `{"n":" 5"}`: "", `{"n":"0x5"}`: "", `{"n":"05"}`: "", `{"n":"1e3"}`: "", `{"n":"five"}`: "",
		`{"n":5.5}`: "", `{"n":true}`: "", `{"n":["5"]}`: "", `{"n":"-1"}`: "", `{"n":1,"b":"yes"}`: "", `{"n":1,"b":1}`: "", `{"n":1,"s":5}`: "",
		`{"n":1,"l":"1,2"}`: "", `{"n":1,"l":3}`: "", `{"n":1,"o":"[]"}`: "", `{"n":1,"o":"{\"m\":2}}"}`: "", `{"n":1,"o":"{\"m\":2,\"m\":3}"}`: "",
		`{"n":"5","other":1}`: "", `{"n":"5","b":"maybe"}`: "", `{"n":"\"5\""}`: "",
		`{"n":1}}}`: "", `{"n":1`: "", `{"n":1}{"n":2}`: "", `{n:1}`: "", `{"n":1,"n":2}`: "", "`{\"n\":1}`": "", `"\"{\\\"n\\\":1}\""`: "",
		"```json\n{\"n\":1}}\n```": "", "see\n```json\n{\"n\":1}\n```": "", `[{"n":1}]`: "", `null`: "", ``: "", `"n"`: "",
		`{"n":"1","l":[` + strings.Repeat(`"1",`, 100) + `1]}`: "",
	} {
		read := g.Read(gate.Scope{}, "t", []byte(sent), true)
		got, converted := "", read.Converted
		if len(converted) > 0 {
			got = string(read.Canonical)
		}
		if got != want || want != "" && !read.Valid() || slices.Contains(converted, "") {
			t.Errorf("%s: got %s (%q), want %s", sent, got, converted, want)
		}
		if as := g.Read(gate.Scope{}, "t", []byte(sent), false); as.Converted != nil || as.Valid() && want != "" {
			t.Errorf("%s: not to be converted, and read as %s", sent, as.Canonical)
		}
	}
	if got := g.Read(gate.Scope{}, "none", []byte(`{"n":"5"}`), true); got.Converted != nil || got.Valid() {
		t.Errorf("of no tool: %+v", got)
	}
	converted := g.Read(gate.Scope{}, "t", []byte("```\n{\"n\":\"1\",\"s\":null,\"l\":[\"2\"]}\n```"), true).Converted
	want := []string{
		"a code fence was taken off", "/l/0: a string was read as the integer in it",
		"/n: a string was read as the integer in it", "/s: null was left out",
	}
	if !slices.Equal(converted, want) {
		t.Errorf("converted %q, want %q", converted, want)
	}
}
