package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// everyday are forty tasks as models do them, in order, in one project. Each is the calls of one turn;
// asks is the number of calls a person is asked about if each answer is remembered in its widest scope.
var everyday = []struct {
	name  string
	calls []string // NAME JSON
	asks  int
}{
	{"look around", []string{`list_directory {"path":"."}`, `read_file {"path":"README.md"}`}, 0},
	{"find a function", []string{`search_files {"pattern":"func Total","path":"."}`}, 0},
	{"list files", []string{`exec_shell {"command":"ls -la"}`}, 0},
	{"read some lines", []string{`exec_shell {"command":"sed -n 1,5p cart.go"}`}, 0},
	{"count lines", []string{`exec_shell {"command":"wc -l *.go"}`}, 0},
	{"grep", []string{`exec_shell {"command":"grep -rn Total --include=*.go ."}`}, 0},
	{"a field of JSON", []string{`exec_shell {"command":"jq -r .name web/package.json"}`}, 0},
	{"a column", []string{`exec_shell {"command":"awk '{print $1}' README.md | sort | uniq -c"}`}, 0},
	{"which program", []string{`exec_shell {"command":"which go && go version"}`}, 0},
	{"status", []string{`exec_shell {"command":"git status --short"}`, `exec_shell {"command":"git diff"}`}, 0},
	{"history", []string{`exec_shell {"command":"git log --oneline -5"}`}, 0},
	{"sizes", []string{`exec_shell {"command":"du -sh web; stat -c %s cart.go; file README.md"}`}, 0},
	{"a sum", []string{`exec_shell {"command":"python3 -c 'print(sum(range(10)))'"}`}, 0},
	{"ask node", []string{`exec_shell {"command":"node -p process.version"}`}, 0},
	{"a checksum", []string{`exec_shell {"command":"sha256sum cart.go"}`}, 0},
	{"files and a loop", []string{`exec_shell {"command":"for f in *.go; do head -n 1 $f; done"}`}, 0},
	{"find and count", []string{`exec_shell {"command":"find . -name '*.go' -print0 | xargs -0 wc -l"}`}, 0},
	{"formatted?", []string{`exec_shell {"command":"gofmt -l ."}`}, 0},
	{"the makefile", []string{`exec_shell {"command":"make -n test"}`}, 0},
	{"environment", []string{`exec_shell {"command":"uname -a; date; env | sort | head -n 3"}`}, 0},
	{"tests", []string{`exec_shell {"command":"go test ./...","timeout":300,"write":true}`}, 1},
	{"fix a bug", []string{`edit_file {"path":"cart.go","old_text":"prices[1:]","new_text":"prices"}`}, 1},
	{"tests again", []string{`exec_shell {"command":"go test ./...","timeout":300,"write":true}`}, 0},
	{"one test", []string{`exec_shell {"command":"go test -run TestTotal -v .","timeout":300,"write":true}`}, 0},
	{"an edit without a match", []string{`edit_file {"path":"cart.go","old_text":"nothing like it","new_text":"x"}`}, 0},
	{"the same text again", []string{`write_file {"path":"web/package.json","content":"{\"name\": \"web\", \"scripts\": {\"test\": \"node --test\"}}\n"}`}, 0},
	{"a missing file", []string{`edit_file {"path":"none.go","old_text":"a","new_text":"b"}`}, 0},
	{"a new test", []string{`write_file {"path":"empty_test.go","content":"package shop\n"}`}, 0},
	{"another edit", []string{`edit_file {"path":"README.md","old_text":"cart","new_text":"basket"}`}, 0},
	{"an edit in a folder", []string{`edit_file {"path":"web/price.js","old_text":"cents / 100","new_text":"(cents / 100).toFixed(2)"}`}, 0},
	{"npm test", []string{`exec_shell {"command":"cd web && npm test","timeout":120,"write":true}`}, 1},
	{"npm test again", []string{`exec_shell {"command":"cd web && npm test","timeout":120,"write":true}`}, 0},
	{"build", []string{`exec_shell {"command":"go build ./...","timeout":300,"write":true}`}, 1},
	{"vet", []string{`exec_shell {"command":"go vet ./...","timeout":300,"write":true}`}, 1},
	{"format", []string{`exec_shell {"command":"gofmt -w cart.go","write":true}`}, 1},
	{"vet without writing, and commit", []string{`exec_shell {"command":"go vet ./...","timeout":300}`, `exec_shell {"command":"git add -A && git commit -q -m 'Count every price'","write":true}`}, 1},
	{"and again", []string{`write_file {"path":"web/new.js","content":"// new\n"}`, `exec_shell {"command":"git add -A && git commit -q -m 'Add a file'","write":true}`}, 0},
	{"a folder", []string{`exec_shell {"command":"mkdir -p docs","write":true}`}, 1},
	{"a server", []string{`exec_shell {"command":"node web/server.js","background":true}`, `read_output {"id":"proc_c0_0","wait":1}`, `stop_process {"id":"proc_c0_0"}`}, 0},
	{"remove a file", []string{`exec_shell {"command":"rm web/new.js","write":true}`}, 1},
}

// TestQuestions_EverydayTasks counts the questions of forty tasks: none is about a read.
func TestQuestions_EverydayTasks(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"git", "go", "node", "npm", "python3", "jq", "make", "file"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIP: %s is not installed: the questions of everyday tasks are not counted", program)
		}
	}
	d := newDay(t)
	total, calls := 0, 0
	for i, task := range everyday {
		calls += len(task.calls)
		asked := d.do(i, task.calls)
		total += len(asked)
		if len(asked) != task.asks {
			t.Errorf("%s: %d questions, want %d: %s", task.name, len(asked), task.asks, asked)
		}
	}
	t.Logf("%d tasks, %d calls, %d questions", len(everyday), calls, total)
}

// A day is a project and a home in which tasks are done one after another.
type day struct {
	t   *testing.T
	dir string
	env []string
}

func newDay(t *testing.T) *day {
	t.Helper()
	home := t.TempDir()
	d := &day{t: t, dir: filepath.Join(home, "shop")}
	d.env = []string{"HOME=" + home, "PATH=" + shippedPath(t), "LANG=C.UTF-8", "GORACE=" + os.Getenv("GORACE")}
	config := &strings.Builder{}
	config.WriteString("providers:\n")
	for i, task := range everyday {
		fmt.Fprintf(config, "  d%d: {type: script, file: d%d.yaml}\n", i, i)
		list := make([]string, len(task.calls))
		for j, call := range task.calls {
			name, args, _ := strings.Cut(call, " ")
			list[j] = fmt.Sprintf("{name: %s, id: c%d_%d, arguments: %s}", name, i, j, args)
			if strings.Contains(call, "proc_") {
				list[j] = strings.ReplaceAll(list[j], "proc_c0_0", fmt.Sprintf("proc_c%d_0", i))
			}
		}
		text := ""
		for _, one := range list {
			text += "- tool_calls: [" + one + "]\n"
		}
		d.file(fmt.Sprintf("d%d.yaml", i), text+"- text: done\n", home)
	}
	d.file("toolcrib.yaml", config.String(), home)
	for name, text := range walkFiles {
		if strings.HasPrefix(name, "shop/") {
			d.file(name, text, home)
		}
	}
	d.env = append(d.env, "TOOLCRIB_CONFIG="+filepath.Join(home, "toolcrib.yaml"))
	d.file("shop/Makefile", "test:\n\tgo test ./...\n", home)
	d.file(".gitconfig", "[user]\n\tname = Ada\n\temail = ada@example.com\n", home)
	for _, args := range [][]string{{"init", "-q", "."}, {"add", "."}, {"commit", "-q", "-m", "A shop"}} {
		if out, code := d.run("git", args...); code != 0 {
			t.Fatalf("git %s: %s", args, out)
		}
	}
	return d
}

func (d *day) file(name, text, home string) {
	d.t.Helper()
	path := filepath.Join(home, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		d.t.Fatal(err)
	}
}

// run runs a program in the project. It returns its standard output and its exit status.
func (d *day) run(name string, args ...string) (string, int) {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), name, args...)
	cmd.Dir, cmd.Env = d.dir, d.env
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		d.t.Fatalf("%s %s: %v", name, args, err)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 3 {
		d.t.Logf("%s %s: exit %d: %s", name, args, code, errs.String())
		return out.String(), code
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// do does one task, approves each call that is asked about, and returns these calls.
func (d *day) do(i int, calls []string) (asked []string) {
	d.t.Helper()
	_, code := d.run("toolcrib", "run", "-m", fmt.Sprintf("d%d/x", i), "--json", "do it")
	for code == 3 {
		out, _ := d.run("toolcrib", "approvals", "show", "last", "--json")
		var shown struct {
			Digest string `json:"digest"`
			Calls  []struct {
				Tool string          `json:"name"`
				Args json.RawMessage `json:"arguments"`
			} `json:"calls"`
		}
		if err := json.Unmarshal([]byte(out), &shown); err != nil {
			d.t.Fatalf("%v: %s", err, out)
		}
		for _, call := range shown.Calls {
			asked = append(asked, call.Tool+" "+string(call.Args))
		}
		if len(asked) > 2*len(calls) {
			d.t.Fatalf("asked again and again: %s", asked)
		}
		args := []string{"approvals", "approve", "last", "--digest", shown.Digest, "--resume", "--remember", "user"}
		wide := "folder"
		if shown.Calls[0].Tool == "exec_shell" {
			wide = "program"
		}
		if _, code = d.run("toolcrib", append(args, "--remember-calls", wide)...); code == 2 { // it has no such scope
			_, code = d.run("toolcrib", args...)
		}
		if code != 0 && code != 3 {
			break
		}
	}
	if code != 0 {
		d.t.Errorf("task %d: exit status %d", i, code)
	}
	return asked
}
