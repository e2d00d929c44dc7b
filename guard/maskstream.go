package guard

import (
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaskStream masks the secrets of a text that comes in pieces, so that a secret
// that is split over pieces never shows: what may be the beginning of a secret is
// held back until more is known. All that Write and Flush return, joined, is what
// [Masker.Mask] makes of the pieces joined, as long as nothing new is learned meanwhile;
// what is, is masked from the next piece on, also where it begins in what is held. At most the length of the longest
// secret's longest spelling is held back, or that of an access token (7 KiB).
//
// A MaskStream belongs to one goroutine.
type MaskStream struct {
	m         *Masker
	arguments bool // mask only what does not pass in the arguments of a call
	held      string
	covered   int // so many leading bytes of held belong to a secret whose mark is out
}

// Stream returns a new stream.
func (m *Masker) Stream() *MaskStream { return &MaskStream{m: m} }

// now are the secrets that the stream masks.
func (s *MaskStream) now() *spellings {
	if s.arguments {
		return s.m.now().arguments
	}
	return s.m.now()
}

// Write takes the next piece and returns what can be shown now.
func (s *MaskStream) Write(piece string) string {
	if s.m.Empty() || piece == "" {
		return piece
	}
	text, known := s.held+piece, s.now()
	return s.advance(known, text, known.openEnd(text))
}

// Flush ends the text and returns what was held back. The stream can then be used
// for another text.
func (s *MaskStream) Flush() string {
	if s.m.Empty() {
		return ""
	}
	return s.advance(s.now(), s.held, len(s.held))
}

// openEnd returns the first position of text from which on it may be the beginning
// of a secret that continues in the next piece.
func (k *spellings) openEnd(text string) int {
	token := openToken(text)
	for i := max(0, len(text)-k.longest+1); i < token; i++ {
		tail := text[i:]
		at, equal := slices.BinarySearchFunc(k.forms, tail, func(f form, s string) int { return strings.Compare(f.text, s) })
		if equal { // it is whole, yet a longer one may begin with it
			at++
		}
		if at < len(k.forms) && strings.HasPrefix(k.forms[at].text, tail) {
			return i
		}
	}
	return token
}

// advance returns text up to end, masked, and holds the rest.
func (s *MaskStream) advance(known *spellings, text string, end int) string {
	var out []byte
	pos := s.covered // text[:pos] is dealt with
	for _, f := range stretches(known, text) {
		switch {
		case f.from >= end:
		case f.to <= pos:
		case f.from < pos: // part of the secret whose mark is out
			pos = f.to
		default:
			out = append(out, text[pos:f.from]...)
			out = append(out, Mark(f.name)...)
			pos = f.to
		}
	}
	if pos < end {
		out = append(out, text[pos:end]...)
		pos = end
	}
	s.held, s.covered = text[end:], pos-end
	return string(out)
}

// ArgumentStream masks the arguments of a call that come in pieces, for those who watch:
// all that Write and Flush return, joined, is what [Masker.Arguments] keeps of them,
// though perhaps spelt another way. The characters of a string are looked at as they are
// meant; an escape that is parted, a number that may go on and what may be the beginning
// of a secret are held back until more is known.
//
// An ArgumentStream belongs to one goroutine.
type ArgumentStream struct {
	text   MaskStream // the inside of the string that is open
	all    MaskStream // what is shown: a secret may stretch over several strings
	held   string     // an escape or a number that is not whole
	inside bool       // of a string
	broken bool       // it is not JSON, and the rest is taken as it is
}

// ArgumentStream returns a new stream.
func (m *Masker) ArgumentStream() *ArgumentStream {
	s := MaskStream{m: m, arguments: true}
	return &ArgumentStream{text: s, all: s}
}

// ArgumentText returns a text that should have been the arguments of a call as it may be
// kept: what an [ArgumentStream] makes of it.
func (m *Masker) ArgumentText(text string) string {
	s := m.ArgumentStream()
	return s.Write(text) + s.Flush()
}

// Write takes the next piece and returns what can be shown now.
func (s *ArgumentStream) Write(piece string) string {
	if s.all.m.Empty() {
		return piece
	}
	return s.all.Write(s.read(piece, false))
}

// Flush ends the arguments and returns what was held back.
func (s *ArgumentStream) Flush() string {
	rest := s.read("", true) + string(appendBytes(nil, s.text.Flush()))
	return s.all.Write(rest) + s.all.Flush()
}

// read goes through the next piece; last says that no more follows.
func (s *ArgumentStream) read(piece string, last bool) string {
	raw := []byte(s.held + piece)
	s.held = ""
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		n := len(raw) - i
		switch {
		case s.broken:
			out = append(out, raw[i:]...)
		case s.inside:
			out, n = s.readInside(out, raw[i:], last)
		default:
			out, n = s.readOutside(out, raw[i:], last)
		}
		if n == 0 {
			s.held = string(raw[i:])
			break
		}
		i += n
	}
	return string(out)
}

// readInside reads n bytes of a string; 0 = an escape is not whole.
func (s *ArgumentStream) readInside(out, raw []byte, last bool) (_ []byte, n int) {
	switch raw[0] {
	case '"':
		s.inside = false
		return append(appendBytes(out, s.text.Flush()), '"'), 1
	case '\\':
		if !last && openEscape(raw) {
			return out, 0
		}
		if n = escapeLen(raw); n == 0 {
			s.broken = true
			return append(appendBytes(out, s.text.Flush()), raw[0]), 1
		}
		return appendBytes(out, s.text.Write(string(appendDecoded(nil, []byte(`"`+string(raw[:n])+`"`))))), n
	}
	for n = 1; n < len(raw) && raw[n] != '"' && raw[n] != '\\'; {
		n++
	}
	return appendBytes(out, s.text.Write(string(raw[:n]))), n
}

// readOutside reads n bytes between strings; 0 = a number may go on.
func (s *ArgumentStream) readOutside(out, raw []byte, last bool) (_ []byte, n int) {
	for n < len(raw) && numberChar(raw[n]) {
		n++
	}
	switch {
	case n > maxNumberBytes:
		s.broken = true
		return append(out, raw[:n]...), n
	case n == len(raw) && !last:
		return out, 0
	case n > 0:
		return s.text.now().appendNumber(out, raw[:n]), n
	}
	s.inside = raw[0] == '"'
	return append(out, raw[0]), 1
}

// openEscape reports whether the escape that raw begins with may go on behind it.
func openEscape(raw []byte) bool {
	switch {
	case len(raw) < 2:
		return true
	case raw[1] != 'u':
		return false
	case len(raw) < 6:
		return true
	}
	r, ok := hexDigits(raw, 2, 4)
	high := ok && r >= 0xD800 && r <= 0xDBFF
	return high && (len(raw) == 6 || raw[6] == '\\' && (len(raw) == 7 || raw[7] == 'u' && len(raw) < 12))
}

// escapeLen returns the length of the escape that raw begins with; 0 = JSON has no such.
func escapeLen(raw []byte) int {
	switch {
	case len(raw) < 2 || strings.IndexByte(`"\/bfnrtu`, raw[1]) < 0:
		return 0
	case raw[1] != 'u':
		return 2
	}
	high, ok := hexDigits(raw, 2, 4)
	if !ok {
		return 0
	}
	if len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
		if low, ok := hexDigits(raw, 8, 4); ok && utf16.DecodeRune(high, low) != utf8.RuneError {
			return 12
		}
	}
	return 6
}

// appendBytes appends the inside of a JSON string. A character that is parted over two
// calls stays whole.
func appendBytes(dst []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < utf8.RuneSelf {
			dst = appendEscaped(dst, rune(c))
		} else {
			dst = append(dst, c)
		}
	}
	return dst
}
