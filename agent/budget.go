package agent

import (
	"cmp"
	"fmt"
	"math"
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
func (s *State) Spent() toolcrib.Usage { return s.Usage.Plus(s.Children) }

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
		all[n] = bound{
			Share: journal.Share{CostUSD: b.MaxCostUSD, Tokens: b.MaxTokens, Requests: b.MaxRequests},
			whose: "budget.", own: true,
		}
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
	r.Input = estimateInput(s, s.toolBytes())
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
		if b.Requests > 0 && spent.Requests+1 >= b.Requests ||
			b.Tokens > 0 && spent.TotalTokens+2*(r.Input+r.Output) >= b.Tokens ||
			b.CostUSD > 0 && spent.CostUSD+2*r.USD >= b.CostUSD {
			return false
		}
	}
	return true
}

// overBudget reports whether a budget that only warns has been passed.
func overBudget(s *State) bool {
	return s.Budget().Mode == toolcrib.BudgetWarn && spentCaps(s) != ""
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
		all = append(all, fmt.Sprintf("max_cost_usd: %s of %s", strconv.FormatFloat(spent.CostUSD, 'f', -1, 64),
			strconv.FormatFloat(b.MaxCostUSD, 'f', -1, 64)))
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
			if other == c || other.Result == nil && other.Child == nil && other.byAgent() &&
				other.Verdict.Decision == toolcrib.Allow {
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
	keepRequests, keepTokens, price := 1, estimateInput(s, s.toolBytes()), toolcrib.Price{}
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

// least is the smaller of two caps, where 0 means no cap.
func least[T int | int64 | float64](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// A run and all runs below it are a tree, which has caps of its own (limits.max_tree_…):
// how many runs, requests and bytes of journals there may be. They are shared out like a
// budget, so that no run has to look at another's journal, and they hold whatever the
// mode of the budget is.

// minChildBytes is the least that is left for the journal of a child run.
const minChildBytes = 64 << 10

// Used is what a run has used, together with the runs below it that have ended.
type Used struct {
	toolcrib.Usage
	Runs  int   // itself among them
	Bytes int64 // of what the journals keep, see sizeOf
}

// Used returns what the run has used.
func (s *State) Used() Used {
	return Used{Usage: s.Spent(), Runs: 1 + s.childRuns, Bytes: s.bytes + s.childBytes}
}

// treeBound are the caps of the run's own tree.
func (s *State) treeBound() bound {
	l := &s.Start.Agent.Limits
	return bound{
		Share: journal.Share{Requests: l.MaxTreeRequests, Runs: l.MaxTreeRuns, Bytes: l.MaxTreeBytes}, whose: "limits.",
		tree: true,
	}
}

// sizeOf is about how many bytes an event takes in the journal, kept results and files
// included. It depends on nothing but the event, so that every reader of a journal
// comes to the same sum.
func sizeOf(body toolcrib.Body) int64 {
	const event = 256 // what each has
	n := event
	switch b := body.(type) {
	case *journal.RunStarted:
		n += len(b.System)
		for i := range b.Input {
			n += sizeOfParts(b.Input[i].Parts)
		}
		for _, t := range b.Offer.Tools {
			n += len(t.Name) + len(t.Hash)
		}
	case *journal.Offered:
		for _, t := range b.Offer.Tools {
			n += len(t.Name) + len(t.Hash)
		}
	case *journal.Message:
		n += sizeOfParts(b.Parts)
	case *journal.ToolCall:
		n += len(b.Arguments) + len(b.Broken)
	case *journal.Verdicts:
		for i := range b.Verdicts {
			v := &b.Verdicts[i]
			n += event + len(v.Message) + len(v.Detail)
			for _, t := range v.Targets {
				n += len(t.Name)
			}
			if v.Preview != nil {
				n += len(v.Preview.Text)
			}
		}
	case *journal.ConfirmationRequired:
		for i := range b.Calls {
			n += len(b.Calls[i].Arguments)
		}
	case *journal.ToolStarted:
		n += len(b.Prepared)
	case *journal.ToolResult:
		n += len(b.Content) + len(b.Fault)
		for _, f := range b.Files {
			n += int(f.Bytes)
		}
		n += int(b.Bytes)
	case *journal.Condensed:
		n += len(b.Text)
	case *journal.Said:
		n += len(b.Text)
	case *journal.Done:
		n += len(b.Content)
	case *journal.Error:
		n += len(b.Content)
	}
	return int64(n)
}

// sizeOfParts leaves out the calls of a reply: they are events of their own.
func sizeOfParts(parts []toolcrib.Part) int {
	n := 0
	for i := range parts {
		p := &parts[i]
		n += len(p.Text)
		switch {
		case p.Thinking != nil:
			n += len(p.Thinking.Text)
		case p.ToolResult != nil:
			n += len(p.ToolResult.Content)
		case p.File != nil:
			n += int(p.File.Bytes)
		}
	}
	return n
}
