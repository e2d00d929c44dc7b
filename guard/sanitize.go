package guard

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// What Clean does with a rune.
type class int

const (
	keep class = iota
	remove
	show
)

// cleanClass sorts runes as contract §7 says. The marks U+200E, U+200F and U+061C
// are kept: they only say which way a neighbour reads, and right-to-left text
// needs them. Overrides, embeddings and isolates reorder what stands inside them.
func cleanClass(r rune) class {
	switch {
	case r < 0x20:
		if r == '\n' || r == '\r' || r == '\t' {
			return keep
		}
		return remove
	case r < 0x7F:
		return keep
	case r <= 0x9F: // DEL and C1
		return remove
	case r < 0x202A:
		return keep
	case r <= 0x202E, r >= 0x2066 && r <= 0x2069:
		return show
	case r >= 0xE0000 && r <= 0xE007F, r >= 0xE0100 && r <= 0xE01EF: // tags, variation selectors
		return remove
	}
	return keep
}

// Clean makes text fit to be read by a model (contract §7, C14). The result is
// valid UTF-8: each invalid byte becomes U+FFFD. NUL, DEL, C1 and other control
// characters but newline, carriage return and tab are removed, and so are Unicode
// tags and the variation selectors U+E0100–E01EF, which carry text that nobody
// sees. Bidi overrides, embeddings and isolates become visible: "[U+202E]". All
// else stays, emoji with their joiners and U+FE0F too. Clean text is returned as
// it is, without allocation; cleaning twice changes nothing.
func Clean(s string) string {
	i, ok := firstDirty(s)
	if ok {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for {
		b.WriteString(s[:i])
		r, size := utf8.DecodeRuneInString(s[i:])
		switch cleanClass(r) {
		case keep: // an invalid byte, now U+FFFD
			b.WriteRune(r)
		case show:
			b.Write(appendShown(nil, r))
		case remove:
		}
		s = s[i+size:]
		if i, ok = firstDirty(s); ok {
			b.WriteString(s)
			return b.String()
		}
	}
}

// CleanBytes is [Clean] for bytes.
func CleanBytes(b []byte) string { return Clean(string(b)) }

// firstDirty finds the first character that Clean changes; ok = there is none.
func firstDirty(s string) (at int, ok bool) {
	for i := 0; i < len(s); {
		if i = skipPrintable(s, i); i >= len(s) {
			break
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size <= 1 || cleanClass(r) != keep {
			return i, false
		}
		i += size
	}
	return len(s), true
}

// appendShown appends "[U+XXXX]".
func appendShown(dst []byte, r rune) []byte { return fmt.Appendf(dst, "[U+%04X]", r) }

// CleanJSON does to every string of a JSON value, keys too, what [Clean] does to
// text, whether a character stands as itself or as an escape; lone surrogates
// become U+FFFD. The result is valid, compact JSON with every string in the one
// spelling of this package; keys keep their order, numbers their digits. Keys that
// become equal both stay. Bytes that are no JSON, or nested deeper than 1000
// levels, become a JSON string of the cleaned text. A value that needs no change
// is returned itself, not copied.
func CleanJSON(raw json.RawMessage) json.RawMessage {
	s := scanner{raw: raw, maxDepth: maxScanDepth}
	from, to, err := s.document()
	if err != nil {
		return appendQuoted(nil, Clean(string(raw)))
	}
	if !s.respell && !s.dirty {
		return raw[from:to:to]
	}
	return rewriteJSON(raw[from:to], appendCleanInside)
}

// rewriteJSON copies a checked JSON value without space, with inside appending
// what each string, keys too, becomes between its quotes.
func rewriteJSON(raw []byte, inside func(dst, written []byte) []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		switch c := raw[i]; c {
		case ' ', '\t', '\n', '\r':
			i++
		case '"':
			end := stringEnd(raw, i)
			out = append(out, '"')
			out = inside(out, raw[i+1:end-1])
			out = append(out, '"')
			i = end
		default:
			out = append(out, c)
			i++
		}
	}
	return out
}

// appendCleanInside appends the inside of a JSON string, cleaned and respelt.
func appendCleanInside(dst, written []byte) []byte {
	for i := 0; i < len(written); {
		j := skipPlain(written, i)
		dst = append(dst, written[i:j]...)
		if j >= len(written) {
			break
		}
		c := nextChar(written, j)
		switch cleanClass(c.r) {
		case keep:
			dst = appendEscaped(dst, c.r)
		case show:
			dst = appendShown(dst, c.r)
		case remove:
		}
		i = j + max(c.size, 1)
	}
	return dst
}

// IsClean tells whether [Clean] would change nothing.
func IsClean(s string) bool {
	_, ok := firstDirty(s)
	return ok
}
