package mcp

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/toolcrib/toolcrib/internal/hosts"
	"github.com/toolcrib/toolcrib/mcp/internal/rpc"
)

// dial prepares the connection to a server behind an address. It sends nothing yet.
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
		Transport: &origin{to: to, headers: c.server.Headers, inner: signedIn, events: newLimiter()},
		CheckRedirect: func(q *http.Request, via []*http.Request) error {
			if len(via) > 5 || !sameOrigin(q.URL, to) {
				return fmt.Errorf("it redirects to another server: %s://%s", q.URL.Scheme, q.URL.Host)
			}
			return nil
		},
	}
	l := &link{close: inner.CloseIdleConnections}
	if c.server.SSE || c.legacy {
		l.transport = &sdk.SSEClientTransport{Endpoint: c.server.URL, HTTPClient: client, MaxEventSize: -1} // see [stream]
	} else {
		l.transport = &sdk.StreamableClientTransport{
			Endpoint: c.server.URL, HTTPClient: client, MaxEventSize: -1, MaxRetries: 2,
		}
	}
	return l, nil
}

// network checks the addresses that a server's name leads to. A name that once led to a public address must not lead
// to a private one later, and no name may lead to a special address, such as the one where a cloud hands out
// credentials.
type network struct{ public atomic.Bool }

// check is called for each address that is connected to; with a proxy, for the address of the proxy.
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

// origin sends requests to one server only, with the headers for it, and bounds its answers.
type origin struct {
	to      *url.URL
	headers map[string]string
	inner   http.RoundTripper
	events  *rate.Limiter
}

// errForgotten is the error of a request whose session the server no longer knows. The server has not processed the
// request, and a new session must begin (MCP, Streamable HTTP: Session Management).
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
		_ = r.Body.Close() // whatever its content, even an answer to another request
		return nil, errForgotten
	}
	if err != nil {
		return nil, err
	}
	kind := r.Header.Get("Content-Type")
	// An answer without content to a notification (202, 204) may have any label.
	html := strings.HasPrefix(kind, "text/html") &&
		(r.StatusCode == http.StatusOK || r.StatusCode >= http.StatusBadRequest)
	if q.Method == http.MethodPost && (r.StatusCode >= http.StatusBadRequest || html) {
		text, _ := io.ReadAll(io.LimitReader(r.Body, maxRefusal))
		_ = r.Body.Close()
		answer, err := rpc.Decode(text)
		if response, ok := answer.(*jsonrpc.Response); ok && response.Error != nil {
			r.Body = io.NopCloser(bytes.NewReader(text)) // the server has processed the request
			return r, nil
		}
		if r.StatusCode == http.StatusBadRequest && inSession && (errors.Is(err, rpc.ErrNobody) || !json.Valid(text)) {
			return nil, errForgotten // as older servers say it, without the ID of a request
		}
		return nil, &refused{
			status: r.StatusCode, after: r.Header.Get("Retry-After"), html: html, text: oneLine(errors.New(string(text))),
		}
	}
	// In a stream each event is bounded separately. An answer that is an error is read whole.
	if r.StatusCode < 300 && strings.HasPrefix(kind, "text/event-stream") {
		r.Body = &stream{Closer: r.Body, from: bufio.NewReaderSize(r.Body, 16<<10), events: o.events}
		return r, nil
	}
	body := &bounded{ReadCloser: r.Body, left: maxMessage}
	if r.Body = body; r.StatusCode < 300 && strings.HasPrefix(kind, "application/json") {
		var read message
		_, err := io.Copy(&read, body.ReadCloser)
		_ = body.Close() // all of it was read
		text, e := read.text()
		if err = cmp.Or(err, e); err == nil && len(text) == 0 && read.size > maxMessage {
			err = errTooLong
		}
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(readable(text)))
	}
	return r, nil
}

const (
	maxRefusal = 64 << 10 // bytes that are read of an error answer
	maxFields  = 16 << 10 // bytes of an event without its data
)

// refused is an answer of HTTP instead of one of MCP.
type refused struct {
	status int
	after  string // Retry-After
	html   bool
	text   string // text of the server
}

// say describes the error in toolcrib's own words.
func (r *refused) say() string {
	text := fmt.Sprintf("answers %d %s", r.status, http.StatusText(r.status))
	switch seconds, err := strconv.ParseUint(r.after, 10, 32); {
	case r.status == http.StatusUnauthorized:
		text += ": it wants a sign-in (toolcrib mcp login) or a header with a valid token"
	case r.status == http.StatusForbidden:
		text += ": it refuses access"
	case r.status == http.StatusTooManyRequests && err == nil:
		text += fmt.Sprintf(": it takes no more requests now; try again in %d s", seconds)
	case r.status == http.StatusTooManyRequests:
		text += ": it takes no more requests now; try again later"
	case r.status >= 500:
		text += ": it has failed or is not reachable"
	case r.html:
		text += ": a web page, not MCP; is the url right?"
	}
	return text
}

func (r *refused) Error() string {
	text := "it " + r.say()
	if r.text != "" && !r.html {
		text += " (" + r.text + ")"
	}
	return text
}

// legacy reports whether the address may have the transport of 2024-11-05.
func (r *refused) legacy() bool {
	return r.status >= 400 && r.status < 500 && r.status != http.StatusUnauthorized && r.status != http.StatusForbidden &&
		r.status != http.StatusTooManyRequests
}

// stream reads the events of a server and writes the data of each in one line. It fails if events come as fast as
// the server can send. All events are counted, because only few can be answers.
type stream struct {
	io.Closer
	from   *bufio.Reader
	events *rate.Limiter
	rest   []byte // rest of the event that is being read
}

func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		event, err := s.next()
		if s.rest = event; len(event) == 0 && err != nil {
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// next reads an event. An event that is cut off by the end of the stream is ignored.
func (s *stream) next() (event []byte, err error) {
	var data message
	for err == nil {
		var line []byte
		line, err = s.from.ReadSlice('\n')
		part, isData := bytes.CutPrefix(line, []byte("data:"))
		switch {
		case isData:
			if _, e := data.Write(part); e != nil {
				return nil, e
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				err = data.readLine(s.from)
			}
			continue
		case errors.Is(err, bufio.ErrBufferFull) && line[0] == ':': // a long comment
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = s.from.ReadSlice('\n')
			}
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			err = errTooLong
		case err == nil && len(bytes.TrimSpace(line)) > 0:
			if event = append(event, line...); len(event) <= maxFields {
				continue
			}
			err = errTooLong
		case err == nil:
			err = flood(s.events, 1)
		}
		break
	}
	text, e := data.text()
	if err = cmp.Or(err, e); err != nil && (!errors.Is(err, io.EOF) || !json.Valid(text)) {
		return nil, err
	}
	if len(text) > 0 {
		line := bytes.ReplaceAll(readable(text), []byte("\n"), []byte(" ")) // white space between its values
		event = slices.Concat(event, []byte("data: "), line, []byte("\n"))
	}
	if len(event) > 0 {
		event = append(event, '\n')
	}
	return event, err
}

// bounded fails when more is read of an answer than the bound of a message.
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
