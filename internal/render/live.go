package render

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Live shows an active run: its events on Err, the answer on Out. It is for one run, and for one goroutine except Hold,
// Release and Write.
type Live struct {
	Out, Err io.Writer
	// OutTerminal and ErrTerminal report which of them is a terminal. If Out is one, the answer
	// is streamed; otherwise it is written once, unchanged.
	OutTerminal, ErrTerminal bool
	Style                    Style // style of Err
	// Known reports whether a notice need not be shown again; if nil, every notice is shown.
	Known func(toolcrib.Notice) bool
	// Team leaves out answers of agents, which are shown at the end.
	Team bool

	mu    sync.Mutex // guards the fields below
	doing string     // current activity, for the status line, or ""
	phase string     // phase of the run
	since time.Time  // start of the phase, or the last answer of a person in it
	drawn bool       // whether the status line is shown
	ticks int
	held  bool   // whether the terminal is used by others
	stop  func() // ends the goroutine that draws the status line, or nil

	narrator Narrator
	text     quote
	lastText string // text of the last reply that was shown completely
	aside    string // text of the last reply that was not shown yet
	asked    string // ID of the call that needs approval, if it is only one
	card     string // ID of the call that was shown last, with a question
}

const (
	frameTime = 100 * time.Millisecond
	// doingAfter is how long an activity must take before it is shown.
	doingAfter = 300 * time.Millisecond
)

// Start begins drawing the status line. Stop must be called afterwards.
func (l *Live) Start() {
	l.text.style, l.narrator.started = l.Style, true // a resumed run started earlier
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
	l.held, l.since = false, time.Now()
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
	if phase := l.narrator.Phase(); l.phase != phase {
		l.phase, l.since = phase, time.Now()
	}
	l.doing = text
}

// draw draws the status line.
func (l *Live) draw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := time.Since(l.since)
	if l.doing == "" || l.held || took < doingAfter {
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
	l.narrator.View = View{
		Note: l.note, Notice: l.notice, Resolved: l.resolved, Piece: l.piece, Reply: l.reply, Call: l.call,
		Asks: func(call string) { l.asked = call }, Result: l.result, Answer: l.answer,
	}
	l.narrator.Frame(f)
	switch f.Data.(type) {
	case journal.StartedView, journal.TextView, journal.MessageView, journal.CallStartedView, journal.ProgressView,
		journal.ResultView:
		l.does(l.activity())
	}
}

// activity describes what the run is doing.
func (l *Live) activity() string {
	n := &l.narrator
	switch {
	case len(n.running) > 0:
		return "running " + n.Activity()
	case n.streamed.Len() == 0 || n.thought.Len() > 0:
		return n.Activity()
	case l.OutTerminal: // lines that are complete are shown
		return n.Activity() + around(": ", lastLine(l.text.text.Held()), "")
	}
	return l.doing // the answer is not shown yet
}

// piece shows a piece of the answer.
func (l *Live) piece(text string) {
	if !l.OutTerminal {
		return
	}
	l.print(l.text.write(text))
}

// print writes rows of the answer.
func (l *Live) print(rows string) {
	if rows != "" {
		l.clear()
		l.card = ""
		fmt.Fprint(l.Out, rows)
	}
}

// margin ends what was written of the answer.
func (l *Live) margin() { l.print(l.text.end()) }

// reply ends a reply. If its text was not streamed, it is kept, to be shown before the calls of
// the reply: it is not the answer then.
func (l *Live) reply(r Reply) {
	l.margin()
	if !l.OutTerminal {
		l.aside = r.Text
	} else if r.Streamed != "" {
		l.lastText = r.Streamed
	}
}

// call shows the reply that a call belongs to.
func (l *Live) call(journal.CallView) {
	if text := strings.TrimSpace(l.aside); text != "" {
		l.say(l.Style.Quoted(text))
	}
	l.aside = ""
}

// say writes a line about the run.
func (l *Live) say(text string) {
	l.margin()
	l.clear()
	fmt.Fprint(l.Err, text)
	l.card = ""
}

// note writes a dimmed line about the run.
func (l *Live) note(text string) { l.say(l.Style.Note(text)) }

// resolved shows a decision. The call that it is about is still the one shown last.
func (l *Live) resolved(text string) {
	card := l.card
	l.note(text)
	l.card = card
}

// notice shows a notice, except that the budget is exhausted: the last line about the run says that, with what to do.
func (l *Live) notice(n toolcrib.Notice) {
	if n.Code != string(toolcrib.StopBudgetExhausted) && (l.Known == nil || !l.Known(n)) {
		l.note(NoticeText(n))
	}
}

// result shows a call with its result.
func (l *Live) result(r Result) {
	if l.Team && r.Status == toolcrib.ResultOK {
		var asked struct{ Agent string }
		_ = json.Unmarshal(r.Call.Arguments, &asked)
		l.note("agent " + asked.Agent + " has answered (" + Duration(time.Duration(r.DurationMS)*time.Millisecond) + ")")
		return
	}
	head := ""
	if l.card != r.ToolCallID { // otherwise the call was just shown
		head = l.Style.Call(r.Call.Name, r.Call.Arguments, r.Status)
	}
	l.say(head + l.Style.Fold(r.ResultView, foldedLines, ""))
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
	if args := Arguments(arguments, s.width()-len(name)-6); args != "{}" && !IsPlan(name, status) {
		text += around(" ", args, "")
	}
	return text + "\n"
}

// IsPlan reports whether the result of a call is the model's plan. It is shown completely and
// without the arguments, which say the same.
func IsPlan(name string, status toolcrib.ResultStatus) bool {
	return name == "update_plan" && status == toolcrib.ResultOK
}

// answer shows the answer, unless it was streamed.
func (l *Live) answer(answer string) {
	l.does("")
	l.margin()
	switch {
	case answer == "":
	case !l.OutTerminal:
		fmt.Fprintln(l.Out, strings.TrimSuffix(answer, "\n"))
	case answer != l.lastText:
		l.print(l.text.write(answer) + l.text.end())
	}
}
