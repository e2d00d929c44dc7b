package agent

import (
	"context"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// Memory keeps approvals that hold beyond their run: for its session, or for its
// user (contract §6). They can be listed and revoked where they are kept; what is
// revoked holds for no later call, also of a run that is on its way.
type Memory interface {
	// Remembered returns the approvals that hold for a user and a session; session
	// "" = those of the user alone.
	Remembered(ctx context.Context, user string, session toolcrib.SessionID) ([]gate.Remembered, error)
	// Remember keeps approvals. Their Scope says for what: session or user.
	Remember(ctx context.Context, user string, session toolcrib.SessionID, run toolcrib.RunID, approvals []gate.Remembered) error
}

// remembered are all approvals that may hold for the calls of a turn. Those that
// cannot be read do not hold: then a person is asked. Under four eyes nothing holds
// that was approved by whom the run acts for.
func (d *driver) remembered(ctx context.Context) []gate.Remembered {
	all := d.everRemembered(ctx)
	if d.r.FourEyes && len(all) > 0 {
		return OfOthers(d.s.Start.Principal.User, OfOthers(d.r.Mask.Mask(d.s.Start.Principal.User), all))
	}
	return all
}

func (d *driver) everRemembered(ctx context.Context) []gate.Remembered {
	of := d.s.Remembered
	if d.r.Memory == nil {
		return of
	}
	more, err := d.r.Memory.Remembered(ctx, d.s.Start.Principal.User, d.s.Start.Session)
	if err != nil {
		d.r.Log.WarnContext(ctx, "remembered approvals could not be read", "run", d.s.Run, "error", d.r.Mask.Mask(err.Error()))
		return of
	}
	if len(more) == 0 {
		return of
	}
	return append(append([]gate.Remembered(nil), of...), more...)
}

// lasting are the approvals of a decision that hold beyond the run.
func (s *State) lasting(b *journal.ConfirmationResolved) []gate.Remembered {
	m := b.Remember
	if m == nil || m.Scope == journal.RememberRun || s.Approval == nil || s.Approval.Kind != journal.ApprovalCall {
		return nil
	}
	var all []gate.Remembered
	for _, item := range s.Approval.Calls {
		c, err := s.find(item.ID)
		if err != nil || c.Verdict == nil || wordOn(s, c) != nil {
			continue // what others decided before is not remembered by this
		}
		word := b.Of(c.ID)
		if word.Decision != journal.DecisionApprove {
			continue
		}
		if m, ok := gate.Remember(*m, b, c.approved(&word)); ok {
			all = append(all, m)
		}
	}
	return all
}

// keep hands approvals that hold beyond the run to the memory, after the decision
// was written down. Should that fail, the decision stands, and a person is asked
// again another time.
func (r *Runner) keep(ctx context.Context, s *State, approvals []gate.Remembered) error {
	approvals = slices.DeleteFunc(approvals, func(m gate.Remembered) bool { return r.Gate.AlwaysAsks(m.Tool) })
	if len(approvals) == 0 || r.Memory == nil {
		return nil
	}
	return r.Memory.Remember(ctx, s.Start.Principal.User, s.Start.Session, s.Run, approvals)
}
