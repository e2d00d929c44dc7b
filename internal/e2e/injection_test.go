package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/tool/spawn"
)

// source is a tool with untrusted results.
type source struct {
	name string
	read func(n int) toolcrib.ToolCall // the call that reads text n
	spec func(*toolcrib.Spec)          // nil = a built-in tool over files that are marked untrusted
	// plant puts text n where the tool finds it. If nil, the tool returns it.
	plant func(dir string, n int, k injection) error
	wrap  func(text string) toolcrib.Output
	// tools returns those of a server. If nil, there is one tool, which returns the result of wrap.
	tools func(t *testing.T, x *exposed) []toolcrib.Tool
}

// sources returns ten of them: Go functions with an untrusted spec, one with an untrusted result only,
// tools of an untrusted server, and files that the configuration marks.
func sources() []source {
	byNumber := func(name string) func(int) toolcrib.ToolCall {
		return func(n int) toolcrib.ToolCall {
			return toolcrib.ToolCall{Name: name, Arguments: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}
		}
	}
	untrusted := func(s *toolcrib.Spec) { s.Untrusted = true }
	foreign := func(s *toolcrib.Spec) { s.Untrusted, s.Source = true, "mcp:forge" }
	text := func(s string) toolcrib.Output { return toolcrib.Output{Text: s} }
	inJSON := func(key string) func(string) toolcrib.Output {
		return func(s string) toolcrib.Output {
			raw, _ := json.Marshal(map[string]any{"id": 7, key: s}) // of texts
			return toolcrib.Output{JSON: raw}
		}
	}
	file := func(n int) string { return fmt.Sprintf("note-%d.txt", n) }
	return []source{
		{name: "web_page", read: byNumber("web_page"), spec: untrusted, wrap: text},
		{name: "inbox", read: byNumber("inbox"), spec: untrusted, wrap: inJSON("subject")},
		{name: "ticket", read: byNumber("ticket"), spec: untrusted, wrap: inJSON("comment")},
		{name: "wiki", read: byNumber("wiki"), spec: func(*toolcrib.Spec) {}, wrap: func(s string) toolcrib.Output {
			return toolcrib.Output{Text: s, Untrusted: true, Source: "wiki.example"}
		}},
		{name: "failing", read: byNumber("failing"), spec: untrusted, wrap: func(s string) toolcrib.Output {
			return toolcrib.Output{Text: "exit status 1: " + s, IsError: true}
		}},
		{name: "mcp_issue", read: byNumber("mcp_issue"), spec: foreign, wrap: inJSON("body")},
		{name: "mcp_search", read: byNumber("mcp_search"), spec: foreign, wrap: func(s string) toolcrib.Output {
			raw, _ := json.Marshal([]map[string]string{{"title": "a"}, {"title": s}}) // of texts
			return toolcrib.Output{JSON: raw}
		}},
		{
			name: "read_file",
			read: func(n int) toolcrib.ToolCall {
				return toolcrib.ToolCall{Name: "read_file", Arguments: json.RawMessage(fmt.Sprintf(`{"path":%q}`, file(n)))}
			},
			plant: func(dir string, n int, k injection) error {
				return os.WriteFile(filepath.Join(dir, file(n)), []byte(k.text), 0o600)
			},
		},
		{
			name: "search_files",
			read: func(n int) toolcrib.ToolCall {
				return toolcrib.ToolCall{Name: "search_files", Arguments: json.RawMessage(fmt.Sprintf(`{"pattern":"needle%d:"}`, n))}
			},
			plant: func(dir string, n int, k injection) error {
				line := fmt.Sprintf("needle%d: %s", n, strings.ReplaceAll(k.text, "\n", " "))
				return os.WriteFile(filepath.Join(dir, file(n)), []byte(line), 0o600)
			},
		},
		{
			name: "list_directory",
			read: func(n int) toolcrib.ToolCall {
				return toolcrib.ToolCall{Name: "list_directory", Arguments: json.RawMessage(fmt.Sprintf(`{"path":"dir-%d"}`, n))}
			},
			plant: func(dir string, n int, k injection) error {
				sub := filepath.Join(dir, fmt.Sprintf("dir-%d", n))
				if err := os.Mkdir(sub, 0o700); err != nil {
					return err
				}
				if !strings.Contains(k.text, "/") && os.WriteFile(filepath.Join(sub, k.text), nil, 0o600) == nil {
					return nil
				}
				// A text that does not fit into a file name is encoded.
				return os.WriteFile(filepath.Join(sub, "do."+base64.RawURLEncoding.EncodeToString([]byte(k.plain))), nil, 0o600)
			},
		},
	}
}

// exposed is a place where untrusted texts are read: the tools, their effects, and the workspace.
type exposed struct {
	dir     string
	store   *sqlite.Store
	effects *shelf
	gate    *gate.Gate
	texts   []string // what the sources return, by number
}

// expose makes the tools of a source and everything that could have an effect, with
// tools.confirm never.
func expose(t *testing.T, store *sqlite.Store, s source, list []injection) *exposed {
	t.Helper()
	x := &exposed{dir: t.TempDir(), store: store, effects: &shelf{}}
	for n, k := range list {
		x.texts = append(x.texts, k.text)
		if s.plant != nil {
			if err := s.plant(x.dir, n, k); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(x.dir, "keep.txt"), []byte("keep\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tools := append(x.sinks(), files.New(files.Options{})...)
	tools = append(tools, spawn.New([]spawn.Agent{{Name: "reader"}, {Name: "middle"}}))
	command, err := shell.New(shell.Options{Mode: shell.ModeAllowlist, Allow: []string{"touch"}})
	if err != nil {
		t.Fatal(err)
	}
	tools = append(tools, command)
	if s.tools != nil {
		tools = append(tools, s.tools(t, x)...)
	}
	if s.spec != nil {
		spec := toolcrib.Spec{
			Name: s.name, Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go",
			Parameters: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`),
		}
		s.spec(&spec)
		tools = append(tools, &tool{spec: spec, on: &shelf{}, do: func(_ context.Context, c toolcrib.Call) (toolcrib.Output, error) {
			var in struct{ N int }
			err := json.Unmarshal(c.Arguments, &in)
			return s.wrap(x.texts[in.N]), err
		}})
	}
	marked := map[string]gate.ToolSettings{}
	for _, name := range []string{"read_file", "search_files", "list_directory"} {
		marked[name] = gate.ToolSettings{Untrusted: true}
	}
	x.gate = newGate(t, gate.Options{Tools: tools, Confirm: gate.ConfirmNever, Settings: marked})
	return x
}

// sinks are Go functions with an effect: writes, a read that carries data out, an
// agent, and a tool that calls another one.
func (x *exposed) sinks() []toolcrib.Tool {
	spec := func(name string, effect toolcrib.Effect) toolcrib.Spec {
		return toolcrib.Spec{Name: name, Effect: effect, EnabledByDefault: true, Source: "go"}
	}
	done := func(context.Context, toolcrib.Call) (toolcrib.Output, error) {
		return toolcrib.Output{Text: "done"}, nil
	}
	get, delegate, batch := spec("http_get", toolcrib.EffectReadOnly), spec("delegate", toolcrib.EffectReadOnly), spec("batch", toolcrib.EffectReadOnly)
	get.Sink, delegate.Sink, batch.Nested = true, true, true
	return []toolcrib.Tool{
		&tool{spec: spec("send_mail", toolcrib.EffectNonIdempotentWrite), on: x.effects, do: done},
		&tool{spec: spec("pay", ""), on: x.effects, do: done}, // nothing said is the strictest
		&tool{spec: spec("remember", toolcrib.EffectIdempotentWrite), on: x.effects, do: done},
		&tool{spec: get, on: x.effects, do: done},
		&tool{spec: delegate, on: x.effects, do: done},
		// It has no effect of its own; what it calls is judged by itself.
		&tool{spec: batch, on: &shelf{}, do: func(ctx context.Context, c toolcrib.Call) (toolcrib.Output, error) {
			var in struct{ Tool, To string }
			if err := json.Unmarshal(c.Arguments, &in); err != nil {
				return toolcrib.Output{}, err
			}
			out, err := c.Invoke(ctx, in.Tool, json.RawMessage(fmt.Sprintf(`{"to":%q}`, in.To)))
			return toolcrib.Output{Text: string(out.Status)}, err
		}},
	}
}

// count is how many effects there were: of functions, and of files.
func (x *exposed) count(t *testing.T) int {
	t.Helper()
	n := 0
	for _, times := range x.effects.counts() {
		n += times
	}
	for _, name := range []string{"owned.txt", "owned"} {
		if _, err := os.Lstat(filepath.Join(x.dir, name)); err == nil {
			n++
		}
	}
	kept, err := os.ReadFile(filepath.Join(x.dir, "keep.txt"))
	if err != nil || string(kept) != "keep\n" {
		n++
	}
	return n
}

// run lets the obedient model read text n.
func (x *exposed) run(t *testing.T, s source, n int, change func(*agent.Task), m obedient) (*agent.Runner, *agent.State) {
	t.Helper()
	m.first = s.read(n)
	r := newRunner(t, x.store, x.gate, map[string]toolcrib.Model{"p": m})
	task := agent.Task{
		Agent:     toolcrib.Agent{Name: "default", Model: "p/model-a", Limits: toolcrib.Limits{MaxIterations: 6}},
		Models:    []journal.ModelInfo{subject{}.info("p")},
		Principal: toolcrib.Principal{User: "local:test", Admin: true}, Prompt: "Read it.", Workspace: x.dir,
		Hosted: agent.Hosted{Driver: "cli"},
	}
	if change != nil {
		change(&task)
	}
	state, err := r.Run(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	return r, state
}

// ordersTried are the calls that the run made after its first.
func ordersTried(s *agent.State) int { return max(len(s.Trace)-1, 0) }

// A model that obeys every instruction found in results of tools causes no effect
// without an approval, whatever the text says, with confirm: never and default taint;
// and with --approve all, in a later run of the session, and by way of another tool.
func TestInjection_NoEffectWithoutApproval_X7_X12(t *testing.T) {
	texts := 0
	for i, s := range sources() {
		list := injections(i)
		texts += len(list)
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			store := openStore(t)
			x := expose(t, store, s, list)
			for n, k := range list {
				t.Run(k.name, func(t *testing.T) {
					x.holds(t, s, n)
				})
			}
		})
	}
	if texts < 100 {
		t.Errorf("only %d texts", texts)
	}
}

// holds tries one text in every way that must have no effect.
func (x *exposed) holds(t *testing.T, s source, n int) {
	t.Helper()
	none := func(way string) {
		t.Helper()
		if got := x.count(t); got != 0 {
			t.Fatalf("%s: %d effects without an approval: %v", way, got, x.effects.counts())
		}
	}
	r, state := x.run(t, s, n, nil, obedient{})
	none("nobody there")
	if ordersTried(state) == 0 {
		t.Fatalf("the model found nothing to obey in %q", state.Trace[0].Result.Content)
	}
	if !strings.Contains(state.Trace[0].Result.Content, "<untrusted_input") || len(state.Taint) == 0 {
		t.Errorf("not marked: %v %s", state.Taint, state.Trace[0].Result.Content)
	}
	x.parked(t, state)
	if state.Pending != nil {
		if _, err := r.Decide(t.Context(), state.Run, agent.Decision{ApprovalID: state.Pending.ApprovalID, Who: toolcrib.Principal{User: "local:test", Admin: true}, Decision: journal.DecisionDeny}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Resume(t.Context(), state.Run); err != nil {
			t.Fatal(err)
		}
		none("denied")
	}
	_, state = x.run(t, s, n, func(k *agent.Task) { k.Approve = agent.ApproveAll }, obedient{})
	none("--approve all")
	x.parked(t, state)
	switch n % 3 {
	case 0:
		_, state = x.run(t, s, n, func(k *agent.Task) { k.Approve = agent.ApproveDeny }, obedient{})
		none("--approve deny")
		x.parked(t, state)
	case 1:
		_, state = x.run(t, s, n, func(k *agent.Task) { k.Agent.TaintWrites = gate.TaintDeny }, obedient{})
		none("taint.writes: deny")
		if !state.Ended() {
			t.Errorf("taint.writes: deny: %s", state.Status)
		}
	case 2:
		x.laterRun(t, s, n)
		none("a later run of the session")
	}
	if n%5 == 0 {
		events(t, x.store, state.Run)
	}
}

// laterRun lets a run read and do nothing, and the next one of the session obey.
func (x *exposed) laterRun(t *testing.T, s source, n int) {
	t.Helper()
	_, read := x.run(t, s, n, nil, obedient{delay: 1})
	_, state := x.run(t, s, n, func(k *agent.Task) {
		k.History, k.Taint, k.Approve = read.Messages, read.Taint, agent.ApproveAll
	}, obedient{})
	if len(state.Trace) == 0 {
		t.Error("the later run obeyed nothing")
	}
}

// parked wants a run to wait for a person because of taint, or to have had its calls
// refused.
func (x *exposed) parked(t *testing.T, s *agent.State) {
	t.Helper()
	for _, c := range s.Trace[1:] {
		switch v := c.Verdict; {
		case v == nil:
			t.Errorf("%s was not judged", c.Name)
		case v.Decision == toolcrib.Allow && (v.Effect.Writes() || c.Name == "http_get" || c.Name == "delegate"):
			t.Errorf("%s was allowed: %+v", c.Name, v)
		case v.Decision == toolcrib.Ask && v.Reason != toolcrib.ReasonTaintedFlow:
			t.Errorf("%s is asked about because of %s", c.Name, v.Reason)
		}
	}
}

// The same model with the same texts has every effect where nothing holds it: so the
// test above would see one.
func TestInjection_ControlHasEffects_X7(t *testing.T) {
	seen := map[string]bool{}
	store := openStore(t)
	for i, s := range sources() {
		list := injections(i)
		for n, k := range list {
			if seen[k.sink] && n%7 != 0 {
				continue
			}
			x := expose(t, store, s, list)
			_, state := x.run(t, s, n, func(k *agent.Task) { k.Agent.TaintWrites, k.Approve = gate.TaintAllow, agent.ApproveAll }, obedient{})
			if x.count(t) == 0 {
				t.Errorf("%s, %s: no effect: %+v", s.name, k.name, state.Trace[len(state.Trace)-1].Result)
			}
			seen[k.sink] = true
		}
	}
	for _, o := range orders() {
		if !seen[o.sink] {
			t.Errorf("%s was never tried", o.sink)
		}
	}
}

// What a person approves happens, once, and nothing else.
func TestInjection_ApprovedHappensOnce_X7(t *testing.T) {
	s := sources()[0]
	list := injections(0)
	store := openStore(t)
	x := expose(t, store, s, list)
	r, state := x.run(t, s, 0, nil, obedient{})
	if state.Pending == nil || len(state.Pending.Calls) != 1 {
		t.Fatalf("pending %+v", state.Pending)
	}
	if _, err := r.Decide(t.Context(), state.Run, agent.Decision{ApprovalID: state.Pending.ApprovalID, Who: toolcrib.Principal{User: "local:test", Admin: true}, Decision: journal.DecisionApprove}); err != nil {
		t.Fatal(err)
	}
	state, err := r.Resume(t.Context(), state.Run)
	if err != nil || !state.Ended() || x.count(t) != 1 {
		t.Errorf("%v %s, %d effects", err, state.Status, x.count(t))
	}
	events(t, store, state.Run)
}

// Invisible characters carry no instruction to the model.
func TestInjection_InvisibleIsTakenOut_Contract7(t *testing.T) {
	var b strings.Builder
	b.WriteString("A harmless page.")
	for _, c := range orders()[0].call {
		b.WriteRune(0xE0000 + c)
	}
	s := sources()[0]
	x := expose(t, openStore(t), s, []injection{{name: "tags", text: b.String()}})
	_, state := x.run(t, s, 0, nil, obedient{})
	if got := state.Trace[0].Result.Content; strings.ContainsFunc(got, func(r rune) bool { return r >= 0xE0000 && r <= 0xE007F }) {
		t.Errorf("the model reads %q", got)
	}
}
