package tui

import (
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib/guard"
)

// standIns are characters of the input that replace those it cannot show, such as tabs, direction marks
// and no-break spaces. The text is sent as it was pasted, and every character of it is visible.
type standIns struct {
	originals []string // the character that firstStandIn+i replaces
}

// Stand-ins are unassigned characters, one column wide in every locale, which the input accepts as
// letters.
const (
	firstStandIn = '\U00040000'
	maxStandIns  = 1 << 15
)

// put returns a text in the form of the input.
func (s *standIns) put(text string) string {
	text = guard.ReplaceHidden(text, s.standIn)
	for _, plain := range []string{"\t", "\uFFFD"} { // visible, but the input replaces or drops them
		if strings.Contains(text, plain) {
			text = strings.ReplaceAll(text, plain, s.standIn(plain))
		}
	}
	return text
}

func (s *standIns) standIn(original string) string {
	at := slices.Index(s.originals, original)
	if at < 0 {
		if at = len(s.originals); at == maxStandIns {
			return visible(original)
		}
		s.originals = append(s.originals, original)
	}
	return string(firstStandIn + rune(at))
}

// replaced replaces the stand-ins in a text by the results of with for their originals.
func (s *standIns) replaced(text string, with func(original string) string) string {
	if len(s.originals) == 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if at := int(r - firstStandIn); at >= 0 && at < len(s.originals) {
			b.WriteString(with(s.originals[at]))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// shown returns a row of the input for the screen, with one column per character, as the input assumes.
func (s *standIns) shown(row string) string {
	return s.replaced(row, func(original string) string {
		switch {
		case original == "\t":
			return "⇥"
		case strings.TrimSpace(original) == "":
			return "␣"
		}
		return "◌"
	})
}

// value returns the text of the input as the user entered it.
func (m *model) value() string {
	return m.standIns.replaced(m.input.Value(), func(original string) string { return original })
}

// edit puts a text into the input.
func (m *model) edit(text string) {
	m.input.SetValue(m.standIns.put(text))
	m.input.MoveToEnd()
	m.input, _ = m.input.Update(nil) // scrolls to the cursor
}

// insert adds a text at the cursor.
func (m *model) insert(text string) {
	m.input.InsertString(m.standIns.put(text))
	m.input, _ = m.input.Update(nil) // scrolls to the cursor
}

// keyboard is the input of a terminal, in pieces that end with a whole character. Over a slow
// connection a character may arrive in parts, and the event reader drops parts that are late.
type keyboard struct {
	*os.File
	held []byte
}

// Read implements [io.Reader].
func (k *keyboard) Read(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		n = copy(p, k.held)
		k.held = k.held[n:]
		var more int
		more, err = k.File.Read(p[n:])
		n += more
		if whole := wholeCharacters(p[:n]); err == nil && n < len(p) {
			k.held, n = slices.Clone(p[whole:n]), whole
		}
	}
	return n, err
}

// wholeCharacters returns the length of p without an incomplete character at its end.
func wholeCharacters(p []byte) int {
	for i := len(p) - 1; i >= max(len(p)-utf8.UTFMax+1, 0); i-- {
		if utf8.RuneStart(p[i]) {
			if p[i] >= utf8.RuneSelf && !utf8.FullRune(p[i:]) {
				return i
			}
			break
		}
	}
	return len(p)
}
