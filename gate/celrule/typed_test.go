package celrule_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
)

// typed are tools whose arguments have types.
func typed() celrule.Options {
	schemas := map[string]string{
		"t": `{"type":"object","properties":{"s":{"type":"string"},"n":{"type":"integer"},"d":{"type":"number"},"b":{"type":"boolean"},
			"l":{"type":"array","items":{"type":"string"}},"o":{"type":"object"},"sn":{"type":["string","null"]},"nul":{"type":"string","nullable":true},
			"two":{"type":["string","integer"]},"any":{},"yes":true,"ref":{"$ref":"#/x","type":"string"},"of":{"type":"string","anyOf":[{}]},"a-b":{"type":"string"}},
			"required":["s","n","d","b","l","o"],"additionalProperties":false}`,
		"same":     `{"type":"object","properties":{"s":{"type":"string"},"n":{"type":"number"}},"required":["s","n"],"additionalProperties":false}`,
		"other":    `{"type":"object","properties":{"s":{"type":"integer"}},"required":["s"],"additionalProperties":false}`,
		"closed":   `{"type":"object","properties":{"x":{"type":"string"}},"additionalProperties":false}`,
		"open":     `{"type":"object","properties":{"x":{"type":"string"}}}`,
		"gh__get":  `{"type":"object","properties":{"s":{"type":"string"}},"required":["s"]}`,
		"gh__list": `{"type":"object","properties":{"s":{"type":"string"}},"required":["s"]}`,
	}
	return celrule.Options{
		Tools:   []string{"t", "same", "other", "closed", "open", "gh__get", "gh__list", "mystery"},
		Schemas: func(tool string) json.RawMessage { return json.RawMessage(schemas[tool]) },
	}
}

// TestRules_Mistyped has conditions that compare an argument with what it never is.
func TestRules_Mistyped(t *testing.T) {
	tests := []struct{ when, want string }{
		{`args.s == 5`, `column 8: t: the argument "s" is a string, and is compared with a value of type int; if it can be anything else, write dyn(args.s)`},
		{`args["a-b"] == 5`, `column 13: t: the argument "a-b" is a string, and is compared with a value of type int; if it can be anything else, write dyn(args["a-b"])`},
		{`5 == args.s`, `column 3: t: the argument "s" is a string`},
		{`args.s != 5`, `column 8: t: the argument "s" is a string`},
		{`args.s == true`, `column 8: t: the argument "s" is a string`},
		{`args.s > 5`, `column 8: t: the argument "s" is a string, and is compared with a value of type int`},
		{`args["s"] == 5`, `column 11: t: the argument "s" is a string`},
		{`args.?s.orValue("") == 5`, `column 21: t: the argument "s" is a string`},
		{`args[?"s"].orValue("") == 5`, `column 24: t: the argument "s" is a string`},
		{`has(args.s) && args.s == 5`, `column 23: t: the argument "s" is a string`},
		{`"s" in args && args.s == 5`, `column 23: t: the argument "s" is a string`},
		{`args.s in [1, 2]`, `column 8: t: the argument "s" is a string`},
		{`[1, 2].exists(x, x == args.s)`, `column 20: t: the argument "s" is a string`},
		{"tool == \"t\" &&\n  args.s == 5", `line 2, column 10: t: the argument "s" is a string`},
		{`args.n == "1"`, `column 8: t: the argument "n" is a number, and is compared with a value of type string`},
		{`args.d == "1.5"`, `column 8: t: the argument "d" is a number`},
		{`args.b == "true"`, `column 8: t: the argument "b" is a boolean`},
		{`args.b > 1`, `column 8: t: the argument "b" is a boolean`},
		{`args.l == "x"`, `column 8: t: the argument "l" is an array`},
		{`args.o == 5`, `column 8: t: the argument "o" is an object`},
		{`args.sn == 5`, `column 9: t: the argument "sn" is a string`},
		{`args.nul == 5`, `column 10: t: the argument "nul" is a string`},
		{`-args.s == 1`, `column 1: t: the argument "s" is a string`},
		{`args.s.nosuch == 1`, `column 7: t: the argument "s" is a string, which`},
		{`args.s[0] == "a"`, `column 7: t: the argument "s" is a string, which`},
		{`args.s.exists(c, c == "a")`, `column 14: t: the argument "s" is a string, which`},
		{`args.n.startsWith("1")`, `column 18: t: the argument "n" is a number`},
		{`size(args.n) > 1`, `column 5: t: the argument "n" is a number`},
		{`args.s`, `column 5: t: the argument "s" is a string, and the condition must be true or false`},
		{`args.s && args.n == 1`, `column 8: t: the argument "s" is a string, which '&&' is not for`},
		{`args.s == args.n`, `column 8: t: the argument "s" is a string, and is compared with the argument "n", a number`},
		{`args.l.a == 1`, `column 7: t: the argument "l" is an array`},
		{`args.s + 1 == 2`, `column 8: t: the argument "s" is a string, which '+' is not for`},
		{`tool.startsWith(args.n)`, `column 16: t: the argument "n" is a number, which 'startsWith' is not for`},
		{`args.l.startsWith("a")`, `column 18: t: the argument "l" is an array`},
	}
	for _, tt := range tests {
		t.Run(tt.when, func(t *testing.T) {
			list := problems(t, typed(), celrule.Rule{Name: "r", Tools: []string{"t"}, When: tt.when, Then: gate.RuleDeny})
			if got, want := list.Error(), "rules[0].when: "+tt.want; len(list) != 1 || !strings.HasPrefix(got, want) {
				t.Errorf("%s\nwant %s", got, want)
			}
		})
	}
}

// TestRules_RightlyTyped has conditions that can be true, or whose types are not known.
func TestRules_RightlyTyped(t *testing.T) {
	one := []string{"t"}
	tests := []struct {
		tools []string
		when  string
	}{
		{one, `args.n == 1.5`}, // numbers mix
		{one, `args.n > 1.5`},
		{one, `args.n == 1u`},
		{one, `args.n in [1.5, 2.5]`},
		{one, `args.n * 1.5 > 2.0`}, // 1e300 is an integer, and a double here
		{one, `args.d == 1`},
		{one, `args.d * 1.5 > 2.0`},
		{one, `args.d + 1 > 2`},
		{one, `args.d < args.n`},
		{one, `args.?s.orValue(1) == args.n || args.s in [args.n, "a"] || dyn(args.s) == args.n`},
		{one, `args.s == null || args.s.startsWith("a")`},
		{one, `args.s in [null]`},
		{one, `args.sn == null || args.sn == "a"`},
		{one, `[args.nul] == [null]`},
		{one, `dyn(args.s) == 5`},
		{one, `type(args.s) == int && args.s == 5`},
		{one, `args.two == 5 || args.any == 5 || args.yes == 5 || args.ref == 5 || args.of == 5`},
		{one, `(has(args.s) ? args.s : 0) == 0`},
		{one, `(has(args.s) ? args.s : null) == null`},
		{one, `args.?s.orValue(null) == null`},
		{one, `args.?s.orValue(0) == 0`},
		{one, `args.?s.optMap(v, v + "x").orValue("") == "ax"`},
		{one, `args.?o.?a.orValue(1) == 1`},
		{one, `args.l[0] == "a" || args.l[0.0] == "a" || args.l[0u] == 1`},
		{one, `args.l.exists(f, f == 5)`},
		{one, `args.l == [] || args.l == [1, "a"] || 1 in args.l || args.l + [1] == [1]`},
		{one, `args.o == {} || args.o == {"a": 1} || args.o.a.b == 1 || args.o["a"] == 1 || "a" in args.o`},
		{one, `args.s in [1, "a"]`},
		{one, `"x" in [args.s] + [1]`},
		{one, `[args.n, 1.5] == [1, 1.5]`},
		{one, `double(args.s) > 1.0 || int(args.s) > 1 || bool(args.s)`},
		{one, `args.b`},
		{one, `args == {"s": 5}`},
		{one, `args.exists(k, args[k] == 5)`},
		{[]string{"t", "other"}, `args.s == 5`},   // they do not agree
		{[]string{"t", "open"}, `args.s == 5`},    // the other may have one of any type
		{[]string{"t", "mystery"}, `args.s == 5`}, // nothing is known
		{[]string{"t", "later"}, `args.s == 5`},
		{[]string{"*"}, `args.s == 5`},
		{[]string{"later*"}, `args.s == 5`},
		{nil, `args.s == 5`},
	}
	for _, tt := range tests {
		r := celrule.Rule{Name: "r", Tools: tt.tools, When: tt.when, Then: gate.RuleDeny}
		if _, err := celrule.New([]celrule.Rule{r}, typed()); err != nil {
			t.Errorf("%v %s: %v", tt.tools, tt.when, err)
		}
	}
}

// TestRules_TypesOfMany has what tools say together of an argument.
func TestRules_TypesOfMany(t *testing.T) {
	for _, tt := range []struct {
		tools      []string
		when, want string
	}{
		{[]string{"t", "same"}, `args.s == 5`, `column 8: same, t: the argument "s" is a string`},
		{[]string{"t", "same"}, `args.n == "5"`, `column 8: same, t: the argument "n" is a number`},
		{[]string{"t", "closed"}, `has(args.s) && args.s == 5`, `column 23: t: the argument "s" is a string`},
		{[]string{"s?m?"}, `args.s == 5`, `column 8: same: the argument "s" is a string`},
		{[]string{"gh__get"}, `args.s == 5`, `column 8: gh__get: the argument "s" is a string`},
	} {
		r := celrule.Rule{Name: "r", Tools: tt.tools, When: tt.when, Then: gate.RuleDeny}
		if got := problems(t, typed(), r).Error(); !strings.HasPrefix(got, "rules[0].when: "+tt.want) {
			t.Errorf("%v %s: %s", tt.tools, tt.when, got)
		}
	}
	// Other tools of a server may come that the glob means: they may have another type.
	set, err := celrule.New([]celrule.Rule{{Name: "r", Tools: []string{"gh__*"}, When: `args.s == 5`, Then: gate.RuleDeny}}, typed())
	if err != nil {
		t.Fatal(err)
	}
	if got := set.Warnings().Error(); !strings.HasPrefix(got, `rules[0].when: column 8: gh__get, gh__list: the argument "s" is a string`) {
		t.Error(got)
	}
}

// TestRules_ManyTypes checks a condition that names more arguments than are
// checked, and one of many places.
func TestRules_ManyTypes(t *testing.T) {
	var schema, parts []string
	for i := range 60 {
		schema = append(schema, fmt.Sprintf(`"x%d":{"type":"string"}`, i))
		parts = append(parts, fmt.Sprintf(`args.x%d == 5`, i))
	}
	list := problems(t, celrule.Options{Schemas: func(string) json.RawMessage {
		return json.RawMessage(`{"properties":{` + strings.Join(schema, ",") + `}}`)
	}}, celrule.Rule{Name: "r", Tools: []string{"t"}, When: strings.Join(parts, " && "), Then: gate.RuleDeny})
	if len(list) < 10 || len(list) > 60 {
		t.Errorf("%d problems", len(list))
	}
}

// TestProperty_RulesTypes makes conditions of two values, and evaluates those that
// are refused for their types with arguments of these types: none of them ever
// holds, but the ones that say that two things are different.
func TestProperty_RulesTypes(t *testing.T) {
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			condition := drawComparison(t)
			r := celrule.Rule{Name: "r", Tools: []string{"t"}, When: condition, Then: gate.RuleDeny}
			set, err := celrule.New([]celrule.Rule{r}, celrule.Options{})
			if err != nil {
				continue // wrong even without types
			}
			if _, err = celrule.New([]celrule.Rule{r}, typed()); err == nil {
				continue
			}
			refused++
			for range 5 {
				in := call(drawArguments(t))
				in.Tool = "t"
				for _, m := range set.Judge(t.Context(), in) {
					if m.Err == nil {
						t.Fatalf("%s holds with %s, and was refused: %v", condition, in.Arguments, err)
					}
				}
			}
		}
	})
	if refused == 0 {
		t.Error("none was refused")
	}
}

func drawComparison(t *rapid.T) string {
	draw := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
	argument := draw("argument", "args.s", "args.n", "args.d", "args.b", "args.l", "args.o", `args["s"]`, "args.sn", "args.?n.orValue(0)", "args.?s.orValue(null)")
	value := func(label string) string {
		return draw(label, "0", "1", "1u", "1.5", "1.0", `"a"`, `""`, "true", "false", "null", "[]", "[1]", `["a"]`, `[1, "a"]`, "{}", `{"a": 1}`, "{1: 1}", "args.s", "args.n", "args.l", "dyn(1)", "user", "depth")
	}
	inner := draw("inner", "%s", "%s", "%s", "%s", "%s", "%s", "%s", "%s", "%s.a", "%s[0]", "%s[1u]", `%s["a"]`, "size(%s)", "[%s]", "[%s, 1]", `{"a": %s}`, "-%s", "string(%s)", "double(%s)", "%s + 1", `%s + "a"`, "%s * 1.5", "%s + %s", "[%[1]s][0]", "(true ? %[1]s : 1)")
	left := strings.ReplaceAll(strings.ReplaceAll(inner, "%[1]s", argument), "%s", argument)
	switch draw("shape", "compare", "compare", "in", "has", "exists") {
	case "in":
		return left + " in " + draw("list", "[1]", `["a"]`, "[null]", "[1.0, 2]", "[true]", "[[1]]", "args.l", "args.o", value("list"))
	case "has":
		return "has(" + argument + ".a) || has(" + argument + ".b)"
	case "exists":
		return argument + ".exists(x, x " + draw("op", "==", "<", ">=") + " " + value("right") + ")"
	}
	return left + " " + draw("op", "==", "<", "<=", ">", ">=") + " " + value("right")
}

func drawArguments(t *rapid.T) string {
	mixed := []any{0, 1, 1.5, "a", "", true, nil, []any{}, map[string]any{"a": 1}}
	args := map[string]any{}
	for name, values := range map[string][]any{
		"s": {"", "a", "1"}, "sn": {nil, "a"}, "n": {0, 1, 2, json.Number("1e300"), json.Number("18446744073709551615")}, "d": {0, 1, 1.5},
		"b": {true, false}, "l": {[]any{}, []any{1}, []any{"a"}, mixed}, "o": {map[string]any{}, map[string]any{"a": 1}, map[string]any{"a": "a", "b": nil}},
	} {
		args[name] = rapid.SampledFrom(values).Draw(t, name)
	}
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
