package gate

import (
	"math/big"
	"reflect"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// plain is a part of a schema that says no more than types, properties, items,
// lengths, sizes and lists of texts. It has a quick answer for most values that are
// valid, and none for the others: the library has the word on those.
type plain struct {
	types      plainTypes // 0 = any
	texts      []string   // enum; nil = any
	properties map[string]*plain
	required   []string
	closed     bool   // additionalProperties: false
	items      *plain // nil = any

	least, most                  int64 // numbers; only if bounded
	bounded                      bool
	minLength, maxLength         int // characters
	minItems, maxItems           int
	minProperties, maxProperties int
}

type plainTypes uint8

const (
	plainNull plainTypes = 1 << iota
	plainBoolean
	plainNumber
	plainInteger
	plainString
	plainArray
	plainObject
)

func plainType(name string) plainTypes {
	i := slices.Index([]string{"null", "boolean", "number", "integer", "string", "array", "object"}, name)
	return 1 << max(i, 0)
}

// plainFields are what a plain schema may have. Those below the line are notes.
func plainFields() []string {
	return []string{
		"Types", "Enum", "Properties", "Required", "AdditionalProperties", "Items2020", "Minimum", "Maximum",
		"MinLength", "MaxLength", "MinItems", "MaxItems", "MinProperties", "MaxProperties",
		// --
		"DraftVersion", "Location", "Title", "Description", "Default", "Comment", "ReadOnly", "WriteOnly", "Examples", "Deprecated",
	}
}

// newPlain returns the plain form of a compiled schema that is not metered yet; nil
// = it has none.
func newPlain(s *jsonschema.Schema) *plain {
	if s == nil || s.DraftVersion < 2020 {
		return nil
	}
	for v, i := reflect.ValueOf(s).Elem(), 0; i < v.NumField(); i++ {
		f := v.Type().Field(i)
		if f.IsExported() && !v.Field(i).IsZero() && !slices.Contains(plainFields(), f.Name) {
			return nil
		}
	}
	p := &plain{
		required: s.Required, minLength: atLeast(s.MinLength), maxLength: atMost(s.MaxLength),
		minItems: atLeast(s.MinItems), maxItems: atMost(s.MaxItems),
		minProperties: atLeast(s.MinProperties), maxProperties: atMost(s.MaxProperties),
	}
	if s.Types != nil {
		for _, name := range s.Types.ToStrings() {
			p.types |= plainType(name)
		}
	}
	ok := p.setEnum(s.Enum) && p.setBounds(s.Minimum, s.Maximum)
	switch additional := s.AdditionalProperties.(type) {
	case nil:
	case bool:
		p.closed = !additional
	default:
		ok = false
	}
	if s.Items2020 != nil {
		p.items = newPlain(s.Items2020)
		ok = ok && p.items != nil
	}
	p.properties = make(map[string]*plain, len(s.Properties))
	for name, property := range s.Properties {
		p.properties[name] = newPlain(property)
		ok = ok && p.properties[name] != nil
	}
	if !ok {
		return nil
	}
	return p
}

func atLeast(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

func atMost(n *int) int {
	if n == nil {
		return int(^uint(0) >> 1)
	}
	return *n
}

func (p *plain) setEnum(enum *jsonschema.Enum) bool {
	if enum == nil {
		return true
	}
	p.texts = make([]string, 0, len(enum.Values))
	for _, v := range enum.Values {
		text, ok := v.(string)
		if !ok {
			return false
		}
		p.texts = append(p.texts, text)
	}
	return true
}

// plainDigits is how many digits a bounded number may have for a quick answer.
const plainDigits = 15

const plainLimit = 1_000_000_000_000_000 // the first number with more digits

func (p *plain) setBounds(least, most *big.Rat) bool {
	p.least, p.most, p.bounded = -plainLimit, plainLimit, least != nil || most != nil
	for _, b := range []struct {
		rat *big.Rat
		to  *int64
	}{{least, &p.least}, {most, &p.most}} {
		if b.rat == nil {
			continue
		}
		if !b.rat.IsInt() || !b.rat.Num().IsInt64() {
			return false
		}
		*b.to = b.rat.Num().Int64()
	}
	return true
}
