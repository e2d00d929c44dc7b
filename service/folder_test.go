package service_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/tool"
)

// everybody may do everything, by any token.
type everybody struct{}

func (everybody) Standing(_ context.Context, who toolcrib.Principal) (gate.Standing, error) {
	return gate.Standing{Principal: who, Token: everybody{}}, nil
}

func (everybody) Agent(string) error                           { return nil }
func (everybody) Offers(string, string) error                  { return nil }
func (everybody) Covers(string, string, json.RawMessage) error { return nil }
func (everybody) Room(context.Context) error                   { return nil }
func (everybody) Take(context.Context) error                   { return nil }

// open opens a new data folder, with one tool that asks; written counts its calls.
func open(t *testing.T) (s *service.Service, r *agent.Runner, written *int) {
	t.Helper()
	written = new(int)
	write := tool.MustFunc(toolcrib.Spec{Name: "write", Description: "Writes.", Effect: toolcrib.EffectNonIdempotentWrite},
		func(context.Context, toolcrib.Call, struct{}) (string, error) { *written++; return "written", nil })
	dir := t.TempDir()
	s = service.New(service.Options{
		DataDir: dir, Driver: "test", Notice: func(text string) { t.Error(text) },
		Runner: func(context.Context, store.RunRecord) (*agent.Runner, error) { return r, nil },
	})
	if err := s.Open(t.Context(), sqlite.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	g, err := gate.New(gate.Options{Tools: []toolcrib.Tool{write}, Availability: gate.Overrides{}, People: everybody{}})
	if err != nil {
		t.Fatal(err)
	}
	models := func(context.Context, journal.ModelInfo) (toolcrib.Model, error) {
		return script.New(script.Options{Bytes: []byte("- tool_calls: [{name: write, arguments: {}}]\n- text: done\n")})
	}
	r, err = agent.New(agent.Options{Gate: g, Models: models, Journal: s.Store(), Contents: s.Store()})
	if err != nil {
		t.Fatal(err)
	}
	return s, r, written
}

// start starts a run, which parks.
func start(t *testing.T, r *agent.Runner, who toolcrib.Principal, session toolcrib.SessionID) toolcrib.RunID {
	t.Helper()
	if session != "" {
		session = "ses_" + session
	}
	state, err := r.Run(t.Context(), agent.Task{
		Agent: toolcrib.Agent{Name: "a", Model: "demo"}, Models: []journal.ModelInfo{{Ref: "demo"}},
		Principal: who, Prompt: "Write.", Session: session, Workspace: t.TempDir(),
	})
	if err != nil || !state.Status.Parked() {
		t.Fatalf("%+v, %v", state, err)
	}
	return state.Run
}
