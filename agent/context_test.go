package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// longTalk makes a model that calls a tool with a large result, so many rounds
// long, and answers requests for a summary.
func longTalk(w *world, rounds int, summary func() ([]toolcrib.Delta, error)) {
	turn := 0
	w.reply = func(_ context.Context, _ int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
		if strings.HasPrefix(req.System, "You condense") {
			return summary()
		}
		if turn++; turn > rounds {
			return []toolcrib.Delta{{Text: "the end"}, unreported(toolcrib.FinishStop)}, nil
		}
		return []toolcrib.Delta{
			{ToolCall: &toolcrib.ToolCallDelta{Name: "echo", Arguments: fmt.Sprintf(`{"n":%d,"text":%q}`, turn, strings.Repeat("abcdef ", 100))}},
			unreported(toolcrib.FinishToolCalls),
		}, nil
	}
}

func unreported(reason toolcrib.FinishReason) toolcrib.Delta {
	return toolcrib.Delta{Finish: &toolcrib.Finish{Reason: reason}}
}

func briefly() ([]toolcrib.Delta, error) {
	return []toolcrib.Delta{{Text: "echo was called."}, unreported(toolcrib.FinishStop)}, nil
}

func small(tokens int, strategy string) func(*agent.Task) {
	return func(k *agent.Task) {
		k.Models[0].Context, k.Agent.ContextStrategy = tokens, strategy
		k.Agent.MaxOutputTokens = 200
		k.Agent.Limits.MaxIterations = 30
	}
}

// mustFit fails if a request was larger than the model's context, or lost what has
// to be kept.
func mustFit(t *testing.T, w *world, tokens int) {
	t.Helper()
	for i, req := range w.requests {
		if strings.HasPrefix(req.System, "You condense") {
			if len(req.Tools) > 0 {
				t.Errorf("request %d: tools are offered to the condensing model", i)
			}
			continue
		}
		bytes := len(req.System)
		for _, m := range req.Messages {
			for _, p := range m.Parts {
				bytes += len(p.Text)
				if p.ToolCall != nil {
					bytes += len(p.ToolCall.Arguments)
				}
				if p.ToolResult != nil {
					bytes += len(p.ToolResult.Content)
				}
			}
		}
		if bytes/4 > tokens {
			t.Errorf("request %d has about %d tokens, the context %d", i, bytes/4, tokens)
		}
		if req.Messages[0].Text() != "go" || req.System != "You are a test." {
			t.Errorf("request %d lost the task or the system text", i)
		}
		if err := checkTranscript(req.Messages); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
}

func countCondensed(t *testing.T, w *world, run toolcrib.RunID, strategy string) (n int) {
	t.Helper()
	for _, e := range w.events(t, run) {
		if b, ok := e.Body.(*journal.Condensed); ok && b.Strategy == strategy {
			if n++; b.After >= b.Before {
				t.Errorf("condensing gained nothing: %d to %d tokens", b.Before, b.After)
			}
		}
	}
	return n
}

func TestContext_LongRunIsCondensed(t *testing.T) {
	for strategy, kind := range map[string]string{"": core.ContextCondense, core.ContextDrop: core.ContextDrop} {
		w := newWorld(t, gate.ConfirmNever)
		longTalk(w, 25, briefly)
		s := run(t, w, small(4000, strategy))
		equal(t, "content", s.Done.Content, "the end")
		equal(t, "iterations", s.Done.Iterations, 26)
		mustFit(t, w, 4000)
		if n := countCondensed(t, w, s.Run, kind); n < 2 {
			t.Errorf("%q: condensed %d times", strategy, n)
		}
		if n := countNotices(w, core.NoticeCondensed); n < 2 {
			t.Errorf("%q: %d notices", strategy, n)
		}
		last := w.requests[len(w.requests)-1].Messages
		if has := strings.Contains(last[1].Text(), "echo was called."); has != (strategy == "") {
			t.Errorf("%q: the summary in the request: %v", strategy, has)
		}
	}
}

func TestContext_Fail(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	longTalk(w, 25, briefly)
	s := run(t, w, small(4000, core.ContextFail))
	equal(t, "reason", s.Failed.StopReason, toolcrib.StopContextLength)
	if !strings.Contains(s.Failed.Message, "strategy is fail") {
		t.Errorf("the error does not say what to do: %s", s.Failed.Message)
	}
}

// The results of one turn leave room for the next request together: a turn is not condensed
// before the model has read it.
func TestContext_LargeResultsOfATurn(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.tools["draw"] = toolcrib.Output{Text: strings.Repeat("a long line\n", 4000)}
	w.script(calls("draw", `{}`, "draw", `{}`, "draw", `{}`, "draw", `{}`, "draw", `{}`, "draw", `{}`), say("ok"))
	s := run(t, w, small(4000, ""))
	equal(t, "status", s.Status, toolcrib.StatusCompleted)
	for _, c := range s.Trace {
		if r := c.Result; !r.Truncated || len(r.Content) > 8000/6 {
			t.Errorf("%d bytes, truncated %v", len(r.Content), r.Truncated)
		}
	}
	mustFit(t, w, 4000)
}

// One result leaves room for the next request: it is cut to about half of a small context.
func TestContext_LargeResult(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.tools["draw"] = toolcrib.Output{Text: strings.Repeat("a long line\n", 4000)}
	w.script(calls("draw", `{}`), say("ok"))
	s := run(t, w, small(4000, ""))
	equal(t, "status", s.Status, toolcrib.StatusCompleted)
	if r := s.Trace[0].Result; !r.Truncated || len(r.Content) > 8000 {
		t.Errorf("%d bytes, truncated %v", len(r.Content), r.Truncated)
	}
}

// What cannot be made to fit ends the run with a clear error, not with a loop.
func TestContext_NothingGained(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	longTalk(w, 25, briefly)
	s := run(t, w, small(4000, ""), func(k *agent.Task) { k.Prompt = strings.Repeat("a very long task ", 2000) })
	equal(t, "reason", s.Failed.StopReason, toolcrib.StopContextLength)
	equal(t, "requests", len(w.requests), 0)
	if !strings.Contains(s.Failed.Message, "cannot be condensed further") {
		t.Errorf("%s", s.Failed.Message)
	}
}

// A refused summary does not fail the run: the messages are dropped. (TestOutage_Condensing has
// outages.)
func TestContext_SummaryFails(t *testing.T) {
	for name, summary := range map[string]func() ([]toolcrib.Delta, error){
		"refused":  func() ([]toolcrib.Delta, error) { return nil, &toolcrib.ModelError{Class: toolcrib.ErrRefused} },
		"too long": func() ([]toolcrib.Delta, error) { return nil, &toolcrib.ModelError{Class: toolcrib.ErrContextLength} },
		"empty": func() ([]toolcrib.Delta, error) {
			return []toolcrib.Delta{unreported(toolcrib.FinishStop)}, nil
		},
	} {
		w := newWorld(t, gate.ConfirmNever)
		longTalk(w, 20, summary)
		s := run(t, w, small(4000, ""))
		equal(t, name, s.Done != nil && s.Done.Content == "the end", true)
		if n := countCondensed(t, w, s.Run, core.ContextDrop); n == 0 {
			t.Errorf("%s: nothing was dropped", name)
		}
		mustFit(t, w, 4000)
	}
}

// The API's own word on the length leads to one retry with a shorter transcript.
func TestContext_RefusedForItsLength(t *testing.T) {
	tooLong := &toolcrib.ModelError{Class: toolcrib.ErrContextLength, Status: 400, Message: "too long"}
	for name, again := range map[string]bool{"once": false, "again": true} {
		w := newWorld(t, gate.ConfirmNever)
		longTalk(w, 6, briefly)
		inner, refused := w.reply, 0
		w.reply = func(ctx context.Context, n int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
			if !strings.HasPrefix(req.System, "You condense") && (len(req.Messages) > 8 || again && refused > 0) {
				refused++
				return nil, tooLong
			}
			return inner(ctx, n, req)
		}
		s := run(t, w, small(0, ""))
		if again {
			equal(t, name, s.Failed.StopReason, toolcrib.StopContextLength)
			equal(t, "refused", refused, 2)
			continue
		}
		equal(t, name, s.Done != nil && s.Done.Content == "the end", true)
		if refused == 0 || countCondensed(t, w, s.Run, core.ContextCondense) == 0 {
			t.Errorf("refused %d times", refused)
		}
	}
}

// A result that is longer than the API accepts is condensed even in the last turn.
func TestContext_LastTurnRefusedForItsLength(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	w.reply = func(_ context.Context, _ int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
		last := req.Messages[len(req.Messages)-1]
		switch {
		case strings.HasPrefix(req.System, "You condense"):
			if text := last.Text(); !strings.Contains(text, "the first word") || !strings.Contains(text, "the last word") {
				t.Errorf("it is to condense %q", text)
			}
			return briefly()
		case len(req.Messages) == 1:
			return calls("echo", `{"n":1}`), nil
		case len(req.Messages) == 3:
			return calls("echo", `{"n":2,"text":"the first word`+strings.Repeat(" word", 5000)+` the last word"}`), nil
		case last.Role == toolcrib.RoleTool:
			return nil, &toolcrib.ModelError{Class: toolcrib.ErrContextLength, Status: 400, Message: "too long"}
		}
		return say("the end"), nil
	}
	s := run(t, w, small(0, ""))
	if s.Done == nil || s.Done.Content != "the end" || countCondensed(t, w, s.Run, core.ContextCondense) != 1 {
		t.Fatalf("%+v, %+v", s.Done, s.Failed)
	}
	if err := w.replayed(s); err != nil {
		t.Error(err)
	}
}

// What came before in the session goes first, and this run's task stays.
func TestContext_SessionHistory(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	longTalk(w, 3, briefly)
	s := run(t, w, small(4000, ""), func(k *agent.Task) {
		k.History = []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "go")}
		for i := range 12 {
			k.History = append(k.History,
				toolcrib.TextMessage(toolcrib.RoleAssistant, fmt.Sprintf("answer %d %s", i, strings.Repeat("word ", 250))),
				toolcrib.TextMessage(toolcrib.RoleUser, "more"))
		}
		k.History = k.History[:len(k.History)-1]
		k.Prompt = "the task of today"
	})
	equal(t, "content", s.Done.Content, "the end")
	mustFit(t, w, 4000)
	for i, req := range w.requests {
		if strings.HasPrefix(req.System, "You condense") {
			continue
		}
		found := false
		for _, m := range req.Messages {
			found = found || m.Text() == "the task of today"
		}
		if !found {
			t.Errorf("request %d lost the task", i)
		}
	}
}

// A run that is cut off while it is condensed continues to the same end.
func TestContext_CutAtEveryEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replies := func(w *world) {
			w.reply = func(_ context.Context, _ int, req *toolcrib.Request) ([]toolcrib.Delta, error) {
				if strings.HasPrefix(req.System, "You condense") {
					return briefly()
				}
				turn := 0 // the number of the last call, so that a request is always answered the same
				for _, m := range req.Messages {
					for _, p := range m.Parts {
						if p.ToolResult != nil {
							fmt.Sscanf(p.ToolResult.Content, `{"n":%d`, &turn)
						}
					}
				}
				if turn == 12 {
					return []toolcrib.Delta{{Text: "the end"}, unreported(toolcrib.FinishStop)}, nil
				}
				return []toolcrib.Delta{
					{ToolCall: &toolcrib.ToolCallDelta{Name: "echo", Arguments: fmt.Sprintf(`{"n":%d,"text":%q}`, turn+1, strings.Repeat("abcdef ", 100))}},
					unreported(toolcrib.FinishToolCalls),
				}, nil
			}
		}
		w := newWorld(t, gate.ConfirmNever)
		replies(w)
		whole := run(t, w, small(3000, ""))
		equal(t, "content", whole.Done.Content, "the end")
		events := w.events(t, whole.Run)
		for n := 1; n < len(events); n++ {
			cut := cutAfter(t, events, n, whole.Run, gate.ConfirmNever)
			replies(cut)
			if before, err := cut.runner.Load(t.Context(), whole.Run); err != nil || before.Turn != nil && !before.Turn.Whole() {
				continue
			}
			s, err := cut.runner.Resume(t.Context(), whole.Run)
			if err != nil {
				t.Fatalf("cut after %d (%s): %v", n, events[n-1].Body.EventKind(), err)
			}
			if s.Done == nil || s.Done.Content != "the end" || s.Done.Iterations != whole.Done.Iterations {
				t.Errorf("cut after %d (%s): %+v %+v", n, events[n-1].Body.EventKind(), s.Done, s.Failed)
			}
			if err := cut.replayed(s); err != nil {
				t.Errorf("cut after %d: %v", n, err)
			}
		}
	})
}

// The last request of a budget is not spent on a summary: what is in the way is
// dropped.
func TestContext_BudgetTooSmallForASummary(t *testing.T) {
	for most := 2; most < 12; most++ {
		w := newWorld(t, gate.ConfirmNever)
		longTalk(w, 20, briefly)
		s := run(t, w, small(2500, ""), func(k *agent.Task) { k.Agent.Budget.MaxRequests = most })
		equal(t, "reason", s.Done.StopReason, toolcrib.StopBudgetExhausted)
		equal(t, "requests", len(w.requests), most)
		if strings.HasPrefix(w.requests[most-1].System, "You condense") {
			t.Errorf("of %d requests the last was spent on a summary", most)
		}
	}
}

// Nothing is spent on a summary that cannot help: where what stays is too long by
// itself, or where there is next to nothing to sum up.
func TestContext_NoSummaryForNothing(t *testing.T) {
	long := strings.Repeat("a long message of the user ", 450)
	w := newWorld(t, gate.ConfirmNever)
	longTalk(w, 2, briefly)
	s := run(t, w, small(5000, ""), func(k *agent.Task) {
		k.History = []toolcrib.Message{
			toolcrib.TextMessage(toolcrib.RoleUser, "go "+long), toolcrib.TextMessage(toolcrib.RoleAssistant, "hello"),
		}
		k.Prompt = long
	})
	equal(t, "reason", s.Failed.StopReason, toolcrib.StopContextLength)
	equal(t, "requests", len(w.requests), 0)
	if !strings.Contains(s.Failed.Message, "shorter prompt") {
		t.Errorf("%s", s.Failed.Message)
	}
}

// What was said can be condensed before it has to be, by a run that does nothing else: all of it
// but the first message, whatever the strategy says, and none of it where no summary comes.
func TestContext_Compact(t *testing.T) {
	empty := func() ([]toolcrib.Delta, error) { return []toolcrib.Delta{unreported(toolcrib.FinishStop)}, nil }
	for _, c := range []struct {
		name, strategy string
		words, window  int
		budget         int64
		summary        func() ([]toolcrib.Delta, error)
		asked          int
		reason         toolcrib.StopReason
		condensed      bool
	}{
		{"asked for", "", 2000, 0, 0, briefly, 1, toolcrib.StopCompleted, true},
		{"more than fits", "", 8000, 5000, 0, briefly, 1, toolcrib.StopCompleted, true},
		{"of an agent that drops", core.ContextDrop, 2000, 0, 0, briefly, 1, toolcrib.StopCompleted, true},
		{"nothing gained", "", 10, 0, 0, briefly, 0, toolcrib.StopCompleted, false},
		{"empty summary", "", 2000, 0, 0, empty, 1, toolcrib.StopProviderFailed, false},
		{"a summary that is as long", "", 2000, 0, 0, func() ([]toolcrib.Delta, error) {
			return say(strings.Repeat("x", 9990)), nil
		}, 1, toolcrib.StopProviderFailed, false},
		{"no budget for it", "", 2000, 0, 500, briefly, 0, toolcrib.StopBudgetExhausted, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, gate.ConfirmNever)
			longTalk(w, 2, c.summary)
			s := run(t, w, small(c.window, c.strategy), func(k *agent.Task) {
				k.History = []toolcrib.Message{
					toolcrib.TextMessage(toolcrib.RoleUser, "go"),
					toolcrib.TextMessage(toolcrib.RoleAssistant, strings.Repeat("word ", c.words)),
				}
				k.Prompt, k.Compact, k.Agent.Budget.MaxTokens = "", true, c.budget
			})
			reason := toolcrib.StopReason("")
			if s.Done != nil {
				reason = s.Done.StopReason
			} else if s.Failed != nil {
				reason = s.Failed.StopReason
			}
			equal(t, "reason", reason, c.reason)
			equal(t, "requests", len(w.requests), c.asked)
			equal(t, "messages", len(s.Messages), 2)
			equal(t, "condensed", strings.HasPrefix(s.Messages[1].Text(), "[Earlier messages, 1 of them"), c.condensed)
			if err := w.replayed(s); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a person adds while a run is driven is read before the next request, and is in the journal.
func TestSaidWhileDriven(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	longTalk(w, 2, briefly)
	said := []string{"", "be quick", " \n"}
	w.runner.Said = func(toolcrib.RunID) (text string) {
		if len(said) > 0 {
			text, said = said[0], said[1:]
		}
		return text
	}
	s := run(t, w)
	equal(t, "content", s.Done.Content, "the end")
	last := w.requests[1].Messages[len(w.requests[1].Messages)-1]
	equal(t, "role", last.Role, toolcrib.RoleUser)
	equal(t, "said", last.Text(), "be quick")
	equal(t, "requests", len(w.requests), 3)
	if err := w.replayed(s); err != nil {
		t.Error(err)
	}
}

// A run knows at any time how full the context is.
func TestContext_HowFull(t *testing.T) {
	w := newWorld(t, gate.ConfirmNever)
	longTalk(w, 3, briefly)
	s := run(t, w, small(4000, ""))
	if used, of := s.Context(); of != 4000 || used < 300 || used > of {
		t.Errorf("%d tokens of %d", used, of)
	}
}
