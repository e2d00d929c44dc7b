package celrule

import (
	"encoding/json"
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"

	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
)

// knownTool has the known arguments of a tool.
type knownTool struct {
	name      string
	arguments map[string]knownArgument
	closed    bool // there are no other arguments
}

type knownArgument struct {
	required bool
	kind     kind
}

// knowledge has what is known about the tools.
type knowledge struct {
	Options
	byName map[string]*knownTool // nil if the arguments are not known
}

// missing reports whether a pattern matches none of the tools, and returns a hint at the intended
// one.
func (k *knowledge) missing(pattern string) (hint string, missing bool) {
	if k.Tools == nil || slices.ContainsFunc(k.Tools, func(name string) bool { return gate.Match(pattern, name) }) {
		return "", false
	}
	return guard.DidYouMean(pattern, k.Tools), true
}

// tools returns the tools of a rule whose arguments are known. all reports whether the rule names
// its tools and all of them are known; loose, whether one of its globs matches tools of servers, to
// which others can be added.
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

// server reports whether a name is that of a server's tool. Such tools come and go.
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

// readSchema reads the arguments of a JSON Schema. It returns nil if the schema allows any object,
// or constrains the arguments by more than properties, required and additionalProperties.
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

// cases reports whether a schema has keywords that apply other schemas, or is not an object.
func cases(raw json.RawMessage) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return true
	}
	more := []string{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"}
	return slices.ContainsFunc(more, func(keyword string) bool { return members[keyword] != nil })
}

// readKind returns the only type other than null that the schema of an argument allows, or "".
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
	if kind(name).declared(types.IntType) == nil {
		return ""
	}
	return kind(name)
}
