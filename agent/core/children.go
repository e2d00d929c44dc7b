package core

import (
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// Ending returns the end of this run, as the run that made the call keeps it.
func (s *State) Ending(call string) *journal.ChildEnded {
	used := s.Used()
	e := &journal.ChildEnded{ID: call, Run: s.Run, Status: s.Status, Usage: used.Usage, Runs: used.Runs, Bytes: used.Bytes}
	if s.Done != nil {
		e.StopReason = s.Done.StopReason
	} else if s.Failed != nil {
		e.StopReason = s.Failed.StopReason
	}
	return e
}

// PartOf returns an error if this run was not started by the run parent. Depth grows from run to run,
// so that following them always ends.
func (s *State) PartOf(parent toolcrib.RunID, depth int) error {
	if s.Start != nil && s.Start.Parent == parent && s.Start.Depth == depth+1 {
		return nil
	}
	return fmt.Errorf("run %s is not part of run %s: the journal is damaged; `runs verify` shows where", s.Run, parent)
}

// The notices about the calls of workers.
const (
	NoticeInnerCall    = "worker_inner_call"
	NoticeInnerInvalid = "worker_inner_validation_fail"
)

// maxReported bounds the notices that a run reports to the run above it.
const maxReported = 64

// noticed keeps a notice for the watchers of the run above.
func (s *State) noticed(n *toolcrib.Notice) {
	switch n.Code {
	case NoticeInnerCall, NoticeInnerInvalid, NoticeWorkerCost, NoticeCanaryLeak:
		if len(s.reported) < maxReported {
			s.reported = append(s.reported, *n)
		}
	}
}

// Endings returns the events that a parent writes when this run has ended: the notices that it
// reports, and its end.
func (s *State) Endings(call string) []toolcrib.Body {
	bodies := make([]toolcrib.Body, 0, len(s.reported)+1)
	for _, n := range s.reported {
		if n.RunID == "" {
			n.RunID, n.Message = s.Run, s.Start.Agent.Name+": "+n.Message // none of these has a separate text for users
		}
		bodies = append(bodies, &journal.Notice{Notice: n})
	}
	return append(bodies, s.Ending(call))
}

// A call of a tool that another agent answers (toolcrib.ByAgent) becomes a child run. The parent's
// journal records its ID before the child's own journal begins. So, however a driver is lost, the next
// one finds the child and continues it without repeating its work. A child that must wait for a person
// parks by itself; its parent parks when the rest of the turn is done. The functions below fold the
// parent's events about its children.

func (s *State) childStarted(b *journal.ChildStarted) error {
	c, err := s.Find(b.ID)
	switch {
	case err != nil:
		return err
	case c.Verdict == nil || c.Verdict.Decision != toolcrib.Allow || !c.ByAgent():
		return fmt.Errorf("call %s was given to a run without permission", b.ID)
	case c.Child != nil:
		return fmt.Errorf("call %s has a second run", b.ID)
	case b.Run == s.Run || slices.ContainsFunc(s.Trace, func(c *Call) bool {
		return c.Child != nil &&
			c.Child.Run == b.Run
	}):
		return fmt.Errorf("call %s has a run that answers another one", b.ID)
	}
	c.Child = b
	return nil
}

// child returns the open call that this child run answers.
func (s *State) child(id string, run toolcrib.RunID) (*Call, error) {
	c, err := s.Find(id)
	switch {
	case err != nil:
		return nil, err
	case c.Child == nil || c.Child.Run != run || c.Result != nil:
		return nil, fmt.Errorf("call %s is not answered by run %s", id, run)
	}
	return c, nil
}

func (s *State) childParked(b *journal.ChildParked) error {
	c, err := s.child(b.ID, b.Run)
	if err != nil {
		return err
	}
	c.Waits, c.WaitsSince = b, s.Epochs
	s.stopClock()
	return nil
}

func (s *State) childResumed(b *journal.ChildResumed) error {
	c, err := s.child(b.ID, b.Run)
	if err != nil {
		return err
	}
	c.Waits = nil
	s.Held, s.Idle = true, 0
	return nil
}

func (s *State) childEnded(b *journal.ChildEnded) error {
	c, err := s.child(b.ID, b.Run)
	switch {
	case err != nil:
		return err
	case c.ChildEnd != nil:
		return fmt.Errorf("run %s of call %s has ended twice", b.Run, b.ID)
	}
	c.ChildEnd, c.Waits, s.Held = b, nil, true
	below := &s.Children
	below.Usage, below.Runs, below.Bytes = below.Plus(b.Usage), below.Runs+b.Runs, below.Bytes+b.Bytes
	s.Idle = 0
	return nil
}

// ByAgent reports whether another agent answers the call, in a run of its own.
func (c *Call) ByAgent() bool {
	return c.Verdict != nil && c.Verdict.AnsweredBy == toolcrib.ByAgent
}

// Waiting returns the calls of the turn whose child runs wait.
func (t *Turn) Waiting() []*Call {
	return t.openIf(func(c *Call) bool { return c.Waits != nil })
}

// stopClock records that no driver works while only child runs wait, because the time that a person takes
// is not wall time.
func (s *State) stopClock() {
	// busy reports whether an open call waits neither for its child run, nor for a person or the client.
	busy := func(c *Call) bool { return c.Waits == nil && !c.Question() && !c.ByClient() }
	if s.Turn != nil && len(s.Turn.Waiting()) > 0 && s.Turn.countIf(busy) == 0 {
		s.Held = false
	}
}
