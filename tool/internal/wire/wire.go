// Package wire decodes the arguments of calls and encodes the outputs of tools, the same way for
// every tool, and remembers the state of files between Prepare and Call ([Seen]).
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

// Seen remembers, between Prepare and Call, the hash of the content that a call is to replace. The
// zero value is ready to use. It is safe for concurrent use.
type Seen struct {
	mu     sync.Mutex
	hashes map[callKey]string
}

type callKey struct {
	run toolcrib.RunID
	id  string
}

// maxSeen bounds the calls that are remembered. A call that was forgotten runs without comparing
// hashes.
const maxSeen = 4096

// Keep remembers the hash that Prepare found.
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

// Take returns the hash that Prepare found, and forgets it.
func (s *Seen) Take(call toolcrib.Call) (hash string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := callKey{call.Run, call.ID}
	hash, ok = s.hashes[key]
	delete(s.hashes, key)
	return hash, ok
}
