package ui

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/guard"
)

func TestSchemaForm_Value(t *testing.T) {
	const object = `{"type":"object","required":["name","tags"],"properties":{
		"name":{"type":"string","title":"Name"},"age":{"type":"integer"},"ratio":{"type":["number","null"]},
		"yes":{"type":"boolean"},"kind":{"enum":["a",1,null]},"tags":{"type":"array","items":{"type":"string"}},
		"some":{"type":"array","items":{"enum":["x","y"]}},"at":{"type":"object","required":["city"],
		"properties":{"city":{"type":"string"},"zip":{"type":"string"}}},"any":{}}}`
	tests := []struct {
		schema, sent, want, wrong string
	}{
		{`{"type":"string"}`, "f=a%0D%0Ab", `"a\nb"`, ""},
		{`{"type":"string"}`, "f=", "", "schemaform.missing"},
		{`{"type":"string","writeOnly":true}`, "f=1", `"1"`, ""},
		{`{"type":"integer"}`, "f=+7+", `7`, ""},
		{`{"type":"integer"}`, "f=7.5", "", "schemaform.bad_integer"},
		{`{"type":"integer"}`, "f=007", "", "schemaform.bad_integer"},
		{`{"type":"number"}`, "f=1,5", "", "schemaform.bad_number"},
		{`{"type":"number"}`, "f=-1.50e3", `-1.50e3`, ""},
		{`{"type":"boolean"}`, "f=true", `true`, ""},
		{`{"type":"boolean"}`, "f=yes", "", "schemaform.bad_choice"},
		{`{"oneOf":[{"const":"a","title":"A"},{"const":2}]}`, "f=2", `2`, ""},
		{`{"enum":["a","b"]}`, `f="c"`, "", "schemaform.bad_choice"},
		{`{"anyOf":[{"type":"integer"},{"type":"null"}]}`, "f=", `null`, ""},
		{`{"type":"array","items":{"type":"integer"}}`, "f=1%0D%0A%0D%0A2", `[1,2]`, ""},
		{`{"type":"array","items":{"type":"integer"}}`, "f=1%0Ax", "", "schemaform.bad_integer"},
		{`{"type":"array","items":{"enum":["x","y"]}}`, `f="x"&f="y"`, `["x","y"]`, ""},
		{`{"type":"array","items":{"enum":["x","y"]}}`, `f="x"&f="z"`, "", "schemaform.bad_choice"},
		{`{"$ref":"#/$defs/x"}`, `f={"a":1}`, `{"a":1}`, ""},
		{`{"$ref":"#/$defs/x"}`, `f={"a":1,"a":2}`, "", "schemaform.bad_json"},
		{``, `f=null`, `null`, ""},
		{`{"type":"object","properties":"x"}`, `f=[]`, `[]`, ""},
		{object, `f/name=n&f/age=3`, `{"name":"n","age":3,"tags":[]}`, ""},
		{object, `f/age=3`, ``, "schemaform.missing"},
		{
			object, `f/name=n&f/kind=1&f/yes=false&f/some="y"&f/at/zip=1&f/at/city=B`,
			`{"name":"n","yes":false,"kind":1,"tags":[],"some":["y"],"at":{"city":"B","zip":"1"}}`, "",
		},
		{object, `f/name=n&f/at/zip=1`, ``, "schemaform.missing"},
		{`{"type":"object","properties":{"a/b %\n":{"type":"string"}}}`, "f/a%252Fb%2520%2525%250A=x", `{"a/b %\n":"x"}`, ""},
	}
	for _, test := range tests {
		sent, err := url.ParseQuery(test.sent)
		if err != nil {
			t.Fatal(err)
		}
		form := fieldsOf(json.RawMessage(test.schema), "f", nil)
		got, ok := form.valueOf(sent)
		wrong := ""
		for _, one := range form.wrongs() {
			wrong = one.Error
		}
		if ok != (test.wrong == "") || wrong != test.wrong || ok && string(got) != test.want {
			t.Errorf("%s with %s: %s, %s; want %s, %s", test.schema, test.sent, got, wrong, test.want, test.wrong)
		}
	}
}

// sentBy returns what a browser would send of a form.
func sentBy(one *field, to url.Values) url.Values {
	for _, o := range one.Options {
		if o.Chosen {
			to.Add(one.Name, o.Value)
		}
	}
	if one.Kind != fieldGroup && len(one.Options) == 0 {
		to.Set(one.Name, strings.ReplaceAll(one.Value, "\n", "\r\n"))
	}
	for _, child := range one.Fields {
		sentBy(child, to)
	}
	return to
}

// A form that is sent as it was shown changes nothing, whatever the value.
func TestSchemaForm_Unchanged(t *testing.T) {
	const s = `{"type":"object","properties":{"text":{"type":"string"},"line":{"type":"string","maxLength":9},
		"n":{"type":"integer","default":7},"list":{"type":"array","items":{"type":"string"}},
		"some":{"type":"array","items":{"enum":["x","y"]}},"kind":{"enum":["x","y"]},
		"at":{"type":"object","properties":{"a":{"type":"boolean"}}}}}`
	for _, now := range []string{
		`{}`, `{"text":""}`, `{"text":"a\r\nb"}`, `{"text":"\n a\n"}`, `{"text":"\u202e\u200b\u0000"}`, `{"line":"a\nb"}`,
		`{"text":5,"n":"x","list":"x","some":"x","kind":3,"at":3}`, `{"list":[]}`, `{"list":["a","","b"]}`,
		`{"list":["a","b c"],"some":["y"],"kind":"x","at":{"a":false},"n":12}`, `{"list":["a\nb"],"some":["z"]}`,
		`{"more":{"a":[1]},"/":1,"":2}`, `{"at":{}}`, `{"n":1e300,"text":"😀"}`, `[1]`, `"x"`, `{"some":["y","x"]}`,
	} {
		form := fieldsOf(json.RawMessage(s), "f", json.RawMessage(now))
		got, ok := form.valueOf(sentBy(form, url.Values{}))
		want, err := guard.Canonical([]byte(now))
		if err != nil {
			t.Fatal(err)
		}
		if canonical, err := guard.Canonical(got); !ok || err != nil || string(canonical) != string(want) {
			t.Errorf("%s became %s (%v, %v)", want, got, ok, err)
		}
	}
}

func TestSchemaForm_Shown(t *testing.T) {
	const evil = `<img src=x onerror=toolcribCanary(1)>"'`
	evilJSON, err := json.Marshal(evil)
	if err != nil {
		t.Fatal(err)
	}
	s := strings.ReplaceAll(`{"type":"object","title":E,"required":["a"],"properties":{E:{"type":"string","title":E,"description":E,
		"default":E},"a":{"enum":[E,"b"]},"b":{"enum":["1","2","3","4","5",E],"default":E},"s":{"type":"string","writeOnly":true,"default":E},
		"j":{"type":"object","default":{"a":E}},"l":{"type":"array","items":{"enum":[E]}}}}`, "E", string(evilJSON))
	u, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	form := fieldsOf(json.RawMessage(s), "f", nil)
	if form.valueOf(url.Values{}); len(form.wrongs()) != 1 {
		t.Errorf("wrong: %v", form.wrongs())
	}
	text, err := u.templates.execute("en", "approvals", "schema-field", form)
	if err != nil {
		t.Fatal(err)
	}
	more, err := u.templates.execute("de", "approvals", "schema-errors", form.wrongs())
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<img", "\"'\"", "<no value>"} {
		if strings.Contains(string(text)+string(more), bad) {
			t.Errorf("%q is in the form:\n%s%s", bad, text, more)
		}
	}
	for _, good := range []string{`type="radio"`, `type="password"`, `<select`, `<textarea`, `This is required`} {
		if !strings.Contains(string(text), good) {
			t.Errorf("%s is missing in the form:\n%s", good, text)
		}
	}
}

func TestSchemaForm_Bounds(t *testing.T) {
	many := `{"type":"object","properties":{`
	for i := range 500 {
		many += strings.Repeat(",", min(i, 1)) + `"p` + strings.Repeat("x", i) + `":{"type":"string"}`
	}
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 50) + `{}` + strings.Repeat(`}}`, 50)
	if form := fieldsOf(json.RawMessage(many+"}}"), "f", nil); form.Kind != fieldJSON {
		t.Error("500 fields are not bounded")
	}
	depth := 0
	for at := fieldsOf(json.RawMessage(deep), "f", nil); len(at.Fields) > 0; at = at.Fields[0] {
		depth++
	}
	if depth != maxNested {
		t.Errorf("%d levels", depth)
	}
}
