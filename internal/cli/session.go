package cli

import (
	"context"
	"errors"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// findSession finds a session by its ID or the name that its user gave it. Another
// user's is found by administrators, by its ID.
func (a *app) findSession(ctx context.Context, s *sqlite.Store, name string) (store.SessionInfo, error) {
	who, err := a.principal(ctx)
	if err != nil {
		return store.SessionInfo{}, err
	}
	if name == "last" {
		return a.lastSession(ctx, s, who)
	}
	info, err := s.Session(ctx, who.User, name)
	if errors.Is(err, toolcrib.ErrNotFound) && who.Admin {
		info, err = s.Session(ctx, "", name)
	}
	if err == nil {
		var mine bool
		if mine, err = ownSession(ctx, s, &info); err == nil && !mine {
			err = toolcrib.ErrNotFound
		}
	}
	if errors.Is(err, toolcrib.ErrNotFound) {
		return store.SessionInfo{}, failedf("not found: there is no session %s; `toolcrib sessions list` shows what there is", name)
	}
	return info, err
}

func (a *app) lastSession(ctx context.Context, s *sqlite.Store, who toolcrib.Principal) (store.SessionInfo, error) {
	page, err := sessionsOf(ctx, s, store.SessionFilter{User: who.User, Limit: 1})
	if err == nil && len(page.Sessions) == 0 {
		err = failedf("not found: there is no session yet; `toolcrib run --session NAME` begins one")
	}
	if err != nil {
		return store.SessionInfo{}, err
	}
	return page.Sessions[0], nil
}

// joining is a session that a run is to be a part of.
type joining struct {
	name string            // as it was asked for
	info store.SessionInfo // ID "" = it is made with the run
}

// join finds the session of a run, before anything else is opened: a bad name and
// a busy session are told at once.
func (a *app) join(ctx context.Context, name string, who toolcrib.Principal) (*joining, error) {
	s, err := a.database(ctx)
	if err != nil {
		return nil, err
	}
	j := &joining{name: name}
	if name == "last" {
		j.info, err = a.lastSession(ctx, s, who)
	} else {
		j.info, err = s.Session(ctx, who.User, name)
	}
	if errors.Is(err, toolcrib.ErrNotFound) {
		if err := store.CheckSessionName(name); err != nil {
			return nil, usagef("--session: %v", err)
		}
		return j, nil
	}
	if err == nil {
		err = joinable(ctx, s, name, &j.info)
	}
	if err != nil {
		return nil, err
	}
	if j.info.Busy() {
		busy := &store.SessionBusyError{Session: j.info.ID, Run: j.info.LastRun, Status: j.info.Status}
		return nil, failedf("conflict: %v\nTo go on with it: %s runs resume %s", busy, a.self(), busy.Run)
	}
	return j, nil
}

// into makes the run of a task a part of the session: it goes on from what was said
// in it so far.
func (a *app) into(ctx context.Context, j *joining, task *agent.Task) error {
	if j.info.ID == "" {
		info, err := a.store.NewSession(ctx, task.Principal.User, j.name)
		if errors.Is(err, toolcrib.ErrConflict) { // another process was first
			if info, err = a.store.Session(ctx, task.Principal.User, j.name); err == nil {
				err = joinable(ctx, a.store, j.name, &info)
			}
		}
		if err != nil {
			return err
		}
		j.info = info
	}
	task.Session = j.info.ID
	last, err := a.store.LastRun(ctx, task.Principal.User, j.info.ID)
	if errors.Is(err, toolcrib.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	state, err := a.load(ctx, a.store, last.ID)
	if errors.Is(err, store.ErrPruned) {
		return failedf("session %s cannot go on: what was said in it was pruned; begin another one", j.name)
	}
	if err != nil {
		return err
	}
	task.History, task.Taint, task.Canary = state.Messages, state.Taint, state.Start.Canary
	return nil
}
