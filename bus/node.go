package bus

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
)

// Options configure a [Node].
type Options struct {
	Keys      *Keys
	Name      string    // for people
	Transport Transport // if nil, there are no other nodes
	// Trust returns the trust of the register in a node; the zero value means unknown. It is called for each call and
	// each card of a node.
	Trust func(ctx context.Context, node Key) (toolcrib.Trust, error)
	// Token verifies a token that a node presents for a call: its signature, times, audience and subject, and whether it
	// is revoked. The node checks the scope. If nil, no token is accepted.
	Token func(ctx context.Context, token string, node Key) (*access.Claims, error)
	// Count counts a call by a token, after all other checks, or returns an error if it has none left. If nil, calls are
	// not counted.
	Count func(ctx context.Context, claims *access.Claims) error
	// Schema compiles a JSON Schema: it returns an error if that cannot be used, and a function that returns an error if a
	// value, as [guard.JSONLimits.Value] reads it, is not valid against it. If nil, values are not checked.
	Schema func(schema json.RawMessage) (check func(value any) error, err error)
	Trace  func(TraceEvent) // called at the end of each call; may be nil
	Now    func() time.Time // of messages; if nil, time.Now
	Log    *slog.Logger     // may be nil
}

// Node offers capabilities to other nodes, and calls theirs. It is safe for concurrent use.
type Node struct {
	o       Options
	self    Address
	ctx     context.Context
	stop    context.CancelCauseFunc
	running sync.WaitGroup
	leave   func()        // ends the receipt of messages
	cards   chan []byte   // that were received
	opens   chan []byte   // open messages that were received
	hurry   chan struct{} // has room for one: announce this node soon

	compiling   sync.Mutex
	schemas     map[string]func(any) error // compiled
	schemaBytes int                        // of their texts

	mu          sync.Mutex
	closed      bool
	exchanges   map[exchangeID]*Exchange // with other nodes
	opening     map[exchangeID][][]byte  // of opens, with data messages that came since
	openBytes   int                      // of opens
	served      int                      // of these, those that this node serves
	servedBy    shares
	reserved    int // bytes of bodies that are being received
	reservedBy  shares
	offers      map[Name]*offer
	listed      *listed // what other nodes may know of the offers; nil if they have changed
	replays     replays
	sessions    map[sessionID]*session // that were granted
	sessionsBy  shares
	kept        map[keptID]*keptCall
	keptBy      shares
	keptBytes   int
	keptBytesBy shares
	peers       map[Address]*peer
	fetching    map[Key]bool // nodes whose list is being fetched
	routes      *routes      // nil if offers or peers have changed
	changed     chan struct{}
	health      map[place]*health
	sticky      map[bindingKey]binding
	stickyBy    shares
	traces      traces
}

// Bounds of a node.
const (
	maxServed   = 4096      // calls of other nodes at a time
	maxRefused  = 512       // more, that are being refused
	maxReserved = 256 << 20 // bytes of bodies that are being received
	maxOffers   = 10_000
	maxCards    = 1024 // that wait

	openers         = 2    // goroutines that unseal open messages
	maxOpening      = 4096 // open messages that wait for them
	maxOpeningBytes = 32 << 20
	maxSince        = 4   // data messages that wait for one: to cancel it, or that its caller is alive
	maxSinceBytes   = 128 // of each
)

// New starts a node.
func New(o Options) (*Node, error) {
	switch {
	case o.Keys == nil || o.Trust == nil:
		return nil, toolcrib.Errorf(toolcrib.CodeInternal, "a node needs keys and a register of trust")
	case o.Transport != nil && o.Transport.MaxBytes() < maxOpenBytes:
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest,
			"the bus carries messages of at most %d bytes, and a node needs %d; raise max_payload", o.Transport.MaxBytes(), maxOpenBytes)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	n := &Node{
		o: o, self: Address{o.Keys.Public(), rand.Text()}, cards: make(chan []byte, maxCards),
		hurry: make(chan struct{}, 1), exchanges: map[exchangeID]*Exchange{}, offers: map[Name]*offer{},
		kept: map[keptID]*keptCall{}, peers: map[Address]*peer{}, changed: make(chan struct{}), health: map[place]*health{},
		sticky: map[bindingKey]binding{}, stickyBy: shares{}, fetching: map[Key]bool{}, servedBy: shares{}, keptBy: shares{},
		keptBytesBy: shares{}, reservedBy: shares{},
		opening:  map[exchangeID][][]byte{},
		opens:    make(chan []byte, maxOpening),
		sessions: map[sessionID]*session{}, sessionsBy: shares{},
		schemas: map[string]func(any) error{},
	}
	n.ctx, n.stop = context.WithCancelCause(context.Background())
	n.builtin()
	if o.Transport != nil {
		var err error
		if n.leave, err = o.Transport.Receive(n.self, n.receive); err != nil {
			n.stop(err)
			return nil, err
		}
		n.running.Go(n.meet)
		for range openers {
			n.running.Go(n.unseal)
		}
	}
	n.running.Go(n.watch)
	return n, nil
}

// Key returns the key of the node.
func (n *Node) Key() Key { return n.self.Node }

// Close ends calls in flight, and waits for their handlers.
func (n *Node) Close() {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	n.closed = true
	n.mu.Unlock()
	if n.leave != nil {
		_ = n.o.Transport.Broadcast(n.card(false, true)) // others notice it after a minute otherwise
		n.leave()
	}
	ending := toolcrib.Errorf(toolcrib.CodeOverloaded, "the node is ending")
	n.stop(ending)
	for _, x := range n.all() {
		x.cancel(ending)
	}
	n.running.Wait()
}

// all returns the exchanges with other nodes.
func (n *Node) all() []*Exchange {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*Exchange, 0, len(n.exchanges))
	for _, x := range n.exchanges {
		all = append(all, x)
	}
	return all
}

// goes runs f in a goroutine that [Node.Close] waits for, unless the node is closed.
func (n *Node) goes(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.running.Go(f)
	return true
}

// receive takes a message of the transport. It does not block.
func (n *Node) receive(raw []byte) {
	if len(raw) < 2 || raw[0] != protocol || len(raw) > maxOpenBytes {
		return
	}
	switch raw[1] {
	case formCard:
		if len(raw) <= maxCardBytes {
			select {
			case n.cards <- append([]byte(nil), raw...):
			default: // it comes again
			}
		}
	case formOpen:
		n.queue(raw)
	case formNext:
		n.opened(n.unsealNext(raw))
	case formData:
		n.data(raw)
	}
}

// queue has an open message unsealed by another goroutine, since that takes long. If too many wait, it is lost.
func (n *Node) queue(raw []byte) {
	if len(raw) < openHead {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	id := exchangeID(raw[2:18])
	if _, twice := n.opening[id]; twice || n.openBytes+len(raw) > maxOpeningBytes {
		return
	}
	select {
	case n.opens <- bytes.Clone(raw):
		n.opening[id] = nil
		n.openBytes += len(raw)
	default:
	}
}

// unseal takes the open messages that were received.
func (n *Node) unseal() {
	for {
		select {
		case raw := <-n.opens:
			n.opened(n.o.Keys.unseal(n.self, raw))
			id := exchangeID(raw[2:18])
			n.mu.Lock()
			since := n.opening[id]
			delete(n.opening, id)
			n.openBytes -= len(raw)
			n.mu.Unlock()
			for _, one := range since {
				n.data(one)
			}
		case <-n.ctx.Done():
			return
		}
	}
}

// data takes a data message.
func (n *Node) data(raw []byte) {
	if len(raw) < dataHead {
		return
	}
	id := exchangeID(raw[2:18])
	n.mu.Lock()
	x := n.exchanges[id]
	if since, is := n.opening[id]; x == nil && is && len(since) < maxSince && len(raw) <= maxSinceBytes {
		n.opening[id] = append(since, bytes.Clone(raw))
	}
	n.mu.Unlock()
	if x == nil {
		return
	}
	if by, m, ok := openData(x.in, raw); ok && x.from(by) {
		x.receive(m)
	}
}

// add records an exchange with another node. It reports false if there is one with this ID, or if there are too many.
func (n *Node) add(x *Exchange) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.exchanges[x.id] != nil || x.serving && n.served >= maxServed+maxRefused {
		return false
	}
	n.exchanges[x.id] = x
	if x.serving {
		n.served++
	}
	return true
}

// forget removes an exchange that has ended.
func (n *Node) forget(x *Exchange) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.exchanges[x.id] == x {
		delete(n.exchanges, x.id)
		if x.serving {
			n.served--
			if x.shared {
				n.servedBy.give(x.holder, 1)
			}
		}
	}
}

// watch looks for exchanges that were lost and peers that are gone, once a second.
func (n *Node) watch() {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	var announced time.Time
	ask, hurry := true, false
	for {
		now := time.Now()
		for _, x := range n.all() {
			x.check(now)
		}
		n.expire(now)
		if n.o.Transport != nil && (hurry && now.Sub(announced) >= cardLeast || ask || now.Sub(announced) >= cardEvery) {
			_ = n.o.Transport.Broadcast(n.card(ask, false)) // it is sent again
			announced, ask, hurry = now, false, false
		}
		n.refresh()
		select {
		case <-every.C:
		case <-n.hurry:
			hurry = true
		case <-n.ctx.Done():
			return
		}
	}
}

// announce has this node described to the others soon.
func (n *Node) announce() {
	select {
	case n.hurry <- struct{}{}:
	default:
	}
}

// Bounds of the schemas that are kept compiled.
const (
	maxCompiled      = 1000
	maxCompiledBytes = 8 << 20 // of their texts
)

// compiled returns a compiled schema.
func (n *Node) compiled(schema json.RawMessage) (check func(any) error, err error) {
	n.compiling.Lock()
	check = n.schemas[string(schema)]
	n.compiling.Unlock()
	if check != nil {
		return check, nil
	}
	if check, err = n.o.Schema(schema); err != nil {
		return nil, err
	}
	n.compiling.Lock()
	defer n.compiling.Unlock()
	if n.schemas[string(schema)] != nil {
		return check, nil // by another goroutine
	}
	n.schemaBytes += len(schema)
	for other := range n.schemas {
		if len(n.schemas) < maxCompiled && n.schemaBytes <= maxCompiledBytes {
			break
		}
		delete(n.schemas, other)
		n.schemaBytes -= len(other)
	}
	n.schemas[string(schema)] = check
	return check, nil
}

// check is the check of values by a schema; nil without one.
type check func(value any) error

// checkBy returns the check by a schema. The error has the code schema_mismatch.
func (n *Node) checkBy(schema json.RawMessage, name Name) (check, error) {
	if len(schema) == 0 || n.o.Schema == nil {
		return nil, nil
	}
	c, err := n.compiled(schema)
	if err != nil {
		return nil, toolcrib.Errorf(toolcrib.CodeSchemaMismatch, "a schema of %s cannot be used: %v", name, err)
	}
	return c, nil
}

// read reads JSON of at most most bytes, once. The value is there if it is to be checked.
func (c check) read(raw json.RawMessage, most int) (canonical json.RawMessage, value any, err error) {
	limits := guard.JSONLimits{MaxBytes: most, MaxDepth: maxSchemaDepth}
	if c != nil {
		return limits.Read(raw)
	}
	canonical, err = limits.Canonical(raw)
	return canonical, nil, err
}

// valid returns an error with schema_mismatch if a value does not fit the schema.
func (c check) valid(value any, what string, name Name) error {
	if c == nil {
		return nil
	}
	if err := c(value); err != nil {
		return toolcrib.Errorf(toolcrib.CodeSchemaMismatch, "%s of %s does not fit its schema: %v", what, name, err)
	}
	return nil
}

// own returns an error if raw is not JSON of at most most bytes that fits the schema.
func (c check) own(raw json.RawMessage, most int, what string, name Name) error {
	switch {
	case len(raw) > most:
		return toolcrib.Errorf(toolcrib.CodeTooLarge, "%s has at most %d bytes", what, most)
	case c == nil && json.Valid(raw):
		return nil
	}
	value, err := guard.JSONLimits{MaxBytes: most, MaxDepth: maxSchemaDepth}.Value(raw)
	if err != nil {
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "%s is not JSON: %v", what, err)
	}
	return c.valid(value, what, name)
}
