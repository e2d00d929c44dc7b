package notify

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	netmail "net/mail"
	"net/smtp"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	shoutrrr "github.com/nicholas-fedor/shoutrrr/pkg/services/email/smtp"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"
)

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
	defer func() { _ = client.Close() }()
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
		_ = conn.Close()
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
		host, _ = os.Hostname()
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
