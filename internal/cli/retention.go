package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/store"
)

// retentionBatch is how many runs are pruned behind a run: so few that nobody
// waits for it.
const retentionBatch = 50

// policyOf is what the configuration says about how long runs are kept; false = for
// ever.
func policyOf(c *config.Config) (store.Retention, bool) {
	r := store.Retention{Runs: c.Retention.Runs.Std(), Content: c.Retention.Content.Std()}
	return r, r.Runs > 0 || r.Content > 0
}

// keepNoLonger prunes, behind a run, a few of those that the configuration keeps no
// longer. What fails here has nothing to do with the run: it is told, no more.
func (a *app) keepNoLonger(ctx context.Context, c *config.Config) {
	r, ok := policyOf(c)
	if !ok {
		return
	}
	r.Max = retentionBatch
	result, err := a.store.ApplyRetention(ctx, r, time.Now())
	if err != nil {
		if ctx.Err() == nil {
			a.notice("retention: %v", err)
		}
		return
	}
	if text := retentionText(result); text != "" {
		a.notice("retention: %s", text)
	}
}

// retentionText tells what was pruned; "" = nothing.
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
func (a *app) pruneByPolicy(ctx context.Context, f *pruneFlags) error {
	by, err := a.administrator(ctx)
	if err != nil {
		return err
	}
	c, err := a.configuration()
	if err != nil {
		return err
	}
	r, ok := policyOf(c)
	if !ok {
		return usagef("--retention: the configuration keeps everything; set retention.runs or retention.content, or give --older-than")
	}
	s, err := a.database(ctx)
	if err != nil {
		return err
	}
	const question = "Remove for good what the configuration keeps no longer?"
	if a.inTerminal && a.errTerminal && !f.yes && !a.confirm(question) {
		return fmt.Errorf("nothing was removed")
	}
	r.By = by
	var all store.RetentionResult
	for more := true; more; {
		result, err := s.ApplyRetention(ctx, r, time.Now())
		all.Removed, all.Emptied = append(all.Removed, result.Removed...), append(all.Emptied, result.Emptied...)
		all.Sessions = append(all.Sessions, result.Sessions...)
		all.Contents, all.Bytes = all.Contents+result.Contents, all.Bytes+result.Bytes
		if err != nil {
			return err
		}
		more = result.More
	}
	if f.json {
		return printJSON(a.out, all, true)
	}
	text := retentionText(all)
	if text == "" {
		text = "nothing is that old"
	}
	fmt.Fprintln(a.out, text)
	return nil
}
