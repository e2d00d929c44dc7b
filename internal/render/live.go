package render

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

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
	if l.ErrTerminal && l.Style.Color {
		l.spin = newSpinner(l.Err, l.Style)
	}
}

// Recall tells of a call whose frame came before the run was taken up. It comes
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

// Hold leaves the terminal to somebody else until Release.
func (l *Live) Hold() {
	l.margin()
	l.spin.hold()
}

// Release takes the terminal back.
func (l *Live) Release() { l.spin.release() }

// The data of frames, as far as they are shown (contract §8).
type (
	textFrame struct {
		Text string `json:"text"`
	}
	messageFrame struct {
		Text     string `json:"text"`
		Thinking string `json:"thinking"`
	}
	callFrame struct {
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	progressFrame struct {
		ID       string  `json:"id"`
		Message  string  `json:"message"`
		Fraction float64 `json:"fraction"`
	}
	resultFrame struct {
		ToolCallID string                `json:"tool_call_id"`
		Name       string                `json:"name"`
		Status     toolcrib.ResultStatus `json:"status"`
		Content    string                `json:"content"`
		Reason     toolcrib.Reason       `json:"reason"`
		DurationMS int64                 `json:"duration_ms"`
		Truncated  bool                  `json:"truncated"`
		Untrusted  bool                  `json:"untrusted"`
	}
	resolvedFrame struct {
		Decision string `json:"decision"`
		By       string `json:"by"`
	}
	endFrame struct {
		Content    string              `json:"content"`
		Code       string              `json:"error"`
		Message    string              `json:"message"`
		StopReason toolcrib.StopReason `json:"stop_reason"`
		Status     toolcrib.Status     `json:"status"`
		Truncated  bool                `json:"truncated"`
	}
)

// decode reads the data of a frame by its JSON, which is what is promised of it.
func decode[T any](data any) (v T) {
	if raw, err := json.Marshal(data); err == nil {
		_ = json.Unmarshal(raw, &v) // what cannot be read shows as nothing
	}
	return v
}

// Frame shows the next event of the run.
func (l *Live) Frame(f journal.Frame) {
	switch f.Event {
	case string(journal.KindRunStarted):
		l.spin.say("waiting for the model")
	case journal.FrameToken:
		l.token(decode[textFrame](f.Data).Text)
	case journal.FrameThinking:
		l.think(decode[textFrame](f.Data).Text)
	case string(journal.KindMessage):
		l.message(decode[messageFrame](f.Data))
	case string(journal.KindToolCall):
		l.call(decode[callFrame](f.Data))
	case string(journal.KindToolStarted):
		c := decode[callFrame](f.Data)
		l.order = append(l.order, c.ID)
		l.running("")
	case journal.FrameToolProgress:
		l.progress(decode[progressFrame](f.Data))
	case string(journal.KindChildStarted):
		c := decode[journal.ChildStarted](f.Data)
		l.note(fmt.Sprintf("agent %s begins (%s)", c.Agent, c.Run))
	case string(journal.KindConfirmationRequired):
		if c := decode[struct {
			Run toolcrib.RunID `json:"run_id"`
		}](f.Data); c.Run != "" {
			l.note(fmt.Sprintf("%s waits for a person", c.Run))
		}
	case string(journal.KindToolResult):
		l.result(decode[resultFrame](f.Data))
	case string(journal.KindConfirmationResolved):
		r := decode[resolvedFrame](f.Data)
		l.note(fmt.Sprintf("%s by %s", decided(r.Decision), r.By))
	case string(journal.KindNotice):
		n := decode[toolcrib.Notice](f.Data)
		if n.Code == string(toolcrib.StopBudgetExhausted) {
			return // the last line about the run says so, with what to do
		}
		l.note(n.Code + ": " + n.Message)
	case string(journal.KindDone), string(journal.KindError):
		l.end(decode[endFrame](f.Data))
	}
}

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
	l.mode = m
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
func (l *Live) message(m messageFrame) {
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

func (l *Live) call(c callFrame) {
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

func (l *Live) progress(p progressFrame) {
	message := p.Message
	if p.Fraction > 0 {
		message = strings.TrimSpace(fmt.Sprintf("%s %.0f %%", message, 100*min(p.Fraction, 1)))
	}
	l.running(message)
}

// result shows a call with what became of it.
func (l *Live) result(r resultFrame) {
	for i, id := range l.order {
		if id == r.ToolCallID {
			l.order = append(l.order[:i], l.order[i+1:]...)
			break
		}
	}
	c := l.calls[r.ToolCallID]
	if c == nil {
		c = &liveCall{name: r.Name}
	}
	l.say(l.Style.Call(c.name, c.arguments, r.Status) + l.Style.Replaced(c.replaced) + l.Style.Fold(Result{
		Status: r.Status, Reason: r.Reason, Content: r.Content,
		DurationMS: r.DurationMS, Truncated: r.Truncated, Untrusted: r.Untrusted,
	}, foldedLines))
	delete(l.calls, r.ToolCallID)
	l.running("")
}

// Call is the line of a call: a dot that tells how it went, name, arguments.
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
	name = line(name, 64)
	text := dot + " " + s.Bold(name)
	if args := Arguments(arguments, s.width()-len(name)-4); args != "" && args != "{}" {
		text += " " + args
	}
	return text + "\n"
}

// end shows the answer, unless it stands there already.
func (l *Live) end(e endFrame) {
	l.spin.say("")
	l.margin()
	if e.Content == "" {
		return
	}
	if !l.OutTerminal {
		fmt.Fprintln(l.Out, strings.TrimSuffix(e.Content, "\n"))
		return
	}
	if e.Content != l.lastText {
		fmt.Fprint(l.Out, l.text.write(e.Content)+l.text.end())
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
