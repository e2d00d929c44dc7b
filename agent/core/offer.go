package core

import (
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// ToolsShown returns the tools of the offer that the next request shows; nil means all.
func (s *State) ToolsShown() []int {
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
	if step.Closing || s.Models[step.Model].Tools == journal.ToolsNone || len(s.Offer.Tools) == 0 {
		return ""
	}
	return s.Offer.HashOf(s.ToolsShown())
}

// toolBytes returns the size of the tools that the next request shows.
func (s *State) toolBytes() int64 {
	shown := s.ToolsShown()
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

// Offering returns the names of the tools that the open request offers.
func (s *State) Offering() map[string]bool {
	if s.Open == nil || s.Open.OfferHash == "" || s.Open.Choice.Mode == toolcrib.ChoiceNone {
		return nil
	}
	return s.offerSet()
}
