package crash

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/replay"
	"github.com/toolcrib/toolcrib/store"
)

// check looks at a run that has ended, and at those below it.
func (h *Harness) check(ctx context.Context, s *Story, now *scene, want *Outcome) (err error) {
	st, err := openStore(ctx, s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if _, err := st.VerifySystem(ctx, nil); err != nil {
		s.problemf("verify of the system journal: %v", err)
	}
	var journals []string
	for _, run := range now.all() {
		events, err := s.checkRun(ctx, st, run)
		if err != nil {
			return err
		}
		s.kin(run, events, now)
		if err := s.flagged(run); err != nil {
			return err
		}
		journals = append(journals, run.Start.Agent.Name+": "+story(events))
	}
	if err := s.budget(now); err != nil {
		return err
	}
	if s.Outcome, err = s.outcome(ctx, st, now); err != nil {
		s.problemf("%v", err)
		return nil
	}
	if want != nil {
		s.compare(s.Outcome, *want)
	}
	if len(s.Problems) > 0 {
		s.Problems = append(s.Problems, journals...)
	}
	return nil
}

// checkRun looks at one run by itself.
func (s *Story) checkRun(ctx context.Context, st store.Store, run *agent.State) (events []toolcrib.Event, err error) {
	one := &Story{Scenario: s.Scenario}
	if _, err := st.Verify(ctx, run.Run); err != nil {
		one.problemf("verify: %v", err)
	}
	if _, err := replay.Run(ctx, st, run.Run); err != nil {
		one.problemf("replay: %v", err)
	}
	over := run.Ended() || !s.Scenario.waits
	// A given call has no request in the transcript.
	if err := transcript(run.Messages); err != nil && over && run.Start.Given == nil {
		one.problemf("transcript: %v", err)
	}
	for e, err := range st.Read(ctx, run.Run, 0) {
		if err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	if over {
		one.history(events)
	}
	s.Told += one.Told
	for _, p := range one.Problems {
		s.problemf("%s: %s", run.Start.Agent.Name, p)
	}
	return events, nil
}

// story is the journal in a few lines.
func story(events []toolcrib.Event) string {
	var b strings.Builder
	for _, e := range events {
		body, err := json.Marshal(e.Body)
		if err != nil {
			body = []byte(err.Error())
		}
		fmt.Fprintf(&b, "\n      %s %.100s", e.Body.EventKind(), body)
	}
	return b.String()
}

// compare holds an outcome against the one without kills. What a person said of a
// call in doubt replaces its result.
func (s *Story) compare(got, want Outcome) {
	for i, l := range got.Effects[:max(len(got.Effects)-1, 0)] {
		if got.Effects[i+1] == l {
			s.problemf("effect %q happened twice", l)
		}
	}
	if s.Scenario.loose {
		return
	}
	all := want.runs()
	for id, run := range got.runs() {
		if all[id] == nil {
			s.problemf("call %s is answered by a run, and without kills by none", id)
			continue
		}
		w := *all[id]
		delete(all, id)
		free, unsure := s.allow(run, &w, &want)
		for _, id := range free {
			want.Effects = without(want.Effects, id)
		}
		for _, id := range unsure {
			got.Effects, want.Effects = without(got.Effects, id), without(want.Effects, id)
		}
		s.same(run.Agent+": ", *run, w)
	}
	for id := range all {
		s.problemf("call %s is answered by no run, and without kills by one", id)
	}
	got.Ended, want.Ended, got.Below, want.Below = Ended{}, Ended{}, nil, nil
	s.same("", got, want)
}

// allow adapts the expected outcome to a person's decisions about calls in doubt. free are calls that
// did not happen, unsure those without a decision.
func (s *Story) allow(got, want *Ended, whole *Outcome) (free, unsure []string) {
	want.Calls, got.Calls = slices.Clone(want.Calls), slices.Clone(got.Calls)
	for i := range min(len(got.Calls), len(want.Calls)) {
		w, g := &want.Calls[i], &got.Calls[i]
		word := s.words[w.ID]
		if word == journal.DecisionHappened {
			w.Content, g.Content = canonical(w.Content), canonical(g.Content)
		}
		switch {
		case word == journal.DecisionHappened && w.Status != toolcrib.ResultOK:
			w.Status, w.Content = toolcrib.ResultOK, string(whole.resultOf(w.ID))
		case word == journal.DecisionNotHappened:
			w.Status, w.Content = toolcrib.ResultError, g.Content
			if !strings.Contains(g.Content, "did not take effect") {
				s.problemf("call %s did not happen, and the model reads %q", w.ID, g.Content)
			}
			free = append(free, w.ID)
		case g.Status == toolcrib.ResultInDoubt && got.Status == toolcrib.StatusCancelled:
			w.Status, w.Content = g.Status, g.Content
			unsure = append(unsure, w.ID)
		}
	}
	return free, unsure
}

// same reports what differs.
func (s *Story) same(whose string, got, want any) {
	g, w := fields(got), fields(want)
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if g[name] != w[name] {
			s.problemf("%s%s: got %s, without kills %s", whose, name, g[name], w[name])
		}
	}
}

// without leaves out the effects of a call.
func without(effects []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(effects), func(l string) bool { return strings.HasPrefix(l, id+" ") })
}

// fields are the fields of an outcome as JSON, cut for people.
func fields(o any) map[string]string {
	text, err := json.Marshal(o)
	var all map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return map[string]string{"Status": err.Error()}
	}
	shown := map[string]string{}
	for name, value := range all {
		shown[name] = string(value)
		if len(value) > 4<<10 {
			shown[name] = fmt.Sprintf("%d bytes, SHA-256 %x", len(value), sha256.Sum256(value))
		}
	}
	return shown
}

// unsureCall is what the journal says about a write that had started.
type unsureCall struct {
	started, lost, asked bool
	free                 bool // may be started again
	over                 bool // may be answered
}

// history goes through the journal and looks for writes that were started and then
// lost: nothing may start or answer them but what a person or the tool says.
func (s *Story) history(events []toolcrib.Event) {
	calls := map[string]*unsureCall{}
	at := func(id string) *unsureCall {
		if calls[id] == nil {
			calls[id] = &unsureCall{}
		}
		return calls[id]
	}
	stopping, ends := false, 0
	var asked *journal.ConfirmationRequired
	for _, e := range events {
		switch b := e.Body.(type) {
		case *journal.TakenUp:
			for _, c := range calls {
				c.lost = c.lost || c.started
			}
		case *journal.ToolStarted:
			s.starts(at(b.ID), b)
		case *journal.Reconciled:
			c := at(b.ID)
			if c.lost && b.State == toolcrib.NotHappened {
				c.free = true
			}
			c.over = c.over || b.State == toolcrib.Happened
			if b.State != toolcrib.InDoubt {
				s.Told++
			}
		case *journal.ConfirmationRequired:
			asked = b
			for _, item := range b.Calls {
				at(item.ID).asked = at(item.ID).asked || b.Kind == journal.ApprovalInDoubt
			}
		case *journal.ConfirmationResolved:
			s.resolved(at, asked, b)
		case *journal.Stopping:
			stopping = true
		case *journal.ToolResult:
			s.answered(at(b.ToolCallID), b, stopping)
		case *journal.Done, *journal.Error:
			ends++
		}
	}
	if last := events[len(events)-1].Body.EventKind(); ends != 1 || last != journal.KindDone && last != journal.KindError {
		s.problemf("the run has %d ends, and its last event is %s", ends, last)
	}
}

func (s *Story) starts(c *unsureCall, b *journal.ToolStarted) {
	if !b.Write {
		return
	}
	if c.lost && !c.free {
		s.problemf("write %s was started again, and nobody had said that it did not happen", b.ID)
	}
	*c = unsureCall{started: true}
}

func (s *Story) resolved(at func(string) *unsureCall, asked *journal.ConfirmationRequired, b *journal.ConfirmationResolved) {
	if asked == nil || asked.Kind != journal.ApprovalInDoubt {
		return
	}
	for _, item := range asked.Calls {
		c, d := at(item.ID), b.Of(item.ID).Decision
		c.free = c.free || d == journal.DecisionRetry
		c.over = c.over || d == journal.DecisionHappened || d == journal.DecisionNotHappened
	}
}

func (s *Story) answered(c *unsureCall, b *journal.ToolResult, stopping bool) {
	defer func() { *c = unsureCall{} }()
	switch {
	case !c.lost || c.over:
	case stopping && (b.Status == toolcrib.ResultInDoubt || c.free && b.Status == toolcrib.ResultCancelled):
	default:
		s.problemf("write %s was lost and is answered %q, and nobody was asked (asked before: %v)", b.ToolCallID, b.Status, c.asked)
	}
}

// transcript is the grammar that every provider asks for: each call has one
// result, in order, in the message right after.
func transcript(messages []toolcrib.Message) error {
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if m.Role == toolcrib.RoleTool {
			return fmt.Errorf("message %d: results without calls", i)
		}
		calls := m.ToolCalls()
		if len(calls) == 0 {
			continue
		}
		if i+1 >= len(messages) || messages[i+1].Role != toolcrib.RoleTool || len(messages[i+1].Parts) != len(calls) {
			return fmt.Errorf("message %d: %d calls are not answered by the next message", i, len(calls))
		}
		for k, c := range calls {
			if r := messages[i+1].Parts[k].ToolResult; r == nil || r.CallID != c.ID {
				return fmt.Errorf("message %d: result %d does not answer %s", i, k, c.ID)
			}
		}
		i++
	}
	return nil
}
