package shell

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

// dieWithParent lets a program end when the thread that started it ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// limit bounds what a single program that just started may take; the job as a whole is
// bounded by [watcher]. Where the system does not let one set a limit, the others still
// hold.
func limit(pid int, watch bool) {
	set := func(what int, most uint64) {
		_ = unix.Prlimit(pid, what, &unix.Rlimit{Cur: most, Max: most}, nil)
	}
	set(unix.RLIMIT_CORE, 0)
	set(unix.RLIMIT_FSIZE, maxDisk)
	if watch {
		set(unix.RLIMIT_DATA, 2*maxMemory)
	} else {
		set(unix.RLIMIT_AS, maxTableMemory)
	}
}

// process is what proc(5) tells of a process.
type process struct{ parent, group int }

// processes returns the processes that still run, by their number.
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
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		// "pid (name) state ppid pgrp …"; the name may hold anything.
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 3 || fields[0][0] == 'Z' {
			continue
		}
		parent, _ := strconv.Atoi(string(fields[1]))
		group, _ := strconv.Atoi(string(fields[2]))
		all[pid] = process{parent, group}
	}
	return all
}

// family returns the processes below root, and with group also those of the process
// group of that number, with all below them; never root itself.
func family(root int, group bool) []int {
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
	delete(seen, root)
	return slices.Collect(maps.Keys(seen))
}

// reapAll ends everything that descends from this process. It adopts what lost its
// parent, so that as long as anything is left it has a child: only that tells for
// certain, since processes come and go while they are looked for. All that are
// found are stopped before the first is killed, so that none can start another in
// between. It gives up after a while.
func reapAll() {
	const rounds = 1000
	for range rounds {
		if childless() {
			return
		}
		found := family(os.Getpid(), false)
		for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			for _, pid := range found {
				_ = syscall.Kill(pid, signal)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// childless collects the dead, and reports whether no child is left.
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

// adopt makes this process the parent of descendants that lose theirs.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
