package skill_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/tool/builtin"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/tool/skillread"
	"github.com/toolcrib/toolcrib/tool/spawn"
)

// tools are those of toolcrib whose calls patterns can narrow, by name.
var tools = func() map[string]toolcrib.Tool {
	command, err := shell.New(shell.Options{Mode: shell.ModeAny, Path: filepath.SplitList(os.Getenv("PATH")), Report: &shell.Report{}})
	if err != nil {
		panic(err)
	}
	all := slices.Concat(files.New(files.Options{}), skillread.New(skillread.Options{}), []toolcrib.Tool{
		command, spawn.New([]spawn.Agent{{Name: "reviewer"}}),
	})
	byName := map[string]toolcrib.Tool{}
	for _, tool := range all {
		byName[tool.Spec().Name] = tool
	}
	return byName
}()

// allowed asks a list about a call in a workspace. If targets are given, they replace those of the
// plan.
func allowed(entries []string, name string, args json.RawMessage, workspace string, targets ...toolcrib.Target) (bool, error) {
	if entries != nil {
		entries = canonical(entries)
	}
	plan := &toolcrib.Plan{}
	if p, ok := tools[name].(toolcrib.Planner); ok {
		own, err := p.Plan(context.Background(), toolcrib.Call{
			Name: name, Arguments: args, Workspace: workspace, Principal: toolcrib.Principal{Admin: true},
		})
		if plan = own; err != nil { // the gate refuses such a call before it asks the skills
			plan = &toolcrib.Plan{Matches: func([]string) (bool, error) { return false, err }}
		}
	}
	if len(targets) > 0 {
		plan.Targets = targets
	}
	return skill.Allowed(entries, name, plan)
}

// folder returns a new workspace.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// canonical are entries as a skill has them once it is read; those that cannot be read
// stay as they are.
func canonical(entries []string) []string {
	out := []string{}
	for _, text := range entries {
		if e, err := skill.ParseEntry(text, builtin.Aliases()); err == nil {
			text = e.String()
		}
		out = append(out, text)
	}
	return out
}

// bare are the entries without their patterns.
func bare(entries []string) []string {
	if entries == nil {
		return nil
	}
	names := []string{}
	for _, text := range entries {
		if e, err := skill.ParseEntry(text, builtin.Aliases()); err == nil {
			names = append(names, e.Tool)
		}
	}
	return names
}

func object(t rapid.TB, key, text string) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(map[string]string{key: text})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestN15_Allowed asks lists about calls.
func TestN15_Allowed(t *testing.T) {
	list := func(entries ...string) []string { return append([]string{}, entries...) }
	ws := folder(t)
	tests := []struct {
		name    string
		entries []string
		tool    string
		key     string // of the one argument
		text    string
		want    bool
	}{
		{"null restricts nothing", nil, "exec_shell", "command", "rm -r x", true},
		{"empty allows nothing", list(), "read_file", "path", "x", false},
		{"name", list("read_file"), "read_file", "path", "x", true},
		{"alias", list("Read"), "read_file", "path", "x", true},
		{"other name", list("read_file"), "write_file", "path", "x", false},
		{"glob", list("read_*"), "read_file", "path", "x", true},
		{"glob of one", list("read_fil?"), "read_file", "path", "x", true},
		{"glob misses", list("read_?"), "read_file", "path", "x", false},
		{"broken entry", list("read_file("), "read_file", "path", "x", false},
		{"pattern beside none", list("Bash(git:*)", "Bash"), "exec_shell", "command", "rm x", true},
		{"pattern of a glob", list("exec_*(git:*)"), "exec_shell", "command", "git log", true},
		{"pattern of a glob narrows", list("exec_*(git:*)"), "exec_shell", "command", "rm x", false},

		{"command prefix", list("Bash(git:*)"), "exec_shell", "command", "git log -3", true},
		{"command prefix alone", list("Bash(git:*)"), "exec_shell", "command", "git", true},
		{"command prefix ends at a word", list("Bash(git:*)"), "exec_shell", "command", "gitx log", false},
		{"command other", list("Bash(git:*)"), "exec_shell", "command", "rm -r x", false},
		{"command space and star", list("Bash(git log *)"), "exec_shell", "command", "git log -3", true},
		{"command star may be nothing", list("Bash(git log *)"), "exec_shell", "command", "git log", true},
		{"command exact", list("Bash(npm run build)"), "exec_shell", "command", "npm  run 'build'", true},
		{"command exact with more", list("Bash(npm run build)"), "exec_shell", "command", "npm run build x", false},
		{"command quoted words are one", list("Bash(npm run build)"), "exec_shell", "command", "npm 'run build'", false},
		{"command star inside", list("Bash(git * main)"), "exec_shell", "command", "git push origin main", true},
		{"command star in a word", list("Bash(npm run test*)"), "exec_shell", "command", "npm run test:unit", true},
		{"command question mark is itself", list("Bash(l?)"), "exec_shell", "command", "ls", false},
		{"command and", list("Bash(git:*)"), "exec_shell", "command", "git log && rm x", false},
		{"command or", list("Bash(git:*)"), "exec_shell", "command", "git log || rm x", false},
		{"command semicolon", list("Bash(git:*)"), "exec_shell", "command", "git log; rm x", false},
		{"command line break", list("Bash(git:*)"), "exec_shell", "command", "git log\nrm x", false},
		{"command pipe", list("Bash(git:*)"), "exec_shell", "command", "git log | sh", false},
		{"command background", list("Bash(git:*)"), "exec_shell", "command", "git log & rm x", false},
		{"command quoted operator", list("Bash(git:*)"), "exec_shell", "command", "git log '; rm x'", true},
		{"command escaped operator", list("Bash(git:*)"), "exec_shell", "command", `git log \; rm`, true},
		{"command each by its entry", list("Bash(git:*)", "Bash(wc -l)"), "exec_shell", "command", "git log | wc -l && git status", true},
		{"command substitution", list("Bash(git:*)"), "exec_shell", "command", "git log $(rm x)", false},
		{"command backticks", list("Bash(git:*)"), "exec_shell", "command", "git log `rm x`", false},
		{"command substitution quoted", list("Bash(git:*)"), "exec_shell", "command", `git log "$(rm x)"`, false},
		{"command process substitution", list("Bash(git:*)"), "exec_shell", "command", "git diff <(rm x)", false},
		{"command variable", list("Bash(git:*)"), "exec_shell", "command", "git $X", false},
		{"command assignment", list("Bash(git:*)"), "exec_shell", "command", "GIT_PAGER=rm git log", false},
		{"command only assignment", list("Bash(git:*)"), "exec_shell", "command", "X=1", false},
		{"command redirection", list("Bash(git:*)"), "exec_shell", "command", "git log > x", false},
		{"command appending", list("Bash(git:*)"), "exec_shell", "command", "git log >> x", false},
		{"command reading a file", list("Bash(git:*)"), "exec_shell", "command", "git apply < x", false},
		{"command here document", list("Bash(git:*)"), "exec_shell", "command", "git apply <<E\nx\nE\n", false},
		{"command to nowhere", list("Bash(git:*)"), "exec_shell", "command", "git log 2>/dev/null 2>&1", true},
		{"command subshell", list("Bash(git:*)"), "exec_shell", "command", "(git log)", false},
		{"command function", list("Bash(git:*)"), "exec_shell", "command", "git() { rm x; }; git", false},
		{"command loop", list("Bash(git:*)"), "exec_shell", "command", "for i in a; do git log; done", false},
		{"command negated", list("Bash(git:*)"), "exec_shell", "command", "! git log", false},
		{"command braces", list("Bash(git:*)"), "exec_shell", "command", "git {a,b}", false},
		{"command ANSI quotes", list("Bash(git:*)"), "exec_shell", "command", `$'git' log`, false},
		{"command path of the program", list("Bash(git:*)"), "exec_shell", "command", "/tmp/git log", false},
		{"command escaped program", list("Bash(git:*)"), "exec_shell", "command", `g\it log`, true},
		{"command empty", list("Bash(git:*)"), "exec_shell", "command", "", false},
		{"command only space", list("Bash(git:*)"), "exec_shell", "command", "  ", false},
		{"command comment", list("Bash(git:*)"), "exec_shell", "command", "# git", false},
		{"command open quote", list("Bash(git:*)"), "exec_shell", "command", "git 'x", false},
		{"command NUL", list("Bash(git:*)"), "exec_shell", "command", "git\x00rm", false},
		{"command long", list("Bash(git:*)"), "exec_shell", "command", "git " + strings.Repeat("x", 20<<10), false},
		{"command deep", list("Bash(git:*)"), "exec_shell", "command", strings.Repeat("(", 8<<10), false},
		{"command long chain", list("Bash(git:*)"), "exec_shell", "command", strings.Repeat("git&&", 2000) + "git", false},

		{"path folder", list("Read(docs/**)"), "read_file", "path", "docs/a/b.md", true},
		{"path dot slash", list("Read(./docs/**)"), "read_file", "path", "./docs//b.md", true},
		{"path slash is the workspace", list("Read(/docs/**)"), "read_file", "path", "docs/b.md", true},
		{"path trailing slash", list("Read(docs/)"), "read_file", "path", "docs/b.md", true},
		{"path other folder", list("Read(docs/**)"), "read_file", "path", "docs2/b.md", false},
		{"path dots", list("Read(docs/**)"), "read_file", "path", "docs/../secret", false},
		{"path dots that stay", list("Read(docs/**)"), "read_file", "path", "docs/a/../b", false},
		{"path backslash", list("Read(*.md)"), "read_file", "path", `docs\x.md`, false},
		{"path star is one folder", list("Read(docs/*)"), "read_file", "path", "docs/a/b", false},
		{"path at the top", list("Read(*.md)"), "read_file", "path", "a.md", true},
		{"path at the top only", list("Read(*.md)"), "read_file", "path", "docs/a.md", false},
		{"path anywhere", list("Read(**/*.md)"), "read_file", "path", "docs/x/a.md", true},
		{"path anywhere, the top too", list("Read(**/*.md)"), "read_file", "path", "a.md", true},
		{"path in between", list("Read(a/**/z)"), "read_file", "path", "a/b/c/z", true},
		{"path class", list("Read(a[0-9].md)"), "read_file", "path", "a7.md", true},
		{"path absolute, elsewhere", list("Read(docs/**)"), "read_file", "path", "/ws/docs/a", false},
		{"path absolute pattern", list("Read(/" + ws + "/docs/**)"), "read_file", "path", ws + "/docs/a", true},
		{"path home", list("Read(~/x)"), "read_file", "path", "~/x", false},
		{"path of another tool", list("Read(docs/**)"), "write_file", "path", "docs/a", false},
		{"path literal brackets broken", list("Read(a[)"), "read_file", "path", "a[", false},
		{"folder absent argument", list("LS(docs/**)"), "list_directory", "other", "x", false},
		{"folder the workspace", list("LS(.)"), "list_directory", "path", ".", true},
		{"folder itself", list("LS(docs/**)"), "list_directory", "path", "docs", true},
		{"tree", list("Grep(src/**)"), "search_files", "path", "src", true},
		{"tree below", list("Grep(src/**)"), "search_files", "path", "src/a", true},
		{"tree of one level", list("Grep(src/*)"), "search_files", "path", "src/a", false},
		{"tree above", list("Grep(src/**)"), "search_files", "path", ".", false},
		{"tree absent argument", list("Grep(src/**)"), "search_files", "pattern", "x", false},
		{"tree all", list("Grep(**)"), "search_files", "pattern", "x", true},

		{"text", list("Task(reviewer)"), "spawn", "agent", "reviewer", true},
		{"text other", list("Task(reviewer)"), "spawn", "agent", "reviewer2", false},
		{"text star", list("Skill(pdf*)"), "read_skill", "name", "pdf-forms", true},
		{"text empty", list("Task(r*)"), "spawn", "agent", "", false},
		{"text prefix", list("Skill(review:*)"), "read_skill", "name", "review er", true},
		{"tool without patterns", list("mcp__fs__read(docs/**)"), "fs__read", "path", "docs/x", false},
		{"tool without patterns, by name", list("mcp__fs__read"), "fs__read", "path", "docs/x", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := object(t, tt.key, tt.text)
			got, err := allowed(tt.entries, tt.tool, args, ws)
			if got != tt.want || got && err != nil {
				t.Errorf("%v asked about %s%s: %v, %v", tt.entries, tt.tool, args, got, err)
			}
			if names := bare(tt.entries); got && tt.entries != nil {
				if wider, err := allowed(names, tt.tool, args, ws); !wider {
					t.Errorf("allowed by %v, but not without patterns: %v", tt.entries, err)
				}
			}
		})
	}
}

// What cannot be read strictly is not judged.
func TestN15_AllowedArguments(t *testing.T) {
	ws := folder(t)
	for _, args := range []string{
		``, `{}`, `[]`, `null`, `{"command":1}`, `{"command":null}`, `{"command":["git"]}`,
		`{"command":"git"`, `{"path":"git"}`,
	} {
		if ok, err := allowed([]string{"Bash(git:*)"}, "exec_shell", json.RawMessage(args), ws); ok || err == nil {
			t.Errorf("%s: %v, %v", args, ok, err)
		}
	}
	if ok, _ := allowed([]string{"Bash"}, "exec_shell", json.RawMessage(`{`), ws); !ok {
		t.Error("an entry without a pattern looks at arguments")
	}
}

// A path that is written well and leads elsewhere by a link is not allowed.
func TestN15_AllowedFollowsLinks(t *testing.T) {
	ws := folder(t)
	target := func(names ...string) (targets []toolcrib.Target) {
		for _, name := range names {
			targets = append(targets, toolcrib.Target{Kind: toolcrib.TargetFile, Name: name})
		}
		return targets
	}
	tests := []struct {
		entry, path string
		at          []toolcrib.Target
		want        bool
	}{
		{"Read(docs/**)", "docs/a", target(ws + "/docs/a"), true},
		{"Read(docs/**)", ws + "/docs/a", target(ws + "/docs/a"), true},
		{"Read(docs/**)", "docs/a", target(ws + "/secret"), false},
		{"Read(docs/**)", "docs/a", target("/etc/passwd"), false},
		{"Read(docs/**)", "docs/a", target(ws + "2/docs/a"), false},
		{"Read(docs/**)", "docs/a", target(ws+"/docs/a", ws+"/b"), false},
		{"Read(/" + ws + "/docs/**)", "docs/a", target(ws + "/docs/a"), true},
		{"Read(/" + ws + "/docs/**)", "docs/a", target(ws + "/secret"), false},
		{"Read(//other/**)", "docs/a", target(ws + "/docs/a"), false},
		{"Read(**)", ws, target(ws), true},
	}
	for _, tt := range tests {
		got, err := allowed([]string{tt.entry}, "read_file", object(t, "path", tt.path), ws, tt.at...)
		if got != tt.want || err != nil {
			t.Errorf("%s asked about %s at %v: %v, %v", tt.entry, tt.path, tt.at, got, err)
		}
	}
}

func TestN15_Unknown(t *testing.T) {
	if got := skill.Unknown([]string{"read_file", "Nope", "git*", "x(y)", "bad("}, []string{"read_file", "x"}); !slices.Equal(got, []string{"Nope", "git*", "bad("}) {
		t.Errorf("unknown %v", got)
	}
}

func TestN15_ParseEntryKeepsMeaning(t *testing.T) {
	for text, want := range map[string]string{
		"Read": "read_file", "read_file": "read_file", " Bash( git log:* ) ": "exec_shell(git log:*)", "Bash(*)": "exec_shell",
		"Bash(echo (a))": "exec_shell(echo (a))", "mcp__a__b_c": "a__b_c", "mcp__a": "a__*", "mcp__": "mcp__", "read": "read", "*": "*",
	} {
		if e, err := skill.ParseEntry(text, builtin.Aliases()); err != nil || e.String() != want {
			t.Errorf("%q is %q, %v; want %q", text, e, err, want)
		}
	}
	for _, text := range []string{"", "()", "(x)", "Bash(", "Bash)", "Bash()", "Bash(a))", "Bash(a)b", "Bash(a\nb)", "a b", "mcp__mcp", "mcp__mcp__x", "a.b", "a,b", "ä", "a\x00", strings.Repeat("a", 300), "Bash(" + strings.Repeat("*", 40) + ")"} {
		if e, err := skill.ParseEntry(text, builtin.Aliases()); err == nil || e != (skill.Entry{}) {
			t.Errorf("%q is %+v", text, e)
		}
	}
}

// A pattern that can match no call of its tool is known beforehand.
func TestN15_BadPattern(t *testing.T) {
	all := slices.Collect(maps.Values(tools))
	for entry, want := range map[string]string{
		"Read(docs/**)": "", "Read": "", "Bash(git:*)": "", "Task(x)": "", "nope(x)": "", "Grep(src/**)": "",
		"Bash(:*)": "words and * only", "Read(a/../b)": "has no ..", "Read(~/x)": "not in the workspace", "Read(a**)": "whole folders",
		"Read(a[)": "brackets", "Grep(src/*)": "must end with /**", "get_tree(src/*)": "must end with /**",
	} {
		if got := skill.BadPattern(canonical([]string{entry})[0], all); !strings.Contains(got, want) ||
			want == "" && got != "" {
			t.Errorf("%s: %q, want %q", entry, got, want)
		}
	}
}
