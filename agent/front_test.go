package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

// oneWord answers every approval with one word.
type oneWord struct {
	word  string
	asked int
}

func (p *oneWord) Decide(context.Context, toolcrib.RunID, *journal.ConfirmationRequired) (journal.ConfirmationResolved, bool, error) {
	p.asked++
	return journal.ConfirmationResolved{Decision: p.word}, true, nil
}

// front runs one call of a tool that writes, the short way.
func front(t *testing.T, o agent.Options, task agent.Task) (*toolcribtest.Tool, *agent.State, error) {
	t.Helper()
	write := toolcribtest.Writer("write", "written")
	o.Tools = []toolcrib.Tool{write}
	o.Model = toolcribtest.NewModel(toolcribtest.Ask(toolcribtest.CallOf("", "write", `{}`)), toolcribtest.Say("Done."))
	r, err := agent.New(o)
	if err != nil {
		t.Fatal(err)
	}
	task.Prompt = "Write."
	s, err := r.Run(t.Context(), task)
	return write, s, err
}

func TestFront_Approver(t *testing.T) {
	ada := toolcrib.Principal{User: "ada"}
	for name, c := range map[string]struct {
		task    agent.Task
		word    string
		who     toolcrib.Principal
		nobody  bool // no Approver
		asked   int
		calls   int
		answer  string
		failing string // in the error of Run
		waiting string // in the error of Answer
	}{
		"asked without being told to": {task: agent.Task{Principal: ada}, word: "approve", asked: 1, calls: 1, answer: "Done."},
		"denies":                      {task: agent.Task{Principal: ada}, word: "deny", asked: 1, answer: "Done."},
		"told to ask":                 {task: agent.Task{Principal: ada, Approve: agent.ApproveAsk}, word: "approve", asked: 1, calls: 1, answer: "Done."},
		"told not to":                 {task: agent.Task{Principal: ada, Approve: agent.ApproveNone}, word: "approve", waiting: "waits for an approval"},
		"told to refuse":              {task: agent.Task{Principal: ada, Approve: agent.ApproveDeny}, word: "approve", answer: "Done."},
		"no approver":                 {task: agent.Task{Principal: ada}, nobody: true, waiting: "waits for an approval"},
		"nobody approves":             {word: "approve", failing: "Principal.User is empty"},
		"nobody approves all":         {task: agent.Task{Approve: agent.ApproveAll}, nobody: true, failing: "Principal.User is empty"},
		"nobody, and none to ask":     {nobody: true, waiting: "waits for an approval"},
		"no word":                     {task: agent.Task{Principal: ada}, asked: 1, failing: "unknown decision"},
		"no known word":               {task: agent.Task{Principal: ada}, word: "yes", asked: 1, failing: "unknown decision"},
		"another person":              {who: toolcrib.Principal{User: "eve"}, task: agent.Task{Principal: ada}, word: "approve", asked: 1, waiting: "waits for an approval"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &oneWord{word: c.word}
			o := agent.Options{Approver: p, Host: agent.Host{Who: c.who}}
			if c.nobody {
				o.Approver = nil
			}
			write, s, err := front(t, o, c.task)
			if (err != nil) != (c.failing != "") || err != nil && !strings.Contains(err.Error(), c.failing) {
				t.Fatalf("error %v, want one with %q", err, c.failing)
			}
			if p.asked != c.asked || len(write.Calls()) != c.calls {
				t.Errorf("asked %d times and called %d times, want %d and %d", p.asked, len(write.Calls()), c.asked, c.calls)
			}
			if err != nil {
				return
			}
			answer, err := s.Answer()
			if answer != c.answer || (err != nil) != (c.waiting != "") || err != nil && !strings.Contains(err.Error(), c.waiting) {
				t.Errorf("answer %q, error %v, want %q, and an error with %q", answer, err, c.answer, c.waiting)
			}
		})
	}
}

// The short way has the same limits as the long way, and nothing about it is
// configured twice.
func TestFront_Defaults(t *testing.T) {
	_, s, err := front(t, agent.Options{}, agent.Task{Approve: agent.ApproveDeny})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Start.Agent.Limits; got != toolcrib.DefaultLimits() {
		t.Errorf("limits %+v, want the defaults", got)
	}
	own := &inmemory.Journal{}
	g, err := gate.New(gate.Options{Availability: gate.Overrides{}})
	if err != nil {
		t.Fatal(err)
	}
	model := toolcribtest.NewModel()
	open := func(context.Context, journal.ModelInfo) (toolcrib.Model, error) { return model, nil }
	for want, o := range map[string]agent.Options{
		"no model":         {},
		"Model and Models": {Model: model, Models: open},
		"Gate and Tools":   {Model: model, Gate: g, Tools: []toolcrib.Tool{toolcribtest.ReadOnly("a", "")}},
		"Journal but no":   {Model: model, Journal: own},
		"Contents but no":  {Model: model, Contents: own},
	} {
		if _, err := agent.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	twice := []toolcrib.Tool{toolcribtest.ReadOnly("a", ""), toolcribtest.ReadOnly("a", "")}
	if _, err := agent.New(agent.Options{Model: model, Tools: twice}); err == nil {
		t.Error("two tools of one name make a runner")
	}
}

func TestAnswer_Failed(t *testing.T) {
	r, err := agent.New(agent.Options{Model: toolcribtest.NewModel(toolcribtest.Fail(toolcrib.ErrAuth))})
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Run(t.Context(), agent.Task{Prompt: "Hello."})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Answer()
	var told *toolcrib.Error
	if !errors.As(err, &told) || told.Code != toolcrib.CodeProviderFailed || told.Message == "" {
		t.Errorf("error %v, want provider_failed that says why", err)
	}
}
