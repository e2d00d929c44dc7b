package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/config"
)

// ruleErrors loads a file and returns the errors of its rules.
func ruleErrors(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Source{Path: file, Origin: config.OriginFlag}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = compileRules(c, ruledTools{})
	var all config.Errors
	if !errors.As(err, &all) {
		t.Fatalf("no errors of rules: %v", err)
	}
	return strings.ReplaceAll(all.Error(), file, "c.yaml")
}

// TestRules_PlacesInYAML has conditions in all forms of text in YAML. The error is at usr; the sign ‹ before it is
// removed from the file.
func TestRules_PlacesInYAML(t *testing.T) {
	tests := []struct{ name, file string }{
		{"plain", "rules:\n  - name: a\n    then: deny\n    when: tool == ‹usr\n"},
		{"plain in a flow", "rules: [{name: a, message: é𝄞, then: deny, when: tool == ‹usr }]\n"},
		{"plain with a comment", "rules:\n  - name: a\n    then: deny\n    when: tool == ‹usr # == usr\n"},
		{"plain over lines", "rules:\n  - name: a\n    when: tool == user &&\n      tool == ‹usr\n    then: deny\n"},
		{"plain on the next line", "rules:\n  - name: a\n    when:\n      tool == ‹usr\n    then: deny\n"},
		{"single quotes", "rules:\n  - name: a\n    then: deny\n    when: 'tool == ‹usr'\n"},
		{"doubled quotes", "rules:\n  - name: a\n    then: deny\n    when: 'tool == ''it'' && tool == ''s'' || tool == ‹usr'\n"},
		{"doubled quotes in a flow", "rules: [{name: x, when: 'tool == ''x''', then: ask}, {name: y, when: 'tool == ''x'' && tool == ‹usr', then: ask}]\n"},
		{"single quotes over lines", "rules:\n  - name: a\n    when: 'tool == ''x'' &&\n\n      tool == ‹usr'\n    then: deny\n"},
		{"double quotes", "rules:\n  - name: a\n    then: deny\n    when: \"tool == ‹usr\"\n"},
		{"escapes", `rules: [{"name": "a", "then": "deny", "when": "tool == \"\\\\d\u00e9\x41\" && \ttool == ‹usr"}]` + "\n"},
		{"a key in quotes without a space", `{"rules":[{"name":"a","then":"deny","when":"tool == \"x\" && tool == ‹usr"}]}` + "\n"},
		{"an escaped line", "rules:\n  - name: a\n    when: \"tool == \\\"\\n\\\" &&\\n tool\"\n    then: deny\n  - name: b\n    when: \"tool == \\\"x\\\" &&\\n ‹usr == user\"\n    then: ask\n"},
		{"escaped line breaks", "rules:\n  - name: a\n    when: \"tool == \\\"x\\\" \\\n      && tool == ‹usr\"\n    then: deny\n"},
		{"double quotes over lines", "rules:\n  - name: a\n    when: \"tool == \\\"x\\\" &&\n      tool == ‹usr\"\n    then: deny\n"},
		{"a block", "rules:\n  - name: a\n    when: |\n      tool == user &&\n        tool == ‹usr\n    then: deny\n"},
		{"a block with an indentation", "rules:\n  - name: a\n    when: |2-\n        tool == user &&\n      tool == ‹usr\n    then: deny\n"},
		{"a folded block", "rules:\n  - name: a\n    when: >\n      tool == user &&\n      tool == ‹usr\n    then: deny\n"},
		{"a folded block, stripped", "rules:\n  - name: a\n    when: >- # why\n\n      tool == user &&\n\n        tool == user &&\n      tool == ‹usr\n\n    then: deny\n"},
		{"a folded block at the end", "rules:\n  - name: a\n    then: deny\n    when: >+\n      tool == user &&\n      tool == ‹usr"},
		{"lines of Windows", "rules:\r\n  - name: a\r\n    when: >\r\n      tool == user &&\r\n      tool == ‹usr\r\n    then: deny\r\n"},
		{"letters of more bytes", "rules:\n  - name: a\n    when: 'tool == ''é𝄞'' && ‹usr == user'\n    then: deny\n"},
		{"a text that is the same elsewhere", "rules:\n  - name: a\n    message: 'tool == ''x'' && tool == usr'\n    when: 'tool == ''x'' && tool == ‹usr'\n    then: deny\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, _, ok := strings.Cut(tt.file, "‹")
			if !ok {
				t.Fatal("no sign")
			}
			line := 1 + strings.Count(before, "\n")
			column := 1 + len([]rune(before[strings.LastIndex(before, "\n")+1:]))
			want := fmt.Sprintf(".when: column %d: undeclared reference to 'usr'", column)
			got := ruleErrors(t, strings.ReplaceAll(tt.file, "‹", ""))
			last := got[strings.LastIndex(got, "\n")+1:]
			if !strings.HasPrefix(last, fmt.Sprintf("c.yaml:%d: rules[", line)) || !strings.Contains(last, want) {
				t.Errorf("have %s\nwant line %d%s", got, line, want)
			}
		})
	}
}

// TestRules_EndsInYAML has conditions that end too early. The position is that of the last significant character.
func TestRules_EndsInYAML(t *testing.T) {
	for name, file := range map[string]string{
		"plain":         "rules:\n  - name: a\n    then: deny\n    when: tool =‹=\n",
		"single quotes": "rules:\n  - name: a\n    then: deny\n    when: 'tool == ''x'' &‹&  '\n",
		"double quotes": "rules:\n  - name: a\n    then: deny\n    when: \"tool == \\\"x\\\" &‹&\\n\"\n",
		"a block":       "rules:\n  - name: a\n    when: |\n      true &&\n        tool =‹=\n\n    then: deny\n",
		"a folded one":  "rules:\n  - name: a\n    when: >\n      true &&\n      tool =‹=\n\n    then: deny\n",
	} {
		before, _, _ := strings.Cut(file, "‹")
		want := fmt.Sprintf("c.yaml:%d: rules[0].when: column %d: syntax error: the condition ends too early",
			1+strings.Count(before, "\n"), 1+len(before)-(strings.LastIndex(before, "\n")+1))
		if got := ruleErrors(t, strings.ReplaceAll(file, "‹", "")); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestRules_SameConditionTwice has a condition that occurs twice in a line, and a file that has changed since it was
// read: the text that was read applies.
func TestRules_SameConditionTwice(t *testing.T) {
	same := "rules: [{name: x, when: 'usr == ''x''', then: ask}, {name: y, when: 'usr == ''x''', then: ask}]\n"
	want := "c.yaml:1: rules[0].when: column 26: undeclared reference to 'usr' (did you mean 'user'?)\n" +
		"c.yaml:1: rules[1].when: column 70: undeclared reference to 'usr' (did you mean 'user'?)"
	if got := ruleErrors(t, same); got != want {
		t.Error(got)
	}
	file := filepath.Join(t.TempDir(), "c.yaml")
	text := "rules:\n  - name: a\n    then: deny\n    when: >\n      tool == user &&\n      tool == usr\n"
	c, err := config.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, changed := range []string{"", "# another\n" + text} {
		if changed != "" {
			if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err = compileRules(c, ruledTools{})
		want := file + ":6: rules[0].when: column 15: undeclared reference to 'usr' (did you mean 'user'?)"
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
