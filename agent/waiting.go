package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
)

// maxBelow bounds the depth of nested runs, whatever the journals say.
const maxBelow = 32

// waits returns the run that this one waits for, itself or one below it, or nil if it can continue.
func (r *Runner) waits(ctx context.Context, s *State) (*State, error) {
	return first(r.waitsAt(ctx, s, true, 0))
}

// first returns the first of the runs that are waited for, or nil if a run that waited can continue,
// since the runs above it then can too.
func first(all []*State, continues bool, err error) (*State, error) {
	if continues || err != nil || len(all) == 0 {
		return nil, err
	}
	return all[0], nil
}

// waitsAt returns all runs that a run at this depth waits for, in the order of the calls that they
// answer, and reports whether the run, or one below it that it waited for, can continue. If anew is
// set, a failed provider is asked again, so runs that wait for it can continue.
func (r *Runner) waitsAt(ctx context.Context, s *State, anew bool, depth int) (all []*State, continues bool,
	err error,
) {
	switch {
	case s.Ended() || core.Next(s).Kind != core.StepWait || anew && s.WaitsForProvider():
		return nil, true, nil
	case s.Pending == nil || s.Pending.Run == "" || s.Turn == nil:
		return []*State{s}, false, nil
	case depth == maxBelow:
		return nil, false, fmt.Errorf("run %s: more than %d runs are nested: the journal is damaged; `runs verify` shows where",
			s.Run, maxBelow)
	}
	for _, c := range s.Turn.Waiting() {
		below, err := r.below(ctx, s, c)
		if err != nil {
			return nil, false, err
		}
		more, goes, err := r.waitsAt(ctx, below, anew, depth+1)
		if err != nil {
			return nil, false, err
		}
		all, continues = append(all, more...), continues || goes
	}
	return all, continues, nil
}

// below loads the run that answers a call.
func (r *Runner) below(ctx context.Context, s *State, c *core.Call) (*State, error) {
	below, err := r.Load(ctx, c.Child.Run)
	if err != nil {
		return nil, fmt.Errorf("run %s, which answers call %s of run %s: %w", c.Child.Run, c.ID, s.Run, err)
	}
	return below, below.PartOf(s.Run, s.Start.Depth)
}

// WaitsFor returns the run whose decision or provider a parked run waits for: itself or a run below
// it. It returns nil if the run waits for nothing.
func (r *Runner) WaitsFor(ctx context.Context, run toolcrib.RunID) (*State, error) {
	s, err := r.Load(ctx, run)
	if err != nil {
		return nil, err
	}
	return first(r.waitsAt(ctx, s, false, 0))
}

// AllWaiting returns all runs whose decisions or providers a parked run waits for, itself or runs
// below it, in the order of the calls that they answer. It returns none if the run waits for nothing.
// Some runs may wait while others can continue.
func (r *Runner) AllWaiting(ctx context.Context, run toolcrib.RunID) ([]*State, error) {
	s, err := r.Load(ctx, run)
	if err != nil {
		return nil, err
	}
	all, _, err := r.waitsAt(ctx, s, false, 0)
	return all, err
}

// children resumes the child runs that no longer wait, and asks the Approver about the decisions that
// others wait for. If all still wait, the run parks.
func (d *driver) children(ctx context.Context) error {
	var resumed []toolcrib.Body
	var parked *State
	for _, c := range d.s.Turn.Waiting() {
		var waits *State
		below, err := d.r.below(ctx, d.s, c)
		if err == nil {
			// A provider that failed while this driver had the run is not asked again.
			waits, err = first(d.r.waitsAt(ctx, below, c.WaitsSince != d.s.Epochs, 0))
		}
		if err == nil && waits != nil && d.asks(waits) {
			waits, err = d.putBelow(ctx, waits)
		}
		if err != nil && ctx.Err() != nil {
			return d.givenUp(ctx, context.Cause(ctx)) // stopped meanwhile
		}
		if err != nil {
			return err
		}
		switch {
		case waits == nil:
			resumed = append(resumed, &journal.ChildResumed{ID: c.ID, Run: c.Child.Run})
		case parked == nil:
			parked = waits
		}
	}
	if len(resumed) > 0 {
		return d.append(ctx, resumed...)
	}
	if ctx.Err() != nil {
		return d.givenUp(ctx, context.Cause(ctx))
	}
	if parked == nil {
		return nil // calls of the turn are missing; run reports the damaged journal
	}
	pending := *parked.Pending
	pending.Run = parked.Run
	return d.append(ctx, &journal.Paused{Status: parked.Status, Pending: pending})
}

// putBelow asks the Approver about the decision that a run below waits for, and returns the run that
// it still waits for, or nil if it can continue. Meanwhile the decision may have been made elsewhere,
// or the approval may have expired.
func (d *driver) putBelow(ctx context.Context, waits *State) (*State, error) {
	expired, err := d.r.Expire(ctx, waits.Run, d.r.Expires)
	if err == nil && !expired {
		err = newDriver(d.r, waits).put(ctx, waits.Approval)
	}
	if expired || errors.Is(err, toolcrib.ErrConflict) {
		waits, err = d.r.Load(ctx, waits.Run)
	}
	if text := refusedWord(err); text != "" {
		// Recorded here, not in the run below: an event there would move the time from which its
		// approval expires.
		return waits, d.append(ctx, d.forbidden(text))
	}
	if err != nil || core.Next(waits).Kind != core.StepWait {
		return nil, err
	}
	return waits, nil
}

// asks reports whether this driver asks a person about the decision that a run below it waits for.
// Only the run at the top does.
func (d *driver) asks(below *State) bool {
	switch {
	case d.r.Approver == nil || d.s.Start.Parent != "" || Approve(d.s.Start.Approve) != ApproveAsk ||
		below.Approval == nil:
		return false
	case d.r.FourEyes && below.Approval.Kind == journal.ApprovalCall:
		return d.decider().User != d.s.Start.Principal.User
	}
	return true
}
