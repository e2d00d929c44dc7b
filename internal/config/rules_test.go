package config_test

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/internal/config"
)

func TestWithRules(t *testing.T) {
	const rule = "  - {name: no, tools: [exec_shell], then: deny}\n"
	for name, c := range map[string]struct {
		file, text string
		line       int
	}{
		"none":       {"tools: {confirm: writes}\n", "", 2},
		"no newline": {"tools: {confirm: writes}", "", 2},
		"last":       {"tools: {confirm: writes}\nrules:\n" + rule, "rules:\n" + rule, 2},
		"middle":     {"# first\nrules:\n" + rule + "\n# about tools\ntools: {confirm: writes}\n", "rules:\n" + rule, 2},
		"flush":      {"rules:\n- {name: no, then: deny}\n# more\n- {name: yes, then: ask}\ntools: {}\n", "rules:\n- {name: no, then: deny}\n# more\n- {name: yes, then: ask}\n", 1},
		"flow":       {"rules: [\n  {name: no, then: deny}\n]\ntools: {}\n", "rules: [\n  {name: no, then: deny}\n]\n", 1},
		"windows":    {"rules:\r\n  - {name: no, then: deny}\r\ntools: {}\r\n", "rules:\n  - {name: no, then: deny}\n", 1},
		"quoted":     {"\"rules\":\n" + rule, "\"rules\":\n" + rule, 1},
		"block":      {"rules:\n  - name: no\n    when: |\n      true\n\n      || false\n    then: deny\n\ntools: {}\n", "rules:\n  - name: no\n    when: |\n      true\n\n      || false\n    then: deny\n", 1},
		"empty":      {"", "", 1},
	} {
		parsed, err := config.Parse("toolcrib.yaml", []byte(c.file))
		if err != nil {
			t.Fatal(name, err)
		}
		text, line, ok := parsed.RulesText()
		if text != c.text || line != c.line || !ok {
			t.Errorf("%s: %q at %d, %v", name, text, line, ok)
		}
		_, content, err := parsed.WithRules(text)
		if want := c.file; err != nil || strings.TrimSuffix(string(content), "\n") != strings.TrimSuffix(want, "\n") {
			t.Errorf("%s: the same rules make %q (%v)", name, content, err)
		}
		added := config.AddRule(text, "- {name: more, then: ask}")
		changed, _, err := parsed.WithRules(added)
		if name == "flow" {
			if err == nil {
				t.Errorf("%s: a rule is added to %q", name, added)
			}
			continue
		}
		if err != nil || len(changed.Rules) != len(parsed.Rules)+1 || changed.Rules[len(changed.Rules)-1].Name != "more" {
			t.Errorf("%s: %q: %v", name, added, err)
		}
		if changed != nil && changed.Tools.Confirm != parsed.Tools.Confirm {
			t.Errorf("%s: another key has changed", name)
		}
	}
}

func TestWithRules_Refuses(t *testing.T) {
	c, err := config.Parse("toolcrib.yaml", []byte("# one\n# two\ntools: {confirm: writes}\nrules: []\nserver: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"rules:\n  - {name: no, then: nothing}\n": "toolcrib.yaml:5: rules[0].then",
		"rules:\n  - {name: no, then: deny\n":     "toolcrib.yaml:",
		"rules: []\nlisten: 127.0.0.1:1\n":        "only the key rules",
		"listen: 127.0.0.1:1\n":                   "only the key rules",
		"rules: []\ntools: {confirm: never}\n":    "toolcrib.yaml:",
		"rules: []\n---\n":                        "toolcrib.yaml:",
	} {
		if _, _, err := c.WithRules(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if c, err = config.Parse("toolcrib.yaml", []byte("{rules: [], tools: {}}\n")); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := c.RulesText(); ok {
		t.Error("a file in one mapping can be edited")
	}
}
