package service_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/people"
)

// A restored backup has no sessions: those that have ended since would be back. Passwords are as they were.
func TestRestore_EndsSessions(t *testing.T) {
	const password = "correct horse battery"
	s, ctx, dir := open(t), t.Context(), t.TempDir()
	if _, err := s.People.AddUser(ctx, root, access.NewUser{User: access.User{Name: "anna"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.People.SetPassword(ctx, root, "anna", password); err != nil {
		t.Fatal(err)
	}
	in, err := s.People.SignIn(ctx, "anna", password, people.Client{Address: "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	link, err := s.People.PasswordLink(ctx, root, "anna")
	if err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(dir, "backup.tar")
	if _, _, err := s.Backup(ctx, root, backup); err != nil {
		t.Fatal(err)
	}
	restored := service.New(env.Options{DataDir: filepath.Join(dir, "data")})
	t.Cleanup(func() { _ = restored.Close() })
	if _, err := restored.Restore(ctx, backup); err != nil {
		t.Fatal(err)
	}
	if err := restored.Env.OpenFor(ctx, root); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.People.ActBySession(ctx, in.Cookie, true); err != nil {
		t.Fatal(err)
	}
	_, _, err = restored.People.ActBySession(ctx, in.Cookie, true)
	has(t, "the session", err, toolcrib.CodeUnauthorized)
	_, err = restored.People.LinkUser(ctx, strings.TrimPrefix(link.Link, people.LinkPath), "192.0.2.1")
	has(t, "the link", err, toolcrib.CodeUnauthorized)
	if _, err := restored.People.SignIn(ctx, "anna", password, people.Client{Address: "192.0.2.1"}); err != nil {
		t.Error(err)
	}
	if _, err := restored.Env.Store.VerifyAll(ctx); err != nil {
		t.Error(err)
	}
}

// If the keys cannot be restored, neither is the database: its content could not be trusted, and the secrets could not
// be read.
func TestRestore_NoFolderForKeys(t *testing.T) {
	dir := t.TempDir()
	backup, path := filepath.Join(dir, "backup.tar"), filepath.Join(dir, "toolcrib.yaml")
	if _, _, err := open(t).Backup(t.Context(), root, backup); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("keys: nowhere/keys\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Source{Path: path, Origin: config.OriginFlag}, nil)
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	_, err = service.New(env.Options{Config: c, DataDir: data}).Restore(t.Context(), backup)
	if left, _ := os.ReadDir(data); !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
		t.Errorf("%v, with %v in the data folder", err, left)
	}
}
