package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// beginChild makes a child run, which is not written down yet. What is told to end by
// then never begins.
func (r *Runner) beginChild(ctx context.Context, c *childFlight) (*driver, error) {
	if c.over {
		return nil, &startError{c.sub.Agent, errors.New("its run was ended before it began")}
	}
	task, err := r.childTask(ctx, c)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, &startError{c.sub.Agent, err}
	}
	d, err := r.begin(ctx, task)
	if toolcrib.CodeOf(err) == toolcrib.CodeBadRequest {
		return nil, &startError{c.sub.Agent, err}
	}
	if err != nil {
		return nil, err
	}
	return d, d.unknownTools(task.RunTools)
}

// partOf says what is wrong if this is no run that the other one has started. Depth grows
// from run to run, so that whoever follows them comes to an end.
func (s *State) partOf(parent toolcrib.RunID, depth int) error {
	if s.Start != nil && s.Start.Parent == parent && s.Start.Depth == depth+1 {
		return nil
	}
	return fmt.Errorf("run %s is no part of run %s: the journal is damaged; `runs verify` tells where", s.Run, parent)
}

// ChildRun is what the core makes of a call that another agent answers, as things stand:
// replay compares it with what the journals say.
type ChildRun struct {
	Agent, Task string
	Tools       []string
	Share       *journal.Share // nil = no cap
	None        string         // why it may not start; "" = it may
	Above       *journal.Above
	Offer       []string // what the calling run passes on
}

// ChildOf makes it of a call of the current turn. It is pure.
func ChildOf(s *State, callID string) ChildRun {
	c, err := s.find(callID)
	if err != nil {
		return ChildRun{None: err.Error()}
	}
	sub := gate.ReadSubtask(c.judgedArguments())
	r := ChildRun{Agent: sub.Agent, Task: sub.Task, Tools: sub.Tools, Above: passedOn(s.Start), Offer: s.Offer.Names()}
	r.Share, r.None = s.shareFor(c)
	return r
}

// EndOf is what the run that made a call keeps of the end of this one. It is pure.
func EndOf(s *State, callID string) *journal.ChildEnded { return s.ending(callID) }
