package natsbus

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// errUnreachable is the error of a cluster that does not answer, which may pass by itself.
var errUnreachable = errors.New("the bus does not answer")

// Unreachable reports whether an error means that the cluster does not answer.
func Unreachable(err error) bool { return errors.Is(err, errUnreachable) }

const maxCredentials = 64 << 10

// credentials returns the option for a file of credentials, which is read again for each connection.
func credentials(file string) (nats.Option, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("bus.credentials: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxCredentials))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("bus.credentials: %w", err)
	}
	if bytes.Contains(text, []byte("BEGIN NATS USER JWT")) {
		return nats.UserCredentials(file), nil
	}
	o, err := nats.NkeyOptionFromSeed(file)
	if err != nil {
		return nil, fmt.Errorf("bus.credentials: %s has neither a user's JWT with its seed nor an NKEY seed of a user (SU…)", file)
	}
	return o, nil
}

// explain says what an error of the cluster means, and what to do about it. It returns [errUnreachable] for errors
// that may pass.
func (b *Bus) explain(err error) error {
	var (
		authority x509.UnknownAuthorityError
		record    tls.RecordHeaderError
		alert     *net.OpError
		api       *jetstream.APIError
	)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired):
		return fmt.Errorf("bus.url: the bus refuses the credentials (%w); correct bus.credentials, or the user in bus.url", err)
	case errors.As(err, &authority):
		return fmt.Errorf("bus.url: the certificate of the bus is not trusted (%w); set bus.ca_file to its authority", err)
	case errors.As(err, &record), errors.Is(err, nats.ErrSecureConnWanted), errors.Is(err, nats.ErrSecureConnRequired):
		return fmt.Errorf("bus.url: one side uses TLS and the other does not (%w); write tls:// if the bus has TLS, and nats:// "+
			"without bus.ca_file if not", err)
	case errors.Is(err, nats.ErrTLS), errors.As(err, &alert) && alert.Op == "remote error": // as crypto/tls names it
		return fmt.Errorf("bus.url: TLS with the bus fails: %w; correct bus.ca_file and bus.tls", err)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled),
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("bus.url: the bus has no JetStream for this account (%w); enable it", err)
	case errors.Is(err, errForeign), errors.Is(err, errUnreachable), errors.Is(err, errDenied):
		return err
	case errors.As(err, &api) && api.Code < 500:
		return fmt.Errorf("bus.url: the bus refuses a stream of toolcrib: %w", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		if denied := b.permitted(); denied != nil {
			return denied
		}
	}
	return fmt.Errorf("%w: %w", errUnreachable, err)
}

// errDenied is the error for permissions that the user of the bus lacks.
var errDenied = errors.New("permission denied")

// refused handles an error of the connection that is not the answer to a request, such as a missing permission.
func (b *Bus) refused(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		b.Log.Debug("the bus reports an error", "error", err)
	} else if ofNodes(err) {
		b.denied.note(err, b.Log)
	} else if denied := b.permitted(); denied != nil {
		b.failed(denied)
		b.first(denied)
	}
}

// probe sends a message to all servers and listens to none, to see whether that is permitted.
func (b *Bus) probe() error {
	subject := names{b.Database}.subject("probe", "start")
	sub, err := b.conn.SubscribeSync(subject)
	if err == nil {
		err = b.conn.Publish(subject, nil)
	}
	if err == nil {
		err = errors.Join(b.conn.FlushTimeout(patience), sub.Unsubscribe())
	}
	if denied := b.permitted(); denied != nil {
		return denied
	}
	return b.explain(err)
}

// permitted returns an error if a permission was missing at last.
func (b *Bus) permitted() error {
	err := b.conn.LastError()
	if !errors.Is(err, nats.ErrPermissionViolation) || ofNodes(err) {
		return nil
	}
	_, what, _ := strings.Cut(err.Error(), "iolation for ")
	return fmt.Errorf("bus.url: %w: the user of the bus may not use %s; let it publish to %s, $JS.API.> and $JS.ACK.>, and subscribe "+
		"to %s and _INBOX.>", errDenied, what, names{b.Database}.subject(">"), names{b.Database}.subject(">"))
}

// ofNodes reports whether a missing permission is one that nodes need, and nothing else.
func ofNodes(err error) bool {
	text := err.Error()
	return strings.Contains(text, `"`+nodesPrefix+"node") || strings.Contains(text, `"$SRV.`)
}

// denied is a permission that a node lacks.
type denied struct{ last atomic.Pointer[string] }

func (d *denied) note(err error, log *slog.Logger) {
	_, what, is := strings.Cut(err.Error(), "iolation for ")
	if !errors.Is(err, nats.ErrPermissionViolation) || !is {
		log.Debug("the bus reports an error", "error", err)
		return
	}
	if d.last.Swap(&what) == nil {
		log.Warn("the user of the bus lacks a permission, so calls between nodes fail", "missing", what)
	}
}

// Problem returns why messages between nodes do not pass, such as a missing permission, or "".
func (n *Nodes) Problem() string {
	if what := n.denied.last.Load(); what != nil {
		return fmt.Sprintf("the user of the bus may not use %s; let it publish to %[2]snode.>, %[2]snodes and _INBOX.>, and subscribe "+
			"to %[2]snode.KEY.>, %[2]snodes, _INBOX.> and $SRV.>", *what, nodesPrefix)
	}
	if !n.conn.IsConnected() {
		return errUnreachable.Error()
	}
	return ""
}
