package gemini

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/provider/wire"
)

// propertyName is what a parameter's name may be. The API says letters, digits
// and underscores, and takes what is usual besides.
var propertyName = regexp.MustCompile(`^[A-Za-z0-9_.$@:/-]{1,64}$`)

// members writes what the API takes, in the order of the schema.
func (p *projector) members(dst []byte, o object, depth int) []byte {
	w := writer{buf: append(dst, '{')}
	hint := p.hint(o)
	for _, f := range o {
		switch f.name {
		case "type", "minItems", "maxItems", "minimum", "maximum":
			p.plain(&w, f)
		case "title":
			if r := raw(f.value); len(r) > 0 && r[0] == '"' {
				w.raw(f.name, r)
			}
		case "description":
			if text := o.text(f.name); text+hint != "" {
				w.text(f.name, strings.TrimSpace(text+" "+hint))
				hint = ""
			}
		case "format":
			if slices.Contains(formats, o.text(f.name)) {
				w.raw(f.name, raw(f.value))
			}
		case "enum", "const":
			p.enum(&w, f)
		case "properties":
			p.properties(&w, f, depth)
		case "required":
			required(&w, o)
		case "items":
			p.items(&w, f, depth)
		case "additionalProperties":
			p.additional(&w, f, depth)
		case "prefixItems", "anyOf", "oneOf":
			p.branches(&w, f, depth)
		case "not", "if", "then", "else", "patternProperties", "contains", "dependentSchemas", "dependentRequired",
			"dependencies", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef":
			p.lossy = true
		}
	}
	if isArray(o) && !slices.Contains(w.names, "prefixItems") {
		w.raw("items", []byte(`{}`)) // an array without is refused
	}
	if hint != "" {
		w.text("description", hint)
	}
	return append(w.buf, '}')
}

func isArray(o object) bool {
	list, ok := o.get("type").([]any)
	if !ok {
		list = []any{o.get("type")}
	}
	return slices.ContainsFunc(list, func(one any) bool { return string(raw(one)) == `"array"` })
}

// writer writes the members of an object; the first of a name counts.
type writer struct {
	buf   []byte
	names []string
}

func (w *writer) name(name string) bool {
	if slices.Contains(w.names, name) {
		return false
	}
	if len(w.names) > 0 {
		w.buf = append(w.buf, ',')
	}
	w.names = append(w.names, name)
	w.buf = append(wire.AppendString(w.buf, name), ':')
	return true
}

func (w *writer) raw(name string, value []byte) {
	if w.name(name) {
		w.buf = append(w.buf, value...)
	}
}

func (w *writer) text(name, value string) {
	if w.name(name) {
		w.buf = wire.AppendString(w.buf, value)
	}
}

// formats are those that the API documents.
var formats = []string{"date-time", "date", "time", "float", "double", "int32", "int64"}

// hint tells in words what the API has no field for.
func (p *projector) hint(o object) string {
	var all []string
	for _, f := range o {
		switch f.name {
		case "format":
			if slices.Contains(formats, o.text(f.name)) {
				continue
			}
		case "pattern", "default", "minLength", "maxLength", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
			"uniqueItems", "minProperties", "maxProperties":
		default:
			continue
		}
		if r := raw(f.value); len(r) > 0 && string(r) != "null" && len(r) <= maxHintBytes {
			all = append(all, f.name+": "+string(r))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "(" + strings.Join(all, ", ") + ")"
}

// types are the names that a type may have.
var types = []string{"string", "number", "integer", "boolean", "object", "array", "null"}

// plain writes a type or a number as it is.
func (p *projector) plain(w *writer, f field) {
	if f.name != "type" {
		if r := raw(f.value); len(r) > 0 && (r[0] == '-' || r[0] >= '0' && r[0] <= '9') {
			w.raw(f.name, r)
		}
		return
	}
	list, ok := f.value.([]any)
	if !ok {
		list = []any{f.value}
	}
	var names []string
	for _, one := range list {
		var name string
		if json.Unmarshal(raw(one), &name) == nil && slices.Contains(types, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
	case 1:
		w.text(f.name, names[0])
	default:
		w.name(f.name)
		w.buf = append(w.buf, '[')
		for i, name := range names {
			w.buf = wire.AppendString(separated(w.buf, i), name)
		}
		w.buf = append(w.buf, ']')
	}
}

func separated(dst []byte, i int) []byte {
	if i > 0 {
		return append(dst, ',')
	}
	return dst
}

// enum writes the values that are strings or numbers; the API takes no others.
// An enumeration that holds others beside null is left out.
func (p *projector) enum(w *writer, f field) {
	list, ok := f.value.([]any)
	if f.name == "const" {
		list, ok = []any{f.value}, true
	}
	if !ok {
		return
	}
	var values [][]byte
	for _, v := range list {
		r := raw(v)
		switch {
		case string(r) == "null":
		case len(r) > 0 && (r[0] == '"' || r[0] == '-' || r[0] >= '0' && r[0] <= '9'):
			values = append(values, r)
		default:
			p.lossy = true
			return
		}
	}
	if len(values) == 0 || !w.name("enum") {
		return
	}
	w.buf = append(w.buf, '[')
	for i, v := range values {
		w.buf = append(separated(w.buf, i), v...)
	}
	w.buf = append(w.buf, ']')
}

func (p *projector) properties(w *writer, f field, depth int) {
	list, ok := f.value.(object)
	if !ok || len(list) == 0 || !w.name(f.name) {
		return
	}
	w.buf = append(w.buf, '{')
	seen := make(map[string]bool, min(len(list), maxSchemaNodes))
	for _, one := range list {
		switch {
		case p.err != nil:
			return
		case seen[one.name]:
			continue
		case !propertyName.MatchString(one.name):
			p.fail("this API does not accept the parameter name %q", wire.Clip(one.name, 80))
		}
		w.buf = append(wire.AppendString(separated(w.buf, len(seen)), one.name), ':')
		w.buf = p.schema(w.buf, one.value, depth+1)
		seen[one.name] = true
	}
	w.buf = append(w.buf, '}')
}

// required writes the names that are among the properties: others are refused.
func required(w *writer, o object) {
	list, _ := o.get("required").([]any)
	properties, _ := o.get("properties").(object)
	var names []string
	if len(list) > maxSchemaNodes || len(properties) > maxSchemaNodes {
		return
	}
	for _, v := range list {
		var name string
		if json.Unmarshal(raw(v), &name) == nil && properties.get(name) != nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 || !w.name("required") {
		return
	}
	w.buf = append(w.buf, '[')
	for i, name := range names {
		w.buf = wire.AppendString(separated(w.buf, i), name)
	}
	w.buf = append(w.buf, ']')
}

// items writes the schema of elements; a list of schemas, as older drafts have
// it, is prefixItems.
func (p *projector) items(w *writer, f field, depth int) {
	if list, ok := f.value.([]any); ok {
		p.branches(w, field{"prefixItems", list}, depth)
		return
	}
	if w.name(f.name) {
		w.buf = p.schema(w.buf, f.value, depth+1)
	}
}

func (p *projector) additional(w *writer, f field, depth int) {
	if o, ok := f.value.(object); ok && len(o) > 0 {
		if w.name(f.name) {
			w.buf = p.schema(w.buf, o, depth+1)
		}
		return
	}
	if string(raw(f.value)) == "false" {
		w.raw(f.name, []byte("false"))
	}
}

func (p *projector) branches(w *writer, f field, depth int) {
	list, ok := f.value.([]any)
	if !ok || len(list) == 0 {
		return
	}
	name := f.name
	if name == "oneOf" {
		name = "anyOf"
	}
	if !w.name(name) {
		p.lossy = true
		return
	}
	w.buf = append(w.buf, '[')
	for i, v := range list {
		w.buf = p.schema(separated(w.buf, i), v, depth+1)
	}
	w.buf = append(w.buf, ']')
}
