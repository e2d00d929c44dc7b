package render

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib/guard"
)

// Style says what the place that is written to can show. The zero value is plain
// text of 80 columns.
type Style struct {
	Color bool // ANSI colours
	Width int  // columns; 0 = 80
}

func (s Style) width() int {
	if s.Width < 20 {
		return 80
	}
	return s.Width
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

// line makes a text one visible line of at most width columns.
func line(text string, width int) string {
	text = strings.Join(strings.Fields(firstBytes(text, 8*max(width, 1))), " ")
	return ansi.Truncate(guard.Visible(text), max(width, 1), "…")
}

// cutLine cuts one line and keeps its spaces; tabs become spaces.
func cutLine(text string, width int) string {
	text = strings.ReplaceAll(firstBytes(text, 8*max(width, 1)), "\t", "    ")
	return ansi.Truncate(guard.Visible(text), max(width, 1), "…")
}

// firstBytes bounds the work of what follows; it cuts between characters.
func firstBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

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
