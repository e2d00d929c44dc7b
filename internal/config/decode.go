package config

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"

	"github.com/toolcrib/toolcrib"
)

// decoder fills a Config from nodes and gathers every error on the way.
type decoder struct {
	file      string
	base      string
	errs      Errors
	failed    map[string]bool
	positions map[string]int
	columns   map[place]int           // where the key of a path stands in a line
	texts     map[string]TextPosition // of keys that hold an expression
	defaults  bool                    // what is decoded now is a default, not from the file
}

func newDecoder(file, base string) *decoder {
	return &decoder{file: file, base: base, failed: map[string]bool{}, positions: map[string]int{}, columns: map[place]int{}, texts: map[string]TextPosition{}}
}

// place is a key path on a line: a key that stands there twice has two.
type place struct {
	path string
	line int
}

// columnAt returns the column of a key on a line, or of the nearest one that it belongs
// to and that is written there; 0 = not known.
func columnAt(columns map[place]int, path string, line int) int {
	for p := path; p != ""; p = parent(p) {
		if column := columns[place{p, line}]; column > 0 {
			return column
		}
	}
	return 0
}

func (d *decoder) errorf(line int, path, format string, args ...any) {
	d.failed[path] = true
	d.errs = append(d.errs, Error{
		File: d.file, Line: line, Column: columnAt(d.columns, path, line), Key: path, Message: fmt.Sprintf(format, args...),
	})
}

// value decodes n, which is present, into v.
func (d *decoder) value(path string, n *node, v reflect.Value, f field) {
	if !d.defaults {
		d.positions[path] = max(n.line, 1)
		d.columns[place{path, max(n.line, 1)}] = n.column
	}
	if n.kind == kindNull {
		d.null(path, n, v, f)
		return
	}
	switch out := v.Addr().Interface().(type) {
	case *Value:
		d.text(path, n, out, f)
		return
	case *Duration:
		d.duration(path, n, out, f)
		return
	case *JSON:
		d.json(path, n, out, f)
		return
	case *toolcrib.ToolChoice:
		d.toolChoice(path, n, out)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(path, n, v.Elem(), f)
	case reflect.Struct:
		if f.short != "" && n.kind == kindText {
			n = &node{kind: kindDict, line: n.line, column: n.column, entries: []entry{{key: f.short, line: n.line, column: n.column, value: n}}}
		}
		if d.want(path, n, kindDict) {
			d.dict(path, n, v)
		}
	case reflect.Map:
		if d.want(path, n, kindDict) {
			d.mapping(path, n, v, f)
		}
	case reflect.Slice:
		if d.want(path, n, kindList) {
			d.list(path, n, v, f)
		}
	default:
		d.scalar(path, n, v, f)
	}
}

// null decodes an explicit null.
func (d *decoder) null(path string, n *node, v reflect.Value, f field) {
	switch {
	case f.null:
		v.SetZero()
	case v.Type() == reflect.TypeFor[toolcrib.ToolChoice](), v.Type() == reflect.TypeFor[Value](), v.Type() == reflect.TypeFor[Duration]():
		d.errorf(n.line, path, "must not be null%s", emptyHint(f))
	case v.Kind() == reflect.Struct:
		d.dict(path, &node{kind: kindDict, line: n.line}, v)
	case v.Kind() == reflect.Map, v.Kind() == reflect.Slice && (f.def == "[]" || f.def == ""):
		d.absent(path, n.line, v, f)
	case v.Kind() == reflect.Slice:
		d.errorf(n.line, path, "must be a list, not null; write [] for none")
	default:
		d.errorf(n.line, path, "must not be null%s", emptyHint(f))
	}
}

func emptyHint(f field) string {
	if f.hasDef && f.def == "" {
		return `; leave the key out, or write ""`
	}
	return "; leave the key out for the default"
}

func (d *decoder) want(path string, n *node, k kind) bool {
	if n.kind == k {
		return true
	}
	d.errorf(n.line, path, "must be %s, not %s", k, n.kind)
	return false
}

// dict decodes a mapping with known keys.
func (d *decoder) dict(path string, n *node, v reflect.Value) {
	fields := fieldsOf(v.Type())
	byKey := make(map[string]*field, len(fields))
	names := make([]string, len(fields))
	for i := range fields {
		byKey[fields[i].key] = &fields[i]
		names[i] = fields[i].key
	}
	seen := map[string]int{}
	for _, e := range n.entries {
		at := joinKey(path, e.key)
		if d.duplicate(seen, e, at) {
			continue
		}
		f := byKey[e.key]
		if f == nil {
			d.columns[place{at, e.line}] = e.column
			d.errorf(e.line, at, "unknown key %s%s", short(e.key), didYouMean(e.key, names))
			continue
		}
		d.value(at, e.at(), v.Field(f.index), *f)
	}
	for _, f := range fields {
		if _, ok := seen[f.key]; !ok {
			d.absent(joinKey(path, f.key), n.line, v.Field(f.index), f)
		}
	}
}

// at returns the value with the line of its key: that is where people look.
func (e entry) at() *node {
	n := *e.value
	n.line, n.column = e.line, e.column
	return &n
}

func (d *decoder) duplicate(seen map[string]int, e entry, path string) bool {
	if first, ok := seen[e.key]; ok {
		d.columns[place{path, e.line}] = e.column
		d.errorf(e.line, path, "duplicate key %s; it stands at line %d already", short(e.key), first)
		return true
	}
	seen[e.key] = e.line
	return false
}

// absent gives v what counts where nothing is written.
func (d *decoder) absent(path string, line int, v reflect.Value, f field) {
	if f.required {
		d.errorf(line, path, "is required")
		return
	}
	before := d.defaults
	d.defaults = true
	defer func() { d.defaults = before }()
	if n := f.defaultNode(); n != nil {
		d.value(path, n, v, f)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.dict(path, &node{kind: kindDict, line: line}, v)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Slice:
		if !f.null {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
	}
}

// mapping decodes a mapping whose keys are names.
func (d *decoder) mapping(path string, n *node, v reflect.Value, f field) {
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.entries)))
	seen := map[string]int{}
	for _, e := range n.entries {
		at := joinKey(path, e.key)
		if d.duplicate(seen, e, at) {
			continue
		}
		if pattern := keyPattern(f.keys); !pattern.MatchString(e.key) {
			d.errorf(e.line, at, "%s is no good name here: it must match %s", short(e.key), pattern)
			continue
		}
		item := reflect.New(v.Type().Elem()).Elem()
		inner := field{format: f.format, secret: f.secret, words: f.words, typ: item.Type()}
		d.value(at, e.at(), item, inner)
		v.SetMapIndex(reflect.ValueOf(e.key), item)
	}
}

func (d *decoder) list(path string, n *node, v reflect.Value, f field) {
	if _, most, _, ok := f.intBounds(); ok && int64(len(n.items)) > most {
		d.errorf(n.line, path, "must have at most %d entries", most)
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	inner := field{format: f.format, secret: f.secret, words: f.words, min: f.min, short: f.short, typ: v.Type().Elem()}
	for i, item := range n.items {
		d.value(joinIndex(path, i), item, v.Index(i), inner)
	}
}

func (d *decoder) scalar(path string, n *node, v reflect.Value, f field) {
	switch v.Kind() {
	case reflect.Bool:
		if d.want(path, n, kindBool) {
			v.SetBool(n.text == "true" || n.text == "True" || n.text == "TRUE")
		}
	case reflect.Int, reflect.Int64:
		d.whole(path, n, v, f)
	case reflect.Float64:
		d.float(path, n, v, f)
	case reflect.String:
		if text, ok := d.word(path, n, f); ok {
			v.SetString(text)
		}
		if f.format == "expression" && !d.defaults {
			d.texts[path] = n.start
		}
	default:
		panic("config: no decoder for " + v.Type().String()) // a mistake in Config itself, found by every test
	}
}

// wholeNumber is what counts as a whole number: no 0x, 0o, leading zeros or 1_000,
// which YAML's versions read differently.
var wholeNumber = regexp.MustCompile(`^[+-]?(0|[1-9][0-9]*)$`)

func (d *decoder) whole(path string, n *node, v reflect.Value, f field) {
	number, err := strconv.ParseInt(n.text, 10, 64)
	switch {
	case n.kind != kindNumber:
		d.errorf(n.line, path, "must be a whole number, not %s", n.kind)
		return
	case err != nil || !wholeNumber.MatchString(n.text):
		d.errorf(n.line, path, "must be a whole number in plain digits")
		return
	}
	lo, hi, hasMin, hasMax := f.intBounds()
	switch {
	case hasMin && number < lo:
		d.errorf(n.line, path, "must be at least %d", lo)
	case hasMax && number > hi:
		d.errorf(n.line, path, "must be at most %d", hi)
	default:
		v.SetInt(number)
	}
}

func (d *decoder) float(path string, n *node, v reflect.Value, f field) {
	number, err := strconv.ParseFloat(n.text, 64)
	switch {
	case n.kind != kindNumber:
		d.errorf(n.line, path, "must be a number, not %s", n.kind)
		return
	case err != nil || !jsonNumber.MatchString(n.text) || math.IsInf(number, 0) || math.IsNaN(number):
		d.errorf(n.line, path, "must be a plain decimal number")
		return
	}
	if lo, err := strconv.ParseFloat(f.min, 64); err == nil && number < lo {
		d.errorf(n.line, path, "must be at least %s", f.min)
		return
	}
	if hi, err := strconv.ParseFloat(f.max, 64); err == nil && number > hi {
		d.errorf(n.line, path, "must be at most %s", f.max)
		return
	}
	v.SetFloat(number)
}

// word decodes a text that stands for itself: a name, a word of a list, a glob.
func (d *decoder) word(path string, n *node, f field) (string, bool) {
	if !d.isText(path, n, f) {
		return "", false
	}
	if f.enum != nil {
		if !slices.Contains(f.enum, n.text) {
			d.errorf(n.line, path, "must be one of %s, not %s%s", f.choices(), short(n.text), didYouMean(n.text, f.enum))
			return "", false
		}
		return n.text, true
	}
	if refPattern.MatchString(n.text) {
		d.errorf(n.line, path, "cannot hold a reference such as ${env:NAME}; write the value itself")
		return "", false
	}
	// An empty default is how a key says "none"; a list never has such an entry.
	if n.text == "" && f.hasDef && f.def == "" {
		return "", true
	}
	if problem := checkFormat(f.format, n.text); problem != "" {
		d.errorf(n.line, path, "%s", problem)
		return "", false
	}
	return n.text, true
}

// isText reports whether n can be read as a text, and says so if not.
func (d *decoder) isText(path string, n *node, f field) bool {
	switch {
	case n.kind == kindText, f.words && (n.kind == kindBool || n.kind == kindNumber), d.defaults && n.kind == kindNumber:
		return true
	case n.kind == kindBool || n.kind == kindNumber:
		d.errorf(n.line, path, "must be a text, not %s; put it in quotes", n.kind)
	default:
		d.errorf(n.line, path, "must be a text, not %s", n.kind)
	}
	return false
}

func (d *decoder) text(path string, n *node, out *Value, f field) {
	if !d.isText(path, n, f) {
		return
	}
	v := Value{raw: n.text, at: Error{Key: path}, format: f.format, secret: f.secret}
	if !d.defaults {
		v.at.File, v.at.Line, v.base = d.file, n.line, d.base
	}
	if problem := v.check(); problem != "" {
		d.errorf(n.line, path, "%s", problem)
		return
	}
	if v.raw == "" && (f.min != "" || f.required) {
		d.errorf(n.line, path, "must not be empty")
		return
	}
	*out = v
}

func (d *decoder) toolChoice(path string, n *node, out *toolcrib.ToolChoice) {
	switch {
	case n.kind == kindText && slices.Contains([]string{toolcrib.ChoiceAuto, toolcrib.ChoiceNone, toolcrib.ChoiceRequired}, n.text):
		*out = toolcrib.ToolChoice{Mode: n.text}
	case n.kind == kindDict && len(n.entries) == 1 && n.entries[0].key == "name" && n.entries[0].value.kind == kindText &&
		keyPattern("tool").MatchString(n.entries[0].value.text):
		d.positions[joinKey(path, "name")] = n.entries[0].line
		*out = toolcrib.ToolChoice{Mode: toolcrib.ChoiceName, Name: n.entries[0].value.text}
	default:
		d.errorf(n.line, path, "must be auto, none, required or {name: TOOL}")
	}
}

func (d *decoder) json(path string, n *node, out *JSON, f field) {
	if !d.want(path, n, kindDict) {
		return
	}
	before := len(d.errs)
	tree := d.tree(path, n)
	if len(d.errs) > before {
		return
	}
	text, err := json.Marshal(tree)
	if err != nil {
		d.errorf(n.line, path, "cannot be written as JSON")
		return
	}
	if f.format == "schema" {
		if problem := checkSchema(text); problem != "" {
			d.errorf(n.line, path, "%s", problem)
			return
		}
	}
	*out = text
}
