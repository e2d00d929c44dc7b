package render

import (
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib/guard"
)

// Style says what the place that is written to can show. The zero value is plain
// text of 80 columns.
type Style struct {
	Color bool // ANSI colours
	Dumb  bool // a terminal that takes no escape sequences; never with Color
	Width int  // columns; 0 = 80
	// Columns returns the columns of a terminal, which may change at any time; nil = Width.
	Columns func() int
}

func (s Style) width() int {
	width := s.Width
	if s.Columns != nil {
		width = s.Columns()
	}
	if width < 1 {
		return 80
	}
	return width
}

// Within is the style of what is shown so many columns from the margin.
func (s Style) Within(indent int) Style {
	if s.Width == 0 && s.Columns == nil {
		return s
	}
	width := s.width
	s.Columns = func() int { return max(width()-indent, 1) }
	return s
}

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold, Dim, Red, Green, Yellow and Cyan colour a text that is visible already.
func (s Style) Bold(text string) string   { return s.paint("1", text) }
func (s Style) Dim(text string) string    { return s.paint("2", text) }
func (s Style) Red(text string) string    { return s.paint("31", text) }
func (s Style) Green(text string) string  { return s.paint("32", text) }
func (s Style) Yellow(text string) string { return s.paint("33", text) }
func (s Style) Cyan(text string) string   { return s.paint("36", text) }

// visibleStream makes a text visible that comes in pieces, which may be cut within
// a character or between an emoji and its joiner.
type visibleStream struct {
	last string // the last whole character, which the next piece may need
	rest string // the beginning of a character
}

// Write returns what of the text can be shown now.
func (v *visibleStream) Write(piece string) string {
	text := v.rest + piece
	v.rest = ""
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		tail := text[len(text)-i:]
		if utf8.RuneStart(tail[0]) {
			if !utf8.FullRuneInString(tail) {
				v.rest, text = tail, text[:len(text)-i]
			}
			break
		}
	}
	if text == "" {
		return ""
	}
	before := guard.Visible(v.last)
	shown := strings.TrimPrefix(guard.Visible(v.last+text), before)
	_, size := utf8.DecodeLastRuneInString(text)
	v.last = text[len(text)-size:]
	return shown
}

// Flush returns what was held back, and begins anew.
func (v *visibleStream) Flush() string {
	rest := guard.Visible(v.rest)
	*v = visibleStream{}
	return rest
}
