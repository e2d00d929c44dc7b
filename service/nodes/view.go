package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service/env"
)

// Status is the state of a node on the bus, as front ends show it.
type Status struct {
	Key       bus.Key  `json:"key"`
	Name      string   `json:"name"`
	Bus       bool     `json:"bus"` // whether bus.url is set; without it there are no other nodes
	Connected bool     `json:"connected"`
	Problem   string   `json:"problem,omitempty"` // why it is not connected
	Offers    []string `json:"offers"`            // capabilities
	Peers     []Peer   `json:"peers"`             // other nodes, heard from lately
	Absent    []Entry  `json:"absent"`            // nodes of the register that were not
	Invites   []Invite `json:"invites"`           // that are not used, and have not expired
}

// Peer is another node, heard from lately.
type Peer struct {
	bus.Peer
	Registered string   `json:"registered"` // its name in the register; "" if it was never there
	Offers     []string `json:"offers"`     // capabilities that this node may call
}

// Title returns the name of the node in the register or, if it was never there, what it calls itself.
func (p *Peer) Title() string { return cmp.Or(p.Registered, p.Name) }

// Status returns the state of the node, for administrators.
func (i *Instance) Status(ctx context.Context, who toolcrib.Principal) (s Status, err error) {
	if _, err := env.Administrator(who); err != nil {
		return s, err
	}
	r, err := i.nodes.entries(ctx)
	if err != nil {
		return s, err
	}
	s = Status{
		Key: i.Key(), Name: i.nodes.Name(), Bus: i.Connects(), Problem: i.problem(), Offers: []string{}, Peers: []Peer{},
		Absent: []Entry{}, Invites: []Invite{},
	}
	s.Connected = s.Bus && s.Problem == ""
	offers := map[bus.Key][]string{}
	for _, k := range i.Known() {
		offers[k.Node] = append(offers[k.Node], k.Name.String())
	}
	s.Offers = append(s.Offers, offers[s.Key]...)
	for _, p := range i.Peers() {
		s.Peers = append(s.Peers, Peer{p, r.byKey[p.Node].Name, append([]string{}, offers[p.Node]...)})
	}
	all, err := i.nodes.Register(ctx)
	if err != nil {
		return s, err
	}
	for _, e := range all {
		here := slices.ContainsFunc(s.Peers, func(p Peer) bool { return p.Node == e.Key })
		if !here && e.Trust != toolcrib.TrustUnknown {
			s.Absent = append(s.Absent, e)
		}
	}
	invites, err := i.nodes.invites(ctx)
	for _, v := range invites {
		if v.Used.IsZero() && i.nodes.people.Now().Before(v.Expires) {
			s.Invites = append(s.Invites, v)
		}
	}
	return s, err
}

func (i *Instance) problem() string {
	if i.link.Problem == nil {
		return ""
	}
	return i.link.Problem()
}

// Capability is a capability that this node may call, as front ends show it.
type Capability struct {
	bus.Descriptor
	Node      bus.Key        `json:"node"`
	NodeName  string         `json:"node_name"`
	Local     bool           `json:"local"` // of this node
	NodeTrust toolcrib.Trust `json:"trust"` // of the node, by the register of this one
	Hash      string         `json:"schema_hash"`
}

// Capabilities returns the capabilities that this node may call, for administrators. node is the key of a node, or its
// name in the register; "" means all.
func (i *Instance) Capabilities(
	ctx context.Context, who toolcrib.Principal, node string,
) (all []Capability, err error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	var of bus.Key
	if node != "" {
		if of, err = i.nodes.Find(ctx, node); err != nil {
			return nil, err
		}
	}
	all = []Capability{}
	own := bus.Known{
		Descriptor: bus.NodeList(), Node: i.Key(), NodeName: i.nodes.Name(), Local: true, Trust: toolcrib.TrustAnchor,
	}
	for _, k := range append([]bus.Known{own}, i.Known()...) {
		if of != "" && of != k.Node {
			continue
		}
		all = append(all, Capability{k.Descriptor, k.Node, k.NodeName, k.Local, k.Trust, k.SchemaHash()})
	}
	slices.SortStableFunc(all, func(a, b Capability) int { return strings.Compare(a.Name.Name, b.Name.Name) })
	return all, nil
}

// maxTraced is the number of calls that are kept.
const maxTraced = 1000

// TraceEntry is the end of a call. Seq rises by one with each call of the instance. The names of nodes are those of the
// register, or their own; "" if a node is not known.
type TraceEntry struct {
	Seq      int64  `json:"seq"`
	FromName string `json:"from_name,omitempty"`
	ToName   string `json:"to_name,omitempty"`
	bus.TraceEvent
}

// Trace is the latest calls of an instance, and the numbers of all of them.
type Trace struct {
	Entries  []TraceEntry  `json:"entries"` // the latest last
	Counters []bus.Counter `json:"counters"`
}

// trace implements [bus.Options.Trace]. Calls of nodes for themselves, such as for the lists of their offers, are only
// counted.
func (i *Instance) trace(e bus.TraceEvent) {
	if strings.HasPrefix(e.Capability.Name, "node.") {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.traces++
	if len(i.traced) >= maxTraced {
		i.traced = i.traced[1:]
	}
	i.traced = append(i.traced, TraceEntry{Seq: i.traces, TraceEvent: e})
}

// Trace returns the last calls whose number is above after, at most 1,000, for administrators.
func (i *Instance) Trace(ctx context.Context, who toolcrib.Principal, after int64) (t Trace, err error) {
	if _, err := env.Administrator(who); err != nil {
		return t, err
	}
	r, err := i.nodes.entries(ctx)
	if err != nil {
		return t, err
	}
	names := map[bus.Key]string{i.Key(): i.nodes.Name()}
	for _, p := range i.Peers() {
		names[p.Node] = p.Name
	}
	for key, e := range r.byKey {
		names[key] = e.Name
	}
	t = Trace{Entries: []TraceEntry{}, Counters: append([]bus.Counter{}, i.Counters()...)}
	i.mu.Lock()
	defer i.mu.Unlock()
	if after > i.traces { // of a server before this one
		after = 0
	}
	for _, e := range i.traced {
		if e.Seq > after {
			e.FromName, e.ToName = names[e.From], names[e.To]
			t.Entries = append(t.Entries, e)
		}
	}
	return t, nil
}

// CallRequest is a call of an administrator.
type CallRequest struct {
	bus.Request
	Node  string                // key, or name in the register, of the node that serves it; "" for any
	Frame func(bus.Frame) error // is called with each frame of a stream; may be nil
}

// findTime bounds how long a new instance waits for a capability, or a node, that it has not heard from.
const findTime = 3 * time.Second

// CallFor makes a call, for administrators: it does not pass the gate of this node, and the other node sees who asks.
func (i *Instance) CallFor(ctx context.Context, who toolcrib.Principal, q CallRequest) (json.RawMessage, error) {
	by, err := env.Administrator(who)
	if err != nil {
		return nil, err
	}
	r := q.Request
	r.From.User, r.From.Trust = by, toolcrib.TrustAnchor // who could call as the node itself
	if q.Node != "" {
		if r.To, err = i.nodes.Find(ctx, q.Node); err != nil {
			return nil, err
		}
	}
	if r.Token == "" {
		i.await(ctx, r)
	} else if err := i.ToIssuer(ctx, &r); err != nil {
		return nil, err
	}
	x, err := i.Open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer x.Cancel()
	for q.Frame != nil {
		f, err := x.Recv(ctx)
		if err != nil {
			break // Result returns it
		}
		if err := q.Frame(f); err != nil {
			return nil, err
		}
	}
	return x.Result(ctx)
}

// IssuerOf returns the node that a token names as its issuer.
func IssuerOf(token string) (bus.Key, error) {
	claims, err := access.ReadUnverified(token, access.BusAudience)
	return bus.Key(claims.Issuer), err
}

// ToIssuer directs a call with a token to its issuer, since no other node may get the token. A new instance waits until
// it has heard of that.
func (i *Instance) ToIssuer(ctx context.Context, r *bus.Request) error {
	issuer, err := IssuerOf(r.Token)
	if err != nil {
		return err
	}
	if r.To = cmp.Or(r.To, issuer); r.To != issuer {
		return env.BadRequestf("the node %s has issued the token, and it alone accepts it", guard.Clip(string(issuer), 64))
	}
	i.await(ctx, *r)
	return nil
}

// listenTime is how long a new instance listens before it says who is there.
const listenTime = 2 * time.Second

// Listen waits until the other nodes had time to be heard by a new instance.
func (i *Instance) Listen(ctx context.Context) {
	wait := time.NewTimer(time.Until(i.opened.Add(listenTime)))
	defer wait.Stop()
	if !i.Connects() {
		return
	}
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

// await waits until a capability is known that serves a call, or the node that a call with a token is for was heard
// from.
func (i *Instance) await(ctx context.Context, r bus.Request) {
	ctx, cancel := context.WithDeadline(ctx, i.opened.Add(findTime))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	serves := func(k bus.Known) bool { return k.Name.Serves(r.Name) && r.To == cmp.Or(r.To, k.Node) }
	for i.Connects() && ctx.Err() == nil && !slices.ContainsFunc(i.Known(), serves) && (r.Token == "" || !i.heard(r.To)) {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// heard reports whether a node was heard from lately.
func (i *Instance) heard(node bus.Key) bool {
	return slices.ContainsFunc(i.Peers(), func(p bus.Peer) bool { return p.Node == node })
}
