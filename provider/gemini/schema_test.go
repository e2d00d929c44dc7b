package gemini_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/gemini"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// declared returns the schema under which a tool is sent; ok is false if the tool was
// left out.
func declared(t *testing.T, schema string) (sent string, ok bool) {
	t.Helper()
	req := modeltest.Request("q")
	req.Tools = []toolcrib.Spec{{Name: "a", Parameters: json.RawMessage(schema)}, {Name: "b"}}
	r, reply := send(t, gemini.Options{}, req)
	var tools []struct {
		FunctionDeclarations []struct {
			Name   string          `json:"name"`
			Schema json.RawMessage `json:"parametersJsonSchema"`
		} `json:"functionDeclarations"`
	}
	if err := json.Unmarshal(r.fields(t)["tools"], &tools); err != nil {
		t.Fatal(err)
	}
	list := tools[0].FunctionDeclarations
	if list[0].Name != "a" {
		if got := codes(reply); len(got) != 1 || got[0] != toolcrib.NoticeToolUnusable {
			t.Errorf("%s: left out with the notices %v", schema, got)
		}
		return "", false
	}
	return string(list[0].Schema), true
}

func TestSpec1c4_SchemaSubset(t *testing.T) {
	property := func(p string) string { return `{"type":"object","properties":{"x":` + p + `}}` }
	for _, c := range [][2]string{ // in, want
		{``, ``},
		{`{}`, ``},
		{`{"type":"object","properties":{}}`, ``},
		{property(`{"type":"string"}`), property(`{"type":"string"}`)},
		{property(`{"type":["string","null"],"title":"t","format":"date"}`), property(`{"type":["string","null"],"title":"t","format":"date"}`)},
		{property(`{"type":"string","format":"uuid","pattern":"^a","default":"b","$comment":"c","description":"An ID."}`), property(`{"type":"string","description":"An ID. (format: \"uuid\", pattern: \"^a\", default: \"b\")"}`)},
		{property(`{"type":"integer","minimum":1,"exclusiveMaximum":9,"multipleOf":2}`), property(`{"type":"integer","minimum":1,"description":"(exclusiveMaximum: 9, multipleOf: 2)"}`)},
		{property(`{"oneOf":[{"const":"a"},{"enum":[1,null]}]}`), property(`{"anyOf":[{"enum":["a"]},{"enum":[1]}]}`)},
		{property(`{"enum":[true,false]}`), property(`{}`)},
		{property(`{"type":"array"}`), property(`{"type":"array","items":{}}`)},
		{property(`{"type":"array","items":[{"type":"string"},{"type":"number"}]}`), property(`{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}]}`)},
		{property(`{"type":"object","properties":{},"required":["a"]}`), property(`{"type":"object"}`)},
		{property(`{"type":"object","additionalProperties":{"type":"string"}}`), property(`{"type":"object","additionalProperties":{"type":"string"}}`)},
		{property(`{"type":"object","additionalProperties":false,"propertyNames":{}}`), property(`{"type":"object","additionalProperties":false}`)},
		{property(`{"allOf":[{"type":"string"},{"description":"d","minLength":1}]}`), property(`{"type":"string","description":"d (minLength: 1)"}`)},
		{property(`true`), property(`{}`)},
		{`{"type":"object","properties":{"z":{},"a":{}},"required":["a","z","a","gone"]}`, `{"type":"object","properties":{"z":{},"a":{}},"required":["a","z"]}`},
		{`{"type":"object","properties":{"a":{"$ref":"#/$defs/n","description":"mine"}},"$defs":{"n":{"type":"string","description":"its"}}}`, `{"type":"object","properties":{"a":{"description":"mine","type":"string"}}}`},
		{`{"type":"object","properties":{"a":{"$ref":"#/definitions/a~1b"}},"definitions":{"a/b":{"type":"object","properties":{"next":{"$ref":"#/definitions/a~1b"}}}}}`, `{"type":"object","properties":{"a":{"type":"object","properties":{"next":{}}}}}`},
		{`{"type":"object","properties":{"a":{"allOf":[{"$ref":"#/$defs/n"},{"properties":{"y":{}}}]}},"$defs":{"n":{"properties":{"x":{}},"required":["x"]}}}`, `{"type":"object","properties":{"a":{"properties":{"x":{},"y":{}},"required":["x"]}}}`},
		{`{"type":"object","properties":{"a":{"allOf":[{"$ref":"#/$defs/n"}]}},"$defs":{"n":{"$ref":"#/$defs/n"}}}`, `{"type":"object","properties":{"a":{}}}`},
		{`{"$ref":"#/$defs/n","$defs":{"n":{"allOf":[{"$ref":"#/$defs/m"},{"properties":{"b":{"$ref":"#/$defs/m"}}}]},"m":{"properties":{"a":{}}}}}`, `{"type":"object","properties":{"a":{},"b":{"properties":{"a":{}}}}}`},
		{`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"a":{"type":"strange"}}}`, `{"type":"object","properties":{"a":{}}}`},
	} {
		in, want := c[0], c[1]
		got, ok := declared(t, in)
		if !ok || got != want {
			t.Errorf("%s\nbecame %s\nwant   %s", in, got, want)
		}
	}
}

func TestToolUnusable(t *testing.T) {
	hollow := `{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{` // 10^14 empty branches
	for i := range 14 {
		hollow += fmt.Sprintf(`"d%d":{"allOf":[{}%s]},`, i, strings.Repeat(fmt.Sprintf(`,{"$ref":"#/$defs/d%d"}`, i+1), 10))
	}
	bomb := `{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{`
	for i := range 30 {
		bomb += fmt.Sprintf(`"d%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"}}},`, i, i+1, i+1)
	}
	// The size of expanded references is bounded in bytes.
	often := func(what string) string {
		return `{"type":"object","properties":{"a":{"anyOf":[{}` + strings.Repeat(`,{"$ref":"#/$defs/n"}`, 1000) + `]}},"$defs":{"n":` + what + `}}`
	}
	long := strings.Repeat("a", 20_000)
	for name, schema := range map[string]string{
		"required":    `{"type":"object","properties":{"a":{}},"allOf":[{}` + strings.Repeat(`,{"$ref":"#/$defs/n"}`, 1000) + `],"$defs":{"n":{"required":["a"` + strings.Repeat(`,"a"`, 5000) + `]}}}`,
		"enum":        often(`{"enum":["a"` + strings.Repeat(`,"a"`, 5000) + `]}`),
		"description": often(`{"description":"` + long + `"}`),
		"title":       often(`{"title":"` + long + `"}`),
		"broken":      `{`,
		"no object":   `{"type":"string"}`,
		"odd name":    `{"type":"object","properties":{"a b":{}}}`,
		"inner name":  `{"type":"object","properties":{"a":{"type":"object","properties":{"":{}}}}}`,
		"elsewhere":   `{"type":"object","properties":{"a":{"$ref":"https://x.example/s"}}}`,
		"nowhere":     `{"type":"object","properties":{"a":{"$ref":"#/$defs/gone"}}}`,
		"bomb":        bomb + `"d30":{}}}`,
		"hollow":      hollow + `"d14":{}}}`,
	} {
		if got, ok := declared(t, schema); ok {
			t.Errorf("%s: sent as %.300s", name, got)
		}
	}
	deep := `{"type":"object","properties":{"a":` + strings.Repeat(`{"type":"array","items":`, 100) + `{}` + strings.Repeat(`}`, 100) + `}}`
	if _, ok := declared(t, deep); !ok {
		t.Error("a deep schema is left out; its depth could be cut")
	}
	req := modeltest.Request("q")
	req.Tools = []toolcrib.Spec{{Name: "3d"}, {Name: "-x"}, {Name: "good"}}
	r, reply := send(t, gemini.Options{}, req)
	if got := codes(reply); len(got) != 2 || !strings.Contains(string(r.body), `"name":"good"`) ||
		strings.Contains(string(r.body), "3d") {
		t.Errorf("body %s, notices %v", r.body, got)
	}
	req.Tools = req.Tools[:2]
	if r, _ := send(t, gemini.Options{}, req); r.fields(t)["tools"] != nil {
		t.Error("N8: an empty list of tools was sent")
	}
}

// FuzzSchema: a tool with any schema is left out or sent in the
// documented subset.
func FuzzSchema(f *testing.F) {
	for _, seed := range []string{
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"allOf":[{"$ref":"#/$defs/n"},{"anyOf":[{"const":null}]}]}}}`,
		`{"properties":{"a":{"items":[{}],"prefixItems":[1],"enum":[{}],"required":[1],"type":["x","null"],"default":[1]}}}`,
		`{"properties":{"a":{"$ref":"#"}}}`, `{"$ref":"#/properties/a","properties":{"a":{"$ref":"#"}}}`, `[]`, `{"allOf":[{"allOf":[{}]}]}`,
	} {
		f.Add(seed)
	}
	r := &recorder{}
	o := gemini.Options{}
	o.Transport = r
	m, err := gemini.New(o)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, schema string) {
		req := modeltest.Request("q")
		req.Model = "gemini-3.5-flash"
		req.Tools = []toolcrib.Spec{{Name: "a", Parameters: json.RawMessage(schema)}}
		req.OutputSchema = json.RawMessage(schema)
		if _, err := modeltest.Collect(t.Context(), m, req); err != nil {
			t.Fatal(err)
		}
		if err := check(req.Model, r.body); err != nil {
			t.Errorf("%q: %v\n%s", schema, err, r.body)
		}
	})
}
