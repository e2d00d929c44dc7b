// Package rpc reads and writes JSON-RPC messages for toolcrib's own transports. The SDK's reader allocates a buffer
// of 32 KiB for each part of a message.
package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// ErrNoMessage means that a text is not a message: it is not a JSON object, or does not say that it is JSON-RPC.
var ErrNoMessage = errors.New("not a message of JSON-RPC")

// ErrNobody means that a response has no ID, like the response to a request that its server could not read.
var ErrNobody = errors.New("it has neither method nor id")

// maxBatch bounds a batch, because each of its messages may be answered.
const maxBatch = 1000

// Split returns the text of one message, or the texts of the messages of a batch, as in MCP 2025-03-26.
func Split(text []byte) []json.RawMessage {
	var batch []json.RawMessage
	if head := bytes.TrimLeft(text, " \t\r\n"); len(head) > 0 && head[0] == '[' && json.Unmarshal(text, &batch) == nil &&
		len(batch) > 0 && len(batch) <= maxBatch {
		return batch
	}
	return []json.RawMessage{text}
}

// Decode reads a message. Parameters and results are left as they are.
func Decode(text []byte) (jsonrpc.Message, error) {
	var parts map[string]json.RawMessage // names of members are compared exactly
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoMessage, err)
	}
	if _, ok := parts["jsonrpc"]; !ok {
		return nil, ErrNoMessage
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
		return nil, ErrNobody
	}
	answer := &jsonrpc.Response{ID: id, Result: parts["result"]}
	if failed != nil { // a nil *jsonrpc.Error would make Error non-nil
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

// Writer writes messages, one per line. It is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	To io.Writer
}

// Write writes a message, unless ctx has ended.
func (w *Writer) Write(ctx context.Context, message jsonrpc.Message) error {
	text, err := jsonrpc.EncodeMessage(message)
	if err != nil {
		return err
	}
	return w.Line(ctx, text)
}

// Line writes the text of a message, unless ctx has ended.
func (w *Writer) Line(ctx context.Context, text []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	_, err := w.To.Write(append(text, '\n'))
	return err
}
