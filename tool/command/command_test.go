package command_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/command"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

func TestMain(m *testing.M) {
	shell.Main()
	os.Exit(m.Run())
}

// house is a workspace and a folder of programs outside of it.
type house struct{ workspace, programs string }

func newHouse(t *testing.T) house {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("programs are not available on this system")
	}
	real, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := house{filepath.Join(real, "ws"), filepath.Join(real, "programs")}
	for _, dir := range []string{h.workspace, h.programs} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// script writes a script, and returns its path and its hash.
func script(t *testing.T, dir, name, text string) (path, sum string) {
	t.Helper()
	path, text = filepath.Join(dir, name), "#!/bin/sh\n"+text
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	of := sha256.Sum256([]byte(text))
	return path, hex.EncodeToString(of[:])
}

func (h house) call(arguments string) toolcrib.Call {
	return toolcrib.Call{
		Workspace: h.workspace, Arguments: json.RawMessage(arguments), Principal: toolcrib.Principal{User: "ann"},
		MaxBytes: 65536,
	}
}

func made(t *testing.T, options shell.Options, o command.Options) toolcrib.Planner {
	t.Helper()
	programs, err := shell.NewPrograms(options)
	if err != nil {
		t.Fatal(err)
	}
	o.Name = "one"
	tool, err := command.New(programs, o)
	if err != nil {
		t.Fatal(err)
	}
	return tool.(toolcrib.Planner)
}

const oneWord = `{"type":"object","properties":{"x":{"type":"string"}}}`

// Without a sandbox a call asks each time, and its words stay in the workspace; where one is required, it is refused.
// read_only is then a write.
func TestPlan_WithoutSandbox(t *testing.T) {
	h := newHouse(t)
	path, _ := script(t, h.programs, "p", "cat \"$1\"\n")
	none := &shell.Report{Problem: "nothing here"}
	o := command.Options{
		Program: shell.Program{Path: path}, Command: []string{path, "{args.x}"}, Parameters: json.RawMessage(oneWord), Effect: toolcrib.EffectReadOnly,
	}
	if _, err := made(t, shell.Options{Report: none}, o).Plan(t.Context(), h.call(`{"x":"a.txt"}`)); err == nil ||
		!strings.Contains(err.Error(), "run for administrators only") {
		t.Error(err)
	}
	anyone := func(toolcrib.Principal) bool { return true }
	tool := made(t, shell.Options{Report: none, Unconfined: anyone}, o)
	plan, err := tool.Plan(t.Context(), h.call(`{"x":"a.txt"}`))
	if err != nil {
		t.Fatal(err)
	}
	if plan.Effect != toolcrib.EffectNonIdempotentWrite || len(plan.Concerns) != 1 ||
		plan.Concerns[0].Reason != toolcrib.ReasonNeedsConfirmation || !strings.Contains(plan.Concerns[0].Why, "there is no sandbox") {
		t.Errorf("%+v", plan)
	}
	for _, outside := range []string{"/etc/passwd", "../x", "a=../x", "a=/etc/passwd"} {
		raw, _ := json.Marshal(map[string]string{"x": outside})
		if _, err := tool.Plan(t.Context(), h.call(string(raw))); err == nil || !strings.Contains(err.Error(), "out of the workspace") {
			t.Errorf("%s: %v", outside, err)
		}
	}
	required := made(t, shell.Options{Report: none, Sandbox: shell.SandboxRequired}, o)
	if _, err := required.Plan(t.Context(), h.call(`{"x":"a.txt"}`)); err == nil || !strings.Contains(err.Error(), "a sandbox is required") {
		t.Error(err)
	}
	landlock := made(t, shell.Options{Report: &shell.Report{Helper: true, LandlockABI: 3}}, o)
	if plan, err := landlock.Plan(t.Context(), h.call(`{}`)); err != nil || !plan.Effect.Writes() || len(plan.Concerns) != 1 {
		t.Errorf("%+v, %v", plan, err)
	}
}

// The plan has what rules and people see: the program with its words, its files, and the exact line.
func TestPlan_Facts(t *testing.T) {
	h := newHouse(t)
	path, _ := script(t, h.programs, "p", "echo\n")
	tool := made(t, shell.Options{Report: &shell.Report{Helper: true, Bubblewrap: "/usr/bin/bwrap"}, Hidden: []string{h.programs + "/hidden"}}, command.Options{
		Program: shell.Program{Path: path}, Command: []string{path, "-f", "{args.x}"}, Parameters: json.RawMessage(oneWord),
		Effect: toolcrib.EffectIdempotentWrite,
	})
	plan, err := tool.Plan(t.Context(), h.call(`{"x":"sub/a b"}`))
	if err != nil {
		t.Fatal(err)
	}
	if plan.Effect != toolcrib.EffectIdempotentWrite || len(plan.Programs) != 1 || plan.Programs[0].Name.Text != "p" ||
		len(plan.Programs[0].Args) != 2 || plan.Programs[0].Args[1].Text != "sub/a b" {
		t.Errorf("%+v", plan)
	}
	if len(plan.Targets) != 2 || plan.Targets[0].Name != h.workspace || !plan.Targets[0].Tree ||
		plan.Targets[1].Name != h.workspace+"/sub/a b" || !plan.Targets[1].Write {
		t.Errorf("%+v", plan.Targets)
	}
	preview, err := plan.Preview(t.Context())
	if err != nil || !strings.HasPrefix(preview.Text, path+` -f "sub/a b"`+"\n") {
		t.Errorf("%q, %v", preview.Text, err)
	}
	if _, err := tool.Plan(t.Context(), h.call(`{"x":"`+h.programs+`/hidden/x"}`)); err == nil || !strings.Contains(err.Error(), "protected path") {
		t.Error(err)
	}
}

// What is run is what was compared: a pinned program that changes after it was judged does not run, and neither does one
// that is moved into the workspace.
func TestRun_ChangedMeanwhile(t *testing.T) {
	h := newHouse(t)
	path, sum := script(t, h.workspace, "p", "echo first\n")
	tool := made(t, shell.Options{}, command.Options{Program: shell.Program{Path: path, SHA256: sum}, Command: []string{path}})
	plan, err := tool.Plan(t.Context(), h.call(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	out, err := plan.Run(t.Context(), h.call(``))
	if err != nil || out.Text != "first\n" {
		t.Fatalf("%q, %v", out.Text, err)
	}
	script(t, h.workspace, "p", "touch hacked\n")
	if _, err := plan.Run(t.Context(), h.call(``)); err == nil || !strings.Contains(err.Error(), "was changed") {
		t.Error(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/bin/echo", path); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(t.Context(), h.call(``)); err == nil {
		t.Error("another program ran")
	}

	link := filepath.Join(h.programs, "link")
	other, _ := script(t, h.programs, "other", "echo other\n")
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	tool = made(t, shell.Options{}, command.Options{Program: shell.Program{Path: link}, Command: []string{link}})
	if plan, err = tool.Plan(t.Context(), h.call(`{}`)); err != nil {
		t.Fatal(err)
	}
	if out, err := plan.Run(t.Context(), h.call(``)); err != nil || out.Text != "other\n" {
		t.Errorf("%q, %v", out.Text, err)
	}
	inside, _ := script(t, h.workspace, "inside", "touch hacked\n")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(inside, link); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(t.Context(), h.call(``)); err == nil || !strings.Contains(err.Error(), "lies in the workspace") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(h.workspace, "hacked")); err == nil {
		t.Error("a changed program ran")
	}
}

// The network is closed unless the entry opens it.
func TestRun_Network(t *testing.T) {
	h := newHouse(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // at the end of the test
	path, _ := script(t, h.programs, "p", `exec bash -c "exec 3<>/dev/tcp/$1" 2>&1`+"\n")
	at := strings.Replace(listener.Addr().String(), ":", "/", 1)
	raw, _ := json.Marshal(map[string]string{"x": at})
	for _, network := range []bool{false, true} {
		tool := made(t, shell.Options{}, command.Options{
			Program: shell.Program{Path: path, Network: network}, Command: []string{path, "{args.x}"},
			Parameters: json.RawMessage(oneWord),
		})
		_, err := tool.Call(t.Context(), h.call(string(raw)))
		if confined := shell.Problem() == ""; (err == nil) != (network || !confined) {
			t.Errorf("network %v: %v", network, err)
		}
		if tool.Spec().Sink != network {
			t.Errorf("network %v: sink %v", network, tool.Spec().Sink)
		}
	}
}

// A program that does not read its input, or fails, is not waited for; a large input arrives whole.
func TestRun_Input(t *testing.T) {
	h := newHouse(t)
	large := `{"x":"` + strings.Repeat("y", 200_000) + `"}`
	for text, want := range map[string]string{"exec cat >/dev/null\n": "", "wc -c\n": "200008\n", "exit 0\n": "", "head -c 3\n": `{"x`} {
		path, _ := script(t, h.programs, "p", text)
		tool := made(t, shell.Options{}, command.Options{Program: shell.Program{Path: path}, Command: []string{path}, Input: true, Parameters: json.RawMessage(oneWord)})
		out, err := tool.Call(t.Context(), h.call(large))
		if err != nil || strings.TrimLeft(out.Text, " ") != want {
			t.Errorf("%q: %q, %v", text, out.Text, err)
		}
	}
}

func TestNew(t *testing.T) {
	programs, err := shell.NewPrograms(shell.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []command.Options{
		{},
		{Name: "a"},
		{Name: "a b", Command: []string{"ls"}},
		{Name: "a", Command: []string{"ls", "x{args.x}"}},
		{Name: "a", Command: []string{"ls"}, Program: shell.Program{Network: true}, Effect: toolcrib.EffectReadOnly},
	} {
		if tool, err := command.New(programs, o); err == nil {
			t.Errorf("%+v: %v", o, tool)
		}
	}
	a := made(t, shell.Options{}, command.Options{Command: []string{"ls"}}).Spec()
	b := made(t, shell.Options{}, command.Options{Command: []string{"id"}}).Spec()
	if a.Source == b.Source || !strings.HasPrefix(a.Source, "command:") || a.Effect != toolcrib.EffectNonIdempotentWrite || a.Sink {
		t.Errorf("%+v %+v", a, b)
	}
}

func TestCommand(t *testing.T) {
	h := newHouse(t)
	path, _ := script(t, h.programs, "p", "echo \"$1\"\n")
	tooltest.Run(t, func() toolcrib.Tool {
		return made(t, shell.Options{}, command.Options{
			Program: shell.Program{Path: path}, Command: []string{path, "{args.x}"}, Parameters: json.RawMessage(oneWord),
		})
	}, tooltest.Cases{Calls: []tooltest.Case{
		{Name: "works", Arguments: `{"x":"a"}`, Check: func(t *testing.T, _ string, out toolcrib.Output) {
			if out.Text != "a\n" {
				t.Error(out.Text)
			}
		}},
		{Name: "option", Arguments: `{"x":"-a"}`, Err: toolcrib.InvalidArguments},
		{Name: "not a word", Arguments: `{"x":{}}`, Err: toolcrib.InvalidArguments, Invalid: true},
	}})
}
