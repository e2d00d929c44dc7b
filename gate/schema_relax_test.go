package gate_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/gate"
)

// odd are schemas of a property a as servers have them, what is not checked, and arguments that are taken and
// refused: what can be checked still is.
var odd = map[string]struct{ schema, unchecked, good, bad string }{
	"lookahead":             {`{"properties":{"a":{"type":"string","pattern":"^(?!\\.)x"}}}`, "/properties/a/pattern", `{"a":"y"}`, `{"a":1}`},
	"cjk range":             {`{"properties":{"a":{"type":"string","pattern":"^[\\u4e00-\\u9fa5]+$"}}}`, "/properties/a/pattern", `{"a":"y"}`, `{"a":1}`},
	"exclusiveMinimum true": {`{"properties":{"a":{"type":"number","exclusiveMinimum":true,"minimum":0}}}`, "/properties/a/exclusiveMinimum", `{"a":1}`, `{"a":-1}`},
	"dangling reference":    {`{"properties":{"a":{"type":"array","items":{"$ref":"#/$defs/Gone"}}}}`, "/properties/a/items/$ref", `{"a":[1]}`, `{"a":1}`},
	"definitions for $defs": {`{"definitions":{"X":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/X"},"b":{"$ref":"#/definitions/X"}}}`, "/properties/a/$ref", `{"a":1,"b":"x"}`, `{"b":1}`},
	"other document":        {`{"properties":{"a":{"$ref":"https://example.com/x.json"},"b":{"type":"string"}}}`, "/properties/a/$ref", `{"a":1}`, `{"b":1}`},
	"unknown anchor":        {`{"properties":{"a":{"$ref":"#gone"},"b":{"type":"string"}}}`, "/properties/a/$ref", `{"a":1}`, `{"b":1}`},
	"reference to itself":   {`{"$defs":{"X":{"$ref":"#/$defs/X"}},"properties":{"a":{"$ref":"#/$defs/X"},"b":{"type":"string"}}}`, "/$defs/X/$ref", `{"a":1}`, `{"b":1}`},
	"reference number":      {`{"properties":{"a":{"$ref":5},"b":{"type":"string"}}}`, "/properties/a/$ref", `{"a":1}`, `{"b":1}`},
	"all of itself":         {`{"allOf":[{"$ref":"#"}],"properties":{"b":{"type":"string"}}}`, "/allOf/0/$ref", `{"a":1}`, `{"b":1}`},
	"all of each other":     {`{"$defs":{"X":{"allOf":[{"$ref":"#/$defs/Y"}]},"Y":{"$ref":"#/$defs/X"}},"properties":{"a":{"$ref":"#/$defs/Y"},"b":{"type":"string"}}}`, "/$defs/Y/$ref", `{"a":1}`, `{"b":1}`},
	"loop by an anchor":     {`{"$defs":{"X":{"$anchor":"x","type":"string","dependentSchemas":{"b":{"$ref":"#x"}},"anyOf":[{"$ref":"#x"}]}},"properties":{"a":{"$ref":"#x"}}}`, "/$defs/X/anyOf/0/$ref /$defs/X/dependentSchemas/b/$ref", `{"a":"x"}`, `{"a":1}`},
	"loop into a list":      {`{"allOf":[{"type":"object","then":{"$ref":"#/allOf/0"},"if":{}}],"properties":{"b":{"type":"string"}}}`, "/allOf/0/then/$ref", `{"a":1}`, `{"b":1}`},
	"loop of alternatives":  {`{"$defs":{"X":{"anyOf":[{"type":"string"},{"$ref":"#/$defs/X"}]}},"properties":{"a":{"$ref":"#/$defs/X"}}}`, "", `{"a":"x"}`, `{"a":1}`},
	"recursive":             {`{"properties":{"a":{"$ref":"#"},"b":{"type":"string"}}}`, "", `{"a":{"a":{}}}`, `{"a":{"b":1}}`},
	"dynamic reference":     {`{"properties":{"a":{"$dynamicRef":"#x"},"b":{"type":"string"}}}`, "/properties/a/$dynamicRef", `{"a":1}`, `{"b":1}`},
	"tuple items":           {`{"properties":{"a":{"type":"array","items":[{"type":"string"}]}}}`, "/properties/a/items", `{"a":[1]}`, `{"a":1}`},
	"required in property":  {`{"properties":{"a":{"type":"string","required":true}},"required":["a"]}`, "/properties/a/required", `{"a":"x"}`, `{}`},
	"type any":              {`{"properties":{"a":{"type":"any"},"b":{"type":"string"}}}`, "/properties/a/type", `{"a":1}`, `{"b":1}`},
	"type in a list":        {`{"properties":{"a":{"type":["string","date"]},"b":{"type":"string"}}}`, "/properties/a/type", `{"a":1}`, `{"b":1}`},
	"type null":             {`{"type":null,"properties":{"a":{"type":"string"}}}`, "/type", `{"a":"x"}`, `{"a":1}`},
	"type upper":            {`{"type":"OBJECT","properties":{"a":{"type":"string"}}}`, "/type", `{"a":"x"}`, `{"a":1}`},
	"type array":            {`{"type":"array","properties":{"a":{"type":"string"}}}`, "/type", `{"a":"x"}`, `{"a":1}`},
	"object or null":        {`{"type":["object","null"],"properties":{"a":{"type":"string"}}}`, "", `{"a":"x"}`, `{"a":1}`},
	"null description":      {`{"properties":{"a":{"type":"string","description":null}}}`, "/properties/a/description", `{"a":"x"}`, `{"a":1}`},
	"null properties":       {`{"type":"object","properties":null,"required":["a"]}`, "/properties", `{"a":"x"}`, `{}`},
	"empty list properties": {`{"type":"object","properties":[],"additionalProperties":false}`, "/properties", `{}`, `{"a":1}`},
	"list properties":       {`{"type":"object","properties":[{"name":"a"}],"additionalProperties":false}`, "/additionalProperties /properties", `{"a":1}`, ``},
	"property is a text":    {`{"properties":{"a":"string","b":{"type":"string"}},"additionalProperties":false}`, "/properties/a", `{"a":1}`, `{"b":1}`},
	"own dialect":           {`{"$schema":"https://example.com/custom","properties":{"a":{"type":"string"}}}`, "/$schema", `{"a":"x"}`, `{"a":1}`},
	"dialect number":        {`{"$schema":7,"properties":{"a":{"type":"string"}}}`, "/$schema", `{"a":"x"}`, `{"a":1}`},
	"draft 4":               {`{"$schema":"http://json-schema.org/draft-04/schema#","id":"x","properties":{"a":{"type":"number","exclusiveMinimum":true,"minimum":0}}}`, "", `{"a":1}`, `{"a":0}`},
	"draft 7 items":         {`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"type":"array","items":{"type":"any","minLength":2}}}}`, "/properties/a/items/type", `{"a":["xx"]}`, `{"a":["x"]}`},
	"custom format":         {`{"properties":{"a":{"type":"string","format":"x-thing"}}}`, "", `{"a":"x"}`, `{"a":1}`},
	"nullable":              {`{"properties":{"a":{"type":"string","nullable":true,"enum":["x"]}}}`, "", `{"a":null}`, `{"a":"y"}`},
	"empty enum":            {`{"properties":{"a":{"type":"string","enum":[]}}}`, "/properties/a/enum", `{"a":"x"}`, `{"a":1}`},
	"huge enum":             {`{"properties":{"a":{"type":"string","enum":[` + strings.Repeat(`"x",`, 20_000) + `"y"]}}}`, "/properties/a/enum", `{"a":"z"}`, `{"a":1}`},
	"text limits":           {`{"properties":{"a":{"type":"string","minLength":"1","maxLength":-1}}}`, "/properties/a/maxLength /properties/a/minLength", `{"a":"x"}`, `{"a":1}`},
	"text default":          {`{"properties":{"a":{"type":"string","default":{"$ref":"#/gone"}}}}`, "", `{"a":"x"}`, `{"a":1}`},
	"property named $ref":   {`{"properties":{"$ref":{"type":"string"},"required":{"type":"any"}}}`, "/properties/required/type", `{"$ref":"x","required":1}`, `{"$ref":1}`},
	"pattern properties":    {`{"patternProperties":{"^(?!x)":{"type":"string"}},"additionalProperties":false}`, "/additionalProperties /patternProperties", `{"a":1}`, ``},
	"required is a text":    {`{"properties":{"a":{"type":"string"}},"required":"a"}`, "/required", `{}`, `{"a":1}`},
	"required null":         {`{"properties":{"a":{"type":"string"}},"required":null}`, "/required", `{}`, `{"a":1}`},
	"additional is a text":  {`{"properties":{"a":{"type":"string"}},"additionalProperties":"false"}`, "/additionalProperties", `{"b":1}`, `{"a":1}`},
	"empty anyOf":           {`{"properties":{"a":{"type":"string","anyOf":[]}}}`, "/properties/a/anyOf", `{"a":"x"}`, `{"a":1}`},
	"duplicate ids":         {`{"properties":{"a":{"$id":"urn:x","type":"string"},"b":{"$id":"urn:x","type":"string"}}}`, "", `{"a":"x"}`, `{"b":1}`},
	"inside not":            {`{"properties":{"a":{"type":"string","not":{"pattern":"^(?!x)"}}}}`, "/properties/a/not", `{"a":"x"}`, `{"a":1}`},
	"oneOf inside not":      {`{"properties":{"a":{"type":"string","not":{"oneOf":[{"minLength":2},{"pattern":"^x"}]}},"b":{"type":"any"}}}`, "/properties/a/not /properties/b/type", `{"a":"xx"}`, `{"a":1}`},
	"oneOf inside if":       {`{"if":{"properties":{"a":{"oneOf":[{"minLength":2},{"pattern":"^x"}]}}},"then":{"required":["c"]},"properties":{"a":{"type":"string"},"b":{"type":"any"}}}`, "/if /properties/b/type", `{"a":"xx"}`, `{"a":1}`},
	"oneOf inside contains": {`{"properties":{"a":{"type":"array","contains":{"oneOf":[{"minLength":2},{"pattern":"^x"}]},"maxContains":1,"minContains":0},"b":{"type":"any"}}}`, "/properties/a/contains /properties/b/type", `{"a":["xx","xx"]}`, `{"a":1}`},
	"reference inside not":  {`{"$defs":{"X":{"type":"string","pattern":"^(?!x)"}},"properties":{"a":{"type":"string","not":{"$ref":"#/$defs/X"}}}}`, "/$defs/X/pattern /properties/a/not", `{"a":"xx"}`, `{"a":1}`},
	"property named not":    {`{"properties":{"not":{"oneOf":[{"type":"string"},{"type":"integer"}]},"b":{"type":"any"}}}`, "/properties/b/type", `{"not":"x"}`, `{"not":[]}`},
	"inside oneOf":          {`{"properties":{"a":{"oneOf":[{"type":"string","pattern":"^(?!x)"},{"type":"string","maxLength":9}]}}}`, "/properties/a/oneOf/0/pattern", `{"a":"x"}`, `{"a":1}`},
	"unevaluated":           {`{"allOf":[{"$ref":"#/$defs/Gone"}],"unevaluatedProperties":false,"properties":{"a":{"type":"string"}}}`, "/allOf/0/$ref /unevaluatedProperties", `{"b":1}`, `{"a":1}`},
	"file":                  {`{"properties":{"a":{"$ref":"file:///etc/hosts"},"b":{"type":"string"}}}`, "/properties/a/$ref", `{"a":1}`, `{"b":1}`},
	"many values":           {`{"examples":[` + strings.Repeat("1,", 9000) + `1]}`, "/", `{"b":1}`, ``},
	"schema is a text":      {`"object"`, "/", `{"b":1}`, ``},
	"schema is a list":      {`[]`, "/", `{"b":1}`, ``},
}

// Contract §4: an odd keyword of a tool from elsewhere costs the keyword, not the tool, and not what a model is shown.
func TestC4_OddSchemas(t *testing.T) {
	for name, c := range odd {
		for _, source := range []string{"mcp:s", "bus:x", "client"} {
			t.Run(name+"/"+source, func(t *testing.T) { testOdd(t, source, c.schema, c.unchecked, c.good, c.bad) })
		}
	}
}

func testOdd(t *testing.T, source, schema, unchecked, good, bad string) {
	spec := reads("s__t")
	spec.Source, spec.Parameters = source, json.RawMessage(schema)
	g := newGate(t, tool(spec))
	offer, err := g.Offer(t.Context(), alice(), wide())
	if err != nil || len(offer.Specs) != 1 {
		t.Fatalf("offered are %v (%v)", offer.Specs, err)
	}
	if shown := string(offer.Specs[0].Parameters); shown != schema && strings.HasPrefix(schema, "{") {
		t.Errorf("shown is %s", shown)
	}
	if left := strings.Join(gate.Unchecked(spec.Parameters), " "); left != unchecked {
		t.Errorf("not checked are %q, want %q", left, unchecked)
	}
	notes := strings.Join(g.Explain(t.Context(), alice(), wide(), "s__t")[0].Notes, "\n")
	for _, place := range strings.Fields(unchecked) {
		if !strings.Contains(notes, place) {
			t.Errorf("the explanation does not name %s: %s", place, notes)
		}
	}
	for arguments, valid := range map[string]bool{good: true, bad: false} {
		if arguments == "" {
			continue
		}
		v := judgeOne(t, g, call("1", "s__t", arguments))
		if refused := strings.HasPrefix(v.Message, "invalid_arguments"); refused == valid {
			t.Errorf("%s: %s", arguments, v.Message)
		}
	}
}
