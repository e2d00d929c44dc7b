// Package client speaks to a toolcrib server over its native API: it starts runs, watches
// them, decides what they wait for, and asks for everything else that a route is for. Errors
// are a [*toolcrib.Error] with the code that the server gave.
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
	"net/netip"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
)

// Options say which server a [Client] speaks to, and as whom.
type Options struct {
	URL   string // such as https://tools.example.com; a path is that of a proxy
	Token string // the access token; "" = none, for a server with server.auth: none
	// PlainHTTP allows http:// to other machines, which anybody on the way can read.
	PlainHTTP bool
	// Patience is how long a stream that was cut is reconnected; 0 = 1 minute.
	Patience time.Duration
	// Lost hears that a stream was cut, once for each time; may be nil.
	Lost func(err error)
	// Transport sends requests; nil = one that verifies certificates, and takes the proxy of
	// the environment.
	Transport http.RoundTripper
}

// Client is a server as a user of it sees it. It may be used by several goroutines.
type Client struct {
	o       Options
	base    *url.URL
	http    *http.Client
	attends bool
}

// The bounds of what a server may send, and how long it may say nothing.
const (
	maxAnswer    = 64 << 20
	maxLine      = 64 << 20 // of a stream
	maxHead      = 256 << 10
	silence      = time.Minute // a stream is pinged every 15 seconds
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	patience     = time.Minute
)

// New makes a client. It sends nothing yet.
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
		// What is asked for is asked of this server, and its token is for nobody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if o.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxResponseHeaderBytes = maxHead
		c.http.Transport = t
	}
	return c, nil
}

// Attending returns a client of the same server whose streams say that a person is there: what an MCP server
// asks in the middle of a call comes as a confirmation_required that is live only, and waits while the stream
// is read.
func (c *Client) Attending() *Client {
	next := *c
	next.attends = true
	return &next
}

// Loopback reports whether a host is this machine.
func Loopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// URL is the address of the server.
func (c *Client) URL() string { return c.base.String() }

func bad(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)
}

// Query is what a route takes in its query; zero values are left out.
type Query map[string]any

// Get asks for path, such as /api/runs, and reads the answer into out.
func (c *Client) Get(ctx context.Context, path string, q Query, out any) error {
	return c.do(ctx, http.MethodGet, path, q, nil, out)
}

// Send sends in as the body of a request, and reads the answer into out; either may be nil.
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

// Copy asks for path and writes the answer to w as it comes, such as that of
// /api/runs/{id}/export.
func (c *Client) Copy(ctx context.Context, path string, w io.Writer) error {
	answer, err := c.request(ctx, request{method: http.MethodGet, path: path})
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	_, err = io.Copy(w, answer.Body)
	return err
}

// request is one request on its way.
type request struct {
	method, path string
	query        Query
	body         any
	events       bool // the answer is to be a stream of events
	after        toolcrib.Seq
	key          string // the Idempotency-Key
}

// request sends a request, and returns the answer unless that is an error.
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
	q, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
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
		return nil, c.unreachable(ctx, err)
	}
	if answer.StatusCode/100 == 2 {
		return answer, c.isOurs(answer, r.events)
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	return nil, c.refused(answer)
}

// isOurs refuses an answer that is not one of this API, such as the page of a proxy.
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
	_ = answer.Body.Close() // nothing of it is read
	return toolcrib.Errorf(toolcrib.CodeInternal, "%s answered with %q; is it a toolcrib server?", c.base, kind)
}

// maxFailure bounds what is read of an answer that is an error.
const maxFailure = 1 << 20

// refused is the error that an answer is.
func (c *Client) refused(answer *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(answer.Body, maxFailure))
	var f api.Failure
	if json.Unmarshal(data, &f) != nil || f.Error == "" {
		return toolcrib.Errorf(toolcrib.CodeInternal, "%s answered %s; is it a toolcrib server?", c.base, answer.Status)
	}
	return errorOf(&f)
}

// errorOf returns the error of an answer.
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

// UnreachableError says that the server did not answer.
type UnreachableError struct {
	URL string
	Err error
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
	return !errors.As(e.Err, &dial) || dial.Op != "dial"
}

// unreachable is an error of the network; that of ctx if it has ended.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		err = cause
	} else if cause != nil {
		return cause
	}
	return &UnreachableError{URL: c.base.String(), Err: err}
}

// Path is a path of the API that names something: Path("runs", id, "events").
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
