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

type listFlags struct {
	status, agent, user, since string
	parent, cursor             string
	limit                      int
	topLevel, json             bool
}

func (a *app) runsListCommand(cmd *cobra.Command) {
	var f listFlags
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.listRuns(cmd.Context(), &f) }

	flags := cmd.Flags()
	flags.StringVar(&f.status, "status", "", "")
	flags.StringVar(&f.agent, "agent", "", "")
	flags.StringVar(&f.user, "user", "", "")
	flags.StringVar(&f.parent, "parent", "", "")
	flags.BoolVar(&f.topLevel, "top-level", false, "")
	flags.StringVar(&f.since, "since", "", "")
	flags.IntVar(&f.limit, "limit", store.DefaultLimit, fmt.Sprintf("at most so many, up to %d", store.MaxLimit))
	flags.StringVar(&f.cursor, "cursor", "", "")
	flags.BoolVar(&f.json, "json", false, "")
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
	views, next, err := s.Runs(ctx, who, service.RunsQuery{Filter: filter, Words: splitList(f.status), Prompts: !f.json})
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
		prompt := v.Prompt
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

func (a *app) runsShowCommand(cmd *cobra.Command) {
	var asJSON, whole bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.showRun(cmd.Context(), args[0], asJSON, whole)
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "")
	cmd.Flags().BoolVar(&whole, "whole", false, "")
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
	run, err := s.FindRun(ctx, who, name)
	if err != nil {
		return hint(err, name, found)
	}
	return a.paged(func(w io.Writer) error {
		fmt.Fprintf(w, "%s  %s\n", a.outStyle.Bold(string(run.ID)), statusText(run))
		if err := a.tellRun(ctx, w, who, run, whole); err != nil {
			return err
		}
		a.ending(w, run)
		return nil
	})
}

// tellRun tells the story of a run, as far as it was not pruned.
func (a *app) tellRun(ctx context.Context, w io.Writer, who toolcrib.Principal, run service.Run, whole bool) error {
	story := render.Story{Out: w, Style: a.outStyle, Whole: whole, Caller: run.Caller, Self: a.self()}
	for e, err := range a.service.Story(ctx, who, run.ID) {
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

// ending tells what the journal does not say by itself.
func (a *app) ending(w io.Writer, run service.Run) {
	switch {
	case run.PrunedAt != nil:
		fmt.Fprintf(w, "\n%s the content was pruned on %s\n", a.outStyle.Yellow("■"), run.PrunedAt.Local().Format("2006-01-02 15:04"))
	case run.Interrupted:
		fmt.Fprintf(w, "\n%s the run was interrupted; what is shown was done. To resume it: %s runs resume %s\n", a.outStyle.Yellow("■"), a.self(), run.ID)
	case run.Status == toolcrib.StatusQueued && !run.Driven:
		fmt.Fprintf(w, "\n%s nothing drives the run. To resume it: %s runs resume %s\n", a.outStyle.Yellow("■"), a.self(), run.ID)
	case run.Status == toolcrib.StatusWaitingForProvider && run.Pending != nil && run.Pending.Error != nil:
		fmt.Fprintf(w, "\n%s waits for %s\nTo go on: %s\n", a.outStyle.Yellow("■"), outageText(&run.Pending.Pending), strings.Join(a.wayOnFromOutage(run.ID, &run.Pending.Pending), "\n      or: "))
	case run.Status.Parked() && run.Pending != nil && !run.Driven && run.Decided:
		fmt.Fprintf(w, "\n%s what it waited for is decided. To go on: %s runs resume %s\n", a.outStyle.Yellow("■"), a.self(), run.ID)
	case run.Status.Parked() && run.Pending != nil:
		fmt.Fprintf(w, "\n%s waits for a decision on %s\n", a.outStyle.Yellow("■"), guard.Visible(run.Pending.ApprovalID))
	case run.Content != "" && run.StopReason != toolcrib.StopCompleted:
		fmt.Fprintf(w, "\n%s\n%s\n", a.outStyle.Dim("what there is of an answer:"), guard.Visible(run.Content))
	}
}
