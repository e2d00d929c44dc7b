package notify

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"
)

// Sign returns the webhook-signature of Standard Webhooks: v1 and HMAC-SHA256 over
// ID.SECONDS.BODY.
func Sign(key []byte, id string, at time.Time, body []byte) string {
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "%s.%d.", id, at.Unix())
	_, _ = m.Write(body) // a hash never fails to write
	return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// transport is for webhooks: no proxy from the environment, certificates verified,
// bounded in all.
func transport(limit time.Duration) *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: limit}).DialContext,
		TLSHandshakeTimeout: limit, ResponseHeaderTimeout: limit,
		MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true, ForceAttemptHTTP2: true,
	}
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

// between are the waits between tries.
func between() []time.Duration { return []time.Duration{200 * time.Millisecond, time.Second} }

// post posts a message, and tries again while that may help; "" = it was taken.
func (n *Notifier) post(ctx context.Context, t Target, m Message) string {
	body, err := m.body()
	if err != nil {
		return "the message cannot be written as JSON"
	}
	for try := 0; ; try++ {
		reason, again := n.try(ctx, t, m.ID, body)
		if reason == "" || !again || try == len(between()) || ctx.Err() != nil {
			return reason
		}
		if n.o.Wait(ctx, between()[try]) != nil {
			return reason
		}
	}
}

// try posts once. Each try has a time and a signature of its own, and the same ID.
func (n *Notifier) try(ctx context.Context, t Target, id string, body []byte) (reason string, again bool) {
	ctx, cancel := context.WithTimeout(ctx, n.o.Attempt)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.Address, bytes.NewReader(body))
	if err != nil {
		return "it is not a valid address", false
	}
	at := n.o.Now()
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", n.o.UserAgent)
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	h.Set("webhook-signature", Sign(t.Key, id, at, body))
	// A RoundTripper follows no redirect and sends no cookies.
	res, err := n.o.Transport.RoundTrip(req)
	if err != nil {
		return failure(err), true
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	_ = res.Body.Close()
	switch code := res.StatusCode; {
	case code >= 200 && code < 300:
		return "", false
	case code >= 300 && code < 400:
		return fmt.Sprintf("it answered with a redirect (%d), which is not followed", code), false
	default:
		retry := code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout
		return fmt.Sprintf("it answered %d", code), retry
	}
}

// failure says in words why a request failed. The error itself may hold the address.
func failure(err error) string {
	var dns *net.DNSError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "it did not answer in time"
	case errors.Is(err, context.Canceled):
		return "the sending was broken off"
	case errors.As(err, &dns):
		return "its host is not known"
	case errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid):
		return "its certificate is not good"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "it refuses connections"
	}
	return "it cannot be reached"
}
