package shell

import (
	"context"
	"os"
	"sync"

	"github.com/toolcrib/toolcrib"
)

// Loopbacks are the loopback interfaces of runs. The calls of a run that may write the workspace share one, so that a
// server that one of them has started is reached by the others. The zero value is ready to use.
type Loopbacks struct{ all sync.Map } // from run and user to *loopback

// loopback is the loopback interface of a run: a network namespace, and the user namespace that owns it. The kernel
// removes them when no process is in them or has them open.
type loopback struct {
	remove func() // removes it from Loopbacks
	kept   sync.Once

	mu    sync.Mutex // locked while a job makes the namespaces
	files []*os.File // the user and the network namespace, or nil
	ended bool
}

// sharesLoopback reports whether a call has a loopback interface together with others of its run.
func (s *shell) sharesLoopback(call toolcrib.Call, p *plan) bool {
	return s.report().Joins && s.proxies() && p.writes() && !s.options.open && call.Behind != nil
}

// loopback returns the loopback interface that a call shares with others of its run, or nil.
func (s *shell) loopback(call toolcrib.Call, p *plan) *loopback {
	if !s.sharesLoopback(call, p) {
		return nil
	}
	all, key, made := &s.options.Loopbacks.all, string(call.Run)+"\x00"+call.Principal.User, new(loopback)
	made.remove = func() { all.CompareAndDelete(key, made) }
	found, _ := all.LoadOrStore(key, made)
	return found.(*loopback)
}

// keep keeps the loopback interface until ctx ends.
func (l *loopback) keep(ctx context.Context) {
	if ctx.Err() != nil {
		l.end()
	} else {
		l.kept.Do(func() { context.AfterFunc(ctx, l.end) })
	}
}

// end closes the namespaces. Programs that are in them stay there.
func (l *loopback) end() {
	l.remove()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		_ = f.Close()
	}
	l.files, l.ended = nil, true
}
