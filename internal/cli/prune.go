package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) runsPruneCommand(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	var r service.PruneRequest
	flags := cmd.Flags()
	olderThan := ""
	flags.Func("older-than", "", func(text string) error { olderThan = text; return span(&r.OlderThan)(text) })
	retention := flags.Bool("retention", false, "")
	flags.BoolVar(&r.ContentOnly, "content", false, "")
	flags.BoolVar(&r.WithLater, "with-later", false, "")
	yes := flags.Bool("yes", false, "")
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		ways := 0
		for _, given := range []bool{len(c.args) > 0, flags.Changed("older-than"), *retention} {
			if given {
				ways++
			}
		}
		switch {
		case ways != 1:
			return nil, nil, usagef("give runs, or --older-than, or --retention")
		case r.WithLater && len(c.args) == 0:
			return nil, nil, usagef("--with-later: name the runs to remove")
		case *retention && r.ContentOnly:
			return nil, nil, usagef("--content: cannot be combined with --retention, which follows the configuration")
		case *retention:
			return a.pruneByPolicy(c, *yes)
		}
		r.Runs = c.args
		r.Agrees = func(runs int) error {
			return a.sure(*yes, pruneQuestion(runs, olderThan, r.ContentOnly), "nothing was removed")
		}
		s, who, err := a.changing(c)
		if err != nil {
			return nil, nil, err
		}
		result, err := s.Prune(c, who, r)
		return result, func() { a.showPruned(&result, r.ContentOnly) }, a.endFirst(noRun(err, c.arg()))
	})
}

func pruneQuestion(runs int, span string, contentOnly bool) string {
	which := render.Count(runs, "run")
	if runs == 0 {
		which = "all runs that ended more than " + span + " ago"
	}
	if contentOnly {
		return "Remove the content of " + which + " for good?"
	}
	return "Remove " + which + " for good?"
}

func (a *app) showPruned(result *store.PruneResult, contentOnly bool) {
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

// endFirst adds to a conflict with a run that has not ended how to end it.
func (a *app) endFirst(err error) error {
	var open *service.OpenRunError
	if !errors.As(err, &open) {
		return err
	}
	text := fmt.Sprintf("%s runs cancel %s", a.self(), open.Open)
	if open.Open != open.Run {
		text = fmt.Sprintf("%s runs resume %s, or %s", a.self(), open.Open, text)
	}
	return toolcrib.Errorf(toolcrib.CodeOf(err), "%v: %s", err, text)
}

// keepNoLonger prunes, behind a run, a few of those that the configuration keeps no
// longer. What fails here has nothing to do with the run: it is a notice, no more.
func (a *app) keepNoLonger(ctx context.Context) {
	if a.remote != nil {
		return // it is the server's to keep
	}
	r, ok := a.service.Retention()
	if !ok {
		return
	}
	result, err := a.service.RetainSome(ctx, r)
	switch text := retentionText(result); {
	case err != nil && ctx.Err() == nil:
		a.notice("retention: %v", err)
	case err == nil && text != "":
		a.notice("retention: %s", text)
	}
}

// retentionText says what was pruned; "" = nothing.
func retentionText(r store.RetentionResult) string {
	text := ""
	switch {
	case len(r.Removed) == 0 && len(r.Emptied) == 0:
		return ""
	case len(r.Emptied) == 0:
		text = render.Count(len(r.Removed), "run") + " removed"
	case len(r.Removed) == 0:
		text = render.Count(len(r.Emptied), "run") + " emptied"
	default:
		text = fmt.Sprintf("%s removed, %d emptied", render.Count(len(r.Removed), "run"), len(r.Emptied))
	}
	if r.More {
		text += ", and there are more"
	}
	return text
}

// pruneByPolicy prunes all that the configuration keeps no longer.
func (a *app) pruneByPolicy(ctx context.Context, yes bool) (any, func(), error) {
	if _, err := a.administering(ctx); err != nil {
		return nil, nil, err
	}
	known, err := a.svc()
	if err != nil {
		return nil, nil, err
	}
	r, ok := known.Retention()
	if !ok {
		return nil, nil, usagef("--retention: the configuration keeps everything; set retention.runs or " +
			"retention.content, or give --older-than")
	}
	s, who, err := a.changing(ctx)
	if err == nil {
		err = a.sure(yes, "Remove for good what the configuration keeps no longer?", "nothing was removed")
	}
	if err != nil {
		return nil, nil, err
	}
	all, err := s.Retain(ctx, who, r)
	return all, func() {
		text := retentionText(all)
		if text == "" {
			text = "nothing is that old"
		}
		fmt.Fprintln(a.out, text)
	}, err
}
