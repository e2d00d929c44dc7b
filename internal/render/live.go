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

// Live shows a run as it goes: what happens on Err, the answer on Out. It is for
// one run and one goroutine, but for Hold and Release.
type Live struct {
	Out, Err io.Writer
	// OutTerminal and ErrTerminal say what is a terminal. If Out is one, the
	// answer streams there; else it is written once, whole and as it is.
	OutTerminal, ErrTerminal bool
	Style                    Style // of Err
	// Known reports whether a notice need not be shown again; if nil, every notice is shown.
	Known func(toolcrib.Notice) bool

	mu    sync.Mutex // guards what follows
	doing string     // what is happening, for the last line of a terminal; "" = nothing
	since time.Time  // it happens
	drawn bool       // that line is there
	ticks int
	held  bool   // the terminal is left to others
	stop  func() // ends the goroutine that draws the line; nil = it is not drawn

	text     quote
	writing  bool   // the answer is being written
	thought  string // the end of the current one
	streamed string // text of the current reply that was shown
	lastText string // of the last reply that was shown whole
	aside    string // text of the last reply, not shown yet
	calls    Calls
	asked    string // the call that is asked about, if it is one
	card     string // the call that was shown last, with the question about it
}

const (
	waitingText = "waiting for the model"
	frameTime   = 100 * time.Millisecond
	// doingAfter is how long something must take before it is worth a line.
	doingAfter = 300 * time.Millisecond
)

// Start begins; Stop must follow.
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

// Recall takes a call whose frame came before the run was taken up. It comes before Start.
func (l *Live) Recall(c journal.CallView) { l.calls.Take(c) }

// Stop ends what is on the way.
func (l *Live) Stop() {
	if l.stop != nil {
		l.stop()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.margin()
	l.clear()
}

// Hold leaves the terminal to others until Release.
func (l *Live) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.margin()
	l.clear()
	l.held = true
	l.card, l.asked = l.asked, ""
}

// Release takes the terminal back.
func (l *Live) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
}

// Write writes lines of the log between those of the run; it may be called by any
// goroutine.
func (l *Live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
	return l.Err.Write(p)
}

// does names what is happening.
func (l *Live) does(text string) {
	if l.doing != text {
		l.doing, l.since = text, time.Now()
	}
}

// draw shows on the last line of a terminal that something is happening.
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

// clear takes that line away.
func (l *Live) clear() {
	if l.drawn {
		fmt.Fprint(l.Err, "\r\x1b[K")
		l.drawn = false
	}
}

// Spinner is one of the pictures of work in progress.
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
		// The last line about the run says that a budget is exhausted, with what to do.
		if d.Code != string(toolcrib.StopBudgetExhausted) && (l.Known == nil || !l.Known(d)) {
			l.note(d.Code + ": " + d.Message)
		}
	case journal.DoneView:
		l.end(d.Content)
	case journal.ErrorView:
		l.end("")
	}
}

// Calls are the calls of a run that have no result yet. The zero value has none.
type Calls struct {
	open     map[string]journal.CallView
	running  []string // IDs, in the order in which they began
	progress string
}

// Take takes the data of a frame, if it is about calls.
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

// End returns the call of a result, which is over.
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

// Running names those that run; "" = none does.
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

// Progress is how far a call has come, in words.
func Progress(p journal.ProgressView) string {
	message := p.Message[strings.LastIndexByte(p.Message, '\n')+1:] // of output, the last line
	if p.Fraction <= 0 {
		return message
	}
	return strings.TrimSpace(fmt.Sprintf("%s %.0f %%", message, 100*min(p.Fraction, 1)))
}

// Resolved is what was decided, and by whom.
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

// think shows the last line of a thought on that of a terminal.
func (l *Live) think(text string) {
	if l.thought += text; len(l.thought) > maxThought {
		l.thought = strings.ToValidUTF8(l.thought[len(l.thought)-maxThought/2:], "")
	}
	l.doing = "thinking: " + LastLine(l.thought)
}

// maxThought bounds what is kept of a thought, in bytes.
const maxThought = 4 << 10

// LastLine is the last line of a text that has something on it.
func LastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// margin ends the current line, so that the next thing begins at the margin.
func (l *Live) margin() {
	if l.writing {
		fmt.Fprint(l.Out, l.text.end())
	}
	l.writing = false
}

// message ends a reply. Where its text did not stream, a text that comes before
// calls is shown as an aside: it is not the answer.
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

// running says which calls run.
func (l *Live) running() {
	if text := l.calls.Running(); text != "" {
		l.does("running " + text)
	} else {
		l.does(waitingText)
	}
}

// result shows a call with what became of it.
func (l *Live) result(r journal.ResultView) {
	c := l.calls.End(r)
	head := ""
	if l.card != r.ToolCallID { // else it is above
		head = l.Style.Call(c.Name, c.Arguments, r.Status)
	}
	l.say(head + l.Style.Fold(r, foldedLines, ""))
	l.running()
}

// Call is the line of a call: a dot that says how it went, name, arguments. It has room for an indent.
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

// IsPlan reports whether a call has shown the model's plan, which is shown whole: the result
// says what the arguments do.
func IsPlan(name string, status toolcrib.ResultStatus) bool {
	return name == "update_plan" && status == toolcrib.ResultOK
}

// end shows the answer, unless it is shown already.
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
