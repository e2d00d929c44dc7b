package shell_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// Each mode judges lines by its own rules.
func TestModes_Judge(t *testing.T) {
	dir := project(t)
	r := shell.Report{Helper: true, LandlockABI: 7, Bubblewrap: "x"}
	for _, c := range []struct {
		mode         shell.Mode
		line         string
		refused, ask string
		effect       toolcrib.Effect
	}{
		{shell.ModeAllowlist, "cat notes.txt", "", "", toolcrib.EffectReadOnly},
		{shell.ModeAllowlist, "touch AGENTS.md", "permission denied: touch is not an allowed program; allowed are cat, ls, no-such-program", "", toolcrib.EffectNonIdempotentWrite},
		{shell.ModeAllowlist, "git status", "permission denied: git is not an allowed program", "", toolcrib.EffectNonIdempotentWrite},
		{shell.ModeAllowlist, "no-such-program", "not found: program no-such-program; it is not installed in a folder of the PATH (tools.shell.path)", "", toolcrib.EffectNonIdempotentWrite},
		{shell.ModeAllowlist, "rm -rf /", `permission denied: "rm -rf /" is never allowed`, "", toolcrib.EffectNonIdempotentWrite},
		{shell.ModeAsk, "cat notes.txt", "", "", toolcrib.EffectReadOnly},
		{shell.ModeAsk, "touch AGENTS.md", "", "runs what tools.shell.allow does not list: touch", toolcrib.EffectNonIdempotentWrite},
		{shell.ModeAsk, "rm -rf /", `permission denied: "rm -rf /" is never allowed`, "", toolcrib.EffectNonIdempotentWrite},
		{shell.ModeAny, "cat notes.txt", "", "", toolcrib.EffectNonIdempotentWrite},
		{shell.ModeAny, "touch AGENTS.md", "", "", toolcrib.EffectNonIdempotentWrite},
		{shell.ModeAny, "rm -rf /", `permission denied: "rm -rf /" is never allowed`, "", toolcrib.EffectNonIdempotentWrite},
		{shell.ModeAny, strings.Repeat("x", 16<<10+1), "invalid arguments: command is longer than 16384 bytes", "", toolcrib.EffectNonIdempotentWrite},
	} {
		made := tool(t, shell.Options{
			Mode: c.mode, Allow: []string{"cat", "ls", "no-such-program"}, Report: &r, ProtectedNames: []string{"AGENTS.md"},
		})
		call := callOf(t, dir, c.line, 0)
		err := admit(made, call)
		if (err == nil) != (c.refused == "") || err != nil && !strings.HasPrefix(err.Error(), c.refused) {
			t.Errorf("%s: %.40s: %v", c.mode, c.line, err)
		}
		if got := asks(made, call); got != c.ask || effect(made, call) != c.effect {
			t.Errorf("%s: %.40s: asks %q, %s", c.mode, c.line, got, effect(made, call))
		}
		named := toolcrib.Target{Kind: toolcrib.TargetFile, Name: filepath.Join(dir, "AGENTS.md"), Write: true}
		if c.refused == "" && strings.HasPrefix(c.line, "touch") && !slices.Contains(tooltest.Facts(made, call).Targets, named) {
			t.Errorf("%s: %s: targets %v", c.mode, c.line, tooltest.Facts(made, call).Targets)
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
		{shell.Options{Mode: shell.ModeAny, Report: &shell.Report{Helper: true, LandlockABI: 5}, Network: shell.Network{Hosts: []string{"*"}}}, "ls", []string{"No network"}},
		{shell.Options{Mode: shell.ModeAny, Report: &shell.Report{Helper: true, Bubblewrap: "/usr/bin/bwrap"}, Network: shell.Network{Hosts: []string{"a.test", "*.b.test"}}}, "ls", []string{"Network: only a.test, *.b.test, through a proxy"}},
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
