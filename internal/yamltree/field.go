package yamltree

import (
	"reflect"
	"strconv"
	"strings"
)

// Field is what the tags of a struct field say:
//
//	yaml      the key
//	default   the value of a key that is absent
//	enum      the words that a string may be, separated by |
//	min, max  bounds of a number, a duration or of the length of a list
//	format    what a text must look like ([Decoder.Check])
//	keys      what the keys of a mapping must look like ([Decoder.Keys])
//	required  an error if the key is absent
//	null      null is allowed, and is not the same as empty
//	words     true, false and numbers without quotes are taken as text
//	short     in a list: the key of an entry that a text alone stands for
//	secret    what is never shown: "all" of the value, the password of a "url",
//	          what a header or variable that is "named" like a secret holds,
//	          all but the scheme of a "notify" address, key=value in "args"
type Field struct {
	Key                  string
	Index                int
	Type                 reflect.Type
	Default              string
	HasDefault           bool
	Enum                 []string
	Min, Max             string
	Format, Keys, Secret string
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
		}
		f.Default, f.HasDefault = sf.Tag.Lookup("default")
		if enum, ok := sf.Tag.Lookup("enum"); ok {
			f.Enum = strings.Split(enum, "|")
		}
		fields = append(fields, f)
	}
	return fields
}

// Inner returns what the tags say about the entries of a list or the values of a mapping.
func (f Field) Inner() Field {
	out := Field{Format: f.Format, Secret: f.Secret, Words: f.Words, Type: f.Type.Elem()}
	if f.Type.Kind() == reflect.Slice {
		out.Min, out.Short = f.Min, f.Short
	}
	return out
}

// DefaultNode returns the default as if it were written in a file; nil if none.
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
	case f.Type.Kind() == reflect.Bool:
		return &Node{Kind: Bool, Text: f.Default, Default: true}
	}
	if _, err := strconv.ParseFloat(f.Default, 64); err == nil {
		return &Node{Kind: Number, Text: f.Default, Default: true}
	}
	return &Node{Kind: Text, Text: f.Default, Default: true}
}
