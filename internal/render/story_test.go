package render

import (
	"bufio"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

var update = flag.Bool("update", false, "write testdata/*.golden again; look at what changes")

// keptRuns are the journals of a run and of the one that answers a call of it.
func keptRuns(t *testing.T) map[toolcrib.RunID][]toolcrib.Event {
	t.Helper()
	f, err := os.Open("../../journal/testdata/child.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // read only
	runs := map[toolcrib.RunID][]toolcrib.Event{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var l struct {
			Run     toolcrib.RunID  `json:"run"`
			Seq     toolcrib.Seq    `json:"seq"`
			Time    int64           `json:"time"`
			Kind    toolcrib.Kind   `json:"kind"`
			Payload json.RawMessage `json:"payload"`
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		body, err := journal.Decode(l.Kind, l.Payload)
		if err != nil {
			t.Fatal(err)
		}
		runs[l.Run] = append(runs[l.Run], toolcrib.Event{Seq: l.Seq, Time: time.UnixMicro(l.Time), Body: body})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return runs
}

// wantStory compares a story on 80 columns with a golden file. The time at which the
// run was started is that of the place where the test runs, and is left out.
func wantStory(t *testing.T, name string, story Story, events []toolcrib.Event) {
	t.Helper()
	var out strings.Builder
	story.Out, story.Style = &out, Style{Width: 80}
	for _, e := range events {
		story.Tell(e)
	}
	var got []string
	for l := range strings.Lines(out.String()) {
		if width := ansi.StringWidth(strings.TrimSuffix(l, "\n")); width > 80 {
			t.Errorf("%d columns: %q", width, l)
		}
		if !strings.HasPrefix(l, "started  ") {
			got = append(got, l)
		}
	}
	wantGolden(t, name, strings.Join(got, ""))
}

// wantGolden compares a text with a golden file.
func wantGolden(t *testing.T, name, got string) {
	t.Helper()
	golden := "testdata/" + name + ".golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-golden +now)\n%s", diff)
	}
}

// The story of a run whose call another agent answers, while that waits and when all is
// over, and the story of that one.
func TestStoryOfFamily(t *testing.T) {
	runs := keptRuns(t)
	parent, child := runs["run_01K0PARENT1000000000000000"], runs["run_01K0CH1D01000000000000000A"]
	parked := 0
	for i, e := range parent {
		if _, ok := e.Body.(*journal.Paused); ok {
			parked = i + 1
		}
	}
	wantStory(t, "story_parent_parked", Story{Self: "toolcrib --config c.yaml"}, parent[:parked])
	wantStory(t, "story_parent", Story{}, parent)
	wantStory(t, "story_child", Story{Caller: "lead"}, child)
}

// Two agents at once, one of which fails and one of which starts another that asks; what
// is known of prices and estimates learns the sum, too; nothing of a name or a
// task can command a terminal.
func TestStoryOfSiblings(t *testing.T) {
	call := func(id, arguments string) *journal.ToolCall {
		return &journal.ToolCall{Iteration: 1, ToolCall: toolcrib.ToolCall{ID: id, Name: "spawn", Arguments: json.RawMessage(arguments)}}
	}
	failed := toolcrib.Usage{InputTokens: 900, OutputTokens: 50, TotalTokens: 950, Requests: 1, Estimated: true}
	asked := toolcrib.Usage{InputTokens: 1200, CachedInputTokens: 100, OutputTokens: 60, TotalTokens: 1260, Requests: 3, CostUSD: 0.25, Estimated: true}
	own := toolcrib.Usage{InputTokens: 100, OutputTokens: 10, TotalTokens: 110, Requests: 2, CostUSD: 0.01}
	bodies := []toolcrib.Body{
		&journal.RunStarted{Agent: toolcrib.Agent{Name: "lead"}, Models: []journal.ModelInfo{{Ref: "small", Price: toolcrib.Price{Known: true}}}, Input: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "Do both.")}},
		call("c1", `{"agent":"looker","task":"\n  Look at every file of the folder and tell which of them nobody has opened for a year.\nBe quick."}`),
		call("c2", `{"agent":"asker","task":"Ask \u001b[2Jthem"}`), call("c3", `{"agent":"edited","task":"before"}`),
		&journal.ConfirmationResolved{Decision: journal.DecisionMixed, By: "ann", Calls: map[string]journal.CallDecision{"c3": {Decision: journal.DecisionApprove, Arguments: json.RawMessage(`{"agent":"edited","task":"after"}`)}}},
		&journal.ChildStarted{ID: "c1", Run: "run_01K0CH1D0A0000000000000000", Agent: "an_agent_with_a_name_that_leaves_no_room"},
		&journal.ChildStarted{ID: "c2", Run: "run_01K0CH1D0B0000000000000000", Agent: "asker"},
		&journal.ChildStarted{ID: "c3", Run: "run_01K0CH1D0C0000000000000000", Agent: "edited"},
		&journal.ChildEnded{ID: "c1", Run: "run_01K0CH1D0A0000000000000000", Status: toolcrib.StatusFailed, StopReason: toolcrib.StopProviderFailed, Usage: failed},
		&journal.ChildParked{ID: "c2", Run: "run_01K0CH1D0B0000000000000000", Status: toolcrib.StatusWaitingForInput, Pending: journal.Pending{
			Kind: "input", Run: "run_01K0CH1D0D0000000000000000", ApprovalID: "apr_01K0APPR0VA100000000000001", Question: "Which \x1b[2Jone?",
		}},
		&journal.ToolResult{ToolCallID: "c1", Name: "spawn", Status: toolcrib.ResultError, IsError: true, Content: `{"error":"agent looker failed (provider_failed)"}`},
		&journal.Paused{Status: toolcrib.StatusWaitingForInput, Pending: journal.Pending{Kind: "input", Run: "run_01K0CH1D0D0000000000000000"}},
		&journal.ChildResumed{ID: "c2", Run: "run_01K0CH1D0B0000000000000000"},
		&journal.ChildEnded{ID: "c2", Run: "run_01K0CH1D0B0000000000000000", Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopMaxIterations, Usage: asked},
		&journal.ToolResult{ToolCallID: "c2", Name: "spawn", Status: toolcrib.ResultOK, Content: "The first."},
		&journal.ToolResult{ToolCallID: "c3", Name: "spawn", Status: toolcrib.ResultError, IsError: true, Content: `{"error":"agent edited cannot be started"}`},
		&journal.Done{Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Iterations: 2, Usage: own},
	}
	at := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	events := make([]toolcrib.Event, len(bodies))
	for i, b := range bodies {
		events[i] = toolcrib.Event{Seq: toolcrib.Seq(i + 1), Time: at.Add(time.Duration(i) * time.Second), Body: b}
	}
	wantStory(t, "story_siblings", Story{}, events)
}

// No row of a story is wider than the terminal, and no word is broken.
func TestStoryOfANarrowTerminal(t *testing.T) {
	text := func(name string) string { return strings.Repeat("some of the words of "+name+", ", 8) + "and its end" }
	answer := toolcrib.TextMessage(toolcrib.RoleAssistant, "  "+text("an answer")+"\n\n    "+text("a second paragraph"))
	answer.Parts = append(answer.Parts, toolcrib.Part{Thinking: &toolcrib.Thinking{Text: text("a thought")}})
	var out strings.Builder
	story := Story{Out: &out, Style: Style{Width: 60}}
	for i, b := range []toolcrib.Body{
		&journal.RunStarted{
			Agent: toolcrib.Agent{Name: "lead"}, Models: []journal.ModelInfo{{Ref: "small"}}, Taint: strings.Split(text("a source"), " "),
			Input: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, text("a prompt")+"\n"+text("a second line"))},
		},
		&journal.Message{Parts: answer.Parts},
		&journal.Notice{Notice: toolcrib.Notice{Code: "network", Message: text("a notice")}},
		&journal.ConfirmationRequired{ApprovalID: "apr_01K0APPR0VA100000000000001", Kind: journal.ApprovalInput, Question: text("a question")},
		&journal.Said{By: "ann", Text: text("a message")},
		&journal.ModelFailed{Request: 1, Class: "network", Message: text("a failure")},
		&journal.Error{Status: toolcrib.StatusFailed, StopReason: toolcrib.StopProviderFailed, Message: text("an end")},
	} {
		story.Tell(toolcrib.Event{Seq: toolcrib.Seq(i + 1), Body: b})
	}
	for l := range strings.Lines(out.String()) {
		if width := ansi.StringWidth(strings.TrimSuffix(l, "\n")); width > 60 {
			t.Errorf("%d columns: %q", width, l)
		}
	}
	if words := strings.Count(strings.Join(strings.Fields(out.String()), " "), "some of the words of "); words != 10*8 {
		t.Errorf("%d of %d sentences are whole:\n%s", words, 10*8, out.String())
	}
}

// What a run below has read taints, each source once.
func TestStoryOfSources(t *testing.T) {
	var got []string
	narrator := Narrator{View: View{Note: func(text string) { got = append(got, text) }}, taint: []string{"mcp:notes"}}
	for range 2 {
		narrator.tainted(&journal.ToolResult{Untrusted: true, Source: "agent asker", Sources: []string{"web", "mcp:notes", "web"}})
	}
	narrator.tainted(&journal.ToolResult{Source: "b", Sources: []string{"c"}})
	if len(got) != 1 || !strings.Contains(got[0], "untrusted data of agent asker, web: ") {
		t.Errorf("%q", got)
	}
}

func TestWaitsFor(t *testing.T) {
	calls := []journal.ApprovalItem{{Name: "write_file", Arguments: json.RawMessage(`{"path":"a.txt"}`)}, {Name: "pick", Arguments: json.RawMessage(`{}`)}}
	for want, p := range map[string]journal.Pending{
		"for an approval of write_file a.txt, pick": {Kind: "approval", Calls: calls},
		"for your decision on write_file a.txt":     {Kind: "in_doubt", Calls: calls[:1]},
		"for an answer: Which one?":                 {Kind: "input", Question: "Which one?", Calls: calls},
		"for an answer to pick":                     {Kind: "input", Calls: calls[1:]},
		"for the result of pick":                    {Kind: "client_tool", Calls: calls[1:]},
	} {
		if got := WaitsFor(&p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A long thought says how much of it is not shown.
func TestStory_Thought(t *testing.T) {
	var out strings.Builder
	(&Story{Out: &out}).thought("a\nb\nc\nd")
	if want := "  a\n  b\n  c\n  … 1 more line\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
