package yamltree

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Decoder decodes nodes into structs according to the tags of their fields ([Field]), and collects
// all errors.
type Decoder struct {
	// Check returns the problem with a text of a format, as the text of an error, or "". If nil,
	// every text is valid.
	Check func(f Field, text string) string
	// Keys returns the problem with a key of a mapping, or "". If nil, any keys are valid.
	Keys func(keys, key string) string

	File    string            // name of the file
	Folders map[string]string // folders of files by name, for types that decode themselves
	// Partial allows required keys to be absent, because another file may have them.
	Partial bool

	Errors []Error
	failed map[string]bool // key paths with errors
}

// Decodable is a type that decodes itself. It adds errors to d.
type Decodable interface {
	DecodeYAML(d *Decoder, n *Node, f Field)
}

// Failed reports whether there is an error about the key path.
func (d *Decoder) Failed(path string) bool { return d.failed[path] }

// Add adds an error.
func (d *Decoder) Add(errs ...Error) {
	if d.failed == nil {
		d.failed = map[string]bool{}
	}
	for _, e := range errs {
		d.failed[e.Key], e.File = true, cmp.Or(e.File, d.File)
		d.Errors = append(d.Errors, e)
	}
}

// Errorf adds an error about a node.
func (d *Decoder) Errorf(n *Node, format string, args ...any) { d.Add(n.Errorf(format, args...)) }

// Decode decodes a mapping into a struct.
func (d *Decoder) Decode(n *Node, into any) {
	v := reflect.ValueOf(into).Elem()
	d.value(n, v, Field{Type: v.Type()})
}

// value decodes n, which is present, into v.
func (d *Decoder) value(n *Node, v reflect.Value, f Field) {
	if n.Kind == Null {
		d.null(n, v, f)
		return
	}
	if own, ok := v.Addr().Interface().(Decodable); ok {
		own.DecodeYAML(d, n, f)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), f)
	case reflect.Struct:
		if f.Short != "" && n.Kind == Text {
			value := *n
			value.Path = JoinKey(n.Path, f.Short)
			n = n.mapping(Entry{f.Short, &value})
		}
		if d.want(n, Map) {
			d.object(n, v)
		}
	case reflect.Map:
		if d.want(n, Map) {
			d.mapping(n, v, f)
		}
	case reflect.Slice:
		if d.want(n, List) {
			d.list(n, v, f)
		}
	case reflect.Bool:
		if d.want(n, Bool) {
			v.SetBool(n.IsTrue())
		}
	case reflect.Int, reflect.Int64, reflect.Float64:
		d.number(n, v, f)
	case reflect.String:
		d.word(n, v, f)
	default:
		panic("yamltree: no decoder for " + v.Type().String()) // a mistake in the struct, found by every test
	}
}

// null decodes an explicit null.
func (d *Decoder) null(n *Node, v reflect.Value, f Field) {
	_, own := v.Addr().Interface().(Decodable)
	switch {
	case f.Null:
		v.SetZero()
	case v.Kind() == reflect.Struct && !own:
		d.object(n.mapping(), v)
	case v.Kind() == reflect.Map, v.Kind() == reflect.Slice && (f.Default == "[]" || f.Default == ""):
		d.absent(n, v, f)
	case v.Kind() == reflect.Slice:
		d.Errorf(n, "must be a list, not null; write [] for none")
	case f.HasDefault && f.Default == "":
		d.Errorf(n, `must not be null; leave the key out, or write ""`)
	default:
		d.Errorf(n, "must not be null; leave the key out for the default")
	}
}

func (d *Decoder) want(n *Node, k Kind) bool {
	if n.Kind != k {
		d.Errorf(n, "must be %s, not %s", k, n.Kind)
	}
	return n.Kind == k
}

// object decodes a mapping with known keys.
func (d *Decoder) object(n *Node, v reflect.Value) {
	fields := Fields(v.Type())
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].Key
	}
	seen := make([]bool, len(fields))
	for _, e := range n.Entries {
		i := slices.Index(names, e.Key)
		if i < 0 {
			d.Errorf(e.Value, "unknown key %s%s", Quote(e.Key), guard.DidYouMean(e.Key, names))
			continue
		}
		seen[i] = true
		d.value(e.Value, v.Field(fields[i].Index), fields[i])
	}
	for i, f := range fields {
		if !seen[i] {
			d.absent(n.child(f.Key), v.Field(f.Index), f)
		}
	}
}

// Absent sets a struct to the defaults for an absent key.
func (d *Decoder) Absent(path string, into any) {
	v := reflect.ValueOf(into).Elem()
	d.absent(&Node{Path: path, Line: 1, Default: true}, v, Field{Type: v.Type()})
}

// absent sets v to the default of n, which is not written.
func (d *Decoder) absent(n *Node, v reflect.Value, f Field) {
	if f.Required {
		if !d.Partial {
			d.Errorf(n, "is required")
		}
		return
	}
	if written := f.DefaultNode(); written != nil {
		written.Path, written.File, written.Line, written.Column = n.Path, n.File, n.Line, n.Column
		d.value(written, v, f)
		return
	}
	switch _, own := v.Addr().Interface().(Decodable); {
	case own:
	case v.Kind() == reflect.Struct:
		missing := n.mapping()
		missing.Default = true
		d.object(missing, v)
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case v.Kind() == reflect.Slice && !f.Null:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	}
}

// mapping decodes a mapping whose keys are names.
func (d *Decoder) mapping(n *Node, v reflect.Value, f Field) {
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Entries)))
	inner := f.Inner()
	for _, e := range n.Entries {
		if d.Keys != nil {
			if problem := d.Keys(f.Keys, e.Key); problem != "" {
				d.Errorf(e.Value, "%s", problem)
				continue
			}
		}
		item := reflect.New(inner.Type).Elem()
		d.value(e.Value, item, inner)
		v.SetMapIndex(reflect.ValueOf(e.Key), item)
	}
}

func (d *Decoder) list(n *Node, v reflect.Value, f Field) {
	if most, err := strconv.Atoi(f.Max); err == nil && len(n.Items) > most {
		d.Errorf(n, "must have at most %d entries", most)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items)))
	inner := f.Inner()
	for i, item := range n.Items {
		if n.Default {
			item.Path = JoinIndex(n.Path, i)
		}
		d.value(item, v.Index(i), inner)
	}
}

// IsTrue reports whether a node of kind Bool is true.
func (n *Node) IsTrue() bool { return n.Text == "true" || n.Text == "True" || n.Text == "TRUE" }

// wholeNumber matches integers. It excludes 0x, 0o, leading zeros and 1_000, which versions of YAML
// read differently.
var wholeNumber = lazyregexp.New(`^[+-]?(0|[1-9][0-9]*)$`)

// number decodes a number within the bounds of f.
func (d *Decoder) number(n *Node, v reflect.Value, f Field) {
	what, plain, form := "a number", PlainNumber, "a plain decimal number"
	number, err := strconv.ParseFloat(n.Text, 64)
	whole, isFloat := int64(0), v.Kind() == reflect.Float64
	if !isFloat {
		what, plain, form = "a whole number", wholeNumber, "a whole number in plain digits"
		whole, err = strconv.ParseInt(n.Text, 10, 64)
	}
	lo, errLo := strconv.ParseFloat(f.Min, 64)
	hi, errHi := strconv.ParseFloat(f.Max, 64)
	switch {
	case n.Kind != Number:
		d.Errorf(n, "must be %s, not %s", what, n.Kind)
	case err != nil || !plain.MatchString(n.Text) || math.IsInf(number, 0):
		d.Errorf(n, "must be %s", form)
	case errLo == nil && number < lo:
		d.Errorf(n, "must be at least %s", f.Min)
	case errHi == nil && number > hi:
		d.Errorf(n, "must be at most %s", f.Max)
	case isFloat:
		v.SetFloat(number)
	default:
		v.SetInt(whole)
	}
}

// word decodes a string without references, such as a name, a value of an enum, or a glob.
func (d *Decoder) word(n *Node, v reflect.Value, f Field) {
	if !d.IsText(n, f) {
		return
	}
	switch {
	case f.Enum != nil:
		if problem := OneOf(n.Text, f.Enum); problem != "" {
			d.Errorf(n, "%s", problem)
			return
		}
	// If the default is empty, the empty text is valid and means none.
	case n.Text == "" && f.HasDefault && f.Default == "", d.Check == nil:
	default:
		if problem := d.Check(f, n.Text); problem != "" {
			d.Errorf(n, "%s", problem)
			return
		}
	}
	v.SetString(n.Text)
}

// OneOf returns the text of an error if a word is not one of the allowed ones, or "".
func OneOf(word string, words []string) string {
	if slices.Contains(words, word) {
		return ""
	}
	named := slices.DeleteFunc(slices.Clone(words), func(word string) bool { return word == "" })
	return fmt.Sprintf("must be one of %s, not %s%s", strings.Join(named, ", "), Quote(word),
		guard.DidYouMean(word, words))
}

// IsText reports whether n can be read as a text, and adds an error if not.
func (d *Decoder) IsText(n *Node, f Field) bool {
	switch {
	case n.Kind == Text, n.IsScalar() && (f.Words || n.Default):
		return true
	case n.IsScalar():
		d.Errorf(n, "must be a text, not %s; put it in quotes", n.Kind)
	default:
		d.Errorf(n, "must be a text, not %s", n.Kind)
	}
	return false
}
