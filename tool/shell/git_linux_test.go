package shell_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// repository is a work tree with one commit.
func repository(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("SKIPPED: git is not installed")
	}
	dir := folder(t)
	write(t, dir+"/a.txt", "one\n")
	write(t, dir+"/AGENTS.md", "notes\n")
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "add", "a.txt")
	git(t, dir, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "-m", "first")
	return dir
}

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir + "/nowhere"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func gitTool(t testing.TB, mode shell.Mode, report *shell.Report, allow ...string) toolcrib.Tool {
	t.Helper()
	home := folder(t)
	write(t, home+"/.gitconfig", "[user]\n\tname = Ann \\\"A\\\" Bee\n\temail = ann@example.org\n[core]\n\teditor = evil\n")
	t.Setenv("HOME", home)
	return tool(t, shell.Options{
		Mode: mode, Allow: append([]string{"cat", "echo"}, allow...), Report: report, Home: home, ProtectedNames: []string{".git", "AGENTS.md"},
	})
}

// The configuration of the repository is read whole, wherever git may find settings; if that is not possible, a person
// is asked.
func TestGit_ConfigurationIsRead(t *testing.T) {
	r := shell.Report{Helper: true, LandlockABI: 7, Bubblewrap: "x"}
	file := func(name, text string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { write(t, filepath.Join(dir, name), text) }
	}
	for want, change := range map[string]func(t *testing.T, dir string){
		"":                            func(*testing.T, string) {},
		"alias.st":                    file(".git/config", "[alias]\n\tst = !evil\n"),
		"diff.external":               file(".git/config.worktree", "[diff]\n\texternal = evil\n"),
		".git/config cannot be read":  file(".git/config", strings.Repeat("# long\n", 60_000)),
		".git/config.worktree cannot": file(".git/config.worktree/x", ""),
		".gitmodules":                 file(".gitmodules", ""),
		".git/modules":                file(".git/modules/x", ""),
		".git/commondir":              file(".git/commondir", "../real\n"),
		"\".git is not a folder\"": func(t *testing.T, dir string) {
			if err := os.Rename(dir+"/.git", dir+"/elsewhere"); err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/.git", "gitdir: elsewhere\n")
		},
	} {
		dir := repository(t)
		change(t, dir)
		for _, mode := range []shell.Mode{shell.ModeAsk, shell.ModeAny} {
			made, call := gitTool(t, mode, &r), callOf(t, dir, "git status", 0)
			if got := asks(made, call); (got == "") != (want == "") || !strings.Contains(got, want) ||
				want != "" && effect(made, call) != toolcrib.EffectNonIdempotentWrite {
				t.Errorf("%s: asks %q, want %q, %s", mode, got, want, effect(made, call))
			}
		}
	}
}

// What a partial clone lacks is not fetched by a call that only reads: it would start the
// program of the remote's address, or ask another machine, unasked.
func TestGit_PartialClone(t *testing.T) {
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		dir := repository(t)
		up := dir + "/up.git"
		git(t, dir, "clone", "-q", "--bare", dir, up)
		git(t, up, "config", "uploadpack.allowFilter", "true")
		git(t, dir, "clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+up, dir+"/part")
		made := gitTool(t, shell.ModeAsk, report)
		call := callOf(t, dir+"/part", "git show HEAD:a.txt", 60)
		if asks(made, call) != "" || effect(made, call) != toolcrib.EffectReadOnly {
			t.Fatalf("asks %q, %s", asks(made, call), effect(made, call))
		}
		got, err := runIn(t.Context(), t, made, call)
		if err != nil || got.ExitCode == 0 || !strings.Contains(got.Stderr, "transport 'file' not allowed") {
			t.Errorf("%+v %v", got, err)
		}
	})
}

// An approved call of git writes the repository, as the user, without hooks, and never what
// steers git.
func TestGit_Writes(t *testing.T) {
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		dir := repository(t)
		made := gitTool(t, shell.ModeAsk, report)
		for _, hook := range []string{"pre-commit", "post-commit", "post-index-change", "reference-transaction"} {
			write(t, dir+"/.git/hooks/"+hook, "#!/bin/sh\ntouch "+dir+"/hook-ran\n")
			if err := os.Chmod(dir+"/.git/hooks/"+hook, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		git(t, dir, "config", "core.fsmonitor", "touch "+dir+"/monitor-ran; false")
		in := func(line string) string {
			got, err := runIn(t.Context(), t, made, writing(t, dir, line, 60))
			if err != nil || got.Warning != "" && report.Bubblewrap != "" {
				t.Errorf("%s: %+v %v", line, got, err)
			}
			return got.Stdout + got.Stderr
		}
		in("git status")
		in("git add AGENTS.md a.txt && git commit -q -m second")
		in("cd . && git tag v1 && git commit -q --allow-empty -m \"$(cat <<'E'\nthird\nE\n)\"")
		if got := git(t, dir, "log", "--format=%an <%ae> %s", "--no-show-signature", "-2"); got !=
			"Ann \"A\" Bee <ann@example.org> third\nAnn \"A\" Bee <ann@example.org> second\n" {
			t.Errorf("the log: %s", got)
		}
		if got := in("git log --oneline | cat"); !strings.Contains(got, "third") {
			t.Errorf("git log: %s", got)
		}
		for _, name := range []string{"hook-ran", "monitor-ran"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				t.Errorf("%s", name)
			}
		}
		if report.Bubblewrap == "" {
			return // what is changed is found afterwards
		}
		config, err := os.ReadFile(dir + "/.git/config")
		if err != nil {
			t.Fatal(err)
		}
		in("git config core.sshCommand evil")
		in("git config --file .git/hooks/x a.b c")
		in("git config --file .git/info/x a.b c")
		in("echo x; touch .git/refs/heads/made; echo evil > .git/HEAD") // not git's work
		for path, want := range map[string]string{".git/config": string(config), ".git/HEAD": "ref: refs/heads/main\n"} {
			if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != want {
				t.Errorf("%s: %q %v", path, got, err)
			}
		}
		for _, path := range []string{".git/hooks/x", ".git/info/x", ".git/refs/heads/made"} {
			if _, err := os.Lstat(filepath.Join(dir, path)); err == nil {
				t.Errorf("%s was made", path)
			}
		}
	})
}

// Whatever a repository that somebody else made names as programs, a call that runs unasked starts
// none of them: the real git shows it.
func TestGit_HostileRepositories(t *testing.T) {
	config := func(lines ...string) func(t *testing.T, dir, evil string) {
		return func(t *testing.T, dir, evil string) {
			f, err := os.OpenFile(dir+"/.git/config", os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(strings.ReplaceAll(strings.Join(lines, "\n"), "EVIL", evil) + "\n")
			}
			if err != nil || f.Close() != nil {
				t.Fatal(err)
			}
		}
	}
	// nested puts a repository into the other one, as a submodule that no .gitmodules names, whose own
	// configuration names programs everywhere.
	nested := func(outer ...string) func(t *testing.T, dir, evil string) {
		return func(t *testing.T, dir, evil string) {
			sub := repository(t)
			git(t, dir, "clone", "-q", sub, dir+"/sub")
			git(t, dir, "add", "sub")
			git(t, dir, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "-m", "nested")
			write(t, dir+"/sub/a.txt", "two\n")
			git(t, dir+"/sub", "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-q", "-a", "-m", "moved")
			write(t, dir+"/sub/a.txt", "three\n")
			write(t, dir+"/sub/.git/info/attributes", "* diff=x filter=x\n")
			config("[core]", "fsmonitor = EVIL", "[diff]", "external = EVIL", "[diff \"x\"]", "textconv = EVIL", "command = EVIL",
				"[filter \"x\"]", "clean = EVIL", "process = EVIL")(t, dir+"/sub", evil)
			config(outer...)(t, dir, evil)
		}
	}
	setups := map[string]func(t *testing.T, dir, evil string){
		"fsmonitor":      config("[core]", "fsmonitor = EVIL"),
		"hooks":          config("[core]", "hooksPath = hooks"),
		"external diff":  config("[diff]", "external = EVIL"),
		"textconv":       config("[diff \"x\"]", "textconv = EVIL", "command = EVIL"),
		"filter":         config("[filter \"x\"]", "clean = EVIL", "process = EVIL", "smudge = EVIL", "required"),
		"alias":          config("[alias]", "status = !EVIL", "st = !EVIL", "log = !EVIL"),
		"pager":          config("[core]", "pager = EVIL", "[pager]", "log = EVIL", "status = EVIL"),
		"include":        config("[include]", "path = ../evil.config"),
		"include if":     config("[includeIf \"gitdir:**\"]", "path = ../evil.config"),
		"quoted key":     config("[\"diff\"]", "external = EVIL"),
		"two on a line":  config("[diff] external = EVIL"),
		"joined lines":   config("[diff]", "exter\\", "nal = EVIL"),
		"gpg":            config("[log]", "showSignature = true", "[gpg]", "program = EVIL"),
		"signed commits": config("[commit]", "gpgsign = true", "[gpg \"ssh\"]", "program = EVIL"),
		"ext remote":     config("[remote \"origin\"]", "url = \"ext:\"\":EVIL\"", "promisor = true", "[protocol]", "allow = always"),
		"ext address":    config("[url \"ext::EVIL \"]", "insteadOf = https://", "[protocol \"ext\"]", "allow = always"),
		"ssh command":    config("[core]", "sshCommand = EVIL"),
		"config.worktree": func(t *testing.T, dir, evil string) {
			config("[extensions]", "worktreeConfig = true")(t, dir, evil)
			write(t, dir+"/.git/config.worktree", "[diff]\n\texternal = "+evil+"\n[core]\n\tfsmonitor = "+evil+"\n")
		},
		"nested":         nested(),
		"nested diff":    nested("[diff]", "submodule = diff"),
		"nested log":     nested("[diff]", "submodule = log"),
		"nested summary": nested("[status]", "submoduleSummary = true"),
		"nested recurse": nested("[submodule]", "recurse = true"),
		"nested ignore":  nested("[submodule \"sub\"]", "ignore = none", "active = true"),
		"gitdir file": func(t *testing.T, dir, evil string) {
			config("[diff]", "external = EVIL", "[core]", "fsmonitor = EVIL")(t, dir, evil)
			if err := os.Rename(dir+"/.git", dir+"/real"); err != nil {
				t.Fatal(err)
			}
			write(t, dir+"/.git", "gitdir: real\n")
		},
		"work tree": func(t *testing.T, dir, evil string) {
			config("[diff]", "external = EVIL")(t, dir, evil)
			if err := os.Rename(dir+"/.git", dir+"/real"); err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{"commondir": "../real\n", "HEAD": "ref: refs/heads/main\n", "gitdir": dir + "/.git\n"} {
				write(t, dir+"/.git/"+name, text)
			}
		},
		"bare": func(t *testing.T, dir, evil string) {
			config("[diff]", "external = EVIL", "[core]", "fsmonitor = EVIL", "bare = true")(t, dir, evil)
			for _, name := range []string{"HEAD", "config", "objects", "refs"} {
				if err := os.Rename(dir+"/.git/"+name, dir+"/"+name); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.RemoveAll(dir + "/.git"); err != nil {
				t.Fatal(err)
			}
		},
	}
	lines := []string{
		"git status", "git status -v -v", "git status --short", "git diff", "git diff HEAD", "git diff --cached", "git diff --stat HEAD~1", "git log -p -2",
		"git log --stat", "git show", "git show HEAD:a.txt", "git blame a.txt", "git grep one", "git ls-files -m -o", "git describe --always --dirty",
		"git branch -a -v", "git stash list", "git remote -v", "git rev-parse HEAD", "git diff-tree -p HEAD", "git st", "git config --list",
		"git cat-file -p HEAD:a.txt", "git worktree list", "git shortlog -s HEAD", "git config core.pager",
	}
	report := landlockOnly() // what only reads is the same under both sandboxes
	if report.LandlockABI == 0 {
		t.Skip("NOT TESTED: this kernel has no Landlock")
	}
	bitten, tried := map[string]string{}, 0
	for name, setup := range setups {
		t.Run(name, func(t *testing.T) {
			dir := repository(t)
			evil := `"echo EVIL-R$((1))AN >&2 && :"` // by programs of the system: those of the workspace could not run
			write(t, dir+"/evil.config", "[diff]\n\texternal = "+evil+"\n[core]\n\tfsmonitor = "+evil+"\n")
			write(t, dir+"/.git/info/attributes", "* diff=x filter=x\n")
			for _, hook := range []string{"post-index-change", "fsmonitor-watchman", "pre-commit", "reference-transaction"} {
				write(t, dir+"/hooks/"+hook, "#!/bin/sh\necho EVIL-R1AN >&2\n")
				_ = os.Chmod(dir+"/hooks/"+hook, 0o755)
			}
			setup(t, dir, evil)
			write(t, dir+"/a.txt", "one more\n")
			for _, line := range lines { // without toolcrib
				cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
				cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir + "/nowhere"}
				if out, _ := cmd.CombinedOutput(); strings.Contains(string(out), "EVIL-R1AN") {
					bitten[name] = line
				}
			}
			made, ran := gitTool(t, shell.ModeAsk, report), 0
			for _, line := range lines {
				call := writing(t, dir, line, 60)
				if admit(made, call) != nil || asks(made, call) != "" {
					continue
				}
				if tried++; testing.Short() && tried%3 != 0 {
					continue // in the order of a map: others each time
				}
				ran++
				if effect(made, call) != toolcrib.EffectReadOnly {
					t.Errorf("%s runs unasked and does not only read", line)
				}
				if got, err := runIn(t.Context(), t, made, call); err != nil || strings.Contains(got.Stdout+got.Stderr, "EVIL-R1AN") {
					t.Errorf("%s: %+v %v", line, got, err)
				}
			}
			t.Logf("%d of %d lines ran unasked", ran, len(lines))
		})
	}
	t.Logf("git alone starts programs in %d of %d: %v", len(bitten), len(setups), bitten)
	if len(bitten) < len(setups)/2 {
		t.Error("the traps do not bite")
	}
}
