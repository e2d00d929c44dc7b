package celrule

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
)

// knownTool is what is known of a tool's arguments.
type knownTool struct {
	name      string
	arguments map[string]knownArgument
	closed    bool // there are no others
}

type knownArgument struct {
	required bool
	kind     kind
}

// knowledge is what is known of the tools.
type knowledge struct {
	Options
	byName map[string]*knownTool // nil = nothing is known of its arguments
}

// missing reports whether a pattern means none of the tools that there are, and
// hints at the one that was meant.
func (k *knowledge) missing(pattern string) (hint string, missing bool) {
	if k.Tools == nil || slices.ContainsFunc(k.Tools, func(name string) bool { return gate.Match(pattern, name) }) {
		return "", false
	}
	return guard.DidYouMean(pattern, k.Tools), true
}

// tools returns the tools of a rule whose arguments are known. all reports whether the
// rule names its tools and all of them are known; loose, whether a glob of it is about
// tools of servers, of which others may come.
func (k *knowledge) tools(r *rule) (known []knownTool, all, loose bool) {
	var names []string
	for _, p := range r.tools {
		if !wild(p) {
			names = append(names, p)
			continue
		}
		loose = loose || server(p)
	}
	for _, name := range k.Tools {
		if r.about(name) && !slices.Contains(r.tools, name) {
			names = append(names, name)
			loose = loose || server(name)
		}
	}
	slices.Sort(names)
	all = !r.every
	for _, name := range slices.Compact(names) {
		if t := k.tool(name); t != nil {
			known = append(known, *t)
		} else {
			all = false
		}
	}
	return known, all, loose
}

// server reports whether a name is of a server's tool. Those come and go.
func server(name string) bool { return strings.Contains(name, "__") }

func (k *knowledge) tool(name string) *knownTool {
	if t, ok := k.byName[name]; ok {
		return t
	}
	var t *knownTool
	if k.Schemas != nil {
		t = readSchema(name, k.Schemas(name))
	}
	k.byName[name] = t
	return t
}

// readSchema reads the arguments of a JSON Schema. A schema that says more of them
// than properties, required and additionalProperties do tells nothing here.
func readSchema(name string, raw json.RawMessage) *knownTool {
	var schema struct {
		Properties           map[string]json.RawMessage
		Required             []string
		AdditionalProperties any
	}
	if cases(raw) || json.Unmarshal(raw, &schema) != nil {
		return nil
	}
	t := &knownTool{name: name, arguments: map[string]knownArgument{}, closed: schema.AdditionalProperties == false}
	for p, property := range schema.Properties {
		t.arguments[p] = knownArgument{slices.Contains(schema.Required, p), readKind(property)}
	}
	if len(t.arguments) == 0 && !t.closed {
		return nil // any object
	}
	return t
}

// cases reports whether a schema says more than its own keywords do, or is no object.
func cases(raw json.RawMessage) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return true
	}
	more := []string{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"}
	return slices.ContainsFunc(more, func(keyword string) bool { return members[keyword] != nil })
}

// readKind reads the only type that the schema of an argument allows, but for null.
func readKind(raw json.RawMessage) kind {
	var schema struct{ Type any }
	if cases(raw) || json.Unmarshal(raw, &schema) != nil {
		return ""
	}
	list, ok := schema.Type.([]any)
	if !ok {
		list = []any{schema.Type}
	}
	list = slices.DeleteFunc(list, func(of any) bool { return of == "null" })
	if len(list) != 1 {
		return ""
	}
	name, _ := list[0].(string)
	if name == "integer" {
		return kindNumber
	}
	if _, known := kinds[kind(name)]; !known {
		return ""
	}
	return kind(name)
}
