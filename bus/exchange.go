package bus

import (
	"context"
	"crypto/cipher"
	"crypto/ecdh"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
)

// Hop is one node on the way of a call, with the user that it acted for.
type Hop struct {
	Node  Key            `json:"node"`
	User  string         `json:"user,omitempty"`
	Trust toolcrib.Trust `json:"trust,omitempty"` // of the user at that node; without a user it does not count
	Agent string         `json:"agent,omitempty"`
	Run   string         `json:"run,omitempty"`
	Call  string         `json:"call,omitempty"` // ID of the tool call
}

// Caller is the verified origin of a call.
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
	// Event is the kind of the frame, of a-z, 0-9 and _, such as token or tool_result. It is never done, error or
	// accepted.
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// Handler serves a capability. Its context ends if the caller cancels or is gone, and at the call's timeout. The
// returned result is checked by the response schema. An error that is not a [*toolcrib.Error] becomes internal_error
// with a reference, under which it is logged, as does an internal_error without a reference. Such an error is a fault
// of the node; one with a reference is an answer, which the caller gets as it is.
type Handler func(ctx context.Context, x *Exchange) (json.RawMessage, error)

// Exchange is a call in flight, at either end. It is safe for concurrent use.
type Exchange struct {
	ID   string
	Name Name // as offered
	Node Key  // serves the call

	// Of the serving end only.
	Caller  Caller
	Body    json.RawMessage // {params, input} in canonical form
	Session string
	Trace   string

	node            *Node
	id              exchangeID
	serving         bool
	peer            Address     // of the other end
	in, out         cipher.AEAD // nil within this node
	salt            salt        // of the messages that this end sends
	other           *Exchange   // within this node
	session         *session    // of the caller, if it has used one
	hops            []signedHop // of the serving end
	signer          Key         // of the call, if that is verified
	holder          Key         // of the shares of the serving end: its caller, or "" for a node without trust
	shared          bool        // it is counted in served; with the lock of the node
	sends, receives check       // of frames
	raw             bool        // no frame is checked: this end has made them, or decodes them at once
	response        check       // of the result
	started         time.Time
	patience        time.Duration // how long the serving end waits for its result to be received
	idempotent      bool
	onEnd           func(error) // called once, without the lock; may be nil

	sending sync.Mutex // held for all parts of a content

	mu        sync.Mutex
	link      link
	outbox    []message
	pumping   bool          // somebody sends the outbox
	waiting   chan struct{} // closed at the next change; nil if nobody waits
	executed  bool          // at the serving end
	first     kind          // kindReady or kindAccepted, the last that was received
	body      []byte        // rest of the body, of the serving end
	hasBody   bool
	ending    bool // the last message is being sent
	ended     bool
	concluded bool // at the serving end
	result    json.RawMessage
	err       error
	toldError bool                    // by the other end
	heardSalt salt                    // of its messages
	ask       *ecdh.PrivateKey        // of the caller, for a session; nil if it was not asked for, or was answered
	stop      context.CancelCauseFunc // of the handler's context, or of the timeout
	bytesIn   int
	bytesOut  int
	count     int // frames
}

const (
	maxEvent = 64
	maxQuick = 4 << 10 // bytes of a result that is checked where messages are received
)

// errCanceled is the end of a call that its caller has canceled.
var errCanceled = context.Canceled

// Send sends a frame to the other end. It blocks while 16 messages wait there.
func (x *Exchange) Send(ctx context.Context, f Frame) error {
	if !validEvent(f.Event) {
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "a frame cannot have the event %+q", guard.Clip(f.Event, maxEvent))
	}
	if len(f.Data) == 0 {
		f.Data = json.RawMessage("null")
	}
	if !x.raw {
		if err := x.sends.own(f.Data, MaxFrame, "a frame", x.Name); err != nil {
			return err
		}
	}
	payload := append(append([]byte{byte(len(f.Event))}, f.Event...), f.Data...)
	x.mu.Lock()
	x.count++
	x.bytesOut += len(f.Data)
	x.mu.Unlock()
	return x.sendParts(ctx, kindFrame, payload)
}

func validEvent(event string) bool {
	for i := range len(event) {
		if c := event[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return event != "" && len(event) <= maxEvent && event != "done" && event != "error" && event != "accepted"
}

// sendParts sends a counted content, when there is room for it. The parts of two contents are not mixed: one end sends
// frames from one goroutine at a time.
func (x *Exchange) sendParts(ctx context.Context, k kind, payload []byte) error {
	x.sending.Lock()
	defer x.sending.Unlock()
	for first := true; first || len(payload) > 0; first = false {
		part := payload[:min(len(payload), partBytes)]
		payload = payload[len(part):]
		of := k
		if len(payload) > 0 {
			of |= more
		}
		err := x.await(ctx, func() bool {
			ready := x.ended || x.ending && k == kindFrame || x.link.room()
			if ready && !x.ended && !(x.ending && k == kindFrame) {
				if x.serving && of != k {
					x.accepting() // nothing comes between the parts
				}
				x.put(of, part)
			}
			return ready
		})
		x.flush()
		if err == nil {
			err = x.over(k)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// over returns an error if the exchange has ended.
func (x *Exchange) over(k kind) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.ended && x.err != nil:
		return x.err
	case x.ended, x.ending && k == kindFrame:
		return toolcrib.Errorf(toolcrib.CodeConflict, "the call has ended")
	}
	return nil
}

// Recv returns the next frame. After the last one it returns io.EOF if the call succeeded, and otherwise a
// [*toolcrib.Error], or [context.Canceled] if it was canceled.
func (x *Exchange) Recv(ctx context.Context) (f Frame, err error) {
	var payload []byte
	got := false
	err = x.await(ctx, func() bool {
		if payload, got = x.link.frame(); got {
			x.acknowledge()
		}
		return got || x.ended || x.ending
	})
	x.flush()
	switch {
	case err != nil:
		return f, err
	case !got:
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.err != nil {
			return f, x.err
		}
		return f, io.EOF
	}
	f, err = x.readFrame(payload)
	if err != nil {
		x.cancel(err)
	}
	return f, err
}

// readFrame reads a frame that the other end has sent.
func (x *Exchange) readFrame(payload []byte) (f Frame, err error) {
	broken := func(err error) (Frame, error) {
		return Frame{}, &toolcrib.Error{
			Code: toolcrib.CodeSchemaMismatch, Message: "the other node has sent a frame that cannot be read", Err: err,
		}
	}
	if len(payload) == 0 || len(payload) < 1+int(payload[0]) {
		return broken(nil)
	}
	f.Event = string(payload[1 : 1+payload[0]])
	if f.Data = payload[1+payload[0]:]; x.raw {
		return f, nil
	}
	var value any
	f.Data, value, err = x.receives.read(f.Data, MaxFrame)
	if err != nil || !validEvent(f.Event) {
		return broken(err)
	}
	return f, x.receives.valid(value, "a frame", x.Name)
}

// Result waits for the end of the call, and returns its result. It drops remaining frames.
func (x *Exchange) Result(ctx context.Context) (json.RawMessage, error) {
	err := x.await(ctx, func() bool {
		for got := true; got; {
			_, got = x.link.frame()
		}
		x.acknowledge()
		return x.ended
	})
	x.flush()
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.result, x.err
}

// Cancel ends the call, unless it has ended. The context of its handler ends at once, if the network carries that.
func (x *Exchange) Cancel() { x.cancel(errCanceled) }

func (x *Exchange) cancel(cause error) {
	x.mu.Lock()
	switch {
	case x.ended:
	case !x.serving:
		x.put(kindCancel, nil)
	case !x.ending:
		if x.executed {
			x.accepting()
		}
		x.put(kindError, encodeError(cause, true))
	}
	x.mu.Unlock()
	x.flush()
	x.end(nil, cause)
}

// await waits until ready, which is called with the lock, returns true.
func (x *Exchange) await(ctx context.Context, ready func() bool) error {
	for {
		x.mu.Lock()
		if ready() {
			x.mu.Unlock()
			return nil
		}
		if x.waiting == nil {
			x.waiting = make(chan struct{})
		}
		changed := x.waiting
		x.mu.Unlock()
		x.flush() // ready may have acknowledged frames
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// changed wakes who waits. It needs the lock.
func (x *Exchange) changed() {
	if x.waiting != nil {
		close(x.waiting)
		x.waiting = nil
	}
}

// put adds a message to the outbox. It needs the lock.
func (x *Exchange) put(k kind, payload []byte) {
	x.outbox = append(x.outbox, x.link.send(time.Now(), k, payload))
}

// acknowledge tells the other end what was used, if that is due. It needs the lock.
func (x *Exchange) acknowledge() {
	if m, due := x.link.ack(time.Now(), false); due && !x.ended {
		x.outbox = append(x.outbox, m)
	}
}

// flush sends the outbox, in order, unless another goroutine does.
func (x *Exchange) flush() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.pumping {
		return
	}
	x.pumping = true
	for len(x.outbox) > 0 {
		out := x.outbox
		x.outbox = nil
		x.mu.Unlock()
		for _, m := range out {
			x.transmit(m)
		}
		x.mu.Lock()
	}
	x.pumping = false
}

func (x *Exchange) transmit(m message) {
	if x.other != nil {
		x.other.receive(m)
		return
	}
	var unheard func()
	if m.kind == kindAck { // there is one every few seconds
		unheard = x.node.unheard(x.id, x.peer, false)
	}
	// A message that cannot be sent is a lost one.
	_ = x.node.o.Transport.Send(x.peer, sealData(x.out, x.id, x.salt, m), unheard)
}

// from reports whether a message comes from the other end, and not from one that got the same open message again.
func (x *Exchange) from(by salt) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.heardSalt == (salt{}) {
		x.heardSalt = by
	}
	return x.heardSalt == by
}

// receive takes a message of the other end.
func (x *Exchange) receive(m message) {
	x.mu.Lock()
	if x.ended {
		x.mu.Unlock()
		return
	}
	if m.kind == kindCancel && x.serving {
		x.mu.Unlock()
		x.end(nil, errCanceled)
		return
	}
	whole, err := x.link.receive(time.Now(), m)
	over := false
	var result json.RawMessage
	var given []byte
	ask := x.ask
	for _, w := range whole {
		switch {
		case w.kind == kindFrame:
			x.accepted()
			x.count++
			x.bytesIn += len(w.payload)
		case x.serving && w.kind == kindBody && !x.hasBody && x.first == kindReady:
			x.body, x.hasBody = w.payload, true
		case x.serving, w.kind == kindBody, w.kind == kindCancel:
			err = errBroken
		case w.kind == kindReady, w.kind == kindAccepted:
			x.first = w.kind
		case w.kind == kindSession && x.ask != nil:
			given, x.ask = w.payload, nil
		case w.kind == kindSession:
			err = errBroken
		case w.kind == kindDone:
			x.accepted()
			result, over = w.payload, true
		case w.kind == kindError:
			err, over, x.toldError = DecodeError(w.payload), true, true
		}
	}
	if !over {
		x.acknowledge()
	}
	x.changed()
	x.mu.Unlock()
	if given != nil {
		x.node.granted(x, ask, given)
	}
	x.flush()
	switch {
	case err == nil && over && (x.other != nil || len(result) <= maxQuick):
		x.arrived(result)
	case err == nil && over: // it takes long, and others wait for the transport
		if !x.node.goes(func() { x.arrived(result) }) {
			x.end(nil, errCanceled)
		}
	case over:
		x.end(nil, err)
	case err != nil:
		x.cancel(lost(err))
	}
}

// accepted notes at the caller that the handler runs or has run. It needs the lock.
func (x *Exchange) accepted() {
	if !x.serving {
		x.first = kindAccepted
	}
}

// lost returns the error of a connection to another node that was lost.
func lost(err error) error {
	return &toolcrib.Error{
		Code: toolcrib.CodePartition, Message: err.Error() + "; the call may have been executed", Err: err,
	}
}

// arrived ends the call at the caller with a result.
func (x *Exchange) arrived(raw json.RawMessage) {
	result, value, err := x.response.read(raw, MaxBody)
	if err != nil {
		x.end(nil, toolcrib.Errorf(toolcrib.CodeSchemaMismatch, "the other node has sent a result that cannot be read: %v", err))
		return
	}
	if err := x.response.valid(value, "the result", x.Name); err != nil {
		x.end(nil, err)
		return
	}
	x.end(result, nil)
}

// end ends the exchange at this end.
func (x *Exchange) end(result json.RawMessage, err error) {
	x.mu.Lock()
	if x.ended {
		x.mu.Unlock()
		return
	}
	x.ended, x.result, x.err = true, result, err
	x.bytesIn += len(result) // of the caller
	x.changed()
	stop, onEnd := x.stop, x.onEnd
	x.mu.Unlock()
	if stop != nil {
		stop(err)
	}
	x.node.forget(x)
	if onEnd != nil {
		onEnd(err)
	}
}

// finish sends the end of a call to its caller, once. ctx bounds the wait for room.
func (x *Exchange) finish(ctx context.Context, result json.RawMessage, err error) {
	x.mu.Lock()
	if x.ended || x.ending {
		x.mu.Unlock()
		return
	}
	x.ending = true
	x.changed()
	x.mu.Unlock()
	if err == nil {
		if x.sendParts(ctx, kindDone, result) != nil {
			err = lost(errUnread)
		}
	}
	if err != nil {
		x.mu.Lock()
		if !x.ended {
			if x.executed {
				x.accepting() // the error is not a refusal
			}
			x.put(kindError, encodeError(err, true))
		}
		x.mu.Unlock()
		x.flush()
	}
	x.end(result, err)
}

func timedOut(name Name) error {
	return toolcrib.Errorf(toolcrib.CodeTimeout, "%s did not end in time", name)
}

// check ends the exchange if the other end is lost, and sends a message if there was none for some time.
func (x *Exchange) check(now time.Time) {
	x.mu.Lock()
	if x.ended {
		x.mu.Unlock()
		return
	}
	alive, err := x.link.check(now, x.started)
	if alive {
		m, _ := x.link.ack(now, true)
		x.outbox = append(x.outbox, m)
	}
	x.mu.Unlock()
	x.flush()
	if err != nil {
		x.cancel(lost(err))
	}
}
