package jail

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Argument is the only argument of a copy. With Supervise it starts another copy, for which it ends what is left.
const (
	Argument  = "toolcrib-shell-helper"
	Supervise = "toolcrib-shell-supervisor"
)

func init() {
	switch {
	case len(os.Args) != 2:
	case os.Args[1] == Argument:
		syscall.Exit(helper()) // the copy has nothing to clean up
	case os.Args[1] == Supervise:
		syscall.Exit(supervise())
	}
}

// File descriptors of a copy, in addition to the standard ones.
const (
	jobFile     = 3 // the job as JSON; end of file means stop
	statusFile  = 4 // the outcome as JSON
	networkFile = 6 // with Join, the network namespace; the user namespace that owns it comes before it
)

// Environment returns the environment of a copy. The copy is short-lived and does little, so it runs without garbage
// collection and on one processor, which halves its start-up time. Programs do not inherit the environment.
func Environment() []string {
	return []string{"GOGC=off", "GOMEMLIMIT=64MiB", "GOMAXPROCS=1"}
}

// helper is the main function of the copy: it reads its job, restricts itself, runs the job, ends the
// remaining processes, and writes the outcome.
func helper() int {
	// Programs inherit none of these, nor what the program that started toolcrib has left open.
	if unix.CloseRange(jobFile, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) != nil { // before Linux 5.11
		for file := jobFile; file <= networkFile; file++ {
			syscall.CloseOnExec(file)
		}
	}
	jobs, status := os.NewFile(jobFile, "job"), os.NewFile(statusFile, "status")
	if jobs == nil || status == nil {
		return 2
	}
	// These signals are sent to the group and meant for the programs, in which signals
	// with a handler here have their default action.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	_ = notDumpable() // early, while it waits for its job; confined requires it
	var j Job
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

// supervise starts a copy that runs the job, and kills all processes that are left when the copy has ended, or soon
// after it was told to stop. Landlock lets programs send signals to the copy that restricts itself together with
// them, but not to this process.
func supervise() int {
	_ = notDumpable()
	if err := adopt(); err != nil {
		return 2
	}
	jobs, status := os.NewFile(jobFile, "job"), os.NewFile(statusFile, "status")
	process, err := os.StartProcess("/proc/self/exe", []string{os.Args[0], Argument}, &os.ProcAttr{
		Env: Environment(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, jobs, status},
	})
	if err != nil {
		return 2
	}
	ended := make(chan struct{})
	go func() {
		_, _ = process.Wait()
		close(ended)
	}()
	stopped := make(chan struct{})
	go func() {
		hangUp := []unix.PollFd{{Fd: jobFile}} // the job itself is for the copy
		for hangUp[0].Revents&unix.POLLHUP == 0 {
			if _, err := unix.Poll(hangUp, -1); err != nil && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		time.Sleep(stopGrace)
		close(stopped)
	}()
	select {
	case <-ended:
	case <-stopped:
	}
	reapAll()
	return 0
}

// stopGrace is how long the copy of a supervisor has to stop the job.
const stopGrace = 5 * termGrace

// confined runs a job in the sandbox, or nothing if the sandbox cannot be set up.
func confined(j Job, stop <-chan struct{}) Outcome {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return Outcome{Exit: -1, Setup: err.Error()}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := errors.Join(notDumpable(), j.mount(), verify(j.Held), adopt(), j.network(), j.confine()); err != nil {
		return Outcome{Exit: -1, Setup: err.Error()}
	}
	r := &Runner{Job: j, Stdout: os.Stdout, Stderr: os.Stderr, Null: null, inherit: true}
	if j.Watch {
		r.reap = reapAll
	}
	if !j.Loopback {
		return r.Run(stop)
	}
	unreached, refused := failures()
	out := r.Run(stop)
	nowUnreached, nowRefused := failures()
	out.Unreachable, out.Refused = nowUnreached > unreached, nowRefused > refused
	return out
}

// mount mounts the held paths and the cache in the namespace that bubblewrap has created. [Job.confine] removes the
// right to mount.
func (j *Job) mount() error {
	if !j.Mounts {
		return nil
	}
	if c := j.Cache; c != nil {
		// If the kernel does not let it, the job begins with empty caches.
		_ = unix.Mount("overlay", c.At, "overlay", unix.MS_NOSUID|unix.MS_NODEV,
			"userxattr,lowerdir="+c.Lower+",upperdir="+c.Upper+",workdir="+c.Work)
	}
	for _, h := range j.Held {
		err := unix.Mount(h.Path, h.Path, "", unix.MS_BIND|unix.MS_REC, "")
		if err == nil && !h.Open {
			err = unix.MountSetattr(unix.AT_FDCWD, h.Path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		}
		if err != nil {
			return &os.PathError{Op: "mount", Path: h.Path, Err: err}
		}
	}
	return nil
}

// confine restricts this process and those that it starts. They must be started from the calling thread.
func (j *Job) confine() error {
	if err := errors.Join(noNewPrivileges(), dropCapabilities()); err != nil {
		return err
	}
	if j.Rules != nil {
		if err := j.Rules.restrict(); err != nil {
			return err
		}
	}
	if j.Strict {
		limit(0, j.Watch) // the filter does not let this process limit others
	}
	return j.filterCalls()
}
