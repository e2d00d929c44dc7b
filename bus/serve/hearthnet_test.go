package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/bus/serve"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/nodes"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

var root = toolcrib.Principal{User: "local:test", Admin: true}

// house is an installation with its node.
type house struct {
	*service.Service
	pool *service.Pool
	node *nodes.Instance
	dir  string
	stop func()
}

// open opens an installation. files are written to its folder, which the configuration calls DIR.
func open(t *testing.T, dir, text string, files map[string]string, tools ...toolcrib.Tool) *house {
	t.Helper()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Parse("toolcrib.yaml", []byte(strings.ReplaceAll(text, "DIR", dir)))
	if err != nil {
		t.Fatal(err)
	}
	s := service.New(env.Options{
		DataDir: filepath.Join(dir, "data"), Config: c, Tools: tools, Driver: env.DriverServer,
	})
	if err := s.Env.OpenFor(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	p, err := s.NewPool(log, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{s, p, p.Node(), dir, sync.OnceFunc(func() {
		if err := p.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})}
	t.Cleanup(h.stop)
	if _, err := serve.Offer(serve.Options{Service: s.Current, Pool: p, Log: log}); err != nil {
		t.Fatal(err)
	}
	return h
}

// run starts a run, and returns it when it has ended or parked.
func (h *house) run(t *testing.T, prompt string, tools ...string) service.Run {
	t.Helper()
	r := service.StartRequest{Prompt: prompt, Tools: tools, Change: policy.Change{}}
	if len(tools) == 0 {
		r.Tools = nil
	}
	drive, err := h.pool.Start(t.Context(), root, r)
	if err != nil {
		t.Fatal(err)
	}
	run, err := h.pool.Outcome(t.Context(), root, drive)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// decide decides the only approval that waits, and returns the run when it has ended.
func (h *house) decide(t *testing.T, run toolcrib.RunID, decision string) service.Run {
	t.Helper()
	all, err := h.Approvals(t.Context(), root)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d approvals, %v", len(all), err)
	}
	d := service.Decision{CallDecision: journal.CallDecision{Decision: decision}, Digest: all[0].Digest}
	if _, err := h.Decide(t.Context(), root, all[0], d); err != nil {
		t.Fatal(err)
	}
	h.pool.Wake(run)
	var now service.Run
	waittest.Until(t, "the run ends", func() bool {
		now, err = h.Service.Run(t.Context(), root, string(run))
		return err != nil || now.Status.Ended()
	})
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// served returns the numbers of calls that a node has served, by capability and result.
func (h *house) served() map[string]int64 {
	all := map[string]int64{}
	for _, c := range h.node.Counters() {
		if c.Served {
			all[c.Capability+" "+string(c.Result)] += c.Calls
		}
	}
	return all
}

// answers returns a tool that answers with JSON.
func answers(name, schema, text string) *toolcribtest.Tool {
	return toolcribtest.NewTool(toolcribtest.ToolOptions{
		Spec: toolcrib.Spec{
			Name: name, Parameters: json.RawMessage(schema), Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go",
		},
		Output: toolcrib.Output{JSON: json.RawMessage(text)},
	})
}

// script is a configuration with an agent whose model plays the file script.yaml.
const script = `
providers: {play: {type: script, file: "DIR/script.yaml"}}
agents:
  default: {model: play/x}
  other: {model: play/x}
`

const chunks = `{"chunks":[{"rank":1,"score":0.9,"text":"Rain water is kept in barrels.","metadata":{"source":"a.txt"}}]}`

func corpus() *toolcribtest.Tool {
	return answers("corpus", `{"type":"object","properties":{"query":{"type":"string"},"corpus":{"type":"string"},"k":{"type":"integer"}}}`, chunks)
}

const offersCorpus = `bus: {offers: {rag.query@1.0: {tool: corpus}}}`

// The tests that HearthNet's document on tool calls lists, by their names.
func TestHearthNet(t *testing.T) {
	t.Run("test_tool_definition_to_native_format", nativeFormat)
	t.Run("test_dispatch_validates_arguments", dispatchValidates)
	t.Run("test_side_effect_tool_requires_confirmation", sideEffects)
	t.Run("test_iteration_limit_forces_finalisation", iterationLimit)
	t.Run("test_parallel_tool_calls_collected", parallelCalls)
	t.Run("test_search_corpus_tool_used_for_grounded_answer", groundedAnswer)
	t.Run("test_translate_chain", translateChain)
	t.Run("test_market_post_requires_confirmation", marketPost)
	t.Run("test_recursive_tool_call_limited_by_max_iterations", recursion)
}

// H3: what a model of another node is sent. (The formats of the APIs are tested beside their adapters.)
func nativeFormat(t *testing.T) {
	h := open(t, t.TempDir(), `
providers: {far: {type: bus}}
agents: {default: {model: far/default, tools: [search_corpus]}}
`+offersCorpus, nil, corpus())
	got := make(chan json.RawMessage, 1)
	err := h.node.Offer(bus.Descriptor{Name: bus.Name{Name: "llm.chat", Major: 2}}, nil,
		func(_ context.Context, _ toolcrib.Principal, x *bus.Exchange) (json.RawMessage, error) {
			got <- x.Body
			return json.RawMessage(`{"output":{"message":{"role":"assistant","content":""},"tool_calls":[]},"meta":{"stop_reason":"end"}}`), nil
		})
	if err != nil {
		t.Fatal(err)
	}
	drive, err := h.pool.Start(t.Context(), root, service.StartRequest{Prompt: "hi"})
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Input struct {
			Tools []map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(<-got, &body); err != nil || len(body.Input.Tools) != 1 {
		t.Fatalf("%+v, %v", body, err)
	}
	tool := body.Input.Tools[0]
	if string(tool["name"]) != `"search_corpus"` || len(tool) != 3 || !strings.Contains(string(tool["parameters_schema"]), `"query"`) ||
		len(tool["description"]) < 10 {
		t.Errorf("the tool is sent as %s", tool)
	}
	if _, err := h.pool.Cancel(t.Context(), root, string(drive.ID())); err != nil && toolcrib.CodeOf(err) != toolcrib.CodeConflict {
		t.Error(err)
	}
}

// H4, H6: invalid arguments never reach the bus, and the model corrects itself.
func dispatchValidates(t *testing.T) {
	c := corpus()
	h := open(t, t.TempDir(), script+offersCorpus, map[string]string{"script.yaml": `
- {tool_calls: [{name: search_corpus, arguments: {k: 99}}]}
- {tool_calls: [{name: search_corpus, arguments: {query: rain}}]}
- {text: "In barrels."}
`}, c)
	run := h.run(t, "Where is rain water kept?")
	if run.Status != toolcrib.StatusCompleted || len(run.Trace) != 2 || run.Trace[0].Reason != toolcrib.ReasonInvalidArguments ||
		!strings.Contains(run.Trace[0].Result, "invalid_arguments") || run.Trace[1].Status != toolcrib.ResultOK {
		t.Errorf("%+v", run.Trace)
	}
	if got := h.served(); len(c.Calls()) != 1 || got["rag.query@1.0 ok"] != 1 || len(got) != 1 {
		t.Errorf("%d calls of the corpus; served %v", len(c.Calls()), got)
	}
}

// H16: declined calls are not made, and the model learns of it.
func sideEffects(t *testing.T) {
	send := toolcribtest.Writer("send", "sent")
	text := strings.Replace(script, "agents:", "tools: {default_set: [chat_send], confirm: writes}\nrules: [{name: offered, tools: [send], when: 'true', then: allow}]\nagents:", 1) +
		`bus: {offers: {chat.send@1.0: {tool: send}}}`
	h := open(t, t.TempDir(), text, map[string]string{"script.yaml": `
- {tool_calls: [{name: chat_send, arguments: {to: anna, text: hello}}]}
- {text: "Done."}
`}, send)
	for decision, want := range map[string]int{journal.DecisionDeny: 0, journal.DecisionApprove: 1} {
		before := len(send.Calls())
		run := h.run(t, "Say hello to Anna.", "chat_send")
		if run.Status != toolcrib.StatusWaitingForApproval || len(send.Calls()) != before {
			t.Fatalf("%s, %d calls before the decision: %+v", run.Status, len(send.Calls()), run.Trace)
		}
		run = h.decide(t, run.ID, decision)
		if run.Content != "Done." || len(send.Calls()) != before+want {
			t.Errorf("%s: %q, %d calls", decision, run.Content, len(send.Calls()))
		}
		if denied := run.Trace[0].Reason == toolcrib.ReasonApprovalDenied; denied != (want == 0) {
			t.Errorf("%s: the model was told %+v", decision, run.Trace[0])
		}
	}
}

// H8, H9
func iterationLimit(t *testing.T) {
	c := corpus()
	var play strings.Builder
	for i := range 6 {
		fmt.Fprintf(&play, "- {tool_calls: [{name: search_corpus, arguments: {query: q%d}}]}\n", i)
	}
	text := strings.Replace(script, "default: {model: play/x", "default: {model: play/x, limits: {max_iterations: 6}, taint: {writes: allow}", 1) + offersCorpus
	h := open(t, t.TempDir(), text, map[string]string{"script.yaml": play.String() + "- {text: enough}\n"}, c)
	run := h.run(t, "Search everything.")
	if run.Content != "enough" || !run.Truncated || run.StopReason != toolcrib.StopMaxIterations || len(c.Calls()) != 6 {
		t.Errorf("%+v, %d calls", run, len(c.Calls()))
	}
}

// H17
func parallelCalls(t *testing.T) {
	var mu sync.Mutex
	now, most := 0, 0
	four := make(chan struct{})
	c := toolcribtest.NewTool(toolcribtest.ToolOptions{
		Spec: toolcrib.Spec{Name: "corpus", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go"},
		Do: func(ctx context.Context, _ toolcrib.Call) (toolcrib.Output, error) {
			mu.Lock()
			now++
			if most = max(most, now); now == 4 {
				select {
				case <-four:
				default:
					close(four)
				}
			}
			mu.Unlock()
			select {
			case <-four:
			case <-ctx.Done():
			}
			mu.Lock()
			now--
			mu.Unlock()
			return toolcrib.Output{JSON: json.RawMessage(chunks)}, nil
		},
	})
	var calls []string
	for i := range 8 {
		calls = append(calls, fmt.Sprintf("{name: search_corpus, arguments: {query: q%d}}", i))
	}
	h := open(t, t.TempDir(), script+offersCorpus, map[string]string{
		"script.yaml": "- {tool_calls: [" + strings.Join(calls, ", ") + "]}\n- {text: all}\n",
	}, c)
	run := h.run(t, "Search in parallel.")
	if run.Content != "all" || run.Usage.Requests != 2 || len(run.Trace) != 8 || most != 4 {
		t.Errorf("%q after %d requests, %d calls, %d at a time", run.Content, run.Usage.Requests, len(run.Trace), most)
	}
	for _, c := range run.Trace {
		if c.Status != toolcrib.ResultOK || !strings.Contains(c.Result, "barrels") {
			t.Errorf("%+v", c)
		}
	}
}

// trusts makes each node trust all others as members.
func trusts(t *testing.T, all ...*house) {
	t.Helper()
	for _, a := range all {
		for _, b := range all {
			if a == b {
				continue
			}
			if _, err := a.Nodes.SetTrust(t.Context(), root, b.node.Key(), toolcrib.TrustMember, filepath.Base(b.dir)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// offered waits until a house has the tool, or has it no longer.
func (h *house) offered(t *testing.T, tool string, want bool) {
	t.Helper()
	waittest.Until(t, tool+" comes or goes", func() bool {
		v, err := h.Policy.Tool(t.Context(), root, tool)
		return (err == nil && v.Unusable == "") == want
	})
}

// H7, H11, H12, H15, H18: the user, the model and the corpus are at three nodes. The tool comes and goes with the corpus.
func groundedAnswer(t *testing.T) {
	c := natstest.Start(t, 1, nil)
	dirs := t.TempDir()
	dir := func(name string) string {
		if err := os.Mkdir(filepath.Join(dirs, name), 0o700); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dirs, name)
	}
	url := fmt.Sprintf("url: %q", c.URL())
	tool := corpus()
	library := open(t, dir("library"), "bus: {"+url+", offers: {rag.query@1.0: {tool: corpus}}}", nil, tool)
	mind := open(t, dir("mind"), script+"bus: {"+url+", offers: {llm.chat@2.0: {agent: default}}}", map[string]string{"script.yaml": `
- {text: "I search.", tool_calls: [{name: search_corpus, arguments: {query: rain, corpus: notes}}]}
- {text: "In barrels [a.txt].", usage: {input: 70, output: 7}}
`})
	user := open(t, dir("user"), "providers: {far: {type: bus}}\nagents: {default: {model: far/default}}\nbus: {"+url+"}", nil)
	trusts(t, library, mind, user)
	user.offered(t, "search_corpus", true)
	waittest.Until(t, "the model is there", func() bool {
		return slices.ContainsFunc(user.node.Known(), func(k bus.Known) bool { return k.Name.Name == "llm.chat" })
	})
	run := user.run(t, "Where is rain water kept?", "search_corpus")
	if run.Content != "In barrels [a.txt]." || run.Status != toolcrib.StatusCompleted || len(run.Trace) != 1 ||
		!strings.Contains(run.Trace[0].Result, "barrels") || run.Usage.Requests != 2 || !slices.Contains(run.Taint, "search_corpus") {
		t.Fatalf("%+v", run)
	}
	calls := tool.Calls()
	if len(calls) != 1 || string(calls[0].Arguments) != `{"corpus":"notes","query":"rain"}` || calls[0].Principal.User != "node:user:local%3Atest" &&
		!strings.HasPrefix(calls[0].Principal.User, "node:user") || calls[0].Principal.Admin {
		t.Errorf("the corpus was asked %+v", calls)
	}
	if at := mind.served(); at["llm.chat@2.0 ok"] != 2 {
		t.Errorf("the model served %v", at)
	}
	runs, _, err := mind.Runs(t.Context(), root, service.RunsQuery{})
	if err != nil || len(runs) != 1 || runs[0].Status != toolcrib.StatusCompleted {
		t.Errorf("the conversation is %d runs: %+v, %v", len(runs), runs, err)
	}
	traced, err := library.node.Trace(t.Context(), root, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range traced.Entries {
		if e.Capability.Name == "rag.query" && !strings.HasPrefix(e.Trace, "00-") {
			t.Errorf("the call has the trace %q", e.Trace)
		}
	}
	library.stop()
	user.offered(t, "search_corpus", false)
}

// A tool's result is the argument of the next one.
func translateChain(t *testing.T) {
	tr := toolcribtest.NewTool(toolcribtest.ToolOptions{
		Spec: toolcrib.Spec{Name: "tr", Effect: toolcrib.EffectReadOnly, EnabledByDefault: true, Source: "go"},
		Do: func(_ context.Context, call toolcrib.Call) (toolcrib.Output, error) {
			var in struct{ Text, To string }
			if err := json.Unmarshal(call.Arguments, &in); err != nil {
				return toolcrib.Output{}, err
			}
			words := map[string]string{"Regenwasser": "rain water", "In barrels.": "In Fässern."}
			return toolcrib.Output{Text: words[in.Text]}, nil
		},
	})
	c := corpus()
	trusted := strings.Replace(script, "agents:", `
tools:
  bound: # the nodes are one's own, so what they say is trusted
    translate: {capability: trans.text@1.0, effect: read_only, untrusted: false}
    search_corpus: {capability: rag.query@1.0, effect: read_only, untrusted: false}
agents:`, 1)
	h := open(t, t.TempDir(), trusted+`bus: {offers: {rag.query@1.0: {tool: corpus}, trans.text@1.0: {tool: tr}}}`, map[string]string{"script.yaml": `
- {tool_calls: [{name: translate, arguments: {text: Regenwasser, from: de, to: en}}]}
- {tool_calls: [{name: search_corpus, arguments: {query: rain water}}]}
- {tool_calls: [{name: translate, arguments: {text: "In barrels.", to: de}}]}
- {text: "In Fässern."}
`}, c, tr)
	run := h.run(t, "Wo ist das Regenwasser?")
	if len(run.Trace) != 3 || !strings.Contains(run.Trace[0].Result, "rain water") || !strings.Contains(run.Trace[2].Result, "In Fässern.") ||
		run.Content != "In Fässern." || len(c.Calls()) != 1 {
		t.Errorf("%q, %+v", run.Content, run.Trace)
	}
}

// H15, H22: tools that write are off until they are enabled; then each call asks.
func marketPost(t *testing.T) {
	post := toolcribtest.Writer("post", "posted")
	text := strings.Replace(script, "agents:", "rules: [{name: offered, tools: [post], when: 'true', then: allow}]\nagents:", 1) +
		`bus: {offers: {market.post@1.0: {tool: post}}}`
	h := open(t, t.TempDir(), text, map[string]string{"script.yaml": `
- {tool_calls: [{name: market_post, arguments: {title: Beans, body: "Too many."}}]}
- {text: "Done."}
`}, post)
	run := h.run(t, "Offer my beans.")
	if run.Trace[0].Reason != toolcrib.ReasonToolDisabled || len(post.Calls()) != 0 {
		t.Errorf("a tool that is off: %+v", run.Trace)
	}
	if _, err := h.Policy.SwitchTool(t.Context(), root, policy.SwitchRequest{Tool: "market_post", Enabled: true}); err != nil {
		t.Fatal(err)
	}
	run = h.run(t, "Offer my beans.")
	if run.Status != toolcrib.StatusWaitingForApproval || len(post.Calls()) != 0 {
		t.Fatalf("%s: %+v", run.Status, run.Trace)
	}
	if run = h.decide(t, run.ID, journal.DecisionApprove); run.Content != "Done." || len(post.Calls()) != 1 {
		t.Errorf("%q, %d calls", run.Content, len(post.Calls()))
	}
}

// H18: an agent that is a capability which calls itself through llm.tools.call stops at limits.max_depth. The documents take
// the limit of iterations for that.
func recursion(t *testing.T) {
	h := open(t, t.TempDir(), strings.Replace(strings.Replace(script, "other: {model: play/x", "other: {model: play/x, tools: [again]", 1), "agents:", `
tools:
  bound:
    again: {capability: llm.tools.call@1.0, effect: read_only, params: {target_capability: loop.again@1.0}}
agents:`, 1)+`bus: {offers: {loop.again@1.0: {agent: other}}}`, map[string]string{"script.yaml": `
- {tool_calls: [{name: again, arguments: {task: "once more"}}]}
- {text: "Enough."}
`})
	run := h.run(t, "Go.")
	if run.Content != "Enough." {
		t.Fatalf("%+v", run)
	}
	deepest := 0
	runs, _, err := h.Runs(t.Context(), root, service.RunsQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		one, err := h.Service.Run(t.Context(), root, string(r.ID))
		if err != nil || one.Content != "Enough." {
			t.Errorf("%+v, %v", one, err)
		}
		if len(one.Trace) == 1 && strings.Contains(one.Trace[0].Result, "depth_exceeded") {
			deepest++
		}
	}
	if len(runs) != 2 || deepest != 1 { // each round is two calls: of llm.tools.call, and by it
		t.Errorf("%d runs, %d of them at the limit; served %v", len(runs), deepest, h.served())
	}
}
