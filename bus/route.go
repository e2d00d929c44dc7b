package bus

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// place is a capability at an instance.
type place struct {
	at   Address
	name Name
}

// call is a call as its caller makes it.
type call struct {
	id      string
	name    Name
	body    json.RawMessage
	params  map[string]any
	lineage []signedHop
	from    Hop
	token   string
	session string
	trace   string
	timeout time.Duration
	keep    bool
	ask     []byte // public key for a session
	to      Key
	only    Address // if not zero, no other instance
	tried   map[Address]bool
	failed  error // at the last of these

	holder Key  // of the share of bindings
	first  bool // its ID was not used before
}

const (
	localLoad    = 0.80
	unknownMS    = 500
	failureMS    = 1000
	localMS      = 50
	stickyLasts  = 10 * time.Minute
	maxSticky    = 100_000
	maxAttempts  = 5
	callerExtra  = time.Second // that a caller waits longer than the handler may take
	retrySoon    = time.Second
	maxNotFound  = 8 // names in an error
	maxHealth    = 50_000
	healthSize   = 20
	healthLasts  = time.Hour
	healthLeast  = 5 // calls before a place is judged
	quarantine   = 60 * time.Second
	quarantineAt = 0.5
)

// routes are the capabilities that calls can go to.
type routes struct {
	byName map[string][]route
	known  []Known
}

// route is a place that serves a capability.
type route struct {
	*Descriptor
	at    Address
	offer *offer // of this node; nil for others
	peer  *peer
}

// rerouted notes that offers or peers have changed. It needs the lock.
func (n *Node) rerouted() {
	if n.routes != nil {
		n.routes = nil
		close(n.changed)
		n.changed = make(chan struct{})
	}
}

// routing returns the routes. It needs the lock.
func (n *Node) routing() *routes {
	if n.routes != nil {
		return n.routes
	}
	r := &routes{byName: map[string][]route{}, known: make([]Known, 0, len(n.offers)+n.knownWithout(n.self.Node))}
	type one struct {
		node Key
		name Name
	}
	listed := map[one]bool{}
	note := func(to route, k Known) {
		r.byName[to.Name.Name] = append(r.byName[to.Name.Name], to)
		if key := (one{k.Node, k.Name}); !listed[key] {
			listed[key] = true
			r.known = append(r.known, k)
		}
	}
	for _, o := range n.sorted().all {
		note(route{&o.Descriptor, n.self, o, nil},
			Known{Descriptor: o.Descriptor, Node: n.self.Node, NodeName: n.o.Name, Local: true, Trust: toolcrib.TrustAnchor})
	}
	for _, name := range []Name{offersName, listName} {
		o := n.offers[name]
		r.byName[name.Name] = append(r.byName[name.Name], route{&o.Descriptor, n.self, o, nil})
	}
	for at, p := range n.peers {
		if p.list == nil || p.trust.Rank() == 0 || p.skewed {
			continue
		}
		for _, d := range p.list.offers {
			local := at.Node == n.self.Node
			note(route{d, at, nil, p}, Known{Descriptor: *d, Node: at.Node, NodeName: p.Name, Local: local, Trust: p.trust})
		}
	}
	slices.SortFunc(r.known, func(a, b Known) int {
		return cmp.Or(a.Name.compare(b.Name), strings.Compare(string(a.Node), string(b.Node)))
	})
	n.routes = r
	return r
}

// Known is a capability that this node may call, of its own or of another node.
type Known struct {
	Descriptor
	Node     Key
	NodeName string
	Local    bool           // of this node
	Trust    toolcrib.Trust // in the node, by the register of this one
}

// Known returns the capabilities of this node and of others, sorted by name, version and node. Do not change them.
func (n *Node) Known() []Known {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clip(n.routing().known)
}

// Changed returns a channel that is closed at the next change of [Node.Known].
func (n *Node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.routing()
	return n.changed
}

// newCall returns the call of a request.
func (n *Node) newCall(r Request) (*call, error) {
	c := &call{
		id: r.ID, name: r.Name, from: r.From, token: r.Token, session: r.Session, trace: r.Trace, timeout: r.Timeout,
		to: r.To, keep: r.ID != "", tried: map[Address]bool{},
	}
	if _, err := ParseName(r.Name.String()); err != nil {
		return nil, err
	}
	if c.id == "" {
		c.id = rand.Text()
	}
	c.from.Node, c.holder = n.self.Node, n.self.Node
	if r.Via != nil {
		c.lineage, c.holder = r.Via.hops, r.Via.holder
		c.trace = cmp.Or(c.trace, r.Via.Trace)
	}
	if len(c.lineage) >= maxHops {
		return nil, tooDeep()
	}
	for what, tooLong := range map[string]bool{
		"ID": len(c.id) > maxID, "session": len(c.session) > maxSession, "trace": len(c.trace) > maxTrace,
		"token": len(c.token) > maxToken, "user": len(c.from.User) > maxUser, "agent": len(c.from.Agent) > maxUser,
		"run": len(c.from.Run) > maxUser, "ID of the tool call": len(c.from.Call) > maxUser,
	} {
		if tooLong {
			return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "the %s of the call is too long", what)
		}
	}
	if c.timeout < 0 || c.timeout > MaxTimeout {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "the timeout of a call must be at most %s", MaxTimeout)
	}
	var err error
	if c.body, err = callBody(r.Params, r.Input); err != nil {
		return nil, err
	}
	if len(r.Params) > 0 && json.Unmarshal(r.Params, &c.params) != nil {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "the params of the call must be an object")
	}
	return c, nil
}

// routeOf chooses where a call goes.
func (n *Node) routeOf(ctx context.Context, c *call) (route, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r, ok, err := n.fixed(c); ok || err != nil {
		return r, err
	}
	now := time.Now()
	var found []route
	var busy, elsewhere bool
	for _, r := range n.routing().byName[c.name.Name] {
		if !r.Name.Serves(c.name) || c.to != "" && r.at.Node != c.to {
			continue
		}
		switch {
		case c.tried[r.at]:
		case !compatible(r.Params, c.params):
			elsewhere = true
		case r.peer != nil && now.Sub(r.peer.heard) > fresh:
		case n.full(r), c.to == "" && n.health[place{r.at, r.Name}].quarantined(now):
			busy = true
		default:
			found = append(found, r)
		}
	}
	if at, ok := n.bound(c, now); ok {
		if i := slices.IndexFunc(found, func(r route) bool { return r.at == at }); i >= 0 {
			return found[i], nil
		}
	}
	switch {
	case len(found) > 0:
		return n.best(found, now), nil
	case busy:
		return route{}, &toolcrib.Error{
			Code: toolcrib.CodeCapacityExceeded, RetryAfter: retrySoon,
			Message: "all nodes that offer " + c.name.String() + " are busy, or fail; try again",
		}
	}
	return route{}, n.notFound(c, elsewhere)
}

// fixed returns the route of a call to a given node that has not listed the capability: the node decides itself. It
// needs the lock.
func (n *Node) fixed(c *call) (r route, ok bool, err error) {
	if c.to == "" || c.to == n.self.Node && c.only == (Address{}) {
		return r, false, nil
	}
	if c.only == (Address{}) {
		for _, r := range n.routing().byName[c.name.Name] {
			if r.at.Node == c.to && r.Name.Serves(c.name) {
				return route{}, false, nil
			}
		}
	}
	var best *peer
	for at, p := range n.peers {
		if at.Node == c.to && !c.tried[at] && (c.only == (Address{}) || c.only == at) && (best == nil || p.Load < best.Load) {
			best = p
		}
	}
	if best == nil {
		return r, false, toolcrib.Errorf(toolcrib.CodeNotFound, "the node %s was not heard from in the last minute", guard.Clip(string(c.to), 64))
	}
	d := &Descriptor{Name: c.name, MaxConcurrent: mostConcurrent, Timeout: cmp.Or(c.timeout, DefaultTimeout)}
	return route{d, Address{best.Node, best.Instance}, nil, best}, true, nil
}

func (n *Node) full(r route) bool {
	if r.offer != nil {
		return r.offer.inFlight >= r.offer.MaxConcurrent
	}
	h := n.health[place{r.at, r.Name}]
	return h != nil && h.inFlight >= r.MaxConcurrent
}

// best returns the route with the least expected time; a lightly loaded offer of this node comes first. It needs the
// lock.
func (n *Node) best(found []route, now time.Time) (best route) {
	least := 0.0
	for i, r := range found {
		load := 0.0
		if r.offer != nil {
			if load = float64(r.offer.inFlight) / float64(r.MaxConcurrent); load < localLoad {
				return r
			}
		} else {
			load = r.peer.Load
		}
		s := n.health[place{r.at, r.Name}].score(load, r.offer != nil)
		if i == 0 || s < least {
			best, least = r, s
		}
	}
	return best
}

// compatible reports whether an offer with these params serves a call.
func compatible(offered map[string][]any, asked map[string]any) bool {
	for name, values := range offered {
		value, has := asked[name]
		if !has {
			continue
		}
		entries, isList := value.([]any)
		if !isList {
			entries = []any{value}
		}
		for _, entry := range entries {
			if !slices.ContainsFunc(values, func(v any) bool { return same(v, entry) }) {
				return false
			}
		}
	}
	return true
}

func same(a, b any) bool {
	switch a.(type) {
	case string, float64, bool, nil:
		switch b.(type) {
		case string, float64, bool, nil:
			return a == b
		}
	}
	return false
}

// notFound returns the error for a call that no node serves. It needs the lock.
func (n *Node) notFound(c *call, elsewhere bool) error {
	a := &Alternatives{}
	for _, r := range n.routing().byName[c.name.Name] {
		if name := r.Name.String(); !slices.Contains(a.Capabilities, name) {
			a.Capabilities = append(a.Capabilities, name)
		}
		if !r.Name.Serves(c.name) {
			continue
		}
		if !slices.Contains(a.Nodes, r.at.Node) && len(a.Nodes) < maxNotFound {
			a.Nodes = append(a.Nodes, r.at.Node)
		}
		if elsewhere && (c.to == "" || r.at.Node == c.to) {
			a.addParams(r.Params, c.params)
		}
	}
	slices.Sort(a.Capabilities)
	text := "no node that this one trusts offers " + c.name.String()
	switch {
	case elsewhere:
		text = fmt.Sprintf("no node offers %s with these params", c.name)
		for _, name := range slices.Sorted(maps.Keys(a.Params)) {
			values, _ := json.Marshal(map[string]any{"asked": c.params[name], "offered": a.Params[name]}) // were JSON
			text += fmt.Sprintf("; %s: %s", guard.Clip(name, 64), guard.Clip(string(values), 512))
		}
	case c.to != "":
		text = fmt.Sprintf("the node %s does not offer %s", guard.Clip(string(c.to), 64), c.name)
	}
	if len(a.Capabilities) > 0 {
		text += "; nodes offer " + strings.Join(a.Capabilities[:min(len(a.Capabilities), maxNotFound)], ", ")
	}
	return &toolcrib.Error{Code: toolcrib.CodeNotFound, Message: text, Err: a}
}

// addParams adds the values that are served of the params of a call.
func (a *Alternatives) addParams(served map[string][]any, asked map[string]any) {
	if a.Params == nil {
		a.Params = map[string][]any{}
	}
	for name := range asked {
		for _, v := range served[name] {
			known := slices.ContainsFunc(a.Params[name], func(k any) bool { return same(k, v) })
			if !known && len(a.Params[name]) < maxNotFound {
				a.Params[name] = append(a.Params[name], v)
			}
		}
	}
}

// binding is where the calls of a session go, or a call that is made again.
type binding struct {
	at     Address
	until  time.Time
	holder Key // of the share
}

// bindingKey is the hash of the ID of a call, or of its session and capability.
type bindingKey [sha256.Size]byte

func (c *call) keyOfID() bindingKey { return sha256.Sum256([]byte("call\x00" + c.id)) }

func (c *call) keyOfSession() bindingKey {
	return sha256.Sum256([]byte("session\x00" + string(c.holder) + "\x00" + c.name.Name + "\x00" + c.session))
}

// bound returns where the call was made before, or the last call of its session. It needs the lock.
func (n *Node) bound(c *call, now time.Time) (Address, bool) {
	b, ok := n.sticky[c.keyOfID()]
	if !c.keep || !ok {
		b, ok = n.sticky[c.keyOfSession()]
		ok = ok && c.session != ""
	}
	return b.at, ok && now.Before(b.until)
}

// bind has retries of the call, and further calls of the session, go to the same instance. It returns an error if a
// call that must not be repeated was made at another one. Where a call may be repeated, its ID takes no place.
func (n *Node) bind(c *call, r route) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if c.keep && !r.Idempotent {
		b, before := n.sticky[c.keyOfID()]
		switch {
		case before && now.Before(b.until) && b.at != r.at:
			return lost(errors.New("the call was made before, at an instance of a node that is gone"))
		case !n.stick(c, c.keyOfID(), r, now):
			return &toolcrib.Error{
				Code: toolcrib.CodeCapacityExceeded, Message: "too many calls were made in the last minutes; try again later",
				RetryAfter: time.Minute,
			}
		}
		c.first = c.first || !before
	}
	if c.session != "" {
		n.stick(c, c.keyOfSession(), r, now) // without room, it goes to any instance
	}
	return nil
}

// stick adds a binding, if there is room. Calls for others leave room for those of the node itself. It needs the lock.
func (n *Node) stick(c *call, key bindingKey, r route, now time.Time) bool {
	b, ok := n.sticky[key]
	if !ok {
		if len(n.sticky) >= maxSticky && c.holder != n.self.Node || !n.stickyBy.take(c.holder, maxSticky, 1) {
			return false
		}
		b.holder = c.holder
	}
	n.sticky[key] = binding{r.at, now.Add(stickyLasts), b.holder}
	return true
}

// unbind forgets that the call was made, because it was certainly not executed.
func (n *Node) unbind(c *call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if b, ok := n.sticky[c.keyOfID()]; ok && c.first {
		n.unstick(c.keyOfID(), b)
	}
}

// unstick removes a binding. It needs the lock.
func (n *Node) unstick(key bindingKey, b binding) {
	n.stickyBy.give(b.holder, 1)
	delete(n.sticky, key)
}

func (n *Node) expireRoutes(now time.Time) {
	for key, b := range n.sticky {
		if !now.Before(b.until) {
			n.unstick(key, b)
		}
	}
	for at, h := range n.health {
		if h.inFlight == 0 && now.Sub(h.last) > healthLasts {
			delete(n.health, at)
		}
	}
}

// health is how calls to a place went.
type health struct {
	inFlight int
	last     time.Time
	calls    [healthSize]sample
	size     int
	next     int
	reason   toolcrib.Code // of the last call that failed
	until    time.Time     // of the quarantine; zero without one
	probe    bool          // a call tries whether it has passed
}

type sample struct {
	ok   bool
	took time.Duration
}

// quarantined reports whether no call may go to a place. After the quarantine, one call may.
func (h *health) quarantined(now time.Time) bool {
	return h != nil && !h.until.IsZero() && (now.Before(h.until) || h.probe)
}

// probing notes that a call goes to the place.
func (h *health) probing(now time.Time) {
	if !h.until.IsZero() && !now.Before(h.until) {
		h.probe = true
	}
}

// record adds a call.
func (h *health) record(now time.Time, ok bool, took time.Duration) {
	h.last = now
	if h.probe || !h.until.IsZero() && !now.Before(h.until) {
		h.probe = false
		if !ok {
			h.until = now.Add(quarantine)
			return
		}
		h.until, h.size, h.next = time.Time{}, 0, 0
	}
	h.calls[h.next] = sample{ok, took}
	h.next = (h.next + 1) % healthSize
	h.size = min(h.size+1, healthSize)
	if success, _ := h.rates(); h.size >= healthLeast && success < quarantineAt {
		h.until = now.Add(quarantine)
	}
}

// rates returns the share of calls that succeeded, and their average time in milliseconds.
func (h *health) rates() (success, ms float64) {
	if h == nil || h.size == 0 {
		return 1, unknownMS
	}
	good := 0
	var took time.Duration
	for _, s := range h.calls[:h.size] {
		if s.ok {
			good++
			took += s.took
		}
	}
	if ms = unknownMS; good > 0 {
		ms = float64(took.Milliseconds()) / float64(good)
	}
	return float64(good) / float64(h.size), ms
}

// score returns what a call is expected to cost, in milliseconds.
func (h *health) score(load float64, local bool) float64 {
	success, ms := h.rates()
	s := ms*(1+load) + (1-success)*failureMS
	if local {
		s -= localMS
	}
	return s
}
