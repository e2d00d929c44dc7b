package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
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

// above is what is shown above the input: what streams, and what is happening.
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

// activity is one line about what is happening.
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
	what = render.Line(what, max(m.width-5-len(tail), 5))
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

// below is what is under the input.
func (m *model) below() []string {
	s := m.style()
	var rows []string
	for _, q := range m.queued.all() {
		rows = append(rows, s.Dim(m.look.signs("  "+render.Line("next: "+q, max(m.width-4, 5)))))
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
				return render.Line(next, width)
			}
			continue
		}
		text = next
	}
	return visible(text)
}

// Look says what the terminal can show. The zero value is plain ASCII.
type Look struct {
	Color   bool // the sixteen colours
	Unicode bool // characters other than ASCII
}

// LookOf finds out from the environment what a terminal can show: colours unless
// NO_COLOR is set (https://no-color.org) or the terminal is dumb, other characters
// than ASCII if the locale is of UTF-8.
func LookOf(getenv func(string) string, goos string) Look {
	locale := getenv("LC_ALL")
	for _, name := range []string{"LC_CTYPE", "LANG"} {
		if locale == "" {
			locale = getenv(name)
		}
	}
	locale = strings.ToLower(locale)
	utf8 := strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
	return Look{
		Color:   getenv("NO_COLOR") == "" && getenv("TERM") != "dumb",
		Unicode: utf8 || goos == "windows",
	}
}

// signs replaces the signs that the terminal cannot show.
func (l Look) signs(text string) string {
	if l.Unicode {
		return text
	}
	return asciiSigns.Replace(text)
}

// Signs replaces the signs of this program that the terminal cannot show.
func (l Look) Signs(text string) string { return l.signs(text) }

func (l Look) style(width int) render.Style { return render.Style{Color: l.Color, Width: width} }

// spinner are the pictures of work in progress.
func (l Look) spinner() []string {
	if l.Unicode {
		return []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}
	}
	return []string{"-", "\\", "|", "/"}
}

// visible shows what a text really holds; tabs become spaces, because a tab has
// no width that could be counted.
func visible(text string) string {
	return strings.ReplaceAll(guard.Visible(text), "\t", "    ")
}

// emptyEnd is what is at the end of a line and shows nothing.
var emptyEnd = lazyregexp.New(`(?:\x1b\[[0-9;]*m| )+$`)

// trimmed takes padding from the ends of lines, and empty lines from both ends.
func trimmed(text string) []string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		cut := emptyEnd.ReplaceAllString(l, "")
		if strings.Contains(cut, "\x1b") {
			cut += "\x1b[0m"
		}
		lines[i] = cut
	}
	for len(lines) > 0 && lines[0] == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// fit breaks lines that are wider than the terminal: a line that the terminal
// breaks itself would put everything after it in the wrong place.
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

// wrapped breaks a visible text at words.
func wrapped(text string, width int) []string {
	return fit(lines(ansi.Wrap(text, max(width, 1), "")), max(width, 1))
}

// asciiSigns are the signs of this package and of package render, for terminals
// that cannot show them.
var asciiSigns = strings.NewReplacer(
	"●", "*", "└", "`-", "…", "...", "·", "-", "❯", ">", "✓", "ok", "✗", "x", "■", "#", "∴", "~", "•", "-", "│", "|", "─",
	"-", "┼", "+", "–", "-",
)
