package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/store"
)

// findSession finds a session by its ID, the name that its user gave it, or as last.
func (a *app) findSession(ctx context.Context, name string) (store.SessionInfo, error) {
	who, err := a.principal(ctx)
	if err != nil {
		return store.SessionInfo{}, err
	}
	info, err := a.service.Session(ctx, who, name)
	if name == "last" && toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
		return info, hint(err, "", "`toolcrib run --session NAME` begins one")
	}
	return info, hint(err, name, "`toolcrib sessions list` shows what there is")
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
		j.info, err = a.findSession(ctx, name)
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
		err = a.service.Joinable(ctx, who, name, &j.info)
	}
	if err != nil {
		return nil, err
	}
	if j.info.Busy() {
		return nil, a.sessionBusy(&j.info)
	}
	return j, nil
}

// sessionBusy says which run keeps a session busy, and what to do about it: one that a
// process drives ends by itself, or is cancelled.
func (a *app) sessionBusy(info *store.SessionInfo) error {
	locks := a.service.Drivers
	run := info.LastRun
	if info.Status == toolcrib.StatusRunning && locks.Driven(run) {
		return toolcrib.Errorf(toolcrib.CodeConflict, "session %s is in use: %s drives run %s; wait for its end, or end it: %s runs cancel %s",
			info.ID, locks.Process(run), run, a.self(), run)
	}
	busy := &store.SessionBusyError{Session: info.ID, Run: run, Status: info.Status}
	return toolcrib.Errorf(toolcrib.CodeConflict, "%v\nTo go on with it: %s runs resume %s", busy, a.self(), run)
}

// into makes the run of a task a part of the session: it goes on from what was said
// in it so far.
func (a *app) into(ctx context.Context, j *joining, task *agent.Task) error {
	if j.info.ID == "" {
		info, err := a.store.NewSession(ctx, task.Principal.User, j.name)
		if errors.Is(err, toolcrib.ErrConflict) { // another process was first
			if info, err = a.store.Session(ctx, task.Principal.User, j.name); err == nil {
				err = a.service.Joinable(ctx, task.Principal, j.name, &info)
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
		return fmt.Errorf("session %s cannot go on: what was said in it was pruned; begin another one", j.name)
	}
	if err != nil {
		return err
	}
	task.History, task.Taint, task.Canary = state.Messages, state.Taint, state.Start.Canary
	return nil
}
