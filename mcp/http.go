package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/internal/hosts"
)

// dial prepares the way to a server behind an address. Nothing is sent yet.
func (c *Client) dial() (*link, error) {
	to, err := url.Parse(c.server.URL)
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		return nil, errors.New("its url must be that of a server: https://HOST/PATH")
	}
	inner := http.DefaultTransport.(*http.Transport).Clone()
	inner.ResponseHeaderTimeout = 0 // a call may take long; its own timeout ends it
	inner.MaxResponseHeaderBytes = 64 << 10
	inner.IdleConnTimeout = 30 * time.Second
	inner.DialContext = (&net.Dialer{Timeout: startTimeout, Control: c.network.check}).DialContext
	var signedIn http.RoundTripper = inner
	if c.options.SignIn != nil {
		signedIn = c.options.SignIn.Transport(inner)
	}
	client := &http.Client{
		Transport: &origin{to: to, headers: c.server.Headers, inner: signedIn},
		CheckRedirect: func(q *http.Request, via []*http.Request) error {
			if len(via) > 5 || !sameOrigin(q.URL, to) {
				return fmt.Errorf("it sends us on to another server: %s://%s", q.URL.Scheme, q.URL.Host)
			}
			return nil
		},
	}
	l := &link{close: inner.CloseIdleConnections}
	if c.server.SSE {
		l.transport = &sdk.SSEClientTransport{Endpoint: c.server.URL, HTTPClient: client, MaxEventSize: maxMessage}
	} else {
		l.transport = &sdk.StreamableClientTransport{
			Endpoint: c.server.URL, HTTPClient: client, MaxEventSize: maxMessage, MaxRetries: 2,
		}
	}
	return l, nil
}

// network is where a server's name leads: one that once was at a public address is not in one's own
// network later, and none is where nobody should be sent to, such as where a cloud hands out credentials.
type network struct{ public atomic.Bool }

// check is asked about each address that is connected to; that of a proxy is in its place.
func (n *network) check(_, at string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(at)
	if err != nil {
		return err
	}
	switch reach := hosts.ReachOf(to.Addr()); {
	case reach == hosts.Public:
		n.public.Store(true)
	case reach != hosts.Private:
		return fmt.Errorf("its name leads to %s, where no server is", to.Addr())
	case n.public.Load():
		return fmt.Errorf("its name leads to %s now, and to a public address before", to.Addr())
	}
	return nil
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

// origin sends requests to one server only, with the headers that are for it, and bounds
// its answers.
type origin struct {
	to      *url.URL
	headers map[string]string
	inner   http.RoundTripper
	events  rate
}

// errForgotten is the error of a request whose session the server no longer knows: it has not
// looked at the request, and a new session is to begin (MCP, Streamable HTTP: Session Management).
var errForgotten = errors.New("it no longer knows its session")

func (o *origin) RoundTrip(q *http.Request) (*http.Response, error) {
	if !sameOrigin(q.URL, o.to) {
		return nil, fmt.Errorf("it names an address of another server: %s://%s", q.URL.Scheme, q.URL.Host)
	}
	if len(o.headers) > 0 {
		q = q.Clone(q.Context())
		for name, value := range o.headers {
			q.Header.Set(name, value)
		}
	}
	r, err := o.inner.RoundTrip(q)
	inSession := q.Method == http.MethodPost && q.Header.Get("Mcp-Session-Id") != ""
	if err == nil && r.StatusCode == http.StatusNotFound && inSession {
		_ = r.Body.Close() // whatever it says there, also as an answer to another request
		return nil, errForgotten
	}
	// Of a stream each event is bounded, where it is read as one: an error is read whole.
	if err == nil && (r.StatusCode >= 300 || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream")) {
		r.Body = &bounded{ReadCloser: r.Body, left: maxMessage}
	} else if err == nil {
		r.Body = &stream{ReadCloser: r.Body, events: &o.events}
	}
	return r, err
}

// stream fails where a server sends events as fast as it can. All of them count: only few can be
// answers.
type stream struct {
	io.ReadCloser
	events *rate
	inside bool // of a line
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	ends := 0
	for rest := p[:n]; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if whole && !s.inside && len(bytes.TrimRight(line, "\r")) == 0 {
			ends++
		}
		s.inside, rest = !whole && (s.inside || len(bytes.TrimRight(line, "\r")) > 0), after
	}
	if flood := s.events.add(ends); flood != nil {
		return 0, flood
	}
	return n, err
}

// bounded fails where more is read of an answer than a message may have.
type bounded struct {
	io.ReadCloser
	left int
}

var errTooLong = fmt.Errorf("it sends messages of more than %d MiB", maxMessage>>20)

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
