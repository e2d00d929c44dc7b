package line_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// scopeRows are remembered scopes with lines that an approval of the scope covers (+), and lines that it does not
// (-). Lines under "no scope" have none.
const scopeRows = `
go test
+ go test
+ go test ./...
+ go test ./tool/shell/internal/line -run 'TestX/sub|TestY' -count=1 -v
+ go test -run=TestX -race -short -timeout 30s ./a ./b
+ go test -v -x ./...
+ go test -count=1 ./... 2>&1
+ go test ./... >/dev/null 2>&1
+ go test ./... 2>/dev/null </dev/null
+ "go" 'test' ./...
+ g\o test ./...
+ go test ./...;
+ go test ./... # all
+ go test -cpu 1,2 -bench . -benchmem -benchtime=2x
- go vet ./...
- go build ./...
- go run .
- go testx ./...
- GO test ./...
- go test -exec ./evil ./...
- go test -exec=./evil ./...
- go test --exec=./evil ./...
- go test -toolexec=x ./...
- go test -toolexec x
- go test --toolexec x
- go test -vettool=x
- go test -o ../x
- go test -o x
- go test -o=x
- go test -c
- go test -C .. ./...
- go test -C / ./...
- go test -overlay=o.json ./...
- go test -modfile=x.mod ./...
- go test -ldflags=-extld=x ./...
- go test -gcflags=all=-N ./...
- go test -asmflags x
- go test -gccgoflags x
- go test -compiler gccgo
- go test -pkgdir x
- go test -installsuffix x
- go test -coverprofile=c.out
- go test -cpuprofile x
- go test -memprofile=x
- go test -trace x
- go test -outputdir x
- go test -args -test.coverprofile=x
- go test -test.v
- go -C .. test
- go -C=/ test
- FOO=1 go test
- GOFLAGS=-exec=x go test ./...
- PATH=.:$PATH go test
- env go test
- env GOFLAGS=-exec=x go test
- go test GOFLAGS=-exec=x
- go test CC=evil
- go test ./... > f
- go test ./... >> f
- go test ./... 2> f
- go test ./... &> f
- go test ./... >| f
- go test ./... < f
- go test ./... <<< x
- go test ./... | tee f
- go test ./... | sh
- go test ./... | tail -5
- go test; rm -rf .
- go test && rm x
- go test || rm x
- go test & rm x
- go test &
- ! go test
- (go test)
- { go test; }
- go test $(x)
- go test $X
- go test ${X:-y}
- go test "$X"
- go test $((1+1))
- go test <(x)
- go test *
- go test ./*.go
- go test [ab]
- go test {a,b}
- go test $'\x2dexec=x'
- cd .. && go test
- go test && go vet
- cd sub; go test
- time go test
- exec go test
- command go test
- nice go test
- timeout 60 go test
- sh -c 'go test'
- if true; then go test; fi
- go() { rm x; }; go test
- ./go test
- /usr/bin/go test
- ../go test
- bin/go test
- go test ..
- go test ../...
- go test ./../x
- go test a/../../x
- go test a/..
- go test /etc
- go test ~/x
- go test -run=/etc/x
- go test -run=../x
- go test -coverpkg=./a,../b
- go test @file
- go test 'a b' -o x
- "go test" ./...
- go1 test
- go test -vo x
- go test -- -exec x

go mod tidy
+ go mod tidy
+ go mod tidy -v
- go mod edit -replace a=b
- go mod download
- go mod
- go mod vendor -o x

gofmt
+ gofmt -l -w .
+ gofmt -d a.go b.go
- gofmt -cpuprofile=x a.go
- gofmt -w ../x.go
- gofmt -w *.go

npm run lint
+ npm run lint
+ npm run lint -- --fix src
+ npm run lint -s
- npm run build
- npm run lint --prefix /
- npm run lint --prefix=..
- npm run lint -- --config=/etc/x
- npm run lint -- --config x.js
- npm run lint -- --rulesdir x
- npm run lint -- -o out
- npm run lint --script-shell=x
- npm --prefix / run lint
- npm -C .. run lint
- npm run 'lint x'
- npm run
- npm install x
- npm exec lint
- npx lint

npm test
+ npm test
+ npm test -- --bail -t 'a name'
- npm test -- --outputFile=x
- npm --userconfig x test

yarn run lint
+ yarn run lint src
- yarn lint
- yarn run node
- yarn dlx lint
- yarn run ./x

make test
+ make test
+ make -j4 test
+ make -ks test
+ make -s -B test 2>&1
- make
- make all
- make test deploy
- make deploy test
- make -f evil.mk test
- make -fevil test
- make --file=evil.mk test
- make --makefile evil.mk test
- make -C sub test
- make -C.. test
- make -I x test
- make --directory=/ test
- make --eval='$(shell x)' test
- make -o x test
- make -W x test
- make -jf test
- make test CC=evil
- make SHELL=/bin/x test
- make test X:=1
- make test X+=1
- make test X?=1
- make test X!=id
- make -kf x test
- make 'test deploy'

make
+ make -j 
+ make -k
- make test
- make X=1

cargo test
+ cargo test
+ cargo test --workspace --release -- --nocapture name
+ cargo test -p core -j4
- cargo build
- cargo --config x=y test
- cargo test --config x=y
- cargo test --config build.rustc-wrapper=x
- cargo test --manifest-path ../Cargo.toml
- cargo test --target-dir x
- cargo test --target x.json
- cargo test -Z unstable
- cargo +nightly test
- cargo -C .. test
- cargo run

pytest
+ pytest
+ pytest -xvs tests/test_a.py -k 'a and b'
+ pytest --tb=short --maxfail=1 -n4
- pytest -c x.ini
- pytest -p plugin
- pytest --rootdir=.. tests
- pytest -o cache_dir=x
- pytest --basetemp=x
- pytest --junitxml=x
- pytest --pdb
- python -m pytest

git commit
+ git commit -am 'one: two'
+ git commit --amend --no-edit
+ git commit -m "first line

the rest, with /a/path"
- git add .
- git commit -F /etc/passwd
- git commit -F msg
- git commit -t tmpl
- git commit -C HEAD
- git -c core.editor=x commit -m x
- git -c alias.commit='!x' commit
- git -C .. commit -m x
- git --git-dir=x commit
- git --exec-path=x commit -m x
- git commit --no-verify -m x
- git commit --gpg-sign=x

git add
+ git add -A
+ git add src/a.go
- git add ../x
- git add :/
- git add :(top)x
- git add --pathspec-from-file=x

git add, git commit
+ git add -A && git commit -q -m 'one: two'
+ git commit -m one; git add .
+ git add a; git add b || git commit -m x
- git add -A
- git commit -m x
- git add -A && git commit -F /etc/passwd
- git add ../x && git commit -m x
- git add -A && git commit -m "$X"
- git add -A && git commit -m x > f
- git add -A && git commit -m x && git push
- git add -A && FOO=1 git commit -m x
- git add -A | git commit -m x
- git add -A & git commit -m x
- git add -A && ! git commit -m x
- cd sub && git add -A && git commit -m x

go test, go vet, mkdir, touch
+ mkdir x && touch x/y && go vet ./... && go test ./...
- mkdir x && touch x/y && go vet ./... && go test ./... && go build ./...

make a
- make a, make b
- make 'a,' b
- make a && rm x

mkdir
+ mkdir -p a/b c
- mkdir ../x
- mkdir -p /x
- mkdir -m 777 x
- mkdir $X

mytool check
- mytool check
- mytool check a b -v --color=never
- mytool
- mytool fix
- mytool check -o x
- mytool check --out x
- mytool check --config=x
- mytool check -vx
- mytool check ../x
- mytool check X=1
- mytool check sh
- mytool check python
- mytool -c x check
- mytool 'check x'

no scope
- python x.py
- python3.11 -m http.server
- python3 -c 'x'
- node x.js
- ruby x
- perl -e x
- php x
- deno run x
- bun test
- sh x.sh
- bash -c x
- zsh script
- npx eslint .
- pnpm dlx x
- pnpm exec x
- uvx x
- uv run x
- pipx run x
- poetry run x
- bundle exec rspec
- env x
- xargs rm
- nohup x
- watch make
- find . -exec x ;
- sudo x
- ssh host x
- curl host
- docker run x
- kubectl apply
- tar xf
- sed -i s/a/b/ f
- awk x
- git push
- git pull
- git rebase main
- git checkout .
- git config x y
- go run ./x
- go get x
- go tool x
- go install x
- go env -w X=y
- npm ci
- npm publish
- npm x
- cargo install x
- cargo run
- rm x
- mv a b
- cp a b
- chmod +x a
- dd of=x
- kill 1
- ./gradlew test
- ./x check
- script.sh check
- mytool sh
- mytool env
- mytool x.js
- strace ls
- flock x ls
- X=1
- > f
- cat a | sort
`

// What an approval of a program with its subcommand covers, and what it does not (contract of remembered approvals).
func TestH16_Scope(t *testing.T) {
	scope, rows := "", 0
	text := strings.ReplaceAll(scopeRows, "\n\nthe rest", "\x00the rest")
	for row := range strings.SplitSeq(text, "\n") {
		row = strings.ReplaceAll(row, "\x00", "\n\n")
		sign, command, ok := strings.Cut(row, " ")
		if sign != "+" && sign != "-" || !ok {
			if row != "" {
				scope = row
			}
			continue
		}
		rows++
		got := ""
		if l, err := line.Parse(command); err == nil {
			got = l.Scope()
		} else if sign == "+" {
			t.Errorf("%s: %v", command, err)
		}
		switch {
		case scope == "no scope" && got != "":
			t.Errorf("%q has the scope %q", command, got)
		case scope != "no scope" && (got == scope) != (sign == "+"):
			t.Errorf("%q has the scope %q; by an approval of %q: %s", command, got, scope, sign)
		}
	}
	if rows < 290 {
		t.Errorf("only %d rows", rows)
	}
}

// A line has no scope if a path leads outside through a link, if the repository may name a program for git, and if
// it would run without the sandbox.
func TestH16_ScopeInWorkspace(t *testing.T) {
	dir := t.TempDir()
	for link, to := range map[string]string{"out": t.TempDir(), "in": "."} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	r, _ := in(t, dir, ask)
	elsewhere := *r
	elsewhere.Elsewhere = true
	for _, tt := range []struct {
		rules       *line.Rules
		line, scope string
	}{
		{r, "gofmt -l in/x.go", "gofmt"},
		{r, "gofmt -l out/x.go", ""},
		{r, "gofmt -l -local=out/x.go", ""},
		{r, "gofmt -l ./out/../x.go", ""},
		{r, "mkdir " + dir + "/x", ""},
		{&elsewhere, "gofmt -l in/x.go", ""},
	} {
		if got := must(t, tt.rules, tt.line).Scope; got != tt.scope {
			t.Errorf("%s: %q, want %q", tt.line, got, tt.scope)
		}
	}
	for config, scope := range map[string]string{"[core]\n\tbare = false\n": "git commit", "[core]\n\teditor = x\n": ""} {
		r, d := in(t, dir, ask)
		d.config = []string{config}
		if got := must(t, r, "git commit -m x").Scope; got != scope {
			t.Errorf("%q: %q, want %q", config, got, scope)
		}
	}
}
