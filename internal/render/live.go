package render

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Live shows a running run: its events on Err, the answer on Out. It is for one run and one
// goroutine, except Hold, Release and Write.
type Live struct {
	Out, Err io.Writer
	// OutTerminal and ErrTerminal report which of them is a terminal. If Out is one, the answer
	// is streamed; otherwise it is written once, unchanged.
	OutTerminal, ErrTerminal bool
	Style                    Style // style of Err
	// Known reports whether a notice need not be shown again; if nil, every notice is shown.
	Known func(toolcrib.Notice) bool

	mu    sync.Mutex // guards the fields below
	doing string     // current activity, for the status line, or ""
	since time.Time  // start of the activity
	drawn bool       // whether the status line is shown
	ticks int
	held  bool   // whether the terminal is used by others
	stop  func() // ends the goroutine that draws the status line, or nil

	text     quote
	writing  bool   // whether the answer is being written
	thought  string // end of the current thought
	streamed string // text of the current reply that was shown
	lastText string // text of the last reply that was shown completely
	aside    string // text of the last reply that was not shown yet
	calls    Calls
	asked    string // ID of the call that needs approval, if it is only one
	card     string // ID of the call that was shown last, with a question
}

const (
	waitingText = "waiting for the model"
	frameTime   = 100 * time.Millisecond
	// doingAfter is how long an activity must take before it is shown.
	doingAfter = 300 * time.Millisecond
)

// Start begins drawing the status line. Stop must be called afterwards.
func (l *Live) Start() {
	l.text.style = l.Style
	if !l.ErrTerminal || l.Style.Dumb {
		return
	}
	quit, drawing := make(chan struct{}), sync.WaitGroup{}
	drawing.Go(func() {
		for tick := time.Tick(frameTime); ; {
			select {
			case <-quit:
				return
			case <-tick:
				l.draw()
			}
		}
	})
	l.stop = func() { close(quit); drawing.Wait() }
}

// Recall adds a call whose frame came before the run was resumed. It must be called before Start.
func (l *Live) Recall(c journal.CallView) { l.calls.Take(c) }

// Stop stops drawing, and ends the current line.
func (l *Live) Stop() {
	if l.stop != nil {
		l.stop()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.margin()
	l.clear()
}

// Hold stops drawing until Release, so that others can use the terminal.
func (l *Live) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.margin()
	l.clear()
	l.held = true
	l.card, l.asked = l.asked, ""
}

// Release ends Hold.
func (l *Live) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
}

// Write writes lines of the log between those of the run. It may be called by any goroutine.
func (l *Live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
	return l.Err.Write(p)
}

// does sets the current activity.
func (l *Live) does(text string) {
	if l.doing != text {
		l.doing, l.since = text, time.Now()
	}
}

// draw draws the status line.
func (l *Live) draw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := time.Since(l.since)
	if l.doing == "" || l.held || l.writing || took < doingAfter {
		return
	}
	l.ticks++
	l.drawn = true
	fmt.Fprintf(l.Err, "\r\x1b[K%s %s", l.Style.Cyan(Spinner(l.ticks)),
		l.Style.Dim(Line(l.doing, l.Style.width()-14)+" "+Duration(took.Truncate(frameTime))))
}

// clear removes the status line.
func (l *Live) clear() {
	if l.drawn {
		fmt.Fprint(l.Err, "\r\x1b[K")
		l.drawn = false
	}
}

// Spinner returns a frame of the progress indicator.
func Spinner(tick int) string {
	all := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	return string(all[tick%len(all)])
}

// Frame shows the next event of the run.
func (l *Live) Frame(f journal.Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls.Take(f.Data)
	switch d := f.Data.(type) {
	case journal.StartedView:
		l.does(waitingText)
	case journal.TextView:
		if f.Event == journal.FrameThinking {
			l.think(d.Text)
		} else {
			l.token(d.Text)
		}
	case journal.MessageView:
		l.message(d)
	case journal.CallView:
		if text := strings.TrimSpace(l.aside); text != "" {
			l.say(l.Style.Quoted(text))
		}
		l.aside = ""
	case journal.CallStartedView, journal.ProgressView:
		l.running()
	case journal.ChildView:
		l.note(fmt.Sprintf("agent %s begins (%s)", d.Agent, toolcrib.ShortID(d.Run)))
	case journal.ConfirmationView:
		if d.RunID != "" {
			l.note(fmt.Sprintf("%s waits for a person", toolcrib.ShortID(d.RunID)))
		} else if len(d.Calls) == 1 {
			l.asked = d.Calls[0].ID
		}
	case journal.ResultView:
		l.result(d)
	case journal.ResolvedView:
		card := l.card
		l.note(Resolved(d))
		l.card = card
	case toolcrib.Notice:
		// The last line about the run reports an exhausted budget and the remedy.
		if d.Code != string(toolcrib.StopBudgetExhausted) && (l.Known == nil || !l.Known(d)) {
			l.note(d.Code + ": " + d.Message)
		}
	case journal.DoneView:
		l.end(d.Content)
	case journal.ErrorView:
		l.end("")
	}
}

// Calls tracks the calls of a run that have no result yet. The zero value is empty.
type Calls struct {
	open     map[string]journal.CallView
	running  []string // IDs, in the order of their start
	progress string
}

// Take updates the calls from the data of a frame.
func (c *Calls) Take(data any) {
	switch d := data.(type) {
	case journal.CallView:
		if c.open == nil {
			c.open = map[string]journal.CallView{}
		}
		c.open[d.ID] = d
	case journal.CallStartedView:
		c.running, c.progress = append(c.running, d.ID), ""
	case journal.ProgressView:
		c.progress = Progress(d)
	}
}

// End removes and returns the call of a result.
func (c *Calls) End(r journal.ResultView) journal.CallView {
	c.running = slices.DeleteFunc(c.running, func(id string) bool { return id == r.ToolCallID })
	c.progress = ""
	call, ok := c.open[r.ToolCallID]
	if !ok {
		call.Name = r.Name
	}
	delete(c.open, r.ToolCallID)
	return call
}

// Running describes the calls that are running, or returns "".
func (c *Calls) Running() string {
	names := make([]string, len(c.running))
	for i, id := range c.running {
		names[i] = "a call"
		if call, ok := c.open[id]; ok {
			names[i] = strings.TrimSpace(call.Name + " " + Arguments(call.Arguments, 40))
		}
	}
	text := strings.Join(names, ", ")
	if text != "" && c.progress != "" {
		text += ": " + c.progress
	}
	return text
}

// Progress describes the progress of a call.
func Progress(p journal.ProgressView) string {
	message := p.Message[strings.LastIndexByte(p.Message, '\n')+1:] // the last line of output
	if p.Fraction <= 0 {
		return message
	}
	return strings.TrimSpace(fmt.Sprintf("%s %.0f %%", message, 100*min(p.Fraction, 1)))
}

// Resolved describes a decision and who made it.
func Resolved(r journal.ResolvedView) string { return decided(r.Decision) + " by " + r.By }

func decided(decision string) string {
	switch decision {
	case journal.DecisionApprove:
		return "approved"
	case journal.DecisionDeny:
		return "denied"
	case journal.DecisionAnswer:
		return "answered"
	case journal.DecisionRetry:
		return "to be run once more"
	case journal.DecisionHappened:
		return "counted as happened"
	case journal.DecisionNotHappened:
		return "counted as not happened"
	}
	return "decided call by call"
}

// token shows a piece of the answer.
func (l *Live) token(text string) {
	if !l.OutTerminal {
		return
	}
	l.does("")
	if !l.writing {
		l.clear()
		l.writing, l.card = true, ""
	}
	l.streamed += text
	fmt.Fprint(l.Out, l.text.write(text))
}

// think shows the last line of a thought in the status line.
func (l *Live) think(text string) {
	if l.thought += text; len(l.thought) > maxThought {
		l.thought = strings.ToValidUTF8(l.thought[len(l.thought)-maxThought/2:], "")
	}
	l.doing = "thinking: " + LastLine(l.thought)
}

// maxThought bounds the part of a thought that is kept, in bytes.
const maxThought = 4 << 10

// LastLine returns the last line of a text that is not blank.
func LastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// margin ends the current line, so that the next text begins at the margin.
func (l *Live) margin() {
	if l.writing {
		fmt.Fprint(l.Out, l.text.end())
	}
	l.writing = false
}

// message ends a reply. If its text was not streamed, it is kept, to be shown before the calls of
// the reply: it is not the answer then.
func (l *Live) message(m journal.MessageView) {
	l.margin()
	if l.streamed != "" {
		l.lastText = l.streamed
	}
	l.streamed, l.thought = "", ""
	if !l.OutTerminal {
		l.aside = m.Text
	}
	l.does(waitingText)
}

// say writes a line about the run.
func (l *Live) say(text string) {
	l.margin()
	l.clear()
	fmt.Fprint(l.Err, text)
	l.card = ""
}

// note writes a dimmed line about the run.
func (l *Live) note(text string) {
	if strings.HasPrefix(text, "reply_restarted") {
		l.streamed, l.thought = "", ""
	}
	l.say(l.Style.Note(text))
}

// running shows the running calls as the current activity.
func (l *Live) running() {
	if text := l.calls.Running(); text != "" {
		l.does("running " + text)
	} else {
		l.does(waitingText)
	}
}

// result shows a call with its result.
func (l *Live) result(r journal.ResultView) {
	c := l.calls.End(r)
	head := ""
	if l.card != r.ToolCallID { // otherwise the call was just shown
		head = l.Style.Call(c.Name, c.Arguments, r.Status)
	}
	l.say(head + l.Style.Fold(r, foldedLines, ""))
	l.running()
}

// Call formats a call as a line: a dot in the color of its status, name, arguments. It leaves room for an indent.
func (s Style) Call(name string, arguments json.RawMessage, status toolcrib.ResultStatus) string {
	dot := s.Red("●")
	switch status {
	case toolcrib.ResultOK:
		dot = s.Green("●")
	case toolcrib.ResultRefused:
		dot = s.Yellow("●")
	case "":
		dot = s.Cyan("●")
	}
	name = Line(name, 64)
	text := dot + " " + s.Bold(name)
	if IsPlan(name, status) {
		return text + "\n"
	}
	if args := Arguments(arguments, s.width()-len(name)-6); args != "" && args != "{}" {
		text += " " + args
	}
	return text + "\n"
}

// IsPlan reports whether the result of a call is the model's plan. It is shown completely and
// without the arguments, which say the same.
func IsPlan(name string, status toolcrib.ResultStatus) bool {
	return name == "update_plan" && status == toolcrib.ResultOK
}

// end shows the answer, unless it was streamed.
func (l *Live) end(answer string) {
	l.does("")
	l.margin()
	switch {
	case answer == "":
	case !l.OutTerminal:
		fmt.Fprintln(l.Out, strings.TrimSuffix(answer, "\n"))
	case answer != l.lastText:
		fmt.Fprint(l.Out, l.text.write(answer)+l.text.end())
	}
}
