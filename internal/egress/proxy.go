package egress

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/hosts"
)

// Limits of a proxy.
const (
	maxConnections = 128       // from programs, at a time
	maxTransferred = 8 << 30   // bytes
	maxHeader      = 64 << 10  // bytes of a request
	maxReply       = 256 << 10 // bytes of the header of a response
	maxRecords     = 100       // hosts that are recorded
	quietTime      = 5 * time.Minute
	headTime       = 20 * time.Second
)

// Proxy is an HTTP proxy for the programs of one call: it forwards requests of HTTP, and connects by
// CONNECT. Each connection to a host is checked, counted and recorded.
type Proxy struct {
	Guard  *Guard
	Budget *Budget
	Call   toolcrib.Call
	// OnReceived, if not nil, is called with each host and its port, before the first data from it is passed on.
	OnReceived func(host string)

	meter  *Meter
	active sync.WaitGroup // requests
	mu     sync.Mutex
	closed bool
	seen   map[string]*Record
}

// Record is what programs did with one host and port.
type Record struct {
	Host           string // with its port
	Connections    int
	Sent, Received int64
	Refused        *toolcrib.ToolError // why it was refused the last time, or nil
}

// Serve serves the connections of a listener until ctx ends, and closes the listener. When it returns, all
// connections are closed. It can be called once.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) {
	p.meter = p.Budget.Meter(p.Call, maxTransferred)
	defer p.meter.Close()
	serving, stop := context.WithCancel(ctx)
	defer stop()
	quiet := log.New(io.Discard, "", 0) // it is normal that a program closes its connection at any time
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.Host, r.Out.URL.RawQuery = "", r.In.URL.RawQuery },
		Transport: forwarder{p}, ErrorLog: quiet, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { fail(w, http.StatusBadGateway, err) },
	}
	server := &http.Server{
		ReadHeaderTimeout: headTime, IdleTimeout: headTime, MaxHeaderBytes: maxHeader, ErrorLog: quiet,
		BaseContext: func(net.Listener) context.Context { return serving },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !p.begin() {
				return
			}
			defer p.active.Done()
			if r.Method == http.MethodConnect {
				p.tunnel(serving, w, r)
				return
			}
			u, err := hosts.Parse(r.RequestURI)
			if err == nil && u.Scheme != "http" {
				err = errors.New("https needs CONNECT")
			}
			if err != nil {
				fail(w, http.StatusBadRequest, err)
				return
			}
			r.URL, r.Host = u, u.Host
			forward.ServeHTTP(w, r)
		}),
	}
	defer context.AfterFunc(serving, func() { _ = server.Close() })()
	_ = server.Serve(&limited{l, make(chan struct{}, maxConnections)})
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	stop()
	_ = server.Close()
	p.active.Wait()
}

// begin adds a request, unless the proxy is closed.
func (p *Proxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.active.Add(1)
	return true
}

// fail responds to a request that was not forwarded: with status 403 if it was refused.
func fail(w http.ResponseWriter, status int, err error) {
	if refusal := (*toolcrib.ToolError)(nil); errors.As(err, &refusal) {
		status = http.StatusForbidden
	}
	http.Error(w, "toolcrib: "+err.Error(), status)
}

// dial connects to the host of a URL.
func (p *Proxy) dial(ctx context.Context, u *url.URL) (net.Conn, error) {
	private, err := p.Guard.Check(u)
	if other := otherScheme(u); err == nil && u.Path == unknownPath && p.Guard.Deny.Denies(other) {
		err = denied("%s is in tools.web.deny", u.Host)
	}
	if err == nil {
		err = p.Budget.Spend(p.Call, u.Hostname(), 0, true)
	}
	var conn net.Conn
	if err == nil {
		conn, err = p.Guard.Dialer(u, private).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), hosts.Port(u)))
	}
	record := p.record(u)
	p.mu.Lock()
	defer p.mu.Unlock()
	if refusal := (*toolcrib.ToolError)(nil); errors.As(err, &refusal) {
		record.Refused = refusal
		return nil, refusal
	}
	if err != nil {
		return nil, errors.New(u.Host + " could not be reached")
	}
	record.Connections++
	return &metered{Conn: conn, proxy: p, record: record}, nil
}

// record returns the record of a host and port. Those beyond maxRecords share one.
func (p *Proxy) record(u *url.URL) *Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = map[string]*Record{}
	}
	name := net.JoinHostPort(u.Hostname(), hosts.Port(u))
	if len(p.seen) >= maxRecords && p.seen[name] == nil {
		name = "others"
	}
	if p.seen[name] == nil {
		p.seen[name] = &Record{Host: name}
	}
	return p.seen[name]
}

// Records returns what programs have done with each host and port, sorted by name.
func (p *Proxy) Records() []Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Record
	for _, r := range p.seen {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Record) int { return cmp.Compare(a.Host, b.Host) })
	return all
}

// tunnel connects a program to a host, until ctx ends. The context of the request ends when the program has
// sent everything.
func (p *Proxy) tunnel(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	u, err := target(r.RequestURI)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	to, err := p.dial(r.Context(), u)
	if err != nil {
		fail(w, http.StatusBadGateway, err)
		return
	}
	defer func() { _ = to.Close() }()
	from, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = from.Close() }()
	defer context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })()
	_ = from.SetDeadline(time.Time{})
	if _, err := io.WriteString(from, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(to, buffered)
		closeWrite(to)
	}()
	_, _ = io.Copy(from, to)
	closeWrite(from)
	<-sent
}

// closeWrite ends one direction of a connection, or both if it is not of TCP.
func closeWrite(c net.Conn) {
	switch of := c.(type) {
	case *metered:
		c = of.Conn
	case *slot:
		c = of.Conn
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
		return
	}
	_ = c.Close()
}

// target returns the URL for the host and port of a CONNECT. At other ports than those of HTTP and
// HTTPS only entries with that port allow it.
func target(authority string) (*url.URL, error) {
	scheme := "https"
	if strings.HasSuffix(authority, ":80") {
		scheme = "http"
	}
	port := strings.LastIndexByte(authority, ':') > strings.LastIndexByte(authority, ']')
	if !port || strings.ContainsAny(authority, "/?#") {
		return nil, errors.New("CONNECT needs host:port")
	}
	u, err := hosts.Parse(scheme + "://" + authority)
	if err == nil {
		u.Path = unknownPath
	}
	return u, err
}

// unknownPath is the path of a URL that stands for all URLs of a host and port. A denied URL with a path
// matches it.
const unknownPath = "//"

// otherScheme returns the URL with the scheme https instead of http, or the reverse, for the same host and port.
func otherScheme(u *url.URL) *url.URL {
	other := &url.URL{Scheme: "https", Host: net.JoinHostPort(u.Hostname(), hosts.Port(u)), Path: u.Path}
	if u.Scheme == other.Scheme {
		other.Scheme = "http"
	}
	return other
}

// forwarder sends each request on a connection of its own.
type forwarder struct{ *Proxy }

func (f forwarder) RoundTrip(r *http.Request) (*http.Response, error) {
	t := &http.Transport{
		DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return f.dial(ctx, r.URL) },
		ResponseHeaderTimeout: quietTime, MaxResponseHeaderBytes: maxReply, DisableCompression: true, DisableKeepAlives: true,
	}
	return t.RoundTrip(r)
}

// metered is a connection to a host whose bytes are counted. It ends when nothing is transferred for quietTime.
type metered struct {
	net.Conn
	proxy  *Proxy
	record *Record
}

func (m *metered) Read(b []byte) (int, error) {
	_ = m.SetDeadline(time.Now().Add(quietTime))
	n, err := m.proxy.meter.Reader(m.Conn).Read(b)
	m.proxy.mu.Lock()
	if m.record.Received == 0 && n > 0 && m.proxy.OnReceived != nil {
		m.proxy.OnReceived(m.record.Host)
	}
	m.record.Received += int64(n)
	m.proxy.mu.Unlock()
	return n, err
}

func (m *metered) Write(b []byte) (sent int, err error) {
	for len(b) > 0 && err == nil {
		_ = m.SetDeadline(time.Now().Add(quietTime))
		var n, most int
		if most, err = m.proxy.meter.take(len(b)); err == nil {
			n, err = m.Conn.Write(b[:most])
			m.proxy.meter.giveBack(most - n)
		}
		sent, b = sent+n, b[n:]
	}
	m.proxy.mu.Lock()
	m.record.Sent += int64(sent)
	m.proxy.mu.Unlock()
	return sent, err
}

// limited is a listener with at most as many open connections as slots has room for.
type limited struct {
	net.Listener
	slots chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slot{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

type slot struct {
	net.Conn
	free func()
}

func (s *slot) Close() error {
	defer s.free()
	return s.Conn.Close()
}
