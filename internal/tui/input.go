package tui

import (
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib/guard"
)

// standIns are characters of the input in place of those that it cannot show, such as tabs, direction marks and
// no-break spaces: the text is sent as it was pasted, and every character of it is seen.
type standIns struct {
	originals []string // what firstStandIn+i stands for
}

// Stand-ins are unassigned characters, one column wide in every locale, which the input takes as a letter.
const (
	firstStandIn = '\U00040000'
	maxStandIns  = 1 << 15
)

// put returns the text as the input holds it.
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

// replaced replaces the stand-ins in a text by what with returns for their originals.
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

// shown returns a row of the input for the screen: of one column for each character, as the input counts them.
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

// value is the text of the input as the person gave it.
func (m *model) value() string {
	return m.standIns.replaced(m.input.Value(), func(original string) string { return original })
}

// edit puts a text into the input.
func (m *model) edit(text string) {
	m.input.SetValue(m.standIns.put(text))
	m.input.MoveToEnd()
	m.input, _ = m.input.Update(nil) // shows where the cursor is
}

// insert adds a text at the cursor.
func (m *model) insert(text string) {
	m.input.InsertString(m.standIns.put(text))
	m.input, _ = m.input.Update(nil) // shows where the cursor is
}

// keyboard is a terminal's input whose pieces end with a whole character: over a slow connection, one may come in
// parts, and what reads events drops those that are late.
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

// wholeCharacters returns the length of p without the beginning of a character at its end.
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
