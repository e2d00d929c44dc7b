package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) sessionsListCommand(cmd *cobra.Command) {
	var f store.SessionFilter
	cmd.Flags().StringVar(&f.User, "user", "", "")
	limitFlag(cmd.Flags(), &f.Limit, store.DefaultLimit, store.MaxLimit)
	const head = "SESSION|NAME|RUNS|LAST|+STATUS|+USER|TITLE"
	listing(a, cmd, a.reading, head, func(c call) ([]store.SessionInfo, error) {
		page, err := c.at.Sessions(c, c.who, f)
		if page.Next != "" {
			a.notice("there are more sessions; see --limit")
		}
		return page.Sessions, err
	}, func(s *store.SessionInfo) []string {
		return []string{short(s.ID), s.Name, fmt.Sprint(s.Runs), day(s.UpdatedAt), string(s.Status), s.User, s.Title}
	})
}

// sessionView is a session with its runs.
type sessionView struct {
	store.SessionInfo
	Items []service.Run `json:"items"` // runs of the session, oldest first
}

// sessionRuns finds a session by its ID, by the name that its user gave it, or as last. It also returns
// its runs, oldest first.
func (c call) sessionRuns() (info store.SessionInfo, runs []service.Run, err error) {
	name := c.arg()
	if info, err = c.at.Session(c, c.who, name); err == nil {
		runs, err = c.at.SessionRuns(c, c.who, info.ID)
	}
	if name == "last" && toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
		return info, nil, hint(err, "", "`toolcrib run --session NAME` begins one")
	}
	return info, runs, noSuch("sessions", err, name)
}

func (a *app) sessionsShowCommand(cmd *cobra.Command) {
	whole := cmd.Flags().Bool("whole", false, "")
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		info, runs, err := c.sessionRuns()
		if err != nil {
			return nil, nil, err
		}
		if !c.json {
			return nil, nil, a.paged(func(w io.Writer) error { return a.tellSession(c, w, c.who, info, runs, *whole) })
		}
		return sessionView{SessionInfo: info, Items: runs}, nil, nil
	})
}

func (a *app) tellSession(ctx context.Context, w io.Writer, who toolcrib.Principal, info store.SessionInfo,
	runs []service.Run, whole bool,
) error {
	style := a.outStyle
	fmt.Fprintf(w, "%s  %s\n", style.Bold(guard.Visible(cmp.Or(info.Name, short(info.ID)))), style.Dim(short(info.ID)))
	fmt.Fprintf(w, "%s\n", guard.Visible(fmt.Sprintf("%s of %s, since %s", render.Count(info.Runs, "run"), info.User,
		minute(info.CreatedAt))))
	if len(runs) < info.Runs {
		fmt.Fprintf(w, "%s\n", style.Dim(fmt.Sprintf("the newest %d of them:", len(runs))))
	}
	for _, rec := range runs {
		fmt.Fprintf(w, "\n%s  %s\n", style.Bold(short(rec.ID)), statusText(rec))
		if err := a.tellRun(ctx, w, who, rec, whole, false); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) sessionsRemoveCommand(cmd *cobra.Command) {
	var r service.PruneRequest
	cmd.Flags().BoolVar(&r.WithLater, "with-later", false, "")
	yes := cmd.Flags().Bool("yes", false, "")
	a.answering(cmd, a.changing, func(c call) (any, func(), error) {
		r.Agrees = func(runs int) error {
			question := fmt.Sprintf("Remove the session %s with %s for good?", c.arg(), render.Count(runs, "run"))
			return a.sure(*yes, guard.Visible(question), "nothing was removed")
		}
		info, result, err := c.at.RemoveSession(c, c.who, c.arg(), r)
		return sessionRemoved{info.ID, result}, func() {
			a.says(cmp.Or(info.Name, short(info.ID)), "removed")
			a.showPruned(&result, false)
		}, a.endFirst(noSuch("sessions", err, c.arg()))
	})
}

// sessionRemoved is a session that was removed with its runs, in the form of --json.
type sessionRemoved struct {
	Session toolcrib.SessionID `json:"session_id"`
	api.PruneResult
}

// The export of a session: a header, followed by the exports of its runs.
type exportSession struct {
	Export  string             `json:"export"`
	Version string             `json:"version"`
	Session store.SessionInfo  `json:"session"`
	Runs    []toolcrib.RunID   `json:"runs"` // in the order in which they follow
	ID      toolcrib.SessionID `json:"session_id"`
}

// exportSessionFormat names the format of an exported session.
const exportSessionFormat = "toolcrib-session-1"

func (a *app) sessionsExportCommand(cmd *cobra.Command) {
	alwaysJSON(cmd)
	a.doing(cmd, a.reading, func(c call) error {
		info, runs, err := c.sessionRuns()
		if err != nil {
			return err
		}
		head := exportSession{
			Export: exportSessionFormat, Version: version.Version(), ID: info.ID, Session: info, Runs: []toolcrib.RunID{},
		}
		for _, rec := range runs {
			if rec.PrunedAt != nil {
				a.notice("the content of run %s was pruned; it is left out", rec.ID)
				continue
			}
			head.Runs = append(head.Runs, rec.ID)
		}
		err = printJSON(a.out, head, false)
		for _, run := range head.Runs {
			if err == nil {
				err = c.at.ExportRun(c, c.who, string(run), a.out)
			}
		}
		return err
	})
}

func (a *app) usageCommand(cmd *cobra.Command) {
	var q store.UsageQuery
	flags := cmd.Flags()
	choice(cmd, "by", (*string)(&q.By), service.UsageRows()...)
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

// tellUsage writes a table. On a terminal each row has a bar: of the cost, of the tokens if there is no
// cost, or else of the calls.
func (a *app) tellUsage(v *service.Usage) {
	weigh := func(r *store.UsageRow) float64 {
		switch {
		case v.By == store.UsageByTool:
			return float64(r.Calls)
		case v.Total.CostUSD > 0:
			return r.CostUSD
		}
		return float64(r.TotalTokens)
	}
	most := 0.0
	for i := range v.Rows {
		most = max(most, weigh(&v.Rows[i]))
	}
	bar := func(r *store.UsageRow) string {
		if w := weigh(r); a.outTerminal && w <= most { // greater values are the total
			return render.Bar(w, most, barColumns)
		}
		return ""
	}
	if v.By == store.UsageByTool {
		table(a, "TOOL|CALLS|FAILED|REFUSED|TIME|", v.Rows, func(r *store.UsageRow) []string {
			return []string{
				usageKey(r), render.Number(r.Calls), render.Number(r.Errors), render.Number(r.Refused),
				render.Duration(time.Duration(r.DurationMS) * time.Millisecond), bar(r),
			}
		})
		return
	}
	rows := slices.Clone(v.Rows)
	if len(rows) > 1 {
		rows = append(rows, v.Total)
	}
	head := strings.ToUpper(string(v.By)) + "|RUNS|+REQUESTS|INPUT|+CACHED|OUTPUT|COST|+CALLS|"
	table(a, head, rows, func(r *store.UsageRow) []string {
		return []string{
			usageKey(r), render.Number(r.Runs), render.Number(r.Requests), render.Number(r.InputTokens),
			render.Number(r.CachedInputTokens), render.Number(r.OutputTokens), usageCost(r), render.Number(r.Calls), bar(r),
		}
	})
}

// usageKey names a row. A row without a name, such as that of runs without a session, is a dash.
func usageKey(r *store.UsageRow) string { return cmp.Or(shortIDs(r.Key), "-") }

func usageCost(r *store.UsageRow) string {
	known := !r.Unpriced || r.TotalTokens == 0
	return render.Cost(toolcrib.Usage{CostUSD: r.CostUSD, Estimated: r.Estimated}, known)
}
