// Package client is a client of the HTTP API of a toolcrib server. It starts, follows and decides runs, and sends
// any other request. Errors of the server are a [*toolcrib.Error] with its code.
package client

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
)

// Options configure a [Client].
type Options struct {
	URL   string // such as https://tools.example.com, with the path of a proxy if any
	Token string // the access token; "" for a server with server.auth: none
	// PlainHTTP allows http:// to other machines, which is not encrypted.
	PlainHTTP bool
	// Patience is how long to retry an interrupted stream. The default is one minute.
	Patience time.Duration
	// Lost is called once for each interruption of a stream. It may be nil.
	Lost func(err error)
	// Transport sends requests. If nil, it verifies certificates and uses the proxy of the environment.
	Transport http.RoundTripper
}

// Client is a client of one server. It is safe for concurrent use.
type Client struct {
	o       Options
	base    *url.URL
	http    *http.Client
	attends bool
}

// The bounds of responses, and of the time without any data.
const (
	maxAnswer    = 64 << 20
	maxLine      = 64 << 20 // one line of a stream
	maxHead      = 256 << 10
	silence      = time.Minute // a stream is pinged every 15 seconds
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	patience     = time.Minute
)

// New returns a client. It sends no request.
func New(o Options) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(o.URL, "/"))
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, bad("%q is not the address of a server, such as https://tools.example.com", o.URL)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, bad("the address of a server has no user, ? or #; the token is given by itself")
	case u.Scheme == "http" && !o.PlainHTTP && !Loopback(u.Hostname()):
		return nil, bad("http://%s sends the token and all data unencrypted; use https://", u.Host)
	}
	if o.Patience == 0 {
		o.Patience = patience
	}
	c := &Client{o: o, base: u, http: &http.Client{
		Transport: o.Transport,
		// The token is for this server only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if o.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxResponseHeaderBytes = maxHead
		c.http.Transport = t
	}
	return c, nil
}

// Attending returns a client of the same server whose streams have a person: a question of an MCP server during a
// call is sent as a live confirmation_required, and waits while the stream is read.
func (c *Client) Attending() *Client {
	next := *c
	next.attends = true
	return &next
}

// Loopback reports whether host is this machine.
func Loopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// URL returns the address of the server.
func (c *Client) URL() string { return c.base.String() }

func bad(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)
}

// Query has the parameters of a request. Zero values are left out.
type Query map[string]any

// Get sends a GET request for path, such as /api/runs, and decodes the response into out.
func (c *Client) Get(ctx context.Context, path string, q Query, out any) error {
	return c.do(ctx, http.MethodGet, path, q, nil, out)
}

// Send sends in as the body of a request, and decodes the response into out. Either may be nil.
func (c *Client) Send(ctx context.Context, method, path string, in, out any) error {
	return c.do(ctx, method, path, nil, in, out)
}

func (c *Client) do(ctx context.Context, method, path string, q Query, in, out any) error {
	answer, err := c.request(ctx, request{method: method, path: path, query: q, body: in})
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	switch {
	case err != nil:
		return c.unreachable(ctx, err)
	case len(data) > maxAnswer:
		return toolcrib.Errorf(toolcrib.CodeTooLarge, "%s answered with more than %d bytes", c.base, maxAnswer)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return toolcrib.Errorf(toolcrib.CodeInternal, "%s answered what cannot be read: %v", c.base, err)
	}
	return nil
}

// Copy sends a GET request for path, such as /api/runs/{id}/export, and copies the response to w.
func (c *Client) Copy(ctx context.Context, path string, w io.Writer) error {
	answer, err := c.request(ctx, request{method: http.MethodGet, path: path})
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	_, err = io.Copy(w, answer.Body)
	return err
}

// request is a request to the server.
type request struct {
	method, path string
	query        Query
	body         any
	events       bool // whether the response must be a stream of events
	after        toolcrib.Seq
	key          string // the Idempotency-Key
}

// request sends a request, and returns the response unless it is an error.
func (c *Client) request(ctx context.Context, r request) (*http.Response, error) {
	u := c.base.JoinPath(r.path)
	values := url.Values{}
	for name, value := range r.query {
		switch at, isTime := value.(time.Time); {
		case value == nil || reflect.ValueOf(value).IsZero():
		case isTime:
			values.Set(name, at.Format(time.RFC3339Nano))
		default:
			values.Set(name, fmt.Sprint(value))
		}
	}
	u.RawQuery = values.Encode()
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	var wrote atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }})
	q, err := http.NewRequestWithContext(traced, r.method, u.String(), body)
	if err != nil {
		return nil, bad("%v", err)
	}
	if c.o.Token != "" {
		q.Header.Set("Authorization", "Bearer "+c.o.Token)
	}
	q.Header.Set("Accept", "application/json")
	if r.events {
		q.Header.Set("Accept", "text/event-stream")
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	if r.after > 0 {
		q.Header.Set("Last-Event-ID", strconv.FormatInt(int64(r.after), 10))
	}
	if r.key != "" {
		q.Header.Set("Idempotency-Key", r.key)
	}
	answer, err := c.http.Do(q)
	if err != nil {
		err = c.unreachable(ctx, err)
		var lost *UnreachableError
		if errors.As(err, &lost) {
			lost.wrote = wrote.Load()
		}
		return nil, err
	}
	if answer.StatusCode/100 == 2 {
		return answer, c.isOurs(answer, r.events)
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	return nil, c.refused(answer)
}

// isOurs returns an error if a response is not from this API, such as the page of a proxy.
func (c *Client) isOurs(answer *http.Response, events bool) error {
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	switch kind {
	case "application/json", "application/x-ndjson":
		if !events {
			return nil
		}
	case "text/event-stream":
		if events {
			return nil
		}
	}
	_ = answer.Body.Close() // not read
	return toolcrib.Errorf(toolcrib.CodeInternal, "%s answered with %q; is it a toolcrib server?", c.base, kind)
}

// maxFailure bounds the body of an error response.
const maxFailure = 1 << 20

// refused returns the error in a response.
func (c *Client) refused(answer *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(answer.Body, maxFailure))
	var f api.Failure
	if json.Unmarshal(data, &f) != nil || f.Error == "" {
		return toolcrib.Errorf(toolcrib.CodeInternal, "%s answered %s; is it a toolcrib server?", c.base, answer.Status)
	}
	return errorOf(&f)
}

// errorOf decodes the error in a response.
func errorOf(f *api.Failure) *toolcrib.Error {
	ref, _ := f.Details["ref"].(string)
	if ref == "" && f.Error == toolcrib.CodeInternal {
		ref = f.RequestID
		if ref != "" {
			f.Message += " (" + ref + ")"
		}
	}
	return &toolcrib.Error{
		Code: f.Error, Message: f.Message, Ref: ref, RetryAfter: time.Duration(f.RetryAfter) * time.Millisecond,
	}
}

// UnreachableError means that the server did not answer.
type UnreachableError struct {
	URL string
	Err error

	wrote bool // a request was written, which net/http may have sent again
}

func (e *UnreachableError) Error() string {
	err := e.Err
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var dns *net.DNSError
	var dial *net.OpError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		return fmt.Sprintf("the server %s cannot be trusted: %v; $SSL_CERT_FILE names the certificates of your own authority",
			e.URL, err)
	case errors.As(err, &dns):
		return fmt.Sprintf("the server %s cannot be reached: there is no host %s", e.URL, dns.Name)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Sprintf("the server %s cannot be reached: %v; does it run? `toolcrib serve` starts one", e.URL, dial.Err)
	}
	return fmt.Sprintf("the server %s cannot be reached: %v", e.URL, err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// Sent reports whether the server may have read the request.
func (e *UnreachableError) Sent() bool {
	var dial *net.OpError
	return e.wrote || !errors.As(e.Err, &dial) || dial.Op != "dial"
}

// unreachable returns an error of the network, or that of ctx if it has ended.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		err = cause
	} else if cause != nil {
		return cause
	}
	return &UnreachableError{URL: c.base.String(), Err: err}
}

// Path returns a path of the API with escaped parts, such as Path("runs", id, "events").
func Path(parts ...string) string {
	text := "/api"
	for _, part := range parts {
		if part = url.PathEscape(part); strings.Trim(part, ".") == "" {
			part = strings.ReplaceAll(part, ".", "%2E") // never another route
		}
		text += "/" + part
	}
	return text
}
