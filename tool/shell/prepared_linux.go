package shell

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell/internal/line"
)

// preparedSandbox is a sandbox that waits for a job. Creating one takes longer than many commands, so that for the next
// command of a run is created while the model works.
type preparedSandbox struct {
	taken, ready chan struct{}
	launcher     *launcher // valid when ready is closed; nil if the sandbox could not be created
}

// preparedSandboxes are the prepared sandboxes of all runs.
type preparedSandboxes struct {
	mu sync.Mutex
	of map[toolcrib.RunID]*preparedSandbox
}

const (
	maxPrepared = 4           // sandboxes of all runs
	preparedAge = time.Minute // after which an unused one is removed
)

// prepare creates a sandbox for the next command of a run, like that of a call. Each run has at most one, until it is
// used or the run is left or ends.
func (s *shell) prepare(call toolcrib.Call, p *plan) {
	// Without Mounts, the protected paths must be known when the sandbox is created.
	if r := s.report(); !p.writes() || !r.Helper || r.Bubblewrap == "" || !r.Mounts || call.Behind == nil {
		return
	}
	user, dir, of := call.Principal.User, p.w.Dir, &preparedSandbox{taken: make(chan struct{}), ready: make(chan struct{})}
	create := func() *launcher { return s.newPrepared(user, dir, p.shared) }
	if !s.prepared.add(call.Run, of) {
		return
	}
	if !call.Behind(func(ctx context.Context) { s.keepPrepared(ctx, call.Run, of, create) }) {
		s.prepared.remove(call.Run, of)
		close(of.ready)
	}
}

// keepPrepared creates a sandbox, and ends it if it is not taken before ctx ends or preparedAge has passed.
func (s *shell) keepPrepared(ctx context.Context, run toolcrib.RunID, of *preparedSandbox, create func() *launcher) {
	defer func() {
		if s.prepared.remove(run, of) && of.launcher != nil {
			of.launcher.clear(nil)
		}
	}()
	func() {
		defer close(of.ready)
		if ctx.Err() == nil {
			of.launcher = create()
		}
	}()
	if of.launcher == nil {
		return
	}
	select {
	case <-of.taken:
	case <-ctx.Done():
	case <-time.After(preparedAge):
	}
}

// newPrepared returns a launcher for a job of a user in a folder, with its copy started, or nil if that fails or the
// shared namespaces are not made. Then the command itself creates its sandbox, and reports the error.
func (s *shell) newPrepared(user, dir string, shared *loopback) *launcher {
	l, err := s.launcher(user, dir, s.options.resolved(dir), line.WritesWorkspace)
	if err != nil {
		return nil
	}
	l.shared = shared
	namespaces := l.namespaces(false)
	if l.masks() || shared != nil && namespaces == nil {
		closeAll(namespaces...)
	} else if args, files, failed := l.bubblewrap(namespaces); failed == nil {
		l.made = identified(slices.Clip(args))
		err = l.begin(args, files)
	}
	if l.copy == nil || err != nil {
		l.clear(nil)
		return nil
	}
	return l
}

// masks reports whether the job can see a folder with hidden paths. Bubblewrap mounts over these when it starts, so a
// file that replaces one later would be visible.
func (l *launcher) masks() bool {
	return slices.ContainsFunc(append(l.toolchains(), l.Dir), l.options.holdsHidden)
}

// takePrepared returns the launcher of the prepared sandbox of a run, or nil.
func (s *shell) takePrepared(run toolcrib.RunID) *launcher {
	s.prepared.mu.Lock()
	of := s.prepared.of[run]
	delete(s.prepared.of, run)
	s.prepared.mu.Unlock()
	if of == nil {
		return nil
	}
	close(of.taken)
	<-of.ready
	return of.launcher
}

func (s *preparedSandboxes) add(run toolcrib.RunID, of *preparedSandbox) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[run] != nil || len(s.of) >= maxPrepared {
		return false
	}
	if s.of == nil {
		s.of = map[toolcrib.RunID]*preparedSandbox{}
	}
	s.of[run] = of
	return true
}

// remove removes a prepared sandbox, and reports whether it had not been taken.
func (s *preparedSandboxes) remove(run toolcrib.RunID, of *preparedSandbox) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[run] != of {
		return false
	}
	delete(s.of, run)
	return true
}

// fits reports whether the prepared sandbox is the same as a new one for this plan.
func (l *launcher) fits(user string, p *plan) bool {
	if l.options = p.set; l.gone() || l.shared != p.shared || l.user != user || l.Dir != p.w.Dir {
		return false
	}
	left, err := os.ReadDir(l.scratch)
	mounted := func(entry os.DirEntry) bool {
		in := func(path string) bool { return within(path, filepath.Join(ownTmp, entry.Name())) }
		return slices.ContainsFunc(l.made, in)
	}
	if err != nil || slices.ContainsFunc(left, func(entry os.DirEntry) bool { return !mounted(entry) }) {
		return false // another process has written to its folder for temporary files
	}
	namespaces := l.namespaces(false)
	args, files, err := l.bubblewrap(namespaces)
	closeAll(files...)
	return (l.shared == nil || namespaces != nil) && err == nil && slices.Equal(l.made, identified(args))
}

// gone reports whether the copy has ended.
func (l *launcher) gone() bool {
	select {
	case <-l.copy.ended:
		return true
	default:
		return false
	}
}

// identified returns arguments of bubblewrap with the identity of the files that they name, so that a file that was
// replaced or written since a sandbox was created makes a difference.
func identified(args []string) []string {
	for _, arg := range args {
		if info, err := os.Stat(arg); err == nil && strings.HasPrefix(arg, "/") {
			if is, ok := info.Sys().(*syscall.Stat_t); ok {
				args = append(args, fmt.Sprint(is.Dev, is.Ino))
				if info.Mode().IsRegular() {
					args = append(args, fmt.Sprint(is.Ctim))
				}
			}
		}
	}
	return args
}
