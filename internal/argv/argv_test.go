package argv_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib/internal/argv"
)

const someParameters = `{"type":"object","properties":{"a":{"type":"string"},"b":{"type":["string","null"]},
	"n":{"type":"number"},"l":{"type":"array","items":{"type":"string"}}}}`

func parse(t testing.TB, words ...string) argv.Template {
	t.Helper()
	template, problems := argv.Parse(words, json.RawMessage(someParameters), true)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return template
}

func TestWords(t *testing.T) {
	template := parse(t, "prog", "-x", "{args.a}", "", "{args.l}", "{a}", "{args.n}", "end")
	for _, c := range []struct{ arguments, want, err string }{
		{`{"a":"two words; $(id) *","l":["p q","r"],"n":1e3}`, "prog|-x|two words; $(id) *||p q|r|{a}|1e3|end", ""},
		{`{}`, "prog|-x||{a}|end", ""},
		{``, "prog|-x||{a}|end", ""},
		{`{"a":null,"l":[]}`, "prog|-x||{a}|end", ""},
		{`{"a":""}`, "prog|-x|||{a}|end", ""},
		{`{"a":true}`, "prog|-x|true||{a}|end", ""},
		{`{"a":"-rf"}`, "", "/a: begins with -"},
		{`{"l":["x","--output=y"]}`, "", "/l: begins with -"},
		{`{"n":-5}`, "", "/n: begins with -"},
		{`{"a":{"x":1}}`, "", "/a: must be text"},
		{`{"l":[["x"]]}`, "", "/l: must be text"},
		{`{"l":[null]}`, "", "/l: must be text"},
		{`{"a":"x\u0000y"}`, "", "/a: contains a NUL"},
		{`{"a":"` + strings.Repeat("x", 128<<10) + `"}`, "", "/a: is longer than 131071 bytes"},
		{`{"l":[` + strings.Repeat(`"",`, 10_000) + `""]}`, "", "at most 10000 words"},
		{`[]`, "", "could not be read"},
	} {
		words, err := template.Words(json.RawMessage(c.arguments))
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) || c.err == "" && err != nil {
			t.Errorf("%.60s: %v, want %q", c.arguments, err, c.err)
		}
		if got := strings.Join(words, "|"); got != c.want {
			t.Errorf("%.60s: %q, want %q", c.arguments, got, c.want)
		}
	}
	template.Dashes = true
	if words, err := template.Words(json.RawMessage(`{"a":"-rf","n":-5}`)); err != nil || words[2] != "-rf" || words[5] != "-5" {
		t.Error(words, err)
	}
}

// A value never becomes more than one word, and never an option.
func TestWords_OneWordEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.String(), rapid.StringMatching(`[-+ '"$;|&\n{}args.]{0,8}`))
		given := map[string]any{}
		if rapid.Bool().Draw(t, "has a") {
			given["a"] = value.Draw(t, "a")
		}
		list := rapid.SliceOfN(value, 0, 4).Draw(t, "l")
		given["l"] = list
		raw, err := json.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if a, ok := given["a"].(string); ok {
			want = append(want, a)
		}
		want = append(want, list...)
		template, _ := argv.Parse([]string{"prog", "{args.a}", "-o", "{args.l}"}, json.RawMessage(someParameters), true)
		words, err := template.Words(raw)
		refused := slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(w, "-") || strings.ContainsRune(w, 0) })
		if refused != (err != nil) {
			t.Fatalf("%q: %v", want, err)
		}
		if refused {
			return
		}
		at := 1 + len(want) - len(list)
		if got := slices.Delete(slices.Clone(words[1:]), at-1, at); !slices.Equal(got, want) || words[at] != "-o" {
			t.Fatalf("%q from %q", words, want)
		}
	})
}

func TestParse(t *testing.T) {
	const object = `{"type":"object","properties":{"o":{"type":"object"},"l":{"items":{"type":["object"]}},"t":true,"s":{"type":"string"}}}`
	for _, c := range []struct {
		words      string
		parameters string
		input      bool
		want       string
	}{
		{"p {args.s} {args.t}", object, true, ""},
		{"p x={args.s}", object, true, "1 {args.NAME} must be a whole word"},
		{"p {args.s}{args.t}", object, true, "1 {args.NAME} must be a whole word"},
		{"p {args.}", object, true, "1 {args.NAME} must be a whole word"},
		{"p {args.none}", object, true, "1 there is no parameter none; parameters.properties has l, o, s, t"},
		{"p {args.x}", "", true, "1 there is no parameter x; parameters.properties has none"},
		{"p {args.o}", object, true, "1 the parameter o is an object"},
		{"p {args.l}", object, true, "1 the parameter l is an object"},
		{"{args.s}", object, true, "0 must be the program"},
		{"-p", "", true, "0 must be the program"},
		{"p a\x00b", "", true, "1 must not contain a NUL byte"},
		{"p", `{"type":"object","properties":{"s":{}}}`, false, "-1 the parameter s reaches the program neither"},
		{"p", `{"type":"array"}`, false, "-1 must be the JSON Schema of an object"},
		{"p", `true`, false, "-1 must be the JSON Schema of an object"},
	} {
		_, problems := argv.Parse(strings.Fields(c.words), json.RawMessage(c.parameters), c.input)
		var got []string
		for _, p := range problems {
			got = append(got, fmt.Sprintf("%d %s", p.Word, p.Message))
		}
		if text := strings.Join(got, "\n"); c.want == "" && text != "" || !strings.HasPrefix(text, c.want) {
			t.Errorf("%q: %q, want %q", c.words, text, c.want)
		}
	}
	if _, problems := argv.Parse(nil, nil, false); len(problems) != 1 {
		t.Error(problems)
	}
}
