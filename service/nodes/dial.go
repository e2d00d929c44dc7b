package nodes

import (
	"context"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/natsbus"
	"github.com/toolcrib/toolcrib/service/env"
)

// Dial returns an instance of this node for a command, which offers nothing, on the bus of the configuration. Without
// bus.url there are no other nodes.
func (n *Nodes) Dial(ctx context.Context) (*Instance, error) {
	o, err := n.env.BusOptions(nil)
	if err != nil {
		return nil, err
	}
	if o.URL == "" {
		return n.Open(ctx, Link{}, false, nil)
	}
	over, err := natsbus.DialNodes(ctx, o)
	if natsbus.Unreachable(err) {
		return nil, toolcrib.Errorf(toolcrib.CodeOverloaded, "%v; start it, or correct bus.url", err)
	}
	if err != nil {
		return nil, env.BadRequestf("%v", err)
	}
	return n.Open(ctx, Link{Transport: over, Problem: over.Problem, Close: over.Close}, false, nil)
}

// LinkOf returns the link through the bus of a server, which the caller closes.
func LinkOf(b *natsbus.Bus) (l Link, err error) {
	over, err := b.Nodes()
	if err != nil || over == nil {
		return l, err
	}
	return Link{Transport: over, Problem: over.Problem, Close: over.Close}, nil
}
