package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) usageCommand(cmd *cobra.Command) {
	var q store.UsageQuery
	flags := cmd.Flags()
	choice(cmd, "by", (*string)(&q.By), service.UsageWords()...)
	sinceUntil(flags, &q.Since, &q.Until)
	flags.StringVar(&q.User, "user", "", "")
	limitFlag(flags, &q.Limit, store.DefaultUsageRows, store.MaxUsageRows)
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		u, err := c.at.Usage(c, c.who, q)
		return u, func() {
			a.tellUsage(&u)
			if len(u.Rows) == q.Bound() {
				a.notice("there may be more rows; see --limit")
			}
		}, err
	})
}

const barColumns = 24

// tellUsage writes a table, on a terminal with a bar beside each row: of the cost,
// or of the tokens where nothing costs anything, or of the calls.
func (a *app) tellUsage(v *service.Usage) {
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

func weightOf(v *service.Usage) func(store.UsageRow) float64 {
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
		usageKey(r), render.Number(r.Runs), render.Number(r.Requests), render.Number(r.InputTokens),
		render.Number(r.CachedInputTokens),
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
