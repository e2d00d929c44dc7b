package openai

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// NewTeller returns a teller of the answer to a request. before is the usage of the run until then.
func NewTeller(a *Ask, answer Answer, before toolcrib.Usage) *Teller {
	return &Teller{Answer: answer, held: a.Schema != nil, before: before, Used: before, stop: stopper{at: a.Stop}}
}

// Teller makes an answer from the frames of a run that follow the event where the answer begins. The answer is
// the same whether frames are live or stored.
type Teller struct {
	Answer
	held   bool           // text is held back until the end, because the answer must be one JSON value
	before toolcrib.Usage // usage of the run before this answer

	// The outcome. All are nil until the run ends or pauses.
	Paused *journal.Paused
	Done   *journal.DoneView
	Failed *journal.ErrorView
	Used   toolcrib.Usage // usage of the run so far

	stop          stopper
	text, thought strings.Builder // live pieces of the current reply
	stale         bool            // whether pieces were left out
	last          string          // the last reply
	replied       bool            // whether there was a reply
}

// Write sends an event of a stream. event may be "". If Write is nil, the answer is sent as a whole.
type Write func(event string, data any) error

// Answer is the form of one API.
type Answer interface {
	// Whole returns the answer, after End.
	Whole() any
	// Think and Say add a piece of reasoning and of text. Break ends a reply.
	Think(text string) error
	Say(text string) error
	Break() error
	// End ends the answer.
	End(o *Outcome) error
	// Fail ends a stream without an answer.
	Fail(why ErrorDetail, used toolcrib.Usage) error
}

// stopper ends each reply before the first of some texts. A possible beginning of one is held back.
type stopper struct {
	at   []string
	held string
	over bool // whether the reply has ended
}

// before returns the part of a text before the stop text that is complete first.
func (s *stopper) before(text string) string {
	start, end := len(text), len(text)+1
	for _, at := range s.at {
		i := strings.Index(text, at)
		if e := i + len(at); i >= 0 && (e < end || e == end && i < start) {
			start, end = i, e
		}
	}
	return text[:start]
}

// next returns the text to send after the next piece.
func (s *stopper) next(piece string) string {
	if s.over {
		return ""
	}
	all := s.held + piece
	said := s.before(all)
	s.held, s.over = "", len(said) < len(all)
	for _, at := range s.at {
		for n := min(len(at)-1, len(said)); n > len(s.held) && !s.over; n-- {
			if strings.HasSuffix(said, at[:n]) {
				s.held = at[:n]
			}
		}
	}
	return strings.TrimSuffix(said, s.held)
}

// rest ends the reply, and returns the text held back.
func (s *stopper) rest() string {
	rest := s.held
	s.held, s.over = "", false
	return rest
}

// say sends a piece of a reply, and end ends the reply.
func (t *Teller) say(text string) error {
	if text = t.stop.next(text); text == "" {
		return nil
	}
	return t.Say(text)
}

func (t *Teller) end() error {
	if rest := t.stop.rest(); rest != "" {
		if err := t.Say(rest); err != nil {
			return err
		}
	}
	return t.Break()
}

// ErrOver means that further frames belong to the next answer.
var ErrOver = errors.New("the answer is over")

// Frame adds the next frame.
func (t *Teller) Frame(f journal.Frame) error {
	if f.Seq > 0 {
		t.Paused = nil
	}
	switch v := f.Data.(type) {
	case journal.TextView:
		return t.heard(f.Event == journal.FrameThinking, v)
	case journal.MessageView:
		return t.reply(&v)
	case toolcrib.Usage:
		t.Used = v
	case *journal.Paused:
		if t.Paused = v; v.Pending.Kind == journal.PendingClientTool {
			return ErrOver
		}
	case journal.DoneView:
		t.Done, t.Used = &v, v.Usage
	case journal.ErrorView:
		t.Failed, t.Used = &v, v.Usage
	default:
		t.stale = t.stale || f.Event == frameLagged
	}
	return nil
}

// frameLagged means that live frames were left out.
const frameLagged = "lagged"

// heard adds a live piece of a reply.
func (t *Teller) heard(thought bool, piece journal.TextView) error {
	so, tell := &t.text, t.say
	if thought {
		so, tell = &t.thought, t.Think
	} else if t.held {
		return nil
	}
	if t.stale = t.stale || piece.From != so.Len(); t.stale { // the stream began in the middle of a reply
		return nil
	}
	so.WriteString(piece.Text)
	return tell(piece.Text)
}

// reply adds a whole reply, and sends the part of it that was not sent live.
func (t *Teller) reply(v *journal.MessageView) error {
	text, thought := t.text.String(), t.thought.String()
	t.text.Reset()
	t.thought.Reset()
	t.stale, t.last, t.replied = false, v.Text, true
	if rest, ok := strings.CutPrefix(v.Thinking, thought); ok && rest != "" {
		if err := t.Think(rest); err != nil {
			return err
		}
	}
	if t.held {
		return nil
	}
	rest, ok := strings.CutPrefix(v.Text, text)
	if !ok { // the live text was withdrawn, or changed
		if err := t.end(); err != nil {
			return err
		}
		rest = v.Text
	}
	if rest != "" {
		if err := t.say(rest); err != nil {
			return err
		}
	}
	return t.end()
}

// Outcome is the end of an answer.
type Outcome struct {
	Text    string // text of the last reply
	Calls   []Call // calls for the client
	Cut     bool   // whether a limit ended it
	Stopped bool   // whether the text ends before one of [Ask.Stop]
	Usage   toolcrib.Usage
	Extra   Extra
}

// Call is a call for the client.
type Call struct{ ID, Name, Arguments string }

// Extra is the extension of toolcrib in an answer.
type Extra struct {
	RunID      toolcrib.RunID      `json:"run_id"`
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason,omitempty"`
	Truncated  bool                `json:"truncated,omitempty"`
	Pending    *journal.Pending    `json:"pending,omitempty"`
}

// Spent returns the usage of this answer.
func (t *Teller) Spent() toolcrib.Usage {
	now := t.Used
	now.InputTokens -= t.before.InputTokens
	now.CachedInputTokens -= t.before.CachedInputTokens
	now.OutputTokens -= t.before.OutputTokens
	now.TotalTokens -= t.before.TotalTokens
	now.ReasoningTokens -= t.before.ReasoningTokens
	return now
}

// Over ends the answer of a run that has ended or waits. place returns the position of a call among all calls
// of the run, from 1. waits returns the text for a person that the run waits for.
func (t *Teller) Over(run toolcrib.RunID, place func(id string) int, waits func(*journal.Pending) string) error {
	o := &Outcome{Text: t.last, Usage: t.Spent(), Extra: Extra{RunID: run}}
	switch {
	case t.Done != nil:
		o.Text, o.Cut = t.Done.Content, t.Done.Truncated
		o.Extra.Status, o.Extra.StopReason, o.Extra.Truncated = t.Done.Status, t.Done.StopReason, t.Done.Truncated
	case t.Paused != nil:
		p := &t.Paused.Pending
		o.Extra.Status, o.Extra.Pending = t.Paused.Status, p
		if p.Kind != journal.PendingClientTool {
			break
		}
		for _, c := range p.Calls {
			o.Calls = append(o.Calls, Call{CallID(run, place(c.ID)), c.Name, string(c.Arguments)})
		}
	}
	if (t.held || !t.replied) && o.Text != "" && len(o.Calls) == 0 {
		if err := t.say(o.Text); err != nil {
			return err
		}
	}
	all := len(o.Text)
	o.Text = t.stop.before(o.Text)
	o.Stopped = len(o.Text) < all
	if p := o.Extra.Pending; p != nil && len(o.Calls) == 0 {
		if err := t.end(); err != nil {
			return err
		}
		o.Text = waits(p)
		if err := t.Say(o.Text); err != nil {
			return err
		}
	}
	if err := t.end(); err != nil {
		return err
	}
	return t.End(o)
}

// compact returns v as one line of JSON. v can always be marshaled.
func compact(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
