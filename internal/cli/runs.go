package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) runsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "runs",
		Short:   "List and show stored runs, go on with them, cancel, fork, export",
		Example: "toolcrib runs list\ntoolcrib runs show last",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.runsListCommand(), a.runsShowCommand(), a.runsEventsCommand(), a.runsExportCommand(), a.runsImportCommand(),
		a.runsResumeCommand(), a.runsCancelCommand(), a.runsForkCommand(), a.runsVerifyCommand(), a.runsReplayCommand(), a.runsPruneCommand())
	return cmd
}

type listFlags struct {
	status, agent, user, since string
	parent, cursor             string
	limit                      int
	topLevel, json             bool
}

func (a *app) runsListCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List stored runs, newest first",
		Example: `toolcrib runs list
toolcrib runs list --status failed,cancelled --since 24h
toolcrib runs list --parent run_01KHZ8E4J7M2T5V9X3B6N8Q0RS
toolcrib runs list --json --limit 1000`,
		Args: positional,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listRuns(cmd.Context(), &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.status, "status", "", "only these statuses, separated by commas; parked and interrupted are some, too")
	flags.StringVar(&f.agent, "agent", "", "only runs of this agent")
	flags.StringVar(&f.user, "user", "", "only runs of this user")
	flags.StringVar(&f.parent, "parent", "", "only the runs that this one started, by its whole ID")
	flags.BoolVar(&f.topLevel, "top-level", false, "only runs that no other run started")
	flags.StringVar(&f.since, "since", "", "only runs since then: a span such as 24h or 7d, a date, or a time (RFC 3339)")
	flags.IntVar(&f.limit, "limit", store.DefaultLimit, fmt.Sprintf("at most so many, up to %d", store.MaxLimit))
	flags.StringVar(&f.cursor, "cursor", "", "those after a list that ended with this cursor, with the same flags")
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	return cmd
}

func (f *listFlags) filter(now time.Time) (store.Filter, error) {
	out := store.Filter{User: f.user, Agent: f.agent, Limit: f.limit, Parent: toolcrib.RunID(f.parent), TopLevel: f.topLevel, Cursor: f.cursor}
	if f.parent != "" && f.topLevel {
		return out, usagef("--parent and --top-level exclude each other")
	}
	if f.limit < 1 || f.limit > store.MaxLimit {
		return out, usagef("--limit: must be 1 to %d", store.MaxLimit)
	}
	if f.since != "" {
		since, err := parseSince(f.since, now)
		if err != nil {
			return out, err
		}
		out.Since = since
	}
	return out, nil
}

// parseSince reads a span before now, a date, or a time.
func parseSince(text string, now time.Time) (time.Time, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if span, err := time.ParseDuration(days + "h"); err == nil && span >= 0 {
			return now.Add(-24 * span), nil
		}
	}
	if span, err := time.ParseDuration(text); err == nil && span >= 0 {
		return now.Add(-span), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, time.Local); err == nil {
		return t, nil
	}
	return time.Time{}, usagef("--since: %q is no span such as 24h or 7d, no date such as 2026-01-31, and no time (RFC 3339)", text)
}

func (a *app) listRuns(ctx context.Context, f *listFlags) error {
	filter, err := f.filter(time.Now())
	if err != nil {
		return err
	}
	s, who, err := a.reading(ctx)
	if err != nil {
		return err
	}
	views, next, err := a.service.Runs(ctx, who, service.RunsQuery{Filter: filter, Words: splitList(f.status)})
	if errors.Is(err, store.ErrBadCursor) {
		err = usagef("--cursor: %v", err)
	}
	if err != nil {
		return err
	}
	if next != "" {
		defer a.notice("there are more runs: --cursor %s shows the next", next)
	}
	if f.json {
		return printJSON(a.out, views, true)
	}
	narrow := a.outTerminal && a.outStyle.Width < wideList
	rows := [][]string{{"RUN", "STARTED", "STATUS", "AGENT", "MODEL", "TOKENS", "PROMPT"}}
	if narrow {
		rows = [][]string{{"RUN", "STARTED", "STATUS", "PROMPT"}}
	}
	for _, v := range views {
		prompt, err := s.Prompt(ctx, &v)
		if err != nil {
			return err
		}
		if v.ParentID != "" {
			prompt = startedByRun + prompt
		}
		started := v.CreatedAt.Local()
		if narrow {
			rows = append(rows, []string{string(v.ID), shortTime(started, time.Now()), statusText(v), prompt})
			continue
		}
		rows = append(rows, []string{
			string(v.ID), started.Format("2006-01-02 15:04"), statusText(v), v.Agent, v.Model,
			render.Number(v.Usage.TotalTokens), prompt,
		})
	}
	a.outStyle.Table(a.out, rows)
	return nil
}

// startedByRun marks the prompt of a run that another one started.
const startedByRun = "↳ "

func statusText(v service.Run) string {
	switch {
	case v.Interrupted:
		return "interrupted"
	case v.StopReason != "" && string(v.StopReason) != string(v.Status):
		return fmt.Sprintf("%s (%s)", v.Status, v.StopReason)
	}
	return string(v.Status)
}

// wideList is the width from which a list of runs shows all its columns.
const wideList = 130

// shortTime is the time of today, or the day before.
func shortTime(at, now time.Time) string {
	switch {
	case at.YearDay() == now.YearDay() && at.Year() == now.Year():
		return at.Format("15:04")
	case at.Year() == now.Year():
		return at.Format("Jan _2")
	}
	return at.Format("2006-01")
}

func (a *app) runsShowCommand() *cobra.Command {
	var asJSON, whole bool
	cmd := &cobra.Command{
		Use:     "show RUN",
		Short:   "Tell the story of a run",
		Long:    "Tell the story of a run: who asked what, each turn with verdicts and results, what it cost, and why it ended. RUN is an ID, the beginning of one, or last.",
		Example: "toolcrib runs show last\ntoolcrib runs show run_01K --whole\ntoolcrib runs show last --json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.showRun(cmd.Context(), args[0], asJSON, whole)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "the run as one JSON value")
	cmd.Flags().BoolVar(&whole, "whole", false, "results and thoughts whole instead of folded")
	return cmd
}

func (a *app) showRun(ctx context.Context, name string, asJSON, whole bool) error {
	s, who, err := a.reading(ctx)
	if err != nil {
		return err
	}
	const found = "`toolcrib runs list` shows what there is"
	if asJSON {
		view, err := s.Run(ctx, who, name)
		if err != nil {
			return hint(err, name, found)
		}
		return printJSON(a.out, view, true)
	}
	rec, err := s.FindRun(ctx, who, name)
	if err != nil {
		return hint(err, name, found)
	}
	interrupted, driven := a.service.Interrupted(rec), a.service.Drivers.Driven(rec.ID)
	return a.paged(func(w io.Writer) error {
		fmt.Fprintf(w, "%s  %s\n", a.outStyle.Bold(string(rec.ID)), statusOfRecord(rec, interrupted))
		if err := a.tellRun(ctx, w, who, rec, whole); err != nil {
			return err
		}
		a.ending(ctx, w, rec, interrupted, driven)
		return nil
	})
}

// tellRun tells the story of a run, as far as it was not pruned.
func (a *app) tellRun(ctx context.Context, w io.Writer, who toolcrib.Principal, rec store.RunRecord, whole bool) error {
	story := render.Story{Out: w, Style: a.outStyle, Whole: whole, Caller: a.service.CallerOf(ctx, rec), Self: a.self()}
	for e, err := range a.service.Story(ctx, who, rec.ID) {
		if errors.Is(err, store.ErrPruned) {
			return nil
		}
		if err != nil {
			return err
		}
		story.Tell(e)
	}
	return nil
}

func statusOfRecord(rec store.RunRecord, interrupted bool) string {
	v := service.RunOf(rec)
	v.Interrupted = interrupted
	return statusText(v)
}

// ending tells what the journal does not say by itself.
func (a *app) ending(ctx context.Context, w io.Writer, rec store.RunRecord, interrupted, driven bool) {
	switch {
	case !rec.PrunedAt.IsZero():
		fmt.Fprintf(w, "\n%s the content was pruned on %s\n", a.outStyle.Yellow("■"), rec.PrunedAt.Local().Format("2006-01-02 15:04"))
	case interrupted:
		fmt.Fprintf(w, "\n%s the run was interrupted; what is shown was done. To resume it: %s runs resume %s\n", a.outStyle.Yellow("■"), a.self(), rec.ID)
	case rec.Status == toolcrib.StatusQueued && !driven:
		fmt.Fprintf(w, "\n%s nothing drives the run. To resume it: %s runs resume %s\n", a.outStyle.Yellow("■"), a.self(), rec.ID)
	case rec.Status == toolcrib.StatusWaitingForProvider && rec.Pending != nil && rec.Pending.Error != nil:
		fmt.Fprintf(w, "\n%s waits for %s\nTo go on: %s\n", a.outStyle.Yellow("■"), outageText(rec.Pending), strings.Join(a.wayOnFromOutage(rec.ID, rec.Pending), "\n      or: "))
	case rec.Status.Parked() && rec.Pending != nil && !driven && a.service.DecidedBelow(ctx, rec):
		fmt.Fprintf(w, "\n%s what it waited for is decided. To go on: %s runs resume %s\n", a.outStyle.Yellow("■"), a.self(), rec.ID)
	case rec.Status.Parked() && rec.Pending != nil:
		fmt.Fprintf(w, "\n%s waits for a decision on %s\n", a.outStyle.Yellow("■"), guard.Visible(rec.Pending.ApprovalID))
	case rec.Content != "" && rec.StopReason != toolcrib.StopCompleted:
		fmt.Fprintf(w, "\n%s\n%s\n", a.outStyle.Dim("what there is of an answer:"), guard.Visible(rec.Content))
	}
}
