package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net"
	"net/http"
	netmail "net/mail"
	"net/smtp"
	"net/url"
	"os"
	"strconv"
	"strings"
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
	shoutrrr "github.com/nicholas-fedor/shoutrrr/pkg/services/email/smtp"
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

// Line holds what is being sent to messengers, one message for each address. The
// library cannot be told to stop: what it still does when its time is up continues until
// its own limits, or the process, end it, and until then nothing else is sent there.
// The zero value is ready; it is safe for use by many goroutines, and must not be copied.
type Line struct {
	mu  sync.Mutex
	out map[string]*turn // by address
}

// turn is whose turn it is at one address.
type turn struct {
	free  chan struct{} // holds a value while nothing is being sent
	hangs bool          // the sender of what is being sent has gone; under Line.mu
}

// at returns the turn at an address, and whether a message hangs there.
func (l *Line) at(to string) (t *turn, hangs bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t = l.out[to]; t == nil {
		if l.out == nil {
			l.out = map[string]*turn{}
		}
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		l.out[to] = t
	}
	return t, t.hangs
}

// tell sends the text of a message to a messenger; "" = it was taken. Where an earlier one
// hangs it fails at once: so many that hang would pile up.
func (n *Notifier) tell(ctx context.Context, to string, m Message) string {
	l := n.o.Line
	t, hangs := l.at(to)
	if hangs {
		return "an earlier message to it still hangs; nothing else is sent there before that ends"
	}
	select {
	case <-t.free:
	case <-ctx.Done():
		return failure(ctx.Err())
	}
	if ctx.Err() != nil {
		t.free <- struct{}{}
		return failure(ctx.Err())
	}
	ended, outcome := false, make(chan string, 1)
	go func() {
		reason := shout(to, m.Text())
		l.mu.Lock()
		ended, t.hangs = true, false
		l.mu.Unlock()
		t.free <- struct{}{}
		outcome <- reason
	}()
	select {
	case reason := <-outcome:
		return reason
	case <-ctx.Done():
		l.mu.Lock()
		t.hangs = t.hangs || !ended
		l.mu.Unlock()
		return failure(ctx.Err())
	}
}

// shout ends when the library has done with the message, however long that takes: the
// library's own limit would only leave it behind unseen. What the library says is never
// repeated: it may hold the address.
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

// messenger is a service of the library, as far as it is used.
type messenger interface {
	Initialize(address *url.URL, log types.StdLogger) error
	Send(text string, params *types.Params) error
}

// messengers makes the library's services by scheme. The library's own router is not used: it
// links services that execute templates, with which the linker keeps every exported method of
// the program, seven megabytes of them. Mail is one of these; see [mail].
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
	"smtp":       func() messenger { return &mail{} },
}

const (
	mailPort        = 25
	implicitTLSPort = 465
	mailTimeout     = 10 * time.Second
)

// mail sends messages by SMTP to an address of shoutrrr:
// smtp://USER:PASSWORD@HOST:PORT/?from=ADDRESS&to=ADDRESS,ADDRESS. The text is plain, whatever
// usehtml says.
type mail struct {
	config shoutrrr.Config
}

func (m *mail) Initialize(address *url.URL, _ types.StdLogger) error {
	m.config = shoutrrr.Config{
		Port: mailPort, UseStartTLS: true, ClientHost: "localhost", Timeout: mailTimeout,
		Auth: shoutrrr.AuthTypes.Unknown, Encryption: shoutrrr.EncMethods.Auto,
	}
	err := m.config.SetURL(address)
	m.config.FixEmailTags()
	return err
}

func (m *mail) Send(text string, params *types.Params) (err error) {
	c := &m.config
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	client, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // closed by Quit before
	if err := m.greet(client); err != nil {
		return err
	}
	subject, _ := params.Title()
	var failed []error
	for _, to := range c.ToAddresses {
		failed = append(failed, m.post(client, to, cmp.Or(c.Subject, subject), text))
	}
	_ = client.Quit() // what was taken is taken
	return errors.Join(failed...)
}

// dial connects, with TLS if the address says so or has its port.
func (m *mail) dial(ctx context.Context) (*smtp.Client, error) {
	c := &m.config
	to := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // a connection that has none
	}
	if m.implicitTLS() {
		conn = tls.Client(conn, m.tls())
	}
	client, err := smtp.NewClient(conn, c.Host)
	if err != nil {
		_ = conn.Close() // err says what failed
	}
	return client, err
}

func (m *mail) implicitTLS() bool {
	e := m.config.Encryption
	return e == shoutrrr.EncMethods.ImplicitTLS || e == shoutrrr.EncMethods.Auto && m.config.Port == implicitTLSPort
}

func (m *mail) tls() *tls.Config {
	//nolint:gosec // only where the address asks for it
	return &tls.Config{ServerName: m.config.Host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: m.config.SkipTLSVerify}
}

// greet says hello, encrypts the connection where the server can, and signs in.
func (m *mail) greet(client *smtp.Client) error {
	c := &m.config
	host := c.ClientHost
	if host == "auto" {
		host, _ = os.Hostname() // else "localhost"
	}
	if err := client.Hello(cmp.Or(host, "localhost")); err != nil {
		return err
	}
	if c.UseStartTLS && !m.implicitTLS() {
		switch can, _ := client.Extension("STARTTLS"); {
		case can:
			if err := client.StartTLS(m.tls()); err != nil {
				return err
			}
		case c.RequireStartTLS || c.Encryption == shoutrrr.EncMethods.ExplicitTLS:
			return errors.New("the server does not support STARTTLS")
		}
	}
	switch auth := c.Auth; {
	case auth == shoutrrr.AuthTypes.Plain, auth == shoutrrr.AuthTypes.Unknown && c.Username != "":
		return client.Auth(smtp.PlainAuth("", c.Username, c.Password, c.Host)) // refuses to without TLS
	case auth == shoutrrr.AuthTypes.CRAMMD5:
		return client.Auth(smtp.CRAMMD5Auth(c.Username, c.Password))
	case auth == shoutrrr.AuthTypes.OAuth2:
		return client.Auth(shoutrrr.OAuth2Auth(c.Username, c.Password))
	}
	return nil
}

// post sends a mail to one address.
func (m *mail) post(client *smtp.Client, to, subject, text string) error {
	if err := client.Mail(m.config.FromAddress); err != nil {
		return err
	}
	if err := client.Rcpt(to); err != nil {
		return errors.Join(err, client.Reset())
	}
	w, err := client.Data()
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, m.letter(to, subject, text))
	return errors.Join(err, w.Close())
}

// letter is a mail in the form of RFC 5322.
func (m *mail) letter(to, subject, text string) string {
	from := netmail.Address{Name: m.config.FromName, Address: m.config.FromAddress}
	var b strings.Builder
	fmt.Fprintf(&b, "From: %s\r\nTo: %s\r\nSubject: %s\r\nDate: %s\r\n", from.String(),
		(&netmail.Address{Address: to}).String(), mime.QEncoding.Encode("utf-8", subject), time.Now().Format(time.RFC1123Z))
	b.WriteString("MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n")
	const line = 57 // bytes, 76 characters of base64
	for ; len(text) > line; text = text[line:] {
		b.WriteString(base64.StdEncoding.EncodeToString([]byte(text[:line])) + "\r\n")
	}
	return b.String() + base64.StdEncoding.EncodeToString([]byte(text)) + "\r\n"
}

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
		DialContext: (&net.Dialer{Timeout: limit}).DialContext, TLSHandshakeTimeout: limit, ResponseHeaderTimeout: limit,
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
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer)) // the status alone counts
	_ = res.Body.Close()                                            // it was only read
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
