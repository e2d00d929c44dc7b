package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/server/openai"
	"github.com/toolcrib/toolcrib/service"
)

// object is an object of a JSON document.
type object = map[string]any

// asJSON are types that write themselves as JSON.
var asJSON = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[[]byte]():          {Type: "string"},
	reflect.TypeFor[ToolChoice](): {AnyOf: []*jsonschema.Schema{
		{Type: "string", Enum: []any{toolcrib.ChoiceAuto, toolcrib.ChoiceNone, toolcrib.ChoiceRequired}},
		{
			Type: "object", Properties: map[string]*jsonschema.Schema{"name": {Type: "string"}}, Required: []string{"name"},
			AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
		},
	}},
	reflect.TypeFor[openai.ChatRequest]():      bodyOf(openai.ChatFields, "model", "messages"),
	reflect.TypeFor[openai.ResponsesRequest](): bodyOf(openai.ResponsesFields, "model", "input"),
	reflect.TypeFor[service.Agent](): {
		Type: "object", Required: []string{"name"}, Properties: map[string]*jsonschema.Schema{"name": {Type: "string"}},
	},
}

func schemaOf(t reflect.Type) (*jsonschema.Schema, error) {
	schema, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: asJSON})
	if err != nil {
		return nil, err
	}
	for name, p := range schema.Properties {
		if len(p.AnyOf) > 0 && len(p.Types) > 0 {
			// Of a pointer, which may be null instead: the library wants both.
			p = p.CloneSchemas()
			for _, also := range p.Types {
				p.AnyOf = append(p.AnyOf, &jsonschema.Schema{Type: also})
			}
			p.Types, schema.Properties[name] = nil, p
		}
	}
	return schema, nil
}

// maxEntries bounds the lists of a request: some of their entries cost more than their bytes.
const maxEntries = 10_000

// bound bounds the lists in the schema of a body, and lets null stand for a field that is not there.
func bound(s *jsonschema.Schema) {
	if s.Type == "array" || slices.Contains(s.Types, "array") {
		s.MaxItems = jsonschema.Ptr(maxEntries)
	}
	for name, p := range s.Properties {
		if p.Type != "" && !slices.Contains(s.Required, name) {
			p.Type, p.Types = "", []string{"null", p.Type}
		}
		bound(p)
	}
	if s.Items != nil {
		bound(s.Items)
	}
}

// compile makes the schema of the body.
func (r *route) compile() error {
	schema, err := schemaOf(r.body)
	if err != nil {
		return err
	}
	bound(schema)
	r.schema, err = schema.Resolve(nil)
	return err
}

// component returns the name under which the schema of a type is in the document.
func component(t reflect.Type) string {
	name := t.Name()
	return strings.ToUpper(name[:1]) + name[1:]
}

// pathParam is a parameter in a path.
var pathParam = lazyregexp.New(`\{([a-z_]+)\}`)

// document makes the OpenAPI document of the routes.
func document(routes []route, version string) ([]byte, error) {
	schemas := map[string]*jsonschema.Schema{}
	content := func(t reflect.Type) (object, error) {
		name := component(t)
		if schemas[name] == nil {
			schema, err := schemaOf(t)
			if err != nil {
				return nil, err
			}
			schemas[name] = schema
		}
		return object{"application/json": object{"schema": object{"$ref": "#/components/schemas/" + name}}}, nil
	}
	failure, err := content(reflect.TypeFor[Failure]())
	v1Failure, also := content(reflect.TypeFor[openai.ErrorBody]())
	if err = errors.Join(err, also); err != nil {
		return nil, err
	}
	paths := object{}
	for i := range routes {
		r := &routes[i]
		answer := object{}
		answers := r.answer
		if answers != nil && answers.Kind() == reflect.Pointer {
			answers = answers.Elem()
		}
		if answers != nil && answers.Kind() == reflect.Struct {
			if answer, err = content(answers); err != nil {
				return nil, err
			}
		} else if !r.events && !r.text {
			answer["application/json"] = object{}
		}
		for kind, is := range map[string]bool{"text/event-stream": r.events, "text/plain": r.text} {
			if is {
				answer[kind] = object{"schema": object{"type": "string"}}
			}
		}
		fails := failure
		if v1(r.path) {
			fails = v1Failure
		}
		responses := object{"default": object{"description": "An error", "content": fails}}
		for _, status := range []int{max(r.status, http.StatusOK), r.also} {
			if status > 0 {
				responses[strconv.Itoa(status)] = object{"description": http.StatusText(status), "content": answer}
			}
		}
		operation := object{"summary": r.summary, "operationId": operationID(r), "responses": responses}
		if params := r.parameters(); len(params) > 0 {
			operation["parameters"] = params
		}
		if r.body != nil {
			body, err := content(r.body)
			if err != nil {
				return nil, err
			}
			bound(schemas[component(r.body)])
			operation["requestBody"] = object{"content": body}
		}
		if r.open {
			operation["security"] = []object{}
		}
		item, _ := paths[r.path].(object)
		if item == nil {
			item = object{}
			paths[r.path] = item
		}
		item[strings.ToLower(r.method)] = operation
	}
	text, err := json.Marshal(object{
		"openapi": "3.1.0", "info": object{"title": "toolcrib", "version": version}, "paths": paths,
		"components": object{
			"schemas":         schemas,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
		"security": []object{{"token": []string{}}},
	})
	return append(text, '\n'), err
}

// operationID names an operation by its method and the words of its path.
func operationID(r *route) string {
	id := strings.ToLower(r.method)
	for _, word := range regexp.MustCompile(`[A-Za-z]+`).FindAllString(strings.TrimPrefix(r.path, "/api"), -1) {
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

// parameters are those of the path, the query and the head.
func (r *route) parameters() (all []object) {
	for _, found := range pathParam.FindAllStringSubmatch(r.path, -1) {
		all = append(all, object{
			"name": found[1], "in": "path", "required": true, "schema": object{"type": "string"},
		})
	}
	for _, p := range r.query {
		in, schema := "query", object{"type": p.kind}
		switch p.kind {
		case kindCount:
			schema = object{"type": "integer", "minimum": 1}
		case kindTime:
			schema = object{"type": "string", "format": "date-time"}
		case kindHeader, kindOrdinal:
			in, schema = "header", object{"type": "string"}
		}
		all = append(all, object{"name": p.name, "in": in, "description": p.about, "schema": schema})
	}
	return all
}
