package config

import (
	"bytes"
	"encoding/json"
	"reflect"

	"github.com/toolcrib/toolcrib"
)

// ShowJSON is [Show] as one JSON value: the same keys in the same order, with null where
// Show writes null; durations are texts such as 30s.
func ShowJSON(c *Config) (json.RawMessage, error) {
	var s jsonShower
	s.value(reflect.ValueOf(c).Elem())
	return s.out.Bytes(), s.err
}

type jsonShower struct {
	out bytes.Buffer
	err error // the first
}

// scalar writes what encoding/json writes, but for < and > and &, which stay readable.
func (s *jsonShower) scalar(v any) {
	e := json.NewEncoder(&s.out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil && s.err == nil {
		s.err = err
	}
}

func (s *jsonShower) value(v reflect.Value) {
	switch x := v.Interface().(type) {
	case Value:
		s.scalar(x.shown())
		return
	case Duration:
		s.scalar(x.String())
		return
	case JSON:
		s.scalar(json.RawMessage(orNull(x)))
		return
	case toolcrib.ToolChoice:
		if x.Mode == toolcrib.ChoiceName {
			s.scalar(map[string]string{"name": x.Name})
			return
		}
		s.scalar(x.Mode)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			s.out.WriteString("null")
			return
		}
		s.value(v.Elem())
	case reflect.Struct:
		s.dict(v)
	case reflect.Map:
		s.mapping(v)
	case reflect.Slice:
		s.list(v)
	default:
		s.scalar(v.Interface())
	}
}

func (s *jsonShower) dict(v reflect.Value) {
	s.out.WriteByte('{')
	for i, f := range fieldsOf(v.Type()) {
		s.member(i, f.key, v.Field(f.index))
	}
	s.out.WriteByte('}')
}

func (s *jsonShower) mapping(v reflect.Value) {
	s.out.WriteByte('{')
	for i, key := range sortedKeys(v) {
		s.member(i, key, v.MapIndex(reflect.ValueOf(key)))
	}
	s.out.WriteByte('}')
}

func (s *jsonShower) member(i int, key string, v reflect.Value) {
	if i > 0 {
		s.out.WriteByte(',')
	}
	s.scalar(key)
	s.out.WriteByte(':')
	s.value(v)
}

func (s *jsonShower) list(v reflect.Value) {
	if v.IsNil() {
		s.out.WriteString("null")
		return
	}
	s.out.WriteByte('[')
	for i := range v.Len() {
		if i > 0 {
			s.out.WriteByte(',')
		}
		s.value(v.Index(i))
	}
	s.out.WriteByte(']')
}
