package team

import (
	"context"
	"errors"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
)

// Run asks a team in a program of its own, and waits for the outcome. o defines the agents
// ([agent.Options.Agents]), and its gate must have spawn and, for worker tools, fetch and verify; see
// the example. Of task it uses the principal, the session with its history, and the workspace. The run
// may park or be interrupted like any other. The report then covers the work so far, and
// Runner.Resume, with options that [Join] has changed, continues the run.
func Run(ctx context.Context, o agent.Options, task agent.Task, r Request) (*api.Report, *agent.State, error) {
	if o.Agents == nil {
		return nil, nil, errors.New("team: Options.Agents is missing")
	}
	if o.Model != nil || o.Models == nil {
		return nil, nil, errors.New("team: set Options.Models instead of Options.Model")
	}
	Join(&o, nil, false)
	plan, notices, err := r.Plan(func(name string) bool {
		_, err := o.Agents(ctx, task.Principal, name, task.Workspace)
		return err == nil
	})
	if err != nil {
		return nil, nil, err
	}
	task.Notices = append(task.Notices, notices...)
	if err := r.Fill(plan, &task); err != nil {
		return nil, nil, err
	}
	runner, err := agent.New(o)
	if err != nil {
		return nil, nil, err
	}
	s, err := runner.Run(ctx, task)
	if s == nil || err != nil {
		return nil, s, err
	}
	return ReportOf(ctx, s, func(ctx context.Context, run toolcrib.RunID) (*agent.State, error) {
		return runner.Load(ctx, run)
	}), s, nil
}
