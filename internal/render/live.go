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

	spin    *spinner
	text    quote
	thought quote

	mode     mode
	streamed string // text of the current reply that was shown
	lastText string // of the last reply that was shown whole
	aside    string // text of the last reply, not shown yet
	folded   int    // rows of the current thinking that were shown
	calls    map[string]*liveCall
	order    []string
	asked    string // the call that is asked about, if it is one
	card     string // the call that was shown last, with the question about it
}

// mode is what is being written at the moment.
type mode int

const (
	modeNone mode = iota
	modeText
	modeThinking
)

type liveCall struct {
	name      string
	arguments json.RawMessage
	replaced  json.RawMessage // the model's, where it runs with those of a person
}

// Start begins; Stop must follow.
func (l *Live) Start() {
	l.text.style, l.thought.style = l.Style, l.Style
	l.thought.style.Color = false // all of it is dimmed
	if l.calls == nil {
		l.calls = make(map[string]*liveCall)
	}
	if l.ErrTerminal && !l.Style.Dumb {
		l.spin = newSpinner(l.Err, l.Style)
	}
}

// Recall shows a call whose frame came before the run was taken up. It comes
// before Start. edited are the arguments that a person gave in place of the model's;
// nil = none.
func (l *Live) Recall(id, name string, arguments, edited json.RawMessage) {
	if l.calls == nil {
		l.calls = make(map[string]*liveCall)
	}
	c := &liveCall{name: name, arguments: arguments}
	if len(edited) > 0 {
		c.arguments, c.replaced = edited, arguments
	}
	l.calls[id] = c
}

// Stop ends what is on the way.
func (l *Live) Stop() {
	l.margin()
	l.spin.stop()
}

// Hold leaves the terminal to others until Release.
func (l *Live) Hold() {
	l.margin()
	l.spin.hold()
	l.card, l.asked = l.asked, ""
}

// Release takes the terminal back.
func (l *Live) Release() { l.spin.release() }

// Frame shows the next event of the run.
func (l *Live) Frame(f journal.Frame) {
	switch d := f.Data.(type) {
	case journal.StartedView:
		l.spin.say("waiting for the model")
	case journal.TextView:
		if f.Event == journal.FrameThinking {
			l.think(d.Text)
		} else {
			l.token(d.Text)
		}
	case journal.MessageView:
		l.message(d)
	case journal.CallView:
		l.call(d)
	case journal.CallStartedView:
		l.order = append(l.order, d.ID)
		l.running("")
	case journal.ProgressView:
		l.running(Progress(d))
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
	l.spin.say("")
	l.enter(modeText)
	l.streamed += text
	fmt.Fprint(l.Out, l.text.write(text))
}

// foldedThinking is how many rows of a thought are shown.
const foldedThinking = 3

// think shows the beginning of a thought, dimmed.
func (l *Live) think(text string) {
	if !l.ErrTerminal {
		return
	}
	l.spin.say("thinking")
	if l.folded >= foldedThinking {
		return
	}
	l.enter(modeThinking)
	for row := range strings.SplitAfterSeq(l.thought.write(text), "\n") {
		part, ended := strings.CutSuffix(row, "\n")
		fmt.Fprint(l.Err, l.Style.Dim(part))
		if !ended {
			continue
		}
		if l.folded++; l.folded >= foldedThinking {
			fmt.Fprintln(l.Err, l.Style.Dim(" …"))
			l.thought.reset()
			l.mode = modeNone
			l.spin.release()
			return
		}
		fmt.Fprintln(l.Err)
	}
}

// enter begins to write something of another kind on a line of its own.
func (l *Live) enter(m mode) {
	if l.mode == m {
		return
	}
	l.margin()
	l.mode, l.card = m, ""
	l.spin.hold()
}

// margin ends the current line, so that the next thing begins at the margin.
func (l *Live) margin() {
	switch l.mode {
	case modeText:
		fmt.Fprint(l.Out, l.text.end())
	case modeThinking:
		fmt.Fprint(l.Err, l.Style.Dim(l.thought.end()))
	}
	l.mode = modeNone
	l.spin.release()
}

// message ends a reply. Where its text did not stream, a text that comes before
// calls is shown as an aside: it is not the answer.
func (l *Live) message(m journal.MessageView) {
	l.margin()
	if l.streamed != "" {
		l.lastText = l.streamed
	}
	l.streamed, l.folded = "", 0
	if !l.OutTerminal {
		l.aside = m.Text
	}
	l.spin.say("waiting for the model")
}

func (l *Live) call(c journal.CallView) {
	if text := strings.TrimSpace(l.aside); text != "" {
		l.say(l.Style.Quoted(text))
	}
	l.aside = ""
	l.calls[c.ID] = &liveCall{name: c.Name, arguments: c.Arguments}
}

// say writes a line about the run.
func (l *Live) say(text string) {
	l.margin()
	l.spin.hold()
	fmt.Fprint(l.Err, text)
	l.spin.release()
	l.card = ""
}

// note writes a dimmed line about the run.
func (l *Live) note(text string) {
	if strings.HasPrefix(text, "reply_restarted") {
		l.streamed, l.folded = "", 0
	}
	l.say(l.Style.Note(text))
}

// running names the calls that run.
func (l *Live) running(message string) {
	if l.spin == nil {
		return
	}
	if len(l.order) == 0 {
		l.spin.say("waiting for the model")
		return
	}
	names := make([]string, len(l.order))
	for i, id := range l.order {
		names[i] = "a call"
		if c := l.calls[id]; c != nil {
			names[i] = c.name + " " + Arguments(c.arguments, 40)
		}
	}
	text := "running " + strings.Join(names, ", ")
	if message != "" {
		text += ": " + message
	}
	l.spin.say(text)
}

// result shows a call with what became of it.
func (l *Live) result(r journal.ResultView) {
	l.order = slices.DeleteFunc(l.order, func(id string) bool { return id == r.ToolCallID })
	c := l.calls[r.ToolCallID]
	if c == nil {
		c = &liveCall{name: r.Name}
	}
	head := ""
	if l.card != r.ToolCallID { // else it is above
		head = l.Style.Call(c.name, c.arguments, r.Status)
	}
	l.say(head + l.Style.Replaced(c.replaced) + l.Style.Fold(r, foldedLines))
	delete(l.calls, r.ToolCallID)
	l.running("")
}

// Call is the line of a call: a dot that says how it went, name, arguments.
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
	if args := Arguments(arguments, s.width()-len(name)-4); args != "" && args != "{}" {
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
	l.spin.say("")
	l.margin()
	switch {
	case answer == "":
	case !l.OutTerminal:
		fmt.Fprintln(l.Out, strings.TrimSuffix(answer, "\n"))
	case answer != l.lastText:
		fmt.Fprint(l.Out, l.text.write(answer)+l.text.end())
	}
}

// Write writes lines of the log between those of the run; it may be called by any
// goroutine.
func (l *Live) Write(p []byte) (int, error) {
	if s := l.spin; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clear()
	}
	return l.Err.Write(p)
}

// spinner shows on the last line of a terminal that something is happening. Whoever
// writes to the same terminal must hold it back first.
type spinner struct {
	out   io.Writer
	style Style
	now   func() time.Time

	mu    sync.Mutex
	text  string
	since time.Time
	shown bool
	held  bool
	frame int

	quit chan struct{}
	done sync.WaitGroup
}

func frames() []rune { return []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏") }

const (
	frameTime = 100 * time.Millisecond
	// spinnerAfter is how long something must take before it is worth a line.
	spinnerAfter = 300 * time.Millisecond
)

func newSpinner(out io.Writer, style Style) *spinner {
	s := &spinner{out: out, style: style, now: time.Now, quit: make(chan struct{})}
	s.done.Add(1)
	go s.spin()
	return s
}

func (s *spinner) spin() {
	defer s.done.Done()
	tick := time.NewTicker(frameTime)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-tick.C:
			s.draw()
		}
	}
}

func (s *spinner) draw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	took := s.now().Sub(s.since)
	if s.text == "" || s.held || took < spinnerAfter {
		return
	}
	s.frame++
	all := frames()
	text := Line(s.text, s.style.width()-14)
	fmt.Fprintf(s.out, "\r\x1b[K%s %s", s.style.Cyan(string(all[s.frame%len(all)])),
		s.style.Dim(text+" "+Duration(took.Truncate(100*time.Millisecond))))
	s.shown = true
}

// say names what is happening; "" = nothing.
func (s *spinner) say(text string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if text == "" {
		s.clear()
	}
	if s.text != text {
		s.text, s.since = text, s.now()
	}
}

// hold takes the line away until release, so that others can write.
func (s *spinner) hold() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	s.held = true
}

func (s *spinner) release() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
}

func (s *spinner) clear() {
	if s.shown {
		fmt.Fprint(s.out, "\r\x1b[K")
		s.shown = false
	}
}

// stop takes the line away and waits for the goroutine.
func (s *spinner) stop() {
	if s == nil {
		return
	}
	close(s.quit)
	s.done.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
}
