//go:build unix

package postgres_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// What cannot be used is refused with what to do, and nothing is changed.
func TestOpen_Refused(t *testing.T) {
	for name, tt := range map[string]struct {
		change string // of a migrated database
		kind   error
		text   string
	}{
		"later version":   {"UPDATE toolcrib.state SET version = 99, oldest = 99", store.ErrNewer, "its schema is"},
		"earlier version": {"UPDATE toolcrib.state SET version = 23", store.ErrOlder, "its schema is"},
		"half migrated":   {"DROP TABLE toolcrib.inbox", store.ErrCorrupt, "incomplete: no inbox"},
		"not migrated":    {"DROP SCHEMA toolcrib CASCADE", store.ErrUnsuitable, "toolcrib migrate"},
		"another product": {"DROP SCHEMA toolcrib CASCADE; CREATE SCHEMA toolcrib; GRANT USAGE ON SCHEMA toolcrib TO PUBLIC; CREATE TABLE toolcrib.x (a int)", store.ErrCorrupt, "another program"},
		"read-only":       {"ALTER DATABASE %s SET default_transaction_read_only = on", store.ErrReadOnly, "read-only"},
		"clock": {
			"CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp() + interval ''2 minutes'''; " +
				"ALTER DATABASE %s SET search_path = public, pg_catalog", store.ErrUnsuitable, "NTP",
		},
		"password":    {"ALTER ROLE crib_%s PASSWORD 'y'", store.ErrUnsuitable, "pg_hba.conf"},
		"rights":      {"REVOKE USAGE ON SCHEMA toolcrib FROM crib_%s", store.ErrUnsuitable, "toolcrib migrate"},
		"connections": {"ALTER ROLE crib_%s CONNECTION LIMIT 0", store.ErrUnreachable, "max_connections"},
		"tampered":    {"UPDATE toolcrib.counters SET value = 9", store.ErrDamaged, "was changed after it was sealed"},
	} {
		t.Run(name, func(t *testing.T) {
			db, address, keys := migrated(t)
			admin(t, db, "CREATE ROLE crib_"+db+" LOGIN PASSWORD '"+postgrestest.Password+"'")
			at := server.URL(db)
			at.User = url.UserPassword("crib_"+db, postgrestest.Password)
			if _, err := postgres.Migrate(t.Context(), address, postgres.MigrateOptions{Keys: keys, For: at.String()}); err != nil {
				t.Fatal(err)
			}
			admin(t, db, strings.Split(strings.ReplaceAll(tt.change, "%s", db), "; ")...)
			s, err := postgres.Open(t.Context(), at.String(), postgres.Options{Keys: keys})
			if err == nil {
				_ = s.Close() // the test has failed already
			}
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), postgrestest.Password) {
				t.Errorf("error %v, want %v (%s)", err, tt.kind, tt.text)
			}
		})
	}
	t.Run("encoding", func(t *testing.T) {
		empty(t)
		admin(t, "postgres", "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
		keys := filepath.Join(t.TempDir(), "keys")
		address := server.URL("latin").String()
		if _, err := postgres.Migrate(t.Context(), address, postgres.MigrateOptions{Keys: keys}); err == nil || !strings.Contains(err.Error(), "UTF8") {
			t.Errorf("migrated: %v", err)
		}
		if _, err := postgres.Open(t.Context(), address, postgres.Options{Keys: keys}); err == nil || !strings.Contains(err.Error(), "UTF8") {
			t.Errorf("opened: %v", err)
		}
		if _, err := os.Stat(keys); err == nil {
			t.Error("keys were made")
		}
	})
	t.Run("certificates", func(t *testing.T) {
		for name, host := range map[string]string{
			"unknown authority": "localhost", "of another host": "another.example", "expired": "localhost",
		} {
			lasts := time.Hour
			if name == "expired" {
				lasts = -time.Hour
			}
			ca, address := imposter(t, host, lasts)
			at := "postgres://ann:" + postgrestest.Password + "@" + address + "/x?sslmode=verify-full"
			if name != "unknown authority" {
				at += "&sslrootcert=" + ca
			}
			_, err := postgres.Open(t.Context(), at, postgres.Options{Keys: "keys"})
			if !errors.Is(err, store.ErrUnsuitable) || !strings.Contains(err.Error(), "sslrootcert") || strings.Contains(err.Error(), postgrestest.Password) {
				t.Errorf("%s: %v", name, err)
			}
			if name == "expired" && !strings.Contains(err.Error(), "expired") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("no server", func(t *testing.T) {
		_, err := postgres.Open(t.Context(), "postgres://ann:"+postgrestest.Password+"@127.0.0.1:1/x", postgres.Options{Keys: "keys"})
		if !errors.Is(err, store.ErrUnreachable) || strings.Contains(err.Error(), postgrestest.Password) {
			t.Error(err)
		}
	})
	t.Run("no database", func(t *testing.T) {
		empty(t)
		_, err := postgres.Open(t.Context(), server.URL("missing").String(), postgres.Options{Keys: "keys"})
		if !errors.Is(err, store.ErrUnsuitable) || !strings.Contains(err.Error(), "create the database") {
			t.Error(err)
		}
	})
	t.Run("no address", func(t *testing.T) {
		_, err := postgres.Open(t.Context(), "postgres://ann:"+postgrestest.Password+"@[x", postgres.Options{Keys: "keys"})
		if err == nil || strings.Contains(err.Error(), postgrestest.Password) {
			t.Error(err)
		}
	})
}

// imposter listens as a server of PostgreSQL with a certificate for a host, and returns the file of its authority.
func imposter(t *testing.T, host string, lasts time.Duration) (ca, address string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(lasts), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, 8)) // asks for TLS
			_, _ = c.Write([]byte("S"))
			_ = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}).
				HandshakeContext(t.Context()) // it fails
			_ = c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return ca, "localhost:" + port
}

// The role of a server needs no right to change the schema.
func TestMigrate_Role(t *testing.T) {
	name := empty(t)
	admin(t, "postgres", "DROP ROLE IF EXISTS crib_"+name, "CREATE ROLE crib_"+name+" LOGIN PASSWORD 'x'")
	admin(t, name, "REVOKE CREATE ON SCHEMA public FROM PUBLIC", "REVOKE TEMPORARY ON DATABASE "+name+" FROM PUBLIC")
	at := server.URL(name)
	at.User = url.UserPassword("crib_"+name, "x")
	keys := filepath.Join(t.TempDir(), "keys")
	o := postgres.MigrateOptions{Keys: keys, For: at.String()}
	if _, err := postgres.Migrate(t.Context(), at.String(), o); !errors.Is(err, store.ErrUnsuitable) || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("migrated by the role itself: %v", err)
	}
	for range 2 { // the second time there is nothing to do
		if _, err := postgres.Migrate(t.Context(), server.URL(name).String(), o); err != nil {
			t.Fatal(err)
		}
	}
	s := openAt(t, at.String(), postgres.Options{Keys: keys})
	storetest.Fill(t, s)
	if _, err := s.VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// A store whose seal is broken is accepted by name, and continues.
func TestOpen_Adopt(t *testing.T) {
	name, address, keys := migrated(t)
	admin(t, name, "UPDATE toolcrib.system_head SET record = record || '\\x00'")
	if _, err := postgres.Open(t.Context(), address, postgres.Options{Keys: keys}); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("opened: %v", err)
	}
	s := openAt(t, address, postgres.Options{Keys: keys, AdoptBy: "ann"})
	if err := s.Append(t.Context(), "run_a", 0, numbered(0, true)...); err != nil {
		t.Fatal(err)
	}
	all, err := s.VerifyAll(t.Context())
	if err != nil || all.System.Adopted == 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// Reading is possible on a store that is opened for reading; writing is not.
func TestOpen_ReadOnly(t *testing.T) {
	name, address, keys := migrated(t)
	s := openAt(t, address, postgres.Options{Keys: keys})
	if err := s.Append(t.Context(), "run_a", 0, numbered(0, true)...); err != nil {
		t.Fatal(err)
	}
	admin(t, name, "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
	reader := openAt(t, address, postgres.Options{Keys: keys, ReadOnly: true})
	checkNumbered(t, reader, "run_a", 1)
	if err := reader.Append(t.Context(), "run_a", 1, numbered(1, true)...); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("appended: %v", err)
	}
}

// Damage that is found by one server prevents new runs on all of them, until it is accepted.
func TestServers_Damage(t *testing.T) {
	name, stores := two(t)
	for _, run := range []string{"run_a", "run_b"} {
		if err := stores[0].Append(t.Context(), toolcrib.RunID(run), 0, numbered(0, true)...); err != nil {
			t.Fatal(err)
		}
	}
	admin(t, name, "UPDATE toolcrib.runs SET status = 'completed' WHERE id = 'run_a'")
	var broken *store.ChainError
	if _, err := stores[0].Run(t.Context(), "run_a"); !errors.As(err, &broken) {
		t.Fatalf("read: %v", err)
	}
	if err := stores[1].Append(t.Context(), "run_c", 0, numbered(0, true)...); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("a new run: %v", err)
	}
	if err := stores[1].Append(t.Context(), "run_b", 1, numbered(1, true)...); err != nil {
		t.Errorf("another run: %v", err)
	}
	if all, err := stores[1].AcceptDamage(t.Context(), "ann"); err != nil || len(all.Problems) == 0 {
		t.Errorf("accepted: %+v, %v", all, err)
	}
	if err := stores[0].Append(t.Context(), "run_c", 0, numbered(0, true)...); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Any text is kept as it is, also what PostgreSQL has no text for.
func TestText(t *testing.T) {
	_, address, keys := migrated(t)
	s := openAt(t, address, postgres.Options{Keys: keys})
	for i, text := range []string{
		"", "a", "\x00", "a\x00b", "\xff", "\xc3", "\u0000\U0010ffff00", "\U0010ffff", "\U0010ffff\U0010ffff", "\U0010fffff", "\xf4\x8f\xbf", `\u0000`, `\\u0000`,
	} {
		run := toolcrib.RunID("run_" + string(rune('a'+i)))
		start := &journal.RunStarted{Session: "s\x00" + toolcrib.SessionID(text), Once: "h" + text + ":1"}
		start.Principal.User, start.Agent.Name = "ann", text
		if err := s.Append(t.Context(), run, 0, journaltest.Events(start, &journal.Done{Status: "completed", Content: text})...); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if err := s.Put(t.Context(), run+"x", text+"r", []byte(text)); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if b, _, err := s.Range(t.Context(), run+"x", text+"r", 0, 99); err != nil || string(b) != text {
			t.Errorf("%q is kept as %q, %v", text, b, err)
		}
		rec, err := s.Run(t.Context(), run)
		if err != nil || rec.Content != store.Text(text) || rec.Agent != store.Text(text) {
			t.Errorf("%q is read as %q, %v", text, rec.Content, err)
		}
		if page, err := s.Runs(t.Context(), store.Filter{Agent: store.Text(text), Limit: 1}); err != nil || text != "" && (len(page.Runs) != 1 || page.Runs[0].ID != run) {
			t.Errorf("%q: %+v, %v", text, page.Runs, err)
		}
		if _, err := s.FindRun(t.Context(), text+"no"); err == nil {
			t.Errorf("%q: a run was found", text)
		}
	}
	if page, err := s.Sessions(t.Context(), store.SessionFilter{User: "ann"}); err != nil || len(page.Sessions) == 0 {
		t.Errorf("%+v, %v", page, err)
	}
	if _, err := s.VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
}
