// Package wire turns a call's arguments into Go values and Go values into a
// tool's output, the same way for every tool, and keeps what calls have seen when they were
// prepared ([Seen]).
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/toolcrib/toolcrib"
)

// Spec describes a built-in tool that is on by default.
func Spec(group, name, description, parameters string, effect toolcrib.Effect) toolcrib.Spec {
	return toolcrib.Spec{
		Name: name, Description: description, Parameters: json.RawMessage(parameters), Effect: effect,
		Group: group, Source: "builtin", EnabledByDefault: true,
	}
}

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

// Seen remembers, between Prepare and Call, the hash of what a call is to replace. The zero value
// is ready for use, by many at once.
type Seen struct {
	mu     sync.Mutex
	hashes map[callKey]string
}

type callKey struct {
	run toolcrib.RunID
	id  string
}

// maxSeen bounds the calls between Prepare and Call that are remembered. A call that was
// forgotten is run without the comparison.
const maxSeen = 4096

// Keep remembers what Prepare saw.
func (s *Seen) Keep(call toolcrib.Call, hash string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hashes == nil {
		s.hashes = make(map[callKey]string)
	}
	if len(s.hashes) >= maxSeen {
		for key := range s.hashes {
			delete(s.hashes, key)
			break
		}
	}
	s.hashes[callKey{call.Run, call.ID}] = hash
}

// Take returns what Prepare saw, once.
func (s *Seen) Take(call toolcrib.Call) (hash string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := callKey{call.Run, call.ID}
	hash, ok = s.hashes[key]
	delete(s.hashes, key)
	return hash, ok
}
