package tui

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
)

// turn is what is known of the turn in progress.
type turn struct {
	started  bool // there is a run
	answer   blocks
	streamed strings.Builder // of the current reply
	shown    string          // text of the last reply that was shown
	thought  strings.Builder
	writing  string // the tool that the model is writing a call of
	calls    map[string]journal.CallView
	running  []string // IDs, in the order in which they began
	progress string
}

// maxThought bounds what is kept of a thought.
const maxThought = 64 << 10

// frame takes the data of the next event of the run.
func (m *model) frame(data any) {
	t := &m.turn
	switch d := data.(type) {
	case journal.StartedView:
		t.started = true
	case journal.MessageView:
		m.message(d)
	case journal.CallDeltaView:
		if d.Name != "" {
			m.endThought()
			t.writing = d.Name
		}
	case journal.CallView:
		if t.calls == nil {
			t.calls = map[string]journal.CallView{}
		}
		t.calls[d.ID] = d
	case journal.CallStartedView:
		t.running, t.progress = append(t.running, d.ID), ""
	case journal.ProgressView:
		t.progress = render.Progress(d)
	case journal.ResultView:
		m.result(d, false)
	case Whole:
		m.result(d.ResultView, true)
	case journal.ResolvedView:
		m.note(render.Resolved(d))
	case toolcrib.Notice:
		if d.Code == "reply_restarted" {
			m.endReply()
		}
		m.notice(d.Code + ": " + d.Message)
	case journal.DoneView:
		m.end(d.Content)
	case journal.ErrorView:
		m.endReply()
		if d.Message != "" {
			m.warn(string(d.StopReason) + ": " + d.Message)
		}
		m.end("")
	}
}

// token shows a piece of the answer: whole blocks are printed, the rest is in
// the live region.
func (m *model) token(text string) {
	m.endThought()
	m.turn.writing = ""
	m.turn.streamed.WriteString(text)
	m.printBlocks(m.turn.answer.write(text))
}

func (m *model) printBlocks(done []block) {
	for _, b := range done {
		if !b.joined {
			m.gap()
		}
		m.print(m.behindGutter(fit(m.md.render(b.text, m.width-1-gutterWidth), m.width-1-gutterWidth))...)
	}
}

// gutterWidth is the width of the gutter before what the model writes: nothing that it
// writes can pass for what this program says or asks.
const gutterWidth = 2

func (m *model) behindGutter(rows []string) []string {
	behind := make([]string, len(rows))
	for i, r := range rows {
		behind[i] = strings.TrimRight(m.style().Dim("│")+" "+r, " ")
	}
	return behind
}

// whole prints an answer that did not stream.
func (m *model) whole(text string) {
	var b blocks
	m.printBlocks(append(b.write(text), b.flush()...))
}

// endReply prints what is left of a reply.
func (m *model) endReply() {
	m.endThought()
	m.printBlocks(m.turn.answer.flush())
	m.turn.streamed.Reset()
	m.turn.writing = ""
}

// message ends a reply. One that did not stream, or not all of it, is shown now.
func (m *model) message(msg journal.MessageView) {
	t := &m.turn
	if t.thought.Len() == 0 && t.streamed.Len() == 0 && msg.Thinking != "" {
		m.think(msg.Thinking)
	}
	streamed := t.streamed.String()
	m.endReply()
	switch {
	case streamed == "":
		m.whole(msg.Text)
	case strings.HasPrefix(msg.Text, streamed):
		m.whole(msg.Text[len(streamed):])
	case msg.Text != "" && strings.TrimSpace(msg.Text) != strings.TrimSpace(streamed):
		m.note("the whole reply is:")
		m.whole(msg.Text)
	}
	t.shown = msg.Text
}

// think takes a piece of a thought.
func (m *model) think(text string) {
	t := &m.turn
	t.thought.WriteString(text[:min(len(text), max(maxThought-t.thought.Len(), 0))])
}

// endThought folds a thought into one line.
func (m *model) endThought() {
	t := &m.turn
	text := strings.TrimSpace(strings.ToValidUTF8(t.thought.String(), "\uFFFD"))
	t.thought.Reset()
	if text == "" {
		return
	}
	n := m.shelf.put(shelved{title: "thought", text: text})
	s := m.style()
	tail := fmt.Sprintf(" · /show %d", n)
	m.gap()
	m.print(s.Dim("∴ " + render.Line(text, max(m.width-5-len(tail), 8)) + tail))
}

// Whole is the result of a call that a person made themselves: they see all of it.
type Whole struct{ journal.ResultView }

// result prints a call with what became of it, in two lines.
func (m *model) result(r journal.ResultView, whole bool) {
	t := &m.turn
	t.running = slices.DeleteFunc(t.running, func(id string) bool { return id == r.ToolCallID })
	t.progress = ""
	c, ok := t.calls[r.ToolCallID]
	if ok {
		r.Name = c.Name
	}
	delete(t.calls, r.ToolCallID)
	m.call(c.Arguments, r, whole)
}

// call prints a call, folded unless whole.
func (m *model) call(arguments json.RawMessage, r journal.ResultView, whole bool) {
	n := m.shelf.put(shelved{title: r.Name, arguments: arguments, result: &r})
	s := m.style()
	m.gap()
	m.print(lines(s.Call(r.Name, arguments, r.Status))...)
	if whole || render.IsPlan(r.Name, r.Status) {
		m.print(lines(s.Fold(r, 0))...)
		return
	}
	show := fmt.Sprintf(" · /show %d", n)
	if r.Name == commandTool && r.Status == toolcrib.ResultOK { // ok does not say how it ended
		rows := lines(s.Fold(r, shownOutput))
		if last := &rows[len(rows)-1]; ansi.StringWidth(*last)+len(show) <= s.Width {
			*last += s.Dim(show)
		} else {
			rows = append(rows, s.Dim("   "+show))
		}
		m.print(rows...)
		return
	}
	if r.Status == toolcrib.ResultOK {
		m.print("  " + s.Dim("└ "+render.Line(sizes(r), max(m.width-6-len(show), 8))+show))
		return
	}
	wide := m.look.style(1 << 12)
	first := lines(wide.Fold(journal.ResultView{Status: r.Status, Reason: r.Reason, Content: r.Content}, 1))[0]
	m.print(ansi.Truncate(first, max(s.Width-len(show), 8), "…") + s.Dim(show))
}

// Of what a command wrote a few rows are shown: whether the tests pass is what people look for.
const (
	commandTool = "exec_shell"
	shownOutput = 4
)

// sizes says how large a result is and how long it took.
func sizes(r journal.ResultView) string {
	parts := append([]string{"ok", size(len(r.Content))}, render.Marks(r)...)
	return strings.Join(append(parts, render.Duration(time.Duration(r.DurationMS)*time.Millisecond)), " · ")
}

func size(bytes int) string {
	switch {
	case bytes < 1024:
		return fmt.Sprintf("%d B", bytes)
	case bytes < 1<<20:
		return fmt.Sprintf("%.1f kB", float64(bytes)/1024)
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/(1<<20))
}

// end shows an answer that was not shown yet.
func (m *model) end(answer string) {
	m.endReply()
	if strings.TrimSpace(answer) != strings.TrimSpace(m.turn.shown) {
		m.whole(answer)
	}
	m.turn.running = nil
}

// lines splits what ends with an end of line.
func lines(text string) []string { return strings.Split(strings.TrimRight(text, "\n"), "\n") }

// maxNotices bounds how many notices are remembered.
const maxNotices = 100

// notice shows a notice of a run, once in a conversation.
func (m *model) notice(text string) {
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

// marked prints a text behind a mark in its first row.
func (m *model) marked(mark, text string, tone func(mark, row string) string) {
	for _, row := range wrapped(visible(text), m.width-3) {
		m.print(tone(mark, row))
		mark = "  "
	}
}

func (m *model) text(text string) {
	m.endReply()
	m.gap()
	for _, l := range lines(visible(text)) {
		if ansi.StringWidth(l) < m.width {
			m.print(l)
			continue
		}
		rest := strings.TrimLeft(l, " ")
		lead := strings.Repeat(" ", min(len(l)-len(rest), max(m.width/4, 1)))
		indent := lead + "  "
		if at := secondColumn.FindString(l); at != "" && len(at) <= m.width/2 {
			lead, rest, indent = at, l[len(at):], strings.Repeat(" ", ansi.StringWidth(at))
		}
		for _, part := range strings.Split(ansi.Wrap(rest, max(m.width-1-len(indent), 4), ""), "\n") {
			m.print(lead + part)
			lead = indent
		}
	}
}

// secondColumn ends where the second column of a line begins.
var secondColumn = lazyregexp.New(`^ *\S.*?  +`)

// shelf keeps what was folded, so that it can be shown whole.
type shelf struct {
	first int // the number of the first item
	items []shelved
	bytes int
}

type shelved struct {
	title     string
	text      string
	arguments json.RawMessage
	result    *journal.ResultView
}

func (s shelved) size() int {
	n := len(s.text) + len(s.arguments) + 64
	if s.result != nil {
		n += len(s.result.Content)
	}
	return n
}

// Bounds of the shelf.
const (
	maxShelf      = 500
	maxShelfBytes = 16 << 20
)

// put keeps an item and returns its number, from 1. The oldest go first.
func (s *shelf) put(item shelved) int {
	if s.first == 0 {
		s.first = 1
	}
	s.items = append(s.items, item)
	s.bytes += item.size()
	for len(s.items) > 1 && (len(s.items) > maxShelf || s.bytes > maxShelfBytes) {
		s.bytes -= s.items[0].size()
		s.items, s.first = s.items[1:], s.first+1
	}
	return s.first + len(s.items) - 1
}

// get returns item n; 0 is the last.
func (s *shelf) get(n int) (shelved, bool) {
	if n == 0 {
		n = s.first + len(s.items) - 1
	}
	if i := n - s.first; len(s.items) > 0 && i >= 0 && i < len(s.items) {
		return s.items[i], true
	}
	return shelved{}, false
}

// unfold prints a folded item whole.
func (m *model) unfold(n int) {
	item, ok := m.shelf.get(n)
	if !ok {
		m.note("there is nothing folded with this number; `toolcrib runs show last --whole` shows a run whole")
		return
	}
	s := m.style()
	m.gap()
	if item.result == nil {
		for _, l := range lines(visible(item.text)) {
			m.print(s.Dim("  " + l))
		}
		return
	}
	m.print(lines(s.Call(item.title, nil, item.result.Status))...)
	if len(item.arguments) > 0 {
		m.print(lines(s.Quoted(render.Whole(item.arguments)))...)
	}
	m.print(lines(s.Fold(*item.result, 0))...)
	if w := guard.Visible(string(item.result.Reason)); w != "" && item.result.Status == toolcrib.ResultOK {
		m.print(s.Dim("    " + w))
	}
}
