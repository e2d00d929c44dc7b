package agent

import (
	"math"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// A child run spends out of its parent's budget. What a budget that holds has left is
// set aside for the child before it starts, divided by the children of the turn that
// have not started yet; what it has not used comes back when it has ended. So calls
// that run side by side, and crashes in between, can never pass the budget together.
// The parent keeps enough for a request of its own, so that it can still answer.

// sparePart is the part of what is left that the parent keeps for its own answer,
// besides the input of that request.
const sparePart = 10

// shareFor is what the child run of a call may spend. none says why it may not start;
// "" = it may, and a share of nil has no cap.
func (s *State) shareFor(c *Call) (share *journal.Share, none string) {
	switch {
	case c != nil && c.Child != nil:
		return c.Child.Share, ""
	case s.Start.Given != nil && s.Start.Parent != "":
		return nil, "a call that a tool made starts no agents"
	}
	spent := s.Used()
	spent.Bytes = s.turnBytes + s.childBytes // the turn's own events come in any order
	s.setAside(&spent)
	among := s.starting(c)
	all, n := s.bounds()
	for i := range all[:n] {
		b := &all[i]
		part, none := b.part(&spent, s, among)
		if none != "" {
			return nil, none
		}
		share = smaller(share, part)
	}
	return share, ""
}

// setAside adds what belongs to child runs that have not ended.
func (s *State) setAside(spent *Used) {
	if s.Turn == nil {
		return
	}
	for _, c := range s.Turn.Calls {
		if c.Child == nil || c.ChildEnd != nil || c.Child.Share == nil {
			continue
		}
		spent.Runs += c.Child.Share.Runs
		spent.Bytes += c.Child.Share.Bytes
		spent.Requests += c.Child.Share.Requests
		spent.TotalTokens += c.Child.Share.Tokens
		spent.CostUSD += c.Child.Share.CostUSD
	}
}

// starting is how many child runs of the turn are still to start, with that of c.
func (s *State) starting(c *Call) int {
	n := 0
	if s.Turn != nil {
		for _, other := range s.Turn.Calls {
			if other == c || other.Result == nil && other.Child == nil && other.byAgent() && other.Verdict.Decision == toolcrib.Allow {
				n++
			}
		}
	}
	return max(n, 1)
}

// part is one of so many equal parts of what a budget has left.
func (b *bound) part(spent *Used, s *State, among int) (part *journal.Share, none string) {
	if b.Share == (journal.Share{}) {
		return nil, ""
	}
	keepRequests, keepTokens, price := 1, estimateInput(s, s.Offer.Bytes), toolcrib.Price{}
	if s.Start.Given != nil {
		keepRequests, keepTokens = 0, 0 // it asks no model
	} else {
		price = s.Models[s.Model].Price
	}
	part = &journal.Share{}
	if b.Runs > 0 {
		left := b.Runs - spent.Runs
		if left < 1 {
			return nil, b.nothing("runs")
		}
		part.Runs = max(left/among, 1)
	}
	if b.Bytes > 0 {
		left := b.Bytes - spent.Bytes
		if part.Bytes = (left - left/sparePart) / int64(among); part.Bytes < minChildBytes {
			return nil, b.nothing("bytes")
		}
	}
	if b.Requests > 0 {
		left := b.Requests - spent.Requests - keepRequests
		if left < 1 {
			return nil, b.nothing("requests")
		}
		part.Requests = max(left/among, 1)
	}
	if b.Tokens > 0 {
		left := b.Tokens - spent.TotalTokens - keepTokens
		if left -= left / sparePart; left < int64(among) {
			return nil, b.nothing("tokens")
		}
		part.Tokens = left / int64(among)
	}
	if b.CostUSD > 0 {
		left := b.CostUSD - spent.CostUSD - price.Cost(toolcrib.TokenUsage{InputTokens: keepTokens})
		left -= left / sparePart
		if part.CostUSD = math.Floor(left/float64(among)*1e9) / 1e9; part.CostUSD <= 0 {
			return nil, b.nothing("cost_usd")
		}
	}
	return part, ""
}

func (b *bound) nothing(kind string) string {
	return b.cap(kind) + ": nothing is left for another agent"
}

// smaller is the smaller of two shares, cap by cap; nil and 0 are no cap.
func smaller(a, b *journal.Share) *journal.Share {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return &journal.Share{
		CostUSD: least(a.CostUSD, b.CostUSD), Tokens: least(a.Tokens, b.Tokens), Requests: least(a.Requests, b.Requests),
		Runs: least(a.Runs, b.Runs), Bytes: least(a.Bytes, b.Bytes),
	}
}

// least is the smaller of two caps, of which 0 is none.
func least[T int | int64 | float64](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
