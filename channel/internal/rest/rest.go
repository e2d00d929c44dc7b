// Package rest sends requests to HTTP APIs of chats, and classifies their failures.
package rest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
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

// timeout bounds requests that wait for nothing.
const timeout = 30 * time.Second

// Request is a request with JSON.
type Request struct {
	Method, URL string // the method is POST if ""
	Token       string // for the header Authorization, or ""
	Header      http.Header
	Body        any           // []byte, or a value that becomes JSON; nil for none
	Wait        time.Duration // how long the API may wait before it answers
	// Result is decoded from the body of the answer, and Problem from that of a failure, if that is JSON. If nil, nothing
	// is decoded.
	Result, Problem any
}

// Do sends a request. The error is an [*channel.Error], and does not contain the URL, which may have a token.
func Do(ctx context.Context, client *http.Client, r Request) error {
	ctx, cancel := context.WithTimeout(ctx, r.Wait+timeout)
	defer cancel()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	data, raw := r.Body.([]byte)
	if r.Body != nil && !raw {
		var err error
		if data, err = json.Marshal(r.Body); err != nil {
			return channel.Errorf(channel.Refused, "the request cannot be written: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, cmp.Or(r.Method, http.MethodPost), r.URL, bytes.NewReader(data))
	if err != nil {
		return channel.Errorf(channel.Refused, "the address is not valid")
	}
	maps.Copy(req.Header, r.Header)
	if r.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.Token)
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "toolcrib")
	res, err := client.Do(req)
	if err == nil {
		defer res.Body.Close()
		if data, err = io.ReadAll(io.LimitReader(res.Body, MaxAnswer+1)); err == nil && len(data) > MaxAnswer {
			err = errors.New("the answer is too long")
		}
	}
	if err != nil {
		class := channel.Doubt
		if !sent.Load() {
			class = channel.Later
		}
		return channel.Errorf(class, "%w", withoutURL(err))
	}
	into, failed := r.Result, failure(res)
	if failed != nil {
		into = r.Problem
	}
	if into != nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil && failed == nil {
		return channel.Errorf(channel.Doubt, "the answer is not one of this API: %w", err)
	}
	return failed
}

// Explained returns a failure with what the API says of it: a text, and how long to wait, unless they are zero.
func Explained(err error, text string, after time.Duration) error {
	var failed *channel.Error
	if errors.As(err, &failed) && text != "" {
		failed.Err = errors.New(text)
		if after > 0 {
			failed.After = min(after, time.Hour)
		}
	}
	return err
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
