package shell_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/tool/command"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// joining skips the test where calls cannot share a loopback interface.
func joining(t *testing.T) *shell.Report {
	t.Helper()
	r := withBubblewrap(t)
	if !r.Joins {
		t.Skip("NOT TESTED: bubblewrap may not join namespaces here")
	}
	return r
}

// drivenRun makes the calls of one run, until it parks.
type drivenRun struct {
	made  toolcrib.Tool
	call  toolcrib.Call // with the run, the user and the workspace
	calls atomic.Int64
	ctx   context.Context
	end   context.CancelFunc
	works sync.WaitGroup
	ended chan struct{} // receives when work beside the calls has ended
}

func drive(t testing.TB, made toolcrib.Tool, dir, run, user string) *drivenRun {
	t.Helper()
	r := &drivenRun{made: made, call: toolcrib.Call{Name: shell.Name, Run: toolcrib.RunID(run), Workspace: dir}}
	r.call.Principal.User = user
	r.ctx, r.end = context.WithCancel(t.Context())
	r.ended = make(chan struct{}, 10_000)
	t.Cleanup(r.park)
	return r
}

func (r *drivenRun) park() {
	r.end()
	r.works.Wait()
}

func (r *drivenRun) behind(work func(context.Context)) bool {
	if r.ctx.Err() != nil {
		return false
	}
	r.works.Go(func() {
		work(r.ctx)
		r.ended <- struct{}{}
	})
	return true
}

// try makes a call with a line and further arguments as JSON.
func (r *drivenRun) try(t testing.TB, line, more string) (got output, err error) {
	t.Helper()
	out, err := r.result(t, line, more)
	if err == nil {
		err = json.Unmarshal(out.JSON, &got)
	}
	return got, err
}

func (r *drivenRun) result(t testing.TB, line, more string) (toolcrib.Output, error) {
	t.Helper()
	text, err := json.Marshal(line)
	if err != nil {
		t.Fatal(err)
	}
	call := r.call
	call.ID = fmt.Sprintf("call_%d", r.calls.Add(1))
	call.Arguments = json.RawMessage(fmt.Sprintf(`{"command": %s%s}`, text, more))
	call.Behind = r.behind
	return r.made.Call(t.Context(), call)
}

func (r *drivenRun) do(t testing.TB, line, more string) output {
	t.Helper()
	got, err := r.try(t, line, more)
	if err != nil {
		t.Errorf("%s: %v", line, err)
	}
	return got
}

const (
	asWrite  = `, "write": true`
	asServer = asWrite + `, "background": true`
	// serve greets all who connect; ask prints the greeting, and waits for the server for a while; askOnceLine does not wait.
	serveLine = `exec perl -MIO::Socket::INET -e 'my $l = IO::Socket::INET->new(Listen => 9, LocalAddr => "127.0.0.1:8123") or die;
while (1) { my $c = $l->accept or next; print $c "hello from $ENV{NAME}"; close $c }'`
	askLine = `perl -MIO::Socket::INET -e 'for (1 .. 200) {
my $s = IO::Socket::INET->new("127.0.0.1:8123"); if ($s) { print <$s>; exit } select undef, undef, undef, 0.05 } exit 3'`
	askOnceLine = `perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new("127.0.0.1:8123") or exit 3; print <$s>'`
	netLine     = `readlink /proc/self/ns/net`
)

// The calls of a run that may write share a loopback interface: a server that one has started is reached by the others,
// and by no other run, user or line that can only read. It ends when the run parks.
func TestC12_LoopbackOfARun(t *testing.T) {
	t.Parallel()
	report, dir := joining(t), folder(t)
	made := tool(t, shell.Options{Mode: shell.ModeAsk, Report: report})
	run := drive(t, made, dir, "run_1", "ann")
	run.do(t, "NAME=one "+serveLine, asServer)
	for range 3 { // those after the first in a prepared sandbox, where there is one
		if got := run.do(t, askLine, asWrite); got.Stdout != "hello from one" {
			t.Fatalf("%+v", got)
		}
	}
	shared := run.do(t, netLine, asWrite).Stdout
	if got := run.do(t, netLine, asWrite).Stdout; got != shared || !strings.HasPrefix(got, "net:[") {
		t.Errorf("%q, and then %q", shared, got)
	}
	// What is not reached from there is reported as without it.
	outside := `perl -MIO::Socket::INET -e 'IO::Socket::INET->new("8.8.8.8:80") or exit 3'`
	if got := run.do(t, outside, asWrite); !strings.Contains(got.Hint, "It tried to reach the network") {
		t.Errorf("%+v", got)
	}
	if got := run.do(t, netLine+"; "+askOnceLine, ""); got.Stdout == shared || strings.Contains(got.Stdout, "hello") {
		t.Errorf("a line that can only read: %+v", got)
	}
	if got := run.do(t, askOnceLine, "").Hint; !strings.HasSuffix(got,
		"because it must reach a server that another call has started, call again with write: true; a person is then asked.") {
		t.Errorf("a line that can only read: %q", got)
	}
	if got := run.do(t, strings.ReplaceAll(askOnceLine, "8123", "8124"), asWrite).Hint; !strings.Contains(got,
		"that of this run: only servers that calls of the run with write: true have started are reached there") {
		t.Errorf("a port on which nothing listens: %q", got)
	}
	for _, other := range []*drivenRun{drive(t, made, dir, "run_2", "ann"), drive(t, made, dir, "run_1", "bob")} {
		if got := other.do(t, askOnceLine, asWrite); got.ExitCode != 3 {
			t.Errorf("%s of %s: %+v", other.call.Run, other.call.Principal.User, got)
		}
		if other.do(t, "NAME=other "+serveLine, asServer); run.do(t, askLine, asWrite).Stdout != "hello from one" ||
			other.do(t, askLine, asWrite).Stdout != "hello from other" {
			t.Error("two runs share a loopback interface")
		}
	}
	run.park()
	again := drive(t, made, dir, "run_1", "ann")
	if got := again.do(t, askOnceLine, asWrite); got.ExitCode != 3 {
		t.Errorf("after the run has parked: %+v", got)
	}
	again.do(t, "NAME=two "+serveLine, asServer)
	if got := again.do(t, askLine, asWrite); got.Stdout != "hello from two" {
		t.Errorf("%+v", got)
	}
}

// wrapper returns a program that starts bubblewrap, after some lines of a shell script.
func wrapper(t *testing.T, report *shell.Report, lines string) string {
	t.Helper()
	path := filepath.Join(folder(t), "bwrap")
	write(t, path, "#!/bin/sh\n"+lines+"\nexec "+report.Bubblewrap+" \"$@\"\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Calls that are made at the same time share one, and so do those after one whose sandbox could not be made.
func TestC12_LoopbackOfParallelCalls(t *testing.T) {
	t.Parallel()
	report, dir, fails := joining(t), folder(t), filepath.Join(folder(t), "fails")
	report.Bubblewrap = wrapper(t, report, "[ ! -e "+fails+" ] || exit 1")
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
	run := drive(t, made, dir, "run_1", "")
	write(t, fails, "")
	if _, err := run.try(t, netLine, ""); kind(t, err) != toolcrib.ExecutionFailed {
		t.Fatal(err)
	}
	if err := os.Remove(fails); err != nil {
		t.Fatal(err)
	}
	nets := make([]string, 6)
	var all sync.WaitGroup
	for i := range nets {
		all.Go(func() { nets[i] = run.do(t, netLine, "").Stdout })
	}
	all.Wait()
	if slices.Sort(nets); nets[0] != nets[len(nets)-1] || nets[0] == "" {
		t.Errorf("%q", nets)
	}
}

// Where namespaces cannot be joined, each call has its own loopback interface. That is found out once. A call that
// cannot join them although it should does not run.
func TestC12_LoopbackOfACall(t *testing.T) {
	t.Parallel()
	report, dir := joining(t), folder(t)
	for _, c := range []struct {
		script        string
		mounts, joins bool
	}{
		{"", report.Mounts, true},
		{"[ ! -e /proc/self/fd/6 ] || exit 1", report.Mounts, false},
		{`case " $* " in *" --cap-add "*) exit 1; esac`, false, false},
	} {
		if mounts, joins := shell.Trials(wrapper(t, report, c.script)); mounts != c.mounts || joins != c.joins {
			t.Errorf("%q: %t, %t", c.script, mounts, joins)
		}
	}
	none := *report
	none.Joins = false
	run := drive(t, tool(t, shell.Options{Mode: shell.ModeAny, Report: &none}), dir, "run_1", "")
	run.do(t, serveLine, asServer)
	for range 2 {
		if got := run.do(t, askOnceLine, ""); got.ExitCode != 3 {
			t.Errorf("%+v", got)
		}
	}
	broken := *report
	broken.Bubblewrap = wrapper(t, report, "exec 6</dev/null")
	run = drive(t, tool(t, shell.Options{Mode: shell.ModeAny, Report: &broken}), dir, "run_1", "")
	run.do(t, "true", "")
	if _, err := run.try(t, "touch ran", ""); kind(t, err) != toolcrib.ExecutionFailed || slices.Contains(names(t, dir), "ran") {
		t.Errorf("%v %q", err, names(t, dir))
	}
}

// breakingOut tries to leave the loopback interface of a run, and prints the ways that worked. HOST is the address of a
// server outside, ABSTRACT the name of a socket outside.
const breakingOut = `import ctypes, fcntl, glob, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, do):
    try:
        if do() not in (-1, None): print("possible:", name)
    except Exception: pass
def failed(result): return result if result != -1 else None
for fd in range(3, 1024):
    attempt("use file %d" % fd, lambda: os.fstat(fd))
attempt("reach the machine", lambda: socket.create_connection(("127.0.0.1", HOST), 2))
attempt("connect to an abstract socket", lambda: socket.socket(socket.AF_UNIX).connect("\0ABSTRACT") or 1)
attempt("send by a pair", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", "\0ABSTRACT"))
attempt("raw sockets", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))
lo = struct.pack("16sH14s", b"lo", 0, b"")
attempt("take the interface down", lambda: fcntl.ioctl(socket.socket(), 0x8914, lo))
attempt("change its address", lambda: fcntl.ioctl(socket.socket(), 0x8916, struct.pack("16sHH4s8s", b"lo", 2, 0, b"\x7f\0\0\2", b"")))
attempt("change its settings", lambda: open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w").write("0"))
for flags in (0x40000000, 0x10000000): attempt("new namespaces", lambda: failed(libc.unshare(flags)))
for path in glob.glob("/proc/[0-9]*/ns/*") + glob.glob("/proc/[0-9]*/task/*/ns/*"):
    attempt("enter " + path, lambda: failed(libc.setns(os.open(path, os.O_RDONLY), 0)))
for of in glob.glob("/proc/[0-9]*"):
    pid = int(of[6:])
    if b"8123" in open(of + "/cmdline", "rb").read(): print("possible: see a process of another call")
    if pid != os.getpid() and open(of + "/comm").read().strip() not in ("python3", "sh", "bash"):
        for file in glob.glob(of + "/fd/*") + glob.glob(of + "/ns/*"):
            attempt("name " + file, lambda: os.readlink(file))
            attempt("open " + file, lambda: os.open(file, os.O_RDONLY))
        attempt("read the memory of " + of, lambda: open(of + "/mem", "rb"))
    attempt("trace " + of, lambda: failed(libc.ptrace(16, pid, 0, 0)))
for line in open("/proc/self/status"):
    if line.startswith(("CapEff", "CapPrm", "CapInh", "CapAmb")) and int(line.split()[1], 16): print("possible:", line)
print("done")
`

// From the loopback interface of its run a program reaches nothing else: not that of the machine, no process of another
// call, no namespace, no socket of another kind.
func TestC12_LoopbackHolds(t *testing.T) {
	t.Parallel()
	report, dir := joining(t), folder(t)
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("NOT TESTED: python3 is not installed")
	}
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close() //nolint:errcheck // it has no data
	name := fmt.Sprint("toolcrib-test-", os.Getpid())
	abstract, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close() //nolint:errcheck // it has no data
	script := strings.NewReplacer("HOST", fmt.Sprint(outside.Addr().(*net.TCPAddr).Port), "ABSTRACT", name).Replace(breakingOut)
	write(t, filepath.Join(dir, "out.py"), script)
	run := drive(t, tool(t, shell.Options{Mode: shell.ModeAny, Report: report}), dir, "run_1", "")
	run.do(t, "NAME=one "+serveLine, asServer)
	for range 2 {
		if got := run.do(t, "/usr/bin/python3 out.py", ""); got.Stdout != "done\n" {
			t.Errorf("%+v", got)
		}
		if got := run.do(t, askLine, ""); got.Stdout != "hello from one" {
			t.Errorf("%+v", got)
		}
	}
}

// held returns how many namespaces this process has open.
func held(t *testing.T) (n int) {
	t.Helper()
	for _, name := range names(t, "/proc/self/fd") {
		if at, err := os.Readlink("/proc/self/fd/" + name); err == nil && strings.Contains(at, ":[") &&
			(strings.HasPrefix(at, "net") || strings.HasPrefix(at, "user")) {
			n++
		}
	}
	return n
}

// Nothing is left of runs that have ended: no open namespace, no process.
func TestC12_LoopbackEndsWithTheRun(t *testing.T) {
	report, dir := joining(t), folder(t)
	made, m := tool(t, shell.Options{Mode: shell.ModeAny, Report: report}), mark(t)
	before := held(t)
	for i := range 50 {
		run := drive(t, made, dir, fmt.Sprint("run_", i), "")
		if i%10 == 0 {
			run.do(t, "sleep 1000; : "+m, asServer)
		}
		run.do(t, "true", "")
		<-run.ended
		if open := held(t); open < before+2 || open > before+4 { // those of one run, or of it and of one that has just ended
			t.Errorf("%d namespaces are open, before %d", open, before)
		}
		run.park()
	}
	waittest.Until(t, "the namespaces are closed", func() bool { return held(t) == before })
	if left := alive(t, m); len(left) > 0 {
		t.Errorf("still running: %q", left)
	}
}

// Nothing is left of them when toolcrib is killed.
func TestC12_LoopbackEndsWithAKilledParent(t *testing.T) {
	t.Parallel()
	joining(t)
	dir, m := folder(t), strings.TrimPrefix(mark(t), "mark")
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	parent.Env = append(os.Environ(), parentEnv+"="+dir, parentEnv+"_MARK="+m, parentEnv+"_BEHIND=1", "TMPDIR="+t.TempDir())
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, filepath.Join(dir, "started"))
	uses := func(pattern string) (spaces []string) {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			if at, err := os.Readlink(path); err == nil && strings.HasPrefix(at, "net:[") {
				spaces = append(spaces, at)
			}
		}
		return spaces
	}
	var kept []string
	waittest.Until(t, "it holds a namespace", func() bool {
		kept = uses(fmt.Sprintf("/proc/%d/fd/*", parent.Process.Pid))
		return len(kept) > 0
	})
	if !slices.Contains(uses("/proc/[0-9]*/ns/net"), kept[0]) {
		t.Error("nothing is in it: the test sees nothing")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	waittest.Until(t, "nothing is in it", func() bool { return !slices.Contains(uses("/proc/[0-9]*/ns/net"), kept[0]) })
}

// Programs of tools.commands share the loopback interface of their run with its command lines.
func TestC12_LoopbackOfPrograms(t *testing.T) {
	t.Parallel()
	options := shell.Options{
		Mode: shell.ModeAny, Report: joining(t), Loopbacks: new(shell.Loopbacks),
		Unconfined: func(toolcrib.Principal) bool { return true },
	}
	run := drive(t, tool(t, options), folder(t), "run_1", "")
	programs, err := shell.NewPrograms(options)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.TrimSpace(run.do(t, netLine, "").Stdout)
	for network, same := range map[bool]bool{false: true, true: false} {
		call := run.call
		call.Behind = run.behind
		plan, err := programs.Plan(call, shell.Program{
			Path: "/usr/bin/readlink", Args: []string{"readlink", "/proc/self/ns/net"}, Network: network,
		}, func(e shell.Ended) (toolcrib.Output, error) {
			return toolcrib.Output{}, errors.New(strings.TrimSpace(e.Stdout))
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Run(t.Context(), call); err == nil || (err.Error() == lines) != same {
			t.Errorf("network %t: %v, lines are in %s", network, err, lines)
		}
	}
}

// What a command receives over the loopback interface of its run from one that has a network is untrusted, with the hosts
// as its source, also when that one has ended: another may have kept it.
func TestX11_LoopbackPassesData(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "from outside") }))
	defer server.Close()
	host := "asked.test" + port(server)
	network := shell.Network{Ask: true, AllowPrivate: true}
	shell.Resolve(&network, localNames(t))
	options := shell.Options{
		Mode: shell.ModeAsk, Report: joining(t), Network: network, Loopbacks: new(shell.Loopbacks),
		Unconfined: func(toolcrib.Principal) bool { return true },
	}
	made, dir := tool(t, options), folder(t)
	run := drive(t, made, dir, "run_1", "ann")
	untrusted := func(what string, out toolcrib.Output, err error) {
		t.Helper()
		if err != nil || !out.Untrusted || out.Source != host || !strings.Contains(out.Text+string(out.JSON), "from outside") {
			t.Errorf("%s: %t from %q: %s %v", what, out.Untrusted, out.Source, out.Text+string(out.JSON), err)
		}
	}
	if out, err := run.result(t, "echo before", ""); err != nil || out.Untrusted {
		t.Fatalf("%+v %v", out, err)
	}
	relay := strings.Replace(fetchLine("http://"+host+"/"), "print <$s>; ", `my $got = join "", <$s>;
my $l = IO::Socket::INET->new(Listen => 9, LocalAddr => "127.0.0.1:8123") or die; while (1) { my $c = $l->accept or next; print $c $got; close $c }`, 1)
	run.do(t, relay, asServer+`, "network": ["`+host+`"]`)
	out, err := run.result(t, askLine, asWrite)
	untrusted("a command", out, err)
	if out, err = run.result(t, askLine, asServer); err != nil || out.Source != host {
		t.Errorf("one in the background: %+v %v", out, err)
	}
	call := run.call
	call.Name, call.Arguments = shell.ReadOutputName, json.RawMessage(fmt.Sprintf(`{"id": "proc_call_%d", "wait": 30}`, run.calls.Load()))
	out, err = shell.Companions(made)[0].Call(t.Context(), call)
	untrusted("its output", out, err)
	var late *toolcrib.ToolError
	if _, err := run.result(t, askLine+"; sleep 60", asWrite+`, "timeout": 3`); !errors.As(err, &late) || late.Untrusted != host {
		t.Errorf("one that was ended: %+v %v", late, err)
	}
	programs, err := shell.NewPrograms(options)
	if err != nil {
		t.Fatal(err)
	}
	call = run.call
	call.Behind = run.behind
	for i, perl := range []string{strings.Split(askLine, "'")[1], "exit 1"} {
		program, err := command.New(programs, command.Options{
			Name: "ask", Program: shell.Program{Path: "/usr/bin/perl"}, Command: []string{"perl", "-MIO::Socket::INET", "-e", perl},
		})
		if err != nil {
			t.Fatal(err)
		}
		out, err := program.Call(t.Context(), call)
		if i == 0 {
			untrusted("a program", out, err)
		} else if failed := (*toolcrib.ToolError)(nil); !errors.As(err, &failed) || failed.Untrusted != host {
			t.Errorf("a program that fails: %+v", err)
		}
	}
	if out, err := run.result(t, "cat /dev/null", ""); err != nil || out.Untrusted {
		t.Errorf("a line that only reads: %+v %v", out, err)
	}
	other := drive(t, made, dir, "run_2", "ann")
	if out, err := other.result(t, "perl -e 1", asWrite); err != nil || out.Untrusted {
		t.Errorf("another run: %+v %v", out, err)
	}
	call = run.call
	call.Name, call.Arguments = shell.StopProcessName, json.RawMessage(`{"id": "proc_call_2"}`)
	if _, err := shell.Companions(made)[1].Call(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	if out, err := run.result(t, "perl -e 1", asWrite); err != nil || out.Source != host {
		t.Errorf("after that: %+v %v", out, err)
	}
}

// How long a line takes that joins the loopback interface of its run, and one with its own.
func BenchmarkLoopback(b *testing.B) {
	full := probed()
	own := full
	own.Joins = false
	for name, report := range map[string]*shell.Report{"joins": &full, "own": &own} {
		b.Run(name, func(b *testing.B) {
			run := drive(b, tool(b, shell.Options{Mode: shell.ModeAny, Report: report}), folder(b), "run_1", "")
			for b.Loop() {
				run.do(b, "true", "")
			}
		})
	}
}
