// Package bound makes tools of capabilities of the bus. The arguments of a call are the input of the capability,
// except for those that are bound to params. A tool is there as long as a node offers its capability.
package bound

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
)

// Group is the group of these tools.
const Group = "bus"

// Target is the kind of a target that is a capability, such as rag.query@1.0.
const Target = "capability"

// composition is the capability that makes another call; see [Options.Params].
const composition = "llm.tools.call"

// Node is the node that makes the calls.
type Node interface {
	// Known returns the capabilities that can be called now.
	Known() []bus.Known
	// Call makes a call for the run of a tool call, as whom the run acts for.
	Call(ctx context.Context, call *toolcrib.Call, r bus.Request) (json.RawMessage, error)
}

// Options describe a tool. The zero value of a field is the strictest reading.
type Options struct {
	Name, Description string
	Capability        bus.Name
	Parameters        json.RawMessage // JSON Schema of the arguments; if empty, any object
	// Params are sent with each call. A value that is the text {args.NAME} stands for an argument, which is then not part
	// of the input. With the capability llm.tools.call, target_capability names what is called.
	Params  map[string]any
	Effect  toolcrib.Effect
	Timeout time.Duration // if 0, limits.tool_timeout
	Enabled bool          // by default
	Trusted bool          // results are not untrusted data
	Token   string        // presented with each call; may be ""
	Issuer  bus.Key       // of Token: the only node that is called
}

type bound struct {
	Options
	node Node
	spec toolcrib.Spec
}

// New returns the tool. source is NODE/CAPABILITY.
func New(node Node, o Options, source string) (toolcrib.Tool, error) {
	b := &bound{Options: o, node: node}
	b.spec = toolcrib.Spec{
		Name: o.Name, Description: o.Description, Parameters: o.Parameters, Effect: o.Effect.OrStrictest(), Group: Group,
		Source: "bus:" + source, EnabledByDefault: o.Enabled, Untrusted: !o.Trusted, Sink: true, Timeout: o.Timeout,
		Plans: toolcrib.PlanFacts{Targets: true},
	}
	return b, b.spec.Check()
}

// Spec implements [toolcrib.Tool].
func (b *bound) Spec() toolcrib.Spec { return b.spec }

// Call plans the call and runs the plan.
func (b *bound) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, b, call)
}

// prepared is what the journal has of a call before it is made, so that it can be made again after a crash without
// being executed twice.
type prepared struct {
	ID   string    `json:"id"`
	Node bus.Key   `json:"node"`
	At   time.Time `json:"at"`
}

// rejoinTime is how long after its start a call can be made again. Nodes keep the runs of calls for longer.
const rejoinTime = 12 * time.Hour

// Plan implements [toolcrib.Planner].
func (b *bound) Plan(_ context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	r, err := b.request(&call)
	if err != nil {
		return nil, err
	}
	writes := b.spec.Effect.Writes()
	var at bus.Key // the node that the journal names; "" for any
	p := &toolcrib.Plan{
		Targets: []toolcrib.Target{{Kind: Target, Name: b.target(), Write: writes}},
		Run: func(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
			one := r
			one.To = at
			return b.output(b.node.Call(ctx, &call, one))
		},
	}
	if !writes {
		return p, nil
	}
	p.Prepare = func(context.Context, toolcrib.Call) (json.RawMessage, error) {
		if b.Capability.Name != composition { // made again, it could run at another node than before
			at = b.serving()
		}
		return json.Marshal(prepared{r.ID, at, time.Now()})
	}
	p.Reconcile = func(ctx context.Context, call toolcrib.Call, raw json.RawMessage) (toolcrib.Reconciled, error) {
		var was prepared
		if err := json.Unmarshal(raw, &was); err != nil || was.Node == "" || time.Since(was.At) > rejoinTime {
			return toolcrib.Reconciled{}, nil
		}
		again := r
		again.ID, again.To = was.ID, was.Node
		result, err := b.node.Call(ctx, &call, again)
		if err != nil { // it may have happened
			return toolcrib.Reconciled{}, nil
		}
		out, err := b.output(result, nil)
		return toolcrib.Reconciled{State: toolcrib.Happened, Output: out}, err
	}
	return p, nil
}

// target returns the name of the capability that a call reaches.
func (b *bound) target() string {
	if to, ok := b.Params["target_capability"].(string); ok && b.Capability.Name == composition {
		return to
	}
	return b.Capability.String()
}

// serving returns the node for a call that must be made at one node only: the issuer of its token, this one, or the
// first in the order of keys.
func (b *bound) serving() (at bus.Key) {
	if b.Issuer != "" {
		return b.Issuer
	}
	for _, k := range b.node.Known() {
		if k.Name.Serves(b.Capability) && (at == "" || k.Local) {
			at = k.Node
		}
	}
	return at
}

// request returns the call for arguments.
func (b *bound) request(call *toolcrib.Call) (r bus.Request, err error) {
	var input map[string]json.RawMessage
	if err := json.Unmarshal(call.Arguments, &input); err != nil {
		return r, err
	}
	sum := sha256.Sum256([]byte(string(call.Run) + "\x00" + call.ID))
	r = bus.Request{ID: hex.EncodeToString(sum[:]), Name: b.Capability, Session: string(call.Session), Token: b.Token}
	params := map[string]any{}
	for name, value := range b.Params {
		argument, ok := argumentIn(value)
		if !ok {
			params[name] = value
			continue
		}
		if given, has := input[argument]; has {
			params[name] = given
			delete(input, argument)
		}
	}
	if b.Capability.Name == composition {
		to := params["target_capability"]
		delete(params, "target_capability")
		r.Input, err = json.Marshal(map[string]any{
			"tool_call_id": call.ID, "target_capability": to, "target_body": map[string]any{"params": params, "input": input},
		})
		return r, err
	}
	if r.Input, err = json.Marshal(input); err == nil && len(params) > 0 {
		r.Params, err = json.Marshal(params)
	}
	return r, err
}

// argumentIn returns the argument that a value of params stands for.
func argumentIn(value any) (name string, ok bool) {
	text, _ := value.(string)
	inside, ok := strings.CutPrefix(text, "{args.")
	if name, ends := strings.CutSuffix(inside, "}"); ok && ends && name != "" {
		return name, true
	}
	return "", false
}

// output returns the output for the result of a call. An error keeps its code.
func (b *bound) output(result json.RawMessage, err error) (toolcrib.Output, error) {
	var known *toolcrib.Error
	if err != nil && !errors.As(err, &known) {
		return toolcrib.Output{}, err
	}
	if err != nil {
		return toolcrib.Output{JSON: bus.EncodeError(err), IsError: true}, nil
	}
	return toolcrib.Output{JSON: result}, nil
}

// Arguments returns the arguments of the tool that would make a call with this body, in canonical form.
func (o *Options) Arguments(params, input map[string]json.RawMessage) (json.RawMessage, bool) {
	arguments := map[string]json.RawMessage{}
	for name, value := range input {
		arguments[name] = value
	}
	for name, value := range params {
		argument, ok := argumentIn(o.Params[name])
		if _, twice := arguments[argument]; !ok || twice {
			return nil, false
		}
		arguments[argument] = value
	}
	raw, err := json.Marshal(arguments)
	return raw, err == nil
}

// Source returns where the capability of a tool is: the key of the only node that offers it, or *. ok is false if no
// node does. Every node lists its peers. The issuer of a token may not list what it allows.
func (o *Options) Source(known []bus.Known) (source string, ok bool) {
	switch {
	case o.Issuer != "":
		return string(o.Issuer), true
	case o.Capability.Name == "node.list":
		return "*", true
	}
	for _, k := range known {
		switch {
		case !k.Name.Serves(o.Capability) || ok && source == string(k.Node):
		case ok:
			return "*", true
		default:
			source, ok = string(k.Node), true
		}
	}
	return source, ok
}
