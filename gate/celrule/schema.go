package celrule

import (
	"encoding/json"
	"fmt"
	"slices"

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
	null     bool // it can be null, too
}

// knowledge is what is known of the tools.
type knowledge struct {
	names   []string
	schemas func(string) json.RawMessage
	spelled func(tool, argument string) string
	byName  map[string]*knownTool // nil = nothing is known of its arguments
}

func newKnowledge(o Options) *knowledge {
	return &knowledge{names: o.Tools, schemas: o.Schemas, spelled: o.Spelled, byName: map[string]*knownTool{}}
}

// missing reports whether a pattern means none of the tools that there are, and
// hints at the one that was meant.
func (k *knowledge) missing(p pattern) (hint string, missing bool) {
	if k.names == nil || slices.ContainsFunc(k.names, p.match) {
		return "", false
	}
	return didYouMean(p.text, k.names), true
}

// tools returns the tools of a rule whose arguments are known.
func (k *knowledge) tools(r *rule) []knownTool {
	var names []string
	for _, name := range k.names {
		if r.about(name) {
			names = append(names, name)
		}
	}
	for _, p := range r.tools {
		if !p.wild && !slices.Contains(names, p.text) {
			names = append(names, p.text)
		}
	}
	var tools []knownTool
	for _, name := range names {
		if t := k.tool(name); t != nil {
			tools = append(tools, *t)
		}
	}
	return tools
}

// toolsOf returns the tools of a rule, nil unless the arguments of all are known.
// loose says that a glob of it is about tools of servers, of which others may come.
func (k *knowledge) toolsOf(r *rule) (tools []knownTool, loose bool) {
	var names []string
	for _, p := range r.tools {
		if !p.wild {
			names = append(names, p.text)
			continue
		}
		loose = loose || server(p.text)
		for _, name := range k.names {
			if p.match(name) {
				names = append(names, name)
				loose = loose || server(name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		t := k.tool(name)
		if t == nil {
			return nil, false
		}
		tools = append(tools, *t)
	}
	return tools, loose
}

func (k *knowledge) tool(name string) *knownTool {
	if t, ok := k.byName[name]; ok {
		return t
	}
	var t *knownTool
	if k.schemas != nil {
		t = readSchema(name, k.schemas(name))
	}
	k.byName[name] = t
	return t
}

// readSchema reads the arguments of a JSON Schema. A schema that says more of them
// than properties, required and additionalProperties do tells nothing here.
func readSchema(name string, raw json.RawMessage) *knownTool {
	if len(raw) == 0 {
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil
	}
	if cases(members) {
		return nil
	}
	var properties map[string]json.RawMessage
	var required []string
	if p, has := members["properties"]; has && json.Unmarshal(p, &properties) != nil {
		return nil
	}
	if r, has := members["required"]; has && json.Unmarshal(r, &required) != nil {
		return nil
	}
	t := &knownTool{name: name, arguments: map[string]knownArgument{}, closed: string(members["additionalProperties"]) == "false"}
	for p, schema := range properties {
		of, null := readKind(schema)
		t.arguments[p] = knownArgument{slices.Contains(required, p), of, null}
	}
	if len(t.arguments) == 0 && !t.closed {
		return nil // any object
	}
	return t
}

// cases reports whether a schema says more than its own keywords do.
func cases(schema map[string]json.RawMessage) bool {
	for _, keyword := range []string{"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"} {
		if _, has := schema[keyword]; has {
			return true
		}
	}
	return false
}

// readKind reads the only type that the schema of an argument allows, and whether
// it allows null beside it.
func readKind(raw json.RawMessage) (of kind, null bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || cases(members) {
		return "", false
	}
	var list []string
	if json.Unmarshal(members["type"], &list) != nil {
		list = make([]string, 1)
		if json.Unmarshal(members["type"], &list[0]) != nil {
			return "", false
		}
	}
	all := len(list)
	list = slices.DeleteFunc(list, func(of string) bool { return of == "null" })
	if len(list) != 1 || kind(list[0]).candidates() == nil {
		return "", false
	}
	null = all > 1 || string(members["nullable"]) == "true"
	return kind(list[0]), null
}

// didYouMean returns `; did you mean "x"?` for the nearest name, "" if none is.
func didYouMean(name string, names []string) string {
	near := guard.Nearest(name, names)
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", near)
}
