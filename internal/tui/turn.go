package tui

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
)

// turn is the state of the current turn.
type turn struct {
	narrator render.Narrator
	shown    string // text of the last reply that was shown
	whole    bool   // the next result is shown completely
	phase    string // phase of the run
}

// frame handles the next event of the run.
func (m *model) frame(f journal.Frame) {
	t := &m.turn
	t.narrator.View = render.View{
		Notice: m.notice, Resolved: m.note, Fault: m.warn, Thought: m.thought, Piece: m.answer, Reply: m.reply,
		Result: m.result, Answer: m.end,
	}
	whole, ok := f.Data.(Whole)
	if t.whole = ok; ok {
		f.Data = whole.ResultView
	}
	t.narrator.Frame(f)
	if phase := t.narrator.Phase(); phase != t.phase {
		t.phase, m.began = phase, m.now()
	}
}

// answer prints the complete lines of an answer.
func (m *model) answer(text string) { m.answerRows(m.md.Write(text, m.width-1-gutterWidth)) }

// gutterWidth is the width of the gutter in front of the model's text: it cannot imitate a message or
// question of this program.
const gutterWidth = 2

func (m *model) answerRows(rows []string) {
	for _, row := range rows {
		if row == "" || !m.answering {
			m.gap()
		}
		if row != "" {
			m.print(m.behindGutter(fit([]string{row}, m.width-1-gutterWidth))...)
			m.answering = true
		}
	}
}

func (m *model) behindGutter(rows []string) []string {
	behind := make([]string, len(rows))
	for i, r := range rows {
		behind[i] = strings.TrimRight(m.style().Dim("│")+" "+r, " ")
	}
	return behind
}

// endAnswer prints the rest of an answer.
func (m *model) endAnswer() {
	m.answerRows(m.md.End(m.width - 1 - gutterWidth))
}

// whole prints an answer that was not streamed.
func (m *model) whole(text string) {
	m.answer(text)
	m.endAnswer()
}

// endReply prints the rest of a reply, as something else is printed after it.
func (m *model) endReply() {
	m.turn.narrator.EndReply()
	m.endAnswer()
}

// reply ends a reply. It shows a reply that was not, or not completely, streamed.
func (m *model) reply(r render.Reply) {
	m.endReply()
	switch {
	case strings.HasPrefix(r.Text, r.Streamed):
		m.whole(r.Text[len(r.Streamed):])
	case r.Text != "" && strings.TrimSpace(r.Text) != strings.TrimSpace(r.Streamed):
		m.note("the whole reply is:")
		m.whole(r.Text)
	}
	m.turn.shown = r.Text
}

// thought prints a thought folded into one line.
func (m *model) thought(text string) {
	m.shelf = append(m.shelf, shelved{thought: text})
	tail := " · " + m.shelved()
	m.gap()
	m.print(m.style().Dim("∴ " + render.Line(text, max(m.width-5-len(tail), 8)) + tail))
}

// Whole is the result of a call that a user made directly, which is shown completely.
type Whole struct{ journal.ResultView }

// result prints a call with the beginning of its result.
func (m *model) result(r render.Result) {
	r.Name = r.Call.Name
	m.shelf = append(m.shelf, shelved{arguments: r.Call.Arguments, result: &r.ResultView})
	most, more := 1, m.shelved()
	switch {
	case m.turn.whole || render.IsPlan(r.Name, r.Status):
		most, more = 0, ""
	case r.Name == commandTool: // ok does not include the exit status
		most = shownOutput
	}
	s := m.style()
	m.gap()
	m.print(lines(s.Call(r.Name, r.Call.Arguments, r.Status) + s.Fold(r.ResultView, most, more))...)
}

// Only a few rows of a command's output are shown, enough for the summary of a test run.
const (
	commandTool = "exec_shell"
	shownOutput = 4
)

// end shows an answer that was not shown yet.
func (m *model) end(answer string) {
	m.endReply()
	if strings.TrimSpace(answer) != strings.TrimSpace(m.turn.shown) {
		m.whole(answer)
	}
}

// lines splits a text at line breaks, without empty lines at its end.
func lines(text string) []string { return strings.Split(strings.TrimRight(text, "\n"), "\n") }

// maxNotices bounds the notices that are remembered.
const maxNotices = 100

// notice shows a notice of a run, once per conversation.
func (m *model) notice(n toolcrib.Notice) {
	if n.Code == render.NoticeRestarted {
		m.endReply()
	}
	text := render.NoticeText(n)
	if m.noticed[text] {
		return
	}
	if len(m.noticed) < maxNotices {
		m.noticed[text] = true
	}
	m.note(text)
}

func (m *model) note(text string) {
	m.endReply()
	if !m.aside {
		m.gap()
	}
	m.marked("· ", text, func(mark, row string) string { return m.style().Dim(mark + row) })
	m.aside = true
}

func (m *model) warn(text string) {
	m.endReply()
	m.gap()
	m.marked(m.style().Red("✗")+" ", text, func(mark, row string) string { return mark + row })
}

// marked prints a text with a mark in front of its first row.
func (m *model) marked(mark, text string, tone func(mark, row string) string) {
	for _, row := range render.Wrap(visible(strings.TrimRight(text, "\n")), max(m.width-3, 1)) {
		m.print(tone(mark, row))
		mark = "  "
	}
}

func (m *model) text(text string) {
	m.endReply()
	m.gap()
	m.print(render.Wrap(visible(strings.TrimRight(text, "\n")), max(m.width-1, 1))...)
}

// maxShelf bounds the folded items that are kept.
const maxShelf = 200

// shelved is a folded item that can be shown completely.
type shelved struct {
	thought   string // "" for a call
	arguments json.RawMessage
	result    *journal.ResultView
}

// shelved returns the hint how to show the last folded item completely. It drops the oldest items.
func (m *model) shelved() string {
	if n := len(m.shelf) - maxShelf; n > 0 {
		m.shelf[n-1] = shelved{}
	}
	return fmt.Sprintf("/show %d", len(m.shelf))
}

// unfold prints folded item n completely; 0 is the last one.
func (m *model) unfold(n int) {
	if n == 0 {
		n = len(m.shelf)
	}
	var item shelved
	if 0 < n && n <= len(m.shelf) {
		item = m.shelf[n-1]
	}
	s := m.style()
	switch r := item.result; {
	case item.thought != "":
		m.gap()
		m.print(s.Dim("  " + strings.ReplaceAll(visible(item.thought), "\n", "\n  ")))
	case r == nil:
		m.note("there is nothing folded with this number; `toolcrib runs show last --whole` shows a run whole")
	default:
		m.gap()
		m.print(lines(s.Call(r.Name, nil, r.Status))...)
		if len(item.arguments) > 0 {
			m.print(lines(s.Quoted(render.Whole(item.arguments)))...)
		}
		m.print(lines(s.Fold(*r, 0, ""))...)
	}
}
