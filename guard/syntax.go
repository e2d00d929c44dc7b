package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	strictText = []jsontext.Options{jsontext.AllowDuplicateNames(true)} // the canonizer finds them
	anyText    = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
)

// syntax checks the one JSON value (RFC 8259) at the beginning of raw, and returns where it
// ends. In a strict text all strings are valid UTF-8, \u escapes included.
func syntax(raw []byte, options []jsontext.Options) (end int, fault *ArgumentError) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), options...)
	if err := dec.SkipValue(); err != nil {
		return 0, faultOf(err, raw)
	}
	return int(dec.InputOffset()), nil
}

func faultOf(err error, raw []byte) *ArgumentError {
	e := &ArgumentError{Offset: len(raw), What: "the text ends too early"}
	var at *jsontext.SyntacticError
	if errors.As(err, &at) {
		for token := range at.JSONPointer.Tokens() {
			e.Pointer += pointerToken(token)
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			e.Offset, e.What = int(at.ByteOffset), Visible(at.Err.Error())
			if bytes.HasPrefix(raw[e.Offset:], []byte("'")) {
				e.What += "; keys and texts need double quotes"
			}
		}
	}
	return e
}

// document checks that raw is one JSON value, with nothing but space around it.
func document(raw []byte, options []jsontext.Options) *ArgumentError {
	if jsontext.Value(raw).IsValid(options...) {
		return nil
	}
	end, fault := syntax(raw, options) // for the error
	if fault != nil {
		return fault
	}
	end += spaces(raw[end:])
	next, _ := utf8.DecodeRune(raw[end:])
	return fail(end, "nothing may follow the value, found %+q", next)
}

// spaces returns the number of bytes of space at the beginning of a text.
func spaces(raw []byte) (n int) {
	for n < len(raw) && isSpace(raw[n]) {
		n++
	}
	return n
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// depthOf returns how deep the objects and arrays of a valid JSON value are nested.
func depthOf(raw []byte) (deepest int) {
	depth := 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			i = stringEnd(raw, i) - 1
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
	}
	return deepest
}

// appendDecoded appends the text of a valid JSON string. Invalid UTF-8 becomes U+FFFD; that
// is the only error that AppendUnquote can return here.
func appendDecoded(dst, quoted []byte) []byte {
	dst, _ = jsontext.AppendUnquote(dst, quoted)
	return dst
}

// stringEnd returns the position after the JSON string at i.
func stringEnd(raw []byte, i int) int {
	for i = skipPlain(raw, i+1); i < len(raw); i++ {
		switch raw[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(raw)
}

// settled returns the position after the valid JSON string at i if it is escaped as this
// package does and contains only printable ASCII, tabs and line breaks, as most strings do;
// otherwise -1.
func settled(raw []byte, i int) int {
	for i = skipPlain(raw, i+1); raw[i] != '"'; i = skipPlain(raw, i+2) {
		if raw[i] != '\\' || strings.IndexByte(`"\nrt`, raw[i+1]) < 0 {
			return -1
		}
	}
	return i + 1
}

// hexDigits decodes the n hexadecimal digits at i.
func hexDigits(raw []byte, i, n int) (rune, bool) {
	if i+n > len(raw) {
		return 0, false
	}
	r, err := strconv.ParseUint(string(raw[i:i+n]), 16, 32)
	return rune(r), err == nil
}

// maxInteger is the largest integer that is rewritten: any of at most 18 digits fits an
// int64.
var maxInteger = big.NewInt(1e18 - 1)

// appendNumber writes a number in canonical form: an integer of at most 18 digits as its
// digits (JSON Schema 2020-12 calls 1.0 an integer, and decoders must agree), any other
// number, and a literal, as written.
func appendNumber(dst, lexeme []byte) []byte {
	if !bytes.ContainsAny(lexeme, ".eE") && string(lexeme) != "-0" {
		return append(dst, lexeme...)
	}
	// Others are excluded by their approximate value: computing 1e-999 exactly would take long.
	near, err := strconv.ParseFloat(string(lexeme), 64)
	switch {
	case err != nil, near != math.Trunc(near), math.Abs(near) > 1e18:
		return append(dst, lexeme...)
	case near == 0:
		if rest := bytes.TrimLeft(lexeme, "-0."); len(rest) == 0 || rest[0]|0x20 == 'e' {
			return append(dst, '0')
		}
		return append(dst, lexeme...)
	}
	if n, ok := new(big.Rat).SetString(string(lexeme)); ok && n.IsInt() && n.Num().CmpAbs(maxInteger) <= 0 {
		return n.Num().Append(dst, 10)
	}
	return append(dst, lexeme...)
}

// EncodeJSON returns a value as JSON without characters that a terminal would interpret, with a line break at its
// end: indented for people, or on one line.
func EncodeJSON(v any, indent bool) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return EscapeJSON(b.Bytes()), nil
}

// EscapeJSON returns a JSON text in which every character that a terminal would interpret,
// or that carries invisible text, is written as a \u escape: DEL, the C1 controls,
// characters that change the direction of text, Unicode tags and the variation selectors
// U+E0100–E01EF. Its value is the same. The text itself is returned if it has none.
func EscapeJSON(raw []byte) []byte {
	i := nextActing(raw, 0)
	if i == len(raw) {
		return raw
	}
	out := make([]byte, 0, len(raw)+64)
	done := 0
	for ; i < len(raw); i = nextActing(raw, done) {
		r, size := utf8.DecodeRune(raw[i:])
		out = append(out, raw[done:i]...)
		out = appendUnicodeEscape(out, r)
		done = i + size
	}
	return append(out, raw[done:]...)
}

// nextActing returns the position of the next character from i on that EscapeJSON escapes,
// or len(raw).
func nextActing(raw []byte, i int) int {
	for i < len(raw) {
		if i = skipPrintable(raw, i); i == len(raw) {
			break
		}
		if raw[i] < 0x7F {
			i++
			continue
		}
		r, size := utf8.DecodeRune(raw[i:])
		switch {
		case r >= 0x7F && r <= 0x9F, r == 0x061C, r == 0x200E, r == 0x200F, r >= 0x202A && r <= 0x202E,
			r >= 0x2066 && r <= 0x2069, r >= 0xE0000 && r <= 0xE007F, r >= 0xE0100 && r <= 0xE01EF:
			return i
		}
		i += size
	}
	return len(raw)
}
