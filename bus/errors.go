package bus

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Alternatives is the cause of some errors with the code not_found or schema_mismatch: what could be called instead.
type Alternatives struct {
	Capabilities []string // of the same name, in other versions
	Nodes        []Key    // that have the capability
	SchemaHash   string   // of the capability as it is offered
	// Params are the values that are served, if the capability is offered, but not with the values of the call. They are
	// not sent to other nodes.
	Params map[string][]any
}

func (a *Alternatives) Error() string {
	nodes := make([]string, len(a.Nodes))
	for i, key := range a.Nodes {
		nodes[i] = string(key)
	}
	return "instead: " + strings.Join(append(append(nodes, a.Capabilities...), a.SchemaHash), " ")
}

// errorBody is an error as it is sent to another node.
type errorBody struct {
	Code         toolcrib.Code `json:"error"`
	Message      string        `json:"message,omitempty"`
	RetryAfter   int64         `json:"retry_after_ms,omitempty"`
	Ref          string        `json:"ref,omitempty"`
	Capabilities []string      `json:"alt_capabilities,omitempty"`
	Nodes        []Key         `json:"alt_nodes,omitempty"`
	SchemaHash   string        `json:"schema_hash_expected,omitempty"`
	Answer       bool          `json:"answer,omitempty"` // see errAnswer
}

// errAnswer is the cause of an internal_error that a capability has made for its caller, such as that of a command that
// has failed. It says nothing about the node, and another one would answer the same.
var errAnswer = errors.New("the capability has failed, and not its node")

const (
	maxMessage      = 4 << 10 // bytes of an error's message
	maxErrorBytes   = 32 << 10
	maxAlternatives = 16
	maxRetryAfter   = time.Hour
)

// sentCodes are the codes that are sent to other nodes. Others become internal_error.
var sentCodes = []toolcrib.Code{
	toolcrib.CodeBadRequest, toolcrib.CodeSchemaMismatch, toolcrib.CodeUnauthorized, toolcrib.CodeTokenInvalid,
	toolcrib.CodeTokenRevoked, toolcrib.CodeForbidden, toolcrib.CodeScopeInsufficient, toolcrib.CodeSignature,
	toolcrib.CodeRevoked, toolcrib.CodeFederation, toolcrib.CodeNotFound, toolcrib.CodeTimeout, toolcrib.CodeConflict,
	toolcrib.CodeTokenExpired, toolcrib.CodeExpired, toolcrib.CodeTooLarge, toolcrib.CodeRateLimited,
	toolcrib.CodeCapacityExceeded, toolcrib.CodeInternal, toolcrib.CodeNotImplemented, toolcrib.CodeProviderFailed,
	toolcrib.CodeOverloaded, toolcrib.CodePartition,
}

// EncodeError returns the JSON form of an error: {error, message, retry_after_ms, ref, alt_capabilities, alt_nodes,
// schema_hash_expected}. Only the code of an error that is not a [*toolcrib.Error] is shown.
func EncodeError(err error) json.RawMessage {
	return encodeError(err, false)
}

// encodeError also says whose error it is, if answer is true.
func encodeError(err error, answer bool) json.RawMessage {
	body := errorBody{Code: toolcrib.CodeOf(err), Answer: answer && errors.Is(err, errAnswer)}
	var e *toolcrib.Error
	if errors.As(err, &e) {
		body.Message, body.RetryAfter, body.Ref = guard.Clip(e.Message, maxMessage), e.RetryAfter.Milliseconds(), e.Ref
	}
	var a *Alternatives
	if errors.As(err, &a) {
		body.Capabilities = a.Capabilities[:min(len(a.Capabilities), maxAlternatives)]
		body.Nodes = a.Nodes[:min(len(a.Nodes), maxAlternatives)]
		body.SchemaHash = a.SchemaHash
	}
	raw, _ := json.Marshal(body) // does not fail
	return raw
}

// DecodeError reads the JSON form of an error. It returns an error with internal_error for other text.
func DecodeError(raw []byte) *toolcrib.Error {
	var body errorBody
	canonical, err := guard.JSONLimits{MaxBytes: maxErrorBytes}.Canonical(raw)
	if err == nil {
		err = json.Unmarshal(canonical, &body)
	}
	if err != nil || !slices.Contains(sentCodes, body.Code) {
		return &toolcrib.Error{
			Code: toolcrib.CodeInternal, Message: "the other node failed, and its error cannot be read", Err: err,
		}
	}
	e := &toolcrib.Error{
		Code: body.Code, Message: guard.Clip(guard.Clean(body.Message), maxMessage),
		Ref:        guard.Clip(guard.Clean(body.Ref), 128),
		RetryAfter: time.Duration(min(max(0, body.RetryAfter), maxRetryAfter.Milliseconds())) * time.Millisecond,
	}
	a := &Alternatives{
		SchemaHash:   guard.Clip(guard.Clean(body.SchemaHash), 128),
		Capabilities: body.Capabilities[:min(len(body.Capabilities), maxAlternatives)],
		Nodes:        body.Nodes[:min(len(body.Nodes), maxAlternatives)],
	}
	a.Capabilities = slices.DeleteFunc(a.Capabilities, func(s string) bool { _, err := ParseName(s); return err != nil })
	a.Nodes = slices.DeleteFunc(a.Nodes, func(k Key) bool { _, err := ParseKey(string(k)); return err != nil })
	switch {
	case body.Answer && body.Code == toolcrib.CodeInternal:
		e.Err = errAnswer
	case len(a.Capabilities) > 0 || len(a.Nodes) > 0 || a.SchemaHash != "":
		e.Err = a
	}
	return e
}
