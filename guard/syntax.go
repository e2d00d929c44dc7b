package guard

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// syntaxReader checks the grammar of JSON texts, one after another.
type syntaxReader struct {
	in  bytes.Buffer
	dec jsontext.Decoder
}

var syntaxReaders = sync.Pool{New: func() any { return new(syntaxReader) }}

var (
	strictText = []jsontext.Options{jsontext.AllowDuplicateNames(true)} // the canonizer looks for them
	anyText    = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
)

// syntax reads the one JSON value (RFC 8259) that raw begins with, and returns where it
// ends. In a strict text all strings are valid UTF-8, \u escapes included.
func syntax(raw []byte, options []jsontext.Options) (end int, fault *ArgumentError) {
	r := syntaxReaders.Get().(*syntaxReader)
	r.in = *bytes.NewBuffer(raw)
	r.dec.Reset(&r.in, options...)
	err := r.dec.SkipValue()
	end = int(r.dec.InputOffset())
	r.in = bytes.Buffer{}
	r.dec.Reset(&r.in)
	syntaxReaders.Put(r)
	if err != nil {
		return 0, faultOf(err, raw)
	}
	return end, nil
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

// document checks that raw is one JSON value, and returns it without the space around it.
func document(raw []byte, options []jsontext.Options) ([]byte, *ArgumentError) {
	end, fault := syntax(raw, options)
	if fault != nil {
		return nil, fault
	}
	if rest := bytes.TrimLeft(raw[end:], jsonSpace); len(rest) > 0 {
		next, _ := utf8.DecodeRune(rest)
		return nil, fail(len(raw)-len(rest), "nothing may follow the value, found %+q", next)
	}
	return bytes.TrimLeft(raw[:end:end], jsonSpace), nil
}

const jsonSpace = " \t\r\n"

// depthOf returns how deep the objects and arrays of a checked value are nested.
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

// appendDecoded appends what a checked JSON string means; what is not valid UTF-8
// becomes U+FFFD, which is all that the error could say.
func appendDecoded(dst, quoted []byte) []byte {
	dst, _ = jsontext.AppendUnquote(dst, quoted)
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
