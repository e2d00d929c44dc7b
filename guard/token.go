package guard

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tokens are masked by their form, because one in a prompt or a file is not known
// as a secret.
const (
	// TokenPrefix begins every access token; three parts of base64url follow, separated by
	// dots.
	TokenPrefix = "toolcrib_v1_"
	// BusTokenPrefix begins a token for the bus, with the same parts.
	BusTokenPrefix = "hntoken://v1/"
	// InvitePrefix begins an invite for a node, with two parts.
	InvitePrefix = "tcinvite://v1/"
	// tokenName is the name of an access token in its mark.
	tokenName = "access_token"
	// MaxTokenBytes bounds a token, so that servers and proxies accept the header with it.
	MaxTokenBytes = 7 << 10
	tokenParts    = 3 // at most
)

// tokenForm is a form of tokens.
type tokenForm struct {
	prefix, name string
	parts        int
}

var tokenForms = [...]tokenForm{
	{TokenPrefix, tokenName, tokenParts}, {BusTokenPrefix, "bus_token", tokenParts}, {InvitePrefix, "invite", 2},
}

// tokenChar reports whether a byte can be in a part of a token.
func tokenChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// appendTokens appends the tokens in s, each as a stretch.
func appendTokens[T bytestring](all []found, s T) []found {
	for _, f := range tokenForms {
		all = appendForm(all, s, f)
	}
	return all
}

// appendForm appends the tokens of a form. The parts are read once,
// so that a text of many prefixes takes no longer than another.
func appendForm[T bytestring](all []found, s T, f tokenForm) []found {
	var ends [tokenParts]int // ends of the part that contains the last prefix, and of the parts after it
	for i := 0; ; {
		at := index(s[i:], f.prefix)
		if at < 0 {
			return all
		}
		at += i
		i = at + len(f.prefix)
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
		last := f.parts - 1
		whole := ends[0] > i
		for k := 1; k <= last; k++ {
			whole = whole && ends[k] > ends[k-1]+1
		}
		if most := at + MaxTokenBytes; whole && ends[last-1]+2 <= most {
			all = append(all, found{at, min(ends[last], most), f.name})
		}
		i = at + 1
	}
}

// index returns the position of prefix in s, or -1.
func index[T bytestring](s T, prefix string) int {
	switch s := any(s).(type) {
	case string:
		return strings.Index(s, prefix)
	case []byte:
		return bytes.Index(s, []byte(prefix))
	}
	return strings.Index(string(s), prefix)
}

// openTokens matches the end of a text that more text could make a token, or a longer one.
var openTokens = lazily(`(?:` + TokenPrefix + `|` + BusTokenPrefix + `|` + InvitePrefix +
	`)(?:[A-Za-z0-9_-]+\.){0,2}[A-Za-z0-9_-]*$`)

// openToken returns where a token begins that more text could complete or extend,
// or len(s).
func openToken(s string) int {
	tail := max(0, len(s)-MaxTokenBytes+1)
	open := len(s)
	for _, f := range tokenForms {
		if strings.Contains(s[tail:], f.prefix) {
			if at := openTokens().FindStringIndex(s[tail:]); at != nil {
				return tail + at[0]
			}
		}
		for n := min(len(f.prefix)-1, len(s)); n > 0; n-- {
			if strings.HasSuffix(s, f.prefix[:n]) {
				open = min(open, len(s)-n)
				break
			}
		}
	}
	return open
}

// maxMarkText bounds the name in a mark that [FindMark] recognizes, in characters.
const maxMarkText = 256

// FindMark returns the first mark in the canonical arguments of a call, or "": any text of the
// form "[secret:NAME]", whether or not a secret of this name is known. A mark in the transcript
// outlasts the secret, and a file written with the mark would lose the secret.
//
// Case, spaces and invisible characters are ignored, and so are full-width forms and escapes
// of JSON (at any depth), shells and URLs. The result is plain.
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

// markAt returns the mark at the beginning of s, which follows the bracket, or "".
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

// unescaped decodes the first character of s. An escaped control character is returned as
// a space, a full-width character as its usual form.
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
	for size < len(s) && s[size] == '\\' { // nested JSON has several
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
