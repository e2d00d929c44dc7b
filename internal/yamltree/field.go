package yamltree

import (
	"reflect"
	"strconv"
	"strings"
)

// Field has the tags of a struct field:
//
//	yaml      key
//	default   value if the key is absent
//	enum      allowed values of a string, separated by |
//	min, max  bounds of a number, a duration or the length of a list
//	format    format of a text ([Decoder.Check])
//	keys      format of the keys of a mapping ([Decoder.Keys])
//	required  "true" if the key must not be absent
//	null      "true" if null is allowed and differs from an empty value
//	words     "true" if true, false and numbers without quotes are read as text
//	short     in a list: the key whose value may be written instead of an entry
//	layers    how the values of two files are combined (package config)
//	secret    part that is never shown: "all" of the value, the password in a "url",
//	          the value of a header or variable that is "named" like a secret,
//	          all except the scheme of a "notify" address, key=value in "args"
type Field struct {
	Key                  string
	Index                int
	Type                 reflect.Type
	Default              string
	HasDefault           bool
	Enum                 []string
	Min, Max             string
	Format, Keys, Secret string
	Layers               string
	Required, Null       bool
	Words                bool
	Short                string
}

// Fields returns the fields of a struct that have a key, in order.
func Fields(t reflect.Type) []Field {
	fields := make([]Field, 0, t.NumField())
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get
		if tag("yaml") == "" {
			continue
		}
		f := Field{
			Key: tag("yaml"), Index: i, Type: sf.Type, Min: tag("min"), Max: tag("max"), Format: tag("format"),
			Keys: tag("keys"), Secret: tag("secret"), Short: tag("short"), Required: tag("required") == "true",
			Words: tag("words") == "true", Null: tag("null") == "true" || sf.Type.Kind() == reflect.Pointer,
			Layers: tag("layers"),
		}
		f.Default, f.HasDefault = sf.Tag.Lookup("default")
		if enum, ok := sf.Tag.Lookup("enum"); ok {
			f.Enum = strings.Split(enum, "|")
		}
		fields = append(fields, f)
	}
	return fields
}

// Inner returns the Field for the entries of a list or the values of a mapping.
func (f Field) Inner() Field {
	out := Field{Format: f.Format, Secret: f.Secret, Words: f.Words, Layers: f.Layers, Type: f.Type.Elem()}
	if f.Type.Kind() == reflect.Slice {
		out.Min, out.Short = f.Min, f.Short
	}
	return out
}

// DefaultNode returns the default as a node of a file, or nil.
func (f Field) DefaultNode() *Node {
	switch {
	case !f.HasDefault || f.Default == "null":
		return nil
	case f.Type.Kind() == reflect.Slice:
		out := &Node{Kind: List, Default: true}
		if inner := strings.Trim(f.Default, "[]"); inner != "" {
			for item := range strings.SplitSeq(inner, ", ") {
				out.Items = append(out.Items, &Node{Kind: Text, Text: item, Default: true})
			}
		}
		return out
	case f.Type.Kind() != reflect.String && (f.Default == "true" || f.Default == "false"):
		return &Node{Kind: Bool, Text: f.Default, Default: true}
	}
	if _, err := strconv.ParseFloat(f.Default, 64); err == nil {
		return &Node{Kind: Number, Text: f.Default, Default: true}
	}
	return &Node{Kind: Text, Text: f.Default, Default: true}
}
