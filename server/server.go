// Package server is toolcrib over HTTP: a front end whose clients are programs on the
// network and, later, pages. It reads requests, finds out who asks, calls the service and
// writes what that answers; it decides nothing.
package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/mcp/serve"
	"github.com/toolcrib/toolcrib/service"
)

// The bounds of a connection. How long an answer may take depends on the run; how long it
// may be left unread does not.
const (
	maxConnections = 10_000
	maxHeader      = 64 << 10
	headerTimeout  = 10 * time.Second
	bodyTimeout    = time.Minute
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	drainTimeout   = 10 * time.Second // at the end
)

// Options are what a [Server] stands on.
type Options struct {
	Service *service.Service // with its store open
	Log     *slog.Logger
	Version string
}

// Server answers HTTP requests, and drives the runs that they start.
type Server struct {
	Options
	pool *service.Pool
	mux  *http.ServeMux
	// document is the OpenAPI document.
	document []byte
	hosts    map[string]bool // names by which it is asked for, beside those of loopback; nil = any
	origins  []string        // that pages may come from
	limits   limits
	mcp      *serve.HTTP
	asking   asking
	since    time.Time
	types    map[string]*route // what a WebSocket takes
	sockets  sockets
}

// New makes a server, which takes up the runs that were cut off.
func New(o Options) (*Server, error) {
	s := &Server{Options: o, mux: http.NewServeMux(), asking: asking{window: retryWindow}, since: time.Now()}
	c := &o.Service.Config.Server
	s.limits.perMinute = c.RateLimit
	for _, text := range c.CORS {
		u, err := url.Parse(text)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != text {
			return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "server.cors: %q is not an origin such as https://example.com",
				text)
		}
		s.origins = append(s.origins, text)
	}
	routes, err := s.routes()
	if err != nil {
		return nil, err
	}
	for i := range routes {
		r := &routes[i]
		s.mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, q *http.Request) { s.serve(w, q, r) })
	}
	if s.document, err = document(routes, o.Version); err != nil {
		return nil, err
	}
	if s.types, err = socketTypes(); err != nil {
		return nil, err
	}
	if s.pool, err = o.Service.NewPool(o.Log); err != nil {
		return nil, err
	}
	s.mcp = serve.NewHTTP(serve.HTTPOptions{
		Service: func() *service.Service { return s.Service }, Pool: s.pool, Version: o.Version, Self: o.Service.Self,
		Log: o.Log,
	})
	return s, nil
}

// Serve answers requests until ctx ends, and then for as long as those that are on their
// way need, but not for long: their runs are left to be taken up at the next start.
func (s *Server) Serve(ctx context.Context, l net.Listener, certFile, keyFile string) error {
	if s.Service.Config.Server.Auth == "none" && !loopback(l.Addr().String()) {
		_ = l.Close()
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "server.auth: none is refused unless listen is loopback")
	}
	s.hosts = hostsOf(l.Addr().String(), s.origins)
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() {
		if l := netutil.LimitListener(l, maxConnections); certFile != "" {
			ended <- h.ServeTLS(l, certFile, keyFile)
		} else {
			ended <- h.Serve(l)
		}
	}()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	draining, stop := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer stop()
	left := make(chan error, 1)
	go func() { left <- s.Close(draining) }()
	err = errors.Join(err, h.Shutdown(draining), <-left)
	_ = h.Close()
	return err
}

// Close leaves the runs; for a server that is not told to end by [Server.Serve].
func (s *Server) Close(ctx context.Context) error {
	s.sockets.close()
	return errors.Join(s.mcp.Close(ctx), s.pool.Close(ctx))
}

// loopback reports whether only this machine reaches an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	if strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// hostsOf are the names that a request may ask for, so that a page cannot reach a server on
// loopback by a name of its own; nil = any, where others reach it anyway.
func hostsOf(address string, origins []string) map[string]bool {
	if !loopback(address) {
		return nil
	}
	hosts := map[string]bool{}
	for _, origin := range origins {
		_, host, _ := strings.Cut(origin, "://")
		hosts[strings.ToLower(host)] = true
	}
	return hosts
}

// requestID is what a client may call its request.
var requestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Request-ID")
	if !requestID.MatchString(id) {
		id = "req_" + rand.Text()
	}
	h := w.Header()
	h.Set("X-Request-ID", id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	if r.ContentLength != 0 { // also if nobody reads it
		_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // a connection that has none
	}
	r.Body = http.MaxBytesReader(w, r.Body, s.Service.Config.Server.MaxBodyBytes)
	if v1(r.URL.Path) {
		w = v1Writer{w}
	}
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.Log.Error("a request failed", "request_id", id, "panic", p)
			s.fail(w, toolcrib.Errorf(toolcrib.CodeInternal, ""))
		}
	}()
	if err := s.admit(r); err != nil {
		s.fail(w, err)
		return
	}
	if origin := r.Header.Get("Origin"); slices.Contains(s.origins, origin) {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", "X-Request-ID, Retry-After, Mcp-Session-Id, WWW-Authenticate")
		h.Add("Vary", "Origin")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
			h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-ID, "+
				"Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name")
			if v1(r.URL.Path) { // its clients send many of their own
				h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
			}
			h.Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		s.unrouted(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// unrouted answers what no route is for: a path that there is not, or another method.
func (s *Server) unrouted(w http.ResponseWriter, r *http.Request) {
	probe := &methods{header: http.Header{}}
	s.mux.ServeHTTP(probe, r)
	if allow := probe.header.Get("Allow"); probe.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allow)
		s.failAs(w, http.StatusMethodNotAllowed, bad("%s takes %s only", r.URL.Path, allow))
		return
	}
	s.fail(w, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no %s; see /api/openapi.json", r.URL.Path))
}

// methods takes what the mux says of the methods of a path.
type methods struct {
	header http.Header
	status int
}

func (m *methods) Header() http.Header         { return m.header }
func (m *methods) Write(p []byte) (int, error) { return len(p), nil }
func (m *methods) WriteHeader(status int)      { m.status = status }

// admit refuses requests that a page of somebody else makes a browser send.
func (s *Server) admit(r *http.Request) error {
	if s.hosts != nil && !loopback(r.Host) && !s.hosts[strings.ToLower(r.Host)] {
		return toolcrib.Errorf(toolcrib.CodeForbidden, "this server is not called %q; server.cors may name its origin", r.Host)
	}
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(s.origins, origin) {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
		return toolcrib.Errorf(toolcrib.CodeForbidden, "pages of %s may not use this server; server.cors may name it", origin)
	}
	return nil
}

// anonymous is who asks where nobody is asked who they are (server.auth: none).
const anonymous = "anonymous"

// who is the user for whom a request acts.
func (s *Server) who(r *http.Request) (toolcrib.Principal, error) {
	if s.Service.Config.Server.Auth == "none" {
		return toolcrib.Principal{User: anonymous}, nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return toolcrib.Principal{}, toolcrib.Errorf(toolcrib.CodeUnauthorized,
			"an access token is needed: Authorization: Bearer TOKEN (toolcrib tokens create makes one)")
	}
	who, err := s.Service.ActBy(r.Context(), "", token)
	if toolcrib.CodeOf(err) == toolcrib.CodeBadRequest { // it does not have the form of one
		err = toolcrib.Errorf(toolcrib.CodeTokenInvalid, "the access token is not valid")
	}
	return who, err
}

// limits count the requests of each user, or of each address without a user.
type limits struct {
	perMinute int // 0 = no limit
	mu        sync.Mutex
	of        map[string]*rate.Limiter
}

// maxLimited bounds for how many the requests are counted; then it begins again.
const maxLimited = 10_000

// take counts a request, and refuses one too many.
func (l *limits) take(key string) error {
	if l.perMinute == 0 {
		return nil
	}
	l.mu.Lock()
	if l.of == nil || len(l.of) >= maxLimited {
		l.of = map[string]*rate.Limiter{}
	}
	one := l.of[key]
	if one == nil {
		one = rate.NewLimiter(rate.Every(time.Minute/time.Duration(l.perMinute)), l.perMinute)
		l.of[key] = one
	}
	l.mu.Unlock()
	wait := one.Reserve()
	if delay := wait.Delay(); delay > 0 {
		wait.Cancel()
		err := toolcrib.Errorf(toolcrib.CodeRateLimited, "too many requests: server.rate_limit is %d a minute", l.perMinute)
		err.RetryAfter = delay
		return err
	}
	return nil
}

// address is that of who asks, without the port.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// readBody reads what a client sends, as far as it is allowed to.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	var slow net.Error
	switch {
	case errors.As(err, &large):
		return nil, toolcrib.Errorf(toolcrib.CodeTooLarge, "the body has more than %d bytes (server.max_body_bytes)", large.Limit)
	case errors.As(err, &slow) && slow.Timeout():
		return nil, toolcrib.Errorf(toolcrib.CodeTimeout, "the body did not arrive in time")
	case err != nil:
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "the body ends too early")
	}
	// From here on only the client's going away is read.
	return data, cmp.Or(http.NewResponseController(w).SetReadDeadline(time.Time{}), nil)
}
