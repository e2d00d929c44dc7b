package shell

import (
	"context"
	"os"
	"slices"
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

	mu    sync.Mutex // locked while a job makes the namespaces
	files []*os.File // the user and the network namespace, or nil
	ended bool

	received struct {
		sync.Mutex
		hosts []string
	}
}

// sharesLoopback reports whether a call has a loopback interface together with others of its run.
func (s *shell) sharesLoopback(call toolcrib.Call, p *plan) bool {
	return s.report().Joins && s.proxies() && p.writes() && !s.options.open && call.Behind != nil
}

// loopback returns the loopback interface that a call shares with others of its run, or nil. It is kept until the run
// parks or ends.
func (s *shell) loopback(call toolcrib.Call, p *plan) *loopback {
	if !s.sharesLoopback(call, p) {
		return nil
	}
	all, key, made := &s.options.Loopbacks.all, string(call.Run)+"\x00"+call.Principal.User, new(loopback)
	made.remove = func() { all.CompareAndDelete(key, made) }
	found, loaded := all.LoadOrStore(key, made)
	if !loaded && !call.Behind(func(running context.Context) { context.AfterFunc(running, made.end) }) {
		made.end()
	}
	return found.(*loopback)
}

// maxReceived bounds the hosts of a run that are remembered.
const maxReceived = 100

// receive records that a program has received data from a host. From then on any program on the interface may have it,
// by that program, by its proxy, or by a server that keeps it.
func (l *loopback) receive(host string) {
	if l == nil {
		return
	}
	l.received.Lock()
	defer l.received.Unlock()
	if at, found := slices.BinarySearch(l.received.hosts, host); !found && len(l.received.hosts) < maxReceived {
		l.received.hosts = slices.Insert(l.received.hosts, at, host)
	}
}

// sources returns the hosts that programs on the interface have received data from.
func (l *loopback) sources() string {
	if l == nil {
		return ""
	}
	l.received.Lock()
	defer l.received.Unlock()
	return shorten(l.received.hosts)
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
