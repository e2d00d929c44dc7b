package store

import (
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// ChildClaim is what the journal of a run says of a run that it has started. It says
// so before the other begins; what begins with a parent must be named there. Between
// the two there may be a crash, so a claim alone is no proof that there ever was such
// a run.
type ChildClaim struct {
	Run   toolcrib.RunID
	Seq   toolcrib.Seq // of the event that says so
	Agent string

	lived bool                // it is told of what only a run does that is there
	ended *journal.ChildEnded // nil = nothing is told of its end
	again bool                // it was named before
}

// ClaimChildren brings the claims of a run up to date with one more of its events.
func ClaimChildren(claims []ChildClaim, e toolcrib.Event) []ChildClaim {
	of := func(run toolcrib.RunID) *ChildClaim {
		if i := slices.IndexFunc(claims, func(c ChildClaim) bool { return c.Run == run }); i >= 0 {
			return &claims[i]
		}
		return &ChildClaim{} // of an event that cannot follow; whoever folds the run says so
	}
	switch b := e.Body.(type) {
	case *journal.ChildStarted:
		again := of(b.Run).Run != ""
		return append(claims, ChildClaim{Run: b.Run, Seq: e.Seq, Agent: b.Agent, again: again})
	case *journal.ChildParked:
		of(b.Run).lived = true
	case *journal.ChildResumed:
		of(b.Run).lived = true
	case *journal.ChildEnded:
		// One that was never begun ends as cancelled, and has used nothing.
		c := of(b.Run)
		c.ended, c.lived = b, c.lived || b.Status != toolcrib.StatusCancelled || b.Usage != toolcrib.Usage{}
	}
	return claims
}

// Gone tells how a claim does not hold of a run that is not there, and whose removal
// nobody recorded; "" = it does. anchored says that the system journal knows the run.
func (c *ChildClaim) Gone(anchored bool) string {
	if !c.lived && !anchored {
		return ""
	}
	return fmt.Sprintf("run %s, which it started, is gone, and no removal is recorded", c.Run)
}

// Broken tells how a claim of a run does not hold of the run that is there under that
// ID; "" = it does.
func (c *ChildClaim) Broken(claims toolcrib.RunID, parent toolcrib.RunID, agent string, status toolcrib.Status) string {
	what := ""
	switch {
	case c.again:
		return fmt.Sprintf("it started run %s twice", c.Run)
	case parent == "":
		what = "is a part of no run"
	case parent != claims:
		what = fmt.Sprintf("is a part of run %s", parent)
	case agent != c.Agent:
		what = fmt.Sprintf("is one of agent %s, not %s", agent, c.Agent)
	case c.ended != nil && status != c.ended.Status:
		what = fmt.Sprintf("is %s, not %s as it was told", status, c.ended.Status)
	default:
		return ""
	}
	return fmt.Sprintf("run %s, which it started, %s", c.Run, what)
}

// Claimed reports whether a run that begins so must be named in the journal of its
// parent. A call that a tool made of another one is not: its parent's journal has the
// call of that tool. Nor are sub-runs of older versions.
func Claimed(b *journal.RunStarted) bool {
	return b.Parent != "" && b.Given == nil && (b.Above != nil || b.Share != nil)
}
