package service

import (
	"context"
	"errors"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
)

// Cancel ends a run, and returns it as [Service.FindRun] does. If another process drives the run, Cancel asks that
// process to end it and waits until it has ended.
func (s *Service) Cancel(ctx context.Context, who toolcrib.Principal, name string) (Run, error) {
	rec, err := s.Env.Find(ctx, who, name)
	if err != nil {
		return Run{}, err
	}
	if rec.Status.Ended() {
		return Run{}, toolcrib.Errorf(toolcrib.CodeConflict, "run %s (%s) has ended; there is nothing to cancel", rec.ID,
			rec.Status)
	}
	leave, err := s.Drivers.Take(ctx, rec.ID, nil)
	switch {
	case err == nil:
		defer leave()
		err = s.cancelHere(ctx, rec, agent.CancelBy(who))
	case !errors.Is(err, store.ErrLeased):
	case rec.Parent != "":
		err = toolcrib.Errorf(toolcrib.CodeConflict, "run %s is part of run %s; cancel that one", rec.ID, rec.Parent)
	default:
		err = s.cancelThere(ctx, rec, agent.CancelBy(who))
	}
	if err == nil {
		rec, err = s.Env.Store.Run(ctx, rec.ID)
	}
	if err != nil {
		return Run{}, err
	}
	return s.withRelated(ctx, who, rec), nil
}

// cancelHere ends a run that no process drives.
func (s *Service) cancelHere(ctx context.Context, rec store.RunRecord, by *agent.CancelError) error {
	r, err := s.runner(rec)
	if err != nil {
		return err
	}
	_, err = r.Cancel(ctx, rec.ID, by)
	if toolcrib.CodeOf(err) == toolcrib.CodeConflict {
		if now, readErr := s.Env.Store.Run(ctx, rec.ID); readErr == nil && now.Status == toolcrib.StatusCancelled {
			return nil // at the same time, for somebody else
		}
	}
	return err
}

// cancelWait is how long another process may take to end its run, and cancelLook how often the run is looked at.
const (
	cancelWait = 10 * time.Second
	cancelLook = 100 * time.Millisecond
)

// cancelThere asks the process that drives a run to end it, and waits until it has.
func (s *Service) cancelThere(ctx context.Context, rec store.RunRecord, by *agent.CancelError) error {
	if err := s.Env.Store.RequestCancel(ctx, rec.ID, by.By, by.Token); err != nil {
		return err
	}
	defer func() { _ = s.Env.Store.RequestCancel(context.WithoutCancel(ctx), rec.ID, "", "") }() // usually it has ended
	for asked, end := time.Now(), time.Now().Add(cancelWait); ; {
		if err := worker.Pause(ctx, cancelLook); err != nil {
			return err
		}
		if time.Now().After(end) {
			return toolcrib.Errorf(toolcrib.CodeTimeout, "run %s was told to stop and has not; its process does not respond", rec.ID)
		}
		now, err := s.Env.Store.Run(ctx, rec.ID)
		if err != nil {
			return err
		}
		if now.Status.Ended() {
			return nil
		}
		if s.Drivers.Driven(ctx, rec.ID) {
			if time.Since(asked) >= time.Second { // another process may have taken the lease, which ends the request
				asked, err = time.Now(), s.Env.Store.RequestCancel(ctx, rec.ID, by.By, by.Token)
			}
			if err != nil {
				return err
			}
			continue
		}
		if leave, err := s.Drivers.Take(ctx, rec.ID, nil); err == nil {
			defer leave()
			// The process released the run before it read the request.
			return s.cancelHere(ctx, now, by)
		}
	}
}

// Detach starts a run that the server of the data folder continues. Without a server, the run stays queued until one
// starts.
func (s *Service) Detach(ctx context.Context, who toolcrib.Principal, r StartRequest) (Run, error) {
	d, task, err := s.ready(ctx, who, r, Front{})
	if err != nil {
		return Run{}, err
	}
	task.Driver = env.DriverServer
	state, err := d.carry(ctx, nil, func(ctx context.Context, r *agent.Runner) (*agent.State, error) {
		return r.Start(ctx, task)
	})
	out, err := s.outcome(ctx, who, state, err)
	if err == nil {
		s.tellReady(ctx, store.RunRecord{ID: out.ID, Driver: env.DriverServer})
	}
	return out, err
}

// Server returns the name of the process of a server that has the workspaces of this data folder, or "" if none is
// running.
func (s *Service) Server(ctx context.Context) string {
	site, err := s.Env.Site()
	if err != nil {
		return ""
	}
	all, _ := s.Drivers.Servers(ctx) // none if they cannot be read
	for _, server := range all {
		if server.Site == site {
			return s.Drivers.NameOf(&server.Owner)
		}
	}
	return ""
}
