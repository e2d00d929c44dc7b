package agent

import (
	"fmt"
	"io"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Fold brings the state up to date with the next event. It is pure but for the
// state it changes. An event that cannot follow is an error: the journal is
// broken, or a later version wrote it.
func Fold(s *State, e toolcrib.Event) error {
	if e.Seq != s.Seq+1 {
		return fmt.Errorf("journal of %s: event %d follows event %d", s.Run, e.Seq, s.Seq)
	}
	if s.Ended() {
		return fmt.Errorf("journal of %s: event %d (%s) after the end", s.Run, e.Seq, e.Body.EventKind())
	}
	if s.Start == nil {
		if _, ok := e.Body.(*journal.RunStarted); !ok {
			return fmt.Errorf("journal of %s: begins with %s", s.Run, e.Body.EventKind())
		}
		s.Started = e.Time
		s.Updated = e.Time
	}
	// Time runs between two events of one driver, forwards only: a clock set
	// back costs nothing and gives nothing.
	if d := e.Time.Sub(s.Updated); s.held && d > 0 {
		s.Driven += d
	}
	if err := s.apply(e.Body); err != nil {
		return fmt.Errorf("journal of %s: event %d: %w", s.Run, e.Seq, err)
	}
	s.Seq, s.Updated = e.Seq, e.Time
	return nil
}

func (s *State) apply(body toolcrib.Body) error {
	switch b := body.(type) {
	case *journal.RunStarted:
		return s.start(b)
	case *journal.TakenUp:
		s.held, s.Epochs = true, b.Epoch
		s.Open = nil
		if s.Pending == nil {
			s.Status = toolcrib.StatusRunning
		}
	case *journal.Offered:
		s.Offer = b.Offer
	case *journal.ModelRequest:
		return s.request(b)
	case *journal.ModelFailed:
		s.Open, s.LastFailed, s.Usage = nil, b, b.Sum
		s.Failures++
	case *journal.Message:
		return s.message(b)
	case *journal.ToolCall:
		return s.call(b)
	case *journal.Usage:
		s.Usage = b.Sum
		if b.Tokens.Reported && b.Tokens.InputTokens > 0 {
			s.size.reported = b.Tokens.InputTokens
		}
	case *journal.Verdicts:
		return s.verdicts(b)
	case *journal.ConfirmationRequired:
		s.Approval, s.held = b, false
	case *journal.ConfirmationResolved:
		return s.resolved(b)
	case *journal.ToolStarted:
		return s.started(b)
	case *journal.ToolResult:
		return s.result(b)
	case *journal.Notice:
		if b.Code == NoticeCostWarning {
			s.Warned = true
		}
	case *journal.Stopping:
		s.Stopping = b
	case *journal.Paused:
		s.Status, s.Pending, s.held = b.Status, &b.Pending, false
	case *journal.Done:
		s.Done, s.Status, s.Truncated, s.held = b, b.Status, b.Truncated, false
	case *journal.Error:
		s.Failed, s.Status, s.held = b, b.Status, false
	default:
		return &journal.UnknownKindError{Kind: body.EventKind()}
	}
	return nil
}

func (s *State) start(b *journal.RunStarted) error {
	if s.Start != nil {
		return fmt.Errorf("a second %s", journal.KindRunStarted)
	}
	if b.Format > journal.Format {
		return &ErrNewer{Format: b.Format}
	}
	s.Start, s.Offer, s.Status, s.held = b, b.Offer, toolcrib.StatusRunning, true
	for _, m := range b.Input {
		for _, c := range m.ToolCalls() {
			s.ids[c.ID] = true
		}
		s.add(m)
	}
	if b.Given != nil {
		s.Iterations = 1
		s.Turn = &Turn{Iteration: 1, Expected: 1}
		s.addCall(*b.Given)
	}
	return nil
}

func (s *State) request(b *journal.ModelRequest) error {
	if s.Turn != nil {
		return fmt.Errorf("a request with %d calls open", len(s.Turn.open()))
	}
	if b.Model != s.Model {
		s.Model, s.Failures = b.Model, 0
	}
	s.Open, s.Requests = b, b.Request
	return nil
}

func (s *State) message(b *journal.Message) error {
	if s.Open == nil {
		return fmt.Errorf("a reply without a request")
	}
	s.Asked, s.Open, s.Last, s.Failures = s.Open, nil, b, 0
	s.size.reportedBytes = s.size.bytes
	s.Closed = b.Closing
	if !b.Closing {
		s.Iterations = b.Iteration
	}
	m := toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: append([]toolcrib.Part(nil), b.Parts...)}
	if text := m.Text(); strings.TrimSpace(text) != "" {
		s.LastText = text
	}
	calls := 0
	for _, p := range m.Parts {
		if p.ToolCall != nil {
			calls++
		}
	}
	if calls > 0 {
		s.assembled = &m
		s.Turn = &Turn{Iteration: b.Iteration, Expected: calls}
		return nil
	}
	if strings.TrimSpace(m.Text()) != "" {
		s.add(m)
	}
	return nil
}

func (s *State) call(b *journal.ToolCall) error {
	if s.Turn == nil || s.Turn.Whole() || s.assembled == nil {
		return fmt.Errorf("call %s belongs to no reply", b.ID)
	}
	n := len(s.Turn.Calls)
	s.addCall(b.ToolCall)
	seen := 0
	for i := range s.assembled.Parts {
		if s.assembled.Parts[i].ToolCall == nil {
			continue
		}
		if seen == n {
			s.assembled.Parts[i].ToolCall = &s.Turn.Calls[n].ToolCall
			break
		}
		seen++
	}
	if s.Turn.Whole() {
		s.add(*s.assembled)
		s.assembled = nil
	}
	return nil
}

func (s *State) addCall(c toolcrib.ToolCall) {
	call := &Call{ToolCall: c, Iteration: s.Turn.Iteration}
	s.Turn.Calls = append(s.Turn.Calls, call)
	s.Trace = append(s.Trace, call)
	s.ids[c.ID] = true
}

// find returns the call of the current turn with this ID.
func (s *State) find(id string) (*Call, error) {
	if s.Turn != nil {
		for _, c := range s.Turn.Calls {
			if c.ID == id {
				return c, nil
			}
		}
	}
	return nil, fmt.Errorf("no call %s in this turn", id)
}

func (s *State) verdicts(b *journal.Verdicts) error {
	for i := range b.Verdicts {
		c, err := s.find(b.Verdicts[i].CallID)
		if err != nil {
			return err
		}
		c.Verdict = &b.Verdicts[i]
		if c.Verdict.Decision == toolcrib.Ask {
			c.AskedFor = c.Verdict.Message
		}
	}
	s.Turn.Judged, s.Turn.Rejudge = true, false
	return nil
}

func (s *State) resolved(b *journal.ConfirmationResolved) error {
	if s.Approval == nil || s.Approval.ApprovalID != b.ApprovalID {
		return fmt.Errorf("approval %s is not open", b.ApprovalID)
	}
	if s.Approval.Digest != b.Digest {
		return fmt.Errorf("approval %s: the digest is another one", b.ApprovalID)
	}
	for _, item := range s.Approval.Calls {
		c, err := s.find(item.ID)
		if err != nil {
			return err
		}
		d := b.Of(item.ID)
		c.Decision, c.DecidedBy = &d, b
		if d.Decision == journal.DecisionDeny {
			s.Denied = true
		}
	}
	s.Approval, s.Pending, s.held = nil, nil, true
	s.Status = toolcrib.StatusRunning
	s.Turn.Rejudge = true
	return nil
}

func (s *State) started(b *journal.ToolStarted) error {
	c, err := s.find(b.ID)
	if err != nil {
		return err
	}
	if c.Verdict == nil || c.Verdict.Decision != toolcrib.Allow {
		return fmt.Errorf("call %s was started without leave", b.ID)
	}
	c.Started = b
	return nil
}

func (s *State) result(b *journal.ToolResult) error {
	c, err := s.find(b.ToolCallID)
	if err != nil {
		return err
	}
	if c.Result != nil {
		return fmt.Errorf("call %s has a second result", b.ToolCallID)
	}
	c.Result = b
	if b.Reason == toolcrib.ReasonMaxIterations {
		s.Capped = true
	}
	if len(s.Turn.open()) == 0 {
		s.closeTurn()
	}
	return nil
}

// closeTurn appends the results in the order of the calls: the transcript is
// whole again.
func (s *State) closeTurn() {
	m := toolcrib.Message{Role: toolcrib.RoleTool, Parts: make([]toolcrib.Part, len(s.Turn.Calls))}
	for i, c := range s.Turn.Calls {
		m.Parts[i] = toolcrib.Part{ToolResult: &toolcrib.ToolResult{
			CallID: c.ID, Name: c.Name, Content: c.Result.Content, IsError: c.Result.IsError,
		}}
		s.countRepeat(c)
	}
	s.add(m)
	s.Turn, s.Approval = nil, nil
}

func (s *State) countRepeat(c *Call) {
	// A call that was refused for being repeated keeps the count: asking again
	// must not be a way out.
	if c.Result.Reason == toolcrib.ReasonRepeatedCall {
		return
	}
	now := repeat{name: c.Name, arguments: string(c.Arguments), content: c.Result.Content, n: 1}
	if now.name == s.repeat.name && now.arguments == s.repeat.arguments && now.content == s.repeat.content {
		now.n = s.repeat.n + 1
	}
	s.repeat = now
}

// add appends a message and takes it into the digest and the size.
func (s *State) add(m toolcrib.Message) {
	s.Messages = append(s.Messages, m)
	n := &counter{}
	writeMessage(io.MultiWriter(s.digest, n), &m)
	s.size.bytes += n.n
}
