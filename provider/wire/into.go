package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
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

// Number reads a number; of anything else, Given is false.
func (c *Cursor) Number() Number {
	b := c.Peek()
	return Number{Given: b == '-' || b >= '0' && b <= '9', Value: c.Int()}
}

// Found, embedded in a struct, says whether an object was in its place. A struct that
// seldom has one is read faster with it.
type Found struct{ Present bool }

// Read reads a JSON text into the struct that into points to, by the names of its json
// tags; "a|b" is a field of either name. object reports whether the text is an object: any other says nothing. Members
// without a field are passed over, and so is a value of another type than its field:
// providers differ, and what is not there is not used. Fields without a member become zero;
// lists keep their memory, so that into can serve all frames of a stream.
//
// A field is a string, Word, Loose, bool, int, int64, *float64, Number, a struct, a
// slice of structs, or a json.RawMessage, which points into the text. Read takes less than a
// third of the time of encoding/json/v2 for one frame of a stream.
func Read(data []byte, into any) (object bool, err error) {
	c := NewCursor(data)
	object = c.Peek() == '{'
	c.Into(into)
	return object, c.End()
}

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
	found  *planned  // its Found, if it has one
	lists  []uintptr // where its lists are, those of structs in it too
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
	aNumber
)

var plans sync.Map // of *plan, by reflect.Type: as many as there are types of replies

var latest atomic.Pointer[plan] // frames of one stream follow each other

func planOf(t reflect.Type) *plan {
	if p := latest.Load(); p != nil && p.typ == t {
		return p
	}
	if p, ok := plans.Load(t); ok {
		latest.Store(p.(*plan))
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
				for _, inner := range one.of.lists {
					p.lists = append(p.lists, f.Offset+inner)
				}
			case aList:
				one.of = planOf(f.Type.Elem())
				p.lists = append(p.lists, f.Offset)
			}
			for name := range strings.SplitSeq(one.name, "|") {
				one.name = name
				p.fields = append(p.fields, one)
			}
		}
	}
	plans.Store(t, p)
	return p
}

func kindOf(t reflect.Type) kind {
	switch {
	case t == reflect.TypeFor[Number]():
		return aNumber
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
	var few [8][]struct{} // whatever their elements are
	kept := few[:0]
	for _, place := range p.lists {
		kept = append(kept, (*(*[]struct{})(unsafe.Add(at, place)))[:0])
	}
	reflect.NewAt(p.typ, at).Elem().SetZero()
	for i, place := range p.lists {
		*(*[]struct{})(unsafe.Add(at, place)) = kept[i]
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
			*(*string)(at) = string(c.unquoted())
		}
	case aLoose:
		*(*string)(at) = c.Text()
	case aWord:
		if c.is('"') {
			*(*[]byte)(at) = c.unquoted()
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
		c.list(at, f)
	case aNumber:
		*(*Number)(at) = c.Number()
	}
}

// list reads a list of structs; what is no object in it is passed over.
func (c *Cursor) list(at unsafe.Pointer, f *planned) {
	if !c.Enter('[') {
		return
	}
	list := (*[]struct{})(at) // whatever its elements are: length and capacity count them
	if *list == nil {
		*list = []struct{}{} // an empty list is one
	}
	for *list = (*list)[:0]; c.Next(); {
		if c.is('{') {
			n := len(*list)
			if n == cap(*list) {
				reflect.NewAt(f.typ, at).Elem().Grow(1)
			}
			*list = (*list)[:n+1]
			one := unsafe.Add(unsafe.Pointer(unsafe.SliceData(*list)), uintptr(n)*f.of.typ.Size())
			f.of.reset(one)
			c.object(one, f.of)
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
