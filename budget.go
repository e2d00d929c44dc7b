package toolcrib

import (
	"context"
	"fmt"
	"time"
)

// Ledger enforces the budgets of users, over all runs of all processes.
//
// Reserve sets aside the maximum cost of a request before it is sent. It is atomic, so that concurrent runs never
// spend the same budget. It reserves no more than is left, and returns the number of output tokens that fit, or -1
// for any number. A [*BudgetError] names the limit that leaves no room, or that a request without a known price
// cannot observe: the request must not be sent. A run has at most one reservation; a new one replaces the old one.
// The reservation is settled when the actual cost of the request is written to the journal.
//
// CapsCost returns the name of the cost limit that applies to a user, such as budgets[0].cost_usd_per_day, or "".
// If it is not "", the user's runs need a model with a known price.
type Ledger interface {
	Reserve(ctx context.Context, r Reservation) (output int64, err error)
	CapsCost(user string) (bucket string)
}

// Reservation is the maximum usage of one request, as far as known before it is sent.
type Reservation struct {
	Run     RunID
	Request int // number of the request in its run
	User    string
	Tokens  int64 // tokens of the prompt and of the longest reply
	Output  int64 // the part of Tokens for the reply, which may be reduced
	CostUSD float64
	Price   Price // price of the model
	At      time.Time
}

// BudgetError reports a budget that leaves no room for a request.
type BudgetError struct {
	Bucket string    // such as budgets[0].requests_per_day
	User   string    // user to whom the limit applies
	Limit  float64   // the limit, in requests, tokens or US dollars
	Spent  float64   // including reservations
	Asked  float64   // minimum
	Resets time.Time // end of the period
	// Unpriced is set if the price of the model is unknown, so that the cost of a request cannot be bounded.
	Unpriced bool
}

// Error names the bucket, and the time when it resets.
func (e *BudgetError) Error() string {
	if e.Unpriced {
		return fmt.Sprintf("%s of %s cannot be kept: the model has no known price; give models.NAME.price {input, output} "+
			"in dollars per 1M tokens", e.Bucket, e.User)
	}
	text := fmt.Sprintf("%s of %s: %s of %s spent or reserved", e.Bucket, e.User, amount(e.Spent), amount(e.Limit))
	if e.Spent < e.Limit {
		text += fmt.Sprintf(", and the next request takes %s at least", amount(e.Asked))
	}
	if !e.Resets.IsZero() {
		text += "; more is available from " + e.Resets.UTC().Format("2006-01-02 15:04 MST")
	}
	return text
}

func amount(v float64) string { return fmt.Sprintf("%.6g", v) }
