package wire

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds the nesting of a provider's JSON.
const maxDepth = 256

var errJSON = errors.New("not valid JSON")

// Cursor reads one JSON text and decodes only the requested values, with a
// fraction of the work of encoding/json on the small frames of a stream.
//
// It is not a validator: of a skipped value, only the structure is checked, not the
// grammar of numbers. A truncated text is always an error. After an error every method
// does nothing and returns zero values; Err returns the error.
type Cursor struct {
	data  []byte
	pos   int
	depth int
	first bool // the next element is the first of its array or object
	err   error
}

// NewCursor returns a cursor over data, which must not change while the cursor is used.
func NewCursor(data []byte) Cursor { return Cursor{data: data} }

// Err returns the first error.
func (c *Cursor) Err() error { return c.err }

func (c *Cursor) fail() {
	if c.err == nil {
		c.err = errJSON
		c.data = c.data[:c.pos] // so that nothing more is read
	}
}

// Peek returns the first byte of the next value, or 0 at the end or after an error.
func (c *Cursor) Peek() byte {
	if c.pos < len(c.data) && c.data[c.pos] > ' ' {
		return c.data[c.pos]
	}
	return c.peekAfterSpace()
}

func (c *Cursor) peekAfterSpace() byte {
	for c.pos < len(c.data) {
		switch b := c.data[c.pos]; b {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return b
		}
	}
	return 0
}

// End checks that nothing follows.
func (c *Cursor) End() error {
	if c.Peek(); c.err == nil && c.pos < len(c.data) {
		c.fail()
	}
	return c.err
}

// Enter enters an object ('{') or array ('['). If the next value is
// something else, Enter skips it and returns false: an API may send null
// in place of a container.
func (c *Cursor) Enter(open byte) bool {
	if c.Peek() != open {
		c.Skip()
		return false
	}
	if c.depth++; c.depth > maxDepth {
		c.fail()
		return false
	}
	c.pos++
	c.first = true
	return true
}

// EnterObject enters an object, and moves to its first member as Key does.
func (c *Cursor) EnterObject() (name []byte, ok bool) {
	if !c.Enter('{') {
		return nil, false
	}
	return c.Key()
}

// EnterList enters an array, and moves to its first element as Next does.
func (c *Cursor) EnterList() bool { return c.Enter('[') && c.Next() }

// Key moves to the next member of the current object and returns its
// name; at the end of the object it leaves it and returns false. The name is only
// valid until the next call.
func (c *Cursor) Key() ([]byte, bool) {
	if !c.more('}') {
		return nil, false
	}
	if c.Peek() != '"' {
		c.fail()
		return nil, false
	}
	name := c.unquoted()
	if c.Peek() != ':' {
		c.fail()
		return nil, false
	}
	c.pos++
	return name, true
}

// Next moves to the next element of the current array; at its
// end it leaves it and returns false.
func (c *Cursor) Next() bool { return c.more(']') }

func (c *Cursor) more(end byte) bool {
	b := c.Peek()
	first := c.first
	c.first = false
	switch {
	case b == end:
		c.pos++
		c.depth--
		return false
	case first && b != 0:
		return true
	case b == ',':
		c.pos++
		if c.Peek() == end {
			c.fail()
			return false
		}
		return c.err == nil
	}
	c.fail()
	return false
}

// shortString is the most bytes of a string that are searched one by one, which is
// faster for names.
const shortString = 32

// rawString returns the string at the cursor with its quotes, and whether it
// contains escapes.
func (c *Cursor) rawString() (quoted []byte, escaped bool) {
	start := c.pos + 1
	for i, b := range c.data[start:min(len(c.data), start+shortString)] {
		if b == '"' {
			quoted = c.data[c.pos : start+i+1]
			c.pos = start + i + 1
			return quoted, false
		} else if b == '\\' {
			break
		}
	}
	for i := start; ; {
		n := bytes.IndexByte(c.data[i:], '"')
		if n < 0 {
			c.fail()
			return nil, false
		}
		end := i + n
		back := end
		for back > start && c.data[back-1] == '\\' {
			back--
		}
		if (end-back)%2 == 0 {
			c.pos = end + 1
			quoted = c.data[start-1 : c.pos]
			return quoted, bytes.IndexByte(quoted, '\\') >= 0
		}
		i = end + 1
	}
}

// Bytes decodes a string. The result may share memory with the text and is only valid
// until that changes. null is nil; any other value is an error.
func (c *Cursor) Bytes() []byte {
	switch c.Peek() {
	case '"':
		return c.unquoted()
	case 'n':
		c.Skip()
	default:
		c.fail()
	}
	return nil
}

// unquoted decodes the string at the cursor.
func (c *Cursor) unquoted() []byte {
	quoted, escaped := c.rawString()
	switch {
	case c.err != nil:
		return nil
	case !escaped:
		return quoted[1 : len(quoted)-1]
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil && !jsontext.Value(quoted).IsValid(jsontext.AllowInvalidUTF8(true)) {
		c.fail()
		return nil
	}
	return text // lone surrogates and invalid UTF-8 are U+FFFD
}

// String decodes a string. null is "".
func (c *Cursor) String() string { return string(c.Bytes()) }

// Text decodes a string; any other value except null is returned as its JSON text.
// It is for fields in which some servers send an object where the API specifies
// a string.
func (c *Cursor) Text() string {
	switch c.Peek() {
	case '"', 'n':
		return c.String()
	}
	return string(c.Raw())
}

// Raw returns the text of the next value.
func (c *Cursor) Raw() []byte {
	c.Peek()
	start := c.pos
	c.Skip()
	if c.err != nil {
		return nil
	}
	return c.data[start:c.pos]
}

// Int decodes a number, truncated to an integer; other values, and numbers beyond 1<<53,
// are 0, so that sums of tokens cannot overflow.
func (c *Cursor) Int() int64 {
	if b := c.Peek(); b != '-' && (b < '0' || b > '9') {
		c.Skip()
		return 0
	}
	const most = 1 << 53
	raw := c.Raw()
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil && n <= most && n >= -most {
		return n
	}
	f, err := strconv.ParseFloat(string(raw), 64) // exact up to 1<<53
	if err != nil || f > most || f < -most {
		return 0
	}
	return int64(f)
}

// Float decodes a number; ok is false for any other value.
func (c *Cursor) Float() (f float64, ok bool) {
	raw := c.Raw()
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil && c.err == nil
}

// Skip skips the next value.
func (c *Cursor) Skip() {
	switch b := c.Peek(); b {
	case '"':
		c.rawString()
	case '{', '[':
		c.skipContainer()
	case 't':
		c.literal("true")
	case 'f':
		c.literal("false")
	case 'n':
		c.literal("null")
	default:
		if b == '-' || (b >= '0' && b <= '9') {
			c.skipNumber()
			return
		}
		c.fail()
	}
}

func (c *Cursor) literal(word string) {
	if !bytes.HasPrefix(c.data[c.pos:], []byte(word)) {
		c.fail()
		return
	}
	c.pos += len(word)
}

func (c *Cursor) skipNumber() {
	for c.pos < len(c.data) {
		switch b := c.data[c.pos]; {
		case b >= '0' && b <= '9', b == '-', b == '+', b == '.', b == 'e', b == 'E':
			c.pos++
		default:
			return
		}
	}
}

func (c *Cursor) skipContainer() {
	if c.data[c.pos] == '{' {
		c.Enter('{')
		for {
			if _, ok := c.Key(); !ok {
				return
			}
			c.Skip()
		}
	}
	c.Enter('[')
	for c.Next() {
		c.Skip()
	}
}

// Nesting follows a JSON text that comes in pieces, byte by byte. The text before an object
// or array may be prose, whose quotes and brackets are ignored. The zero value is ready to
// use.
type Nesting struct {
	InString bool

	depth   int  // open objects and arrays
	ended   bool // an object or array has ended
	spoken  bool // a byte other than space was read
	escaped bool
}

// Whole reports whether an object or array is complete.
func (n *Nesting) Whole() bool { return n.depth == 0 && n.ended }

// Step reads the next byte.
func (n *Nesting) Step(c byte) {
	switch {
	case n.escaped:
		n.escaped = false
	case n.InString:
		n.InString, n.escaped = c != '"', c == '\\'
	case c == '"' && n.depth > 0:
		n.InString = true
	case c == '{', c == '[' && (n.depth > 0 || !n.spoken):
		n.depth++
	case (c == '}' || c == ']') && n.depth > 0:
		n.depth--
		n.ended = n.ended || n.depth == 0
	}
	n.spoken = n.spoken || c > ' '
}

// Runes joins pieces of text so that each returned piece is valid UTF-8:
// the beginning of a character that is split over two pieces is held back. Other invalid
// bytes become U+FFFD. The zero value is ready to use.
type Runes struct {
	rest string // at most three bytes
}

// Add takes the next piece and returns the text that can be shown.
func (r *Runes) Add(s string) string {
	if r.rest == "" && utf8.ValidString(s) {
		return s
	}
	s = r.rest + s
	r.rest = ""
	for cut := 1; cut <= 3 && cut <= len(s); cut++ {
		b := s[len(s)-cut]
		if utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRuneInString(s[len(s)-cut:]) {
				r.rest = s[len(s)-cut:]
				s = s[:len(s)-cut]
			}
			break
		}
	}
	return string(bytes.ToValidUTF8([]byte(s), []byte("\uFFFD")))
}
