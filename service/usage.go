package service

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// UsageWords returns what usage can be summed up by.
func UsageWords() []string {
	return []string{
		string(store.UsageByDay), string(store.UsageByUser), string(store.UsageByAgent), string(store.UsageByModel),
		string(store.UsageByTool), string(store.UsageByProvider), string(store.UsageBySession), string(store.UsageByRun),
	}
}

// Usage is what was used, row by row and in all.
type Usage struct {
	By    store.UsageBy    `json:"by"`
	Since *time.Time       `json:"since"`
	Until *time.Time       `json:"until"`
	Rows  []store.UsageRow `json:"rows"`
	Total store.UsageRow   `json:"total"`
}

// Usage returns what runs have used, also those that were pruned since: to administrators
// of everybody, to others their own. By an access token it is that of the runs that the
// token started, run by run, because only of a run it is known which token started it.
// If q.By is empty, it is by day, or by run for a token.
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
	if !slices.Contains(UsageWords(), string(q.By)) {
		return u, unknownWord("row", string(q.By), UsageWords())
	}
	if err := q.Check(); err != nil {
		return u, toolcrib.Errorf(toolcrib.CodeBadRequest, "%v", err)
	}
	if !admin(who) {
		if q.User != "" && q.User != who.User || who.User == "" {
			return u, toolcrib.Errorf(toolcrib.CodeForbidden, "what others use is for administrators, and %s is not one",
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
	if who.Token != "" {
		err = s.usageOfToken(ctx, who, q, &u)
		return u, err
	}
	rows, err := s.store.Usage(ctx, q)
	if err != nil {
		return u, err
	}
	u.Rows = append(u.Rows, rows...)
	q.By = store.UsageTotal
	total, err := s.store.Usage(ctx, q)
	for _, row := range total {
		u.Total = row
	}
	u.Total.Key = "total"
	return u, err
}

// usageOfToken adds up the runs that the token of who started, among the
// [store.MaxUsageRows] of its user that used most.
func (s *Service) usageOfToken(ctx context.Context, who toolcrib.Principal, q store.UsageQuery, u *Usage) error {
	most := q.Bound()
	q.Limit = store.MaxUsageRows
	rows, err := s.store.Usage(ctx, q)
	if err != nil {
		return err
	}
	for _, row := range rows {
		rec, err := s.store.Run(ctx, toolcrib.RunID(row.Key))
		if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
			return err
		}
		if err == nil && Owns(who, &rec) {
			addUsage(&u.Total, &row)
			if len(u.Rows) < most {
				u.Rows = append(u.Rows, row)
			}
		}
	}
	return nil
}

// addUsage adds what one run used.
func addUsage(sum, row *store.UsageRow) {
	sum.Runs += row.Runs
	sum.Requests += row.Requests
	sum.InputTokens += row.InputTokens
	sum.CachedInputTokens += row.CachedInputTokens
	sum.CacheWriteTokens += row.CacheWriteTokens
	sum.OutputTokens += row.OutputTokens
	sum.ReasoningTokens += row.ReasoningTokens
	sum.TotalTokens += row.TotalTokens
	sum.CostUSD += row.CostUSD
	sum.Estimated = sum.Estimated || row.Estimated
	sum.Unpriced = sum.Unpriced || row.Unpriced
	sum.Calls += row.Calls
	sum.Errors += row.Errors
	sum.Refused += row.Refused
	sum.DurationMS += row.DurationMS
}
