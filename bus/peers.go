package bus

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// card is what an instance tells all others about itself.
type card struct {
	Version   int     `json:"v"`
	Node      Key     `json:"node"`
	Name      string  `json:"name"`
	Agreement []byte  `json:"agreement"` // public key
	Instance  string  `json:"instance"`
	Load      float64 `json:"load"`
	Hash      string  `json:"hash"` // of the offers
	Count     int     `json:"count"`
	Time      int64   `json:"time"`          // milliseconds since 1970, later in each card of an instance
	Ask       bool    `json:"ask,omitempty"` // the others answer with their cards
	Gone      bool    `json:"gone,omitempty"`
}

const (
	maxCardBytes = 2 << 10
	cardEvery    = 10 * time.Second
	cardLeast    = time.Second      // between two cards, if something has changed
	fresh        = 60 * time.Second // a peer is there after its last card
	listLasts    = 60 * time.Second // after that a list is asked for again: it depends on what a peer trusts
	listRetry    = 5 * time.Second
	listWait     = 20 * time.Second
	maxFetches   = 8
	maxPeers     = 10_000
	maxKnown     = 100_000 // capabilities of all peers
	maxPeerName  = 64
	maxListBytes = 32 << 20 // of the descriptions of a node
)

// peer is an instance of a node.
type peer struct {
	card
	heard  time.Time
	skewed bool           // its clock differs by more than clockSkew
	trust  toolcrib.Trust // at its last card
	list   *list          // nil if it is not known
	asked  time.Time      // when the list was last asked for

	session      *session // for calls to it; nil without one
	sessionAsked time.Time
}

// list are the capabilities of a node that this one may call.
type list struct {
	node   Key
	hash   string // of the list
	of     string // hash of all offers, from the card
	at     time.Time
	offers []*Descriptor
}

// Peer is another node, heard from lately.
type Peer struct {
	Node         Key            `json:"node"`
	Name         string         `json:"name"`
	Trust        toolcrib.Trust `json:"trust"` // by the register of this node
	Instances    []string       `json:"instances"`
	Load         float64        `json:"load"`         // the least of the instances, 0 to 1
	Capabilities int            `json:"capabilities"` // that this node may call
	Seen         time.Time      `json:"seen"`
	Skewed       bool           `json:"clock_differs,omitempty"` // by more than a minute, so that calls expire
	Quarantined  []Quarantine   `json:"quarantined,omitempty"`
}

// Quarantine is a capability that an instance gets no calls for, because most of its last ones have failed.
type Quarantine struct {
	Capability Name          `json:"capability"`
	Instance   string        `json:"instance"`
	Reason     toolcrib.Code `json:"reason"` // of the last call that failed
	Until      time.Time     `json:"until"`  // then one call tries whether it works again
}

// card returns the signed card of this instance.
func (n *Node) card(ask, gone bool) []byte {
	n.mu.Lock()
	l := n.sorted()
	load := 0.0
	for _, o := range n.offers {
		load = max(load, float64(o.inFlight)/float64(o.MaxConcurrent))
	}
	n.mu.Unlock()
	raw, _ := json.Marshal(card{ // does not fail
		Version: protocol, Node: n.self.Node, Name: guard.Clip(n.o.Name, maxPeerName), Agreement: n.o.Keys.agreement,
		Instance: n.self.Instance, Load: min(load, 1), Hash: l.hash, Count: len(l.all), Time: n.o.Now().UnixMilli(),
		Ask: ask, Gone: gone,
	})
	return slices.Concat([]byte{protocol, formCard}, n.o.Keys.signature(cardContext, raw), raw)
}

// readCard reads and verifies a card.
func readCard(raw []byte) (c card, ok bool) {
	const head = 2 + ed25519.SignatureSize
	if len(raw) <= head || len(raw) > maxCardBytes || strict(raw[head:], maxCardBytes, &c) != nil {
		return c, false
	}
	ok = c.Version == protocol && validInstance(c.Instance) && len(c.Agreement) == 32 && len(c.Hash) == 64 &&
		c.Count >= 0 && c.Load >= 0 && c.Load <= 1 && c.Node.signed(cardContext, raw[head:], raw[2:head])
	c.Name = guard.Clip(guard.Clean(c.Name), maxPeerName)
	return c, ok
}

// meet reads the cards that were received.
func (n *Node) meet() {
	for {
		select {
		case raw := <-n.cards:
			if c, ok := readCard(raw); ok {
				n.met(c)
			}
		case <-n.ctx.Done():
			return
		}
	}
}

func (n *Node) met(c card) {
	at := Address{c.Node, c.Instance}
	if at == n.self {
		return
	}
	trust, err := n.trustIn(n.ctx, c.Node)
	if err != nil {
		return // it announces itself again
	}
	if n.noted(at, c, trust) {
		_ = n.o.Transport.Send(at, n.card(false, false), nil) // it is sent again
	}
}

// noted takes a card, and reports whether its instance needs that of this one now.
func (n *Node) noted(at Address, c card, trust toolcrib.Trust) (answer bool) {
	skew := n.o.Now().Sub(time.UnixMilli(c.Time)).Abs()
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.peers[at]
	answer = p == nil || c.Ask
	switch {
	case p != nil && c.Time <= p.Time: // sent again by somebody
		return false
	case c.Gone: // if an older card is sent again, nobody receives the question for the list
		n.drop(at)
		return false
	case p == nil:
		n.makeRoom()
		p = &peer{}
		n.peers[at] = p
	}
	before, was, name := p.routable(), p.trust, p.Name
	p.card, p.heard, p.trust, p.skewed = c, time.Now(), trust, skew > clockSkew
	if p.list != nil && (p.routable() != before || p.trust != was || p.Name != name) {
		n.rerouted()
	}
	n.wanted(p)
	return answer
}

// routable reports whether calls may go to a peer, once its list is known.
func (p *peer) routable() bool { return p.trust.Rank() > 0 && !p.skewed }

// drop removes a peer, if there is one. It needs the lock.
func (n *Node) drop(at Address) {
	p := n.peers[at]
	delete(n.peers, at)
	if p != nil && p.list != nil && p.routable() {
		n.rerouted()
	}
}

// makeRoom removes a peer if there are too many: the unknown one not heard from for longest, or if all are
// known, any such. It needs the lock.
func (n *Node) makeRoom() {
	if len(n.peers) < maxPeers {
		return
	}
	var worst Address
	var found *peer
	for at, p := range n.peers {
		unknown := p.trust.Rank() == 0
		switch {
		case found == nil, unknown && found.trust.Rank() > 0,
			unknown == (found.trust.Rank() == 0) && p.heard.Before(found.heard):
			worst, found = at, p
		}
	}
	n.drop(worst)
}

// trustIn returns the trust in a node. A node trusts itself.
func (n *Node) trustIn(ctx context.Context, node Key) (toolcrib.Trust, error) {
	if node == n.self.Node {
		return toolcrib.TrustAnchor, nil
	}
	trust, err := n.o.Trust(ctx, node)
	if err != nil {
		return "", &toolcrib.Error{
			Code: toolcrib.CodeInternal, Message: "the trust in the node cannot be determined; try again", Err: err,
		}
	}
	return trust, nil
}

// expire removes peers not heard from, and what else is kept for a time only.
func (n *Node) expire(now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for at, p := range n.peers {
		if now.Sub(p.heard) > fresh {
			n.drop(at)
		}
	}
	n.replays.turn(now, n.o.Now())
	n.expireKept(now)
	n.expireSessions(now)
	n.expireRoutes(now)
}

// wanted has the list of a peer fetched, if it may have changed. It needs the lock.
func (n *Node) wanted(p *peer) {
	now := time.Now()
	none := p.list == nil || p.list.of == p.Hash && len(p.list.offers) == 0 && p.Count > 0 // it may trust this node soon
	stale := none || p.list.of != p.Hash || now.Sub(p.list.at) >= listLasts
	if !stale || p.trust.Rank() == 0 || p.skewed || none && now.Sub(p.asked) < listRetry ||
		n.fetching[p.Node] || len(n.fetching) >= maxFetches || n.closed {
		return
	}
	p.asked, n.fetching[p.Node] = now, true
	n.running.Go(func() { n.fetch(p) })
}

// refresh has the lists fetched that are missing or old.
func (n *Node) refresh() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.peers {
		n.wanted(p)
	}
}

// fetch asks a peer for its list.
func (n *Node) fetch(p *peer) {
	n.mu.Lock()
	at, of, old := Address{p.Node, p.Instance}, p.Hash, p.list
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(n.ctx, listWait)
	defer cancel()
	got, err := n.fetchList(ctx, at, old)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.fetching, p.Node)
	if err != nil {
		if n.ctx.Err() == nil {
			n.o.Log.Warn("the capabilities of a node cannot be listed", "node", at.Node, "name", p.Name, "error", err)
		}
		return
	}
	got.of = of
	if total := len(got.offers) + n.knownWithout(p.Node); total > maxKnown {
		n.o.Log.Warn("a node has too many capabilities for this one", "node", at.Node, "name", p.Name, "known", total)
		return
	}
	changed := old == nil || old.hash != got.hash
	for _, other := range n.peers { // its instances have one list
		if other == p || other.Node == p.Node && other.Hash == of {
			changed = changed || other.list == nil
			other.list = got
		}
	}
	if changed {
		n.rerouted()
	}
}

// knownWithout returns the number of capabilities of other nodes than this one. It needs the lock.
func (n *Node) knownWithout(node Key) (total int) {
	seen := map[*list]bool{}
	for _, p := range n.peers {
		if p.list != nil && p.Node != node && !seen[p.list] {
			seen[p.list] = true
			total += len(p.list.offers)
		}
	}
	return total
}

func (n *Node) fetchList(ctx context.Context, at Address, old *list) (*list, error) {
	var in offersInput
	if old != nil {
		in.Input.Have = old.hash
	}
	input, err := json.Marshal(in.Input)
	if err != nil {
		return nil, err
	}
	c, err := n.newCall(Request{Name: offersName, To: at.Node, Input: input, Timeout: listWait})
	if err != nil {
		return nil, err
	}
	c.only = at
	x, err := n.begin(ctx, c)
	if err != nil {
		return nil, err
	}
	defer x.Cancel()
	x.raw = true
	l := &list{node: at.Node, at: time.Now()}
	size := 0
	for {
		f, err := x.Recv(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var page struct {
			Offers []*Descriptor `json:"offers"`
		}
		if size += len(f.Data); size > maxListBytes {
			return nil, toolcrib.Errorf(toolcrib.CodeTooLarge, "its descriptions have more than %d bytes", maxListBytes)
		}
		if err := json.Unmarshal(f.Data, &page); err != nil {
			return nil, err
		}
		for _, d := range page.Offers {
			if d == nil {
				d = &Descriptor{}
			}
			if err := d.bounds(); err != nil {
				return nil, err
			}
			d.Description = guard.Clip(guard.Clean(d.Description), maxDescription)
		}
		l.offers = append(l.offers, page.Offers...)
		if len(l.offers) > maxOffers {
			return nil, toolcrib.Errorf(toolcrib.CodeTooLarge, "it has more than %d capabilities", maxOffers)
		}
	}
	raw, err := x.Result(ctx)
	if err != nil {
		return nil, err
	}
	var result offersResult
	if err := json.Unmarshal(raw, &result); err != nil {
		return nil, err
	}
	if l.hash = result.Hash; old != nil && l.hash == old.hash && len(l.offers) == 0 {
		l.offers = old.offers
	}
	return l, nil
}

// Peers returns the other nodes, sorted by key.
func (n *Node) Peers() []Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := map[Key]*Peer{}
	for at, p := range n.peers {
		if at.Node == n.self.Node {
			continue
		}
		one := found[at.Node]
		if one == nil {
			one = &Peer{Node: at.Node, Name: p.Name, Trust: p.trust, Load: 1, Skewed: true}
			found[at.Node] = one
		}
		one.Instances = append(one.Instances, at.Instance)
		one.Load, one.Skewed = min(one.Load, p.Load), one.Skewed && p.skewed
		if p.heard.After(one.Seen) {
			one.Seen, one.Name, one.Trust = p.heard, p.Name, p.trust
		}
		if p.list != nil && p.trust.Rank() > 0 {
			one.Capabilities = max(one.Capabilities, len(p.list.offers))
		}
	}
	now := time.Now()
	for to, h := range n.health {
		if one := found[to.at.Node]; one != nil && h.quarantined(now) {
			one.Quarantined = append(one.Quarantined, Quarantine{to.name, to.at.Instance, h.reason, h.until})
		}
	}
	all := make([]Peer, 0, len(found))
	for _, one := range found {
		slices.SortFunc(one.Quarantined, func(a, b Quarantine) int {
			return cmp.Or(a.Capability.compare(b.Capability), strings.Compare(a.Instance, b.Instance))
		})
		slices.Sort(one.Instances)
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b Peer) int { return strings.Compare(string(a.Node), string(b.Node)) })
	return all
}
