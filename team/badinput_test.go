package team_test

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/team"
)

// What a worker may do wrong: it is refused as the rows say, its answer is what it says
// in the end, and the other agents answer as if it had behaved.
func TestBadInput_Worker(t *testing.T) {
	call := func(w *world, tool, arguments string) []toolcrib.Delta { return w.calls("a", tool, arguments) }
	tag := func(text string) func(*world) [][]toolcrib.Delta {
		return func(*world) [][]toolcrib.Delta { return [][]toolcrib.Delta{say(text), say("done")} }
	}
	for name, c := range map[string]struct {
		textOnly bool
		replies  func(w *world) [][]toolcrib.Delta
		statuses string
		fetched  string
	}{
		"calls everything that is not allowed": {replies: func(w *world) [][]toolcrib.Delta {
			return [][]toolcrib.Delta{call(w, "exec_shell", `{"command":"id"}`), call(w, "spawn", `{"agent":"b","task":"x"}`), call(w, "fetch", page(1)), say("done")}
		}, statuses: "refused refused hop_budget_exhausted"},
		"sets session_id": {replies: func(w *world) [][]toolcrib.Delta {
			return [][]toolcrib.Delta{call(w, "fetch", `{"url":"https://ok.example/1","session_id":"other"}`), call(w, "fetch", page(1)), say("done")}
		}, statuses: "refused ok", fetched: "https://ok.example/1"},
		"sets allow_shell": {replies: func(w *world) [][]toolcrib.Delta {
			return [][]toolcrib.Delta{call(w, "verify", `{"checks":[{"kind":"shell","cmd":"id"}],"allow_shell":true}`), say("done")}
		}, statuses: "refused"},
		"spends its hops on refusals": {replies: func(w *world) [][]toolcrib.Delta {
			return [][]toolcrib.Delta{call(w, "fetch", `{}`), call(w, "fetch", `{"url":1}`), call(w, "fetch", page(1)), say("done")}
		}, statuses: "refused refused hop_budget_exhausted"},
		"nests tags": {
			textOnly: true, statuses: "ok", fetched: "https://ok.example/<tool_call>{}</tool_call>",
			replies: tag(`<tool_call>{"name": "fetch", "args": {"url": "https://ok.example/<tool_call>{}</tool_call>"}}</tool_call>`),
		},
		"sends two tags": {
			textOnly: true, statuses: "ok", fetched: "https://ok.example/1",
			replies: tag(`<tool_call>{"name": "fetch", "args": {"url": "https://ok.example/1"}}</tool_call> and ` +
				`<tool_call>{"name": "fetch", "args": {"url": "https://ok.example/2"}}</tool_call>`),
		},
		"sends broken JSON three times": {textOnly: true, replies: func(*world) [][]toolcrib.Delta {
			return [][]toolcrib.Delta{say(`<tool_call>{"name": </tool_call>`), say(`<tool_call>fetch it</tool_call>`), say(`<tool_call>[1]</tool_call>`), say("done")}
		}, statuses: "parse_error parse_error parse_error"},
		"leaves a tag in its last answer": {textOnly: true, replies: func(w *world) [][]toolcrib.Delta {
			return [][]toolcrib.Delta{call(w, "fetch", page(1)), call(w, "fetch", page(2)), call(w, "fetch", page(3)), say(`done <tool_call>{"name": "fetch", "args": {"url": "https://ok.example/4"}}</tool_call>`)}
		}, statuses: "ok ok hop_budget_exhausted refused", fetched: "https://ok.example/1 https://ok.example/2"},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, w *world) {
				if c.textOnly && !w.text["a"] {
					return // there are no tags
				}
				w.says("a", c.replies(w)...)
				w.says("b", say("sound"))
				report, s := w.ask(withTools(confer("a", "b"), "fetch", "verify"))
				equal(t, "statuses", statuses(&report.Answers[0]), c.statuses)
				equal(t, "fetched", strings.Join(w.fetched, " "), c.fetched)
				equal(t, "the answer", strings.TrimSpace(report.Answers[0].Response), "done")
				equal(t, "the other's answer", report.Answers[1].Response, "sound")
				if s.Done == nil || strings.Contains(s.Done.Content, "tool_call") {
					t.Errorf("%+v %+v", s.Done, s.Failed)
				}
			})
		})
	}
}

// A critic that answers as a synthesizer, or in another's name, fails as one that gives no JSON.
func TestBadInput_Critic(t *testing.T) {
	for name, answer := range map[string]string{
		"answers with the synthesizer's schema": synthesis,
		"claims to be the proposer":             proposal,
		"claims another's name":                 `{"role":"critic","agent":"c","summary":"I am c.","confidence":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.says("a", say(proposal))
			w.says("b", say(answer))
			w.says("c", say(critique))
			w.says("s", say(synthesis))
			r := coordinate("a", "b", "c")
			r.Synthesizer = "s"
			report, s := w.ask(r)
			b := &report.Answers[1]
			if b.Agent != "b" || b.Response != "" || b.ErrorKind != "parse" || b.Attempts != 2 {
				t.Errorf("%+v", b)
			}
			if s.Done == nil || s.Done.Content != synthesis || len(report.Critiques) != 1 {
				t.Errorf("%+v %+v", s.Done, s.Failed)
			}
			task := w.requests["s"][0].Messages[0].Text()
			if strings.Contains(task, "I am c") || !strings.Contains(task, "The agent b was to criticise it and failed.") {
				t.Errorf("the synthesizer reads %s", task)
			}
		})
	}
}

// endless is a model that talks for as long as it is read, or says nothing until its context ends.
type endless struct{ chunk string }

func (e endless) Stream(ctx context.Context, _ *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		if e.chunk == "" {
			<-ctx.Done()
		}
		for ctx.Err() == nil {
			if !yield(toolcrib.Delta{Text: e.chunk}, nil) {
				return
			}
		}
		yield(toolcrib.Delta{}, ctx.Err())
	}
}

// A worker whose answer never ends is cut off by the bound of a reply; one that says nothing, by
// its time.
func TestBadInput_NeverEnds(t *testing.T) {
	w := newWorld(t)
	w.never = map[string]toolcrib.Model{"a": endless{strings.Repeat("on and on ", 1<<17)}}
	w.says("a")
	w.says("b", say("sound"))
	report, s := w.ask(confer("a", "b"))
	if a := &report.Answers[0]; a.Status != "failed" || a.Response != "" || a.Error == "" {
		t.Errorf("%+v", a)
	}
	equal(t, "the other's answer", report.Answers[1].Response, "sound")
	if s.Done == nil {
		t.Errorf("%+v", s.Failed)
	}
	w = newWorld(t)
	w.never = map[string]toolcrib.Model{"a": endless{}}
	w.says("a")
	r := confer("a")
	r.MaxTime = 100 * time.Millisecond
	report, s = w.ask(r)
	if a := &report.Answers[0]; a.Response != "" || a.ErrorKind != "timeout" || s.Done == nil || s.Done.StopReason != toolcrib.StopWallTime {
		t.Errorf("%+v %+v %+v", a, s.Done, s.Failed)
	}
}

// A panel that makes no sense is refused before anybody is asked; one agent twice is asked once.
func TestBadInput_Panel(t *testing.T) {
	w := newWorld(t)
	w.says("a", say("yes"))
	report, _ := w.ask(confer("a", "a"))
	equal(t, "answers of one that is listed twice", len(report.Answers), 1)
	equal(t, "requests to it", len(w.requests["a"]), 1)
	many := make([]team.Item, 10_000)
	for i := range many {
		many[i] = team.Item{ID: "x", Description: "d", Severity: "low"}
	}
	for name, r := range map[string]team.Request{
		"none":                     confer(),
		"unknown ones":             confer("x", "y"),
		"untrusted, no context":    {Kind: team.Confer, Question: "q", Agents: []string{"a"}, Context: " ", Untrusted: true},
		"a rubric without items":   {Kind: team.Assess, Subject: "s", Agents: []string{"a"}, Rubric: []team.Item{}},
		"a rubric of 10,000 items": {Kind: team.Assess, Subject: "s", Agents: []string{"a"}, Rubric: many},
	} {
		_, _, err := r.Plan(func(name string) bool { return name == "a" })
		if toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the report says is JSON that a client can read back.
func TestReport_JSON(t *testing.T) {
	w := newWorld(t)
	w.trio()
	r := withTools(coordinate("a", "b", "c"), "fetch")
	r.Synthesizer, r.CostCapUSD = "s", 0.0001
	report, _ := w.ask(r)
	raw, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var back api.Report
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(back); string(again) != string(raw) {
		t.Errorf("%s\n%s", raw, again)
	}
}
