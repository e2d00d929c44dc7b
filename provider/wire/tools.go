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

// NoticeParameterIgnored is the code of the notice about a parameter that the
// model in question refuses, so that it was not sent.
const NoticeParameterIgnored = "parameter_ignored"

// Notice makes a notice.
func Notice(code, format string, args ...any) toolcrib.Notice {
	return toolcrib.Notice{Code: code, Message: fmt.Sprintf(format, args...)}
}

// ToolForm is how an API has its tools: what goes around the parts of each.
type ToolForm struct {
	Open, Parameters, Close string // `{"name":`, `,"parameters":`, `}`
	Separator               string // between two tools
	Schemas                 *Schemas
	// ValidName reports whether the API takes a name; if nil, those of [Token] with at most
	// 64 bytes.
	ValidName func(name string) bool
	Max       int // tools at most; 0 = no bound
	// Description returns the description as it is sent; if nil, it is sent as it is.
	Description func(spec *toolcrib.Spec) string
	OmitBlank   bool // leave a blank description out
}

// addTools encodes tools. One that the API does not take is left out, with a notice.
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

// ObjectSchema brings the schema of a tool's parameters into the form that the
// model APIs take: one JSON object of type object with properties, without
// combinators at its top, with object schemas for every property and items for
// every array (requirements 1c.4). A schema that fits is only compacted, so the
// order of its properties stays. What it loses the gate still checks: it judges
// by the tool's own schema.
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

// Schemas remembers what became of schemas, so that a tool costs its work once
// and not in every run. It is bounded, and safe for use by many at once.
type Schemas struct {
	// Make replaces [ObjectSchema]; if nil, that is used. If it returns no schema, the tool
	// has no parameters.
	Make func(raw json.RawMessage) (json.RawMessage, error)
	// Fit brings a schema that [ObjectSchema] has made into the form that an API
	// takes; nil = it takes it as it is.
	Fit func(schema json.RawMessage) (json.RawMessage, error)
	// Check is a further check of an API; nil = none.
	Check func(schema json.RawMessage) error

	mu    sync.Mutex
	known map[string]schemaResult
	bytes int
}

type schemaResult struct {
	schema json.RawMessage
	err    error
}

// maxKnownSchemas bounds the bytes of remembered schemas.
const maxKnownSchemas = 4 << 20

// bound is a member of a schema that bounds a value, with the comma before or after it.
var bound = lazyregexp.New(`,"(?:m(?:in|ax)(?:imum|Length|Items)":\d+|additionalProperties":false)|` +
	`"(?:m(?:in|ax)(?:imum|Length|Items)":\d+|additionalProperties":false),`)

// Of is the schema of a tool as it is sent. Of a tool that toolcrib brings the bounds are
// left out: its description says those that matter, and the gate judges by the whole schema.
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

// mergeProperties keeps the properties that only a combinator names, so that the
// model learns of them.
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

// repair changes what strict APIs refuse anywhere in a schema, and reports whether
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

// named are the keywords of JSON Schema that hold schemas by their names.
var named = map[string]bool{"properties": true, "patternProperties": true, "$defs": true, "definitions": true}

// Subschemas calls do with each schema that stands directly in a schema, and with the keyword
// that holds it, and puts what do returns in its place. A schema may be true or false.
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

// HasType reports whether the type of a schema is that, or a list with it.
func HasType(schema map[string]any, name string) bool {
	if list, ok := schema["type"].([]any); ok {
		return slices.Contains(list, any(name))
	}
	return schema["type"] == name
}

// Token makes s match [A-Za-z0-9_-]{1,limit}, as the APIs want names and call
// IDs. A valid one stays as it is; another is changed, always in the same way,
// and told apart by a few characters of its hash.
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

// Arguments returns the arguments of a call in the history as a JSON object,
// always (N13): {} for none.
func Arguments(call *toolcrib.ToolCall) []byte {
	if a := bytes.TrimSpace(call.Arguments); len(a) > 1 && a[0] == '{' {
		return a
	}
	return []byte("{}")
}
