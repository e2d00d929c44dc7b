package store

import (
	"fmt"
	"maps"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// kin is what runs say of those that they have started, and of the one that started them.
type kin map[toolcrib.RunID]*kinsman

type kinsman struct {
	known  bool                // what follows is
	parent toolcrib.RunID      //
	agent  string              //
	status toolcrib.Status     // "" = unknown
	start  *journal.RunStarted // nil = its content is not there
	claims []ChildClaim
	silent bool // the content of a claim is not there
}

func (k kin) of(run toolcrib.RunID) *kinsman {
	if k[run] == nil {
		k[run] = new(kinsman)
	}
	return k[run]
}

// learn takes what an event of a run says; body nil = its content is not there.
func (m *kinsman) learn(seq toolcrib.Seq, kind toolcrib.Kind, body toolcrib.Body) {
	switch b := body.(type) {
	case nil:
		m.silent = m.silent || kind == journal.KindChildStarted || kind == journal.KindRunStarted
	case *journal.RunStarted:
		if m.start == nil { // only what is compared is kept: its input may be large
			m.start = &journal.RunStarted{Parent: b.Parent, Depth: b.Depth, Above: b.Above, Share: b.Share, Given: b.Given}
			m.known, m.parent, m.agent = true, b.Parent, b.Agent.Name
		}
	case *journal.Done:
		m.status = b.Status
	case *journal.Error:
		m.status = b.Status
	default:
		m.claims = ClaimChildren(m.claims, toolcrib.Event{Seq: seq, Body: body})
	}
}

// absent says of a run that is not there whether its removal is recorded, and whether
// the system journal knows it.
type absent func(toolcrib.RunID) (removed, anchored bool)

// check finds the runs that do not fit what another one says of them. above says that the
// parents of all are there, but for those that were removed.
func (k kin) check(gone absent, above bool) (broken []*ChainError) {
	for _, run := range slices.Sorted(maps.Keys(k)) {
		if err := k.checkOne(run, gone, above); err != nil {
			broken = append(broken, err)
		}
	}
	return broken
}

func (k kin) checkOne(run toolcrib.RunID, gone absent, above bool) *ChainError {
	m := k[run]
	for i := range m.claims {
		c := &m.claims[i]
		what, child := "", k[c.Run]
		removed, anchored := false, false
		if child == nil {
			removed, anchored = gone(c.Run)
		}
		switch {
		case child == nil && !removed:
			what = c.Gone(anchored)
		case child == nil, !child.known, child.status == "" && c.ended != nil:
		default:
			what = c.Broken(run, child.parent, child.agent, child.status)
		}
		if what != "" {
			return &ChainError{Run: run, Seq: c.Seq, What: what}
		}
	}
	if m.start == nil || !Claimed(m.start) {
		return nil
	}
	if what := k.disowned(run, m.start, gone, above); what != "" {
		return &ChainError{Run: run, Seq: 1, What: what}
	}
	return nil
}

// disowned returns why a run was not started by the one that it names; "" if it was.
func (k kin) disowned(run toolcrib.RunID, start *journal.RunStarted, gone absent, above bool) string {
	parent := k[start.Parent]
	if parent == nil {
		if removed, _ := gone(start.Parent); removed || !above {
			return ""
		}
		return fmt.Sprintf("run %s, of which it is a part, is gone, and no removal is recorded", start.Parent)
	}
	named := slices.ContainsFunc(parent.claims, func(c ChildClaim) bool { return c.Run == run })
	switch {
	case parent.start == nil:
		return ""
	case !named && !parent.silent:
		return fmt.Sprintf("it is part of run %s, which did not start it", start.Parent)
	case start.Depth != parent.start.Depth+1:
		return fmt.Sprintf("it is part of run %s, at depth %d under one at depth %d", start.Parent, start.Depth,
			parent.start.Depth)
	}
	return ""
}

// ChildClaim is what the journal of a run says of a run that it has started. It says
// so before the other begins; what begins with a parent must be named there. Between
// the two there may be a crash, so a claim alone is no proof that there ever was such
// a run.
type ChildClaim struct {
	Run   toolcrib.RunID
	Seq   toolcrib.Seq // of the event that says so
	Agent string

	lived bool                // it has what only a run has that existed
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

// Gone reports how a claim does not hold of a run that is not there, and whose removal
// nobody recorded; "" = it does. anchored says that the system journal knows the run.
func (c *ChildClaim) Gone(anchored bool) string {
	if !c.lived && !anchored {
		return ""
	}
	return fmt.Sprintf("run %s, which it started, is gone, and no removal is recorded", c.Run)
}

// Broken reports how a claim of a run does not hold of the run that is there under that
// ID; "" = it does.
func (c *ChildClaim) Broken(claims toolcrib.RunID, parent toolcrib.RunID, agent string, status toolcrib.Status) string {
	what := ""
	switch {
	case c.again:
		return fmt.Sprintf("it started run %s twice", c.Run)
	case parent == "":
		what = "is a part of no run"
	case parent != claims:
		what = fmt.Sprintf("is part of run %s", parent)
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
