package ui

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Bounds of a form. What is larger or deeper is a field for JSON.
const (
	maxFields  = 200
	maxChoices = 200
	maxNested  = 4
)

// field is a field of a form that is made from a JSON Schema. It reads no more than it shows: whether a value is valid
// against the schema is for the gate.
type field struct {
	ID, Name string // of the element; Name is a prefix and the path of the property
	Label    string // title or name of the property; "" for the whole value
	Hint     string
	Kind     fieldKind
	Required bool // must be given
	Native   bool // the browser may insist on it, because nothing around it may be left out
	Value    string
	Options  []option
	Fields   []*field // of a group
	Error    string   // key of a text, or ""
	Detail   string   // argument of that text

	property string // name of the property in its group
	nullable bool
	items    fieldKind // of a list
}

// fieldKind is the kind of a field.
type fieldKind string

const (
	fieldText    fieldKind = "text"
	fieldLine    fieldKind = "line" // text of one line
	fieldSecret  fieldKind = "secret"
	fieldNumber  fieldKind = "number"
	fieldInteger fieldKind = "integer"
	fieldChoice  fieldKind = "choice"  // one of the options
	fieldChoices fieldKind = "choices" // some of the options
	fieldList    fieldKind = "list"    // one value on each line
	fieldGroup   fieldKind = "group"
	fieldJSON    fieldKind = "json"
)

// option is a value to choose. Value is its JSON.
type option struct {
	Value, Label string
	Word         string // key of a text instead of Label
	Chosen       bool
}

// schema has the parts of a JSON Schema that a form shows.
type schema struct {
	Type        oneOrMore         `json:"type"`
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Format      string            `json:"format"`
	Enum        []json.RawMessage `json:"enum"`
	EnumNames   []string          `json:"enumNames"`
	Const       json.RawMessage   `json:"const"`
	Default     json.RawMessage   `json:"default"`
	OneOf       []json.RawMessage `json:"oneOf"`
	AnyOf       []json.RawMessage `json:"anyOf"`
	AllOf       json.RawMessage   `json:"allOf"`
	Ref         string            `json:"$ref"`
	Items       json.RawMessage   `json:"items"`
	Properties  properties        `json:"properties"`
	Required    []string          `json:"required"`
	WriteOnly   bool              `json:"writeOnly"`
	MaxLength   int               `json:"maxLength"`
}

// Property returns the name of the property.
func (one *field) Property() string { return one.property }

// oneOrMore is a text or a list of texts.
type oneOrMore []string

func (o *oneOrMore) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("[")) {
		return json.Unmarshal(data, (*[]string)(o))
	}
	*o = []string{""}
	return json.Unmarshal(data, &(*o)[0])
}

// properties are the schemas of properties in their order.
type properties []property

type property struct {
	name   string
	schema json.RawMessage
}

func (p *properties) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return fmt.Errorf("properties: is not an object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		one := property{name: name.(string)} //nolint:forcetypeassert // keys of objects are texts
		if err := d.Decode(&one.schema); err != nil {
			return err
		}
		*p = append(*p, one)
	}
	return nil
}

// former makes the fields of a form.
type former struct {
	prefix string
	count  int
	edit   bool // the fields have present values, and no defaults
}

// fieldsOf returns the form for a value of a JSON Schema. The names of its fields begin with prefix. If current is not
// nil, the fields have its values, even those that the schema does not name; otherwise they have the defaults.
func fieldsOf(raw json.RawMessage, prefix string, current json.RawMessage) *field {
	f := &former{prefix: prefix, edit: current != nil}
	root := f.field(raw, "", 0, true, true, current)
	if root.Kind != fieldGroup {
		root.Label = ""
	}
	return root
}

// field returns the field for a value at a path.
func (f *former) field(raw json.RawMessage, path string, depth int, required, native bool, now json.RawMessage) *field {
	f.count++
	s, nullable, ok := readSchema(raw)
	if now == nil && !f.edit {
		now = s.Default
	}
	one := &field{
		ID: fmt.Sprintf("%s-%d", f.prefix, f.count), Name: f.prefix + path, Label: s.Title, Hint: s.Description,
		Required: required, Native: required && native, nullable: nullable,
	}
	one.Kind = fieldJSON
	if ok && f.count <= maxFields {
		one.Kind = s.kind(one)
	}
	if one.Kind == fieldGroup {
		if depth < maxNested && f.group(one, s, path, depth, now) {
			return one
		}
		one.Kind, one.Fields = fieldJSON, nil
	}
	one.fill(now)
	return one
}

// group adds the fields of an object. It reports false if now is not an object.
func (f *former) group(one *field, s schema, path string, depth int, now json.RawMessage) bool {
	values := map[string]json.RawMessage{}
	if now != nil && json.Unmarshal(now, &values) != nil {
		return false
	}
	all := slices.Clone(s.Properties)
	for _, name := range slices.Sorted(maps.Keys(values)) { // the schema may permit more than it names
		if !slices.ContainsFunc(all, func(p property) bool { return p.name == name }) {
			all = append(all, property{name: name})
		}
	}
	if f.count+len(all) > maxFields || now != nil && len(values) == 0 && !one.Required {
		return false
	}
	for _, p := range all {
		required := slices.Contains(s.Required, p.name)
		child := f.field(p.schema, path+"/"+url.PathEscape(p.name), depth+1, required, one.Native, values[p.name])
		child.property = p.name
		if child.Label == "" {
			child.Label = p.name
		}
		one.Fields = append(one.Fields, child)
	}
	return true
}

// readSchema reads a schema. A choice between a schema and null is the schema, and may be left out.
func readSchema(raw json.RawMessage) (s schema, nullable, ok bool) {
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return schema{}, false, false
	}
	if n := slices.Index(s.Type, "null"); n >= 0 && len(s.Type) > 1 {
		s.Type, nullable = slices.Delete(s.Type, n, n+1), true
	}
	for _, alternatives := range [][]json.RawMessage{s.AnyOf, s.OneOf} {
		var real []schema
		for _, a := range alternatives {
			if one, _, ok := readSchema(a); ok && !slices.Equal(one.Type, oneOrMore{"null"}) {
				real = append(real, one)
			}
		}
		if len(alternatives) == 2 && len(real) == 1 && len(s.Type) == 0 {
			one := real[0]
			one.Title, one.Description = cmp.Or(s.Title, one.Title), cmp.Or(s.Description, one.Description)
			if s.Default != nil {
				one.Default = s.Default
			}
			return one, true, true
		}
	}
	return s, nullable, true
}

// kind returns the kind of a field for a schema, whose options it adds.
func (s *schema) kind(one *field) fieldKind {
	if s.Ref != "" || s.AllOf != nil || len(s.Type) > 1 {
		return fieldJSON
	}
	if one.Options = s.options(); one.Options != nil {
		return fieldChoice
	}
	kind := ""
	if len(s.Type) == 1 {
		kind = s.Type[0]
	}
	switch {
	case len(s.Enum)+len(s.OneOf)+len(s.AnyOf) > 0 || s.Const != nil:
	case s.WriteOnly && kind == "string", kind == "string" && s.Format == "password":
		return fieldSecret
	case kind == "string" && (s.Format != "" || s.MaxLength > 0 && s.MaxLength <= 100):
		return fieldLine
	case kind == "string":
		return fieldText
	case kind == "integer":
		return fieldInteger
	case kind == "number":
		return fieldNumber
	case kind == "boolean":
		one.Options = []option{{Value: "true", Word: "schemaform.yes"}, {Value: "false", Word: "schemaform.no"}}
		return fieldChoice
	case kind == "array":
		return s.array(one)
	case kind == "object" && len(s.Properties) > 0:
		return fieldGroup
	}
	return fieldJSON
}

func (s *schema) array(one *field) fieldKind {
	items, nullable, ok := readSchema(s.Items)
	if !ok || nullable {
		return fieldJSON
	}
	of := &field{}
	switch kind := items.kind(of); kind {
	case fieldChoice:
		one.Options = of.Options
		return fieldChoices
	case fieldText, fieldLine, fieldInteger, fieldNumber:
		one.items = kind
		return fieldList
	}
	return fieldJSON
}

// options returns the values of a schema that has few, with their titles.
func (s *schema) options() []option {
	var all []option
	for i, v := range s.Enum {
		name := ""
		if i < len(s.EnumNames) {
			name = s.EnumNames[i]
		}
		all = append(all, newOption(v, name))
	}
	for _, raw := range slices.Concat(s.OneOf, s.AnyOf) {
		one, _, ok := readSchema(raw)
		if !ok || one.Const == nil || len(s.Enum) > 0 {
			return nil
		}
		all = append(all, newOption(one.Const, one.Title))
	}
	if s.Const != nil && len(all) == 0 {
		all = append(all, newOption(s.Const, ""))
	}
	if len(all) > maxChoices || slices.ContainsFunc(all, func(o option) bool { return o.Value == "" }) {
		return nil
	}
	return all
}

// newOption returns the option for a JSON value. Its Value is "" if the JSON is not strictly valid.
func newOption(raw json.RawMessage, name string) option {
	value, err := guard.Canonical(raw)
	if err != nil {
		return option{}
	}
	text := string(value)
	if name == "" && (json.Unmarshal(value, &name) != nil || text == "null" || name == "") {
		name = text
	}
	return option{Value: text, Label: name}
}

// fill shows a value in a field. A field that cannot show it without a loss becomes one for JSON.
func (one *field) fill(now json.RawMessage) {
	if now == nil || one.nullable && string(now) == "null" {
		return
	}
	if one.Kind == fieldSecret || one.show(now) {
		return
	}
	one.Kind, one.Options = fieldJSON, nil
	one.Value = prettyEscaped(now)
}

// show reports whether a field can show a value.
func (one *field) show(now json.RawMessage) bool {
	var text string
	var list []json.RawMessage
	value, err := guard.Canonical(now)
	if err != nil {
		return false
	}
	switch one.Kind {
	case fieldText, fieldLine:
		if json.Unmarshal(value, &text) != nil || strings.TrimSpace(text) == "" ||
			guard.Visible(text) != text || one.Kind == fieldLine && strings.Contains(text, "\n") {
			return false
		}
		one.Value = text
	case fieldNumber, fieldInteger:
		one.Value = string(value)
		return one.pattern().MatchString(one.Value)
	case fieldChoice:
		return one.choose(string(value)) == 1
	case fieldChoices:
		if json.Unmarshal(value, &list) != nil {
			return false
		}
		texts := make([]string, len(list))
		for i := range list {
			texts[i] = string(list[i])
		}
		at := func(text string) int {
			return slices.IndexFunc(one.Options, func(o option) bool { return o.Value == text })
		}
		inOrder := slices.IsSortedFunc(texts, func(a, b string) int { return at(a) - at(b) })
		return one.choose(texts...) == len(list) && inOrder
	case fieldList:
		if json.Unmarshal(value, &list) != nil || len(list) == 0 {
			return false
		}
		lines := make([]string, len(list))
		for i, v := range list {
			item := &field{Kind: fieldLine}
			if one.items == fieldInteger || one.items == fieldNumber {
				item.Kind = one.items
			}
			if !item.show(v) {
				return false
			}
			lines[i] = item.Value
		}
		one.Value = strings.Join(lines, "\n")
	default:
		return false
	}
	return true
}

// choose chooses the options with these values and no others, and returns how many there are.
func (one *field) choose(values ...string) (n int) {
	for i := range one.Options {
		o := &one.Options[i]
		if o.Chosen = slices.Contains(values, o.Value); o.Chosen {
			n++
		}
	}
	return n
}

var (
	integerPattern = lazyregexp.New(`^-?(0|[1-9][0-9]*)$`)
	numberPattern  = lazyregexp.New(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
)

func (one *field) pattern() *lazyregexp.Regexp {
	if one.Kind == fieldInteger || one.items == fieldInteger {
		return integerPattern
	}
	return numberPattern
}

// read returns the value that a form was sent with, and keeps the input in the fields. It returns nil if nothing
// was given, or if a field has an error: see [field.valid].
func (one *field) read(sent url.Values) json.RawMessage {
	one.Error, one.Detail = "", ""
	switch one.Kind {
	case fieldGroup:
		if !one.Required && !one.given(sent) {
			return nil
		}
		return one.readGroup(sent)
	case fieldChoices:
		return one.readChoices(sent)
	}
	text := strings.ReplaceAll(sent.Get(one.Name), "\r\n", "\n")
	one.Value = text
	if one.Kind == fieldSecret {
		one.Value = ""
	}
	if strings.TrimSpace(text) == "" {
		one.choose()
		return one.missing()
	}
	switch one.Kind {
	case fieldText, fieldLine, fieldSecret:
		return one.encoded(text)
	case fieldNumber, fieldInteger:
		return one.number(strings.TrimSpace(text))
	case fieldList:
		return one.list(text)
	case fieldChoice:
		if one.choose(text) != 1 {
			return one.wrong("schemaform.bad_choice", "")
		}
		return json.RawMessage(text)
	}
	value, err := guard.Canonical([]byte(text))
	if err != nil {
		return one.wrong("schemaform.bad_json", err.Error())
	}
	return value
}

func (one *field) readGroup(sent url.Values) json.RawMessage {
	var b bytes.Buffer
	for _, child := range one.Fields {
		if value := child.read(sent); value != nil {
			fmt.Fprintf(&b, ",%s:%s", child.encoded(child.property), value)
		}
	}
	if b.Len() == 0 {
		return json.RawMessage("{}")
	}
	b.Bytes()[0] = '{'
	b.WriteByte('}')
	return b.Bytes()
}

// given reports whether anything was typed or chosen.
func (one *field) given(sent url.Values) bool {
	typed := func(text string) bool { return strings.TrimSpace(text) != "" }
	inside := func(child *field) bool { return child.given(sent) }
	return slices.ContainsFunc(sent[one.Name], typed) || slices.ContainsFunc(one.Fields, inside)
}

func (one *field) readChoices(sent url.Values) json.RawMessage {
	chosen := sent[one.Name]
	if n := one.choose(chosen...); n != len(chosen) {
		return one.wrong("schemaform.bad_choice", "")
	} else if n == 0 && !one.Required {
		return nil
	}
	return json.RawMessage("[" + strings.Join(chosen, ",") + "]")
}

func (one *field) list(text string) json.RawMessage {
	var all []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		value := one.encoded(line)
		if one.items == fieldInteger || one.items == fieldNumber {
			value = one.number(strings.TrimSpace(line))
		}
		all = append(all, string(value))
	}
	if one.Error != "" {
		return nil
	}
	return json.RawMessage("[" + strings.Join(all, ",") + "]")
}

func (one *field) number(text string) json.RawMessage {
	if one.pattern().MatchString(text) {
		return json.RawMessage(text)
	}
	if one.Kind == fieldInteger || one.items == fieldInteger {
		return one.wrong("schemaform.bad_integer", "")
	}
	return one.wrong("schemaform.bad_number", "")
}

func (one *field) encoded(text string) json.RawMessage {
	raw, err := guard.EncodeJSON(text, false)
	if err != nil {
		return one.wrong("schemaform.bad_json", err.Error())
	}
	return bytes.TrimSpace(raw)
}

func (one *field) missing() json.RawMessage {
	switch {
	case !one.Required:
		return nil
	case one.nullable:
		return json.RawMessage("null")
	case one.Kind == fieldList:
		return json.RawMessage("[]")
	}
	return one.wrong("schemaform.missing", "")
}

func (one *field) wrong(key, detail string) json.RawMessage {
	one.Error, one.Detail = key, detail
	return nil
}

// wrongs returns the fields with errors.
func (one *field) wrongs() (all []*field) {
	if one.Error != "" {
		all = append(all, one)
	}
	for _, child := range one.Fields {
		all = append(all, child.wrongs()...)
	}
	return all
}

// valueOf returns the value that a form was sent with. ok is false if a field has an error. A value that was not given
// at all is nil.
func (one *field) valueOf(sent url.Values) (value json.RawMessage, ok bool) {
	value = one.read(sent)
	return value, len(one.wrongs()) == 0
}

// prettyEscaped returns JSON in lines, with hidden characters as escapes, so that it can be edited without a loss.
func prettyEscaped(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return guard.ReplaceHidden(b.String(), func(hidden string) string {
		var text strings.Builder
		for _, unit := range utf16.Encode([]rune(hidden)) {
			fmt.Fprintf(&text, "\\u%04x", unit)
		}
		return text.String()
	})
}
