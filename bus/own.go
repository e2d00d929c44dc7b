package bus

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
)

// OfferOwn offers a capability of the node itself, whose name begins with node., to every node, also to those that are
// not trusted. It is not listed.
func (n *Node) OfferOwn(d Descriptor, h Handler) error {
	if !strings.HasPrefix(d.Name.Name, "node.") {
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "%s: such names begin with node.", d.Name)
	}
	d, err := d.Check(nil)
	if err != nil {
		return err
	}
	d.Trust = ""
	raw, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return n.enlist(&offer{Descriptor: d, handler: h, raw: raw, built: true})
}

// counted counts a call that is about to be executed. If its token has no call left, the call may be made again later.
func (n *Node) counted(ctx context.Context, x *Exchange, o *offer, k *keptCall) error {
	if x.Caller.Claims == nil || n.o.Count == nil || o.open() {
		return nil
	}
	n.mu.Lock()
	before := k != nil && k.counted
	n.mu.Unlock()
	if before {
		return nil
	}
	err := errCanceled
	if !x.hasEnded() {
		err = n.o.Count(ctx, x.Caller.Claims)
	}
	if err != nil {
		n.left(o, k, 0, nil, err, 0)
	}
	if k != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		if k.counted = k.counted || err == nil; !k.counted {
			k.until = time.Now()
		}
	}
	return err
}
