package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/replay"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// checkedView is what was found out about one run.
type checkedView struct {
	Run    toolcrib.RunID `json:"run_id"`
	OK     bool           `json:"ok"`
	Found  any            `json:"found,omitempty"` // store.Verified or replay.Report
	Detail string         `json:"detail"`
}

// checking is a command that checks runs one by one.
type checking struct {
	use, short, long string
	// run checks one run; text says in words what was found.
	run func(ctx context.Context, s *sqlite.Store, run toolcrib.RunID) (found any, text string, err error)
	// whole checks what belongs to no run; nil = nothing.
	whole func(ctx context.Context, s *sqlite.Store, all bool) []checkedView
}

func (a *app) runsVerifyCommand() *cobra.Command {
	return a.checkCommand(checking{
		use: "verify", short: "Check the hash chains: that nothing stored was changed",
		long: "Check the hash chain of a run, or with --all of every run, against its events, its anchors in the system " +
			"journal, and that journal's own chain. What was changed, removed, reordered or cut is named. " +
			"A whole database put back to an older copy does not show.",
		run: func(ctx context.Context, s *sqlite.Store, run toolcrib.RunID) (any, string, error) {
			v, err := s.Verify(ctx, run)
			return v, fmt.Sprintf("%d events, %d anchors%s", v.Events, v.Anchors, prunedText(v)), err
		},
		whole: verifySystem,
	})
}

func prunedText(v store.Verified) string {
	if v.Pruned == 0 {
		return ""
	}
	return fmt.Sprintf(", the content of %d events was pruned", v.Pruned)
}

// verifySystem checks the system journal, and with all that each run that has an
// anchor there still exists.
func verifySystem(ctx context.Context, s *sqlite.Store, all bool) []checkedView {
	v, err := s.VerifySystem(ctx)
	out := []checkedView{checked(store.SystemChain, v, fmt.Sprintf("%d events, %d anchors", v.Events, v.Anchors), err)}
	if !all {
		return out
	}
	seen := map[toolcrib.RunID]bool{}
	for e, err := range s.ReadSystem(ctx, 0) {
		var anchor store.Anchor
		if err != nil || e.Kind != store.SystemAnchor || json.Unmarshal(e.Payload, &anchor) != nil || seen[anchor.Run] {
			continue // what cannot be read was told above
		}
		seen[anchor.Run] = true
		if _, err := s.Run(ctx, anchor.Run); errors.Is(err, toolcrib.ErrNotFound) {
			out = append(out, checked(anchor.Run, nil, "", fmt.Errorf(
				"run %s is gone: the system journal has an anchor of its event %d, but nothing of it is stored", anchor.Run, anchor.Seq)))
		}
	}
	return out
}

func checked(run toolcrib.RunID, found any, text string, err error) checkedView {
	if err != nil {
		return checkedView{Run: run, Detail: err.Error()}
	}
	return checkedView{Run: run, OK: true, Found: found, Detail: text}
}

func (a *app) runsReplayCommand() *cobra.Command {
	return a.checkCommand(checking{
		use: "replay", short: "Go through a run again, with no model and no tool called",
		long: "Go through the journal of a run again, or with --all of every run: each step that the loop takes and each " +
			"request that it would send must come out as it was. No model and no tool is called.",
		run: func(ctx context.Context, s *sqlite.Store, run toolcrib.RunID) (any, string, error) {
			r, err := replay.Run(ctx, s, run)
			return r, fmt.Sprintf("%d events, %d requests come out the same (%s)", r.Events, r.Requests, r.Status), err
		},
	})
}

func (a *app) checkCommand(c checking) *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:     c.use + " [RUN]",
		Short:   c.short,
		Long:    c.long + " RUN is an ID, the beginning of one, or last.",
		Example: fmt.Sprintf("toolcrib runs %s last\ntoolcrib runs %s --all", c.use, c.use),
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) == 1) || len(args) > 1 {
				return usagef("give one run, or --all")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.check(cmd.Context(), c, args, asJSON)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "every run that is stored")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

// check checks the runs and tells what was found of each.
func (a *app) check(ctx context.Context, c checking, args []string, asJSON bool) error {
	s, err := a.databaseToRead(ctx)
	if err != nil {
		return err
	}
	views := []checkedView{}
	one := func(rec store.RunRecord) error {
		found, text, err := c.run(ctx, s, rec.ID)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		views = append(views, checked(rec.ID, found, text, err))
		return nil
	}
	if len(args) == 1 {
		rec, err := a.findRun(ctx, s, args[0])
		if err != nil {
			return err
		}
		err = one(rec)
		if err != nil {
			return err
		}
	} else if err := a.eachRun(ctx, s, store.Filter{}, one); err != nil {
		return err
	}
	if c.whole != nil {
		views = append(views, c.whole(ctx, s, len(args) == 0)...)
	}
	return a.tellChecked(views, asJSON)
}

// tellChecked tells what holds and what does not; the exit code says whether all
// does.
func (a *app) tellChecked(views []checkedView, asJSON bool) error {
	broken := 0
	for _, v := range views {
		if !v.OK {
			broken++
		}
		switch {
		case asJSON:
		case v.OK:
			fmt.Fprintf(a.out, "%s %s: %s\n", a.outStyle.Green("✓"), v.Run, v.Detail)
		default:
			a.complain(v.Detail)
		}
	}
	if asJSON {
		if err := printJSON(a.out, views, true); err != nil {
			return err
		}
	}
	if broken > 0 {
		return silent(exitFailed)
	}
	return nil
}

// eachRun goes through all runs that fit and that the principal may see, newest
// first.
func (a *app) eachRun(ctx context.Context, s *sqlite.Store, f store.Filter, do func(store.RunRecord) error) error {
	who, err := a.principal()
	if err != nil {
		return err
	}
	if !who.Admin {
		f.User = who.User
	}
	for f.Limit = store.MaxLimit; ; {
		page, err := s.Runs(ctx, f)
		if err != nil {
			return err
		}
		for _, rec := range page.Runs {
			if err := do(rec); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		f.Cursor = page.Next
	}
}
