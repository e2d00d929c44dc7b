package celrule_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
)

// programsOf reads "git push; sh -c ?", where ? is a word that is not known.
func programsOf(line string) []toolcrib.Program {
	var all []toolcrib.Program
	for one := range strings.SplitSeq(line, ";") {
		var words []toolcrib.Word
		for _, text := range strings.Fields(one) {
			words = append(words, toolcrib.Word{Text: text, Unknown: text == "?"})
		}
		all = append(all, toolcrib.Program{Name: words[0], Args: words[1:]})
	}
	return all
}

// decided is what a set of one rule says of a call: yes, no, maybe or an error.
func decided(t *testing.T, condition string, in gate.RuleInput) string {
	t.Helper()
	set := compile(t, when(condition))
	if m := set.Judge(t.Context(), in); len(m) == 1 && m[0].Undecided {
		return "maybe"
	}
	return outcome(t, set, in)
}

func TestRules_Programs(t *testing.T) {
	const push = `programs.exists(p, p.name == "git" && "push" in p.args)`
	const first = `programs.exists(p, p.name == "git" && p.args.size() > 0 && p.args[0] == "push")`
	for _, c := range []struct{ when, line, want string }{
		{push, "git status; git push origin", "yes"},
		{push, "git -C . push", "yes"},
		{push, "git status; echo git push", "no"},
		{push, "git ? push", "yes"},
		{push, "git status ?", "maybe"},
		{push, "? push", "maybe"},
		{push, "ls ?", "no"},
		{push, "git status; ? ?", "maybe"},
		{push, "? ?; git push", "yes"},
		{"!" + push, "git status ?", "maybe"},
		{push + ` && tool == "exec_shell"`, "git ?", "maybe"},
		{push + ` && tool == "other"`, "git ?", "no"},
		{push + ` || tool == "exec_shell"`, "git ?", "yes"},
		{first, "git push origin", "yes"},
		{first, "git", "no"},
		{first, "git ? push", "maybe"},
		{first, "git push ?", "maybe"},
		{first, "git status", "no"},
		{`programs.exists(p, p.args.size() > 1 && p.args[1] == "push")`, "git ?", "maybe"},
		{`programs.exists(p, p.args[0] == "push")`, "git push ?", "yes"},
		{`programs.exists(p, p.args[1] == "push")`, "git ? x push", "maybe"},
		{`programs.exists(p, p.args == ["status"])`, "git ?", "maybe"},
		{`programs.exists(p, ["status"] == p.args)`, "git ?", "maybe"},
		{`programs.exists(p, p.args != ["status"])`, "git ?", "maybe"},
		{`programs.exists(p, p.args in [["status"]])`, "git ?", "maybe"},
		{`programs.exists(p, p.args == ["status"])`, "git status", "yes"},
		{`programs.exists(p, p.args.exists(a, a.startsWith("--force")))`, "git push ? --force-with-lease", "yes"},
		{`programs.exists(p, p.args.exists(a, a.startsWith("--force")))`, "git push ?", "maybe"},
		{`programs.exists(p, !p.args.all(a, a == "x"))`, "git x ?", "maybe"},
		{`programs.exists(p, !p.args.all(a, a == "x"))`, "git y ?", "yes"},
		{`programs.exists(p, "push" in p.args.map(a, a.lowerAscii()))`, "git ? x", "maybe"},
		{`programs.exists(p, size(p.args.filter(a, a != "x")) > 0)`, "git x ?", "maybe"},
		{`programs.exists(p, "push" in p.args + ["x"])`, "git ?", "maybe"},
		{`programs.exists(p, p.args.join(" ").contains("push"))`, "git x ?", "maybe"},
		{`programs.exists(p, p.args.join(" ") == "push -f")`, "git push -f", "yes"},
		{`programs.exists(p, p.name in ["git", "hg"])`, "hg x", "yes"},
		{`programs.exists(p, p.name in ["git", "hg"])`, "? x", "maybe"},
		{`programs.all(p, p.name == "ls")`, "ls; ? x", "maybe"},
		{`programs.all(p, p.name == "ls")`, "cat; ? x", "no"},
		{`size(programs) == 2`, "ls; cat", "yes"},
	} {
		in := call(`{}`)
		in.Programs = programsOf(c.line)
		if got := decided(t, c.when, in); got != c.want {
			t.Errorf("%s of %s: %s, want %s", c.when, c.line, got, c.want)
		}
	}
	if got := decided(t, `size(programs) == 0`, call(`{}`)); got != "yes" {
		t.Errorf("of a tool that names none: %s", got)
	}
}

func TestRules_Targets(t *testing.T) {
	ws, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"secrets/deep", "src"} {
		if err := os.MkdirAll(filepath.Join(ws, filepath.FromSlash(folder)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const prefix, folder = `targets.exists(t, t.path.startsWith("secrets/"))`, `targets.exists(t, t.within("./secrets/"))`
	for _, c := range []struct {
		when, path string
		tree       bool
		want       string
	}{
		{prefix, "secrets/x", false, "yes"},
		{prefix, "secrets", false, "yes"}, // a folder ends in a slash
		{prefix, "secrets-old", false, "no"},
		{prefix, "src", false, "no"},
		{prefix, ".", true, "maybe"},
		{prefix, "src", true, "maybe"},
		{prefix, "src/x.go", true, "no"}, // nothing is below a file
		{folder, "secrets/x", false, "yes"},
		{folder, "secrets", true, "yes"},
		{folder, "secrets/deep", true, "yes"},
		{folder, "secrets-old", false, "no"},
		{folder, ".", false, "no"},
		{folder, ".", true, "maybe"},
		{folder, "src", true, "no"},
		{`targets.exists(t, t.within("secrets/deep"))`, "secrets", true, "maybe"},
		{`targets.exists(t, t.within("/etc"))`, ".", true, "no"},
		{`targets.exists(t, t.within(workspace))`, "src/x", false, "yes"},
		{`!targets.all(t, t.path.startsWith("src/"))`, ".", true, "maybe"},
		{`targets.exists(t, t.path == "./")`, ".", false, "yes"},
		{`targets.exists(t, t.path == "src/")`, "src", false, "yes"},
		{`targets.exists(t, t.path == "new/x.go")`, "new/x.go", false, "yes"},
		{`targets.exists(t, t.path.startsWith("/"))`, "../out", false, "yes"},
		{`targets.exists(t, t.name.startsWith(workspace + "/secrets/"))`, ".", true, "maybe"},
	} {
		in := call(`{}`)
		in.Workspace = ws
		in.Targets = []toolcrib.Target{{Kind: "file", Name: filepath.Join(ws, filepath.FromSlash(c.path)), Tree: c.tree}}
		if got := decided(t, c.when, in); got != c.want {
			t.Errorf("%s of %s: %s, want %s", c.when, c.path, got, c.want)
		}
	}
	// What is hidden from a call is not touched by it; what makes a rule undecided is named.
	in := call(`{}`)
	in.Workspace, in.Targets = ws, []toolcrib.Target{{Kind: "file", Name: ws, Tree: true}}
	second := celrule.Rule{Name: "s", When: prefix + ` || targets.exists(t, t.within("keys"))`, Then: gate.RuleDeny}
	set := compile(t, when(folder), second)
	for i, want := range []string{filepath.Join(ws, "secrets"), filepath.Join(ws, "keys")} {
		if got := set.Judge(t.Context(), in)[i].Folders; len(got) != 1 || got[0] != want {
			t.Errorf("undecided for %q, want %s", got, want)
		}
	}
	for hidden, want := range map[string]string{"": "maybe", "secrets": "no", "other": "maybe", "secrets/deep": "maybe", ".": "no"} {
		in.Hidden = []string{filepath.Join(ws, hidden)}
		if hidden == "" {
			in.Hidden = nil
		}
		if got := decided(t, folder, in); got != want {
			t.Errorf("with %q hidden: %s, want %s", hidden, got, want)
		}
		if got := decided(t, prefix, in); got != "maybe" {
			t.Errorf("the path with %q hidden: %s", hidden, got)
		}
	}
	in = call(`{}`)
	in.Targets = []toolcrib.Target{{Kind: "host", Name: "secrets/x"}}
	if got := decided(t, prefix+" || "+folder, in); got != "no" {
		t.Errorf("of a host: %s", got)
	}
}

// Fields have types although their values may be undecided.
func TestRules_TypesOfTargetsAndPrograms(t *testing.T) {
	for condition, want := range map[string]string{
		`targets.exists(t, t.name == 5)`:                  "found no matching overload for '=='",
		`targets.exists(t, t.path.startsWith(1))`:         "found no matching overload for 'startsWith'",
		`targets.exists(t, t.within(1))`:                  "found no matching overload for 'within'",
		`targets.exists(t, t.pth == "")`:                  "undefined field 'pth'",
		`programs.exists(p, 5 in p.args)`:                 "found no matching overload for 'in'",
		`programs.exists(p, p.args[0].x == "")`:           "does not support field selection",
		`programs.exists(p, p.name + 1 == "")`:            "found no matching overload for '+'",
		`programs.exists(programs, programs.name == "x")`: "programs is a variable of every condition",
	} {
		if got := problems(t, celrule.Options{}, when(condition)); !strings.Contains(got[0].Message, want) {
			t.Errorf("%s: %v, want %s", condition, got, want)
		}
	}
}
