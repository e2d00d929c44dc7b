package shell

import (
	"context"
	"encoding/json"
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
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// Main enables the sandbox: programs are then started by a copy of the calling program, which restricts itself
// and exits before its main function. Call Main at the beginning of the main function, and in TestMain; without it
// there is no sandbox.
func Main() { mainCalled.Store(true) }

// mainCalled reports whether the main function of this process has called Main.
var mainCalled atomic.Bool

// launch starts the job in a sandboxed copy of this program, or from this process if that is not possible.
func (s *shell) launch(l *launcher) (func(stop <-chan struct{}) jail.Outcome, error) {
	if !l.report.Helper {
		return l.direct()
	}
	if l.report.LandlockABI > 0 {
		l.Rules = l.rules(l.toolchains())
	}
	wrapped := l.report.Bubblewrap != "" && (l.anyProgram() || l.Rules == nil)
	if wrapped {
		l.Env = l.environment(ownTmp)
		l.Mounts, l.Loopback = l.mounts(), l.Offline
		if l.Mounts && l.lower != "" {
			l.Cache = overlay(l.scratch, l.lower)
		}
		if l.proxy != nil {
			l.Proxied = proxied()
		}
		if l.Rules != nil {
			l.Rules.Closed = false
			l.Rules.Write = append(l.Rules.Write, ownTmp)
			l.Rules.Read = append(l.Rules.Read, procFolder) // it shows only the processes of the sandbox
		}
	} else if l.anyProgram() {
		l.Rules.Data, l.Rules.Watched = append(l.Rules.Data, procFiles()...), []string{procFolder}
	}
	if l.copy == nil {
		args, files, err := []string{"/proc/self/exe", jail.Argument}, []*os.File(nil), error(nil)
		switch {
		case wrapped:
			args, files, err = l.bubblewrap(l.namespaces(true))
		case l.Strict:
			args[1] = jail.Supervise
		}
		if err == nil {
			err = l.begin(args, files)
		}
		if err != nil {
			return nil, err
		}
	}
	if l.ready != nil { // while bubblewrap starts
		if err := l.ready(); err != nil {
			return nil, err
		}
	}
	l.root.Store(int64(l.copy.cmd.Process.Pid))
	return l.finish, nil
}

// sandboxed is a running copy of this program that waits for its job.
type sandboxed struct {
	cmd          *exec.Cmd
	ctx          context.Context
	cancel       context.CancelFunc
	jobs, status *os.File
	ended        chan struct{} // closed when the copy has ended
}

// begin starts the copy, or bubblewrap, with args and additional files, and closes the files.
func (l *launcher) begin(args []string, files []*os.File) error {
	defer closeAll(files...)
	jobRead, jobWrite, err := os.Pipe()
	if err != nil {
		return fault("no pipe", err)
	}
	defer func() { _ = jobRead.Close() }()
	statusRead, statusWrite, err := statusPair()
	if err != nil {
		_ = jobWrite.Close()
		return fault("no socket", err)
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
	closeAll(l.stdout, l.stderr) // only the copy has them open now, so that its end closes the pipes
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	l.copy = c
	return nil
}

// end makes a copy without a job exit, and waits for it. The copy is not killed: if bubblewrap is killed while it
// creates a sandbox, another process of it waits forever for the killed one.
func (c *sandboxed) end() {
	c.cancel()
	select {
	case <-c.ended:
	default:
		<-c.ended
		jail.EndGroup(c.cmd.Process.Pid) // in case it had to be killed
	}
	closeAll(c.jobs, c.status)
}

// temporary returns the path of the folder for temporary files in the sandbox of any program.
func (l *launcher) temporary() string {
	if l.report.Helper && l.report.Bubblewrap != "" {
		return ownTmp
	}
	return l.scratch
}

// maxStatus bounds the outcome that the copy reports.
const maxStatus = 64 << 10 // bytes

// killAfter is how long a cancelled copy has to exit before it is killed.
const killAfter = 2 * time.Second

// finish gives the copy its job, and waits until the copy ends or stop is closed. It then kills the processes that are
// left in its group.
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
	// If the copy has ended, its outcome is missing, which is handled below.
	go func() { _ = json.NewEncoder(c.jobs).Encode(&l.Job) }()
	outcome, end := l.outcome(c.status)
	defer end()
	<-c.ended
	stopped := c.ctx.Err() != nil
	jail.EndGroup(c.cmd.Process.Pid)
	_ = c.jobs.Close()
	_ = c.status.SetReadDeadline(time.Now().Add(pipeGrace))
	out := jail.Outcome{}
	if err := json.Unmarshal(outcome(), &out); err != nil {
		out = jail.Outcome{Exit: -1, Setup: "the sandboxed process ended without a message"}
	}
	_ = c.status.Close()
	if stopped {
		out = jail.Outcome{Exit: -1, Stopped: true}
	}
	return out
}

// Paths in bubblewrap's namespaces. The folder for temporary files is on a disk, so that bounds on disk use apply.
const (
	wrapped = "/.toolcrib-shell" // executable of the copy
	ownTmp  = "/tmp"
)

// firstCopied is the first of the file descriptors from which bubblewrap copies files. Namespaces come before these.
const firstCopied = 5

// bubblewrap returns the command that starts the copy in its own namespaces, and the files that the command copies.
// Only the workspace and the folders for temporary files and build caches can be written. Protected paths are
// read-only, hidden ones are empty.
//
// The network namespace has only the loopback device. With namespaces, the copy then joins theirs; if it could not, it
// would be left with its own.
//
// Bubblewrap reads the list of all mounts for each mount. To have fewer, small files of the system are copied into the
// root folder, which is in memory and becomes read-only, and only the devices that Landlock grants are mounted.
func (l *launcher) bubblewrap(namespaces []*os.File) (args []string, copied []*os.File, err error) {
	own, err := os.Executable()
	if err != nil {
		closeAll(namespaces...)
		return nil, nil, fault("the sandbox could not be made", err)
	}
	copied, l.Join = namespaces, namespaces != nil
	args = []string{
		l.report.Bubblewrap, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--new-session",
		"--clearenv",
		"--proc", "/proc", "--remount-ro", "/proc", "--bind", l.scratch, ownTmp, "--symlink", ownTmp, "/dev/shm",
		"--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/proc/self/fd/0", "/dev/stdin",
		"--symlink", "/proc/self/fd/1", "/dev/stdout", "--symlink", "/proc/self/fd/2", "/dev/stderr",
	}
	for _, path := range append(devices(), os.DevNull) {
		args = append(args, "--dev-bind", path, path)
	}
	for _, variable := range jail.Environment() {
		name, value, _ := strings.Cut(variable, "=")
		args = append(args, "--setenv", name, value)
	}
	if !l.options.open {
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
	for _, path := range systemFiles(l.options.open) {
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
	if l.writes() {
		bind = "--bind"
	}
	args = append(args, bind, l.Dir, l.Dir)
	if l.mounts() || l.Join {
		args = append(args, "--cap-add", "CAP_SYS_ADMIN")
	}
	args = append(args, userNamespace(namespaces)...)
	for _, h := range l.Held { // empty if the copy mounts them
		how := "--ro-bind"
		if h.Open {
			how = "--bind"
		}
		args = append(args, how, h.Path, h.Path)
	}
	masks, closed := l.masked(roots)
	args = append(args, masks...)
	if l.lower != "" {
		args = append(args, "--ro-bind", l.lower, l.lower)
	}
	if l.cache != "" {
		args = append(args, "--bind", l.cache, l.cache)
	}
	args = append(append(args, closed...), "--remount-ro", "/", "--chdir", l.Dir, "--", wrapped,
		jail.Argument)
	return args, copied, nil
}

// masked returns the arguments of bubblewrap by which hidden paths below roots, and special files, are empty, and those
// by which nothing can be created there.
func (l *launcher) masked(roots []string) (args, closed []string) {
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
	for _, path := range l.special {
		args = append(args, "--ro-bind", os.DevNull, path)
	}
	return args, closed
}

// mounts reports whether the copy makes mounts.
func (l *launcher) mounts() bool { return l.report.Mounts && (l.writes() || l.lower != "") }

// overlay returns the mount by which a job reads build caches and writes to its own folder for temporary files, or nil
// if a name cannot be written as an option of the mount.
func overlay(scratch, lower string) *jail.Cache {
	for _, name := range []string{".cache", ".overlay/upper", ".overlay/work"} {
		if err := os.MkdirAll(filepath.Join(scratch, name), 0o700); err != nil {
			return nil
		}
	}
	if strings.ContainsAny(lower, `,:\`) {
		return nil
	}
	own := filepath.Join(ownTmp, ".overlay")
	return &jail.Cache{
		Lower: lower, Upper: filepath.Join(own, "upper"), Work: filepath.Join(own, "work"),
		At: filepath.Join(ownTmp, ".cache"),
	}
}

// maxCopied is the maximum size in bytes of a system file that is copied into a sandbox; larger ones are mounted.
const maxCopied = 256 << 10

// openSmall opens a regular file of at most maxCopied bytes. It returns nil for others, and if the file cannot be read.
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

// toolchains returns the folders to be read and executed in addition to those of the system.
func (l *launcher) toolchains() (paths []string) {
	for _, path := range slices.Sorted(slices.Values(l.installed.read)) { // parents first
		real := sync.OnceValue(func() string { return beneath.Real(path) })
		covered := func(folder string) bool { return within(path, folder) }
		again := func(folder string) bool { return within(real(), folder) && !l.options.holdsHidden(folder) }
		if l.Strict && (real() == rootDir || l.installed.home != "" && within(beneath.Real(l.installed.home), real())) {
			continue // a home folder on the PATH has more than programs
		}
		if l.anyProgram() && !slices.ContainsFunc(systemFolders(), covered) && !slices.ContainsFunc(paths, again) &&
			!l.options.hides(path) {
			paths = append(paths, path)
		}
	}
	return slices.Compact(paths)
}

// rules returns the Landlock rules of the job.
func (l *launcher) rules(toolchains []string) *jail.Rules {
	r := &jail.Rules{
		ABI: l.report.LandlockABI, Closed: !l.options.open,
		Read: systemFiles(l.options.open), Data: devices(), Write: []string{l.scratch},
	}
	shown := *l.options
	shown.Hidden = slices.Concat(shown.Hidden, l.installed.private)
	folders := systemFolders()
	if l.writes() {
		folders = append(folders, "/opt")
	}
	for _, path := range append(folders, toolchains...) {
		grant(r, path, &shown, &r.Read, 0)
	}
	if l.cache != "" {
		r.Write = append(r.Write, l.cache)
	}
	inside := &r.Data
	switch l.sandbox {
	case line.WritesWorkspace:
		inside = &r.Write
	case line.ReadsWorkspace: // with the programs in it
		inside = &r.Read
	}
	grant(r, l.Dir, l.options, inside, 0)
	return r
}

// maxSiblings bounds the siblings of hidden paths that get rules of their own.
const maxSiblings = 4096

// grant grants access to a folder, except to hidden paths in it. Landlock has no rules that deny: if a
// folder has a hidden path below it, only the other entries are granted, one by one, and no file can be
// created in the folder.
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
		if entry.Type()&os.ModeSymlink != 0 || len(*into) > maxSiblings {
			continue // access through a link depends on the rules for its target
		}
		grant(r, at, o, into, depth+1)
	}
}

// systemFolders returns the folders of the system with programs and their libraries and data.
func systemFolders() []string {
	return []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32", "/nix/store"}
}

// devices returns the devices that programs may read, in addition to /dev/null.
func devices() []string { return []string{"/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"} }

const procFolder = "/proc"

// procFiles returns the files in /proc about the machine. Without a process namespace the rest of /proc shows processes
// of others. Rules cannot name processes that do not exist yet, so not even /proc/self is granted.
func procFiles() []string {
	return []string{
		"/proc/cgroups", "/proc/cpuinfo", "/proc/devices", "/proc/diskstats", "/proc/filesystems", "/proc/loadavg",
		"/proc/meminfo", "/proc/partitions", "/proc/pressure", "/proc/stat", "/proc/swaps", "/proc/sys", "/proc/uptime",
		"/proc/version", "/proc/vmstat", "/proc/zoneinfo",
	}
}

// systemFiles returns the files of /etc that programs commonly need. None of them is secret.
func systemFiles(network bool) []string {
	files := []string{
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld-musl-x86_64.path", "/etc/localtime",
		"/etc/timezone", "/etc/nsswitch.conf",
		"/etc/passwd", "/etc/group", "/etc/locale.alias", "/etc/alternatives", "/etc/os-release", "/etc/mime.types",
		"/etc/services", "/etc/protocols", "/etc/terminfo", "/etc/magic", "/etc/hosts", "/etc/host.conf",
		"/etc/ssl/openssl.cnf", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/ca-certificates",
	}
	of, _ := filepath.Glob("/etc/ld.so.conf.d/*")
	files = append(files, of...)
	if network {
		files = append(files, "/etc/resolv.conf", "/etc/gai.conf", "/run/systemd/resolve")
	}
	return files
}
