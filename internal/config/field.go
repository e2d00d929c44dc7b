package config

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib/internal/providers"
)

// field is what the tags of a struct field say (see the package comment).
type field struct {
	key      string
	index    int
	typ      reflect.Type
	doc      string
	def      string
	hasDef   bool
	enum     []string
	min, max string
	format   string
	keys     string
	secret   string
	required bool
	null     bool
	words    bool
	short    string // the key of a struct in a list that a text alone stands for
}

// fieldsOf returns the fields of a struct that have a key, in order.
func fieldsOf(t reflect.Type) []field {
	fields := make([]field, 0, t.NumField())
	for i := range t.NumField() {
		sf := t.Field(i)
		key := sf.Tag.Get("yaml")
		if key == "" {
			continue
		}
		f := field{
			key: key, index: i, typ: sf.Type, doc: sf.Tag.Get("doc"),
			min: sf.Tag.Get("min"), max: sf.Tag.Get("max"),
			format: sf.Tag.Get("format"), keys: sf.Tag.Get("keys"), secret: sf.Tag.Get("secret"),
			required: sf.Tag.Get("required") == "true",
			null:     sf.Tag.Get("null") == "true" || sf.Type.Kind() == reflect.Pointer,
			words:    sf.Tag.Get("words") == "true",
			short:    sf.Tag.Get("short"),
		}
		f.def, f.hasDef = sf.Tag.Lookup("default")
		if enum, ok := sf.Tag.Lookup("enum"); ok {
			f.enum = strings.Split(enum, "|")
			if enum == "|PROVIDER_TYPES" {
				f.enum = append([]string{""}, providers.Names(nil)...)
			}
		}
		fields = append(fields, f)
	}
	return fields
}

// defaultNode returns the default as if it were written in a file; nil = none.
func (f field) defaultNode() *node {
	switch {
	case !f.hasDef || f.def == "null":
		return nil
	case f.typ.Kind() == reflect.Slice:
		out := &node{kind: kindList}
		if inner := strings.Trim(f.def, "[]"); inner != "" {
			for item := range strings.SplitSeq(inner, ", ") {
				out.items = append(out.items, &node{kind: kindText, text: item})
			}
		}
		return out
	case f.typ.Kind() == reflect.Bool:
		return &node{kind: kindBool, text: f.def}
	}
	if _, err := strconv.ParseFloat(f.def, 64); err == nil {
		return &node{kind: kindNumber, text: f.def}
	}
	return &node{kind: kindText, text: f.def}
}

// choices returns the words of an enum for a message.
func (f field) choices() string {
	words := make([]string, 0, len(f.enum))
	for _, w := range f.enum {
		if w != "" {
			words = append(words, w)
		}
	}
	return strings.Join(words, ", ")
}

// intBounds returns min and max of a whole number; hasMin and hasMax tell which count.
func (f field) intBounds() (lo, hi int64, hasMin, hasMax bool) {
	lo, errMin := strconv.ParseInt(f.min, 10, 64)
	hi, errMax := strconv.ParseInt(f.max, 10, 64)
	return lo, hi, errMin == nil, errMax == nil
}

// JoinKey appends a key to a key path, as [Config.Position] reads it.
func JoinKey(path, key string) string { return joinKey(path, key) }

// joinKey appends a key to a path; keys that would blur the path are quoted.
func joinKey(path, key string) string {
	plain := key != ""
	for _, r := range key {
		if r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') {
			plain = false
			break
		}
	}
	if !plain {
		return path + "[" + short(key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func joinIndex(path string, i int) string {
	return path + "[" + strconv.Itoa(i) + "]"
}
