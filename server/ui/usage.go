package ui

import (
	"cmp"
	"encoding/csv"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// usageRoutes returns the routes of the page usage.
func usageRoutes() []Route {
	return append([]Route{
		{Pattern: "GET /usage", do: showUsage},
		{Pattern: "GET /usage.csv", do: usageCSV},
	}, auditRoutes()...)
}

// usageDays is the period that is shown if the address names none.
const usageDays = 30

// usageAsked is the query of the address, with the days as they are in the form.
type usageAsked struct {
	store.UsageQuery
	Since, Until string // days, or ""
}

// usageQuery reads the address. Rows are days unless it says otherwise, and runs for an access token.
func (p *page) usageQuery() (q usageAsked, err error) {
	form := p.R.URL.Query()
	q.By, q.User = store.UsageBy(form.Get("by")), form.Get("user")
	if q.By == "" && p.Who.Token == "" {
		q.By = store.UsageByDay
	}
	if !form.Has("since") && !form.Has("until") {
		q.Since = time.Now().UTC().AddDate(0, 0, 1-usageDays).Format(time.DateOnly)
	}
	q.Since, q.Until = cmp.Or(form.Get("since"), q.Since), form.Get("until")
	q.Limit = store.MaxUsageRows
	if q.UsageQuery.Since, err = dayOf("since", q.Since); err == nil {
		q.UsageQuery.Until, err = dayOf("until", q.Until)
	}
	return q, err
}

func dayOf(name, text string) (at time.Time, err error) {
	if text != "" {
		if at, err = time.Parse(time.DateOnly, text); err != nil {
			return at, bad("%s: %s is not a day such as 2026-01-31", name, strconv.Quote(text))
		}
	}
	return at, nil
}

// address returns the address of the same query with other values, as pairs of a name and a value.
func (q usageAsked) address(path string, other ...string) string {
	v := url.Values{"by": {string(q.By)}, "since": {q.Since}, "until": {q.Until}}
	if q.User != "" {
		v.Set("user", q.User)
	}
	for i := 0; i < len(other); i += 2 {
		v.Set(other[i], other[i+1])
	}
	return path + "?" + v.Encode()
}

// usageView is the data of the template usage.
type usageView struct {
	Asked    usageAsked
	Usage    service.Usage
	Rows     []usageRow
	Plots    []plot
	By       []string // ways to group
	Periods  []period
	Others   bool // the usage of others can be shown
	Budgets  []service.UserBudgets
	Calls    bool // rows have calls of tools
	Download string
}

// usageRow is a row of the table, with the address of more about it.
type usageRow struct {
	store.UsageRow
	To string
}

// period is a link to another period.
type period struct {
	Days    int // 0 = all
	To      string
	Current bool
}

func showUsage(p *page) error {
	q, err := p.usageQuery()
	if err != nil {
		return err
	}
	u, err := p.Service.Usage(p, p.Who, q.UsageQuery)
	if err != nil {
		return err
	}
	q.By = u.By
	budgets, err := p.Service.Budgets(p, p.Who)
	if err != nil {
		return err
	}
	v := usageView{
		Asked: q, Usage: u, Others: env.Admin(p.Who), Budgets: budgets, By: service.UsageRows(),
		Calls: u.By != store.UsageByRun && u.By != store.UsageBySession, Download: q.address("/usage.csv"),
	}
	if !v.Others {
		v.By = slices.DeleteFunc(v.By, func(by string) bool { return by == string(store.UsageByUser) })
	}
	if p.Who.Token != "" {
		v.By = []string{string(store.UsageByRun)}
	}
	today := time.Now().UTC()
	for _, days := range []int{7, usageDays, 90, 365, 0} {
		one := period{Days: days}
		since := ""
		if days > 0 {
			since = today.AddDate(0, 0, 1-days).Format(time.DateOnly)
		}
		one.To, one.Current = q.address("/usage", "since", since, "until", ""), q.Since == since && q.Until == ""
		v.Periods = append(v.Periods, one)
	}
	for _, r := range u.Rows {
		v.Rows = append(v.Rows, usageRow{r, q.more(r.Key)})
	}
	v.Plots = plotsOf(q, u.Rows)
	return p.render("usage", http.StatusOK, v)
}

// more returns the address of more about a row, or "".
func (q usageAsked) more(key string) string {
	if key == "" {
		return ""
	}
	switch q.By {
	case store.UsageByDay:
		return q.address("/usage", "by", string(store.UsageByRun), "since", key, "until", key)
	case store.UsageByUser:
		return q.address("/usage", "by", string(store.UsageByDay), "user", key)
	case store.UsageByRun:
		return "/runs/" + url.PathEscape(key)
	case store.UsageBySession:
		return "/runs?" + url.Values{"session": {key}}.Encode()
	case store.UsageByTool:
		return "/tools/" + url.PathEscape(key)
	case store.UsageByAgent:
		return "/runs?" + url.Values{"agent": {key}}.Encode()
	}
	return ""
}

// MeanMS returns the mean duration of the calls of a row.
func (r usageRow) MeanMS() int64 { return meanMS(&r.UsageRow) }

func meanMS(r *store.UsageRow) int64 {
	if r.Calls == 0 {
		return 0
	}
	return r.DurationMS / r.Calls
}

// usageCSV answers with the rows as a table for a spreadsheet. Its numbers are those of the API.
func usageCSV(p *page) error {
	q, err := p.usageQuery()
	if err != nil {
		return err
	}
	u, err := p.Service.Usage(p, p.Who, q.UsageQuery)
	if err != nil {
		return err
	}
	p.download("usage-by-"+string(u.By)+".csv", "text/csv; charset=utf-8")
	w := csv.NewWriter(p.W)
	w.UseCRLF = true
	_ = w.Write(strings.Fields(string(u.By) + ` runs requests input_tokens cached_input_tokens cache_write_tokens
		output_tokens reasoning_tokens total_tokens cost_usd estimated unpriced calls errors refused duration_ms`))
	for _, r := range u.Rows {
		cells := []string{cell(r.Key)}
		for _, n := range []int64{
			r.Runs, r.Requests, r.InputTokens, r.CachedInputTokens, r.CacheWriteTokens, r.OutputTokens, r.ReasoningTokens,
			r.TotalTokens,
		} {
			cells = append(cells, strconv.FormatInt(n, 10))
		}
		cells = append(cells, strconv.FormatFloat(r.CostUSD, 'f', -1, 64), strconv.FormatBool(r.Estimated),
			strconv.FormatBool(r.Unpriced))
		for _, n := range []int64{r.Calls, r.Errors, r.Refused, r.DurationMS} {
			cells = append(cells, strconv.FormatInt(n, 10))
		}
		_ = w.Write(cells)
	}
	w.Flush() // the client may have disconnected
	return nil
}

// cell returns a text that no spreadsheet takes for a formula.
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
