package agent

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Budget returns the budget of the run, with what was granted on top.
func (s *State) Budget() toolcrib.Budget {
	b := s.Start.Agent.Budget
	if b.MaxCostUSD > 0 {
		b.MaxCostUSD += s.Granted.CostUSD
	}
	if b.MaxTokens > 0 {
		b.MaxTokens += s.Granted.Tokens
	}
	if b.MaxRequests > 0 {
		b.MaxRequests += s.Granted.Requests
	}
	return b
}

// Spent is what the run has used, together with the child runs that have ended.
func (s *State) Spent() toolcrib.Usage { return addUsage(s.Usage, s.Children) }

// bound is a budget that holds: what it caps is never passed.
type bound struct {
	journal.Share
	whose string // begins what is told of it
	own   bool   // a person may raise it for this run
	tree  bool   // the caps are those of limits.max_tree_…
}

// cap names a cap.
func (b *bound) cap(kind string) string {
	if b.tree {
		kind = "tree_" + kind
	}
	return b.whose + "max_" + kind
}

// bounds are the run's own budget, if it is enforced, its share of what the run which
// started it may use, and the caps of its tree.
func (s *State) bounds() (all [3]bound, n int) {
	if b := s.Budget(); b.Mode == "" || b.Mode == toolcrib.BudgetEnforce {
		all[n] = bound{Share: journal.Share{CostUSD: b.MaxCostUSD, Tokens: b.MaxTokens, Requests: b.MaxRequests}, whose: "budget.", own: true}
		n++
	}
	if s.Start.Share != nil {
		all[n] = bound{Share: *s.Start.Share, whose: "the share of the calling run's budget, "}
		n++
	}
	all[n] = s.treeBound()
	return all, n + 1
}

// reserveFor estimates what the next request may cost at most, and holds it to
// what the budget has left when so much is spent. short says which cap leaves nothing; ""
// if none. more says that a person may raise that cap.
func reserveFor(s *State, model int, spent Used) (r Reserve, short string, more bool) {
	a, m := &s.Start.Agent, &s.Models[model]
	r.Input = estimateInput(s, s.Offer.Bytes)
	// The most that the model can write at all; what nobody set is not sent.
	most := int64(largeOutput)
	if m.MaxOutput > 0 {
		most = int64(m.MaxOutput)
	}
	r.MaxOutput = int(min(int64(a.MaxOutputTokens), most))
	if m.MaxOutput == 0 {
		r.MaxOutput = a.MaxOutputTokens
	}
	all, n := s.bounds()
	for i := range all[:n] {
		b := &all[i]
		left, short := b.leaves(&spent, r.Input, &m.Price)
		if short != "" {
			return r, short, b.own
		}
		if left >= 0 && left < int64(r.MaxOutput) || r.MaxOutput == 0 && left >= 0 && left < most {
			r.MaxOutput = int(left)
		}
	}
	r.Output = min(defaultReserve, most)
	if r.MaxOutput > 0 {
		r.Output = int64(r.MaxOutput)
	}
	r.USD = m.Price.Cost(toolcrib.TokenUsage{InputTokens: r.Input, OutputTokens: r.Output})
	return r, "", false
}

// HoldTo bounds the output of the step's request to so many tokens, which the budgets of
// the user leave ([journal.ModelRequest.UserLeft]); 0 or less = they bound none.
func (step *Step) HoldTo(s *State, left int64) {
	r, m := &step.Reserve, &s.Models[step.Model]
	most := int64(cmp.Or(r.MaxOutput, m.MaxOutput, largeOutput))
	if left <= 0 || left >= most {
		return
	}
	r.MaxOutput, r.Output = int(left), min(r.Output, left)
	r.USD = m.Price.Cost(toolcrib.TokenUsage{InputTokens: r.Input, OutputTokens: r.Output})
}

// leaves is how many tokens of output a request with this input may have; -1 = any
// number. short says which cap leaves none.
func (b *bound) leaves(spent *Used, input int64, price *toolcrib.Price) (left int64, short string) {
	left, cap := -1, ""
	if b.Requests > 0 && spent.Requests >= b.Requests {
		return 0, fmt.Sprintf("%s: %d of %d spent", b.cap("requests"), spent.Requests, b.Requests)
	}
	if b.Bytes > 0 && spent.Bytes >= b.Bytes {
		return 0, fmt.Sprintf("%s: the journals have %d bytes, and may have %d", b.cap("bytes"), spent.Bytes, b.Bytes)
	}
	if b.Tokens > 0 {
		left, cap = b.Tokens-spent.TotalTokens-input, "max_tokens"
	}
	if b.CostUSD > 0 && price.Known && price.Output > 0 {
		usd := b.CostUSD - spent.CostUSD - float64(input)*price.Input/1e6
		if n := int64(usd * 1e6 / price.Output); cap == "" || n < left {
			left, cap = n, "max_cost_usd"
		}
	}
	if cap != "" && left < 1 {
		return 0, fmt.Sprintf("%s%s: what is left does not cover another request", b.whose, cap)
	}
	if cap == "" {
		return -1, ""
	}
	return left, ""
}

// affordable reports whether budgets leave room for a request that is not part of the
// conversation, and for one after it, when so much is spent.
func affordable(all []bound, r Reserve, spent Used) bool {
	for i := range all {
		b := &all[i]
		if b.Requests > 0 && spent.Requests+1 >= b.Requests || b.Tokens > 0 && spent.TotalTokens+2*(r.Input+r.Output) >= b.Tokens ||
			b.CostUSD > 0 && spent.CostUSD+2*r.USD >= b.CostUSD {
			return false
		}
	}
	return true
}

// overBudget reports whether a budget that only warns has been passed.
func overBudget(s *State) bool {
	b, spent := s.Budget(), s.Spent()
	if b.Mode != toolcrib.BudgetWarn {
		return false
	}
	return b.MaxRequests > 0 && spent.Requests >= b.MaxRequests ||
		b.MaxTokens > 0 && spent.TotalTokens >= b.MaxTokens ||
		b.MaxCostUSD > 0 && spent.CostUSD >= b.MaxCostUSD
}

// spentCaps names the caps of the run's budget that are spent, with how much.
func spentCaps(s *State) string {
	b, spent := s.Budget(), s.Spent()
	var all []string
	if b.MaxRequests > 0 && spent.Requests >= b.MaxRequests {
		all = append(all, fmt.Sprintf("max_requests: %d of %d", spent.Requests, b.MaxRequests))
	}
	if b.MaxTokens > 0 && spent.TotalTokens >= b.MaxTokens {
		all = append(all, fmt.Sprintf("max_tokens: %d of %d", spent.TotalTokens, b.MaxTokens))
	}
	if b.MaxCostUSD > 0 && spent.CostUSD >= b.MaxCostUSD {
		all = append(all, fmt.Sprintf("max_cost_usd: %s of %s", strconv.FormatFloat(spent.CostUSD, 'f', -1, 64), strconv.FormatFloat(b.MaxCostUSD, 'f', -1, 64)))
	}
	return strings.Join(all, ", ")
}

// overCap reports whether a worker has passed a cap of cost that only warns (X15, X16).
// A mode that is not known warns.
func overCap(w *journal.WorkerLimits, spent float64) bool {
	if w == nil || w.CostCapUSD <= 0 || spent <= w.CostCapUSD {
		return false
	}
	return w.CostCapMode != toolcrib.BudgetEnforce && w.CostCapMode != toolcrib.BudgetOff
}
