// Package server is toolcrib's HTTP API. It reads requests, authenticates the caller, calls the service and
// writes its answers. It makes no decisions.
package server

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib"
	busserve "github.com/toolcrib/toolcrib/bus/serve"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/hosts"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/mcp/serve"
	"github.com/toolcrib/toolcrib/server/ui"
	"github.com/toolcrib/toolcrib/server/websession"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/channels"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/telemetry"
)

// The bounds of a connection. The time to compute an answer depends on the run, the time to read it does not.
const (
	maxConnections = 10_000
	maxHeader      = 64 << 10
	headerTimeout  = 10 * time.Second
	bodyTimeout    = time.Minute
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	drainTimeout   = 10 * time.Second // at shutdown
)

// Options configure a [Server].
type Options struct {
	// Service has its store open. Requests use the one of the configuration in effect (call.Service).
	Service *service.Service
	Log     *slog.Logger
	Version string
	Metrics *telemetry.Metrics // if nil, there is no /metrics
	Listen  string             // the address for Serve, which New checks; "" means any
}

// Server serves HTTP requests, and drives the runs that they start.
type Server struct {
	Options
	pool *service.Pool
	chat *channels.Channels
	mux  *http.ServeMux
	// document is the OpenAPI document, without servers.
	document []byte
	allowed  atomic.Pointer[allowed]
	limits   limits
	bodies   bodies
	mcp      *serve.HTTP
	offers   *busserve.Offers
	web      *websession.Sessions
	asking   asking
	// answering has locks of runs whose calls are being answered.
	answering   [64]sync.Mutex
	since       time.Time
	types       map[string]*route // messages of a WebSocket, by type
	sockets     sockets
	connections connections
	inFlight    inFlight
	unwatch     func()       // stops watchTokens
	http        *httpMetrics // may be nil

	readiness readiness
	ui        *ui.UI
}

// allowed has the hosts and origins that the configuration in effect allows.
type allowed struct {
	at      string          // the address of the listener; "" if not known yet
	hosts   map[string]bool // allowed Host headers, in addition to those of loopback; if nil, any
	origins []string        // allowed origins of pages
}

// New returns a server, which continues interrupted runs.
func New(o Options) (*Server, error) {
	s := &Server{
		Options: o, mux: http.NewServeMux(), asking: asking{window: retryWindow, most: maxAsked}, since: time.Now(),
		connections: connections{most: maxConnections, all: map[string]*connection{}},
		sockets:     sockets{slow: slowWrite, open: map[*socket]bool{}},
	}
	d, err := newAllowed(o.Listen, o.Service)
	if err != nil {
		return nil, err
	}
	s.allowed.Store(d)
	s.web = websession.New(o.Service.Current)
	routes, err := s.routes()
	if err != nil {
		return nil, err
	}
	for i := range routes {
		r := &routes[i]
		s.mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, q *http.Request) { s.serve(w, q, r) })
	}
	s.providerHandlers()
	if s.document, err = document(routes, o.Version); err != nil {
		return nil, err
	}
	if s.types, err = socketTypes(); err != nil {
		return nil, err
	}
	if s.pool, err = o.Service.NewPool(o.Log, nil); err != nil {
		return nil, err
	}
	s.offers, err = busserve.Offer(busserve.Options{Service: s.Service.Current, Pool: s.pool, Log: o.Log})
	if err != nil {
		return nil, errors.Join(err, s.pool.Close(context.Background()))
	}
	s.mcp = serve.NewHTTP(serve.HTTPOptions{
		Service: s.Service.Current, Pool: s.pool, Version: o.Version, Self: o.Service.Env.Self,
		Log: o.Log,
	})
	if err := s.pages(); err != nil {
		return nil, errors.Join(err, s.pool.Close(context.Background()))
	}
	s.http = s.measure(o.Metrics)
	ctx, end := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { s.watchTokens(ctx) })
	s.unwatch = func() { end(); watching.Wait() }
	s.chat = s.pool.Channels(o.Log)
	return s, nil
}

// newAllowed returns the hosts and origins of a server at an address, which is "" if not known yet.
func newAllowed(at string, of *service.Service) (*allowed, error) {
	c := &of.Env.Config.Server
	d := &allowed{at: at}
	if c.Auth == "none" && at != "" && !loopback(at) {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "server.auth: none is refused unless listen is loopback")
	}
	if d.origins = c.CORS; c.Origin != "" {
		d.origins = append(slices.Clone(c.CORS), c.Origin)
	}
	d.hosts = hostsOf(at, d.origins)
	return d, nil
}

// Reload puts a configuration into effect for new requests and runs, like [service.Service.Reload]. If it returns
// an error, the previous one stays in effect.
func (s *Server) Reload(ctx context.Context, who toolcrib.Principal, c *config.Config) error {
	next := s.Service.Under(c)
	d, err := newAllowed(s.allowed.Load().at, next)
	if err == nil {
		_, err = next.Nodes.Offers()
	}
	if err == nil {
		_, err = s.Service.Reload(ctx, who, c)
	}
	if err == nil {
		s.allowed.Store(d)
		if failed := s.offers.Renew(); failed != nil {
			s.Log.Error("a capability of the changed configuration is not offered", "error", failed)
		}
	}
	return err
}

// Serve serves requests until ctx ends. It then gives requests in progress a short time to finish. Their runs
// continue at the next start.
func (s *Server) Serve(ctx context.Context, l net.Listener, certFile, keyFile string) error {
	d, err := newAllowed(l.Addr().String(), s.Service.Current())
	own := &certificate{cert: certFile, key: keyFile, log: s.Log}
	if err == nil && certFile != "" {
		_, err = own.get(nil)
	}
	if err != nil {
		_ = l.Close()
		return err
	}
	s.allowed.Store(d)
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug), ConnState: s.connections.state,
	}
	ended := make(chan error, 1)
	go func() {
		if certFile != "" {
			h.TLSConfig = &tls.Config{GetCertificate: own.get, MinVersion: tls.VersionTLS12}
			ended <- h.ServeTLS(l, "", "")
		} else {
			ended <- h.Serve(l)
		}
	}()
	kept, stop := context.WithCancel(ctx)
	var upkeep sync.WaitGroup
	upkeep.Go(func() { s.upkeep(kept) })
	defer upkeep.Wait()
	defer stop()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	draining, stop := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer stop()
	left := make(chan error, 1)
	go func() { left <- s.Close(draining) }()
	if h.Shutdown(draining) != nil {
		s.Log.Warn("clients that had not read their answers were disconnected")
	}
	_ = h.Close()
	return errors.Join(err, <-left)
}

// Close stops driving runs. It is for a server without [Server.Serve].
func (s *Server) Close(ctx context.Context) error {
	s.sockets.close()
	s.unwatch()
	s.chat.Close()
	return errors.Join(s.mcp.Close(ctx), s.pool.Close(ctx))
}

// loopback reports whether only this machine can reach an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	return hosts.Loopback(host) || strings.HasSuffix(strings.ToLower(host), ".localhost")
}

// hostsOf returns the allowed Host headers, so that a page cannot reach a server on loopback by DNS rebinding.
// It returns nil, for any, if other machines can reach the address.
func hostsOf(address string, origins []string) map[string]bool {
	if !loopback(address) {
		return nil
	}
	named := map[string]bool{}
	for _, origin := range origins {
		_, host, _ := strings.Cut(origin, "://")
		named[strings.ToLower(host)] = true
	}
	return named
}

// requestID matches a request ID from a client.
var requestID = lazyregexp.New(`^[A-Za-z0-9._-]{1,64}$`)

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Request-ID")
	if !requestID.MatchString(id) {
		id = "req_" + rand.Text()
	}
	to, done := s.http.counting(w, r)
	defer done()
	w = to
	defer s.logRequest(to, r, id, time.Now())
	h := w.Header()
	h.Set("X-Request-ID", id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	control, now := http.NewResponseController(w), time.Now()
	_ = control.SetWriteDeadline(now.Add(writeTimeout)) // if the connection supports it; each write sets its own
	if r.ContentLength != 0 {                           // even if no handler reads the body
		_ = control.SetReadDeadline(now.Add(bodyTimeout))
	}
	r.Body = http.MaxBytesReader(w, r.Body, s.Service.Current().Env.Config.Server.MaxBodyBytes)
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
	d := s.allowed.Load()
	if err := d.admit(r); err != nil {
		s.fail(w, err)
		return
	}
	if origin := r.Header.Get("Origin"); slices.Contains(d.origins, origin) {
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Expose-Headers", "X-Request-ID, Retry-After, Mcp-Session-Id, WWW-Authenticate")
		h.Add("Vary", "Origin")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			s.preflight(w, r)
			return
		}
	}
	// The mux would redirect a path that is not clean.
	if _, pattern := s.mux.Handler(r); pattern == "" || path.Clean(r.URL.EscapedPath()) != r.URL.EscapedPath() {
		s.unrouted(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// preflight answers a CORS preflight request.
func (s *Server) preflight(w http.ResponseWriter, r *http.Request) {
	if err := s.take(s.fromAddress(r)); err != nil {
		s.fail(w, err)
		return
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-ID, "+
		"Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name")
	if v1(r.URL.Path) { // these clients send many headers of their own
		h.Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// unrouted answers a request with an unknown path or another method.
func (s *Server) unrouted(w http.ResponseWriter, r *http.Request) {
	if err := s.take(s.fromAddress(r)); err != nil {
		s.fail(w, err)
		return
	}
	probe := &methods{header: http.Header{}}
	s.mux.ServeHTTP(probe, r)
	if allow := probe.header.Get("Allow"); probe.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", allow)
		s.failAs(w, http.StatusMethodNotAllowed, bad("%s: method not allowed; use %s", r.URL.Path, allow))
		return
	}
	if wantsPage(r) {
		s.ui.Fail(s.asked(w, r), toolcrib.Errorf(toolcrib.CodeNotFound, "there is no page %s", r.URL.Path))
		return
	}
	s.fail(w, toolcrib.Errorf(toolcrib.CodeNotFound, "no route %s; see /api/openapi.json", r.URL.Path))
}

// methods records the Allow header of the mux.
type methods struct {
	header http.Header
	status int
}

func (m *methods) Header() http.Header         { return m.header }
func (m *methods) Write(p []byte) (int, error) { return len(p), nil }
func (m *methods) WriteHeader(status int)      { m.status = status }

// admit returns an error for a cross-site request, which a page of another origin makes a browser send.
func (d *allowed) admit(r *http.Request) error {
	if d.hosts != nil && !loopback(r.Host) && !d.hosts[strings.ToLower(r.Host)] {
		return toolcrib.Errorf(toolcrib.CodeForbidden, "host %q is not allowed; add its origin to server.cors", r.Host)
	}
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(d.origins, origin) {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
		return toolcrib.Errorf(toolcrib.CodeForbidden, "origin %s is not allowed; add it to server.cors", origin)
	}
	return nil
}

// anonymous is the user of requests with "server.auth: none".
const anonymous = "anonymous"

// who returns the principal of a request. A token comes before the session of a browser.
func (s *Server) who(r *http.Request) (toolcrib.Principal, error) {
	by := s.web.Principal
	byItself := r.Header.Get("X-Toolcrib-Part") != "" || strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	if r.Method == http.MethodGet && byItself { // a page that is open, and not a person
		by = s.web.Watch
	}
	return s.principal(r, by)
}

// principal is who. bySession is [websession.Sessions.Principal] or Watch.
func (s *Server) principal(
	r *http.Request, bySession func(*http.Request) (toolcrib.Principal, people.WebSession, error),
) (toolcrib.Principal, error) {
	now := s.Service.Current()
	if now.Env.Config.Server.Auth == "none" {
		return toolcrib.Principal{User: anonymous}, nil
	}
	if s.sessionOf(r) != "" {
		who, _, err := bySession(r)
		return who, err
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return toolcrib.Principal{}, toolcrib.Errorf(toolcrib.CodeUnauthorized,
			"an access token is needed: Authorization: Bearer TOKEN (toolcrib tokens create makes one)")
	}
	return now.People.ActBy(r.Context(), "", token)
}

// sessionOf returns the cookie of a request that acts by the session of a browser, or "". Other programs than pages
// use the interfaces that other protocols define, and only with a token.
func (s *Server) sessionOf(r *http.Request) string {
	mcp := r.URL.Path == "/mcp" || strings.HasPrefix(r.URL.Path, "/mcp/")
	if r.Header.Get("Authorization") != "" || mcp || v1(r.URL.Path) {
		return ""
	}
	return s.web.Cookie(r)
}

// credential returns what proves who sends a request.
func (s *Server) credential(r *http.Request) string {
	if cookie := s.sessionOf(r); cookie != "" {
		return "Cookie " + cookie
	}
	return r.Header.Get("Authorization")
}

// readBody reads the body, within its limits.
func (c *call) readBody() ([]byte, error) {
	if how := c.r.Header.Get("Content-Encoding"); how != "" && !strings.EqualFold(how, "identity") {
		err := bad("Content-Encoding %q is not supported; send the body as it is", how)
		c.wrote = true
		c.failAs(c.w, http.StatusUnsupportedMediaType, err)
		return nil, err
	}
	control := http.NewResponseController(c.w)
	end, err := c.reading()
	if err != nil {
		_ = control.SetReadDeadline(time.Now().Add(time.Second)) // net/http would wait for the rest
		return nil, err
	}
	defer end()
	data, err := io.ReadAll(c.r.Body)
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
	// From now on, reading only detects that the client disconnects.
	return data, control.SetReadDeadline(time.Time{})
}
