package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

type usageFlags struct {
	by, since, until, user string
	limit                  int
	json, byGiven          bool
}

// usageWords are the words of --by.
func usageWords() []string {
	return []string{
		string(store.UsageByDay), string(store.UsageByUser), string(store.UsageByAgent), string(store.UsageByModel),
		string(store.UsageByTool), string(store.UsageByProvider), string(store.UsageBySession), string(store.UsageByRun),
	}
}

func (a *app) usageCommand() *cobra.Command {
	var f usageFlags
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show tokens and cost by day, user, agent, model or tool",
		Long: "Show what runs have used: tokens, cost and calls of tools, also of runs that were pruned since. Days are those of UTC. " +
			"A ~ marks an estimate; ? says that no price is known.",
		Example: "toolcrib usage\ntoolcrib usage --by model --since 30d\ntoolcrib usage --by tool --json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.byGiven = cmd.Flags().Changed("by")
			return a.usage(cmd.Context(), &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.by, "by", string(store.UsageByDay), strings.Join(usageWords(), ", "))
	flags.StringVar(&f.since, "since", "", "from that day on: a span such as 7d or 24h, a date, or a time (RFC 3339)")
	flags.StringVar(&f.until, "until", "", "up to that day")
	flags.StringVar(&f.user, "user", "", "only of this user")
	flags.IntVar(&f.limit, "limit", store.DefaultUsageRows, fmt.Sprintf("at most so many rows, up to %d", store.MaxUsageRows))
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	// The flag was just made, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(usageWords(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *usageFlags) query(now time.Time) (store.UsageQuery, error) {
	q := store.UsageQuery{By: store.UsageBy(f.by), User: f.user, Limit: f.limit}
	if !slices.Contains(usageWords(), f.by) {
		return q, usagef("--by: must be one of %s, not %q", strings.Join(usageWords(), ", "), f.by)
	}
	if f.limit < 1 || f.limit > store.MaxUsageRows {
		return q, usagef("--limit: must be 1 to %d", store.MaxUsageRows)
	}
	var err error
	if f.since != "" {
		if q.Since, err = parseSince(f.since, now); err != nil {
			return q, err
		}
	}
	if f.until != "" {
		if q.Until, err = parseSince(f.until, now); err != nil {
			return q, usagef("--until%s", strings.TrimPrefix(err.Error(), "--since"))
		}
	}
	if err := q.Check(); err != nil {
		return q, usagef("%v", err)
	}
	return q, nil
}

// usageView is what was used, row by row and in all.
type usageView struct {
	By    store.UsageBy    `json:"by"`
	Since *time.Time       `json:"since"`
	Until *time.Time       `json:"until"`
	Rows  []store.UsageRow `json:"rows"`
	Total store.UsageRow   `json:"total"`
}

func (a *app) usage(ctx context.Context, f *usageFlags) error {
	q, err := f.query(time.Now())
	if err != nil {
		return err
	}
	who, err := a.principal(ctx)
	if err != nil {
		return err
	}
	if !who.Admin {
		if q.User != "" && q.User != who.User {
			return toolcrib.Errorf(toolcrib.CodeForbidden, "what others use is for administrators, and %s is none", who.User)
		}
		q.User = who.User
	}
	s, err := a.databaseToRead(ctx)
	if err != nil {
		return err
	}
	if who.Token != "" {
		if q.By, err = f.byOfToken(); err != nil {
			return err
		}
	}
	view := usageView{By: q.By}
	if !q.Since.IsZero() {
		view.Since = &q.Since
	}
	if !q.Until.IsZero() {
		view.Until = &q.Until
	}
	if err := view.read(ctx, s, who, q); err != nil {
		return err
	}
	if f.json {
		view.Rows = append([]store.UsageRow{}, view.Rows...)
		return printJSON(a.out, view, true)
	}
	a.tellUsage(&view)
	if len(view.Rows) == q.Bound() {
		a.notice("there may be more rows; see --limit")
	}
	return nil
}

// byOfToken is what usage is summed up by where one acts by an access token: the runs,
// because only of a run is it known which token started it.
func (f *usageFlags) byOfToken() (store.UsageBy, error) {
	if f.byGiven && f.by != string(store.UsageByRun) {
		return "", toolcrib.Errorf(toolcrib.CodeForbidden, "by an access token there is --by run only: that of the runs that it started")
	}
	return store.UsageByRun, nil
}

// read fills in the rows and their sum.
func (v *usageView) read(ctx context.Context, s *sqlite.Store, who toolcrib.Principal, q store.UsageQuery) (err error) {
	if who.Token != "" {
		return v.readOwn(ctx, s, who, q)
	}
	if v.Rows, err = s.Usage(ctx, q); err != nil {
		return err
	}
	q.By = store.UsageTotal
	total, err := s.Usage(ctx, q)
	for _, row := range total {
		v.Total = row
	}
	v.Total.Key = "total"
	return err
}

// readOwn is [usageView.read] for the runs that the access token started, among the
// [store.MaxUsageRows] of its user that used most.
func (v *usageView) readOwn(ctx context.Context, s *sqlite.Store, who toolcrib.Principal, q store.UsageQuery) error {
	most := q.Bound()
	q.Limit = store.MaxUsageRows
	rows, err := s.Usage(ctx, q)
	if err != nil {
		return err
	}
	v.Total.Key = "total"
	for _, row := range rows {
		rec, err := s.Run(ctx, toolcrib.RunID(row.Key))
		if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
			return err
		}
		if err == nil && service.Owns(who, &rec) {
			addUsage(&v.Total, &row)
			if len(v.Rows) < most {
				v.Rows = append(v.Rows, row)
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

const barColumns = 24

// tellUsage writes a table, on a terminal with a bar beside each row: of the cost,
// or of the tokens where nothing costs anything, or of the calls.
func (a *app) tellUsage(v *usageView) {
	weigh := weightOf(v)
	most := 0.0
	for _, r := range v.Rows {
		most = max(most, weigh(r))
	}
	head := []string{strings.ToUpper(string(v.By)), "RUNS", "REQUESTS", "INPUT", "CACHED", "OUTPUT", "COST", "CALLS", ""}
	rowOf := usageRow
	if v.By == store.UsageByTool {
		head, rowOf = []string{"TOOL", "CALLS", "FAILED", "REFUSED", "TIME", ""}, toolUsageRow
	} else if a.outTerminal && a.outStyle.Width < wideList {
		head, rowOf = []string{strings.ToUpper(string(v.By)), "RUNS", "TOKENS", "COST", ""}, narrowUsageRow
	}
	rows := [][]string{head}
	for _, r := range v.Rows {
		bar := ""
		if a.outTerminal {
			bar = render.Bar(weigh(r), most, barColumns)
		}
		rows = append(rows, append(rowOf(r), bar))
	}
	if v.By != store.UsageByTool && len(v.Rows) > 1 {
		rows = append(rows, append(rowOf(v.Total), ""))
	}
	a.outStyle.Table(a.out, rows)
}

func weightOf(v *usageView) func(store.UsageRow) float64 {
	switch {
	case v.By == store.UsageByTool:
		return func(r store.UsageRow) float64 { return float64(r.Calls) }
	case v.Total.CostUSD > 0:
		return func(r store.UsageRow) float64 { return r.CostUSD }
	}
	return func(r store.UsageRow) float64 { return float64(r.TotalTokens) }
}

func usageRow(r store.UsageRow) []string {
	return []string{
		usageKey(r), render.Number(r.Runs), render.Number(r.Requests), render.Number(r.InputTokens), render.Number(r.CachedInputTokens),
		render.Number(r.OutputTokens), usageCost(r), render.Number(r.Calls),
	}
}

func narrowUsageRow(r store.UsageRow) []string {
	return []string{usageKey(r), render.Number(r.Runs), render.Number(r.TotalTokens), usageCost(r)}
}

func toolUsageRow(r store.UsageRow) []string {
	return []string{
		usageKey(r), render.Number(r.Calls), render.Number(r.Errors), render.Number(r.Refused),
		render.Duration(time.Duration(r.DurationMS) * time.Millisecond),
	}
}

// usageKey names a row; what has no name, such as the session of a run without
// one, is a dash.
func usageKey(r store.UsageRow) string {
	if r.Key == "" {
		return "-"
	}
	return r.Key
}

func usageCost(r store.UsageRow) string {
	known := !r.Unpriced || r.TotalTokens == 0
	return render.Cost(toolcrib.Usage{CostUSD: r.CostUSD, Estimated: r.Estimated}, known)
}
