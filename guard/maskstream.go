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
	m       *Masker
	held    string
	covered int  // so many leading bytes of held belong to a secret whose Mask is out
	masked  bool // a Mask went out last, with nothing after it
}

// Stream returns a new stream.
func (m *Masker) Stream() *MaskStream { return &MaskStream{m: m} }

// Write takes the next piece and returns what can be shown now.
func (s *MaskStream) Write(piece string) string {
	if s.m.Empty() || piece == "" {
		return piece
	}
	text, known := s.held+piece, s.m.now()
	return s.advance(known, text, known.openEnd(text))
}

// Flush ends the text and returns what was held back. The stream can then be used
// for another text.
func (s *MaskStream) Flush() string {
	if s.m.Empty() {
		return ""
	}
	out := s.advance(s.m.now(), s.held, len(s.held))
	s.masked = false
	return out
}

// openEnd returns the first position of text from which on it may be the beginning
// of a secret that goes on in the next piece.
func (k *spellings) openEnd(text string) int {
	token := openToken(text)
	if k == nil {
		return token
	}
	for i := max(0, len(text)-k.longest+1); i < token; i++ {
		tail := text[i:]
		at, _ := slices.BinarySearch(k.forms, tail)
		// An equal form is whole, yet a longer one may follow it.
		for ; at < len(k.forms) && k.forms[at] == tail; at++ {
		}
		if at < len(k.forms) && strings.HasPrefix(k.forms[at], tail) {
			return i
		}
	}
	return token
}

// advance returns text up to end, masked, and holds the rest.
func (s *MaskStream) advance(known *spellings, text string, end int) string {
	var out []byte
	pos, masked := s.covered, s.masked // text[:pos] is dealt with
	for from, to := nextSecret(known, text, 0); from >= 0 && from < end; from, to = nextSecret(known, text, to) {
		switch {
		case to <= pos:
		case from <= pos && masked: // goes on where the last Mask ends
			pos = to
		default:
			out = append(out, text[pos:from]...)
			out = append(out, Mask...)
			pos, masked = to, true
		}
	}
	if pos < end {
		out = append(out, text[pos:end]...)
		pos, masked = end, false
	}
	s.held, s.covered, s.masked = text[end:], pos-end, masked
	return string(out)
}
