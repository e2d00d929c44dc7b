package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// The limits of a session apply before each request, with the usage of its other runs; if that cannot
// be read, no request is sent.
func TestSessionLimits(t *testing.T) {
	limits := func(l toolcrib.SessionLimits) agent.Task {
		return agent.Task{
			Agent:     toolcrib.Agent{Name: "default", Session: l},
			Principal: toolcrib.Principal{User: "ann"}, Session: "work", Prompt: "hi",
			Models: []journal.ModelInfo{{Ref: "x", ID: "x", Price: toolcrib.Price{Input: 1, Output: 1, Known: true}}},
		}
	}
	for name, c := range map[string]struct {
		limits toolcrib.SessionLimits
		above  toolcrib.SessionLimits
		before journal.SessionUse
		tree   journal.SessionUse
		says   string
	}{
		"none":            {before: journal.SessionUse{CostUSD: 9, Tokens: 9, Worked: time.Hour}},
		"room":            {limits: toolcrib.SessionLimits{MaxCostUSD: 3, MaxTokens: 30, WallTime: time.Hour}, before: journal.SessionUse{CostUSD: 1, Tokens: 10}, tree: journal.SessionUse{CostUSD: 1, Tokens: 19}},
		"cost":            {limits: toolcrib.SessionLimits{MaxCostUSD: 2}, before: journal.SessionUse{CostUSD: 1.5}, tree: journal.SessionUse{CostUSD: 0.5}, says: "budget_exhausted session.max_cost_usd: 2 of 2 spent"},
		"tokens":          {limits: toolcrib.SessionLimits{MaxTokens: 30}, before: journal.SessionUse{Tokens: 10}, tree: journal.SessionUse{Tokens: 20}, says: "budget_exhausted session.max_tokens: 30 of 30 used"},
		"time":            {limits: toolcrib.SessionLimits{WallTime: time.Minute}, before: journal.SessionUse{Worked: time.Minute}, says: "wall_time session.wall_time: 1m0s used up"},
		"of a run above":  {limits: toolcrib.SessionLimits{MaxTokens: 30}, above: toolcrib.SessionLimits{MaxTokens: 20}, tree: journal.SessionUse{Tokens: 20}, says: "budget_exhausted session.max_tokens: 20 of 20 used"},
		"its own is less": {limits: toolcrib.SessionLimits{MaxTokens: 20}, above: toolcrib.SessionLimits{MaxTokens: 30}, tree: journal.SessionUse{Tokens: 20}, says: "budget_exhausted session.max_tokens: 20 of 20 used"},
	} {
		t.Run(name, func(t *testing.T) {
			task := limits(c.limits)
			task.Before, task.Above = c.before, &journal.Above{Session: c.above}
			runner, err := agent.New(agent.Options{
				Models: func(context.Context, journal.ModelInfo) (toolcrib.Model, error) {
					return toolcribtest.NewModel(toolcribtest.Say("yes")), nil
				},
				Host: agent.Host{TreeUse: func(context.Context, toolcrib.RunID) (journal.SessionUse, error) { return c.tree, nil }},
			})
			if err != nil {
				t.Fatal(err)
			}
			s, err := runner.Run(t.Context(), task)
			if err != nil || s.Done == nil {
				t.Fatalf("%+v, error %v", s, err)
			}
			said := ""
			if s.Stopping != nil {
				said = string(s.Done.StopReason) + " " + s.Stopping.Message
			}
			if (said == "") != (c.says == "") || !strings.HasPrefix(said, c.says) || (s.Usage.Requests == 0) != (c.says != "") {
				t.Errorf("%q after %d requests, want %q", said, s.Usage.Requests, c.says)
			}
		})
	}

	runner, err := agent.New(agent.Options{Model: toolcribtest.NewModel(toolcribtest.Say("yes"))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runner.Run(t.Context(), limits(toolcrib.SessionLimits{MaxTokens: 1})); toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
		t.Errorf("without TreeUse: %v", err)
	}
	broken := errors.New("the disk is gone")
	runner, err = agent.New(agent.Options{
		Model: toolcribtest.NewModel(toolcribtest.Say("yes")),
		Host:  agent.Host{TreeUse: func(context.Context, toolcrib.RunID) (journal.SessionUse, error) { return journal.SessionUse{}, broken }},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := runner.Run(t.Context(), limits(toolcrib.SessionLimits{MaxTokens: 1})); !errors.Is(err, broken) || s.Usage.Requests != 0 {
		t.Errorf("%+v, error %v", s, err)
	}
}
