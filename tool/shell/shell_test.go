package shell_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

func TestMain(m *testing.M) {
	shell.Main() // the programs of the tests run in the sandbox
	if workspace := os.Getenv(parentEnv); workspace != "" {
		os.Exit(parent(workspace))
	}
	// Most tests wait for processes. A -parallel that is given counts.
	if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)*3/2)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// secret is what must never come out.
const secret = "CANARY-7f3a91"

// parentEnv makes the test binary a program that runs a long command in the folder
// that it names, to be killed.
const parentEnv = "TOOLCRIB_SHELL_TEST_PARENT"

func parent(workspace string) int {
	made, err := shell.New(shell.Options{
		Mode: shell.ModeAny, Unconfined: func(toolcrib.Principal) bool { return true },
	})
	if err != nil {
		return 1
	}
	line := strings.ReplaceAll(`sleep 1000.M & setsid sleep 1000.M & (setsid sh -c "setsid sleep 1000.M & sleep 1000.M" &) & echo > started; wait`,
		"M", os.Getenv(parentEnv+"_MARK"))
	behind := os.Getenv(parentEnv+"_BEHIND") != ""
	data, err := json.Marshal(map[string]any{"command": line, "timeout": 300, "background": behind})
	if err != nil {
		return 1
	}
	var all sync.WaitGroup
	_, _ = made.Call(context.Background(), toolcrib.Call{Name: shell.Name, Arguments: data, Workspace: workspace, Behind: func(work func(context.Context)) bool {
		all.Go(func() { work(context.Background()) })
		return true
	}})
	all.Wait()
	return 0
}

// probed asks the machine once for all tests.
var probed = sync.OnceValue(shell.Probe)

// tool makes exec_shell; without a Report the machine's own is taken.
func tool(t testing.TB, options shell.Options) toolcrib.Tool {
	t.Helper()
	if options.Report == nil {
		report := probed()
		options.Report = &report
	}
	if options.Unconfined == nil {
		options.Unconfined = func(toolcrib.Principal) bool { return true }
	}
	made, err := shell.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// asks returns why a person looks at a call first; "" = nobody does.
func asks(made toolcrib.Tool, call toolcrib.Call) string {
	var why []string
	for _, c := range tooltest.Facts(made, call).Concerns {
		why = append(why, c.Why)
	}
	return strings.Join(why, "; ")
}

// landlockOnly is the machine's report without bubblewrap.
func landlockOnly() *shell.Report {
	r := probed()
	r.Bubblewrap = ""
	return &r
}

func folder(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func callOf(t testing.TB, workspace, command string, timeout int) toolcrib.Call {
	t.Helper()
	in := map[string]any{"command": command}
	if timeout > 0 {
		in["timeout"] = timeout
	}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return toolcrib.Call{ID: "call_1", Name: shell.Name, Arguments: data, Run: "run_1", Workspace: workspace}
}

// writing is callOf for a line that is to write.
func writing(t testing.TB, workspace, command string, timeout int) toolcrib.Call {
	t.Helper()
	call := callOf(t, workspace, command, timeout)
	call.Arguments = append(call.Arguments[:len(call.Arguments)-1:len(call.Arguments)-1], `,"write":true}`...)
	return call
}

type output struct {
	ExitCode        int    `json:"exit_code"`
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	DurationMS      *int64 `json:"duration_ms"`
	Signal          string `json:"signal"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	Warning         string `json:"warning"`
	Hint            string `json:"hint"`
}

// alone is a call that leaves nothing to be done beside those that follow.
func alone(call toolcrib.Call) toolcrib.Call {
	call.Behind = func(func(context.Context)) bool { return false }
	return call
}

// runIn runs a call as one of several of a run: what it leaves is cleared away when it returns, and the next one
// finds a sandbox that waits, where one can.
func runIn(ctx context.Context, t testing.TB, made toolcrib.Tool, call toolcrib.Call) (output, error) {
	t.Helper()
	if call.Behind == nil {
		call.Behind = func(work func(context.Context)) bool {
			done := make(chan struct{})
			go func() {
				defer close(done)
				work(t.Context())
			}()
			t.Cleanup(func() { <-done })
			for !shell.Waits(made) {
				select {
				case <-done:
					return true
				case <-time.After(time.Millisecond):
				}
			}
			return true
		}
	}
	out, err := made.Call(ctx, call)
	if err != nil {
		return output{}, err
	}
	if out.IsError {
		t.Error("an exit status is marked as an error of the tool")
	}
	var o output
	if err := json.Unmarshal(out.JSON, &o); err != nil {
		t.Fatalf("%v in %s", err, out.JSON)
	}
	return o, nil
}

func admit(made toolcrib.Tool, call toolcrib.Call) error { return tooltest.Refused(made, call) }

func effect(made toolcrib.Tool, call toolcrib.Call) toolcrib.Effect {
	return tooltest.Facts(made, call).Effect
}

// kind is the kind of a ToolError, "" for nil.
func kind(t testing.TB, err error) toolcrib.ToolErrorKind {
	t.Helper()
	if err == nil {
		return ""
	}
	var made *toolcrib.ToolError
	if !errors.As(err, &made) {
		t.Fatalf("error %v (%T) is not made for the model", err, err)
	}
	return made.Kind
}

// project fills a workspace with ordinary files.
func project(t testing.TB) string {
	t.Helper()
	dir := folder(t)
	write(t, filepath.Join(dir, "README.md"), "# Title\n\nhello world\nNOTE: more\n")
	write(t, filepath.Join(dir, "notes.txt"), "banana\napple\ncherry\napple\n")
	write(t, filepath.Join(dir, "numbers.txt"), "10\n9\n2\n1\n")
	write(t, filepath.Join(dir, "src/main.go"), "package main\n\n// NOTE: sudo\nfunc main() {}\n")
	write(t, filepath.Join(dir, "src/util.go"), "package main\n\nfunc one() int { return 1 }\n")
	write(t, filepath.Join(dir, "data/a.csv"), "a,1\nb,2\n")
	write(t, filepath.Join(dir, "data/b.csv"), "a,1\nc,3\n")
	write(t, filepath.Join(dir, "with space.txt"), "spaced\n")
	write(t, filepath.Join(dir, ".hidden"), "dot\n")
	return dir
}

// ordinaryLines work without an approval. out is contained in stdout, exit is the
// status.
var ordinaryLines = []struct {
	line, out string
	exit      int
}{
	{"echo hello", "hello\n", 0},
	{`echo "two words" 'and more'`, "two words and more\n", 0},
	{`echo a\ b`, "a b\n", 0},
	{"echo -n x", "x", 0},
	{"pwd", "/", 0},
	{"pwd -P", "/", 0},
	{"ls", "README.md\n", 0},
	{"ls -la", ".hidden", 0},
	{"ls -lh src data", "main.go", 0},
	{"ls -R", "src:", 0},
	{"ls -1 *.txt", "notes.txt\n", 0},
	{"ls --all --color=never", ".hidden", 0},
	{"cat README.md", "hello world", 0},
	{"cat *.md", "# Title", 0},
	{"cat -n src/main.go", "1\tpackage main", 0},
	{"cat 'with space.txt'", "spaced", 0},
	{`cat with\ space.txt`, "spaced", 0},
	{"cat ./src/../README.md", "hello", 0},
	{"cat data/*.csv | sort | uniq -c | sort -rn", "2 a,1", 0},
	{"head -n 1 README.md", "# Title\n", 0},
	{"head -2 notes.txt", "banana\napple\n", 0},
	{"head -c 5 notes.txt", "banan", 0},
	{"tail -n 2 notes.txt", "cherry\napple\n", 0},
	{"tail -1 notes.txt", "apple\n", 0},
	{"tail -n +3 notes.txt", "cherry\napple\n", 0},
	{"wc -l notes.txt", "4 notes.txt", 0},
	{"wc -l src/*.go", "total", 0},
	{"wc -l < notes.txt", "4\n", 0},
	{"grep -rn NOTE .", "README.md:4:NOTE", 0},
	{"grep -rn sudo .", "NOTE: sudo", 0},
	{"grep -n NOTE src/*.go", "src/main.go:3:", 0},
	{"grep -c apple notes.txt", "2\n", 0},
	{"grep -E '^(a|b)' notes.txt", "banana\napple", 0},
	{"grep -i TITLE README.md", "# Title", 0},
	{"grep -A1 -B1 hello README.md", "NOTE", 0},
	{"grep --include='*.go' -rl package src", "src/main.go", 0},
	{"grep -q nothing notes.txt", "", 1},
	{"grep -v apple notes.txt 2>/dev/null", "banana", 0},
	{"find . -name '*.go'", "./src/main.go", 0},
	{"find . -type f -name '*.csv' -size -10k", "./data/a.csv", 0},
	{`find src \( -name main.go -o -name other.go \) -print`, "src/main.go", 0},
	{"find . -maxdepth 1 -not -name '.*' -printf '%f\\n'", "README.md\n", 0},
	{"find . -newer notes.txt -type f | wc -l", "\n", 0},
	{"sort notes.txt", "apple\napple\nbanana\ncherry\n", 0},
	{"sort -n numbers.txt", "1\n2\n9\n10\n", 0},
	{"sort -t, -k2,2nr data/b.csv", "c,3\na,1", 0},
	{"sort -u notes.txt", "apple\nbanana\ncherry\n", 0},
	{"sort notes.txt | uniq", "apple\nbanana\ncherry\n", 0},
	{"uniq notes.txt", "banana", 0},
	{"diff data/a.csv data/b.csv", "< b,2", 1},
	{"diff -u data/a.csv data/b.csv", "+c,3", 1},
	{"diff -r data data", "", 0},
	{"diff /dev/null README.md", "> # Title", 1},
	{"date +%Y", "20", 0},
	{"date -u", "UTC", 0},
	{"date -d '2020-01-02' +%F", "2020-01-02", 0},
	{"true", "", 0},
	{"false", "", 1},
	{"test -f README.md", "", 0},
	{"test -d README.md", "", 1},
	{"[ -f notes.txt ] && echo yes", "yes\n", 0},
	{"test -f nothing || echo no", "no\n", 0},
	{"test 3 -gt 2 && test abc = abc && echo ok", "ok\n", 0},
	{"false && echo never; echo after", "after\n", 0},
	{"echo a; echo b", "a\nb\n", 0},
	{"echo one\necho two", "one\ntwo\n", 0},
	{"ls nothing 2>&1 | wc -l", "1\n", 0},
	{"cat nothing 2>/dev/null || echo missing", "missing\n", 0},
	{"echo loud >/dev/null", "", 0},
	{"cat < README.md | head -1", "# Title", 0},
	{"echo '$HOME `id` $(id)'", "$HOME `id` $(id)\n", 0},
	{"echo rm -rf / is only text", "rm -rf / is only text\n", 0},
	{"grep -rn 'mkfs\\|shutdown' src", "", 1},
	{"ls *.nothing", "", 2},
	{"# a comment\necho said", "said\n", 0},
}

func TestC9_OrdinaryLines(t *testing.T) {
	t.Parallel()
	if len(ordinaryLines) < 40 {
		t.Fatalf("only %d lines", len(ordinaryLines))
	}
	for name, options := range map[string]shell.Options{
		"sandbox": {Report: landlockOnly()}, "without": {Report: &shell.Report{Problem: "switched off"}},
	} {
		t.Run(name, func(t *testing.T) {
			made, dir := tool(t, options), project(t)
			for _, c := range ordinaryLines {
				call := callOf(t, dir, c.line, 0)
				if err := admit(made, call); err != nil {
					t.Errorf("%q is refused: %v", c.line, err)
					continue
				}
				if got := effect(made, call); got != toolcrib.EffectReadOnly {
					t.Errorf("%q: effect %s", c.line, got)
				}
				got, err := runIn(t.Context(), t, made, call)
				if err != nil {
					t.Errorf("%q: %v (%v)", c.line, err, errors.Unwrap(err))
					continue
				}
				if got.ExitCode != c.exit || !strings.Contains(got.Stdout, c.out) {
					t.Errorf("%q: %+v, want status %d and %q", c.line, got, c.exit, c.out)
				}
				if got.DurationMS == nil {
					t.Errorf("%q: no duration_ms", c.line)
				}
			}
		})
	}
}
