package guard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Bounds of strictly read arguments.
const (
	MaxArgumentsBytes = 1 << 20 // bytes of a call's arguments
	MaxArgumentsDepth = 64      // nested objects and arrays
)

// ArgumentError is an error in a JSON text. Its message is made
// for a model: short, and without the prefix "invalid_arguments:".
type ArgumentError struct {
	Offset  int    // in bytes from the start of the text
	Pointer string // JSON Pointer (RFC 6901) of the value with the error; "" for the whole text
	What    string // the error, and the expected input
}

// maxPointerBytes bounds the pointer in an error's text; its end is kept.
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

// under prepends a key or index to the pointer.
func (e *ArgumentError) under(token string) *ArgumentError {
	e.Pointer = pointerToken(token) + e.Pointer
	return e
}

func pointerToken(token string) string {
	return "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(shorten(token))
}

const maxNameBytes = 64

// shorten makes a key fit to be shown.
func shorten(key string) string { return Visible(Clip(key, maxNameBytes)) }

func quoteShort(key []byte) string { return strconv.Quote(shorten(string(key))) }

// Arguments reads the arguments of a tool call strictly, and returns their canonical
// form, which is validated, shown, hashed, journaled and executed. Text that is empty or
// only space is read as {}.
//
// The text must be exactly one JSON object in valid UTF-8, \u escapes included, of at most
// [MaxArgumentsBytes] and [MaxArgumentsDepth]. No object may have the same key twice or two
// keys that differ only in letter case (Unicode simple folding), because readers disagree
// about the meaning of such texts.
//
// Canonical means: no space, keys sorted by their bytes, strings escaped as this package
// does and as [EscapeJSON] does, so that they are shown as they are digested, integers of
// up to 18 digits as their digits (1.0 and 1e0 are 1). Other numbers are kept as written,
// because a float would change large IDs and amounts. They have at most 256 bytes and an
// exponent of at most 999.
//
// A text that is already canonical is returned itself, not copied: do not change
// it afterwards. The error is an [*ArgumentError].
func Arguments(raw []byte) (json.RawMessage, error) {
	canonical, _, err := arguments(raw, false)
	return canonical, err
}

// ReadArguments is [Arguments] that also returns the value, decoded as encoding/json
// decodes into an any, but with numbers as [json.Number].
func ReadArguments(raw []byte) (canonical json.RawMessage, value any, err error) {
	return arguments(raw, true)
}

func arguments(raw []byte, keep bool) (json.RawMessage, any, error) {
	if len(raw) <= MaxArgumentsBytes { // else read returns the error
		start := spaces(raw)
		if start == len(raw) {
			return json.RawMessage("{}"), map[string]any{}, nil
		}
		if raw[start] != '{' {
			return nil, nil, &ArgumentError{Offset: start, What: "expected one JSON object, found " + kindOf(raw[start:])}
		}
	}
	canonical, value, err := JSONLimits{}.read(raw, keep)
	return EscapeJSON(canonical), value, err
}

// kindOf describes a text that does not begin with a brace, and why it is not an object.
func kindOf(raw []byte) string {
	word := string(wordOf(raw))
	kind := map[string]string{"null": "null", "true": "true or false", "false": "true or false"}[word]
	switch c := raw[0]; {
	case c == '[':
		kind = "an array"
	case c == '"':
		kind = "a string"
	case c == '-' || c >= '0' && c <= '9':
		kind = "a number"
	case c == '\'':
		return "no JSON but a text in single quotes"
	case word == "":
		return "no JSON"
	case kind == "":
		return "an unquoted word, which is not JSON"
	}
	end, fault := syntax(raw, anyText)
	switch {
	case fault != nil:
		return kind + " that cannot be read: " + fault.What
	case end+spaces(raw[end:]) < len(raw):
		return kind + " with more after it"
	}
	return kind
}

// wordOf returns the letters and digits at the beginning of a text.
func wordOf(raw []byte) []byte {
	rest := bytes.TrimLeftFunc(raw, func(r rune) bool {
		return r != utf8.RuneError && (r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r))
	})
	return raw[:len(raw)-len(rest)]
}

// Canonical is [Arguments] for any JSON value, with the same bounds. Empty text is an error.
func Canonical(raw []byte) (json.RawMessage, error) { return JSONLimits{}.Canonical(raw) }

// JSONLimits bound a strictly read JSON text. The defaults are [MaxArgumentsBytes] and [MaxArgumentsDepth].
type JSONLimits struct {
	MaxBytes int
	MaxDepth int  // at most 1000
	Floats   bool // numbers of values are float64, and larger ones are an error
}

// maxScanDepth bounds nesting in all JSON that is read here: each level needs stack.
const maxScanDepth = 1000

// Canonical is [Canonical] with other limits.
func (l JSONLimits) Canonical(raw []byte) (json.RawMessage, error) {
	canonical, _, err := l.read(raw, false)
	return canonical, err
}

// Value returns the value of [ReadArguments] for any JSON value, under these limits.
func (l JSONLimits) Value(raw []byte) (any, error) {
	_, value, err := l.read(raw, true)
	return value, err
}

// Read returns the canonical form and the value of one reading.
func (l JSONLimits) Read(raw []byte) (canonical json.RawMessage, value any, err error) {
	return l.read(raw, true)
}

func (l JSONLimits) read(raw []byte, keep bool) (json.RawMessage, any, error) {
	l.MaxBytes = cmp.Or(max(l.MaxBytes, 0), MaxArgumentsBytes)
	l.MaxDepth = cmp.Or(max(l.MaxDepth, 0), MaxArgumentsDepth)
	if len(raw) > l.MaxBytes {
		return nil, nil, &ArgumentError{Offset: l.MaxBytes, What: fmt.Sprintf("longer than %d bytes", l.MaxBytes)}
	}
	if fault := document(raw, strictText); fault != nil {
		return nil, nil, fault
	}
	w := newCanonizer(raw)
	defer w.done()
	w.maxDepth, w.keep, w.floats = min(l.MaxDepth, maxScanDepth), keep, l.Floats
	value, fault := w.value(1)
	if fault != nil {
		return nil, nil, fault
	}
	return w.changed(), value, nil
}

var canonizers = sync.Pool{New: func() any { return new(canonizer) }}

// newCanonizer returns a canonizer with the buffers of an earlier one.
func newCanonizer(value []byte) *canonizer {
	w := canonizers.Get().(*canonizer)
	*w = canonizer{
		raw: value, out: slices.Grow(w.out[:0], len(value)), members: w.members[:0], scratch: w.scratch[:0],
	}
	return w
}

func (w *canonizer) done() {
	if w.raw = nil; cap(w.out)+cap(w.scratch) <= maxKept {
		canonizers.Put(w)
	}
}

// changed returns a copy of the output, or the value itself if they are equal.
func (w *canonizer) changed() []byte {
	if bytes.Equal(w.out, w.raw) {
		return w.raw
	}
	return bytes.Clone(w.out)
}

// maxKept is the most bytes of buffers that are kept for another text.
const maxKept = 128 << 10

// Bounds of numbers in strict texts. A validator computes with exact numbers, and
// the value of 1e999999 would exhaust memory.
const (
	maxNumberBytes = 256
	maxExponent    = 999
)

// manyKeys is the number of keys of an object from which on collisions are looked up in a
// map instead of compared pair by pair.
const manyKeys = 16

// canonizer writes the canonical form of a value that is valid JSON, and finds violations of
// the stricter rules: nesting that is too deep, numbers that are too large, and keys that
// collide.
type canonizer struct {
	raw      []byte
	pos      int
	maxDepth int
	keep     bool // also return the decoded values
	floats   bool // with numbers as float64
	out      []byte
	members  []member // stack of the members of open objects
	scratch  []byte   // the last string, decoded, or the object that is being sorted
}

type member struct {
	key      []byte // decoded
	from, to int
}

func fail(at int, format string, args ...any) *ArgumentError {
	return &ArgumentError{Offset: at, What: fmt.Sprintf(format, args...)}
}

// token skips space and returns the next byte without consuming it.
func (w *canonizer) token() byte {
	for isSpace(w.raw[w.pos]) {
		w.pos++
	}
	return w.raw[w.pos]
}

// value writes a value, and returns it decoded if keep is set.
func (w *canonizer) value(depth int) (any, *ArgumentError) {
	c := w.token()
	if (c == '{' || c == '[') && depth > w.maxDepth {
		return nil, fail(w.pos, "nested deeper than %d levels", w.maxDepth)
	}
	switch c {
	case '{':
		return w.object(depth)
	case '[':
		return w.array(depth)
	case '"':
		if w.keep {
			return string(w.text()), nil
		}
		w.quoted()
		return nil, nil
	}
	from := w.pos
	digits := true
	for ; w.pos < len(w.raw); w.pos++ {
		if c := w.raw[w.pos]; c == ',' || c == ']' || c == '}' || isSpace(c) {
			break
		} else if c < '0' || c > '9' {
			digits = false
		}
	}
	lexeme := w.raw[from:w.pos]
	at := len(w.out)
	switch {
	case c >= 'a': // true, false, null
		w.out = append(w.out, lexeme...)
		if c == 'n' {
			return nil, nil
		}
		return c == 't', nil
	case digits && len(lexeme) <= maxNumberBytes:
		w.out = append(w.out, lexeme...)
	default:
		if fault := tooLarge(lexeme); fault != "" {
			return nil, fail(from, "%s", fault)
		}
		w.out = appendNumber(w.out, lexeme)
	}
	if !w.keep {
		return nil, nil
	}
	number := json.Number(w.out[at:])
	if !w.floats {
		return number, nil
	}
	f, err := number.Float64()
	if err != nil {
		return nil, fail(from, "number beyond the range of a float64")
	}
	return f, nil
}

// tooLarge says which bound a number exceeds, or returns "".
func tooLarge(number []byte) string {
	if len(number) > maxNumberBytes {
		return fmt.Sprintf("number longer than %d bytes", maxNumberBytes)
	}
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		if n, err := strconv.Atoi(string(number[i+1:])); err != nil || n > maxExponent || n < -maxExponent {
			return fmt.Sprintf("number with an exponent beyond %d", maxExponent)
		}
	}
	return ""
}

func (w *canonizer) array(depth int) (any, *ArgumentError) {
	items := []any{}
	w.out = append(w.out, '[')
	w.pos++
	for i := 0; w.token() != ']'; i++ {
		if i > 0 {
			w.out = append(w.out, ',')
			w.pos++
		}
		item, fault := w.value(depth + 1)
		if fault != nil {
			return nil, fault.under(strconv.Itoa(i))
		}
		if w.keep {
			items = append(items, item)
		}
	}
	w.out = append(w.out, ']')
	w.pos++
	if !w.keep {
		return nil, nil
	}
	return items, nil
}

// object writes the members in their order and sorts them at the end.
func (w *canonizer) object(depth int) (any, *ArgumentError) {
	var kept map[string]any
	if w.keep {
		kept = make(map[string]any)
	}
	base := len(w.members)
	w.out = append(w.out, '{')
	body := len(w.out)
	w.pos++
	var seen map[string][]byte
	for w.token() != '}' {
		if len(w.members) > base {
			w.pos++ // the comma
			w.token()
		}
		at := w.pos
		m := member{from: len(w.out)}
		m.key = w.text()
		if fault := collision(w.members[base:], m.key, &seen); fault != "" {
			return nil, fail(at, "%s", fault)
		}
		w.token()
		w.pos++ // the colon
		w.out = append(w.out, ':')
		w.members = append(w.members, m)
		member, fault := w.value(depth + 1)
		if fault != nil {
			return nil, fault.under(string(m.key))
		}
		if w.keep {
			kept[string(m.key)] = member
		}
		w.members[len(w.members)-1].to = len(w.out)
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
	return kept, nil
}

// reorder rewrites out[body:] with the members in the given order, each followed
// by a comma.
func (w *canonizer) reorder(body int, members []member) {
	w.scratch = append(w.scratch[:0], w.out[body:]...)
	w.out = w.out[:body]
	for _, m := range members {
		w.out = append(w.out, w.scratch[m.from-body:m.to-body]...)
		w.out = append(w.out, ',')
	}
}

// quoted writes a string and returns it as it was read.
func (w *canonizer) quoted() []byte {
	from := w.pos
	if w.pos = settled(w.raw, from); w.pos > 0 {
		w.out = append(w.out, w.raw[from:w.pos]...)
		return w.raw[from:w.pos]
	}
	w.pos = stringEnd(w.raw, from)
	w.out = w.appendSpelt(w.out, w.raw[from:w.pos], false)
	return w.raw[from:w.pos]
}

// appendSpelt appends a valid JSON string as this package escapes it, cleaned if clean is set.
func (w *canonizer) appendSpelt(dst, quoted []byte, clean bool) []byte {
	if settled(quoted, 0) == len(quoted) {
		return append(dst, quoted...)
	}
	w.scratch = appendDecoded(w.scratch[:0], quoted)
	if clean {
		if _, ok := firstDirty(w.scratch); !ok {
			return appendQuoted(dst, Clean(string(w.scratch)))
		}
	}
	return appendQuoted(dst, w.scratch)
}

// text writes a string and returns it decoded.
func (w *canonizer) text() []byte {
	quoted := w.quoted()
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	return appendDecoded(nil, quoted)
}

// collision says which of the members before it has the same key, ignoring letter case,
// or returns "". For a large object, seen has the folded keys.
func collision(before []member, key []byte, seen *map[string][]byte) string {
	if len(before) < manyKeys {
		for i := range before {
			if bytes.EqualFold(before[i].key, key) {
				return collide(before[i].key, key)
			}
		}
		return ""
	}
	if *seen == nil {
		*seen = make(map[string][]byte, 2*manyKeys)
		for i := range before {
			(*seen)[fold(before[i].key)] = before[i].key
		}
	}
	folded := fold(key)
	if other, ok := (*seen)[folded]; ok {
		return collide(other, key)
	}
	(*seen)[folded] = key
	return ""
}

func collide(a, b []byte) string {
	if bytes.Equal(a, b) {
		return "duplicate key " + quoteShort(b)
	}
	return fmt.Sprintf("keys %s and %s differ only in letter case", quoteShort(a), quoteShort(b))
}

// fold maps texts that are equal under [bytes.EqualFold] to the same string: each rune
// becomes the smallest of its orbit under Unicode simple folding.
func fold(text []byte) string {
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		i += size
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		b.WriteRune(least)
	}
	return b.String()
}
