package store

import (
	"fmt"
	"maps"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// runTree maps each run to the parent and the children that its journal names.
type runTree map[toolcrib.RunID]*treeNode

type treeNode struct {
	known  bool // whether parent and agent are known
	parent toolcrib.RunID
	agent  string
	status toolcrib.Status     // "" if unknown
	start  *journal.RunStarted // nil if its content is missing
	claims []ChildClaim
	silent bool // whether claims may be missing, because an event has no content
}

func (t runTree) of(run toolcrib.RunID) *treeNode {
	if t[run] == nil {
		t[run] = new(treeNode)
	}
	return t[run]
}

// learn updates the node from an event of its run. If body is nil, the content of the event is missing.
func (m *treeNode) learn(seq toolcrib.Seq, kind toolcrib.Kind, body toolcrib.Body) {
	switch b := body.(type) {
	case nil:
		m.silent = m.silent || kind == journal.KindChildStarted || kind == journal.KindRunStarted
	case *journal.RunStarted:
		if m.start == nil { // keep only the fields that are compared: the input may be large
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

// absent reports whether the removal of a run that is not stored is recorded in the system
// journal, and whether an anchor of the run is.
type absent func(toolcrib.RunID) (removed, anchored bool)

// check returns an error for each run that contradicts its parent or one of its children. If
// above is true, a missing parent is an error unless its removal is recorded.
func (t runTree) check(gone absent, above bool) (broken []*ChainError) {
	for _, run := range slices.Sorted(maps.Keys(t)) {
		if err := t.checkOne(run, gone, above); err != nil {
			broken = append(broken, err)
		}
	}
	return broken
}

func (t runTree) checkOne(run toolcrib.RunID, gone absent, above bool) *ChainError {
	m := t[run]
	for i := range m.claims {
		c := &m.claims[i]
		what, child := "", t[c.Run]
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
	if what := t.disowned(run, m.start, gone, above); what != "" {
		return &ChainError{Run: run, Seq: 1, What: what}
	}
	return nil
}

// disowned returns why a run cannot have been started by the parent that it names, or "".
func (t runTree) disowned(run toolcrib.RunID, start *journal.RunStarted, gone absent, above bool) string {
	parent := t[start.Parent]
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

// ChildClaim is a child run as the journal of its parent records it. The parent records it
// before the child begins, and a run that names a parent must be recorded there. A crash may
// come in between, so a claim alone does not prove that the child ever existed.
type ChildClaim struct {
	Run   toolcrib.RunID
	Seq   toolcrib.Seq // number of the ChildStarted event
	Agent string

	lived bool                // whether a later event proves that the child existed
	ended *journal.ChildEnded // nil if the parent has recorded no end
	again bool                // whether an earlier claim names the same run
}

// ClaimChildren updates the claims of a run with its next event.
func ClaimChildren(claims []ChildClaim, e toolcrib.Event) []ChildClaim {
	of := func(run toolcrib.RunID) *ChildClaim {
		if i := slices.IndexFunc(claims, func(c ChildClaim) bool { return c.Run == run }); i >= 0 {
			return &claims[i]
		}
		return &ChildClaim{} // the event is out of order, which folding the run reports
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
		// A child that never began ends as cancelled, without usage.
		c := of(b.Run)
		c.ended, c.lived = b, c.lived || b.Status != toolcrib.StatusCancelled || b.Usage != toolcrib.Usage{}
	}
	return claims
}

// Gone returns the problem with a claim about a run that is not stored and whose removal is not
// recorded, or "" if the run may never have existed. anchored reports whether the system journal
// has an anchor of the run.
func (c *ChildClaim) Gone(anchored bool) string {
	if !c.lived && !anchored {
		return ""
	}
	return fmt.Sprintf("run %s, which it started, is gone, and no removal is recorded", c.Run)
}

// Broken returns how the stored run contradicts the claim that the run claims makes about it, or "".
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

// Claimed reports whether a run that begins with b must be named in the journal of its parent.
// A call that a tool made of another tool is not: the journal of its parent has the call of the
// first tool. Nor are sub-runs of older versions.
func Claimed(b *journal.RunStarted) bool {
	return b.Parent != "" && b.Given == nil && (b.Above != nil || b.Share != nil)
}
