package jail

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent makes a program end when the thread that started it ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// limit sets resource limits of a program that was just started, or of this process if pid is 0, as far as the system
// allows. A watcher outside the sandbox bounds the job as a whole.
func limit(pid int, watch bool) {
	set := func(what int, most uint64) {
		_ = unix.Prlimit(pid, what, &unix.Rlimit{Cur: most, Max: most}, nil)
	}
	set(unix.RLIMIT_CORE, 0)
	set(unix.RLIMIT_FSIZE, MaxDisk)
	if watch {
		set(unix.RLIMIT_DATA, 2*MaxMemory)
	} else {
		set(unix.RLIMIT_AS, MaxTableMemory)
	}
}

// process is what proc(5) reports about a process.
type process struct {
	parent, group int
	ticks         uint64 // processor time, including that of children it has waited for
}

// processes returns the processes of the machine that have not ended, by process ID.
func processes() map[int]process {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = folder.Close() }()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil
	}
	all := make(map[int]process, len(names))
	buffer := make([]byte, 4<<10) // a line is shorter
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		// "pid (name) state ppid pgrp …"; the name may contain any characters.
		stat := readOnce("/proc/"+name+"/stat", buffer)
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 15 || fields[0][0] == 'Z' {
			continue
		}
		parent, _ := strconv.Atoi(string(fields[1]))
		group, _ := strconv.Atoi(string(fields[2]))
		at := process{parent: parent, group: group}
		for _, field := range fields[11:15] {
			n, _ := strconv.ParseUint(string(field), 10, 62)
			at.ticks += n
		}
		all[pid] = at
	}
	return all
}

// readOnce reads a file into buffer with a single call, and returns nil if it cannot be read. It is called for all
// processes several times a second, and os.ReadFile takes three times as long.
func readOnce(path string, buffer []byte) []byte {
	f, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(f) }()
	n, err := unix.Read(f, buffer)
	if err != nil {
		return nil
	}
	return buffer[:n]
}

// Descendants returns the descendants of root and, with group, also the members of the process group root and their
// descendants, without root itself. ticks is the processor time of all of them and root.
func Descendants(root int, group bool) (pids []int, ticks uint64) {
	all := processes()
	children := map[int][]int{}
	next := []int{root}
	for pid, p := range all {
		children[p.parent] = append(children[p.parent], pid)
		if group && p.group == root && pid != root {
			next = append(next, pid)
		}
	}
	seen := map[int]bool{}
	for len(next) > 0 {
		pid := next[len(next)-1]
		next = next[:len(next)-1]
		if !seen[pid] {
			seen[pid] = true
			next = append(next, children[pid]...)
		}
	}
	ticks = all[root].ticks
	delete(seen, root)
	for pid := range seen {
		ticks += all[pid].ticks
	}
	return slices.Collect(maps.Keys(seen)), ticks
}

// reapAll kills all descendants of this process. The process adopts orphaned descendants, so it has a child as long as
// any is left; this is the only reliable test, since processes come and go during a search. All processes found are
// stopped before the first is killed, so that none can start another in between. reapAll gives up after a while.
func reapAll() {
	const rounds = 1000
	for range rounds {
		if childless() {
			return
		}
		var found []int
		elsewhere(func() { found, _ = Descendants(os.Getpid(), false) })
		for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			for _, pid := range found {
				_ = syscall.Kill(pid, signal)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// elsewhere runs a function on another thread: the thread that starts and signals programs may not read /proc
// ([Rules.restrictThread]).
func elsewhere(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// childless reaps children that have ended, and reports whether none is left.
func childless() bool {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR || pid > 0: //nolint:errorlint // an errno
		case err != nil:
			return true // ECHILD
		default:
			return false
		}
	}
}

// adopt makes this process the parent of orphaned descendants.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
