package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Field is one member of a JSON object.
type Field struct {
	Name  string
	Value json.RawMessage
}

// Extra are the fields that a model's configuration adds to the body of each request.
type Extra struct {
	Fields []Field // in their original order
}

// ParseExtra reads a JSON object; reserved names are left out. A field whose
// value is null removes the adapter's own field from the request.
func ParseExtra(raw json.RawMessage, reserved ...string) (Extra, error) {
	var x Extra
	var compact bytes.Buffer
	if len(bytes.TrimSpace(raw)) == 0 {
		return x, nil
	}
	if json.Compact(&compact, raw) != nil {
		return x, errors.New("extra: is not JSON")
	}
	if compact.String() == "null" {
		return x, nil
	}
	in := json.NewDecoder(&compact)
	if open, err := in.Token(); err != nil || open != json.Delim('{') {
		return x, errors.New("extra: must be an object")
	}
	for in.More() {
		var value json.RawMessage
		name, _ := in.Token() // the text is valid
		if err := in.Decode(&value); err != nil {
			return x, err
		}
		if name := name.(string); !slices.Contains(reserved, name) {
			x.set(name, value)
		}
	}
	return x, nil
}

func (x *Extra) set(name string, value []byte) {
	for i := range x.Fields {
		if x.Fields[i].Name == name {
			x.Fields[i].Value = value
			return
		}
	}
	x.Fields = append(x.Fields, Field{Name: name, Value: value})
}

// Get returns the value of a field, or nil.
func (x Extra) Get(name string) json.RawMessage {
	for i := range x.Fields {
		if x.Fields[i].Name == name {
			return x.Fields[i].Value
		}
	}
	return nil
}

// Without returns x without the named fields, which the adapter writes itself.
func (x Extra) Without(names ...string) Extra {
	if !slices.ContainsFunc(names, func(name string) bool { return x.Get(name) != nil }) {
		return x
	}
	return Extra{Fields: slices.DeleteFunc(slices.Clone(x.Fields),
		func(f Field) bool { return slices.Contains(names, f.Name) })}
}

// Object writes the members of a JSON object, without the closing brace. Members
// in Extra replace those of the adapter.
type Object struct {
	Buf   []byte
	Extra Extra
	any   bool
}

// Begin opens the object.
func (o *Object) Begin(buf []byte, extra Extra) {
	o.Buf, o.Extra, o.any = append(buf, '{'), extra, false
}

// Member begins a member and reports whether the caller must append its value to Buf.
func (o *Object) Member(name string) bool {
	if o.Extra.Get(name) != nil {
		return false
	}
	o.Always(name)
	return true
}

// Always begins a member that Extra cannot replace.
func (o *Object) Always(name string) {
	if o.any {
		o.Buf = append(o.Buf, ',')
	}
	o.any = true
	o.Buf = AppendString(o.Buf, name)
	o.Buf = append(o.Buf, ':')
}

// End appends the members of Extra, except null ones, which only remove a member.
func (o *Object) End() {
	for _, f := range o.Extra.Fields {
		if string(f.Value) == "null" {
			continue
		}
		o.Always(f.Name)
		o.Buf = append(o.Buf, f.Value...)
	}
}

// AppendString appends s as a JSON string (RFC 8259). Invalid UTF-8 becomes
// U+FFFD, so that no history can make a request invalid.
func AppendString[S ~string | ~[]byte](dst []byte, s S) []byte {
	return append(AppendEscaped(append(dst, '"'), s), '"')
}

// AppendEscaped appends s as the inside of a JSON string.
func AppendEscaped[S ~string | ~[]byte](dst []byte, s S) []byte {
	from := 0
	for i := range len(s) {
		switch c := s[i]; {
		case plain[c]:
			continue
		case c == '"' || c == '\\':
			dst = append(append(dst, s[from:i]...), '\\', c)
			from = i + 1
			continue
		}
		quoted := len(dst)
		dst, _ = jsontext.AppendQuote(dst, s[from:]) // its only error is invalid UTF-8, which it replaces
		return append(dst[:quoted], dst[quoted+1:len(dst)-1]...)
	}
	return append(dst, s[from:]...)
}

// plain are the bytes that are not escaped in a JSON string. In most texts all bytes except quotes are.
var plain = func() (is [256]bool) {
	for c := byte(' '); c < utf8.RuneSelf; c++ {
		is[c] = c != '"' && c != '\\'
	}
	return is
}()

// AppendFloat appends f as a JSON number. f must be finite.
func AppendFloat(dst []byte, f float64) []byte {
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}
