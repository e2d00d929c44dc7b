package cli

import (
	"cmp"
	"context"
	"math"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) runsForkCommand(cmd *cobra.Command) {
	var f runFlags
	var q service.ForkRequest
	a.approveFlag(cmd, &f)
	flags := cmd.Flags()
	flags.Func("round", "", between(&q.Round, 1, math.MaxInt32))
	after := 0
	flags.Func("after", "", between(&after, 0, math.MaxInt32))
	outputFlags(cmd, &f)
	a.doing(cmd, nil, func(c call) (err error) {
		if q.Run = c.arg(); len(c.args) > 1 {
			q.Prompt, err = a.prompt(c.args[1:])
		}
		if flags.Changed("after") {
			q.Round = after + 1
		}
		format, wrong := f.format()
		if err = cmp.Or(err, wrong, oneOf(flags, "round", "after")); err == nil {
			c.Service, c.who, err = a.changing(c)
		}
		if err == nil {
			q.Approve, err = a.approval(&f)
		}
		if err != nil {
			return err
		}
		return a.show(c, format, c.who, q.Approve, func(ctx context.Context, front service.Front) (*agent.State, error) {
			state, err := c.Fork(ctx, c.who, q, front)
			if state != nil && state.Start != nil && format != outputEvents {
				a.notice("run %s, forked from round %d of %s", state.Run, state.Start.ForkedRound, state.Start.ForkedFrom)
			}
			return state, noRun(err, c.arg())
		})
	})
}
