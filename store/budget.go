package store

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/toolcrib/toolcrib"
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
	// Key is where the budget stands in the configuration, such as budgets[0]; it
	// begins the name of a bucket.
	Key string

	RequestsPerDay, TokensPerDay     int64 // of models; tokens of input and output
	CostUSDPerDay                    float64
	RequestsPerMonth, TokensPerMonth int64
	CostUSDPerMonth                  float64
}

// Check tells what is wrong with a budget; nil = nothing.
func (b UserBudget) Check() error {
	if b.User == "" {
		return errors.New("budget: the user must be a name, or * for each user")
	}
	for _, k := range b.buckets() {
		if k.limit < 0 || math.IsNaN(k.limit) || math.IsInf(k.limit, 0) {
			return fmt.Errorf("budget: %s must be 0 (no ceiling) or above", k.name)
		}
	}
	return nil
}

// BudgetsOf returns the budgets that hold for a user: their own, so that somebody may
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

// Limits tells whether the budget sets a ceiling.
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
	of    func(SpentSum) float64
}

func (b UserBudget) buckets() [6]bucket {
	return [6]bucket{
		{"requests_per_day", float64(b.RequestsPerDay), false, SpentSum.requests},
		{"tokens_per_day", float64(b.TokensPerDay), false, SpentSum.tokens},
		{"cost_usd_per_day", b.CostUSDPerDay, false, SpentSum.usd},
		{"requests_per_month", float64(b.RequestsPerMonth), true, SpentSum.requests},
		{"tokens_per_month", float64(b.TokensPerMonth), true, SpentSum.tokens},
		{"cost_usd_per_month", b.CostUSDPerMonth, true, SpentSum.usd},
	}
}

// SpentKey is what a store keeps what was spent by. Day is that of the request: one
// that was sent before midnight counts on that day, whenever it was answered.
type SpentKey struct {
	User string `json:"user"`
	Day  Day    `json:"day"`
}

// SpentSum is what was spent, in whole numbers.
type SpentSum struct {
	Requests int64 `json:"requests"`
	Tokens   int64 `json:"tokens"` // input and output
	NanoUSD  int64 `json:"nano_usd"`
}

func (s *SpentSum) add(o SpentSum) {
	s.Requests += o.Requests
	s.Tokens += o.Tokens
	s.NanoUSD += o.NanoUSD
}

func (s SpentSum) requests() float64 { return float64(s.Requests) }
func (s SpentSum) tokens() float64   { return float64(s.Tokens) }
func (s SpentSum) usd() float64      { return float64(s.NanoUSD) / 1e9 }

// SpentBy is what usage counts for the budgets of its user.
func (s UsageSum) SpentBy() SpentSum {
	return SpentSum{Requests: s.Requests, Tokens: s.InputTokens + s.OutputTokens, NanoUSD: s.NanoUSD}
}

// Reserved is what a reservation sets aside: one request with its estimates.
func Reserved(r toolcrib.Reservation) SpentSum {
	return SpentSum{Requests: 1, Tokens: bounded(r.Tokens), NanoUSD: nano(r.CostUSD)}
}

// Spending is what a user has spent or reserved, as far as it bears on a request at
// a moment: that of its day and of its month, each with all that counts on a later
// day. Later days are there if a clock was set back; what is spent stays spent.
type Spending struct {
	at         time.Time
	day, month Day // the first of the day's and the month's days
	today, all SpentSum
	last       Day // the last that anything counts on
}

// NewSpending begins with nothing spent.
func NewSpending(at time.Time) *Spending {
	at = at.UTC()
	day := DayOf(at)
	return &Spending{at: at, day: day, month: day - Day(at.Day()-1), last: day}
}

// Since is the first day that bears on the request.
func (s *Spending) Since() Day { return s.month }

// Add adds what counts on a day.
func (s *Spending) Add(day Day, sum SpentSum) {
	if day < s.month {
		return
	}
	s.all.add(sum)
	if day >= s.day {
		s.today.add(sum)
	}
	if sum != (SpentSum{}) {
		s.last = max(s.last, day)
	}
}

// Room tells whether the budgets that hold for a user leave room for what a request
// asks; else the error names the first ceiling that does not.
func (s *Spending) Room(budgets []UserBudget, user string, asks SpentSum) *toolcrib.BudgetError {
	for _, b := range BudgetsOf(budgets, user) {
		for _, k := range b.buckets() {
			spent := s.today
			if k.month {
				spent = s.all
			}
			sum := spent
			sum.add(asks)
			if k.limit == 0 || k.of(sum) <= k.limit {
				continue
			}
			return &toolcrib.BudgetError{
				Bucket: b.Key + "." + k.name, User: user, Limit: k.limit, Spent: k.of(spent), Asked: k.of(asks), Resets: s.resets(k.month),
			}
		}
	}
	return nil
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
// counts no more.
var ErrReservation = errors.New("what was reserved for this request counts no more, since it was not sent for too long or the clock was set back; resume the run")
