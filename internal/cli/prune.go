package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

type pruneFlags struct {
	olderThan                     string
	content, yes, json, retention bool
	withLater                     bool
}

func (a *app) runsPruneCommand() *cobra.Command {
	var f pruneFlags
	cmd := &cobra.Command{
		Use:   "prune RUN... | --older-than SPAN | --retention",
		Short: "Remove runs that have ended, or only their content",
		Long: "Remove runs that have ended, for good; with --content only what was said and done in them, while the run, its " +
			"cost and its hash chain stay. What was removed, and by whom, stands in the system journal. For administrators. " +
			"--retention does now what the configuration says under retention, which is done by and by after each run otherwise. " +
			"On a terminal it asks first. Later runs of the session, and forks, hold " +
			"the same transcript: --with-later takes them along. The run of a sub-agent is kept while a run above it has not ended. RUN is an ID, the beginning of one, or last.",
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
			case f.withLater && len(args) == 0:
				return usagef("--with-later: goes with runs")
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
	flags.BoolVar(&f.withLater, "with-later", false, "also the later runs of the session and the forks that hold the same transcript")
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	return cmd
}

func (a *app) prune(ctx context.Context, names []string, f *pruneFlags) error {
	by, err := a.administrator(ctx)
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
	if err := a.laterRuns(ctx, s, &o, f.withLater); err != nil {
		return err
	}
	if terminal := a.inTerminal && a.errTerminal; terminal && !f.yes && !a.confirm(pruneQuestion(o, f.olderThan)) {
		return fmt.Errorf("nothing was removed")
	}
	result, err := s.Prune(ctx, o)
	if errors.Is(err, toolcrib.ErrConflict) {
		return a.notPruned(ctx, s, o.Runs, err)
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

// notPruned tells which of the runs, or of those above them, has not ended yet, and
// how to end it.
func (a *app) notPruned(ctx context.Context, s *sqlite.Store, runs []toolcrib.RunID, err error) error {
	var above *store.RunAboveError
	if errors.As(err, &above) {
		return toolcrib.Errorf(toolcrib.CodeConflict, "nothing was removed: run %s is a part of run %s, which has not ended%s (%s) and goes on by it; resume that one, or cancel it, first: %s runs resume %s, or %s runs cancel %s",
			above.Run, above.Above, waitsFor(above.Status), above.Status, a.self(), above.Above, a.self(), above.Above)
	}
	for _, run := range runs {
		rec, missing := s.Run(ctx, run)
		if missing != nil || rec.Status.Ended() {
			continue
		}
		return toolcrib.Errorf(toolcrib.CodeConflict, "nothing was removed: run %s has not ended%s (%s); let it end, or cancel it first: %s runs cancel %s", run, waitsFor(rec.Status), rec.Status, a.self(), run)
	}
	return toolcrib.Errorf(toolcrib.CodeConflict, "nothing was removed: %s; let it end, or cancel it first", strings.TrimSuffix(err.Error(), ": "+toolcrib.ErrConflict.Error()))
}

// waitsFor adds to what is said of a run that has not ended what it waits for; "" = it
// does not.
func waitsFor(status toolcrib.Status) string {
	switch {
	case status == toolcrib.StatusWaitingForTool:
		return ": it waits for the result of a client's tool"
	case status == toolcrib.StatusWaitingForProvider:
		return ": it waits for its provider"
	case status.Parked():
		return ": it waits for a person"
	}
	return ""
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

// laterRuns finds the runs that hold the transcript of those that are to be pruned:
// it takes them along, or tells which they are.
func (a *app) laterRuns(ctx context.Context, s *sqlite.Store, o *store.PruneOptions, take bool) error {
	if len(o.Runs) == 0 {
		return nil
	}
	later, err := a.carriers(ctx, s, o.Runs)
	switch {
	case err != nil || len(later) == 0:
		return err
	case take:
		o.Runs = append(o.Runs, later...)
		return nil
	}
	shown := make([]string, 0, laterShown)
	for _, id := range later[:min(len(later), laterShown)] {
		shown = append(shown, string(id))
	}
	text := strings.Join(shown, ", ")
	if more := len(later) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	a.notice("what was said there stands also in the transcript of later runs: %s; --with-later takes them along", text)
	return nil
}

// laterShown is how many runs a notice names.
const laterShown = 10

// carriers are the runs that took over the transcript of these, or of one that did:
// later ones of the session, and forks; the oldest first.
func (a *app) carriers(ctx context.Context, s *sqlite.Store, runs []toolcrib.RunID) ([]toolcrib.RunID, error) {
	holds := map[toolcrib.RunID]bool{}
	for _, id := range runs {
		holds[id] = true
	}
	since := time.Now()
	for _, id := range runs {
		rec, err := s.Run(ctx, id)
		if err != nil {
			return nil, err
		}
		if rec.CreatedAt.Before(since) {
			since = rec.CreatedAt
		}
	}
	var newer []store.RunRecord // the newest first
	err := a.eachRun(ctx, store.Filter{Since: since}, func(rec store.RunRecord) error {
		newer = append(newer, rec)
		return nil
	})
	if err != nil {
		return nil, err
	}
	sessions := map[toolcrib.SessionID]bool{}
	var later []toolcrib.RunID
	for _, rec := range slices.Backward(newer) {
		carried := holds[rec.ID] || rec.Session != "" && sessions[rec.Session]
		if !carried && rec.PrunedAt.IsZero() {
			from, err := forkedFrom(ctx, s, rec.ID)
			if err != nil {
				return nil, err
			}
			carried = holds[from]
		}
		if !carried {
			continue
		}
		sessions[rec.Session] = true
		if !holds[rec.ID] && rec.PrunedAt.IsZero() {
			later = append(later, rec.ID)
		}
		holds[rec.ID] = true
	}
	return later, nil
}

// forkedFrom is the run that another began as a fork of; "" = of none, or its
// journal does not tell.
func forkedFrom(ctx context.Context, s *sqlite.Store, run toolcrib.RunID) (toolcrib.RunID, error) {
	for e, err := range s.Read(ctx, run, 0) {
		if err != nil {
			return "", ctx.Err()
		}
		if start, ok := e.Body.(*journal.RunStarted); ok {
			return start.ForkedFrom, nil
		}
		break
	}
	return "", nil
}
