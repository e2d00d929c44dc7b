package ui_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/browsertest"
	"github.com/toolcrib/toolcrib/journal"
)

// bigRun stores a run of more than 10,000 events, whose last round but one has 500 calls.
func (h *house) bigRun(user string) (run toolcrib.RunID, events int) {
	h.t.Helper()
	const rounds, wide = 1300, 500
	run = toolcrib.RunID(agent.NewID("run_"))
	all := []toolcrib.Body{&journal.RunStarted{
		Format: journal.Format, Agent: toolcrib.Agent{Name: "default", Model: "default/x"}, Driver: "server",
		Models:    []journal.ModelInfo{{Ref: "default/x", Provider: "default", ID: "x"}},
		Principal: toolcrib.Principal{User: user}, Input: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "count")},
	}}
	round := func(n, calls int) {
		all = append(all, &journal.ModelRequest{Request: n, Iteration: n, Attempt: 1})
		reply := &journal.Message{Request: n, Iteration: n, Parts: []toolcrib.Part{{Text: fmt.Sprintf("round **%d**", n)}}}
		var made, started, results []toolcrib.Body
		verdicts := &journal.Verdicts{Iteration: n}
		for i := range calls {
			c := toolcrib.ToolCall{
				ID: fmt.Sprintf("c%d-%d", n, i), Name: "read_file", Arguments: json.RawMessage(fmt.Sprintf(`{"path":"%d-%d.txt"}`, n, i)),
			}
			reply.Parts = append(reply.Parts, toolcrib.Part{ToolCall: &toolcrib.ToolCall{ID: c.ID, Name: c.Name}})
			made = append(made, &journal.ToolCall{Iteration: n, ToolCall: c})
			verdicts.Verdicts = append(verdicts.Verdicts, journal.Verdict{CallID: c.ID, Tool: c.Name, Decision: toolcrib.Allow})
			started = append(started, &journal.ToolStarted{ID: c.ID, Name: c.Name})
			results = append(results, &journal.ToolResult{
				ToolCallID: c.ID, Name: c.Name, Status: toolcrib.ResultOK, Content: strings.Repeat("line of the file\n", 100),
			})
		}
		all = append(append(append(all, reply), made...), &journal.Usage{Request: n})
		if calls > 0 {
			all = append(append(append(all, verdicts), started...), results...)
		}
	}
	for n := range rounds {
		round(n+1, 1)
	}
	round(rounds+1, wide)
	round(rounds+2, 0)
	all = append(all, &journal.Done{Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Content: "counted"})
	h.append(run, all)
	return run, len(all)
}

// append stores the events of a run.
func (h *house) append(run toolcrib.RunID, all []toolcrib.Body) {
	h.t.Helper()
	began := time.Now().Add(-time.Minute)
	for from := 0; from < len(all); from += 1000 {
		var part []toolcrib.Event
		for i, body := range all[from:min(from+1000, len(all))] {
			at := began.Add(time.Duration(from+i) * time.Millisecond)
			part = append(part, toolcrib.Event{Time: at, Body: body})
		}
		if err := h.service.Env.Store.Append(h.t.Context(), run, toolcrib.Seq(from), part...); err != nil {
			h.t.Fatal(err)
		}
	}
}

// A line of 10 MB is cut wherever a run has one, and is whole where it is downloaded.
func TestN25_StoryOfLongLines(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: LONG LINES; run without -short")
	}
	h := open(t, map[string]string{"default": hello}, "")
	run, line := toolcrib.RunID(agent.NewID("run_")), strings.Repeat("<b>\u202e", 1<<20/6)
	long := strings.Repeat(line, 10)
	arguments, err := json.Marshal(map[string]string{"path": line})
	if err != nil {
		t.Fatal(err)
	}
	c := toolcrib.ToolCall{ID: "c", Name: "read_file", Arguments: arguments}
	h.append(run, []toolcrib.Body{
		&journal.RunStarted{
			Format: journal.Format, Agent: toolcrib.Agent{Name: "default", Model: "default/x"}, Driver: "server",
			Models: []journal.ModelInfo{{Ref: "default/x"}}, Principal: toolcrib.Principal{User: "ann"}, System: line,
			Input: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, line)}, Taint: []string{line},
		},
		&journal.ModelRequest{Request: 1, Iteration: 1, Attempt: 1},
		&journal.Message{Request: 1, Iteration: 1, Parts: []toolcrib.Part{
			{Text: long}, {Thinking: &toolcrib.Thinking{Text: line}}, {ToolCall: &toolcrib.ToolCall{ID: "c", Name: "read_file"}},
		}},
		&journal.ToolCall{Iteration: 1, ToolCall: c},
		&journal.Verdicts{Iteration: 1, Verdicts: []journal.Verdict{
			{CallID: "c", Tool: "read_file", Reason: toolcrib.ReasonRuleDenied, Message: line, Rule: line},
		}},
		&journal.ToolResult{ToolCallID: "c", Name: "read_file", Status: toolcrib.ResultRefused, Content: long, Source: line},
		&journal.Notice{Notice: toolcrib.Notice{Code: "x", Message: line}},
		&journal.Said{Text: line, By: line},
		&journal.Error{Code: "x", Message: line, Status: toolcrib.StatusFailed, Content: line},
	})
	ann := h.token("ann")
	for _, path := range []string{"", "?view=timeline", "/events/1", "/events/2", "/events/3", "/events/5", "/events/6", "/events/9"} {
		status, _, body := h.get(ann, "/runs/"+string(run)+path)
		if status != http.StatusOK || len(body) > 5<<20 || strings.Contains(body, "<b>\u202e") || strings.ContainsRune(body, '\u202e') {
			t.Errorf("%s: status %d, %d bytes, or a hidden character", path, status, len(body))
		}
	}
	if _, _, body := h.get(ann, "/runs"); len(body) > 100<<10 {
		t.Errorf("the list has %d bytes", len(body))
	}
	if _, head, body := h.get(ann, "/runs/"+string(run)+"/events/6/result"); body != long ||
		!strings.Contains(head.Get("Content-Disposition"), "attachment") {
		t.Errorf("the result has %d bytes", len(body))
	}
}

// A run of 10,000 events with 500 calls in a round is shown in parts, quickly.
func TestN25_StoryOfABigRun(t *testing.T) {
	h := open(t, map[string]string{"default": hello}, "")
	run, events := h.bigRun("boss")
	if events < 10_000 {
		t.Fatal(events)
	}
	boss, page := h.token("boss"), "/runs/"+string(run)
	best := time.Hour
	for range 5 {
		began := time.Now()
		status, _, body := h.get(boss, page)
		best = min(best, time.Since(began))
		if n := strings.Count(body, `class="step `); status != http.StatusOK || n != 150 || len(body) > 1<<20 {
			t.Fatalf("status %d, %d entries, %d bytes", status, n, len(body))
		}
	}
	t.Logf("%d events: the page takes %v", events, best)
	if best > 2*time.Second { // with the race detector, beside other tests
		t.Errorf("the page takes %v", best)
	}
	tab := h.tab("boss", browsertest.Options{})
	tab.Visit(h.url + page)
	shown, walked := map[string]bool{}, 0
	for walked < 6 {
		walked++
		for _, id := range browsertest.Eval[[]string](tab, `[...document.querySelectorAll(".step")].map((e) => e.id)`) {
			if shown[id] {
				t.Fatalf("%s is shown twice", id)
			}
			shown[id] = true
		}
		if browsertest.Eval[bool](tab, `[...document.querySelectorAll(".entry-call")].some((e) => !e.textContent.includes("Done"))`) {
			t.Error("a call has no result")
		}
		tab.Click("[data-earlier]")
		tab.Wait("a.button[href='" + page + "']")
	}
	if heap := browsertest.Eval[float64](tab, "performance.memory.usedJSHeapSize"); heap > 200<<20 {
		t.Errorf("the page takes %.0f bytes", heap)
	}
	if _, _, body := h.get(boss, page+"?view=timeline"); strings.Count(body, "<rect") < 100 {
		t.Error("no timeline")
	}
}
