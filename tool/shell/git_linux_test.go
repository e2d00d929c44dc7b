package shell_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
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

// Git reads unasked in mode ask, and in mode allowlist where it is listed; what else it does
// is a write.
func TestGit_Reads(t *testing.T) {
	dir := repository(t)
	r := shell.Report{Helper: true, LandlockABI: 7, Bubblewrap: "x"}
	ask, list := gitTool(t, shell.ModeAsk, &r), gitTool(t, shell.ModeAllowlist, &r, "git")
	for _, line := range []string{
		"git status", "git status -sb", "git diff", "git diff HEAD -- a.txt", "git diff --stat --cached", "git log --oneline -5", "git log -p -n 2 a.txt",
		"git --no-pager log", "git show HEAD:a.txt", "git show --stat HEAD", "git branch", "git branch -a", "git branch --list 'm*'", "git tag -l", "git blame a.txt",
		"git ls-files", "git rev-parse HEAD", "git remote -v", "git stash list", "git reflog", "git grep -n one", "git grep /one", "git describe --always", "git log main..HEAD",
		"git status | cat && git diff", "git config user.name", "git config --get remote.origin.url", "git config -l --show-origin",
		"git config --get-regexp 'user.*' x",
	} {
		for _, made := range []toolcrib.Tool{ask, list} {
			call := callOf(t, dir, line, 0)
			if err := admit(made, call); err != nil || asks(made, call) != "" || effect(made, call) != toolcrib.EffectReadOnly {
				t.Errorf("%s: %v, asks %q, %s", line, err, asks(made, call), effect(made, call))
			}
		}
	}
	for _, line := range []string{
		"git add a.txt", "git commit -m x", "git push", "git branch new", "git branch -d main", "git tag v1", "git stash", "git stash drop", "git reset --hard",
		"git checkout -- a.txt", "git config core.x y", "git config --unset core.x", "git config edit", "git config -e",
		"git config --get-urlmatch http https://x", "git config -f x -l", "git config --blob HEAD:x -l", "git config --add a.b", "git config get a.b c", "git init", "git init -q sub", "git diff --output=x", "git diff --outp=x", "git diff --ext-diff", "git log --output x", "git show --textconv",
		"git grep -Oless one", "git grep --open-files-in-pager=x one", "git -c core.pager=x log", "git -C sub status", "git --exec-path=x status", "git remote add x y",
		"git remote update", "git reflog expire --all", "git rev-parse --git-path x", "git unknown", "git diff --no-index a.txt AGENTS.md", "git help status",
		"git archive HEAD", "git fsck", "git gc", "git log --format=%G?", "git log --pretty 'tformat:%h %+GG'", "git show -s --format='%<(9)% GK' HEAD",
		"git for-each-ref --format='%(signature:key)'", "git branch --list --sort=-signature", "git tag -l --format '%(*Signature)'",
	} {
		call := callOf(t, dir, line, 0)
		if err := admit(ask, call); err == nil && (!strings.Contains(asks(ask, call), "does not list: git") || effect(ask, call) != toolcrib.EffectNonIdempotentWrite) {
			t.Errorf("ask: %s: asks %q, %s", line, asks(ask, call), effect(ask, call))
		}
		if err := admit(list, call); err == nil && effect(list, call) != toolcrib.EffectNonIdempotentWrite {
			t.Errorf("list: %s: %s", line, effect(list, call))
		}
	}
	for _, line := range []string{"git diff /etc/passwd /etc/group", "git log ../x", "git show -- /etc/passwd", "git grep -e x /etc", "git grep x ../y"} {
		if err := admit(ask, callOf(t, dir, line, 0)); err == nil {
			t.Errorf("%s is admitted", line)
		}
	}
	// Without git on the list, mode allowlist knows none.
	if err := admit(gitTool(t, shell.ModeAllowlist, &r), callOf(t, dir, "git status", 0)); err == nil {
		t.Error("git runs though it is not listed")
	}
	// What is added is read, what is checked out is written.
	writes := func(line string) (names []string) {
		for _, at := range tooltest.Facts(ask, callOf(t, dir, line, 0)).Targets {
			if at.Write && at.Name != dir {
				names = append(names, filepath.Base(at.Name))
			}
		}
		return names
	}
	if got := writes("git add AGENTS.md && git commit -m x AGENTS.md"); len(got) > 0 {
		t.Errorf("git add writes %q", got)
	}
	if got := writes("cd . && git add AGENTS.md"); len(got) > 0 {
		t.Errorf("git add in a line of a shell writes %q", got)
	}
	for _, line := range []string{"git checkout -- AGENTS.md", "cd . && git checkout AGENTS.md", "cd . && git rm AGENTS.md"} {
		if got := strings.Join(writes(line), " "); got != "AGENTS.md" {
			t.Errorf("%s writes %q", line, got)
		}
	}
}

// What has no short options or no long ones says so to the model, and panics at none.
func TestC12_GitCatFile(t *testing.T) {
	r := shell.Report{Helper: true, LandlockABI: 7, Bubblewrap: "x"}
	dir, ask := repository(t), gitTool(t, shell.ModeAsk, &r)
	for _, line := range []string{"git cat-file --batch", "git cat-file --batch-check --batch-all-objects", "git cat-file --filters HEAD:a.txt", "git cat-file -x"} {
		call := callOf(t, dir, line, 0)
		if err := admit(ask, call); err != nil || !strings.Contains(asks(ask, call), "does not list: git cat-file") {
			t.Errorf("%s: %v, asks %q", line, err, asks(ask, call))
		}
	}
	for _, line := range []string{"git cat-file -p HEAD", "git for-each-ref --count=3 --format='%(refname)'", "git name-rev --tags HEAD", "git describe --tags"} {
		if call := callOf(t, dir, line, 0); asks(ask, call) != "" || effect(ask, call) != toolcrib.EffectReadOnly {
			t.Errorf("%s: asks %q, %s", line, asks(ask, call), effect(ask, call))
		}
	}
	for _, line := range []string{"git for-each-ref -c 3", "git name-rev -a HEAD"} {
		if call := callOf(t, dir, line, 0); effect(ask, call) == toolcrib.EffectReadOnly {
			t.Errorf("%s: the long options are taken for short ones", line)
		}
	}
}

// No mode runs what writes the configuration of a repository or makes one, however it is wrapped:
// it names .git or .git/config as what it writes, which the gate refuses (docs/gate.md).
func TestGit_SteeringIsATarget(t *testing.T) {
	r := shell.Report{Helper: true, LandlockABI: 7}
	dir := repository(t)
	tools := map[string]toolcrib.Tool{}
	for _, mode := range []shell.Mode{shell.ModeAsk, shell.ModeAny} {
		tools[string(mode)] = gitTool(t, mode, &r)
	}
	steers := func(made toolcrib.Tool, line string) bool {
		call := callOf(t, dir, line, 0)
		if err := admit(made, call); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		return slices.ContainsFunc(tooltest.Facts(made, call).Targets, func(at toolcrib.Target) bool {
			return at.Write && strings.Contains(at.Name+"/", "/.git/")
		})
	}
	for _, line := range []string{
		"git config core.fsmonitor ./x --global", "git config core.pager '--file=x; sh ./y'", "git --shallow-file x config a.b c",
		"/usr/lib/git-core/git-config a.b c", "git $'config' a.b c", "git filter-branch --tree-filter 'git config a.b c'",
		"git -c a.b=$PWD for-each-repo --config=a.b config a.b c",
		"git config core.pager x", "git config --local core.pager x", "git config --unset core.pager", "git config set core.pager x",
		"git config --file .git/config a.b c", "git config --file=.git/config a.b c", "git config -f.git/config a.b c",
		"GIT_CONFIG_GLOBAL=.git/config git config --global a.b c", "export GIT_CONFIG_GLOBAL=.git/config; git config --global a.b c",
		"env GIT_CONFIG=.git/config git config --file x a.b c", "XDG_CONFIG_HOME=. git config --global a.b c",
		"git init", "git init -q sub", "git init --bare sub", "git init-db", "git clone /x y", "git remote add x y", "git remote -v add x y",
		"git remote set-url origin x", "git remote rename a b", "git remote remove a", "git remote rm a", "git remote set-head origin -a",
		"git remote set-branches origin x", "git branch -u origin/main", "git branch -uorigin/main", "git branch --set-upstream-to=x",
		"git branch --set-up x", "git branch --unset-upstream", "git branch --edit-description", "git branch -t x origin/main",
		"git checkout -b x --track origin/x", "git checkout -tb x", "git switch -c x -t origin/x", "git push -u origin x",
		"git push -fu origin x", "git push --set-upstream origin x", "git pull --set-upstream", "git submodule add x", "git submodule update --init",
		"git submodule foreach 'git config a.b c'", "git worktree add x", "git lfs install", "git sparse-checkout set x",
		"git maintenance start", "git -c a.b=c config core.pager x", "git -C sub config a.b c", "git --git-dir=.git config a.b c",
		"git --git-dir .git config a.b c", "git --no-pager config a.b c", "git --work-tree . --namespace n config a.b c",
		"git -c alias.x='config core.pager y' x", "git --config-env=alias.x=A x", "env git config a.b c", "env -i A=b git config a.b c",
		"command git config a.b c", "nice -n 5 git init", "timeout 5 git config a.b c", "xargs git config a.b", "sh -c 'git config a.b c'",
		"bash -ec 'cd sub && git init'", "/usr/bin/git config a.b c", "eval 'git config a.b c'", "find . -exec git config a.b c ';'",
		"(git config a.b c)", "if true; then git config a.b c; fi", "x=$(git config a.b c)", "f() { git init; }; f", "cd sub && git init",
		"git status; git config a.b c", "git bisect run git config a.b c", "git rebase --exec 'git config a.b c' main",
		"git rebase -x 'git config a.b c' main", "git $OPTIONS config a.b c", "git config \"$KEY\" x", "true | git config a.b c",
		"GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x GIT_CONFIG_VALUE_0='config a.b c' git x",
	} {
		for mode, made := range tools {
			if !steers(made, line) {
				t.Errorf("%s: %s names nothing of .git", mode, line)
			}
		}
	}
	for _, line := range []string{
		"git config user.name", "git config --get remote.origin.url", "git config -l", "git config --file .gitmodules --get a.b",
		"git config --global user.name x && git commit -m y", "git remote -v", "git branch", "git branch new", "git branch -d new",
		"git checkout -b x", "git checkout -b feature-t", "git switch -c x", "git push origin x", "git fetch", "git pull", "git submodule status",
		"git worktree list", "git commit -m '-u'", "git add a.txt", "git stash", "git -c user.name=x commit -m y", "git lfs pull", "git absorb",
		"GIT_EDITOR=: git rebase main", "git bisect run make test", "git remote get-url origin", "echo git config a.b c", "git log --grep=config",
	} {
		for mode, made := range tools {
			if steers(made, line) {
				t.Errorf("%s: %s is taken for one that steers git", mode, line)
			}
		}
	}
}

// A submodule has a configuration of its own, so that every call of git is asked about. An
// option before the command may name a program or another repository, also where git is
// listed.
func TestGit_OtherRepositories(t *testing.T) {
	r := shell.Report{Helper: true, LandlockABI: 7, Bubblewrap: "x"}
	dir := repository(t)
	if err := os.WriteFile(dir+"/.gitmodules", []byte("[submodule \"sub\"]\n\tpath = sub\n\tignore = none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	made := gitTool(t, shell.ModeAsk, &r, "git")
	if got := asks(made, callOf(t, dir, "git status", 0)); !strings.Contains(got, ".gitmodules") {
		t.Errorf("git status beside a submodule asks %q", got)
	}
	dir = repository(t)
	for _, line := range []string{"git -C sub status", "git -c alias.x=!id x", "git --no-pager -c core.pager=x log"} {
		if got := asks(made, callOf(t, dir, line, 0)); !strings.Contains(got, "an option before its command") {
			t.Errorf("%s asks %q", line, got)
		}
	}
	for _, line := range []string{"git diff --submodule=diff", "git log --show-signature"} {
		if got := effect(made, callOf(t, dir, line, 0)); got == toolcrib.EffectReadOnly {
			t.Errorf("%s only reads", line)
		}
	}
}

// Where the repository's configuration may name a program, every call of git is asked about.
func TestGit_ConfigurationNamesPrograms(t *testing.T) {
	r := shell.Report{Helper: true, LandlockABI: 7, Bubblewrap: "x"}
	for _, c := range []struct {
		config string
		asks   bool
	}{
		{"", false},
		{"[remote \"origin\"]\n\turl = https://example.org/x.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n", false},
		{"[core]\n\thooksPath = .husky\n\tfsmonitor = evil\n[user]\n\tname = X # y\n\n; note\n", false}, // both are off
		{"[filter \"x\"]\n\tclean = evil\n", true},
		{"[FILTER \"x\"] clean = evil\n", true},
		{"[filter.x]\nprocess=evil\n", true},
		{"[diff \"x\"]\n\ttextconv = evil\n", true},
		{"[diff]\n\texternal = evil\n", true},
		{"[alias]\n\tst = !evil\n", true},
		{"[core]\n\tsshCommand = evil\n", true},
		{"[core]\n\tpager = evil\n", true},
		{"[core]\n\teditor = evil\n", true},
		{"[core]\n\tworktree = /\n", true},
		{"[include]\n\tpath = other\n", true},
		{"[includeIf \"gitdir:/\"]\n\tpath = other\n", true},
		{"[credential]\n\thelper = !evil\n", true},
		{"[gpg]\n\tprogram = evil\n", true},
		{"[merge \"x\"]\n\tdriver = evil\n", true},
		{"[core]\n\tignorecase = \\\n\ttrue\n", true},
		{"[core\n]\npager = evil\n", true},
		{"[user]\n\tname = \"a\\\n[filter \\\"x\\\"]\n\tclean = evil\n", true},
		{"\ufeff[alias]\n\tst = !evil\n", true},
		{"[remote \"x\"]\n\turl = ext::sh -c evil\n", true},
		{"[submodule \"x\"]\n\tupdate = !evil\n", true},
		{"[submodule \"x\"]\n\tignore = none\n", true},
		{"[log]\n\tshowSignature = true\n", true},
		{"[gc]\n\trecentObjectsHook = evil\n", true},
		{"what is this\n", true},
		{strings.Repeat("# long\n", 60_000), true},
	} {
		dir := repository(t)
		f, err := os.OpenFile(dir+"/.git/config", os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(c.config)
		}
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
		for _, mode := range []shell.Mode{shell.ModeAsk, shell.ModeAllowlist, shell.ModeAny} {
			made := gitTool(t, mode, &r, "git")
			call := callOf(t, dir, "git status", 0)
			if err := admit(made, call); err != nil || strings.Contains(asks(made, call), "may name programs") != c.asks ||
				c.asks && effect(made, call) != toolcrib.EffectNonIdempotentWrite {
				t.Errorf("%s: %.40q: %v, asks %q, %s", mode, c.config, err, asks(made, call), effect(made, call))
			}
		}
	}
	dir := repository(t)
	if err := os.Rename(dir+"/.git", dir+"/elsewhere"); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/.git", "gitdir: elsewhere\n")
	if why := asks(gitTool(t, shell.ModeAsk, &r), callOf(t, dir, "git status", 0)); !strings.Contains(why, ".git is not a folder") {
		t.Errorf("a repository elsewhere: %q", why)
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
			got, err := runIn(t.Context(), t, made, callOf(t, dir, line, 60))
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
				call := callOf(t, dir, line, 60)
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
