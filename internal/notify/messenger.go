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
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/discord"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/googlechat"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/lark"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/matrix"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/mattermost"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/rocketchat"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/signal"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/slack"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/teams"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/telegram"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/wecom"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/zulip"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/incident/opsgenie"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/incident/pagerduty"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/bark"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/gotify"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/ifttt"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/join"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/ntfy"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/pushbullet"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/pushover"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/specialized/notifiarr"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"
	"github.com/toolcrib/toolcrib/internal/notify/address"
)

// Line serializes messages to the same messenger. Sending by the library cannot be cancelled: after a
// timeout it continues until the limits of the library or the process end it, and until then no other
// message is sent to the address. The zero value is ready to use. A Line is safe for concurrent use,
// and must not be copied.
type Line struct {
	mu  sync.Mutex
	out map[string]chan struct{} // by address; full while a message is being sent
}

func (l *Line) to(address string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		l.out = map[string]chan struct{}{}
	}
	if l.out[address] == nil {
		l.out[address] = make(chan struct{}, 1)
	}
	return l.out[address]
}

// Tell sends a text to a messenger. It returns why that failed, or "".
func Tell(ctx context.Context, line *Line, to, text string) string {
	sending, outcome := line.to(to), make(chan string, 1)
	select {
	case sending <- struct{}{}:
	case <-ctx.Done():
		return failure(ctx.Err())
	}
	go func() {
		reason := shout(to, text)
		<-sending
		outcome <- reason
	}()
	select {
	case reason := <-outcome:
		return reason
	case <-ctx.Done():
		return failure(ctx.Err())
	}
}

// shout sends a text by the library, however long that takes: with the library's own limit it would
// continue in the background. Errors of the library are not repeated, since they may contain the
// address.
func shout(to, text string) (reason string) {
	defer func() {
		if recover() != nil {
			reason = "it cannot be sent to"
		}
	}()
	u, err := url.Parse(to)
	var service messenger
	if err == nil && messengers[u.Scheme] != nil {
		service = messengers[u.Scheme]()
		err = service.Initialize(u, log.New(io.Discard, "", 0))
	}
	if err != nil || service == nil {
		return address.Scheme(to) + " does not know the address, or does not let toolcrib in"
	}
	if service.Send(text, &types.Params{"title": "toolcrib"}) != nil {
		return "it did not take the message"
	}
	return ""
}

// messenger has the used methods of a service of the library.
type messenger interface {
	Initialize(address *url.URL, log types.StdLogger) error
	Send(text string, params *types.Params) error
}

// messengers are constructors of the library's services, by scheme. The router of the library is not
// used: it links services that execute templates, such as mail, because of which the linker keeps
// every exported method of the program, which adds 7 MB.
var messengers = map[string]func() messenger{
	"bark":       func() messenger { return &bark.Service{} },
	"discord":    func() messenger { return &discord.Service{} },
	"googlechat": func() messenger { return &googlechat.Service{} },
	"gotify":     func() messenger { return &gotify.Service{} },
	"ifttt":      func() messenger { return &ifttt.Service{} },
	"join":       func() messenger { return &join.Service{} },
	"lark":       func() messenger { return &lark.Service{} },
	"matrix":     func() messenger { return &matrix.Service{} },
	"mattermost": func() messenger { return &mattermost.Service{} },
	"notifiarr":  func() messenger { return &notifiarr.Service{} },
	"ntfy":       func() messenger { return &ntfy.Service{} },
	"opsgenie":   func() messenger { return &opsgenie.Service{} },
	"pagerduty":  func() messenger { return &pagerduty.Service{} },
	"pushbullet": func() messenger { return &pushbullet.Service{} },
	"pushover":   func() messenger { return &pushover.Service{} },
	"rocketchat": func() messenger { return &rocketchat.Service{} },
	"signal":     func() messenger { return &signal.Service{} },
	"slack":      func() messenger { return &slack.Service{} },
	"teams":      func() messenger { return &teams.Service{} },
	"telegram":   func() messenger { return &telegram.Service{} },
	"wecom":      func() messenger { return &wecom.Service{} },
	"zulip":      func() messenger { return &zulip.Service{} },
}

// Sign returns the webhook-signature of Standard Webhooks: v1 and HMAC-SHA256 over
// ID.SECONDS.BODY.
func Sign(key []byte, id string, at time.Time, body []byte) string {
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "%s.%d.", id, at.Unix())
	_, _ = m.Write(body) // a hash never fails to write
	return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// transport returns the transport for webhooks: without a proxy from the environment, with verified
// certificates, and bounded.
func transport(limit time.Duration) *http.Transport {
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: limit}).DialContext, TLSHandshakeTimeout: limit, ResponseHeaderTimeout: limit,
		MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true, ForceAttemptHTTP2: true,
	}
}

// maxAnswer bounds the part of a response that is read, in bytes.
const maxAnswer = 64 << 10

// between returns the delays between attempts.
func between() []time.Duration { return []time.Duration{200 * time.Millisecond, time.Second} }

// post posts a message, with retries. It returns why that failed, or "".
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

// try makes one attempt. Each has its own time and signature, but the same ID.
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
	// A RoundTripper does not follow redirects or send cookies.
	res, err := n.o.Transport.RoundTrip(req)
	if err != nil {
		return failure(err), true
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer)) // only the status matters
	_ = res.Body.Close()                                            // only read
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

// failure describes why a request failed. The error itself may contain the address.
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
