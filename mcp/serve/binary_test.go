package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/internal/cli"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// asToolcrib makes a process of these tests the binary.
const asToolcrib = "TOOLCRIB_TEST_AS_BINARY"

func TestMain(m *testing.M) {
	shell.Main()
	if os.Getenv(asToolcrib) != "" {
		os.Exit(cli.Main(os.Args[1:]))
	}
	os.Exit(m.Run())
}

// home is a home for the binary, with a workspace.
type home struct {
	t         *testing.T
	dir, work string
}

func newHome(t *testing.T, yaml string) *home {
	t.Helper()
	h := &home{t: t, dir: t.TempDir(), work: t.TempDir()}
	dir := filepath.Join(h.dir, ".config", "toolcrib")
	write(t, filepath.Join(dir, "toolcrib.yaml"), yaml)
	write(t, filepath.Join(h.work, "a.txt"), "the text of a\n")
	return h
}

func (h *home) environment() []string {
	return []string{"HOME=" + h.dir, "PATH=" + os.Getenv("PATH"), "NO_COLOR=1", asToolcrib + "=1", "TMPDIR=" + os.TempDir()}
}

func (h *home) command(args ...string) *exec.Cmd {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	c := exec.Command(self, args...)
	c.Dir, c.Env = h.work, h.environment()
	return c
}

// toolcrib runs the binary, and wants an exit code.
func (h *home) toolcrib(want int, args ...string) string {
	h.t.Helper()
	c := h.command(args...)
	out, err := c.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	if got := c.ProcessState.ExitCode(); got != want {
		h.t.Fatalf("toolcrib %q: exit code %d, want %d\n%s%s", args, got, want, out, exit.Stderr)
	}
	return string(out)
}

// serve starts the binary as a server.
func (h *home) serve(options *sdk.ClientOptions, args ...string) (*sdk.ClientSession, *exec.Cmd) {
	h.t.Helper()
	c := h.command(append([]string{"mcp", "serve"}, args...)...)
	client := sdk.NewClient(&sdk.Implementation{Name: "an editor", Version: "1"}, options)
	session, err := client.Connect(h.t.Context(), &sdk.CommandTransport{Command: c, TerminateDuration: 20 * time.Second}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = session.Close() })
	return session, c
}

type listedRun struct {
	ID          string `json:"id"`
	Status      string `json:"status"`
	Interrupted bool   `json:"interrupted"`
	Pending     *struct {
		Kind   string `json:"kind"`
		ID     string `json:"approval_id"`
		Digest string `json:"digest"`
	} `json:"pending"`
}

func (h *home) runs() (list []listedRun) {
	h.t.Helper()
	text := h.toolcrib(0, "runs", "list", "--json")
	var all struct {
		Runs []listedRun `json:"runs"`
	}
	if json.Unmarshal([]byte(text), &list) != nil {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			h.t.Fatalf("%v: %s", err, text)
		}
		list = all.Runs
	}
	return list
}

// running reports whether a process with this argument runs.
func running(argument string) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.ContainsFunc(files, func(name string) bool {
		line, err := os.ReadFile(name) // it may have ended
		words := strings.Split(string(line), "\x00")
		return err == nil && filepath.Base(words[0]) == "sleep" && slices.Contains(words, argument)
	})
}

// patience is how long a test waits for what must come, on a machine that has other things to do.
const patience = 3 * time.Minute

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	waittest.Until(t, what, is)
}

const sleeping = "tools: {confirm: never, shell: {allow: [sleep]}}\n"

// needsSleep skips where commands cannot be run or looked for.
func needsSleep(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("SKIP: processes are looked for in /proc")
	}
	if why := shell.Problem(); why != "" {
		t.Skipf("SKIP: without a sandbox (%s) each command asks", why)
	}
}

// sleeps makes a call of a command that sleeps, and returns when it does.
func (h *home) sleeps(session *sdk.ClientSession, ctx context.Context, seconds string) chan error {
	h.t.Helper()
	needsSleep(h.t)
	done := make(chan error, 1)
	go func() {
		r, err := session.CallTool(ctx, &sdk.CallToolParams{
			Name: "exec_shell", Arguments: map[string]any{"command": "sleep " + seconds},
		})
		if err == nil && r.IsError {
			err = errors.New(textOf(r))
		}
		done <- err
	}()
	until(h.t, "it sleeps, or has slept", func() bool { return running(seconds) || len(done) > 0 })
	return done
}

// A call that the client cancels ends at its tool within 200 ms.
func TestBinary_Cancelled(t *testing.T) {
	h := newHome(t, sleeping)
	session, _ := h.serve(nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := h.sleeps(session, ctx, "211.5")
	cancel()
	from := time.Now()
	until(t, "its process has gone", func() bool { return !running("211.5") })
	took := time.Since(from)
	if t.Logf("ended %s after it was cancelled", took); took > 30*time.Second { // 200 ms, on a machine with nothing else to do
		t.Errorf("%s", took)
	}
	if err := <-done; err == nil {
		t.Error("no error")
	}
	until(t, "its run was cancelled", func() bool { return h.runs()[0].Status == "cancelled" })
}

// A server that is killed in the middle of a call leaves its run to be resumed: a write that
// may have happened is asked about, and not repeated.
func TestBinary_KilledInAWrite(t *testing.T) {
	h := newHome(t, sleeping)
	session, c := h.serve(nil)
	done := h.sleeps(session, t.Context(), "212.5")
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("no error")
	}
	until(t, "its process has gone", func() bool { return !running("212.5") })
	if run := h.runs()[0]; !run.Interrupted {
		t.Fatalf("%+v", run)
	}
	h.toolcrib(3, "runs", "resume", "last")
	run := h.runs()[0]
	if run.Pending == nil || run.Pending.Kind != "in_doubt" || running("212.5") {
		t.Fatalf("%+v", run)
	}
	// A client has no say in what has happened.
	asked := func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		t.Error("the client was asked")
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": "approve"}}, nil
	}
	session, _ = h.serve(&sdk.ClientOptions{ElicitationHandler: asked})
	h.toolcrib(0, "approvals", "resolve", run.Pending.ID, "--digest", run.Pending.Digest, "--happened", `{"slept":true}`)
	r := call(t, session, "collect_result", map[string]any{"approval_id": run.Pending.ID})
	if r.IsError || !strings.Contains(textOf(r), `{"slept":true}`) {
		t.Errorf("%s", textOf(r))
	}
	h.toolcrib(0, "runs", "verify", "--all")
	h.toolcrib(0, "runs", "replay", "last")
}

// A server that is killed while an agent works: its run is taken up, once.
func TestBinary_KilledInAnAgent(t *testing.T) {
	h := newHome(t, "providers: {demo: {type: script, file: demo.script}}\nagents: {default: {model: demo/x}}\n")
	script := filepath.Join(h.dir, ".config", "toolcrib", "demo.script")
	write(t, script, "- {text: late, delay: 10m}\n")
	session, c := h.serve(nil)
	done := make(chan error, 1)
	go func() {
		_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "agent__default", Arguments: map[string]any{"task": "x"}})
		done <- err
	}()
	until(t, "the agent works", func() bool { return len(h.runs()) == 2 })
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-done
	write(t, script, "- {text: hello}\n")
	runs := h.runs()
	h.toolcrib(0, "runs", "resume", runs[len(runs)-1].ID)
	if runs = h.runs(); len(runs) != 2 || runs[0].Status != "completed" || runs[1].Status != "completed" {
		t.Errorf("%+v", runs)
	}
	h.toolcrib(0, "runs", "verify", "--all")
}

// When its client goes, the server finishes what ends soon, and leaves the rest to be resumed.
func TestBinary_ClientGoes(t *testing.T) {
	for seconds, completed := range map[string]bool{"2.5": true, "213.5": false} { // it waits for 5
		t.Run(seconds, func(t *testing.T) {
			h := newHome(t, sleeping)
			c := h.command("mcp", "serve")
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			client := sdk.NewClient(&sdk.Implementation{Name: "x"}, nil)
			session, err := client.Connect(t.Context(), &sdk.IOTransport{Reader: out, Writer: in}, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = h.sleeps(session, t.Context(), seconds)
			from := time.Now()
			_ = in.Close()
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
			t.Logf("ended %s after its input", time.Since(from))
			if run := h.runs()[0]; (run.Status == "completed") != completed || run.Interrupted == completed || running(seconds) {
				t.Errorf("%+v", run)
			}
		})
	}
}

// SIGTERM leaves the runs to be resumed.
func TestBinary_Terminated(t *testing.T) {
	h := newHome(t, sleeping)
	session, c := h.serve(nil)
	_ = h.sleeps(session, t.Context(), "214.5")
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = session.Wait()
	_ = session.Close() // waits for the process
	until(t, "its process has gone", func() bool { return !running("214.5") })
	if run := h.runs()[0]; !run.Interrupted {
		t.Errorf("%+v", run)
	}
	if code := c.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit code %d", code)
	}
}
