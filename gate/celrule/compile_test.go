package celrule_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
)

// TestRules_ProblemsOfConditions checks the messages for invalid conditions.
func TestRules_ProblemsOfConditions(t *testing.T) {
	tests := []struct{ when, want string }{
		{`args.`, `column 5: syntax error at '.'`},
		{`args.x ==`, `column 9: syntax error: the condition ends too early`},
		{`// nothing`, `column 10: syntax error: the condition ends too early`},
		{`tool.matches(user`, `column 17: syntax error: the condition ends too early`},
		{`args.x = 1`, `column 8: syntax error: compare with ==, not =`},
		{`true true`, `column 6: syntax error: extraneous input 'true' after the end of the condition`},
		{`args.x == 'a`, `column 11: syntax error at ''a'`},
		{"`x`", "column 1: syntax error: mismatched input '`x`'"},
		{"args.x\x00", `column 7: syntax error at ' '`},
		{"a\xffb", `is not valid UTF-8`},
		{`usr == "x"`, `column 1: undeclared reference to 'usr' (did you mean 'user'?)`},
		{`effct == "read_only"`, `column 1: undeclared reference to 'effct' (did you mean 'effect'?)`},
		{`foo(1)`, `column 4: undeclared reference to 'foo'`},
		{`tool.startswith("x")`, `column 16: undeclared reference to 'startswith' (did you mean 'startsWith'?)`},
		{`tool == "x" && usr == "y"`, `column 16: undeclared reference to 'usr' (did you mean 'user'?)`},
		{"tool == \"x\" &&\n  usr == \"y\"", `line 2, column 3: undeclared reference to 'usr' (did you mean 'user'?)`},
		{`timestamp(args.t).getHours("Europe/Vienna") > 1`, `column 27: undeclared reference to 'getHours'`},
		{`"x".format([1]) == "x"`, `column 11: undeclared reference to 'format'`},
		{`"x"`, `column 1: must be true or false, and is a value of type string`},
		{`args`, `column 1: must be true or false, and is a value of type map(string, dyn)`},
		{`optional.of(true)`, `column 1: must be true or false, and is a value of type optional_type(bool)`},
		{`tool == 1`, `column 6: found no matching overload for '==' applied to '(string, int)'`},
		{`!tool`, `column 1: found no matching overload for '!' applied to '(string)'`},
		{`args.x in "abc"`, `column 8: found no matching overload for 'in' applied to '(dyn, string)'`},
		{`targets.exists(t, t.nmae == "x")`, `column 20: undefined field 'nmae'`},
		{`targets.exists(t, t.write == "x")`, `column 27: found no matching overload for '==' applied to '(bool, string)'`},
		{`has(tool)`, `column 5: has() takes a field of something, such as has(args.path)`},
		{`effect == "readonly"`, `column 11: effect is never "readonly", but one of read_only, idempotent_write, non_idempotent_write; did you mean "read_only"?`},
		{`"Read_Only" != effect`, `column 1: effect is never "Read_Only", but one of read_only, idempotent_write, non_idempotent_write; did you mean "read_only"?`},
		{`trust in ["members", "anchor"]`, `column 11: trust is never "members", but one of unknown, member, trusted, anchor; did you mean "member"?`},
		{`args.list.exists(args, args == 1)`, `column 17: args is a variable of every condition; give the one of the loop another name`},
		{`args.s.matches("(")`, "column 16: invalid regular expression: error parsing regexp: missing closing ): `(`"},
		{`args.s.matches("(a{100}){30}")`, `column 16: invalid regular expression: error parsing regexp: invalid repeat count: ` + "`{30}`"},
		{`args.s.matches(args.p)`, `column 20: a regular expression must be a text that is written in the condition`},
		{`9223372036854775808 > 1`, `column 1: invalid int literal`},
		{`duration("1x") > duration("1h")`, `column 10: this is not a duration such as 90m or 1.5h`},
		{`timestamp("soon") > timestamp(args.t)`, `column 11: this is not a time such as 2026-01-31T15:04:05Z`},
		{`int("x") == 1`, `column 1: type conversion error from 'string' to 'int'`},
		{`[1].all(a, [1].all(b, [1].all(c, [1].all(d, true))))`, `column 41: loops may be nested at most 3 deep`},
	}
	for _, tt := range tests {
		t.Run(tt.when, func(t *testing.T) {
			list := problems(t, celrule.Options{}, when(tt.when))
			got, want := list.Error(), "rules[0].when: "+tt.want
			if len(list) != 1 || got != want && !(strings.HasSuffix(want, " ") && strings.HasPrefix(got, want)) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestRules_Problems checks the messages for the other fields of a rule.
func TestRules_Problems(t *testing.T) {
	deny := gate.RuleDeny
	tests := []struct {
		name  string
		rules []celrule.Rule
		want  string
	}{
		{"all at once", []celrule.Rule{
			{Then: "refuse", Position: "toolcrib.yaml:30"},
			{Name: "a", Then: deny, When: "usr == tol", Position: "toolcrib.yaml:33"},
			{Name: "a", Tools: []string{"x y", "read_*", ""}, Then: deny, Position: "toolcrib.yaml:37"},
		}, `toolcrib.yaml:30: rules[0].name: is required
toolcrib.yaml:30: rules[0].then: must be one of allow, ask, deny, not "refuse"
toolcrib.yaml:33: rules[1].when: column 1 of the condition: undeclared reference to 'usr' (did you mean 'user'?)
toolcrib.yaml:33: rules[1].when: column 8 of the condition: undeclared reference to 'tol' (did you mean 'tool'?)
toolcrib.yaml:37: rules[2].name: "a" is the name of rules[1] already
toolcrib.yaml:37: rules[2].tools[0]: "x y" is neither a tool's name nor a glob over names; * and ? are the wildcards
toolcrib.yaml:37: rules[2].tools[2]: "" is neither a tool's name nor a glob over names; * and ? are the wildcards`},
		{"a block of lines", []celrule.Rule{{
			Name: "a", Then: deny, When: "tool == \"x\" &&\nusr == \"y\"", Position: "c.yaml:3",
		}}, `c.yaml:3: rules[0].when: line 2, column 1 of the condition: undeclared reference to 'usr' (did you mean 'user'?)`},
		{"a folder with a colon", []celrule.Rule{{
			Name: "a", Then: deny, When: "true &&\nusr == \"y\"", Position: "dir:x/c.yaml:3",
		}}, `dir:x/c.yaml:3: rules[0].when: line 2, column 1 of the condition: undeclared reference to 'usr' (did you mean 'user'?)`},
		{"in the first line of a condition", []celrule.Rule{{
			Name: "a", Then: deny, When: "usr == \"y\"", Position: "c.yaml:3",
		}}, `c.yaml:3: rules[0].when: column 1 of the condition: undeclared reference to 'usr' (did you mean 'user'?)`},
		{"it ends too early", []celrule.Rule{{
			Name: "a", Then: deny, When: "tool == user &&\n  tool ==  \n\n", Position: "c.yaml:3",
		}}, `c.yaml:3: rules[0].when: line 2, column 9 of the condition: syntax error: the condition ends too early`},
		{"a place without a line", []celrule.Rule{{Then: deny, Position: "flags"}}, `flags: rules[0].name: is required`},
		{"no effect", []celrule.Rule{{Name: "a"}}, `rules[0].then: must be one of allow, ask, deny, not ""`},
		{"a long message", []celrule.Rule{{Name: "a", Then: deny, Message: strings.Repeat("x", 5000)}}, `rules[0].message: must be at most 4096 bytes long`},
		{"a long name", []celrule.Rule{{Name: strings.Repeat("x", 200), Then: deny}}, `rules[0].name: must be at most 128 bytes long`},
		{"a name of two lines", []celrule.Rule{{Name: "a\nb", Then: deny}}, `rules[0].name: must have printable characters only`},
		{"many tools", []celrule.Rule{{Name: "a", Then: deny, Tools: slices.Repeat([]string{"x"}, 1001)}}, `rules[0].tools: must have at most 1000 entries`},
		{"many rules", slices.Repeat([]celrule.Rule{{Name: "a", Then: deny}}, 1001), `rules[1000].name: there are more than 1000 rules`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := problems(t, celrule.Options{}, tt.rules...).Error(); got != tt.want {
				t.Errorf("have\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
	list := problems(t, celrule.Options{}, celrule.Rule{Name: "a", Then: deny, When: "usr", Position: "c.yaml:3"})
	if p := list[0]; p.Rule != "a" || p.Index != 0 || p.Position != "c.yaml:3" || p.Line != 1 || p.Column != 1 || p.Key() != "rules[0].when" ||
		p.Text() != "column 1 of the condition: undeclared reference to 'usr' (did you mean 'user'?)" {
		t.Errorf("%+v", p)
	}
}

// known are two tools with closed schemas, one with an open one, and one of which
// nothing is known.
func known() celrule.Options {
	schemas := map[string]string{
		"exec_shell": `{"type":"object","properties":{"command":{"type":"string"},"cwd":{"type":"string"}},"required":["command"],"additionalProperties":false}`,
		"write_file": `{"type":"object","properties":{"path":{},"content":{}},"required":["path","content"],"additionalProperties":false}`,
		"gh__get":    `{"type":"object","properties":{"url":{}}}`,
		"any":        `{"type":"object"}`,
		"cases":      `{"oneOf":[{"properties":{"a":{}}}]}`,
		"broken":     `{"properties":[]}`,
	}
	return celrule.Options{
		Tools:   []string{"any", "broken", "cases", "exec_shell", "gh__get", "mystery", "write_file"},
		Schemas: func(tool string) json.RawMessage { return json.RawMessage(schemas[tool]) },
	}
}

// TestRules_Arguments compares the arguments that conditions name with those that
// tools have.
func TestRules_Arguments(t *testing.T) {
	optional := "; calls without it will be refused, because the rule cannot be evaluated; write has(args.%[1]s) && … or args.?%[1]s.orValue(…)"
	tests := []struct {
		name  string
		tools []string
		when  string
		want  string // of problems after "!", else of warnings
	}{
		{"it is there", []string{"exec_shell"}, `args.command == "x"`, ""},
		{"a slip", []string{"exec_shell"}, `args.comand == "x"`, `!column 5: exec_shell: there is no argument "comand"; did you mean "command"?`},
		{"by index", []string{"exec_shell"}, `args["comand"] == "x"`, `!column 5: exec_shell: there is no argument "comand"; did you mean "command"?`},
		{"a test of what never is", []string{"exec_shell"}, `has(args.comand)`, `!column 4: exec_shell: there is no argument "comand"; did you mean "command"?`},
		{"optional of what never is", []string{"exec_shell"}, `args.?comand.orValue("") == ""`, `!column 5: exec_shell: there is no argument "comand"; did you mean "command"?`},
		{"in what never is", []string{"exec_shell"}, `"comand" in args`, `!column 10: exec_shell: there is no argument "comand"; did you mean "command"?`},
		{"neither has it", []string{"exec_shell", "write_file"}, `args.url == ""`, `!column 5: exec_shell, write_file: there is no argument "url"`},
		{"one has it", []string{"exec_shell", "write_file"}, `args.path == ""`, fmt.Sprintf(`column 5: exec_shell: no argument "path" is described`+optional, "path")},
		{"one has it, tested", []string{"exec_shell", "write_file"}, `has(args.path) && args.path == ""`, ""},
		{"one has it, asked for the tool", []string{"exec_shell", "write_file"}, `tool == "write_file" && args.path == ""`, ""},
		{"it is optional", []string{"exec_shell"}, `args.cwd == ""`, fmt.Sprintf(`column 5: exec_shell: the argument "cwd" is optional`+optional, "cwd")},
		{"it is optional, tested", []string{"exec_shell"}, `args.?cwd.orValue(".") == "."`, ""},
		{"an open schema", []string{"gh__get"}, `args.uri == ""`, `column 5: gh__get: no argument "uri" is described; did you mean "url"?`},
		{"a glob", []string{"exec_*"}, `args.comand == ""`, `column 5: exec_shell: no argument "comand" is described; did you mean "command"?`},
		{"every tool", nil, `args.command == ""`, fmt.Sprintf(`column 5: gh__get, write_file: no argument "command" is described`+optional, "command")},
		{"a name that is none", []string{"exec_shell", "write_file"}, `args["a-b"] == ""`, `!column 5: exec_shell, write_file: there is no argument "a-b"`},
		{"any object", []string{"any"}, `args.x == ""`, ""},
		{"a schema of cases", []string{"cases"}, `args.x == ""`, ""},
		{"a broken schema", []string{"broken"}, `args.x == ""`, ""},
		{"unknown arguments", []string{"mystery"}, `args.x == ""`, ""},
		{"no such tool", []string{"exec_shel", "gh__*"}, ``, `tools[0]: there is no tool exec_shel now; did you mean "exec_shell"?`},
		{"no such tools", []string{"mcp_*"}, ``, `tools[0]: there is no tool mcp_* now`},
		{"a loop's own variable", []string{"exec_shell"}, `[{"x": 1}].exists(a, a.x == 1)`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := celrule.Rule{Name: "r", Tools: tt.tools, When: tt.when, Then: gate.RuleDeny}
			if want, ok := strings.CutPrefix(tt.want, "!"); ok {
				if got := problems(t, known(), r).Error(); got != "rules[0].when: "+want {
					t.Errorf("%q, want %q", got, want)
				}
				return
			}
			set, err := celrule.New([]celrule.Rule{r}, known())
			if err != nil {
				t.Fatal(err)
			}
			want := tt.want
			if want != "" && !strings.HasPrefix(want, "tools") {
				want = "when: " + want
			}
			if want != "" {
				want = "rules[0]." + want
			}
			if got := set.Warnings().Error(); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if compile(t, r).Warnings() != nil {
				t.Error("warnings with nothing known")
			}
		})
	}
}

// TestRules_Tools has which rules are about a call, in their order.
func TestRules_Tools(t *testing.T) {
	set := compile(t,
		celrule.Rule{Name: "every", Then: gate.RuleAsk, Message: "why", Position: "c.yaml:2", When: "true"},
		celrule.Rule{Name: "none", Tools: []string{}, Then: gate.RuleDeny},
		celrule.Rule{Name: "shell", Tools: []string{"exec_shell"}, Then: gate.RuleDeny},
		celrule.Rule{Name: "glob", Tools: []string{"x", "*_?hell", "exec_*"}, Then: gate.RuleAllow},
		celrule.Rule{Name: "case", Tools: []string{"Exec_Shell"}, Then: gate.RuleDeny},
		celrule.Rule{Name: "broken elsewhere", Tools: []string{"read_file"}, When: "args.x", Then: gate.RuleDeny},
	)
	for tool, want := range map[string]string{
		"exec_shell": "every shell glob", "exec_": "every glob", "read_file": "every broken elsewhere", "": "every", "x": "every glob",
	} {
		for range 2 { // found, then remembered
			var about, judged []string
			for _, i := range set.About(tool) {
				about = append(about, i.Name)
			}
			in := call(`{}`)
			in.Tool = tool
			for _, m := range set.Judge(t.Context(), in) {
				judged = append(judged, m.Name)
				if (m.Err != nil) != (m.Name == "broken elsewhere") {
					t.Errorf("%s: %v", m.Name, m.Err)
				}
			}
			if got := strings.Join(about, " "); got != want || strings.Join(judged, " ") != want {
				t.Errorf("%s: %s, judged %v, want %s", tool, got, judged, want)
			}
		}
	}
	if got := fmt.Sprint(set.About("none")); got != "[{every true ask why c.yaml:2}]" {
		t.Error(got)
	}
	m := set.Judge(t.Context(), call(`{}`))[0]
	if m.Name != "every" || m.Then != gate.RuleAsk || m.Message != "why" || m.Position != "c.yaml:2" || m.Err != nil {
		t.Errorf("%+v", m)
	}
}

// TestRules_ManyTools remembers the rules of so many tools and no more, and is
// also right about the others.
func TestRules_ManyTools(t *testing.T) {
	set := compile(t, celrule.Rule{Name: "even", Tools: []string{"*0", "*2", "*4", "*6", "*8"}, Then: gate.RuleDeny})
	for range 2 {
		for i := range 5000 {
			in := call(`{}`)
			in.Tool = fmt.Sprint("tool_", i)
			if got := len(set.Judge(t.Context(), in)); got != 1-i%2 {
				t.Fatalf("%s: %d rules", in.Tool, got)
			}
		}
	}
}
