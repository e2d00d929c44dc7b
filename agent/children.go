package agent

import (
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// A call of a tool that another agent answers (toolcrib.ByAgent) becomes a child run.
// The parent's journal keeps its ID before the child's own journal begins, so that
// however a driver is lost, the next one finds the child, and continues it: nothing
// that it has done is done again. A child that must wait for a person parks by itself;
// its parent parks when nothing else of the turn is left to do. This file is what the
// parent's journal says of its children.

func (s *State) childStarted(b *journal.ChildStarted) error {
	c, err := s.find(b.ID)
	switch {
	case err != nil:
		return err
	case c.Verdict == nil || c.Verdict.Decision != toolcrib.Allow || !c.byAgent():
		return fmt.Errorf("call %s was given to a run without leave", b.ID)
	case c.Child != nil:
		return fmt.Errorf("call %s has a second run", b.ID)
	case b.Run == s.Run || slices.ContainsFunc(s.Trace, func(c *Call) bool { return c.Child != nil && c.Child.Run == b.Run }):
		return fmt.Errorf("call %s has a run that answers another one", b.ID)
	}
	c.Child = b
	return nil
}

// child finds the open call whose child run this is.
func (s *State) child(id string, run toolcrib.RunID) (*Call, error) {
	c, err := s.find(id)
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
	c.Waits, c.waitsSince = b, s.Epochs
	s.letGo()
	return nil
}

func (s *State) childResumed(b *journal.ChildResumed) error {
	c, err := s.child(b.ID, b.Run)
	if err != nil {
		return err
	}
	c.Waits = nil
	s.held, s.Idle = true, 0
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
	c.ChildEnd, c.Waits, s.held = b, nil, true
	s.Children = addUsage(s.Children, b.Usage)
	s.childRuns += b.Runs
	s.childBytes += b.Bytes
	s.Idle = 0
	return nil
}

// byAgent reports whether another agent answers the call, in a run of its own.
func (c *Call) byAgent() bool {
	return c.Verdict != nil && c.Verdict.AnsweredBy == toolcrib.ByAgent
}

// waiting are the calls of the turn whose child runs wait for a person.
func (t *Turn) waiting() []*Call {
	var calls []*Call
	for _, c := range t.Calls {
		if c.Waits != nil && c.Result == nil {
			calls = append(calls, c)
		}
	}
	return calls
}

// letGo notes that no driver has anything to do while the child runs wait: the time that
// a person takes is no wall time.
func (s *State) letGo() {
	if s.Turn != nil && len(s.Turn.waiting()) > 0 && s.onlyWaits() {
		s.held = false
	}
}

// onlyWaits reports whether all that is open of the turn waits for a person.
func (s *State) onlyWaits() bool {
	if s.Turn == nil {
		return false
	}
	for _, c := range s.Turn.Calls {
		if c.Result == nil && c.Waits == nil && !c.question() {
			return false
		}
	}
	return true
}
