package render

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/toolcrib/toolcrib/guard"
)

// The most consecutive blanks that are shown. Longer runs are replaced by their length, since they
// would push the following text out of sight.
const (
	blanksInLine = 8  // in a text on one line
	blanksInRow  = 40 // in a text in rows
)

// Line formats a text as one visible line of at most width columns: line breaks are escaped, and
// the number of characters that are cut off is appended.
func Line(text string, width int) string { return cutLine(oneLine(strings.TrimSpace(text)), width) }

// cutLine is [Line] for a text without line breaks, whose leading blanks it keeps.
func cutLine(text string, width int) string {
	return cut(blanks(guard.Visible(text), blanksInLine), width, false)
}

// middle is [Line] for commands: it cuts in the middle, so that both ends are shown.
func middle(text string, width int) string {
	return cut(blanks(guard.Visible(oneLine(strings.TrimSpace(text))), blanksInLine), width, true)
}

// cut cuts a visible text to at most width columns, at its end or, if ends is true, in the middle,
// and inserts the number of characters left out.
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

// words cuts a visible text to at most width columns, between words if there is a blank in its second half.
func words(text string, width int) string {
	head := firstBytes(text, 16*max(width, 1))
	if len(head) == len(text) && ansi.StringWidth(text) <= width {
		return text
	}
	head = ansi.Truncate(head, width-1, "")
	if at := strings.LastIndexByte(head, ' '); at > len(head)/2 && text[len(head)] != ' ' {
		head = head[:at]
	}
	return strings.TrimRight(head, " .,;:") + "…"
}

// leftOut returns the mark for characters that are left out.
func leftOut(characters int) string { return fmt.Sprintf("…[%d more]", characters) }

// blanks replaces runs of more than most blanks by their length, and tabs by spaces.
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

// wideBlank is the ideographic space.
const wideBlank = "\u3000"

// firstBytes and lastBytes cut a text between characters, to bound further work on it.
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

// gutter begins each row of a text that toolcrib did not write, such as that of a model, a tool or
// a file. Rows are short enough that the terminal never breaks one into a row without gutter.
const gutter = "│ "

// Quoted formats a text that toolcrib did not write, with a gutter.
func (s Style) Quoted(text string) string {
	if text = strings.TrimRight(text, "\n"); text == "" {
		return ""
	}
	return s.quoted(text, func(row string) string { return row })
}

// quoted is Quoted with a tone for the first row of each line; the others do not begin with the marker of a diff line.
func (s Style) quoted(text string, tone func(row string) string) string {
	var b strings.Builder
	width := s.columns() - 4
	for l := range strings.SplitSeq(blanks(guard.Visible(text), blanksInRow), "\n") {
		for i, row := range Wrap(l, width) {
			if i == 0 {
				row = tone(row)
			}
			b.WriteString(strings.TrimRight("  "+s.Dim(gutter)+row, " ") + "\n")
		}
	}
	return b.String()
}

// columns returns the maximum width of a row. Text that is not for a terminal is not broken.
func (s Style) columns() int {
	if s.Width == 0 && s.Columns == nil {
		return 1 << 20
	}
	return max(s.width()-1, 12)
}

// Note formats a dimmed line about an event.
func (s Style) Note(text string) string {
	rows := strings.Split(s.Hanging("·", text), "\n")
	for i, row := range rows {
		rows[i] = s.Dim(row)
	}
	return strings.Join(rows, "\n")
}

// Hanging formats a visible head followed by a text, which is broken at words and whose rows all
// begin in the same column.
func (s Style) Hanging(head, text string) string {
	indent := ansi.StringWidth(head) + 1
	if indent > s.columns()/2 {
		indent = 2
	}
	rows := Wrap(guard.Visible(text), s.columns()-indent)
	for i, row := range rows[1:] {
		rows[i+1] = strings.TrimRight(strings.Repeat(" ", indent)+row, " ")
	}
	return head + " " + strings.Join(rows, "\n") + "\n"
}

// Question formats a question of this program. It may contain names that come from a model, so
// only the first row begins at the margin.
func (s Style) Question(text string) string { return strings.Join(s.hanging(text), "\n  ") }

// hanging breaks a text at words, with room for an indent of two.
func (s Style) hanging(text string) []string { return Wrap(guard.Visible(text), s.columns()-2) }

// Wrap breaks a visible text between words, and inside words that are wider than width. Only the
// first row of a line may begin with a blank. Words are not broken at hyphens.
func Wrap(text string, width int) (rows []string) {
	const dash = "\u2011" // ansi.Wrap does not break at it
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

// Prose replaces typographic spaces in an answer, such as that before a French question mark, by ordinary ones.
// [guard.Visible] would show them as code points, as is needed only in texts for a decision.
func Prose(text string) string { return typographic.Replace(text) }

// quote formats the answer of a model, which comes in pieces, as Markdown behind a gutter. The zero value is ready to
// use.
type quote struct {
	style Style
	text  Markdown
	open  bool // whether a row was written
}

// write adds text and returns the rows that are complete.
func (q *quote) write(text string) string {
	q.text.Color = q.style.Color
	return q.rows(q.text.Write(text, q.room()))
}

// end returns the rest of the rows.
func (q *quote) end() string {
	text := q.rows(q.text.End(q.room()))
	*q = quote{style: q.style}
	return text
}

func (q *quote) room() int { return q.style.columns() - 2 }

// rows puts a gutter in front of rows. A gap at the beginning is left out.
func (q *quote) rows(rows []string) string {
	var b strings.Builder
	for _, row := range rows {
		if row == "" && !q.open {
			continue
		}
		q.open = true
		for part := range strings.SplitSeq(ansi.Hardwrap(row, q.room(), true), "\n") {
			b.WriteString(strings.TrimRight(q.style.Dim(gutter)+part, " ") + "\n")
		}
	}
	return b.String()
}
