package shell

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent lets a program end when the thread that started it ends.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

const (
	maxMemory = 4 << 30 // bytes of address space of a program of the table
	maxFile   = 8 << 30 // bytes of a file that a program may write
)

// limit bounds what a program that just started may take. Where the system does not
// let one set a limit, the others still hold.
func limit(pid int, watch bool) {
	set := func(what int, most uint64) {
		_ = unix.Prlimit(pid, what, &unix.Rlimit{Cur: most, Max: most}, nil)
	}
	set(unix.RLIMIT_CORE, 0)
	set(unix.RLIMIT_FSIZE, maxFile)
	if !watch {
		set(unix.RLIMIT_AS, maxMemory)
	}
}

// descendants returns the processes below this one that still run.
func descendants() []int {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = folder.Close() }()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		// proc(5): "pid (name) state ppid …"; the name may hold anything.
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 || fields[0][0] == 'Z' {
			continue
		}
		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	var all []int
	for next := []int{os.Getpid()}; len(next) > 0; {
		pid := next[len(next)-1]
		next = append(next[:len(next)-1], children[pid]...)
		all = append(all, children[pid]...)
	}
	return all
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
		found := descendants()
		for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			for _, pid := range found {
				_ = syscall.Kill(pid, signal)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// childless collects the dead, and tells whether no child is left.
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
