// Package rpc reads messages of JSON-RPC for transports of our own. The SDK's reader takes a new
// buffer of 32 KiB for each part of a message.
package rpc

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// ErrNotObject means that a text is not a JSON object, so that it is no message at all.
var ErrNotObject = errors.New("not a JSON object")

// Decode reads a message. Parameters and results are left as they are.
func Decode(text []byte) (jsonrpc.Message, error) {
	var parts map[string]json.RawMessage // names of members are compared exactly
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotObject, err)
	}
	if parts == nil {
		return nil, ErrNotObject
	}
	var version, method string
	var number any
	var failed *jsonrpc.Error
	err := errors.Join(
		part(parts, "jsonrpc", &version), part(parts, "id", &number), part(parts, "method", &method),
		part(parts, "error", &failed),
	)
	if err == nil && version != "2.0" {
		err = fmt.Errorf("jsonrpc must be 2.0, not %.20q", version)
	}
	if err != nil {
		return nil, err
	}
	id, err := jsonrpc.MakeID(number)
	if err != nil {
		return nil, err
	}
	if _, ok := parts["method"]; ok {
		return &jsonrpc.Request{ID: id, Method: method, Params: parts["params"]}, nil
	}
	if !id.IsValid() {
		return nil, errors.New("it has neither method nor id")
	}
	answer := &jsonrpc.Response{ID: id, Result: parts["result"]}
	if failed != nil { // else Error would not be nil
		answer.Error = failed
	}
	return answer, nil
}

// part reads a member of a message, if it is there.
func part(of map[string]json.RawMessage, name string, to any) error {
	text, ok := of[name]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
