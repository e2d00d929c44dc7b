package shell_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// withBubblewrap skips the test without bubblewrap.
func withBubblewrap(t *testing.T) *shell.Report {
	t.Helper()
	r := probed()
	if r.Bubblewrap == "" {
		t.Skip("NOT TESTED: bubblewrap is not installed, or may not be used here")
	}
	return &r
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// Whatever a line does, with bubblewrap it can neither write what is protected nor make
// it where it is not, and nothing is left of what keeps it from that.
func TestProtected_IsHeld(t *testing.T) {
	t.Parallel()
	onWalls(t, isHeld)
}

func isHeld(t *testing.T, report *shell.Report) {
	if report.Bubblewrap == "" {
		t.Skip("only bubblewrap holds what is protected")
	}
	dir := folder(t)
	write(t, filepath.Join(dir, ".git/hooks/pre-commit"), "mine")
	write(t, filepath.Join(dir, ".git/config"), "mine")
	write(t, filepath.Join(dir, "a/b/.idea/x.xml"), "mine")
	write(t, filepath.Join(dir, "conf/deep/tool.yaml"), "mine")
	write(t, filepath.Join(dir, "conf/other"), "x")
	write(t, filepath.Join(dir, "zz/.mcp.json"), "mine")
	before, listed := state(t, dir, false), names(t, dir)
	var told []string
	options := shell.Options{
		Mode: shell.ModeAny, Report: report, ProtectedNames: []string{".git", ".mcp.json", ".vscode", ".idea", "toolcrib.yaml"},
		Protected:         []string{filepath.Join(dir, "conf/deep/tool.yaml"), filepath.Join(dir, "new/skills"), filepath.Join(dir, "skills")},
		OnProtectedChange: func(_ toolcrib.Call, paths, _ []string) { told = append(told, paths...) },
	}
	made := tool(t, options)
	if why := asks(made, callOf(t, dir, "true", 0)); why != "" {
		t.Errorf("asks: %s", why)
	}
	for _, line := range []string{
		"echo x > .git/hooks/pre-commit", "echo x > .git/hooks/post-commit", "rm -r .git", "mv .git g", "chmod 777 .git/config",
		"echo x > .mcp.json", "mkdir .vscode && echo x > .vscode/tasks.json", "echo x > .vscode/tasks.json", "rmdir .vscode && mkdir .vscode",
		"mv .vscode v", "echo x > toolcrib.yaml", "ln -s /etc/passwd toolcrib.yaml", "echo x > t; mv t toolcrib.yaml", "ln t toolcrib.yaml; false",
		"echo x > zz/.mcp.json", "mv zz z2", "mv a a2", "mv a/b a/c", "rm -r a/b/.idea", "echo x > conf/deep/tool.yaml", "mv conf c2", "mv conf/deep c2",
		"mkdir -p new/skills/x", "mkdir new", "mkdir skills", "touch skills/x",
		"perl -e 'for (qw(.vscode .mcp.json skills)) { chmod 0777, $_ and mkdir \"$_/x\" and exit 0 } exit 1'",
	} {
		call := callOf(t, dir, "rm -f t; "+line, 20)
		if admit(made, call) != nil {
			continue
		}
		got, err := runIn(t.Context(), t, made, call)
		if err != nil || got.ExitCode == 0 || got.Warning != "" {
			t.Errorf("%q: %+v %v", line, got, err)
		}
		for _, copied := range []string{"t", "c2"} { // of what cannot be renamed mv makes a copy first
			_ = os.RemoveAll(filepath.Join(dir, copied))
		}
		if now := names(t, dir); !slices.Equal(now, listed) {
			t.Fatalf("%q: the workspace has %q", line, now)
		}
	}
	// The times of folders in which a stand-in was are others.
	strip := func(s string) string {
		var b strings.Builder
		for line := range strings.Lines(s) {
			if !strings.HasPrefix(line, dir+" ") {
				b.WriteString(line)
			}
		}
		return b.String()
	}
	if now := state(t, dir, false); strip(now) != strip(before) {
		t.Error("something protected was changed")
	}
	if len(told) > 0 {
		t.Errorf("told of %q", told)
	}
	got, err := runIn(t.Context(), t, made, callOf(t, dir, "echo 1 > conf/other && echo 2 > conf/deep/n && echo 3 > new.txt && rm conf/deep/n new.txt && mkdir a/n && rmdir a/n", 20))
	if err != nil || got.ExitCode != 0 {
		t.Errorf("ordinary work: %+v %v", got, err)
	}
}

// However many files there are: what is directly in the workspace is looked up always,
// and that the rest was not all looked at is asked about, and said.
func TestProtected_AmongManyFiles(t *testing.T) {
	onWalls(t, func(t *testing.T, report *shell.Report) {
		dir := folder(t)
		for i := range 120 {
			write(t, filepath.Join(dir, fmt.Sprintf("many/%d", i)), "")
		}
		write(t, filepath.Join(dir, "zz/.mcp.json"), "mine")
		var told []string
		made := tool(t, shell.Options{
			Mode: shell.ModeAny, Report: report, ProtectedNames: []string{".mcp.json", ".zz"},
			OnProtectedChange: func(_ toolcrib.Call, paths, _ []string) { told = append(told, paths...) },
		})
		shell.Visit(made, 100)
		call := callOf(t, dir, "echo x > $(echo .zz); echo x > $(echo .mcp.json); true", 20)
		if why := asks(made, call); why == "" || report.Bubblewrap != "" && !strings.Contains(why, "more than 100 files") {
			t.Errorf("asks %q", why)
		}
		got, err := runIn(t.Context(), t, made, call)
		if err != nil || !strings.Contains(got.Warning, "is not known for all of it: the workspace has more than 100 files") {
			t.Errorf("%+v %v", got, err)
		}
		want := []string{filepath.Join(dir, ".mcp.json"), filepath.Join(dir, ".zz")}
		if report.Bubblewrap != "" {
			want = nil
		}
		if !slices.Equal(told, want) {
			t.Errorf("told of %q, want %q", told, want)
		}
	})
}

// Deeper down a new one can be made: it is found, and told.
func TestProtected_NewOnesBelowAreFound(t *testing.T) {
	onWalls(t, func(t *testing.T, report *shell.Report) {
		dir := folder(t)
		var told []string
		made := tool(t, shell.Options{
			Mode: shell.ModeAny, Report: report, ProtectedNames: []string{".git"},
			OnProtectedChange: func(_ toolcrib.Call, paths, _ []string) { told = append(told, paths...) },
		})
		got, err := runIn(t.Context(), t, made, callOf(t, dir, "mkdir -p x/.git/hooks; echo x > x/.git/hooks/pre-commit", 20))
		if err != nil || !slices.Equal(told, []string{filepath.Join(dir, "x/.git")}) || !strings.Contains(got.Warning, "x/.git") {
			t.Errorf("told %q, %+v %v", told, got, err)
		}
	})
}

// Where the copy cannot mount after all, nothing is run, and nothing is left of what was made for it.
func TestProtected_NotMounted(t *testing.T) {
	report := withBubblewrap(t)
	if !report.Mounts {
		t.Skip("NOT TESTED: the copy may not mount here")
	}
	script := filepath.Join(t.TempDir(), "bwrap")
	text := "#!/bin/bash\nexec " + report.Bubblewrap + " \"${@/#--cap-add/--cap-drop}\"\n"
	write(t, script, text)
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	report.Bubblewrap = script
	dir := folder(t)
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report, ProtectedNames: []string{".vscode"}})
	got, err := runIn(t.Context(), t, made, callOf(t, dir, "echo x > ran", 20))
	if err == nil || !strings.Contains(err.Error(), "nothing was run") {
		t.Errorf("%+v %v", got, err)
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// What a killed process left behind is no file, and goes with the next call.
func TestProtected_LeftBehind(t *testing.T) {
	report := withBubblewrap(t)
	dir := folder(t)
	if err := os.Mkdir(filepath.Join(dir, ".vscode"), 0o555); err != nil {
		t.Fatal(err)
	}
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report, ProtectedNames: []string{".vscode"}})
	got, err := runIn(t.Context(), t, made, callOf(t, dir, "echo x > .vscode/tasks.json", 20))
	if err != nil || got.ExitCode == 0 || got.Warning != "" {
		t.Errorf("%+v %v", got, err)
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Go is told not to ask git about a stand-in.
func TestProtected_TellsGo(t *testing.T) {
	report, dir := withBubblewrap(t), folder(t)
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report, ProtectedNames: []string{".git"}})
	for _, want := range []string{"-buildvcs=false\n", "\n"} {
		if got, err := runIn(t.Context(), t, made, callOf(t, dir, "echo $GOFLAGS", 20)); err != nil || got.Stdout != want {
			t.Errorf("%+v %v, want %q", got, err, want)
		}
		write(t, filepath.Join(dir, ".git/config"), "")
	}
}

// Nothing of it is in the workspace when the command has ended, whatever else is cleared away later.
func TestProtected_NothingIsLeftForTheNextCall(t *testing.T) {
	dir := folder(t)
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: withBubblewrap(t), ProtectedNames: []string{".vscode"}})
	var later []func(context.Context)
	call := callOf(t, dir, "ls -A", 20)
	call.Behind = func(work func(context.Context)) bool {
		later = append(later, work)
		return true
	}
	if got, err := runIn(t.Context(), t, made, call); err != nil || got.Stdout != ".vscode\n" {
		t.Errorf("%+v %v", got, err)
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, work := range later {
		work(ended)
	}
}

// What is protected is looked at when another process, whose command ends, does not remove stand-ins.
func TestProtected_AnotherEnds(t *testing.T) {
	dir := folder(t)
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: withBubblewrap(t), ProtectedNames: []string{".git"}})
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	waits := regexp.MustCompile(fmt.Sprintf(`(?m)-> FLOCK .*:%d `, info.Sys().(*syscall.Stat_t).Ino))
	lock, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ended := make(chan output)
	go func() {
		got, err := runIn(t.Context(), t, made, alone(callOf(t, dir, "echo $GOFLAGS", 20))) // says whether there was a .git
		if err != nil {
			t.Error(err)
		}
		ended <- got
	}()
	for locks := []byte(nil); !waits.Match(locks) && err == nil; locks, err = os.ReadFile("/proc/locks") {
	}
	write(t, filepath.Join(dir, ".git/config"), "")
	_ = lock.Close()
	if got := <-ended; err != nil || got.Stdout != "\n" {
		t.Errorf("%+v %v", got, err)
	}
}

// Two jobs in one workspace: the first to end does not open up what the other is kept from.
func TestProtected_TwoJobs(t *testing.T) {
	report := withBubblewrap(t)
	dir := folder(t)
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report, ProtectedNames: []string{".vscode"}})
	ended := make(chan output)
	go func() {
		got, err := runIn(t.Context(), t, made, alone(callOf(t, dir, "echo > started; until [ -e go ]; do sleep 0.01; done; "+
			"mkdir .vscode; echo x > .vscode/tasks.json", 50)))
		if err != nil {
			t.Error(err)
		}
		ended <- got
	}()
	waitFor(t, filepath.Join(dir, "started"))
	if got, err := runIn(t.Context(), t, made, alone(callOf(t, dir, "true", 20))); err != nil || got.ExitCode != 0 {
		t.Errorf("%+v %v", got, err)
	}
	write(t, filepath.Join(dir, "go"), "")
	if got := <-ended; got.ExitCode == 0 || got.Warning != "" {
		t.Errorf("%+v", got)
	}
	if left := names(t, dir); !slices.Equal(left, []string{"go", "started"}) {
		t.Errorf("left: %q", left)
	}
}

// The last of several commands leaves nothing behind, also where a path of several parts is protected, and
// neither does the next start after one that was killed.
func TestProtected_LastOneOut(t *testing.T) {
	report := withBubblewrap(t)
	dir := folder(t)
	set := shell.Options{
		Mode: shell.ModeAny, Report: report, ProtectedNames: []string{".git", ".agents", ".vscode"},
		Protected: []string{dir + "/.agents/skills", dir + "/.claude/skills"},
	}
	done := make(chan error)
	wait := func(name string) {
		_, err := runIn(t.Context(), t, tool(t, set), alone(callOf(t, dir, "echo > "+name+"; until [ -e go ]; do sleep 0.01; done", 50)))
		done <- err
	}
	for _, name := range []string{"one", "two", "three"} {
		go wait(name)
		waitFor(t, filepath.Join(dir, name))
	}
	shell.Tidy(dir, set.Protected, set.ProtectedNames)
	if left := names(t, dir); !slices.Contains(left, ".git") || !slices.Contains(left, ".claude") {
		t.Errorf("removed while commands run: %q", left)
	}
	write(t, filepath.Join(dir, "go"), "")
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	want := []string{"go", "one", "three", "two"}
	if left := names(t, dir); !slices.Equal(left, want) {
		t.Errorf("left: %q", left)
	}
	for _, name := range []string{".git", ".agents", ".agents/skills", ".claude"} { // as a killed process leaves them
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".git", ".agents/skills", ".agents", ".claude"} {
		if err := os.Chmod(filepath.Join(dir, name), 0o555); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, ".vscode/settings.json"), "{}")
	shell.Tidy(dir, set.Protected, set.ProtectedNames)
	if left := names(t, dir); !slices.Equal(left, append([]string{".vscode"}, want...)) {
		t.Errorf("left after the next start: %q", left)
	}
}

// What cannot be kept from being made is found, whatever is done to hide it, and gets
// another name: a text directly in the workspace always, anything anywhere where a sandbox
// is required.
func TestProtected_SetAside(t *testing.T) {
	t.Parallel()
	report := withBubblewrap(t)
	for _, c := range []struct {
		line     string
		required bool
		changed  []string // reported, and left
		aside    []string // without what is added to their names
	}{
		{line: "echo x > $(echo AGENTS).md", aside: []string{"AGENTS.md"}},
		{line: "echo x > agents.MD", aside: []string{"agents.MD"}},
		{line: "mkdir -p $(echo AGENTS).md/in", aside: []string{"AGENTS.md"}},
		{line: "echo x > sub/$(echo AGENTS).md", changed: []string{"sub/AGENTS.md"}},
		{line: "mkdir -p x/.git/hooks", changed: []string{"x/.git"}},
		{line: "echo x > sub/$(echo AGENTS).md", required: true, aside: []string{"sub/AGENTS.md"}},
		{line: "mkdir -p x/.git/hooks; echo x > x/.git/hooks/pre-commit", required: true, aside: []string{"x/.git"}},
		{line: "mkdir -p x/.Git/y/.vscode/AGENTS.md z/.vscode", required: true, aside: []string{"x/.Git", "z/.vscode"}},
		{line: "ln -s /etc sub/.vscode; ln -s nowhere sub/.git", required: true, aside: []string{"sub/.git", "sub/.vscode"}},
		{line: "mkdir -p x/y; echo x > x/y/.git; chmod 0 x/y; chmod 100 x", required: true, aside: []string{"x/y/.git"}},
		{line: "mkdir -p x/.git/.vscode; chmod 0 x/.git/.vscode x/.git; chmod 500 x", required: true, aside: []string{"x/.git"}},
		{line: "mkdir many && cd many && touch $(seq 300) && mkdir zz && touch zz/AGENTS.md", required: true, aside: []string{"many/zz/AGENTS.md"}},
		{line: "rm CLAUDE.md; echo x > CLAUDE.md", aside: []string{"CLAUDE.md"}},
		{line: "ln -sf sub/other CLAUDE.md", aside: []string{"CLAUDE.md"}},
		{line: "mv CLAUDE.md sub/gone", aside: []string{"CLAUDE.md"}},
		{line: "echo x > CLAUDE.md; echo x > sub/deep/AGENTS.md; mv sub/deep sub/d2; true"},
	} {
		dir := folder(t)
		write(t, filepath.Join(dir, "sub/deep/AGENTS.md"), "mine")
		write(t, filepath.Join(dir, "sub/other"), "")
		t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+rwx", dir).Run() })
		if err := os.Symlink("sub/deep/AGENTS.md", filepath.Join(dir, "CLAUDE.md")); err != nil {
			t.Fatal(err)
		}
		var changed, aside []string
		options := shell.Options{
			Allow: []string{"sh"}, Report: report, ProtectedNames: []string{".git", ".vscode", "AGENTS.md", "CLAUDE.md"},
			OnProtectedChange: func(_ toolcrib.Call, c, a []string) { changed, aside = c, a },
		}
		if c.required {
			options.Sandbox = shell.SandboxRequired
		}
		made := tool(t, options)
		shell.Visit(made, 200)
		write(t, filepath.Join(dir, "x.sh"), c.line)
		call := callOf(t, dir, "sh x.sh", 20)
		if why := asks(made, call); why != "" {
			t.Errorf("%q: asks %s", c.line, why)
		}
		got, err := runIn(t.Context(), t, made, call)
		if err != nil || (got.Warning == "") != (len(c.changed)+len(c.aside) == 0) {
			t.Errorf("%q: %+v %v", c.line, got, err)
		}
		for i, path := range changed {
			changed[i], _ = filepath.Rel(dir, path)
		}
		for i, path := range aside {
			name, _ := filepath.Rel(dir, path)
			if !strings.Contains(got.Warning, name) {
				t.Errorf("%q: %s is not named: %s", c.line, name, got.Warning)
			}
			aside[i], _, _ = strings.Cut(name, ".set-aside-")
			if _, err := os.Lstat(path); err != nil && aside[i] != "CLAUDE.md" {
				t.Errorf("%q: not kept: %v", c.line, err)
			}
		}
		if !slices.Equal(changed, c.changed) || !slices.Equal(aside, c.aside) {
			t.Errorf("%q: changed %q, set aside %q", c.line, changed, aside)
		}
		if link, err := os.Readlink(filepath.Join(dir, "CLAUDE.md")); err != nil || link != "sub/deep/AGENTS.md" {
			t.Errorf("%q: CLAUDE.md is %q %v", c.line, link, err)
		}
		if !c.required {
			continue
		}
		_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			name := strings.ToLower(filepath.Base(path))
			if err != nil || slices.Contains(options.ProtectedNames, name) || name == "agents.md" && filepath.Dir(path) != filepath.Join(dir, "sub/deep") {
				t.Errorf("%q: left: %s %v", c.line, path, err)
			}
			return nil
		})
	}
}

// What is protected outside of the workspace can be written through a hard link in it only, and that is found.
func TestProtected_LinkedFromTheWorkspace(t *testing.T) {
	top, report := folder(t), withBubblewrap(t)
	dir, outside := filepath.Join(top, "work"), filepath.Join(top, "outside")
	write(t, filepath.Join(dir, "x"), "")
	write(t, filepath.Join(outside, "linked"), "mine")
	write(t, filepath.Join(outside, "other"), "mine")
	if err := os.Link(filepath.Join(outside, "linked"), filepath.Join(dir, "innocent")); err != nil {
		t.Fatal(err)
	}
	var told []string
	made := tool(t, shell.Options{
		Mode: shell.ModeAny, Report: report, Protected: []string{outside},
		OnProtectedChange: func(_ toolcrib.Call, paths, _ []string) { told = append(told, paths...) },
	})
	line := "echo x > ../outside/other; cat innocent; echo x > innocent"
	got, err := runIn(t.Context(), t, made, callOf(t, dir, line, 20))
	if err != nil || got.Stdout != "mine" || !slices.Equal(told, []string{outside}) {
		t.Errorf("%+v %v, reported %q", got, err, told)
	}
}
