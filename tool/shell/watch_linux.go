package shell

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
)

const ticksPerSecond = 100 // USER_HZ, on all machines that Go runs on

const (
	watchEvery  = 50 * time.Millisecond
	watchShare  = 10 // the interval is at least this many times the duration of a check
	watchAtMost = 2 * time.Second
)

// watcher checks the resources of a job: those of all its processes, and how the free space on the
// disks that it may write to shrinks. It runs outside the sandbox, out of reach of the job.
type watcher struct {
	launcher *launcher
	disks    []disk
	ticks    uint64 // processor time of the job at the last check
	computed uint64 // processor time since the last call of launcher.active
}

// disk is the free space and the free inodes of a file system when the job began.
type disk struct {
	path        string
	room, files uint64
}

// watch checks the job until ctx ends. If the job exceeds its bounds, watch calls over with the
// cause and kills the job. The returned channel is closed when watching ends.
func (l *launcher) watch(ctx context.Context, over context.CancelCauseFunc) <-chan struct{} {
	w := &watcher{launcher: l}
	for _, path := range []string{l.scratch, l.Dir, cmp.Or(l.cache, l.Dir)} {
		if room, files, ok := free(path); ok {
			w.disks = append(w.disks, disk{path, room, files})
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		timer := time.NewTimer(watchEvery)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			began := time.Now()
			if why := w.check(); why != "" {
				over(exceeded(why))
				w.kill()
				return
			}
			timer.Reset(min(max(watchEvery, watchShare*time.Since(began)), watchAtMost)) // checks are slower on a busy machine
		}
	}()
	return done
}

func (w *watcher) members() (pids []int, ticks uint64) {
	root := int(w.launcher.root.Load())
	if root == 0 {
		return nil, 0
	}
	return jail.Descendants(root, true)
}

// count adds the processor time since the last check. That of processes that were not waited for is lost.
func (w *watcher) count(ticks uint64) {
	if ticks > w.ticks {
		w.computed += ticks - w.ticks
	}
	if w.ticks = ticks; w.computed >= uint64(w.launcher.work*ticksPerSecond/time.Second) {
		w.computed = 0
		w.launcher.active()
	}
}

// kill kills the processes of the job. Those that are started meanwhile end with the job.
func (w *watcher) kill() {
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		members, _ := w.members()
		for _, pid := range members {
			_ = syscall.Kill(pid, signal)
		}
	}
}

// check returns which bound the job exceeds, or "".
func (w *watcher) check() string {
	most := w.launcher.bounds
	for _, d := range w.disks {
		room, files, ok := free(d.path)
		switch {
		case !ok:
		case d.room > room && d.room-room > min(most.disk, d.room/2):
			return fmt.Sprintf("while it ran, the room on the disk shrank by more than %s.", size(min(most.disk, d.room/2)))
		case d.files > files && d.files-files > min(most.files, d.files/2):
			return fmt.Sprintf("while it ran, more than %d files were made.", min(most.files, d.files/2))
		}
	}
	members, ticks := w.members()
	w.count(ticks)
	if len(members) > most.processes {
		return "it had started too many processes."
	}
	var memory, threads uint64
	for _, pid := range members {
		m, t := usage(pid)
		memory, threads = memory+m, threads+t
	}
	switch {
	case memory > most.memory:
		return fmt.Sprintf("its processes together had more than %s of memory.", size(most.memory))
	case threads > uint64(most.threads):
		return "it had started too many threads."
	}
	return ""
}

// usage returns the memory of a process that is not mapped from files, in bytes, and the number of its threads.
func usage(pid int) (memory, threads uint64) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, 0 // it has ended
	}
	for line := range bytes.Lines(status) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		fields := bytes.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		switch string(name) {
		case "RssAnon", "RssShmem", "VmSwap": // in kB
			n, _ := strconv.ParseUint(string(fields[0]), 10, 54)
			memory += n << 10
		case "Threads":
			threads, _ = strconv.ParseUint(string(fields[0]), 10, 64)
		}
	}
	return memory, threads
}

// free returns the free bytes and inodes of the file system of path.
func free(path string) (room, files uint64, ok bool) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, 0, false
	}
	return fs.Bavail * uint64(fs.Bsize), fs.Ffree, true
}

// size formats a number of bytes for a message.
func size(bytes uint64) string {
	if bytes < 1<<30 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%.3g GiB", float64(bytes)/(1<<30))
}
