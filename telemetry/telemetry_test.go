package telemetry_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
	"github.com/toolcrib/toolcrib/telemetry"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is a receiver of OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	raw    []byte
	spans  []*tracepb.Span
	heads  []http.Header
	paths  []string
	answer func(n int) int // the status of request n; nil = 200
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, _ = io.ReadAll(z)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heads, c.paths = append(c.heads, r.Header), append(c.paths, r.URL.Path)
	if c.answer != nil {
		if status := c.answer(len(c.heads)); status != 200 {
			w.WriteHeader(status)
			return
		}
	}
	var got tracepb.TracesData
	if err := proto.Unmarshal(data, &got); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.raw = append(c.raw, data...)
	for _, of := range got.ResourceSpans {
		for _, in := range of.ScopeSpans {
			c.spans = append(c.spans, in.Spans...)
		}
	}
}

// named are the spans of a name.
func (c *collector) named(name string) (all []*tracepb.Span) {
	for _, s := range c.spans {
		if s.Name == name {
			all = append(all, s)
		}
	}
	return all
}

func attribute(s *tracepb.Span, name string) string {
	for _, a := range s.Attributes {
		if a.Key == name {
			switch v := a.Value.Value.(type) {
			case *commonpb.AnyValue_StringValue:
				return v.StringValue
			case *commonpb.AnyValue_ArrayValue:
				return v.ArrayValue.Values[0].GetStringValue()
			default:
				return fmt.Sprint(a.Value.GetIntValue())
			}
		}
	}
	return ""
}

// observing is an observer that sends to a collector, as one process has it.
func observing(t *testing.T, c *collector, content bool, env map[string]string) *telemetry.Observer {
	t.Helper()
	o := telemetry.TraceOptions{Endpoint: c.URL, Content: content, Getenv: func(name string) string { return env[name] }}
	traces, err := telemetry.OpenTraces(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return &telemetry.Observer{Traces: traces, Metrics: telemetry.NewMetrics("test")}
}

type allOn struct{}

func (allOn) Overrides(context.Context) (gate.Overrides, error) { return gate.Overrides{}, nil }

// invented is a name that no tool has.
const invented = "invented"

// story is a run that reads, asks for what does not exist, gives a task to a sub-agent, and
// wants to open a door, for which it waits.
func story(t *testing.T, kept toolcrib.Journal, contents toolcrib.Contents) (*agent.Runner, agent.Task) {
	t.Helper()
	model := toolcribtest.NewModelFunc(func(_ int, req *toolcrib.Request) toolcribtest.Reply {
		last := req.Messages[len(req.Messages)-1]
		switch {
		case req.System == "helper" && last.Role == toolcrib.RoleTool:
			return toolcribtest.Say("2962 m")
		case req.System == "helper":
			return toolcribtest.Ask(toolcribtest.CallOf("", "height_of", `{}`))
		case last.Role != toolcrib.RoleTool:
			return toolcribtest.Ask(toolcribtest.CallOf("", "height_of", `{}`), toolcribtest.CallOf("", invented, `{}`),
				toolcribtest.CallOf("", "spawn", `{"agent":"helper","task":"How high?"}`))
		case last.Parts[0].ToolResult.Name == "height_of":
			return toolcribtest.Ask(toolcribtest.CallOf("", "open_door", `{}`)).Using(100, 10)
		}
		return toolcribtest.Say("The door is open.")
	})
	infos := []journal.ModelInfo{{Ref: "fake", ID: "fake-1", Provider: "fakes", Price: toolcrib.Price{Input: 1, Output: 1, Known: true}}}
	taskOf := func(_ context.Context, who toolcrib.Principal, name, _ string) (agent.Task, error) {
		a := toolcrib.Agent{Name: name, System: name, Limits: toolcrib.DefaultLimits()}
		return agent.Task{Agent: a, Models: infos, Principal: who}, nil
	}
	g, err := gate.New(gate.Options{
		Tools: []toolcrib.Tool{
			spawn.New([]spawn.Agent{{Name: "helper", Description: "Helps."}}),
			toolcribtest.ReadOnly("height_of", "2962 m"), toolcribtest.Writer("open_door", "opened"),
		},
		Availability: allOn{}, Confirm: gate.ConfirmWrites,
	})
	if err != nil {
		t.Fatal(err)
	}
	runner, err := agent.New(agent.Options{
		Journal: kept, Contents: contents, Gate: g, Agents: taskOf,
		Models: func(context.Context, journal.ModelInfo) (toolcrib.Model, error) { return model, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	task, _ := taskOf(t.Context(), toolcrib.Principal{User: "ann"}, "editor", "")
	task.Prompt, task.Session = "the prompt of ann", "trip"
	return runner, task
}

// played plays the story in two processes: the second one decides, and continues the run.
func played(t *testing.T, kept *inmemory.Journal, one, two *telemetry.Observer) *agent.State {
	t.Helper()
	runner, task := story(t, one.Journal(kept), kept)
	run, err := runner.Run(t.Context(), task)
	if err != nil || run.Pending == nil {
		t.Fatalf("%+v, %v", run, err)
	}
	runner, _ = story(t, two.Journal(kept), kept)
	if _, err := runner.Decide(t.Context(), run.Run, agent.Decision{
		ApprovalID: run.Pending.ApprovalID, Digest: run.Pending.Digest, Who: task.Principal, Decision: journal.DecisionApprove,
	}); err != nil {
		t.Fatal(err)
	}
	if run, err = runner.Resume(t.Context(), run.Run); err != nil || run.Status != toolcrib.StatusCompleted {
		t.Fatalf("%+v, %v", run, err)
	}
	for _, o := range []*telemetry.Observer{one, two} {
		if o.Traces != nil {
			_ = o.Traces.Close()
		}
	}
	return run
}

// The spans of a run hang together although two processes drove it, and have what the
// conventions name; a refused call is among them. Without telemetry.content nobody's words are.
func TestTraces(t *testing.T) {
	c := newCollector(t)
	run := played(t, &inmemory.Journal{}, observing(t, c, false, nil), observing(t, c, false, nil))

	agents, chats := c.named("invoke_agent editor"), c.named("chat fake-1")
	tools := map[string][]*tracepb.Span{}
	decisions := map[string][]*tracepb.Span{}
	for _, name := range []string{"height_of", "spawn", "open_door"} {
		tools[name] = c.named("execute_tool " + name)
	}
	for _, s := range c.named("decide") {
		name := attribute(s, "gen_ai.tool.name")
		decisions[name] = append(decisions[name], s)
	}
	// A name that a model makes up is in an attribute only.
	tools[invented] = c.named("execute_tool")
	if len(decisions[invented]) != 1 || attribute(tools[invented][0], "gen_ai.tool.name") != invented {
		t.Fatalf("%v %v", decisions, tools)
	}
	if len(agents) != 1 || len(chats) != 5 || len(tools["height_of"]) != 2 || len(tools[invented]) != 1 ||
		len(tools["spawn"]) != 1 || len(tools["open_door"]) != 1 {
		t.Fatalf("%d agents, %d chats, tools %v", len(agents), len(chats), tools)
	}
	top := agents[0]
	ids := map[string]bool{}
	for _, s := range c.spans {
		if !bytes.Equal(s.TraceId, top.TraceId) {
			t.Errorf("%s: is of another trace", s.Name)
		}
		if ids[string(s.SpanId)] {
			t.Errorf("%s: its ID is there twice", s.Name)
		}
		if ids[string(s.SpanId)] = true; s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Errorf("%s: ends before it begins", s.Name)
		}
	}
	for _, s := range c.spans {
		if len(s.ParentSpanId) > 0 && !ids[string(s.ParentSpanId)] || len(s.ParentSpanId) == 0 && s != top {
			t.Errorf("%s: its parent is missing", s.Name)
		}
	}
	helper := c.named("invoke_agent helper")
	if len(helper) != 1 || !bytes.Equal(helper[0].ParentSpanId, tools["spawn"][0].SpanId) {
		t.Errorf("the sub-agent: %v", helper)
	}
	for _, w := range []struct {
		span       *tracepb.Span
		name, want string
	}{
		{top, "gen_ai.operation.name", "invoke_agent"},
		{top, "gen_ai.agent.name", "editor"},
		{top, "user.id", "ann"},
		{top, "gen_ai.conversation.id", "trip"},
		{top, "toolcrib.run.id", string(run.Run)},
		{top, "toolcrib.run.status", "completed"},
		{chats[0], "gen_ai.provider.name", "fakes"},
		{chats[0], "gen_ai.request.model", "fake-1"},
		{chats[0], "gen_ai.response.finish_reasons", "tool_calls"},
		{tools[invented][0], "error.type", "not_registered"},
		{tools[invented][0], "toolcrib.tool.status", "refused"},
		{tools["open_door"][0], "toolcrib.tool.status", "ok"},
		{decisions[invented][0], "toolcrib.decision", "refuse"},
		{decisions[invented][0], "toolcrib.decision.layer", "offer"},
		{decisions["open_door"][0], "toolcrib.decision", "approve"},
		{decisions["open_door"][0], "toolcrib.decision.reason", "needs_confirmation"},
	} {
		if got := attribute(w.span, w.name); got != w.want {
			t.Errorf("%s: %s is %q, want %q", w.span.Name, w.name, got, w.want)
		}
	}
	if n := len(decisions["open_door"]); n != 1 {
		t.Errorf("%d decisions about the door", n)
	}
	for _, words := range []string{"the prompt of ann", "2962 m", "The door is open.", "How high?"} {
		if bytes.Contains(c.raw, []byte(words)) {
			t.Errorf("%q was sent", words)
		}
	}
	if c.paths[0] != "/v1/traces" {
		t.Errorf("sent to %s", c.paths[0])
	}
}

// With telemetry.content prompts, answers, arguments and results are sent.
func TestTraces_Content(t *testing.T) {
	c := newCollector(t)
	played(t, &inmemory.Journal{}, observing(t, c, true, nil), observing(t, c, true, nil))
	top := c.named("invoke_agent editor")[0]
	for name, want := range map[string]string{
		"gen_ai.input.messages":      `[{"role":"user","parts":[{"content":"the prompt of ann","type":"text"}]}]`,
		"gen_ai.output.messages":     `[{"role":"assistant","parts":[{"content":"The door is open.","type":"text"}]}]`,
		"gen_ai.system_instructions": `[{"content":"editor`,
	} {
		if got := attribute(top, name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
	spawned := c.named("execute_tool spawn")[0]
	if got := attribute(spawned, "gen_ai.tool.call.arguments"); !strings.Contains(got, "How high?") {
		t.Errorf("arguments: %s", got)
	}
	if got := attribute(spawned, "gen_ai.tool.call.result"); !strings.Contains(got, "2962 m") {
		t.Errorf("result: %s", got)
	}
}

// The standard variables of the environment say where traces go, and turn them off.
func TestTraces_Environment(t *testing.T) {
	c := newCollector(t)
	c.answer = func(n int) int { return map[bool]int{true: 503, false: 200}[n == 1] }
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10") // milliseconds: the end of a process waits for two seconds at most
	env := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL + "/base/", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b,x-more=c",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
	}
	o := telemetry.TraceOptions{Getenv: func(name string) string { return env[name] }}
	if !o.Wanted() {
		t.Fatal("they are not wanted")
	}
	traces, err := telemetry.OpenTraces(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	one := &telemetry.Observer{Traces: traces}
	var kept inmemory.Journal
	runner, task := story(t, one.Journal(&kept), &kept)
	if _, err := runner.Run(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a span is sent", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.spans) > 0
	})
	_ = traces.Close()
	if len(c.heads) < 2 || c.paths[0] != "/base/v1/traces" || c.heads[0].Get("X-Key") != "a b" ||
		c.heads[0].Get("Content-Encoding") != "gzip" || len(c.spans) == 0 {
		t.Errorf("%v %v, %d spans", c.paths, c.heads, len(c.spans))
	}
	for name, value := range map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "none"} {
		env[name] = value
		if o.Wanted() {
			t.Errorf("%s=%s: they are wanted", name, value)
		}
		delete(env, name)
	}
	env["OTEL_EXPORTER_OTLP_PROTOCOL"] = "grpc"
	if _, err := telemetry.OpenTraces(t.Context(), o); err == nil {
		t.Error("gRPC is taken for HTTP")
	}
}

// A collector that is not there, that does not answer, or that refuses costs a run neither time
// nor its outcome, and the end of the process a bounded time.
func TestTraces_BadCollector(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	refusing := newCollector(t)
	refusing.answer = func(int) int { return 400 }
	for name, address := range map[string]string{
		"not there": "http://127.0.0.1:1", "silent": "http://" + silent.Addr().String(), "refusing": refusing.URL,
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			var mu sync.Mutex
			traces, err := telemetry.OpenTraces(t.Context(), telemetry.TraceOptions{
				Endpoint: address, Getenv: func(string) string { return "" },
				Log: slog.New(slog.NewTextHandler(&lockedWriter{w: &logged, mu: &mu}, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			one := &telemetry.Observer{Traces: traces}
			var kept inmemory.Journal
			runner, task := story(t, one.Journal(&kept), &kept)
			start := time.Now()
			if run, err := runner.Run(t.Context(), task); err != nil || run.Pending == nil {
				t.Fatalf("%+v, %v", run, err)
			}
			if took := time.Since(start); took > 8*time.Second { // an attempt may take 10 s
				t.Errorf("the run took %v", took)
			}
			start = time.Now()
			if err := traces.Close(); err != nil || time.Since(start) > 8*time.Second {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			if strings.Count(logged.String(), "traces cannot be sent") != 1 {
				t.Errorf("the log: %s", &logged)
			}
		})
	}
}

type lockedWriter struct {
	w  io.Writer
	mu *sync.Mutex
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// What runs do is counted, once, whoever drove them; a name that a model invented is no label.
func TestMetrics(t *testing.T) {
	one := &telemetry.Observer{Metrics: telemetry.NewMetrics("test")}
	var kept inmemory.Journal
	played(t, &kept, one, one)
	text := exposition(t, one)
	for _, line := range []string{
		`toolcrib_runs_started_total{agent="editor"} 1`, `toolcrib_runs_started_total{agent="helper"} 1`,
		`toolcrib_runs_ended_total{agent="editor",status="completed",stop_reason="completed"} 1`,
		`toolcrib_runs_parked_total{status="waiting_for_approval"} 1`,
		`toolcrib_tool_calls_total{status="ok",tool="height_of"} 2`, `toolcrib_tool_calls_total{status="ok",tool="open_door"} 1`,
		`toolcrib_tool_calls_total{status="refused",tool="other"} 1`,
		`toolcrib_refusals_total{layer="offer",reason="not_registered"} 1`,
		`toolcrib_approvals_requested_total{kind="approval"} 1`, `toolcrib_approvals_decided_total{decision="approve"} 1`,
		`toolcrib_model_requests_total{model="fake",outcome="ok"} 5`,
		`toolcrib_model_request_duration_seconds_count{model="fake"} 5`,
		`toolcrib_runs_taken_up_total 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("there is no %s", line)
		}
	}
	if strings.Contains(text, "invented") || strings.Contains(text, "ann") && strings.Contains(text, `"ann"`) {
		t.Error("a name of the model or of a user is a label")
	}
	if t.Failed() {
		t.Log(text)
	}
}

func exposition(t *testing.T, o *telemetry.Observer) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(o.Metrics.Registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// An append that fails is not heard, and what the journal then has is found again.
func TestObserver_FailedAppend(t *testing.T) {
	one := &telemetry.Observer{Metrics: telemetry.NewMetrics("test")}
	var kept inmemory.Journal
	j := one.Journal(&kept)
	at := time.Now()
	start := toolcrib.Event{Time: at, Body: &journal.RunStarted{Agent: toolcrib.Agent{Name: "a"}}}
	done := toolcrib.Event{Time: at.Add(time.Second), Body: &journal.Done{Status: toolcrib.StatusCompleted}}
	if err := j.Append(t.Context(), "run_1", 0, start); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(t.Context(), "run_1", 0, done); !errors.Is(err, toolcrib.ErrConflict) {
		t.Fatal(err)
	}
	if text := exposition(t, one); strings.Contains(text, "runs_ended_total{") {
		t.Error(text)
	}
	if err := j.Append(t.Context(), "run_1", 1, done); err != nil {
		t.Fatal(err)
	}
	if text := exposition(t, one); !strings.Contains(text, `runs_ended_total{agent="a",status="completed",stop_reason=""} 1`) ||
		strings.Count(text, `toolcrib_runs_started_total{agent="a"} 1`) != 1 {
		t.Error(text)
	}
}
