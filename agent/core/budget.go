package core

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Budget returns the budget of the run, including what was granted later.
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

// Spent returns the usage of the run and of its child runs that have ended.
func (s *State) Spent() toolcrib.Usage { return s.Usage.Plus(s.Children.Usage) }

// bound is an enforced budget: its caps are never exceeded.
type bound struct {
	journal.Share
	whose string // prefix of its caps in messages
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

// bounds returns the run's own budget, if it is enforced, its share of the budget of the run that
// started it, and the caps of its run tree.
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
	l := &s.Start.Agent.Limits
	all[n] = bound{
		Share: journal.Share{Requests: l.MaxTreeRequests, Runs: l.MaxTreeRuns, Bytes: l.MaxTreeBytes}, whose: "limits.",
		tree: true,
	}
	return all, n + 1
}

// reserveFor estimates the most that the next request may cost, bounded by what the budget leaves
// after spent. short is the cap that leaves nothing, or ""; more means that a person may raise that
// cap.
func reserveFor(s *State, model int, spent Used) (r Reserve, short string, more bool) {
	a, m := &s.Start.Agent, &s.Models[model]
	r.Input = estimateInput(s, s.toolBytes())
	// most is the model's own bound; one that was not configured is not sent.
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

// HoldTo bounds the output of the step's request to left tokens, which the budgets of the user leave
// ([journal.ModelRequest.UserLeft]). If left is 0 or less, there is no such bound.
func (step *Step) HoldTo(s *State, left int64) {
	r, m := &step.Reserve, &s.Models[step.Model]
	most := int64(cmp.Or(r.MaxOutput, m.MaxOutput, largeOutput))
	if left <= 0 || left >= most {
		return
	}
	r.MaxOutput, r.Output = int(left), min(r.Output, left)
	r.USD = m.Price.Cost(toolcrib.TokenUsage{InputTokens: r.Input, OutputTokens: r.Output})
}

// leaves returns how many tokens of output a request with this input may have, or -1 if they are not
// bounded. short is the cap that leaves none.
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

// affordable reports whether the budgets, after spent, leave room for a request that is not part of
// the conversation and for another one after it.
func affordable(all []bound, r Reserve, spent Used) bool {
	need := amounts{capRequests: 1, capTokens: float64(2 * (r.Input + r.Output)), capCost: 2 * r.USD}
	used := spent.amounts()
	for i := range all {
		for k, most := range amountsOf(&all[i].Share) {
			if k >= capRequests && most > 0 && used[k]+need[k] >= most {
				return false
			}
		}
	}
	return true
}

// spentCaps lists the caps of the run's budget that are used up, with the amounts.
func spentCaps(s *State) string {
	b, spent := s.Budget(), s.Used().amounts()
	var all []string
	for k, most := range amountsOf(&journal.Share{Requests: b.MaxRequests, Tokens: b.MaxTokens, CostUSD: b.MaxCostUSD}) {
		if most > 0 && spent[k] >= most {
			all = append(all, fmt.Sprintf("max_%s: %s of %s", capNames[k], strconv.FormatFloat(spent[k], 'f', -1, 64),
				strconv.FormatFloat(most, 'f', -1, 64)))
		}
	}
	return strings.Join(all, ", ")
}

// A child run spends part of its parent's budget. What an enforced budget leaves is set aside for the
// child before it starts, divided by the children of the turn that have not started yet; the unused
// part returns when the child has ended. So concurrent calls and crashes between them can never exceed
// the budget together. The parent keeps enough for one request of its own, so that it can still
// answer.

// sparePart is the part of the rest that the parent keeps for its own answer, in addition to the input
// of that request.
const sparePart = 10

// ShareFor returns the share of the child run of a call; if nil, there is no cap. none is the
// reason why the run may not start, or "".
func (s *State) ShareFor(c *Call) (share *journal.Share, none string) {
	switch {
	case c != nil && c.Child != nil:
		return c.Child.Share, ""
	case s.Start.Given != nil && s.Start.Parent != "":
		return nil, "a call that a tool made starts no agents"
	}
	used := s.Used()
	used.Bytes = s.turnBytes + s.Children.Bytes // the events of the turn come in any order
	spent := used.amounts()
	if s.Turn != nil {
		for _, c := range s.Turn.Calls {
			if c.Child != nil && c.ChildEnd == nil && c.Child.Share != nil { // set aside until the run has ended
				for k, v := range amountsOf(c.Child.Share) {
					spent[k] += v
				}
			}
		}
	}
	among, capped := float64(s.starting(c)), false
	var least amounts
	all, n := s.bounds()
	for i := range all[:n] {
		part, none := all[i].part(&spent, s, among)
		if none != "" {
			return nil, none
		}
		for k, v := range part {
			if least[k] == 0 || v != 0 && v < least[k] {
				least[k] = v
			}
			capped = capped || v != 0
		}
	}
	if !capped {
		return nil, ""
	}
	return &journal.Share{
		Runs: int(least[capRuns]), Bytes: int64(least[capBytes]), Requests: int(least[capRequests]),
		Tokens: int64(least[capTokens]), CostUSD: least[capCost],
	}, ""
}

// starting returns how many child runs of the turn have yet to start, including that of c.
func (s *State) starting(c *Call) int {
	n := 0
	if s.Turn != nil {
		for _, other := range s.Turn.Calls {
			if other == c || other.Result == nil && other.Child == nil && other.ByAgent() &&
				other.Verdict.Decision == toolcrib.Allow {
				n++
			}
		}
	}
	return max(n, 1)
}

// part returns one of several equal parts of what a budget leaves.
func (b *bound) part(spent *amounts, s *State, among float64) (part amounts, none string) {
	keep, caps := amounts{}, amountsOf(&b.Share)
	if s.Start.Given == nil { // otherwise the run asks no model
		input := estimateInput(s, s.toolBytes())
		price := s.Models[s.Model].Price
		keep = amounts{
			capRequests: 1, capTokens: float64(input), capCost: price.Cost(toolcrib.TokenUsage{InputTokens: input}),
		}
	}
	for k, most := range caps {
		if most == 0 {
			continue
		}
		left := most - spent[k] - keep[k]
		switch k {
		case capRuns, capRequests:
			part[k] = max(math.Floor(left/among), min(left, 1))
		case capCost:
			part[k] = math.Floor((left-left/sparePart)/among*1e9) / 1e9
		default:
			part[k] = math.Floor((left - math.Floor(left/sparePart)) / among)
		}
		if part[k] < leastPart[k] {
			return part, b.cap(capNames[k]) + ": nothing is left for another agent"
		}
	}
	return part, ""
}

// amounts are capped amounts, indexed by kind.
type amounts [5]float64

const (
	capRuns = iota
	capBytes
	capRequests
	capTokens
	capCost
)

var (
	capNames  = [...]string{"runs", "bytes", "requests", "tokens", "cost_usd"}
	leastPart = amounts{1, minChildBytes, 1, 1, 1e-9}
)

func amountsOf(s *journal.Share) amounts {
	return amounts{float64(s.Runs), float64(s.Bytes), float64(s.Requests), float64(s.Tokens), s.CostUSD}
}

func (u Used) amounts() amounts {
	return amounts{float64(u.Runs), float64(u.Bytes), float64(u.Requests), float64(u.TotalTokens), u.CostUSD}
}

// A run and all runs below it are a tree, which has its own caps (limits.max_tree_…) on runs, requests
// and bytes of journals. They are divided like a budget, so that no run has to read another's journal,
// and they apply in every budget mode.

// minChildBytes is the least that must be left for the journal of a child run.
const minChildBytes = 64 << 10

// Used is the usage of a run and of the runs below it that have ended.
type Used struct {
	toolcrib.Usage
	Runs  int   // includes the run itself
	Bytes int64 // size of the journals, see sizeOf
}

// Used returns the usage of the run so far.
func (s *State) Used() Used {
	return Used{Usage: s.Spent(), Runs: 1 + s.Children.Runs, Bytes: s.bytes + s.Children.Bytes}
}

// sizeOf returns the approximate size of an event in the journal, including stored results and files.
// It depends only on the event, so that all readers of a journal compute the same sum.
func sizeOf(body toolcrib.Body) int64 {
	const event = 256 // overhead of each event
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

// sizeOfParts leaves out the calls of a reply, which are events of their own.
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
