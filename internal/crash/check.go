package crash

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/replay"
)

// check looks at a run that has ended.
func (h *Harness) check(ctx context.Context, s *Story, state *agent.State, want *Outcome) (err error) {
	st, err := h.Wiring.Open(ctx, filepath.Join(s.dir, database))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if _, err := st.Verify(ctx, s.run); err != nil {
		s.problemf("verify: %v", err)
	}
	if _, err := st.VerifySystem(ctx); err != nil {
		s.problemf("verify of the system journal: %v", err)
	}
	if _, err := replay.Run(ctx, st, s.run); err != nil {
		s.problemf("replay: %v", err)
	}
	// A given call was asked for by nobody in the transcript.
	if err := transcript(state.Messages); err != nil && s.Scenario.given == nil {
		s.problemf("transcript: %v", err)
	}
	var events []toolcrib.Event
	for e, err := range st.Read(ctx, s.run, 0) {
		if err != nil {
			return err
		}
		events = append(events, e)
	}
	s.history(events)
	got, err := s.outcome(ctx, st, state)
	if err != nil {
		s.problemf("%v", err)
		return nil
	}
	s.Outcome = got
	if want == nil {
		return nil
	}
	s.compare(got, *want)
	if len(s.Problems) > 0 {
		s.Problems = append(s.Problems, "journal: "+story(events))
	}
	return nil
}

// story is the journal in one line.
func story(events []toolcrib.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, " %s", e.Body.EventKind())
		switch v := e.Body.(type) {
		case *journal.ToolStarted:
			b.WriteString("(" + v.ID + ")")
		case *journal.ToolResult:
			b.WriteString("(" + v.ToolCallID + " " + string(v.Status) + ")")
		case *journal.Reconciled:
			b.WriteString("(" + v.ID + " " + string(v.State) + ")")
		case *journal.ConfirmationRequired:
			b.WriteString("(" + string(v.Kind) + ")")
		case *journal.ConfirmationResolved:
			b.WriteString("(" + v.Decision + ")")
		}
	}
	return strings.TrimSpace(b.String())
}

// compare holds an outcome against the one without kills. What a person said of a
// call in doubt stands in for its result.
func (s *Story) compare(got, want Outcome) {
	for i, l := range got.Effects[:max(len(got.Effects)-1, 0)] {
		if got.Effects[i+1] == l {
			s.problemf("effect %q happened twice", l)
		}
	}
	unsure := map[string]bool{} // calls that may have had their effect or not
	want.Calls = slices.Clone(want.Calls)
	for i := range min(len(got.Calls), len(want.Calls)) {
		w, g := &want.Calls[i], &got.Calls[i]
		word := s.words[w.ID]
		if word == journal.DecisionHappened {
			w.Content, g.Content = canonical(w.Content), canonical(g.Content)
		}
		switch {
		case word == journal.DecisionHappened && w.Status != toolcrib.ResultOK:
			w.Status, w.Content = toolcrib.ResultOK, string(want.resultOf(w.ID))
		case word == journal.DecisionNotHappened:
			w.Status, w.Content = toolcrib.ResultError, g.Content
			if !strings.Contains(g.Content, "did not take effect") {
				s.problemf("call %s did not happen, and the model reads %q", w.ID, g.Content)
			}
			want.Effects = without(want.Effects, w.ID)
		case g.Status == toolcrib.ResultInDoubt && got.Status == toolcrib.StatusCancelled:
			w.Status, w.Content = g.Status, g.Content
			unsure[w.ID] = true
		}
	}
	for id := range unsure {
		got.Effects, want.Effects = without(got.Effects, id), without(want.Effects, id)
	}
	g, w := fields(got), fields(want)
	for _, name := range []string{"Status", "Reason", "Code", "Message", "Content", "Truncated", "Iterations", "Calls", "Transcript", "Effects", "Files", "Kept"} {
		if g[name] != w[name] {
			s.problemf("%s: got %s, without kills %s", name, g[name], w[name])
		}
	}
}

// without leaves out the effects of a call.
func without(effects []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(effects), func(l string) bool { return strings.HasPrefix(l, id+" ") })
}

// fields are the fields of an outcome as JSON, cut for people.
func fields(o Outcome) map[string]string {
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
	case stopping && b.Status == toolcrib.ResultInDoubt:
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
