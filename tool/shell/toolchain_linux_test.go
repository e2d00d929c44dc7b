package shell_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib/tool/shell"
)

// Programs are looked for where the user has them, but never in a folder that somebody else
// can put them into.
func TestSearchPath(t *testing.T) {
	dir := folder(t)
	workspace, open, mine := dir+"/work", dir+"/open", dir+"/mine"
	for _, d := range []string{workspace + "/bin", open, open + "/below", mine} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{dir + "/in": workspace + "/bin", dir + "/out": mine} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	list := []string{
		".", "", "bin", "~/bin", workspace, workspace + "/bin", dir + "/in", open, open + "/below", dir + "/none", mine, mine + "/", dir + "/out",
	}
	use, out := shell.SearchPath(list, workspace)
	if got := strings.Join(use, " "); got != mine+" "+dir+"/out" {
		t.Errorf("used: %s", got)
	}
	if len(out) != 9 {
		t.Errorf("left out: %q", out)
	}
	write(t, mine+"/anyone", "#!/bin/sh\n")
	write(t, mine+"/ours", "#!/bin/sh\n")
	for name, mode := range map[string]os.FileMode{"anyone": 0o777, "ours": 0o755} {
		if err := os.Chmod(filepath.Join(mine, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(shell.Missing([]string{"ls", "anyone", "ours", "nothing"}, use), " "); got != "anyone nothing" {
		t.Errorf("missing: %s", got)
	}
	if _, err := shell.New(shell.Options{Env: map[string]string{"PATH": "."}}); err == nil {
		t.Error("PATH can be set beside the path")
	}
}

// The tests of a project run with what the user has installed, without a network, twice: the
// second time from the cache.
func TestToolchains(t *testing.T) {
	t.Parallel()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip(err)
	}
	// One with a package that this module needs itself, and a toolchain that is never fetched.
	const sys = "golang.org/x/sys "
	requires, sums := linesWith(t, "../../go.mod", sys), linesWith(t, "../../go.sum", sys)
	goVersion := linesWith(t, "../../go.mod", "go 1.")
	for _, c := range []struct {
		program, line, out string
		files              map[string]string
	}{
		{"go", "cd new && go test ./... && cd ../old && go test ./... && go vet ./...", "ok", map[string]string{
			"new/go.mod": "module x\n\n" + goVersion + "\ntoolchain go1.999.9\n\nrequire " + requires, "new/go.sum": sums,
			"new/x_test.go": "package x\n\nimport (\n\t\"testing\"\n\n\t\"golang.org/x/sys/unix\"\n)\n\n" +
				"func TestOne(t *testing.T) {\n\tif unix.Getpid() == 0 {\n\t\tt.Fatal()\n\t}\n}\n",
			"old/go.mod": "module x\n\ngo 1.21\n", "old/x.go": "package x\n\n// One of WALL.\nfunc One() int { return 1 }\n",
			"old/x_test.go": "package x\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif One() != 1 {\n\t\tt.Fatal()\n\t}\n}\n",
		}},
		{"npm", "npm test", "passed-here", map[string]string{
			"package.json": `{"name":"x","version":"1.0.0","scripts":{"test":"node test.js"}}`, "test.js": "console.log('passed' + '-here')",
		}},
		{"make", "make test", "from-make", map[string]string{"Makefile": "test:\n\t@echo from-make\n"}},
		{"cargo", "cargo test", "1 passed", map[string]string{
			"Cargo.toml": "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n", "src/lib.rs": "#[test]\nfn one() { assert_eq!(1, 1); }\n",
		}},
		{"python3", "python3 -m unittest -v", "OK", map[string]string{
			"test_x.py": "import unittest\n\nclass T(unittest.TestCase):\n    def test_one(self):\n        self.assertEqual(1, 1)\n",
		}},
		{"pytest", "pytest -q", "1 passed", map[string]string{"test_x.py": "def test_one():\n    assert True\n"}},
	} {
		t.Run(c.program, func(t *testing.T) {
			t.Parallel()
			dir, caches := filepath.Join(folder(t), "work"), folder(t) // one for all: the library is compiled once
			sandboxed(t, func(t *testing.T, report *shell.Report) {
				if _, err := exec.LookPath(c.program); err != nil {
					t.Skipf("SKIPPED: %s is not installed", c.program)
				}
				if out, err := exec.Command(c.program, "--version").CombinedOutput(); err != nil && c.program != "go" {
					t.Skipf("SKIPPED: %s does not run here: %s", c.program, out) // rustup's cargo without a toolchain
				}
				emptied(t, dir)
				for file, content := range c.files {
					write(t, filepath.Join(dir, file), strings.ReplaceAll(content, "WALL", t.Name()))
				}
				made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report, Home: home, Caches: caches})
				for range 2 {
					res, err := runIn(t.Context(), t, made, callOf(t, dir, c.line, 300))
					if both := res.Stdout + res.Stderr; err != nil || res.ExitCode != 0 || !strings.Contains(both, c.out) {
						t.Fatalf("%+v %v", res, err)
					}
				}
			})
		})
	}
}

// emptied removes what is in a folder. The folder stays, and with it its caches, which are not those of another folder of
// its name.
func emptied(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// linesWith returns the lines of a file that begin so, but for a tab.
func linesWith(t *testing.T, path, beginning string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var found strings.Builder
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimPrefix(line, "\t"); strings.HasPrefix(line, beginning) {
			found.WriteString(line)
		}
	}
	return found.String()
}

// Of the home folder programs see toolchains and nothing else; what a call leaves in its own
// home is gone with it; caches belong to a user and a workspace.
func TestHome(t *testing.T) {
	home := folder(t)
	for file, content := range map[string]string{
		".netrc": secret, ".ssh/id": secret, ".cargo/credentials.toml": secret, ".cargo/bin/tool": "#!/bin/sh\necho tool-ran\n",
		".pyenv/version": "3", "go/pkg/mod/cache/x": "module", ".config/x": secret,
	} {
		write(t, filepath.Join(home, file), content)
	}
	if err := os.Chmod(home+"/.cargo/bin/tool", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYENV_ROOT", "")
	t.Setenv("GOMODCACHE", "")
	t.Setenv("GOPATH", "")
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		dir, other, caches := folder(t), folder(t), folder(t)
		made := tool(t, shell.Options{
			Mode: shell.ModeAny, Report: report, Home: home, Caches: caches, Path: []string{home + "/.cargo/bin", "/usr/bin", "/bin"},
			Env: map[string]string{"GREETING": "hello"}, Hidden: []string{caches},
		})
		look := func(dir, user, line string) string {
			call := callOf(t, dir, line, 0)
			if call.Principal.User = user; line == "true" {
				call = alone(call) // its cache is in use no longer
			}
			res, err := runIn(t.Context(), t, made, call)
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
			return res.Stdout + res.Stderr
		}
		for line, want := range map[string]string{
			"tool": "tool-ran\n", "echo $GREETING": "hello\n", "cat $PYENV_ROOT/version $GOMODCACHE/cache/x": "3module",
			"echo $HOME/* $HOME/.[a-z]*": "", "(echo x > " + home + "/.pyenv/version) 2>&-; cat " + home + "/.pyenv/version": "3",
		} {
			if got := look(dir, "ann", line); !strings.HasSuffix(got, want) || strings.Contains(got, home+"/.netrc") {
				t.Errorf("%s: %q", line, got)
			}
		}
		for _, path := range []string{".netrc", ".ssh/id", ".cargo/credentials.toml", ".config/x"} {
			if got := look(dir, "ann", "cat "+home+"/"+path+" "+home+"/.cargo/bin/../../"+path); strings.Contains(got, secret) {
				t.Errorf("%s: %q", path, got)
			}
		}
		look(dir, "ann", "echo dot > $HOME/.bashrc; mkdir -p $GOCACHE && echo kept > $GOCACHE/x")
		if got := look(dir, "ann", "cat $HOME/.bashrc"); strings.Contains(got, "dot") {
			t.Error("a file of the home folder stayed")
		}
		if got := look(dir, "ann", "cat $GOCACHE/x"); got != "kept\n" {
			t.Errorf("the cache: %q", got)
		}
		for _, at := range [][2]string{{dir, "bob"}, {other, "ann"}} {
			if got := look(at[0], at[1], "cat $GOCACHE/x $GOCACHE/../../*/go-build/x"); strings.Contains(got, "kept") {
				t.Errorf("the cache of another: %q", got)
			}
		}
		was, before := dir+".was", len(cacheNames(t, caches))
		if err := errors.Join(os.Rename(dir, was), os.Mkdir(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
		if got := look(dir, "ann", "cat $GOCACHE/x"); strings.Contains(got, "kept") || len(cacheNames(t, caches)) != before+1 {
			t.Errorf("the cache of a folder that had this path before: %q", got)
		}
		if err := errors.Join(os.RemoveAll(dir), os.Rename(was, dir)); err != nil {
			t.Fatal(err)
		}
		if got := look(dir, "ann", "cat $GOCACHE/x"); got != "kept\n" {
			t.Errorf("the cache of the folder that is back: %q", got)
		}
		// An old cache goes, and links in one lead nowhere.
		look(dir, "ann", "rm -rf $CARGO_HOME; ln -s "+other+" $CARGO_HOME")
		write(t, home+"/.cargo/registry/index/x", "x")
		look(dir, "ann", "true")
		if left, _ := os.ReadDir(other); len(left) > 0 {
			t.Errorf("something was made outside the cache: %v", left)
		}
		old := time.Now().Add(-60 * 24 * time.Hour)
		if err := os.Chtimes(filepath.Join(caches, cacheNames(t, caches)[0]), old, old); err != nil {
			t.Fatal(err)
		}
		before = len(cacheNames(t, caches))
		again := tool(t, shell.Options{Mode: shell.ModeAny, Report: report, Caches: caches})
		if _, err := runIn(t.Context(), t, again, callOf(t, folder(t), "true", 0)); err != nil {
			t.Fatal(err)
		}
		if now := len(cacheNames(t, caches)); now != before {
			t.Errorf("%d caches, then %d", before, now)
		}
	})
}

// privateFiles are what toolchains and their package managers keep to sign in, each where its documentation says, and
// what of the same toolchain is to be read beside it. Some lie outside of what is mounted, where nothing is read.
var privateFiles = []struct{ file, beside, documentation string }{
	{".nvm/versions/node/v20.1.0/etc/npmrc", ".nvm/versions/node/v20.1.0/bin/node", "docs.npmjs.com/cli/configuring-npm/npmrc: $PREFIX/etc/npmrc"},
	{".nvm/versions/node/v20.1.0/lib/node_modules/npm/npmrc", ".nvm/versions/node/v20.1.0/lib/node_modules/npm/index.js", "the same: /path/to/npm/npmrc"},
	{".local/share/fnm/node-versions/v20.1.0/installation/etc/npmrc", ".local/share/fnm/node-versions/v20.1.0/installation/bin/node", "the same, under fnm"},
	{".volta/tools/image/node/20.1.0/etc/npmrc", ".volta/tools/image/node/20.1.0/bin/node", "the same, under Volta"},
	{".volta/hooks.json", ".volta/bin/node", "docs.volta.sh/advanced/hooks"},
	{".asdf/installs/nodejs/20.1.0/etc/npmrc", ".asdf/installs/nodejs/20.1.0/bin/node", "the same, under asdf"},
	{".asdf/plugins/x/.git/config", ".asdf/plugins/x/bin/install", "git-scm.com/docs/git-config: remote.NAME.url"},
	{".local/share/mise/installs/node/20.1.0/etc/npmrc", ".local/share/mise/installs/node/20.1.0/bin/node", "the same, under mise"},
	{".nodenv/versions/20.1.0/etc/npmrc", ".nodenv/versions/20.1.0/bin/node", "the same, under nodenv"},
	{".npmrc", "", "the same: ~/.npmrc"},
	{".config/pnpm/rc", "", "pnpm.io/npmrc"},
	{".config/pnpm/auth.ini", "", "pnpm.io/npmrc"},
	{".yarnrc.yml", "", "yarnpkg.com/configuration/yarnrc"},
	{".bunfig.toml", ".bun/bin/bun", "bun.sh/docs/runtime/bunfig"},
	{".local/share/uv/credentials/credentials.toml", ".local/share/uv/python/cpython-3.12/bin/python3", "docs.astral.sh/uv/concepts/authentication: UV_CREDENTIALS_DIR"},
	{".local/share/uv/tools/x/pip.conf", ".local/share/uv/tools/x/bin/x", "pip.pypa.io/en/stable/topics/configuration: site, $VIRTUAL_ENV/pip.conf"},
	{".pyenv/versions/3.12.1/pip.conf", ".pyenv/versions/3.12.1/bin/python3", "the same, under pyenv"},
	{".config/pip/pip.conf", "", "the same: user"},
	{".pypirc", ".local/lib/python3.12/site-packages/x.py", "packaging.python.org/en/latest/specifications/pypirc"},
	{".cargo/credentials.toml", ".cargo/bin/cargo", "doc.rust-lang.org/cargo/reference/config.html#credentials"},
	{".cargo/credentials", ".cargo/registry/index/x", "the same, before 1.39"},
	{".cargo/git/db/x-0/FETCH_HEAD", ".cargo/git/db/x-0/HEAD", "git-scm.com/docs/git-fetch: the URL that was fetched"},
	{".config/go/env", "sdk/go1.30.0/bin/go", "go.dev/ref/mod#environment-variables: GOPROXY, GOAUTH"},
	{".netrc", "go/bin/gopls", "go.dev/ref/mod#private-module-proxy-auth"},
	{"go/pkg/mod/cache/vcs/0/config", "go/pkg/mod/cache/download/x/@v/list", "go.dev/ref/mod#module-cache: cache/vcs"},
	{"sdk/keys.txt", "", "go.dev/doc/manage-install: ~/sdk is for every program's SDK"},
	{"sdk/other/x", "", "the same"},
	{".sdkman/candidates/maven/3.9.9/conf/settings.xml", ".sdkman/candidates/maven/3.9.9/bin/mvn", "maven.apache.org/settings.html: ${maven.home}/conf/settings.xml"},
	{".sdkman/candidates/gradle/8.1/gradle.properties", ".sdkman/candidates/gradle/8.1/bin/gradle", "docs.gradle.org/current/userguide/build_environment.html: GRADLE_HOME"},
	{".sdkman/etc/config", "", "sdkman.io/usage#configuration"},
	{".m2/settings.xml", "", "maven.apache.org/settings.html"},
	{".m2/settings-security.xml", "", "maven.apache.org/guides/mini/guide-encryption.html"},
	{".gradle/gradle.properties", "", "docs.gradle.org/current/userguide/build_environment.html: GRADLE_USER_HOME"},
	{".rbenv/versions/3.4.1/etc/gemrc", ".rbenv/versions/3.4.1/bin/ruby", "guides.rubygems.org/command-reference/#gem-environment"},
	{".gem/credentials", "", "guides.rubygems.org/make-your-own-gem: ~/.gem/credentials"},
	{".local/share/gem/credentials", "", "the same, with XDG"},
	{".bundle/config", "", "bundler.io/man/bundle-config.1.html"},
	{".composer/auth.json", "", "getcomposer.org/doc/articles/authentication-for-private-packages.md"},
	{".nuget/NuGet/NuGet.Config", "", "learn.microsoft.com/nuget/consume-packages/configuring-nuget-behavior"},
	{".deno/auth.json", ".deno/bin/deno", "docs.deno.com/runtime/reference/env_variables: DENO_DIR"},
	{".rustup/credentials.toml", ".rustup/toolchains/stable/bin/rustc", "rust-lang.github.io/rustup/installation"},
	{".docker/config.json", "", "docs.docker.com/reference/cli/docker/login"},
	{".config/gcloud/credentials.db", "", "cloud.google.com/docs/authentication/application-default-credentials"},
	{".aws/credentials", "", "docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html"},
	{".kube/config", "", "kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig"},
	{".config/gh/hosts.yml", "", "cli.github.com/manual/gh_auth_login"},
	{".git-credentials", "", "git-scm.com/docs/git-credential-store"},
	{".ssh/id_ed25519", "", "man.openbsd.org/ssh"},
	{"opt/tool/etc/npmrc", "opt/tool/bin/tool", "docs.npmjs.com: a prefix of one's own on the PATH"},
	{"venv/pip.conf", "venv/bin/python", "pip.pypa.io: $VIRTUAL_ENV/pip.conf of a venv on the PATH"},
}

func TestToolchains_CredentialsAreHidden(t *testing.T) {
	home := folder(t)
	var look, want strings.Builder
	for _, of := range privateFiles {
		write(t, filepath.Join(home, of.file), "url = https://ann:"+secret+"@example.com/ <server><password>"+secret+"</password></server>\n")
		for _, path := range []string{of.beside, "sdk/go1.30.0/bin/go", "venv/pyvenv.cfg"} {
			if path != "" {
				write(t, filepath.Join(home, path), "to be read\n")
			}
		}
		fmt.Fprintf(&look, "cat %[1]s/%[2]s 2>&- | grep -q . && echo %[2]s\n", home, of.file)
		if of.beside != "" {
			fmt.Fprintf(&look, "grep -c 'to be read' %s/%s\n", home, of.beside)
			want.WriteString("1\n")
		}
	}
	// Maven is shipped with settings that say nothing, and does not start without them.
	harmless := home + "/.sdkman/candidates/maven/4.0.0/conf/settings.xml"
	write(t, harmless, "<settings><!-- <password>my_password</password> --></settings>")
	look.WriteString("grep -c settings " + harmless + "\nfind " + home + " -type f 2>&- | xargs grep -l CANARY 2>&-")
	want.WriteString("1\n")
	link := home + "/.nvm/versions/node/v21.0.0/etc/npmrc"
	write(t, home+"/.nvm/versions/node/v21.0.0/share/x", secret)
	if err := errors.Join(os.Mkdir(filepath.Dir(link), 0o755), os.Symlink("../share/x", link)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"PYENV_ROOT", "GOMODCACHE", "GOPATH", "CARGO_HOME", "RUSTUP_HOME"} {
		t.Setenv(name, "")
	}
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		made := tool(t, shell.Options{
			Mode: shell.ModeAny, Report: report, Home: home,
			Path: []string{home + "/opt/tool/bin", home + "/venv/bin", home + "/.cargo/bin", "/usr/bin", "/bin"},
		})
		own := filepath.Join(home, ".pyenv/plugins/mine") // a workspace shows what it has
		write(t, own+"/pip.conf", "own\n")
		got, err := runIn(t.Context(), t, made, callOf(t, own, "cat pip.conf", 0))
		if err != nil || got.Stdout != "own\n" {
			t.Errorf("%+v %v", got, err)
		}
		for range 2 { // the second time in the sandbox that waited
			got, err := runIn(t.Context(), t, made, callOf(t, folder(t), look.String(), 60))
			if err != nil || got.Stdout != want.String() {
				t.Errorf("%s%s %v; want\n%s", got.Stdout, got.Stderr, err, want.String())
			}
		}
	})
}

func cacheNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// All build caches together are bounded: those that were not used for longest go, but none that a
// command is using.
func TestCaches_AreBounded(t *testing.T) {
	t.Parallel()
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		caches := folder(t)
		h := newHouse(t, shell.Options{Mode: shell.ModeAny, Report: report, Caches: caches})
		names, spaces := map[string]string{}, []string{"oldest", "middle", "newest"}
		fill := "mkdir -p $GOCACHE/deep && head -c 1000000 /dev/zero > $GOCACHE/deep/x && chmod 500 $GOCACHE/deep && basename $(dirname $GOCACHE)"
		for i, space := range spaces {
			got, err := runIn(t.Context(), t, h.made, callOf(t, folder(t), fill, 0))
			if err != nil || got.ExitCode != 0 {
				t.Fatalf("%+v %v", got, err)
			}
			names[space] = filepath.Join(caches, strings.TrimSpace(got.Stdout))
			used := time.Now().Add(time.Duration(i-10) * time.Hour)
			if err := os.Chtimes(names[space], used, used); err != nil {
				t.Fatal(err)
			}
		}
		left := func() (all []string) {
			for _, space := range spaces {
				if _, err := os.Stat(names[space]); err == nil {
					all = append(all, space)
				}
			}
			return all
		}
		shell.BoundCaches(h.made, 5<<20)
		if got := left(); len(got) != 3 {
			t.Errorf("below the bound %q are left", got)
		}
		shell.BoundCaches(h.made, 2500_000)
		if got := strings.Join(left(), " "); got != "middle newest" {
			t.Errorf("of three that are too much %q are left", got)
		}
		dir := folder(t)
		if view, err := h.start(t, dir, fill+"; sleep 1000"); err != nil || view["status"] != "running" {
			t.Fatalf("%v %v", view, err)
		}
		shell.BoundCaches(h.made, 0)
		if got := cacheNames(t, caches); len(got) != 1 || len(left()) > 0 {
			t.Errorf("of those that are too much %q are left", got)
		}
		h.close()
		rest := cacheNames(t, caches)
		for deadline := time.Now().Add(2 * time.Minute); len(rest) > 0 && time.Now().Before(deadline); rest = cacheNames(t, caches) {
			shell.BoundCaches(h.made, 0) // leaves out what the first call looks at in the background
		}
		if len(rest) > 0 {
			t.Errorf("not in use, and left: %q", rest)
		}
	})
}

// BenchmarkGoTest is go test of a small module, from the cache: by itself, and through exec_shell,
// in turns. The median over the turns counts, of how much longer it takes. It needs an idle machine: where many programs
// wait for the processor, so do the many processes of a sandbox.
func BenchmarkGoTest(b *testing.B) {
	const module = "module x\n\ngo 1.21\n"
	plain := map[string]string{"go.mod": module} // 5 packages, 20 files, 15 tests
	for i := range 5 {
		name := fmt.Sprintf("p%d", i)
		plain[name+"/get.go"] = "package " + name + "\n\nimport \"net/http\"\n\nvar Get = http.Get\n"
		plain[name+"/json.go"] = "package " + name + "\n\nimport \"encoding/json\"\n\nvar JSON = json.Marshal\n"
		plain[name+"/other.go"] = "package " + name + "\n\nfunc One() int { return 1 }\n"
		plain[name+"/one_test.go"] = "package " + name + "\n\nimport \"testing\"\n\nfunc TestA(*testing.T) { One() }\n" +
			"func TestB(*testing.T) { One() }\nfunc TestC(*testing.T) { One() }\n"
	}
	smallest := map[string]string{
		"go.mod": module, "x_test.go": "package x\n\nimport \"testing\"\n\nfunc TestX(*testing.T) {}\n",
	}
	for name, files := range map[string]map[string]string{"plain": plain, "smallest": smallest} {
		b.Run(name, func(b *testing.B) {
			dir := folder(b)
			for file, text := range files {
				write(b, filepath.Join(dir, file), text)
			}
			benchmarkGoTest(b, dir)
		})
	}
	// Small modules that many use.
	for _, path := range strings.Fields("github.com/google/uuid github.com/dustin/go-humanize github.com/spf13/pflag " +
		"golang.org/x/sync golang.org/x/time") {
		b.Run(filepath.Base(path), func(b *testing.B) {
			from, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path).Output()
			if err != nil {
				b.Skip(err)
			}
			dir := filepath.Join(folder(b), "work")
			if err := os.CopyFS(dir, os.DirFS(strings.TrimSpace(string(from)))); err != nil {
				b.Fatal(err)
			}
			benchmarkGoTest(b, dir)
		})
	}
}

func benchmarkGoTest(b *testing.B, dir string) {
	home, err := os.UserHomeDir()
	if err != nil {
		b.Skip(err)
	}
	// As many names as service protects.
	steering := strings.Fields(".git .githooks .husky .envrc .mcp.json toolcrib.yaml .toolcrib .agents .claude .codex .cursor " +
		".cursorrules .devcontainer .devcontainer.json .gemini .idea .vscode .windsurf .windsurfrules .zed AGENTS.md CLAUDE.md")
	full, alone := probed(), landlockOnly()
	var behind sync.WaitGroup
	running, park := context.WithCancel(b.Context())
	defer behind.Wait()
	defer park()
	// What is done beside the calls is done while the model thinks.
	think := func() { time.Sleep(50 * time.Millisecond) }
	through := func(report *shell.Report) func() (string, error) {
		made := tool(b, shell.Options{
			Mode: shell.ModeAny, Report: report, Home: home, Caches: folder(b), ProtectedNames: steering,
		})
		call := callOf(b, dir, "go test ./...", 300)
		call.Behind = func(work func(context.Context)) bool { // as a run has it
			behind.Go(func() { work(running) })
			return true
		}
		return func() (string, error) {
			got, err := runIn(b.Context(), b, made, call)
			return got.Stdout, err
		}
	}
	ways := []struct {
		name string
		run  func() (string, error)
		took []float64 // milliseconds, by turn
	}{
		{name: "outside", run: func() (string, error) {
			cmd := exec.CommandContext(b.Context(), "go", "test", "./...")
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			return string(out), err
		}},
		{name: "bubblewrap", run: through(&full)},
		{name: "landlock", run: through(alone)},
	}
	for _, way := range ways {
		if _, err := way.run(); err != nil { // fills the cache
			b.Fatal(way.name, err)
		}
		think()
	}
	for b.Loop() {
		for i := range ways {
			way := &ways[i]
			began := time.Now()
			if out, err := way.run(); err != nil || !strings.Contains(out, "(cached)") {
				b.Fatal(way.name, out, err)
			}
			way.took = append(way.took, float64(time.Since(began).Microseconds())/1000)
			think()
		}
	}
	median := func(of func(turn int) float64) float64 {
		all := make([]float64, len(ways[0].took))
		for turn := range all {
			all[turn] = of(turn)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	for _, way := range ways[1:] {
		b.ReportMetric(median(func(turn int) float64 { return way.took[turn] / ways[0].took[turn] }), way.name+"/outside")
		b.ReportMetric(median(func(turn int) float64 { return way.took[turn] - ways[0].took[turn] }), way.name+"-more-ms")
	}
	b.ReportMetric(median(func(turn int) float64 { return ways[0].took[turn] }), "outside-ms")
}
