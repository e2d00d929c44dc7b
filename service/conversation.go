package service

import (
	"context"
	"errors"
	"io/fs"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
)

// Ready returns the agent of a request with its model, as a run would have it. It reports the errors of the
// configuration and of the request before a run begins.
func (s *Service) Ready(ctx context.Context, who toolcrib.Principal, r StartRequest) (toolcrib.Agent, error) {
	r.Session, r.Continue = "", false
	p, err := s.Prepare(ctx, who, r)
	if err != nil {
		return toolcrib.Agent{}, err
	}
	err = p.openModels()
	return p.Agent, err
}

// Undoable returns the files that a run and the runs below it wrote, with their content before. They would be put back
// in a workspace.
func (s *Service) Undoable(
	ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, workspace string,
) (list []api.Undo, err error) {
	rec, err := s.Env.Find(ctx, who, string(run))
	if err != nil || !rec.PrunedAt.IsZero() {
		return nil, err
	}
	files, err := s.WrittenBy(ctx, who, run)
	if err != nil {
		return nil, err
	}
	for _, w := range files {
		now, err := fileInWorkspace(rec.Workspace, w.Path)
		hash := contentHash(now)
		if errors.Is(err, fs.ErrNotExist) {
			hash, err = "", nil
		}
		u := api.Undo{Path: w.Path, Made: w.Before == ""}
		switch {
		case w.Before == w.After, hash == w.Before && err == nil, u.Made && err == nil && len(now) == 0 && hash != w.After:
			continue // unchanged since before the run, or emptied since
		case err != nil:
			u.Problem = w.Path + " cannot be read now, so it was not changed"
		case rec.Workspace != workspace:
			u.Problem = w.Path + " was written in another workspace, " + rec.Workspace + "; it is left as it is"
		case hash != w.After:
			u.Problem = w.Path + " has changed since; it is left as it is"
		case !u.Made:
			u.Content, u.Problem, err = s.before(ctx, w)
		}
		if err != nil && u.Problem == "" {
			return nil, err
		}
		list = append(list, u)
	}
	return list, nil
}

// RemoveMade removes a file that a run made and that another run, of one call, has just emptied.
func (s *Service) RemoveMade(
	ctx context.Context, who toolcrib.Principal, run toolcrib.RunID, path string, by toolcrib.RunID,
) error {
	files, err := s.WrittenBy(ctx, who, run)
	if err != nil {
		return err
	}
	made, err := s.Env.Find(ctx, who, string(run))
	if err != nil {
		return err
	}
	rec, err := s.Env.Find(ctx, who, string(by))
	if err != nil {
		return err
	}
	if rec.Workspace != made.Workspace {
		return errChanged
	}
	state, err := agent.Load(ctx, s.Env.Store, rec.ID)
	if err != nil {
		return err
	}
	for _, w := range files {
		if w.Path == path && w.Before == "" && len(state.Trace) > 0 {
			return w.Remove(rec.Workspace, state.Trace[0].Started)
		}
	}
	return errChanged
}
