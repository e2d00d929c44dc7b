package shell

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib/tool/internal/beneath"
	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
)

// Main makes the calling program able to sandbox what it runs: programs are started by a copy of it, which
// restricts itself first and ends before its main function. Call Main at the beginning of the program's main
// function (and in TestMain); without it there is no sandbox.
func Main() { mainCalled.Store(true) }

// mainCalled is a fact about the process, once true: its main function called Main.
var mainCalled atomic.Bool

// launch starts the job in a sandboxed copy of this program where that is possible,
// else from this process.
func (s *shell) launch(l *launcher) (func(stop <-chan struct{}) jail.Outcome, error) {
	if !l.report.Helper {
		return l.direct()
	}
	if l.report.LandlockABI > 0 {
		l.Rules = l.rules(l.toolchains())
	}
	wrapped := l.report.Bubblewrap != "" && (l.writes || l.Rules == nil)
	if wrapped {
		l.Env = l.environment(ownTmp)
		l.Mounts, l.Loopback = l.report.Mounts, l.Offline
		if l.Rules != nil {
			l.Rules.Closed = false
			l.Rules.Write = append(l.Rules.Write, ownTmp)
			l.Rules.Read = append(l.Rules.Read, procFolder) // of its own processes
		}
	} else if l.writes {
		l.Rules.Data, l.Rules.Watched = append(l.Rules.Data, procFiles()...), []string{procFolder}
	}
	if l.copy == nil {
		args, files, err := []string{"/proc/self/exe", jail.Argument}, []*os.File(nil), error(nil)
		if wrapped {
			args, files, err = l.bubblewrap()
		}
		if err == nil {
			err = l.begin(args, files)
		}
		if err != nil {
			return nil, err
		}
	}
	if l.ready != nil { // while the sandbox is made
		if err := l.ready(); err != nil {
			return nil, err
		}
	}
	l.root.Store(int64(l.copy.cmd.Process.Pid))
	return l.finish, nil
}

// sandboxed is a copy of this program that was started and waits for its job.
type sandboxed struct {
	cmd          *exec.Cmd
	ctx          context.Context
	cancel       context.CancelFunc
	jobs, status *os.File
	ended        chan struct{} // is closed when it has
}

// begin starts the copy, or bubblewrap with the files that it reads, and closes these.
func (l *launcher) begin(args []string, files []*os.File) error {
	defer closeAll(files...)
	jobRead, jobWrite, err := os.Pipe()
	if err != nil {
		return fault("no pipe", err)
	}
	defer func() { _ = jobRead.Close() }()
	statusRead, statusWrite, err := os.Pipe()
	if err != nil {
		_ = jobWrite.Close()
		return fault("no pipe", err)
	}
	defer func() { _ = statusWrite.Close() }()
	c := &sandboxed{jobs: jobWrite, status: statusRead, ended: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.cmd = exec.CommandContext(c.ctx, args[0])
	c.cmd.Args, c.cmd.Dir, c.cmd.Env = args, l.Dir, jail.Environment()
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = l.null, l.stdout, l.stderr
	c.cmd.ExtraFiles = append([]*os.File{jobRead, statusWrite}, files...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Cancel, c.cmd.WaitDelay = jobWrite.Close, killAfter
	if err := c.cmd.Start(); err != nil {
		c.cancel()
		_, _ = jobWrite.Close(), statusRead.Close()
		return fault("the sandbox could not be started", err)
	}
	closeAll(l.stdout, l.stderr) // these ends are the copy's alone, so that its end is seen
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	l.copy = c
	return nil
}

// end tells a copy that has got no job to end, and waits for it. It is not killed: if bubblewrap is while it makes a
// sandbox, a process of it waits forever for the one that was killed.
func (c *sandboxed) end() {
	c.cancel()
	select {
	case <-c.ended:
	default:
		<-c.ended
		jail.EndGroup(c.cmd.Process.Pid) // if it had to be killed after all
	}
	closeAll(c.jobs, c.status)
}

// maxStatus bounds what the copy says at its end.
const maxStatus = 64 << 10 // bytes

// killAfter is how long the copy has to end by itself once it was told to.
const killAfter = 2 * time.Second

// finish gives the copy its job and waits until it has ended, or is told to by stop. Whatever is left in its
// group then is killed.
func (l *launcher) finish(stop <-chan struct{}) jail.Outcome {
	c := l.copy
	defer c.cancel()
	go func() {
		select {
		case <-stop:
			c.cancel()
		case <-c.ctx.Done():
		}
	}()
	// A copy that is gone tells no outcome, which is looked at below.
	go func() { _ = json.NewEncoder(c.jobs).Encode(&l.Job) }()
	told := make(chan []byte, 1)
	go func() {
		data, _ := io.ReadAll(io.LimitReader(c.status, maxStatus))
		told <- data
	}()
	<-c.ended
	stopped := c.ctx.Err() != nil
	jail.EndGroup(c.cmd.Process.Pid)
	_ = c.jobs.Close()
	_ = c.status.SetReadDeadline(time.Now().Add(pipeGrace))
	out := jail.Outcome{}
	if err := json.Unmarshal(<-told, &out); err != nil {
		out = jail.Outcome{Exit: -1, Setup: "the sandboxed process ended without a message"}
	}
	_ = c.status.Close()
	if stopped {
		out = jail.Outcome{Exit: -1, Stopped: true}
	}
	return out
}

// Under bubblewrap the copy finds itself here, and its folder for temporary files there:
// on a disk, where what is written is counted.
const (
	wrapped = "/.toolcrib-shell"
	ownTmp  = "/tmp"
)

// firstCopied is the file descriptor of bubblewrap from which it reads the first file that it copies.
const firstCopied = 5

// bubblewrap returns the command that starts the copy in namespaces of its own,
// with the workspace and the folder for temporary files as the only places to
// write, and the files that it reads. Protected paths are read-only; hidden ones are empty.
//
// For each mount it reads the list of all mounts. So the system's small files are copied into the root folder,
// which is in memory and in the end cannot be written, and of the devices only those are mounted that Landlock grants.
func (l *launcher) bubblewrap() (args []string, copied []*os.File, err error) {
	own, err := os.Executable()
	if err != nil {
		return nil, nil, fault("the sandbox could not be made", err)
	}
	args = []string{
		l.report.Bubblewrap, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session",
		"--clearenv",
		"--proc", "/proc", "--bind", l.scratch, ownTmp, "--symlink", ownTmp, "/dev/shm",
		"--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/proc/self/fd/0", "/dev/stdin",
		"--symlink", "/proc/self/fd/1", "/dev/stdout", "--symlink", "/proc/self/fd/2", "/dev/stderr",
	}
	for _, path := range append(devices(), devNull) {
		args = append(args, "--dev-bind", path, path)
	}
	for _, variable := range jail.Environment() {
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
		if f := openSmall(path); f != nil {
			args, copied = append(args, "--file", strconv.Itoa(firstCopied+len(copied)), path), append(copied, f)
			continue
		}
		args = append(args, "--ro-bind-try", path, path)
	}
	args = append(args, "--ro-bind", own, wrapped)
	roots := append(systemFolders(), l.Dir)
	for _, path := range l.toolchains() {
		args, roots = append(args, "--ro-bind-try", path, path), append(roots, path)
	}
	bind := "--ro-bind"
	if l.writes {
		bind = "--bind"
	}
	args = append(args, bind, l.Dir, l.Dir)
	if l.report.Mounts {
		args = append(args, "--cap-add", "CAP_SYS_ADMIN")
	}
	for _, h := range l.Held { // none yet, if the copy mounts it
		how := "--ro-bind"
		if h.Open {
			how = "--bind"
		}
		args = append(args, how, h.Path, h.Path)
	}
	var closed []string
	inWorkspace := func(path string) bool { return within(path, l.Dir) }
	private := slices.DeleteFunc(slices.Clone(l.installed.private), inWorkspace)
	for _, path := range slices.Concat(l.options.Hidden, private) {
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
	args = append(append(args, closed...), "--remount-ro", "/", "--chdir", l.Dir, "--", wrapped,
		jail.Argument)
	return args, copied, nil
}

// maxCopied is the size of a file of the system that is copied into a sandbox; a larger one is mounted.
const maxCopied = 256 << 10

// openSmall opens a file that is small enough to be copied; nil = it is not, or cannot be read.
func openSmall(path string) *os.File {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > maxCopied {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	return f
}

// toolchains are the folders that are read and run beside those of the system.
func (l *launcher) toolchains() (paths []string) {
	for _, path := range slices.Sorted(slices.Values(l.installed.read)) { // a folder before what is in it
		real := sync.OnceValue(func() string { return beneath.Real(path) })
		covered := func(folder string) bool { return within(path, folder) }
		again := func(folder string) bool { return within(real(), folder) && !l.options.holdsHidden(folder) }
		if l.writes && !slices.ContainsFunc(systemFolders(), covered) && !slices.ContainsFunc(paths, again) &&
			!l.options.hides(path) {
			paths = append(paths, path)
		}
	}
	return slices.Compact(paths)
}

// rules is what Landlock grants to the job.
func (l *launcher) rules(toolchains []string) *jail.Rules {
	r := &jail.Rules{
		ABI: l.report.LandlockABI, Closed: !l.options.Network,
		Read: systemFiles(l.options.Network), Data: devices(), Write: []string{l.scratch},
	}
	shown := *l.options
	shown.Hidden = slices.Concat(shown.Hidden, l.installed.private)
	folders := systemFolders()
	if l.writes {
		folders = append(folders, "/opt")
	}
	for _, path := range append(folders, toolchains...) {
		grant(r, path, &shown, &r.Read, 0)
	}
	if l.cache != "" {
		r.Write = append(r.Write, l.cache)
	}
	inside := &r.Data
	if l.writes {
		inside = &r.Write
	}
	grant(r, l.Dir, l.options, inside, 0)
	return r
}

// maxBeside bounds the files beside a hidden one that get a rule of their own.
const maxBeside = 4096

// grant grants a folder, but for what is hidden in it. Landlock only adds: where
// something is hidden below, all that is beside it is granted one by one, and
// nothing new can be made in that folder.
func grant(r *jail.Rules, folder string, o *Options, into *[]string, depth int) {
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
		grant(r, at, o, into, depth+1)
	}
}

// systemFolders are where programs and what they need are.
func systemFolders() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32", "/nix/store"}
}

// devices are those that are read, beside /dev/null.
func devices() []string { return []string{"/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"} }

const procFolder = "/proc"

// procFiles are what programs read of the machine in /proc. Without a process namespace the rest shows the processes
// of others, and no rule can name those that do not exist yet: so not even /proc/self is granted.
func procFiles() []string {
	return []string{
		"/proc/cgroups", "/proc/cpuinfo", "/proc/devices", "/proc/diskstats", "/proc/filesystems", "/proc/loadavg",
		"/proc/meminfo", "/proc/partitions", "/proc/pressure", "/proc/stat", "/proc/swaps", "/proc/sys", "/proc/uptime",
		"/proc/version", "/proc/vmstat", "/proc/zoneinfo",
	}
}

// systemFiles are the files of /etc that programs commonly need, none of them
// secret.
func systemFiles(network bool) []string {
	files := []string{
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld-musl-x86_64.path", "/etc/localtime",
		"/etc/timezone", "/etc/nsswitch.conf",
		"/etc/passwd", "/etc/group", "/etc/locale.alias", "/etc/alternatives", "/etc/os-release", "/etc/mime.types",
		"/etc/services", "/etc/protocols", "/etc/terminfo", "/etc/magic", "/etc/hosts", "/etc/host.conf",
		"/etc/ssl/openssl.cnf", "/etc/ssl/certs",
	}
	of, _ := filepath.Glob("/etc/ld.so.conf.d/*")
	files = append(files, of...)
	if network {
		files = append(files, "/etc/resolv.conf", "/etc/gai.conf", "/etc/pki/tls/certs",
			"/etc/pki/ca-trust/extracted", "/etc/ca-certificates", "/run/systemd/resolve")
	}
	return files
}
