package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) runsListCommand(cmd *cobra.Command) {
	var f store.Filter
	flags := cmd.Flags()
	status := flags.String("status", "", "")
	completeWords(cmd, "status", service.StatusNames()...)
	flags.StringVar(&f.Agent, "agent", "", "")
	flags.StringVar(&f.User, "user", "", "")
	flags.StringVar((*string)(&f.Parent), "parent", "", "")
	flags.BoolVar(&f.TopLevel, "top-level", false, "")
	flags.Func("since", "", since(&f.Since))
	limitFlag(flags, &f.Limit, store.DefaultLimit, store.MaxLimit)
	flags.StringVar(&f.Cursor, "cursor", "", "")
	cmd.PreRunE = func(*cobra.Command, []string) error { return oneOf(flags, "parent", "top-level") }
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		list, next, err := c.at.Runs(c, c.who, service.RunsQuery{Filter: f, Statuses: splitList(*status), Prompts: !c.json})
		if errors.Is(err, store.ErrBadCursor) {
			err = usagef("--cursor: %v", err)
		}
		if err != nil {
			return nil, nil, err
		}
		if next != "" {
			defer a.notice("there are more runs: --cursor %s shows the next", next)
		}
		return list, func() { a.showRuns(list) }, nil
	})
}

// showRuns lists runs, with the columns that fit the terminal.
func (a *app) showRuns(list []service.Run) {
	started := minute
	if a.narrow() {
		started = day
	}
	table(a, "RUN|STARTED|STATUS|+AGENT|+MODEL|+TOKENS|PROMPT", list, func(v *service.Run) []string {
		prompt := v.Prompt
		if v.ParentID != "" { // started by another run
			prompt = "↳ " + prompt
		}
		return []string{
			short(v.ID), started(v.CreatedAt), statusText(*v), v.Agent, v.Model, render.Number(v.Usage.TotalTokens), prompt,
		}
	})
}

func statusText(v service.Run) string {
	switch {
	case v.Unreachable && !v.Status.Parked():
		return "waits for its workspace"
	case v.Interrupted:
		return "interrupted"
	case v.StopReason != "" && string(v.StopReason) != string(v.Status):
		return fmt.Sprintf("%s (%s)", v.Status, v.StopReason)
	}
	return string(v.Status)
}

func (a *app) runsShowCommand(cmd *cobra.Command) {
	whole := cmd.Flags().Bool("whole", false, "")
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		if c.json {
			view, err := c.at.Run(c, c.who, c.arg())
			return view, nil, noSuch("runs", err, c.arg())
		}
		run, err := c.at.FindRun(c, c.who, c.arg())
		if err != nil {
			return nil, nil, noSuch("runs", err, c.arg())
		}
		return nil, nil, a.paged(func(w io.Writer) error {
			fmt.Fprintf(w, "%s  %s\n", a.outStyle.Bold(short(run.ID)), statusText(run))
			var of *api.Report
			if strings.HasPrefix(run.Model, "team/") {
				view, err := c.at.Run(c, c.who, string(run.ID))
				if err != nil {
					return err
				}
				of, run.Content = view.Team, view.Content
			}
			if err := a.tellRun(c, w, c.who, run, *whole, of != nil); err != nil {
				return err
			}
			if of != nil {
				fmt.Fprintln(w)
				a.showTeam(w, of, run.Content, false)
			}
			a.ending(w, run)
			return nil
		})
	})
}

// tellRun prints the story of a run, as far as it was not pruned. team means that the answers of its agents
// are shown after it.
func (a *app) tellRun(ctx context.Context, w io.Writer, who toolcrib.Principal, run service.Run, whole, team bool,
) error {
	story := render.Story{Out: w, Style: a.outStyle, Whole: whole, Caller: run.Caller, Self: a.self(), Team: team}
	for e, err := range a.api.Journal(ctx, who, run.ID) {
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

// toContinue returns the command that continues a run of a driver.
func (a *app) toContinue(driver string, run toolcrib.RunID) string {
	if a.remote != nil {
		driver = "" // a server's own clients may resume its runs
	}
	return service.ToContinue(driver, toolcrib.RunID(short(run)), a.self())
}

// resumer returns the beginning of the commands that resume a run of a driver.
func (a *app) resumer(driver string) string {
	if a.remote != nil {
		return a.self()
	}
	return service.Resumer(driver, a.self())
}

// ending prints information about the end of a run that is not in the journal.
func (a *app) ending(w io.Writer, run service.Run) {
	text := ""
	switch p := run.Pending; {
	case run.PrunedAt != nil:
		text = "the content was pruned on " + minute(*run.PrunedAt)
	case run.Unreachable && (run.Interrupted || !run.Status.Parked() || run.Decided):
		text = "its workspace is in another folder of workspaces (" + run.Site + "), which no running server has; the run " +
			"continues when one does: start that server, or move the folder (docs/grow.md)"
	case run.Interrupted:
		text = "the run was interrupted; what is shown was done; " + a.toContinue(run.Driver, run.ID)
	case run.Status == toolcrib.StatusQueued && !run.Driven:
		text = "no process is running it; " + a.toContinue(run.Driver, run.ID)
	case run.Status == toolcrib.StatusWaitingForProvider && p != nil && p.Error != nil:
		text = fmt.Sprintf("waits for %s\nTo continue: %s", outageText(&p.Pending),
			strings.Join(a.outageCommands(&run), "\n      or: "))
	case run.Status == toolcrib.StatusWaitingForTool && p != nil:
		text = "waits " + render.WaitsFor(&p.Pending)
	case run.Status.Parked() && p != nil && !run.Driven && run.Decided:
		text = "what it waited for is decided; " + a.toContinue(run.Driver, run.ID)
	case run.Status.Parked() && p != nil:
		text = "waits for a decision on " + short(p.ApprovalID)
	case run.Content != "" && run.StopReason != toolcrib.StopCompleted:
		fmt.Fprintf(w, "\n%s\n%s\n", a.outStyle.Dim("the answer so far:"), guard.Visible(run.Content))
	}
	if text != "" {
		fmt.Fprintf(w, "\n%s %s\n", a.outStyle.Yellow("■"), text)
	}
}

func (a *app) runsEventsCommand(cmd *cobra.Command) {
	cmd.Flags().Bool("json", false, "")
	follow := cmd.Flags().Bool("follow", false, "")
	after := cmd.Flags().Uint64("after", 0, "")
	a.doing(cmd, a.reading, func(c call) error {
		return noSuch("runs", c.at.Events(c, c.who, c.arg(), toolcrib.Seq(*after), *follow, a.eventWriter(c.json)), c.arg())
	})
}

// eventWriter writes frames as NDJSON, or as one line each for people.
func (a *app) eventWriter(asJSON bool) func(journal.Frame) error {
	if asJSON {
		write := a.frameWriter()
		return func(f journal.Frame) error {
			write(f)
			return nil
		}
	}
	width := 0
	if a.outTerminal {
		width = a.outStyle.Width
	}
	return func(f journal.Frame) error {
		_, err := io.WriteString(a.out, render.Frame(f, width)+"\n")
		return err
	}
}

func (a *app) runsCancelCommand(cmd *cobra.Command) {
	a.answering(cmd, a.changing, func(c call) (any, func(), error) {
		ctx, stop := a.interruptible(c, agent.NameOf(c.who), a.err)
		defer stop()
		run, err := c.at.Cancel(ctx, c.who, c.arg())
		if err != nil {
			return nil, nil, noSuch("runs", err, c.arg())
		}
		text := fmt.Sprintf("run %s: %s", short(run.ID), run.Status)
		if run.Top != "" {
			part := fmt.Sprintf("it was part of run %s, which is told so when it continues; %s", run.Top,
				a.toContinue(run.Driver, run.Top))
			if c.json {
				a.note(part)
			}
			text += "\n" + part
		}
		return run, func() { fmt.Fprintln(a.out, shortIDs(text)) }, nil
	})
}

func (a *app) runsForkCommand(cmd *cobra.Command) {
	var f runFlags
	var q service.ForkRequest
	approveFlag(cmd, &f)
	flags := cmd.Flags()
	flags.Func("round", "", between(&q.Round, 1, math.MaxInt32))
	after := 0
	flags.Func("after", "", between(&after, 0, math.MaxInt32))
	outputFlags(cmd, &f)
	a.doing(cmd, nil, func(c call) (err error) {
		if q.Run, q.Admin = c.arg(), a.adminFlag; len(c.args) > 1 {
			q.Prompt, err = a.prompt(cmd, c.args[1:])
		}
		if flags.Changed("after") {
			q.Round = after + 1
		}
		format, wrong := f.format()
		if err = cmp.Or(err, wrong, oneOf(flags, "round", "after")); err == nil {
			c.at, c.who, err = a.opened(c, a.changing)
		}
		if err == nil {
			q.Approve, err = a.approval(&f)
		}
		if err != nil {
			return err
		}
		return a.show(c, format, c.who, q.Approve, func(ctx context.Context, front service.Front) (service.Run, error) {
			run, err := c.at.Fork(ctx, c.who, q, front)
			if run.ForkedFrom != "" && format != outputEvents {
				a.notice("run %s, forked from round %d of %s", run.ID, run.ForkedRound, run.ForkedFrom)
			}
			return run, noSuch("runs", err, c.arg())
		})
	})
}

func (a *app) runsPruneCommand(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	var r service.PruneRequest
	flags := cmd.Flags()
	olderThan := ""
	flags.Func("older-than", "", func(text string) error { olderThan = text; return span(&r.OlderThan)(text) })
	flags.BoolVar(&r.ContentOnly, "content", false, "")
	flags.BoolVar(&r.WithLater, "with-later", false, "")
	yes := flags.Bool("yes", false, "")
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		switch {
		case (len(c.args) > 0) == (olderThan != ""):
			return nil, nil, usagef("give runs, or --older-than")
		case r.WithLater && len(c.args) == 0:
			return nil, nil, usagef("--with-later: name the runs to remove")
		}
		r.Runs = c.args
		r.Agrees = func(runs int) error {
			return a.sure(*yes, pruneQuestion(runs, olderThan, r.ContentOnly), "nothing was removed")
		}
		s, who, err := a.opened(c, a.changing)
		if err != nil {
			return nil, nil, err
		}
		result, err := s.Prune(c, who, r)
		return result, func() { a.showPruned(&result, r.ContentOnly) }, a.endFirst(noSuch("runs", err, c.arg()))
	})
}

func pruneQuestion(runs int, span string, contentOnly bool) string {
	which := render.Count(runs, "run")
	if runs == 0 {
		which = "all runs that ended more than " + span + " ago"
	}
	if contentOnly {
		which = "the content of " + which
	}
	return "Remove " + which + " for good?"
}

func (a *app) showPruned(result *api.PruneResult, contentOnly bool) {
	what := "removed"
	if contentOnly {
		what = "emptied"
	}
	fmt.Fprintf(a.out, "%s %s: the content of %s and %s, %s bytes\n", render.Count(len(result.Runs), "run"), what,
		render.Count(result.Events, "event"), render.Count(result.Contents, "kept result"), render.Number(result.Bytes))
	if len(result.Runs) > 0 && !result.Wiped {
		a.notice("another process uses the database, or the disk is full: copies may stay in its file until the next pruning")
	}
}

// endFirst adds to a conflict with an unfinished run how to end that run.
func (a *app) endFirst(err error) error {
	var open *store.OpenRunError
	if !errors.As(err, &open) {
		return err
	}
	text := fmt.Sprintf("%s runs cancel %s", a.self(), open.Open)
	if open.Open != open.Run {
		text = fmt.Sprintf("%s runs resume %s, or %s", a.resumer(open.Driver), open.Open, text)
	}
	return toolcrib.Errorf(toolcrib.CodeOf(err), "%v: %s", err, text)
}

// keepNoLonger prunes a few runs that are past the configured retention, after a run. An error has
// nothing to do with the run, so it is only a notice.
func (a *app) keepNoLonger(ctx context.Context) {
	if a.remote != nil {
		return // pruning is left to the server
	}
	r, ok := a.service.Retention()
	if !ok {
		return
	}
	result, err := a.service.RetainSome(ctx, r)
	switch {
	case err != nil && ctx.Err() == nil:
		a.notice("retention: %v", err)
	case err == nil && len(result.Removed)+len(result.Emptied) > 0:
		text := fmt.Sprintf("%s removed, %d emptied", render.Count(len(result.Removed), "run"), len(result.Emptied))
		if result.More {
			text += ", and there are more"
		}
		a.notice("retention: %s", text)
	}
}
