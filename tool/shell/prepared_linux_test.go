package shell_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/tool/shell"
)

// withSpares skips where no sandbox is made ahead.
func withSpares(t *testing.T) *shell.Report {
	t.Helper()
	r := withBubblewrap(t)
	if !r.Mounts {
		t.Skip("NOT TESTED: the sandboxed copy may not mount here")
	}
	return r
}

// waiting is the one sandbox that waits.
func waiting(t *testing.T, made toolcrib.Tool) *exec.Cmd {
	t.Helper()
	all := shell.Waiting(made)
	if len(all) != 1 {
		t.Fatalf("%d sandboxes wait", len(all))
	}
	return all[0]
}

// there reports whether a process is there.
func there(p *exec.Cmd) bool { return !errors.Is(syscall.Kill(p.Process.Pid, 0), syscall.ESRCH) }

// Issue 13: the sandbox of a run's next command is made while the model thinks. It is used once, and has nothing of
// the command before.
func TestSpare(t *testing.T) {
	dir := folder(t)
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: withSpares(t), ProtectedNames: []string{".mcp.json"}})
	var before *exec.Cmd
	for range 3 {
		got, err := runIn(t.Context(), t, made, callOf(t, dir, "ls -A $HOME /tmp; touch $HOME/left; echo x > .mcp.json", 20))
		if err != nil || strings.Contains(got.Stdout, "left") || got.ExitCode == 0 {
			t.Fatalf("%+v %v", got, err)
		}
		if before != nil && (there(before) || before.ProcessState.ExitCode() != 0) {
			t.Errorf("the sandbox that waited: %v", before.ProcessState)
		}
		before = waiting(t, made)
	}
}

// What has changed since a sandbox was made has changed for the next command.
func TestSpare_IsLikeANewOne(t *testing.T) {
	for name, change := range map[string]struct {
		change     func(t *testing.T, dir string, made toolcrib.Tool)
		line, want string
		fits       bool // it is used nevertheless
	}{
		"nothing": {change: func(*testing.T, string, toolcrib.Tool) {}, line: "echo ok", want: "ok", fits: true},
		"a file": {
			change: func(t *testing.T, dir string, _ toolcrib.Tool) { write(t, filepath.Join(dir, "new"), "ok") },
			line:   "cat new", want: "ok", fits: true,
		},
		"a protected name": {
			change: func(t *testing.T, dir string, _ toolcrib.Tool) { write(t, filepath.Join(dir, ".mcp.json"), "ok") },
			line:   "echo x > .mcp.json; cat .mcp.json", want: "ok", fits: true,
		},
		"a file in its folder for temporary files": {
			change: func(t *testing.T, dir string, _ toolcrib.Tool) {
				scratch, err := filepath.Glob(filepath.Join(os.TempDir(), "toolcrib-shell-*"))
				if err != nil || len(scratch) != 1 {
					t.Fatal(scratch, err)
				}
				for _, name := range []string{".gitconfig", ".config"} {
					if err := os.Symlink(filepath.Join(dir, "victim"), filepath.Join(scratch[0], name)); err != nil {
						t.Fatal(err)
					}
				}
			},
			line: "git --version >&2; test -e victim || echo ok", want: "ok",
		},
		"the workspace": {
			change: func(t *testing.T, dir string, _ toolcrib.Tool) {
				if err := os.Rename(dir, dir+".old"); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(dir, "new"), "ok")
			},
			line: "cat new", want: "ok",
		},
		"the sandbox was killed": {
			change: func(t *testing.T, _ string, made toolcrib.Tool) {
				waits := waiting(t, made)
				below := func(pid string) (child string) { // the process that one has started
					waittest.Until(t, "it starts one", func() bool {
						text, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
						child = strings.TrimSpace(string(text))
						return child != ""
					})
					return child
				}
				below(below(strconv.Itoa(waits.Process.Pid))) // the sandbox is made
				if err := waits.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				waittest.Until(t, "it is gone", func() bool { return !shell.Waits(made) })
			},
			line: "echo ok", want: "ok",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(folder(t), "work")
			t.Setenv("TMPDIR", folder(t))
			write(t, filepath.Join(dir, "old"), "")
			made := tool(t, shell.Options{Mode: shell.ModeAny, Report: withSpares(t), ProtectedNames: []string{".mcp.json"}})
			if _, err := runIn(t.Context(), t, made, callOf(t, dir, "true", 20)); err != nil {
				t.Fatal(err)
			}
			before := waiting(t, made)
			change.change(t, dir, made)
			got, err := runIn(t.Context(), t, made, callOf(t, dir, change.line, 20))
			if err != nil || strings.TrimSpace(got.Stdout) != change.want {
				t.Errorf("%+v %v", got, err)
			}
			if there(before) || (before.ProcessState.ExitCode() == 0) != change.fits {
				t.Errorf("the sandbox that waited: %v", before.ProcessState)
			}
		})
	}
}

// Bubblewrap covers what is hidden when it makes a sandbox. A file that is put in its place later would not be covered, so
// such a sandbox does not wait.
func TestSpare_NotWithHidden(t *testing.T) {
	dir, report := folder(t), withSpares(t)
	report.LandlockABI = 0 // which would keep it hidden by itself
	secret := filepath.Join(dir, "secret")
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report, Hidden: []string{secret}})
	for range 3 {
		write(t, secret, "key")
		got, err := runIn(t.Context(), t, made, callOf(t, dir, "cat sec*; true", 20))
		if err != nil || got.Stdout != "" || shell.Waits(made) {
			t.Errorf("%+v %v, waits: %v", got, err, shell.Waits(made))
		}
		if err := os.Remove(secret); err != nil {
			t.Fatal(err)
		}
	}
}

// A command that only reads leaves the sandbox that waits for the next one that does not.
func TestSpare_IsNotForReading(t *testing.T) {
	dir := folder(t)
	made := tool(t, shell.Options{Allow: []string{"ls", "touch"}, Report: withSpares(t)})
	if _, err := runIn(t.Context(), t, made, callOf(t, dir, "touch x", 20)); err != nil {
		t.Fatal(err)
	}
	waits := waiting(t, made)
	if _, err := runIn(t.Context(), t, made, callOf(t, dir, "ls", 20)); err != nil || waiting(t, made) != waits {
		t.Error("another sandbox waits", err)
	}
}

// What cannot be made ahead is an error of the command, and of none but those that it concerns.
func TestSpare_CannotBeMade(t *testing.T) {
	dir, caches := folder(t), filepath.Join(folder(t), "caches")
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: withSpares(t), Caches: caches})
	run := func() error {
		_, err := runIn(t.Context(), t, made, callOf(t, dir, "true", 20))
		return err
	}
	for range 2 {
		if err := run(); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(caches); err != nil {
			t.Fatal(err)
		}
		write(t, caches, "a file")
		if err := run(); kind(t, err) != toolcrib.ExecutionFailed {
			t.Errorf("error %v", err)
		}
		if err := os.Remove(caches); err != nil {
			t.Fatal(err)
		}
	}
}

// A sandbox of one run is not used for another one, and ends with the run.
func TestSpare_EndsWithTheRun(t *testing.T) {
	dir, temporary := folder(t), folder(t)
	t.Setenv("TMPDIR", temporary)
	made := tool(t, shell.Options{Mode: shell.ModeAny, Report: withSpares(t)})
	running, park := context.WithCancel(t.Context())
	var works sync.WaitGroup
	call := callOf(t, dir, "true", 20)
	call.Behind = func(work func(context.Context)) bool {
		works.Go(func() { work(running) })
		return true
	}
	if _, err := runIn(t.Context(), t, made, call); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a sandbox waits", func() bool { return shell.Waits(made) })
	waits := waiting(t, made)
	other := alone(callOf(t, dir, "true", 20))
	other.Run = "run_2"
	if _, err := runIn(t.Context(), t, made, other); err != nil || waiting(t, made) != waits {
		t.Errorf("another run: %v", err)
	}
	park()
	works.Wait()
	if shell.Waits(made) || there(waits) {
		t.Error("the sandbox is still there")
	}
	if now := names(t, temporary); len(now) > 0 {
		t.Errorf("left: %q", now)
	}
}
