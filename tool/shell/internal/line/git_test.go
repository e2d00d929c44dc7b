package line_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// withGit returns the rules for a workspace in which cat, echo and these programs are allowed, and the repository's
// folder is protected.
func withGit(t testing.TB, dir, mode string, programs ...string) *line.Rules {
	t.Helper()
	r, _ := in(t, dir, mode, append([]string{"cat", "echo"}, programs...)...)
	r.Protects = func(name string) bool { return strings.EqualFold(name, ".git") || strings.EqualFold(name, "AGENTS.md") }
	return r
}

// Git reads unasked in mode ask, and in mode allowlist where it is listed; what else it does
// is a write.
func TestGit_Reads(t *testing.T) {
	dir := project(t)
	asking, list := withGit(t, dir, ask), withGit(t, dir, allowlist, "git")
	for _, text := range []string{
		"git status", "git status -sb", "git diff", "git diff HEAD -- a.txt", "git diff --stat --cached", "git log --oneline -5", "git log -p -n 2 a.txt",
		"git --no-pager log", "git show HEAD:a.txt", "git show --stat HEAD", "git branch", "git branch -a", "git branch --list 'm*'", "git tag -l", "git blame a.txt",
		"git ls-files", "git rev-parse HEAD", "git remote -v", "git stash list", "git reflog", "git grep -n one", "git grep /one", "git describe --always", "git log main..HEAD",
		"git status | cat && git diff", "git config user.name", "git config --get remote.origin.url", "git config -l --show-origin",
		"git config --get-regexp 'user.*' x",
	} {
		for _, r := range []*line.Rules{asking, list} {
			if p, err := judge(r, text); err != nil || len(p.Concerns) > 0 || p.Effect() != toolcrib.EffectReadOnly {
				t.Errorf("%s: %v, %+v", text, err, p)
			}
		}
	}
	for _, text := range []string{
		"git add a.txt", "git commit -m x", "git push", "git branch new", "git branch -d main", "git tag v1", "git stash", "git stash drop", "git reset --hard",
		"git checkout -- a.txt", "git config core.x y", "git config --unset core.x", "git config edit", "git config -e",
		"git config --get-urlmatch http https://x", "git config -f x -l", "git config --blob HEAD:x -l", "git config --add a.b", "git config get a.b c", "git init", "git init -q sub", "git diff --output=x", "git diff --outp=x", "git diff --ext-diff", "git log --output x", "git show --textconv",
		"git grep -Oless one", "git grep --open-files-in-pager=x one", "git -c core.pager=x log", "git -C sub status", "git --exec-path=x status", "git remote add x y",
		"git remote update", "git reflog expire --all", "git rev-parse --git-path x", "git unknown", "git diff --no-index a.txt AGENTS.md", "git help status",
		"git archive HEAD", "git fsck", "git gc", "git log --format=%G?", "git log --pretty 'tformat:%h %+GG'", "git show -s --format='%<(9)% GK' HEAD",
		"git for-each-ref --format='%(signature:key)'", "git branch --list --sort=-signature", "git tag -l --format '%(*Signature)'",
	} {
		if p, err := judge(asking, text); err == nil && (!strings.Contains(asks(p), "does not list: git") || p.ReadOnly != line.MayWrite) {
			t.Errorf("ask: %s: asks %q, %q", text, asks(p), p.ReadOnly)
		}
		if p, err := judge(list, text); err == nil && p.ReadOnly != line.MayWrite {
			t.Errorf("list: %s: %q", text, p.ReadOnly)
		}
	}
	for _, text := range []string{"git diff /etc/passwd /etc/group", "git log ../x", "git show -- /etc/passwd", "git grep -e x /etc", "git grep x ../y"} {
		if !refused(t, asking, text) {
			t.Errorf("%s is admitted", text)
		}
	}
	// Without git on the list, mode allowlist knows none.
	if !refused(t, withGit(t, dir, allowlist), "git status") {
		t.Error("git runs though it is not listed")
	}
	// What is added is read, what is checked out is written.
	written := func(text string) string {
		names := slices.DeleteFunc(writes(asking, must(t, asking, text)), func(name string) bool { return name == "." })
		return strings.Join(names, " ")
	}
	if got := written("git add AGENTS.md && git commit -m x AGENTS.md"); got != "" {
		t.Errorf("git add writes %q", got)
	}
	if got := written("cd . && git add AGENTS.md"); got != "" {
		t.Errorf("git add in a line of a shell writes %q", got)
	}
	for _, text := range []string{"git checkout -- AGENTS.md", "cd . && git checkout AGENTS.md", "cd . && git rm AGENTS.md"} {
		if got := written(text); got != "AGENTS.md" {
			t.Errorf("%s writes %q", text, got)
		}
	}
}

// What has no short options or no long ones says so to the model, and panics at none.
func TestC12_GitCatFile(t *testing.T) {
	r := withGit(t, project(t), ask)
	for _, text := range []string{"git cat-file --batch", "git cat-file --batch-check --batch-all-objects", "git cat-file --filters HEAD:a.txt", "git cat-file -x"} {
		if p := must(t, r, text); !strings.Contains(asks(p), "does not list: git cat-file") {
			t.Errorf("%s: asks %q", text, asks(p))
		}
	}
	for _, text := range []string{"git cat-file -p HEAD", "git for-each-ref --count=3 --format='%(refname)'", "git name-rev --tags HEAD", "git describe --tags"} {
		if p := must(t, r, text); asks(p) != "" || p.Effect() != toolcrib.EffectReadOnly {
			t.Errorf("%s: asks %q, %s", text, asks(p), p.Effect())
		}
	}
	for _, text := range []string{"git for-each-ref -c 3", "git name-rev -a HEAD"} {
		if p := must(t, r, text); p.Effect() == toolcrib.EffectReadOnly {
			t.Errorf("%s: the long options are taken for short ones", text)
		}
	}
}

// No mode runs what writes the configuration of a repository or makes one, however it is wrapped:
// it names .git or .git/config as what it writes, which the gate refuses (docs/gate.md).
func TestGit_SteeringIsATarget(t *testing.T) {
	dir := project(t)
	rules := map[string]*line.Rules{ask: withGit(t, dir, ask), anyLine: withGit(t, dir, anyLine)}
	steers := func(r *line.Rules, text string) bool {
		return slices.ContainsFunc(writes(r, must(t, r, text)), func(name string) bool { return strings.Contains("/"+name+"/", "/.git/") })
	}
	for _, text := range []string{
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
		for mode, r := range rules {
			if !steers(r, text) {
				t.Errorf("%s: %s names nothing of .git", mode, text)
			}
		}
	}
	for _, text := range []string{
		"git config user.name", "git config --get remote.origin.url", "git config -l", "git config --file .gitmodules --get a.b",
		"git config --global user.name x && git commit -m y", "git remote -v", "git branch", "git branch new", "git branch -d new",
		"git checkout -b x", "git checkout -b feature-t", "git switch -c x", "git push origin x", "git fetch", "git pull", "git submodule status",
		"git worktree list", "git commit -m '-u'", "git add a.txt", "git stash", "git -c user.name=x commit -m y", "git lfs pull", "git absorb",
		"GIT_EDITOR=: git rebase main", "git bisect run make test", "git remote get-url origin", "echo git config a.b c", "git log --grep=config",
	} {
		for mode, r := range rules {
			if steers(r, text) {
				t.Errorf("%s: %s is taken for one that steers git", mode, text)
			}
		}
	}
}

// A submodule has a configuration of its own, so that every call of git is asked about. An
// option before the command may name a program or another repository, also where git is
// listed.
func TestGit_OtherRepositories(t *testing.T) {
	r, d := in(t, project(t), ask, "cat", "echo", "git")
	d.gap = ".gitmodules"
	if got := asks(must(t, r, "git status")); !strings.Contains(got, ".gitmodules") {
		t.Errorf("git status beside a submodule asks %q", got)
	}
	d.gap = ""
	for _, text := range []string{"git -C sub status", "git -c alias.x=!id x", "git --no-pager -c core.pager=x log"} {
		if got := asks(must(t, r, text)); !strings.Contains(got, "an option before its command") {
			t.Errorf("%s asks %q", text, got)
		}
	}
	for _, text := range []string{"git diff --submodule=diff", "git log --show-signature"} {
		if p := must(t, r, text); p.Effect() == toolcrib.EffectReadOnly {
			t.Errorf("%s only reads", text)
		}
	}
}

// Where the repository's configuration may name a program, every call of git is asked about.
func TestGit_ConfigurationNamesPrograms(t *testing.T) {
	dir := project(t)
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
	} {
		for _, mode := range []string{ask, allowlist, anyLine} {
			r, d := in(t, dir, mode, "git")
			d.config = []string{"[core]\n\trepositoryformatversion = 0\n\tbare = false\n" + c.config}
			p := must(t, r, "git status")
			if strings.Contains(asks(p), "may name programs") != c.asks || c.asks && p.Effect() != toolcrib.EffectNonIdempotentWrite {
				t.Errorf("%s: %.40q: asks %q, %s", mode, c.config, asks(p), p.Effect())
			}
		}
	}
}
