package jail

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Argument is the only one of a copy.
const Argument = "toolcrib-shell-helper"

func init() {
	if len(os.Args) == 2 && os.Args[1] == Argument {
		syscall.Exit(helper()) // there is nothing to be done at the end of the copy
	}
}

// File descriptors of a copy, beside its standard ones.
const (
	jobFile    = 3 // the job as JSON; its end means: stop
	statusFile = 4 // the outcome as JSON
)

// Environment is that of a copy: it lives as long as its job and does little, so it begins
// without garbage collection and on one processor, which halves the time of its start. Its
// programs do not inherit it.
func Environment() []string {
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
	_ = notDumpable() // while it waits for its job; after that it fails if it cannot be
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

// confined runs a job in the sandbox. What cannot be restricted is not run.
func confined(j Job, stop <-chan struct{}) Outcome {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return Outcome{Exit: -1, Setup: err.Error()}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := errors.Join(notDumpable(), j.mount(), verify(j.Held), adopt(), j.confine()); err != nil {
		return Outcome{Exit: -1, Setup: err.Error()}
	}
	r := &Runner{Job: j, Stdout: os.Stdout, Stderr: os.Stderr, Null: null, inherit: true}
	if j.Watch {
		r.reap = reapAll
	}
	return r.Run(stop)
}

// mount mounts what is held, in the namespace that bubblewrap has made. The right to do so ends with [Job.confine].
func (j *Job) mount() error {
	if !j.Mounts {
		return nil
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

// confine restricts this process and what it starts, which must be started from the
// thread that called it.
func (j *Job) confine() error {
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
