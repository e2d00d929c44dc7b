package service

import (
	"context"
	"encoding/json"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/nodes"
)

// onBus calls do with an instance of the node of the data folder: that of the server in this process, or one that is
// closed after it. It is for administrators.
func (s *Service) onBus(ctx context.Context, who toolcrib.Principal, do func(*nodes.Instance) error) error {
	if _, err := env.Administrator(who); err != nil {
		return err
	}
	if i := s.Nodes.Server(); i != nil {
		return do(i)
	}
	i, err := s.Nodes.Dial(ctx)
	if err != nil {
		return err
	}
	defer i.Close()
	return do(i)
}

// BusStatus returns the state of this node on the bus, for administrators.
func (s *Service) BusStatus(ctx context.Context, who toolcrib.Principal) (out nodes.Status, err error) {
	err = s.onBus(ctx, who, func(i *nodes.Instance) (err error) {
		i.Listen(ctx)
		out, err = i.Status(ctx, who)
		return err
	})
	return out, err
}

// BusCapabilities returns the capabilities that this node may call, for administrators. node is the key of a node, or
// its name in the register, "" for all.
func (s *Service) BusCapabilities(
	ctx context.Context, who toolcrib.Principal, node string,
) (all []nodes.Capability, err error) {
	err = s.onBus(ctx, who, func(i *nodes.Instance) (err error) {
		i.Listen(ctx)
		all, err = i.Capabilities(ctx, who, node)
		return err
	})
	return all, err
}

// BusTrace returns the last calls of the server in this process whose number is above after, for administrators.
func (s *Service) BusTrace(ctx context.Context, who toolcrib.Principal, after int64) (nodes.Trace, error) {
	i := s.Nodes.Server()
	if _, err := env.Administrator(who); err != nil || i == nil {
		if err == nil {
			err = env.BadRequestf("a trace is in the memory of a server; name it with --server, or $TOOLCRIB_SERVER")
		}
		return nodes.Trace{}, err
	}
	return i.Trace(ctx, who, after)
}

// BusCall makes a call from this node, for administrators.
func (s *Service) BusCall(
	ctx context.Context, who toolcrib.Principal, q nodes.CallRequest,
) (out json.RawMessage, err error) {
	err = s.onBus(ctx, who, func(i *nodes.Instance) (err error) {
		out, err = i.CallFor(ctx, who, q)
		return err
	})
	return out, err
}

// JoinNode uses an invite of another node, for administrators. theirs is how far that one trusts this one now.
func (s *Service) JoinNode(
	ctx context.Context, who toolcrib.Principal, code string, level toolcrib.Trust,
) (e nodes.Entry, theirs string, err error) {
	err = s.onBus(ctx, who, func(i *nodes.Instance) (err error) {
		e, theirs, err = i.Join(ctx, who, code, level)
		return err
	})
	return e, theirs, err
}
