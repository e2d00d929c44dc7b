package agent

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
)

// offer gets the tools for this request from the gate, and records a change.
func (d *driver) offer(ctx context.Context, step core.Step) (specs []toolcrib.Spec, hash string, err error) {
	s := d.s
	if step.Closing || s.Models[step.Model].Tools == journal.ToolsNone {
		return nil, "", nil
	}
	offer, err := d.r.Gate.Offer(ctx, s.Start.Principal, scopeOf(s.Start))
	if err != nil {
		return nil, "", fmt.Errorf("the offer of tools: %w", err)
	}
	if offer.Record.Hash != s.Offer.Hash {
		if err := d.hold(&journal.Offered{Offer: offer.Record}); err != nil {
			return nil, "", err
		}
	}
	shown := s.ToolsShown()
	if shown == nil {
		return offer.Specs, offer.Record.Hash, nil
	}
	specs = make([]toolcrib.Spec, len(shown))
	for i, at := range shown {
		specs[i] = offer.Specs[at]
	}
	return specs, s.Offer.HashOf(shown), nil
}
