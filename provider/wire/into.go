package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"unsafe"
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

// Found, embedded in a struct, says whether an object was in its place. A struct that
// seldom has one is read faster with it.
type Found struct{ Present bool }

// Reader is what reads its own value. It must read exactly one value from c.
type Reader interface{ ReadJSON(c *Cursor) }

// Read reads a JSON text into the struct that into points to, by the names of its json
// tags; "a|b" is a field of either name. object reports whether the text is an object: any other says nothing. Members
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
	v := reflect.ValueOf(into)
	p := planOf(v.Type().Elem())
	p.reset(v.UnsafePointer())
	c.object(v.UnsafePointer(), p)
}

// plan says how the members of an object go into the fields of a struct. Fields are
// reached by their place in memory: through package reflect a frame of a stream took half
// as long again.
type plan struct {
	fields []planned
	typ    reflect.Type
	found  *planned // its Found, if it has one
	lists  bool     // it holds a list, if only further inside
}

type planned struct {
	name  string
	place uintptr // in the struct
	kind  kind
	typ   reflect.Type
	of    *plan // of a struct, or of the elements of a list
}

type kind int8

const (
	aString kind = iota
	aLoose
	aWord
	aRaw
	aBool
	anInt
	anInt64
	aFloat
	aStruct
	aList
	aReader
)

var plans sync.Map // of *plan, by reflect.Type: as many as there are types of replies

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p := &plan{typ: t}
	for i := range t.NumField() {
		f := t.Field(i)
		one := planned{name: f.Tag.Get("json"), place: f.Offset, typ: f.Type}
		if f.Type == reflect.TypeFor[Found]() {
			p.found = &one
		} else if one.name != "" {
			one.kind = kindOf(f.Type)
			switch one.kind {
			case aStruct:
				one.of = planOf(f.Type)
			case aList:
				one.of = planOf(f.Type.Elem())
			}
			for name := range strings.SplitSeq(one.name, "|") {
				one.name = name
				p.fields = append(p.fields, one)
			}
			p.lists = p.lists || one.kind == aList || one.kind == aStruct && one.of.lists
		}
	}
	plans.Store(t, p)
	return p
}

func kindOf(t reflect.Type) kind {
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[Reader]()):
		return aReader
	case t == reflect.TypeFor[json.RawMessage]():
		return aRaw
	case t == reflect.TypeFor[Word]():
		return aWord
	case t == reflect.TypeFor[Loose]():
		return aLoose
	case t == reflect.TypeFor[*float64]():
		return aFloat
	case t.Kind() == reflect.String:
		return aString
	case t.Kind() == reflect.Bool:
		return aBool
	case t.Kind() == reflect.Int:
		return anInt
	case t.Kind() == reflect.Int64:
		return anInt64
	case t.Kind() == reflect.Struct:
		return aStruct
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return aList
	}
	panic("wire: no JSON is read into a " + t.String())
}

// reset makes a struct zero, but for the memory of its lists.
func (p *plan) reset(at unsafe.Pointer) {
	if p.found != nil {
		present := (*Found)(unsafe.Add(at, p.found.place))
		if !present.Present {
			return // nothing was read into it since it was zero
		}
		present.Present = false
	}
	if !p.lists {
		reflect.NewAt(p.typ, at).Elem().SetZero()
		return
	}
	for i := range p.fields {
		f := &p.fields[i]
		switch v := unsafe.Add(at, f.place); f.kind {
		case aString, aLoose:
			*(*string)(v) = ""
		case aWord, aRaw:
			*(*[]byte)(v) = nil
		case aStruct:
			f.of.reset(v)
		case aList:
			list := (*[]struct{})(v) // whatever its elements are
			*list = (*list)[:0]
		default:
			reflect.NewAt(f.typ, v).Elem().SetZero()
		}
	}
}

func (c *Cursor) object(at unsafe.Pointer, p *plan) {
	if !c.Enter('{') {
		return
	}
	if p.found != nil {
		(*Found)(unsafe.Add(at, p.found.place)).Present = true
	}
members:
	for {
		key, ok := c.Key()
		if !ok {
			return
		}
		for i := range p.fields {
			if p.fields[i].name == string(key) {
				c.field(unsafe.Add(at, p.fields[i].place), &p.fields[i])
				continue members
			}
		}
		c.Skip()
	}
}

func (c *Cursor) field(at unsafe.Pointer, f *planned) {
	switch f.kind {
	case aString:
		if c.is('"') {
			*(*string)(at) = c.String()
		}
	case aLoose:
		*(*string)(at) = c.Text()
	case aWord:
		if c.is('"') {
			*(*[]byte)(at) = c.Bytes()
		}
	case aRaw:
		*(*[]byte)(at) = c.Raw()
	case aBool:
		*(*bool)(at) = c.Peek() == 't'
		c.Skip()
	case anInt:
		*(*int)(at) = int(c.Int())
	case anInt64:
		*(*int64)(at) = c.Int()
	case aFloat:
		if n, ok := c.Float(); ok {
			*(**float64)(at) = &n
		}
	case aStruct:
		c.object(at, f.of)
	case aList:
		c.list(reflect.NewAt(f.typ, at).Elem(), f.of)
	case aReader:
		reflect.NewAt(f.typ, at).Interface().(Reader).ReadJSON(c)
	}
}

// list reads a list of structs; what is no object in it is passed over.
func (c *Cursor) list(v reflect.Value, of *plan) {
	if !c.Enter('[') {
		return
	}
	if v.IsNil() {
		v.Set(reflect.MakeSlice(v.Type(), 0, 0)) // an empty list is one
	}
	for v.SetLen(0); c.Next(); {
		if c.is('{') {
			n := v.Len()
			if n == v.Cap() {
				v.Grow(1)
			}
			v.SetLen(n + 1)
			one := v.Index(n).Addr().UnsafePointer()
			of.reset(one)
			c.object(one, of)
		}
	}
}

// is reports whether the next value begins with b, and passes it over if not.
func (c *Cursor) is(b byte) bool {
	if c.Peek() == b {
		return true
	}
	c.Skip()
	return false
}
