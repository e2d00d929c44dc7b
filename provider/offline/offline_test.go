package offline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/offline"
	"github.com/toolcrib/toolcrib/tool/files"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// workspace makes a small repository.
func workspace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"README.md": "# Clockwork\n\n[![badge](x)](y)\n\nClockwork keeps the time of a small workshop.\n\n## Install\n\n```sh\n# not a heading\ngo install example.org/clockwork@latest\n```\n\n## Testing\n\nRun the tests with `go test ./...`.\n",
		"LICENSE":   "\n    Apache License\n    Version 2.0, January 2004\n\nTerms …\n",
		"go.mod":    "module example.org/clockwork\n\ngo 1.26\n\nrequire (\n\texample.org/a/b v1.2.3\n\texample.org/c v0.1.0 // indirect\n)\n",
		"main.go":   "// Command clockwork winds the clock.\npackage main\n\nimport (\n\t\"context\"\n\t\"fmt\"\n)\n\nfunc main() {\n\tfmt.Println(Wind(context.Background()))\n}\n\n// Wind winds the clock.\nfunc Wind(ctx context.Context) string {\n\treturn \"tick\"\n}\n",
		"main_test.go": "package main\n\nimport \"testing\"\n\nfunc TestWind(t *testing.T) {\n\tif Wind(t.Context()) != \"tick\" {\n\t\tt.Fatal(\"the clock stands\")\n\t}\n}\n\n" +
			"func BenchmarkWind(b *testing.B) {}\n",
		"docs/guide.md":       "# Guide\n\nHow to test a clock: listen.\nNEXT: write more.\n",
		"docs/faq.md":         "# Questions\n\nWhy does it tick? Because of the context.\n",
		"internal/spring.go":  "package internal\n\n// NEXT: oil it.\ntype Spring struct{ Turns int }\n",
		"scripts/wind.sh":     "#!/bin/sh\necho tick\n",
		"config/default.yaml": "speed: 1\n",
		"Makefile":            "test:\n\tgo test ./...\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// conversation replaces the loop: it gives the model the results of real tools.
type conversation struct {
	dir      string
	tools    map[string]toolcrib.Tool
	specs    []toolcrib.Spec
	messages []toolcrib.Message
	choice   toolcrib.ToolChoice
	calls    []string // as NAME ARGUMENTS
	rounds   int
	// answer, if set, replaces the result of a call.
	answer func(call toolcrib.ToolCall, content string) (string, bool)
}

func converse(t *testing.T) *conversation {
	t.Helper()
	c := &conversation{dir: workspace(t), tools: map[string]toolcrib.Tool{}}
	for _, tool := range files.New(files.Options{}) {
		c.tools[tool.Spec().Name] = tool
		c.specs = append(c.specs, tool.Spec())
	}
	return c
}

// say plays one prompt to its answer.
func (c *conversation) say(t *testing.T, prompt string) string {
	t.Helper()
	c.messages = append(c.messages, toolcrib.TextMessage(toolcrib.RoleUser, prompt))
	c.calls, c.rounds = nil, 0
	for range 20 {
		reply := c.ask(t)
		c.messages = append(c.messages, reply.Message)
		if len(reply.Message.ToolCalls()) == 0 {
			return reply.Message.Text()
		}
		c.rounds++
		c.run(t, reply.Message)
	}
	t.Fatalf("%q: no answer after 20 rounds; last calls %q", prompt, c.calls)
	return ""
}

func (c *conversation) ask(t *testing.T) toolcrib.Reply {
	t.Helper()
	var b toolcrib.ReplyBuilder
	for d, err := range offline.New().Stream(t.Context(), &toolcrib.Request{Messages: c.messages, Tools: c.specs, ToolChoice: c.choice}) {
		if err != nil {
			t.Fatal(err)
		}
		b.Add(d)
	}
	reply := b.Reply()
	if !b.Finished() || !reply.Finish.Usage.Reported || reply.Finish.Usage.CostUSD == nil ||
		*reply.Finish.Usage.CostUSD != 0 {
		t.Errorf("the reply ends with %+v", reply.Finish)
	}
	return reply
}

// run answers the calls of a message as the loop does: with IDs, and results in order.
func (c *conversation) run(t *testing.T, m toolcrib.Message) {
	t.Helper()
	results := toolcrib.Message{Role: toolcrib.RoleTool}
	for i, call := range m.ToolCalls() {
		call.ID = fmt.Sprintf("call_%d_%d", len(c.messages), i)
		c.calls = append(c.calls, call.Name+" "+string(call.Arguments))
		content, isError := c.result(t, *call)
		results.Parts = append(results.Parts, toolcrib.Part{ToolResult: &toolcrib.ToolResult{
			CallID: call.ID, Name: call.Name, Content: content, IsError: isError,
		}})
	}
	c.messages = append(c.messages, results)
}

func (c *conversation) result(t *testing.T, call toolcrib.ToolCall) (content string, isError bool) {
	t.Helper()
	tool, ok := c.tools[call.Name]
	if !ok {
		t.Fatalf("the model called %s, which is not offered", call.Name)
	}
	out, err := tool.Call(t.Context(), toolcrib.Call{ID: call.ID, Name: call.Name, Arguments: call.Arguments, Workspace: c.dir})
	var told *toolcrib.ToolError
	switch {
	case errors.As(err, &told):
		data, err := json.Marshal(map[string]string{"error": told.Error()})
		if err != nil {
			t.Fatal(err)
		}
		content, isError = string(data), true
	case err != nil:
		t.Fatal(err)
	case out.JSON != nil:
		content = string(out.JSON)
	default:
		content = out.Text
	}
	if c.answer != nil {
		if other, refused := c.answer(call, content); other != "" {
			return other, refused
		}
	}
	return content, isError
}

// prompts are typical first prompts, and the required content of the answers.
var prompts = []struct {
	prompt string
	calls  []string // names of the expected calls, in order
	wants  []string // texts in the answer
}{
	{"What files are here?", []string{"list_directory"}, []string{"4 folders and 6 files", "README.md", "docs/"}},
	{"list", []string{"list_directory"}, []string{"README.md", "main.go"}},
	{"what is in this folder?", []string{"list_directory"}, []string{"README.md", "main.go"}},
	{
		"which files here are about testing, and how many lines has README.md?",
		[]string{"search_files", "search_files", "read_file"},
		[]string{"main_test.go", "docs/guide.md", "README.md has 16 lines"},
	},
	{"Which files mention \"context\"?", []string{"search_files", "search_files"}, []string{"main.go", "docs/faq.md"}},
	{"which files import fmt", []string{"search_files", "search_files"}, []string{"main.go"}},
	{"How many lines does main.go have?", []string{"read_file"}, []string{"main.go has 16 lines"}},
	{"how many files are here?", []string{"list_directory"}, []string{"4 folders and 6 files"}},
	{"Show me README.md", []string{"read_file"}, []string{"Clockwork keeps the time", "## Install"}},
	{"what does the readme say?", []string{"read_file"}, []string{"Clockwork keeps the time"}},
	{"main.go", []string{"read_file"}, []string{"func Wind"}},
	{"what is in docs/faq.md?", []string{"read_file"}, []string{"Why does it tick"}},
	{"please read main.go. Then show docs/guide.md", []string{"read_file", "read_file"}, []string{"func Wind", "listen"}},
	{"Write \"wind me\" to notes.txt, and then show notes.txt", []string{"write_file", "read_file"}, []string{"7 bytes", "wind me"}},
	{"what's in the docs folder?", nil, []string{"tell me the name of a file"}},
	{"Run the tests.", []string{"list_directory"}, []string{"I could not do that", "exec_shell"}},
	{"Show me missing.txt", []string{"read_file"}, []string{"I could not do that", "missing.txt"}},
	{"show", nil, []string{"tell me the name of a file"}},
	{"hello", nil, []string{"not a language model", "Show me README.md", "ANTHROPIC_API_KEY"}},
	{"list the files here; sing", []string{"list_directory"}, []string{"README.md", `did not understand "sing"`}},
}

func TestOffline_Prompts(t *testing.T) {
	for _, tt := range prompts {
		t.Run(tt.prompt, func(t *testing.T) {
			c := converse(t)
			answer := c.say(t, tt.prompt)
			var called []string
			for _, call := range c.calls {
				name, _, _ := strings.Cut(call, " ")
				called = append(called, name)
			}
			if diff := cmp.Diff(tt.calls, called); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			for _, want := range tt.wants {
				if !strings.Contains(answer, want) {
					t.Errorf("no %q in:\n%s", want, answer)
				}
			}
		})
	}
}

func TestOffline_Writes(t *testing.T) {
	c := converse(t)
	c.say(t, "Write 'wind; and then stop. Now' to notes.txt")
	data, err := os.ReadFile(filepath.Join(c.dir, "notes.txt"))
	if err != nil || string(data) != "wind; and then stop. Now" {
		t.Errorf("wrote %q, %v", data, err)
	}
}

func TestOffline_ResultsThatAreNotPlain(t *testing.T) {
	for _, tt := range []struct {
		prompt, result string
		isError        bool
		want           string
	}{
		{"how many lines has a.txt?", `{"_truncated_json": "{\"content\":\"one\\ntwo\\nthr...", "original_bytes": 99999}`, false, "a.txt has at least 2 lines"},
		{"list", `{"_truncated_json": "{\"entries\":[", "original_bytes": 99999}`, false, "too long for me"},
		{"show a.txt", "<untrusted_input source=\"file\">\n<canary>CC_CANARY_0</canary>\n{\"content\":\"from outside\"}\n</untrusted_input>", false, "from outside"},
		{"show a.txt", `{"refused": true, "tool": "read_file", "reason": "tool_disabled", "message": "read_file is off."}`, true, "refused (tool_disabled): read_file is off"},
		{"show a.txt", `{"error": "not found: a.txt"}`, true, "not found: a.txt"},
		{"show a.txt", `nonsense`, true, "nonsense"},
		{"show a.txt", `[]`, false, "not what I expected"},
	} {
		c := converse(t)
		c.answer = func(toolcrib.ToolCall, string) (string, bool) { return tt.result, tt.isError }
		if answer := c.say(t, tt.prompt); !strings.Contains(answer, tt.want) || strings.Contains(answer, "CC_CANARY") {
			t.Errorf("%s: no %q in %s", tt.prompt, tt.want, answer)
		}
	}
}

func TestOffline_OnlyOfferedToolsAreCalled(t *testing.T) {
	c := converse(t)
	if answer := c.say(t, "run `ls`"); !strings.Contains(answer, "exec_shell is not offered") {
		t.Errorf("a tool that is not there: %s", answer)
	}
	c.specs = nil
	if answer := c.say(t, "show README.md"); !strings.Contains(answer, "the tool read_file is not offered to me here") {
		t.Errorf("no tools: %s", answer)
	}
	if answer := c.say(t, "hello"); !strings.Contains(answer, "None of the tools that I know is offered") {
		t.Errorf("no tools: %s", answer)
	}
}

func TestH13_OfflineHonoursToolChoice(t *testing.T) {
	c := converse(t)
	c.choice = toolcrib.ToolChoice{Mode: toolcrib.ChoiceNone}
	if answer := c.say(t, "show README.md"); !strings.Contains(answer, "not offered to me here") || len(c.calls) > 0 {
		t.Errorf("none: %q %s", c.calls, answer)
	}
	for _, tt := range []struct {
		choice       toolcrib.ToolChoice
		prompt, want string
	}{
		{toolcrib.ToolChoice{Mode: toolcrib.ChoiceRequired}, "hello", `list_directory {}`},
		{toolcrib.ToolChoice{Mode: toolcrib.ChoiceRequired}, "show go.mod", `read_file {"path":"go.mod"}`},
		{toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: "read_file"}, "hello", `read_file {"path":"README.md"}`},
		{toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: "search_files"}, "hello", `search_files {}`},
		{toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: "read_file"}, "list the files and read go.mod", `read_file {"path":"go.mod"}`},
	} {
		c := converse(t)
		c.choice = tt.choice
		c.messages = append(c.messages, toolcrib.TextMessage(toolcrib.RoleUser, tt.prompt))
		var got []string
		for _, call := range c.ask(t).Message.ToolCalls() {
			got = append(got, call.Name+" "+string(call.Arguments))
		}
		if diff := cmp.Diff([]string{tt.want}, got); diff != "" {
			t.Errorf("%+v, %q (-want +got):\n%s", tt.choice, tt.prompt, diff)
		}
	}
}

func TestOffline_IntroducesItselfOnce(t *testing.T) {
	c := converse(t)
	first, second := c.say(t, "list"), c.say(t, "list")
	if !strings.Contains(first, "not a language model") || strings.Contains(second, "not a language model") {
		t.Errorf("first:\n%s\nsecond:\n%s", first, second)
	}
}

func TestOffline_StopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	for _, err := range offline.New().Stream(ctx, &toolcrib.Request{Messages: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "hello")}}) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			break
		}
		n++
		cancel()
	}
	cancel()
	if n != 1 {
		t.Errorf("%d deltas after cancel, want 1", n)
	}
}

func FuzzOffline(f *testing.F) {
	for _, p := range prompts {
		f.Add(p.prompt, `{"content":"x"}`, false)
	}
	f.Add("show a.txt", `{"_truncated_json": "{\"content\":\"\\u00"}`, false)
	f.Add("how many aK\u212aes are there", `{"matches": []}`, false)
	f.Add("list *.go", `{"matches": [{"path": 1}]}`, true)
	var specs []toolcrib.Spec
	for _, tool := range files.New(files.Options{}) {
		specs = append(specs, tool.Spec())
	}
	f.Fuzz(func(t *testing.T, prompt, result string, isError bool) {
		messages := []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, prompt)}
		for range 3 {
			var b toolcrib.ReplyBuilder
			for d, err := range offline.New().Stream(t.Context(), &toolcrib.Request{Messages: messages, Tools: specs}) {
				if err != nil {
					t.Fatal(err)
				}
				b.Add(d)
			}
			reply := b.Reply().Message
			calls := reply.ToolCalls()
			if len(calls) == 0 {
				if reply.Text() == "" {
					t.Fatalf("no answer to %q", prompt)
				}
				return
			}
			results := toolcrib.Message{Role: toolcrib.RoleTool}
			for i, call := range calls {
				call.ID = fmt.Sprint(len(messages), i)
				if !json.Valid(call.Arguments) {
					t.Fatalf("arguments %q", call.Arguments)
				}
				results.Parts = append(results.Parts, toolcrib.Part{ToolResult: &toolcrib.ToolResult{CallID: call.ID, Content: result, IsError: isError}})
			}
			messages = append(messages, reply, results)
		}
	})
}

// A note in parentheses before a message is not a request.
func TestOffline_NotesInBrackets(t *testing.T) {
	c := converse(t)
	answer := c.say(t, "(Plan mode: only read now.)\n\n(I ran `ls`:\nREADME.md)\n\nlist the files")
	if strings.Contains(answer, "did not understand") || len(c.calls) != 1 {
		t.Errorf("%q: %s", c.calls, answer)
	}
	if answer := converse(t).say(t, "(hello"); answer == "" {
		t.Error("there is no answer to an open bracket")
	}
}
