package bus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// offer is a capability of this node.
type offer struct {
	Descriptor
	handler  Handler
	raw      json.RawMessage
	hash     [sha256.Size]byte // of raw
	built    bool              // built in: everybody may call it, if its trust is ""
	inFlight int               // with the lock of the node
	typical  time.Duration     // moving average of calls, with the lock
}

// Capabilities that each node has. Names that begin with node. are reserved.
var (
	offersName = Name{"node.offers", 1, 0}
	listName   = Name{"node.list", 1, 0}
)

const (
	builtins  = 2
	pageBytes = 256 << 10
)

// Offer offers a capability. The error has the code schema_mismatch, bad_request, or conflict if the capability is
// offered already.
func (n *Node) Offer(d Descriptor, h Handler) error {
	if strings.HasPrefix(d.Name.Name, "node.") {
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "%s: names that begin with node. are reserved", d.Name)
	}
	var compile func(json.RawMessage) error
	if n.o.Schema != nil {
		compile = func(schema json.RawMessage) error { _, err := n.compiled(schema); return err }
	}
	d, err := d.Check(compile)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(d)
	if err == nil {
		err = json.Unmarshal(raw, &d) // values of params as other nodes see them
	}
	if err != nil {
		return err
	}
	return n.enlist(&offer{Descriptor: d, handler: h, raw: raw})
}

func (n *Node) enlist(o *offer) error {
	o.hash = sha256.Sum256(o.raw)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.offers[o.Name] != nil:
		return toolcrib.Errorf(toolcrib.CodeConflict, "%s is offered already", o.Name)
	case len(n.offers)-builtins >= maxOffers:
		return toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "a node offers at most %d capabilities", maxOffers)
	}
	n.offers[o.Name] = o
	n.altered()
	return nil
}

// Withdraw ends the offer of a capability. Calls in flight continue.
func (n *Node) Withdraw(name Name) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o := n.offers[name]; o != nil && !o.built {
		delete(n.offers, name)
		n.altered()
	}
}

// altered notes that the offers have changed. It needs the lock.
func (n *Node) altered() {
	n.listed = nil
	n.rerouted()
	n.announce()
}

// offered returns the offer that answers calls to a name: that with the highest minor version.
func (n *Node) offered(name Name) *offer {
	n.mu.Lock()
	defer n.mu.Unlock()
	var best *offer
	for _, o := range n.sorted().byName[name.Name] {
		if o.Name.Serves(name) {
			best = o
		}
	}
	return best
}

// listed are the offers, sorted by name.
type listed struct {
	all    []*offer // without those that are built in
	byName map[string][]*offer
	hash   string
}

// sorted returns the offers, sorted by name. It needs the lock.
func (n *Node) sorted() *listed {
	if n.listed != nil {
		return n.listed
	}
	l := &listed{byName: map[string][]*offer{}}
	for _, o := range n.offers {
		l.all = append(l.all, o)
	}
	slices.SortFunc(l.all, func(a, b *offer) int { return a.Name.compare(b.Name) })
	for _, o := range l.all {
		l.byName[o.Name.Name] = append(l.byName[o.Name.Name], o)
	}
	l.all = slices.DeleteFunc(l.all, func(o *offer) bool { return o.built })
	l.hash = hashOffers(l.all)
	n.listed = l
	return l
}

func hashOffers(all []*offer) string {
	h := sha256.New()
	for _, o := range all {
		h.Write(o.hash[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// visible returns the offers that a caller may call.
func (n *Node) visible(trust toolcrib.Trust, claims *access.Claims, self bool) []*offer {
	n.mu.Lock()
	all := n.sorted().all
	n.mu.Unlock()
	var visible []*offer
	for _, o := range all {
		if o.visible(trust, claims, self) {
			visible = append(visible, o)
		}
	}
	return visible
}

func (d *Descriptor) visible(trust toolcrib.Trust, claims *access.Claims, self bool) bool {
	covered := claims == nil || claims.Scope.Offers(access.Target{Capability: d.Name.String()}) == nil
	return covered && d.permits(trust, self)
}

// permits reports whether a caller with this trust may call the capability; self says that it is this node.
func (d *Descriptor) permits(trust toolcrib.Trust, self bool) bool {
	return self && d.Trust == TrustSelf || d.Trust != TrustSelf && trust.Rank() >= max(1, d.Trust.Rank())
}

// NodeList describes node.list@1.0, which every node serves.
func NodeList() Descriptor {
	return Descriptor{
		Name: listName, Stability: Stable, MaxConcurrent: DefaultMaxConcurrent, Trust: toolcrib.TrustMember,
		Description: "Lists this node and those that it trusts and has heard from lately, with the capabilities that it knows.",
		Timeout:     DefaultTimeout, Idempotent: true, Effect: toolcrib.EffectReadOnly,
	}
}

// builtin offers what each node has: the list of its offers, and that of its peers.
func (n *Node) builtin() {
	list := NodeList()
	offers := list
	offers.Name, offers.Trust, offers.MaxConcurrent = offersName, "", 64
	offers.Description = "Lists the capabilities that the caller may call."
	for _, o := range []*offer{
		{Descriptor: list, handler: n.listPeers, built: true}, {Descriptor: offers, handler: n.listOffers, built: true},
	} {
		n.offers[o.Name] = o
	}
}

// offersInput is the body of a call to node.offers. If the list has the hash that the caller has, it is not sent.
type offersInput struct {
	Input struct {
		Have string `json:"have"`
	} `json:"input"`
}

type offersResult struct {
	Hash  string `json:"hash"`
	Count int    `json:"count"`
}

func (n *Node) listOffers(ctx context.Context, x *Exchange) (json.RawMessage, error) {
	var in offersInput
	if err := json.Unmarshal(x.Body, &in); err != nil {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "the input is {have}, the hash of a list")
	}
	all := n.visible(x.Caller.Trust, x.Caller.Claims, x.Caller.Node == n.self.Node && len(x.Caller.Lineage) == 1)
	result := offersResult{Hash: hashOffers(all), Count: len(all)}
	if in.Input.Have == result.Hash {
		all = nil
	}
	x.raw = true
	var page []byte
	for i, o := range all {
		if page == nil {
			page = append(make([]byte, 0, pageBytes), `{"offers":[`...)
		} else {
			page = append(page, ',')
		}
		page = append(page, o.raw...)
		if last := i == len(all)-1; last || len(page)+len(all[i+1].raw) > pageBytes {
			if err := x.Send(ctx, Frame{Event: "offers", Data: append(page, "]}"...)}); err != nil {
				return nil, err
			}
			page = nil
		}
	}
	return json.Marshal(result)
}

// neighbour is an entry of node.list.
type neighbour struct {
	Node         Key       `json:"node"`
	Name         string    `json:"name"`
	Load         float64   `json:"load"`
	Capabilities []string  `json:"capabilities"` // that this node may call, and the trust in the caller suffices for
	Seen         time.Time `json:"seen"`
}

// Bounds of node.list.
const (
	maxNeighbours = 200
	maxNamed      = 200 // capabilities of a node
)

func (n *Node) listPeers(_ context.Context, x *Exchange) (json.RawMessage, error) {
	offers := map[Key][]string{}
	for _, k := range n.Known() {
		if names := offers[k.Node]; len(names) < maxNamed && k.visible(x.Caller.Trust, x.Caller.Claims, false) {
			offers[k.Node] = append(names, k.Name.String())
		}
	}
	all := []neighbour{{Node: n.self.Node, Name: n.o.Name, Seen: n.o.Now().UTC()}}
	for _, p := range n.Peers() {
		if p.Trust.Rank() > 0 && len(all) < maxNeighbours {
			all = append(all, neighbour{Node: p.Node, Name: p.Name, Load: p.Load, Seen: p.Seen})
		}
	}
	for i := range all {
		all[i].Capabilities = append([]string{}, offers[all[i].Node]...)
	}
	return json.Marshal(map[string]any{"nodes": all})
}
