package bus

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Open starts a call, and returns when it was accepted: the checks of the serving node have passed. The call is
// canceled when ctx ends, by [Exchange.Cancel], and at its timeout. Until it was accepted it may be tried at another
// node, if it certainly was not executed or may be repeated.
func (n *Node) Open(ctx context.Context, r Request) (*Exchange, error) {
	c, err := n.newCall(r)
	if err != nil {
		return nil, err
	}
	if r.Via != nil && !r.Via.serving {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "a call is made for one that this node serves")
	}
	return n.begin(ctx, c)
}

// Call makes a call, and returns its result. A call to an idempotent capability is repeated at another node if the
// first one fails.
func (n *Node) Call(ctx context.Context, r Request) (json.RawMessage, error) {
	c, err := n.newCall(r)
	if err != nil {
		return nil, err
	}
	for {
		x, err := n.begin(ctx, c)
		if err != nil {
			return nil, err
		}
		result, err := x.Result(ctx)
		if err != nil {
			x.Cancel()
		}
		if err == nil || ctx.Err() != nil || !x.idempotent || !elsewhere(err) || len(c.tried) >= maxAttempts {
			return result, err
		}
		c.failed = err
	}
}

// elsewhere reports whether a call that failed may succeed at another node.
func elsewhere(err error) bool {
	switch toolcrib.CodeOf(err) {
	case toolcrib.CodePartition, toolcrib.CodeInternal, toolcrib.CodeOverloaded, toolcrib.CodeCapacityExceeded,
		toolcrib.CodeProviderFailed:
		return !errors.Is(err, errAnswer)
	}
	return false
}

// begin starts a call at the best place, or at others if that does not accept it.
func (n *Node) begin(ctx context.Context, c *call) (*Exchange, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := n.routeOf(ctx, c)
		if err != nil {
			err = cmp.Or(c.failed, err)
			n.record(TraceEvent{Trace: c.trace, ID: c.id, Capability: c.name, From: n.self.Node, Local: true}, time.Now(), err)
			return nil, err
		}
		c.tried[r.at] = true
		x, err := n.start(ctx, c, r)
		if err == nil {
			return x, nil
		}
		c.failed = err
		unheard := errors.Is(err, ErrNobody)
		refused := x != nil && x.refused()
		if unheard || refused {
			n.unbind(c)
		}
		again := unheard || refused && toolcrib.CodeOf(err) == toolcrib.CodeNotFound ||
			(refused || r.Idempotent) && elsewhere(err)
		if ctx.Err() != nil || !again || len(c.tried) >= maxAttempts {
			return nil, err
		}
	}
}

// start starts a call at a place. If the error comes from there, it returns the exchange as well.
func (n *Node) start(ctx context.Context, c *call, r route) (*Exchange, error) {
	if r.peer != nil && c.to == "" {
		switch trust, err := n.trustIn(ctx, r.at.Node); {
		case err != nil:
			return nil, err
		case trust.Rank() == 0: // lost since its last card
			return nil, &toolcrib.Error{
				Code: toolcrib.CodeNotFound, Message: "the node is not trusted any longer", Err: ErrNobody,
			}
		}
	}
	if err := n.bind(c, r); err != nil {
		return nil, err
	}
	timeout := r.Timeout
	if c.timeout > 0 {
		timeout = min(timeout, c.timeout)
	}
	x := &Exchange{
		ID: c.id, Name: r.Name, Node: r.at.Node, Trace: c.trace, node: n, peer: r.at,
		idempotent: r.Idempotent, started: time.Now(), bytesOut: len(c.body), pumping: true, // until it was opened
	}
	var err error
	if x.receives, err = n.checkBy(r.Stream, r.Name); err == nil {
		x.response, err = n.checkBy(r.Response, r.Name)
	}
	if err != nil {
		return nil, err
	}
	_, _ = rand.Read(x.id[:]) // does not fail
	_, _ = rand.Read(x.salt[:])
	n.depart(place{r.at, r.Name})
	x.onEnd = func(err error) { n.arrived(x, r, err) }
	x.mu.Lock()
	timer := time.AfterFunc(timeout+callerExtra, func() { x.cancel(timedOut(x.Name)) })
	canceled := context.AfterFunc(ctx, x.Cancel)
	x.stop = func(error) { timer.Stop(); canceled() }
	x.mu.Unlock()
	if r.offer != nil {
		err = n.startHere(c, x, timeout)
	} else {
		err = n.startThere(ctx, c, x, r.peer, timeout)
	}
	if err == nil {
		err = x.await(ctx, func() bool { return x.first == kindAccepted || x.ended })
	}
	if err != nil {
		x.cancel(err)
	}
	return x, x.rejected()
}

// rejected returns the error of a call that was not accepted.
func (x *Exchange) rejected() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.first == kindAccepted {
		return nil
	}
	return x.err
}

// refused reports whether the serving node has said that it does not execute the call.
func (x *Exchange) refused() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.first != kindAccepted && x.toldError
}

// startHere starts a call at this node. It has the same checks.
func (n *Node) startHere(c *call, x *Exchange, timeout time.Duration) error {
	h, err := newHop(c, n.self.Node, n.self.Node, n.o.Now(), "")
	if err != nil {
		return err
	}
	in := &incoming{hops: append(slices.Clip(c.lineage), h), body: c.body}
	in.Token, in.Session, in.Trace, in.Timeout, in.Keep = c.token, c.session, c.trace, timeout, c.keep
	in.Bytes = len(c.body)
	y := &Exchange{node: n, serving: true, link: link{serving: true}, other: x, started: x.started, id: x.id}
	x.mu.Lock() // the exchange may be canceled at any time
	x.link.heard, x.other = x.started, y
	x.mu.Unlock()
	if !n.goes(func() { n.serve(y, in, nil) }) {
		return toolcrib.Errorf(toolcrib.CodeOverloaded, "the node is ending")
	}
	x.begun()
	return nil
}

// begun has further messages sent, after the first.
func (x *Exchange) begun() {
	x.mu.Lock()
	x.pumping = false
	x.mu.Unlock()
	x.flush()
}

// isHeard reports whether the other end has sent a message.
func (x *Exchange) isHeard() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.link.heard.IsZero()
}

func (x *Exchange) hasEnded() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ended
}

// startThere sends a call to another node.
func (n *Node) startThere(ctx context.Context, c *call, x *Exchange, p *peer, timeout time.Duration) error {
	s, ask, err := n.sessionWith(p, c.name.Name != offersName.Name)
	if err != nil {
		return err
	}
	there := *c
	there.timeout = timeout
	x.mu.Lock() // the exchange may be canceled at any time
	x.session, x.ask = s, ask
	x.mu.Unlock()
	if ask != nil {
		there.ask = ask.PublicKey().Bytes()
	}
	n.mu.Lock()
	agreement := p.Agreement
	n.mu.Unlock()
	raw, in, out, err := n.o.Keys.seal(&there, n.self, x.peer, agreement, s, x.id, n.o.Now())
	if err != nil {
		return err
	}
	x.in, x.out = in, out
	if !n.add(x) {
		return toolcrib.Errorf(toolcrib.CodeOverloaded, "the node is ending")
	}
	if x.hasEnded() { // canceled meanwhile
		n.forget(x)
		return nil
	}
	unheard := n.unheard(x.id, x.peer, true)
	if err := n.o.Transport.Send(x.peer, raw, unheard); errors.Is(err, ErrNobody) {
		unheard()
	} else if err != nil {
		return lost(err)
	}
	x.begun()
	if rest := c.body[min(len(c.body), partBytes):]; len(rest) > 0 {
		if err := x.await(ctx, func() bool { return x.first == kindReady || x.ended }); err != nil {
			return err
		}
		// The error of an exchange that has ended is its own.
		if err := x.sendParts(ctx, kindBody, rest); err != nil && x.rejected() == nil {
			return err
		}
	}
	return nil
}

// unheard returns the function for a message that was not delivered: it ends the exchange, and forgets its other end.
// first says that it was the first message. The function does not hold the exchange, which may end before.
func (n *Node) unheard(id exchangeID, at Address, first bool) func() {
	return func() {
		n.mu.Lock()
		x := n.exchanges[id]
		n.mu.Unlock()
		if x == nil || first && x.isHeard() {
			return
		}
		err := lost(errGone)
		if first {
			err = &toolcrib.Error{
				Code: toolcrib.CodePartition, Message: "the node is not connected to the bus; nothing was executed", Err: ErrNobody,
			}
		}
		x.end(nil, err)
		n.mu.Lock()
		defer n.mu.Unlock()
		n.drop(at)
	}
}

// depart counts a call to a place.
func (n *Node) depart(to place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.health[to]
	if h == nil {
		if len(n.health) >= maxHealth {
			clear(n.health)
		}
		h = &health{}
		n.health[to] = h
	}
	h.inFlight++
	h.last = time.Now()
	h.probing(h.last)
}

// arrived records the end of a call.
func (n *Node) arrived(x *Exchange, r route, err error) {
	now := time.Now()
	took := now.Sub(x.started)
	x.mu.Lock()
	session := x.session
	x.mu.Unlock()
	heard := x.isHeard()
	n.mu.Lock()
	if session != nil && !heard && toolcrib.CodeOf(err) == toolcrib.CodePartition && r.peer.session == session {
		r.peer.session = nil
	}
	if h := n.health[place{r.at, r.Name}]; h != nil {
		h.inFlight--
		switch toolcrib.CodeOf(err) {
		case "":
			h.record(now, true, took)
		case toolcrib.CodePartition, toolcrib.CodeTimeout, toolcrib.CodeInternal, toolcrib.CodeSignature:
			// A signature that this node itself rejected says nothing about the place.
			ours := !heard && toolcrib.CodeOf(err) == toolcrib.CodeSignature
			switch {
			case errors.Is(err, errAnswer):
				h.record(now, true, took)
			case !ours && !errors.Is(err, errCanceled) && !errors.Is(err, context.DeadlineExceeded):
				h.reason = toolcrib.CodeOf(err)
				h.record(now, false, took)
			}
		}
		h.probe = false
	}
	n.mu.Unlock()
	if r.offer == nil { // the serving end records a call within the node
		n.record(x.event(r.at.Node), x.started, err)
	}
}

func mismatch(err error, d *Descriptor) error {
	var e *toolcrib.Error
	if errors.As(err, &e) && e.Code == toolcrib.CodeSchemaMismatch {
		e.Err = &Alternatives{SchemaHash: d.SchemaHash()}
	}
	return err
}
