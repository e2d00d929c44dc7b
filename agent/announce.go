package agent

import "context"

// NoticeForbidden tells that an answer at the terminal was not that person's to give.
const NoticeForbidden = "forbidden"

// Announcer tells people elsewhere that a run has parked for a decision of theirs
// (approvals.notify). It is called once for each approval, after the pause stands in
// the journal: the decision may be there before Announce ends, and another process may
// go on with the run. A process that dies in between calls it for nobody.
//
// s.Approval is what is asked; s must not be changed, nor kept. Announce must end within
// a few seconds, and soon after ctx does. None of them is wall time of the run. Whatever
// it meets never fails the run, and is no event of it: it would move the time from which
// on the approval expires.
type Announcer interface {
	Announce(ctx context.Context, s *State)
}
