package service_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

const denies = "rules:\n  - {name: never, tools: [write_file], then: deny}\n"

func TestTryRules(t *testing.T) {
	s := open(t)
	dir := t.TempDir()
	run, err := s.Start(t.Context(), root, service.StartRequest{Prompt: "go", Workspace: dir}, service.Front{})
	if err != nil || run.Pending == nil {
		t.Fatal(run.Status, err)
	}
	v, err := s.Approval(t.Context(), root, run.Pending.ApprovalID)
	if err == nil {
		_, err = s.Decide(t.Context(), root, v, service.Decision{
			CallDecision: journal.CallDecision{Decision: journal.DecisionApprove}, Digest: v.Digest,
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	trial, err := s.TryRules(t.Context(), root, denies)
	if err != nil || trial.Summary.Narrower != 1 || len(trial.Changes) != 1 || trial.Changes[0].New.Rule != "never" {
		t.Errorf("%+v %v", trial, err)
	}
	if len(s.Env.Config.Rules) != 0 {
		t.Error("a trial has changed the configuration")
	}
	trial, err = s.TryRules(t.Context(), root, "rules:\n  - {name: never, when: 'usr == 1', then: deny}\n")
	if err != nil || len(trial.Problems) != 1 || trial.Problems[0].Line < 4 || trial.Problems[0].Column == 0 {
		t.Errorf("%+v %v", trial.Problems, err)
	}
	list, runs, stopped, err := s.ProposeRules(t.Context(), root)
	if err != nil || len(list) != 1 || list[0].Calls != 1 || runs != 1 || stopped {
		t.Errorf("%+v of %d runs, %v, %v", list, runs, stopped, err)
	}
	text, err := s.AddRule(root, "", list[0].Line())
	if err != nil {
		t.Fatal(err)
	}
	if trial, err = s.TryRules(t.Context(), root, text); err != nil || trial.Summary.Wider != 1 {
		t.Errorf("%+v %v", trial, err)
	}
	text += "  - {name: a, then: ask}\n" + strings.Repeat("# x\n", 9) + "  - {name: b, then: ask}\n"
	name, diff, err := s.RulesChange(root, text)
	if err != nil || !strings.HasSuffix(name, ".diff") || !strings.Contains(string(diff), "+rules:") {
		t.Errorf("%s: %s, %v", name, diff, err)
	}
	patched(t, s.Env.Config.File(), diff, text)
	for _, next := range []string{ // of a file with rules
		strings.Replace(strings.Replace(text, "name: a", "name: other", 1), "name: b", "name: c", 1), "",
	} {
		c, err := config.Load(config.Source{Path: s.Env.Config.File(), Origin: config.OriginFlag}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, diff, err = s.Under(c).RulesChange(root, next); err != nil {
			t.Fatal(err)
		}
		patched(t, s.Env.Config.File(), diff, next)
	}
	user := toolcrib.Principal{User: "alice"}
	_, err = s.TryRules(t.Context(), user, denies)
	has(t, "a trial by a user", err, toolcrib.CodeForbidden)
	_, err = s.Rules(user)
	has(t, "rules for a user", err, toolcrib.CodeForbidden)
	_, _, _, err = s.ProposeRules(t.Context(), user)
	has(t, "proposals for a user", err, toolcrib.CodeForbidden)
	_, _, err = s.RulesChange(user, denies)
	has(t, "a change for a user", err, toolcrib.CodeForbidden)
	_, err = s.AddRule(root, "", "- {name: x}\nlisten: 0.0.0.0:1")
	has(t, "a rule of two lines", err, toolcrib.CodeBadRequest)
}

// patched applies a change to a file with the program patch.
func patched(t *testing.T, file string, diff []byte, want string) {
	t.Helper()
	program, err := exec.LookPath("patch")
	if err != nil {
		t.Log("SKIPPED: the change was not applied; install patch: apt-get install patch")
		return
	}
	patch := exec.CommandContext(t.Context(), program, "--posix", "--forward")
	patch.Dir, patch.Stdin = filepath.Dir(file), bytes.NewReader(diff)
	if out, err := patch.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, diff)
	}
	after, err := os.ReadFile(file)
	if err != nil || !strings.HasSuffix(string(after), want) || !strings.HasPrefix(string(after), house) {
		t.Errorf("the file with the change: %s (%v)", after, err)
	}
}
