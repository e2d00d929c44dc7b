package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Offer is the set of tools that a request may show to the model: the record of
// it, and the specs in the same order, sorted by name (C5). The specs are the gate's
// own: nothing in them may be changed.
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
	p.ownReady.many = true
	o := Offer{Record: journal.Offer{Tools: []journal.OfferedTool{}}}
	h := sha256.New()
	for _, e := range p.tools.sorted {
		if i, _ := firstOf(g.layers, p.query(e.spec.Name, e)); i < len(g.layers) {
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
	return o, nil
}
