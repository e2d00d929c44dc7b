package service_test

import (
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
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
	name, diff, err := s.RulesChange(root, text)
	if err != nil || !strings.HasSuffix(name, ".diff") || !strings.Contains(string(diff), "+rules:") {
		t.Errorf("%s: %s, %v", name, diff, err)
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
