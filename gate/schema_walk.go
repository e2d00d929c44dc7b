package gate

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib/guard"
)

// surely tells whether a JSON text is surely valid, in one pass over its bytes;
// false = ask the library. It takes canonical texts, and gives no answer on those
// with space, keys out of order or rare spellings. A nil schema has no answer.
func (p *plain) surely(text []byte) bool {
	w := walker{text: text}
	return p != nil && w.value(p, 0) && w.pos == len(text)
}

// walker is the pass over a text. Its methods take what the schema says about the
// value at hand (nil = nothing), go past the value, and tell whether it is valid.
type walker struct {
	text []byte
	pos  int
	work int // counted as the library's validation does
}

// peek is the next byte; 0 at the end.
func (w *walker) peek() byte {
	if w.pos < len(w.text) {
		return w.text[w.pos]
	}
	return 0
}

// take goes past the next byte if it is c.
func (w *walker) take(c byte) bool {
	if w.peek() != c {
		return false
	}
	w.pos++
	return true
}

func (w *walker) value(p *plain, depth int) bool {
	if depth > guard.MaxArgumentsDepth {
		return false
	}
	switch w.peek() {
	case '{':
		return w.object(p, depth)
	case '[':
		return w.array(p, depth)
	case '"':
		return w.str(p)
	case 'n':
		return w.word("null", p, plainNull)
	case 't':
		return w.word("true", p, plainBoolean)
	case 'f':
		return w.word("false", p, plainBoolean)
	}
	return w.number(p)
}

// cost counts the look at a value.
func (w *walker) cost(p *plain, members int) bool {
	if p != nil {
		w.work += 1 + members
	}
	return w.work <= maxSchemaWork
}

// is tells whether values of this type, which are no text, may stand here.
func (p *plain) is(t plainTypes) bool {
	return p == nil || p.texts == nil && (p.types == 0 || p.types&t != 0)
}

func (w *walker) word(word string, p *plain, t plainTypes) bool {
	if !bytes.HasPrefix(w.text[w.pos:], []byte(word)) {
		return false
	}
	w.pos += len(word)
	return p.is(t) && w.cost(p, 0)
}

// number takes any number where all may stand, else whole ones of few digits.
func (w *walker) number(p *plain) bool {
	start := w.pos
	w.take('-')
	if !w.take('0') && !w.digits() {
		return false
	}
	whole := true
	if w.take('.') {
		if whole = false; !w.digits() {
			return false
		}
	}
	if c := w.peek(); c == 'e' || c == 'E' {
		w.pos++
		if c := w.peek(); c == '+' || c == '-' {
			w.pos++
		}
		if whole = false; !w.digits() {
			return false
		}
	}
	if !w.cost(p, 0) {
		return false
	}
	if p.is(plainNumber) && (p == nil || !p.bounded) {
		return true
	}
	raw := w.text[start:w.pos]
	if !whole || len(raw) > plainDigits || !p.is(plainNumber) && !p.is(plainInteger) {
		return false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return err == nil && n >= p.least && n <= p.most
}

// digits goes past one digit or more.
func (w *walker) digits() bool {
	start := w.pos
	for c := w.peek(); c >= '0' && c <= '9'; c = w.peek() {
		w.pos++
	}
	return w.pos > start
}

func (w *walker) str(p *plain) bool {
	start := w.pos
	characters, escaped, ok := w.chars()
	if !ok || p == nil {
		return ok
	}
	inside := w.text[start+1 : w.pos-1]
	switch {
	case p.types != 0 && p.types&plainString == 0, characters < p.minLength, characters > p.maxLength:
		return false
	case p.texts != nil && (escaped || !slices.Contains(p.texts, string(inside))):
		return false
	}
	return w.cost(p, len(inside)/256)
}

// chars goes past a string and counts its characters.
func (w *walker) chars() (n int, escaped, ok bool) {
	if !w.take('"') {
		return 0, false, false
	}
	for ; ; n++ {
		switch c := w.peek(); {
		case c == '"':
			w.pos++
			return n, escaped, true
		case c == '\\':
			// Halves of characters are rare.
			if escaped = true; w.pos+1 == len(w.text) || bytes.IndexByte([]byte(`"\/bfnrt`), w.text[w.pos+1]) < 0 {
				return n, true, false
			}
			w.pos += 2
		case c < ' ':
			return n, escaped, false
		case c < utf8.RuneSelf:
			w.pos++
		default:
			r, size := utf8.DecodeRune(w.text[w.pos:])
			if r == utf8.RuneError {
				return n, escaped, false
			}
			w.pos += size
		}
	}
}

func (w *walker) array(p *plain, depth int) bool {
	var items *plain
	if p != nil {
		items = p.items
	}
	w.pos++
	n := 0
	for !w.take(']') {
		if n > 0 && !w.take(',') || !w.value(items, depth+1) {
			return false
		}
		n++
	}
	return p.is(plainArray) && (p == nil || n >= p.minItems && n <= p.maxItems) && w.cost(p, n)
}

func (w *walker) object(p *plain, depth int) bool {
	w.pos++
	n, required := 0, 0
	var before []byte
	for !w.take('}') {
		if n > 0 && !w.take(',') {
			return false
		}
		from := w.pos + 1
		_, escaped, ok := w.chars()
		if !ok || escaped || !w.take(':') {
			return false
		}
		// In order, so that no key can be there twice.
		key := w.text[from : w.pos-2]
		if n > 0 && bytes.Compare(before, key) >= 0 {
			return false
		}
		before = key
		n++
		var member *plain
		if p != nil {
			known := false
			if member, known = p.properties[string(key)]; !known && p.closed {
				return false
			}
			if slices.Contains(p.required, string(key)) {
				required++
			}
		}
		if !w.value(member, depth+1) {
			return false
		}
	}
	if p == nil {
		return true
	}
	return p.is(plainObject) && required == len(p.required) && n >= p.minProperties && n <= p.maxProperties && w.cost(p, n)
}
