package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// NoticeParameterIgnored is the code of the notice about a parameter that was not sent
// because the model would reject it.
const NoticeParameterIgnored = "parameter_ignored"

// Notice returns a notice.
func Notice(code, format string, args ...any) toolcrib.Notice {
	return toolcrib.Notice{Code: code, Message: fmt.Sprintf(format, args...)}
}

// ToolForm is the form in which an API expects tools: the text around the parts of each.
type ToolForm struct {
	Open, Parameters, Close string // `{"name":`, `,"parameters":`, `}`
	Separator               string // between two tools
	Schemas                 *Schemas
	// ValidName reports whether the API accepts a name. If nil, it accepts those of [Token] with
	// at most 64 bytes.
	ValidName func(name string) bool
	Max       int // most tools; if 0, no limit
	// Description returns the description to send; if nil, it is sent unchanged.
	Description func(spec *toolcrib.Spec) string
	OmitBlank   bool // omit an empty description
}

// addTools encodes tools. A tool that the API does not accept is left out, with a notice.
func (h *History) addTools(specs []toolcrib.Spec, form *ToolForm) {
	for i := range specs {
		spec := &specs[i]
		schema, err := form.Schemas.Of(spec)
		validName := spec.Name == Token(spec.Name, 64)
		if form.ValidName != nil {
			validName = form.ValidName(spec.Name)
		}
		switch {
		case err != nil:
		case !validName:
			err = errors.New("this API does not accept its name")
		case form.Max > 0 && len(h.ToolNames) == form.Max:
			err = fmt.Errorf("this API accepts at most %d tools", form.Max)
		}
		if err != nil {
			h.leftOut = append(h.leftOut, Notice(toolcrib.NoticeToolUnusable, "tool %s is left out: %s", spec.Name, err))
			continue
		}
		if len(h.ToolNames) > 0 {
			h.Tools = append(h.Tools, form.Separator...)
		}
		h.Tools = AppendString(append(h.Tools, form.Open...), spec.Name)
		description := spec.Description
		if form.Description != nil {
			description = form.Description(spec)
		}
		if !form.OmitBlank || !Blank(description) {
			h.Tools = AppendString(append(h.Tools, `,"description":`...), description)
		}
		if schema != nil {
			h.Tools = append(append(h.Tools, form.Parameters...), schema...)
		}
		h.Tools = append(h.Tools, form.Close...)
		h.ToolNames = append(h.ToolNames, spec.Name)
	}
}

var emptySchema = json.RawMessage(`{"type":"object","properties":{}}`)

const maxSchemaBytes = 1 << 20

// ObjectSchema converts the schema of a tool's parameters into a form that the
// model APIs accept: one JSON object of type object with properties, without
// combinators at its top, with object schemas for every property and items for
// every array. A schema in that form is only compacted, so the
// order of its properties is kept. The gate still judges by the tool's own schema.
func ObjectSchema(raw json.RawMessage) (json.RawMessage, error) {
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 || string(trimmed) == "null" || string(trimmed) == "true" ||
		string(trimmed) == "[]" {
		return emptySchema, nil
	}
	if len(raw) > maxSchemaBytes {
		return nil, fmt.Errorf("its schema is longer than %d bytes", maxSchemaBytes)
	}
	var doc any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		return nil, errors.New("its schema is not JSON")
	}
	schema, ok := doc.(map[string]any)
	if !ok {
		return nil, errors.New("its schema is not a JSON object")
	}
	changed, err := topLevel(schema)
	if err != nil {
		return nil, err
	}
	if repair(schema, 0) || changed {
		return json.Marshal(schema)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return nil, errors.New("its schema is not JSON")
	}
	return out.Bytes(), nil
}

// Schemas caches converted schemas, so that each is converted once
// and not in every run. It is bounded, and safe for concurrent use.
type Schemas struct {
	// Make replaces [ObjectSchema]; if nil, that is used. If it returns no schema, the tool
	// has no parameters.
	Make func(raw json.RawMessage) (json.RawMessage, error)
	// Fit converts a schema that [ObjectSchema] has returned into a form that an API
	// accepts. If nil, it is sent unchanged.
	Fit func(schema json.RawMessage) (json.RawMessage, error)
	// Check is an additional check for an API. It may be nil.
	Check func(schema json.RawMessage) error

	mu    sync.Mutex
	known map[string]schemaResult
	bytes int
}

type schemaResult struct {
	schema json.RawMessage
	err    error
}

const maxKnownSchemas = 4 << 20

// bound matches a member of a schema that bounds a value, with the comma before or after it.
var bound = lazyregexp.New(`,"(?:m(?:in|ax)(?:imum|Length|Items)":\d+|additionalProperties":false)|` +
	`"(?:m(?:in|ax)(?:imum|Length|Items)":\d+|additionalProperties":false),`)

// Of returns the schema of a tool to send. For built-in tools, the bounds are
// removed: the description names those that matter, and the gate judges by the full schema.
func (s *Schemas) Of(spec *toolcrib.Spec) (json.RawMessage, error) {
	raw, lean := spec.Parameters, spec.Source == "builtin"
	key := fmt.Sprint(lean, string(raw))
	s.mu.Lock()
	known, ok := s.known[key]
	s.mu.Unlock()
	if ok {
		return known.schema, known.err
	}
	object := ObjectSchema
	if s.Make != nil {
		object = s.Make
	}
	schema, err := object(raw)
	if err == nil && lean {
		schema = bound.ReplaceAll(schema, nil)
	}
	if err == nil && s.Fit != nil {
		schema, err = s.Fit(schema)
	}
	if err == nil && s.Check != nil {
		err = s.Check(schema)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || s.bytes > maxKnownSchemas {
		s.known, s.bytes = make(map[string]schemaResult), 0
	}
	s.known[key] = schemaResult{schema, err}
	s.bytes += len(raw) + len(schema) + 64
	return schema, err
}

func topLevel(schema map[string]any) (changed bool, err error) {
	switch t := schema["type"].(type) {
	case nil:
		schema["type"], changed = "object", true
	case string:
		if t != "object" {
			return false, fmt.Errorf("its schema is of type %s, not object", t)
		}
	case []any:
		if !slices.Contains(t, any("object")) {
			return false, errors.New("its schema is not of type object")
		}
		schema["type"], changed = "object", true
	default:
		return false, errors.New("its schema has no valid type")
	}
	if _, ok := schema["properties"].(map[string]any); !ok {
		schema["properties"], changed = map[string]any{}, true
	}
	for _, word := range [...]string{"oneOf", "anyOf", "allOf", "not", "enum", "const", "if", "then", "else"} {
		if _, ok := schema[word]; ok {
			mergeProperties(schema, schema[word])
			delete(schema, word)
			changed = true
		}
	}
	return changed, nil
}

// mergeProperties adds the properties that only a combinator has, so that the
// model knows them.
func mergeProperties(schema map[string]any, combinator any) {
	branches, _ := combinator.([]any)
	properties := schema["properties"].(map[string]any)
	for _, b := range branches {
		branch, _ := b.(map[string]any)
		inner, _ := branch["properties"].(map[string]any)
		for name, value := range inner {
			if _, ok := properties[name]; !ok {
				properties[name] = value
			}
		}
	}
}

// repair replaces parts of a schema that strict APIs reject, and reports whether
// it changed anything.
func repair(schema map[string]any, depth int) bool {
	if depth > 64 {
		return false
	}
	changed := false
	if p, ok := schema["properties"]; ok {
		if list, isList := p.([]any); isList && len(list) == 0 {
			schema["properties"], changed = map[string]any{}, true
		}
	}
	if HasType(schema, "array") {
		if _, ok := schema["items"]; !ok {
			schema["items"], changed = map[string]any{}, true
		}
	}
	Subschemas(schema, func(word string, inner any) any {
		one, isSchema := inner.(map[string]any)
		switch {
		case isSchema:
			changed = repair(one, depth+1) || changed
		case inner == true && (named[word] || word == "items"):
			inner, changed = map[string]any{}, true
		}
		return inner
	})
	return changed
}

// named are the keywords of JSON Schema whose values are schemas by name.
var named = map[string]bool{"properties": true, "patternProperties": true, "$defs": true, "definitions": true}

// Subschemas replaces each schema directly inside a schema by the result of do, which is
// also given the keyword of the schema. A schema may be true or false.
func Subschemas(schema map[string]any, do func(word string, inner any) any) {
	for word, value := range schema {
		group, isGroup := value.(map[string]any)
		list, _ := value.([]any)
		switch word {
		case "properties", "patternProperties", "$defs", "definitions":
			for name := range group {
				group[name] = do(word, group[name])
			}
		case "items", "additionalProperties", "not", "anyOf", "oneOf", "allOf", "prefixItems":
			for i := range list {
				list[i] = do(word, list[i])
			}
			if _, isBool := value.(bool); isGroup || isBool {
				schema[word] = do(word, value)
			}
		}
	}
}

// HasType reports whether the type of a schema is name, or a list that includes it.
func HasType(schema map[string]any, name string) bool {
	if list, ok := schema["type"].([]any); ok {
		return slices.Contains(list, any(name))
	}
	return schema["type"] == name
}

// Token returns s if it matches [A-Za-z0-9_-]{1,limit}, as the APIs require of names and call
// IDs. Any other s is converted, always in the same way, and made unique by a few characters
// of its hash.
func Token(s string, limit int) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, s)
	if clean == s && s != "" && len(s) <= limit {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	tail := "_" + hex.EncodeToString(sum[:4])
	return clean[:min(len(clean), limit-len(tail))] + tail
}

// Arguments returns the arguments of a call in the history, always as a JSON object: {} if it has none.
func Arguments(call *toolcrib.ToolCall) []byte {
	if a := bytes.TrimSpace(call.Arguments); len(a) > 1 && a[0] == '{' {
		return a
	}
	return []byte("{}")
}
