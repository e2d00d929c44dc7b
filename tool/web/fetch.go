package web

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/egress"
	"github.com/toolcrib/toolcrib/internal/hosts"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// page is the response of an address.
type page struct {
	status      int
	hops        []*url.URL // the requested address and those it redirected to; never empty
	private     bool       // a connection to a private address was allowed
	contentType string
	location    string // location of a redirect that was not followed
	retryAfter  string
	length      int64 // value of Content-Length, or -1
	data        []byte
	cut         bool // data is incomplete
	cached      bool
}

func (p *page) url() *url.URL { return p.hops[len(p.hops)-1] }

// get reads an address, or returns it from the cache. It opens a connection for each hop, after
// checking the lists, and only to the IP address that was checked.
func (f *fetcher) get(ctx context.Context, r *request) (*page, error) {
	private, err := f.may(r.url)
	if err != nil {
		return nil, err
	}
	known, fresh := f.Cache.find(r, f)
	if fresh && !r.refresh {
		return known.page(), nil
	}
	p := &page{length: -1}
	for u := r.url; ; {
		p.hops, p.private = append(p.hops, u), p.private || private
		response, err := f.send(ctx, r, u, private, known)
		if err != nil {
			return nil, f.failure(ctx, u, err)
		}
		next, err := redirect(r, u, response)
		switch {
		case err != nil:
			response.Body.Close()
			return nil, err
		case next != nil:
			response.Body.Close()
			if len(p.hops) > maxRedirects {
				return nil, toolcrib.Failf(toolcrib.ExecutionFailed, "more than %d redirects", maxRedirects)
			}
			if private, err = f.may(next); err != nil {
				return nil, redirected(u, err)
			}
			u = next
			continue
		case response.StatusCode == http.StatusNotModified && known != nil:
			response.Body.Close()
			return f.Cache.renew(known, response.Header), nil
		}
		err = f.read(r, p, response)
		response.Body.Close()
		if err != nil {
			return nil, f.failure(ctx, u, err)
		}
		f.Cache.put(r, p, response.Header)
		return p, nil
	}
}

// redirected adds to a refusal that the address was reached by a redirect.
func redirected(from *url.URL, err error) error {
	if made := (*toolcrib.ToolError)(nil); errors.As(err, &made) {
		return toolcrib.Failf(made.Kind, "%s redirects to another address: %s", from.Host, made.Message)
	}
	return err
}

// send sends one request, on a connection of its own.
func (f *fetcher) send(
	ctx context.Context, r *request, u *url.URL, private bool, known *entry,
) (*http.Response, error) {
	if err := f.budget.Spend(r.call, u.Hostname(), r.size(u), true); err != nil {
		return nil, err
	}
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	request, err := http.NewRequestWithContext(ctx, r.method, u.String(), body)
	if err != nil {
		return nil, err
	}
	for name, values := range r.header {
		// Another host gets only the headers that describe the wanted response.
		if u.Host == r.url.Host && u.Scheme == r.url.Scheme || strings.HasPrefix(name, "Accept") {
			request.Header[name] = values
		}
	}
	request.Header.Set("User-Agent", f.userAgent())
	request.Header.Set("Accept-Encoding", "gzip")
	if request.Header.Get("Accept") == "" {
		request.Header.Set("Accept", "text/html, text/markdown, text/plain, application/json;q=0.9, */*;q=0.5")
	}
	switch {
	case r.refresh:
		request.Header.Set("Cache-Control", "no-cache")
	case known != nil && known.kept.url().String() == u.String():
		known.validate(request.Header)
	}
	return f.transport(f.guard.Dialer(u, private)).RoundTrip(request)
}

// transport returns a transport for one request.
func (f *fetcher) transport(dialer *net.Dialer) *http.Transport {
	t := &http.Transport{
		Proxy:           nil, // a proxy of the environment would bypass the check
		DialContext:     dialer.DialContext,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: headTimeout,
		ResponseHeaderTimeout: headTimeout, MaxResponseHeaderBytes: 256 << 10, DisableCompression: true,
		DisableKeepAlives: true, ForceAttemptHTTP2: true,
	}
	if f.net.transport != nil {
		f.net.transport(t)
	}
	return t
}

// redirect returns the target of a redirect, or nil. A redirect of a write is not followed: the write
// was allowed for its own address.
func redirect(r *request, from *url.URL, response *http.Response) (*url.URL, error) {
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	location := response.Header.Get("Location")
	if location == "" || !r.reads {
		return nil, nil
	}
	next, err := resolve(from, location)
	if err != nil {
		return nil, toolcrib.Failf(toolcrib.ExecutionFailed, "%s redirects to an address that is not valid: %s", from.Host, err)
	}
	return next, nil
}

// resolve returns the address of a redirect, resolved against from.
func resolve(from *url.URL, location string) (*url.URL, error) {
	scheme, _, whole := strings.Cut(location, "://")
	if !whole || strings.ContainsAny(scheme, "/?#") { // the query of a relative reference may contain a colon
		ref, err := url.Parse(location)
		if err != nil {
			return nil, errors.New("it cannot be read")
		}
		location = from.ResolveReference(ref).String()
	}
	return hosts.Parse(location)
}

// binary is the error for a body that is not text.
type binary struct{ what string }

func (b *binary) Error() string { return "not text: " + b.what }

// read reads the body of a response, unless it is binary.
func (f *fetcher) read(r *request, p *page, response *http.Response) error {
	p.status, p.contentType = response.StatusCode, response.Header.Get("Content-Type")
	p.location, p.retryAfter = response.Header.Get("Location"), response.Header.Get("Retry-After")
	p.length = response.ContentLength
	if r.method == http.MethodHead || p.status == http.StatusNoContent {
		return nil
	}
	if media := p.media(); notText(media) {
		return &binary{media}
	}
	meter := f.budget.Meter(r.call, f.MaxBytes+1)
	defer meter.Close()
	wire := meter.Reader(response.Body)
	body := wire
	switch strings.ToLower(strings.TrimSpace(response.Header.Get("Content-Encoding"))) {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(wire)
		if errors.Is(err, io.EOF) {
			return nil // an empty body
		}
		if err != nil {
			return err
		}
		body = z
	default:
		return &binary{"what is compressed in a way that was not asked for"}
	}
	var err error
	p.data, err = io.ReadAll(io.LimitReader(body, f.MaxBytes+1))
	switch {
	case int64(len(p.data)) > f.MaxBytes:
		p.data, p.cut = p.data[:f.MaxBytes], true
	case errors.Is(err, egress.ErrSpent), errors.Is(err, egress.ErrTooLong):
		p.cut = true
	case err != nil:
		return err
	}
	return nil
}

// media returns the media type of the response, without parameters.
func (p *page) media() string {
	media, _, _ := mime.ParseMediaType(p.contentType) // "" if invalid
	return media
}

var binaryPattern = lazyregexp.New(`pdf|zip|msword|officedocument|ms-excel|ms-powerpoint|epub|x-tar|wasm`)

// notText reports whether a media type is never text.
func notText(media string) bool {
	kind, sub, _ := strings.Cut(media, "/")
	switch {
	case media == "image/svg+xml":
		return false
	case kind == "image", kind == "audio", kind == "video", kind == "font", kind == "model":
		return true
	}
	return kind == "application" && binaryPattern.MatchString(sub)
}

// failure returns an error for the model, without text from the server.
func (f *fetcher) failure(ctx context.Context, u *url.URL, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if made := (*toolcrib.ToolError)(nil); errors.As(err, &made) {
		return made
	}
	var (
		what        string
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		no          *binary
		slow        net.Error
	)
	switch {
	case errors.As(err, &no):
		what = fmt.Sprintf("%s holds %s: %s reads only text, such as HTML, Markdown and JSON", u.Host, no.what, Fetch)
	case errors.As(err, &dns) && dns.IsNotFound:
		what = u.Host + " has no address"
	case errors.As(err, &dns):
		what = "the address of " + u.Host + " could not be found out"
	case errors.As(err, &certificate):
		what = "the certificate of " + u.Host + " is not valid"
	case errors.Is(err, syscall.ECONNREFUSED):
		what = u.Host + " refuses connections"
	case errors.As(err, &slow) && slow.Timeout():
		after, dial := headTimeout, (*net.OpError)(nil)
		if errors.As(err, &dial) && dial.Op == "dial" {
			after = egress.DialTimeout
		}
		return &toolcrib.ToolError{
			Kind: toolcrib.ToolTimeout, Message: fmt.Sprintf("%s: %s did not answer", after, u.Host), Err: err,
		}
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		what = u.Host + " did not compress its answer as it says"
	default:
		what = u.Host + " did not give a whole answer"
	}
	return &toolcrib.ToolError{Kind: toolcrib.ExecutionFailed, Message: what, Err: err}
}
