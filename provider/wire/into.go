package wire

import (
	"encoding/json"
	"reflect"
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

// ReadJSON implements [Reader].
func (n *Number) ReadJSON(c *Cursor) {
	b := c.Peek()
	n.Given = b == '-' || b >= '0' && b <= '9'
	n.Value = c.Int()
}

// Found, embedded in a struct, says whether an object was in its place.
type Found struct{ Present bool }

// Reader is what reads its own value. It must read exactly one value from c.
type Reader interface{ ReadJSON(c *Cursor) }

// Read reads a JSON text into the struct that into points to, by the names of its json
// tags. object reports whether the text is an object: any other says nothing. Members
// without a field are passed over, and so is a value of another type than its field:
// providers differ, and what is not there is not used. Fields without a member become zero;
// lists keep their memory, so that into can serve all frames of a stream.
//
// A field is a string, Word, Loose, bool, int, int64, *float64, a struct, a slice of
// structs, a [Reader], or a json.RawMessage, which points into the text. Read takes a third
// of the time of encoding/json/v2 for one frame of a stream.
func Read(data []byte, into any) (object bool, err error) {
	c := cursors.Get().(*Cursor)
	*c = NewCursor(data)
	object = c.Peek() == '{'
	c.Into(into)
	err = c.End()
	c.data = nil
	cursors.Put(c)
	return object, err
}

var cursors = sync.Pool{New: func() any { return new(Cursor) }}

// Into reads the next value as [Read] does.
func (c *Cursor) Into(into any) {
	v := reflect.ValueOf(into).Elem()
	p := planOf(v.Type())
	p.reset(v)
	c.object(v, p)
}

// plan says how the members of an object go into the fields of a struct.
type plan struct {
	fields  []planned
	present int  // index of Found; -1 = none
	lists   bool // it holds a list, if only further inside
}

type planned struct {
	name  string
	index int
	read  func(c *Cursor, v reflect.Value)
	inner *plan // of a struct
	list  bool
}

var plans sync.Map // of *plan, by reflect.Type: as many as there are types of replies

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p := &plan{present: -1}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type == reflect.TypeFor[Found]() {
			p.present = i
		}
		if name := f.Tag.Get("json"); name != "" {
			one := plannedOf(name, i, f.Type)
			p.fields, p.lists = append(p.fields, one), p.lists || one.list || one.inner != nil && one.inner.lists
		}
	}
	plans.Store(t, p)
	return p
}

// reset makes a struct zero, but for the memory of its lists.
func (p *plan) reset(v reflect.Value) {
	if !p.lists {
		v.SetZero()
		return
	}
	if p.present >= 0 {
		v.Field(p.present).SetZero()
	}
	for i := range p.fields {
		f := v.Field(p.fields[i].index)
		switch {
		case p.fields[i].inner != nil:
			p.fields[i].inner.reset(f)
		case p.fields[i].list:
			f.SetLen(0)
		default:
			f.SetZero()
		}
	}
}

func (c *Cursor) object(v reflect.Value, p *plan) {
	if !c.Enter('{') {
		return
	}
	if p.present >= 0 {
		v.Field(p.present).Field(0).SetBool(true)
	}
members:
	for {
		key, ok := c.Key()
		if !ok {
			return
		}
		for i := range p.fields {
			if p.fields[i].name == string(key) {
				p.fields[i].read(c, v.Field(p.fields[i].index))
				continue members
			}
		}
		c.Skip()
	}
}

// list reads a list; what is no object in it is passed over.
func (c *Cursor) list(v reflect.Value) {
	if !c.Enter('[') {
		return
	}
	p := planOf(v.Type().Elem())
	if v.IsNil() {
		v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // an empty list is one
	}
	for v.SetLen(0); c.Next(); {
		if c.is('{') {
			n := v.Len()
			v.Grow(1)
			v.SetLen(n + 1)
			p.reset(v.Index(n))
			c.object(v.Index(n), p)
		}
	}
}

func plannedOf(name string, index int, t reflect.Type) planned {
	f := planned{name: name, index: index}
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[Reader]()):
		f.read = func(c *Cursor, v reflect.Value) { v.Addr().Interface().(Reader).ReadJSON(c) }
	case t == reflect.TypeFor[json.RawMessage]():
		f.read = func(c *Cursor, v reflect.Value) { v.SetBytes(c.Raw()) }
	case t == reflect.TypeFor[Word]():
		f.read = func(c *Cursor, v reflect.Value) {
			if c.is('"') {
				v.SetBytes(c.Bytes())
			}
		}
	case t == reflect.TypeFor[Loose]():
		f.read = func(c *Cursor, v reflect.Value) { v.SetString(c.Text()) }
	case t == reflect.TypeFor[*float64]():
		f.read = func(c *Cursor, v reflect.Value) {
			if n, ok := c.Float(); ok {
				v.Set(reflect.ValueOf(&n))
			}
		}
	case t.Kind() == reflect.String:
		f.read = func(c *Cursor, v reflect.Value) {
			if c.is('"') {
				v.SetString(c.String())
			}
		}
	case t.Kind() == reflect.Bool:
		f.read = func(c *Cursor, v reflect.Value) {
			v.SetBool(c.Peek() == 't')
			c.Skip()
		}
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		f.read = func(c *Cursor, v reflect.Value) { v.SetInt(c.Int()) }
	case t.Kind() == reflect.Struct:
		inner := planOf(t)
		f.inner = inner
		f.read = func(c *Cursor, v reflect.Value) { c.object(v, inner) }
	case t.Kind() == reflect.Slice:
		f.list, f.read = true, func(c *Cursor, v reflect.Value) { c.list(v) }
	default:
		panic("wire: no JSON is read into a " + t.String())
	}
	return f
}

// is reports whether the next value begins with b, and passes it over if not.
func (c *Cursor) is(b byte) bool {
	if c.Peek() == b {
		return true
	}
	c.Skip()
	return false
}
