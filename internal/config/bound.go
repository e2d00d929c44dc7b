package config

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/internal/yamltree"
)

// BoundNames returns the names of the tools of the bus, sorted.
func (c *Config) BoundNames() []string { return slices.Sorted(maps.Keys(c.Tools.Bound)) }

// predefined are the predefined tools of the bus, which tools.bound may replace.
func predefined() []string {
	return []string{
		"search_corpus", "list_corpora", "translate", "list_marketplace", "find_neighbour", "describe_image",
		"transcribe_audio", "market_post", "chat_send",
	}
}

// checkBound checks tools.bound and tools.default_set.
func (d *decoder) checkBound(c *Config) {
	for i, name := range c.Tools.DefaultSet {
		if !slices.Contains(predefined(), name) {
			d.at(yamltree.JoinIndex("tools.default_set", i), "%s", unknown("tool of the bus", name, predefined()))
		}
	}
	for _, name := range c.BoundNames() {
		key, b := yamltree.JoinKey("tools.bound", name), c.Tools.Bound[name]
		if known := BuiltInTool(name); known != "" && !slices.Contains(predefined(), name) {
			d.at(key, "%s is a built-in tool; use another name", known)
		}
		if d.Failed(key+".params") || d.Failed(key+".parameters") {
			continue
		}
		var params map[string]any
		if len(b.Params) > 0 && json.Unmarshal([]byte(b.Params), &params) != nil {
			d.at(key+".params", "must be a mapping of names and values")
			continue
		}
		for _, param := range slices.Sorted(maps.Keys(params)) {
			if argument := argumentOf(params[param]); argument != "" && lacks(b.Parameters, argument) {
				d.at(key+".params", "%s: parameters has no %s", yamltree.Quote(param), yamltree.Quote(argument))
			}
		}
		target, _ := params["target_capability"].(string)
		if strings.HasPrefix(b.Capability, "llm.tools.call@") && argumentOf(target) == "" &&
			!capabilityPattern.MatchString(target) {
			d.at(key+".params", "llm.tools.call needs target_capability: NAME@MAJOR.MINOR, such as rag.query@1.0")
		}
	}
}

// argumentOf returns the argument that a value of params stands for, or "".
func argumentOf(value any) string {
	text, _ := value.(string)
	name, ok := strings.CutPrefix(text, "{args.")
	if name, ends := strings.CutSuffix(name, "}"); ok && ends {
		return name
	}
	return ""
}

// lacks reports whether a schema lists its properties, and a name is not one of them.
func lacks(schema JSON, name string) bool {
	var s map[string]json.RawMessage
	if len(schema) == 0 || json.Unmarshal([]byte(schema), &s) != nil {
		return false
	}
	for _, key := range []string{"$ref", "allOf", "anyOf", "oneOf", "patternProperties", "additionalProperties"} {
		if text, ok := s[key]; ok && string(text) != "false" {
			return false
		}
	}
	var properties map[string]json.RawMessage
	if json.Unmarshal(s["properties"], &properties) != nil {
		return false
	}
	_, ok := properties[name]
	return !ok
}
