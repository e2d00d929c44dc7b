package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/gate"
)

// Instance is an instance of the node of a data folder on the bus: that of a server, or of a command that is soon over.
type Instance struct {
	*bus.Node
	nodes  *Nodes
	link   Link
	log    *slog.Logger
	opened time.Time

	mu      sync.Mutex
	traced  []TraceEntry         // the last calls
	traces  int64                // number of calls
	flights map[*flight]struct{} // calls that are being served
	stop    context.CancelFunc   // ends watch
	watched sync.WaitGroup
}

// flight is a call that is being served.
type flight struct {
	who      toolcrib.Principal
	caller   *bus.Caller
	required toolcrib.Trust // that the nodes on its way need
	end      context.CancelCauseFunc
}

// Link is what connects an instance with other nodes.
type Link struct {
	Transport bus.Transport // if nil, there are no other nodes
	Problem   func() string // returns why the bus cannot be used, or ""; may be nil
	Close     func()        // may be nil
}

// Open returns an instance of this node. serves says that it is a server's, which accepts invites. The store must be
// open. Closing the instance closes the link; so does an error.
func (n *Nodes) Open(ctx context.Context, l Link, serves bool, log *slog.Logger) (_ *Instance, err error) {
	defer func() {
		if err != nil && l.Close != nil {
			l.Close()
		}
	}()
	keys, err := n.own(ctx)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	i := &Instance{nodes: n, link: l, log: log, opened: time.Now(), flights: map[*flight]struct{}{}}
	i.Node, err = bus.New(bus.Options{
		Keys: keys, Name: n.Name(), Transport: l.Transport, Trust: n.TrustOf, Token: n.verify, Count: n.count,
		Schema: gate.CompileSchema, Trace: i.trace, Log: log,
	})
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(context.Background())
	i.stop = stop
	i.watched.Go(func() { i.watch(watching) })
	if !serves {
		return i, nil
	}
	if err := i.OfferOwn(joinDescriptor(), n.serveJoin); err != nil {
		i.end()
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.server = i
	return i, nil
}

// Connects reports whether there are other nodes on the bus.
func (i *Instance) Connects() bool { return i.link.Transport != nil }

// Close ends calls in flight, and waits for their handlers.
func (i *Instance) Close() {
	i.nodes.mu.Lock()
	if i.nodes.server == i {
		i.nodes.server = nil
	}
	i.nodes.mu.Unlock()
	i.end()
	if i.link.Close != nil {
		i.link.Close()
	}
}

func (i *Instance) end() {
	i.Node.Close()
	i.stop()
	i.watched.Wait()
}

// Server returns the instance of the server in this process, or nil.
func (n *Nodes) Server() *Instance {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.server
}

// Serve is a [bus.Handler] that acts for a principal: the user of the node that has signed the call, who is never an
// administrator. It has the grants that the capability was offered with.
type Serve func(ctx context.Context, who toolcrib.Principal, x *bus.Exchange) (json.RawMessage, error)

// Offer offers a capability. grants are what serving it needs, such as the name of a tool; with none, nothing is
// granted. A call ends when a node on its way is no longer trusted as far as the capability needs, or when its token is
// no longer valid.
func (i *Instance) Offer(d bus.Descriptor, grants []string, serve Serve) error {
	required := d.Trust
	if required == "" {
		required = toolcrib.TrustMember
	}
	return i.Node.Offer(d, func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
		who, err := i.nodes.Principal(ctx, &x.Caller, grants)
		if err != nil {
			return nil, err
		}
		ctx, end := context.WithCancelCause(ctx)
		defer end(nil)
		f := &flight{who: who, caller: &x.Caller, required: required, end: end}
		i.mu.Lock()
		i.flights[f] = struct{}{}
		i.mu.Unlock()
		defer func() {
			i.mu.Lock()
			defer i.mu.Unlock()
			delete(i.flights, f)
		}()
		out, err := serve(ctx, who, x)
		if cause := context.Cause(ctx); withdrawn(cause) {
			return nil, cause
		}
		return out, err
	})
}

// Principal returns whom a call acts for. A call from another node acts for a user of the node that has signed it
// (node:NAME, node:NAME:USER), with the least trust of all on its way and the grants given. A call from this node acts
// for the user that it names, with the rights of that user. Nobody is an administrator.
func (n *Nodes) Principal(ctx context.Context, c *bus.Caller, grants []string) (toolcrib.Principal, error) {
	self, err := n.Key(ctx)
	if err != nil {
		return toolcrib.Principal{}, err
	}
	who := toolcrib.Principal{User: c.User, Trust: c.Trust, Grants: append([]string{}, grants...)}
	if c.Claims != nil {
		who.Token = c.Claims.ID
	}
	way := c.Lineage
	for len(way) > 0 && way[len(way)-1].Node == self { // this node makes the call for the one before it
		way = way[:len(way)-1]
	}
	if len(way) > 0 {
		r, err := n.entries(ctx)
		if err != nil {
			return toolcrib.Principal{}, err
		}
		who.User = r.userOf(&bus.Caller{Node: way[len(way)-1].Node, User: c.User, Lineage: way})
	}
	who, err = n.standing(ctx, who, c.Claims, toolcrib.CodeUnauthorized)
	who.Admin = false
	return who, err
}

// standing returns the principal of a call with its current rights. The error has the code given if it has none, or
// that of the token.
func (n *Nodes) standing(
	ctx context.Context, who toolcrib.Principal, claims *access.Claims, code toolcrib.Code,
) (toolcrib.Principal, error) {
	if claims != nil {
		if err := n.verifier.Current(ctx, *claims); err != nil {
			return toolcrib.Principal{}, err
		}
	}
	now, err := n.people.Standing().Standing(ctx, who)
	if err == nil && now.Refused != "" {
		err = toolcrib.Errorf(code, "%s", now.Refused)
	}
	return now.Principal, err
}

// withdrawn reports whether an error says that a call may no longer be served.
func withdrawn(err error) bool {
	switch toolcrib.CodeOf(err) {
	case toolcrib.CodeRevoked, toolcrib.CodeTokenRevoked, toolcrib.CodeTokenExpired:
		return true
	}
	return false
}

// watch ends calls whose nodes or token are no longer valid, within a second.
func (i *Instance) watch(ctx context.Context) {
	tick := time.NewTicker(Fresh / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		i.mu.Lock()
		all := make([]*flight, 0, len(i.flights))
		for f := range i.flights {
			all = append(all, f)
		}
		i.mu.Unlock()
		for _, f := range all {
			if err := i.valid(ctx, f); withdrawn(err) { // after another error, it is asked again
				f.end(err)
			}
		}
	}
}

// valid returns an error if a call may not continue, or if that is not known.
func (i *Instance) valid(ctx context.Context, f *flight) error {
	if _, err := i.nodes.standing(ctx, f.who, f.caller.Claims, toolcrib.CodeRevoked); err != nil {
		return err
	}
	for k, h := range f.caller.Lineage {
		trust, err := i.nodes.TrustOf(ctx, h.Node)
		if f.caller.Claims != nil && k == len(f.caller.Lineage)-1 {
			trust = cmp.Or(trust, toolcrib.TrustMember)
		}
		switch {
		case h.Node == i.Key():
		case err != nil:
			return err
		case trust.Rank() < f.required.Rank():
			return toolcrib.Errorf(toolcrib.CodeRevoked, "a node on the way of the call is no longer trusted as far as the "+
				"capability needs")
		}
	}
	return nil
}

// Offer is a capability of the configuration: a tool, a command or an agent, which serves it.
type Offer struct {
	bus.Descriptor
	Tool, Command, Agent string // one of them is set
}

// Offers returns the capabilities that the configuration offers, sorted by name, as other nodes will see them. An error
// names the position of the offer.
func (n *Nodes) Offers() (all []Offer, err error) {
	c := n.env.Config
	for _, name := range c.OfferNames() {
		o := c.Bus.Offers[name]
		parsed, err := bus.ParseName(name)
		if err != nil {
			return nil, c.OfferError(name, "", err.Error())
		}
		d, err := bus.Descriptor{
			Name: parsed, Description: o.Description, Request: json.RawMessage(o.Request),
			Response: json.RawMessage(o.Response), Stream: json.RawMessage(o.Stream), Params: o.ParamValues(),
			MaxConcurrent: o.MaxConcurrent, Trust: toolcrib.Trust(o.Trust), Timeout: o.Timeout.Std(),
			Idempotent: o.Idempotent,
		}.Check(gate.CheckSchema)
		if err != nil {
			return nil, c.OfferError(name, "", err.Error())
		}
		all = append(all, Offer{d, o.Tool, o.Command, o.Agent})
	}
	return all, nil
}
