package shell

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Main makes the calling program able to sandbox what it runs: programs are started
// by a copy of it, which restricts itself first. So Main must be the first thing in
// the program's main function (and in TestMain): in such a copy it does not return.
// Elsewhere it returns at once.
func Main() {
	if len(os.Args) == 2 && os.Args[1] == helperArgument {
		syscall.Exit(helper()) // there is nothing to be done at the end of the copy
	}
	mainCalled.Store(true)
}

// mainCalled is a fact about the process, once true: its main function called Main.
// Without it a copy would not stop at Main, but be the program once more.
var mainCalled atomic.Bool

const helperArgument = "toolcrib-shell-helper"

// File descriptors of a copy, beside its standard ones.
const (
	jobFile    = 3 // the job as JSON; its end means: stop
	statusFile = 4 // the outcome as JSON
)

const maxStatus = 64 << 10 // bytes

// helperEnvironment is that of a copy: it lives as long as its job and does little, so it begins
// without garbage collection and on one processor, which halves the time of its start. Its
// programs do not inherit it.
func helperEnvironment() []string {
	return []string{"GOGC=off", "GOMEMLIMIT=64MiB", "GOMAXPROCS=1"}
}

// helper is the copy: it reads its job, restricts itself, runs the job, ends what
// is left of it, and tells the outcome.
func helper() int {
	syscall.CloseOnExec(jobFile)
	syscall.CloseOnExec(statusFile)
	jobs, status := os.NewFile(jobFile, "job"), os.NewFile(statusFile, "status")
	if jobs == nil || status == nil {
		return 2
	}
	// Sent to the group, and meant for the programs; what a handler is set for is
	// theirs again when they start.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	var j job
	decoder := json.NewDecoder(jobs)
	if err := decoder.Decode(&j); err != nil {
		return 2
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, jobs)
		close(stop)
	}()
	out := confined(j, stop)
	if err := json.NewEncoder(status).Encode(out); err != nil {
		return 1
	}
	return 0
}

// confined runs a job in the sandbox. What cannot be restricted is not run.
func confined(j job, stop <-chan struct{}) outcome {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return outcome{Exit: -1, Setup: err.Error()}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := errors.Join(verify(j.Held), adopt(), j.confine()); err != nil {
		return outcome{Exit: -1, Setup: err.Error()}
	}
	r := &runner{job: j, stdout: os.Stdout, stderr: os.Stderr, null: null, inherit: true}
	if j.Watch {
		r.reap = reapAll
	}
	return r.run(stop)
}

// confine restricts this process and what it starts, which must be started from the
// thread that called it.
func (j *job) confine() error {
	if err := errors.Join(noNewPrivileges(), dropCapabilities()); err != nil {
		return err
	}
	if j.Rules != nil {
		if err := j.Rules.restrict(); err != nil {
			return err
		}
	}
	return filterCalls(j.Offline, j.Loopback)
}

// launch starts the job in a sandboxed copy of this program where that is possible,
// else from this process.
func (s *shell) launch(l *launcher) (func(stop <-chan struct{}) outcome, error) {
	if !l.report.Helper {
		return l.direct()
	}
	program := "/proc/self/exe"
	args := []string{program, helperArgument}
	if l.report.LandlockABI > 0 {
		l.Rules = l.rules()
	}
	if l.report.Bubblewrap != "" && (l.writes || l.Rules == nil) {
		own, err := os.Executable()
		if err != nil {
			return nil, fault("the sandbox could not be made", err)
		}
		args = l.bubblewrap(own)
		program = args[0]
		l.Env = l.environment(ownTmp)
		l.Loopback = l.Offline
		if l.Rules != nil {
			l.Rules.Closed = false
			l.Rules.Write = append(l.Rules.Write, ownTmp, "/dev/shm")
		}
	}
	return l.start(program, args)
}

// start starts the copy and returns what waits for it.
func (l *launcher) start(program string, args []string) (func(stop <-chan struct{}) outcome, error) {
	jobRead, jobWrite, err := os.Pipe()
	if err != nil {
		return nil, fault("no pipe", err)
	}
	defer func() { _ = jobRead.Close() }()
	statusRead, statusWrite, err := os.Pipe()
	if err != nil {
		_ = jobWrite.Close()
		return nil, fault("no pipe", err)
	}
	defer func() { _ = statusWrite.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program)
	cmd.Args, cmd.Dir, cmd.Env = args, l.Dir, helperEnvironment()
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = l.null, l.stdout, l.stderr, []*os.File{jobRead, statusWrite}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel, cmd.WaitDelay = jobWrite.Close, killAfter
	if err := cmd.Start(); err != nil {
		cancel()
		_, _ = jobWrite.Close(), statusRead.Close()
		return nil, fault("the sandbox could not be started", err)
	}
	// These ends are the copy's alone, so that its end is seen.
	_, _, _ = l.stdout.Close(), l.stderr.Close(), statusWrite.Close()
	l.root.Store(int64(cmd.Process.Pid))
	return func(stop <-chan struct{}) outcome {
		defer cancel()
		go func() {
			select {
			case <-stop:
				cancel()
			case <-ctx.Done():
			}
		}()
		return l.wait(ctx, cmd, jobWrite, statusRead)
	}, nil
}

// killAfter is how long the copy has to end by itself once it was told to.
const killAfter = 2 * time.Second

// wait gives the copy its job and waits until it has ended. Whatever is left in its
// group then is killed.
func (l *launcher) wait(ctx context.Context, cmd *exec.Cmd, jobs, status *os.File) outcome {
	// A copy that is gone tells no outcome, which is looked at below.
	go func() { _ = json.NewEncoder(jobs).Encode(&l.job) }()
	told := make(chan []byte, 1)
	go func() {
		data, _ := io.ReadAll(io.LimitReader(status, maxStatus))
		told <- data
	}()
	_ = cmd.Wait()
	stopped := ctx.Err() != nil
	endGroup(cmd.Process.Pid)
	_ = jobs.Close()
	_ = status.SetReadDeadline(time.Now().Add(pipeGrace))
	out := outcome{}
	if err := json.Unmarshal(<-told, &out); err != nil {
		out = outcome{Exit: -1, Setup: "the sandboxed process ended without a message"}
	}
	_ = status.Close()
	if stopped {
		out = outcome{Exit: -1, Stopped: true}
	}
	return out
}

// Under bubblewrap the copy finds itself here, and its folder for temporary files there:
// on a disk, where what is written is counted.
const (
	wrapped = "/.toolcrib-shell"
	ownTmp  = "/tmp"
)

// bubblewrap returns the command that starts the copy in namespaces of its own,
// with the workspace and the folder for temporary files as the only places to
// write. Protected paths are read-only; hidden ones are empty.
func (l *launcher) bubblewrap(own string) []string {
	args := []string{
		l.report.Bubblewrap, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session",
		"--clearenv",
		"--dev", "/dev", "--proc", "/proc", "--bind", l.scratch, ownTmp, "--bind", l.scratch, "/dev/shm",
	}
	for _, variable := range helperEnvironment() {
		name, value, _ := strings.Cut(variable, "=")
		args = append(args, "--setenv", name, value)
	}
	if !l.options.Network {
		args = append(args, "--unshare-net")
	}
	for _, path := range systemFolders() {
		if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
			if target, err := os.Readlink(path); err == nil {
				args = append(args, "--symlink", target, path)
				continue
			}
		}
		args = append(args, "--ro-bind-try", path, path)
	}
	for _, path := range systemFiles(l.options.Network) {
		args = append(args, "--ro-bind-try", path, path)
	}
	args = append(args, "--ro-bind", own, wrapped)
	roots := []string{l.Dir}
	for _, path := range l.toolchains() {
		args, roots = append(args, "--ro-bind-try", path, path), append(roots, path)
	}
	bind := "--ro-bind"
	if l.writes {
		bind = "--bind"
	}
	args = append(args, bind, l.Dir, l.Dir)
	for _, h := range l.Held {
		how := "--ro-bind"
		if h.open {
			how = "--bind"
		}
		args = append(args, how, h.Path, h.Path)
	}
	var closed []string
	for _, path := range l.options.Hidden {
		if !slices.ContainsFunc(roots, func(root string) bool { return within(path, root) }) {
			continue
		}
		switch info, err := os.Stat(path); {
		case err != nil:
		case info.IsDir():
			args, closed = append(args, "--tmpfs", path), append(closed, "--remount-ro", path)
		default:
			args = append(args, "--ro-bind", os.DevNull, path)
		}
	}
	if l.cache != "" {
		args = append(args, "--bind", l.cache, l.cache)
	}
	return append(append(args, closed...), "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", l.Dir, "--", wrapped,
		helperArgument)
}

// toolchains are the folders that are read and run beside those of the system.
func (l *launcher) toolchains() (paths []string) {
	for _, path := range l.installed.read {
		covered := func(folder string) bool { return within(path, folder) }
		if l.writes && !slices.ContainsFunc(systemFolders(), covered) && !l.options.hides(path) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths) // a folder before what is in it
	return slices.Compact(paths)
}

// rules is what Landlock grants to the job.
func (l *launcher) rules() *rules {
	r := &rules{
		ABI: l.report.LandlockABI, Closed: !l.options.Network,
		Read: append(systemFolders(), systemFiles(l.options.Network)...), Write: []string{l.scratch},
	}
	if l.writes {
		r.Read = append(r.Read, "/opt", "/proc")
	}
	for _, path := range l.toolchains() {
		r.grant(path, l.options, &r.Read, 0)
	}
	if l.cache != "" {
		r.Write = append(r.Write, l.cache)
	}
	inside := &r.Data
	if l.writes {
		inside = &r.Write
	}
	r.grant(l.Dir, l.options, inside, 0)
	return r
}

// maxBeside bounds the files beside a hidden one that get a rule of their own.
const maxBeside = 4096

// grant grants a folder, but for what is hidden in it. Landlock only adds: where
// something is hidden below, all that is beside it is granted one by one, and
// nothing new can be made in that folder.
func (r *rules) grant(folder string, o *Options, into *[]string, depth int) {
	if !o.holdsHidden(folder) || depth > maxGuardDepth {
		if !o.hides(folder) && depth <= maxGuardDepth {
			*into = append(*into, folder)
		}
		return
	}
	r.Folders = append(r.Folders, folder)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, entry := range entries {
		at := filepath.Join(folder, entry.Name())
		if entry.Type()&os.ModeSymlink != 0 || len(*into) > maxBeside {
			continue // a link is followed to what it leads to, which has a rule or none
		}
		r.grant(at, o, into, depth+1)
	}
}

// systemFolders are where programs and what they need are.
func systemFolders() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32", "/nix/store"}
}

// systemFiles are the files of /etc that programs commonly need, none of them
// secret.
func systemFiles(network bool) []string {
	files := []string{
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld-musl-x86_64.path", "/etc/localtime",
		"/etc/timezone", "/etc/nsswitch.conf",
		"/etc/passwd", "/etc/group", "/etc/locale.alias", "/etc/alternatives", "/etc/os-release", "/etc/mime.types",
		"/etc/services", "/etc/protocols", "/etc/terminfo", "/etc/magic", "/etc/hosts", "/etc/host.conf",
		"/etc/ssl/openssl.cnf", "/etc/ssl/certs",
	}
	if network {
		files = append(files, "/etc/resolv.conf", "/etc/gai.conf", "/etc/pki/tls/certs",
			"/etc/pki/ca-trust/extracted", "/etc/ca-certificates", "/run/systemd/resolve")
	}
	return files
}
