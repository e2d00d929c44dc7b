package guard

import (
	"math"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// bytestring is text of either kind.
type bytestring interface{ ~string | ~[]byte }

func decodeRune[T bytestring](s T, i int) (rune, int) {
	return utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
}

// skipPlain returns the first position from i on that is not printable ASCII, or
// is a quote or a backslash.
func skipPlain[T bytestring](s T, i int) int {
	for i < len(s) && plain[s[i]] {
		i++
	}
	return i
}

var plain = func() (is [256]bool) {
	for c := byte(' '); c < 0x7F; c++ {
		is[c] = c != '"' && c != '\\'
	}
	return is
}()

// skipPrintable returns the first position from i on that is not printable ASCII.
func skipPrintable[T bytestring](s T, i int) int {
	for i < len(s) && s[i] >= 0x20 && s[i] < 0x7F {
		i++
	}
	return i
}

// escapeOf returns how a rune is escaped in a JSON string: 0 if it is not, 'u' if by its
// number, else the letter after the backslash.
func escapeOf(r rune) byte {
	switch r {
	case '"', '\\':
		return byte(r)
	case '\b':
		return 'b'
	case '\f':
		return 'f'
	case '\n':
		return 'n'
	case '\r':
		return 'r'
	case '\t':
		return 't'
	case '\u2028', '\u2029':
		return 'u'
	}
	if r < 0x20 {
		return 'u'
	}
	return 0
}

// appendEscaped appends a rune as it is written inside a JSON string.
func appendEscaped(dst []byte, r rune) []byte {
	switch e := escapeOf(r); e {
	case 0:
		return utf8.AppendRune(dst, r)
	case 'u':
		return appendUnicodeEscape(dst, r)
	default:
		return append(dst, '\\', e)
	}
}

// appendUnicodeEscape appends \u and four digits, twice for a character beyond U+FFFF.
func appendUnicodeEscape(dst []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		return appendUnicodeEscape(appendUnicodeEscape(dst, high), low)
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}

// appendQuoted appends s as a JSON string; invalid bytes become U+FFFD.
func appendQuoted[T bytestring](dst []byte, s T) []byte {
	dst = append(dst, '"')
	dst = appendInside(dst, s)
	return append(dst, '"')
}

func appendInside[T bytestring](dst []byte, s T) []byte {
	for i := 0; i < len(s); {
		j := skipPlain(s, i)
		dst = append(dst, s[i:j]...)
		if j >= len(s) {
			break
		}
		r, size := decodeRune(s, j)
		dst = appendEscaped(dst, r)
		i = j + size
	}
	return dst
}

// jsonStringLen returns the length of s as a JSON string, quotes included.
func jsonStringLen(s string) int {
	_, size := fitting(s, math.MaxInt)
	return size + len(`""`)
}

// prefixFitting returns the longest prefix of s, cut between characters, that has at most
// room bytes inside a JSON string.
func prefixFitting(s string, room int) string {
	end, _ := fitting(s, max(room, 0))
	return s[:end]
}

// fitting returns the end of that prefix, and its length inside a JSON string.
func fitting(s string, room int) (end, size int) {
	var spelt [6]byte
	for end < len(s) {
		plain := skipPlain(s, end) - end
		if plain > room-size {
			return end + room - size, room
		}
		size += plain
		if end += plain; end == len(s) {
			break
		}
		r, width := utf8.DecodeRuneInString(s[end:])
		n := len(appendEscaped(spelt[:0], r))
		if n > room-size {
			break
		}
		size += n
		end += width
	}
	return end, size
}
