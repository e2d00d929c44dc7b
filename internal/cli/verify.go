package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/replay"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// checkedView is what was found out about one run, or about everything.
type checkedView struct {
	Run    toolcrib.RunID `json:"run_id"` // "" = everything, or a file
	File   string         `json:"file,omitempty"`
	OK     bool           `json:"ok"`
	Found  any            `json:"found,omitempty"` // store.Verified, store.VerifiedAll or replay.Report
	Detail string         `json:"detail"`
}

// checking is a command that checks runs one by one.
type checking struct {
	use, short, long string
	// run checks one run; text says in words what was found.
	run func(ctx context.Context, s *sqlite.Store, run toolcrib.RunID) (found any, text string, err error)
	// all checks everything that is stored.
	all func(ctx context.Context, s *sqlite.Store) ([]checkedView, error)
}

func (a *app) verifying() checking {
	return checking{
		use: "verify", short: "Check the hash chains: that nothing stored was changed",
		run: func(ctx context.Context, s *sqlite.Store, run toolcrib.RunID) (any, string, error) {
			v, err := s.Verify(ctx, run)
			if err == nil {
				_, err = s.VerifySystem(ctx)
			}
			return v, fmt.Sprintf("%s, %s%s%s", render.Count(v.Events, "event"), render.Count(v.Anchors, "anchor"), sealedText(v), prunedText(v.Pruned)), err
		},
		all: a.verifyAll,
	}
}

// sealedText says how far the seal of a run reaches where that is not to its end.
func sealedText(v store.Verified) string {
	if later := v.Events - int(v.Sealed); later > 0 {
		return fmt.Sprintf(", sealed to event %d (%d later: they cannot be changed, but lost as by a loss of power)", v.Sealed, later)
	}
	return ", sealed to its end"
}

func prunedText(events int) string {
	if events == 0 {
		return ""
	}
	return fmt.Sprintf(", the content of %d events was pruned", events)
}

// verifyAll checks the whole store. It is for administrators: what is wrong names
// runs of everybody.
func (a *app) verifyAll(ctx context.Context, s *sqlite.Store) ([]checkedView, error) {
	if _, err := a.administrator(ctx); err != nil {
		return nil, err
	}
	all, err := s.VerifyAll(ctx)
	if err == nil {
		err = s.Check(ctx) // no chain reads the pages of indexes
	}
	if err != nil && len(all.Problems) == 0 {
		return nil, err
	}
	var out []checkedView
	for _, p := range all.Problems {
		out = append(out, checked(p.Run, p, "", p))
	}
	if all.More {
		out = append(out, checked("", nil, "", errors.New("there are more problems than these")))
	}
	if err == nil {
		text := fmt.Sprintf("%s, %s%s; removed before: %s; the system journal: %s",
			render.Count(all.Runs, "run"), render.Count(all.Events, "event"), prunedText(all.Pruned),
			render.Count(all.Removed, "run"), render.Count(all.System.Events, "event"))
		if all.System.Adopted > 0 {
			text += fmt.Sprintf(", of which those before event %d were accepted as they were", all.System.Adopted)
		}
		out = append(out, checked("", all, text, nil))
	}
	return out, nil
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
			if errors.Is(err, store.ErrPruned) {
				return nil, "", fmt.Errorf("run %s cannot be replayed: its content was pruned", run)
			}
			return r, replayedText(r), err
		},
		all: a.replayAll,
	})
}

// replayAll replays every run that has its content.
func (a *app) replayAll(ctx context.Context, s *sqlite.Store) ([]checkedView, error) {
	var out []checkedView
	err := a.eachRun(ctx, store.Filter{}, func(rec store.RunRecord) error {
		if !rec.PrunedAt.IsZero() {
			return nil
		}
		r, err := replay.Run(ctx, s, rec.ID)
		out = append(out, checked(rec.ID, r, replayedText(r), err))
		return ctx.Err()
	})
	return out, err
}

func replayedText(r replay.Report) string {
	return fmt.Sprintf("%d events, %s the same (%s)", r.Events, render.Count(r.Requests, "request"), r.Status)
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
	if len(args) == 0 {
		views, err := c.all(ctx, s)
		if err != nil {
			return err
		}
		return a.tellChecked(views, asJSON, false)
	}
	rec, err := a.findRun(ctx, s, args[0])
	if err != nil {
		return err
	}
	found, text, err := c.run(ctx, s, rec.ID)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return a.tellChecked([]checkedView{checked(rec.ID, found, text, err)}, asJSON, false)
}

// tellChecked tells what holds and what does not; the exit code says whether all
// does. toErr tells it on standard error, because something else is the output.
func (a *app) tellChecked(views []checkedView, asJSON, toErr bool) error {
	broken := 0
	var out io.Writer = a.out
	if toErr {
		out = a.err
	}
	for _, v := range views {
		if !v.OK {
			broken++
		}
		switch {
		case asJSON:
		case v.OK:
			name := cmp.Or(string(v.Run), pathText(v.File), "everything")
			fmt.Fprintf(out, "%s %s: %s\n", a.outStyle.Green("✓"), name, v.Detail)
		default:
			a.complain(v.Detail)
		}
	}
	if asJSON {
		if err := printJSON(a.out, append([]checkedView{}, views...), true); err != nil {
			return err
		}
	}
	if broken > 0 {
		return silent(exitFailed)
	}
	return nil
}

// eachRun calls do for all runs that fit and that the principal may see, newest first.
func (a *app) eachRun(ctx context.Context, f store.Filter, do func(store.RunRecord) error) error {
	who, err := a.principal(ctx)
	if err != nil {
		return err
	}
	return a.service.EachRun(ctx, who, f, do)
}
