package render

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Whatever the pieces, nothing of a text can command a terminal, and it arrives as if it
// came at once (N25).
func TestN25_QuotePieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{
			"plain", "\x1b]0;title\a", "日本語", "e\u0301\u200d", "👩\u200d👩\u200d👧", "\u202eright", "a\rb\n\tc", "\x9b31m", "\xff\xfe",
		}).Draw(t, "text") + rapid.String().Draw(t, "rest")
		var v, whole quote
		var got strings.Builder
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			got.WriteString(v.write(rest[:n]))
			rest = rest[n:]
		}
		got.WriteString(v.end())
		for _, r := range got.String() {
			if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
				t.Fatalf("%q became %q, which holds %U", text, got.String(), r)
			}
		}
		if want := whole.write(text) + whole.end(); got.String() != want {
			t.Fatalf("%q became %q, want %q", text, got.String(), want)
		}
	})
}

func TestArguments(t *testing.T) {
	for _, test := range []struct{ arguments, want string }{
		{`{}`, ""},
		{`{"path":"a.txt"}`, "a.txt"},
		{`{"content":"x\ny","path":"a.txt"}`, `a.txt content=x\ny`},
		{`{"n":1,"flags":["a","b"]}`, `flags=["a","b"] n=1`},
		{`{"path":"\u001b[2Jx"}`, "[U+001B][2Jx"},
		{`no JSON`, "no JSON"},
	} {
		if got := Arguments(json.RawMessage(test.arguments), 80); got != test.want {
			t.Errorf("%s: %q, want %q", test.arguments, got, test.want)
		}
	}
	folders := strings.Repeat("folder/", 40)
	for _, test := range []struct {
		width           int
		arguments, want string
	}{
		{80, `{"path":"` + folders + `main.go"}`, strings.Repeat("folder/", 8) + `folde…[218 more]/main.go`},
		{80, `{"path":"` + folders + `main.go","content":"` + strings.Repeat("x", 200) + `"}`, "/main.go c…["},
		{80, `{"path":"проект/документы/отчёт.md","content":"` + strings.Repeat("x", 200) + `"}`, "проект/документы/отчёт.md c"},
		{60, `{"path":"` + folders + `main.go","new_text":"y","old_text":"x"}`, "/main.go new_text=y old_text=x"},
	} {
		if got := Arguments(json.RawMessage(test.arguments), test.width); !strings.Contains(got, test.want) || ansi.StringWidth(got) > test.width {
			t.Errorf("%q, want the name of the file: %q", got, test.want)
		}
	}
	if got := Arguments(json.RawMessage(`{"path":"`+strings.Repeat("x", 500)+`"}`), 20); len([]rune(got)) != 20 {
		t.Errorf("not cut: %q", got)
	}
}

func TestFold(t *testing.T) {
	lines := make([]string, 9)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %d", i+1)
	}
	content, err := json.Marshal(map[string]string{"content": strings.Join(lines, "\n")})
	if err != nil {
		t.Fatal(err)
	}
	got := Style{}.Fold(journal.ResultView{Status: toolcrib.ResultOK, Content: string(content), DurationMS: 3200, Truncated: true}, 4, "")
	want := "  └ line 1\n    line 2\n    … 5 more lines · cut · 3.2s\n    line 8\n    line 9\n"
	if got != want {
		t.Errorf("folded:\n%s\nwant:\n%s", got, want)
	}
	if got := (Style{}).Fold(journal.ResultView{Status: toolcrib.ResultOK, Content: string(content)}, 0, ""); strings.Count(got, "\n") != 9 {
		t.Errorf("not whole:\n%s", got)
	}
	refusal := guard.Refusal{Tool: "x", Reason: toolcrib.ReasonToolDisabled, Message: "x is switched off"}.JSON()
	if got := (Style{}).Fold(journal.ResultView{Status: toolcrib.ResultRefused, Reason: toolcrib.ReasonToolDisabled, Content: refusal}, 4, ""); got != "  └ refused (tool_disabled): x is switched off\n" {
		t.Errorf("refusal: %q", got)
	}
	for content, want := range map[string]string{
		`{"entries":[{"name":"a"},{"name":"b","is_dir":true}]}`:            "  └ a\n    b/\n",
		`{"matches":[{"path":"a.go","line":3,"text":"\tx"},{"path":"b"}]}`: "  └ a.go:3: x\n    b\n",
		`{"matches":[]}`:       "  └ (empty)\n",
		`{"content":"x\n\ny"}`: "  └ x\n\n    y\n",
		`{"entries":[{"name":"a"},{"name":"b"},{"name":"c"},{"name":"d"},{"name":"e"}]}`: "  └ a  b  c  d  e\n",
		`{"matches":[{"other":"x"}]}`: "  └ {\"matches\":[{\"other\":\"x\"}]}\n",
	} {
		if got := (Style{}).Fold(journal.ResultView{Status: toolcrib.ResultOK, Content: content}, 4, ""); got != want {
			t.Errorf("%s: %q, want %q", content, got, want)
		}
	}
	for content, want := range map[string]string{
		`{"exit_code":0,"stdout":"a\nb\n","stderr":"","duration_ms":1}`:          "  └ a\n    b\n",
		`{"exit_code":-1,"stdout":"","stderr":"","signal":"segmentation fault"}`: "  └ killed by signal: segmentation fault\n",
		`{"exit_code":2,"stdout":"","stderr":"no such file\n"}`:                  "  └ exit status 2\n    no such file\n",
		`{"exit_code":0,"stdout":""}`:                                            "  └ (empty)\n",
	} {
		if got := (Style{}).Fold(journal.ResultView{Status: toolcrib.ResultOK, Content: content}, 4, ""); got != want {
			t.Errorf("%s: %q, want %q", content, got, want)
		}
	}
	if got := (Style{}).Fold(journal.ResultView{Status: toolcrib.ResultOK}, 4, ""); got != "  └ (empty)\n" {
		t.Errorf("empty: %q", got)
	}
}

func TestDurationAndCost(t *testing.T) {
	for d, want := range map[time.Duration]string{
		80 * time.Millisecond: "80ms", 3250 * time.Millisecond: "3.2s", 125 * time.Second: "2m05s", 62 * time.Minute: "1h02m",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
	for _, test := range []struct {
		usage toolcrib.Usage
		known bool
		want  string
	}{
		{toolcrib.Usage{}, false, "?"},
		{toolcrib.Usage{}, true, "$0"},
		{toolcrib.Usage{CostUSD: 0.0012}, true, "$0.001200"},
		{toolcrib.Usage{CostUSD: 1.5, Estimated: true}, true, "~$1.50"},
	} {
		if got := Cost(test.usage, test.known); got != test.want {
			t.Errorf("%+v: %s, want %s", test.usage, got, test.want)
		}
	}
	if got := Number(-1234567); got != "-1,234,567" {
		t.Error(got)
	}
}

func frame(event string, data any) journal.Frame { return journal.Frame{Event: event, Data: data} }

// What a run of two agents shows while it is active, to a terminal and to a file.
func TestLive_Golden(t *testing.T) {
	const id = "run_01K0PARENT1000000000000000"
	for name, terminal := range map[string]bool{"live_terminal": true, "live_file": false} {
		var out bytes.Buffer
		l := &Live{Out: &out, Err: &out, OutTerminal: terminal, Style: Style{Width: 80}}
		l.Start()
		for _, e := range keptRuns(t)[id] {
			f, ok := journal.View(id, e)
			if !ok {
				continue
			}
			if m, ok := f.Data.(journal.MessageView); ok {
				l.Frame(frame(journal.FrameThinking, journal.TextView{Text: "Let me see."}))
				l.Frame(frame(journal.FrameToken, journal.TextView{Text: m.Text}))
			}
			l.Frame(f)
		}
		l.Stop()
		wantGolden(t, name, out.String())
	}
}

// A run that is resumed shows from its first event on what it does; its start was shown before.
func TestLive_ResumedActivity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := &Live{Out: io.Discard, Err: &log, ErrTerminal: true}
		l.Start()
		l.Frame(frame("tool_call", journal.CallView{ID: "c", Name: "read_file"}))
		l.Frame(frame("tool_started", journal.CallStartedView{ID: "c"}))
		time.Sleep(time.Second)
		l.Frame(frame("tool_result", journal.ResultView{ToolCallID: "c", Status: toolcrib.ResultOK}))
		time.Sleep(time.Second)
		l.Stop()
		if got := log.String(); !strings.Contains(got, "running read_file 300ms") || !strings.Contains(got, "waiting for the model 300ms") {
			t.Errorf("the status line: %q", got)
		}
	})
}

// The answer stands on the output once: streamed on a terminal, whole elsewhere.
func TestLiveAnswerOnce(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		var out, log bytes.Buffer
		l := &Live{Out: &out, Err: &log, OutTerminal: terminal}
		l.Start()
		for _, f := range []journal.Frame{
			frame("token", journal.TextView{Text: "I look. "}),
			frame("message", journal.MessageView{Text: "I look. "}),
			frame("tool_call", journal.CallView{ID: "c", Name: "read_file", Arguments: json.RawMessage(`{"path":"a"}`)}),
			frame("tool_result", journal.ResultView{ToolCallID: "c", Name: "read_file", Status: "ok", Content: `{"content":"text"}`}),
			frame("token", journal.TextView{Text: "The "}),
			frame("token", journal.TextView{Text: "answer"}),
			frame("message", journal.MessageView{Text: "The answer"}),
			frame("done", journal.DoneView{Done: journal.Done{Content: "The answer", Status: toolcrib.StatusCompleted}}),
		} {
			l.Frame(f)
		}
		l.Stop()
		want := "The answer\n"
		if terminal {
			want = "│ I look.\n│ The answer\n"
		}
		if out.String() != want {
			t.Errorf("terminal %v: %q, want %q", terminal, out.String(), want)
		}
		if !strings.Contains(log.String(), "● read_file a\n  └ text\n") {
			t.Errorf("terminal %v: %q", terminal, log.String())
		}
		if strings.Contains(log.String(), "I look") == terminal {
			t.Errorf("terminal %v: the aside: %q", terminal, log.String())
		}
	}
}

// No byte of a model or tool reaches a terminal unseen (N25).
func TestN25_LiveIsVisible(t *testing.T) {
	var out, log bytes.Buffer
	evil := "\x1b]0;evil\a\x9b\u202e"
	arguments, err := json.Marshal(map[string]string{evil: evil})
	if err != nil {
		t.Fatal(err)
	}
	l := &Live{Out: &out, Err: &log, OutTerminal: true, ErrTerminal: true}
	l.Start()
	for _, f := range []journal.Frame{
		frame("thinking", journal.TextView{Text: evil}),
		frame("token", journal.TextView{Text: evil}),
		frame("message", journal.MessageView{Text: evil}),
		frame("tool_call", journal.CallView{ID: evil, Name: evil, Arguments: arguments}),
		frame("tool_result", journal.ResultView{
			ToolCallID: evil, Name: evil, Status: toolcrib.ResultStatus(evil), Reason: toolcrib.Reason(evil), Content: evil,
		}),
		frame("notice", toolcrib.Notice{Code: evil, Message: evil}),
		frame("confirmation_resolved", journal.ResolvedView{By: evil}),
		frame("done", journal.DoneView{Done: journal.Done{Content: evil + evil}}),
	} {
		l.Frame(f)
	}
	l.Stop()
	for _, text := range []string{out.String(), log.String()} {
		if strings.ContainsAny(text, "\x1b\a\u009b\u202e") {
			t.Errorf("%q", text)
		}
	}
}

func asked(n int) *journal.ConfirmationRequired {
	ask := &journal.ConfirmationRequired{ApprovalID: "apr_1", Kind: journal.ApprovalCall}
	for i := range n {
		ask.Calls = append(ask.Calls, journal.ApprovalItem{
			ID: fmt.Sprintf("c%d", i+1), Name: "write_file", Arguments: json.RawMessage(`{"path":"a"}`),
			Effect: toolcrib.EffectIdempotentWrite, Preview: &toolcrib.Preview{Kind: "diff", Text: "-old\n+new\x1b[2J\n"},
		})
	}
	return ask
}

// typed is what a person types, a line for each question.
type typed struct{ *bufio.Reader }

func lines(text string) typed { return typed{bufio.NewReader(strings.NewReader(text))} }

func (t typed) Hidden(string) (string, error) { return t.Line() }

func (typed) Settle(context.Context, time.Duration) {}

func (t typed) Line() (string, error) { return t.ReadString('\n') }

func TestH16_Approver(t *testing.T) {
	for _, test := range []struct {
		name, typed string
		calls       int
		decided     bool
		decision    string
		reason      string
	}{
		{"approve", "y\n", 1, true, "approve", ""},
		{"after nonsense", "x\n\nhow?\nYes\n", 1, true, "approve", ""},
		{"show first", "s\ny\n", 1, true, "approve", ""},
		{"deny", "n\n", 1, true, "deny", ""},
		{"deny with a reason", "d\nnot today\n", 1, true, "deny", "not today"},
		{"deny without one", "d\n\n", 1, true, "deny", ""},
		{"deny, then the end", "d\n", 1, false, "", ""},
		{"later", "l\ny\n", 1, false, "", ""},
		{"one by one", "o\ny\nd\nno\n", 2, true, "mixed", "no"},
		{"one by one needs several", "o\ny\n", 1, true, "approve", ""},
		{"a pasted key is none", "\x1b[200~y\x1b[201~\n\x1by\nn\n", 1, true, "deny", ""},
		{"the end of the input", "", 1, false, "", ""},
		{"half a line", "y", 1, false, "", ""},
		{"one by one, cut off", "o\ny\n", 2, false, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			a := &Approver{In: lines(test.typed), Out: &out, By: "local:me"}
			d, ok, err := a.Decide(context.Background(), "run_1", asked(test.calls))
			if err != nil || ok != test.decided || d.Decision != test.decision || d.Reason != test.reason {
				t.Fatalf("got %+v, %v, %v", d, ok, err)
			}
			if ok && d.By != "local:me" {
				t.Errorf("by %q", d.By)
			}
			if d.Decision == "mixed" && (d.Of("c1").Decision != "approve" || d.Of("c2").Decision != "deny") {
				t.Errorf("calls: %+v", d.Calls)
			}
			if strings.Contains(out.String(), "\x1b") {
				t.Errorf("an escape sequence: %q", out.String())
			}
		})
	}
}

// An answer that comes after the run was cancelled decides nothing.
func TestH16_ApproverCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a := &Approver{In: lines("y\n"), Out: &bytes.Buffer{}}
	if d, ok, err := a.Decide(ctx, "run_1", asked(1)); ok || err != nil {
		t.Errorf("got %+v, %v, %v", d, ok, err)
	}
}

// What no person can be asked this way parks.
func TestH16_ApproverOtherKinds(t *testing.T) {
	ask := asked(1)
	ask.Kind = journal.ApprovalInDoubt
	a := &Approver{In: lines("y\n"), Out: &bytes.Buffer{}}
	if d, ok, err := a.Decide(context.Background(), "run_1", ask); ok || err != nil {
		t.Errorf("got %+v, %v, %v", d, ok, err)
	}
}

// The story of a decision says who decided what on which call, with the changed
// arguments; and what became of calls in doubt (N25, H16).
func TestN25_StoryOfDecisions(t *testing.T) {
	var out bytes.Buffer
	story := Story{Out: &out}
	call := toolcrib.ToolCall{ID: "call_1", Name: "write_file", Arguments: json.RawMessage(`{"path":"a"}`)}
	for _, body := range []toolcrib.Body{
		&journal.RunStarted{Given: &call},
		&journal.ConfirmationRequired{ApprovalID: "apr_1", Kind: journal.ApprovalInDoubt, Reason: "it was cut off"},
		&journal.ConfirmationResolved{ApprovalID: "apr_1", Decision: journal.DecisionNotHappened, By: "ann", Reason: "I looked"},
		&journal.ConfirmationResolved{ApprovalID: "apr_2", Decision: journal.DecisionMixed, By: "bob", Calls: map[string]journal.CallDecision{
			"call_1": {Decision: journal.DecisionApprove, Arguments: json.RawMessage(`{"path":"b"}`)},
			"call_2": {Decision: journal.DecisionDeny},
		}},
		&journal.Reconciled{ID: "call_1", State: toolcrib.Happened},
		&journal.Usage{Request: 1, Tokens: toolcrib.TokenUsage{InputTokens: 1200, OutputTokens: 34}, CostUSD: 0.5},
	} {
		story.Tell(toolcrib.Event{Time: time.Unix(0, 0), Body: body})
	}
	for _, want := range []string{
		"in doubt: it was cut off", "counted as not happened by ann: I looked", "decided call by call by bob",
		`call_1: approved, with other arguments: {"path":"b"}`, "call_2: denied",
		"call_1 was cut off after it had taken effect", "request 1: 1,234 tokens (1,200 in, 34 out) · $0.50",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the story lacks %q:\n%s", want, out.String())
		}
	}
}

// A person is told that something of a call is not shown, and how to see it; names
// with ends of lines stay on one line (N25).
func TestN25_WhatIsCutIsSaid(t *testing.T) {
	long := journal.ApprovalItem{Name: "write_file", Arguments: []byte(`{"path":"a.txt","content":"` + strings.Repeat("x", 5000) + `"}`), Effect: toolcrib.EffectIdempotentWrite, Reason: "write_file writes (idempotent_write); tools.confirm is writes"}
	short := long
	short.Arguments = []byte(`{"path":"a.txt"}`)
	s := Style{Width: 80}
	if got := s.Item(&long, false); !strings.Contains(got, "…[") {
		t.Errorf("nothing says that it is cut:\n%s", got)
	}
	if got := s.Item(&short, false); strings.Contains(got, "more]") ||
		!strings.Contains(got, "you decide about writes (tools.confirm)") {
		t.Errorf("short:\n%s", got)
	}
	f := journal.Frame{Seq: 3, Event: "message", Data: journal.MessageView{Text: "a\nb\x1b[2J"}}
	if got := Frame(f, 60); strings.ContainsAny(got, "\n\x1b") || !strings.Contains(got, `a\nb`) {
		t.Errorf("frame %q", got)
	}
}

// On a terminal a list fits: the widest columns give way, but for the first.
func TestTableFits(t *testing.T) {
	id := "apr_01KXJ0VQ8E5T9ZJ4M3N2"
	rows := func() [][]string {
		return [][]string{
			{"APPROVAL", "USER", "RULE", "WHEN"},
			{id, "ann", strings.Repeat("rule ", 10), strings.Repeat("args.command ", 20)},
		}
	}
	for _, width := range []int{0, 200, 80, 60} {
		var b strings.Builder
		Style{Width: width}.Table(&b, rows())
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if len(lines) != 2 || !strings.HasPrefix(lines[1], id+"  ann") {
			t.Errorf("%d: %q", width, lines)
		}
		for _, line := range lines {
			if n := ansi.StringWidth(line); width >= 60 && n > width {
				t.Errorf("%d: a line of %d columns: %q", width, n, line)
			}
		}
		if cut := strings.Contains(lines[1], "…"); cut != (width > 0 && width < 360) {
			t.Errorf("%d: cut %v: %q", width, cut, lines[1])
		}
	}
}

// Rows that do not fit by giving way become paragraphs, in which nothing is left out.
func TestTableOfManyColumns(t *testing.T) {
	head := []string{"APPROVAL", "RUN", "KIND", "AGE", "EXPIRES IN", "AGENT", "USER", "CALLS"}
	row := []string{"apr_06H0C0HDY1", "run_06H0C0HDXR", "approval", "567ms", "71h59m", "default", "", "write_file out.txt"}
	for _, width := range []int{20, 40, 60} {
		var b strings.Builder
		Style{Width: width}.Table(&b, [][]string{slices.Clone(head), slices.Clone(row)})
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		for _, line := range lines {
			if n := ansi.StringWidth(line); n > width {
				t.Errorf("%d: a line of %d columns: %q", width, n, line)
			}
		}
		text := strings.Join(strings.Fields(b.String()), " ")
		for _, want := range []string{
			row[0], "run: " + row[1], "expires in: 71h59m", "calls: write_file out.txt",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%d: lacks %q:\n%s", width, want, b.String())
			}
		}
		if strings.Contains(text, "user:") {
			t.Errorf("%d: an empty cell is shown:\n%s", width, b.String())
		}
	}
}
