package shell_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// alive returns the processes that have the mark among their arguments or in their
// environment's place of work.
func alive(t *testing.T, mark string) []string {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var marked []string
	for _, path := range found {
		data, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(data), mark) {
			marked = append(marked, path+" "+strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return marked
}

// walls are the ways to run: each must end what it started.
func walls(t *testing.T) map[string]*shell.Report {
	t.Helper()
	full := probed()
	all := map[string]*shell.Report{"landlock": landlockOnly(), "without": {Problem: "switched off"}}
	if full.LandlockABI == 0 {
		t.Log("NOT TESTED: this kernel has no Landlock")
		delete(all, "landlock")
	}
	if full.Bubblewrap == "" {
		t.Log("NOT TESTED: bubblewrap is not installed, or may not be used here")
	} else {
		all["bubblewrap"] = &full
	}
	if full.Mounts {
		alone := full
		alone.Mounts = false
		all["bubblewrap that mounts all itself"] = &alone
	}
	return all
}

// onWalls runs a test for each wall.
func onWalls(t *testing.T, test func(t *testing.T, report *shell.Report)) {
	for name, report := range walls(t) {
		t.Run(name, func(t *testing.T) { test(t, report) })
	}
}

// A command has the devices without which programs do not work, and no others.
func TestDevices(t *testing.T) {
	t.Parallel()
	onWalls(t, func(t *testing.T, report *shell.Report) {
		if !report.Helper {
			t.Skip("without a sandbox all devices are there")
		}
		made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
		run := func(line string) output {
			got, err := runIn(t.Context(), t, made, callOf(t, folder(t), line, 0))
			if err != nil {
				t.Fatal(line, err)
			}
			return got
		}
		line := "head -c 3 /dev/zero | tr '\\0' z; head -c 1 /dev/urandom >/dev/null && echo x >/dev/null && echo done"
		if report.Bubblewrap != "" {
			line += " >/dev/shm/x && cat /dev/fd/0 </dev/shm/x"
		}
		if got := run(line); got.Stdout != "zzzdone\n" || got.Stderr != "" {
			t.Errorf("%+v", got)
		}
		for _, open := range []string{"/dev/tty", "/dev/ptmx", "/dev/kmsg", "/dev/mem"} {
			if got := run("cat <" + open); got.ExitCode == 0 || !strings.Contains(got.Stderr, open+": ") {
				t.Errorf("%s: %+v", open, got)
			}
		}
	})
}

func mark(t *testing.T) string {
	return fmt.Sprintf("mark%d", time.Now().UnixNano())
}

// A line is run by the shell whose grammar judged it; where that is not there, what only it has is refused.
func TestC9_TheShellThatJudged(t *testing.T) {
	t.Parallel()
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		made, dir := tool(t, shell.Options{Mode: shell.ModeAny, Report: report}), folder(t)
		if _, err := os.Stat("/usr/bin/bash"); err != nil {
			t.Skip("SKIPPED: there is no bash")
		}
		if text := made.Spec().Description; !strings.Contains(text, "with bash in the workspace") {
			t.Errorf("described as %q", text)
		}
		got, err := runIn(t.Context(), t, made, callOf(t, dir,
			`mkdir -p p/{a,b}; ls p; false &> out; echo rc=$?; [[ x == x ]] && a=(1 2) && echo "${a[1]}" $'\t|'`, 60))
		if want := "a\nb\nrc=1\n2 \t|\n"; err != nil || got.Stdout != want || got.Stderr != "" {
			t.Errorf("%+v %v", got, err)
		}
	})
	r := shell.Report{Helper: true, LandlockABI: 7, Bubblewrap: "x"}
	for _, mode := range []shell.Mode{shell.ModeAny, shell.ModeAsk} {
		made := tool(t, shell.Options{Mode: mode, Report: &r})
		shell.OnlySh(made)
		if text := made.Spec().Description; !strings.Contains(text, "with sh in the workspace") {
			t.Errorf("described as %q", text)
		}
		if err := admit(made, callOf(t, folder(t), "touch {1..3}", 0)); kind(t, err) != toolcrib.PermissionDenied || !strings.Contains(err.Error(), "only bash has this") {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

func TestC18_TimeoutKillsTheProcesses(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"sleeps":           "sleep 1000.MARK",
		"pipe":             "sleep 1000.MARK | sleep 1000.MARK | cat",
		"in between":       "sleep 1000.MARK; echo never",
		"ignores SIGTERM":  `sh -c 'trap "" TERM; while :; do sleep 1000.MARK; done'`,
		"children":         `sh -c 'sleep 1000.MARK & sleep 1000.MARK & wait'`,
		"loops":            `sh -c ': MARK; while :; do :; done'`,
		"closes its files": `sh -c 'exec <&- >&- 2>&-; sleep 1000.MARK'`,
		"own session":      `setsid -f sh -c 'sleep 1000.MARK'; sleep 1000.MARK`,
	} {
		t.Run(name, func(t *testing.T) {
			onWalls(t, func(t *testing.T, report *shell.Report) {
				t.Parallel()
				if name == "own session" && !report.Helper {
					t.Skip("without a process over it, a program that leaves its session cannot be found: documented")
				}
				made := tool(t, shell.Options{Allow: []string{"sh", "sleep", "cat", "setsid", "echo"}, Report: report})
				m := strings.TrimPrefix(mark(t), "mark")
				_, err := made.Call(t.Context(), callOf(t, folder(t), strings.ReplaceAll(line, "MARK", m), 1))
				if kind(t, err) != toolcrib.ToolTimeout || err.Error() != "timeout after 1s" {
					t.Errorf("error %v", err)
				}
				if left := alive(t, m); len(left) > 0 {
					t.Errorf("%s: still running: %q", t.Name(), left)
				}
			})
		})
	}
}

// Without a timeout of its own a call continues while it prints or computes, up to the most that
// it could have asked for. What it printed last is in the error.
func TestC18_WorkContinues(t *testing.T) {
	t.Parallel()
	onWalls(t, func(t *testing.T, report *shell.Report) {
		t.Parallel()
		for _, c := range []struct{ line, want string }{
			{"sleep 60", "s; without a timeout of its own (at most 300) a command ends after 30 seconds in which it neither " +
				"prints nor computes; a server runs with background"},
			{"echo out; echo err >&2; sleep 60", "; its last stdout:\nout\n; its last stderr:\nerr\n"},
			{"for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i; sleep 1; done", ""},
			{"perl -e 'for (1..12) { $end = (times)[0] + .1; 1 while (times)[0] < $end; sleep 1 }'", ""},
			{"while :; do echo x; sleep 1; done", "timeout after "},
			{"(printf 'half of a line '; yes | tr -d '\\n' | head -c 5000; printf '\\nthe last'; sleep 60) 2>&1", "stdout:\nthe last"},
		} {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
				quiet, most, work := 5*time.Second, 10*time.Second, time.Second
				if c.want == "" { // what takes longer than that, but not on a busy machine, where it computes little
					quiet, most, work = 10*time.Second, 10*time.Minute, 50*time.Millisecond
				}
				shell.Pace(made, quiet, most, work)
				_, err := made.Call(t.Context(), callOf(t, folder(t), c.line, 0))
				if c.want == "" && err != nil || c.want != "" && (kind(t, err) != toolcrib.ToolTimeout || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%s: %v", c.line, err)
				}
			})
		}
	})
}

func TestC18_NothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"background":  `sh -c 'sleep 1000.MARK & echo started'`,
		"keeps pipe":  `sh -c '(trap "" TERM HUP; sleep 1000.MARK) & echo started'`,
		"own session": `sh -c 'setsid sleep 1000.MARK & echo started'`,
		"orphan":      `sh -c '(sh -c "setsid setsid sleep 1000.MARK &" &) ; echo started'`,
	} {
		t.Run(name, func(t *testing.T) {
			onWalls(t, func(t *testing.T, report *shell.Report) {
				t.Parallel()
				if strings.Contains(line, "setsid") && !report.Helper {
					t.Skip("without a process over it, a program that leaves its session cannot be found: documented")
				}
				made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
				m := strings.TrimPrefix(mark(t), "mark")
				got, err := runIn(t.Context(), t, made, callOf(t, folder(t), strings.ReplaceAll(line, "MARK", m), 20))
				if err != nil || got.Stdout != "started\n" || got.ExitCode != 0 {
					t.Errorf("%+v %v", got, err)
				}
				if left := alive(t, m); len(left) > 0 {
					t.Errorf("%s: still running: %q", t.Name(), left)
				}
			})
		})
	}
}

func TestC18_CancelEndsTheCall(t *testing.T) {
	t.Parallel()
	onWalls(t, func(t *testing.T, report *shell.Report) {
		t.Parallel()
		made := tool(t, shell.Options{Allow: []string{"sh", "sleep"}, Report: report})
		dir, m := folder(t), strings.TrimPrefix(mark(t), "mark")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := made.Call(ctx, callOf(t, dir, fmt.Sprintf(`sh -c 'sleep 1000.%s & echo > started; wait'`, m), 300))
			done <- err
		}()
		waitFor(t, filepath.Join(dir, "started"))
		cancel()
		if err := <-done; err != context.Canceled { //nolint:errorlint // exactly that
			t.Errorf("error %v", err)
		}
		if left := alive(t, m); len(left) > 0 {
			t.Errorf("still running: %q", left)
		}
	})
}

// The time that the configuration gives a call keeps what was printed, as the call's own time does.
func TestC18_TheLoopsTimeKeepsTheOutput(t *testing.T) {
	t.Parallel()
	onWalls(t, func(t *testing.T, report *shell.Report) {
		made, dir := tool(t, shell.Options{Mode: shell.ModeAny, Report: report}), folder(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := made.Call(ctx, callOf(t, dir, "echo half; echo bad >&2; echo > started; sleep 1000", 300))
			done <- err
		}()
		waitFor(t, filepath.Join(dir, "started"))
		cancel(fmt.Errorf("the loop: %w", toolcrib.Failf(toolcrib.ToolTimeout, "7s")))
		if err := <-done; kind(t, err) != toolcrib.ToolTimeout || err.Error() != "timeout after 7s; its last stdout:\nhalf\n; its last stderr:\nbad\n" {
			t.Errorf("%v", err)
		}
	})
}

func TestC18_NothingOutlivesAKilledParent(t *testing.T) {
	t.Parallel()
	t.Run("call", func(t *testing.T) { killedParent(t) })
	t.Run("background", func(t *testing.T) { killedParent(t, parentEnv+"_BEHIND=1") })
}

func killedParent(t *testing.T, env ...string) {
	if !landlockOnly().Helper || landlockOnly().LandlockABI == 0 {
		t.Skip("NOT TESTED: this kernel has no Landlock")
	}
	dir, m := folder(t), strings.TrimPrefix(mark(t), "mark")
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	parent.Env = append(os.Environ(), parentEnv+"="+dir, parentEnv+"_MARK="+m, "TMPDIR="+t.TempDir()) // killed, it leaves its folder for temporary files
	parent.Env = append(parent.Env, env...)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, filepath.Join(dir, "started"))
	if len(alive(t, m)) == 0 {
		t.Error("nothing runs: the test sees nothing")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for range 4000 {
		if len(alive(t, m)) == 0 {
			return
		}
		<-ticker.C
	}
	t.Errorf("still running: %q", alive(t, m))
}

// TestC11_FlippedLink flips a link between a file inside and one outside while it is
// read: what the judging cannot see the sandbox must hold.
func TestC11_FlippedLink(t *testing.T) {
	t.Parallel()
	report := landlockOnly()
	if !report.Helper || report.LandlockABI == 0 {
		t.Skip("NOT TESTED: this kernel has no Landlock")
	}
	p := newTrap(t)
	made := tool(t, shell.Options{Report: report})
	ctx, cancel := context.WithCancel(t.Context())
	var flipper sync.WaitGroup
	flip, next := filepath.Join(p.workspace, "flip"), filepath.Join(p.workspace, "next")
	flipper.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			target := "a.txt"
			if i%2 == 1 {
				target = filepath.Join(p.outside, "secret.txt")
			}
			if os.Symlink(target, next) != nil || os.Rename(next, flip) != nil {
				return
			}
		}
	})
	read, denied := 0, 0
	for range 150 {
		got, err := runIn(t.Context(), t, made, callOf(t, p.workspace, "cat flip | head -3; grep -r CANARY sub; cat < a.txt", 20))
		switch {
		case err != nil:
			denied++
		case strings.Contains(got.Stdout+got.Stderr, secret):
			t.Fatalf("the secret came out: %+v", got)
		default:
			read++
		}
	}
	cancel()
	flipper.Wait()
	t.Logf("%d calls ran, %d were refused", read, denied)
}

// waitFor waits until a file is there.
func waitFor(t *testing.T, path string) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for range ticker.C {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatalf("%s never came", filepath.Base(path))
		}
	}
}

func TestC9_OutputIsBounded(t *testing.T) {
	t.Parallel()
	onWalls(t, func(t *testing.T, report *shell.Report) {
		t.Parallel()
		made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
		dir := folder(t)
		got, err := runIn(t.Context(), t, made, callOf(t, dir, "echo first; yes 0123456789 | head -c 3000000; echo; echo last", 60))
		if err != nil || got.ExitCode != 0 || !got.StdoutTruncated || got.StderrTruncated {
			t.Fatalf("status %d, truncated %v %v, %v", got.ExitCode, got.StdoutTruncated, got.StderrTruncated, err)
		}
		if !strings.HasPrefix(got.Stdout, "first\n") || !strings.HasSuffix(got.Stdout, "\nlast\n") || len(got.Stdout) > 1<<20+100 ||
			!strings.Contains(got.Stdout, " bytes left out]") {
			t.Errorf("%d bytes, %.20q … %.20q", len(got.Stdout), got.Stdout, got.Stdout[len(got.Stdout)-20:])
		}
		for _, line := range []string{"yes", "yes >&2", "cat /dev/zero", "yes | cat"} {
			got, err := runIn(t.Context(), t, made, callOf(t, dir, line, 300))
			if err != nil || got.ExitCode != -1 || !strings.Contains(got.Warning, "64 MiB") {
				t.Errorf("%q: status %d, %q, %v", line, got.ExitCode, got.Warning, err)
			}
			if len(got.Stdout)+len(got.Stderr) > 8<<20 {
				t.Errorf("%q: %d bytes", line, len(got.Stdout)+len(got.Stderr))
			}
		}
	})
}

func TestC18_SwarmsAreEnded(t *testing.T) {
	m := strings.TrimPrefix(mark(t), "mark")
	report := landlockOnly()
	if report.LandlockABI == 0 {
		t.Skip("NOT TESTED: this kernel has no Landlock")
	}
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
	line := fmt.Sprintf("i=0; while [ $i -lt 900 ]; do sleep 1000.%s & i=$((i+1)); done; wait", m)
	got, err := runIn(t.Context(), t, made, callOf(t, folder(t), line, 60))
	if err != nil || got.ExitCode != -1 || !strings.Contains(got.Warning, "too many processes") {
		t.Errorf("%+v %v", got, err)
	}
	if left := alive(t, m); len(left) > 0 {
		t.Errorf("%d still running", len(left))
	}
}

func TestC9_ExitStatus(t *testing.T) {
	t.Parallel()
	onWalls(t, func(t *testing.T, report *shell.Report) {
		made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report, Path: []string{"/usr/local/bin", "/usr/bin", "/bin"}})
		for line, want := range map[string]output{
			"exit 0": {}, "exit 7": {ExitCode: 7}, "no-such-program 2>/dev/null": {ExitCode: 127},
			"kill -9 $$": {ExitCode: -1, Signal: "killed"}, "echo out; echo err >&2; exit 3": {ExitCode: 3, Stdout: "out\n", Stderr: "err\n"},
			"echo $TERM $LANG $PATH; read x || echo none": {Stdout: "dumb C.UTF-8 /usr/local/bin:/usr/bin:/bin\nnone\n"},
		} {
			got, err := runIn(t.Context(), t, made, callOf(t, folder(t), line, 20))
			got.DurationMS = nil
			if err != nil || got != want {
				t.Errorf("%q: %+v %v, want %+v", line, got, err, want)
			}
		}
	})
}

func TestN24_EnvironmentIsClean(t *testing.T) {
	t.Setenv("TOOLCRIB_TEST_SECRET", secret)
	onWalls(t, func(t *testing.T, report *shell.Report) {
		made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
		got, err := runIn(t.Context(), t, made, callOf(t, folder(t), "env; cat /proc/$PPID/environ /proc/$PPID/task/*/environ /proc/1/environ 2>/dev/null", 20))
		if err != nil || report.Helper && strings.Contains(got.Stdout, secret) {
			t.Errorf("%+v %v", got, err)
		}
		var names []string
		for line := range strings.Lines(got.Stdout) {
			if name, _, ok := strings.Cut(strings.TrimRight(line, "\n"), "="); ok && report.Helper {
				names = append(names, name)
			}
		}
		for _, name := range names {
			if !slices.Contains([]string{"PATH", "HOME", "TMPDIR", "LANG", "TERM", "PWD", "OLDPWD", "_", "SHLVL"}, name) && !slices.Contains(shell.Toolchain(), name) {
				t.Errorf("the environment has %q", name)
			}
		}
	})
}

// sandboxed is walls without the one that is none.
func sandboxed(t *testing.T, test func(t *testing.T, report *shell.Report)) {
	onWalls(t, func(t *testing.T, report *shell.Report) {
		if report.Helper {
			test(t, report)
		}
	})
}

func TestC12_SandboxHoldsAnyLine(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	port := listener.Addr().(*net.TCPAddr).Port
	datagrams, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = datagrams.Close() }()
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		p := newTrap(t)
		made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
		outside := state(t, p.outside, true)
		if report.Bubblewrap != "" { // Landlock holds neither rights nor times
			got, err := runIn(t.Context(), t, made, callOf(t, p.workspace, p.line("touch OUT/secret.txt; chmod 777 OUT/secret.txt"), 20))
			if err != nil || got.ExitCode == 0 {
				t.Errorf("%+v %v", got, err)
			}
		}
		for _, line := range []string{
			"cat OUT/secret.txt", "cat link", "cat sub/evil", "cp OUT/secret.txt copy; cat copy", "ln OUT/secret.txt hard; cat hard",
			"echo x > OUT/new", "echo x >> OUT/secret.txt", ": > OUT/secret.txt", "truncate -s 0 OUT/secret.txt", "rm -r OUT/deep", "mv OUT/secret.txt .",
			"mkdir OUT/new", "ln -s OUT/secret.txt l2; cat l2",
			"cd OUT && cat secret.txt", "ls OUT", "find / -name secret.txt 2>/dev/null | xargs cat", "tar cf - OUT", "sh -c 'sh -c \"cat OUT/secret.txt\"'",
			"dd of=OUT/secret.txt </dev/null", "cat /etc/shadow; cat /etc/sudoers", "cat $(echo OUT)/secret.txt", "x=OUT; cat $x/secret.txt",
			fmt.Sprintf("bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d && echo CONNECTED'", port), fmt.Sprintf("bash -c 'echo x > /dev/udp/127.0.0.1/%d'", datagrams.LocalAddr().(*net.UDPAddr).Port),
			"echo x > /tmp/toolcrib-escape-test; ls /root",
		} {
			got, err := runIn(t.Context(), t, made, callOf(t, p.workspace, p.line(line), 20))
			if err != nil {
				if kind(t, err) != toolcrib.PermissionDenied {
					t.Errorf("%q: %v", line, err)
				}
				continue
			}
			for _, bad := range []string{secret, "CONNECTED", "root:"} {
				if strings.Contains(got.Stdout+got.Stderr, bad) {
					t.Errorf("%q: %+v", line, got)
				}
			}
		}
		_ = datagrams.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if n, _, err := datagrams.ReadFrom(make([]byte, 8)); err == nil {
			t.Errorf("%d bytes reached a listener outside", n)
		}
		if _, err := os.Stat("/tmp/toolcrib-escape-test"); err == nil {
			t.Error("a file was written outside")
			_ = os.Remove("/tmp/toolcrib-escape-test")
		}
		if now := state(t, p.outside, true); now != outside {
			t.Errorf("the outside changed:\n%s\n%s", outside, now)
		}
		open := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
		shell.Open(open, true)
		for _, made := range []toolcrib.Tool{made, open} {
			got, err := runIn(t.Context(), t, made, callOf(t, p.workspace,
				"mkdir -p d/e && echo work > d/e/f && perl -e 'rename(\"d/e/f\", \"g\") or die $!' && cat g && rm -r d g", 20))
			if err != nil || got.Stdout != "work\n" || got.ExitCode != 0 {
				t.Errorf("ordinary work: %+v %v", got, err)
			}
		}
	})
}

// Without a network tests that listen on the loopback address work under bubblewrap, where nobody
// else is on it; with Landlock alone there are no sockets. A socket in the workspace leads to
// nobody.
func TestLoopback(t *testing.T) {
	t.Parallel()
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		dir := folder(t)
		listener, err := net.Listen("unix", dir+"/socket")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		write(t, dir+"/tcp", `use IO::Socket::INET; my $l = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die "none: $!\n";
if (!fork()) { my $c = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $l->sockport) or die $!; print $c "hello\n"; exit }
my $c = $l->accept; print scalar <$c>;`)
		write(t, dir+"/others", `use Socket; for my $of ([AF_UNIX, SOCK_STREAM, 0], [17, SOCK_RAW, 0], [38, 5, 0], [40, SOCK_STREAM, 0], [16, SOCK_RAW, 9], [AF_INET, SOCK_RAW, 1])
{ print socket(my $s, $$of[0], $$of[1], $$of[2]) ? "made" : "refused", "\n" }`)
		made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
		for line, want := range map[string][2]string{
			"perl tcp 2>&1":    {"hello\n", "none: Permission denied\n"},
			"perl others 2>&1": {strings.Repeat("refused\n", 6), strings.Repeat("refused\n", 6)},
			"perl -e 'use IO::Socket::UNIX; print IO::Socket::UNIX->new(Peer => \"socket\") ? 1 : 0'": {"0", "0"},
			"perl -e 'use Socket; print socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0) ? 1 : 0'":   {"1", "1"},
		} {
			got, err := runIn(t.Context(), t, made, callOf(t, dir, line, 20))
			expected := want[0]
			if report.Bubblewrap == "" {
				expected = want[1]
			}
			if err != nil || got.Stdout != expected {
				t.Errorf("%s: %+v %v", line, got, err)
			}
		}
	})
}

func TestC9_Conforms(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, dir string) { write(t, filepath.Join(dir, "a.txt"), "beta\nalpha\n") }
	started := make(chan struct{})
	tooltest.Run(t, func() toolcrib.Tool {
		return tool(t, shell.Options{Allow: append(shell.DefaultAllow(), "sleep"), Report: landlockOnly()})
	}, tooltest.Cases{
		Calls: []tooltest.Case{
			{Name: "reads", Arguments: `{"command": "sort a.txt | head -1"}`, Setup: setup, Check: func(t *testing.T, _ string, out toolcrib.Output) {
				if !strings.Contains(string(out.JSON), `"exit_code":0,"duration_ms":`) || !strings.HasSuffix(string(out.JSON), `,"stdout":"alpha\n","stderr":""}`) {
					t.Errorf("%s", out.JSON)
				}
			}},
			{Name: "fails", Arguments: `{"command": "false", "timeout": 5}`},
			{Name: "added program", Arguments: `{"command": "sleep 0.01"}`},
			{Name: "refused", Arguments: `{"command": "rm a.txt"}`, Setup: setup, Err: toolcrib.PermissionDenied},
			{Name: "outside", Arguments: `{"command": "cat ../a.txt"}`, Err: toolcrib.PermissionDenied},
			{Name: "unreadable", Arguments: `{"command": "echo \""}`, Err: toolcrib.InvalidArguments},
			{Name: "empty", Arguments: `{"command": " "}`, Err: toolcrib.InvalidArguments},
			{Name: "NUL", Arguments: `{"command": "echo \u0000"}`, Err: toolcrib.InvalidArguments},
			{Name: "no command", Arguments: `{}`, Invalid: true, Err: toolcrib.InvalidArguments},
			{Name: "timeout", Arguments: `{"command": "true", "timeout": 301}`, Invalid: true, Err: toolcrib.InvalidArguments},
			{Name: "no timeout", Arguments: `{"command": "true", "timeout": 0}`, Invalid: true, Err: toolcrib.InvalidArguments},
		},
		Long: &tooltest.Long{Case: tooltest.Case{Arguments: `{"command": "sleep 100"}`}, Started: started},
		Prepare: func(call *toolcrib.Call) {
			if strings.Contains(string(call.Arguments), "sleep 100") {
				close(started)
			}
		},
	})
}

// A workspace that somebody else made: what it would start is asked about, stays inside, and is
// bounded; no program is taken from it, and nothing is left of it.
func TestHostileWorkspace(t *testing.T) {
	home, caches, dir := folder(t), folder(t), filepath.Join(folder(t), "work") // one for all: the library is compiled once
	onWalls(t, func(t *testing.T, report *shell.Report) {
		emptied(t, dir)
		outside := folder(t)
		write(t, outside+"/secret", secret)
		steal := "cat " + outside + "/secret; echo gone > " + outside + "/made; echo built"
		for name, text := range map[string]string{
			"Makefile":     "all:\n\t@" + steal + "\ninclude evil.mk\nevil.mk:\n\t@" + steal + " > /dev/null; touch $@\n",
			"package.json": `{"name": "x", "version": "1.0.0", "scripts": {"pretest": "sh evil.sh", "test": "sh evil.sh"}}`,
			"conftest.py":  "import os\nos.system('sh evil.sh')\n", "sitecustomize.py": "import os\nos.system('sh evil.sh')\n",
			"evil.sh": steal + "\n", "go.mod": "module x\n\ngo 1.21\n\ntoolchain go1.999.9\n", "x.go": "package x\n\n//go:generate sh evil.sh\n",
			"x_test.go": "package x\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestX(t *testing.T) {\n\tt.Log(\"built\")\n\tif _, err := os.ReadFile(\"" +
				outside + "/secret\"); err == nil {\n\t\tt.Fatal(\"" + secret + "\")\n\t}\n}\n",
			"bin/ls": "#!/bin/sh\nsh evil.sh\n", "ls": "#!/bin/sh\nsh evil.sh\n", "a\x1b]0;owned\x07b\x1b[2J\u202etxt": "x",
			".envrc": steal, ".npmrc": "script-shell=" + dir + "/evil.sh\n", ".cargo/config.toml": "[build]\nrustc-wrapper = \"" + dir + "/evil.sh\"\n",
		} {
			write(t, filepath.Join(dir, name), text)
		}
		for _, name := range []string{"evil.sh", "bin/ls", "ls"} {
			if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", "."+":"+dir+"/bin"+":"+dir+":"+os.Getenv("PATH"))
		ask := tool(t, shell.Options{Mode: shell.ModeAsk, Report: report, Home: home, Caches: caches})
		for _, line := range []string{"make", "npm test", "go test ./...", "go generate ./...", "python3 -c 1", "pytest", "cargo build", "./ls", "bin/ls", "sh evil.sh"} {
			calls := []toolcrib.Call{writing(t, dir, line, 300)}
			if why := asks(ask, calls[0]); why == "" {
				t.Errorf("%s runs unasked", line)
			}
			if report.NotStrict() == "" && !strings.HasPrefix(line, "go ") {
				calls = append(calls, callOf(t, dir, line, 300))
			}
			if _, err := exec.LookPath(strings.Fields(line)[0]); err != nil || !report.Helper {
				continue // without a sandbox the person who was asked has let it
			}
			for _, call := range calls {
				got, err := runIn(t.Context(), t, ask, call)
				if err != nil || strings.Contains(got.Stdout+got.Stderr, secret) || strings.Contains(got.Stdout+got.Stderr, "go1.999.9 (") {
					t.Errorf("%s: %+v %v", line, got, err)
				}
			}
		}
		// No program comes from the workspace, and its names are quoted by nobody but the result's own cleaning.
		got, err := runIn(t.Context(), t, ask, callOf(t, dir, "ls", 20))
		if err != nil || strings.Contains(got.Stdout, "built") || !strings.Contains(got.Stdout, "evil.sh") {
			t.Errorf("ls: %+v %v", got, err)
		}
		if _, err := os.Stat(outside + "/made"); err == nil && report.Helper {
			t.Error("something was made outside")
		}
	})
}

// Output without end is bounded in memory and time, wherever it goes.
func TestHostileOutput(t *testing.T) {
	t.Parallel()
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
		got, err := runIn(t.Context(), t, made, callOf(t, folder(t), "head -c 1073741824 /dev/zero | tr '\\0' x", 300))
		if err != nil || got.ExitCode != -1 || !strings.Contains(got.Warning, "64 MiB") || len(got.Stdout) > 8<<20 {
			t.Errorf("status %d, %q, %d bytes, %v", got.ExitCode, got.Warning, len(got.Stdout), err)
		}
	})
}

// The copy that sandboxes itself ends before what it does not need is initialised.
func TestCopyEndsEarly(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", jail.Argument)
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, _ := cmd.CombinedOutput() // it fails: it has no job
	seen := false
	for line := range strings.Lines(string(trace)) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "init "), " ")
		seen = seen || name == "os"
		// What comes after golang.org/x/sys waits for path/filepath, most of it.
		if name == "path/filepath" || strings.Contains(name, "toolcrib") && !strings.HasSuffix(name, "/tool/internal/nolink") {
			t.Errorf("%s is initialised first", name)
		}
	}
	if !seen {
		t.Errorf("no trace: %s", trace)
	}
}

// What /proc says about the machine can be read; of processes that are not the job's, nothing but that they are there.
func TestC12_ProcessesOfOthers(t *testing.T) {
	t.Parallel()
	other := exec.CommandContext(t.Context(), "sleep", "1000.7391")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
		dir := folder(t)
		write(t, dir+"/line", fmt.Sprintf(`wc -c </proc/meminfo >/dev/null && cat /proc/sys/kernel/ostype && grep -q processor /proc/cpuinfo
readlink /proc/self/exe >/dev/null && echo x | cat /dev/fd/0 && cat <(echo y)
for at in /proc/[0-9]* /proc/%d /proc/%d; do
	[ $at = /proc/$$ ] || for of in cmdline comm stat status cgroup limits environ maps; do cat $at/$of $at/task/*/$of; done
done 2>/dev/null | tr '\0' ' ' | grep -a -e 1000[.]7391 -e paniconexit[0]`, other.Process.Pid, os.Getpid()))
		got, err := runIn(t.Context(), t, made, callOf(t, dir, "bash line", 30))
		if err != nil || got.Stdout != "Linux\nx\ny\n" {
			t.Errorf("%+v %v", got, err)
		}
	})
}
