package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib"
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
	var usage *UsageError
	if errors.As(err, &usage) {
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
