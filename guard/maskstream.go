package guard

import (
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaskStream masks the secrets of a text that comes in pieces, so that a secret
// that is split over pieces is never shown: text that may be the beginning of a secret is
// held back until more is known. The results of Write and Flush, joined, equal
// [Masker.Mask] of the pieces joined, unless a secret is learned meanwhile; that secret is
// masked from the next piece on, also if it begins in the text held back. At most the
// length of the longest form is held back, or that of an access token (7 KiB).
//
// A MaskStream belongs to one goroutine.
type MaskStream struct {
	m         *Masker
	arguments bool // mask only the forms because of which a call is refused
	held      string
	covered   int // number of leading bytes of held that belong to a secret whose mark was written
}

// Stream returns a new stream.
func (m *Masker) Stream() *MaskStream { return &MaskStream{m: m} }

// now returns the secrets that the stream masks.
func (s *MaskStream) now() *spellings {
	if s.arguments {
		return s.m.now().arguments
	}
	return s.m.now()
}

// Write takes the next piece and returns the text that can be shown.
func (s *MaskStream) Write(piece string) string {
	if s.m.Empty() || piece == "" {
		return piece
	}
	text, known := s.held+piece, s.now()
	return s.advance(known, text, known.openEnd(text))
}

// Flush ends the text and returns the text held back. The stream can then be used
// for another text.
func (s *MaskStream) Flush() string {
	if s.m.Empty() {
		return ""
	}
	return s.advance(s.now(), s.held, len(s.held))
}

// openEnd returns the first position of text at which a secret may begin that
// continues in the next piece.
func (k *spellings) openEnd(text string) int {
	token := openToken(text)
	for i := max(0, len(text)-k.longest+1); i < token; i++ {
		tail := text[i:]
		at, equal := slices.BinarySearchFunc(k.forms, tail, func(f form, s string) int { return strings.Compare(f.text, s) })
		if equal { // a longer form may begin with this one
			at++
		}
		if at < len(k.forms) && strings.HasPrefix(k.forms[at].text, tail) {
			return i
		}
	}
	return token
}

// advance returns text up to end, masked, and holds the rest back.
func (s *MaskStream) advance(known *spellings, text string, end int) string {
	var out []byte
	pos := s.covered // text[:pos] is done
	for _, f := range stretches(known, text) {
		switch {
		case f.from >= end:
		case f.to <= pos:
		case f.from < pos: // part of the secret whose mark was written
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

// ArgumentStream masks the arguments of a call that come in pieces, for display. The results
// of Write and Flush, joined, are the arguments that [Masker.Arguments] would keep, though
// perhaps escaped differently. Strings are compared unescaped; an incomplete escape, a number
// that may continue and text that may be the beginning of a secret are held back until more
// is known.
//
// An ArgumentStream belongs to one goroutine.
type ArgumentStream struct {
	text   MaskStream // the text of the open string
	all    MaskStream // all output, because a secret may stretch over several strings
	held   string     // an incomplete escape or number
	inside bool       // in a string
	broken bool       // not JSON; the rest is passed through as text
}

// ArgumentStream returns a new stream.
func (m *Masker) ArgumentStream() *ArgumentStream {
	s := MaskStream{m: m, arguments: true}
	return &ArgumentStream{text: s, all: s}
}

// ArgumentText returns a text that should have been the arguments of a call as it may be
// stored, masked by an [ArgumentStream].
func (m *Masker) ArgumentText(text string) string {
	s := m.ArgumentStream()
	return s.Write(text) + s.Flush()
}

// Write takes the next piece and returns the text that can be shown.
func (s *ArgumentStream) Write(piece string) string {
	if s.all.m.Empty() {
		return piece
	}
	return s.all.Write(s.read(piece, false))
}

// Flush ends the arguments and returns the text held back.
func (s *ArgumentStream) Flush() string {
	rest := s.read("", true) + string(appendBytes(nil, s.text.Flush()))
	return s.all.Write(rest) + s.all.Flush()
}

// read processes the next piece; last is set if no more follow.
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

// readInside reads n bytes of a string; n is 0 if an escape is incomplete.
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

// readOutside reads n bytes between strings; n is 0 if a number may continue.
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

// openEscape reports whether the escape at the beginning of raw may be incomplete.
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

// escapeLen returns the length of the escape at the beginning of raw, or 0 if JSON has no such escape.
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

// appendBytes appends text inside a JSON string, byte by byte: a character that is split
// over two calls stays whole.
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
