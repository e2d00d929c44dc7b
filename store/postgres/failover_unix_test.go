//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/toolcribtest/storetest"
)

// A primary that crashes is replaced by its synchronous standby: nothing is lost.
func TestFailover(t *testing.T) {
	empty(t) // skips the test without PostgreSQL
	primary, err := postgrestest.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = primary.Stop() }) // it is down already
	standby, err := primary.Standby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	c, err := pgx.Connect(t.Context(), primary.URL("postgres").String())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		if _, err := c.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	keys := filepath.Join(t.TempDir(), "keys")
	if _, err := postgres.Migrate(t.Context(), primary.URL("postgres").String(), postgres.MigrateOptions{Keys: keys}); err != nil {
		t.Fatal(err)
	}
	at := primary.URL("postgres")
	at.RawQuery = url.Values{"host": {primary.Dir() + "," + standby.Dir()}, "port": {"5432,5432"}}.Encode()
	var stores [2]*postgres.Store
	for i := range stores {
		stores[i] = openAt(t, at.String(), postgres.Options{Keys: keys})
	}
	disturbed(t, stores, func(n int) {
		if n != 5 {
			return
		}
		if err := primary.Down("immediate"); err != nil {
			t.Error(err)
		}
		if err := standby.Promote(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// bouncer starts a PgBouncer in transaction mode and returns the address of a database through it.
func bouncer(t *testing.T, database string) *url.URL {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("SKIPPED: there is no PgBouncer on this machine; the store was not tried through it")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := server.Dir()
	config := fmt.Sprintf(`[databases]
* = host=%s port=5432 user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
`, dir, postgrestest.User, postgrestest.Password, port)
	file := filepath.Join(dir, "pgbouncer-"+port)
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil { //nolint:gosec // read by another user
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	wait, err := server.Run(ctx, program, "-q", file)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = wait() // it was killed
	})
	at := server.URL(database)
	at.Host, at.RawQuery = "127.0.0.1:"+port, ""
	waittest.Until(t, "PgBouncer accepts connections", func() bool {
		c, err := net.Dial("tcp", at.Host)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return at
}

// Through PgBouncer in transaction mode, statements must not be prepared before its version 1.21.
func TestBouncer(t *testing.T) {
	name, _, keys := migrated(t)
	at := bouncer(t, name)
	at.RawQuery = "sslmode=disable&default_query_exec_mode=exec"
	var stores [2]*postgres.Store
	for i := range stores {
		stores[i] = openAt(t, at.String(), postgres.Options{Keys: keys})
	}
	storetest.Fill(t, stores[0])
	disturbed(t, stores, func(int) {})
}

// What pg_dump writes is a backup: restored into another database, it is whole, with the same key file.
func TestBackup_Dump(t *testing.T) {
	name, keys := filled(t)
	dump, err := server.Output(t.Context(), name, "pg_dump", "--schema=toolcrib", "--format=custom", "--file="+filepath.Join(t.TempDir(), "x"))
	if err != nil || len(dump) > 0 {
		t.Fatal(err)
	}
	text, err := server.Output(t.Context(), name, "pg_dump", "--schema=toolcrib")
	if err != nil {
		t.Fatal(err)
	}
	to := empty(t)
	file := filepath.Join(t.TempDir(), "dump.sql")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Output(t.Context(), to, "psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", file, "-d"); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, server.URL(to).String(), postgres.Options{Keys: keys})
	if _, err := s.VerifyAll(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Append(t.Context(), "run_new", 0, numbered(0, true)...); err != nil {
		t.Error(err)
	}
	if _, err := s.Backup(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "pg_dump") {
		t.Errorf("the store's own: %v", err)
	}
	if _, err := s.Run(t.Context(), toolcrib.RunID("run_done")); err != nil {
		t.Error(err)
	}
}
