package guard

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMarkText bounds what [FindMark] takes for a name, in characters.
const maxMarkText = 256

// FindMark returns the first mark in the canonical arguments of a call: any text of the
// form "[secret:NAME]", whether or not a secret of this name is known. What was read
// when it was known is in the transcript for as long as that lasts, and written back the
// mark would replace the secret. It returns "" if there is none.
//
// Case, spaces and characters that nobody sees make no difference, nor do full-width
// forms, or escapes of JSON (at any depth), shells and URLs. The result is plain.
func FindMark(arguments []byte) string {
	for i := 0; i < len(arguments); {
		switch c := arguments[i]; {
		case c != '[' && c != '\\' && c != '%' && c < utf8.RuneSelf:
			i++
		default:
			r, size := unescaped(arguments[i:])
			i += size
			if r != '[' {
				continue
			}
			if mark := markAt(arguments[i:]); mark != "" {
				return mark
			}
		}
	}
	return ""
}

// markAt returns the mark whose text after the bracket s begins with, or "".
func markAt(s []byte) string {
	const word = "secret:"
	var name strings.Builder
	n := 0
	for len(s) > 0 {
		r, size := unescaped(s)
		s = s[size:]
		switch {
		case unicode.IsSpace(r) || hidden(r):
		case n < len(word):
			if unicode.ToLower(r) != rune(word[n]) {
				return ""
			}
			n++
		case r == ']' && name.Len() > 0:
			return "[" + word + name.String() + "]"
		case name.Len() < maxMarkText && (r == '.' || r == ':' || r < utf8.RuneSelf && tokenChar(byte(r))):
			name.WriteByte(byte(r))
		default:
			return ""
		}
	}
	return ""
}

// unescaped reads the first character of s. An escaped one counts as what it means, an
// escaped control character as a space, and a full-width one as its usual form.
func unescaped(s []byte) (r rune, size int) {
	switch {
	case s[0] == '%':
		if b, ok := hexDigits(s, 1, 2); ok {
			return b, 3
		}
		return '%', 1
	case s[0] != '\\':
		r, size = utf8.DecodeRune(s)
		if r >= 0xFF01 && r <= 0xFF5E {
			r -= 0xFF01 - '!'
		}
		return r, size
	}
	for size < len(s) && s[size] == '\\' { // JSON in JSON has several
		size++
	}
	if size == len(s) {
		return ' ', size
	}
	switch s[size] {
	case 'u':
		if r, ok := hexDigits(s, size+1, 4); ok {
			return r, size + 5
		}
	case 'x':
		if r, ok := hexDigits(s, size+1, 2); ok {
			return r, size + 3
		}
	case 'b', 'f', 'n', 'r', 't':
		return ' ', size + 1
	}
	r, n := utf8.DecodeRune(s[size:])
	return r, size + n
}
