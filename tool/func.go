// Package tool makes tools of Go functions. The built-in tools are in the
// folders below it, one family each; package builtin lists them.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

// SourceGo is the source of a tool made by [Func] that names no other.
const SourceGo = "go"

// Func makes a tool of a Go function.
//
// The schema of the arguments is inferred from the struct In, unless
// spec.Parameters is given: names come from json tags, descriptions from
// jsonschema tags, a field without omitempty or omitzero is required, and unknown
// fields are refused. A map or an empty struct does as well; anything else than
// an object is an error, for a model's arguments are always one.
//
// What fn returns becomes the result: a string is plain text, a
// [toolcrib.Output] or a pointer to one is passed on, anything else is encoded as
// JSON. An error that a model should read is a [*toolcrib.ToolError]; any
// other error and a panic reach the operator only. fn must be safe for
// several calls at once and return soon after ctx ends.
//
// Two fields of spec get a default that is not the strictest, because passing a
// function of one's own program to a runtime is the decision to offer it: Source
// is "go" and EnabledByDefault true (an administrator can still switch it off,
// and every other layer of the gate holds). Effect stays as it is: a function
// that states none counts as a write that must not be repeated.
func Func[In, Out any](spec toolcrib.Spec, fn func(ctx context.Context, call toolcrib.Call, in In) (Out,
	error),
) (toolcrib.Tool, error) {
	if fn == nil {
		return nil, fmt.Errorf("tool %q: no function given", spec.Name)
	}
	if len(spec.Parameters) == 0 {
		schema, err := Schema[In]()
		if err != nil {
			return nil, fmt.Errorf("tool %q: %w", spec.Name, err)
		}
		spec.Parameters = schema
	}
	if spec.Source == "" {
		spec.Source = SourceGo
	}
	spec.EnabledByDefault = true
	if err := spec.Check(); err != nil {
		return nil, err
	}
	if err := checkObject(spec.Parameters); err != nil {
		return nil, fmt.Errorf("tool %q: parameters: %w", spec.Name, err)
	}
	return &function[In, Out]{spec: spec, fn: fn}, nil
}

// MustFunc is [Func] for tools that are written down in a program: it panics
// where Func returns an error, which is a mistake of the program and shows at its
// first start.
func MustFunc[In, Out any](spec toolcrib.Spec, fn func(ctx context.Context, call toolcrib.Call, in In) (Out,
	error),
) toolcrib.Tool {
	t, err := Func(spec, fn)
	if err != nil {
		panic(err)
	}
	return t
}

type function[In, Out any] struct {
	spec toolcrib.Spec
	fn   func(context.Context, toolcrib.Call, In) (Out, error)
}

func (f *function[In, Out]) Spec() toolcrib.Spec { return f.spec }

// Call decodes the arguments, runs the function and encodes what it returns. A
// panic goes through: whoever holds the permit turns it into a fault.
func (f *function[In, Out]) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	if err := ctx.Err(); err != nil {
		return toolcrib.Output{}, err
	}
	var in In
	if err := wire.Decode(call.Arguments, &in); err != nil {
		return toolcrib.Output{}, err
	}
	out, err := f.fn(ctx, call, in)
	if err != nil {
		return toolcrib.Output{}, err
	}
	switch v := any(out).(type) {
	case string:
		return toolcrib.Output{Text: v}, nil
	case toolcrib.Output:
		return v, nil
	case *toolcrib.Output:
		if v == nil {
			return toolcrib.Output{}, fmt.Errorf("tool %q returned neither an output nor an error", f.spec.Name)
		}
		return *v, nil
	}
	return wire.Output(out)
}

// Schema infers the JSON Schema (2020-12) of the arguments struct In, as [Func]
// does.
func Schema[In any]() (json.RawMessage, error) {
	t := reflect.TypeFor[In]()
	for t.Kind() == reflect.Pointer {
		t = t.Elem() // arguments are never null
	}
	schema, err := jsonschema.ForType(t, nil)
	if err != nil {
		return nil, fmt.Errorf("infer the schema of the arguments: %w", err)
	}
	if schema.Type != "object" {
		return nil, fmt.Errorf("arguments must be a struct or a map with string keys, not %s", t)
	}
	return wire.Marshal(schema)
}

// checkObject refuses a schema that no arguments object could meet.
func checkObject(schema json.RawMessage) error {
	var s struct {
		Type any `json:"type"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return fmt.Errorf("not a JSON object: %w", err)
	}
	if s.Type != nil && s.Type != "object" {
		return errors.New(`"type" must be "object"`)
	}
	return nil
}
