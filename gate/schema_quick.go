package gate

import (
	"encoding/json"
	"slices"
	"unicode/utf8"
)

// quick is a schema that has only types, properties, items, lengths, bounds and lists of texts, as
// most tools have. It can only confirm that a value is valid; the library decides about all other
// values. With the library alone a run with its journal in memory takes a seventh more CPU, and 40
// more allocations for each call (bench).
type quick struct {
	types      []string        // nil means any
	texts      map[string]bool // enum; nil means any
	properties map[string]*quick
	required   []string
	closed     bool   // additionalProperties: false
	items      *quick // nil means any
	bounds     map[string]int64
}

// newQuick returns the quick form of a decoded schema, or nil if the schema has anything else.
func newQuick(schema any) *quick {
	members, ok := schema.(map[string]any)
	q := &quick{}
	for key, v := range members {
		switch key {
		case "type":
			q.types = texts(v)
			ok = ok && q.types != nil
		case "enum":
			q.texts = map[string]bool{}
			for _, text := range texts(v) {
				q.texts[text] = true
			}
			ok = ok && len(q.texts) > 0
		case "required":
			q.required = texts(v)
		case "properties":
			properties, _ := v.(map[string]any)
			q.properties = make(map[string]*quick, len(properties))
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
			number, _ := v.(json.Number)
			n, err := number.Int64()
			if q.bounds == nil {
				q.bounds = map[string]int64{}
			}
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

// texts returns the texts of a list, or of a single text. It returns nil if there is anything else.
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

// surely reports whether a decoded value is certainly valid.
func (q *quick) surely(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return q.is("object") && q.object(v)
	case []any:
		if !q.is("array") || !q.within("minItems", "maxItems", int64(len(v))) {
			return false
		}
		return q.items == nil || !slices.ContainsFunc(v, func(item any) bool { return !q.items.surely(item) })
	case string:
		return (q.types == nil || slices.Contains(q.types, "string")) && (q.texts == nil || q.texts[v]) &&
			q.within("minLength", "maxLength", int64(utf8.RuneCountInString(v)))
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			return q.is("number") && len(q.bounds) == 0
		}
		return (q.is("number") || q.is("integer")) && q.within("minimum", "maximum", n)
	case bool:
		return q.is("boolean")
	case nil:
		return q.is("null")
	}
	return false
}

func (q *quick) object(members map[string]any) bool {
	for _, name := range q.required {
		if _, there := members[name]; !there {
			return false
		}
	}
	for name, v := range members {
		if member, known := q.properties[name]; known && !member.surely(v) || !known && q.closed {
			return false
		}
	}
	return true
}

// is reports whether the schema accepts values of a type other than string.
func (q *quick) is(name string) bool {
	return q.texts == nil && (q.types == nil || slices.Contains(q.types, name))
}

// within reports whether n is within two optional bounds.
func (q *quick) within(least, most string, n int64) bool {
	if q.bounds == nil {
		return true
	}
	from, bounded := q.bounds[least]
	to, limited := q.bounds[most]
	return (!bounded || n >= from) && (!limited || n <= to)
}
