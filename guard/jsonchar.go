package guard

import (
	"bytes"
	"unicode/utf8"
)

// char is one character of a JSON string as written.
type char struct {
	r       rune
	size    int  // bytes as written; 0 = an escape that JSON does not know
	escaped bool // written as an escape
	bad     bool // invalid UTF-8 or a lone surrogate; r is U+FFFD
	respell bool // the one spelling of this package is another
}

// nextChar reads the character at i inside a JSON string. What follows the
// string's end is never looked at, for no escape holds a quote after its first
// character.
func nextChar(raw []byte, i int) char {
	if raw[i] != '\\' {
		r, size := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && size <= 1 {
			return char{r: r, size: 1, bad: true, respell: true}
		}
		return char{r: r, size: size, respell: escapeOf(r) != 0}
	}
	if i+1 >= len(raw) {
		return char{}
	}
	c := char{size: 2, escaped: true}
	switch raw[i+1] {
	case '"', '\\':
		c.r = rune(raw[i+1])
	case '/':
		c.r, c.respell = '/', true
	case 'b':
		c.r = '\b'
	case 'f':
		c.r = '\f'
	case 'n':
		c.r = '\n'
	case 'r':
		c.r = '\r'
	case 't':
		c.r = '\t'
	case 'u':
		return unicodeEscape(raw, i)
	default:
		return char{}
	}
	return c
}

func unicodeEscape(raw []byte, i int) char {
	r, ok := hexDigits(raw, i+2, 4)
	if !ok {
		return char{}
	}
	c := char{r: r, size: 6, escaped: true}
	switch {
	case r >= 0xDC00 && r <= 0xDFFF:
		c.r, c.bad = utf8.RuneError, true
	case r >= 0xD800 && r <= 0xDBFF:
		low, ok := rune(0), false
		if i+7 < len(raw) && raw[i+6] == '\\' && raw[i+7] == 'u' {
			low, ok = hexDigits(raw, i+8, 4)
		}
		if !ok || low < 0xDC00 || low > 0xDFFF {
			c.r, c.bad = utf8.RuneError, true
			break
		}
		c.r = 0x10000 + (r-0xD800)<<10 + (low - 0xDC00)
		c.size = 12
	}
	var spelling [6]byte
	c.respell = c.bad || !bytes.Equal(appendEscaped(spelling[:0], c.r), raw[i:i+c.size])
	return c
}

// hexDigits reads the n hexadecimal digits at i.
func hexDigits(raw []byte, i, n int) (rune, bool) {
	if i+n > len(raw) {
		return 0, false
	}
	var r rune
	for _, c := range raw[i : i+n] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// appendDecoded appends what the inside of a checked JSON string means; what is
// not valid becomes U+FFFD.
func appendDecoded(dst, inside []byte) []byte {
	for i := 0; i < len(inside); {
		j := skipPlain(inside, i)
		dst = append(dst, inside[i:j]...)
		if j >= len(inside) {
			break
		}
		c := nextChar(inside, j)
		dst = utf8.AppendRune(dst, c.r)
		i = j + max(c.size, 1)
	}
	return dst
}

// appendRespelt appends the inside of a checked JSON string in the one spelling.
func appendRespelt(dst, inside []byte) []byte {
	for i := 0; i < len(inside); {
		j := skipPlain(inside, i)
		dst = append(dst, inside[i:j]...)
		if j >= len(inside) {
			break
		}
		c := nextChar(inside, j)
		dst = appendEscaped(dst, c.r)
		i = j + max(c.size, 1)
	}
	return dst
}

// stringEnd returns the position after the JSON string that begins at i.
func stringEnd(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(raw)
}
