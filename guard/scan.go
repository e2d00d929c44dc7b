package guard

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// span is a piece of the scanned bytes: raw[from:to].
type span struct {
	from, to int
	escaped  bool // holds a backslash escape
}

// scanner checks one JSON text in a single pass and notes whether it is already
// spelt as wanted, so that nothing has to be written in the common case.
type scanner struct {
	raw      []byte
	pos      int
	maxDepth int
	strict   bool // valid UTF-8, no colliding keys, bounded numbers, sorted keys wanted
	respell  bool // found: another spelling is wanted (space, escapes, order)
	dirty    bool // found: a string holds something that Clean changes

	// The keys of the objects that are open, as a stack: the first in room, which
	// keeps small texts off the heap, the others in more.
	room [manyKeys]span
	more []span
	open int
}

func (s *scanner) openKey(i int) span {
	if i < len(s.room) {
		return s.room[i]
	}
	return s.more[i-len(s.room)]
}

func (s *scanner) pushKey(k span) {
	if s.open < len(s.room) {
		s.room[s.open] = k
	} else {
		s.more = append(s.more[:s.open-len(s.room)], k)
	}
	s.open++
}

// manyKeys is the size of an object from which on collisions of keys are looked
// up in a map instead of compared pair by pair.
const manyKeys = 16

// Bounds of numbers in strict texts. A validator computes with exact numbers, and
// the value of 1e999999 would fill the memory.
const (
	maxNumberBytes = 256
	maxExponent    = 999
)

func (s *scanner) fail(at int, format string, args ...any) *ArgumentError {
	return &ArgumentError{Offset: at, What: fmt.Sprintf(format, args...)}
}

// document scans one value and what stands around it, and returns the value's
// bounds without the space around it.
func (s *scanner) document() (from, to int, err *ArgumentError) {
	s.space()
	from = s.pos
	s.respell = false // space around the value is cut off without writing anew
	if err := s.value(1); err != nil {
		return 0, 0, err
	}
	to = s.pos
	respell := s.respell
	s.space()
	s.respell = respell
	if s.pos < len(s.raw) {
		return 0, 0, s.fail(s.pos, "nothing may follow the value, found %s", s.found())
	}
	return from, to, nil
}

func (s *scanner) space() {
	for s.pos < len(s.raw) {
		switch s.raw[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
			s.respell = true
		default:
			return
		}
	}
}

// found describes the byte at pos for an error.
func (s *scanner) found() string {
	if s.pos >= len(s.raw) {
		return "the end"
	}
	r, size := utf8.DecodeRune(s.raw[s.pos:])
	if r == utf8.RuneError && size <= 1 {
		return fmt.Sprintf("byte 0x%02X", s.raw[s.pos])
	}
	if !unicode.IsPrint(r) {
		return fmt.Sprintf("%U", r)
	}
	return strconv.QuoteRune(r)
}

func (s *scanner) value(depth int) *ArgumentError {
	if s.pos >= len(s.raw) {
		return s.fail(s.pos, "expected a value, found the end")
	}
	switch c := s.raw[s.pos]; {
	case c == '{' || c == '[':
		if depth > s.maxDepth {
			return s.fail(s.pos, "nested deeper than %d levels", s.maxDepth)
		}
		if c == '{' {
			return s.object(depth)
		}
		return s.array(depth)
	case c == '"':
		_, err := s.str()
		return err
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.fail(s.pos, "expected a value, found %s", s.found())
}

func (s *scanner) literal(word string) *ArgumentError {
	if !bytes.Equal(wordOf(s.raw[s.pos:min(len(s.raw), s.pos+len(word)+utf8.UTFMax)]), []byte(word)) {
		return s.fail(s.pos, "expected %s, found an unquoted word", word)
	}
	s.pos += len(word)
	return nil
}

func (s *scanner) array(depth int) *ArgumentError {
	s.pos++
	s.space()
	if s.pos < len(s.raw) && s.raw[s.pos] == ']' {
		s.pos++
		return nil
	}
	for i := 0; ; i++ {
		if err := s.value(depth + 1); err != nil {
			return err.under(strconv.Itoa(i))
		}
		s.space()
		switch {
		case s.pos < len(s.raw) && s.raw[s.pos] == ',':
			s.pos++
			s.space()
		case s.pos < len(s.raw) && s.raw[s.pos] == ']':
			s.pos++
			return nil
		default:
			return s.fail(s.pos, "expected ',' or ']', found %s", s.found())
		}
	}
}

func (s *scanner) object(depth int) *ArgumentError {
	s.pos++
	s.space()
	if s.pos < len(s.raw) && s.raw[s.pos] == '}' {
		s.pos++
		return nil
	}
	base := s.open
	var seen map[string]span
	for {
		key, err := s.key()
		if err != nil {
			return err
		}
		if s.strict {
			if seen, err = s.distinct(key, base, seen); err != nil {
				return err
			}
			s.pushKey(key)
		}
		if err := s.value(depth + 1); err != nil {
			return err.under(string(s.text(key)))
		}
		s.space()
		switch {
		case s.pos < len(s.raw) && s.raw[s.pos] == ',':
			s.pos++
			s.space()
		case s.pos < len(s.raw) && s.raw[s.pos] == '}':
			s.pos++
			s.open = base
			return nil
		default:
			return s.fail(s.pos, "expected ',' or '}', found %s", s.found())
		}
	}
}

// key scans a member's name, the colon and the space around it.
func (s *scanner) key() (span, *ArgumentError) {
	if s.pos >= len(s.raw) || s.raw[s.pos] != '"' {
		return span{}, s.fail(s.pos, "expected a key in quotes, found %s", s.found())
	}
	key, err := s.str()
	if err != nil {
		return span{}, err
	}
	s.space()
	if s.pos >= len(s.raw) || s.raw[s.pos] != ':' {
		return span{}, s.fail(s.pos, "expected ':' after a key, found %s", s.found())
	}
	s.pos++
	s.space()
	return key, nil
}

// text returns what a scanned string means, without its quotes.
func (s *scanner) text(k span) []byte {
	if !k.escaped {
		return s.raw[k.from:k.to]
	}
	return appendDecoded(nil, s.raw[k.from:k.to])
}

// distinct checks the key against those of the same object before it, and whether
// it stands in order.
func (s *scanner) distinct(key span, base int, seen map[string]span) (map[string]span, *ArgumentError) {
	if s.open == base {
		return seen, nil
	}
	text := s.text(key)
	if !s.respell && bytes.Compare(s.text(s.openKey(s.open-1)), text) > 0 {
		s.respell = true
	}
	if s.open-base < manyKeys {
		for i := base; i < s.open; i++ {
			if t := s.text(s.openKey(i)); bytes.EqualFold(t, text) {
				return seen, s.collision(key, t, text)
			}
		}
		return seen, nil
	}
	if seen == nil {
		seen = make(map[string]span, 2*manyKeys)
		for i := base; i < s.open; i++ {
			o := s.openKey(i)
			seen[fold(s.text(o))] = o
		}
	}
	folded := fold(text)
	if o, ok := seen[folded]; ok {
		return seen, s.collision(key, s.text(o), text)
	}
	seen[folded] = key
	return seen, nil
}

func (s *scanner) collision(key span, a, b []byte) *ArgumentError {
	if bytes.Equal(a, b) {
		return s.fail(key.from-1, "duplicate key %s", quoteShort(b))
	}
	return s.fail(key.from-1, "keys %s and %s differ only in letter case", quoteShort(a), quoteShort(b))
}

// fold maps texts that bytes.EqualFold calls equal to the same string: each rune
// becomes the smallest of its orbit under Unicode simple folding.
func fold(text []byte) string {
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		i += size
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		b.WriteRune(least)
	}
	return b.String()
}

// number scans a number by the grammar of RFC 8259.
func (s *scanner) number() *ArgumentError {
	from := s.pos
	if s.raw[s.pos] == '-' {
		s.pos++
	}
	if s.pos < len(s.raw) && s.raw[s.pos] == '0' {
		s.pos++
	} else if s.digits() == 0 {
		return s.fail(s.pos, "expected a digit, found %s", s.found())
	}
	if s.pos < len(s.raw) && s.raw[s.pos] == '.' {
		s.pos++
		if s.digits() == 0 {
			return s.fail(s.pos, "expected a digit after '.', found %s", s.found())
		}
	}
	if s.pos < len(s.raw) && (s.raw[s.pos] == 'e' || s.raw[s.pos] == 'E') {
		s.pos++
		if s.pos < len(s.raw) && (s.raw[s.pos] == '+' || s.raw[s.pos] == '-') {
			s.pos++
		}
		exponent := s.pos
		if s.digits() == 0 {
			return s.fail(s.pos, "expected a digit in the exponent, found %s", s.found())
		}
		if s.strict && tooLargeExponent(s.raw[exponent:s.pos]) {
			return s.fail(from, "number with an exponent beyond %d", maxExponent)
		}
	}
	if s.strict && s.pos-from > maxNumberBytes {
		return s.fail(from, "number longer than %d bytes", maxNumberBytes)
	}
	if lexeme := s.raw[from:s.pos]; s.strict && !s.respell && !plainNumber(lexeme) {
		_, _, s.respell = integer(lexeme)
	}
	return nil
}

func (s *scanner) digits() int {
	from := s.pos
	for s.pos < len(s.raw) && s.raw[s.pos] >= '0' && s.raw[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - from
}

func tooLargeExponent(digits []byte) bool {
	n := 0
	for _, d := range digits {
		if n = n*10 + int(d-'0'); n > maxExponent {
			return true
		}
	}
	return false
}

// str scans a string and its quotes; the span is what is between them.
func (s *scanner) str() (span, *ArgumentError) {
	k := span{from: s.pos + 1}
	raw := s.raw
	lone := -1 // where a character ended that may not be followed by another of its kind
	for i := k.from; ; {
		i = skipPlain(raw, i)
		if i >= len(raw) {
			return k, s.fail(s.pos, "string without an end")
		}
		switch c := raw[i]; {
		case c == '"':
			k.to = i
			s.pos = i + 1
			return k, nil
		case c < 0x20:
			return k, s.fail(i, "unescaped control character %U in a string", rune(c))
		}
		ch := nextChar(raw, i)
		if ch.size == 0 {
			return k, s.fail(i, "invalid escape in a string")
		}
		if ch.bad && s.strict {
			if ch.escaped {
				return k, s.fail(i, "lone surrogate in a string")
			}
			return k, s.fail(i, "invalid UTF-8 in a string")
		}
		k.escaped = k.escaped || ch.escaped
		what := cleanClass(ch.r)
		s.dirty = s.dirty || ch.bad || what == remove || what == show || what == alone && lone == i
		s.respell = s.respell || ch.respell
		if i += ch.size; what == alone {
			lone = i
		}
	}
}
