package bus

import (
	"context"
	"encoding/json"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// Hop is one node on the way of a call, and for whom it asked.
type Hop struct {
	Node  Key            `json:"node"`
	User  string         `json:"user,omitempty"`
	Trust toolcrib.Trust `json:"trust,omitempty"` // of the user at that node; without a user it does not count
	Agent string         `json:"agent,omitempty"`
	Run   string         `json:"run,omitempty"`
	Call  string         `json:"call,omitempty"` // ID of the tool call
}

// Caller is whom a call acts for, as the serving node has verified it.
type Caller struct {
	Node    Key            // signed the call
	Trust   toolcrib.Trust // the least of all nodes and users on the way, by the register of this node
	User    string         // name of the user at the first node of the way, or ""
	Claims  *access.Claims // of the token of the call; nil without one
	Lineage []Hop          // from the first node to Node; at least one
}

// Request is a call to a capability.
type Request struct {
	// ID identifies the call; a retry of it has the same one, and gets the result of the first call instead of being
	// executed again. If "", a new one.
	ID      string
	Name    Name
	Params  json.RawMessage // an object; may be nil
	Input   json.RawMessage // may be nil
	Session string          // calls of a session go to the same instance for 10 minutes after the last; may be ""
	From    Hop             // Node is set by the bus
	Via     *Exchange       // the call that is being served when this one is made for it; otherwise nil
	Token   string          // an access token; may be ""
	To      Key             // if "", any node of at least member trust
	Trace   string          // traceparent (W3C); may be ""
	Timeout time.Duration   // if 0, that of the capability, which is also the most
}

// Frame is a message of a stream, in either direction.
type Frame struct {
	// Event is the kind of the frame, of a-z, 0-9 and _: token, tool_call, tool_result. It is never done, error or accepted.
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// Handler serves a capability. Its context ends if the caller cancels or is gone, and at the call's timeout. The
// returned result is checked by the response schema. An error that is not a [*toolcrib.Error] becomes internal_error with a
// reference, under which it is logged.
type Handler func(ctx context.Context, x *Exchange) (json.RawMessage, error)

// Exchange is a call in flight, at either end.
type Exchange struct {
	ID   string
	Name Name // as offered
	Node Key  // serves the call

	// Of the serving end only.
	Caller  Caller
	Body    json.RawMessage // {params, input} in canonical form
	Session string
	Trace   string
}

// Send sends a frame to the other end. It blocks while 16 messages wait to be received there.
func (x *Exchange) Send(ctx context.Context, f Frame) error { panic("") }

// Recv returns the next frame. After the last one it returns io.EOF if the call succeeded, and otherwise a
// [*toolcrib.Error]. At the serving end it also returns an error when the call ends.
func (x *Exchange) Recv(ctx context.Context) (Frame, error) { panic("") }

// Result waits for the end of the call, and returns its result. It drops remaining frames.
func (x *Exchange) Result(ctx context.Context) (json.RawMessage, error) { panic("") }

// Cancel ends the call. The context of its handler ends within 200 ms unless the network is cut. The caller must have
// called Cancel, or seen the end, for each exchange.
func (x *Exchange) Cancel() { panic("") }
