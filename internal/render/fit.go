package render

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/toolcrib/toolcrib/guard"
)

// Longer runs of blanks are shown as their number: they would push what follows out of
// sight.
const (
	blanksInLine = 8  // of a text on one line
	blanksInRow  = 40 // of a text in rows
)

// Line makes a text one visible line of at most width columns: ends of lines are written
// as in source code, and what is cut off is counted.
func Line(text string, width int) string { return cutLine(oneLine(strings.TrimSpace(text)), width) }

// cutLine is [Line] for one that keeps its beginning as it is.
func cutLine(text string, width int) string {
	return cut(blanks(guard.Visible(text), blanksInLine), width, false)
}

// middle is [Line] for what would run: both its ends are shown, whatever is between.
func middle(text string, width int) string {
	return cut(blanks(guard.Visible(oneLine(strings.TrimSpace(text))), blanksInLine), width, true)
}

// cut shows the beginning of a visible text in at most width columns, and both its ends
// where that is asked for, and says how many characters are left out.
func cut(text string, width int, ends bool) string {
	width = max(width, 1)
	if len(text) <= width || len(text) <= 16*width && ansi.StringWidth(text) <= width {
		return text
	}
	total := utf8.RuneCountInString(text)
	room := width - ansi.StringWidth(leftOut(total))
	if room < 4 {
		return ansi.Truncate(firstBytes(text, 16*width), width, "…")
	}
	if !ends {
		head := ansi.Truncate(firstBytes(text, 16*room), room, "")
		return head + leftOut(total-utf8.RuneCountInString(head))
	}
	head := ansi.Truncate(firstBytes(text, 16*room), room-room/3, "")
	tail := lastBytes(text[len(head):], 16*room)
	tail = ansi.TruncateLeft(tail, max(ansi.StringWidth(tail)-room/3, 0), "")
	return head + leftOut(total-utf8.RuneCountInString(head)-utf8.RuneCountInString(tail)) + tail
}

// leftOut says that so many characters are left out.
func leftOut(characters int) string { return fmt.Sprintf("…[%d more]", characters) }

// blanks writes runs of more than most blanks as their number, and tabs as spaces.
func blanks(text string, most int) string {
	text = strings.ReplaceAll(text, "\t", "    ")
	if !strings.Contains(text, strings.Repeat(" ", most+1)) && !strings.Contains(text, wideBlank) {
		return text
	}
	var b strings.Builder
	for text != "" {
		rest := strings.TrimLeft(text, " "+wideBlank)
		switch run := text[:len(text)-len(rest)]; {
		case ansi.StringWidth(run) > most:
			fmt.Fprintf(&b, "[%d spaces]", utf8.RuneCountInString(run))
		default:
			b.WriteString(run)
		}
		next := strings.IndexAny(rest, " "+wideBlank)
		if next < 0 {
			next = len(rest)
		}
		b.WriteString(rest[:next])
		text = rest[next:]
	}
	return b.String()
}

// wideBlank is the space of Chinese and Japanese writing.
const wideBlank = "\u3000"

// firstBytes and lastBytes bound the work of what follows; they cut between characters.
func firstBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

func lastBytes(text string, most int) string {
	from := max(len(text)-most, 0)
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return text[from:]
}

// gutter begins each row of text that toolcrib did not write: of a model, a tool, a file.
// Rows are broken before the terminal breaks them, so that none begins without it.
const gutter = "│ "

// Quoted shows a text that toolcrib did not write, whole and behind a gutter.
func (s Style) Quoted(text string) string {
	if text = strings.TrimRight(text, "\n"); text == "" {
		return ""
	}
	return s.quoted(text, func(row string) string { return row })
}

func (s Style) quoted(text string, tone func(row string) string) string {
	const indent = "  "
	var b strings.Builder
	width := s.columns() - len(indent) - 2
	for l := range strings.SplitSeq(blanks(guard.Visible(text), blanksInRow), "\n") {
		for _, row := range Wrap(l, width) {
			b.WriteString(strings.TrimRight(indent+s.Dim(gutter)+tone(row), " ") + "\n")
		}
	}
	return b.String()
}

// columns are those that a row may take; a text that goes to no terminal is not broken.
func (s Style) columns() int {
	if s.Width == 0 && s.Columns == nil {
		return 1 << 20
	}
	return max(s.width()-1, 12)
}

// Note is a dimmed line about what is happening.
func (s Style) Note(text string) string {
	var b strings.Builder
	for i, row := range s.hanging(text) {
		mark := "  "
		if i == 0 {
			mark = "· "
		}
		b.WriteString(s.Dim(mark+row) + "\n")
	}
	return b.String()
}

// Hanging is a visible head and a text beside it, broken at words: its other rows begin where
// its first one does.
func (s Style) Hanging(head, text string) string {
	indent := ansi.StringWidth(head) + 1
	if indent > s.columns()/2 {
		indent = 2
	}
	rows := Wrap(guard.Visible(text), s.columns()-indent)
	return head + " " + strings.Join(rows, "\n"+strings.Repeat(" ", indent)) + "\n"
}

// Question is a question of this program. What it names may come from a model: no
// row but the first begins at the margin.
func (s Style) Question(text string) string { return strings.Join(s.hanging(text), "\n  ") }

// hanging breaks a text at words, with room for an indent of two.
func (s Style) hanging(text string) []string { return Wrap(guard.Visible(text), s.columns()-2) }

// Wrap breaks a visible text at words, and words that are wider anyway. No row but the first of
// a line begins with a blank, and no word is broken at its dashes.
func Wrap(text string, width int) (rows []string) {
	const dash = "\u2011" // to ansi.Wrap no place to break at
	kept := !strings.Contains(text, dash)
	for line := range strings.SplitSeq(text, "\n") {
		if kept {
			line = strings.ReplaceAll(line, "-", dash)
		}
		for i, row := range strings.Split(ansi.Wrap(line, width, ""), "\n") {
			if i > 0 {
				row = strings.TrimLeft(row, " ")
			}
			if ansi.StringWidth(row) > width {
				row = strings.TrimRight(row, " ")
			}
			if kept {
				row = strings.ReplaceAll(row, dash, "-")
			}
			rows = append(rows, strings.Split(ansi.Hardwrap(row, width, true), "\n")...)
		}
	}
	return rows
}

var typographic = strings.NewReplacer("\u00a0", " ", "\u2007", " ", "\u2009", " ", "\u202f", " ")

// Prose is an answer whose spaces of typography, such as that before a French question mark, are the usual one:
// [guard.Visible] would show their numbers, which is for what is decided on.
func Prose(text string) string { return typographic.Replace(text) }

// quote puts a text that comes in pieces behind a gutter, broken at words. The zero value
// is ready; style must not change within a row.
type quote struct {
	style Style
	held  string // what came after the last whole word
	row   string // the current row, as far as it is shown
	open  bool   // it has its gutter
}

// write returns what of the text can be shown now: whole words, and parts of those that are longer than a row.
func (q *quote) write(text string) string {
	q.held += text
	end := len(strings.TrimRightFunc(q.held, func(r rune) bool { return !unicode.IsSpace(r) }))
	if ansi.StringWidth(q.held[end:]) >= q.room() {
		end = cmp.Or(len(firstBytes(q.held+"\x80", len(q.held))), len(q.held)) // the last character may go on
	}
	whole := strings.TrimRightFunc(q.held[:end], blank) // a row ends without blanks
	q.held = q.held[len(whole):]
	return q.show(whole)
}

// end returns what was held back, and the end of the last row.
func (q *quote) end() string {
	text := q.show(strings.TrimRightFunc(q.held, blank))
	if q.open {
		text += "\n"
	}
	q.reset()
	return text
}

func blank(r rune) bool { return r != '\n' && unicode.IsSpace(r) }

func (q *quote) reset() { *q = quote{style: q.style} }

func (q *quote) room() int { return q.style.columns() - 2 }

// show returns the rows of a text, the first as far as it is not shown yet.
func (q *quote) show(text string) string {
	var b strings.Builder
	shown := strings.ReplaceAll(guard.Visible(Prose(text)), "\t", "    ")
	for i, row := range Wrap(q.row+shown, q.room()) {
		if i > 0 || !strings.HasPrefix(row, q.row) {
			q.begin(&b)
			b.WriteByte('\n')
			q.row, q.open = "", false
		}
		if more := strings.TrimPrefix(row, q.row); more != "" {
			q.begin(&b)
			b.WriteString(more)
		}
		q.row = row
	}
	return b.String()
}

func (q *quote) begin(b *strings.Builder) {
	if !q.open {
		b.WriteString(q.style.Dim(gutter))
		q.open = true
	}
}
