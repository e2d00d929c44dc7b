//go:build unix

package jail

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib/tool/internal/nolink"
)

const termGrace = 100 * time.Millisecond // between SIGTERM and SIGKILL: a cancelled call is to end within 200 ms

// Runner runs one job.
type Runner struct {
	Job
	Stdout, Stderr, Null *os.File
	// inherit keeps programs in the process group of this process, as in the copy. Otherwise each
	// pipeline gets its own group.
	inherit bool
	reap    func()          // if not nil, kills and reaps processes outside the group
	Grouped func(group int) // if not nil, called with the process group of each pipeline that has its own
}

// running is a running pipeline.
type running struct {
	group     int // process group, or 0 for that of this process
	processes []*os.Process
}

// Run runs the steps until one cannot be started or stop is closed. It locks its thread, since
// programs end with the thread that started them; see dieWithParent.
func (r *Runner) Run(stop <-chan struct{}) Outcome {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var out Outcome
	for _, s := range r.Steps {
		select {
		case <-stop:
			out.Exit, out.Stopped = -1, true
			return out
		default:
		}
		if s.skipped(out.Exit) {
			continue
		}
		if out = r.step(s, stop); out.Stopped || out.Problem != "" {
			return out
		}
	}
	return out
}

// step runs one pipeline, and returns the outcome of its last command.
func (r *Runner) step(s Step, stop <-chan struct{}) Outcome {
	p := &running{}
	problem := r.start(p, s.Commands)
	states := make([]*os.ProcessState, len(p.processes)) // nil if unknown
	var all sync.WaitGroup
	// Only after all are started: the group may no longer exist after waiting for its first process.
	for index, process := range p.processes {
		all.Go(func() { states[index], _ = process.Wait() })
	}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	if problem.Problem != "" {
		closed := make(chan struct{})
		close(closed)
		stop = closed
	}
	stopped := r.wait(p, ended, stop)
	r.sweep(p)
	if problem.Problem != "" {
		return problem
	}
	out := exitOf(states[len(states)-1])
	out.Stopped = stopped
	return out
}

func exitOf(state *os.ProcessState) Outcome {
	if state == nil {
		return Outcome{Exit: -1}
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return Outcome{Exit: -1, Signal: status.Signal().String()}
	}
	return Outcome{Exit: state.ExitCode()}
}

// start starts the commands of a pipeline in order. Each reads its own file, the pipe, or nothing.
func (r *Runner) start(p *running, commands []Command) Outcome {
	var opened []*os.File
	defer func() {
		for _, f := range opened {
			_ = f.Close()
		}
	}()
	var piped *os.File // input of the next command
	for i := range commands {
		c, in, out := &commands[i], piped, r.Stdout
		var err error
		if i < len(commands)-1 {
			if piped, out, err = os.Pipe(); err != nil {
				return failed(c, err)
			}
			opened = append(opened, piped, out)
		}
		switch {
		case c.Input != nil:
			var feed *os.File
			if in, feed, err = os.Pipe(); err != nil {
				return failed(c, err)
			}
			opened = append(opened, in)
			go func() {
				_, _ = feed.Write(c.Input) // it fails if the program does not read all of it
				_ = feed.Close()
			}()
		case c.In != "":
			if in, err = r.open(c.In); err != nil {
				return failed(c, err)
			}
			opened = append(opened, in)
		case c.NoInput || in == nil:
			in = r.Null
		}
		if err := r.startOne(p, c, in, out); err != nil {
			return failed(c, err)
		}
	}
	return Outcome{}
}

func failed(c *Command, err error) Outcome {
	return Outcome{Exit: -1, Problem: err.Error(), Program: c.Args[0]}
}

// open opens a regular file of the workspace, whose links must be resolved.
func (r *Runner) open(name string) (*os.File, error) {
	root, err := os.OpenRoot(r.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	f, _, err := nolink.OpenFile(root, name)
	return f, err
}

func (r *Runner) startOne(p *running, c *Command, in, out *os.File) error {
	to := map[Sink]*os.File{ToOut: out, ToErr: r.Stderr, ToNull: r.Null}
	attributes := &syscall.SysProcAttr{}
	if !r.inherit {
		attributes.Setpgid, attributes.Pgid = true, p.group
	}
	dieWithParent(attributes)
	process, err := os.StartProcess(c.Path, c.Args, &os.ProcAttr{
		Dir: r.Dir, Env: r.Env, Files: []*os.File{in, to[c.Out], to[c.Err]}, Sys: attributes,
	})
	if err != nil {
		return err
	}
	if !r.inherit && p.group == 0 {
		p.group = process.Pid
		if r.Grouped != nil {
			r.Grouped(p.group)
		}
	}
	p.processes = append(p.processes, process)
	limit(process.Pid, r.Watch)
	return nil
}

// wait waits for all processes of a pipeline. When stop is closed it terminates them, and kills
// them soon after.
func (r *Runner) wait(p *running, ended, stop <-chan struct{}) (stopped bool) {
	var kill <-chan time.Time
	for {
		select {
		case <-ended:
			return stopped
		case <-stop:
			stop, stopped = nil, true
			if r.inherit || p.group != 0 {
				_ = syscall.Kill(-p.group, syscall.SIGTERM) // 0 is this process's own group
			}
			kill = time.After(termGrace)
		case <-kill:
			r.sweep(p)
			kill = time.After(termGrace)
		}
	}
}

// sweep kills the remaining processes of a pipeline.
func (r *Runner) sweep(p *running) {
	for _, process := range p.processes {
		_ = process.Kill() // it fails if the process has ended
	}
	if p.group != 0 {
		EndGroup(p.group)
	}
	if r.reap != nil {
		r.reap()
	}
}

// EndGroup kills a process group, and waits until it no longer exists. It gives up after a short time, since members
// may not be reaped.
func EndGroup(group int) {
	const looks = 100
	for range looks {
		if err := syscall.Kill(-group, syscall.SIGKILL); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// errMoved is the error for a held path that another process has replaced.
var errMoved = errors.New("the workspace was changed while the sandbox was made")

// Identify sets Dev and Ino to those of the file that is at the path now.
func (h *Held) Identify() error {
	info, err := os.Lstat(h.Path)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		h.Dev, h.Ino = uint64(stat.Dev), uint64(stat.Ino) //nolint:unconvert // of other types elsewhere
	}
	return nil
}

// verify returns an error if a held path is not the file for which it was identified.
func verify(all []Held) error {
	for _, h := range all {
		now := h
		if err := now.Identify(); err != nil || now.Dev != h.Dev || now.Ino != h.Ino {
			return errMoved
		}
	}
	return nil
}
