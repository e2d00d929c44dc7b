package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib/provider/wire"
)

// readable are the types of fields that [wire.Read] supports, except structs and lists.
var readable = []reflect.Type{
	reflect.TypeFor[string](), reflect.TypeFor[wire.Word](), reflect.TypeFor[wire.Loose](), reflect.TypeFor[bool](),
	reflect.TypeFor[int](), reflect.TypeFor[int64](), reflect.TypeFor[*float64](), reflect.TypeFor[wire.Number](),
	reflect.TypeFor[json.RawMessage](),
}

// drawType generates a type of frames.
func drawType(t *rapid.T, depth int) reflect.Type {
	var fields []reflect.StructField
	if rapid.Bool().Draw(t, "found") {
		found := reflect.TypeFor[wire.Found]()
		fields = append(fields, reflect.StructField{Name: "Found", Type: found, Anonymous: true})
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "fields") {
		typ := rapid.SampledFrom(readable).Draw(t, "type")
		if depth > 0 {
			switch rapid.IntRange(0, 3).Draw(t, "nested") {
			case 0:
				typ = drawType(t, depth-1)
			case 1:
				typ = reflect.SliceOf(drawType(t, depth-1))
			}
		}
		tag := reflect.StructTag(fmt.Sprintf(`json:"m%d"`, i))
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("M%d", i), Type: typ, Tag: tag})
	}
	return reflect.StructOf(fields)
}

// drawJSON generates a text that mostly matches typ: with members of other types, and
// repeated, missing and unknown members.
func drawJSON(t *rapid.T, typ reflect.Type, b *strings.Builder) {
	odd := rapid.IntRange(0, 9).Draw(t, "odd") == 0
	switch list := typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct; {
	case !odd && list:
		b.WriteString("[")
		for i := range rapid.IntRange(0, 4).Draw(t, "elements") {
			if i > 0 {
				b.WriteString(", ")
			}
			drawJSON(t, typ.Elem(), b)
		}
		b.WriteString("]")
	case !odd && typ.Kind() == reflect.Struct && !slices.Contains(readable, typ):
		b.WriteString("{")
		for i := range rapid.IntRange(0, 5).Draw(t, "members") {
			if i > 0 {
				b.WriteString(",")
			}
			f := typ.Field(rapid.IntRange(0, typ.NumField()-1).Draw(t, "member"))
			if f.Anonymous {
				f = reflect.StructField{Type: readable[0], Tag: `json:"unknown"`}
			}
			fmt.Fprintf(b, "%q :", f.Tag.Get("json"))
			drawJSON(t, f.Type, b)
		}
		b.WriteString("}")
	default:
		b.WriteString(rapid.SampledFrom([]string{
			`"text"`, `""`, `"caf\u00e9 \ud83d\ude00"`, `"\ud800"`, `"a\\\"b"`, `null`, `true`, `false`, `0`, `7`, `-12`, `3.75`,
			`1e3`, `1e400`, `9007199254740993`, `9007199254740992`, `-9223372036854775808`, `{}`, `[]`, `{"m0":"inner"}`, `[{"m0":1},"m0",[]]`, `[{"text":"a","thinking":"b"},{"text":3,"thinking":[{"text":"c"}]},4]`, ` [ 1 ,2 ] `,
		}).Draw(t, "value"))
	}
}

// A struct that was reused has the same value as a new one, and both have the value of the
// text: nothing of an earlier frame is left.
func TestReadAfterOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := drawType(t, 3)
		used := reflect.New(typ)
		for range rapid.IntRange(1, 6).Draw(t, "frames") {
			var b strings.Builder
			drawJSON(t, typ, &b)
			data := []byte(b.String())
			if rapid.IntRange(0, 9).Draw(t, "cut") == 0 {
				data = data[:rapid.IntRange(0, len(data)).Draw(t, "at")] // data that was already read must be discarded
			}
			fresh, naive := reflect.New(typ), reflect.New(typ)
			object, err := wire.Read(data, used.Interface())
			object2, err2 := wire.Read(data, fresh.Interface())
			if object != object2 || (err == nil) != (err2 == nil) {
				t.Fatalf("%s\n%t, %v and with a new struct %t, %v", data, object, err, object2, err2)
			}
			a, b2 := shown(used.Elem()), shown(fresh.Elem())
			if a != b2 {
				t.Fatalf("%s\n%s\nwith a new struct\n%s", data, a, b2)
			}
			if err != nil {
				continue
			}
			if fill(naive.Elem(), data); shown(naive.Elem()) != b2 {
				t.Fatalf("%s\n%s\nbut the text says\n%s", data, b2, shown(naive.Elem()))
			}
			clear(data) // values that share its memory are invalid, and not compared
		}
	})
}

// shown formats a value; an empty list is the same as none.
func shown(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Struct:
		parts := make([]string, v.NumField())
		for i := range parts {
			parts[i] = v.Type().Field(i).Name + "=" + shown(v.Field(i))
		}
		return "{" + strings.Join(parts, " ") + "}"
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = shown(v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case v.Kind() == reflect.Slice:
		return strconv.Quote(string(v.Bytes()))
	case v.Kind() == reflect.Pointer && v.IsNil():
		return "nil"
	case v.Kind() == reflect.Pointer:
		return fmt.Sprint("*", v.Elem())
	case v.Kind() == reflect.String:
		return strconv.Quote(v.String())
	}
	return fmt.Sprint(v)
}

// fill is the definition of Read, implemented with jsontext and reflection.
func fill(v reflect.Value, data []byte) {
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	next := func() []byte {
		raw, err := d.ReadValue()
		if err != nil {
			panic(fmt.Sprintf("%s: %v", data, err))
		}
		return slices.Clone(raw)
	}
	data = bytes.TrimSpace(data)
	kind, text := jsontext.Kind(data[0]), string(data)
	if kind == '"' {
		unquoted, _ := jsontext.AppendUnquote(nil, data)
		text = string(unquoted)
	}
	number, numberErr := strconv.ParseFloat(text, 64)
	switch isNumber := data[0] == '-' || data[0] >= '0' && data[0] <= '9'; v.Interface().(type) {
	case wire.Loose:
		v.SetString(text)
		if kind == 'n' {
			v.SetString("")
		}
	case json.RawMessage:
		v.SetBytes(data)
	case wire.Word:
		if kind == '"' {
			v.SetBytes([]byte(text))
		}
	case *float64:
		if isNumber && numberErr == nil {
			v.Set(reflect.ValueOf(&number))
		}
	case wire.Number:
		v.Set(reflect.ValueOf(wire.Number{Value: whole(text, isNumber), Given: isNumber}))
	default:
		switch v.Kind() {
		case reflect.String:
			if kind == '"' {
				v.SetString(text)
			}
		case reflect.Bool:
			v.SetBool(kind == 't')
		case reflect.Int, reflect.Int64:
			v.SetInt(whole(text, isNumber))
		case reflect.Slice:
			if kind != '[' {
				return
			}
			v.SetZero()
			for _, _ = d.ReadToken(); d.PeekKind() != ']'; {
				if raw := next(); raw[0] == '{' {
					one := reflect.New(v.Type().Elem()).Elem()
					fill(one, raw)
					v.Set(reflect.Append(v, one))
				}
			}
		case reflect.Struct:
			if kind != '{' {
				return
			}
			if f := v.FieldByName("Found"); f.IsValid() {
				f.Set(reflect.ValueOf(wire.Found{Present: true}))
			}
			for _, _ = d.ReadToken(); d.PeekKind() != '}'; {
				var name string
				_ = json.Unmarshal(next(), &name)
				raw := next()
				if f := v.FieldByName("M" + strings.TrimPrefix(name, "m")); f.IsValid() {
					fill(f, raw)
				}
			}
		}
	}
}

// whole returns a number without its fraction; 0 if it is not a number, or too large.
func whole(text string, is bool) int64 {
	if f, err := strconv.ParseFloat(text, 64); is && err == nil && f <= 1<<53 && f >= -(1<<53) {
		return int64(f)
	}
	return 0
}
