// Package wire decodes the arguments of calls and encodes the outputs of tools, the same way for
// every tool.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// Spec returns the Spec of a built-in tool that is enabled by default.
func Spec(group, name, description, parameters string, effect toolcrib.Effect) toolcrib.Spec {
	return toolcrib.Spec{
		Name: name, Description: description, Parameters: json.RawMessage(parameters), Effect: effect,
		Group: group, Source: "builtin", EnabledByDefault: true,
	}
}

// Decode decodes the arguments of a call into in. The gate has already validated them against the
// schema; other errors are [toolcrib.InvalidArguments].
func Decode(arguments json.RawMessage, in any) error {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	err := json.Unmarshal(arguments, in)
	if err == nil {
		return nil
	}
	message := "the arguments could not be read"
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		// Names of Go types would mean nothing to a model.
		message = "/" + strings.ReplaceAll(mismatch.Field, ".", "/") + ": " + mismatch.Value + " does not fit"
	}
	return &toolcrib.ToolError{Kind: toolcrib.InvalidArguments, Message: message, Err: err}
}

// Plan decodes the arguments of a call into in, which has the values of those that are absent, and
// returns a plan that does the work with them.
func Plan[In any](call toolcrib.Call, in In, do func(context.Context, toolcrib.Call, In) (toolcrib.Output, error)) (
	*toolcrib.Plan, In, error,
) {
	err := Decode(call.Arguments, &in)
	return &toolcrib.Plan{Run: func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
		if err := ctx.Err(); err != nil {
			return toolcrib.Output{}, err
		}
		return do(ctx, call, in)
	}}, in, err
}

// Marshal encodes v as JSON without escaping <, > and & (H2), since models and not browsers read it.
func Marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Output returns an output with v as JSON.
func Output(v any) (toolcrib.Output, error) {
	data, err := Marshal(v)
	if err != nil {
		return toolcrib.Output{}, err
	}
	return toolcrib.Output{JSON: data}, nil
}
