package bus

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// Options configure a [Node].
type Options struct {
	Keys      *Keys
	Name      string    // for people
	Transport Transport // if nil, there are no other nodes
	// Trust returns the trust of the register in a node; zero is unknown. It is asked often.
	Trust func(ctx context.Context, node Key) (toolcrib.Trust, error)
	// Token verifies a token that node presents for a call: its signature, times, audience and subject, whether it is revoked, and its
	// limits of calls. The scope is checked by the bus. If nil, there are no tokens.
	Token func(ctx context.Context, token string, node Key) (*access.Claims, error)
	// CheckSchema returns an error if a JSON Schema cannot be used, and Check if a value is invalid by one.
	CheckSchema func(schema json.RawMessage) error
	Check       func(schema, value json.RawMessage) error
	Trace       func(TraceEvent) // may be nil
	Now         func() time.Time // if nil, time.Now
	Log         *slog.Logger     // may be nil
}

// Known is a capability that this node may call, of its own or of another node.
type Known struct {
	Descriptor
	Node     Key
	NodeName string
	Local    bool
	Trust    toolcrib.Trust // of the node, by the register of this one
}

// Peer is another node that was heard of lately.
type Peer struct {
	Node         Key            `json:"node"`
	Name         string         `json:"name"`
	Trust        toolcrib.Trust `json:"trust"` // by the register of this node
	Instances    []string       `json:"instances"`
	Load         float64        `json:"load"`         // the least of the instances, 0 to 1
	Capabilities int            `json:"capabilities"` // that this node may call
	Seen         time.Time      `json:"seen"`
}

// Node offers capabilities to other nodes, and calls theirs. It is safe for concurrent use.
type Node struct{ o Options }

// New starts a node.
func New(o Options) (*Node, error) { panic("") }

// Key returns the key of the node.
func (n *Node) Key() Key { panic("") }

// Offer offers a capability. The error has the code schema_mismatch, bad_request, or conflict if it is offered already.
func (n *Node) Offer(d Descriptor, h Handler) error { panic("") }

// Withdraw ends the offer of a capability. Calls in flight continue.
func (n *Node) Withdraw(name Name) { panic("") }

// Known returns the capabilities of this node and of others, sorted by name, version and node.
func (n *Node) Known() []Known { panic("") }

// Peers returns the other nodes, sorted by key.
func (n *Node) Peers() []Peer { panic("") }

// Changed returns a channel that is closed at the next change of [Node.Known].
func (n *Node) Changed() <-chan struct{} { panic("") }

// Open starts a call. The exchange must be ended by [Exchange.Result], [Exchange.Recv] to the end, or
// [Exchange.Cancel].
func (n *Node) Open(ctx context.Context, r Request) (*Exchange, error) { panic("") }

// Call makes a call, and returns its result.
func (n *Node) Call(ctx context.Context, r Request) (json.RawMessage, error) { panic("") }

// Traces returns the last 1,000 calls, the latest last.
func (n *Node) Traces() []TraceEvent { panic("") }

// Counters returns the numbers of calls, sorted.
func (n *Node) Counters() []Counter { panic("") }

// Close ends calls in flight and waits for their handlers.
func (n *Node) Close() { panic("") }
