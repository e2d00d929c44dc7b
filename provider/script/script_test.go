package script_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/script"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask sends a request after n assistant messages.
func ask(ctx context.Context, m toolcrib.Model, n int) (toolcrib.Reply, int, error) {
	req := &toolcrib.Request{Model: "demo", Messages: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "hello")}}
	for range n {
		req.Messages = append(req.Messages,
			toolcrib.TextMessage(toolcrib.RoleAssistant, "…"), toolcrib.TextMessage(toolcrib.RoleUser, "go on"))
	}
	var b toolcrib.ReplyBuilder
	deltas := 0
	for d, err := range m.Stream(ctx, req) {
		if err != nil {
			return b.Reply(), deltas, err
		}
		deltas++
		b.Add(d)
	}
	return b.Reply(), deltas, nil
}

func play(t *testing.T, yaml string) *script.Model {
	t.Helper()
	m, err := script.New(script.Options{Name: "demo", Bytes: []byte(yaml)})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestScript_PlaysTheReplyThatTheAssistantMessagesCount(t *testing.T) {
	m := play(t, `
- thinking: "The person wants to see a file."
  text: "I look it up. "
  tool_calls:
    - {name: read_file, arguments: {path: notes.txt, "a b": [1, 2.50, true, null, {z: 1, a: 2}], big: 123456789012345678901234567890, s: "12345678901234567890123", 1: one}, id: call_a}
    - {name: raw, arguments: '{"path": '}
    - {name: none}
  usage: {input: 120, cached_input: 100, output: 12}
- text: |
    Two
    lines
- {text: "cut off in the mid", finish: length}
- {}
`)
	want := []toolcrib.Reply{
		{
			Message: toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{
				{Thinking: &toolcrib.Thinking{Text: "The person wants to see a file."}},
				{Text: "I look it up. "},
				{ToolCall: &toolcrib.ToolCall{ID: "call_a", Name: "read_file", Arguments: []byte(
					`{"path":"notes.txt","a b":[1,2.50,true,null,{"z":1,"a":2}],"big":123456789012345678901234567890,"s":"12345678901234567890123","1":"one"}`)}},
				{ToolCall: &toolcrib.ToolCall{Name: "raw", Arguments: []byte(`{"path": `)}},
				{ToolCall: &toolcrib.ToolCall{Name: "none", Arguments: []byte(`{}`)}},
			}},
			Finish: toolcrib.Finish{Reason: toolcrib.FinishToolCalls, Model: "demo", Usage: toolcrib.TokenUsage{
				InputTokens: 120, CachedInputTokens: 100, OutputTokens: 12, Reported: true,
			}},
		},
		{Message: toolcrib.TextMessage(toolcrib.RoleAssistant, "Two\nlines\n"), Finish: toolcrib.Finish{Reason: toolcrib.FinishStop, Model: "demo"}},
		{Message: toolcrib.TextMessage(toolcrib.RoleAssistant, "cut off in the mid"), Finish: toolcrib.Finish{Reason: toolcrib.FinishLength, Model: "demo"}},
		{Message: toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{}}, Finish: toolcrib.Finish{Reason: toolcrib.FinishStop, Model: "demo"}},
	}
	for i := range want {
		for range 2 { // a repeated request gets the same reply
			got, _, err := ask(t.Context(), m, i)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want[i], got); diff != "" {
				t.Errorf("reply %d (-want +got):\n%s", i+1, diff)
			}
		}
	}
	if _, deltas, _ := ask(t.Context(), m, 0); deltas < 12 {
		t.Errorf("reply 1 came in %d deltas, want words and pieces of arguments", deltas)
	}
}

func TestScript_PastTheEnd(t *testing.T) {
	_, _, err := ask(t.Context(), play(t, "- {text: only}\n"), 1)
	var failed *toolcrib.ModelError
	if !errors.As(err, &failed) || failed.Class != toolcrib.ErrOther || !failed.Unsent {
		t.Fatalf("got %v, want an unsent ModelError of class other", err)
	}
	if want := "the script script ends with reply 1; the request needs reply 2"; failed.Message != want {
		t.Errorf("message %q, want %q", failed.Message, want)
	}
}

func TestScript_Errors(t *testing.T) {
	classes := []toolcrib.ErrorClass{
		toolcrib.ErrAuth, toolcrib.ErrRateLimit, toolcrib.ErrOverloaded, toolcrib.ErrContextLength, toolcrib.ErrBadRequest,
		toolcrib.ErrTimeout, toolcrib.ErrNetwork, toolcrib.ErrRefused, toolcrib.ErrOther,
	}
	for _, class := range classes {
		reply, _, err := ask(t.Context(), play(t, "- {text: before, error: "+string(class)+", retry_after: 2s}\n"), 0)
		var failed *toolcrib.ModelError
		if !errors.As(err, &failed) || failed.Class != class || failed.RetryAfter != 2*time.Second ||
			failed.Provider != "demo" {
			t.Errorf("%s: got %#v", class, err)
		}
		if reply.Message.Text() != "before" {
			t.Errorf("%s: text before the error was %q", class, reply.Message.Text())
		}
	}
}

func TestScript_DelayWaitsAndHonoursCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := play(t, "- {text: hi, delay: 50ms}\n")
		start := time.Now()
		if _, _, err := ask(t.Context(), m, 0); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited != 50*time.Millisecond {
			t.Errorf("waited %s, want 50ms", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		start = time.Now()
		_, _, err := ask(ctx, m, 0)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 20*time.Millisecond {
			t.Errorf("after %s: %v, want to stop with the context", time.Since(start), err)
		}
	})
}

func TestScript_CancelStopsBetweenDeltas(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range play(t, "- {text: one two three four}\n").Stream(ctx, &toolcrib.Request{}) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			break
		}
		n++
		cancel()
	}
	if n != 1 {
		t.Errorf("%d deltas after cancel, want 1", n)
	}
}

func TestScript_FileIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.yaml")
	m, err := script.New(script.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ write, want, fails string }{
		{fails: "does not exist"},
		{write: "- {text: first}\n", want: "first"},
		{write: "- {text: other}\n", want: "other"}, // same size, maybe the same time
		{write: "- {txt: other}\n", fails: ": " + filepath.Base(file) + ":1: txt: unknown key"},
		{write: "- {text: third}\n", want: "third"},
	} {
		if step.write != "" {
			if err := os.WriteFile(file, []byte(step.write), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		reply, _, err := ask(t.Context(), m, 0)
		switch {
		case step.fails == "" && err != nil:
			t.Fatal(err)
		case step.fails != "" && (err == nil || !strings.Contains(err.Error(), step.fails)):
			t.Errorf("after %q: error %v, want %q", step.write, err, step.fails)
		case step.fails == "" && reply.Message.Text() != step.want:
			t.Errorf("after %q: %q, want %q", step.write, reply.Message.Text(), step.want)
		}
		if check := m.Check(); (check != nil) != (err != nil) {
			t.Errorf("after %q: Check says %v, Stream says %v", step.write, check, err)
		}
	}
}

// A long script that has not changed costs a request no more than a short one.
func TestScript_IsParsedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.yaml")
	if err := os.WriteFile(file, []byte(strings.Repeat("- {text: one}\n", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := script.New(script.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(10, func() { err = m.Check() }); n > 500 || err != nil {
		t.Errorf("%v allocations, %v", n, err)
	}
}

func TestScript_BrokenScripts(t *testing.T) {
	deep := "- tool_calls: [{name: x, arguments: {a: " + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}}]\n"
	tests := []struct{ name, yaml, want string }{
		{"empty", "", "script: a script is a list of replies; this one is empty"},
		{"no list", "text: hi\n", "script:1: a script is a list of replies, not a mapping"},
		{"two documents", "- {}\n---\n- {}\n", "script:2: only one YAML document is allowed"},
		{"syntax", "- {text: [}\n", "script:1: "},
		{"unknown key", "- {}\n- text: hi\n  tols: []\n", "script:3: tols: unknown key"},
		{"key twice", "- {text: a, text: b}\n", "script:1: "},
		{"no object", "- hello\n", "script:1: must be a mapping, not a text"},
		{"number as text", "- {text: 42}\n", "script:1: text: must be a text, not a number; put it in quotes"},
		{"list as text", "- text: [a]\n", "script:1: text: must be a text, not a list"},
		{"calls no list", "- tool_calls: {name: x}\n", "script:1: tool_calls: must be a list, not a mapping"},
		{"call without name", "- tool_calls:\n  - {arguments: {}}\n", "script:2: tool_calls[0].name: is required"},
		{"call with an empty name", "- tool_calls: [{name: ''}]\n", "script:1: tool_calls[0].name: must not be empty"},
		{"call key", "- tool_calls:\n  - {name: a}\n  - {name: x, args: {}}\n", "script:3: tool_calls[1].args: unknown key"},
		{"arguments list", "- tool_calls: [{name: x, arguments: [1]}]\n", "arguments: must be a mapping, or a text"},
		{"arguments nan", "- tool_calls: [{name: x, arguments: {a: .nan}}]\n", "tool_calls[0].arguments.a: must be a plain decimal number"},
		{"arguments hex", "- tool_calls: [{name: x, arguments: {a: 0x1F}}]\n", "tool_calls[0].arguments.a: must be a plain decimal number"},
		{"arguments twice", "- tool_calls: [{name: x, arguments: {a: 1, a: 2}}]\n", `tool_calls[0].arguments.a: duplicate key "a"`},
		{"arguments deep", deep, "nested deeper than 64"},
		{"usage", "- usage: {input: -1}\n", "script:1: usage.input: must be at least 0"},
		{"usage float", "- usage: {input: 1.5}\n", "script:1: usage.input: must be a whole number in plain digits"},
		{"usage key", "- usage: {in: 1}\n", "script:1: usage.in: unknown key"},
		{"usage cached", "- usage: {input: 1, cached_input: 2}\n", "usage.cached_input: 2 is more than input (1), of which it is a part"},
		{"delay", "- {delay: soon}\n", "script:1: delay: must be a duration such as 30s, 15m, 72h or 90d"},
		{"delay number", "- {delay: 50}\n", "delay: must be a duration with its unit"},
		{"delay long", "- {delay: 2h}\n", "delay: must be at most 1h"},
		{"error class", "- {}\n- {error: broken}\n", "script:2: error: must be one of auth,"},
		{"finish", "- {finish: done}\n", "script:1: finish: must be one of stop,"},
		{"finish and error", "- {finish: stop, error: auth}\n", "not with both"},
		{"retry_after alone", "- {retry_after: 1s}\n", "retry_after goes with error only"},
		{"alias", "- &a {text: x}\n- *a\n", "anchors and aliases (& and *) are not allowed"},
		{"alias in arguments", "- tool_calls: [{name: x, arguments: {a: &b 1, c: *b}}]\n", "anchors and aliases"},
		{"tag", "- {text: !!str 3}\n", "script:1: tags are not allowed"},
		{"brackets", "- " + strings.Repeat("[", 2000), "script:1: lists and mappings are nested deeper than"},
		{"dashes", strings.Repeat("- ", 2000), "script:1: lists and mappings are nested deeper than"},
		{"large", "- {text: " + strings.Repeat("x", 1<<20) + "}\n", "larger than 1048576 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := script.New(script.Options{Bytes: []byte(tt.yaml)})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v\nwant   …%s…", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("error has several lines: %q", err)
			}
		})
	}
}

func TestScript_Options(t *testing.T) {
	if _, err := script.New(script.Options{}); err == nil {
		t.Error("a script without a source was taken")
	}
	if _, err := script.New(script.Options{File: "x", Bytes: []byte("- {}")}); err == nil {
		t.Error("a script with two sources was taken")
	}
	m, err := script.New(script.Options{File: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), "is a directory, not a file") {
		t.Errorf("a folder as script: %v", err)
	}
}

func FuzzScript(f *testing.F) {
	for _, seed := range []string{"- {text: a}", "- tool_calls: [{name: x, arguments: {a: [1, {b: null}]}}]", "- &a {text: x}\n- <<: *a", "- text: |\n    a\n", "- ? a\n  : b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		m, err := script.New(script.Options{Bytes: source})
		if err != nil {
			return
		}
		reply, _, err := ask(t.Context(), m, 0)
		if err == nil && reply.Finish.Reason == "" {
			t.Errorf("a reply without an end from %q", source)
		}
	})
}
