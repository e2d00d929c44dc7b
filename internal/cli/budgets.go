package cli

import (
	"context"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// byBudgets is what the loop says of a stop that the budgets of a user made.
const byBudgets = "budgets"

// budgets keep what users may spend over a day and a month (contract §2). A user
// with an entry of its own has that one, so that somebody may have more than
// everybody; all others have what * says.
type budgets struct {
	own    map[string]toolcrib.Ledger // nil = no ceiling
	others toolcrib.Ledger
}

// Reserve implements [toolcrib.Ledger].
func (b *budgets) Reserve(ctx context.Context, r toolcrib.Reservation) error {
	ledger, named := b.own[r.User]
	if !named {
		ledger = b.others
	}
	if ledger == nil {
		return nil
	}
	return ledger.Reserve(ctx, r)
}

// ledger keeps the budgets that the configuration sets; nil = there are none.
func ledger(c *config.Config, s *sqlite.Store) (toolcrib.Ledger, error) {
	if len(c.Budgets) == 0 {
		return nil, nil
	}
	found := &budgets{own: map[string]toolcrib.Ledger{}}
	for i, b := range c.Budgets {
		one, err := s.Ledger([]store.UserBudget{{
			User: b.User, Key: fmt.Sprintf("budgets[%d]", i),
			RequestsPerDay: b.RequestsPerDay, TokensPerDay: b.TokensPerDay, CostUSDPerDay: b.CostUSDPerDay,
			RequestsPerMonth: b.RequestsPerMonth, TokensPerMonth: b.TokensPerMonth, CostUSDPerMonth: b.CostUSDPerMonth,
		}})
		if err != nil {
			return nil, err
		}
		if b.User == store.EveryUser {
			found.others = one
			continue
		}
		found.own[b.User] = one
	}
	return found, nil
}
