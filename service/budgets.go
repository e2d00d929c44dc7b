package service

import (
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// ByBudgets is what the loop says of a stop that the budgets of a user made.
const ByBudgets = "budgets"

// ledger keeps the budgets that the configuration sets, of users over a day and a
// month (contract §2); nil = there are none.
func (s *Service) ledger() (toolcrib.Ledger, error) {
	c := s.Config
	list := make([]store.UserBudget, len(c.Budgets))
	for i, b := range c.Budgets {
		list[i] = store.UserBudget{
			User: b.User, Key: fmt.Sprintf("budgets[%d]", i),
			RequestsPerDay: b.RequestsPerDay, TokensPerDay: b.TokensPerDay, CostUSDPerDay: b.CostUSDPerDay,
			RequestsPerMonth: b.RequestsPerMonth, TokensPerMonth: b.TokensPerMonth, CostUSDPerMonth: b.CostUSDPerMonth,
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	return s.store.Ledger(list)
}
