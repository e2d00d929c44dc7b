package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// UsageRows returns the names of the rows in which usage can be summed up.
func UsageRows() []string {
	return []string{
		string(store.UsageByDay), string(store.UsageByUser), string(store.UsageByAgent), string(store.UsageByModel),
		string(store.UsageByTool), string(store.UsageByProvider), string(store.UsageBySession), string(store.UsageByRun),
	}
}

// Usage is the usage of runs, in rows and in total.
type Usage struct {
	By    store.UsageBy    `json:"by"`
	Since *time.Time       `json:"since"`
	Until *time.Time       `json:"until"`
	Rows  []store.UsageRow `json:"rows"`
	Total store.UsageRow   `json:"total"`
}

// Usage returns the usage of runs, including those that were pruned: administrators see that of all users, others their
// own. An access token sees that of the runs that it has started, by run, because the token is known for runs only. If
// q.By is empty, rows are days, or runs for a token.
func (s *Service) Usage(ctx context.Context, who toolcrib.Principal, q store.UsageQuery) (u Usage, err error) {
	switch {
	case who.Token != "" && q.By != "" && q.By != store.UsageByRun:
		return u, toolcrib.Errorf(toolcrib.CodeForbidden,
			"an access token sees usage by run only, of the runs that it started")
	case q.By == "" && who.Token != "":
		q.By = store.UsageByRun
	case q.By == "":
		q.By = store.UsageByDay
	}
	if !slices.Contains(UsageRows(), string(q.By)) {
		return u, env.UnknownValue("row", string(q.By), UsageRows())
	}
	if err := q.Check(); err != nil {
		return u, toolcrib.Errorf(toolcrib.CodeBadRequest, "%v", err)
	}
	if !env.Admin(who) {
		if q.User != "" && q.User != who.User || who.User == "" {
			return u, toolcrib.Errorf(toolcrib.CodeForbidden, "only administrators see what others use, and %s is not one",
				who.User)
		}
		q.User = who.User
	}
	u = Usage{By: q.By, Rows: []store.UsageRow{}, Total: store.UsageRow{Key: "total"}}
	if !q.Since.IsZero() {
		u.Since = &q.Since
	}
	if !q.Until.IsZero() {
		u.Until = &q.Until
	}
	q.Token = who.Token
	rows, err := s.Env.Store.Usage(ctx, q)
	if err != nil {
		return u, err
	}
	u.Rows = append(u.Rows, rows...)
	if q.By != store.UsageTotal {
		q.By = store.UsageTotal
		rows, err = s.Env.Store.Usage(ctx, q)
	}
	for _, row := range rows {
		u.Total = row
		u.Total.Key = "total"
	}
	return u, err
}

// ByBudgets is what the loop records as the source of a stop by the budgets of a user.
const ByBudgets = "budgets"

// ledger returns the configured budgets of users for a day and a month, or nil if there are no budgets.
func (s *Service) ledger() (toolcrib.Ledger, error) {
	list := s.userBudgets()
	if len(list) == 0 {
		return nil, nil
	}
	return s.Env.Store.Ledger(list)
}

func (s *Service) userBudgets() []store.UserBudget {
	c := s.Env.Config
	list := make([]store.UserBudget, len(c.Budgets))
	for i, b := range c.Budgets {
		list[i] = store.UserBudget{
			User: b.User, Key: fmt.Sprintf("budgets[%d]", i),
			RequestsPerDay: b.RequestsPerDay, TokensPerDay: b.TokensPerDay, CostUSDPerDay: b.CostUSDPerDay,
			RequestsPerMonth: b.RequestsPerMonth, TokensPerMonth: b.TokensPerMonth, CostUSDPerMonth: b.CostUSDPerMonth,
		}
	}
	return list
}

// UserBudgets are the limits on the spending of a user, and the spending that counts towards them. Requests in progress
// are not included.
type UserBudgets struct {
	User     string
	Ceilings []store.Ceiling
}

// Budgets returns the budgets of users for a day and a month: for administrators those of all users whom a budget names
// or who have spent something this month, for others their own, and for access tokens none.
func (s *Service) Budgets(ctx context.Context, who toolcrib.Principal) (all []UserBudgets, err error) {
	budgets := s.userBudgets()
	if len(budgets) == 0 || who.Token != "" {
		return nil, nil
	}
	q := store.UsageQuery{By: store.UsageByUser, Limit: store.MaxUsageRows}
	names := map[string]bool{}
	if !env.Admin(who) {
		q.User, names[who.User] = who.User, true
	} else {
		for _, b := range budgets {
			names[b.User] = b.User != store.EveryUser
		}
	}
	now := time.Now().UTC()
	var spent [2]map[string]store.UsageRow // today, and this month
	for i, since := range []time.Time{now, now.AddDate(0, 0, 1-now.Day())} {
		q.Since, spent[i] = since, map[string]store.UsageRow{}
		rows, err := s.Env.Store.Usage(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			spent[i][row.Key], names[row.Key] = row, true
		}
	}
	for _, user := range slices.Sorted(maps.Keys(names)) {
		limits := store.CeilingsOf(budgets, user, now, spent[0][user], spent[1][user])
		if names[user] && len(limits) > 0 {
			all = append(all, UserBudgets{user, limits})
		}
	}
	return all, nil
}
