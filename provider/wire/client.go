package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Client sends requests to one model API. It is safe for concurrent use and
// has no state except idle connections.
//
// It never follows a redirect, so that the key reaches only the configured
// host, and never retries: that is the loop's decision.
type Client struct {
	opts   Options
	base   *url.URL
	rt     http.RoundTripper
	auth   func(h http.Header, key string)
	header func() (http.Header, error) // of every request; a transport must not change it (http.RoundTripper)
}

// Bearer puts a key into the headers as most APIs expect it; if key is "", it does nothing.
func Bearer(h http.Header, key string) {
	if key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
}

// NewClient checks o and returns a client. defaultURL is the vendor's base
// URL; auth puts the key into the headers.
func NewClient(o Options, defaultURL string, auth func(h http.Header, key string)) (*Client, error) {
	o = o.withDefaults()
	if o.BaseURL == "" {
		o.BaseURL = defaultURL
	}
	base, err := baseURL(o.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	rt, err := o.transport()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	c := &Client{opts: o, base: base, rt: rt, auth: auth}
	c.header = sync.OnceValues(c.headers)
	return c, nil
}

// Options returns the options with their defaults.
func (c *Client) Options() Options { return c.opts }

// Host returns the host name of the API, without the port.
func (c *Client) Host() string { return strings.ToLower(c.base.Hostname()) }

// Causes with which the client cancels a context.
var (
	errFirstToken = errors.New("first token timeout")
	errIdle       = errors.New("idle timeout")
	errDrain      = errors.New("reply is over")
)

// Reply is a response that is being read. The caller must close it.
type Reply struct {
	Header http.Header
	Status int

	client *Client
	ctx    context.Context // ends with the caller's context, with a timeout, or with Close
	parent context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	body   io.ReadCloser
	size   int64       // length of the body, or -1
	eof    bool        // the body was read to its end
	spoken atomic.Bool // the first piece has arrived
	url    url.URL
	trace  httptrace.ClientTrace
	// connecting is true while the transport has no connection, and so nothing was sent.
	connecting atomic.Bool

	emit  Emit
	quiet bool // the caller has stopped listening
}

// Post sends body to path below the base URL and waits for the header of the
// response. Any status that is not a success is an error.
func (c *Client) Post(ctx context.Context, path string, body *Body) (*Reply, error) {
	return c.do(ctx, http.MethodPost, path, body)
}

// Get requests path below the base URL.
func (c *Client) Get(ctx context.Context, path string) (*Reply, error) {
	return c.do(ctx, http.MethodGet, path, nil)
}

func (c *Client) do(ctx context.Context, method, path string, body *Body) (*Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	header, err := c.header()
	if err != nil {
		return nil, err
	}
	r := &Reply{client: c, parent: ctx, url: c.join(path)}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.timer = time.AfterFunc(c.opts.FirstTokenTimeout, r.tooSlow)
	// The client's own transport takes another connection only if nothing was sent on the
	// first. For a transport of the caller, only its trace is reliable.
	r.connecting.Store(c.opts.Transport == nil)
	r.trace.GetConn = func(string) { r.connecting.Store(true) }
	r.trace.GotConn = func(httptrace.GotConnInfo) { r.connecting.Store(false) }
	req := (&http.Request{
		Method: method, URL: &r.url, Header: header, Host: c.base.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(httptrace.WithClientTrace(r.ctx, &r.trace))
	if body != nil {
		whole := bytes.Join(body.parts, nil)
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }
		req.Body, _ = req.GetBody() // never fails
		req.ContentLength = int64(len(whole))
	}
	resp, err := c.rt.RoundTrip(req)
	if err != nil {
		err = r.failure(err, r.connecting.Load())
		r.Close()
		return nil, err
	}
	r.Header, r.Status, r.body, r.size = resp.Header, resp.StatusCode, resp.Body, resp.ContentLength
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return r, nil
	}
	err = r.statusError()
	r.Close()
	return nil, err
}

// join appends path to the base URL and keeps its query, which some gateways need.
// The part of path after a "?" is added to that query.
func (c *Client) join(path string) url.URL {
	u := *c.base
	path, query, _ := strings.Cut(path, "?")
	u.Path = strings.TrimRight(u.Path, "/") + "/" + path
	if u.RawPath != "" {
		u.RawPath = strings.TrimRight(u.RawPath, "/") + "/" + path
	}
	switch {
	case u.RawQuery == "":
		u.RawQuery = query
	case query != "":
		u.RawQuery += "&" + query
	}
	return u
}

// headers returns the headers of each request, including the key.
func (c *Client) headers() (http.Header, error) {
	if strings.ContainsAny(c.opts.APIKey, "\r\n\x00") {
		return nil, &toolcrib.ModelError{
			Class: toolcrib.ErrAuth, Provider: c.opts.Name, Unsent: true,
			Message: "api_key holds a line break: check how it is stored",
		}
	}
	h := http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"text/event-stream, application/json"},
		"User-Agent":   {"toolcrib"},
	}
	c.auth(h, c.opts.APIKey)
	for name, value := range c.opts.Headers {
		h.Set(name, value)
	}
	return h, nil
}

// Read reads the body and resets the timers, so that a reply never blocks forever.
func (r *Reply) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	switch {
	case err == io.EOF:
		r.eof = true
	case err != nil:
		err = r.failure(err, false)
	case n > 0 && r.spoken.Load():
		r.timer.Reset(r.client.opts.IdleTimeout)
	}
	return n, err
}

// Spoke records that the first piece of the reply has arrived; after it, the idle
// timeout applies.
func (r *Reply) Spoke() {
	if !r.eof && !r.spoken.Load() {
		r.spoken.Store(true)
		r.timer.Reset(r.client.opts.IdleTimeout)
	}
}

func (r *Reply) tooSlow() {
	if r.spoken.Load() {
		r.cancel(errIdle)
		return
	}
	r.cancel(errFirstToken)
}

// All reads the whole body, up to the bound of a reply.
func (r *Reply) All() ([]byte, error) { return r.all(r.client.opts.MaxReplyBytes) }

func (r *Reply) all(limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if int64(len(data)) > limit {
		return data[:limit], ErrTooLarge
	}
	return data, err
}

// drainTime is how long Finish waits for the end of a body after its reply is complete.
const drainTime = 100 * time.Millisecond

// Finish reads a short rest of the body after the reply, so that the connection
// can be reused, and closes the reply.
func (r *Reply) Finish() {
	if !r.timer.Stop() || r.eof {
		r.Close()
		return
	}
	r.timer.Reset(drainTime)
	_, _ = io.Copy(io.Discard, io.LimitReader(r.body, 64<<10)) // the reply is complete
	r.Close()
}

// Close ends the reply at once. It may be called more than once.
func (r *Reply) Close() {
	r.timer.Stop()
	r.cancel(errDrain)
	if r.body != nil {
		_ = r.body.Close() // a read-only body; its error does not matter
		r.body = http.NoBody
	}
}

// statusError reads the body of a response whose status is not a success, and returns its error.
func (r *Reply) statusError() error {
	body, err := r.all(maxErrorBody)
	var failed *toolcrib.ModelError
	switch {
	case r.parent.Err() != nil:
		return r.parent.Err()
	case err != nil && !errors.Is(err, ErrTooLarge) && errors.As(err, &failed) && failed.Class == toolcrib.ErrTimeout:
		return err
	}
	if r.Status >= 300 && r.Status < 400 {
		where := "elsewhere"
		if u, err := url.Parse(r.Header.Get("Location")); err == nil && u.Host != "" {
			where = u.Host
		}
		return r.error(toolcrib.ErrBadRequest, fmt.Sprintf("HTTP %d: %s redirects to %s, which is not followed: "+
			"set base_url to where the API is", r.Status, r.client.base.Host, Line(where)), nil, nil)
	}
	refused := StatusError(r.Status, r.Header, body)
	if advice := r.client.opts.KeyAdvice; advice != "" &&
		(r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden) {
		refused.Message += "; " + advice
	}
	return r.mask(refused)
}

// error returns an error of the reply; body is the part of it that describes the error.
func (r *Reply) error(class toolcrib.ErrorClass, message string, body []byte, err error) error {
	return r.mask(&toolcrib.ModelError{
		Class: class, Status: r.Status, Message: message, Detail: Clip(string(body), maxDetail), Err: err,
	})
}

// mask removes the key, the configured headers, and text that looks like a secret from an
// error.
func (r *Reply) mask(e *toolcrib.ModelError) *toolcrib.ModelError {
	e.Provider = r.client.opts.Name
	e.Message, e.Detail = Mask(e.Message, r.client.opts.APIKey), Mask(e.Detail, r.client.opts.APIKey)
	for _, value := range r.client.opts.Headers {
		e.Message, e.Detail = Mask(e.Message, value), Mask(e.Detail, value)
	}
	e.Message, e.Detail = guard.RedactText(e.Message), guard.RedactText(e.Detail)
	return e
}

// failure describes a transport error. If the caller canceled, it returns that error
// unchanged.
func (r *Reply) failure(err error, unsent bool) error {
	if perr := r.parent.Err(); perr != nil {
		return perr
	}
	o := r.client.opts
	e := &toolcrib.ModelError{Status: r.Status, Unsent: unsent, Detail: Clip(err.Error(), maxDetail), Err: err}
	var (
		dns  *net.DNSError
		op   *net.OpError
		no   *notAdmittedError
		host = r.client.base.Host
	)
	switch cause := context.Cause(r.ctx); {
	case errors.Is(cause, errFirstToken):
		e.Class, e.Message = toolcrib.ErrTimeout, fmt.Sprintf("no answer from %s within %s (first_token_timeout)", host,
			o.FirstTokenTimeout)
	case errors.Is(cause, errIdle):
		e.Class, e.Message = toolcrib.ErrTimeout, fmt.Sprintf("%s stopped answering for %s (idle_timeout)", host,
			o.IdleTimeout)
	case errors.As(err, &no):
		e.Class, e.Message = toolcrib.ErrAuth, Line(no.Error())
	case errors.As(err, &dns) && !dns.IsTimeout:
		e.Class, e.Message = toolcrib.ErrNetwork, fmt.Sprintf("host %s cannot be resolved (check base_url and the network)",
			r.client.Host())
	case unsent && isPermanent(err):
		// Class other, because waiting does not help.
		e.Class, e.Message = toolcrib.ErrOther, fmt.Sprintf("no secure connection to %s: %s (check base_url, ca_file, and the clock of this machine)", host, Line(err.Error()))
	case unsent && isTimeout(err):
		e.Class, e.Message = toolcrib.ErrTimeout, fmt.Sprintf("no connection to %s within %s (connect_timeout)", host,
			o.ConnectTimeout)
	case errors.As(err, &op) && op.Op == "dial":
		e.Class, e.Message = toolcrib.ErrNetwork, fmt.Sprintf("cannot connect to %s: %s", host, Line(op.Err.Error()))
	case unsent:
		e.Class, e.Message = toolcrib.ErrNetwork, fmt.Sprintf("cannot connect to %s: %s", host, Line(err.Error()))
	default:
		e.Class, e.Message = toolcrib.ErrNetwork, fmt.Sprintf("the connection to %s broke: %s", host, Line(err.Error()))
	}
	return r.mask(e)
}

// isPermanent reports whether a connection failed for a reason that waiting does not fix: the
// certificate is not trusted, or the two sides have no common version of TLS.
func isPermanent(err error) bool {
	var (
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		alert       tls.AlertError
	)
	return errors.As(err, &certificate) || errors.As(err, &record) || errors.As(err, &alert)
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// Mask replaces a secret wherever it occurs. A value of fewer than eight bytes is not
// masked, because a word such as "test" would garble every text.
func Mask(s, secret string) string {
	if len(secret) < 8 {
		return s
	}
	return strings.ReplaceAll(s, secret, guard.Redacted)
}

// Body is the body of one request, in encoded pieces. They are
// joined when it is sent: net/http sends a body that is in memory
// together with the header in one write; any other body costs another write and a buffer.
type Body struct{ parts [][]byte }

// NewBody returns a body of these pieces.
func NewBody(parts ...[]byte) *Body { return &Body{parts: parts} }
