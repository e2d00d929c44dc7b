package signin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/toolcrib/toolcrib/internal/hosts"
)

// Bounds of one request.
const (
	maxAnswer      = 1 << 20
	maxHeaders     = 64 << 10
	maxRedirects   = 3
	requestTimeout = 20 * time.Second
)

// address parses an address that tokens or codes may be sent to: https, or http on this machine.
func address(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return nil, fmt.Errorf("is not an address: %s", clean(text))
	case u.Scheme != "https" && (u.Scheme != "http" || !hosts.Loopback(u.Hostname())):
		return nil, fmt.Errorf("must begin with https://: %s", clean(u.Redacted()))
	case u.User != nil || u.Fragment != "":
		return nil, fmt.Errorf("has a user name or a fragment: %s", clean(u.Redacted()))
	}
	return u, nil
}

// reachable returns an error if a host is an address of this machine or its network, unless private is set, and
// always if it is an address that must not be connected to. The addresses of a name are checked when it is connected
// to.
func reachable(host string, private bool) error {
	reach := hosts.Public
	if ip, err := netip.ParseAddr(host); err == nil {
		reach = hosts.ReachOf(ip)
	} else if hosts.Loopback(host) {
		reach = hosts.Private
	}
	if reach == hosts.Public || reach == hosts.Private && private {
		return nil
	}
	return fmt.Errorf("is not at a public address: %s; if it is in your own network, name its issuer in the configuration "+
		"(oauth.issuer)", clean(host))
}

// client returns an HTTP client for a server at that address, and for the authorization server that it names. The
// latter may be at an address that is not public only if private is set.
func client(server *url.URL, private bool) *http.Client {
	direct := http.DefaultTransport.(*http.Transport).Clone()
	direct.MaxResponseHeaderBytes, direct.DisableKeepAlives = maxHeaders, true
	proxied := direct.Clone() // uses the proxy of the environment, whose address is not checked
	direct.Proxy = nil
	open := &net.Dialer{Timeout: requestTimeout}
	checked := &net.Dialer{Timeout: requestTimeout, Control: func(_, at string, _ syscall.RawConn) error {
		host, _, err := net.SplitHostPort(at)
		if err != nil {
			return err
		}
		return reachable(host, private)
	}}
	direct.DialContext = func(ctx context.Context, network, at string) (net.Conn, error) {
		if at == authority(server) {
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
				if authority(q.URL) != authority(server) {
					if err := reachable(q.URL.Hostname(), private); err != nil {
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
			if via[0].Method != http.MethodGet {
				return errors.New("it redirects a request that carries credentials")
			}
			return sameServer(q, via)
		},
	}
}

// sameServer returns an error if a redirect leads to another server.
func sameServer(q *http.Request, via []*http.Request) error {
	if first := via[0].URL; len(via) > maxRedirects || q.URL.Scheme != first.Scheme || q.URL.Host != first.Host {
		return fmt.Errorf("it redirects to another server: %s", clean(q.URL.Host))
	}
	return nil
}

// authority returns the host and port of an address.
func authority(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

type round func(*http.Request) (*http.Response, error)

func (f round) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// whole reads the whole body of an answer, which is short. It reads nothing of a stream.
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
	r.Body = io.NopCloser(bytes.NewReader(plainNumbers(text)))
	return err
}

// plainNumbers rewrites the numbers of a registration or token as numbers. Some servers send them as texts, or as
// null.
func plainNumbers(text []byte) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return text
	}
	changed := false
	for _, name := range []string{"client_id_issued_at", "client_secret_expires_at", "expires_in"} {
		var value any
		if raw, there := members[name]; !there || json.Unmarshal(raw, &value) != nil {
			continue
		}
		said, isText := value.(string)
		number, err := strconv.ParseFloat(strings.TrimSpace(said), 64)
		if value, isNumber := value.(float64); isNumber {
			number, err = value, nil
		}
		switch {
		case isText && err == nil, err == nil && number != math.Trunc(number):
			members[name] = strconv.AppendInt(nil, int64(number), 10)
		case value == nil || isText:
			delete(members, name)
		default:
			continue
		}
		changed = true
	}
	if again, err := json.Marshal(members); changed && err == nil {
		return again
	}
	return text
}
