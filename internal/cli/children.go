package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

// A run of the command line drives its sub-agents itself, as runs of their own under
// its lock and theirs. What one of them waits for is decided on its own approval; what
// is resumed is always the run at the top.

// subAgents are how the runs of this drive start others.
func (d *drive) subAgents(options *agent.Options) {
	options.Agents = func(ctx context.Context, who toolcrib.Principal, name, workspace string) (agent.Task, error) {
		return d.a.subAgent(ctx, d.config, d.models, who, name, workspace, func(text string) { d.a.noticeBeside("%s: %s", name, text) })
	}
	options.Claim = func(run toolcrib.RunID) (func(), error) {
		if err := d.a.service.Drivers.Take(run); err != nil {
			return nil, err
		}
		return func() { d.locks.Leave(run) }, nil
	}
	options.Models = d.a.service.Opening(d.models)
}

// answerEach has everything answered that a parked run waits for, itself or by runs below
// it: what nobody answers keeps nothing else waiting, and is not put again by this
// process. goesOn is false if all of it still waits.
func (d *drive) answerEach(ctx context.Context, r *agent.Runner, s *agent.State, answer func(*agent.State) (bool, error)) (goesOn bool, err error) {
	all := []*agent.State{s}
	if s.Pending.Run != "" {
		if all, err = r.AllWaiting(ctx, s.Run); err != nil {
			return false, err
		}
	}
	for _, at := range all {
		if at.Approval == nil || d.left[at.Approval.ApprovalID] {
			continue
		}
		decided, err := answer(at)
		switch {
		case ctx.Err() != nil:
			return false, err
		case service.IsConflict(err): // somebody else was quicker, while the question stood here
			decided = true
		case err != nil:
			return false, err
		case !decided:
			d.leave(at.Approval.ApprovalID)
		}
		goesOn = goesOn || decided
	}
	if goesOn || s.Pending.Run == "" {
		return goesOn, nil
	}
	waits, err := r.WaitsFor(ctx, s.Run)
	return err == nil && waits == nil, err // somebody did, meanwhile
}

// leave remembers that an approval got no answer here.
func (d *drive) leave(approval string) {
	if d.left == nil {
		d.left = map[string]bool{}
	}
	d.left[approval] = true
}

// expireAll denies what a run waits for, itself or by runs below it, and has waited for
// too long (approvals.expire).
func (d *drive) expireAll(ctx context.Context, r *agent.Runner, run toolcrib.RunID) error {
	all, err := r.AllWaiting(ctx, run)
	if err != nil {
		return err
	}
	for _, at := range all {
		if _, err := d.expire(ctx, r, at); err != nil && !service.IsConflict(err) {
			return err
		}
	}
	return nil
}

// expire denies what a run waits for if that has waited for too long: it is nobody's to
// decide any more.
func (d *drive) expire(ctx context.Context, r *agent.Runner, at *agent.State) (expired bool, err error) {
	return r.Expire(ctx, at.Run, d.config.Approvals.Expire.Std())
}

// below is the run for which a run waits, for those who only look; the run itself where
// that cannot be told.
func (a *app) below(ctx context.Context, s *agent.State) *agent.State {
	if s.Pending == nil || s.Pending.Run == "" {
		return s
	}
	at, err := a.load(ctx, a.store, s.Pending.Run)
	if err != nil || at.Approval == nil {
		return s
	}
	return at
}

// decidedBelow reports whether the run below for which a parked run waits, by its record,
// waits no more: somebody has decided, or ended it, and nobody has gone on yet.
func (a *app) decidedBelow(ctx context.Context, rec store.RunRecord) bool {
	if rec.Pending.Run == "" {
		return false
	}
	below, err := a.store.Run(ctx, rec.Pending.Run)
	return err == nil && !below.Status.Parked()
}

// callerOf is the agent of the run that has started this one; "" = it is not known.
func (a *app) callerOf(ctx context.Context, rec store.RunRecord) string {
	if rec.Parent == "" {
		return ""
	}
	above, err := a.store.Run(ctx, rec.Parent)
	if err != nil {
		return ""
	}
	return above.Agent
}

// maxAbove bounds how many runs are looked for above another, whatever the store says.
const maxAbove = 32

// top is the run at the top of those that started this one: the one that is resumed.
func (a *app) top(ctx context.Context, rec store.RunRecord) (store.RunRecord, error) {
	for range maxAbove {
		if rec.Parent == "" {
			return rec, nil
		}
		above, err := a.store.Run(ctx, rec.Parent)
		if err != nil {
			return rec, fmt.Errorf("run %s is a part of run %s, which cannot be read: %v", rec.ID, rec.Parent, err)
		}
		rec = above
	}
	return rec, fmt.Errorf("run %s: more than %d runs stand above it: `toolcrib runs verify --all` tells what was changed", rec.ID, maxAbove)
}

// toResume is the run that is resumed in place of rec, with what is told of it.
func (a *app) toResume(ctx context.Context, rec store.RunRecord) (store.RunRecord, error) {
	top, err := a.top(ctx, rec)
	switch {
	case err != nil:
		return rec, err
	case top.ID == rec.ID:
		return rec, nil
	case rec.Status.Ended():
		return rec, toolcrib.Errorf(toolcrib.CodeConflict, "run %s (%s) has ended; there is nothing to go on with; it was a part of run %s", rec.ID, rec.Status, top.ID)
	case top.Status.Ended():
		return rec, toolcrib.Errorf(toolcrib.CodeConflict, "run %s is a part of run %s, which has ended (%s); `%s runs cancel %s` ends it", rec.ID, top.ID, top.Status, a.self(), rec.ID)
	}
	return top, nil
}

// How long a run that was decided on may take to be let go of by the process that drives
// the runs above it.
const (
	letGoWait = 3 * time.Second
	letGoLook = 50 * time.Millisecond
)

// resumeDecided continues a run after a decision about it. Where a process drives the
// run at the top, that one goes on by itself when all else of its turn is done.
func (a *app) resumeDecided(ctx context.Context, run toolcrib.RunID, f *runFlags) error {
	rec, err := a.store.Run(ctx, run)
	if err != nil {
		return err
	}
	if rec.Parent == "" {
		return a.resume(ctx, rec, f)
	}
	top, err := a.top(ctx, rec)
	if err != nil {
		return err
	}
	for end := time.Now().Add(letGoWait); ; {
		if err := a.service.Drivers.Take(top.ID); !errors.Is(err, service.ErrDriven) {
			return a.resume(ctx, rec, f)
		}
		if time.Now().After(end) {
			fmt.Fprintf(a.err, "run %s is going on in another process, which goes on with %s, too; `%s runs events %s --follow` shows it\n", top.ID, rec.ID, a.self(), top.ID)
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(letGoLook):
		}
	}
}
