package core

import (
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// ByClient reports whether the client carries out the call.
func (c *Call) ByClient() bool {
	return c.Verdict != nil && c.Verdict.Decision == toolcrib.Allow && c.Verdict.AnsweredBy == toolcrib.ByClient
}

// clientPending returns the pending state of a run that waits for its client.
func clientPending(calls []*Call) *journal.Pending {
	p := &journal.Pending{Kind: journal.PendingClientTool}
	for _, c := range calls {
		if c.Result == nil && c.ByClient() {
			p.Calls = append(p.Calls, c.Item())
		}
	}
	return p
}

// OfClient reports whether the run's client brought a tool of this name.
func (s *State) OfClient(name string) bool {
	return slices.ContainsFunc(s.Start.ClientTools, func(t toolcrib.Spec) bool { return t.Name == name })
}

// PassedTools returns the names of the offered tools that runs below this one may use. The name of a
// client tool means that tool, not one of the server, so it is not passed on.
func (s *State) PassedTools() []string { return slices.DeleteFunc(s.Offer.Names(), s.OfClient) }

// AwaitsClient reports whether the run waits for its client.
func (s *State) AwaitsClient() bool {
	return s.Pending != nil && s.Pending.Kind == journal.PendingClientTool && s.Pending.Run == ""
}

// WaitsForClient reports whether the run waits for its client to carry out this call.
func (s *State) WaitsForClient(callID string) bool {
	return s.AwaitsClient() &&
		slices.ContainsFunc(s.Pending.Calls, func(item journal.ApprovalItem) bool { return item.ID == callID })
}

// clientAnswered removes answered calls from those that the run waits for. After the last one it can
// continue.
func (s *State) clientAnswered() {
	if !s.AwaitsClient() {
		return
	}
	rest := *s.Pending
	rest.Calls = nil
	for _, item := range s.Pending.Calls {
		if c, err := s.Find(item.ID); err == nil && c.Result == nil {
			rest.Calls = append(rest.Calls, item)
		}
	}
	if s.Pending = &rest; len(rest.Calls) > 0 {
		return
	}
	if s.Pending = nil; s.Stopping == nil {
		s.Status = toolcrib.StatusQueued
	}
}
