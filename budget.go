package toolcrib

import (
	"context"
	"fmt"
	"time"
)

// Ledger keeps the budgets of users, over all runs of all processes (contract §2,
// budgets).
//
// Reserve sets aside what a request may cost, before it is sent; it is atomic, so
// that runs at the same time never spend the same. It sets aside no more than is left,
// and returns how many tokens of output there is room for; -1 = any number. A
// [*BudgetError] names the ceiling that leaves no room, or that a request without a
// known price cannot keep: the request must not be sent. A run has at most one
// reservation; a new one takes the place of the old. It is settled when what the
// request did cost is written into the journal.
//
// CapsCost returns the ceiling of cost that holds for a user, such as
// budgets[0].cost_usd_per_day; "" = none. A run of theirs needs a model whose price is
// known.
type Ledger interface {
	Reserve(ctx context.Context, r Reservation) (output int64, err error)
	CapsCost(user string) (bucket string)
}

// Reservation is what one request may cost at most, as far as can be known before.
type Reservation struct {
	Run     RunID
	Request int // the number of the request in its run
	User    string
	Tokens  int64 // of the prompt and of the most that may come back
	Output  int64 // of Tokens, those of the reply, which may be less
	CostUSD float64
	Price   Price // of the model
	At      time.Time
}

// BudgetError says which budget leaves no room for a request.
type BudgetError struct {
	Bucket string    // such as budgets[0].requests_per_day
	User   string    // whom the ceiling is for
	Limit  float64   // the ceiling: requests, tokens or US dollars
	Spent  float64   // and reserved
	Asked  float64   // at least
	Resets time.Time // when the period ends
	// Unpriced says that the price of the model is not known, so that nobody can say
	// what a request takes of the ceiling.
	Unpriced bool
}

// Error names the bucket, and when there is room again.
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
