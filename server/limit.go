package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/toolcrib/toolcrib"
)

// limits limits the rate of requests of each user and, for those without authentication, of each address.
type limits struct {
	mu        sync.Mutex
	perMinute int
	since     time.Time
	of        map[string]*rate.Limiter // by user or address; "" is for those beyond maxLimited
}

// maxLimited bounds the addresses that have a limit of their own within a minute. The rest share one.
const maxLimited = 10_000

// take counts a request of a user or an address, and returns an error if it exceeds the limit.
func (s *Server) take(who string) error {
	return s.limits.take(s.Service.Current().Env.Config.Server.RateLimit, who, time.Now())
}

func (l *limits) take(perMinute int, who string, now time.Time) error {
	if perMinute == 0 {
		return nil
	}
	wait := l.limiter(perMinute, who, now).ReserveN(now, 1)
	if delay := wait.DelayFrom(now); delay > 0 {
		wait.CancelAt(now)
		err := toolcrib.Errorf(toolcrib.CodeRateLimited, "too many requests: server.rate_limit is %d a minute", perMinute)
		err.RetryAfter = delay
		return err
	}
	return nil
}

// limiter returns the limiter of a user or address. One unused for a minute equals a new one, and is removed.
func (l *limits) limiter(perMinute int, who string, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.perMinute != perMinute {
		l.perMinute, l.since, l.of = perMinute, now, map[string]*rate.Limiter{}
	} else if now.Sub(l.since) >= time.Minute {
		l.since = now
		maps.DeleteFunc(l.of, func(_ string, one *rate.Limiter) bool { return one.TokensAt(now) >= float64(perMinute) })
	}
	if l.of[who] == nil && len(l.of) >= maxLimited && who[0] == addressMark {
		who = ""
	}
	if l.of[who] == nil {
		l.of[who] = rate.NewLimiter(rate.Every(time.Minute/time.Duration(perMinute)), perMinute)
	}
	return l.of[who]
}

// bodies counts the requests of each user or address whose bodies are being read.
type bodies struct {
	mu sync.Mutex
	of map[string]int
}

// The bounds of a user, and of an address without one: each body may use server.max_body_bytes of memory for a minute.
const (
	maxBodies     = 256
	maxOpenBodies = 32
)

// reading counts a request until its body is read.
func (c *call) reading() (end func(), err error) {
	if c.who.User != "" {
		return c.bodies.begin(c.who.User, maxBodies)
	}
	return c.bodies.begin("address "+c.web.Address(c.r), maxOpenBodies) // no name of a user has a space
}

func (b *bodies) begin(user string, most int) (end func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[user] >= most {
		err := toolcrib.Errorf(toolcrib.CodeCapacityExceeded,
			"%d requests of this user or address have not arrived whole yet; try again later", most)
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

// The first byte of a key of limits.
const (
	userMark    = 'u'
	addressMark = 'a'
)

func ofUser(who toolcrib.Principal) string { return string(userMark) + who.User }

// fromAddress returns the key of a client's address.
func (s *Server) fromAddress(r *http.Request) string { return string(addressMark) + s.web.Address(r) }

// connections are the connections of a server. If there are too many, one on which no request is being
// answered is closed for a new one: it is idle, or waits for the rest of a request.
type connections struct {
	most int

	mu  sync.Mutex
	all map[string]*connection // by the address of the client
}

type connection struct {
	net.Conn
	busy     int  // number of requests being answered
	hijacked bool // ends with the request
}

// state is the hook of [http.Server.ConnState].
func (c *connections) state(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	client := conn.RemoteAddr().String()
	switch g := c.all[client]; state {
	case http.StateNew:
		if len(c.all) >= c.most && !c.room() { // all are busy
			go conn.Close()
			return
		}
		c.all[client] = &connection{Conn: conn}
	case http.StateHijacked:
		if g != nil {
			g.hijacked = true
		}
	case http.StateClosed:
		if g != nil && g.Conn == conn {
			delete(c.all, client)
		}
	}
}

// room closes a connection that is not busy, and reports whether there was one. c.mu is locked.
func (c *connections) room() bool {
	for client, g := range c.all {
		if g.busy == 0 {
			delete(c.all, client)
			go g.Close() // with TLS, Close writes an alert
			return true
		}
	}
	return false
}

// answering marks the connection of a client as busy until done is called.
func (c *connections) answering(client string) (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.all[client]
	if g == nil {
		return func() {}
	}
	g.busy++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if g.busy--; g.busy == 0 && g.hijacked && c.all[client] == g {
			delete(c.all, client)
		}
	}
}

// Times of the removal of data beyond its retention.
const (
	retainEvery = time.Hour
	retainPause = 100 * time.Millisecond // between two batches, so that others can use the store
)

// upkeep removes data beyond its retention, and sessions and tokens that are over, until ctx ends.
func (s *Server) upkeep(ctx context.Context) {
	for ctx.Err() == nil {
		s.retain(ctx)
		if err := s.Service.Current().People.Upkeep(ctx); err != nil && ctx.Err() == nil {
			s.Log.Error("cannot remove expired sessions and tokens; will retry in an hour", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retainEvery):
		}
	}
}

// retain removes it in small batches.
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

// certificate is a TLS certificate from files, which are read again when they change.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu    sync.Mutex
	now   *tls.Certificate // nil before the first reading
	state string           // sizes and times of the files when they were read
}

// get returns the certificate for a new connection. If the files are invalid, the previous one stays in use.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := ""
	for _, path := range []string{c.cert, c.key} {
		if info, err := os.Stat(path); err == nil {
			state += fmt.Sprintln(info.ModTime().UnixNano(), info.Size())
		}
	}
	if c.now != nil && state == c.state {
		return c.now, nil
	}
	c.state = state
	switch pair, err := tls.LoadX509KeyPair(c.cert, c.key); {
	case err == nil:
		c.now = &pair
		c.log.Info("the certificate was read")
	case c.now == nil:
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "server.tls: %v", err)
	default:
		c.log.Error("the changed certificate cannot be used; the one before stays", "error", err)
	}
	return c.now, nil
}
