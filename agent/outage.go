package agent

import (
	"context"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
)

// waitBefore waits before the request of a step is sent again, after it has written the step's
// notices. stop means that the run is to end meanwhile. The wait is not worked time.
func (d *driver) waitBefore(ctx context.Context, step *core.Step) (stop bool, err error) {
	if step.Delay == 0 {
		return false, nil
	}
	if err := d.append(ctx, step.Notices...); err != nil {
		return false, err
	}
	step.Notices = nil
	began := d.worked()
	err = d.r.Clock.Sleep(ctx, jitter(step.Delay))
	d.waited += d.worked() - began
	if err != nil {
		return true, d.givenUp(ctx, err)
	}
	return false, nil
}

// chooses returns the events that give the run another model.
func chooses(s *State, m *journal.ModelInfo, by string) ([]toolcrib.Body, error) {
	switch {
	case s.Start.Given != nil:
		return nil, usagef("run %s is a single tool call and asks no model", s.Run)
	case s.CostCap() != "" && !m.Price.Known:
		return nil, unpriced(m, s.CostCap(), "")
	}
	bodies := []toolcrib.Body{&journal.ModelChosen{Model: *m, By: by}}
	if m.Tools == journal.ToolsNone && len(s.Offer.Tools) > 0 {
		bodies = append(bodies, ignoredTools(m.Ref))
	}
	return bodies, nil
}
