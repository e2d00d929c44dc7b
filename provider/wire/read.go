package wire

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	legacy "github.com/go-json-experiment/json/v1"
)

// replies are the options for reading replies, which may have what encoding/json accepts.
var replies = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// Read decodes a JSON text into the struct that into points to. Values of another type than
// their field are ignored, because providers differ.
func Read[T any](data []byte, into *T) error {
	err := json.Unmarshal(data, into, replies)
	if _, ok := errors.AsType[*json.SemanticError](err); !ok {
		return err
	}
	*into = *new(T)
	err = json.Unmarshal(data, into, replies, legacy.ReportErrorsWithLegacySemantics(true)) // reads on after such a value
	if _, ok := errors.AsType[*legacy.UnmarshalTypeError](err); ok {
		return nil
	}
	return err
}

// Optional is a number or an object that may be absent. Present reports whether there was one.
type Optional[T any] struct {
	Value   T
	Present bool
}

func (o *Optional[T]) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	kind := jsontext.KindBeginObject
	if _, ok := any(&o.Value).(*float64); ok {
		kind = jsontext.KindNumber
	}
	*o = Optional[T]{Present: in.PeekKind() == kind}
	if !o.Present {
		return in.SkipValue()
	}
	err := json.UnmarshalDecode(in, &o.Value)
	o.Present = err == nil || kind == jsontext.KindBeginObject // an error of a member is one of that member only
	return err
}

// Text is a string. Unlike that of a string, its UTF-8 is not corrected, because some servers
// split a character over two frames; see [Runes]. Any other value is "".
type Text string

func (t *Text) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	value, err := in.ReadValue()
	*t = TextOf(value)
	return err
}

// TextOf returns the text of a JSON value, as [Text] has it.
func TextOf(value []byte) Text {
	switch {
	case len(value) == 0 || value[0] != '"':
		return ""
	case bytes.IndexByte(value, '\\') < 0:
		return Text(value[1 : len(value)-1])
	}
	unquoted, _ := jsontext.AppendUnquote(nil, value) // its only error is invalid UTF-8, which it replaces
	return Text(unquoted)
}

// Loose is a string, or the JSON text of any other value except null: some
// servers send an object where the API specifies a string.
type Loose string

func (l *Loose) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	value, err := in.ReadValue()
	if *l = Loose(TextOf(value)); err == nil && value[0] != '"' && value[0] != 'n' {
		*l = Loose(value)
	}
	return err
}

// Int truncates a number; one beyond 1<<53 becomes 0, so that sums of tokens cannot overflow.
func Int(f float64) int64 {
	if f > 1<<53 || f < -1<<53 {
		return 0
	}
	return int64(f)
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
func (r *Runes) Add(text Text) string {
	s := r.rest + string(text)
	if r.rest == "" && utf8.ValidString(s) {
		return s
	}
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
