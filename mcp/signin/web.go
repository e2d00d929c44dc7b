package signin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// The bounds of one request.
const (
	maxAnswer      = 1 << 20
	maxHeaders     = 64 << 10
	maxRedirects   = 3
	requestTimeout = 20 * time.Second
)

// address parses an address that tokens or codes may go to: https, or http on this machine.
func address(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return nil, fmt.Errorf("is not an address: %s", clean(text))
	case u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
		return nil, fmt.Errorf("must begin with https://: %s", clean(u.Redacted()))
	case u.User != nil || u.Fragment != "":
		return nil, fmt.Errorf("has a user name or a fragment: %s", clean(u.Redacted()))
	}
	return u, nil
}

// loopback reports whether a host is this machine, as it is written.
func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// shared are addresses that are not public, besides those that net/netip knows: of providers
// (RFC 6598), of tests and protocols (RFC 6890), and those that lead to any IPv4 address.
var shared = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("2001::/32"),
	netip.MustParsePrefix("fec0::/10"),
}

// public returns an error if a host is an address that is not public, or this machine. A
// name is looked at when it is connected to.
func public(host string) error {
	ip, err := netip.ParseAddr(host)
	if err != nil && !loopback(host) {
		return nil
	}
	ip = ip.Unmap()
	refused := err != nil || !ip.IsGlobalUnicast() || ip.IsPrivate()
	for _, p := range shared {
		refused = refused || p.Contains(ip)
	}
	if refused {
		return fmt.Errorf("is not at a public address: %s; if it is yours, name its issuer in the configuration "+
			"(oauth.issuer)", clean(host))
	}
	return nil
}

// client is an HTTP client for a server at that address, and for the authorization server
// that it names. That one may be at an address that is not public only if private.
func client(server *url.URL, private bool) *http.Client {
	direct := http.DefaultTransport.(*http.Transport).Clone()
	direct.MaxResponseHeaderBytes, direct.DisableKeepAlives = maxHeaders, true
	proxied := direct.Clone() // by the proxy of the environment, whose own address says nothing
	direct.Proxy = nil
	open := &net.Dialer{Timeout: requestTimeout}
	checked := &net.Dialer{Timeout: requestTimeout, Control: func(_, at string, _ syscall.RawConn) error {
		host, _, err := net.SplitHostPort(at)
		if err != nil {
			return err
		}
		return public(host)
	}}
	direct.DialContext = func(ctx context.Context, network, at string) (net.Conn, error) {
		if private || at == authority(server) {
			return open.DialContext(ctx, network, at)
		}
		return checked.DialContext(ctx, network, at)
	}
	return &http.Client{
		Timeout: requestTimeout,
		Transport: round(func(q *http.Request) (*http.Response, error) {
			if _, err := address(q.URL.String()); err != nil {
				return nil, fmt.Errorf("the address %w", err)
			}
			by := direct
			if proxy, err := http.ProxyFromEnvironment(q); err != nil {
				return nil, err
			} else if proxy != nil {
				by = proxied
				if !private && authority(q.URL) != authority(server) {
					if err := public(q.URL.Hostname()); err != nil {
						return nil, err
					}
				}
			}
			r, err := by.RoundTrip(q)
			if err != nil {
				return nil, err
			}
			if err := whole(r); err != nil {
				return nil, err
			}
			return r, nil
		}),
		CheckRedirect: func(q *http.Request, via []*http.Request) error {
			first := via[0]
			switch {
			case first.Method != http.MethodGet:
				return errors.New("it sends us on, with what only it may have")
			case len(via) > maxRedirects || q.URL.Scheme != first.URL.Scheme || q.URL.Host != first.URL.Host:
				return fmt.Errorf("it sends us on to another server: %s", clean(q.URL.Host))
			}
			return nil
		},
	}
}

// authority is the host and port that an address leads to.
func authority(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

type round func(*http.Request) (*http.Response, error)

func (f round) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// whole reads the body of an answer, which is short. Of a stream nothing is read.
func whole(r *http.Response) error {
	defer r.Body.Close()
	if strings.HasPrefix(r.Header.Get("Content-Type"), "text/event-stream") {
		r.Body = http.NoBody
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer+1))
	if err == nil && len(text) > maxAnswer {
		err = fmt.Errorf("it answers with more than %d MiB", maxAnswer>>20)
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	return err
}

// withBody is a request with a body.
func withBody(q *http.Request, kind, text string) *http.Request {
	q.Header.Set("Content-Type", kind)
	q.ContentLength = int64(len(text))
	q.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	q.Body, _ = q.GetBody()
	return q
}
