package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/toolcrib/toolcrib/store"
)

// errAborted reports that a transaction was rolled back by its commit, because a statement had failed.
var errAborted = errors.New("the transaction was rolled back")

// unknownError reports that the outcome of a transaction could not be looked up.
type unknownError struct{ err error }

func (e *unknownError) Error() string {
	return "the server did not answer a commit, and cannot be asked whether it was done: " + e.err.Error()
}

func (e *unknownError) Unwrap() error { return e.err }

// broken reports whether an error means that the connection, or the server that it leads to, cannot be
// used, and another one may be.
func broken(err error) bool {
	if badCertificate(err) {
		return false
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch {
		case strings.HasPrefix(e.Code, "08"), strings.HasPrefix(e.Code, "57P0"): // connection, shutdown, starting up
			return true
		case e.Code == "25006", e.Code == "25P03", e.Code == "53300", e.Code == "58000":
			// A standby; ended because it was idle; out of connections; from PgBouncer, its server has failed.
			return true
		}
		return false
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}

// badCertificate reports whether one side does not accept the certificate of the other.
func badCertificate(err error) bool {
	var theirs *tls.CertificateVerificationError
	var ours tls.AlertError
	return errors.As(err, &theirs) || errors.As(err, &ours)
}

// transient reports whether a transaction that failed may succeed when it is repeated.
func transient(err error) bool {
	var unknown *unknownError
	if errors.As(err, &unknown) || errors.Is(err, context.Canceled) {
		return false
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch e.Code {
		case "40001", "40P01", "0A000", "26000", "22012":
			// Serialization, deadlock; plans of before a change of the schema; conn.One.
			return true
		}
	}
	return broken(err)
}

// mapped converts an error of the driver to a [*store.Error]. It returns other errors unchanged.
func mapped(path string, err error) error {
	var already *store.Error
	if err == nil || errors.As(err, &already) {
		return err
	}
	kind := kindOf(err)
	if kind == nil {
		return err
	}
	if what := hint(err); what != "" {
		err = fmt.Errorf("%w; %s", err, what)
	}
	return &store.Error{Kind: kind, Path: path, Err: err}
}

// hint says what to do about an error, or is "".
func hint(err error) string {
	if badCertificate(err) {
		return "check the certificates and their dates, and sslmode, sslrootcert and the host in the address"
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return ""
	}
	switch e.Code {
	case "28P01", "28000":
		return "check the user and the password in the address, and pg_hba.conf on the server"
	case "3D000":
		return "create the database (docs/grow.md), or name another one"
	case "42501":
		return "`toolcrib migrate`, with the role that owns the tables, gives this role its rights"
	case "53300":
		return "raise max_connections, or use PgBouncer"
	}
	return ""
}

func kindOf(err error) error {
	if badCertificate(err) {
		return store.ErrUnsuitable
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		var unknown *unknownError
		if broken(err) || errors.As(err, &unknown) {
			return store.ErrUnreachable
		}
		return nil
	}
	switch {
	case e.Code == "55P03", e.Code == "40001", e.Code == "40P01", e.Code == "57014":
		return store.ErrLocked
	case e.Code == "53100":
		return store.ErrFull
	case e.Code == "25006":
		return store.ErrReadOnly
	case e.Code == "54000":
		return store.ErrTooLarge
	case strings.HasPrefix(e.Code, "XX00"):
		return store.ErrCorrupt
	}
	if broken(err) {
		return store.ErrUnreachable
	}
	return store.ErrUnsuitable
}
