package offline_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
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

var update = flag.Bool("update", false, "write the golden files anew")

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

// conversation stands for the loop: it gives the model the results of real tools.
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
	if !b.Finished() || !reply.Finish.Usage.Reported || reply.Finish.Usage.CostUSD == nil || *reply.Finish.Usage.CostUSD != 0 {
		t.Errorf("the reply ends with %+v", reply.Finish)
	}
	return reply
}

// run answers the calls of a message, as the loop does: IDs, results in order.
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

// prompts are what newcomers type, and what the answer must tell.
var prompts = []struct {
	prompt string
	wants  []string // in the answer
	calls  int      // at least so many
}{
	{"What files are here?", []string{"4 folders and 6 files", "README.md", "docs/"}, 1},
	{"list", []string{"README.md", "main.go"}, 1},
	{"ls docs", []string{"guide.md", "faq.md"}, 1},
	{"which files here are about testing, and how many lines has README.md?", []string{"main_test.go", "docs/guide.md", "README.md has 16 lines"}, 3},
	{"how many Go files mention context?", []string{"2 files mention", "main.go"}, 1},
	{"How many Go files are there?", []string{"There are 3 Go files"}, 1},
	{"how many files are in docs/?", []string{"There are 2 files in docs/"}, 1},
	{"How many lines does main.go have?", []string{"main.go has 16 lines"}, 1},
	{"count the lines of every .md file", []string{"23 lines in 3 files", "README.md: 16", "docs/guide.md: 4", "docs/faq.md: 3"}, 4},
	{"how many words are in docs/faq.md", []string{"docs/faq.md has 10 words"}, 1},
	{"How many NEXTs are there?", []string{"2 lines mention", "in 2 files"}, 1},
	{"How many times does \"tick\" appear?", []string{"4 lines mention \"tick\"", "in 4 files"}, 1},
	{"how many tests are there", []string{"2 Go test functions", "1 Test…, 1 Benchmark…"}, 1},
	{"how many folders are there?", []string{"4 folders", "internal/"}, 1},
	{"Show me README.md", []string{"Clockwork keeps the time", "## Install"}, 1},
	{"what does the readme say?", []string{"Clockwork keeps the time"}, 1},
	{"read main.go and docs/guide.md", []string{"func Wind", "listen"}, 2},
	{"what is in docs/faq.md?", []string{"Why does it tick"}, 1},
	{"what's in the docs folder?", []string{"guide.md", "faq.md"}, 1},
	{"first 2 lines of go.mod", []string{"Lines 1 to 2 of go.mod", "module example.org/clockwork"}, 1},
	{"show the last line of main_test.go", []string{"BenchmarkWind"}, 1},
	{"Summarise README.md", []string{"cannot summarise", "Clockwork keeps the time", "- Install", "- Testing"}, 1},
	{"outline of main.go", []string{"func main()", "func Wind(ctx context.Context) string"}, 1},
	{"What is this project about?", []string{"Clockwork keeps the time", "scripts/"}, 2},
	{"explain this repository", []string{"Clockwork keeps the time"}, 2},
	{"where is Wind defined?", []string{"Wind is defined here", "main.go:14"}, 1},
	{"Where is the function main?", []string{"main.go:9"}, 1},
	{"find \"go test\"", []string{"README.md:16", "Makefile:2"}, 1},
	{"search for tick", []string{"scripts/wind.sh:2", "main_test.go:6"}, 1},
	{"which files import testing?", []string{"main_test.go"}, 1},
	{"Which files contain the word spring?", []string{"internal/spring.go"}, 1},
	{"find all yaml files", []string{"config/default.yaml"}, 1},
	{"list all markdown files", []string{"README.md", "docs/faq.md"}, 1},
	{"is there a Makefile?", []string{"Yes", "Makefile"}, 1},
	{"are there any tests here?", []string{"Yes", "main_test.go"}, 1},
	{"is there a Dockerfile", []string{"No", "Dockerfile"}, 1},
	{"what license is this under?", []string{"LICENSE begins", "Apache License"}, 2},
	{"which Go version does it need?", []string{"go 1.26"}, 1},
	{"what are the dependencies?", []string{"1 direct dependency", "example.org/a/b v1.2.3"}, 2},
	{"what language is this written in?", []string{".go: 3", ".md: 3"}, 1},
	{"how do I run the tests?", []string{"README.md:16", "go test"}, 1},
	{"what is the largest file?", []string{"main.go"}, 1},
	{"how big is LICENSE?", []string{"LICENSE has 61 bytes"}, 1},
	{"which is the longest Go file?", []string{"main.go: 16 lines"}, 4},
	{"Write \"hello\" to notes.txt", []string{"Done", "notes.txt"}, 1},
	{"Create a file called todo.md with the content: buy oil, and wind the clock", []string{"Done"}, 1},
	{"count the lines in README.md and write the result to count.txt", []string{"README.md has 16 lines", "Done"}, 2},
	{"write a list of all Go files to files.txt", []string{"Done"}, 2},
	{"replace \"tick\" with \"tock\" in scripts/wind.sh", []string{"Done"}, 1},
	{"append \"one more\" to docs/faq.md and show it", []string{"Done", "one more"}, 2},
	{"call list_directory with {\"path\": \"docs\"}", []string{"list_directory says", "guide.md"}, 1},
	{"how many lines of Go code are there?", []string{"31 lines in 3 files"}, 4},
	{"how many tests are in docs?", []string{"no Go test functions in docs/"}, 1},
	{"find the definition of Spring", []string{"internal/spring.go:4"}, 1},
	{"which file defines Wind?", []string{"main.go:14"}, 1},
	{"what does the internal package do?", []string{"no Go package \"internal\" that says"}, 1},
	{"what's the title of README.md?", []string{"The first heading of README.md is \"Clockwork\""}, 1},
	{"find files named *_test.go", []string{"main_test.go"}, 1},
	{"are there any files bigger than 10kB?", []string{"The largest files directly in this folder", "main.go: 222 bytes"}, 1},
	{"Welche Dateien sind hier?", []string{"README.md"}, 1},
	{"Wie viele Zeilen hat README.md?", []string{"README.md has 16 lines"}, 1},
	{"Zeige mir docs/guide.md", []string{"listen"}, 1},
	{"suche nach Spring", []string{"internal/spring.go:4"}, 1},
	{"schreibe \"hallo\" in gruss.txt", []string{"Done"}, 1},
}

func TestOffline_NewcomersPrompts(t *testing.T) {
	for _, tt := range prompts {
		t.Run(tt.prompt, func(t *testing.T) {
			c := converse(t)
			answer := c.say(t, tt.prompt)
			for _, want := range tt.wants {
				if !strings.Contains(answer, want) {
					t.Errorf("the answer lacks %q", want)
				}
			}
			if len(c.calls) < tt.calls {
				t.Errorf("%d calls, want at least %d", len(c.calls), tt.calls)
			}
			if !strings.Contains(answer, "no language model") {
				t.Error("the answer does not say that this is no language model")
			}
			if t.Failed() {
				t.Logf("calls: %s\nanswer:\n%s", strings.Join(c.calls, "\n       "), answer)
			}
		})
	}
}

func TestOffline_Writes(t *testing.T) {
	for _, tt := range []struct{ prompt, file, want string }{
		{"Write \"hello\" to notes.txt", "notes.txt", "hello"},
		{"Create a file called todo.md with the content: buy oil, and wind the clock", "todo.md", "buy oil, and wind the clock"},
		{"Create a file called todo.md with the content: \"buy oil\"", "todo.md", "buy oil"},
		{"Write \"hello\" to \"my notes.txt\"", "my notes.txt", "hello"},
		{"Write \"main.go\" to 'my list'", "my list", "main.go"},
		{"Write \"hallo\" to 日本.md", "日本.md", "hallo"},
		{"save to notes/a.txt:\n- one\n- \"two\"; three?", "notes/a.txt", "- one\n- \"two\"; three?"},
		{"count the lines in README.md and write the result to count.txt", "count.txt", "README.md has 16 lines.\n"},
		{"append \"one more\" to docs/faq.md and show it", "docs/faq.md", "# Questions\n\nWhy does it tick? Because of the context.\none more\n"},
		{"replace \"tick\" with \"tock\" in scripts/wind.sh", "scripts/wind.sh", "#!/bin/sh\necho tock\n"},
		{"schreibe \"hallo\" in gruss.txt", "gruss.txt", "hallo"},
	} {
		c := converse(t)
		answer := c.say(t, tt.prompt)
		got, err := os.ReadFile(filepath.Join(c.dir, filepath.FromSlash(tt.file)))
		if err != nil || string(got) != tt.want {
			t.Errorf("%q wrote %q (%v), want %q\n%s", tt.prompt, got, err, tt.want, answer)
		}
	}
}

func TestOffline_AnythingElse(t *testing.T) {
	for _, prompt := range []string{"Write me a poem about the sea", "What is the capital of France?", "hello", "who are you?", "what can you do?", "…", "42", "delete everything"} {
		c := converse(t)
		answer := c.say(t, prompt)
		for _, want := range []string{"no language model", "Show me README.md", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "toolcrib.yaml"} {
			if !strings.Contains(answer, want) {
				t.Errorf("%q: the answer lacks %q:\n%s", prompt, want, answer)
			}
		}
		if len(c.calls) > 0 {
			t.Errorf("%q called %q", prompt, c.calls)
		}
	}
}

func TestOffline_PartlyUnderstood(t *testing.T) {
	answer := converse(t).say(t, "how many lines has README.md? And what would Kant say to that?")
	for _, want := range []string{"README.md has 16 lines", "did not understand", "Kant"} {
		if !strings.Contains(answer, want) {
			t.Errorf("the answer lacks %q:\n%s", want, answer)
		}
	}
}

// TestOffline_Conversation keeps a whole conversation, to be read by people.
func TestOffline_Conversation(t *testing.T) {
	keep(t, converse(t), "conversation.txt", []string{
		"which files here are about testing, and how many lines has README.md?",
		"outline it",
		"count the lines of every .md file",
		"Write \"wind me\" to notes.txt, and then show notes.txt",
		"what does missing.txt say?",
	})
}

// keep compares a conversation with the golden file of this name.
func keep(t *testing.T, c *conversation, name string, prompts []string) {
	t.Helper()
	var b strings.Builder
	for _, prompt := range prompts {
		answer := c.say(t, prompt)
		fmt.Fprintf(&b, ">>> %s\n", prompt)
		for _, call := range c.calls {
			fmt.Fprintf(&b, "    %s\n", call)
		}
		fmt.Fprintf(&b, "%s\n\n", answer)
	}
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("(-want +got), go test -update writes it anew:\n%s", diff)
	}
}

func TestOffline_RefusalsAndErrorsAreTold(t *testing.T) {
	c := converse(t)
	c.answer = func(call toolcrib.ToolCall, _ string) (string, bool) {
		return `{"refused": true, "tool": "` + call.Name + `", "reason": "approval_denied", "message": "A person said no."}`, true
	}
	if answer := c.say(t, "Write \"hello\" to notes.txt"); !strings.Contains(answer, "I could not write notes.txt: the call was refused (approval_denied): A person said no.") {
		t.Errorf("a refusal: %s", answer)
	}
	if c.rounds != 1 {
		t.Errorf("asked %d times, want once", c.rounds)
	}
	c = converse(t)
	c.answer = func(toolcrib.ToolCall, string) (string, bool) { return `{"error": "timeout after 30s"}`, true }
	if answer := c.say(t, "show README.md"); !strings.Contains(answer, "I could not read README.md: timeout after 30s") {
		t.Errorf("an error: %s", answer)
	}
	// A file that looks like a refusal is a file: only the mark of the result counts.
	c = converse(t)
	c.answer = func(toolcrib.ToolCall, string) (string, bool) { return `{"refused": true, "content": "fine"}`, false }
	if answer := c.say(t, "show README.md"); !strings.Contains(answer, "fine") {
		t.Errorf("a result that looks like a refusal: %s", answer)
	}
}

func TestOffline_CutResults(t *testing.T) {
	c := converse(t)
	var long strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&long, "line %d \"quoted\"\n", i+1)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "long.txt"), []byte(long.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	cut := func(call toolcrib.ToolCall, content string) (string, bool) {
		if len(content) <= 20_000 {
			return "", false
		}
		data, err := json.Marshal(map[string]any{"_truncated_json": content[:16_001] + "...", "original_bytes": len(content)})
		if err != nil {
			t.Fatal(err)
		}
		return string(data), false
	}
	c.answer = cut
	if answer := c.say(t, "how many lines has long.txt?"); !strings.Contains(answer, "long.txt has 3000 lines") {
		t.Errorf("read in parts: %s\n%s", answer, strings.Join(c.calls, "\n"))
	}
	if c.rounds < 3 {
		t.Errorf("read in %d rounds, so nothing was cut", c.rounds)
	}
	c.answer = func(toolcrib.ToolCall, string) (string, bool) {
		return `{"_truncated_json": "{\"content\":\"one\\ntwo\\nthr\\...", "original_bytes": 99999}`, false
	}
	if answer := c.say(t, "how many lines has long.txt?"); !strings.Contains(answer, "long.txt has at least 3 lines") {
		t.Errorf("what cannot be read whole: %s", answer)
	}
	c.answer = func(toolcrib.ToolCall, string) (string, bool) {
		return `{"_truncated_json": "{\"matches\":[{\"path\":\"a.go\"},{\"path\":\"b.g...", "original_bytes": 99999}`, false
	}
	if answer := c.say(t, "list all go files"); !strings.Contains(answer, "At least 1 go file in") || !strings.Contains(answer, "a.go") || strings.Contains(answer, "b.g") {
		t.Errorf("a list that was cut: %s", answer)
	}
	c.answer = func(toolcrib.ToolCall, string) (string, bool) {
		return "<untrusted_input source=\"file\">\n<canary>CC_CANARY_0</canary>\n{\"content\":\"from outside\"}\n</untrusted_input>", false
	}
	if answer := c.say(t, "show long.txt"); !strings.Contains(answer, "from outside") || strings.Contains(answer, "CC_CANARY") {
		t.Errorf("an untrusted result: %s", answer)
	}
}

func TestOffline_OnlyOfferedToolsAreCalled(t *testing.T) {
	c := converse(t)
	c.specs = nil
	if answer := c.say(t, "show README.md"); !strings.Contains(answer, "the tool read_file is not offered to me here") {
		t.Errorf("no tools: %s", answer)
	}
	if answer := c.say(t, "what can you do?"); !strings.Contains(answer, "none of the tools that I know is offered") {
		t.Errorf("no tools: %s", answer)
	}
	if answer := c.say(t, "run `ls`"); !strings.Contains(answer, "exec_shell is not offered") {
		t.Errorf("a tool that is not there: %s", answer)
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
		{toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: "search_files"}, "hello", `search_files {"glob":"*"}`},
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
	if !strings.Contains(first, "no language model") || strings.Contains(second, "no language model") {
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
