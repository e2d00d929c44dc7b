package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// eventKeys are the fields of each event.
var eventKeys = map[string]string{
	"run_started": "agent model offered principal run_id session_id",
	"token":       "text", "thinking": "text",
	"message":               "finish_reason iteration text thinking",
	"tool_call":             "arguments id name",
	"confirmation_required": "approval_id calls digest kind reason",
	"confirmation_resolved": "approval_id by decision",
	"tool_started":          "id name",
	"tool_result":           "content duration_ms is_error name reason status tool_call_id truncated untrusted",
	"notice":                "code message",
	"paused":                "pending status",
	"done":                  "content iterations run_id status stop_reason truncated usage",
	"error":                 "error message run_id status stop_reason usage",
}

// usageKeys are in every usage; the two others are there if they are not 0.
var usageKeys = []string{"cached_input_tokens", "cost_usd", "estimated", "input_tokens", "output_tokens", "requests", "total_tokens"}

var binary string

func TestMain(m *testing.M) {
	shell.Main()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "toolcrib-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		binary = filepath.Join(dir, "toolcrib.exe")
		build := exec.Command("go", "build", "-o", binary, "github.com/toolcrib/toolcrib/cmd/toolcrib")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// event is one line of run --json.
type event struct {
	Seq   int                        `json:"seq"`
	Event string                     `json:"event"`
	Data  map[string]json.RawMessage `json:"data"`
}

func text(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s) // "" if it is not text
	return s
}

// runJSON runs the binary with a configuration whose only provider is at url.
func runJSON(t *testing.T, kind, url, extra string, args ...string) (events []event, exit int) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"notes.txt": "the crib is full\n",
		"c.yaml": fmt.Sprintf("data_dir: %s\nproviders:\n  p: {type: %s, base_url: %q, api_key: sk-test-key-123}\n"+
			"models:\n  m: {provider: p, model: m-1, price: {input: 1, cached_input: 0.1, output: 2}%s}\nagents:\n  default: {model: m}\n",
			filepath.Join(dir, "data"), kind, url, extra),
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"--config", "c.yaml", "run", "--json"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "NO_PROXY=127.0.0.1"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var failed *exec.ExitError
	if err := cmd.Run(); errors.As(err, &failed) {
		exit = failed.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(&out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%q: %v\n%s", lines.Text(), err, errs.String())
		}
		events = append(events, e)
	}
	if len(events) == 0 {
		t.Fatalf("no events; exit %d\n%s", exit, errs.String())
	}
	if strings.Contains(out.String()+errs.String(), "sk-test-key-123") {
		t.Error("the key was shown")
	}
	return events, exit
}

func reply(reason toolcrib.FinishReason, parts ...toolcrib.Part) toolcrib.Reply {
	return toolcrib.Reply{
		Message: toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: parts},
		Finish:  toolcrib.Finish{Reason: reason, Usage: toolcrib.TokenUsage{InputTokens: 120, CachedInputTokens: 20, OutputTokens: 9, Reported: true}},
	}
}

func call(id, name, arguments string) toolcrib.Part {
	return toolcrib.Part{ToolCall: &toolcrib.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(arguments)}}
}

// Over the real shapes of both APIs, in one piece and as a stream, run --json gives
// exactly the documented events, and every request passes the strict checker.
func TestRunJSON_BothAPIs_H11_N12_N23(t *testing.T) {
	for _, dialect := range []modeltest.Dialect{modeltest.OpenAI, modeltest.Anthropic} {
		for name, extra := range map[string]string{"stream": "", "one piece": ", extra: {stream: false}"} {
			t.Run(string(dialect)+" "+name, func(t *testing.T) {
				replies := []toolcrib.Reply{
					reply(toolcrib.FinishToolCalls, toolcrib.Part{Text: "I will look."}, call("c_a", "read_file", `{"path":"notes.txt"}`), call("c_b", "list_directory", `{}`), call("c_c", "ghost", `{"x":1}`)),
					reply(toolcrib.FinishToolCalls, call("c_d", "write_file", `{"path":"new.txt","content":"hi"}`)),
					reply(toolcrib.FinishStop, toolcrib.Part{Text: "It says that the crib is full."}),
				}
				server := modeltest.NewServer(dialect, modeltest.ServerOptions{Steps: modeltest.Steps(replies...), APIKey: "sk-test-key-123"})
				url := server.Start(t)
				events, exit := runJSON(t, string(dialect), url, extra, "--approve", "all", "what do the notes say?")
				if exit != 0 {
					t.Errorf("exit %d", exit)
				}
				checkEvents(t, events)
				checkStory(t, events)
				if err := server.Errors(); err != nil {
					t.Error(err)
				}
				if server.Count() != 3 {
					t.Errorf("%d requests", server.Count())
				}
			})
		}
	}
}

// checkEvents checks the shape of each event and the order of their numbers.
func checkEvents(t *testing.T, events []event) {
	t.Helper()
	last := 0
	for i, e := range events {
		keys := slices.Sorted(maps.Keys(e.Data))
		switch want, known := eventKeys[e.Event]; {
		case e.Event == "usage":
			checkUsage(t, keys)
		case e.Event == "tool_call_delta":
			// the name comes with the first piece only
		case !known:
			t.Errorf("event %d: %s is not in the contract", i, e.Event)
		case strings.Join(keys, " ") != want:
			t.Errorf("event %d: %s has %v, want %s", i, e.Event, keys, want)
		}
		live := e.Event == "token" || e.Event == "thinking" || e.Event == "tool_call_delta" || e.Event == "tool_progress"
		if live != (e.Seq == 0) {
			t.Errorf("event %d: %s has seq %d", i, e.Event, e.Seq)
		}
		if !live && e.Seq <= last {
			t.Errorf("event %d: seq %d after %d", i, e.Seq, last)
		}
		last = max(last, e.Seq)
		if end := e.Event == "done" || e.Event == "error"; end != (i == len(events)-1) {
			t.Errorf("event %d of %d is %s", i, len(events), e.Event)
		}
	}
}

func checkUsage(t *testing.T, keys []string) {
	t.Helper()
	for _, want := range usageKeys {
		if !slices.Contains(keys, want) {
			t.Errorf("usage has %v, %s is missing", keys, want)
		}
	}
}

// checkStory checks the events of the run.
func checkStory(t *testing.T, events []event) {
	t.Helper()
	var kinds, statuses []string
	tokens, deltas := "", map[string]string{}
	arguments := map[string]string{}
	for _, e := range events {
		switch e.Event {
		case "token":
			tokens += text(e.Data["text"])
		case "tool_call_delta":
			deltas[text(e.Data["id"])] += text(e.Data["arguments_delta"])
		case "tool_call":
			arguments[text(e.Data["id"])] = string(e.Data["arguments"])
		case "tool_result":
			statuses = append(statuses, text(e.Data["tool_call_id"])+"="+text(e.Data["status"])+"/"+text(e.Data["reason"]))
		}
		if e.Seq > 0 {
			kinds = append(kinds, e.Event)
		}
	}
	if want := "I will look.It says that the crib is full."; tokens != want {
		t.Errorf("tokens: %q", tokens)
	}
	if got, want := strings.Join(statuses, " "), "c_a=ok/ c_b=ok/ c_c=refused/not_registered c_d=ok/"; got != want {
		t.Errorf("results: %s, want %s", got, want)
	}
	for id, joined := range deltas {
		var a, b any
		if json.Unmarshal([]byte(joined), &a) != nil || json.Unmarshal([]byte(arguments[id]), &b) != nil || fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("call %s: deltas %s, arguments %s", id, joined, arguments[id])
		}
	}
	want := "run_started message tool_call tool_call tool_call usage tool_started tool_started tool_result tool_result tool_result " +
		"message tool_call usage confirmation_required confirmation_resolved tool_started tool_result message usage done"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("events:\n got %s\nwant %s", got, want)
	}
	end := events[len(events)-1]
	var u toolcrib.Usage
	if err := json.Unmarshal(end.Data["usage"], &u); err != nil || u.Requests != 3 || u.TotalTokens != 3*129 || u.Estimated {
		t.Errorf("usage %+v %v", u, err)
	}
}

// A failed run ends with one error event, and exit status 1; a parked one with
// paused, and 3.
func TestRunJSON_Ends(t *testing.T) {
	refuse := modeltest.NewServer(modeltest.OpenAI, modeltest.ServerOptions{Steps: []modeltest.Step{{Status: 401, ErrorType: "invalid_request_error", ErrorText: "no such key"}}})
	events, exit := runJSON(t, "openai", refuse.Start(t), "", "hello")
	if exit != 1 {
		t.Errorf("exit %d", exit)
	}
	checkEvents(t, events)
	ask := modeltest.NewServer(modeltest.Anthropic, modeltest.ServerOptions{Steps: modeltest.Steps(reply(toolcrib.FinishToolCalls, call("c", "write_file", `{"path":"x","content":"y"}`)))})
	events, exit = runJSON(t, "anthropic", ask.Start(t), "", "hello")
	if last := events[len(events)-1]; exit != 3 || last.Event != "paused" || text(last.Data["status"]) != "waiting_for_approval" {
		t.Errorf("exit %d, last %+v", exit, last)
	}
}
