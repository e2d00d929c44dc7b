// Package wire turns a call's arguments into Go values and Go values into a
// tool's output, the same way for every tool.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// Decode reads a call's arguments into in. The gate has validated them already;
// what still does not fit is reported as [toolcrib.InvalidArguments].
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
		// Without the names of Go types: they say nothing to a model.
		message = "/" + strings.ReplaceAll(mismatch.Field, ".", "/") + ": " + mismatch.Value + " does not fit"
	}
	return &toolcrib.ToolError{Kind: toolcrib.InvalidArguments, Message: message, Err: err}
}

// Marshal encodes v as JSON with <, > and & as they are (H2): a model reads the
// text, no browser does.
func Marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Output makes an output of v as JSON.
func Output(v any) (toolcrib.Output, error) {
	data, err := Marshal(v)
	if err != nil {
		return toolcrib.Output{}, err
	}
	return toolcrib.Output{JSON: data}, nil
}
