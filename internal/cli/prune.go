package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/store"
)

type pruneFlags struct {
	olderThan                     string
	content, yes, json, retention bool
}

func (a *app) runsPruneCommand() *cobra.Command {
	var f pruneFlags
	cmd := &cobra.Command{
		Use:   "prune RUN... | --older-than SPAN | --retention",
		Short: "Remove runs that have ended, or only their content",
		Long: "Remove runs that have ended, for good; with --content only what was said and done in them, while the run, its " +
			"cost and its hash chain stay. What was removed, and by whom, stands in the system journal. For administrators. " +
			"--retention does now what the configuration says under retention, which is done by and by after each run otherwise. " +
			"On a terminal it asks first. RUN is an ID, the beginning of one, or last.",
		Example: "toolcrib runs prune run_01K\ntoolcrib runs prune --older-than 90d --content\ntoolcrib runs prune --retention",
		RunE: func(cmd *cobra.Command, args []string) error {
			ways := 0
			for _, given := range []bool{len(args) > 0, cmd.Flags().Changed("older-than"), f.retention} {
				if given {
					ways++
				}
			}
			switch {
			case ways != 1:
				return usagef("give runs, or --older-than, or --retention")
			case f.retention && f.content:
				return usagef("--content: the configuration says what --retention keeps")
			case f.retention:
				return a.pruneByPolicy(cmd.Context(), &f)
			}
			return a.prune(cmd.Context(), args, &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.olderThan, "older-than", "", "all runs that ended longer ago, such as 30d or 12h")
	flags.BoolVar(&f.retention, "retention", false, "what the configuration keeps no longer (retention.runs, retention.content)")
	flags.BoolVar(&f.content, "content", false, "only the content; the run, its cost and its chain stay")
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	return cmd
}

func (a *app) prune(ctx context.Context, names []string, f *pruneFlags) error {
	by, err := a.administrator()
	if err != nil {
		return err
	}
	o := store.PruneOptions{ContentOnly: f.content, By: by}
	if len(names) == 0 {
		now := time.Now()
		before, err := parseSince(f.olderThan, now)
		if err != nil || !before.Before(now) {
			return usagef("--older-than: must be a span such as 30d or 12h, not %q", f.olderThan)
		}
		o.OlderThan = now.Sub(before)
	}
	s, err := a.database(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		rec, err := a.findRun(ctx, s, name)
		if err != nil {
			return err
		}
		o.Runs = append(o.Runs, rec.ID)
	}
	if a.inTerminal && a.errTerminal && !f.yes && !a.confirm(pruneQuestion(o, f.olderThan)) {
		return failedf("nothing was removed")
	}
	result, err := s.Prune(ctx, o)
	if errors.Is(err, toolcrib.ErrConflict) {
		return failedf("conflict: %v; let it end, or cancel it first", err)
	}
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(a.out, result, true)
	}
	what := "removed"
	if f.content {
		what = "emptied"
	}
	fmt.Fprintf(a.out, "%s %s: the content of %s and %s, %s bytes\n", render.Count(len(result.Runs), "run"), what,
		render.Count(result.Events, "event"), render.Count(result.Contents, "kept result"), render.Number(result.Bytes))
	if len(result.Runs) > 0 && !result.Wiped {
		a.notice("another process uses the database, or the disk is full: copies may stay in its file until the next pruning")
	}
	return nil
}

func pruneQuestion(o store.PruneOptions, span string) string {
	which := render.Count(len(o.Runs), "run")
	if len(o.Runs) == 0 {
		which = "all runs that ended more than " + span + " ago"
	}
	if o.ContentOnly {
		return "Remove the content of " + which + " for good?"
	}
	return "Remove " + which + " for good?"
}
