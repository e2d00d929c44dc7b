package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/gate"
)

// callDescriptor describes llm.tools.call@1.0, which makes another call for its caller.
func callDescriptor() bus.Descriptor {
	return bus.Descriptor{
		Name:        bus.Name{Name: "llm.tools.call", Major: 1},
		Description: "Calls a capability of this node or of one that it knows, for the caller and with the caller's rights.",
		Request: json.RawMessage(`{"type":"object","properties":{"params":{"type":"object"},` +
			`"input":{"type":"object","properties":{"tool_call_id":{"type":"string"},"target_capability":{"type":"string"},` +
			`"target_body":{"type":"object","properties":{"params":{"type":"object"},"input":{}},"additionalProperties":false}},` +
			`"required":["target_capability"]}},"required":["input"]}`),
		MaxConcurrent: 256, Timeout: bus.MaxTimeout, Joins: true,
	}
}

// toolCall is the body of llm.tools.call@1.0.
type toolCall struct {
	Params json.RawMessage `json:"params"` // are not used
	Input  struct {
		CallID string `json:"tool_call_id"`
		Target string `json:"target_capability"`
		Body   struct {
			Params json.RawMessage `json:"params"`
			Input  json.RawMessage `json:"input"`
		} `json:"target_body"`
	} `json:"input"`
}

// callTool makes the call that the caller asks for, with no more rights than the caller has: the serving node sees all
// nodes and users that the call passes.
func (f *front) callTool(ctx context.Context, _ toolcrib.Principal, x *bus.Exchange) (json.RawMessage, error) {
	var in toolCall
	if err := decode(x.Body, &in); err != nil {
		return nil, err
	}
	name, err := bus.ParseName(in.Input.Target)
	if err != nil {
		return nil, err
	}
	if err := f.admit(x, ""); err != nil {
		return nil, err
	}
	body := map[string]json.RawMessage{}
	for key, value := range map[string]json.RawMessage{"params": in.Input.Body.Params, "input": in.Input.Body.Input} {
		if len(value) > 0 {
			body[key] = value
		}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	for _, k := range f.Pool.Node().Known() {
		if !k.Name.Serves(name) || len(k.Request) == 0 {
			continue
		}
		if err := gate.CheckAnswer(k.Request, raw); err != nil {
			text := strings.NewReplacer(" /answer/", " /", " /answer:", " target_body:").Replace(err.Error())
			return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "target_body does not fit the schema of %s: %s", k.Name, text)
		}
		break
	}
	target, err := f.Pool.Node().Open(ctx, bus.Request{
		ID: forwarded(x), Name: name, Params: in.Input.Body.Params, Input: in.Input.Body.Input, Session: x.Session, Via: x,
		From: bus.Hop{Call: in.Input.CallID}, Trace: x.Trace,
	})
	if err != nil {
		return nil, err
	}
	defer target.Cancel()
	for {
		frame, err := target.Recv(ctx)
		if errors.Is(err, io.EOF) {
			return target.Result(ctx)
		}
		if err == nil {
			err = x.Send(ctx, frame)
		}
		if err != nil {
			return nil, err
		}
	}
}

// forwarded returns the ID of the call that is made for x: unique per caller, and the same if x is repeated.
func forwarded(x *bus.Exchange) string {
	sum := sha256.Sum256([]byte(string(x.Caller.Node) + "\x00" + x.Caller.User + "\x00" + x.ID))
	return hex.EncodeToString(sum[:])
}
