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
)

// spare is a sandbox that waits for a job. To make one takes longer than many a command, so the one for a run's next
// command is made while the model thinks.
type spare struct {
	taken, ready chan struct{}
	launcher     *launcher // once it is ready; nil = it could not be made
}

// spares are those of all runs.
type spares struct {
	mu sync.Mutex
	of map[toolcrib.RunID]*spare
}

const (
	maxSpares = 4           // of all runs
	spareAge  = time.Minute // for which one waits
)

// spare makes a sandbox for the next command of a run, like that of a call. There is one for each run, until it is
// used, or the run parks or ends.
func (s *shell) spare(call toolcrib.Call, p *plan) {
	// Without Mounts, what is protected has to be known before.
	if r := s.report(); !p.writes || !r.Helper || r.Bubblewrap == "" || !r.Mounts || call.Behind == nil {
		return
	}
	user, dir, of := call.Principal.User, p.w.Dir, &spare{taken: make(chan struct{}), ready: make(chan struct{})}
	if !s.spares.add(call.Run, of) {
		return
	}
	if !call.Behind(func(ctx context.Context) { s.keep(ctx, call.Run, of, user, dir) }) {
		s.spares.remove(call.Run, of)
		close(of.ready)
	}
}

// keep makes a spare sandbox, and ends it if nobody takes it until ctx ends.
func (s *shell) keep(ctx context.Context, run toolcrib.RunID, of *spare, user, dir string) {
	defer func() {
		if s.spares.remove(run, of) && of.launcher != nil {
			of.launcher.clear(nil)
		}
	}()
	func() {
		defer close(of.ready)
		if ctx.Err() == nil {
			of.launcher = s.ahead(user, dir)
		}
	}()
	if of.launcher == nil {
		return
	}
	select {
	case <-of.taken:
	case <-ctx.Done():
	case <-time.After(spareAge):
	}
}

// ahead returns what starts a job of a user in a folder, with its copy started; nil if that cannot be. Then it is made
// for the command, whose error says what is wrong.
func (s *shell) ahead(user, dir string) *launcher {
	l, err := s.launcher(user, dir, s.options.resolved(dir), true)
	if err != nil {
		return nil
	}
	if !l.masks() {
		var args []string
		var files []*os.File
		if args, files, err = l.bubblewrap(); err == nil {
			l.made = identified(slices.Clip(args))
			err = l.begin(args, files)
		}
	}
	if l.copy == nil || err != nil {
		l.clear(nil)
		return nil
	}
	return l
}

// masks reports whether something hidden may be in what the job sees. Bubblewrap covers it: a file that is put in its
// place later is not covered.
func (l *launcher) masks() bool {
	return slices.ContainsFunc(append(l.toolchains(), l.Dir), l.options.holdsHidden)
}

// takeSpare returns what starts a job in the spare sandbox of a run; nil = it has none.
func (s *shell) takeSpare(run toolcrib.RunID) *launcher {
	s.spares.mu.Lock()
	of := s.spares.of[run]
	delete(s.spares.of, run)
	s.spares.mu.Unlock()
	if of == nil {
		return nil
	}
	close(of.taken)
	<-of.ready
	return of.launcher
}

func (s *spares) add(run toolcrib.RunID, of *spare) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[run] != nil || len(s.of) >= maxSpares {
		return false
	}
	if s.of == nil {
		s.of = map[toolcrib.RunID]*spare{}
	}
	s.of[run] = of
	return true
}

// remove reports whether a spare was still there.
func (s *spares) remove(run toolcrib.RunID, of *spare) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[run] != of {
		return false
	}
	delete(s.of, run)
	return true
}

// fits reports whether the sandbox that waited is what one for this plan would be now.
func (l *launcher) fits(user string, p *plan) bool {
	if l.options = p.set; l.gone() || l.user != user || l.Dir != p.w.Dir {
		return false
	}
	left, err := os.ReadDir(l.scratch)
	mounted := func(entry os.DirEntry) bool {
		in := func(path string) bool { return within(path, filepath.Join(ownTmp, entry.Name())) }
		return slices.ContainsFunc(l.made, in)
	}
	if err != nil || slices.ContainsFunc(left, func(entry os.DirEntry) bool { return !mounted(entry) }) {
		return false // somebody else has found its folder for temporary files
	}
	args, files, err := l.bubblewrap()
	closeAll(files...)
	return err == nil && slices.Equal(l.made, identified(args))
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

// identified returns arguments of bubblewrap, and which files their paths are: one that was replaced, or written, since
// a sandbox was made does not count as the same.
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
