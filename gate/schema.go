package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolcrib/toolcrib/guard"
)

// Bounds of a tool's schema. Compiling costs up to the square of the values.
const (
	maxSchemaBytes  = 256 << 10
	maxSchemaDepth  = 64
	maxSchemaValues = 8192
	// maxSchemaWork bounds one validation: schemas that refer to themselves can
	// make the work grow exponentially with the depth of the arguments. It lets the largest
	// arguments be checked once against an ordinary schema.
	maxSchemaWork = 1 << 20
)

const (
	emptySchema = `{"type":"object"}`
	schemaURL   = "urn:toolcrib:parameters"
	answerURL   = "urn:toolcrib:answer"
)

// schema is a compiled JSON Schema 2020-12 (or the draft that its $schema names) that counts the
// work of a validation.
type schema struct {
	compiled *jsonschema.Schema

	mu   sync.Mutex // guards work, which counts one validation at a time
	work int
}

// errTooMuchWork ends a validation that would take too long.
var errTooMuchWork = errors.New("the arguments take too long to check against the schema")

// compileSchema returns the schema as it is shown, without white space, and compiled. A missing,
// null or empty schema becomes that of an object. For a schema from elsewhere (foreign), unchecked
// lists the places that cannot be checked; any other schema with such places is refused.
func compileSchema(raw json.RawMessage, foreign bool) (
	shown json.RawMessage, s *schema, unchecked []string, err error,
) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("parameters: %w", err)
		}
	}()
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage(emptySchema)
	}
	limits := guard.JSONLimits{MaxBytes: maxSchemaBytes, MaxDepth: maxSchemaDepth}
	doc, err := limits.Value(raw)
	if err != nil {
		return nil, nil, nil, err
	}
	if clean := guard.CleanJSON(raw); !bytes.Equal(clean, raw) {
		raw = clean // check exactly what the model reads
		if doc, err = limits.Value(raw); err != nil {
			return nil, nil, nil, err
		}
	}
	root, ok := doc.(map[string]any)
	switch {
	case ok && len(root) == 0:
		return compileSchema(nil, foreign)
	case foreign:
		if s, unchecked, err = compileRelaxed(doc); !ok {
			raw = json.RawMessage(emptySchema)
		}
	case !ok:
		err = errors.New("must be a JSON Schema of an object")
	case root["type"] != nil && root["type"] != "object":
		err = errors.New(`type must be "object", as arguments always are`)
	default:
		if err = checkShape(doc); err == nil {
			s, err = compileDocument(doc, nil)
		}
	}
	if err != nil {
		return nil, nil, nil, err
	}
	return raw, s, unchecked, nil
}

// answerSchema compiles the schema of an answer. Schemas of tools are those of objects, so the
// answer becomes the only member of an object. Its schema remains a document of its own, because it
// may refer to its parts (#/$defs/x).
func answerSchema(raw json.RawMessage) (*schema, error) {
	answer, err := readSchema(raw)
	if err != nil {
		return nil, err
	}
	return compileDocument(map[string]any{
		"type": "object", "required": []any{"answer"},
		"properties": map[string]any{"answer": map[string]any{"$ref": answerURL}},
	}, answer)
}

// readSchema decodes a schema of a bounded shape.
func readSchema(raw json.RawMessage) (doc any, err error) {
	limits := guard.JSONLimits{MaxBytes: maxSchemaBytes, MaxDepth: maxSchemaDepth}
	if doc, err = limits.Value(raw); err != nil {
		return nil, err
	}
	return doc, checkShape(doc)
}

// checkShape bounds the number of values, and refuses references that are resolved only while
// validating, because the work they lead to cannot be counted.
func checkShape(doc any) error {
	values := 0
	var walk func(v any) error
	walk = func(v any) error {
		if values++; values > maxSchemaValues {
			return fmt.Errorf("more than %d values", maxSchemaValues)
		}
		switch v := v.(type) {
		case map[string]any:
			for key, member := range v {
				if key == "$dynamicRef" || key == "$recursiveRef" {
					return fmt.Errorf("%s is not supported", key)
				}
				if err := walk(member); err != nil {
					return err
				}
			}
		case []any:
			for _, item := range v {
				if err := walk(item); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return walk(doc)
}

// noLoader refuses references to other documents.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, errors.New("references to other documents are not followed")
}

// compileDocument compiles a schema that can refer to no other document than answer, which may be
// nil. Nothing is loaded from elsewhere.
func compileDocument(doc, answer any) (s *schema, err error) {
	err = contain(func() error {
		c := jsonschema.NewCompiler()
		c.DefaultDraft(jsonschema.Draft2020)
		c.UseLoader(noLoader{})
		if err := c.AddResource(schemaURL, doc); err != nil {
			return err
		}
		if answer != nil {
			if err := c.AddResource(answerURL, answer); err != nil {
				return err
			}
		}
		compiled, err := c.Compile(schemaURL)
		if err != nil {
			return err
		}
		s = &schema{compiled: compiled}
		all := make(map[*jsonschema.Schema]bool)
		s.meter(compiled, all)
		if refs := loops(all); len(refs) > 0 {
			return &loopError{refs}
		}
		return nil
	})
	return s, err
}

// loopError means that references in a schema lead to themselves for the same value. No value that
// such a reference applies to is valid. A reference under a condition does not apply to every
// value.
type loopError struct{ at []string } // the URLs of the schemas with the references

func (e *loopError) Error() string { return "a reference leads to itself, at " + e.at[0] }

// loops returns the URLs of schemas with a reference that leads back to itself for the same value.
func loops(all map[*jsonschema.Schema]bool) (found []string) {
	var path []*jsonschema.Schema
	done := make(map[*jsonschema.Schema]bool)
	var visit func(s *jsonschema.Schema)
	visit = func(s *jsonschema.Schema) {
		if i := slices.Index(path, s); i >= 0 {
			loop := append(path[i:len(path):len(path)], s)
			for n := len(loop) - 2; n >= 0; n-- {
				if loop[n].Ref == loop[n+1] {
					found = append(found, loop[n].Location)
					return
				}
			}
		}
		if s == nil || done[s] {
			return
		}
		path = append(path, s)
		for _, next := range together(s) {
			visit(next)
		}
		path, done[s] = path[:len(path)-1], true
	}
	byURL := func(a, b *jsonschema.Schema) int { return strings.Compare(a.Location, b.Location) }
	for _, s := range slices.SortedFunc(maps.Keys(all), byURL) {
		visit(s)
	}
	return found
}

// together returns the schemas that may apply to the same value as s, without those that are one of
// several alternatives.
func together(s *jsonschema.Schema) []*jsonschema.Schema {
	list := append([]*jsonschema.Schema{s.Ref, s.Then, s.Else}, s.AllOf...)
	for _, choices := range [][]*jsonschema.Schema{s.AnyOf, s.OneOf} {
		if len(choices) == 1 {
			list = append(list, choices[0])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.DependentSchemas)) {
		list = append(list, s.DependentSchemas[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Dependencies)) {
		if next, ok := s.Dependencies[name].(*jsonschema.Schema); ok {
			list = append(list, next)
		}
	}
	return list
}

// SchemaProblem returns the problem of a JSON Schema for any values, and its place, in words that
// follow the name of the schema. It returns "" if none.
func SchemaProblem(raw json.RawMessage) string {
	doc, err := readSchema(raw)
	if err != nil {
		return "is not a valid JSON Schema: " + err.Error()
	}
	_, err = compileDocument(doc, nil)
	var invalid *jsonschema.SchemaValidationError
	var cause *jsonschema.ValidationError
	var outside *jsonschema.LoadURLError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &invalid) && errors.As(invalid.Err, &cause):
		for len(cause.Causes) > 0 {
			cause = cause.Causes[0]
		}
		return "is not a valid JSON Schema, at /" + strings.Join(cause.InstanceLocation, "/")
	case errors.As(err, &outside):
		return "is not a valid JSON Schema: it refers to what is outside of it"
	}
	return "is not a valid JSON Schema: a reference or pattern in it is wrong"
}

// meter makes every part of the compiled schema count its use. It replaces the format, because the
// library checks that before any keyword that can lead further.
func (s *schema) meter(part *jsonschema.Schema, seen map[*jsonschema.Schema]bool) {
	if part == nil || seen[part] {
		return
	}
	seen[part] = true
	format, name := part.Format, ""
	if format != nil {
		name = format.Name
	}
	part.Format = &jsonschema.Format{Name: name, Validate: func(v any) error {
		if s.work += cost(v); s.work > maxSchemaWork {
			panic(errTooMuchWork) // caught in validate: the library has no other way out
		}
		if format != nil {
			return format.Validate(v)
		}
		return nil
	}}
	for _, next := range parts(part) {
		s.meter(next, seen)
	}
}

// cost returns the approximate cost of checking the value once.
func cost(v any) int {
	switch v := v.(type) {
	case string:
		return 1 + len(v)/256
	case []any:
		return 1 + len(v)
	case map[string]any:
		return 1 + len(v)
	}
	return 1
}

// parts returns all schemas directly inside a schema, in any of its fields.
func parts(s *jsonschema.Schema) (found []*jsonschema.Schema) {
	var look func(v reflect.Value)
	look = func(v reflect.Value) {
		switch part, is := reflect.TypeAssert[*jsonschema.Schema](v); {
		case is:
			found = append(found, part)
		case v.Kind() == reflect.Interface && !v.IsNil():
			look(v.Elem())
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				look(v.Index(i))
			}
		case v.Kind() == reflect.Map:
			for _, member := range v.Seq2() {
				look(member)
			}
		}
	}
	for field, v := range reflect.ValueOf(s).Elem().Fields() {
		if field.IsExported() {
			look(v)
		}
	}
	return found
}

// validate checks a decoded value, in which numbers are json.Number. It returns nil, a
// [*jsonschema.ValidationError], or the error that kept it from checking.
func (s *schema) validate(value any) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work = 0
	defer func() {
		switch v := recover(); v {
		case nil:
		case errTooMuchWork:
			err = errTooMuchWork
		default:
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return s.compiled.Validate(value)
}
