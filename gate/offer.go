package gate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Offer is the set of tools that a request may show to the model: the record of
// it, and the specs in the same order, sorted by name (C5). Offers are shared
// between runs: nothing in them may be changed.
type Offer struct {
	Record journal.Offer
	Specs  []toolcrib.Spec
}

// Set returns the names as [Facts.Offered] wants them; a new map each time.
func (o Offer) Set() map[string]bool { return OfferedSet(o.Record) }

// OfferedSet returns the names of a recorded offer as [Facts.Offered] wants them.
func OfferedSet(o journal.Offer) map[string]bool {
	set := make(map[string]bool, len(o.Tools))
	for _, t := range o.Tools {
		set[t.Name] = true
	}
	return set
}

// Offer makes the offer of a run: every tool that no layer refuses, sorted by
// name. It can be empty (N8). It fails if the overrides cannot be read or ctx has
// ended; then nothing is offered.
func (g *Gate) Offer(ctx context.Context, who toolcrib.Principal, scope Scope) (Offer, error) {
	if g == nil {
		g = &Gate{}
	}
	p, err := g.policyOf(ctx, &who, &scope)
	if err != nil {
		return Offer{}, fmt.Errorf("gate: no offer: %w", err)
	}
	tokenKey, known := p.tokenKey()
	if !g.cacheable || !known {
		return g.makeOffer(p), nil
	}
	var room [256]byte
	key := appendOfferKey(room[:0], p, tokenKey)
	if o, ok := p.tools.offers.get(key, *p.overrides); ok {
		return o, nil
	}
	o := g.makeOffer(p)
	p.tools.offers.put(string(key), *p.overrides, o)
	return o, nil
}

func (g *Gate) makeOffer(p *policy) Offer {
	o := Offer{Record: journal.Offer{Tools: []journal.OfferedTool{}}}
	h := sha256.New()
	for _, e := range p.tools.sorted {
		if _, no := g.firstRefusal(p.query(e.spec.Name)); no {
			continue
		}
		if o.Specs == nil {
			o.Specs = make([]toolcrib.Spec, 0, len(p.tools.sorted))
			o.Record.Tools = make([]journal.OfferedTool, 0, len(p.tools.sorted))
		}
		o.Specs = append(o.Specs, e.spec)
		o.Record.Tools = append(o.Record.Tools, journal.OfferedTool{Name: e.spec.Name, Hash: e.hash})
		_, _ = h.Write(e.sum[:]) // the spec's hash covers the name
	}
	o.Record.Hash = hex.EncodeToString(h.Sum(nil))
	return o
}

// maxOffers bounds the cache of offers.
const maxOffers = 64

// offerCache keeps offers for as long as the overrides are the same.
type offerCache struct {
	mu     sync.Mutex
	last   Overrides // as they were handed out last; content is theirs
	over   Overrides // the content, of all offers here
	offers map[string]Offer
}

func (c *offerCache) get(key []byte, over Overrides) (Offer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.holds(over) {
		return Offer{}, false
	}
	o, ok := c.offers[string(key)]
	return o, ok
}

// holds reports whether the offers are of these overrides.
func (c *offerCache) holds(over Overrides) bool {
	if c.offers == nil {
		return false
	}
	if c.last.same(over) {
		return true
	}
	if !c.over.equal(over) {
		return false
	}
	c.last = over
	return true
}

func (c *offerCache) put(key string, over Overrides, o Offer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.holds(over) || len(c.offers) >= maxOffers {
		c.last, c.over = over, Overrides{Tools: maps.Clone(over.Tools), Groups: maps.Clone(over.Groups)}
		c.offers = make(map[string]Offer)
	}
	c.offers[key] = o
}

// appendOfferKey appends everything of a policy that the gate's own layers look at,
// but for the overrides. Each text has its length before it, each list its own, so
// that no two policies have the same key.
func appendOfferKey(b []byte, p *policy, tokenKey string) []byte {
	who, scope := p.who, p.scope
	b = appendStanding(b, p, tokenKey)
	b = appendText(b, scope.Agent)
	b = appendBool(b, scope.HasSkills)
	for _, list := range [...][]string{
		who.Grants, scope.AgentTools, scope.SkillTools, scope.RunTools, scope.WorkerTools,
	} {
		b = appendList(b, list)
	}
	b = binary.AppendUvarint(b, uint64(len(scope.AboveSkills)))
	for _, list := range scope.AboveSkills {
		b = appendList(b, list)
	}
	return b
}

func appendList(b []byte, list []string) []byte {
	b = appendBool(b, list == nil)
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}
