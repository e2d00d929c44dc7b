//go:build unix

package doctor_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/doctor"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store/postgres"
)

var root = toolcrib.Principal{User: "local:root", Admin: true}

// cluster is a database of several servers.
type cluster struct {
	t            *testing.T
	dir, address string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	database, err := postgrestest.Start(t.Context())
	if errors.Is(err, postgrestest.ErrMissing) {
		t.Skip("SKIPPED: ", err, "; servers with one PostgreSQL were not examined")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := database.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{t: t, dir: t.TempDir(), address: database.URL("postgres").String()}
	script := "- tool_calls: [{name: write_file, arguments: {path: out.txt, content: hello}}]\n- {text: done}\n"
	keys := filepath.Join(c.dir, "keys")
	_, err = postgres.Migrate(t.Context(), c.address, postgres.MigrateOptions{Keys: keys})
	if err = errors.Join(err, os.WriteFile(filepath.Join(c.dir, "asks.script"), []byte(script), 0o600)); err != nil {
		t.Fatal(err)
	}
	return c
}

// process returns a process with a data folder of its own, or the one named, which has more in its configuration.
func (c *cluster) process(folder, keys, more string) *service.Service {
	c.t.Helper()
	path := filepath.Join(c.dir, "toolcrib.yaml")
	text := "database: '" + c.address + "'\nkeys: '" + filepath.Join(c.dir, keys) + "'\n" +
		"providers: {asks: {type: script, file: asks.script}}\nagents: {default: {model: asks/x}}\n" + more
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	conf, err := config.Load(config.Source{Path: path, Origin: config.OriginFlag}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	s := service.New(env.Options{
		Config: conf, DataDir: filepath.Join(c.dir, folder), Driver: env.DriverServer, NoSandbox: func() string { return "" },
		Started: time.Now(),
	})
	c.t.Cleanup(func() { _ = s.Close() })
	return s
}

// serve starts a server.
func (c *cluster) serve(folder, more string) (s *service.Service, stop func()) {
	c.t.Helper()
	s = c.process(folder, "keys", more)
	err := s.Env.Open(c.t.Context())
	var p *service.Pool
	if err == nil {
		p, err = s.NewPool(slog.New(slog.DiscardHandler), nil)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	stop = func() { _ = p.Close(context.Background()) }
	c.t.Cleanup(stop)
	waittest.Until(c.t, "the server describes itself", func() bool {
		all, err := s.Drivers.Servers(c.t.Context())
		for _, one := range all {
			if one.Owner.ID == s.Env.Owner().ID {
				return true
			}
		}
		return err != nil
	})
	return s, stop
}

// examine returns the findings of doctor --server, by their names.
func examine(t *testing.T, s *service.Service) map[string]doctor.Finding {
	t.Helper()
	_ = s.Env.Open(t.Context()) // the check of the database reports the error
	d := &doctor.Doctor{Env: s.Env, Models: s.Models, MCP: s.MCP, People: s.People, Policy: s.Policy, Drivers: s.Drivers}
	all, err := d.ExamineServer(t.Context(), root, func(context.Context, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]doctor.Finding{}
	for _, f := range all {
		found[f.Check] = f
	}
	return found
}

// finds reports whether a check has found this.
func finds(t *testing.T, found map[string]doctor.Finding, check string, ok bool, texts ...string) {
	t.Helper()
	f := found[check]
	if f.OK != ok || !ok && f.Fix == "" || f.Choice && f.Fix == "" {
		t.Errorf("%s: %+v", check, f)
	}
	for _, text := range texts {
		if !strings.Contains(f.Detail+" → "+f.Fix, text) {
			t.Errorf("%s has no %q: %+v", check, text, f)
		}
	}
}

func TestExamineServer_AllWell(t *testing.T) {
	c := newCluster(t)
	s, _ := c.serve("a", "")
	if _, err := s.Env.SetSecret(t.Context(), root, "acme", []byte("correct-horse-battery")); err != nil {
		t.Fatal(err)
	}
	found := examine(t, c.process("a", "keys", ""))
	site, err := s.Env.Site()
	if err != nil {
		t.Fatal(err)
	}
	finds(t, found, "keys", true, "sealed with these keys")
	finds(t, found, "secrets", true, "1 stored secret")
	finds(t, found, "clock", true, "1 running server")
	finds(t, found, "workspaces", true, site, "shared by all")
	finds(t, found, "servers", true, "1 running server")
}

// Each difference between servers is named, with what to do.
func TestExamineServer_Differences(t *testing.T) {
	c := newCluster(t)
	if err := os.WriteFile(filepath.Join(c.dir, "others"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a, stop := c.serve("a", "")
	workspace, err := a.Policy.OwnWorkspace(toolcrib.Principal{User: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	run, err := a.Start(t.Context(), toolcrib.Principal{User: "ann"}, service.StartRequest{
		Prompt: "Go.", Workspace: workspace, Approve: agent.ApproveNone,
	}, service.Front{})
	if err != nil || run.Status != toolcrib.StatusWaitingForApproval {
		t.Fatalf("%+v, %v", run, err)
	}
	b, _ := c.serve("b", "log: {level: warn}\n")
	about := `{"name":"late:1","version":"0.0.1","schema":23,"config":"x","site":"site_x","ahead_ms":-90000}`
	if _, err := b.Env.Store.TakeLease(t.Context(), "server late", time.Hour, false); err != nil {
		t.Fatal(err)
	}
	if err := b.Env.Store.Describe(t.Context(), "server late", about); err != nil {
		t.Fatal(err)
	}
	found := examine(t, c.process("b", "keys", ""))
	finds(t, found, "clock", false, "server late:1 is -1m30s", "NTP")
	finds(t, found, "workspaces", true, "bound", "servers with this folder", "late:1 (site_x)")
	finds(t, found, "servers", true, "3 running servers", "another configuration", "another version", "another schema: 23",
		"the same version and configuration")
	if !found["servers"].Choice {
		t.Errorf("servers may differ: %+v", found["servers"])
	}

	stop()
	found = examine(t, c.process("b", "keys", ""))
	finds(t, found, "workspaces", false, "1 run in the folder of workspaces site_", "no running server has", "start the server")

	keys, err := os.ReadFile(filepath.Join(c.dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	other := []byte(strings.Map(func(r rune) rune {
		if r == '2' {
			return '3'
		}
		return r
	}, string(keys)))
	if err := os.WriteFile(filepath.Join(c.dir, "others"), other, 0o600); err != nil {
		t.Fatal(err)
	}
	found = examine(t, c.process("b", "others", ""))
	finds(t, found, "keys", false, "copy the key file from another server")
	finds(t, found, "secrets", false, "see database")
}
