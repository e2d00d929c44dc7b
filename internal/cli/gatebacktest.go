package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

// backtestRuns is how many runs a backtest looks at unless it is told otherwise.
const backtestRuns = 1000

// The values of --fail-on.
const (
	failWidened = "widened"
	failChanged = "changed"
)

// backtestFlags are the flags of gate backtest.
type backtestFlags struct {
	since, until     string
	user, agent, run string
	limit            int
	failOn           string
	json             bool
}

func (a *app) gateBacktestCommand() *cobra.Command {
	var f backtestFlags
	cmd := &cobra.Command{
		Use:   "backtest",
		Short: "Tell what another policy would have decided about the calls of stored runs",
		Long: "Go through the stored runs, the newest first, and judge each call anew under the configuration, or with --config under " +
			"another one. Each call that would be decided otherwise is told, with the file and line that decide now: wider (refused " +
			"then, asked or allowed now; asked then, allowed now), narrower, or the same for another reason. Only the configuration is " +
			"exchanged: users, what was switched off, what a run had read, what people decided are as they were. Nothing runs, and " +
			"nothing is kept. For administrators. docs/backtest.md tells what cannot be judged. Exit status: 0 done, with --fail-on 1 if there " +
			"are such calls, if tools would be offered that were not, or if no call was judged.",
		Example: `toolcrib gate backtest
toolcrib gate backtest --config new.yaml --since 30d
toolcrib gate backtest --config new.yaml --fail-on widened
toolcrib gate backtest --config new.yaml --run last --json`,
		Args: positional,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.backtest(cmd.Context(), &f, cmd.Flags()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "runs that began then or later: a span such as 24h or 7d, a date, or a time (RFC 3339)")
	flags.StringVar(&f.until, "until", "", "runs that began before, written as --since")
	flags.StringVar(&f.user, "user", "", "runs of this user")
	flags.StringVar(&f.agent, "agent", "", "runs of this agent")
	flags.StringVar(&f.run, "run", "", "one run: its ID, the beginning of one, or last")
	flags.IntVar(&f.limit, "limit", backtestRuns, "look at so many runs at most; 0 = all")
	flags.StringVar(&f.failOn, "fail-on", "", "exit 1 if a call is decided, or a tool is offered, otherwise: widened, or changed in any way; or if no call was judged")
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	// The flag was just made, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions([]string{failWidened, failChanged}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// filter is which runs are looked at; until zero = to the newest.
func (f *backtestFlags) filter(flags *pflag.FlagSet, now time.Time) (filter store.Filter, until time.Time, err error) {
	filter = store.Filter{User: f.user, Agent: f.agent}
	switch {
	case f.failOn != "" && f.failOn != failWidened && f.failOn != failChanged:
		return filter, until, usagef("--fail-on: must be %s or %s, not %q", failWidened, failChanged, f.failOn)
	case f.limit < 0:
		return filter, until, usagef("--limit: must be 1 or more, or 0 for all")
	case f.run == "" && flags.Changed("run"):
		return filter, until, usagef("--run: must name a run")
	case f.run != "" && (f.since != "" || f.until != "" || f.user != "" || f.agent != "" || flags.Changed("limit")):
		return filter, until, usagef("--run: stands alone; the other filters are about many runs")
	}
	if filter.Since, err = timeFlag("since", f.since, now); err == nil {
		until, err = timeFlag("until", f.until, now)
	}
	if err == nil && !until.IsZero() && !filter.Since.Before(until) {
		err = usagef("--until: must come after --since")
	}
	return filter, until, err
}

// backtest judges the stored calls anew.
func (a *app) backtest(ctx context.Context, f *backtestFlags, flags *pflag.FlagSet) error {
	filter, until, err := f.filter(flags, time.Now())
	if err != nil {
		return err
	}
	if _, err := a.administrator(ctx); err != nil {
		return err
	}
	b, err := a.newBacktesting(ctx)
	if err != nil {
		return err
	}
	show := newBacktestView(a, b.c.File(), f)
	defer show.progressed()
	if f.run != "" {
		rec, err := a.findRun(ctx, b.s, f.run)
		if err != nil {
			return err
		}
		err = b.one(ctx, rec, show)
		if err != nil {
			return err
		}
		return show.end()
	}
	who, err := a.principal(ctx)
	if err != nil {
		return err
	}
	err = a.service.EachRun(ctx, who, filter, func(rec store.RunRecord) error {
		switch {
		case !until.IsZero() && !rec.CreatedAt.Before(until):
			return nil
		case f.limit > 0 && show.Summary.Runs == f.limit:
			show.Summary.More = true
			return service.ErrEnough
		}
		return b.one(ctx, rec, show)
	})
	if err != nil {
		return err
	}
	return show.end()
}

// one judges the calls of one run anew. A run that cannot be read is told, and the
// others are looked at all the same.
func (b *backtesting) one(ctx context.Context, rec store.RunRecord, show *backtestView) error {
	show.begin(&rec)
	if !rec.PrunedAt.IsZero() {
		show.Summary.Pruned++
		return nil
	}
	walk := agent.Backtest{Terms: b.terms, At: b.switches.at, Missing: policyTakesNot}
	err := walk.Run(ctx, b.s, rec.ID, agent.Rejudging{Call: show.call, Offer: show.offer})
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case b.failed != nil:
		return b.failed
	case errors.Is(err, store.ErrPruned):
		show.Summary.Pruned++
	default:
		show.damaged(rec.ID, err)
	}
	return nil
}

// ofContract are the built-in tools that are there or not as the configuration says
// (contract §11). That one of them is missing is the policy's doing; any other tool
// came from elsewhere, and what it would have been asked cannot be told.
func ofContract() []string {
	return []string{"exec_shell", "web_fetch", "web_search", "message", "describe_tables"}
}

func policyTakesNot(tool string) bool { return !slices.Contains(ofContract(), tool) }
