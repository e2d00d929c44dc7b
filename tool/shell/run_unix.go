//go:build unix

package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/egress"
	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// supported reports whether the system has what the tool needs, such as process groups.
const supported = true

func notFolder(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// launcher starts one job.
type launcher struct {
	jail.Job
	sandbox        line.Sandbox
	special        []string // FIFOs, sockets and devices of the workspace, to be masked
	scratch        string   // folder for temporary files
	cache          string   // folder for build caches, or ""
	lower          string   // folder for build caches that is only read, or ""
	proxy          *egress.Proxy
	shared, making *loopback // of the run, or nil; making until the job has made its namespaces
	extra          []string  // additional environment variables
	installed      *installed
	git            bool          // whether the line runs git
	output         func([]byte)  // called with output, from several goroutines
	active         func()        // called each time the job has used work of processor time
	work           time.Duration // see active
	report         Report
	options        *Options
	bounds         bounds
	root           atomic.Int64 // process above the job, and its group; 0 until it is started
	user           string
	out, err       *os.File // ends of the pipes from which output is read
	stdout, stderr *os.File // ends of the pipes for the job
	null           *os.File
	copy           *sandboxed     // copy started for the job, or nil
	made           []string       // arguments and files of a prepared sandbox, or nil; see identified
	ready          func() error   // if not nil, called after the copy was started and before it gets its job
	concurrent     sync.WaitGroup // work on the folder for temporary files while the job is being set up
	after          []func()       // cleanup functions, called in reverse order
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close() // f may be nil
	}
}

// direct runs the job from this process.
func (l *launcher) direct() (func(stop <-chan struct{}) jail.Outcome, error) {
	r := &jail.Runner{Job: l.Job, Stdout: l.stdout, Stderr: l.stderr, Null: l.null}
	r.Grouped = func(group int) { l.root.Store(int64(group)) }
	return r.Run, nil
}

// run runs a plan and collects its output. Meanwhile it calls output with each piece, and active for each second of
// processor time, where the system counts it. It returns when all processes have ended, at most shortly after ctx.
func (s *shell) run(ctx context.Context, call toolcrib.Call, p *plan, output func([]byte), active func()) (ran, error) {
	s.sweep.Do(func() {
		sweep(time.Now())
		s.options.sweepCaches(time.Now().Add(-cacheAge))
		go s.options.boundCaches(maxCaches)
	})
	user := call.Principal.User
	var l *launcher
	if p.writes() {
		l = s.takePrepared(call.Run)
	}
	if l != nil && !l.fits(user, p) {
		l.clear(call.Behind)
		l = nil
	}
	if l == nil {
		var err error
		if l, err = s.launcher(user, p.w.Dir, p.set, p.Sandbox()); err != nil {
			return ran{}, err
		}
		l.special, l.shared = p.special, p.shared
		if len(p.hidden) > 0 {
			l.lower = "" // caches may have the content of hidden files
		}
	}
	defer s.prepare(call, p)
	defer l.clear(call.Behind)
	l.proxy = p.proxy
	l.Steps, l.bounds, l.git = steps(p.Steps), s.bounds(p.Sandbox()), p.UsesGit
	l.output, l.active, l.work = output, active, s.work
	if l.git {
		l.installed.identify(l.scratch)
	}
	if !l.anyProgram() {
		return s.collect(ctx, l)
	}
	l.concurrent.Go(func() {
		noTelemetry(l.scratch)
		l.linkCargo()
	})
	if p.writes() {
		return s.guarded(ctx, call, p, l)
	}
	l.concurrent.Wait()
	return s.collect(ctx, l)
}

// steps returns the steps of a judged line for a job.
func steps(judged []line.Step) []jail.Step {
	all := make([]jail.Step, len(judged))
	for i, s := range judged {
		all[i].Join = s.Join
		for _, c := range s.Commands {
			all[i].Commands = append(all[i].Commands, jail.Command{
				Path: c.Path, Args: c.Args, In: c.In, NoInput: c.NoInput, Out: jail.Sink(c.Out), Err: jail.Sink(c.Err),
			})
		}
	}
	return all
}

// launcher returns a launcher for a job of a user in a folder, with a new folder for temporary files.
func (s *shell) launcher(user, dir string, set *Options, sandbox line.Sandbox) (_ *launcher, err error) {
	l := &launcher{
		Job:  jail.Job{Dir: dir, Offline: !set.open, Strict: sandbox == line.ReadsWorkspace},
		user: user, sandbox: sandbox, report: s.report(), options: set, installed: s.installed(),
	}
	l.Watch = l.anyProgram()
	defer func() {
		if err != nil {
			l.clear(nil)
		}
	}()
	temporary, err := newScratch()
	if err != nil {
		return nil, fault("no folder for temporary files", err)
	}
	l.scratch, l.after = temporary.path, append(l.after, temporary.remove)
	if l.anyProgram() {
		var release func()
		of := &l.cache
		if l.Strict {
			of = &l.lower
		}
		if *of, release, err = s.options.cache(user, dir); err != nil {
			return nil, fault("no folder for build caches", err)
		}
		l.after = append(l.after, release)
	}
	if l.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, fault("no "+os.DevNull, err)
	}
	if l.out, l.stdout, err = os.Pipe(); err == nil {
		l.err, l.stderr, err = os.Pipe()
	}
	if err != nil {
		return nil, fault("no pipe", err)
	}
	return l, nil
}

// writes reports whether the job can write the workspace.
func (l *launcher) writes() bool { return l.sandbox == line.WritesWorkspace }

// anyProgram reports whether the job may have programs that are not in the built-in table.
func (l *launcher) anyProgram() bool { return l.sandbox != line.WritesNothing }

// clear cleans up after the job, in the background if behind accepts the work, because it is slow on a busy disk.
func (l *launcher) clear(behind func(func(context.Context)) bool) {
	closeAll(l.null, l.out, l.err, l.stdout, l.stderr)
	l.handOver(nil)
	work := func() {
		if l.copy != nil {
			l.copy.end()
		}
		l.concurrent.Wait()
		for _, f := range slices.Backward(l.after) {
			f()
		}
	}
	if behind == nil || !behind(func(context.Context) { work() }) {
		work()
	}
}

// handOver gives the namespaces that the job has made, or nil, to the other jobs of its run.
func (l *launcher) handOver(files []*os.File) {
	if l.making != nil {
		l.making.files = files
		l.making.mu.Unlock()
		l.making = nil
	}
}

// guarded runs a job that may write. Protected files are mounted read-only if possible, and
// otherwise compared afterwards.
func (s *shell) guarded(ctx context.Context, call toolcrib.Call, p *plan, l *launcher) (ran, error) {
	g := &guarded{set: p.set, w: p.w, kept: l.report.Helper && l.report.Bubblewrap != ""}
	if g.kept {
		release, err := l.share(g) // before the survey, so that stand-ins stay
		if err != nil {
			return ran{}, err
		}
		defer release()
	}
	g.seen = p.set.survey(p.w.Dir)
	if g.kept {
		hold := func() error { return l.hold(g.seen) }
		if l.report.Mounts {
			l.ready = hold
		} else if err := hold(); err != nil {
			return ran{}, err
		}
		if g.seen.unsure == "" {
			g.held = slices.DeleteFunc(slices.Concat(g.seen.found, g.seen.absent), func(path string) bool {
				_, link := g.seen.links[path]
				return link || foundAfterwards(path)
			})
		}
		if slices.Contains(g.seen.absent, filepath.Join(p.w.Dir, ".git")) {
			l.extra = []string{"GOFLAGS=-buildvcs=false"} // go would ask git about the stand-in
		}
	}
	g.before = g.look(g.seen)
	l.concurrent.Wait()
	res, err := s.collect(ctx, l)
	changed, unsure := g.changed()
	changed, aside := g.undo(changed)
	if len(changed) > 0 {
		res.warn("The command changed what is protected: " + p.named(changed) +
			". These files steer toolcrib or programs beside it; tell the user, and do not rely on them.")
	}
	if len(aside) > 0 {
		res.warn("The command made or replaced what is protected. That has been undone; what it made is now called " +
			p.named(aside) + ".")
	}
	if len(changed)+len(aside) > 0 && s.options.OnProtectedChange != nil {
		s.options.OnProtectedChange(call, changed, aside)
	}
	if unsure != "" {
		res.warn("Whether the command changed what is protected is not known for all of it: " + unsure + ".")
	}
	return res, err
}

func (r *ran) warn(text string) { r.Warning = strings.TrimSpace(r.Warning + " " + text) }

func fault(text string, err error) error {
	return &toolcrib.ToolError{Kind: toolcrib.ExecutionFailed, Message: text, Err: err}
}

// collect starts the job, reads its output, and waits for its end.
func (s *shell) collect(ctx context.Context, l *launcher) (ran, error) {
	l.Env = l.environment(l.scratch)
	work, err := s.launch(l)
	if err != nil {
		return ran{}, err
	}
	limited, stop := context.WithCancelCause(ctx)
	watched := l.watch(limited, stop)
	var (
		stdout, stderr keeper
		read           atomic.Int64
		readers        sync.WaitGroup
	)
	flooded := func() { stop(exceeded("it wrote more than 64 MiB.")) }
	readers.Go(func() { stdout.drain(l.out, &read, flooded, l.output) })
	readers.Go(func() { stderr.drain(l.err, &read, flooded, l.output) })
	out := work(limited.Done())
	closeAll(l.stdout, l.stderr)
	// A process that escaped may still have the pipes open: do not wait for it.
	_, _ = l.out.SetReadDeadline(time.Now().Add(pipeGrace)), l.err.SetReadDeadline(time.Now().Add(pipeGrace))
	readers.Wait()
	cause := context.Cause(limited)
	stop(nil)
	<-watched
	res := ran{stopped: out.Stopped, unreachable: out.Unreachable, refused: out.Refused, result: result{
		ExitCode: out.Exit, Signal: out.Signal, Stdout: stdout.text(), Stderr: stderr.text(),
		StdoutTruncated: stdout.cut(), StderrTruncated: stderr.cut(),
	}}
	return res, res.judge(out, cause)
}

const pipeGrace = 500 * time.Millisecond

// judge completes the result from the outcome of a job and from the cause of its end.
func (r *ran) judge(out jail.Outcome, cause error) error {
	if over := exceeded(""); errors.As(cause, &over) {
		r.ExitCode, r.Warning = -1, "The command was killed: "+string(over)
		return nil
	}
	switch {
	case out.Setup != "":
		return &toolcrib.ToolError{
			Kind: toolcrib.ExecutionFailed, Message: "the sandbox could not be made, so nothing was run",
			Err: errors.New(out.Setup + " " + line.Shorten(r.Stderr)), // bubblewrap says why there
		}
	case out.Problem != "":
		return &toolcrib.ToolError{
			Kind: toolcrib.ExecutionFailed, Message: line.Quote(out.Program) + " could not be started",
			Err: errors.New(out.Problem),
		}
	}
	return nil
}

const scratchPrefix = "toolcrib-shell-"

// scratchAge is the minimum age of an abandoned folder: a new one may not be locked yet.
const scratchAge = time.Minute

// maxSwept bounds how many abandoned folders one call removes.
const maxSwept = 64

// scratch is the folder for temporary files of one call. It is locked while this process lives, to distinguish it from
// the folders of killed processes.
type scratch struct {
	path string
	lock *os.File
}

func newScratch() (*scratch, error) {
	made, err := os.MkdirTemp("", scratchPrefix)
	if err != nil {
		return nil, err
	}
	path, err := filepath.EvalSymlinks(made)
	if err != nil {
		_ = os.Remove(made)
		return nil, err
	}
	s := &scratch{path: path}
	// On a file system without locks, sweep removes nothing.
	if s.lock, err = os.Open(path); err == nil {
		_ = syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	return s, nil
}

func (s *scratch) remove() {
	removeAll(s.path)
	if s.lock != nil {
		_ = s.lock.Close()
	}
}

// sweep removes folders that killed processes of this user left behind.
func sweep(now time.Time) {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range left[:min(len(left), maxSwept)] {
		if abandoned(path, now) {
			removeAll(path)
		}
	}
}

// abandoned reports whether a folder belongs to this user, is old enough, and is not locked.
func abandoned(path string, now time.Time) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < scratchAge {
		return false
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Getuid() {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// removeAll removes a folder, also if permissions were removed from folders in it.
func removeAll(folder string) {
	if os.RemoveAll(folder) == nil {
		return
	}
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(folder)
}

// keeper reads a stream of output to its end, and keeps its beginning and its end, at most maxKept bytes.
type keeper struct {
	head []byte
	rest tail
}

const half = maxKept / 2

func (k *keeper) add(p []byte) {
	n := min(len(p), half-len(k.head))
	k.head = append(k.head, p[:n]...)
	k.rest.add(p[n:], half)
}

func (k *keeper) cut() bool { return k.rest.total > half }

// text returns what was kept, with a note where bytes are left out.
func (k *keeper) text() string {
	end := k.rest.last(half)
	left := k.rest.total - int64(len(end))
	if left <= 0 {
		return strings.ToValidUTF8(string(k.head)+string(end), "\uFFFD")
	}
	note := fmt.Sprintf("\n... [%d bytes left out] ...\n", left)
	return strings.ToValidUTF8(string(k.head), "\uFFFD") + note + strings.ToValidUTF8(string(end), "\uFFFD")
}

// drain reads from into k, to the end so that the writers do not block. It calls flooded when the streams that share
// the counter read have given more than maxDrained bytes.
func (k *keeper) drain(from io.Reader, read *atomic.Int64, flooded func(), output func([]byte)) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		k.add(buffer[:n])
		output(buffer[:n])
		if read.Add(int64(n)) > maxDrained {
			flooded()
		}
		if err != nil {
			return
		}
	}
}
