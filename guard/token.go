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
	// TokenPrefix begins every access token; three parts of base64url follow, with dots
	// between them.
	TokenPrefix = "toolcrib_v1_"
	// tokenName is the name that an access token has in its mark.
	tokenName = "access_token"
	// MaxTokenBytes bounds a token: a header that servers and proxies let pass.
	MaxTokenBytes = 7 << 10
	tokenParts    = 3
)

// tokenChar reports whether a byte can be in a part of a token.
func tokenChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// appendTokens appends the tokens in s, each as a stretch of its own, from where one begins. The
// parts are read once, so that a text of nothing but beginnings takes no longer than another.
func appendTokens[T bytestring](all []found, s T) []found {
	var ends [tokenParts]int // of the part that the last prefix is in, and of those behind it
	for i := 0; ; {
		at := indexToken(s[i:])
		if at < 0 {
			return all
		}
		at += i
		i = at + len(TokenPrefix)
		if ends[0] <= i {
			from := i
			for k := range ends {
				ends[k] = from
				for ends[k] < len(s) && tokenChar(s[ends[k]]) {
					ends[k]++
				}
				if from = ends[k]; from < len(s) && s[from] == '.' {
					from++
				}
			}
		}
		whole := ends[0] > i && ends[1] > ends[0]+1 && ends[2] > ends[1]+1
		if most := at + MaxTokenBytes; whole && ends[1]+2 <= most {
			all = append(all, found{at, min(ends[2], most), tokenName})
		}
		i = at + 1
	}
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

// openTokens are the ends of texts that more text could make a token, or a longer one.
var openTokens = lazily(TokenPrefix + `(?:[A-Za-z0-9_-]+\.){0,2}[A-Za-z0-9_-]*$`)

// openToken returns where a token begins that more text could complete, or make
// longer; len(s) = nowhere.
func openToken(s string) int {
	tail := max(0, len(s)-MaxTokenBytes+1)
	if strings.Contains(s[tail:], TokenPrefix) {
		if at := openTokens().FindStringIndex(s[tail:]); at != nil {
			return tail + at[0]
		}
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
