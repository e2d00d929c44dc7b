package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib/internal/render"
)

// View implements [tea.Model]: the few lines at the bottom.
func (m *model) View() tea.View {
	if m.drawn != nil {
		return tea.NewView(banner)
	}
	above, below, input := m.above(), m.below(), []string(nil)
	if m.inputShown() {
		input = strings.Split(m.input.View(), "\n")
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

// above is what stands over the input: what streams, and what goes on.
func (m *model) above() []string {
	s := m.style()
	rows := []string{""}
	if tail := m.turn.answer.tail(); strings.TrimSpace(tail) != "" {
		most := max(min(maxTailRows, m.height/2-2), 1)
		rows = append(rows, m.tail(tail, most)...)
		rows = append(rows, "")
	}
	if m.asking != nil {
		for _, l := range fit(render.KeyRows(m.keysText(), m.width-2), m.width-1) {
			rows = append(rows, s.Yellow(m.look.signs(l)))
		}
		return rows
	}
	if m.working {
		rows = append(rows, m.activity(), "")
	}
	return rows
}

// tail is the end of a text that streams, as plain text.
func (m *model) tail(text string, most int) []string {
	if bytes := most * 4 * m.width; len(text) > bytes {
		text = strings.ToValidUTF8(text[len(text)-bytes:], "")
	}
	width := max(min(m.width-1-gutterWidth, maxProse), 1)
	rows := fit(strings.Split(ansi.Wrap(visible(text), width, ""), "\n"), m.width-1-gutterWidth)
	if len(rows) > most {
		rows = rows[len(rows)-most:]
	}
	rows = m.behindGutter(rows)
	for i, r := range rows {
		rows[i] = m.look.signs(r)
	}
	return rows
}

// activity is one line about what goes on.
func (m *model) activity() string {
	s, t := m.style(), &m.turn
	what := "waiting for the model"
	switch {
	case m.stopped:
		what = "stopping"
	case len(t.running) > 0:
		names := make([]string, len(t.running))
		for i, id := range t.running {
			c := t.calls[id]
			names[i] = strings.TrimSpace(c.Name + " " + render.Arguments(c.Arguments, 40))
		}
		if what = strings.Join(names, ", "); t.progress != "" {
			what += ": " + t.progress
		}
	case t.thought.Len() > 0:
		text := t.thought.String()
		what = "thinking: " + lastLine(text)
	case t.writing != "":
		what = "writing a call of " + t.writing
	case t.streamed.Len() > 0:
		what = "writing"
	case !t.started:
		what = "working"
	}
	pictures := m.look.spinner()
	since := m.now().Sub(m.began)
	tail := ""
	if since.Seconds() >= 1 {
		tail = fmt.Sprintf("  %ds", int(since.Seconds()))
	}
	what = oneLine(what, max(m.width-5-len(tail), 5))
	return s.Cyan(pictures[m.spin%len(pictures)]) + " " + s.Dim(m.look.signs(what+tail))
}

// lastLine is the last line of a text that has something on it.
func lastLine(text string) string {
	const most = 2 << 10
	if len(text) > most {
		text = strings.ToValidUTF8(text[len(text)-most:], "")
	}
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// below is what stands under the input.
func (m *model) below() []string {
	s := m.style()
	var rows []string
	for _, q := range m.queued.all() {
		rows = append(rows, s.Dim(m.look.signs("  "+oneLine("next: "+q, max(m.width-4, 5)))))
	}
	if m.hint != "" {
		for _, l := range lines(ansi.Wrap(visible(m.hint), max(m.width-3, 5), "")) {
			rows = append(rows, s.Dim(m.look.signs("  "+l)))
			if len(rows) > 5 {
				break
			}
		}
		return rows
	}
	if text := m.statusText(max(m.width-3, 5)); text != "" {
		rows = append(rows, s.Dim(m.look.signs("  "+text)))
	}
	return rows
}

// statusText is as much of the status as fits.
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
				return oneLine(next, width)
			}
			continue
		}
		text = next
	}
	return visible(text)
}
