package guard

import (
	"slices"
	"strings"
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
// of a secret that goes on in the next piece.
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
	for f := nextStretch(known, text, 0); !f.none() && f.from < end; f = nextStretch(known, text, f.to) {
		switch {
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
