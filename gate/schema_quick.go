package gate

import (
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf8"
)

// quick is a schema of nothing but types, properties, items, lengths, bounds and lists of
// texts, as most tools have. It reads canonical arguments without decoding them, and only
// ever says yes: of whatever it does not take, the library decides. With the library alone
// a decision takes 9 µs, twice its aim (bench/gate).
type quick struct {
	types      []string // nil = any
	texts      []string // enum; nil = any
	properties map[string]*quick
	required   []string
	closed     bool   // additionalProperties: false
	items      *quick // nil = any
	bounds     map[string]int64
}

// newQuick returns the quick form of a decoded schema; nil if it says anything else.
func newQuick(schema any) *quick {
	members, ok := schema.(map[string]any)
	q := &quick{properties: map[string]*quick{}, bounds: map[string]int64{}}
	for key, v := range members {
		switch key {
		case "type":
			q.types = texts(v)
		case "enum":
			q.texts = texts(v)
			ok = ok && q.texts != nil
		case "required":
			q.required = texts(v)
		case "properties":
			properties, _ := v.(map[string]any)
			for name, property := range properties {
				q.properties[name] = newQuick(property)
				ok = ok && q.properties[name] != nil
			}
		case "additionalProperties":
			open, isBool := v.(bool)
			q.closed, ok = !open, ok && isBool
		case "items":
			q.items = newQuick(v)
			ok = ok && q.items != nil
		case "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems":
			text, _ := v.(json.Number)
			n, err := text.Int64()
			q.bounds[key], ok = n, ok && err == nil
		case "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment":
		default:
			return nil
		}
	}
	if !ok {
		return nil
	}
	return q
}

// texts returns the texts of a list, or the one of a text; nil if there is anything else.
func texts(v any) []string {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	out := make([]string, len(list))
	for i, element := range list {
		if out[i], ok = element.(string); !ok {
			return nil
		}
	}
	return out
}

// is reports whether values of a type, which are not texts, may stand here.
func (q *quick) is(name string) bool {
	return q == nil || q.texts == nil && (q.types == nil || slices.Contains(q.types, name))
}

// within reports whether n is within two bounds.
func (q *quick) within(least, most string, n int64) bool {
	if q == nil {
		return true
	}
	from, bounded := q.bounds[least]
	to, limited := q.bounds[most]
	return (!bounded || n >= from) && (!limited || n <= to)
}

// surely reports whether a text is surely valid. It must be canonical ([guard.Arguments]):
// JSON without space, of a bounded size and depth, with each key once.
func (q *quick) surely(canonical []byte) bool {
	return q != nil && (&walker{text: canonical}).value(q)
}

// walker is the pass over a text. Its methods take what the schema says about the value
// at hand (nil = nothing), go past it, and report whether it is valid.
type walker struct {
	text []byte
	pos  int
}

func (w *walker) value(q *quick) bool {
	switch w.text[w.pos] {
	case '{':
		return w.object(q)
	case '[':
		return w.array(q)
	case '"':
		return w.str(q)
	}
	start := w.pos
	for w.pos < len(w.text) && w.text[w.pos] != ',' && w.text[w.pos] != ']' && w.text[w.pos] != '}' {
		w.pos++
	}
	switch word := string(w.text[start:w.pos]); word {
	case "null":
		return q.is("null")
	case "true", "false":
		return q.is("boolean")
	default:
		if q.is("number") && (q == nil || len(q.bounds) == 0) {
			return true
		}
		n, err := strconv.ParseInt(word, 10, 64)
		return err == nil && (q.is("number") || q.is("integer")) && q.within("minimum", "maximum", n)
	}
}

// inside goes past a string and returns what is between its quotes.
func (w *walker) inside() (text []byte, escaped bool) {
	start := w.pos + 1
	for w.pos = start; w.text[w.pos] != '"'; w.pos++ {
		if w.text[w.pos] == '\\' {
			escaped = true
			w.pos++
		}
	}
	w.pos++
	return w.text[start : w.pos-1], escaped
}

// longestEscape is how long the longest spelling of one character is: two escapes for
// the halves of a pair.
const longestEscape = len(`\ud83d\ude00`)

func (w *walker) str(q *quick) bool {
	text, escaped := w.inside()
	switch {
	case q == nil:
		return true
	case q.types != nil && !slices.Contains(q.types, "string"),
		q.texts != nil && (escaped || !slices.Contains(q.texts, string(text))):
		return false
	}
	most := utf8.RuneCount(text)
	least := most
	if escaped {
		least = (most + longestEscape - 1) / longestEscape
	}
	return q.within("minLength", "maxLength", int64(least)) && q.within("minLength", "maxLength", int64(most))
}

func (w *walker) array(q *quick) bool {
	var items *quick
	if q != nil {
		items = q.items
	}
	n := int64(0)
	for w.pos++; w.text[w.pos] != ']'; n++ {
		if n > 0 {
			w.pos++ // the comma
		}
		if !w.value(items) {
			return false
		}
	}
	w.pos++
	return q.is("array") && q.within("minItems", "maxItems", n)
}

func (w *walker) object(q *quick) bool {
	required := 0
	for w.pos++; w.text[w.pos] != '}'; {
		if w.text[w.pos] == ',' {
			w.pos++
		}
		key, escaped := w.inside()
		w.pos++ // the colon
		var member *quick
		if q != nil {
			known := false
			if member, known = q.properties[string(key)]; escaped || !known && q.closed {
				return false
			}
			if slices.Contains(q.required, string(key)) {
				required++
			}
		}
		if !w.value(member) {
			return false
		}
	}
	w.pos++
	return q.is("object") && (q == nil || required == len(q.required))
}
