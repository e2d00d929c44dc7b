package e2e

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/replay"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// impatient is the machine's clock without waiting.
type impatient struct{}

func (impatient) Now() time.Time                                   { return time.Now() }
func (impatient) Awake() time.Duration                             { return time.Duration(time.Now().UnixNano()) }
func (impatient) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

type nothingSwitched struct{}

func (nothingSwitched) Overrides(context.Context) (gate.Overrides, error) {
	return gate.Overrides{}, nil
}

// openStore opens a new database.
func openStore(t testing.TB) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "toolcrib.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// shelf are the tools of a test: what they did, by call ID.
type shelf struct {
	mu  sync.Mutex
	ran map[string]int
}

// did counts a call.
func (s *shelf) did(c toolcrib.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ran == nil {
		s.ran = map[string]int{}
	}
	s.ran[c.ID+" "+string(c.Arguments)]++
}

// counts returns what ran so far.
func (s *shelf) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]int, len(s.ran))
	for k, n := range s.ran {
		out[k] = n
	}
	return out
}

// tool is a tool made of a function.
type tool struct {
	spec toolcrib.Spec
	on   *shelf
	do   func(ctx context.Context, c toolcrib.Call) (toolcrib.Output, error)
}

func (f *tool) Spec() toolcrib.Spec { return f.spec }

func (f *tool) Call(ctx context.Context, c toolcrib.Call) (toolcrib.Output, error) {
	f.on.did(c)
	return f.do(ctx, c)
}

// tools are what the scenarios call: weather reads, note writes, broken fails.
func (s *shelf) tools() []toolcrib.Tool {
	spec := func(name string, effect toolcrib.Effect) toolcrib.Spec {
		return toolcrib.Spec{
			Name: name, Description: "The tool " + name + " of a test.", Effect: effect, EnabledByDefault: true, Source: "go",
			Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}`),
		}
	}
	return []toolcrib.Tool{
		&tool{spec: spec("weather", toolcrib.EffectReadOnly), on: s, do: func(_ context.Context, c toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{JSON: json.RawMessage(`{"sky":"clear","asked":` + string(c.Arguments) + `}`)}, nil
		}},
		&tool{spec: spec("note", toolcrib.EffectNonIdempotentWrite), on: s, do: func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{Text: "noted"}, nil
		}},
		&tool{spec: spec("broken", toolcrib.EffectReadOnly), on: s, do: func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{}, toolcrib.Failf(toolcrib.NotFound, "no such city")
		}},
	}
}

// newGate makes a gate over tools.
func newGate(t testing.TB, o gate.Options) *gate.Gate {
	t.Helper()
	if o.Availability == nil {
		o.Availability = nothingSwitched{}
	}
	g, err := gate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// newRunner makes a runner over a database and one model for each name of a provider.
func newRunner(t testing.TB, s *sqlite.Store, g *gate.Gate, models map[string]toolcrib.Model) *agent.Runner {
	t.Helper()
	r, err := agent.New(agent.Options{
		Journal: s, Contents: s, Gate: g,
		Models: func(_ context.Context, m journal.ModelInfo) (toolcrib.Model, error) { return models[m.Provider], nil },
		Host:   agent.Host{Clock: impatient{}, Worker: "e2e"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// events returns the journal of a run, and goes through it once more: every journal
// that a test leaves behind must come out the same.
func events(t testing.TB, s *sqlite.Store, run toolcrib.RunID) []toolcrib.Event {
	t.Helper()
	var all []toolcrib.Event
	for e, err := range s.Read(context.Background(), run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if _, err := s.Verify(context.Background(), run); err != nil {
		t.Error(err)
	}
	if _, err := replay.Run(context.Background(), s, run); err != nil {
		t.Errorf("replay: %v", err)
	}
	return all
}
