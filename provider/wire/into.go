package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// Word is a string that is only compared: it shares memory with the text that was read, and
// is valid as long as that.
type Word []byte

// Loose is a string, or the JSON text of any other value except null: some
// servers send an object where the API specifies a string.
type Loose string

// Number is a number, truncated to an integer. Given reports whether there was one.
type Number struct {
	Value int64
	Given bool
}

// Number reads a number; for any other value, Given is false.
func (c *Cursor) Number() Number {
	b := c.Peek()
	return Number{Given: b == '-' || b >= '0' && b <= '9', Value: c.Int()}
}

// Found, embedded in a struct, reports whether the value for the struct was an object.
type Found struct{ Present bool }

// Read decodes a JSON text into the struct that into points to, by the names of its json
// tags; "a|b" is a field with two names. object reports whether the text is an object. Members
// without a field are skipped, and so are values of another type than their field,
// because providers differ. Fields without a member become zero; lists keep their
// memory, so that into can be reused for all frames of a stream.
//
// A field is a string, Word, Loose, bool, int, int64, *float64, Number, a struct, a
// slice of structs, or a json.RawMessage, which shares memory with the text.
func Read(data []byte, into any) (object bool, err error) {
	c := NewCursor(data)
	object = c.Peek() == '{'
	c.Into(into)
	return object, c.End()
}

// Into decodes the next value as [Read] does.
func (c *Cursor) Into(into any) {
	v := reflect.ValueOf(into).Elem()
	c.fresh(v, planOf(v.Type()))
}

// plan maps the members of an object to the fields of a struct.
type plan struct {
	fields []planned
	found  int    // index of the field Found, or -1
	lists  []bool // for each field, whether it is a list
}

type planned struct {
	name string
	at   int
}

var plans sync.Map // *plan by reflect.Type; bounded by the number of types of replies

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p := &plan{found: -1, lists: make([]bool, t.NumField())}
	for i := range t.NumField() {
		f := t.Field(i)
		p.lists[i] = f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct
		tag := f.Tag.Get("json")
		switch {
		case f.Type == reflect.TypeFor[Found]():
			p.found = i
		case tag != "":
			for name := range strings.SplitSeq(tag, "|") {
				p.fields = append(p.fields, planned{name, i})
			}
		}
	}
	plans.Store(t, p)
	return p
}

// fresh decodes an object into a struct, of whose old value only the memory of lists is kept.
func (c *Cursor) fresh(v reflect.Value, p *plan) {
	for i, list := range p.lists {
		if f := v.Field(i); list {
			f.SetLen(0)
		} else {
			f.SetZero()
		}
	}
	c.object(v, p)
}

func (c *Cursor) object(v reflect.Value, p *plan) {
	if !c.Enter('{') {
		return
	}
	if p.found >= 0 {
		v.Field(p.found).Addr().Interface().(*Found).Present = true
	}
members:
	for {
		key, ok := c.Key()
		if !ok {
			return
		}
		for i := range p.fields {
			if p.fields[i].name == string(key) {
				c.field(v.Field(p.fields[i].at))
				continue members
			}
		}
		c.Skip()
	}
}

func (c *Cursor) field(v reflect.Value) {
	switch field := v.Addr().Interface().(type) {
	case *string:
		if c.is('"') {
			*field = string(c.unquoted())
		}
	case *Loose:
		*field = Loose(c.Text())
	case *Word:
		if c.is('"') {
			*field = c.unquoted()
		}
	case *json.RawMessage:
		*field = c.Raw()
	case *bool:
		*field = c.Peek() == 't'
		c.Skip()
	case *int:
		*field = int(c.Int())
	case *int64:
		*field = c.Int()
	case **float64:
		if n, ok := c.Float(); ok {
			*field = &n
		}
	case *Number:
		*field = c.Number()
	default:
		if v.Kind() == reflect.Slice {
			c.list(v)
			return
		}
		c.object(v, planOf(v.Type()))
	}
}

// list decodes a list of structs and skips elements that are not objects.
func (c *Cursor) list(v reflect.Value) {
	if !c.Enter('[') {
		return
	}
	v.Grow(1) // so that an empty list is not nil
	v.SetLen(0)
	p := planOf(v.Type().Elem())
	for n := 0; c.Next(); {
		if c.is('{') {
			v.Grow(1)
			n++
			v.SetLen(n)
			c.fresh(v.Index(n-1), p)
		}
	}
}

// Plain decodes a string; any other value is "".
func (c *Cursor) Plain() string {
	if !c.is('"') {
		return ""
	}
	return string(c.unquoted())
}

// Word decodes a string as a [Word]; any other value is nil.
func (c *Cursor) Word() Word {
	if !c.is('"') {
		return nil
	}
	return c.unquoted()
}

// is reports whether the next value begins with b, and skips it if not.
func (c *Cursor) is(b byte) bool {
	if c.Peek() == b {
		return true
	}
	c.Skip()
	return false
}
