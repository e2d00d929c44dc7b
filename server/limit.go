package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/toolcrib/toolcrib"
)

// limits count the requests of each user and, where nobody has said who they are, of each
// address.
type limits struct {
	mu        sync.Mutex
	perMinute int
	since     time.Time
	now, last map[string]*rate.Limiter // used in this minute, and in the one before
	others    *rate.Limiter            // of addresses beyond maxLimited
}

// maxLimited bounds of how many addresses the requests are counted in a minute, each by
// itself; the rest shares one limit.
const maxLimited = 10_000

// take counts a request of a user, or of an address, and refuses one too many.
func (s *Server) take(who string) error {
	return s.limits.take(s.Service.Current().Config.Server.RateLimit, who, time.Now())
}

func (l *limits) take(perMinute int, who string, now time.Time) error {
	if perMinute == 0 {
		return nil
	}
	wait := l.of(perMinute, who, now).ReserveN(now, 1)
	if delay := wait.DelayFrom(now); delay > 0 {
		wait.CancelAt(now)
		err := toolcrib.Errorf(toolcrib.CodeRateLimited, "too many requests: server.rate_limit is %d a minute", perMinute)
		err.RetryAfter = delay
		return err
	}
	return nil
}

// of is the limiter of a key. One that was not used for a minute is as good as a new one, and
// forgotten.
func (l *limits) of(perMinute int, who string, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh := func() *rate.Limiter {
		return rate.NewLimiter(rate.Every(time.Minute/time.Duration(perMinute)), perMinute)
	}
	if l.perMinute != perMinute || now.Sub(l.since) >= time.Minute {
		if l.last = l.now; l.perMinute != perMinute || now.Sub(l.since) >= 2*time.Minute {
			l.last, l.others = nil, fresh()
		}
		l.perMinute, l.since, l.now = perMinute, now, map[string]*rate.Limiter{}
	}
	one := l.now[who]
	if one == nil {
		one = l.last[who]
	}
	switch {
	case one != nil:
	case len(l.now) >= maxLimited && who[0] == addressMark:
		return l.others
	default:
		one = fresh()
	}
	l.now[who] = one
	return one
}

// bodies counts the requests of each user whose bodies are on their way.
type bodies struct {
	mu sync.Mutex
	of map[string]int
}

// maxBodies bounds them: each may have server.max_body_bytes in memory, and a minute.
const maxBodies = 256

func (b *bodies) begin(user string) (end func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[user] >= maxBodies {
		err := toolcrib.Errorf(toolcrib.CodeCapacityExceeded,
			"%d requests of this user have not arrived whole yet; try again later", maxBodies)
		err.RetryAfter = time.Second
		return nil, err
	}
	if b.of == nil {
		b.of = map[string]int{}
	}
	b.of[user]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.of[user]--; b.of[user] == 0 {
			delete(b.of, user)
		}
	}, nil
}

// The first byte of what is counted.
const (
	userMark    = 'u'
	addressMark = 'a'
)

func ofUser(who toolcrib.Principal) string { return string(userMark) + who.User }

// fromAddress is the address of who asks, without the port; of IPv6 the network, which is
// given to one customer.
func fromAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip = ip.Unmap(); ip.Is6() {
			network, _ := ip.Prefix(64) // of any IPv6 address
			host = network.String()
		}
	}
	return string(addressMark) + host
}

// crowd are the connections of a server. When there are as many as there may be, one on which nobody
// is answered makes room for the next: it waits for the rest of a request, or for another one.
type crowd struct {
	most int

	mu   sync.Mutex
	all  map[string]*guest // by the address of the client
	idle map[*guest]bool
}

type guest struct {
	net.Conn
	of   *crowd
	busy int // requests that are answered
}

// crowded is a listener whose connections are in a crowd.
type crowded struct {
	net.Listener
	crowd *crowd
}

// Accept implements [net.Listener].
func (l *crowded) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g := l.crowd.enter(conn); g != nil {
			return g, nil
		}
		_ = conn.Close()
	}
}

// enter takes in a connection; nil = all others are being answered.
func (c *crowd) enter(conn net.Conn) *guest {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= c.most {
		for other := range c.idle { // any of them
			c.leave(other)
			_ = other.Conn.Close()
			break
		}
	}
	if len(c.all) >= c.most {
		return nil
	}
	g := &guest{Conn: conn, of: c}
	c.all[conn.RemoteAddr().String()], c.idle[g] = g, true
	return g
}

// leave forgets a connection. The crowd is locked.
func (c *crowd) leave(g *guest) {
	delete(c.idle, g)
	if at := g.RemoteAddr().String(); c.all[at] == g {
		delete(c.all, at)
	}
}

// Close implements [net.Conn].
func (g *guest) Close() error {
	g.of.mu.Lock()
	g.of.leave(g)
	g.of.mu.Unlock()
	return g.Conn.Close()
}

// answering keeps the connection of a client until what it returns is called.
func (c *crowd) answering(client string) (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.all[client]
	if g == nil {
		return func() {}
	}
	g.busy++
	delete(c.idle, g)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if g.busy--; g.busy == 0 && c.all[client] == g {
			c.idle[g] = true
		}
	}
}

// How often the server removes what the configuration no longer keeps.
const (
	retainEvery = time.Hour
	retainPause = 100 * time.Millisecond // between two pieces, for whoever waits for the store
)

// upkeep removes what the configuration no longer keeps, until ctx ends.
func (s *Server) upkeep(ctx context.Context) {
	for s.retain(ctx); ctx.Err() == nil; s.retain(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(retainEvery):
		}
	}
}

// retain removes it in small pieces.
func (s *Server) retain(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		now := s.Service.Current()
		r, ok := now.Retention()
		if !ok {
			return
		}
		result, err := now.RetainSome(ctx, r)
		if err != nil && ctx.Err() == nil {
			s.Log.Error("retention failed; it is tried again in an hour", "error", err)
			return
		}
		if n := len(result.Removed) + len(result.Emptied); n > 0 {
			s.Log.Info("retention", "removed", len(result.Removed), "emptied", len(result.Emptied))
		}
		if more = result.More; more {
			select {
			case <-ctx.Done():
			case <-time.After(retainPause):
			}
		}
	}
}

// certificate is read from files, again when they have changed.
type certificate struct {
	cert, key string // files; "" = none
	log       *slog.Logger

	mu     sync.Mutex
	now    *tls.Certificate
	state  string
	looked time.Time // at the files
}

// certificateAge is for how long the files are taken to be as they were.
const certificateAge = time.Second

// read reads the files. If they cannot be used, the certificate stays as it was.
func (c *certificate) read(now string) error {
	c.state = now
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "server.tls: %v", err)
	}
	c.now = &pair
	return nil
}

func (c *certificate) states() (now string) {
	for _, path := range []string{c.cert, c.key} {
		if info, err := os.Stat(path); err == nil {
			now += fmt.Sprintln(info.ModTime().UnixNano(), info.Size())
		}
	}
	return now
}

// get is the certificate for a connection that begins.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < certificateAge {
		return c.now, nil
	}
	c.looked = time.Now()
	if now := c.states(); now != c.state {
		if err := c.read(now); err != nil {
			c.log.Error("the changed certificate cannot be used; the one before stays", "error", err)
		} else {
			c.log.Info("the certificate was read again")
		}
	}
	return c.now, nil
}
