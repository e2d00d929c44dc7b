package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// PruneRequest chooses runs to remove, or to remove the content of: named runs, or all that ended before a time.
type PruneRequest struct {
	Runs        []string // names as for [Service.FindRun]
	OlderThan   time.Duration
	ContentOnly bool
	// WithLater also chooses the runs that contain the transcript of the named ones: later runs of the session, and forks.
	// If it is not set, a notice reports them.
	WithLater bool
	// Agrees is called before anything is removed, with the number of named runs, which is 0 if runs are chosen by age. If
	// nil, the removal needs no confirmation.
	Agrees func(runs int) error
	Notice func(text string) // if nil, Options.Notice is used
}

// Prune removes runs that have ended, or their content, for administrators.
func (s *Service) Prune(
	ctx context.Context, who toolcrib.Principal, r PruneRequest,
) (result api.PruneResult, err error) {
	o := store.PruneOptions{ContentOnly: r.ContentOnly, OlderThan: r.OlderThan}
	if o.By, err = env.Administrator(who); err != nil {
		return result, err
	}
	for _, name := range r.Runs {
		rec, err := s.Env.Find(ctx, who, name)
		if err != nil {
			return result, err
		}
		o.Runs = append(o.Runs, rec.ID)
	}
	if err := o.Check(); err != nil {
		return result, toolcrib.Errorf(toolcrib.CodeBadRequest, "%v", err)
	}
	later, err := s.carriers(ctx, o.Runs)
	switch {
	case err != nil:
		return result, err
	case r.WithLater:
		o.Runs = append(o.Runs, later...)
	case len(later) > 0:
		tell := r.Notice
		if tell == nil {
			tell = s.Env.Notice
		}
		tell(laterText(later))
	}
	if r.Agrees != nil {
		if err := r.Agrees(len(o.Runs)); err != nil {
			return result, err
		}
	}
	result, err = s.Env.Store.Prune(ctx, o)
	if errors.Is(err, toolcrib.ErrConflict) {
		text := strings.TrimSuffix(err.Error(), ": "+toolcrib.ErrConflict.Error())
		err = &toolcrib.Error{Code: toolcrib.CodeConflict, Message: "nothing was removed: " + text, Err: err}
	}
	return result, err
}

// RemoveSession removes a session with all its runs, including those beside it, for administrators. r has the other
// settings.
func (s *Service) RemoveSession(
	ctx context.Context, who toolcrib.Principal, name string, r PruneRequest,
) (info store.SessionInfo, result api.PruneResult, err error) {
	if info, err = s.Session(ctx, who, name); err != nil {
		return info, result, err
	}
	by, err := env.Administrator(who)
	if err != nil {
		return info, result, err
	}
	r.Runs, r.OlderThan, r.ContentOnly = nil, 0, false
	for _, f := range []store.Filter{{Session: info.ID, TopLevel: true}, {Beside: info.ID}} {
		f.User = info.User
		for rec, failed := range s.Env.Each(ctx, f) {
			r.Runs, err = append(r.Runs, string(rec.ID)), cmp.Or(err, failed)
		}
	}
	switch {
	case err != nil:
	case len(r.Runs) > 0:
		result, err = s.Prune(ctx, who, r)
	case r.Agrees != nil:
		err = r.Agrees(0)
	}
	if err == nil {
		err = s.Env.Store.RemoveSession(ctx, info.User, info.ID, by)
	}
	return info, result, err
}

func laterText(later []toolcrib.RunID) string {
	const most = 10
	shown := make([]string, 0, most)
	for _, id := range later[:min(len(later), most)] {
		shown = append(shown, string(id))
	}
	text := strings.Join(shown, ", ")
	if more := len(later) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "what was said there is also in the transcript of later runs: " + text + "; --with-later takes them along"
}

// carriers returns the runs that contain the transcript of runs, directly or not: later ones of the session, and forks;
// oldest first.
func (s *Service) carriers(ctx context.Context, runs []toolcrib.RunID) (later []toolcrib.RunID, err error) {
	if len(runs) == 0 {
		return nil, nil
	}
	holds, since := map[toolcrib.RunID]bool{}, time.Now()
	for _, id := range runs {
		holds[id] = true
		rec, err := s.Env.Store.Run(ctx, id)
		if err != nil {
			return nil, err
		}
		if rec.CreatedAt.Before(since) {
			since = rec.CreatedAt
		}
	}
	var newer []store.RunRecord // newest first
	for rec, err := range s.Env.Each(ctx, store.Filter{Since: since}) {
		if err != nil {
			return nil, err
		}
		newer = append(newer, rec)
	}
	type of struct { // names of sessions belong to their users
		user    string
		session toolcrib.SessionID
	}
	sessions := map[of]bool{}
	for _, rec := range slices.Backward(newer) {
		carried := holds[rec.ID] || rec.Session != "" && sessions[of{rec.User, rec.Session}]
		if !carried && rec.PrunedAt.IsZero() {
			start, _ := s.startOf(ctx, rec.ID) // a run that cannot be read has no known origin
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			carried = start != nil && holds[start.ForkedFrom]
		}
		if !carried {
			continue
		}
		sessions[of{rec.User, rec.Session}] = true
		if !holds[rec.ID] && rec.PrunedAt.IsZero() {
			later = append(later, rec.ID)
		}
		holds[rec.ID] = true
	}
	return later, nil
}

// Retention returns how long the configuration keeps runs. ok is false if it keeps them forever.
func (s *Service) Retention() (store.Retention, bool) {
	c := &s.Env.Config.Retention
	return store.Retention{Runs: c.Runs.Std(), Content: c.Content.Std()}, c.Runs > 0 || c.Content > 0
}

// RetainSome prunes a few of the runs that r no longer keeps, after a run. They are so few that no user waits for it.
func (s *Service) RetainSome(ctx context.Context, r store.Retention) (store.RetentionResult, error) {
	r.Max = 50
	return s.Env.Store.ApplyRetention(ctx, r, time.Now())
}
