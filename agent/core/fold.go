package core

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Fold applies the next event to the state. Apart from changing the state it is pure. An event that
// cannot follow is an error: the journal is broken, or was written by a later version.
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
	// Time between two events is driven only if one driver wrote both.
	switch b := e.Body.(type) {
	case *journal.TakenUp:
	case *journal.Worked:
		s.Driven += time.Duration(b.MS) * time.Millisecond
	default:
		if d := e.Time.Sub(s.Updated); s.Held && d > 0 {
			s.Driven += d
		}
	}
	if err := s.apply(e.Body); err != nil {
		return fmt.Errorf("journal of %s: event %d: %w", s.Run, e.Seq, err)
	}
	s.bytes += sizeOf(e.Body)
	if _, reply := e.Body.(*journal.Message); reply {
		s.turnBytes = s.bytes
	}
	s.Seq, s.Updated = e.Seq, e.Time
	return nil
}

func (s *State) apply(body toolcrib.Body) error {
	switch b := body.(type) {
	case *journal.RunStarted:
		return s.start(b)
	case *journal.TakenUp:
		s.takenUp(b)
	case *journal.Offered:
		s.Offer = b.Offer
	case *journal.ModelRequest:
		return s.request(b)
	case *journal.ModelFailed:
		s.requestFailed(b)
	case *journal.Message:
		return s.message(b)
	case *journal.ToolCall:
		return s.call(b)
	case *journal.Usage:
		s.Usage, s.TokensEstimated = b.Sum, s.TokensEstimated || b.Estimated
		aside := s.Open != nil && s.Open.Purpose != ""
		if b.Tokens.Reported && b.Tokens.InputTokens > 0 && !aside {
			s.size.reported = b.Tokens.InputTokens
			s.size.rest = int64(len(s.Start.System)) + s.toolBytes()
		}
	case *journal.Verdicts:
		return s.verdicts(b)
	case *journal.ConfirmationRequired:
		s.Approval, s.Held = b, false
	case *journal.ConfirmationResolved:
		return s.resolved(b)
	case *journal.Forgotten:
		s.Remembered = Holding(s.Remembered, []journal.Forgotten{*b})
	case *journal.ToolStarted:
		return s.started(b)
	case *journal.Reconciled:
		return s.reconciled(b)
	case *journal.ToolResult:
		return s.result(b)
	case *journal.Notice:
		s.Warned = s.Warned || b.Code == NoticeCostWarning
		s.WorkerWarned = s.WorkerWarned || b.Code == NoticeWorkerCost
		s.noticed(&b.Notice)
	case *journal.Stopping:
		s.Stopping = b
	case *journal.Granted:
		s.grant(b)
	case *journal.Said:
		s.Said = append(s.Said, *b)
		s.readSaid()
	case *journal.Condensed:
		return s.condensed(b)
	case *journal.AnswerChecked:
		return s.answerChecked(b)
	case *journal.ChildStarted:
		return s.childStarted(b)
	case *journal.ChildParked:
		return s.childParked(b)
	case *journal.ChildResumed:
		return s.childResumed(b)
	case *journal.ChildEnded:
		return s.childEnded(b)
	case *journal.Paused:
		return s.paused(b)
	case *journal.Released:
		s.Held = false
		if s.counted {
			s.Idle, s.counted = s.Idle-1, false
		}
	case *journal.Worked, *journal.Resumed:
	case *journal.ModelChosen:
		s.chosen(b)
	case *journal.Done, *journal.Error:
		return s.end(b)
	default:
		return &journal.UnknownKindError{Kind: body.EventKind()}
	}
	return nil
}

func (s *State) end(body toolcrib.Body) error {
	switch b := body.(type) {
	case *journal.Done:
		s.Done, s.Status = b, b.Status
	case *journal.Error:
		s.Failed, s.Status = b, b.Status
	}
	if s.Held = false; !s.Status.Ended() {
		return fmt.Errorf("the run ends as %q", s.Status)
	}
	return nil
}

func (s *State) start(b *journal.RunStarted) error {
	if s.Start != nil {
		return fmt.Errorf("a second %s", journal.KindRunStarted)
	}
	if b.Format > journal.Format {
		return fmt.Errorf("the journal has format %d, this version of toolcrib knows up to %d: use the version that wrote it",
			b.Format, journal.Format)
	}
	if b.Given == nil && (len(b.Models) == 0 || len(b.Input) == 0) {
		return fmt.Errorf("%s has no model, or no input", journal.KindRunStarted)
	}
	s.Start, s.Offer, s.Status, s.Held = b, b.Offer, toolcrib.StatusRunning, true
	s.limits = b.Agent.Limits.WithDefaults()
	s.Models = slices.Clip(b.Models)
	for _, m := range b.Input {
		for _, c := range m.ToolCalls() {
			s.IDs[c.ID] = true
			s.finds(c.Name)
		}
		s.add(m)
	}
	for _, source := range b.Taint {
		s.taint(source)
	}
	if s.task = max(len(b.Input)-1, 0); b.Compact {
		s.task = len(b.Input) // there is no task
	}
	for s.task > 0 && s.task < len(b.Input) && b.Input[s.task].Role != toolcrib.RoleUser {
		s.task-- // the calls at the end belong to it
	}
	if b.Given != nil {
		s.Iterations = 1
		s.Turn = &Turn{Iteration: 1, Expected: 1}
		s.addCall(*b.Given)
	}
	return nil
}

// takenUp resets what the previous driver left behind: a read that had started runs again, and a write
// that had started is lost until its outcome is known.
func (s *State) takenUp(b *journal.TakenUp) {
	s.Epochs = b.Epoch
	if s.Pending != nil && s.Pending.Run != "" {
		s.Pending = nil // the run that it waited for may have continued: look again
	}
	if s.WaitsForProvider() {
		s.askAnew()
	}
	if s.Pending == nil { // otherwise it still waits, unless it is to end
		s.Held, s.Status = true, toolcrib.StatusRunning
	}
	if s.counted = b.Children == 0; s.counted {
		s.Idle++ // a child run has its own count, and its progress is there
	}
	if s.Turn == nil {
		return
	}
	for _, c := range s.Turn.Open() {
		switch {
		case c.Started == nil:
		case c.Started.Write && !c.Lost:
			// Earlier reports and decisions were about an earlier start.
			c.Lost, c.Reconciled, c.Doubt = true, nil, nil
		case c.Started.Write:
		default:
			c.Started = nil
		}
	}
	s.stopClock()
}

func (s *State) reconciled(b *journal.Reconciled) error {
	c, err := s.Find(b.ID)
	if err != nil {
		return err
	}
	if !c.Lost {
		return fmt.Errorf("call %s was not lost", b.ID)
	}
	c.Reconciled = b
	if b.State == toolcrib.NotHappened {
		// The call was judged while its effect was unknown.
		c.Lost, c.Started, s.Turn.Rejudge = false, nil, true
	}
	return nil
}

func (s *State) request(b *journal.ModelRequest) error {
	if s.Turn != nil {
		return fmt.Errorf("a request with %d calls open", s.Turn.countIf(anyCall))
	}
	if b.Model < 0 || b.Model >= len(s.Models) {
		return fmt.Errorf("a request to model %d of %d", b.Model, len(s.Models))
	}
	s.Open, s.Requests = b, b.Request
	s.retried += time.Duration(b.DelayMS) * time.Millisecond
	if b.Model != s.Model {
		s.Model, s.Failures, s.shortened, s.overlong = b.Model, 0, false, false
	}
	if b.Purpose == "" {
		s.askedShort = s.shortened
	}
	return nil
}

// requestFailed records a failure and its consequences.
func (s *State) requestFailed(b *journal.ModelFailed) {
	sent := s.Open
	s.unanswered.Requests += b.Sum.Requests - s.Usage.Requests
	s.unanswered.TotalTokens += b.Charged.InputTokens + b.Charged.OutputTokens
	s.unanswered.CostUSD += b.ChargedUSD
	s.Open, s.Usage = nil, b.Sum
	if b.Class == ClassLost || b.Class == ClassCancelled {
		return
	}
	aside := sent != nil && sent.Purpose != ""
	if aside && (b.Class == toolcrib.ErrRefused || b.Class == toolcrib.ErrContextLength) {
		s.CondenseFailed = true // the provider has answered: a second request would not help
		return
	}
	if s.LastFailed != nil {
		s.retried += time.Duration(b.DurationMS) * time.Millisecond
	}
	s.LastFailed = b
	s.Failures++
	if aside {
		return
	}
	s.overlong = b.Class == toolcrib.ErrContextLength
	if b.NoTools && s.Model < len(s.Models) && !s.AsText[s.Model] && s.Models[s.Model].Tools != journal.ToolsText {
		if s.AsText == nil {
			s.AsText = make(map[int]bool)
		}
		s.AsText[s.Model], s.textFrom = true, b.Request
	}
}

func (s *State) message(b *journal.Message) error {
	if s.Open == nil {
		return fmt.Errorf("a reply without a request")
	}
	again := s.demandAgain(s.Open, b)
	s.Asked, s.Open, s.Last, s.Idle = s.Open, nil, b, 0
	s.Retrying = Retrying{}
	s.choiceAgain = again != ""
	askedAgain := s.AsksAgain(b)
	s.empty = saysNothing(b)
	s.size.reportedBytes = s.size.bytes
	if askedAgain {
		s.Last = nil // and the round is not counted
		return nil
	}
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
		s.Turn = &Turn{Iteration: b.Iteration, Expected: calls, Calls: make([]*Call, 0, calls)}
		return nil
	}
	if strings.TrimSpace(m.Text()) != "" {
		s.add(m)
	}
	if s.choiceAgain {
		s.add(toolcrib.TextMessage(toolcrib.RoleUser, again))
		s.Last = nil
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
	s.finds(c.Name)
	s.IDs[c.ID] = true
}

// Find returns the call of the current turn with this ID, or an error.
func (s *State) Find(id string) (*Call, error) {
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
		c, err := s.Find(b.Verdicts[i].CallID)
		if err != nil {
			return err
		}
		c.Verdict = &b.Verdicts[i]
		c.Counted = c.Counted || c.Verdict.Counted
		if c.Verdict.Decision == toolcrib.Ask {
			c.Asked = c.Verdict
		}
	}
	if s.Turn == nil {
		return fmt.Errorf("%s without calls", journal.KindVerdicts)
	}
	s.Turn.Judged, s.Turn.Rejudge = true, false
	return nil
}

func (s *State) resolved(b *journal.ConfirmationResolved) error {
	if s.Approval == nil || s.Approval.ApprovalID != b.ApprovalID {
		return fmt.Errorf("approval %s is not open", b.ApprovalID)
	}
	s.Idle = 0
	if s.Approval.Digest != b.Digest {
		return fmt.Errorf("approval %s: the digest does not match", b.ApprovalID)
	}
	for _, item := range s.Approval.Calls {
		c, err := s.Find(item.ID)
		if err != nil {
			return err
		}
		if s.DecisionOn(c) != nil {
			continue // an earlier decision on a call, which the last one repeats, keeps its decider
		}
		if d := b.Of(item.ID); d.Decision != "" || !b.Open {
			s.decide(c, d, b)
		}
	}
	if b.Open {
		return nil
	}
	s.Status, s.Held = toolcrib.StatusRunning, true
	if s.Pending != nil {
		// Decided while the run had no driver: it must be resumed.
		s.Status, s.Held = toolcrib.StatusQueued, false
	}
	if s.Approval.AsksForMore() {
		s.Declined = true // only Granted raises a limit
	}
	if s.Turn != nil && (s.Approval.Kind == journal.ApprovalCall ||
		s.Approval.Kind == journal.ApprovalInput && b.By == ByUnattended) {
		s.Turn.Rejudge = true
	}
	s.Approval, s.Pending = nil, nil
	return nil
}

// decide records a person's decision on one call.
func (s *State) decide(c *Call, d journal.CallDecision, by *journal.ConfirmationResolved) {
	if s.Approval.Kind == journal.ApprovalInDoubt {
		c.Doubt = &d
		if d.Decision == journal.DecisionRetry {
			c.Lost, c.Started, c.Reconciled, s.Turn.Rejudge = false, nil, nil, true
			c.Retried, c.RetryBound = true, s.shown(c.ID).Binding
		}
		return
	}
	unattended := by.By == ByUnattended && d.Decision == journal.DecisionDeny
	if s.Approval.Kind == journal.ApprovalInput && !unattended {
		c.Answer = &d
		return
	}
	c.Decision, c.DecidedBy = &d, by
	if c.Retried && d.Decision == journal.DecisionApprove {
		c.RetryBound = c.Approved(&d).Binding
	}
	shown := s.shown(c.ID)
	if d.Decision == journal.DecisionApprove && (d.Arguments == nil || bytes.Equal(d.Arguments, shown.Arguments)) {
		for _, q := range shown.Questions {
			if q.Run && !slices.ContainsFunc(s.Agreed, q.Same) {
				s.Agreed = append(s.Agreed, q)
			}
		}
	}
	switch {
	case d.Decision == journal.DecisionDeny:
		s.Denied = s.Denied || !unattended
	case d.Decision == journal.DecisionApprove && by.Remember != nil && by.Remember.Scope == journal.RememberRun:
		if m, ok := by.Remember.Extend(by, c.Approved(&d)); ok {
			s.Remembered = append(s.Remembered, m)
		}
	}
}

// shown returns a call as the open approval shows it.
func (s *State) shown(id string) journal.ApprovalItem {
	for _, item := range s.Approval.Calls {
		if item.ID == id {
			return item
		}
	}
	return journal.ApprovalItem{}
}

func (s *State) started(b *journal.ToolStarted) error {
	c, err := s.Find(b.ID)
	if err != nil {
		return err
	}
	if c.Verdict == nil || c.Verdict.Decision != toolcrib.Allow {
		return fmt.Errorf("call %s was started without permission", b.ID)
	}
	c.Started = b
	return nil
}

func (s *State) result(b *journal.ToolResult) error {
	c, err := s.Find(b.ToolCallID)
	if err != nil {
		return err
	}
	if c.Result != nil {
		return fmt.Errorf("call %s has a second result", b.ToolCallID)
	}
	c.Result, s.Idle = b, 0
	for _, name := range b.Found {
		s.finds(name)
	}
	if b.Untrusted {
		s.taint(b.Source)
		for _, source := range b.Sources {
			s.taint(source)
		}
	}
	s.clientAnswered()
	if s.Turn.countIf(anyCall) == 0 {
		s.closeTurn()
	}
	s.stopClock()
	return nil
}

// closeTurn appends the results in the order of the calls, which completes the transcript.
func (s *State) closeTurn() {
	m := toolcrib.Message{Role: toolcrib.RoleTool, Parts: make([]toolcrib.Part, len(s.Turn.Calls))}
	for i, c := range s.Turn.Calls {
		m.Parts[i] = toolcrib.Part{ToolResult: &toolcrib.ToolResult{
			CallID: c.ID, Name: c.Name, Content: c.Result.Content, IsError: c.Result.IsError, Files: c.Result.Files,
		}}
		s.countRepeat(c)
	}
	s.add(m)
	s.Turn, s.Approval, s.Pending = nil, nil, nil
	s.readSaid()
}

// readSaid adds people's messages to the transcript, as soon as that leaves it valid. An earlier reply is
// then no longer the last one.
func (s *State) readSaid() {
	if s.Turn != nil {
		return
	}
	if len(s.Said) > 0 && s.Last != nil && !hasCalls(s.Last) && !s.Closed() {
		s.Last = nil
	}
	for _, said := range s.Said {
		s.add(toolcrib.TextMessage(toolcrib.RoleUser, said.Text))
	}
	s.Said = nil
}

// grant raises limits, which answers an open question about a limit.
func (s *State) grant(b *journal.Granted) {
	s.Granted.Iterations += b.Iterations
	s.Granted.CostUSD += b.CostUSD
	s.Granted.Tokens += b.Tokens
	s.Granted.Requests += b.Requests
	s.unanswered.Requests = max(s.unanswered.Requests-b.Requests, 0)
	s.unanswered.TotalTokens = max(s.unanswered.TotalTokens-b.Tokens, 0)
	s.unanswered.CostUSD = max(s.unanswered.CostUSD-b.CostUSD, 0)
	s.Idle, s.Declined = 0, false
	if s.WaitsForProvider() && s.Pending.Error.Adds() != "" {
		s.askAnew()
	}
	if s.Approval != nil && s.Approval.AsksForMore() {
		s.Approval, s.Pending, s.Status = nil, nil, toolcrib.StatusQueued
	}
}

func (s *State) countRepeat(c *Call) {
	// A call that was refused for being repeated keeps its count, so that asking again does not evade
	// the limit.
	if c.Result.Reason == toolcrib.ReasonRepeatedCall {
		return
	}
	now := repeat{name: c.Name, arguments: c.Arguments, content: c.Result.Content, n: 1}
	if now.name == s.repeat.name && bytes.Equal(now.arguments, s.repeat.arguments) && now.content == s.repeat.content {
		now.n = s.repeat.n + 1
	}
	s.repeat = now
}

// maxScratch bounds the buffer that is kept between messages.
const maxScratch = 256 << 10

// add appends a message and updates the digest and the size.
func (s *State) add(m toolcrib.Message) {
	s.Messages = append(s.Messages, m)
	b := appendMessage(s.scratch[:0], &m)
	_, _ = s.digest.Write(b) // a hash never fails
	files := filesBytes(&m)
	s.size.bytes += int64(len(b)) + files
	s.HasFiles = s.HasFiles || files > 0
	if s.scratch = b; cap(b) > maxScratch {
		s.scratch = nil
	}
}

// restart replaces the transcript by other messages.
func (s *State) restart(messages []toolcrib.Message) {
	s.Messages = make([]toolcrib.Message, 0, len(messages)+8)
	s.digest.Reset()
	s.size.bytes = 0
	for _, m := range messages {
		s.add(m)
	}
}
