package wire

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib/internal/safefile"
)

// Defaults of [Options].
const (
	DefaultConnectTimeout    = 10 * time.Second
	DefaultFirstTokenTimeout = 120 * time.Second
	DefaultIdleTimeout       = 60 * time.Second
)

// ProxyNone as [Options.Proxy] ignores the proxy variables of the environment.
const ProxyNone = "none"

// Values of [Options.Reasoning].
const (
	ReasoningReplay = "replay"
	ReasoningDrop   = "drop"
)

// Options are the options of a [Client]. The zero value of every
// field except BaseURL is useful: finite timeouts and bounds.
type Options struct {
	// Name is the name of the provider in the configuration, for errors. If "",
	// it is the adapter's own name.
	Name string
	// BaseURL is the base URL of the API, such as https://api.openai.com/v1. If "", it is
	// the vendor's own.
	BaseURL string
	// APIKey is sent as the API expects it; "" sends no key.
	APIKey string
	// KeyAdvice says where the key comes from and how to change it. It is added to the
	// error of a rejected key.
	KeyAdvice string
	// Reasoning determines whether the reasoning of earlier turns is sent back to the server:
	// ReasoningReplay or ReasoningDrop. If "", it is if the server requires it or has sent it.
	Reasoning string
	// API selects one of OpenAI's APIs, and MaxTokens sends the bound of the output as max_tokens for all
	// models. Only package openai uses these two; see its APIChat and APIResponses.
	API       string
	MaxTokens bool
	// Headers are sent with each request and override the adapter's own.
	Headers map[string]string
	// Proxy is the URL of an HTTP, HTTPS or SOCKS5 proxy. If "", the usual
	// variables of the environment apply (HTTPS_PROXY, HTTP_PROXY, NO_PROXY), as in the
	// vendors' own libraries; ProxyNone uses no proxy.
	Proxy string
	// CAFile is a file of additional root certificates (PEM) of at most MaxCAFile bytes.
	CAFile string

	ConnectTimeout    time.Duration // until a connection is established, TLS included; if 0, 10s
	FirstTokenTimeout time.Duration // from the request to the first piece of the reply; if 0, 120s
	IdleTimeout       time.Duration // between two pieces; if 0, 60s

	MaxReplyBytes int64 // bytes of one reply, after decompression; if 0, 32 MiB
	NoStream      bool  // request replies that are not streams

	// Admit checks each new connection before anything is sent over it; its error
	// closes the connection and fails the request as class auth. If nil, all are admitted.
	Admit func(net.Conn) error

	// Transport carries the requests; if nil, it is made from the fields above. It is
	// meant for telemetry and for tests.
	Transport http.RoundTripper
}

func (o Options) withDefaults() Options {
	o.ConnectTimeout = cmp.Or(max(o.ConnectTimeout, 0), DefaultConnectTimeout)
	o.FirstTokenTimeout = cmp.Or(max(o.FirstTokenTimeout, 0), DefaultFirstTokenTimeout)
	o.IdleTimeout = cmp.Or(max(o.IdleTimeout, 0), DefaultIdleTimeout)
	o.MaxReplyBytes = cmp.Or(max(o.MaxReplyBytes, 0), DefaultMaxReplyBytes)
	return o
}

// baseURL checks and cleans a base URL. User info and queries are rejected,
// because a key in them would end up in logs.
func baseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(strings.TrimSpace(raw), "/"))
	if err != nil {
		return nil, errors.New("base_url: is not a URL")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("base_url: must begin with http:// or https://")
	case u.Host == "" || u.Opaque != "":
		return nil, errors.New("base_url: has no host")
	case u.User != nil:
		return nil, errors.New("base_url: must not contain a user or password; use api_key or headers")
	case u.Fragment != "":
		return nil, errors.New("base_url: must not contain a fragment")
	}
	return u, nil
}

func (o Options) transport() (http.RoundTripper, error) {
	if o.Transport != nil {
		return o.Transport, nil
	}
	proxy, err := o.proxy()
	if err != nil {
		return nil, err
	}
	roots, err := o.roots()
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		Proxy:                 proxy,
		DialContext:           o.dial,
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   o.ConnectTimeout,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          128,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
		// A request leaves in one write if it fits.
		WriteBufferSize:        256 << 10,
		ReadBufferSize:         16 << 10,
		MaxResponseHeaderBytes: 64 << 10,
	}, nil
}

func (o Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: o.ConnectTimeout, KeepAlive: 30 * time.Second}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil || o.Admit == nil {
		return conn, err
	}
	if err := o.Admit(conn); err != nil {
		_ = conn.Close() // nothing was sent
		return nil, &notAdmittedError{err}
	}
	return conn, nil
}

// notAdmittedError reports that [Options.Admit] rejected a connection.
type notAdmittedError struct{ err error }

func (e *notAdmittedError) Error() string { return e.err.Error() }
func (e *notAdmittedError) Unwrap() error { return e.err }

func (o Options) proxy() (func(*http.Request) (*url.URL, error), error) {
	switch o.Proxy {
	case "":
		return http.ProxyFromEnvironment, nil
	case ProxyNone:
		return nil, nil
	}
	u, err := url.Parse(o.Proxy)
	if err != nil || u.Host == "" {
		return nil, errors.New("proxy: must be a URL such as http://proxy.example:3128, or none")
	}
	switch u.Scheme {
	case "http", "https", "socks5", "socks5h":
		return http.ProxyURL(u), nil
	}
	return nil, fmt.Errorf("proxy: unknown scheme %q", u.Scheme)
}

// MaxCAFile bounds a file of root certificates; that of an operating system has a quarter of it.
const MaxCAFile = 1 << 20 // bytes

func (o Options) roots() (*x509.CertPool, error) {
	if o.CAFile == "" {
		return nil, nil
	}
	pem, err := safefile.Read(o.CAFile, MaxCAFile)
	if err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca_file: %s holds no certificate", o.CAFile)
	}
	return pool, nil
}
