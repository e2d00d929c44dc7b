package wire

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Bounds of repetitions in a grammar. llama.cpp unrolls them and
// rejects more than 2,000, multiplied when nested.
const (
	maxCountedBytes = 200
	maxCountedItems = 50
	maxCountedValue = 1e15
)

// countable matches the patterns that llama.cpp translates correctly: it
// needs both anchors, and supports neither classes such as \d nor lookaround.
var countable = lazyregexp.New(`^\^(?:(?:\[[A-Za-z0-9_ .:/@-]+\]|[A-Za-z0-9_ :/@-])(?:[+*?]|\{\d{1,2}(?:,\d{0,2})?\})?)+\$$`)

// anything lists all types, for a value without restriction; llama.cpp treats a schema
// without a type as no rule, or as that of an object.
var anything = []any{"object", "array", "string", "number", "boolean", "null"}

// GrammarSchema removes from a schema the keywords that llama.cpp, which constrains the
// arguments of calls by a grammar, cannot translate: a single such
// keyword makes it reject the whole request. A schema without them is returned unchanged, byte
// for byte. The gate still checks the original schema.
func GrammarSchema(raw json.RawMessage) (json.RawMessage, error) {
	var doc any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	g := grammar{root: doc}
	fitted := g.fit(doc, false, 0)
	if !g.changed {
		return raw, nil
	}
	return json.Marshal(fitted)
}

type grammar struct {
	root    any
	changed bool
}

// fit returns the schema that replaces s; repeated is set for the schema
// of elements whose repetition is bounded already.
func (g *grammar) fit(s any, repeated bool, depth int) any {
	schema, ok := s.(map[string]any)
	if !ok || depth > 64 {
		if s == true {
			g.changed = true
			return map[string]any{"type": anything}
		}
		return s
	}
	g.drop(schema, repeated)
	_, most := schema["maxItems"]
	_, least := schema["minItems"]
	Subschemas(schema, func(word string, inner any) any {
		if word == "additionalProperties" && inner == true {
			return inner // not the schema of a value
		}
		return g.fit(inner, repeated || word == "items" && (most || least), depth+1)
	})
	if !decides(schema) {
		schema["type"], g.changed = anything, true
	}
	return schema
}

// decides reports whether a schema restricts the kind of its value.
func decides(schema map[string]any) bool {
	for _, word := range [...]string{
		"type", "properties", "anyOf", "oneOf", "allOf", "enum", "const", "$ref", "items",
		"prefixItems", "additionalProperties",
	} {
		if _, ok := schema[word]; ok {
			return true
		}
	}
	return false
}

func (g *grammar) drop(schema map[string]any, repeated bool) {
	for word, value := range schema {
		keep := true
		switch word {
		case "pattern":
			p, ok := value.(string)
			keep = ok && !repeated && countable.MatchString(p)
		case "minLength", "maxLength":
			keep = !repeated && within(value, maxCountedBytes)
		case "minItems", "maxItems":
			keep = !repeated && within(value, maxCountedItems)
		case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
			keep = within(value, maxCountedValue)
		case "$ref":
			ref, ok := value.(string)
			keep = ok && g.resolves(ref)
		case "not", "if", "then", "else", "patternProperties", "propertyNames", "dependentSchemas", "contains",
			"unevaluatedProperties":
			keep = false
		}
		if !keep {
			delete(schema, word)
			g.changed = true
		}
	}
}

func within(value any, limit float64) bool {
	n, ok := value.(json.Number)
	if !ok {
		return false
	}
	f, err := n.Float64()
	return err == nil && f <= limit && f >= -limit
}

// resolves reports whether a reference points into the schema itself
// (RFC 6901); others would be fetched, or fail.
func (g *grammar) resolves(ref string) bool {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return false
	}
	at := g.root
	for _, step := range strings.Split(path, "/") {
		m, ok := at.(map[string]any)
		if !ok {
			return false
		}
		if at, ok = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]; !ok {
			return false
		}
	}
	return true
}
