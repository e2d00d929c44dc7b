package line_test

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// ordinaryLines only read.
func ordinaryLines() []string {
	return []string{
		"echo hello",
		`echo "two words" 'and more'`,
		`echo a\ b`,
		"echo -n x",
		"pwd",
		"pwd -P",
		"ls",
		"ls -la",
		"ls -lh src data",
		"ls -R",
		"ls -1 *.txt",
		"ls --all --color=never",
		"cat README.md",
		"cat *.md",
		"cat -n src/main.go",
		"cat 'with space.txt'",
		`cat with\ space.txt`,
		"cat ./src/../README.md",
		"cat data/*.csv | sort | uniq -c | sort -rn",
		"head -n 1 README.md",
		"head -2 notes.txt",
		"head -c 5 notes.txt",
		"tail -n 2 notes.txt",
		"tail -1 notes.txt",
		"tail -n +3 notes.txt",
		"wc -l notes.txt",
		"wc -l src/*.go",
		"wc -l < notes.txt",
		"grep -rn NOTE .",
		"grep -rn sudo .",
		"grep -n NOTE src/*.go",
		"grep -c apple notes.txt",
		"grep -E '^(a|b)' notes.txt",
		"grep -i TITLE README.md",
		"grep -A1 -B1 hello README.md",
		"grep --include='*.go' -rl package src",
		"grep -q nothing notes.txt",
		"grep -v apple notes.txt 2>/dev/null",
		"find . -name '*.go'",
		"find . -type f -name '*.csv' -size -10k",
		`find src \( -name main.go -o -name other.go \) -print`,
		"find . -maxdepth 1 -not -name '.*' -printf '%f\\n'",
		"find . -newer notes.txt -type f | wc -l",
		"sort notes.txt",
		"sort -n numbers.txt",
		"sort -t, -k2,2nr data/b.csv",
		"sort -u notes.txt",
		"sort notes.txt | uniq",
		"uniq notes.txt",
		"diff data/a.csv data/b.csv",
		"diff -u data/a.csv data/b.csv",
		"diff -r data data",
		"diff /dev/null README.md",
		"date +%Y",
		"date -u",
		"date -d '2020-01-02' +%F",
		"true",
		"false",
		"test -f README.md",
		"test -d README.md",
		"[ -f notes.txt ] && echo yes",
		"test -f nothing || echo no",
		"test 3 -gt 2 && test abc = abc && echo ok",
		"false && echo never; echo after",
		"echo a; echo b",
		"echo one\necho two",
		"ls nothing 2>&1 | wc -l",
		"cat nothing 2>/dev/null || echo missing",
		"echo loud >/dev/null",
		"cat < README.md | head -1",
		"echo '$HOME `id` $(id)'",
		"echo rm -rf / is only text",
		"grep -rn 'mkfs\\|shutdown' src",
		"ls *.nothing",
		"# a comment\necho said",
	}
}

// What is not refused of ordinary lines only reads.
func TestC9_OrdinaryLines(t *testing.T) {
	r, _ := in(t, project(t), allowlist)
	for _, text := range ordinaryLines() {
		if p, err := judge(r, text); err != nil || p.ReadOnly != line.ByTable || len(p.Concerns) > 0 || p.Shell != "" {
			t.Errorf("%q: %v, %+v", text, err, p)
		}
	}
}

// The eleven patterns of C12, each as a command.
var elevenPatterns = []string{
	"rm -rf /", "sudo ls", "mkfs /dev/sda1", "dd if=/dev/zero of=/dev/sda", ":(){ :|:& };:", "chmod 777 /", "echo x > /dev/sda",
	"shutdown -h now", "reboot", "poweroff", "format c:",
}

func TestC12_ElevenPatterns(t *testing.T) {
	dir := folder(t)
	for _, mode := range []string{allowlist, anyLine} {
		r, _ := in(t, dir, mode)
		variants := slices.Clone(elevenPatterns)
		for _, text := range elevenPatterns {
			variants = append(variants, "true; "+text, "true && "+text, strings.ReplaceAll(text, " ", "\t"))
		}
		variants = append(variants, "rm -r -f /", "rm -fr //", "rm --recursive --force /*", "SUDO ls", "/usr/bin/sudo ls", "s'u'do ls", "bomb() { bomb | bomb & }; bomb", "mkfs.ext4 x", "command sudo ls")
		for _, text := range variants {
			if !refused(t, r, text) {
				t.Errorf("%s: %q runs", mode, text)
			}
		}
		for _, text := range []string{"grep -rn sudo .", "echo reboot", "echo 'rm -rf /'", "echo mkfs shutdown poweroff", "grep 'dd if=' -r ."} {
			if _, err := judge(r, text); err != nil {
				t.Errorf("%s: the word inside an argument: %q: %v", mode, text, err)
			}
		}
	}
}

// What is allowed by the configuration, and by itself does harm: the patterns are
// refused anyway, also behind a program that starts another one.
func TestC12_WhateverIsAllowed(t *testing.T) {
	dir := folder(t)
	starters := []string{
		"env A=b %s", "env -u A %s", "nice -n 5 %s", "timeout -s KILL 5 %s", "xargs -n 1 %s", "nohup %s", "busybox %s", "sh -c '%s'",
		"bash -ec '%s'", "sh -c \"sh -c '%s'\"", "eval '%s'", "find . -exec %s ';'", "stdbuf -oL nice %s",
	}
	for _, mode := range []string{allowlist, anyLine} {
		r, _ := in(t, dir, mode, strings.Fields(`
			sudo rm mkfs mkfs.ext4 dd chmod shutdown reboot poweroff format echo env nice timeout xargs nohup busybox sh bash eval find
			stdbuf systemctl`)...)
		lines := append(slices.Clone(elevenPatterns), "rm -rf /tmp/..", "rm -rf /./*", "systemctl reboot", "busybox poweroff")
		for _, text := range elevenPatterns {
			if strings.ContainsAny(text, ":>") && !strings.HasPrefix(text, "format") {
				continue
			}
			for _, by := range starters {
				lines = append(lines, strings.ReplaceAll(by, "%s", text))
			}
		}
		for _, text := range lines {
			if !refused(t, r, text) {
				t.Errorf("%s: %q runs", mode, text)
			}
		}
	}
}

// Rules look at the programs of a line, by the tree by which it is judged and run.
func TestPrograms(t *testing.T) {
	dir := project(t)
	for _, c := range []struct {
		mode, line, want string
	}{
		{allowlist, "cat *.txt | grep -n 'a b' && /bin/ls", ""}, // refused
		{allowlist, "cat notes.t?t | grep -n 'a b' && git -C . pu\\sh", "[cat notes.txt] [grep -n a b] [git -C . push]"},
		{allowlist, "env -u X A=b git push", "[env -u X A=b git push] [git push]"},
		{anyLine, "git status; (git push) && echo $(git p\"us\"h -f)", "[git status] [git push] [echo ?] [git push -f]"},
		{anyLine, "/usr/bin/git $A push *.x", "[git ? push ?]"},
		{anyLine, "$GIT push", "[? ?]"},
		{anyLine, "f() { git push; }; f", "[git push] [f]"},
		{anyLine, "if true; then git push; fi & time git fetch", "[true] [git push] [git fetch]"},
		{anyLine, "echo git push | sh", "[echo git push] [sh] [? ?]"},
		{anyLine, "bash -o pipefail -c 'git push' x", "[bash -o pipefail -c git push x] [git push]"},
		{anyLine, "sh -c \"$CMD\"", "[sh -c ?] [? ?]"},
		{anyLine, "sh build.sh -c x", "[sh build.sh -c x]"},
		{anyLine, "eval git push", "[eval git push] [git push]"},
		{anyLine, "ls | xargs -n 1 git", "[ls] [xargs -n 1 git] [git ?]"},
		{anyLine, "env -S 'git push'", "[env -S git push] [? ?]"},
		{anyLine, "timeout --signal KILL 5 git push", "[timeout --signal KILL 5 git push] [? ?]"},
		{anyLine, "find . -name x -exec git add {} ';' -print", "[find . -name x -exec git add {} ; -print] [git add ?]"},
		{anyLine, "alias g=git; g push", "[alias g=git] [? ?] [g push]"},
		{anyLine, "cat <<E\n$(git push)\nE", "[cat] [git push]"},
		{anyLine, strings.Repeat("sh -c \"", 1) + "sh -c 'sh -c ls'\"", "[sh -c sh -c 'sh -c ls'] [sh -c sh -c ls] [sh -c ls] [ls]"},
	} {
		r, _ := in(t, dir, c.mode, "cat", "grep", "git", "env")
		p, err := judge(r, strings.ReplaceAll(c.line, "\\n", "\n"))
		if err != nil {
			p = &line.Plan{}
		}
		var got []string
		for _, at := range p.Programs {
			var words []string
			for _, w := range append([]toolcrib.Word{at.Name}, at.Args...) {
				if w.Unknown {
					w.Text = "?"
				}
				words = append(words, w.Text)
			}
			got = append(got, "["+strings.Join(words, " ")+"]")
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s %q:\ngot  %s\nwant %s", c.mode, c.line, text, c.want)
		}
	}
}

// Mode ask asks a person about what mode allowlist refuses, but for what lies outside the
// workspace, what is hidden, and what no mode runs.
func TestAsk(t *testing.T) {
	dir := project(t)
	r, _ := in(t, dir, ask, "cat", "find", "echo", "grep", "cc")
	hidden := filepath.Join(dir, "hidden")
	r.Hides = func(abs string) bool { return strings.HasPrefix(abs, hidden) }
	r.HoldsHidden = func(abs string) bool { return abs == dir }
	for _, c := range []struct{ line, why, instead string }{
		{"cat notes.txt | cat", "", ""},
		{"make && ./x", "runs what tools.shell.allow does not list: make, x", "tools.shell.allow: [make, x]"},
		{"echo $(date)", "runs what tools.shell.allow does not list: date", "tools.shell.allow: [date]"},
		{"find src -delete", "asks a person: find with -delete is not allowed", "tools.shell.mode: any"},
		{"echo hi > out.txt", "asks a person: the redirection >out.txt is not allowed", "tools.shell.mode: any"},
		{"for f in *; do cat $f; done", "asks a person: control flow", "tools.shell.mode: any"},
		{"cat /etc/passwd", "refused", ""},
		{"cat ../x", "refused", ""},
		{"cat hidden/x", "refused", ""},
		{"make hidden/x", "refused", ""},
		{"grep -r x .", "refused", ""},
		{"sudo make", "refused", ""},
		{"rm -rf /", "refused", ""},
		{"echo 'x", "refused", ""},
	} {
		p, err := judge(r, c.line)
		if c.why == "refused" {
			if kind(t, err) == "" {
				t.Errorf("%s asks %q", c.line, asks(p))
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if c.why == "" {
			if len(p.Concerns) > 0 || p.ReadOnly != line.ByTable {
				t.Errorf("%s: %q, %+v", c.line, p.ReadOnly, p.Concerns)
			}
			continue
		}
		if len(p.Concerns) != 1 || p.Concerns[0].Reason != toolcrib.ReasonUnlistedProgram || !strings.HasPrefix(p.Concerns[0].Why, c.why) ||
			!strings.Contains(p.Concerns[0].Instead, c.instead) || p.ReadOnly != line.MayWrite {
			t.Errorf("%s: %q, %+v", c.line, p.ReadOnly, p.Concerns)
		}
	}
}

func TestC15_RefusalsSayWhatIsAllowed(t *testing.T) {
	r, d := in(t, folder(t), allowlist, "ls", "find", "cat", "uniq", "no-such-program")
	d.missing = []string{"no-such-program"}
	for text, want := range map[string]string{
		"rm x":             "permission denied: rm is not an allowed program; allowed are ls, find, cat, uniq, no-such-program",
		"/bin/ls":          "permission denied: /bin/ls: programs are named without a path; allowed are ls, find, cat, uniq, no-such-program",
		"ls > x":           "permission denied: the redirection >x is not allowed; allowed are <FILE, >/dev/null, 2>/dev/null and 2>&1. To write a file use the tools for files",
		"ls &":             "permission denied: & (running in the background) is not allowed; a command runs until it ends",
		"ls $HOME":         "permission denied: variables ($NAME) are not allowed; quote with '…' to mean the characters themselves",
		"if true; then fi": "invalid arguments: the command line cannot be read: `if` must be followed by a statement list",
		"cat ../x":         "permission denied: path escapes workspace: ../x; paths are relative to the workspace",
		"uniq a b":         "permission denied: uniq with a second file would write it; give one file, and read the result from stdout",
		"no-such-program":  "not found: program no-such-program",
		"cat --sho x":      "permission denied: cat with --sho is not allowed; allowed options: -AbeEnstTuv and long ones written out in full (--show-all, …) that only read and print",
	} {
		if _, err := judge(r, text); err == nil || err.Error() != want {
			if strings.HasPrefix(want, "invalid arguments") && kind(t, err) == toolcrib.InvalidArguments {
				continue // the parser's own words
			}
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

func TestTargets_OfJudgedCommands(t *testing.T) {
	dir := project(t)
	r, _ := in(t, dir, allowlist)
	if err := os.Symlink("src", filepath.Join(dir, "code")); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]string{
		"cat notes.txt | grep -f numbers.txt":   {"notes.txt", "numbers.txt"},
		"cat code/main.go code/../README.md":    {"README.md", "src/main.go"},
		"grep -rn x":                            {""},
		"find src -newer data/a.csv":            {"data/a.csv", "src"},
		"wc -l data/*.csv":                      {"data/a.csv", "data/b.csv"},
		"sort < notes.txt":                      {"notes.txt"},
		"cat " + dir + "/notes.txt /dev/null -": {"notes.txt"},
		"echo notes.txt":                        nil,
		"test -f nothing":                       {"nothing"},
	} {
		var got []string
		for _, target := range must(t, r, text).Targets {
			rel, err := filepath.Rel(dir, target.Name)
			if err != nil || target.Write || target.Kind != toolcrib.TargetFile {
				t.Errorf("%q: %+v", text, target)
			}
			got = append(got, strings.TrimPrefix(rel, "."))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A protected name is a target however plainly it is written, also in a script on the line
// and before there is such a file.
func TestTargets_ProtectedNames(t *testing.T) {
	for text, want := range map[string]string{
		"touch AGENTS.md":                          "AGENTS.md",
		"cp x agents.MD":                           "agents.MD",
		"dd of=AGENTS.md":                          "AGENTS.md",
		"sh -c 'echo x > AGENTS.md'":               "AGENTS.md",
		"sh -c \"sh -c 'cp x sub/.git/config'\"":   "sub/.git/config",
		"timeout 5 bash -ec 'true && >>AGENTS.md'": "AGENTS.md",
	} {
		for _, mode := range []string{allowlist, anyLine} {
			dir := project(t)
			r, _ := in(t, dir, mode, "touch", "cp", "dd", "sh", "timeout")
			r.Protects = func(name string) bool { return strings.EqualFold(name, "AGENTS.md") || name == ".git" }
			targets := must(t, r, text).Targets
			if !slices.Contains(targets, toolcrib.Target{Kind: toolcrib.TargetFile, Name: filepath.Join(dir, want), Write: true}) {
				t.Errorf("%s, %q: %v", mode, text, targets)
			}
		}
	}
	dir := project(t)
	r, _ := in(t, dir, anyLine)
	targets := must(t, r, "echo x > new; sh -c 'cat notes.txt'").Targets
	for name, write := range map[string]bool{"new": true, "notes.txt": false} {
		if !slices.Contains(targets, toolcrib.Target{Kind: toolcrib.TargetFile, Name: filepath.Join(dir, name), Write: write}) {
			t.Errorf("%s: %v", name, targets)
		}
	}
}

func TestC12_DeepNestingIsRefused(t *testing.T) {
	for _, mode := range []string{allowlist, anyLine} {
		r, _ := in(t, folder(t), mode)
		for _, piece := range []string{"(", "$(", "`(", "{ ", "<(", "if ", "\"$(", "((", "[[ (", "a && ", "a | ", "! ", "${a:-", "case x in x) ", "f() ", "a=("} {
			if _, err := judge(r, strings.Repeat(piece, 16000/len(piece))); err == nil {
				t.Errorf("%s: %q is admitted", mode, piece)
			}
		}
	}
	many, _ := in(t, folder(t), allowlist)
	for _, text := range []string{strings.Repeat("true;", 65), strings.Repeat("true | ", 65) + "true", "echo" + strings.Repeat(" x", 1001)} {
		if !refused(t, many, text) {
			t.Errorf("%.20q… runs", text)
		}
	}
}

// FuzzJudge: judging never panics, and of what it lets through every program is an
// allowed one and no word was left for a shell to work out.
func FuzzJudge(f *testing.F) {
	for _, text := range slices.Concat(ordinaryLines(), elevenPatterns) {
		f.Add(text)
	}
	dir := project(f)
	for _, text := range []string{"cat ${a:-b}", "((((", "a=(1 2)", "cat <<E\nx\nE", "ls\\\n -l", "[ ! ]", "find ( )", "grep -e", "sort -k", "ls -", "ls --", "\\", "'", "a|b&&c;d", "cat \xff", "e'c'h\"o\" x"} {
		f.Add(text)
	}
	r, _ := in(f, dir, allowlist)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := judge(r, text)
		if err != nil {
			_ = kind(t, err)
			return
		}
		if p.Effect() != toolcrib.EffectReadOnly || p.ReadOnly != line.ByTable {
			t.Errorf("%q: effect %s, %q", text, p.Effect(), p.ReadOnly)
		}
		for _, step := range p.Steps {
			for _, c := range step.Commands {
				if name := filepath.Base(c.Path); !slices.Contains(append(allowed(), "["), name) || c.Args[0] != name {
					t.Errorf("%q runs %+v", text, c)
				}
			}
		}
		for _, target := range p.Targets {
			if !strings.HasPrefix(target.Name+"/", dir+"/") || target.Write {
				t.Errorf("%q: target %+v", text, target)
			}
		}
	})
}

// Whatever the arguments of a command that is in a table, it is judged: no entry panics.
func TestC12_NoEntryPanics(t *testing.T) {
	dir := project(t)
	entries := line.Entries()
	programs := slices.DeleteFunc(slices.Collect(maps.Keys(entries)), func(name string) bool { return strings.Contains(name, " ") })
	var all []*line.Rules
	for _, mode := range []string{ask, allowlist, anyLine} {
		r, _ := in(t, dir, mode, programs...)
		all = append(all, r)
	}
	words := []string{
		"", "-", "--", "---", "-=", "--=", "--=x", "-:", "-?", "-@", "-é", "--é", "-\xff", "--batch", "--batch=x", "--filters", "--help", "--help=x",
		"--version", "-5", "-Z", "--no-such", "é", "@", ":", "=", "a=b", ".", "..", "/etc/passwd", "a.txt",
	}
	one, n := rand.New(rand.NewPCG(1, 2)), 0
	try := func(name string, args []string) {
		if n++; testing.Short() && one.IntN(8) > 0 {
			return
		}
		text := name
		for _, arg := range args {
			text += " '" + arg + "'"
		}
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("%q: panic: %v", text, p)
			}
		}()
		_, err := judge(all[n%len(all)], text)
		_ = kind(t, err)
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		try(name, nil)
		for _, w := range words {
			try(name, []string{w})
			try(name, []string{w, w, "--", w})
		}
		for _, option := range entries[name] {
			for _, args := range [][]string{
				{option},
				{option, "--"},
				{"--", option},
				{option, option},
				{option, ""},
				{option + "="},
				{option + "=é"},
				{option + "x"},
				{option, "x"},
				{option, "-5", "-"},
				{option[:len(option)-1]},
				{option + option, "a.txt", ".."},
			} {
				try(name, args)
			}
		}
	}
	if n < 10_000 {
		t.Fatalf("only %d lines", n)
	}
}

// No pattern stands for a hidden file unless it says so.
func TestPatterns_LeadingDot(t *testing.T) {
	dir := folder(t)
	for _, name := range []string{".h", "a", "s/.k", "s/b", ".d/x"} {
		write(t, filepath.Join(dir, name), "")
	}
	r, _ := in(t, dir, allowlist)
	for pattern, want := range map[string][]string{
		"?": {"a", "s"}, "??": {"??"}, "[.a]*": {"a"}, "[!a]?": {"[!a]?"}, "?*": {"a", "s"}, "***": {"a", "s"}, "*/?*": {"s/b"}, "s//?*": {"s/b"},
		".?": {".d", ".h"}, "*/.?": {"s/.k"}, ".?/*": {".d/x"}, "./?*": {"./a", "./s"}, `\?`: {"?"}, "[]": {"[]"}, "*/": {"s/"},
	} {
		if got := must(t, r, "echo "+pattern).Steps[0].Commands[0].Args[1:]; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
}

// Where bash is missing, what only bash has is refused.
func TestC9_WithoutBash(t *testing.T) {
	for _, mode := range []string{anyLine, ask} {
		r, d := in(t, folder(t), mode)
		d.missing = []string{"bash"}
		for text, names := range map[string]string{
			"mkdir -p p/{a,b}": "{a,b}", "touch {1..3}": "{1..3}", "build &> out": "&>", "build &>> out": "&>>", "[[ -f x ]] && make": "[[", "((x++))": "((",
			"function f { make; }": "function", "printf $'a\\n'": "$'…'", "a=(1 2)": "array", "make <<< x": "<<<", "make <(true)": "<(", "make |& cat": "|&",
			"echo ${x//a/b}": "bash", "sh run {a,b}; true": "{a,b}",
		} {
			_, err := judge(r, text)
			if kind(t, err) != toolcrib.PermissionDenied || !strings.Contains(err.Error(), "only bash has this") || !strings.Contains(err.Error(), names) {
				t.Errorf("%s: %s: %v", mode, text, err)
			}
		}
		for _, text := range []string{"make > out 2>&1; echo rc=$?", "for i in 1 2; do make $i; done", "f() { make; }; f", "x=$(make) && echo \"${x:-y}\"", "echo '{a,b}' \"&>\""} {
			if _, err := judge(r, text); err != nil {
				t.Errorf("%s: %s: %v", mode, text, err)
			}
		}
	}
}
