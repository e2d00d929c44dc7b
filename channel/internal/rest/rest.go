// Package rest sends requests to HTTP APIs of chats, and classifies their failures.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/toolcrib/toolcrib/channel"
)

// MaxAnswer bounds an answer, in bytes: 100 messages of the longest kind.
const MaxAnswer = 16 << 20

// NewClient returns a client that follows no redirects, since they could carry a token to another host, and uses no
// proxy from the environment.
func NewClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, TLSHandshakeTimeout: 10 * time.Second,
			// A connection that the server closes while a message is sent on it would leave a doubt.
			MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Request is a request with JSON.
type Request struct {
	Method, URL string
	Header      http.Header
	Body        any // []byte, or a value that becomes JSON; nil for none
	Timeout     time.Duration
}

// Do sends a request, and returns the status and body of its answer. The error is an [*channel.Error], and does not
// contain the URL, which may have a token.
func Do(ctx context.Context, client *http.Client, r Request) (res *http.Response, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	data, raw := r.Body.([]byte)
	if r.Body != nil && !raw {
		if data, err = json.Marshal(r.Body); err != nil {
			return nil, nil, channel.Errorf(channel.Refused, "the request cannot be written: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(data))
	if err != nil {
		return nil, nil, channel.Errorf(channel.Refused, "the address is not valid")
	}
	for name, values := range r.Header {
		req.Header[name] = values
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "toolcrib")
	if res, err = client.Do(req); err == nil {
		defer res.Body.Close()
		if body, err = io.ReadAll(io.LimitReader(res.Body, MaxAnswer+1)); err == nil && len(body) > MaxAnswer {
			err = errors.New("the answer is too long")
		}
	}
	if err != nil {
		class := channel.Doubt
		if !sent.Load() {
			class = channel.Later
		}
		return nil, nil, channel.Errorf(class, "%w", withoutURL(err))
	}
	return res, body, failure(res)
}

// withoutURL returns the cause of an error of a client.
func withoutURL(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// failure returns the error of a status, or nil for 2xx.
func failure(res *http.Response) error {
	code := res.StatusCode
	if code >= 200 && code < 300 {
		return nil
	}
	e := channel.Errorf(channel.Refused, "the API answers %d", code)
	switch {
	case code == http.StatusTooManyRequests:
		e.Class, e.After = channel.Later, 5*time.Second
		if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && n >= 0 {
			e.After = min(time.Duration(n)*time.Second, time.Hour)
		}
	case code >= 500:
		e.Class = channel.Doubt
	}
	return e
}
