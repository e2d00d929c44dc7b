package guard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is read strictly.
const (
	MaxArgumentsBytes = 1 << 20 // the text of a call's arguments
	MaxArgumentsDepth = 64      // objects and arrays inside each other
)

// ArgumentError says what is wrong with a JSON text, and where. Its text is made
// for a model: short, and without the beginning "invalid_arguments:".
type ArgumentError struct {
	Offset  int    // bytes from the start of the text
	Pointer string // JSON Pointer (RFC 6901) of the value that holds the fault; "" = the whole text
	What    string // what is wrong, and what was expected
}

// maxPointerBytes bounds the pointer in an error's text; its end says most.
const maxPointerBytes = 160

// Error returns "WHAT (at POINTER, byte N)", at most about half a KiB.
func (e *ArgumentError) Error() string {
	if e.Pointer == "" {
		return fmt.Sprintf("%s (byte %d)", e.What, e.Offset)
	}
	p := e.Pointer
	if len(p) > maxPointerBytes {
		p = "…" + strings.ToValidUTF8(p[len(p)-maxPointerBytes:], "")
	}
	return fmt.Sprintf("%s (at %s, byte %d)", e.What, p, e.Offset)
}

// under puts a key or index before the pointer, on the way out of a container.
func (e *ArgumentError) under(token string) *ArgumentError {
	token = shorten(token)
	token = strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
	e.Pointer = "/" + token + e.Pointer
	return e
}

// maxNameBytes bounds a key that is named in an error.
const maxNameBytes = 64

// shorten makes a key fit to be shown.
func shorten(key string) string {
	if len(key) > maxNameBytes {
		key = strings.ToValidUTF8(key[:maxNameBytes], "") + "…"
	}
	return Visible(key)
}

func quoteShort(key []byte) string { return strconv.Quote(shorten(string(key))) }

// Arguments reads the arguments of a tool call strictly, once (contract §11), and
// returns their canonical form: what is validated, shown, hashed, journaled and
// executed. Text that is empty or only space is {} (N13).
//
// The text must be exactly one JSON object in valid UTF-8, \u escapes included, of at most
// [MaxArgumentsBytes] and [MaxArgumentsDepth], in which no object has the same key
// twice or two keys that differ only in letter case (Unicode simple folding): such
// texts mean different things to different readers.
//
// Canonical means: no space, keys sorted by their bytes, strings in the one
// spelling of this package but for what [EscapeJSON] escapes, so that they are shown as
// they are digested, integers of up to 18 digits as their digits (1.0 and 1e0
// are 1). Other numbers stay as they are written: going through a float would
// change large IDs and amounts, and what is shown must be what runs. They have at most 256 bytes and an exponent of at most 999.
//
// A text that is canonical already is returned itself, not copied: do not change
// it afterwards. The error is an [*ArgumentError].
func Arguments(raw []byte) (json.RawMessage, error) {
	if len(raw) <= MaxArgumentsBytes { // else Canonical says so
		start := len(raw) - len(bytes.TrimLeft(raw, " \t\r\n"))
		if start == len(raw) {
			return json.RawMessage("{}"), nil
		}
		if raw[start] != '{' {
			return nil, &ArgumentError{Offset: start, What: "expected one JSON object, found " + kindOf(raw[start:])}
		}
	}
	canonical, err := JSONLimits{MaxBytes: MaxArgumentsBytes, MaxDepth: MaxArgumentsDepth}.Canonical(raw)
	return EscapeJSON(canonical), err
}

// kindOf says what a text that begins with no brace really is.
func kindOf(raw []byte) string {
	switch c := raw[0]; {
	case c == '[':
		return brokenOr(raw, "an array")
	case c == '"':
		return brokenOr(raw, "a string")
	case c == '-' || c >= '0' && c <= '9':
		return brokenOr(raw, "a number")
	case c == '\'':
		return "no JSON but a text in single quotes"
	}
	word := wordOf(raw)
	switch string(word) {
	case "":
		return "no JSON"
	case "null":
		return brokenOr(raw, "null")
	case "true", "false":
		return brokenOr(raw, "true or false")
	}
	return "no JSON but an unquoted word"
}

// brokenOr names the kind of value that a text begins as, and what is wrong with it.
func brokenOr(raw []byte, kind string) string {
	s := scanner{raw: raw, maxDepth: maxScanDepth}
	err := s.value(1)
	switch {
	case err != nil:
		return kind + " that cannot be read: " + err.What
	case len(bytes.TrimLeft(raw[s.pos:], " \t\r\n")) > 0:
		return kind + " with more after it"
	}
	return kind
}

// wordOf returns the letters and digits that a text begins with.
func wordOf(raw []byte) []byte {
	end := bytes.IndexFunc(raw, func(r rune) bool {
		return r == utf8.RuneError || r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	if end < 0 {
		end = len(raw)
	}
	return raw[:end]
}

// Canonical does for any JSON value what [Arguments] does for an object, under the
// same bounds. Empty text is an error here.
func Canonical(raw []byte) (json.RawMessage, error) { return JSONLimits{}.Canonical(raw) }

// JSONLimits bound a strictly read JSON text. A field that is not positive means
// its default: [MaxArgumentsBytes], [MaxArgumentsDepth].
type JSONLimits struct {
	MaxBytes int
	MaxDepth int // at most 1000
}

// maxScanDepth bounds nesting wherever this package reads JSON: each level costs
// stack.
const maxScanDepth = 1000

// Canonical is [Canonical] with other limits.
func (l JSONLimits) Canonical(raw []byte) (json.RawMessage, error) {
	if l.MaxBytes <= 0 {
		l.MaxBytes = MaxArgumentsBytes
	}
	if l.MaxDepth <= 0 {
		l.MaxDepth = MaxArgumentsDepth
	}
	if len(raw) > l.MaxBytes {
		return nil, &ArgumentError{Offset: l.MaxBytes, What: fmt.Sprintf("longer than %d bytes", l.MaxBytes)}
	}
	s := scanner{raw: raw, strict: true, maxDepth: min(l.MaxDepth, maxScanDepth)}
	from, to, err := s.document()
	if err != nil {
		return nil, err
	}
	if !s.respell {
		return raw[from:to:to], nil
	}
	w := canonizer{raw: raw, pos: from, out: make([]byte, 0, to-from)}
	w.value()
	return w.out, nil
}

// canonizer writes the canonical form of a text that the scanner has passed.
type canonizer struct {
	raw     []byte
	pos     int
	out     []byte
	members []member
	spare   []byte
}

// member is one member of an object, as written to out.
type member struct {
	key      []byte // decoded
	from, to int
}

// token returns the next byte that is not space.
func (w *canonizer) token() byte {
	for {
		switch c := w.raw[w.pos]; c {
		case ' ', '\t', '\n', '\r':
			w.pos++
		default:
			return c
		}
	}
}

func (w *canonizer) value() {
	switch w.token() {
	case '{':
		w.object()
	case '[':
		w.array()
	case '"':
		w.str()
	default:
		from := w.pos
		for w.pos < len(w.raw) && strings.IndexByte(",]} \t\r\n", w.raw[w.pos]) < 0 {
			w.pos++
		}
		w.out = appendNumber(w.out, w.raw[from:w.pos]) // or a literal, which is plain
	}
}

func (w *canonizer) array() {
	w.out = append(w.out, '[')
	w.pos++
	for w.token() != ']' {
		if w.token() == ',' {
			w.out = append(w.out, ',')
			w.pos++
		}
		w.value()
	}
	w.out = append(w.out, ']')
	w.pos++
}

// object writes the members as they come and puts them in order at the end.
func (w *canonizer) object() {
	base := len(w.members)
	w.out = append(w.out, '{')
	body := len(w.out)
	w.pos++
	for w.token() != '}' {
		if w.token() == ',' {
			w.pos++
			w.token()
		}
		m := member{from: len(w.out)}
		m.key = w.str()
		w.token()
		w.pos++ // the colon
		w.out = append(w.out, ':')
		w.value()
		m.to = len(w.out)
		w.members = append(w.members, m)
		w.out = append(w.out, ',')
	}
	w.pos++
	members := w.members[base:]
	if len(members) > 0 {
		if byKey := func(a, b member) int { return bytes.Compare(a.key, b.key) }; !slices.IsSortedFunc(members, byKey) {
			slices.SortFunc(members, byKey)
			w.reorder(body, members)
		}
		w.out = w.out[:len(w.out)-1] // the last comma
	}
	w.members = w.members[:base]
	w.out = append(w.out, '}')
}

// reorder rewrites out[body:] with the members in the order given, each followed
// by a comma.
func (w *canonizer) reorder(body int, members []member) {
	w.spare = append(w.spare[:0], w.out[body:]...)
	w.out = w.out[:body]
	for _, m := range members {
		w.out = append(w.out, w.spare[m.from-body:m.to-body]...)
		w.out = append(w.out, ',')
	}
}

// str writes a string and returns what it means.
func (w *canonizer) str() []byte {
	from := w.pos + 1
	to := stringEnd(w.raw, w.pos) - 1
	w.out = append(w.out, '"')
	w.out = appendRespelt(w.out, w.raw[from:to])
	w.out = append(w.out, '"')
	w.pos = to + 1
	if bytes.IndexByte(w.raw[from:to], '\\') < 0 {
		return w.raw[from:to]
	}
	return appendDecoded(nil, w.raw[from:to])
}
