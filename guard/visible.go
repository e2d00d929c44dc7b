package guard

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clip cuts a text, between characters, after at most most bytes, and then appends "…".
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:max(most, 0)], "") + "…"
}

// Cut is [Clip] with the "…" among the most bytes.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return Clip(text, most-len("…"))
}

// maxPanic bounds the text of a panic, and maxStack its stack, in bytes.
const (
	maxPanic = 1 << 10
	maxStack = 8 << 10
)

// Panic is a panic as an error. Stack is its stack trace, for the log only.
type Panic struct{ Text, Stack string }

func (p *Panic) Error() string { return "panic: " + p.Text }

// Contain runs f and returns a panic of it as a [*Panic], so that no tool, layer or adapter can
// end the process.
func Contain[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &Panic{Cut(fmt.Sprint(p), maxPanic), Cut(string(debug.Stack()), maxStack)}
		}
	}()
	return f()
}

// Stack returns the stack trace of an error that is a [Panic], for the log and on lines of its own; otherwise "".
func Stack(err error) string {
	var p *Panic
	if errors.As(err, &p) {
		return "\n" + p.Stack
	}
	return ""
}

// Visible shows a person the true content of a text, for terminals, approvals and
// explain. Every character that acts without being visible is
// written as "[U+XXXX]": escape and other control characters (except newline and
// tab; a carriage return would overwrite a line), invalid bytes as
// "[0xXX]", line and paragraph separators, characters that reorder text (marks
// included), Unicode tags, format characters such as zero-width space and soft hyphen,
// blank fillers, private use and unassigned code points, and
// spaces other than the usual one.
//
// Joiners and variation selectors are kept where writing needs them: after an emoji or
// symbol, and between letters of scripts that join. Visible text is returned
// unchanged, without allocation. The result contains no control character except newline
// and tab, so nothing in it can control a terminal.
func Visible(s string) string {
	return ReplaceHidden(s, func(hidden string) string {
		r, size := utf8.DecodeRuneInString(hidden)
		if r == utf8.RuneError && size == 1 {
			return fmt.Sprintf("[0x%02X]", hidden[0])
		}
		return string(appendShown(nil, r))
	})
}

// ReplaceHidden replaces each character and invalid byte that [Visible] writes as a number. A text without them
// is returned unchanged, without allocation.
func ReplaceHidden(s string, with func(hidden string) string) string {
	var out []byte
	from := 0 // s[:from] is in out
	prev := rune(0)
	for i := 0; i < len(s); {
		if j := skipPrintable(s, i); j > i {
			i, prev = j, rune(s[j-1])
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		bad := r == utf8.RuneError && size <= 1
		if !bad && (!hidden(r) || joins(prev, r)) {
			prev = r
			i += size
			continue
		}
		out = append(append(out, s[from:i]...), with(s[i:i+size])...)
		i += size
		from, prev = i, 0
	}
	if out == nil {
		return s
	}
	return string(append(out, s[from:]...))
}

// hidden reports whether a rune is invisible, or changes its neighbours.
func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20 || r >= 0x7F && r <= 0x9F:
		return true
	case r < 0xA0:
		return false
	case r >= 0xFE00 && r <= 0xFE0F, // variation selectors
		r >= 0x180B && r <= 0x180F,
		r == 0x034F,              // combining grapheme joiner
		r == 0x115F, r == 0x1160, // Hangul fillers
		r == 0x3164, r == 0xFFA0, //
		r == 0x17B4, r == 0x17B5, // Khmer vowels that are not displayed
		r == 0x2800,                  // the braille pattern without dots
		r >= 0xE0000 && r <= 0xE0FFF: // tags and other default-ignorable characters
		return true
	case r == 0x3000: // the full-width space of Chinese and Japanese text
		return false
	}
	return unicode.In(r, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp, unicode.Zs) ||
		!unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S)
}

// joins reports whether r is a joiner or selector with a meaning after the character
// before it.
func joins(prev, r rune) bool {
	switch r {
	case 0x200D:
		return pictograph(prev) || joiningScript(prev)
	case 0x200C:
		return joiningScript(prev)
	case 0xFE0E, 0xFE0F:
		return pictograph(prev) || prev == '#' || prev == '*' || prev >= '0' && prev <= '9'
	}
	return false
}

func pictograph(r rune) bool {
	return r == 0xFE0F || r > 0x7F && unicode.In(r, unicode.So, unicode.Sk, unicode.Sm) || r == 0x203C || r == 0x2049
}

func joiningScript(r rune) bool {
	return r > 0x7F && unicode.In(r, unicode.Arabic, unicode.Syriac, unicode.Mongolian, unicode.Nko,
		unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati, unicode.Oriya,
		unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala,
		unicode.Khmer, unicode.Myanmar, unicode.Tibetan)
}
