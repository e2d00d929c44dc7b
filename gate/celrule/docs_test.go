package celrule_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
)

// documented returns the rules that docs/rules.md shows.
func documented(t *testing.T) map[string]celrule.Rule {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "rules.md"))
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string]celrule.Rule{}
	for i, block := range strings.Split(string(page), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		var shown struct {
			Rules []struct {
				Name, When, Then, Message string
				Tools                     []string
			}
		}
		if err := yaml.Unmarshal([]byte(block), &shown); err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
		for _, r := range shown.Rules {
			if _, twice := rules[r.Name]; twice {
				t.Errorf("two rules are called %s", r.Name)
			}
			rules[r.Name] = celrule.Rule{Name: r.Name, Tools: r.Tools, When: r.When, Then: gate.RuleThen(r.Then), Message: r.Message}
		}
	}
	return rules
}

// TestRules_Documentation holds docs/rules.md to what it says of its examples.
func TestRules_Documentation(t *testing.T) {
	rules := documented(t)
	file := func(name string) []toolcrib.Target {
		return []toolcrib.Target{{Kind: "file", Name: name, Write: true}}
	}
	starts := func(line string) gate.RuleInput { return gate.RuleInput{Programs: programsOf(line)} }
	host := []toolcrib.Target{{Kind: "host", Name: "example.org"}}
	tests := []struct {
		rule, tool, args, want string
		in                     gate.RuleInput
	}{
		{"pushes", "exec_shell", `{}`, "ask", starts("git push")},
		{"secrets", "read_file", `{}`, "deny", gate.RuleInput{Targets: file("/ws/secrets/x")}},
		{"secrets", "read_file", `{}`, "", gate.RuleInput{Targets: file("/ws/secrets-old/x")}},
		{"only-notes", "write_file", `{}`, "ask", gate.RuleInput{Targets: file("/ws/a.md")}},
		{"only-notes", "write_file", `{}`, "", gate.RuleInput{Targets: file("/ws/notes/a.md")}},
		{"forced", "exec_shell", `{}`, "deny", starts("git status;git push --force-with-lease")},
		{"forced", "exec_shell", `{}`, "", starts("git push origin")},
		{"push", "exec_shell", `{}`, "ask", starts("cd x;git -C . push origin")},
		{"push", "exec_shell", `{}`, "", starts("git status;echo git push")},
		{"push", "read_file", `{}`, "", gate.RuleInput{}},
		{"force-push", "exec_shell", `{}`, "deny", starts("git push --force")},
		{"force-push", "exec_shell", `{}`, "deny", starts("git push -uf")},
		{"force-push", "exec_shell", `{}`, "", starts("git push origin main")},
		{"only-src", "write_file", `{}`, "", gate.RuleInput{Targets: file("/ws/src/a.go")}},
		{"only-src", "write_file", `{}`, "deny", gate.RuleInput{Targets: file("/ws/src-old/a.go")}},
		{"only-src", "web_fetch", `{}`, "", gate.RuleInput{Targets: host}},
		{"tests-are-free", "edit_file", `{}`, "allow", gate.RuleInput{Targets: file("/ws/test/a.go")}},
		{"tests-are-free", "edit_file", `{}`, "", gate.RuleInput{Targets: append(file("/ws/test/a.go"), file("/ws/a.go")...)}},
		{"tests-are-free", "edit_file", `{}`, "", gate.RuleInput{}},
		{"large-write", "write_file", `{"content":"` + strings.Repeat("x", 100_001) + `"}`, "ask", gate.RuleInput{}},
		{"large-write", "write_file", `{"content":"x"}`, "", gate.RuleInput{}},
		{"mail-outside", "mail__send", `{"to":["a@example.org","B@Example.ORG"]}`, "", gate.RuleInput{}},
		{"mail-outside", "mail__send", `{"to":["a@example.org","a@example.org.evil.net"]}`, "ask", gate.RuleInput{}},
		{"mail-outside", "mail__send", `{}`, "error", gate.RuleInput{}},
		{"pays", "pay__send", `{"amount":1}`, "ask", gate.RuleInput{}},
		{"pays-much", "pay__send", `{"amount":100}`, "", gate.RuleInput{}},
		{"pays-much", "pay__send", `{"amount":100.5}`, "deny", gate.RuleInput{}},
		{"pays-much", "pay__send", `{"amount":"1000"}`, "deny", gate.RuleInput{}},
		{"pays-much", "pay__send", `{}`, "error", gate.RuleInput{}},
		{"no-sending-when-tainted", "web_fetch", `{}`, "deny", gate.RuleInput{Targets: host, Taint: []string{"x"}}},
		{"no-sending-when-tainted", "web_fetch", `{}`, "", gate.RuleInput{Targets: host}},
		{"production", "deploy__app", `{}`, "deny", gate.RuleInput{}},
		{"production", "deploy__app", `{"environment":"staging"}`, "", gate.RuleInput{}},
		{"production", "deploy__app", `{"environment":"production"}`, "", gate.RuleInput{Who: &toolcrib.Principal{Groups: []string{"operators"}}}},
		{"select-only", "db__query", `{"sql":" SELECT a FROM b;"}`, "", gate.RuleInput{}},
		{"select-only", "db__query", `{"sql":"select 1; drop table a"}`, "deny", gate.RuleInput{}},
		{"deep-writes", "write_file", `{}`, "ask", gate.RuleInput{Depth: 1}},
		{"deep-writes", "read_file", `{}`, "", gate.RuleInput{Depth: 1, Effect: toolcrib.EffectReadOnly}},
	}
	seen := map[string]bool{}
	for _, tt := range tests {
		seen[tt.rule] = true
		r, ok := rules[tt.rule]
		if !ok {
			t.Errorf("there is no rule %s", tt.rule)
			continue
		}
		tt.in.Tool, tt.in.Arguments, tt.in.Workspace = tt.tool, json.RawMessage(tt.args), "/ws"
		got := ""
		for _, m := range compile(t, r).Judge(t.Context(), tt.in) {
			if got = string(m.Then); m.Err != nil {
				got = "error"
			}
		}
		if got != tt.want {
			t.Errorf("%s: %s of %s %.80s, want %s", tt.rule, got, tt.tool, tt.args, tt.want)
		}
	}
	if len(rules) < 10 || len(seen) != len(rules) {
		t.Errorf("%d rules are shown, %d are tried", len(rules), len(seen))
	}
	for _, said := range []string{
		`column 11: undeclared reference to 'usr' (did you mean 'user'?)`, `column 16: exec_shell: there is no argument "comand"; did you mean "command"?`,
		`exec_shell: the argument "command" is a string, and is compared with a value of type int; if it can be anything else, write dyn(args.command)`,
	} {
		page, _ := os.ReadFile(filepath.Join("..", "..", "docs", "rules.md"))
		if !strings.Contains(string(page), said) {
			t.Errorf("the page does not show %q", said)
		}
	}
}

// TestRules_WorkspaceLink has a workspace that is reached by a link: names of
// targets are resolved, and so is workspace.
func TestRules_WorkspaceLink(t *testing.T) {
	real, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Skip("no links here: ", err)
	}
	in := call(`{}`)
	in.Workspace, in.Targets = link, []toolcrib.Target{{Kind: "file", Name: filepath.Join(real, "secret")}}
	if got := outcome(t, compile(t, when(`targets.exists(t, t.name == workspace + "/secret")`)), in); got != "yes" {
		t.Error(got)
	}
}
