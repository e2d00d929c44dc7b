package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// checkNames returns an error if a property has a name that the API rejects. It cannot be sent
// under another name, because the call would use that.
func checkNames(schema json.RawMessage) error {
	if !bytes.Contains(schema, []byte(`"properties"`)) {
		return nil
	}
	var doc map[string]any
	if err := json.Unmarshal(schema, &doc); err != nil {
		return err
	}
	properties, _ := doc["properties"].(map[string]any)
	for name := range properties {
		if !propertyName.MatchString(name) {
			return fmt.Errorf("this API does not accept the parameter name %q", name)
		}
	}
	return nil
}

// strictSchema converts a schema of the answer into the subset that structured outputs accept, with
// all models that have them: no further properties, no numeric or length limits, no recursion, and
// no member next to a $ref. It returns nil if that would change the meaning of the schema. The
// answer is checked against the whole schema elsewhere. Schemas of tools are not converted: as
// input_schema the API takes JSON Schema 2020-12.
func strictSchema(raw json.RawMessage) []byte {
	var root map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if dec.Decode(&root) != nil || root == nil || recursive(root) || !narrow(root, 0) || tooComplex(root) {
		return nil
	}
	out, _ := json.Marshal(root) // what was decoded can be encoded
	return out
}

var formats = []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}

// narrow converts a schema in place; it returns false if that is impossible.
func narrow(schema map[string]any, depth int) bool {
	if depth > 32 {
		return false
	}
	for _, word := range [...]string{
		"not", "if", "then", "else", "patternProperties", "prefixItems", "contains",
		"dependentSchemas", "dependentRequired", "propertyNames", "unevaluatedProperties", "$dynamicRef",
	} {
		if _, ok := schema[word]; ok {
			return false
		}
	}
	for _, word := range [...]string{
		"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
		"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "$schema", "$id",
	} {
		delete(schema, word)
	}
	if f, ok := schema["format"].(string); ok && !slices.Contains(formats, f) {
		delete(schema, "format")
	}
	if ref, ok := schema["$ref"].(string); ok {
		if depth > 24 || !strings.HasPrefix(ref, "#/$defs/") && !strings.HasPrefix(ref, "#/definitions/") {
			return false
		}
		delete(schema, "title")
		delete(schema, "description")
	}
	if branches, ok := schema["oneOf"]; ok && schema["anyOf"] == nil {
		schema["anyOf"] = branches
		delete(schema, "oneOf")
	}
	if _, isObject := schema["properties"].(map[string]any); isObject || schema["type"] == "object" {
		if more, ok := schema["additionalProperties"]; ok && more != false {
			return false
		}
		schema["additionalProperties"] = false
	}
	ok := true
	wire.Subschemas(schema, func(word string, inner any) any {
		one, isSchema := inner.(map[string]any)
		ok = ok && (word == "additionalProperties" || isSchema && narrow(one, depth+1))
		return inner
	})
	return ok
}

// Limits of structured outputs ("Schema complexity limits").
const (
	maxOptional = 24 // properties that are not required
	maxUnions   = 16 // anyOf, and types that are lists
)

// tooComplex reports whether the API would reject a schema for its size.
func tooComplex(root map[string]any) bool {
	optional, unions := 0, 0
	each(root, func(schema map[string]any) {
		properties, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		for name := range properties {
			if !slices.Contains(required, any(name)) {
				optional++
			}
		}
		if _, list := schema["type"].([]any); list || schema["anyOf"] != nil {
			unions++
		}
	})
	return optional > maxOptional || unions > maxUnions
}

// each visits a schema and all schemas in it.
func each(value any, visit func(map[string]any)) {
	if schema, ok := value.(map[string]any); ok {
		visit(schema)
		wire.Subschemas(schema, func(_ string, inner any) any {
			each(inner, visit)
			return inner
		})
	}
}

// recursive reports whether a definition refers to itself, which the API does
// not support.
func recursive(root map[string]any) bool {
	const open, done = 1, 2
	state := map[string]int{} // state of a definition, by its reference
	var loops func(value any) bool
	loops = func(value any) (found bool) {
		each(value, func(schema map[string]any) {
			ref, ok := schema["$ref"].(string)
			if found = found || ok && state[ref] == open; found || !ok || state[ref] == done {
				return
			}
			state[ref] = open
			group, name, _ := strings.Cut(strings.TrimPrefix(ref, "#/"), "/")
			defs, _ := root[group].(map[string]any)
			found = loops(defs[name])
			state[ref] = done
		})
		return found
	}
	return loops(root)
}

const (
	pdfType  = "application/pdf"
	textType = "text/plain"
)

// fileRules returns the limits of the API ("Vision", "PDF support"): an image has at
// most 5 MiB in base64 and 8000 pixels a side, 2000 if there are more than 20; a
// whole request 32 MB.
func fileRules() wire.FileRules {
	return wire.FileRules{
		Types:    []string{"image/png", "image/jpeg", "image/gif", "image/webp", pdfType, textType},
		MaxImage: 5 << 20 / 4 * 3, MaxEdge: 8000, Many: 20, ManyEdge: 2000,
	}
}

// appendFile appends the block of a file, or a text instead of it.
func (s *script) appendFile(dst []byte, f *toolcrib.File) []byte {
	a := s.files.Open(f)
	if a == nil {
		return appendText(dst, wire.FileText(f))
	}
	return appendAttachment(dst, a)
}

func appendAttachment(dst []byte, a *wire.Attachment) []byte {
	if a.Image() {
		dst = append(dst, `{"type":"image","source":{"type":"base64","media_type":"`...)
		dst = append(append(dst, a.MediaType...), `","data":"`...)
		return append(a.AppendBase64(dst), `"}}`...)
	}
	dst = append(dst, `{"type":"document","title":`...)
	dst = wire.AppendString(dst, wire.Clip(a.Name, maxTitle))
	if a.MediaType == textType {
		dst = append(dst, `,"source":{"type":"text","media_type":"text/plain","data":`...)
		return append(wire.AppendString(dst, string(a.Data)), `}}`...)
	}
	dst = append(dst, `,"source":{"type":"base64","media_type":"`+pdfType+`","data":"`...)
	return append(a.AppendBase64(dst), `"}}`...)
}

// maxTitle bounds the title of a document; the API permits 500 characters.
const maxTitle = 200

// appendResult encodes a result: its text, and its files as further blocks. A
// result that is an error may only contain text.
func (s *script) appendResult(dst []byte, r *toolcrib.ToolResult) []byte {
	dst = append(dst, `{"type":"tool_result","tool_use_id":`...)
	dst = wire.AppendString(dst, wire.Token(r.CallID, maxCallID))
	content := r.Content
	if wire.Blank(content) {
		content = "" // a blank text is rejected
		if r.IsError {
			content = "error"
		}
	}
	var found []*wire.Attachment
	for i := range r.Files {
		f := &r.Files[i]
		if r.IsError {
			s.files.Refuse(f, "this API takes no files with an error")
		} else if a := s.files.Open(f); a != nil {
			found = append(found, a)
			continue
		}
		if content != "" {
			content += "\n"
		}
		content += wire.FileText(f)
	}
	switch {
	case len(found) > 0:
		dst = append(dst, `,"content":[`...)
		if content != "" {
			dst = append(appendText(dst, content), ',')
		}
		for _, a := range found {
			dst = append(appendAttachment(dst, a), ',')
		}
		dst[len(dst)-1] = ']'
	case content != "":
		dst = append(dst, `,"content":`...)
		dst = wire.AppendString(dst, content)
	}
	if r.IsError {
		dst = append(dst, `,"is_error":true`...)
	}
	return append(dst, '}')
}
