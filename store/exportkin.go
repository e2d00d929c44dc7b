package store

import (
	"maps"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// exportKin is what the content of an export says of runs and those that they have
// started.
type exportKin map[toolcrib.RunID]*kinsman

type kinsman struct {
	start  *journal.RunStarted // nil = it is not there
	status toolcrib.Status     // of the end; "" = it is not there
	claims []ChildClaim
	silent bool // the content of a claim is not there
}

func (k exportKin) learn(run toolcrib.RunID, seq toolcrib.Seq, kind toolcrib.Kind, has bool, payload []byte) {
	switch kind {
	case journal.KindRunStarted, journal.KindChildStarted, journal.KindChildParked, journal.KindChildResumed, journal.KindChildEnded, journal.KindDone, journal.KindError:
	default:
		return
	}
	of := k[run]
	if of == nil {
		of = new(kinsman)
		k[run] = of
	}
	if !has {
		of.silent = of.silent || kind == journal.KindChildStarted
		return
	}
	body, err := journal.Decode(kind, payload)
	if err != nil {
		return // a later version wrote it
	}
	switch b := body.(type) {
	case *journal.RunStarted:
		// Only what is compared is kept: its input may be large.
		of.start = &journal.RunStarted{Parent: b.Parent, Depth: b.Depth, Above: b.Above, Share: b.Share, Given: b.Given, Agent: toolcrib.Agent{Name: b.Agent.Name}}
	case *journal.Done:
		of.status = b.Status
	case *journal.Error:
		of.status = b.Status
	}
	of.claims = ClaimChildren(of.claims, toolcrib.Event{Seq: seq, Body: body})
}

// strangers finds the runs that do not fit what another one says of them.
func (c *exportCheck) strangers() error {
	for _, run := range slices.Sorted(maps.Keys(c.kin)) {
		of := c.kin[run]
		for i := range of.claims {
			if what := c.claim(run, &of.claims[i]); what != "" {
				return &ChainError{Run: run, Seq: of.claims[i].Seq, What: what}
			}
		}
		if what := c.disowned(run, of.start); what != "" {
			return &ChainError{Run: run, Seq: 1, What: what}
		}
	}
	return nil
}

// claim tells how a run is not the one that another says it has started.
func (c *exportCheck) claim(run toolcrib.RunID, claim *ChildClaim) string {
	child := c.kin[claim.Run]
	switch {
	case !c.seen[claim.Run] && !c.gone[claim.Run]:
		return claim.Gone(false) // one with an anchor is missed by that
	case child == nil || child.start == nil || child.status == "" && claim.ended != nil:
		return "" // it is gone, or its content is
	}
	return claim.Broken(run, child.start.Parent, child.start.Agent.Name, child.status)
}

// disowned tells how a run is none of the one that it says has started it.
func (c *exportCheck) disowned(run toolcrib.RunID, start *journal.RunStarted) string {
	if start == nil || !Claimed(start) {
		return ""
	}
	above := c.kin[start.Parent]
	switch {
	case c.gone[start.Parent]:
		return ""
	case !c.seen[start.Parent] && c.v.Begin.Since.IsZero():
		return Orphaned(start.Parent)
	case above == nil || above.start == nil:
		return "" // its content is not there
	}
	p := Parent{Run: start.Parent, Depth: above.start.Depth}
	if !above.silent {
		p.Named = make(map[toolcrib.RunID]bool, len(above.claims))
		for _, claim := range above.claims {
			p.Named[claim.Run] = true
		}
	}
	return p.Disowns(run, start)
}
