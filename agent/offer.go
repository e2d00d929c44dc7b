package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// offer gets the tools for this request from the gate, and records a change.
func (d *driver) offer(ctx context.Context, step Step) (specs []toolcrib.Spec, hash string, err error) {
	s := d.s
	if step.Closing || s.Models[step.Model].Tools == modeNone {
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
	shown := s.toolsShown()
	if shown == nil {
		return offer.Specs, offer.Record.Hash, nil
	}
	specs = make([]toolcrib.Spec, len(shown))
	for i, at := range shown {
		specs[i] = offer.Specs[at]
	}
	return specs, s.Offer.HashOf(shown), nil
}

// toolsShown returns the tools of the offer that the next request shows; nil means all.
func (s *State) toolsShown() []int {
	found := s.found
	if s.Offer.Finder == "" {
		return nil
	}
	if name := s.Start.Agent.ToolChoice.Name; name != "" {
		found = append([]string{name}, slices.DeleteFunc(slices.Clone(found), func(f string) bool { return f == name })...)
	}
	return s.Offer.Shown(found)
}

// ShownHash returns the hash of the tools that the next request of a step shows, or "" without any. It
// depends on the journal alone.
func ShownHash(s *State, step Step) string {
	if step.Closing || s.Models[step.Model].Tools == modeNone || len(s.Offer.Tools) == 0 {
		return ""
	}
	return s.Offer.HashOf(s.toolsShown())
}

// toolBytes returns the size of the tools that the next request shows.
func (s *State) toolBytes() int64 {
	shown := s.toolsShown()
	if shown == nil {
		return s.Offer.Bytes
	}
	var n int64
	for _, i := range shown {
		n += int64(s.Offer.Tools[i].Bytes)
	}
	return n
}

// finds records that a tool of the offer was found or called: it is shown from now on.
func (s *State) finds(name string) {
	if s.Offer.Finder != "" && s.offerSet()[name] && !slices.Contains(s.found, name) {
		s.found = append(s.found, name)
	}
}

// offerSet returns the names in the offer.
func (s *State) offerSet() map[string]bool {
	if s.offered == nil || s.offeredAs != s.Offer.Hash {
		s.offered, s.offeredAs = s.Offer.Set(), s.Offer.Hash
	}
	return s.offered
}

// Found reports whether a tool of the offer was found or called in the run.
func (s *State) Found(name string) bool { return slices.Contains(s.found, name) }
