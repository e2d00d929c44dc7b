package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) runsForkCommand(cmd *cobra.Command) {
	var f runFlags
	var round, after int
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		prompt := ""
		if len(args) > 1 {
			var err error
			if prompt, err = a.prompt(args[1:]); err != nil {
				return err
			}
		}
		switch {
		case cmd.Flags().Changed("round") && cmd.Flags().Changed("after"):
			return usagef("give --round or --after, not both")
		case cmd.Flags().Changed("round") && round < 1:
			return usagef("--round: counts from 1")
		case cmd.Flags().Changed("after") && after < 0:
			return usagef("--after: counts from 0, which is before the first round")
		case cmd.Flags().Changed("after"):
			round = after + 1
		}
		return a.fork(cmd.Context(), args[0], round, prompt, &f)
	}

	a.approveFlag(cmd, &f)
	cmd.Flags().IntVar(&round, "round", 0, "")
	cmd.Flags().IntVar(&after, "after", 0, "")
	cmd.Flags().BoolVar(&f.json, "json", false, "")
}

// fork starts a new run from a round of another one.
func (a *app) fork(ctx context.Context, name string, round int, prompt string, f *runFlags) error {
	s, who, err := a.changing(ctx)
	if err != nil {
		return err
	}
	q := service.ForkRequest{Run: name, Round: round, Prompt: prompt}
	if q.Approve, err = a.approval(f); err != nil {
		return err
	}
	return a.show(ctx, f.json, who, q.Approve, func(ctx context.Context, front service.Front) (*agent.State, error) {
		state, err := s.Fork(ctx, who, q, front)
		if state != nil && state.Start != nil && !f.json {
			a.notice("run %s, forked from round %d of %s", state.Run, state.Start.ForkedRound, state.Start.ForkedFrom)
		}
		return state, hint(err, name, "`toolcrib runs list` shows what there is")
	})
}
