package shell_test

import (
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// The eleven patterns of C12, each as a command.
var elevenPatterns = []string{
	"rm -rf /", "sudo ls", "mkfs /dev/sda1", "dd if=/dev/zero of=/dev/sda", ":(){ :|:& };:", "chmod 777 /", "echo x > /dev/sda",
	"shutdown -h now", "reboot", "poweroff", "format c:",
}

func TestC12_ElevenPatterns(t *testing.T) {
	dir := folder(t)
	for _, mode := range []shell.Mode{shell.ModeAllowlist, shell.ModeAny} {
		made := tool(t, shell.Options{Mode: mode})
		variants := slices.Clone(elevenPatterns)
		for _, line := range elevenPatterns {
			variants = append(variants, "true; "+line, "true && "+line, strings.ReplaceAll(line, " ", "\t"))
		}
		variants = append(variants, "rm -r -f /", "rm -fr //", "rm --recursive --force /*", "SUDO ls", "/usr/bin/sudo ls", "s'u'do ls", "bomb() { bomb | bomb & }; bomb", "mkfs.ext4 x", "command sudo ls")
		for _, line := range variants {
			err := admit(made, callOf(t, dir, line, 0))
			if kind(t, err) != toolcrib.PermissionDenied || !strings.HasPrefix(err.Error(), "permission denied: ") {
				t.Errorf("%s: %q: %v", mode, line, err)
			}
		}
		for _, line := range []string{"grep -rn sudo .", "echo reboot", "echo 'rm -rf /'", "echo mkfs shutdown poweroff", "grep 'dd if=' -r ."} {
			if err := admit(made, callOf(t, dir, line, 0)); err != nil {
				t.Errorf("%s: the word inside an argument: %q: %v", mode, line, err)
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
	for _, mode := range []shell.Mode{shell.ModeAllowlist, shell.ModeAny} {
		made := tool(t, shell.Options{Mode: mode, Allow: []string{
			"sudo", "rm", "mkfs", "mkfs.ext4", "dd", "chmod", "shutdown", "reboot", "poweroff", "format", "echo", "env", "nice", "timeout",
			"xargs", "nohup", "busybox", "sh", "bash", "eval", "find", "stdbuf", "systemctl",
		}})
		lines := append(slices.Clone(elevenPatterns), "rm -rf /tmp/..", "rm -rf /./*", "systemctl reboot", "busybox poweroff")
		for _, line := range elevenPatterns {
			if strings.ContainsAny(line, ":>") && !strings.HasPrefix(line, "format") {
				continue
			}
			for _, by := range starters {
				lines = append(lines, strings.ReplaceAll(by, "%s", line))
			}
		}
		for _, line := range lines {
			err := admit(made, callOf(t, dir, line, 0))
			if kind(t, err) != toolcrib.PermissionDenied || !strings.HasPrefix(err.Error(), "permission denied: ") {
				t.Errorf("%s: %q: %v", mode, line, err)
			}
		}
	}
}

// Rules look at the programs of a line, by the tree by which it is judged and run.
func TestPrograms(t *testing.T) {
	dir := project(t)
	for _, c := range []struct {
		mode       shell.Mode
		line, want string
	}{
		{shell.ModeAllowlist, "cat *.txt | grep -n 'a b' && /bin/ls", ""}, // refused
		{shell.ModeAllowlist, "cat notes.t?t | grep -n 'a b' && git -C . pu\\sh", "[cat notes.txt] [grep -n a b] [git -C . push]"},
		{shell.ModeAllowlist, "env -u X A=b git push", "[env -u X A=b git push] [git push]"},
		{shell.ModeAny, "git status; (git push) && echo $(git p\"us\"h -f)", "[git status] [git push] [echo ?] [git push -f]"},
		{shell.ModeAny, "/usr/bin/git $A push *.x", "[git ? push ?]"},
		{shell.ModeAny, "$GIT push", "[? ?]"},
		{shell.ModeAny, "f() { git push; }; f", "[git push] [f]"},
		{shell.ModeAny, "if true; then git push; fi & time git fetch", "[true] [git push] [git fetch]"},
		{shell.ModeAny, "echo git push | sh", "[echo git push] [sh] [? ?]"},
		{shell.ModeAny, "bash -o pipefail -c 'git push' x", "[bash -o pipefail -c git push x] [git push]"},
		{shell.ModeAny, "sh -c \"$CMD\"", "[sh -c ?] [? ?]"},
		{shell.ModeAny, "sh build.sh -c x", "[sh build.sh -c x]"},
		{shell.ModeAny, "eval git push", "[eval git push] [git push]"},
		{shell.ModeAny, "ls | xargs -n 1 git", "[ls] [xargs -n 1 git] [git ?]"},
		{shell.ModeAny, "env -S 'git push'", "[env -S git push] [? ?]"},
		{shell.ModeAny, "timeout --signal KILL 5 git push", "[timeout --signal KILL 5 git push] [? ?]"},
		{shell.ModeAny, "find . -name x -exec git add {} ';' -print", "[find . -name x -exec git add {} ; -print] [git add ?]"},
		{shell.ModeAny, "alias g=git; g push", "[alias g=git] [? ?] [g push]"},
		{shell.ModeAny, "cat <<E\n$(git push)\nE", "[cat] [git push]"},
		{shell.ModeAny, strings.Repeat("sh -c \"", 1) + "sh -c 'sh -c ls'\"", "[sh -c sh -c 'sh -c ls'] [sh -c sh -c ls] [sh -c ls] [ls]"},
	} {
		made := tool(t, shell.Options{Mode: c.mode, Allow: []string{"cat", "grep", "git", "env"}})
		line := strings.ReplaceAll(c.line, "\\n", "\n")
		var got []string
		for _, p := range tooltest.Facts(made, callOf(t, dir, line, 0)).Programs {
			var words []string
			for _, w := range append([]toolcrib.Word{p.Name}, p.Args...) {
				if w.Unknown {
					w.Text = "?"
				}
				words = append(words, w.Text)
			}
			got = append(got, "["+strings.Join(words, " ")+"]")
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s %q:\ngot  %s\nwant %s", c.mode, line, text, c.want)
		}
	}
}

// Mode ask asks a person about what mode allowlist refuses, but for what lies outside the
// workspace, what is hidden, and what no mode runs.
func TestAsk(t *testing.T) {
	dir := project(t)
	r := shell.Report{Helper: true, LandlockABI: 7, Bubblewrap: "x"}
	made := tool(t, shell.Options{Mode: shell.ModeAsk, Allow: []string{"cat", "find", "echo", "grep", "cc"}, Report: &r, Hidden: []string{dir + "/hidden"}})
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
		call := callOf(t, dir, c.line, 0)
		err := admit(made, call)
		if c.why == "refused" {
			if err == nil || asks(made, call) != "" {
				t.Errorf("%s: %v, asks %q", c.line, err, asks(made, call))
			}
			continue
		}
		concerns := tooltest.Facts(made, call).Concerns
		if c.why == "" {
			if err != nil || len(concerns) > 0 || tooltest.Facts(made, call).Effect != toolcrib.EffectReadOnly {
				t.Errorf("%s: %v, %+v", c.line, err, concerns)
			}
			continue
		}
		if err != nil || len(concerns) != 1 || concerns[0].Reason != toolcrib.ReasonUnlistedProgram ||
			!strings.HasPrefix(concerns[0].Why, c.why) || !strings.Contains(concerns[0].Instead, c.instead) ||
			tooltest.Facts(made, call).Effect != toolcrib.EffectNonIdempotentWrite {
			t.Errorf("%s: %v, %+v", c.line, err, concerns)
		}
	}
}

func TestC15_RefusalsSayWhatIsAllowed(t *testing.T) {
	made := tool(t, shell.Options{Allow: []string{"ls", "find", "cat", "uniq", "no-such-program"}})
	for line, want := range map[string]string{
		"rm x":             "permission denied: rm is not an allowed program; allowed are ls, find, cat, uniq, no-such-program",
		"/bin/ls":          "permission denied: /bin/ls: programs are named without a path; allowed are ls, find, cat, uniq, no-such-program",
		"ls > x":           "permission denied: the redirection >x is not allowed; allowed are <FILE, >/dev/null, 2>/dev/null and 2>&1. To write a file use the tools for files",
		"ls &":             "permission denied: & (running in the background) is not allowed; a command runs until it ends",
		"ls $HOME":         "permission denied: variables ($NAME) are not allowed; quote with '…' to mean the characters themselves",
		"if true; then fi": "invalid arguments: the command line cannot be read: `if` must be followed by a statement list",
		"cat ../x":         "permission denied: path escapes workspace: ../x; paths are relative to the workspace",
		"uniq a b":         "permission denied: uniq with a second file would write it; give one file, and read the result from stdout",
		"no-such-program":  "not found: program no-such-program; it is not installed in a folder of the PATH (tools.shell.path)",
		"cat --sho x":      "permission denied: cat with --sho is not allowed; allowed options: -AbeEnstTuv and long ones written out in full (--show-all, …) that only read and print",
	} {
		if err := admit(made, callOf(t, folder(t), line, 0)); err == nil || err.Error() != want {
			if strings.HasPrefix(want, "invalid arguments") && kind(t, err) == toolcrib.InvalidArguments {
				continue // the parser's own words
			}
			t.Errorf("%q: %v\nwant %s", line, err, want)
		}
	}
}

func TestC12_AddedProgramIsAWrite(t *testing.T) {
	made, dir := tool(t, shell.Options{Allow: []string{"cp", "cat", "ls"}, Report: landlockOnly()}), project(t)
	call := callOf(t, dir, "cp notes.txt copy.txt && cat copy.txt", 0)
	if err := admit(made, call); err != nil {
		t.Fatal(err)
	}
	if got := effect(made, call); got != toolcrib.EffectNonIdempotentWrite {
		t.Errorf("effect %s", got)
	}
	if got := effect(made, callOf(t, dir, "cat notes.txt | ls", 0)); got != toolcrib.EffectReadOnly {
		t.Errorf("effect of judged programs %s", got)
	}
	got, err := runIn(t.Context(), t, made, call)
	if err != nil || !strings.HasPrefix(got.Stdout, "banana") {
		t.Errorf("%+v %v", got, err)
	}
	targets := tooltest.Facts(made, callOf(t, dir, "cp notes.txt src/new.txt --suffix=.mcp.json", 0)).Targets
	for _, name := range []string{"", "notes.txt", "src/new.txt", ".mcp.json"} {
		if !slices.Contains(targets, toolcrib.Target{Kind: toolcrib.TargetFile, Name: filepath.Join(dir, name), Write: true, Tree: name == ""}) {
			t.Errorf("%q is no target: %v", name, targets)
		}
	}
}

func TestTargets_OfJudgedCommands(t *testing.T) {
	made, dir := tool(t, shell.Options{}), project(t)
	if err := os.Symlink("src", filepath.Join(dir, "code")); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string][]string{
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
		for _, target := range tooltest.Facts(made, callOf(t, dir, line, 0)).Targets {
			rel, err := filepath.Rel(dir, target.Name)
			if err != nil || target.Write || target.Kind != toolcrib.TargetFile {
				t.Errorf("%q: %+v", line, target)
			}
			got = append(got, strings.TrimPrefix(rel, "."))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// A protected name is a target however plainly it is written, also in a script on the line
// and before there is such a file.
func TestTargets_ProtectedNames(t *testing.T) {
	for line, want := range map[string]string{
		"touch AGENTS.md":                          "AGENTS.md",
		"cp x agents.MD":                           "agents.MD",
		"dd of=AGENTS.md":                          "AGENTS.md",
		"sh -c 'echo x > AGENTS.md'":               "AGENTS.md",
		"sh -c \"sh -c 'cp x sub/.git/config'\"":   "sub/.git/config",
		"timeout 5 bash -ec 'true && >>AGENTS.md'": "AGENTS.md",
	} {
		for _, mode := range []shell.Mode{shell.ModeAllowlist, shell.ModeAny} {
			dir := project(t)
			made := tool(t, shell.Options{
				Mode: mode, Allow: []string{"touch", "cp", "dd", "sh", "timeout"}, Report: landlockOnly(), ProtectedNames: []string{"AGENTS.md", ".git"},
			})
			targets := tooltest.Facts(made, callOf(t, dir, line, 0)).Targets
			if !slices.Contains(targets, toolcrib.Target{Kind: toolcrib.TargetFile, Name: filepath.Join(dir, want), Write: true}) {
				t.Errorf("%s, %q: %v", mode, line, targets)
			}
		}
	}
	made, dir := tool(t, shell.Options{Mode: shell.ModeAny, Report: landlockOnly()}), project(t)
	targets := tooltest.Facts(made, callOf(t, dir, "echo x > new; sh -c 'cat notes.txt'", 0)).Targets
	for name, write := range map[string]bool{"new": true, "notes.txt": false} {
		if !slices.Contains(targets, toolcrib.Target{Kind: toolcrib.TargetFile, Name: filepath.Join(dir, name), Write: write}) {
			t.Errorf("%s: %v", name, targets)
		}
	}
}

func TestHidden_IsNeitherReadNorSearched(t *testing.T) {
	home := folder(t)
	data := filepath.Join(home, "share/toolcrib")
	write(t, filepath.Join(data, "keys"), secret)
	write(t, filepath.Join(data, "workspaces/bob/notes.txt"), "fine\n")
	write(t, filepath.Join(home, "docs/a.txt"), "text\n")
	options := shell.Options{Hidden: []string{data}, Except: []string{filepath.Join(data, "workspaces")}, Report: landlockOnly()}
	made := tool(t, options)
	for _, line := range []string{
		"cat share/toolcrib/keys", "cat share/toolcrib/*", "cat < share/toolcrib/keys", "ls share/toolcrib", "grep -r x .", "grep -r x", "find", "find . -type f",
		"find share", "ls -R", "diff -r share docs", "test -f share/toolcrib/keys", "cat docs/../share/toolcrib/keys",
	} {
		if err := admit(made, callOf(t, home, line, 0)); kind(t, err) != toolcrib.PermissionDenied {
			t.Errorf("%q: %v", line, err)
		}
	}
	for _, line := range []string{"ls", "find docs", "grep -r text docs", "cat docs/a.txt", "ls -R docs"} {
		if err := admit(made, callOf(t, home, line, 0)); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	if err := admit(made, callOf(t, data, "ls", 0)); kind(t, err) != toolcrib.PermissionDenied {
		t.Errorf("a workspace that is hidden: %v", err)
	}
	got, err := runIn(t.Context(), t, made, callOf(t, filepath.Join(data, "workspaces/bob"), "find . -type f", 0))
	if err != nil || got.Stdout != "./notes.txt\n" {
		t.Errorf("a workspace that is free again: %+v %v", got, err)
	}
}

func TestModes(t *testing.T) {
	if made, err := shell.New(shell.Options{Mode: shell.ModeOff}); made != nil || err != nil {
		t.Errorf("off: %v %v", made, err)
	}
	for _, wrong := range []shell.Options{
		{Mode: "some"},
		{Sandbox: "maybe"},
		{Allow: []string{"/bin/ls"}},
		{Allow: []string{""}},
		{Allow: []string{"a b"}},
		{Protected: []string{"relative"}},
		{Hidden: []string{"x"}},
		{Except: []string{""}},
	} {
		if _, err := shell.New(wrong); err == nil {
			t.Errorf("%+v is taken", wrong)
		}
	}
	none := tool(t, shell.Options{Allow: []string{}})
	if err := admit(none, callOf(t, folder(t), "ls", 0)); kind(t, err) != toolcrib.PermissionDenied {
		t.Errorf("an empty list: %v", err)
	}
	for _, workspace := range []string{"", "relative"} {
		if err := admit(tool(t, shell.Options{}), callOf(t, workspace, "ls", 0)); kind(t, err) != toolcrib.PermissionDenied {
			t.Errorf("workspace %q: %v", workspace, err)
		}
	}
}

func TestSandbox_RequiredRefusesWithout(t *testing.T) {
	for _, report := range []shell.Report{{Problem: "none"}, {LandlockABI: 7, Problem: "no Main"}, {Helper: true, Problem: "no kernel"}} {
		for _, mode := range []shell.Mode{shell.ModeAllowlist, shell.ModeAny} {
			required := tool(t, shell.Options{Mode: mode, Sandbox: shell.SandboxRequired, Report: &report})
			err := admit(required, callOf(t, folder(t), "ls", 0))
			if kind(t, err) != toolcrib.PermissionDenied || !strings.Contains(err.Error(), report.Problem) {
				t.Errorf("%+v: %v", report, err)
			}
			if _, err := required.Call(t.Context(), callOf(t, folder(t), "ls", 0)); kind(t, err) != toolcrib.PermissionDenied {
				t.Errorf("%+v: called: %v", report, err)
			}
			effort := tool(t, shell.Options{Mode: mode, Report: &report})
			if err := admit(effort, callOf(t, folder(t), "ls", 0)); err != nil {
				t.Errorf("%+v: best effort: %v", report, err)
			}
		}
	}
}

func TestPreview_SaysWhatHolds(t *testing.T) {
	for _, c := range []struct {
		options shell.Options
		line    string
		want    []string
	}{
		{shell.Options{}, "ls | wc -l", []string{"ls | wc -l\n", "Only reads"}},
		{shell.Options{Mode: shell.ModeAny, Report: &shell.Report{Problem: "off"}}, "ls", []string{"NO sandbox (off)"}},
		{shell.Options{Mode: shell.ModeAny, Report: &shell.Report{Helper: true, LandlockABI: 3}}, "ls", []string{"Landlock (ABI 3)", "protected files in it CAN be", "network CANNOT"}},
		{shell.Options{Mode: shell.ModeAny, Report: &shell.Report{Helper: true, LandlockABI: 5}, Network: true}, "ls", []string{"network is open"}},
		{shell.Options{Mode: shell.ModeAny, Report: &shell.Report{Helper: true, Bubblewrap: "/usr/bin/bwrap"}}, "ls", []string{"bubblewrap", "No network", "are found afterwards and reported"}},
		{shell.Options{Mode: shell.ModeAny, Sandbox: shell.SandboxRequired, Report: &shell.Report{Helper: true, Bubblewrap: "/usr/bin/bwrap"}}, "ls", []string{"are found afterwards and renamed"}},
		{shell.Options{Allow: []string{"cp"}, Report: &shell.Report{Problem: "off"}}, "cp a b", []string{"not in the built-in table", "NO sandbox"}},
	} {
		got, err := tooltest.Preview(t.Context(), tool(t, c.options), callOf(t, folder(t), c.line, 0))
		if err != nil || got.Kind != "text" {
			t.Errorf("%q: %v %v", c.line, got, err)
		}
		for _, want := range c.want {
			if !strings.Contains(got.Text, want) {
				t.Errorf("%q: %q lacks %q", c.line, got.Text, want)
			}
		}
	}
}

// That other programs may run than the sandbox can keep from protected files is said beforehand.
func TestUnprotected(t *testing.T) {
	landlock, bubblewrap := shell.Report{Helper: true, LandlockABI: 7}, shell.Report{Helper: true, LandlockABI: 7, Bubblewrap: "x"}
	plain, linked := folder(t), folder(t)
	if err := os.Symlink(plain, filepath.Join(linked, ".git")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		options shell.Options
		dir     string
		want    string
	}{
		{shell.Options{Report: &landlock}, linked, ""},
		{shell.Options{Report: &landlock, Allow: []string{"ls", "["}}, linked, ""},
		{shell.Options{Report: &landlock, Allow: []string{"ls", "make"}}, plain, "bubblewrap"},
		{shell.Options{Report: &landlock, Mode: shell.ModeAny}, plain, "bubblewrap"},
		{shell.Options{Report: &bubblewrap, Mode: shell.ModeAny}, plain, ""},
		{shell.Options{Report: &bubblewrap, Mode: shell.ModeAny}, linked, "symbolic link"},
		{shell.Options{Report: &shell.Report{}, Mode: shell.ModeAny}, plain, ""}, // there is no sandbox at all
	} {
		c.options.ProtectedNames = []string{".git"}
		if got := shell.Unprotected(tool(t, c.options), c.dir); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := shell.Unprotected(nil, plain); got != "" {
		t.Errorf("no tool: %q", got)
	}
}

// What the sandbox cannot keep a line from is asked about each time, and refused where a
// sandbox is required.
func TestAsks_WhatIsNotHeld(t *testing.T) {
	none, landlock, bubblewrap := shell.Report{Problem: "off"}, shell.Report{Helper: true, LandlockABI: 7}, shell.Report{Helper: true, Bubblewrap: "x"}
	plain, linked, hard := folder(t), folder(t), folder(t)
	write(t, filepath.Join(linked, "elsewhere/config"), "x")
	if err := os.Symlink("elsewhere", filepath.Join(linked, ".git")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(hard, ".mcp.json"), "{}")
	if err := os.Link(filepath.Join(hard, ".mcp.json"), filepath.Join(hard, "innocent")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		report    shell.Report
		mode      shell.Mode
		dir, line string
		want      string
	}{
		{none, shell.ModeAllowlist, plain, "ls", "there is no sandbox (off)"},
		{none, shell.ModeAllowlist, plain, "sh x.sh", "there is no sandbox (off)"},
		{none, shell.ModeAny, plain, "true", "there is no sandbox (off)"},
		{landlock, shell.ModeAllowlist, plain, "ls", ""},
		{landlock, shell.ModeAllowlist, plain, "sh x.sh", "it takes bubblewrap"},
		{landlock, shell.ModeAny, plain, "true", "it takes bubblewrap"},
		{bubblewrap, shell.ModeAllowlist, plain, "ls", ""},
		{bubblewrap, shell.ModeAllowlist, plain, "sh x.sh", ""},
		{bubblewrap, shell.ModeAny, plain, "true", ""},
		{bubblewrap, shell.ModeAny, linked, "true", "is a symbolic link"},
		{bubblewrap, shell.ModeAny, hard, "true", "another name (a hard link)"},
	} {
		options := shell.Options{Mode: c.mode, Report: &c.report, Allow: []string{"ls", "sh"}, ProtectedNames: []string{".git", ".mcp.json"}}
		got := asks(tool(t, options), callOf(t, c.dir, c.line, 0))
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v, %s, %q: asks %q, want %q", c.report, c.mode, c.line, got, c.want)
		}
		options.Sandbox = shell.SandboxRequired
		if err := admit(tool(t, options), callOf(t, c.dir, c.line, 0)); (err == nil) != (c.want == "") {
			t.Errorf("%+v, %s, %q: required: %v", c.report, c.mode, c.line, err)
		}
	}
}

func TestProtected_ChangesAreFound(t *testing.T) {
	report := landlockOnly()
	dir := project(t)
	write(t, filepath.Join(dir, ".git/config"), "[core]\n")
	write(t, filepath.Join(dir, "sub/.git/HEAD"), "ref\n")
	write(t, filepath.Join(dir, "toolcrib.yaml"), "listen: x\n")
	var told []string
	made := tool(t, shell.Options{
		Mode: shell.ModeAny, Report: report, ProtectedNames: []string{".git"},
		Protected:         []string{filepath.Join(dir, "toolcrib.yaml"), filepath.Join(dir, ".mcp.json")},
		OnProtectedChange: func(_ toolcrib.Call, paths, _ []string) { told = append(told, paths...) },
	})
	for line, want := range map[string]string{
		"echo fine > other.txt; cat .git/config":             "",
		"echo evil >> $(echo .git/config)":                   ".git",
		"echo {} > $(echo .mcp).json":                        ".mcp.json",
		"f=toolcrib; rm $f.yaml":                             "toolcrib.yaml",
		"d=sub; mkdir $d/.git/hooks; echo x>$d/.git/hooks/p": "sub/.git",
	} {
		told = nil
		got, err := runIn(t.Context(), t, made, callOf(t, dir, line, 0))
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		if want == "" {
			if got.Warning != "" || len(told) > 0 {
				t.Errorf("%q: %q %q", line, got.Warning, told)
			}
			continue
		}
		if !strings.Contains(got.Warning, want) || !slices.Equal(told, []string{filepath.Join(dir, want)}) {
			t.Errorf("%q: %+v, told %q", line, got, told)
		}
	}
}

func TestProtected_BubblewrapMountsReadOnly(t *testing.T) {
	report := probed()
	if report.Bubblewrap == "" {
		t.Skip("NOT TESTED: bubblewrap is not installed, or may not be used here")
	}
	dir := project(t)
	write(t, filepath.Join(dir, ".git/config"), "[core]\n")
	write(t, filepath.Join(dir, "data/keys"), secret)
	made := tool(t, shell.Options{
		Mode: shell.ModeAny, Report: &report, ProtectedNames: []string{".git"}, Hidden: []string{filepath.Join(dir, "data")},
	})
	got, err := runIn(t.Context(), t, made, callOf(t, dir, "d=git; echo evil >> .$d/config; mv .$d moved; cat d*/keys; ls d*", 0))
	if err != nil || got.Warning != "" || strings.Contains(got.Stdout, secret) || got.Stdout != "" && !strings.HasPrefix(got.Stdout, "data") {
		t.Errorf("%+v %v", got, err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, ".git/config")); err != nil || string(data) != "[core]\n" {
		t.Errorf("%q %v", data, err)
	}
}

func TestHidden_LandlockKeepsAddedProgramsOut(t *testing.T) {
	report := landlockOnly()
	if !report.Helper || report.LandlockABI == 0 {
		t.Skip("NOT TESTED: this kernel has no Landlock")
	}
	dir := project(t)
	write(t, filepath.Join(dir, "share/toolcrib/keys"), secret)
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report, Hidden: []string{filepath.Join(dir, "share/toolcrib")}})
	got, err := runIn(t.Context(), t, made, callOf(t, dir, "s=share; cat $s/toolcrib/keys $s/*/*; cp -r $s x; echo work >> notes.txt; tail -1 notes.txt", 0))
	if err != nil || strings.Contains(got.Stdout, secret) || got.Stdout != "work\n" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestC12_DeepNestingIsRefused(t *testing.T) {
	for _, mode := range []shell.Mode{shell.ModeAllowlist, shell.ModeAny} {
		made := tool(t, shell.Options{Mode: mode, Report: &shell.Report{Problem: "not run"}})
		for _, piece := range []string{"(", "$(", "`(", "{ ", "<(", "if ", "\"$(", "((", "[[ (", "a && ", "a | ", "! ", "${a:-", "case x in x) ", "f() ", "a=("} {
			if err := admit(made, callOf(t, folder(t), strings.Repeat(piece, 16000/len(piece)), 0)); err == nil {
				t.Errorf("%s: %q is admitted", mode, piece)
			}
		}
		if err := admit(made, callOf(t, folder(t), strings.Repeat("x", 16<<10+1), 0)); kind(t, err) != toolcrib.InvalidArguments {
			t.Errorf("too long: %v", err)
		}
	}
	many := tool(t, shell.Options{})
	for _, line := range []string{strings.Repeat("true;", 65), strings.Repeat("true | ", 65) + "true", "echo" + strings.Repeat(" x", 1001)} {
		if err := admit(many, callOf(t, folder(t), line, 0)); kind(t, err) != toolcrib.PermissionDenied {
			t.Errorf("%.20q…: %v", line, err)
		}
	}
}

// FuzzAdmit: judging never panics, and of what it lets through every program is an
// allowed one and no word was left for a shell to work out.
func FuzzAdmit(f *testing.F) {
	for _, c := range ordinaryLines {
		f.Add(c.line)
	}
	for _, line := range elevenPatterns {
		f.Add(line)
	}
	dir := project(f)
	for _, line := range []string{"cat ${a:-b}", "((((", "a=(1 2)", "cat <<E\nx\nE", "ls\\\n -l", "[ ! ]", "find ( )", "grep -e", "sort -k", "ls -", "ls --", "\\", "'", "a|b&&c;d", "cat \xff", "e'c'h\"o\" x"} {
		f.Add(line)
	}
	report := shell.Report{Problem: "not run"}
	made, err := shell.New(shell.Options{Report: &report})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line string) {
		data, err := json.Marshal(map[string]any{"command": line})
		if err != nil {
			t.Skip()
		}
		call := toolcrib.Call{Name: shell.Name, Arguments: data, Workspace: dir}
		if err := admit(made, call); err != nil {
			_ = kind(t, err)
			return
		}
		if got := effect(made, call); got != toolcrib.EffectReadOnly {
			t.Errorf("%q: effect %s", line, got)
		}
		for _, argv := range shell.Argvs(t, made, call) {
			if name := filepath.Base(argv[0]); !slices.Contains(append(shell.DefaultAllow(), "["), name) || argv[1] != name {
				t.Errorf("%q runs %q", line, argv)
			}
		}
		for _, target := range tooltest.Facts(made, call).Targets {
			if !strings.HasPrefix(target.Name+"/", dir+"/") || target.Write {
				t.Errorf("%q: target %+v", line, target)
			}
		}
	})
}

// Whatever the arguments of a command that is in a table, it is judged: no entry panics.
func TestC12_NoEntryPanics(t *testing.T) {
	dir := project(t)
	entries := shell.Entries()
	var made []toolcrib.Tool
	for _, mode := range []shell.Mode{shell.ModeAsk, shell.ModeAllowlist, shell.ModeAny} {
		allow := []string{}
		for name := range entries {
			if !strings.Contains(name, " ") {
				allow = append(allow, name)
			}
		}
		made = append(made, tool(t, shell.Options{Mode: mode, Allow: allow}))
	}
	words := []string{
		"", "-", "--", "---", "-=", "--=", "--=x", "-:", "-?", "-@", "-é", "--é", "-\xff", "--batch", "--batch=x", "--filters", "--help", "--help=x",
		"--version", "-5", "-Z", "--no-such", "é", "@", ":", "=", "a=b", ".", "..", "/etc/passwd", "a.txt",
	}
	one, n := rand.New(rand.NewPCG(1, 2)), 0
	judge := func(name string, args []string) {
		if n++; testing.Short() && one.IntN(8) > 0 {
			return
		}
		line := name
		for _, arg := range args {
			line += " '" + arg + "'"
		}
		call := callOf(t, dir, line, 0)
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("%q: panic: %v", line, p)
			}
		}()
		_ = kind(t, admit(made[n%len(made)], call))
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		judge(name, nil)
		for _, w := range words {
			judge(name, []string{w})
			judge(name, []string{w, w, "--", w})
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
				judge(name, args)
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
	made := tool(t, shell.Options{})
	for pattern, want := range map[string][]string{
		"?": {"a", "s"}, "??": {"??"}, "[.a]*": {"a"}, "[!a]?": {"[!a]?"}, "?*": {"a", "s"}, "***": {"a", "s"}, "*/?*": {"s/b"}, "s//?*": {"s/b"},
		".?": {".d", ".h"}, "*/.?": {"s/.k"}, ".?/*": {".d/x"}, "./?*": {"./a", "./s"}, `\?`: {"?"}, "[]": {"[]"}, "*/": {"s/"},
	} {
		if got := shell.Argvs(t, made, callOf(t, dir, "echo "+pattern, 0))[0][2:]; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
}

// Without a sandbox, who is no administrator runs what the built-in table judges and nothing else; a sandbox that holds
// programs in, or being named, lifts that.
func TestC12_Unconfined(t *testing.T) {
	dir := folder(t)
	write(t, dir+"/a.txt", "x\n")
	none, landlock := &shell.Report{Problem: "switched off"}, &shell.Report{Helper: true, LandlockABI: 1}
	named := func(who toolcrib.Principal) bool { return who.User == "ann" }
	for _, c := range []struct {
		options shell.Options
		who     toolcrib.Principal
		refused bool
	}{
		{shell.Options{Report: none}, toolcrib.Principal{}, true},
		{shell.Options{Report: none}, toolcrib.Principal{User: "ann"}, true},
		{shell.Options{Report: &shell.Report{}}, toolcrib.Principal{User: "ann"}, true},
		{shell.Options{Report: &shell.Report{LandlockABI: 7}}, toolcrib.Principal{User: "ann"}, true}, // nothing puts it to use
		{shell.Options{Report: none, Unconfined: named}, toolcrib.Principal{User: "bob"}, true},
		{shell.Options{Report: none, Unconfined: named}, toolcrib.Principal{User: "ann"}, false},
		{shell.Options{Report: none}, toolcrib.Principal{User: "boss", Admin: true}, false},
		{shell.Options{Report: landlock}, toolcrib.Principal{User: "ann"}, false},
		{shell.Options{Report: none, Elsewhere: true}, toolcrib.Principal{User: "ann"}, false}, // it runs on another machine
	} {
		for _, mode := range []shell.Mode{shell.ModeAsk, shell.ModeAllowlist, shell.ModeAny} {
			c.options.Mode, c.options.Allow = mode, []string{"cat", "printenv"} // one of the table, one that was added
			made, err := shell.New(c.options)
			if err != nil {
				t.Fatal(err)
			}
			lines := map[string]bool{"printenv": c.refused, "cat a.txt": c.refused && mode == shell.ModeAny}
			if mode == shell.ModeAsk {
				lines["id"], lines["cat a.txt > b"] = c.refused, c.refused
			}
			for line, want := range lines {
				call := callOf(t, dir, line, 0)
				call.Principal = c.who
				err := admit(made, call)
				var told *toolcrib.ToolError
				if got := errors.As(err, &told); got != want || got && !strings.Contains(told.Hint, "tools.shell.unconfined") {
					t.Errorf("%+v %+v %s: %v", c.options.Report, c.who, line, err)
				}
				if _, err := made.Call(t.Context(), call); want && !errors.As(err, &told) {
					t.Errorf("%s ran: %v", line, err)
				}
			}
		}
	}
}

// What was judged is what runs: a workspace, a file that the line names, or a repository that has
// changed since is not touched. What has not changed runs.
func TestPlan_ChangedSinceItWasJudged(t *testing.T) {
	for name, c := range map[string]struct {
		line   string
		change func(t *testing.T, dir string)
		want   string // the refusal; "" means that it runs
	}{
		"as it was":     {"cat notes.txt", func(*testing.T, string) {}, ""},
		"a new file":    {"cat notes.txt", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "more.txt"), "x") }, ""},
		"other content": {"cat notes.txt", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "notes.txt"), "new") }, ""},
		"a link, to a file outside": {"cat later", func(t *testing.T, dir string) {
			if err := os.Symlink("/etc/passwd", filepath.Join(dir, "later")); err != nil {
				t.Fatal(err)
			}
		}, "later was changed"},
		"a folder that leads elsewhere": {"cat src/main.go", func(t *testing.T, dir string) {
			err := errors.Join(os.Rename(filepath.Join(dir, "src"), filepath.Join(dir, "was")), os.Symlink("was", filepath.Join(dir, "src")))
			if err != nil {
				t.Fatal(err)
			}
		}, "src/main.go was changed"},
		"another workspace": {"cat notes.txt", func(t *testing.T, dir string) {
			if err := errors.Join(os.Rename(dir, dir+".was"), os.Mkdir(dir, 0o700)); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "notes.txt"), "of others")
		}, "the workspace was changed"},
		"a repository that starts programs": {"git status", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, ".git", "config"), "[core]\n\tfsmonitor = ./evil\n[diff \"x\"]\n\ttextconv = ./evil\n")
		}, "the configuration of the repository was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			write(t, filepath.Join(dir, "notes.txt"), "notes")
			write(t, filepath.Join(dir, "src", "main.go"), "package main")
			write(t, filepath.Join(dir, ".git", "config"), "[core]\n\tbare = false\n")
			call := callOf(t, dir, c.line, 0)
			plan, err := tooltest.Plan(t.Context(), tool(t, shell.Options{Mode: shell.ModeAsk}), call)
			if err != nil {
				t.Fatal(err)
			}
			c.change(t, dir)
			_, err = plan.Run(t.Context(), call.WithoutArguments())
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
