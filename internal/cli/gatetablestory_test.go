package cli_test

import (
	"bufio"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// story is what the journal of the last run says.
type story struct {
	calls        []told
	stop, answer string
}

// journal reads a run from outside.
func (h *gateHouse) journal(run string) story {
	h.t.Helper()
	administrator := *h
	administrator.as = ""
	o := administrator.tool("runs", "export", run)
	if o.code != 0 {
		h.t.Fatalf("runs export %s: %s", run, o.err)
	}
	var s story
	var offered []string
	lines := bufio.NewScanner(strings.NewReader(o.out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct {
			Kind    toolcrib.Kind   `json:"kind"`
			Payload json.RawMessage `json:"payload"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			h.t.Fatalf("%v: %s", err, lines.Text())
		}
		if err := s.event(e.Kind, e.Payload, &offered); err != nil {
			h.t.Fatalf("%v: %s", err, lines.Text())
		}
	}
	return s
}

// event takes one event into the story.
func (s *story) event(kind toolcrib.Kind, payload []byte, offered *[]string) (err error) {
	read := func(into any) bool {
		err = json.Unmarshal(payload, into)
		return err == nil
	}
	switch kind {
	case journal.KindRunStarted:
		var b journal.RunStarted
		if read(&b) {
			*offered = b.Offer.Names()
			if b.Given != nil {
				s.add(b.Given.ID, slices.Contains(*offered, b.Given.Name))
			}
		}
	case journal.KindOffered:
		var b journal.Offered
		if read(&b) {
			*offered = b.Offer.Names()
		}
	case journal.KindToolCall:
		var b journal.ToolCall
		if read(&b) {
			s.add(b.ID, slices.Contains(*offered, b.Name))
		}
	case journal.KindVerdicts:
		var b journal.Verdicts
		if read(&b) {
			for _, v := range b.Verdicts {
				s.of(v.CallID).verdict = v
			}
		}
	case journal.KindToolStarted:
		var b journal.ToolStarted
		if read(&b) {
			s.of(b.ID).started = true
		}
	case journal.KindToolResult:
		var b journal.ToolResult
		if read(&b) {
			c := s.of(b.ToolCallID)
			c.answered = b.Content
			if c.verdict.CallID == "" { // it was never judged
				c.verdict = journal.Verdict{CallID: b.ToolCallID, Tool: b.Name, Reason: b.Reason}
			}
		}
	case journal.KindPaused, journal.KindTakenUp:
		for i := range s.calls {
			s.calls[i].parked = kind == journal.KindPaused
		}
	case journal.KindDone:
		var b journal.Done
		if read(&b) {
			s.stop, s.answer = string(b.StopReason), b.Content
		}
	case journal.KindError:
		var b journal.Error
		if read(&b) {
			s.stop = string(b.StopReason)
		}
	}
	return err
}

// add takes a call into the story, once.
func (s *story) add(id string, offered bool) {
	if !slices.ContainsFunc(s.calls, func(c told) bool { return c.id == id }) {
		s.calls = append(s.calls, told{way: "run", id: id, offered: offered})
	}
}

func (s *story) of(id string) *told {
	for i := range s.calls {
		if s.calls[i].id == id {
			return &s.calls[i]
		}
	}
	return &told{}
}

// compare holds all calls of a run against what is wanted.
func (s *story) compare(t *testing.T, want []gateCall) {
	t.Helper()
	if len(s.calls) != len(want) {
		t.Fatalf("%d calls, want %d", len(s.calls), len(want))
	}
	for i := range want {
		s.calls[i].check(t, want[i].Want)
		v := &s.calls[i].verdict
		if v.Decision != toolcrib.Allow && s.calls[i].started {
			t.Errorf("%s: started, and the gate says %q %s", v.Tool, v.Decision, v.Reason)
		}
	}
}

// check holds one answer against what is wanted, and a refusal against its form.
func (c *told) check(t *testing.T, want gateAnswer) {
	t.Helper()
	v := &c.verdict
	decision := string(v.Decision)
	if v.Decision == toolcrib.Refuse {
		decision = "refuse"
	}
	have := gateAnswer{Decision: decision, Reason: string(v.Reason)}
	if c.way == "tools call" && v.Decision == toolcrib.Ask {
		have.Reason = want.Reason // it tells the question, and not its name
	}
	if have.String() != want.String() {
		t.Errorf("%s of %s: %s (%s %s), want %s", c.way, v.Tool, have, v.Message, v.Detail, want)
		return
	}
	nothingRan := c.way == "explain" && v.Decision == toolcrib.Allow
	if !nothingRan && !strings.Contains(v.Message+c.answered, want.Text) {
		t.Errorf("%s of %s tells %q and %s, want %q in it", c.way, v.Tool, v.Message, c.answered, want.Text)
	}
	if v.Decision == toolcrib.Refuse && v.Reason != toolcrib.ReasonMaxIterations { // which is no refusal of the gate's
		c.refusal(t)
	}
}

// refusal holds what the model reads of a refusal against its form.
func (c *told) refusal(t *testing.T) {
	t.Helper()
	v := &c.verdict
	if c.parked && c.answered == "" {
		return
	}
	var read struct {
		Refused *bool           `json:"refused"`
		Tool    *string         `json:"tool"`
		Reason  toolcrib.Reason `json:"reason"`
		Message string          `json:"message"`
		Hint    string          `json:"operator_hint"`
		Rule    string          `json:"rule"`
		Schema  json.RawMessage `json:"schema_error"`
	}
	d := json.NewDecoder(strings.NewReader(unwrapped(c.answered)))
	d.DisallowUnknownFields()
	if err := d.Decode(&read); err != nil {
		t.Fatalf("%s reads %s: %v", c.way, c.answered, err)
	}
	switch {
	case read.Refused == nil || !*read.Refused || read.Tool == nil || read.Reason != v.Reason || read.Message != v.Message:
		t.Errorf("%s reads %s, and the gate says %s: %s", c.way, c.answered, v.Reason, v.Message)
	case (read.Rule != "") != (v.Reason == toolcrib.ReasonRuleDenied) && v.Reason != toolcrib.ReasonNeedsConfirmation:
		t.Errorf("%s reads the rule %q with %s", c.way, read.Rule, v.Reason)
	case read.Schema != nil && v.Reason != toolcrib.ReasonInvalidArguments:
		t.Errorf("%s reads a schema_error with %s", c.way, v.Reason)
	case v.Reason == toolcrib.ReasonInvalidArguments && !strings.HasPrefix(read.Message, "invalid_arguments:"):
		t.Errorf("%s reads %s", c.way, read.Message)
	case v.Position != "" && strings.Contains(c.answered, v.Position):
		t.Errorf("the model is told the place %s: %s", v.Position, c.answered)
	}
}

// unwrapped is the content without the wrapper of the text protocol.
func unwrapped(content string) string {
	first, last := strings.Index(content, "{"), strings.LastIndex(content, "}")
	if first < 0 || last < first {
		return content
	}
	return content[first : last+1]
}
