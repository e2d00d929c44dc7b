// Package relaytest has a relay of TCP connections for tests, which they cut, stall and delay.
package relaytest

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Relay passes TCP connections on to an address.
type Relay struct {
	listener net.Listener

	mu   sync.Mutex
	to   string
	cut  bool
	open map[net.Conn]bool
	// there is the way to the address, back the one from it.
	there, back way
}

// way is one direction.
type way struct {
	stalled bool
	over    chan struct{} // is closed when it is no longer stalled
	delay   time.Duration
}

// New starts a relay to an address, or to the socket at an absolute path. It ends with the test.
func New(t testing.TB, to string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{listener: l, to: to, open: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				running.Go(func() { r.pass(c) })
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.Heal()
		r.Cut()
		running.Wait()
	})
	return r
}

// Address returns the address of the relay.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// To changes the address to which the relay passes new connections on.
func (r *Relay) To(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = address
}

func (r *Relay) pass(from net.Conn) {
	defer from.Close()
	r.mu.Lock()
	network, address := "tcp", r.to
	r.mu.Unlock()
	if filepath.IsAbs(address) {
		network = "unix"
	}
	to, err := net.Dial(network, address)
	if err != nil {
		return
	}
	defer to.Close()
	r.mu.Lock()
	if r.cut {
		r.mu.Unlock()
		return
	}
	r.open[from], r.open[to] = true, true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.open, from)
		delete(r.open, to)
	}()
	var both sync.WaitGroup
	both.Go(func() { r.copy(to, from, &r.there) })
	both.Go(func() { r.copy(from, to, &r.back) })
	both.Wait()
}

func (r *Relay) copy(to, from net.Conn, w *way) {
	_, _ = io.Copy(slow{to, r, w}, from)
	_ = to.Close()
}

// slow waits before each write while its way is stalled or delayed.
type slow struct {
	net.Conn
	r *Relay
	w *way
}

func (s slow) Write(p []byte) (int, error) {
	s.r.mu.Lock()
	now := *s.w
	s.r.mu.Unlock()
	if now.delay > 0 {
		<-time.After(now.delay)
	}
	if now.stalled {
		<-now.over
	}
	return s.Conn.Write(p)
}

// Cut closes all connections, and each new one.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
	for c := range r.open {
		_ = c.Close()
	}
}

// Stall keeps all connections open, and passes nothing on.
func (r *Relay) Stall() {
	r.StallThere()
	r.StallBack()
}

// StallThere passes on only what comes from the address.
func (r *Relay) StallThere() { r.stall(&r.there) }

// StallBack passes on only what goes to the address.
func (r *Relay) StallBack() { r.stall(&r.back) }

func (r *Relay) stall(w *way) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !w.stalled {
		w.stalled, w.over = true, make(chan struct{})
	}
}

// Delay delays everything by d in both directions.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.there.delay, r.back.delay = d, d
}

// Heal ends all of these.
func (r *Relay) Heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = false
	for _, w := range []*way{&r.there, &r.back} {
		if w.stalled {
			close(w.over)
		}
		w.stalled, w.delay = false, 0
	}
}
