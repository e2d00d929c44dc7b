package ui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// Bounds of a story on a page. Older parts are reached by a link.
const (
	storyEvents = 2000 // events that are read for a page
	storyItems  = 150  // entries that a page shows
)

// story is a run as a list of entries, made from its journal: the prompt, each round with the calls of the model, the
// waits with the decisions, and the end. The page and its live stream have the same entries. The template "story" shows
// a story, "item" one entry.
type story struct {
	Run   toolcrib.RunID
	Items []*item
	From  toolcrib.Seq // event before the first one that it is made from
	Last  toolcrib.Seq // last event
	Live  bool         // the run has not ended: the page follows it
	// Earlier is the event before which the entries are that are left out; 0 = none.
	Earlier toolcrib.Seq
	Later   bool // it ends before the newest entry

	calls   map[string]*item // the last entry of each call, by the call's ID
	round   *item            // the last request, or nil
	ask     *item            // the approval that is open, or nil
	closed  bool             // only entries that are there are completed
	changed []*item          // since the last call of took
}

// item is an entry of a story. Exactly one of the pointers is set.
type item struct {
	ID    string // of its element; a page may have the stories of several runs
	Seq   toolcrib.Seq
	At    time.Time
	Run   toolcrib.RunID
	Start *startPart
	Round *roundPart
	Call  *callPart
	Ask   *askPart
	Said  *journal.Said
	Note  *notePart
	End   *endPart

	fresh bool // changed since the last call of took
	added bool // was announced
}

// startPart is the beginning of a run.
type startPart struct {
	*journal.RunStarted
	Prompt  string
	Files   []toolcrib.File
	History int // earlier messages that the run begins with
}

// roundPart is a request to a model with its reply.
type roundPart struct {
	ID       string
	Number   int
	Model    string
	Attempt  int
	Closing  bool
	Condense bool
	Open     bool         // asked, and not answered
	Answer   bool         // its text is the answer of the run
	Asked    toolcrib.Seq // event with the request; 0 = not known
	Replied  toolcrib.Seq // event with the reply; 0 = none
	Text     string
	Thinking string
	Finish   toolcrib.FinishReason
	Calls    int
	Took     time.Duration
	Tokens   toolcrib.TokenUsage
	CostUSD  float64
	Settled  bool
	Guessed  bool // tokens and cost are estimates
	Failed   []*journal.ModelFailed
	Problem  string // why the answer does not fit the schema of the agent
}

// callPart is a tool call.
type callPart struct {
	*journal.ToolCall
	ID      string
	Run     toolcrib.RunID
	State   string // "" = not judged; allow, ask, running, or how it ended
	Verdict *journal.Verdict
	Edited  json.RawMessage // arguments by which a person replaced those of the model
	Result  *journal.ToolResult
	Seq     toolcrib.Seq // event with the result
	Began   time.Time
	Ended   time.Time
	Child   *journal.ChildStarted
	Waits   *journal.Pending // decision that the child run waits for
	Gone    *journal.ChildEnded
}

// askPart is a question to a person.
type askPart struct {
	*journal.ConfirmationRequired
	Open      bool
	Decisions []decisionPart
	Calls     []askedCall
	Decide    *deciding // the form to decide; nil if the page has none
}

type askedCall struct {
	journal.ApprovalItem
	To string // element of the call
}

type decisionPart struct {
	*journal.ConfirmationResolved
	At     time.Time
	Word   string
	Edited bool
}

// notePart is a line about something that happened beside rounds and calls.
type notePart struct {
	Kind string // as of the template "notice"
	Key  string // a text of run.json; "" = only Text
	Arg  any
	Text string
	Run  toolcrib.RunID // a run that it is about, or ""
}

// endPart is the end of a run.
type endPart struct {
	Status     toolcrib.Status
	StopReason toolcrib.StopReason
	Text       string // the answer, unless a round before shows it
	Truncated  bool
	Problem    string
	Ref        string
	Unread     int
	Usage      toolcrib.Usage
	Iterations int
}

// newStory returns the story of a run after an event.
func newStory(run toolcrib.RunID, from toolcrib.Seq) *story {
	return &story{Run: run, From: from, Last: from, calls: map[string]*item{}}
}

// storyOf returns the story of a run up to an event, or, if before is 0, up to its last one.
func (p *page) storyOf(run service.Run, before toolcrib.Seq) (*story, error) {
	last := run.LastSeq
	if before > 1 && before <= last {
		last = before - 1
	}
	s := newStory(run.ID, last-min(last, storyEvents))
	if s.From > 0 { // the prompt has an event of its own
		s.Earlier = s.From + 1
	}
	for e, err := range p.Service.JournalAfter(p, p.Who, run.ID, s.From) {
		if err != nil {
			return nil, err
		}
		if e.Seq > last && before > 0 {
			if s.Later, s.closed = true, true; e.Seq > last+storyEvents {
				break
			}
		}
		s.take(e)
	}
	if n := len(s.Items) - storyItems; n > 0 {
		s.Items = s.Items[n:]
		s.Earlier = s.Items[0].Seq
	}
	s.Live = !run.Status.Ended() && before == 0
	s.took()
	p.decidable(s)
	return s, nil
}

// decidable adds the form to decide to the approval that is open, if the principal may decide.
func (p *page) decidable(s *story) {
	if s.ask == nil || !s.ask.Ask.Open {
		return
	}
	v, err := p.Service.Approval(p, p.Who, s.ask.Ask.ApprovalID)
	if err != nil || v.Status != api.ApprovalPending {
		return
	}
	d := p.decideData(v)
	d.Next = "/runs/" + string(s.Run)
	s.ask.Ask.Decide = d
}

// read takes the events after the last one.
func (s *story) read(events iter.Seq2[toolcrib.Event, error]) error {
	for e, err := range events {
		if err != nil {
			return err
		}
		s.take(e)
	}
	return nil
}

// took returns the entries that have changed since it was called last, in the order of their first changes.
func (s *story) took() []*item {
	changed := s.changed
	s.changed = nil
	for _, i := range changed {
		i.fresh = false
	}
	return changed
}

// add adds an entry.
func (s *story) add(e toolcrib.Event, i item) *item {
	i.ID, i.Seq, i.At, i.Run = fmt.Sprintf("e%d-%s", e.Seq, shortID(s.Run)), e.Seq, e.Time, s.Run
	if !s.closed {
		s.Items = append(s.Items, &i)
		s.touch(&i)
	}
	return &i
}

func (s *story) note(e toolcrib.Event, n notePart) { s.add(e, item{Note: &n}) }

func (s *story) touch(i *item) {
	if i != nil && !i.fresh {
		i.fresh = true
		s.changed = append(s.changed, i)
	}
}

// touchWork marks the entries of work in progress as changed.
func (s *story) touchWork() {
	for _, i := range s.Items {
		r, c := i.Round, i.Call
		if r != nil && r.Open || c != nil && c.State == "running" && c.Waits == nil {
			s.touch(i)
		}
	}
}

// take adds an event.
func (s *story) take(e toolcrib.Event) {
	if e.Seq <= s.Last {
		return
	}
	s.Last = e.Seq
	switch b := e.Body.(type) {
	case *journal.RunStarted:
		s.start(e, b)
	case *journal.ModelRequest, *journal.ModelFailed, *journal.Message, *journal.Usage, *journal.AnswerChecked:
		s.model(e)
	case *journal.ToolCall, *journal.Verdicts, *journal.ToolStarted, *journal.Reconciled, *journal.ToolResult,
		*journal.ChildStarted, *journal.ChildParked, *journal.ChildResumed, *journal.ChildEnded:
		s.call(e)
	case *journal.ConfirmationRequired, *journal.ConfirmationResolved, *journal.Granted:
		s.person(e)
	case *journal.Said:
		s.add(e, item{Said: b})
	case *journal.Done:
		s.end(e, endPart{
			Status: b.Status, StopReason: b.StopReason, Text: b.Content, Truncated: b.Truncated, Unread: b.Unread,
			Usage: b.Usage, Iterations: b.Iterations,
		})
	case *journal.Error:
		s.end(e, endPart{
			Status: b.Status, StopReason: b.StopReason, Text: b.Content, Truncated: b.Truncated, Problem: b.Message,
			Ref: b.Ref, Unread: b.Unread, Usage: b.Usage, Iterations: b.Iterations,
		})
	default:
		s.aside(e)
	}
}

func (s *story) start(e toolcrib.Event, b *journal.RunStarted) {
	start := &startPart{RunStarted: b}
	if n := len(b.Input); n > 0 {
		last := b.Input[n-1]
		start.Prompt, start.History = last.Text(), n-1
		for _, part := range last.Parts {
			if part.File != nil {
				start.Files = append(start.Files, *part.File)
			}
		}
	}
	s.add(e, item{Start: start})
}

// model takes an event about a request to a model.
func (s *story) model(e toolcrib.Event) {
	if b, ok := e.Body.(*journal.ModelRequest); ok {
		s.request(e, b)
		return
	}
	if s.round == nil {
		if b, ok := e.Body.(*journal.Message); ok { // its request is not among the events that were read
			s.request(e, &journal.ModelRequest{Iteration: b.Iteration, Closing: b.Closing})
		} else {
			return
		}
	}
	r := s.round.Round
	switch b := e.Body.(type) {
	case *journal.ModelFailed:
		r.Failed, r.Open = append(r.Failed, b), false
	case *journal.Message:
		m := toolcrib.Message{Parts: b.Parts}
		r.Replied, r.Open, r.Text, r.Finish = e.Seq, false, m.Text(), b.Finish
		r.Calls, r.Took = len(m.ToolCalls()), time.Duration(b.DurationMS)*time.Millisecond
		if b.Model != "" {
			r.Model = b.Model
		}
		for _, part := range b.Parts {
			if part.Thinking != nil {
				r.Thinking += part.Thinking.Text
			}
		}
	case *journal.Usage:
		r.Tokens, r.CostUSD, r.Settled, r.Guessed = b.Tokens, b.CostUSD, true, b.Estimated
	case *journal.AnswerChecked:
		r.Problem = b.Problem
	}
	s.touch(s.round)
}

// request takes a request to a model: that of a new round, or another attempt.
func (s *story) request(e toolcrib.Event, b *journal.ModelRequest) {
	if old := s.round; old != nil && b.Attempt > 1 && old.Round.Replied == 0 && old.Round.Number == b.Iteration {
		old.Round.Attempt, old.Round.Open = b.Attempt, true
		s.touch(old)
		return
	}
	maps.DeleteFunc(s.calls, func(_ string, i *item) bool { return i.Call.Result != nil }) // they are final
	r := &roundPart{
		Number: b.Iteration, Attempt: b.Attempt, Closing: b.Closing, Condense: b.Purpose != "", Open: true,
	}
	s.round = s.add(e, item{Round: r})
	if r.ID = s.round.ID; e.Body.EventKind() == journal.KindModelRequest {
		r.Asked = e.Seq
	}
}

// call takes an event about a call.
func (s *story) call(e toolcrib.Event) {
	switch b := e.Body.(type) {
	case *journal.ToolCall:
		c := &callPart{ToolCall: b, Run: s.Run}
		i := s.add(e, item{Call: c})
		c.ID, s.calls[b.ID] = i.ID, i
	case *journal.Verdicts:
		for k := range b.Verdicts {
			v := &b.Verdicts[k]
			s.withCall(v.CallID, func(c *callPart) {
				if c.Verdict = v; c.Result == nil {
					c.State = cmp.Or(string(v.Decision), string(toolcrib.ResultRefused))
				}
			})
		}
	case *journal.ToolStarted:
		s.withCall(b.ID, func(c *callPart) { c.State, c.Began = "running", e.Time })
	case *journal.Reconciled:
		s.withCall(b.ID, func(c *callPart) {
			if b.State == "" {
				c.State = string(toolcrib.ResultInDoubt)
			}
		})
	case *journal.ToolResult:
		s.withCall(b.ToolCallID, func(c *callPart) {
			c.State, c.Result, c.Seq, c.Ended = string(b.Status), b, e.Seq, e.Time
		})
	case *journal.ChildStarted:
		s.withCall(b.ID, func(c *callPart) { c.Child, c.State = b, "running" })
	case *journal.ChildParked:
		s.withCall(b.ID, func(c *callPart) { c.Waits = &b.Pending })
	case *journal.ChildResumed:
		s.withCall(b.ID, func(c *callPart) { c.Waits = nil })
	case *journal.ChildEnded:
		s.withCall(b.ID, func(c *callPart) { c.Waits, c.Gone = nil, b })
	}
}

func (s *story) withCall(id string, do func(*callPart)) {
	if i := s.calls[id]; i != nil {
		do(i.Call)
		s.touch(i)
	}
}

// person takes an event about an approval.
func (s *story) person(e toolcrib.Event) {
	switch b := e.Body.(type) {
	case *journal.ConfirmationRequired:
		a := &askPart{ConfirmationRequired: b, Open: true}
		for _, c := range b.Calls {
			one := askedCall{ApprovalItem: c}
			if i := s.calls[c.ID]; i != nil {
				one.To = i.ID
			}
			a.Calls = append(a.Calls, one)
		}
		s.ask = s.add(e, item{Ask: a})
	case *journal.ConfirmationResolved:
		for id, d := range b.Calls {
			if len(d.Arguments) > 0 {
				s.withCall(id, func(c *callPart) { c.Edited = d.Arguments })
			}
		}
		if s.ask != nil && s.ask.Ask.ApprovalID == b.ApprovalID {
			word, edited := b.Overall()
			s.ask.Ask.Decisions = append(s.ask.Ask.Decisions,
				decisionPart{ConfirmationResolved: b, At: e.Time, Word: word, Edited: edited})
			s.ask.Ask.Open = b.Open
			s.touch(s.ask)
		}
	case *journal.Granted:
		if s.ask != nil && s.ask.Ask.Open && len(s.ask.Ask.Calls) == 0 {
			s.ask.Ask.Open = false
			s.touch(s.ask)
		}
		s.note(e, notePart{Kind: "good", Key: "run.note_granted", Arg: b.By, Text: grantedText(b)})
	}
}

// grantedText lists the additions to the limits of a run.
func grantedText(b *journal.Granted) string {
	var all []string
	add := func(set bool, format string, v any) {
		if set {
			all = append(all, fmt.Sprintf(format, v))
		}
	}
	add(b.Iterations > 0, "iterations +%d", b.Iterations)
	add(b.CostUSD > 0, "USD +%g", b.CostUSD)
	add(b.Tokens > 0, "tokens +%d", b.Tokens)
	add(b.Requests > 0, "requests +%d", b.Requests)
	return strings.Join(all, ", ")
}

// aside takes an event that is a line of its own. What only the loop needs has none.
func (s *story) aside(e toolcrib.Event) {
	switch b := e.Body.(type) {
	case *journal.TakenUp:
		if b.Epoch > 1 {
			s.note(e, notePart{Kind: "info", Key: "run.note_taken_up"})
		}
	case *journal.Notice:
		s.note(e, notePart{Kind: "warn", Text: b.Message, Run: b.RunID})
	case *journal.Stopping:
		s.note(e, notePart{Kind: "warn", Key: "run.note_stopping", Arg: b.By, Text: b.Message})
	case *journal.Condensed:
		s.note(e, notePart{Kind: "info", Key: "run.note_condensed", Arg: b.Messages, Text: b.Text})
	case *journal.ModelChosen:
		s.note(e, notePart{Kind: "info", Key: "run.note_model", Arg: b.Model.Ref, Text: b.By})
	case *journal.Paused:
		s.pause(e, b)
	}
}

// pause takes a pause. One for an approval of this run has an entry already.
func (s *story) pause(e toolcrib.Event, b *journal.Paused) {
	n := notePart{Kind: "warn", Key: "run.note_" + string(b.Status), Run: b.Pending.Run}
	if b.Pending.ApprovalID != "" && n.Run == "" {
		return
	}
	if o := b.Pending.Error; o != nil {
		n.Text = o.Message
	}
	s.note(e, n)
}

// end takes the end of the run.
func (s *story) end(e toolcrib.Event, end endPart) {
	s.Live = false
	if s.ask != nil && s.ask.Ask.Open {
		s.ask.Ask.Open = false
		s.touch(s.ask)
	}
	if s.round != nil {
		if s.round.Round.Open {
			s.round.Round.Open = false
			s.touch(s.round)
		}
		if r := s.round.Round; r.Replied > 0 && strings.TrimSpace(r.Text) == strings.TrimSpace(end.Text) && end.Text != "" {
			r.Answer, end.Text = end.Status == toolcrib.StatusCompleted, ""
			s.touch(s.round)
		}
	}
	s.add(e, item{End: &end})
}

// excerpt is the beginning of a text.
type excerpt struct {
	Text string // with hidden characters shown
	Cut  bool
}

// maxProse bounds a text of a model that a story shows as Markdown, in bytes. Of a longer one it shows the beginning.
const maxProse = 64 << 10

// shortJSON is the length of a JSON value that is written in one line, in bytes.
const shortJSON = 72

// excerptOf returns at most so many bytes of a text, or of JSON. A JSON value that is not cut has a line for each
// element, unless it is short.
func excerptOf(most int, v any) excerpt {
	var text string
	switch v := v.(type) {
	case json.RawMessage:
		text = string(v)
	case string:
		text = v
	}
	if len(text) > most {
		return excerpt{guard.Visible(guard.Clip(text, most)), true}
	}
	if len(text) > shortJSON && (strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")) {
		return excerpt{prettyJSON(text), false}
	}
	return excerpt{guard.Visible(text), false}
}

// status returns the status to show for a run.
func status(v *api.Run) string {
	if v.Interrupted {
		return "interrupted"
	}
	return string(v.Status)
}
