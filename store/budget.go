package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// EveryUser is the [UserBudget.User] of a budget that applies separately to each user without a
// budget of their own.
const EveryUser = "*"

// UserBudget limits what a user may spend per day and per month, in UTC, over all agents and all
// runs, including sub-agents. A limit of 0 means no limit. See [BudgetsOf] for the budgets that
// apply to a user.
type UserBudget struct {
	User string // name of a user, or EveryUser
	// Key is the key path of the budget in the configuration, such as budgets[0], with which the
	// names of its buckets begin.
	Key string

	RequestsPerDay, TokensPerDay     int64 // requests to models; tokens of input and output
	CostUSDPerDay                    float64
	RequestsPerMonth, TokensPerMonth int64
	CostUSDPerMonth                  float64
}

// Check returns an error if the budget is invalid.
func (b UserBudget) Check() error {
	if b.User == "" {
		return errors.New("budget: the user must be a name, or * for each user")
	}
	for _, k := range b.buckets() {
		if k.limit < 0 || math.IsNaN(k.limit) || math.IsInf(k.limit, 0) {
			return fmt.Errorf("budget: %s must be 0 (no limit) or more", k.name)
		}
	}
	return nil
}

// BudgetsOf returns the budgets that apply to a user: those that name the user, whether lower or
// higher, or, if none does, those for every user.
func BudgetsOf(budgets []UserBudget, user string) []UserBudget {
	var own, every []UserBudget
	for _, b := range budgets {
		switch b.User {
		case user:
			own = append(own, b)
		case EveryUser:
			every = append(every, b)
		}
	}
	if own != nil {
		return own
	}
	return every
}

// Limits reports whether the budget sets a ceiling.
func (b UserBudget) Limits() bool {
	for _, k := range b.buckets() {
		if k.limit > 0 {
			return true
		}
	}
	return false
}

// bucket is one of the six ceilings.
type bucket struct {
	name  string
	limit float64
	month bool
	unit  unit
}

// unit is what a ceiling counts.
type unit int

const (
	requests unit = iota
	tokens
	dollars
)

func (u unit) of(s UseSum) float64 {
	switch u {
	case requests:
		return float64(s.Requests)
	case tokens:
		return float64(s.Tokens())
	}
	return float64(s.NanoUSD) / 1e9
}

func (b UserBudget) buckets() [6]bucket {
	return [6]bucket{
		{"requests_per_day", float64(b.RequestsPerDay), false, requests},
		{"tokens_per_day", float64(b.TokensPerDay), false, tokens},
		{"cost_usd_per_day", b.CostUSDPerDay, false, dollars},
		{"requests_per_month", float64(b.RequestsPerMonth), true, requests},
		{"tokens_per_month", float64(b.TokensPerMonth), true, tokens},
		{"cost_usd_per_month", b.CostUSDPerMonth, true, dollars},
	}
}

// Reserved returns the usage that a reservation sets aside: one request with its estimates, but
// with at most room tokens of output. If room is negative, all of the output is reserved.
func Reserved(r toolcrib.Reservation, room int64) UseSum {
	if over := r.Output - room; room >= 0 && over > 0 {
		r.Tokens -= over
		r.CostUSD -= r.Price.Cost(toolcrib.TokenUsage{OutputTokens: over})
	}
	return UseSum{Requests: 1, UsageTokens: UsageTokens{InputTokens: bounded(r.Tokens)}, NanoUSD: nano(r.CostUSD)}
}

// Spending is the usage of a user, spent or reserved, that the budgets compare at the time of a
// request: that since the day and since the month began. It includes later days, which
// exist if the clock was set back.
type Spending struct {
	day, month Day    // first day of today and all
	today, all UseSum // usage since day and since month
	last       Day    // last day with usage
}

// NewSpending returns an empty Spending for a request at this time.
func NewSpending(at time.Time) *Spending {
	at = at.UTC()
	day := DayOf(at)
	return &Spending{day: day, month: day - Day(at.Day()-1), last: day}
}

// Since returns the first day whose usage must be added.
func (s *Spending) Since() Day { return s.month }

// Add adds the usage of a day.
func (s *Spending) Add(day Day, sum UseSum) {
	if day < s.month {
		return
	}
	s.all.Add(sum)
	if day >= s.day {
		s.today.Add(sum)
	}
	if sum != (UseSum{}) {
		s.last = max(s.last, day)
	}
}

// Room returns how many tokens of output the budgets of the user allow for a request, or -1 for
// any number. The error names the first ceiling that does not allow the request, because it is
// reached or because it bounds costs and the price is unknown.
func (s *Spending) Room(budgets []UserBudget, r toolcrib.Reservation) (output int64, over *toolcrib.BudgetError) {
	output = -1
	whole, least := Reserved(r, -1), Reserved(r, min(r.Output, 1))
	for _, b := range BudgetsOf(budgets, r.User) {
		for _, k := range b.buckets() {
			if k.limit == 0 {
				continue
			}
			spent := s.today
			if k.month {
				spent = s.all
			}
			refused := &toolcrib.BudgetError{
				Bucket: b.Key + "." + k.name, User: r.User, Limit: k.limit, Spent: k.unit.of(spent), Asked: k.unit.of(least),
				Resets: s.resets(k.month),
			}
			if refused.Unpriced = k.unit == dollars && !r.Price.Known; refused.Unpriced {
				return 0, refused
			}
			if k.unit.of(spent)+k.unit.of(least) > k.limit {
				return 0, refused
			}
			if left := k.output(spent, whole, r); left >= 0 && (output < 0 || left < output) {
				output = left
			}
		}
	}
	return output, nil
}

// Ceiling is a limit of a budget, and the spending that counts towards it.
type Ceiling struct {
	Name         string // such as cost_usd_per_day
	Limit, Spent float64
	Resets       time.Time
}

// CeilingsOf returns the limits of the budgets of a user at a time, with the usage since the day and the month began.
func CeilingsOf(budgets []UserBudget, user string, at time.Time, today, month UsageRow) (all []Ceiling) {
	resets := NewSpending(at).resets
	for _, b := range BudgetsOf(budgets, user) {
		for _, k := range b.buckets() {
			r := &today
			if k.month {
				r = &month
			}
			spent := UseSum{Requests: r.Requests, UsageTokens: r.UsageTokens, NanoUSD: nano(r.CostUSD)}
			if k.limit > 0 {
				all = append(all, Ceiling{k.name, k.limit, k.unit.of(spent), resets(k.month)})
			}
		}
	}
	return all
}

// output returns how many tokens of output the ceiling allows, or -1 if it does not bound them.
func (k *bucket) output(spent, whole UseSum, r toolcrib.Reservation) int64 {
	more := k.limit - k.unit.of(spent) - k.unit.of(whole) // in addition to the reservation
	switch {
	case k.unit == requests, k.unit == dollars && r.Price.Output <= 0:
		return -1
	case k.unit == dollars:
		more *= 1e6 / r.Price.Output
	}
	return max(r.Output+int64(math.Floor(min(more, maxAdded))), min(r.Output, 1))
}

// CapsCost returns the name of the first ceiling on costs in the budgets of a user, such as
// budgets[0].cost_usd_per_day, or "".
func CapsCost(budgets []UserBudget, user string) (name string) {
	for _, b := range BudgetsOf(budgets, user) {
		for _, k := range b.buckets() {
			if k.unit == dollars && k.limit > 0 {
				return b.Key + "." + k.name
			}
		}
	}
	return ""
}

// resets returns when the last day with usage, or its month, ends.
func (s *Spending) resets(month bool) time.Time {
	at := time.Unix(int64(s.last)*secondsOfDay, 0).UTC()
	if month {
		return time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return at.AddDate(0, 0, 1)
}

// ReservationGrace is how long a reservation stays valid if no request is recorded for it,
// because its process died in between.
const ReservationGrace = 5 * time.Minute

// ErrReservation reports that a request must not be sent, because its reservation is no longer valid.
var ErrReservation = errors.New("the budget that was reserved for this request has expired, because it was not sent in time or the clock was set back; resume the run")

// Meter assigns the usage of a run to models and days. The zero value is for a run without
// events. A copy is independent of the original.
type Meter struct {
	models []modelName // models of the run; elements never change
	index  int         // index of the last request's model
	day    Day         // day of the last request
	asked  bool        // whether there was a request
}

type modelName struct {
	provider, id string
	priced       bool
}

func nameOf(m *journal.ModelInfo) modelName {
	return modelName{provider: m.Provider, id: m.ID, priced: m.Price.Known}
}

// Needs reports whether an event records usage, so that charging it needs a meter that has
// learned all events before.
func (Meter) Needs(body toolcrib.Body) bool {
	switch b := body.(type) {
	case *journal.Usage:
		return true
	case *journal.ToolResult:
		return toolName(b.Name) // a model may invent names
	case *journal.ModelFailed:
		return !b.Unsent
	}
	return false
}

// Learn updates the meter if the event is about the models of the run.
func (m *Meter) Learn(body toolcrib.Body, at time.Time) {
	switch b := body.(type) {
	case *journal.RunStarted:
		if m.models != nil {
			return
		}
		m.models = make([]modelName, len(b.Models))
		for i := range b.Models {
			m.models[i] = nameOf(&b.Models[i])
		}
	case *journal.ModelChosen:
		m.models = append(slices.Clip(m.models), nameOf(&b.Model))
	case *journal.ModelRequest:
		m.index, m.day, m.asked = b.Model, DayOf(at), true
	}
}

// Take updates the meter and the record of a run with its next event, as [Project] does, and
// appends the rows of [Meter.Charge] to list.
func (m *Meter) Take(list []UseEntry, rec *RunRecord, e toolcrib.Event) []UseEntry {
	m.Learn(e.Body, e.Time)
	list = m.Charge(list, rec, e)
	Project(rec, e)
	return list
}

// Charge appends the usage that an event records: that of a request or of a call of a tool, or
// the decisions of rules. rec is the record before the event. Charge sets its Unpriced if the
// usage has no known price. Events after the end of a run are not charged.
func (m *Meter) Charge(list []UseEntry, rec *RunRecord, e toolcrib.Event) []UseEntry {
	if rec.Status.Ended() {
		return list
	}
	if v, ok := e.Body.(*journal.Verdicts); ok {
		return decisions(list, v, e.Time)
	}
	if !m.Needs(e.Body) {
		return list
	}
	var c UseEntry
	var model modelName
	if m.asked && m.index >= 0 && m.index < len(m.models) {
		model = m.models[m.index]
	}
	c.UseKey = UseKey{
		Kind: UseDaily, Day: DayOf(e.Time), User: rec.User, Agent: rec.Agent, Provider: model.provider, Model: model.id,
	}
	switch b := e.Body.(type) {
	case *journal.Usage:
		c.UseSum = settled(b.Tokens, b.CostUSD, b.Estimated)
		c.Unpriced = m.asked && !model.priced && b.CostUSD == 0 && b.Tokens.CostUSD == nil
	case *journal.ModelFailed:
		c.UseSum = settled(b.Charged, b.ChargedUSD, b.Charged != toolcrib.TokenUsage{})
		c.Unpriced = c.Estimated && m.asked && !model.priced && b.ChargedUSD == 0
	case *journal.ToolResult:
		c.UseSum = UseSum{Calls: 1, DurationMS: bounded(b.DurationMS)}
		if b.Status != toolcrib.ResultOK {
			c.Errors = 1
		}
		if b.Status == toolcrib.ResultRefused {
			c.Refused = 1
		}
		return append(list, c, UseEntry{UseKey{Kind: UseCalls, Day: c.Day, User: c.User, Tool: b.Name}, c.UseSum})
	}
	if m.asked {
		c.Day = m.day
	}
	if rec.Usage.Requests == 0 {
		c.Runs = 1
	}
	rec.Unpriced = rec.Unpriced || c.Unpriced
	return append(list, c)
}

// Use returns the usage of the run, as a store keeps it when the run is removed.
func (rec *RunRecord) Use() UseEntry {
	u := &rec.Usage
	sum := settled(toolcrib.TokenUsage{
		InputTokens: u.InputTokens, CachedInputTokens: u.CachedInputTokens, CacheWriteTokens: u.CacheWriteTokens,
		OutputTokens: u.OutputTokens, ReasoningTokens: u.ReasoningTokens,
	}, u.CostUSD, u.Estimated)
	sum.Runs, sum.Requests, sum.Unpriced = 1, bounded(int64(u.Requests)), rec.Unpriced
	key := UseKey{Kind: UseRuns, Day: DayOf(rec.CreatedAt), User: rec.User, Run: rec.ID, Session: rec.Session}
	return UseEntry{key, sum}
}

// decisions appends a row for each verdict of a rule.
func decisions(list []UseEntry, b *journal.Verdicts, at time.Time) []UseEntry {
	if b.Again {
		return list
	}
	for i := range b.Verdicts {
		v := &b.Verdicts[i]
		if v.Rule == "" || len(v.Rule) > maxRuleName || !toolName(v.Tool) {
			continue
		}
		list = append(list, UseEntry{
			UseKey{Kind: UseDecisions, Day: DayOf(at), Rule: v.Rule, Decision: v.Decision, Tool: v.Tool},
			UseSum{Calls: 1, Last: at.UnixMicro()},
		})
	}
	return list
}

// settled returns the usage of one request.
func settled(t toolcrib.TokenUsage, usd float64, estimated bool) UseSum {
	return UseSum{
		Requests: 1, NanoUSD: nano(usd), Estimated: estimated,
		UsageTokens: UsageTokens{
			InputTokens: bounded(t.InputTokens), CachedInputTokens: bounded(t.CachedInputTokens),
			CacheWriteTokens: bounded(t.CacheWriteTokens),
			OutputTokens:     bounded(t.OutputTokens), ReasoningTokens: bounded(t.ReasoningTokens),
		},
	}
}
