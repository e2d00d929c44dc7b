//go:build unix

// Package postgrestest runs PostgreSQL servers for tests.
package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// User and Password are those of the administrator of a server.
const (
	User     = "reader"
	Password = "hunter2-of-the-test"
)

// ErrMissing is the error of [Start] on a machine without PostgreSQL.
var ErrMissing = errors.New("there is no PostgreSQL on this machine (initdb)")

// Server is a PostgreSQL of its own, on a socket in a temporary folder. It does not run as root.
type Server struct {
	dir, bin string
	as       *syscall.SysProcAttr
	settings string
	// watcher stops the server and removes its data as soon as its input ends, also if this process is killed.
	watcher *exec.Cmd
	input   io.Closer
}

// programs returns the folder of the programs of the server, or "".
func programs() string {
	if path, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(real)
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return ""
	}
	return filepath.Dir(slices.Max(found))
}

// Start starts a server with these settings, as NAME=VALUE. The caller stops it.
func Start(ctx context.Context, settings ...string) (*Server, error) {
	s := &Server{bin: programs()}
	if s.bin == "" {
		return nil, ErrMissing
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "pg"); err != nil {
		return nil, err
	}
	secret := filepath.Join(s.dir, "password")
	err = os.WriteFile(secret, []byte(Password), 0o600)
	if err == nil {
		err = s.unprivileged(s.dir, secret)
	}
	if err == nil {
		err = s.run(ctx, "initdb", "-D", "data", "-U", User, "-A", "scram-sha-256", "--pwfile="+secret,
			"-E", "UTF8", "--locale=C", "--no-sync")
	}
	always := []string{"listen_addresses=''", "unix_socket_directories=" + s.dir, "fsync=off"}
	for _, setting := range append(always, settings...) {
		s.settings += "-c " + setting + " "
	}
	if err == nil {
		err = s.watched(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

// Programs returns the folder of the programs of PostgreSQL, such as psql.
func (s *Server) Programs() string { return s.bin }

// watched starts the watcher, then the server.
func (s *Server) watched(ctx context.Context) (err error) {
	const script = `cat; "$0/pg_ctl" -D data -w -m immediate stop; cd /; rm -rf "$1"`
	s.watcher = exec.Command("sh", "-c", script, s.bin, s.dir) //nolint:noctx // it ends by itself
	s.watcher.Dir, s.watcher.SysProcAttr = s.dir, &syscall.SysProcAttr{Setpgid: true}
	if s.as != nil {
		s.watcher.SysProcAttr.Credential = s.as.Credential
	}
	if s.input, err = s.watcher.StdinPipe(); err != nil {
		return err
	}
	if err := s.watcher.Start(); err != nil {
		return err
	}
	if err := s.Up(ctx); err != nil {
		return errors.Join(err, s.Stop())
	}
	return nil
}

// unprivileged makes another user the owner of paths, and runs programs as that user, if this one is root.
func (s *Server) unprivileged(paths ...string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	uid, gid := 65534, 65534
	for _, name := range []string{"postgres", "nobody"} {
		if who, err := user.Lookup(name); err == nil {
			uid, _ = strconv.Atoi(who.Uid)
			gid, _ = strconv.Atoi(who.Gid)
			break
		}
	}
	for _, path := range paths {
		if err := os.Chown(path, uid, gid); err != nil {
			return fmt.Errorf("%w, or no other user to run it as: %w", ErrMissing, err)
		}
	}
	s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return nil
}

// run runs a program of PostgreSQL in the folder of the server.
func (s *Server) run(ctx context.Context, program string, arguments ...string) error {
	command := exec.CommandContext(ctx, filepath.Join(s.bin, program), arguments...)
	command.Dir, command.Env = s.dir, []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	command.SysProcAttr = s.as
	log, err := os.CreateTemp(s.dir, "out") // a pipe would stay open as long as the server
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // only read back
	command.Stdout, command.Stderr = log, log
	if err := command.Run(); err != nil {
		said, _ := os.ReadFile(log.Name())
		server, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		return fmt.Errorf("%s: %w\n%s%s", program, err, said, server)
	}
	return nil
}

// Up starts a server that is down.
func (s *Server) Up(ctx context.Context) error {
	log := filepath.Join(s.dir, "log")
	return s.run(ctx, "pg_ctl", "-D", "data", "-w", "-t", "100", "-o", s.settings, "-l", log, "start")
}

// Down stops the server, in a mode of pg_ctl: fast, or immediate, which is a crash.
func (s *Server) Down(mode string) error {
	return s.run(context.Background(), "pg_ctl", "-D", "data", "-w", "-m", mode, "stop")
}

// Stop stops the server and removes its data.
func (s *Server) Stop() error {
	_ = s.input.Close() // the end of the watcher says more
	return s.watcher.Wait()
}

// Standby starts a server that replicates s.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	b := &Server{bin: s.bin, as: s.as}
	var err error
	if b.dir, err = os.MkdirTemp("", "pg"); err != nil {
		return nil, err
	}
	if err = b.unprivileged(b.dir); err == nil {
		err = b.run(ctx, "pg_basebackup", "-D", "data", "-R", "-c", "fast", "-d", s.URL("postgres").String())
	}
	b.settings = strings.ReplaceAll(s.settings, s.dir, b.dir)
	if err == nil {
		err = b.watched(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(b.dir))
	}
	return b, nil
}

// Promote makes a standby the primary.
func (s *Server) Promote(ctx context.Context) error {
	return s.run(ctx, "pg_ctl", "-D", "data", "-w", "promote")
}

// Dir returns the folder of the server and of its socket.
func (s *Server) Dir() string { return s.dir }

// Run runs a program of the server's user in its folder, such as PgBouncer, until ctx ends.
func (s *Server) Run(ctx context.Context, path string, arguments ...string) (wait func() error, err error) {
	command := exec.CommandContext(ctx, path, arguments...)
	command.Dir, command.SysProcAttr = s.dir, s.as
	return command.Wait, command.Start()
}

// Output runs a program of PostgreSQL, such as pg_dump, with the address of a database as its last
// argument, and returns what it writes.
func (s *Server) Output(ctx context.Context, database, program string, arguments ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, filepath.Join(s.bin, program), append(arguments, s.URL(database).String())...)
	var failed bytes.Buffer
	command.Stderr = &failed
	out, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", program, err, failed.String())
	}
	return out, err
}

// URL returns the address of a database of the server.
func (s *Server) URL(database string) *url.URL {
	return &url.URL{
		Scheme: "postgres", User: url.UserPassword(User, Password), Path: "/" + database,
		RawQuery: url.Values{"host": {s.dir}}.Encode(),
	}
}

// Main runs the tests of a package with a server in *use, which stays nil without PostgreSQL.
func Main(m *testing.M, use **Server) int {
	// What is not durable stays out of the log for long, so that a crash loses it.
	server, err := Start(context.Background(), "shared_buffers=64MB", "max_connections=200", "wal_writer_delay=10s")
	switch {
	case errors.Is(err, ErrMissing):
		return m.Run()
	case err != nil:
		fmt.Fprintln(os.Stderr, strings.TrimSpace(err.Error()))
		return 1
	}
	*use = server
	defer server.Stop() //nolint:errcheck // the tests have their result
	return m.Run()
}
