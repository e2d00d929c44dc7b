package guard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// class is the treatment of a rune by Clean.
type class int

const (
	keep class = iota
	remove
	show
	alone // kept if the only one, removed if several follow each other
)

// cleanClass returns the class of a rune. The marks U+200E, U+200F and U+061C
// are kept: they only set the direction of a neighbour, and right-to-left text
// needs them. Overrides, embeddings and isolates reorder the text inside them.
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
	case r == 0x200B, r == 0x200C, r >= 0x2062 && r <= 0x2064, r >= 0xFE00 && r <= 0xFE0F:
		return alone
	case r < 0x202A:
		return keep
	case r <= 0x202E, r >= 0x2066 && r <= 0x2069:
		return show
	case r >= 0xE0000 && r <= 0xE007F, r >= 0xE0100 && r <= 0xE01EF: // tags, variation selectors
		return remove
	}
	return keep
}

// run finds sequences of characters that are [alone]. Removed characters between two of
// them do not separate them, so that cleaning twice changes nothing.
type run struct {
	first rune // held back until the next character is known
	n     int
}

// next takes the next character. If the held one turned out to be the only one, before is
// that character, to be written first; otherwise 0.
func (u *run) next(r rune) (before rune, what class) {
	switch what = cleanClass(r); what {
	case remove:
		return 0, remove
	case alone:
		u.first = r
		u.n++
		return 0, remove
	}
	return u.end(), what
}

// end returns the held character if it is the only one, otherwise 0.
func (u *run) end() (last rune) {
	if u.n == 1 {
		last = u.first
	}
	*u = run{}
	return last
}

// Clean makes text fit to be read by a model. The result is
// valid UTF-8: each invalid byte becomes U+FFFD. NUL, DEL, C1 and other control
// characters except newline, carriage return and tab are removed. So are characters that
// carry invisible text: Unicode tags, the variation selectors U+E0100–E01EF, and two or more
// in a row of the variation selectors U+FE00–FE0F, the invisible operators U+2062–2064,
// U+200B and U+200C. One of these alone is kept, as emoji and Persian need it, and so are the
// tags of the flags of England, Scotland and Wales.
// Bidi overrides, embeddings and isolates become visible: "[U+202E]". All
// other characters are kept. Clean text is returned
// unchanged, without allocation; cleaning twice changes nothing.
func Clean(s string) string {
	i, ok := firstDirty(s)
	if ok {
		return s
	}
	var c CleanStream
	return s[:i] + c.Write(s[i:]) + c.Flush()
}

// A black flag followed by one of these tag sequences is an emoji: the flag of England, Scotland or Wales, the
// only emoji tag sequences of Unicode (UTS #51, RGI_Emoji_Tag_Sequence).
const blackFlag = '\U0001F3F4'

var flagTags = [...]string{
	"\U000E0067\U000E0062\U000E0065\U000E006E\U000E0067\U000E007F",
	"\U000E0067\U000E0062\U000E0073\U000E0063\U000E0074\U000E007F",
	"\U000E0067\U000E0062\U000E0077\U000E006C\U000E0073\U000E007F",
}

// flag matches the tags after a black flag.
type flag struct {
	after bool   // a black flag was read, and only tags after it
	tags  string // the tags read
}

// next takes the next character and returns the tags of a flag that it completes. taken reports whether it is a
// tag that may belong to a flag.
func (f *flag) next(r rune) (whole string, taken bool) {
	if f.after {
		tags := f.tags + string(r)
		for _, known := range flagTags {
			if tags == known {
				*f = flag{}
				return tags, true
			}
			if strings.HasPrefix(known, tags) {
				f.tags = tags
				return "", true
			}
		}
	}
	*f = flag{after: r == blackFlag}
	return "", false
}

// flagAt returns the length of the tags at i that form a flag with the black flag before them, or 0.
func flagAt[T bytestring](s T, i int) int {
	before := string(s[max(i-utf8.RuneLen(blackFlag), 0):i])
	tags := string(s[i:min(i+len(flagTags[0]), len(s))])
	if before == string(blackFlag) && slices.Contains(flagTags[:], tags) {
		return len(tags)
	}
	return 0
}

// CleanStream is [Clean] for a text that comes in pieces, which may split a
// character. The zero value is ready for use. It belongs to one goroutine.
type CleanStream struct {
	held string // the beginning of a character
	run  run
	flag flag
}

// Write takes the next piece and returns the text that is clean.
func (c *CleanStream) Write(piece string) string { return c.write(c.held+piece, false) }

// Flush ends the text and returns the text held back.
func (c *CleanStream) Flush() string {
	text := c.write(c.held, true)
	if last := c.run.end(); last != 0 {
		text += string(last)
	}
	return text
}

func (c *CleanStream) write(s string, whole bool) string {
	var b strings.Builder
	b.Grow(len(s) + 16)
	c.held = ""
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size <= 1 && !whole && !utf8.FullRuneInString(s[i:]) {
			c.held = s[i:]
			break
		}
		if tags, taken := c.flag.next(r); taken {
			b.WriteString(tags)
			i += size
			continue
		}
		before, what := c.run.next(r)
		if before != 0 {
			b.WriteRune(before)
		}
		switch what {
		case keep: // includes an invalid byte, for which r is U+FFFD
			b.WriteRune(r)
		case show:
			b.Write(appendShown(nil, r))
		case remove, alone:
		}
		i += size
		if what == keep {
			j := skipPrintable(s, i)
			b.WriteString(s[i:j])
			if j > i {
				c.flag = flag{}
			}
			i = j
		}
	}
	return b.String()
}

// firstDirty returns the position of the first character that Clean changes; ok reports whether the text is clean.
func firstDirty[T bytestring](s T) (at int, ok bool) {
	for i := 0; i < len(s); {
		if i = skipPrintable(s, i); i >= len(s) {
			break
		}
		r, size := decodeRune(s, i)
		if r >= 0xE0000 && r <= 0xE007F {
			size = max(flagAt(s, i), size)
		}
		switch what := cleanClass(r); {
		case size > utf8.UTFMax: // a flag
		case r == utf8.RuneError && size <= 1, what == remove, what == show:
			return i, false
		case what == alone:
			next, _ := decodeRune(s, i+size)
			if n := cleanClass(next); i+size < len(s) && (n == alone || n == remove) {
				return i, false
			}
		}
		i += size
	}
	return len(s), true
}

// appendShown appends "[U+XXXX]".
func appendShown(dst []byte, r rune) []byte { return fmt.Appendf(dst, "[U+%04X]", r) }

// CleanJSON applies [Clean] to every string of a JSON value, keys included, whether a
// character is escaped or not; lone surrogates become U+FFFD. The result is valid, compact
// JSON with every string escaped as this package does; keys keep their order, numbers their
// digits. Of keys that become equal, both are kept. Bytes that are not JSON, or nested deeper
// than 1000 levels, become a JSON string of the cleaned text. A value that needs no change
// is returned itself, not copied.
func CleanJSON(raw json.RawMessage) json.RawMessage {
	if document(raw, anyText) != nil || len(raw) > maxScanDepth && depthOf(raw) > maxScanDepth {
		return appendQuoted(nil, Clean(string(raw)))
	}
	if isSettled(raw) {
		return raw
	}
	w := newCanonizer(raw)
	defer w.done()
	w.out = rewriteJSON(w.out, raw, func(dst, quoted []byte) []byte {
		return w.appendSpelt(dst, quoted, true)
	}, func(dst, number []byte) []byte { return append(dst, number...) })
	return w.changed()
}

// isSettled reports whether a valid JSON value certainly needs no change: it has no space, and
// all its strings are settled.
func isSettled(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case isSpace(c):
			return false
		case c == '"':
			if i = settled(raw, i) - 1; i < 0 {
				return false
			}
		}
	}
	return true
}

// rewriteJSON appends a valid JSON value without space. Strings, keys included, are appended
// by str, numbers by number.
func rewriteJSON(out, raw []byte, str, number func(dst, written []byte) []byte) []byte {
	for i := 0; i < len(raw); {
		end := i + 1
		switch c := raw[i]; {
		case c == '"':
			end = stringEnd(raw, i)
			out = str(out, raw[i:end])
		case numberChar(c):
			for end < len(raw) && numberChar(raw[end]) {
				end++
			}
			out = number(out, raw[i:end])
		case !isSpace(c):
			out = append(out, c)
		}
		i = end
	}
	return out
}
