//go:build unix

package people_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/store/postgres"
)

// onServers returns the people of n servers of one PostgreSQL database.
func onServers(t *testing.T, n int) ([]*people.People, *postgrestest.Server, string) {
	t.Helper()
	server, err := postgrestest.Start(t.Context())
	if errors.Is(err, postgrestest.ErrMissing) {
		t.Skip("initdb is missing; install PostgreSQL")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	keys := filepath.Join(t.TempDir(), "keys")
	if _, err := postgres.Migrate(t.Context(), server.URL("postgres").String(), postgres.MigrateOptions{Keys: keys}); err != nil {
		t.Fatal(err)
	}
	all := make([]*people.People, n)
	for i := range all {
		all[i] = onDatabase(t, server.URL("postgres").String(), keys)
	}
	return all, server, keys
}

// onDatabase returns the people of a database.
func onDatabase(t *testing.T, at, keys string) *people.People {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "toolcrib.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "database: %q\nkeys: %q\n", at, keys), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Source{Path: file, Origin: config.OriginFlag}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := service.New(env.Options{Config: c, DataDir: filepath.Join(dir, "data")})
	if err := s.Env.OpenFor(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.People
}

// A restored dump has no sessions: those that have ended since would be back.
func TestSession_RestoredDump(t *testing.T) {
	all, server, keys := onServers(t, 1)
	p, ctx := all[0], t.Context()
	if _, err := p.AddUser(ctx, root, access.NewUser{User: access.User{Name: "anna"}}); err != nil {
		t.Fatal(err)
	}
	if err := p.SetPassword(ctx, root, "anna", password); err != nil {
		t.Fatal(err)
	}
	in, err := p.SignIn(ctx, "anna", password, at("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := server.Output(ctx, "postgres", "pg_dump", "--schema=toolcrib")
	if err != nil {
		t.Fatal(err)
	}
	dump := filepath.Join(t.TempDir(), "dump.sql")
	if err := os.WriteFile(dump, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Output(ctx, "postgres", "psql", "-q", "-c", "CREATE DATABASE restored"); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Output(ctx, "restored", "psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", dump); err != nil {
		t.Fatal(err)
	}
	restored := onDatabase(t, server.URL("restored").String(), keys)
	if code := sessionCode(restored.ActBySession(ctx, in.Cookie, true)); code != toolcrib.CodeUnauthorized {
		t.Errorf("the session: %v", code)
	}
	if list, err := restored.WebSessions(ctx, root, "*"); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := restored.SignIn(ctx, "anna", password, at("192.0.2.1")); err != nil {
		t.Error(err)
	}
	if _, _, err := p.ActBySession(ctx, in.Cookie, true); err != nil {
		t.Errorf("the session in the original: %v", err)
	}
}

// Servers of one database know each other's sessions and passwords, and count failures together.
func TestSignIn_TwoServers(t *testing.T) {
	all, _, _ := onServers(t, 2)
	one, two := all[0], all[1]
	ctx := t.Context()
	if _, err := one.AddUser(ctx, root, access.NewUser{User: access.User{Name: "anna"}}); err != nil {
		t.Fatal(err)
	}
	if err := one.SetPassword(ctx, root, "anna", password); err != nil {
		t.Fatal(err)
	}
	in, err := two.SignIn(ctx, "anna", password, at("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	if who, _, err := one.ActBySession(ctx, in.Cookie, true); err != nil || who.User != "anna" {
		t.Errorf("%+v, %v", who, err)
	}
	sealed, err := one.Sealed("test", "text")
	var text string
	if ok, no := two.Unsealed("test", sealed, &text); err != nil || no != nil || !ok || text != "text" {
		t.Errorf("%v, %v, %q", err, no, text)
	}
	l, err := one.PasswordLink(ctx, root, "anna")
	if err != nil {
		t.Fatal(err)
	}
	var used atomic.Int64
	var waiting sync.WaitGroup
	for _, p := range all {
		waiting.Go(func() {
			if _, err := p.UseLink(context.WithoutCancel(ctx), strings.TrimPrefix(l.Link, people.LinkPath), "another good password", "192.0.2.1"); err == nil {
				used.Add(1)
			}
		})
	}
	waiting.Wait()
	if used.Load() != 1 {
		t.Errorf("the link was used %d times", used.Load())
	}
	for _, p := range all {
		if _, _, err := p.ActBySession(ctx, in.Cookie, true); toolcrib.CodeOf(err) != toolcrib.CodeUnauthorized {
			t.Errorf("after the password was changed: %v", err)
		}
	}
	stopped(all...)
	for i := range 6 {
		_, err = all[i%2].SignIn(ctx, "anna", "a wrong password", at("198.51.100.1"))
	}
	if toolcrib.CodeOf(err) != toolcrib.CodeRateLimited {
		t.Errorf("the sixth failure: %v", err)
	}
}
