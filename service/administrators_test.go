package service_test

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/doctor"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// Operations for administrators are refused to everyone else: to a user, to a token of an administrator, and to a
// principal without a name. What users may see about themselves shows nothing about others.
func TestAdministrators(t *testing.T) {
	s := open(t)
	started, err := s.Start(t.Context(), root, service.StartRequest{Prompt: "Write.", Workspace: t.TempDir()},
		service.Front{})
	if err != nil {
		t.Fatal(err)
	}
	run := string(started.ID)
	if _, err := s.People.AddUser(t.Context(), root, access.NewUser{User: access.User{Name: "ann"}}); err != nil {
		t.Fatal(err)
	}
	token, err := s.People.CreateToken(t.Context(), root, people.TokenRequest{User: "ann", Via: "cli"})
	if err != nil || token.Token == "" {
		t.Fatalf("%+v, %v", token, err)
	}
	if _, err := s.Env.SetSecret(t.Context(), root, "key", []byte("sk-1234567890")); err != nil {
		t.Fatal(err)
	}
	for name, do := range forAdministrators(s, run, token.ID, filepath.Join(t.TempDir(), "backup.tar")) {
		for _, who := range []toolcrib.Principal{{User: "ann"}, {User: "local:root", Admin: true, Token: "tok_a"}, {}} {
			if err := do(t.Context(), who); toolcrib.CodeOf(err) != toolcrib.CodeForbidden {
				t.Errorf("%s by %+v: %v", name, who, err)
			}
		}
	}
	unchanged(t, s, root, token.ID)
	ownOnly(t, s)
	for name, code := range map[string]toolcrib.Code{
		"import": toolcrib.CodeBadRequest, "models": toolcrib.CodeBadRequest, "check token": toolcrib.CodeTokenInvalid,
		"notify": toolcrib.CodeNotFound, "remove group": toolcrib.CodeNotFound, "prune": toolcrib.CodeConflict,
	} {
		do := forAdministrators(s, run, token.ID, "")[name]
		has(t, name, do(t.Context(), root), code)
	}
}

// forAdministrators are the operations for administrators.
func forAdministrators(s *service.Service, run, token, backup string) map[string]func(context.Context, toolcrib.Principal) error {
	type (
		ctx = context.Context
		who = toolcrib.Principal
	)
	return map[string]func(ctx, who) error{
		"audit":  func(c ctx, w who) error { _, err := s.People.Audit(c, w, store.AuditFilter{}, ""); return err },
		"export": func(c ctx, w who) error { return s.People.ExportAudit(c, w, io.Discard, store.ExportOptions{}) },
		"verify": func(c ctx, w who) error { _, err := s.Verify(c, w, "", nil); return err },
		"damage": func(c ctx, w who) error { return s.People.AcceptDamage(c, w) },
		"head":   func(c ctx, w who) error { _, err := s.People.Head(c, w); return err },
		"prune": func(c ctx, w who) error {
			_, err := s.Prune(c, w, service.PruneRequest{Runs: []string{run}})
			return err
		},
		"import": func(c ctx, w who) error { _, _, err := s.ImportRun(c, w, strings.NewReader("")); return err },
		"backup": func(c ctx, w who) error { _, _, err := s.Backup(c, w, backup); return err },
		"users":  func(c ctx, w who) error { _, err := s.People.Users(c, w); return err },
		"user":   func(c ctx, w who) error { _, err := s.People.User(c, w, "ann"); return err },
		"add": func(c ctx, w who) error {
			_, err := s.People.AddUser(c, w, access.NewUser{User: access.User{Name: "bob"}})
			return err
		},
		"edit": func(c ctx, w who) error {
			_, _, err := s.People.EditUser(c, w, "ann", access.Edit{Admin: new(bool)})
			return err
		},
		"remove":       func(c ctx, w who) error { _, err := s.People.RemoveUser(c, w, "ann"); return err },
		"groups":       func(c ctx, w who) error { _, err := s.People.Groups(c, w); return err },
		"put group":    func(c ctx, w who) error { _, _, err := s.People.PutGroup(c, w, "crew", access.GroupEdit{}); return err },
		"remove group": func(c ctx, w who) error { _, err := s.People.RemoveGroup(c, w, "crew"); return err },
		"tokens":       func(c ctx, w who) error { _, err := s.People.Tokens(c, w, ""); return err },
		"create token": func(c ctx, w who) error {
			_, err := s.People.CreateToken(c, w, people.TokenRequest{User: "ann"})
			return err
		},
		"revoke token": func(c ctx, w who) error { _, _, err := s.People.RevokeToken(c, w, token, false); return err },
		"check token":  func(c ctx, w who) error { _, err := s.People.CheckToken(c, w, "x"); return err },
		"secrets":      func(_ ctx, w who) error { _, err := s.Env.Secrets(w); return err },
		"set secret":   func(c ctx, w who) error { _, err := s.Env.SetSecret(c, w, "mine", []byte("sk-0987654321")); return err },
		"no secret":    func(c ctx, w who) error { _, err := s.Env.RemoveSecret(c, w, "key"); return err },
		"notify":       func(c ctx, w who) error { _, err := s.TestNotify(c, w, true); return err },
		"models":       func(_ ctx, w who) error { _, err := s.Models.RefreshModels(w, strings.NewReader("{")); return err },
		"doctor":       func(c ctx, w who) error { _, err := doctorOf(s).Examine(c, w); return err },
		"data":         func(c ctx, w who) error { _, err := doctorOf(s).ExamineData(c, w); return err },
		"servers":      func(c ctx, w who) error { _, err := doctorOf(s).ExamineProviders(c, w); return err },
		"backtest":     func(c ctx, w who) error { _, err := s.Policy.Backtest(c, w, policy.BacktestRequest{}); return err },
	}
}

// unchanged checks that nothing was changed.
func unchanged(t *testing.T, s *service.Service, root toolcrib.Principal, token string) {
	t.Helper()
	users, err := s.People.Users(t.Context(), root)
	if err != nil || len(users) != 1 || users[0].Name != "ann" {
		t.Errorf("users %+v, %v", users, err)
	}
	tokens, err := s.People.Tokens(t.Context(), root, "")
	if err != nil || len(tokens) != 1 || tokens[0].ID != token || tokens[0].State != people.TokenGood {
		t.Errorf("tokens %+v, %v", tokens, err)
	}
	secrets, err := s.Env.Secrets(root)
	if err != nil || len(secrets) != 1 || secrets[0].Name != "key" {
		t.Errorf("secrets %+v, %v", secrets, err)
	}
	if _, err := s.Run(t.Context(), root, "last"); err != nil {
		t.Error(err)
	}
}

// ownOnly calls the operations that are open to all, as a user who has nothing.
func ownOnly(t *testing.T, s *service.Service) {
	t.Helper()
	for _, who := range []toolcrib.Principal{{User: "ann"}, {User: "local:root", Admin: true, Token: "tok_a"}} {
		u, err := s.Usage(t.Context(), who, store.UsageQuery{})
		if err != nil || len(u.Rows) != 0 || u.Total.Requests != 0 {
			t.Errorf("usage of %+v: %+v, %v", who, u, err)
		}
		if list, err := s.Policy.Remembered(t.Context(), who, true, 0); err != nil || len(list) != 0 {
			t.Errorf("remembered of %+v: %+v, %v", who, list, err)
		}
	}
	_, err := s.Usage(t.Context(), toolcrib.Principal{User: "ann"}, store.UsageQuery{User: "local:root"})
	has(t, "the usage of another", err, toolcrib.CodeForbidden)
	_, err = s.Usage(t.Context(), toolcrib.Principal{}, store.UsageQuery{})
	has(t, "the usage of nobody", err, toolcrib.CodeForbidden)
	_, err = s.Policy.Agents(t.Context(), toolcrib.Principal{})
	has(t, "agents, by nobody", err, toolcrib.CodeUnauthorized)
	_, err = s.Models.List(toolcrib.Principal{}, "", true)
	has(t, "models, by nobody", err, toolcrib.CodeUnauthorized)
	_, err = s.Policy.Tools(t.Context(), toolcrib.Principal{})
	has(t, "tools, by nobody", err, toolcrib.CodeUnauthorized)
	for _, who := range []toolcrib.Principal{{User: "ann"}, {}} {
		_, _, err = s.Policy.Forget(t.Context(), who, "rem_0123456789abcdef0123")
		has(t, "what another remembers", err, toolcrib.CodeNotFound)
		has(t, "the journal of another", s.ExportRun(t.Context(), who, "last", io.Discard), toolcrib.CodeNotFound)
		found, err := s.Replay(t.Context(), who, "")
		if err != nil || len(found) != 0 {
			t.Errorf("replayed by %+v: %+v, %v", who, found, err)
		}
	}
}

// If many operations begin at once, the first of them records a new configuration, once.
func TestConfigurationIsRecordedOnce(t *testing.T) {
	s := open(t)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if err := s.Env.OpenFor(t.Context(), root); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	page, err := s.People.Audit(t.Context(), root,
		store.AuditFilter{Kinds: []toolcrib.Kind{store.SystemConfigChanged}}, "")
	if err != nil || len(page.Entries) != 1 {
		t.Errorf("%d entries, want one: %v", len(page.Entries), err)
	}
}

func doctorOf(s *service.Service) *doctor.Doctor {
	return &doctor.Doctor{Env: s.Env, Models: s.Models, MCP: s.MCP, People: s.People, Policy: s.Policy}
}
