package bus

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
)

const (
	bodyWait   = 30 * time.Second // for the rest of a body
	acceptWait = 5 * time.Millisecond
	endWait    = 5 * time.Second // for room for the last message of a call that has timed out
)

// opened takes the first message of an exchange.
func (n *Node) opened(e envelope, err error) {
	if err != nil {
		n.count(unread, 0)
		return
	}
	now := time.Now()
	x := &Exchange{node: n, id: e.id, serving: true, in: e.in, out: e.out, started: now}
	x.pumping = true            // until the caller is known
	_, _ = rand.Read(x.salt[:]) // does not fail
	x.link.heard, x.link.serving = now, true
	if !n.add(x) {
		return
	}
	if !n.goes(func() {
		call, err := e.read(n.self.Node, n.o.Now())
		if call == nil {
			n.count(unread, 0)
			x.end(nil, err) // nobody is known who could be told
			return
		}
		x.peer = Address{call.last().Node, call.Instance}
		x.begun()
		n.serve(x, call, err)
	}) {
		n.forget(x)
	}
}

// errReplay is the end of a call that was sent again by somebody. It is not answered.
var errReplay = errors.New("the call was received before")

// serve answers a call. err is the error of its envelope, or nil.
func (n *Node) serve(x *Exchange, in *incoming, err error) {
	h := in.last()
	x.ID, x.Name, x.Node, x.hops = h.ID, h.Capability, n.self.Node, in.hops
	if toolcrib.CodeOf(err) != toolcrib.CodeSignature {
		x.Session, x.Trace = guard.Clip(in.Session, maxSession), guard.Clip(in.Trace, maxTrace)
	}
	x.mu.Lock()
	x.bytesIn += in.Bytes
	x.mu.Unlock()
	x.signer = h.Node
	var result json.RawMessage
	if err == nil {
		result, err = n.answer(x, in)
	}
	n.conclude(x, result, err)
}

// conclude sends the end of a call to its caller and records it, once: at its end or when its time is over.
func (n *Node) conclude(x *Exchange, result json.RawMessage, err error) {
	x.mu.Lock()
	over := x.concluded
	x.concluded = true
	if err == nil {
		x.bytesOut += len(result)
	}
	x.mu.Unlock()
	switch {
	case over:
		return
	case errors.Is(err, errReplay):
		x.end(nil, err)
		return
	case toolcrib.CodeOf(err) == toolcrib.CodeInternal:
		err = n.failed(x.Name, err)
	}
	event := func() {
		if x.holder == "" && x.other == nil && !n.noteworthy(err) {
			return
		}
		e := x.event(n.self.Node)
		if e.From = x.signer; toolcrib.CodeOf(err) == toolcrib.CodeSignature && x.Caller.Node == "" {
			e.From = "" // it is not known
		}
		e.Local, e.Served = x.other != nil, true
		n.record(e, x.started, err)
	}
	ctx, cancel := context.WithTimeout(n.ctx, max(x.patience, endWait))
	defer cancel()
	if err == nil {
		event() // the caller may look for it
	}
	x.finish(ctx, result, err)
	if err != nil {
		event()
	}
}

// answer checks and executes a call.
func (n *Node) answer(x *Exchange, in *incoming) (json.RawMessage, error) {
	if len(in.hops) > maxHops {
		return nil, tooDeep()
	}
	checks, done := context.WithTimeout(n.ctx, DefaultTimeout)
	defer done()
	o := n.offered(x.Name)
	if o == nil {
		trust, err := n.trustIn(checks, in.last().Node)
		if err != nil {
			return nil, err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		return nil, n.notOffered(x.Name, trust)
	}
	x.Name = o.Name
	var err error
	if x.sends, err = n.checkBy(o.Stream, o.Name); err != nil {
		return nil, err
	}
	if err := n.admit(checks, x, in, o); err != nil {
		return nil, err
	}
	if o.open() && in.Bytes > len(in.body) {
		return nil, toolcrib.Errorf(toolcrib.CodeTooLarge, "the body of a call to %s has at most %d bytes", o.Name, partBytes)
	}
	body, err := n.bodyOf(checks, x, in)
	if err != nil {
		return nil, err
	}
	request, err := n.checkBy(o.Request, o.Name)
	if err != nil {
		return nil, err
	}
	var value any
	if x.Body, value, err = request.read(body, MaxBody); err == nil && !bytes.HasPrefix(x.Body, []byte("{")) {
		err = errors.New("it is not an object")
	}
	if err != nil {
		return nil, badBody(err)
	}
	var params struct {
		Params map[string]any `json:"params"`
	}
	if len(o.Params) > 0 && (json.Unmarshal(x.Body, &params) != nil || !compatible(o.Params, params.Params)) {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "this node does not offer %s with these params", o.Name)
	}
	if err := covered(x.Caller.Claims, o.Name, x.Caller.Lineage, x.Body); err != nil {
		return nil, err
	}
	if err := request.valid(value, "the body", o.Name); err != nil {
		return nil, mismatch(err, &o.Descriptor)
	}
	k, first, err := n.enter(o, x, in)
	if err == nil && first {
		err = n.counted(checks, x, o, k)
	}
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.executed, x.link.begun = true, o.Reads
	x.mu.Unlock()
	if !first {
		x.accept()
		return k.join(n.ctx, x, o.Timeout)
	}
	return n.execute(x, in, o, k)
}

// notOffered returns the error for a call of a capability that this node does not offer. It needs the lock.
func (n *Node) notOffered(name Name, trust toolcrib.Trust) error {
	a := &Alternatives{}
	text := "this node does not offer " + name.String()
	for _, o := range n.sorted().byName[name.Name] {
		if (o.open() || o.permits(trust, false)) && len(a.Capabilities) < maxNotFound {
			a.Capabilities = append(a.Capabilities, o.Name.String())
		}
	}
	if len(a.Capabilities) > 0 {
		text += fmt.Sprintf("; it offers %q", a.Capabilities)
	}
	return &toolcrib.Error{Code: toolcrib.CodeNotFound, Message: text, Err: a}
}

// admit decides whether the caller may call the capability.
func (n *Node) admit(ctx context.Context, x *Exchange, in *incoming, o *offer) error {
	c := Caller{Node: in.last().Node, Trust: toolcrib.TrustAnchor, User: in.hops[0].read.User}
	self := true
	var own toolcrib.Trust // in the node that signed the call
	for i := range in.hops {
		h := &in.hops[i].read
		trust, err := n.trustIn(ctx, h.Node)
		if err != nil {
			return err
		}
		self = self && h.Node == n.self.Node
		own = trust
		if i < len(in.hops)-1 {
			c.Trust = least(c.Trust, trust)
		}
		if h.User != "" {
			c.Trust = least(c.Trust, h.Trust)
		}
		c.Lineage = append(c.Lineage, h.Hop)
	}
	refused := func() error {
		return toolcrib.Errorf(toolcrib.CodeUnauthorized, "%s needs trust %q; this call has %q, the lowest of the nodes and users "+
			"that it passes", o.Name, o.Trust, cmp.Or(least(c.Trust, own), "unknown"))
	}
	if in.Token == "" && !o.open() && !o.permits(least(c.Trust, own), self) {
		return refused() // nothing of it is remembered
	}
	if own.Rank() > 0 {
		x.holder = c.Node
	}
	if err := n.share(x); err != nil {
		return err
	}
	if in.Token != "" {
		claims, err := n.token(ctx, in.Token, c.Node)
		if err != nil {
			return err
		}
		c.Claims = claims
		if own.Rank() == 0 {
			own = toolcrib.TrustMember
		}
		target := access.Target{Agent: in.last().Agent, Capability: o.Name.String()}
		if err := claims.Scope.Offers(target); err != nil && !o.open() {
			return err
		}
	}
	if c.Trust = least(c.Trust, own); !o.open() && !o.permits(c.Trust, self) {
		return refused()
	}
	x.Caller = c
	if x.other != nil || o.open() { // such a call may be repeated
		return nil
	}
	if err := n.remember(x, in.last().Expires); err != nil {
		return err
	}
	return n.grant(x, in)
}

// open reports whether every node may call the offer.
func (o *offer) open() bool { return o.built && o.Trust == "" }

func (n *Node) token(ctx context.Context, token string, node Key) (*access.Claims, error) {
	if n.o.Token == nil {
		return nil, toolcrib.Errorf(toolcrib.CodeTokenInvalid, "this node accepts no tokens")
	}
	claims, err := n.o.Token(ctx, token, node)
	if err == nil && claims == nil {
		err = toolcrib.Errorf(toolcrib.CodeTokenInvalid, "the token is not valid")
	}
	return claims, err
}

// covered returns nil if the scope of the token permits the call.
func covered(claims *access.Claims, name Name, lineage []Hop, body json.RawMessage) error {
	if claims == nil || name == offersName {
		return nil
	}
	var b struct {
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return err
	}
	return claims.Scope.Covers(access.Target{Agent: lineage[len(lineage)-1].Agent, Capability: name.String()}, b.Params)
}

// bodyOf returns the whole body of a call.
func (n *Node) bodyOf(ctx context.Context, x *Exchange, in *incoming) ([]byte, error) {
	if x.other != nil {
		return in.body, nil
	}
	body := in.body
	if missing := in.Bytes - len(body); missing > 0 {
		if !n.reserve(x.holder, in.Bytes) {
			return nil, &toolcrib.Error{
				Code: toolcrib.CodeCapacityExceeded, Message: "the node receives too many large calls; try again", RetryAfter: retrySoon,
			}
		}
		defer n.release(x.holder, in.Bytes)
		ctx, cancel := context.WithTimeout(ctx, bodyWait)
		defer cancel()
		x.mu.Lock()
		x.first, x.link.body = kindReady, missing
		x.put(kindReady, nil)
		x.mu.Unlock()
		x.flush()
		if err := x.await(ctx, func() bool { return x.hasBody || x.ended }); err != nil {
			return nil, toolcrib.Errorf(toolcrib.CodeTimeout, "the body of the call did not arrive in time")
		}
		x.mu.Lock()
		rest := x.body
		x.body = nil
		x.mu.Unlock()
		body = append(append(make([]byte, 0, len(body)+len(rest)), body...), rest...)
	}
	if len(body) != in.Bytes || hashOf(body) != in.Hash {
		return nil, toolcrib.Errorf(toolcrib.CodeSignature, "the body of the call is not the one that was signed")
	}
	return body, nil
}

// reserve reports whether a node may send a body of a size now.
func (n *Node) reserve(node Key, size int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reserved+size > maxReserved || !n.reservedBy.take(node, maxReserved, size) {
		return false
	}
	n.reserved += size
	return true
}

func (n *Node) release(node Key, size int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reserved -= size
	n.reservedBy.give(node, size)
}

// accept tells the caller that the handler runs, unless it knows.
func (x *Exchange) accept() {
	x.mu.Lock()
	if !x.ended {
		x.accepting()
	}
	x.mu.Unlock()
	x.flush()
}

// accepting needs the lock.
func (x *Exchange) accepting() {
	if x.first != kindAccepted {
		x.first = kindAccepted
		x.put(kindAccepted, nil)
	}
}

// execute runs the handler.
func (n *Node) execute(x *Exchange, in *incoming, o *offer, k *keptCall) (json.RawMessage, error) {
	timeout := o.Timeout
	if in.Timeout > 0 {
		timeout = min(timeout, in.Timeout)
	}
	x.patience = timeout
	ctx, stop := context.WithCancelCause(n.ctx)
	defer stop(nil)
	ctx, done := context.WithTimeout(ctx, timeout)
	defer done()
	x.mu.Lock()
	x.stop = func(err error) {
		// A call that may be made again continues when its caller is lost. A handler that joins calls decides itself.
		if k == nil || o.Joins || toolcrib.CodeOf(err) != toolcrib.CodePartition {
			stop(err)
		}
	}
	over := x.ended
	x.mu.Unlock()
	if over {
		stop(errCanceled)
	}
	// A result and a frame say as well that the call was accepted. An error does not.
	late := time.AfterFunc(acceptWait, x.accept)
	defer late.Stop()
	// The caller does not wait for a handler that needs longer.
	defer context.AfterFunc(ctx, func() { n.goes(func() { n.conclude(x, nil, stopped(ctx, o.Name)) }) })()
	began := time.Now()
	result, err := guard.Contain(func() (json.RawMessage, error) {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		return o.handler(ctx, x)
	})
	result, err = n.checked(ctx, o, result, err)
	n.left(o, k, time.Since(began), result, err, x.frames())
	return result, err
}

func (x *Exchange) frames() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.count
}

// stopped returns the error of a call whose context has ended.
func stopped(ctx context.Context, name Name) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return timedOut(name)
}

// checked returns the result of a handler as the caller gets it.
func (n *Node) checked(ctx context.Context, o *offer, result json.RawMessage, err error) (json.RawMessage, error) {
	var e *toolcrib.Error
	switch {
	case err == nil:
		if len(result) == 0 {
			result = json.RawMessage("null")
		}
		var response check
		if response, err = n.checkBy(o.Response, o.Name); err == nil {
			err = response.own(result, MaxBody, "the result", o.Name)
		}
		if err == nil {
			return result, nil
		}
	case ctx.Err() != nil:
		return nil, stopped(ctx, o.Name)
	case errors.As(err, &e):
		if e.Code == toolcrib.CodeInternal && e.Ref != "" {
			answer := *e
			answer.Err = errAnswer
			e = &answer
		}
		return nil, e
	}
	return nil, n.failed(o.Name, err)
}

// failed returns the internal error that a caller gets, with the reference under which err is logged.
func (n *Node) failed(name Name, err error) error {
	var e *toolcrib.Error
	if errors.As(err, &e) && e.Ref != "" || errors.Is(err, errCanceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	ref := "bus_" + rand.Text()[:16]
	n.o.Log.Error("a capability failed", "capability", name.String(), "ref", ref, "error", err, "stack", guard.Stack(err))
	return &toolcrib.Error{Code: toolcrib.CodeInternal, Message: name.String() + " failed", Ref: ref}
}
