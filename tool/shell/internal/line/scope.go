package line

import (
	"slices"
	"strings"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// maxScopes is the maximum number of programs with subcommands in a scope.
const maxScopes = 4

// Scope returns the program of the line with its subcommand, such as "go test", if a person may approve all
// lines with the same scope at once: the line is one program with options that are known to name no
// other program, no configuration and no output, and has no redirection to a file, no assignment, nothing that a
// shell expands, and no word that looks like a path outside the workspace. The scope of a line of several such
// commands, not joined by pipes, is theirs, sorted and separated by ", ". Otherwise Scope returns "".
func (l *Line) Scope() string {
	if l.construct != nil {
		return ""
	}
	all := make([]string, len(l.pipelines))
	for i, p := range l.pipelines {
		if len(p.commands) == 1 {
			all[i] = p.commands[0].scope()
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) > maxScopes || slices.Contains(all, "") {
		return ""
	}
	return strings.Join(all, ", ")
}

func (c *simple) scope() string {
	if c.in != nil || slices.ContainsFunc(c.words, word.pattern) {
		return ""
	}
	words := make([]string, len(c.words))
	for i, w := range c.words {
		words[i] = w.text
	}
	return scopeOf(words)
}

// scope is [Line.Scope], but also "" if the line names a path outside the workspace, also through a symbolic
// link, if git may start a program that the repository names, and if the line runs without the sandbox.
func (d *draft) scope() string {
	outside := func(t toolcrib.Target) bool { return !within(t.Name, d.Dir) }
	if d.GitRuns != "" || d.Elsewhere || slices.ContainsFunc(d.Targets, outside) {
		return ""
	}
	return d.Line.Scope()
}

// scopeOf returns the scope of a command.
func scopeOf(words []string) string {
	name := words[0]
	if !programName.MatchString(name) || slices.Contains(runners(), strings.TrimRight(name, "0123456789.-")) {
		return ""
	}
	entry, n := entryOf(words)
	if n == 0 {
		return ""
	}
	scope := words[:n:n]
	for _, w := range words[n:] {
		switch {
		case leavesWorkspace(w):
			return ""
		case w == "--":
		case strings.HasPrefix(w, "-") && w != "-":
			if !entry.allows(w) {
				return ""
			}
		case assignment.MatchString(w):
			return ""
		case entry.operands:
			scope = append(scope, w)
		}
	}
	unclear := func(w string) bool { return strings.ContainsAny(w, " \t\n") || strings.HasSuffix(w, ",") }
	if slices.ContainsFunc(scope, unclear) {
		return ""
	}
	return strings.Join(scope, " ")
}

// entryOf returns the entry for a command, and the number of words of its scope; 0 if it has none. A program that is in
// no entry has none: it may start any other one.
func entryOf(words []string) (*scopeEntry, int) {
	all := scopes()
	for n := min(len(words), maxScopeWords); n > 0; n-- {
		if e := all[strings.Join(words[:n], " ")]; e != nil {
			if !e.script {
				return e, n
			}
			if len(words) > n && subcommand.MatchString(words[n]) && !slices.Contains(runners(), words[n]) {
				return e, n + 1
			}
			return nil, 0
		}
	}
	return nil, 0
}

// maxScopeWords is the maximum number of words of an entry.
const maxScopeWords = 3

// scopeEntry describes the lines of one scope.
type scopeEntry struct {
	options  []string // harmless options in addition to commonOptions
	operands bool     // whether all operands are part of the scope, as the targets of make are
	script   bool     // whether the next word is part of the scope, as the script of npm run is
}

// commonOptions are harmless in all programs that have them.
var commonOptions = strings.Fields("-v --verbose -q --quiet -h --help --version --color --colour --no-color")

// allows reports whether an option is known to be harmless.
func (e *scopeEntry) allows(word string) bool {
	name, _, _ := strings.Cut(word, "=")
	known := func(name string) bool {
		return slices.Contains(commonOptions, name) || slices.Contains(e.options, name)
	}
	if known(name) || known(strings.TrimRight(name, "0123456789")) {
		return true
	}
	if name != word || strings.HasPrefix(name, "--") {
		return false
	}
	return !strings.ContainsFunc(name[1:], func(letter rune) bool { return !known("-" + string(letter)) }) // -xv for -x -v
}

var (
	programName = lazyregexp.New(`^[a-z][a-z0-9_+-]*$`)
	subcommand  = lazyregexp.New(`^[A-Za-z][A-Za-z0-9_:-]*$`)
	assignment  = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_.-]*[:+?!]*=`)
	// outsidePath matches a word that is, or has as a value, an absolute path, a path in a home folder or with
	// a parent folder in it, or @FILE, a file of more words.
	outsidePath = lazyregexp.New(`(^|[=:,;@])[/~@]|(^|[=:,;@/])\.\.(/|$)`)
)

// leavesWorkspace reports whether a word looks like a path outside the workspace.
func leavesWorkspace(w string) bool { return outsidePath.MatchString(w) || strings.HasPrefix(w, ":") }

// The options of several programs of scopeRows.
const (
	goBuild = "-a -asan -buildvcs -cover -covermode -json -mod -msan -n -p -race -tags -trimpath -work -x"
	goTest  = goBuild + ` -bench -benchmem -benchtime -count -coverpkg -cpu -failfast -fullpath -fuzz -fuzzminimizetime
		-fuzztime -list -parallel -run -short -shuffle -skip -timeout -vet`
	cargo = `-r --release --workspace --all --lib --bins --bin --tests --test --examples --example --benches --bench
		--all-targets --doc -p --package --exclude -F --features --all-features --no-default-features --no-fail-fast
		--no-run --locked --offline --frozen -j --jobs --keep-going --message-format --fix --allow-dirty --allow-staged
		--no-deps --nocapture --ignored --include-ignored --exact --skip --test-threads --show-output --check -D -W -A`
	scripts = `-s --silent --if-present --run --bail --ci --coverage --runInBand -i -t --testNamePattern --grep --fix
		--max-warnings --watch --watchAll`
	linter = `--check --diff --fix --unsafe-fixes --select --ignore --statistics --preview --line-length --max-line-length
		--fast --strict --pretty --ignore-missing-imports --profile`
)

// scopeRows are the programs with subcommands whose lines can be approved together, with their options. An option may
// be among them only if it names no program, no configuration, no output, no folder to work in and no server. After a
// program, " =" means that its operands are part of the scope, and " +" that the first one is.
var scopeRows = [][2]string{
	{"go build", goBuild},
	{"go test", goTest},
	{"go vet", "-a -json -n -p -race -tags -x"},
	{"go fmt", "-n -x -mod"},
	{"go mod tidy", "-e -x -go -compat"},
	{"go mod verify", ""},
	{"go mod vendor", "-e"},
	{"go work sync", ""},
	{"gofmt", "-l -d -w -s -e -r"},
	{"gofumpt", "-l -d -w -e -extra -lang"},
	{"goimports", "-l -d -w -e -local"},
	{"staticcheck", "-checks -tags -tests"},
	{"golangci-lint run", "--fix --timeout --fast --tests"},
	{"cargo build", cargo},
	{"cargo check", cargo},
	{"cargo test", cargo},
	{"cargo bench", cargo},
	{"cargo clippy", cargo},
	{"cargo doc", cargo},
	{"cargo fmt", cargo},
	{"npm test", scripts},
	{"npm run +", scripts},
	{"pnpm test", scripts},
	{"pnpm run +", scripts},
	{"yarn test", scripts},
	{"yarn run +", scripts},
	{"jest", scripts},
	{"vitest run", scripts},
	{"tsc", "--noEmit --pretty --strict --skipLibCheck"},
	{"eslint", "--fix --ext --max-warnings"},
	{"prettier", "--check -c --write -w --list-different -l --ignore-unknown -u"},
	{"pytest", `-x -s -l -k -m -n --lf --ff --nf --sw --last-failed --failed-first --exitfirst --stepwise --maxfail --tb
		--durations --co --collect-only --strict-markers --no-header -rA -ra -rf -rs -rx -rE`},
	{"ruff check", linter},
	{"ruff format", linter},
	{"black", linter},
	{"isort", linter},
	{"flake8", linter},
	{"mypy", linter},
	{"make =", `-j -k -s -B -n -i -S --jobs --keep-going --silent --always-make --dry-run --just-print --ignore-errors`},
	{"ninja =", "-j -k"},
	{"just =", ""},
	{"rake =", "--trace"},
	{"mvn =", "-B -o -e -X -T --batch-mode --offline"},
	{"gradle =", "--info --stacktrace --parallel --offline --continue --daemon --no-daemon"},
	{"ctest", "-R -E -V -j --output-on-failure --rerun-failed"},
	{"rspec", "-e --example -t --tag --fail-fast --only-failures --order --seed"},
	{"phpunit", "--filter --testsuite --group --stop-on-failure"},
	{"mix test", "--trace --failed --stale --seed --only --exclude"},
	{"mix format", "--check-formatted"},
	{"dotnet build", "--no-restore"},
	{"dotnet test", "--no-restore --no-build --filter"},
	{"swift build", "--parallel"},
	{"swift test", "--filter --parallel"},
	{"git add", "-A --all -u --update -n --dry-run"},
	{"git commit", "-m --message -a --all --amend --no-edit -s --signoff --allow-empty --squash --fixup"},
	{"git stash push", "-u --include-untracked -m --message"},
	{"git stash pop", ""},
	{"git mv", "-n -k"},
	{"git switch", "-c --create"},
	{"mkdir", "-p --parents"},
	{"touch", "-c -a -m"},
}

// scopes returns the table of scopeRows. A program in the table has no scope but those in it.
var scopes = sync.OnceValue(func() map[string]*scopeEntry {
	all := map[string]*scopeEntry{}
	for _, row := range scopeRows {
		name, mark := strings.CutSuffix(row[0], " =")
		name, script := strings.CutSuffix(name, " +")
		all[name] = &scopeEntry{options: strings.Fields(row[1]), operands: mark, script: script}
		first, _, _ := strings.Cut(name, " ")
		all[first+" "] = all[name] // the program is in the table
	}
	return all
})

// runners returns programs without a scope: shells, interpreters, programs that start others, package runners, and
// programs that delete, copy or send whatever they are told to. Digits at the end of a name do not matter.
var runners = sync.OnceValue(func() []string {
	return strings.Fields(`
		sh bash dash zsh ksh mksh ash fish csh tcsh yash nu elvish xonsh rbash busybox toybox pwsh powershell cmd
		python pypy ipython ruby irb jruby perl node nodejs deno bun php lua luajit tclsh wish expect guile racket scheme sbcl
		clisp ocaml ghci runghc runhaskell stack swipl julia R Rscript octave awk gawk mawk nawk sed jq yq bc dc m4 osascript
		elixir iex erl escript scala kotlin groovy jshell java dart ts-node tsx jupyter emacs vi vim nvim view ex ed nano
		sqlite psql mysql mariadb mongo mongosh redis-cli gdb lldb dtrace bpftrace
		env nice nohup setsid command builtin exec eval source alias time timeout stdbuf ionice chroot watch xargs parallel
		sudo doas su runuser pkexec flock script strace ltrace valgrind perf unshare nsenter bwrap firejail proot fakeroot
		fakechroot systemd-run systemctl at batch crontab cron tmux screen find fd entr nodemon watchexec watchman xvfb-run
		dbus-run-session start-stop-daemon taskset numactl chrt prlimit setarch linux32 linux64 unbuffer cgexec torsocks
		proxychains direnv devbox nix nix-shell nix-env guix asdf mise rtx pyenv rbenv nodenv nvm sdk cmake meson bazel
		buck pants scons ant invoke fab task tox nox hatch pre-commit husky lefthook act circleci
		npx pnpx bunx uvx uv pipx poetry pdm pipenv conda mamba bundle bundler gem corepack volta pip easy_install
		apt apt-get dpkg dnf yum zypper pacman apk brew snap flatpak go-task
		ssh scp sftp rsync rclone telnet ftp curl wget nc ncat netcat socat openssl gpg docker podman nerdctl buildah lxc
		kubectl helm terraform ansible ansible-playbook vagrant qemu aws gcloud az
		rm rmdir unlink shred truncate dd cp mv ln install tee chmod chown chgrp chattr setfacl kill pkill killall
		tar zip unzip cpio ar gzip 7z patch ld as gcc g++ cc c++ clang clang++ tcc rustc javac`)
})
