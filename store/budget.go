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

// EveryUser is the [UserBudget.User] of a budget that each user has for itself who has
// none of their own.
const EveryUser = "*"

// UserBudget is what a user may spend over a day and over a month, in UTC, with all
// agents and in all runs, those of sub-agents too (contract §2, budgets). A ceiling of
// 0 is none. All budgets that name a user hold for it; for a user whom none names, all of
// those for every user ([BudgetsOf]).
type UserBudget struct {
	User string // a name, or EveryUser
	// Key is where the budget is in the configuration, such as budgets[0]; it
	// begins the name of a bucket.
	Key string

	RequestsPerDay, TokensPerDay     int64 // of models; tokens of input and output
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

// BudgetsOf returns the budgets that hold for a user: their own, so that someone may
// have more than everybody, or else those for every user.
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

// Reserved is what a reservation sets aside: one request with its estimates, and of its
// output no more than there is room for; -1 = all.
func Reserved(r toolcrib.Reservation, room int64) UseSum {
	if over := r.Output - room; room >= 0 && over > 0 {
		r.Tokens -= over
		r.CostUSD -= r.Price.Cost(toolcrib.TokenUsage{OutputTokens: over})
	}
	return UseSum{Requests: 1, UsageTokens: UsageTokens{InputTokens: bounded(r.Tokens)}, NanoUSD: nano(r.CostUSD)}
}

// Spending is what a user has spent or reserved, as far as it bears on a request at
// a moment: that of its day and of its month, each with all that counts on a later
// day. Later days are there if a clock was set back; what is spent stays spent.
type Spending struct {
	day, month Day // the first of the day's and the month's days
	today, all UseSum
	last       Day // the last that anything counts on
}

// NewSpending begins with nothing spent.
func NewSpending(at time.Time) *Spending {
	at = at.UTC()
	day := DayOf(at)
	return &Spending{day: day, month: day - Day(at.Day()-1), last: day}
}

// Since is the first day that bears on the request.
func (s *Spending) Since() Day { return s.month }

// Add adds what counts on a day.
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

// Room returns how many tokens of output the budgets that hold for the user leave room
// for; -1 = any number. The error names the first ceiling that leaves none, or that a
// request without a known price cannot keep.
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

// output is how many tokens of output the ceiling leaves room for; -1 = it bounds none.
func (k *bucket) output(spent, whole UseSum, r toolcrib.Reservation) int64 {
	more := k.limit - k.unit.of(spent) - k.unit.of(whole) // besides those that are asked for
	switch {
	case k.unit == requests, k.unit == dollars && r.Price.Output <= 0:
		return -1
	case k.unit == dollars:
		more *= 1e6 / r.Price.Output
	}
	return max(r.Output+int64(math.Floor(min(more, maxAdded))), min(r.Output, 1))
}

// CapsCost returns the ceiling of cost that budgets set for a user, such as
// budgets[0].cost_usd_per_day; "" = none.
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

// resets is when the period ends that has the last day which counts.
func (s *Spending) resets(month bool) time.Time {
	at := time.Unix(int64(s.last)*secondsOfDay, 0).UTC()
	if month {
		return time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return at.AddDate(0, 0, 1)
}

// ReservationGrace is how long a reservation counts whose request was not written
// down: its process has died in between.
const ReservationGrace = 5 * time.Minute

// ErrReservation says that a request must not be sent: what was reserved for it
// no longer counts.
var ErrReservation = errors.New("the budget that was reserved for this request has expired, because it was not sent in time or the clock was set back; resume the run")

// Meter knows whom the use of a run is charged to. The zero value is that of a run
// without events; it is a value, and a copy stays as it is.
type Meter struct {
	models []modelName // of the run, never changed
	index  int         // into models, of the last request
	day    Day         // of the last request
	asked  bool        // there was a request
}

type modelName struct {
	provider, id string
	priced       bool
}

func nameOf(m *journal.ModelInfo) modelName {
	return modelName{provider: m.Provider, id: m.ID, priced: m.Price.Known}
}

// Needs reports whether an event says that anything was used, so that the meter has
// to be known.
func (Meter) Needs(body toolcrib.Body) bool {
	switch b := body.(type) {
	case *journal.Usage:
		return true
	case *journal.ToolResult:
		return toolName(b.Name) // a model may make up any
	case *journal.ModelFailed:
		return !b.Unsent
	}
	return false
}

// Learn takes what an event says about the models of a run.
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

// Take brings the meter and the record of a run up to date with one more event, as [Project]
// does, and adds rows of what that says was used; see [Meter.Charge].
func (m *Meter) Take(list []UseEntry, rec *RunRecord, e toolcrib.Event) []UseEntry {
	m.Learn(e.Body, e.Time)
	list = m.Charge(list, rec, e)
	Project(rec, e)
	return list
}

// Charge adds rows of what an event says was used: by a request, by a call of a tool, or
// that a rule has decided about a call. rec is the run as it is before the event, and told if
// it is charged what has no known price; what comes after the end of a run counts for nothing.
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

// Use is what the run has used, as a store keeps it when the run is removed.
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

// decisions adds the calls that rules have decided about.
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

// settled is the use of one request.
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
