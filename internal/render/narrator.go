package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Narrator turns the events of a run into items for a [View]. It takes them as clients receive them ([Narrator.Frame])
// or as they are stored ([Narrator.Event]), with more detail. It is for one run and one goroutine.
type Narrator struct {
	View

	calls    map[string]*callState // by ID; of frames, only until their result
	running  []string              // IDs of the running calls, in the order of their start
	progress string

	started  bool            // the run has started
	streamed strings.Builder // text of the current reply so far
	thinks   bool            // pieces of a thought of the current reply came
	thought  strings.Builder // current thought
	recent   string          // end of the current thought
	writing  string          // tool whose call the model is writing

	// Only stored events set the fields below.
	began     time.Time
	known     bool // the price of every model is known
	estimated bool // tokens were estimated
	taint     []string
	sinks     string // value of taint.writes, which decides on sinks of a tainted run
	ended     []*journal.ChildEnded
}

// View shows a narration, with a function for each kind of item. If one is nil, its items are not shown.
type View struct {
	Note     func(text string)        // a sentence about the run
	Notice   func(n toolcrib.Notice)  // a notice
	Resolved func(text string)        // a decision of a person
	Fault    func(text string)        // something failed
	Thought  func(text string)        // a complete thought
	Piece    func(text string)        // a piece of the current reply
	Reply    func(r Reply)            // a complete reply
	Call     func(c journal.CallView) // the model calls a tool
	Asks     func(call string)        // a person is asked about one call
	Result   func(r Result)           // a call with its result
	Answer   func(text string)        // the end of the run with its answer

	// Items of stored events only.
	Start  func(b *journal.RunStarted)
	Head   func(h Head)      // a message, a question, a sub-agent, the end of the run
	Detail func(text string) // a sentence that belongs to the item before it
	Run    func(id string)   // likewise: another run
	Cost   func(text string) // cost of the run
}

// Reply is a complete reply. The part of it in Streamed was shown in pieces.
type Reply struct{ Text, Streamed string }

// Result is a call with its result.
type Result struct {
	journal.ResultView
	Call   journal.CallView // with the arguments that it ran with
	Edited string           // a sentence about the arguments if a person gave them, or ""
}

// Head is the beginning of a longer item. Mark is ❯ for a message of the person Name, ? for a question (approval Name),
// "" for a call that it is about, → for the agent Name, which begins to answer a call, and ✓, ■ or ✗ for the end.
type Head struct{ Mark, Name, Text string }

// callState is a call with what later events say about it.
type callState struct {
	journal.CallView
	edited  bool            // a person gave the arguments
	model   json.RawMessage // the model's arguments, if edited is set
	verdict *journal.Verdict
	agent   string // agent of the child run that answers the call
	ended   *journal.ChildEnded
}

// show shows an item, unless the view does not show its kind.
func show[T any](kind func(T), item T) {
	if kind != nil {
		kind(item)
	}
}

// call returns the state of a call. It is empty if the call is unknown.
func (n *Narrator) call(id string) *callState {
	if n.calls == nil {
		n.calls = map[string]*callState{}
	}
	if n.calls[id] == nil {
		n.calls[id] = &callState{}
	}
	return n.calls[id]
}

// Frame narrates the next frame.
func (n *Narrator) Frame(f journal.Frame) {
	switch d := f.Data.(type) {
	case journal.StartedView:
		n.started = true
	case journal.TextView:
		if f.Event == journal.FrameThinking {
			n.thinks = true
			n.think(d.Text)
			return
		}
		n.endThought()
		n.writing = ""
		n.streamed.WriteString(d.Text)
		show(n.Piece, d.Text)
	case journal.CallDeltaView:
		if d.Name != "" {
			n.endThought()
			n.writing = d.Name
		}
	case journal.MessageView:
		if !n.thinks && n.streamed.Len() == 0 {
			n.think(d.Thinking)
		}
		r := Reply{Text: d.Text, Streamed: n.streamed.String()}
		n.EndReply()
		n.thinks = false
		show(n.Reply, r)
	case journal.CallView:
		n.call(d.ID).CallView = d
		show(n.Call, d)
	case journal.CallStartedView:
		n.running, n.progress = append(n.running, d.ID), ""
	case journal.ProgressView:
		n.progress = progress(d)
	case journal.ChildView:
		show(n.Note, fmt.Sprintf("agent %s begins (%s)", d.Agent, toolcrib.ShortID(d.Run)))
	case journal.ConfirmationView:
		if d.RunID != "" {
			show(n.Note, toolcrib.ShortID(d.RunID)+" waits for a person")
		} else if len(d.Calls) == 1 {
			show(n.Asks, d.Calls[0].ID)
		}
	case journal.ResultView:
		n.result(d)
		delete(n.calls, d.ToolCallID)
	case journal.ResolvedView:
		show(n.Resolved, decided(d.Decision)+" by "+d.By)
	case toolcrib.Notice:
		if d.Code == NoticeRestarted {
			n.EndReply()
			n.thinks = false
		}
		show(n.Notice, d)
	case journal.DoneView:
		n.answer(d.Content)
	case journal.ErrorView:
		if d.Message != "" {
			show(n.Fault, string(d.StopReason)+": "+d.Message)
		}
		n.answer("")
	}
}

// Codes of the notices that a request is sent again. With NoticeRestarted, what was shown of the reply is dropped.
const (
	NoticeRestarted = "reply_restarted"
	noticeRetry     = "retrying"
)

// NoticeText formats a notice for people.
func NoticeText(n toolcrib.Notice) string {
	if n.Code == noticeRetry || n.Code == NoticeRestarted {
		return n.Message
	}
	return n.Code + ": " + n.Message
}

func (n *Narrator) answer(text string) {
	show(n.Answer, text)
	n.calls, n.running = nil, nil
}

// maxThought and maxRecent bound the part of a thought that is kept, in bytes: its beginning, and its end.
const (
	maxThought = 64 << 10
	maxRecent  = 4 << 10
)

func (n *Narrator) think(text string) {
	n.thought.WriteString(text[:min(len(text), max(maxThought-n.thought.Len(), 0))])
	if n.recent += text; len(n.recent) > maxRecent {
		n.recent = strings.ToValidUTF8(n.recent[len(n.recent)-maxRecent/2:], "")
	}
}

func (n *Narrator) endThought() {
	text := strings.TrimSpace(strings.ToValidUTF8(n.thought.String(), "\uFFFD"))
	n.thought.Reset()
	if n.recent = ""; text != "" {
		show(n.Thought, text)
	}
}

// EndReply ends the current reply, as it is complete or something else is shown now.
func (n *Narrator) EndReply() {
	n.endThought()
	n.streamed.Reset()
	n.writing = ""
}

// result narrates a result, and returns the state of its call.
func (n *Narrator) result(r journal.ResultView) *callState {
	n.running = slices.DeleteFunc(n.running, func(id string) bool { return id == r.ToolCallID })
	n.progress = ""
	c := n.call(r.ToolCallID)
	shown := Result{ResultView: r, Call: c.CallView}
	shown.Call.Name = cmp.Or(c.Name, r.Name)
	if c.edited {
		shown.Edited = "a person gave these arguments; the model's: " + Arguments(c.model, 4096)
	}
	show(n.Result, shown)
	return c
}

// Activity describes what the run is doing.
func (n *Narrator) Activity() string {
	switch {
	case len(n.running) > 0:
		return n.runningCalls()
	case n.thought.Len() > 0:
		return "thinking: " + lastLine(strings.ToValidUTF8(n.recent, ""))
	case n.writing != "":
		return "writing a call of " + n.writing
	case n.streamed.Len() > 0:
		return "writing"
	case !n.started:
		return "working"
	}
	return "waiting for the model"
}

// Phase identifies what the run is doing, without its progress. A time shown with [Narrator.Activity] is counted from
// its last change, so that it is that of a call and not of what came before it.
func (n *Narrator) Phase() string {
	switch {
	case len(n.running) > 0:
		return n.running[0]
	case n.thought.Len() == 0 && n.writing+n.streamed.String() != "":
		return "writing"
	}
	return "waiting" // and thinking
}

// runningCalls describes the running calls.
func (n *Narrator) runningCalls() string {
	names := make([]string, len(n.running))
	for i, id := range n.running {
		names[i] = "a call"
		if c := n.calls[id]; c != nil {
			names[i] = strings.TrimSpace(c.Name + " " + Arguments(c.Arguments, 40))
		}
	}
	return strings.Join(names, ", ") + around(": ", n.progress, "")
}

// progress describes the progress of a call.
func progress(p journal.ProgressView) string {
	message := p.Message[strings.LastIndexByte(p.Message, '\n')+1:] // the last line of output
	if p.Fraction <= 0 {
		return message
	}
	return strings.TrimSpace(fmt.Sprintf("%s %.0f %%", message, 100*min(p.Fraction, 1)))
}

// lastLine returns the last line of a text that is not blank.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// decided describes a decision.
func decided(decision string) string {
	return cmp.Or(map[string]string{
		journal.DecisionApprove: "approved", journal.DecisionDeny: "denied", journal.DecisionAnswer: "answered",
		journal.DecisionRetry: "to be run once more", journal.DecisionHappened: "counted as happened",
		journal.DecisionNotHappened: "counted as not happened",
	}[decision], "decided call by call")
}
