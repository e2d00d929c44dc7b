package agent

import (
	"context"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// NoticeForbidden tells that an answer at the terminal was not that person's to give.
const NoticeForbidden = "forbidden"

// Announcer tells people elsewhere that a run is about to park for a decision of
// theirs (approvals.notify). It is called once for each approval, or once more should
// the process die meanwhile; s.Approval is what is asked. It must end within a few
// seconds, and soon after ctx does. The notices that it returns, which hold no secret,
// stand in the journal; whatever it meets never fails the run.
type Announcer interface {
	Announce(ctx context.Context, s *State) []toolcrib.Notice
}

// notices are the events of notices, masked.
func (r *Runner) notices(all []toolcrib.Notice) []toolcrib.Body {
	bodies := make([]toolcrib.Body, len(all))
	for i, n := range all {
		n.Message = r.Mask.Mask(n.Message)
		bodies[i] = &journal.Notice{Notice: n}
	}
	return bodies
}

// Note adds notices to a run that has not ended. It changes nothing else of it.
func (r *Runner) Note(ctx context.Context, run toolcrib.RunID, notices ...toolcrib.Notice) error {
	s, err := r.Load(ctx, run)
	if err != nil || len(notices) == 0 {
		return err
	}
	if s.Ended() {
		return &StateError{Run: run, Status: s.Status, Message: "has ended; nothing can be added to it"}
	}
	d := &driver{r: r, s: s, index: -1}
	return conflict(run, s, d.append(ctx, r.notices(notices)...))
}
