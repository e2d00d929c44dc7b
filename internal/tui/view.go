package tui

import (
	"fmt"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
)

// View implements [tea.Model]. It draws the few lines at the bottom.
func (m *model) View() tea.View {
	if m.drawn != nil {
		return tea.NewView(banner)
	}
	above, below, input := m.above(), m.below(), []string(nil)
	if m.inputShown() {
		input = strings.Split(m.standIns.shown(m.input.View()), "\n")
		if m.asking != nil && m.asking.Secret() {
			input = []string{strings.Repeat("•", min(utf8.RuneCountInString(m.input.Value()), max(m.width-1, 1)))}
		}
	}
	room := max(m.height-max(m.height/3, 1)-1, 1) - len(input)
	below = below[:min(len(below), max(room-len(above), 1, room/2))]
	above = above[min(len(above), max(len(above)+len(below)-room, 0)):]
	rows := append(append(append(make([]string, 0, m.height), above...), input...), below...)
	var cursor *tea.Cursor
	if len(input) > 0 {
		if cursor = m.input.Cursor(); cursor != nil {
			cursor.Y += len(above)
		}
	}
	if m.quit {
		rows, cursor = nil, nil
	}
	for i, r := range rows {
		rows[i] = ansi.Truncate(r, max(m.width-1, 1), "")
	}
	v := tea.NewView(strings.Join(rows, "\n"))
	v.Cursor = cursor
	return v
}

func (m *model) inputShown() bool {
	return m.asking == nil || m.asking.Field != render.NoField || !m.seen()
}

// above returns the rows above the input: streaming text and the current activity.
func (m *model) above() []string {
	s := m.style()
	rows := []string{""}
	if tail := m.md.Held(); strings.TrimSpace(tail) != "" {
		most := max(min(maxTailRows, m.height/2-2), 1)
		rows = append(rows, m.tail(tail, most)...)
		rows = append(rows, "")
	}
	if m.asking != nil {
		for _, l := range fit(render.KeyRows(m.keysText(), m.width-2), m.width-1) {
			rows = append(rows, s.Yellow(l))
		}
		return rows
	}
	if m.working {
		rows = append(rows, m.activity(), "")
	}
	return rows
}

// tail returns the end of a streaming text, as plain text.
func (m *model) tail(text string, most int) []string {
	if bytes := most * 4 * m.width; len(text) > bytes {
		text = strings.ToValidUTF8(text[len(text)-bytes:], "")
	}
	width := max(min(m.width-1-gutterWidth, render.MaxProse), 1)
	rows := fit(strings.Split(ansi.Wrap(visible(render.Prose(text)), width, ""), "\n"), m.width-1-gutterWidth)
	if len(rows) > most {
		rows = rows[len(rows)-most:]
	}
	return m.behindGutter(rows)
}

// activity describes the current activity on one line.
func (m *model) activity() string {
	s, what := m.style(), m.turn.narrator.Activity()
	if m.stopped {
		what = "stopping"
	}
	since := m.now().Sub(m.began)
	tail := ""
	if since.Seconds() >= 1 {
		tail = fmt.Sprintf("  %ds", int(since.Seconds()))
	}
	what = render.Line(what, max(m.width-5-len(tail), 5))
	return s.Cyan(render.Spinner(m.spin)) + " " + s.Dim(what+tail)
}

// below returns the rows below the input.
func (m *model) below() []string {
	s := m.style()
	var rows []string
	for _, q := range m.queued {
		rows = append(rows, s.Dim("  "+render.Line("next: "+q, max(m.width-4, 5))))
	}
	if m.hint != "" {
		for _, l := range lines(ansi.Wrap(visible(m.hint), max(m.width-3, 5), "")) {
			rows = append(rows, s.Dim("  "+l))
			if len(rows) > 5 {
				break
			}
		}
		return rows
	}
	if text := m.statusText(max(m.width-3, 5)); text != "" {
		rows = append(rows, s.Dim("  "+text))
	}
	return rows
}

// statusText returns the parts of the status that fit.
func (m *model) statusText(width int) string {
	text := ""
	for _, part := range append([]string{m.talk.Mode()}, m.status...) {
		if part == "" {
			continue
		}
		next := part
		if text != "" {
			next = text + " · " + part
		}
		if ansi.StringWidth(next) > width {
			if text == "" {
				return render.Line(next, width)
			}
			continue
		}
		text = next
	}
	return visible(text)
}

// visible is [guard.Visible] with tabs replaced by spaces, because a tab has no fixed width.
func visible(text string) string {
	return strings.ReplaceAll(guard.Visible(text), "\t", "    ")
}

// fit breaks lines that are wider than the terminal. A line broken by the terminal itself would
// misplace everything after it.
func fit(lines []string, width int) []string {
	out := make([]string, 0, len(lines))
	for _, l := range lines {
		if width < 1 || ansi.StringWidth(l) <= width {
			out = append(out, l)
			continue
		}
		out = append(out, strings.Split(ansi.Hardwrap(l, width, true), "\n")...)
	}
	return out
}
