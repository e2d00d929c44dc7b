package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// Word is a string that is only compared: it points into the text that was read, and is
// good as long as that.
type Word []byte

// Loose is a string, or the JSON text of whatever else but null is in its place: some
// servers send an object where the API says string.
type Loose string

// Number is a number, cut to a whole one. Given says that one was there.
type Number struct {
	Value int64
	Given bool
}

// Number reads a number; of anything else, Given is false.
func (c *Cursor) Number() Number {
	b := c.Peek()
	return Number{Given: b == '-' || b >= '0' && b <= '9', Value: c.Int()}
}

// Found, embedded in a struct, says whether an object was in its place.
type Found struct{ Present bool }

// Read reads a JSON text into the struct that into points to, by the names of its json
// tags; "a|b" is a field of either name. object reports whether the text is an object: any other says nothing. Members
// without a field are passed over, and so is a value of another type than its field:
// providers differ, and what is not there is not used. Fields without a member become zero;
// lists keep their memory, so that into can serve all frames of a stream.
//
// A field is a string, Word, Loose, bool, int, int64, *float64, Number, a struct, a
// slice of structs, or a json.RawMessage, which points into the text.
func Read(data []byte, into any) (object bool, err error) {
	c := NewCursor(data)
	object = c.Peek() == '{'
	c.Into(into)
	return object, c.End()
}

// Into reads the next value as [Read] does.
func (c *Cursor) Into(into any) {
	v := reflect.ValueOf(into).Elem()
	c.fresh(v, planOf(v.Type()))
}

// plan says which fields of a struct the members of an object go into.
type plan struct {
	fields []planned
	found  int    // its Found; -1 = it has none
	lists  []bool // of all fields, those that are lists
}

type planned struct {
	name string
	at   int
}

var plans sync.Map // of *plan, by reflect.Type: as many as there are types of replies

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

// fresh reads an object into a struct of which only the memory of its lists is kept.
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

// object reads an object into a struct.
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

// list reads a list of structs; what is no object in it is passed over.
func (c *Cursor) list(v reflect.Value) {
	if !c.Enter('[') {
		return
	}
	v.Grow(1) // an empty list is one
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

// Plain reads a string; anything else is "".
func (c *Cursor) Plain() string {
	if !c.is('"') {
		return ""
	}
	return string(c.unquoted())
}

// Word reads a string as [Word] has it; anything else is nil.
func (c *Cursor) Word() Word {
	if !c.is('"') {
		return nil
	}
	return c.unquoted()
}

// is reports whether the next value begins with b, and passes it over if not.
func (c *Cursor) is(b byte) bool {
	if c.Peek() == b {
		return true
	}
	c.Skip()
	return false
}
