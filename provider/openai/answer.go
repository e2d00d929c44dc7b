package openai

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Bounds of the strict subset (OpenAI guide "Structured Outputs", supported
// schemas).
const (
	maxStrictDepth      = 10
	maxStrictProperties = 5000
	maxStrictEnum       = 1000
)

// strictWords are the keywords of the strict subset.
var strictWords = []string{
	"$defs", "$ref", "additionalProperties", "anyOf", "const", "default", "definitions", "description", "enum", "format",
	"items",
	"maxItems", "maximum", "minItems", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf", "pattern",
	"properties",
	"required", "title", "type",
}

var strictFormats = []string{"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}

// strictness counts what a schema holds while it is looked at.
type strictness struct{ properties, enum int }

// fitsStrict reports whether a schema is in the subset that the API can hold an
// answer to; any other one is sent as it is, without strict, and only guides the
// model. The answer is checked elsewhere either way.
func fitsStrict(raw json.RawMessage) bool {
	var root map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&root) != nil || root["type"] != "object" || root["anyOf"] != nil {
		return false
	}
	var s strictness
	return s.fits(root, 0)
}

func (s *strictness) fits(schema map[string]any, depth int) bool {
	if depth > maxStrictDepth {
		return false
	}
	for word := range schema {
		if !slices.Contains(strictWords, word) {
			return false
		}
	}
	if format, ok := schema["format"].(string); ok && !slices.Contains(strictFormats, format) {
		return false
	}
	if values, ok := schema["enum"].([]any); ok {
		if s.enum += len(values); s.enum > maxStrictEnum {
			return false
		}
	}
	if !s.object(schema) {
		return false
	}
	for _, word := range [...]string{"properties", "$defs", "definitions"} {
		group, _ := schema[word].(map[string]any)
		for _, inner := range group {
			if m, ok := inner.(map[string]any); !ok || !s.fits(m, depth+1) {
				return false
			}
		}
	}
	return s.inner(schema, depth)
}

// object checks that an object names every property as required and takes no
// other.
func (s *strictness) object(schema map[string]any) bool {
	properties, has := schema["properties"].(map[string]any)
	if !has && !namesObject(schema["type"]) {
		return true
	}
	if schema["additionalProperties"] != false {
		return false
	}
	if s.properties += len(properties); s.properties > maxStrictProperties {
		return false
	}
	required, _ := schema["required"].([]any)
	for name := range properties {
		if !slices.Contains(required, any(name)) {
			return false
		}
	}
	return len(required) == len(properties)
}

func namesObject(kind any) bool {
	if list, ok := kind.([]any); ok {
		return slices.Contains(list, any("object"))
	}
	return kind == "object"
}

func (s *strictness) inner(schema map[string]any, depth int) bool {
	if items, ok := schema["items"]; ok {
		if m, ok := items.(map[string]any); !ok || !s.fits(m, depth+1) {
			return false
		}
	}
	branches, ok := schema["anyOf"]
	if !ok {
		return true
	}
	list, ok := branches.([]any)
	if !ok {
		return false
	}
	for _, branch := range list {
		if m, ok := branch.(map[string]any); !ok || !s.fits(m, depth+1) {
			return false
		}
	}
	return true
}

// objectRoot reports whether a schema is one of an object, as the API wants it.
func objectRoot(raw json.RawMessage) bool {
	var root struct {
		Type any `json:"type"`
	}
	return json.Unmarshal(raw, &root) == nil && root.Type == "object"
}

// answerPlan is how one request asks for an answer that fits the schema.
type answerPlan struct {
	format string // json_schema, json_object, or "" = in words only
	words  bool   // the schema is in the system text
	strict bool
	schema json.RawMessage
}

// answerOf decides by the schema and the server, and never by whether tools are
// offered what is in the system text: it must stay the same in a run.
func (r rules) answerOf(schema json.RawMessage) answerPlan {
	var compact bytes.Buffer
	if len(schema) == 0 || json.Compact(&compact, schema) != nil || compact.String() == "null" {
		return answerPlan{}
	}
	p := answerPlan{format: "json_schema", schema: compact.Bytes(), strict: fitsStrict(schema)}
	switch {
	case r.answers == answerObject:
		p.format, p.words = "json_object", true
	case r.answers == answerApart:
		p.words = true
	case r.vendor && !objectRoot(schema):
		p.format, p.words = "", true
	}
	return p
}

// formatFor is the format that goes into a request, "" = none.
func (r rules) formatFor(p answerPlan, tools bool) string {
	if r.answers == answerApart && tools {
		return ""
	}
	return p.format
}
