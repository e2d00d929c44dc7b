package guard

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Access tokens are masked by their form, too: one that a person pastes into a prompt,
// or that a file holds, was never given to toolcrib as a secret.
const (
	// TokenPrefix begins every access token (access.TokenPrefix); three parts of
	// base64url follow, with dots between them.
	TokenPrefix = "toolcrib_v1_"
	// tokenName is the name that an access token has in its mark.
	tokenName = "access_token"
	// maxTokenBytes bounds a token (access.MaxTokenBytes).
	maxTokenBytes = 7 << 10
	tokenParts    = 3
)

// tokenChar reports whether a byte can be in a part of a token.
func tokenChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// tokenReader finds tokens in a text from left to right. It remembers where the parts
// end, so that a text of nothing but beginnings takes no longer than another.
type tokenReader[T bytestring] struct {
	text T
	ends [tokenParts]int // of the parts from first on; ends[0] 0 = not read yet
}

// parts reads the ends of three parts from i on. n is how many of them there are with
// what must stand between; whether the last one read ends with the text says that it
// may go on.
func (r *tokenReader[T]) parts(i int) (n int) {
	s := r.text
	if r.ends[0] < i {
		r.ends = [tokenParts]int{}
		for k, from := 0, i; k < tokenParts; k++ {
			end := from
			for end < len(s) && tokenChar(s[end]) {
				end++
			}
			r.ends[k] = end
			if end == len(s) || s[end] != '.' {
				break
			}
			from = end + 1
		}
	}
	from := i
	for n = 0; n < tokenParts && r.ends[n] > from; n++ {
		if from = r.ends[n] + 1; n < tokenParts-1 && r.ends[n+1] == 0 {
			return n + 1
		}
	}
	return n
}

// token returns the end of the token that begins at at, where the prefix stands, or -1 if
// no token does. open reports whether more text could start or lengthen one.
func (r *tokenReader[T]) token(at int) (end int, open bool) {
	n := r.parts(at + len(TokenPrefix))
	most := at + maxTokenBytes
	switch {
	case n == tokenParts && r.ends[n-2]+2 <= most:
		end = min(r.ends[n-1], most)
		return end, end == len(r.text) && end < most
	case n == tokenParts:
		return -1, false
	}
	// The part that is missing, or has no end yet, begins where the one before ends.
	reached := at + len(TokenPrefix)
	if n > 0 {
		reached = r.ends[n-1]
		if reached < len(r.text) && r.text[reached] == '.' {
			reached++
		}
	}
	return -1, reached == len(r.text) && reached < most
}

// indexToken returns where the next prefix begins in s; -1 = nowhere.
func indexToken[T bytestring](s T) int {
	switch s := any(s).(type) {
	case string:
		return strings.Index(s, TokenPrefix)
	case []byte:
		return bytes.Index(s, []byte(TokenPrefix))
	}
	return strings.Index(string(s), TokenPrefix)
}

// firstToken finds the first token that begins in s[i:end]; -1 = none.
func firstToken[T bytestring](s T, i, end int) (from, to int) {
	r := tokenReader[T]{text: s}
	last := min(len(s), end+len(TokenPrefix)-1)
	for i < last {
		at := indexToken(s[i:last])
		if at < 0 {
			break
		}
		at += i
		if to, _ := r.token(at); to >= 0 {
			return at, to
		}
		i = at + 1
	}
	return -1, -1
}

// openToken returns where a token begins that more text could complete, or make
// longer; len(s) = nowhere.
func openToken(s string) int {
	r := tokenReader[string]{text: s}
	for i := max(0, len(s)-maxTokenBytes+1); i < len(s); {
		at := strings.Index(s[i:], TokenPrefix)
		if at < 0 {
			break
		}
		at += i
		if _, open := r.token(at); open {
			return at
		}
		i = at + 1
	}
	for n := min(len(TokenPrefix)-1, len(s)); n > 0; n-- {
		if strings.HasSuffix(s, TokenPrefix[:n]) {
			return len(s) - n
		}
	}
	return len(s)
}

// maxMarkText bounds what [FindMark] takes for a name, in characters.
const maxMarkText = 256

// FindMark returns the first mark in the canonical arguments of a call: any text of the
// form "[secret:NAME]", whether or not a secret of this name is known. What was read
// when it was known is in the transcript for as long as that lasts, and written back the
// mark would replace the secret. It returns "" if none.
//
// Case, spaces and characters that nobody sees make no difference, nor do full-width
// forms, or escapes of JSON (at any depth), shells and URLs. The result is plain.
func FindMark(arguments []byte) string {
	for i := 0; i < len(arguments); {
		if c := arguments[i]; c != '[' && c != '\\' && c != '%' && c < utf8.RuneSelf {
			i++
			continue
		}
		r, size := unescaped(arguments[i:])
		i += size
		if r != '[' {
			continue
		}
		if mark := markAt(arguments[i:]); mark != "" {
			return mark
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
