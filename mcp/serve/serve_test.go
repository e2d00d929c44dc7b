package serve_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/mcp/serve"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/policy"
)

// crib is a data folder, a workspace and a server for one client.
type crib struct {
	t       testing.TB
	s       *service.Service
	who     toolcrib.Principal
	work    string
	options func(*serve.Options)
}

const agents = `
providers: {demo: {type: script, file: demo.script}}
agents:
  default: {model: demo/x}
  helper: {model: demo/x, description: "Helps."}
  stopped: {model: demo/x, tools: [read_file]}
`

// stock makes one under a configuration; YAML is added to it.
func stock(t testing.TB, yaml string) *crib {
	t.Helper()
	home, work := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	for _, name := range []string{
		"XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "TOOLCRIB_CONFIG", "ANTHROPIC_API_KEY", "OPENAI_API_KEY",
		"GEMINI_API_KEY",
	} {
		t.Setenv(name, "")
	}
	t.Chdir(work)
	dir := filepath.Join(home, ".config", "toolcrib")
	write(t, filepath.Join(dir, "toolcrib.yaml"), agents+yaml)
	write(t, filepath.Join(dir, "demo.script"), "- {text: hello}\n")
	write(t, filepath.Join(work, "a.txt"), "the text of a\n")
	source := config.Find("", os.Getenv)
	c, err := config.Load(source, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := service.New(env.Options{Config: c, Source: source, DataDir: filepath.Join(home, "data"), Driver: "cli"})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &crib{t: t, s: s, who: toolcrib.Principal{User: "local:ann", Admin: true}, work: work}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run starts a server for one client over pipes, as over standard input and output, and
// returns the client's ends. ended gets the error with which it has ended.
func (c *crib) run(r service.StartRequest) (in io.WriteCloser, out io.ReadCloser, stop context.CancelFunc, ended chan error) {
	c.t.Helper()
	serving, err := c.s.Serve(c.t.Context(), c.who, r)
	if err != nil {
		c.t.Fatal(err)
	}
	o := serve.Options{Serving: serving, Version: "1", Self: "toolcrib", Mask: func(text string) string { return text }}
	if c.options != nil {
		c.options(&o)
	}
	toServer, in := io.Pipe()
	out, fromServer := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	ended = make(chan error, 1)
	go func() {
		err := serve.New(o).Run(ctx, toServer, fromServer)
		serving.Close()
		_ = fromServer.Close()
		ended <- err
	}()
	return in, out, stop, ended
}

// client connects a client whose person answers questions with answer. If nil, it cannot be asked.
func (c *crib) client(r service.StartRequest, answer func(*sdk.ElicitParams) *sdk.ElicitResult, o *sdk.ClientSessionOptions) *sdk.ClientSession {
	c.t.Helper()
	in, out, stop, ended := c.run(r)
	options := &sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}}
	if answer != nil {
		options.ElicitationHandler = func(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return answer(req.Params), nil
		}
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "an editor", Version: "1"}, options)
	session, err := client.Connect(c.t.Context(), &sdk.IOTransport{Reader: out, Writer: in}, o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = session.Close()
		_ = in.Close()
		select {
		case <-ended:
		case <-time.After(patience):
			c.t.Error("the server has not ended with its client")
		}
		stop()
	})
	return session
}

// versions are the generations of the protocol: in the older one the server asks while a call
// is under way, in the newer a call ends with the question and is made again.
var versions = map[string]*sdk.ClientSessionOptions{
	"2025-11-25": {ProtocolVersion: "2025-11-25"}, "2026-07-28": {ProtocolVersion: "2026-07-28"},
}

func call(t testing.TB, c *sdk.ClientSession, name string, arguments any) *sdk.CallToolResult {
	t.Helper()
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func textOf(r *sdk.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String()
}

// approvalOf is the approval that a call waits for.
func approvalOf(t testing.TB, r *sdk.CallToolResult) string {
	t.Helper()
	id := approvalIn(t, r)
	if !strings.Contains(textOf(r), "toolcrib approvals approve "+toolcrib.ShortID(id)) {
		t.Fatalf("not how to decide: %s", textOf(r))
	}
	return id
}

// approvalIn is the ID of what a call waits for.
func approvalIn(t testing.TB, r *sdk.CallToolResult) string {
	t.Helper()
	view, _ := r.StructuredContent.(map[string]any)
	id, _ := view["approval_id"].(string)
	if r.IsError || id == "" || !strings.Contains(textOf(r), id) || view["message"] != textOf(r) {
		t.Fatalf("it waits for nothing: %+v %s", r, textOf(r))
	}
	return id
}

// decide does what approvals approve and deny do.
func (c *crib) decide(id, word string) {
	c.t.Helper()
	a, err := c.s.Approval(c.t.Context(), c.who, id)
	if err != nil {
		c.t.Fatal(err)
	}
	d := service.Decision{Digest: a.Digest}
	d.Decision = word
	if _, err := c.s.Decide(c.t.Context(), c.who, a, d); err != nil {
		c.t.Fatal(err)
	}
}

// written is the file that a call writes; "" = it has not.
func (c *crib) written() string {
	data, err := os.ReadFile(filepath.Join(c.work, "b.txt"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	return string(data)
}

var writeB = map[string]any{"path": "b.txt", "content": "written"}

func approving(*sdk.ElicitParams) *sdk.ElicitResult {
	return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": "approve"}}
}

// The client is given the agent's offer, with agents in place of spawn, and each call is a
// run of one given call.
func TestServe_Reads(t *testing.T) {
	for version, o := range versions {
		t.Run(version, func(t *testing.T) {
			c := stock(t, "")
			client := c.client(service.StartRequest{}, nil, o)
			tools, err := client.ListTools(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range tools.Tools {
				names = append(names, tool.Name)
			}
			for _, name := range []string{"read_file", "write_file", "agent__helper", "collect_result"} {
				if !slices.Contains(names, name) {
					t.Errorf("%s is missing: %q", name, names)
				}
			}
			if slices.Contains(names, "spawn") || slices.Contains(names, "get_env") {
				t.Errorf("more than the offer, or spawn: %q", names)
			}
			r := call(t, client, "read_file", map[string]any{"path": "a.txt"})
			if r.IsError || !strings.Contains(textOf(r), "the text of a") {
				t.Fatalf("%+v %s", r, textOf(r))
			}
			id, _ := r.Meta["toolcrib/run_id"].(string)
			run, err := c.s.Run(t.Context(), c.who, id)
			if err != nil || len(run.Trace) != 1 || run.Trace[0].Name != "read_file" || run.Status != toolcrib.StatusCompleted {
				t.Errorf("%+v %v", run, err)
			}
			r = call(t, client, "read_file", map[string]any{"path": "../x"})
			if !r.IsError || !strings.Contains(textOf(r), "refused") {
				t.Errorf("%+v %s", r, textOf(r))
			}
			r = call(t, client, "agent__helper", map[string]any{"task": "say hello"})
			if r.IsError || !strings.Contains(textOf(r), "hello") {
				t.Errorf("%+v %s", r, textOf(r))
			}
		})
	}
}

// A team is asked by a tool, within what the agent may do: what is not offered to it, its
// workers have not either.
func TestServe_Team(t *testing.T) {
	c := stock(t, "")
	client := c.client(service.StartRequest{}, nil, nil)
	r := call(t, client, "confer", map[string]any{
		"question": "say hello", "agents": []string{"helper"}, "worker_tools": []string{"verify", "exec_shell"},
	})
	text := textOf(r)
	for _, want := range []string{`"tool":"confer"`, `"agent":"helper"`, `"rejected":["exec_shell"]`, `"hop_budget":2`, "hello"} {
		if r.IsError || !strings.Contains(text, want) {
			t.Fatalf("%s is not in %s", want, text)
		}
	}
	id, _ := r.Meta["toolcrib/run_id"].(string)
	run, err := c.s.Run(t.Context(), c.who, id)
	if err != nil || run.Agent != "confer" || run.Team == nil || len(run.Team.Answers) != 1 {
		t.Errorf("%+v %v", run, err)
	}
	write(t, filepath.Join(os.Getenv("HOME"), ".config", "toolcrib", "demo.script"), "- {text: hello}\n- {text: hello again}\n")
	for _, in := range []map[string]any{ // what was said before, with its files, is the agents' too
		{"session_id": "talk", "files": []map[string]any{{"name": "a.txt", "data": []byte("some text")}}}, {"continue": true},
	} {
		in["question"], in["agents"] = "say hello", []string{"helper"}
		if r := call(t, client, "confer", in); r.IsError {
			t.Fatal(textOf(r))
		} else {
			id, _ = r.Meta["toolcrib/run_id"].(string)
		}
	}
	if run, err = c.s.Run(t.Context(), c.who, id); err != nil || len(run.Team.Answers) != 1 {
		t.Fatalf("%+v %v", run, err)
	}
	said, err := c.s.Transcript(t.Context(), c.who, string(run.Team.Answers[0].RunID))
	if text := fmt.Sprintf("%+v", said); err != nil || len(said) != 4 || said[0].Parts[1].File == nil || !strings.Contains(text, "## helper") {
		t.Errorf("%s %v", text, err)
	}
	for _, arguments := range []map[string]any{
		{"question": "x", "continue": true, "session_id": "talk"}, {"question": "x", "files": []map[string]any{{"name": "a", "data": []byte{0, 1, 2}}}},
	} {
		if r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: "confer", Arguments: arguments}); err == nil && !r.IsError {
			t.Errorf("%v: %s", arguments, textOf(r))
		}
	}
	for _, arguments := range []map[string]any{{"question": ""}, {"question": "x", "nonsense": 1}, {"question": "x", "agents": []string{"nobody"}}} {
		if r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: "confer", Arguments: arguments}); err == nil && !r.IsError {
			t.Errorf("%v: %s", arguments, textOf(r))
		}
	}
	stopped := c.client(service.StartRequest{Agent: "stopped"}, nil, nil)
	if r, err := stopped.CallTool(t.Context(), &sdk.CallToolParams{Name: "confer", Arguments: map[string]any{"question": "x"}}); err == nil {
		t.Errorf("an agent without spawn: %s", textOf(r))
	}
}

// What an agent is not offered is neither listed nor run, and its agents have no more.
func TestServe_NoMoreThanTheOffer(t *testing.T) {
	c := stock(t, "")
	client := c.client(service.StartRequest{Agent: "stopped"}, nil, nil)
	tools, err := client.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 2 {
		t.Fatalf("%+v %v", tools, err)
	}
	for _, name := range []string{"write_file", "spawn", "agent__helper"} {
		if r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: writeB}); err == nil {
			t.Errorf("%s: %s", name, textOf(r))
		}
	}
	if c.written() != "" {
		t.Error("written")
	}
}

// An approval that the client's person gives is recorded as the client's, and lets the call
// run once.
func TestServe_Elicited(t *testing.T) {
	for version, o := range versions {
		t.Run(version, func(t *testing.T) {
			c := stock(t, "")
			var asked []string
			client := c.client(service.StartRequest{}, func(p *sdk.ElicitParams) *sdk.ElicitResult {
				asked = append(asked, p.Message)
				return approving(p)
			}, o)
			r := call(t, client, "write_file", writeB)
			if r.IsError || c.written() != "written" {
				t.Fatalf("%s, %q", textOf(r), c.written())
			}
			if len(asked) != 1 || !strings.Contains(asked[0], `write_file {"content":"written","path":"b.txt"}`) ||
				!strings.Contains(asked[0], "+written") {
				t.Errorf("%q", asked)
			}
			id, _ := r.Meta["toolcrib/run_id"].(string)
			var by string
			for e, err := range c.s.Journal(t.Context(), c.who, toolcrib.RunID(id)) {
				if err != nil {
					t.Fatal(err)
				}
				if text, err := json.Marshal(e.Body); err == nil && strings.Contains(string(text), `"by":`) {
					by = string(text)
				}
			}
			if !strings.Contains(by, `"by":"MCP client an editor (for local:ann)"`) {
				t.Error(by)
			}
		})
	}
}

// Whatever else the client says of the question lets nothing run: only its word does.
func TestServe_ElicitedAnythingElse(t *testing.T) {
	for version, o := range versions {
		for name, answer := range map[string]*sdk.ElicitResult{
			"denied":   {Action: "accept", Content: map[string]any{"decision": "deny", "reason": "not today"}},
			"declined": {Action: "decline"},
		} {
			t.Run(version+"/"+name, func(t *testing.T) {
				c := stock(t, "")
				client := c.client(service.StartRequest{}, func(*sdk.ElicitParams) *sdk.ElicitResult { return answer }, o)
				r := call(t, client, "write_file", writeB)
				if !r.IsError || !strings.Contains(textOf(r), "approval_denied") || c.written() != "" {
					t.Errorf("%s, %q", textOf(r), c.written())
				}
			})
		}
		for name, answer := range map[string]*sdk.ElicitResult{
			"put away":     {Action: "cancel"},
			"no word":      {Action: "accept", Content: map[string]any{}},
			"no content":   {Action: "accept"},
			"another word": {Action: "accept", Content: map[string]any{"decision": "approve all"}},
			"no text":      {Action: "accept", Content: map[string]any{"decision": true}},
			"nothing":      {},
			"an answer":    {Action: "accept", Content: map[string]any{"answer": "approve"}},
		} {
			t.Run(version+"/"+name, func(t *testing.T) {
				c := stock(t, "")
				client := c.client(service.StartRequest{}, func(*sdk.ElicitParams) *sdk.ElicitResult { return answer }, o)
				r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: "write_file", Arguments: writeB})
				if c.written() != "" {
					t.Fatalf("written: %s, %v", textOf(r), err)
				}
				if list, err := c.s.Approvals(t.Context(), c.who); err != nil || len(list) != 1 {
					t.Errorf("%+v %v", list, err)
				}
			})
		}
	}
}

// Without a client that can be asked a call waits for a person at toolcrib; what they decided
// is collected, and runs once.
func TestServe_ParkedAndCollected(t *testing.T) {
	for version, o := range versions {
		t.Run(version, func(t *testing.T) {
			c := stock(t, "")
			client := c.client(service.StartRequest{}, nil, o)
			id := approvalOf(t, call(t, client, "write_file", writeB))
			denied := approvalOf(t, call(t, client, "write_file", map[string]any{"path": "c.txt", "content": "x"}))
			c.decide(denied, "deny")
			r := call(t, client, "collect_result", map[string]any{"approval_id": denied})
			if !r.IsError || !strings.Contains(textOf(r), "approval_denied") || c.written() != "" {
				t.Fatalf("%s, %q", textOf(r), c.written())
			}
			time.AfterFunc(300*time.Millisecond, func() { c.decide(id, "approve") })
			for range 2 { // as often as it likes
				if r := call(t, client, "collect_result", map[string]any{"approval_id": id}); r.IsError || c.written() != "written" {
					t.Fatalf("%s, %q", textOf(r), c.written())
				}
				write(t, filepath.Join(c.work, "b.txt"), "written")
			}
			for _, bad := range []any{"apr_0", "run_0", 7, nil, "", "last"} {
				if r := call(t, client, "collect_result", map[string]any{"approval_id": bad}); !r.IsError {
					t.Errorf("%v: %s", bad, textOf(r))
				}
			}
		})
	}
}

// What only a person may answer is never put to the client, whatever it says it can.
func TestServe_ForAPersonOnly(t *testing.T) {
	never := func(p *sdk.ElicitParams) *sdk.ElicitResult {
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": "approve"}}
	}
	for name, tt := range map[string]struct {
		yaml, tool string
		arguments  map[string]any
		options    func(*serve.Options)
	}{
		"four eyes":       {yaml: "approvals: {four_eyes: true}\n", tool: "write_file", arguments: writeB},
		"unlisted":        {tool: "exec_shell", arguments: map[string]any{"command": "touch b.txt", "write": true}},
		"switched off":    {tool: "write_file", arguments: writeB, options: func(o *serve.Options) { o.NoElicit = true }},
		"too long to see": {tool: "write_file", arguments: map[string]any{"path": "b.txt", "content": strings.Repeat("x", 20_000)}},
	} {
		for version, o := range versions {
			t.Run(version+"/"+name, func(t *testing.T) {
				c := stock(t, tt.yaml)
				c.options = tt.options
				client := c.client(service.StartRequest{}, never, o)
				approvalOf(t, call(t, client, tt.tool, tt.arguments))
				if c.written() != "" {
					t.Error("written")
				}
			})
		}
	}
}

// Untrusted data that one call has read counts for the calls after it, and no client lifts
// that.
func TestServe_TaintStays(t *testing.T) {
	for version, o := range versions {
		t.Run(version, func(t *testing.T) {
			c := stock(t, "tools: {settings: {read_file: {untrusted: true}}}\n")
			asked := 0
			client := c.client(service.StartRequest{}, func(p *sdk.ElicitParams) *sdk.ElicitResult {
				asked++
				return approving(p)
			}, o)
			if r := call(t, client, "write_file", map[string]any{"path": "before.txt", "content": "x"}); r.IsError {
				t.Fatal(textOf(r))
			}
			if r := call(t, client, "read_file", map[string]any{"path": "a.txt"}); !strings.Contains(textOf(r), "untrusted_input") {
				t.Fatal(textOf(r))
			}
			id := approvalOf(t, call(t, client, "write_file", writeB))
			if c.written() != "" || asked != 1 {
				t.Fatalf("written, or asked %d times", asked)
			}
			c.decide(id, "approve")
			if r := call(t, client, "collect_result", map[string]any{"approval_id": id}); r.IsError || c.written() != "written" {
				t.Errorf("%s", textOf(r))
			}
		})
	}
}

// The state of a question is good once, for the call that it was made for, and for a time.
func TestServe_State(t *testing.T) {
	c := stock(t, "")
	first, err := c.s.Serve(t.Context(), c.who, service.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	other, err := c.s.Serve(t.Context(), c.who, service.StartRequest{Agent: "helper"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	another, err := c.s.Serve(t.Context(), toolcrib.Principal{User: "bob"}, service.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer another.Close()
	arguments := []byte(`{"path":"b.txt","content":"written"}`)
	b := service.ServedCall{Client: "x", Name: "write_file", Arguments: arguments}
	out, err := first.Call(t.Context(), b, service.Front{})
	if err != nil || out.State == "" {
		t.Fatalf("%+v %v", out, err)
	}
	yes := service.ServedAnswer{Decision: "approve"}
	flipped := []byte(out.State)
	flipped[len(flipped)/2] ^= 1
	for name, tt := range map[string]struct {
		v     *service.Serving
		call  service.ServedCall
		state string
	}{
		"tampered":          {first, b, string(flipped)},
		"empty":             {first, b, ""},
		"cut":               {first, b, out.State[:20]},
		"no base64":         {first, b, "%%%"},
		"another tool":      {first, service.ServedCall{Name: "edit_file", Arguments: arguments}, out.State},
		"another's agent":   {other, b, out.State},
		"another principal": {another, b, out.State},
		"other arguments": {
			first, service.ServedCall{Name: "write_file", Arguments: []byte(`{"path":"b.txt","content":"other"}`)}, out.State,
		},
		"broken arguments": {first, service.ServedCall{Name: "write_file", Arguments: []byte(`{`)}, out.State},
	} {
		if _, err := tt.v.Answer(t.Context(), tt.call, tt.state, yes, service.Front{}); toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c.written() != "" {
		t.Fatal("written")
	}
	// Without an answer it is asked again; put away, it waits for a person at toolcrib.
	if got, err := first.Answer(t.Context(), b, out.State, service.ServedAnswer{Again: true}, service.Front{}); err != nil || got.State == "" {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := first.Answer(t.Context(), b, out.State, service.ServedAnswer{}, service.Front{}); err != nil || got.State != "" || got.Waits == nil {
		t.Errorf("%+v %v", got, err)
	}
	// The same arguments, written in another way, are the same call.
	b.Arguments = []byte(`{ "content":"written", "path":"b.txt" }`)
	if got, err := first.Answer(t.Context(), b, out.State, yes, service.Front{}); err != nil || got.Result == nil || c.written() != "written" {
		t.Fatalf("%+v %v", got, err)
	}
	write(t, filepath.Join(c.work, "b.txt"), "changed since")
	if got, err := first.Answer(t.Context(), b, out.State, yes, service.Front{}); toolcrib.CodeOf(err) != toolcrib.CodeConflict {
		t.Errorf("used twice: %+v %v", got, err)
	}
	if c.written() != "changed since" {
		t.Error("written twice")
	}
}

// A call that the client cancels ends at its tool, and its run as cancelled.
func TestServe_Cancelled(t *testing.T) {
	c := stock(t, "")
	write(t, filepath.Join(os.Getenv("HOME"), ".config", "toolcrib", "demo.script"), "- {text: late, delay: 10m}\n")
	client := c.client(service.StartRequest{}, nil, versions["2025-11-25"])
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := client.CallTool(ctx, &sdk.CallToolParams{Name: "agent__helper", Arguments: map[string]any{"task": "wait"}})
		done <- err
	}()
	both := func(ok func(toolcrib.Status) bool) func() bool {
		return func() bool {
			runs, _, err := c.s.Runs(t.Context(), c.who, service.RunsQuery{})
			return err == nil && len(runs) == 2 && ok(runs[0].Status) && ok(runs[1].Status)
		}
	}
	until(t, "both runs have begun", both(func(toolcrib.Status) bool { return true }))
	cancel()
	told := time.Now()
	if err := <-done; err == nil {
		t.Fatal("no error")
	}
	until(t, "both runs were cancelled", both(func(s toolcrib.Status) bool { return s == toolcrib.StatusCancelled }))
	t.Logf("cancelled after %s", time.Since(told))
}

// While a client is asked it may cancel its call, which then never runs, or go away, which
// leaves the call to a person at toolcrib.
func TestServe_AskedAndGone(t *testing.T) {
	for name, want := range map[string]toolcrib.Status{
		"cancels": toolcrib.StatusCancelled, "goes": toolcrib.StatusWaitingForApproval,
	} {
		t.Run(name, func(t *testing.T) {
			c := stock(t, "")
			r := c.raw()
			r.initialize()
			r.send(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"b.txt","content":"x"}}}`)
			if got := <-r.lines; !strings.Contains(got, `"elicitation/create"`) {
				t.Fatal(got)
			}
			if name == "cancels" {
				r.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}`)
			} else {
				_ = r.in.Close()
				select {
				case <-r.ended:
				case <-time.After(patience):
					t.Fatal("the server has not ended")
				}
			}
			until(t, string(want), func() bool {
				runs, _, err := c.s.Runs(t.Context(), c.who, service.RunsQuery{})
				return err == nil && len(runs) == 1 && runs[0].Status == want
			})
			if c.written() != "" {
				t.Error("written")
			}
		})
	}
}

// A question of the model's, and what the calls of an agent wait for, reach the client's
// person as well, and wait for one at toolcrib where it cannot ask.
func TestServe_QuestionsAndAgents(t *testing.T) {
	answers := func(p *sdk.ElicitParams) *sdk.ElicitResult {
		schema, _ := json.Marshal(p.RequestedSchema)
		if strings.Contains(string(schema), `"answer"`) {
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"answer": "blue"}}
		}
		return approving(p)
	}
	question := map[string]any{"question": "Which?", "schema": map[string]any{"type": "string", "enum": []string{"red", "blue"}}}
	task := map[string]any{"task": "write it"}
	for version, o := range versions {
		for _, asks := range []bool{true, false} {
			t.Run(fmt.Sprint(version, asks), func(t *testing.T) {
				c := stock(t, "")
				write(t, filepath.Join(os.Getenv("HOME"), ".config", "toolcrib", "demo.script"),
					"- {tool_calls: [{name: write_file, arguments: {path: b.txt, content: written}}]}\n- {text: it is written}\n")
				answer := answers
				if !asks {
					answer = nil
				}
				client := c.client(service.StartRequest{}, answer, o)
				r, w := call(t, client, "ask_user", question), call(t, client, "agent__helper", task)
				if !asks {
					if c.written() != "" {
						t.Fatal("written")
					}
					c.decide(approvalIn(t, w), "approve")
					w = call(t, client, "collect_result", map[string]any{"approval_id": approvalIn(t, w)})
					approvalIn(t, r)
				} else if !strings.Contains(textOf(r), "blue") {
					t.Errorf("%s", textOf(r))
				}
				if !strings.Contains(textOf(w), "it is written") || c.written() != "written" {
					t.Errorf("%s, %q", textOf(w), c.written())
				}
			})
		}
	}
}

// The client hears of a tool that is switched off, and of one that is switched on.
func TestServe_SwitchedTools(t *testing.T) {
	for version, o := range versions {
		t.Run(version, func(t *testing.T) {
			c := stock(t, "")
			changed := make(chan struct{}, 16)
			in, out, stop, _ := c.run(service.StartRequest{})
			defer stop()
			client := sdk.NewClient(&sdk.Implementation{Name: "x"}, &sdk.ClientOptions{
				ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { changed <- struct{}{} },
			})
			session, err := client.Connect(t.Context(), &sdk.IOTransport{Reader: out, Writer: in}, o)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			has := func() bool {
				tools, err := session.ListTools(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				return slices.ContainsFunc(tools.Tools, func(t *sdk.Tool) bool { return t.Name == "read_file" })
			}
			for _, on := range []bool{false, true} {
				if _, err := c.s.Policy.SwitchTool(t.Context(), c.who, policy.SwitchRequest{Tool: "read_file", Enabled: on}); err != nil {
					t.Fatal(err)
				}
				select {
				case <-changed:
				case <-time.After(patience):
					t.Fatal("the client was not told")
				}
				if has() != on {
					t.Fatalf("listed: %v", !on)
				}
			}
		})
	}
}

// Runs and approvals can be read; those of others cannot.
func TestServe_Resources(t *testing.T) {
	c := stock(t, "")
	client := c.client(service.StartRequest{}, nil, nil)
	id := approvalOf(t, call(t, client, "write_file", writeB))
	read := func(uri string) string {
		r, err := client.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
		if err != nil {
			return err.Error()
		}
		return r.Contents[0].Text
	}
	var list []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(read("toolcrib://runs")), &list); err != nil || len(list) != 1 {
		t.Fatalf("%v %v", list, err)
	}
	if text := read("toolcrib://runs/" + list[0].ID); !strings.Contains(text, `"name": "write_file"`) {
		t.Error(text)
	}
	if text := read("toolcrib://approvals"); !strings.Contains(text, id) || !strings.Contains(text, `"write_file"`) {
		t.Error(text)
	}
	if text := read("toolcrib://approvals/" + id); !strings.Contains(text, `"digest"`) {
		t.Error(text)
	}
	c.who = toolcrib.Principal{User: "bob"}
	client = c.client(service.StartRequest{}, nil, nil)
	for _, uri := range []string{
		"toolcrib://runs/" + list[0].ID, "toolcrib://approvals/" + id, "toolcrib://runs/last", "toolcrib://runs/..",
		"toolcrib://runs/%2e", "toolcrib://nothing", "file:///etc/passwd",
	} {
		if text := read(uri); !strings.Contains(text, "not found") {
			t.Errorf("%s: %s", uri, text)
		}
	}
	if text := read("toolcrib://runs") + read("toolcrib://approvals"); text != "[][]" {
		t.Error(text)
	}
	if r := call(t, client, "collect_result", map[string]any{"approval_id": id}); !r.IsError {
		t.Error(textOf(r))
	}
}

// Where a person at toolcrib decides while the client is asked, their word counts, and the client reads
// what became of the call.
func TestServe_SomebodyElseWasFirst(t *testing.T) {
	for name, o := range versions {
		for _, word := range []string{"approve", "deny"} {
			t.Run(name+" "+word, func(t *testing.T) {
				c := stock(t, "")
				session := c.client(service.StartRequest{}, func(*sdk.ElicitParams) *sdk.ElicitResult {
					all, err := c.s.Approvals(t.Context(), c.who)
					if err != nil || len(all) != 1 {
						t.Errorf("%+v %v", all, err)
						return approving(nil)
					}
					c.decide(all[0].ID, word)
					if _, err := c.s.Resume(t.Context(), c.who, service.ResumeRequest{Run: string(all[0].Run)}, service.Front{}); err != nil {
						t.Error(err)
					}
					return approving(nil)
				}, o)
				r := call(t, session, "write_file", writeB)
				switch {
				case word == "approve" && (r.IsError || c.written() != "written"):
					t.Errorf("%s; the file: %q", textOf(r), c.written())
				case word == "deny" && (!strings.Contains(textOf(r), "approval_denied") || c.written() != ""):
					t.Errorf("%s; the file: %q", textOf(r), c.written())
				}
			})
		}
	}
}
