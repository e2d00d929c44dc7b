package team_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
	"github.com/toolcrib/toolcrib/provider/texttag"
	"github.com/toolcrib/toolcrib/team"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/tool/verify"
	"github.com/toolcrib/toolcrib/tool/web"
)

// world is a team whose agents say what a test has them say.
type world struct {
	t       testing.TB
	journal *inmemory.Journal
	into    toolcrib.Journal // what is appended to; nil = journal
	agents  map[string]func(n int, req *toolcrib.Request) ([]toolcrib.Delta, error)
	price   map[string]toolcrib.Price
	text    map[string]bool // agents that call tools by text
	system  string
	taint   string // taint.writes of the agents
	session toolcrib.SessionID
	never   map[string]toolcrib.Model // agents whose model gives no answer
	web     *web.Options              // of fetch; nil = one that returns page
	page    string                    // what fetch returns

	mu       sync.Mutex
	requests map[string][]*toolcrib.Request
	fetched  []string
}

// dollar is the price at which each request of a test costs 120 millionths of a dollar.
var dollar = toolcrib.Price{Input: 1, Output: 2, Known: true} //nolint:gochecknoglobals // a constant, if Go had them

func newWorld(t testing.TB) *world {
	return &world{
		t: t, journal: &inmemory.Journal{}, agents: map[string]func(int, *toolcrib.Request) ([]toolcrib.Delta, error){},
		requests: map[string][]*toolcrib.Request{}, price: map[string]toolcrib.Price{}, text: map[string]bool{},
		system: "You are a test.", page: "evidence",
	}
}

// says lets an agent give these replies, one after another, and then the last again.
func (w *world) says(name string, replies ...[]toolcrib.Delta) {
	w.agents[name] = func(n int, _ *toolcrib.Request) ([]toolcrib.Delta, error) {
		return replies[min(n, len(replies)-1)], nil
	}
}

// model is the model of one agent.
type model struct {
	w    *world
	name string
}

func (m model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	n := 0
	for i := range req.Messages {
		if req.Messages[i].Role == toolcrib.RoleAssistant {
			n++
		}
	}
	copied := *req
	copied.Messages = append([]toolcrib.Message(nil), req.Messages...)
	m.w.mu.Lock()
	m.w.requests[m.name] = append(m.w.requests[m.name], &copied)
	m.w.mu.Unlock()
	return func(yield func(toolcrib.Delta, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		deltas, err := m.w.agents[m.name](n, req)
		for _, d := range deltas {
			if !yield(d, nil) {
				return
			}
		}
		if err != nil {
			yield(toolcrib.Delta{}, err)
		}
	}
}

// fetch stands for web_fetch as workers have it.
type fetch struct{ w *world }

func (fetch) Spec() toolcrib.Spec {
	return toolcrib.Spec{
		Name: "fetch", As: "web_fetch", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Untrusted: true, Sink: true,
		Source: "builtin", Group: "web", Parameters: json.RawMessage(`{"type":"object","properties":{` +
			`"url":{"type":"string"},"force_refresh":{"type":"boolean"}},"required":["url"],"additionalProperties":false}`),
	}
}

func (f fetch) Call(_ context.Context, c toolcrib.Call) (toolcrib.Output, error) {
	var in struct{ URL string }
	_ = json.Unmarshal(c.Arguments, &in)
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.fetched = append(f.w.fetched, in.URL)
	if !strings.HasPrefix(in.URL, "https://ok.example/") {
		return toolcrib.Output{}, toolcrib.Failf(toolcrib.PermissionDenied, "the host is not in tools.web.allow")
	}
	return toolcrib.Output{Text: f.w.page, Source: "ok.example"}, nil
}

type nothing struct{}

func (nothing) Overrides(context.Context) (gate.Overrides, error) { return gate.Overrides{}, nil }

var who = toolcrib.Principal{User: "local:test", Admin: true} //nolint:gochecknoglobals // a constant, if Go had them

// options are those of a runner of the team.
func (w *world) options() agent.Options {
	w.t.Helper()
	var all []spawn.Agent
	for name := range w.agents {
		all = append(all, spawn.Agent{Name: name})
	}
	tools := append([]toolcrib.Tool{spawn.New(all)}, verify.New(verify.Options{Fetch: "fetch"})...)
	if w.web != nil {
		tools = append(tools, web.New(*w.web)...)
	} else {
		tools = append(tools, fetch{w})
	}
	g, err := gate.New(gate.Options{Tools: tools, Availability: nothing{}})
	if err != nil {
		w.t.Fatal(err)
	}
	o := agent.Options{
		Journal: w.journal, Contents: w.journal, Gate: g, Retry: &journal.Retry{},
		Models: func(_ context.Context, m journal.ModelInfo) (toolcrib.Model, error) {
			if never := w.never[m.Provider]; never != nil {
				return never, nil
			}
			if one := (model{w, m.Provider}); !w.text[m.Provider] {
				return one, nil
			}
			return texttag.New(model{w, m.Provider}), nil
		},
		Agents: func(_ context.Context, _ toolcrib.Principal, name, _ string) (agent.Task, error) {
			if w.agents[name] == nil {
				return agent.Task{}, errors.New("no such agent")
			}
			price, ok := w.price[name]
			if !ok {
				price = dollar
			}
			return agent.Task{
				Agent:  toolcrib.Agent{Name: name, Model: name, System: w.system, TaintWrites: w.taint},
				Models: []journal.ModelInfo{{Ref: name, Provider: name, ID: name, Price: price}},
			}, nil
		},
	}
	if w.into != nil {
		o.Journal = w.into
	}
	return o
}

// ask asks the team, to the end.
func (w *world) ask(r team.Request) (*api.Report, *agent.State) {
	w.t.Helper()
	report, s, err := team.Run(w.t.Context(), w.options(), agent.Task{
		Principal: who, Workspace: "/", Session: w.session,
		Hosted: agent.Hosted{Driver: "cli"},
	}, r)
	if err != nil {
		w.t.Fatal(err)
	}
	return report, s
}

// child loads the run of an answer.
func (w *world) child(a *api.Answer) *agent.State {
	w.t.Helper()
	s, err := agent.Load(w.t.Context(), w.journal, a.RunID)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// notices counts the notices of a code in the run of an answer.
func (w *world) notices(a *api.Answer, code string) (n int) {
	for e, err := range w.journal.Read(w.t.Context(), a.RunID, 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		if notice, ok := e.Body.(*journal.Notice); ok && notice.Code == code {
			n++
		}
	}
	return n
}

// told are the notices of a code about an answer that the run of the team has.
func (w *world) told(run toolcrib.RunID, a *api.Answer, code string) string {
	var all []string
	for _, b := range w.all(run) {
		n, ok := b.(*journal.Notice)
		if !ok || n.Code != code || n.RunID != a.RunID {
			continue
		}
		text := n.Message
		if n.Tool != "" {
			text += fmt.Sprintf(" of %s %v in %s", n.Tool, n.ArgsKeys, n.SessionID)
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// say is a whole reply of text.
func say(text string) []toolcrib.Delta { return []toolcrib.Delta{{Text: text}, finish()} }

// calls is a reply that calls a tool, by the API or as text.
func (w *world) calls(name, tool, arguments string) []toolcrib.Delta {
	if w.text[name] {
		return say(fmt.Sprintf(`<tool_call>{"name": %q, "args": %s}</tool_call>`, tool, arguments))
	}
	return []toolcrib.Delta{{ToolCall: &toolcrib.ToolCallDelta{Name: tool, Arguments: arguments}}, finish()}
}

func finish() toolcrib.Delta {
	return toolcrib.Delta{Finish: &toolcrib.Finish{
		Reason: toolcrib.FinishStop, Usage: toolcrib.TokenUsage{InputTokens: 100, OutputTokens: 10, Reported: true},
	}}
}

func page(n int) string { return fmt.Sprintf(`{"url":"https://ok.example/%d"}`, n) }

// statuses are those of the calls of an answer.
func statuses(a *api.Answer) string {
	all := make([]string, len(a.InnerCalls))
	for i, c := range a.InnerCalls {
		if all[i] = c.Status; c.Hop != i+1 {
			all[i] += "(hop?)"
		}
	}
	return strings.Join(all, " ")
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// both runs a test with an agent that calls tools by its API, and one that does so by text.
func both(t *testing.T, do func(t *testing.T, w *world)) {
	for name, text := range map[string]bool{"native": false, "text": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.text["a"], w.text["b"], w.text["c"] = text, text, text
			do(t, w)
		})
	}
}
