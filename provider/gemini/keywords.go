package gemini

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// propertyName is what a parameter's name may be. The API says letters, digits
// and underscores, and also accepts the usual names.
var propertyName = lazyregexp.New(`^[A-Za-z0-9_.$@:/-]{1,64}$`)

// members is what the API takes of a schema, in its order.
func (p *projector) members(o object, depth int) object {
	out, hint := object{}, p.hint(o)
	for _, f := range o {
		switch f.name {
		case "type":
			out = out.add(f.name, typeNames(f.value))
		case "minItems", "maxItems", "minimum", "maximum":
			if r := raw(f.value); isNumber(r) {
				out = out.add(f.name, r)
			}
		case "title":
			if r := raw(f.value); len(r) > 0 && r[0] == '"' && p.write(len(r)) {
				out = out.add(f.name, r)
			}
		case "description":
			if text := o.text(f.name); text+hint != "" && p.write(len(text)) {
				out = out.add(f.name, quoted(strings.TrimSpace(text+" "+hint)))
				hint = ""
			}
		case "format":
			if slices.Contains(formats, o.text(f.name)) {
				out = out.add(f.name, raw(f.value))
			}
		case "enum", "const":
			out = out.add("enum", p.enum(f))
		case "properties":
			out = out.add(f.name, p.properties(f, depth))
		case "required":
			out = out.add(f.name, p.required(o))
		case "items":
			if list, ok := f.value.([]any); ok { // as older drafts have it
				out = p.branches(out, "prefixItems", list, depth)
			} else if out.get(f.name) == nil {
				out = out.add(f.name, p.schema(f.value, depth+1))
			}
		case "additionalProperties":
			if inner, ok := f.value.(object); ok && len(inner) > 0 && out.get(f.name) == nil {
				out = out.add(f.name, p.schema(inner, depth+1))
			} else if string(raw(f.value)) == "false" {
				out = out.add(f.name, raw(f.value))
			}
		case "prefixItems", "anyOf", "oneOf":
			list, _ := f.value.([]any)
			out = p.branches(out, strings.Replace(f.name, "oneOf", "anyOf", 1), list, depth)
		case "not", "if", "then", "else", "patternProperties", "contains", "dependentSchemas", "dependentRequired",
			"dependencies", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef":
			p.lossy = true
		}
	}
	if p.is(o, "array") && out.get("prefixItems") == nil {
		out = out.add("items", object{}) // an array without is refused
	}
	if hint != "" {
		out = out.add("description", quoted(hint))
	}
	return out
}

// isNumber reports whether a JSON text is a number.
func isNumber(r json.RawMessage) bool {
	return len(r) > 0 && (r[0] == '-' || r[0] >= '0' && r[0] <= '9')
}

func quoted(text string) json.RawMessage { return wire.AppendString(nil, text) }

// formats are those that the API documents.
var formats = []string{"date-time", "date", "time", "float", "double", "int32", "int64"}

// hint says in words what the API has no field for.
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

// typeNames are the names of a type that there are; nil if none.
func typeNames(v any) any {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var names []any
	for _, one := range list {
		var name string
		if json.Unmarshal(raw(one), &name) == nil && slices.Contains(types, name) && !contains(names, quoted(name)) {
			names = append(names, quoted(name))
		}
	}
	switch len(names) {
	case 0:
		return nil
	case 1:
		return names[0]
	}
	return names
}

func contains(list []any, r json.RawMessage) bool {
	return slices.ContainsFunc(list, func(one any) bool { return bytes.Equal(raw(one), r) })
}

// enum are the values that are strings or numbers; the API takes no others.
// An enumeration that holds others beside null is left out.
func (p *projector) enum(f field) any {
	list, ok := f.value.([]any)
	if f.name == "const" {
		list, ok = []any{f.value}, true
	}
	if !ok {
		return nil
	}
	var values []any
	for _, v := range list {
		r := raw(v)
		switch {
		case string(r) == "null":
		case !p.write(1 + len(r)):
			return nil
		case isNumber(r) || len(r) > 0 && r[0] == '"':
			values = append(values, r)
		default:
			p.lossy = true
			return nil
		}
	}
	return some(values)
}

// some is a list that is not empty, or nil.
func some(list []any) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

func (p *projector) properties(f field, depth int) any {
	list, ok := f.value.(object)
	if !ok || len(list) == 0 {
		return nil
	}
	out, seen := object{}, make(map[string]bool, min(len(list), maxSchemaNodes))
	for _, one := range list {
		switch {
		case p.err != nil:
			return out
		case seen[one.name]:
			continue
		case !propertyName.MatchString(one.name):
			p.fail("this API does not accept the parameter name %q", wire.Clip(one.name, 80))
		}
		out = append(out, field{one.name, p.schema(one.value, depth+1)})
		seen[one.name] = true
	}
	return out
}

// required are the names that are among the properties: others are refused.
func (p *projector) required(o object) any {
	list, _ := o.get("required").([]any)
	properties, _ := o.get("properties").(object)
	if len(list) > maxSchemaNodes || len(properties) > maxSchemaNodes {
		return nil
	}
	var names []any
	for _, v := range list {
		var name string
		if !p.write(1 + len(raw(v))) {
			return nil
		}
		if json.Unmarshal(raw(v), &name) == nil && properties.get(name) != nil && !contains(names, quoted(name)) {
			names = append(names, quoted(name))
		}
	}
	return some(names)
}

// branches adds a list of schemas under a name that is free.
func (p *projector) branches(out object, name string, list []any, depth int) object {
	if len(list) == 0 {
		return out
	}
	if out.get(name) != nil {
		p.lossy = true
		return out
	}
	schemas := make([]any, len(list))
	for i, v := range list {
		schemas[i] = p.schema(v, depth+1)
	}
	return out.add(name, schemas)
}
