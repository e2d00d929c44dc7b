package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) toolsCallCommand(cmd *cobra.Command) {
	var f runFlags
	var args string
	cmd.ValidArgsFunction = a.completeTools
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		raw, err := a.jsonArgument(args)
		if err != nil {
			return err
		}
		return a.call(cmd, &f, names[0], raw)
	}

	a.judgingFlags(cmd, &f)
	cmd.Flags().StringVar(&args, "args", "{}", "")
	cmd.Flags().BoolVar(&f.json, "json", false, "")
}

// call carries out a run of one given call.
func (a *app) call(cmd *cobra.Command, f *runFlags, name string, raw []byte) error {
	p, err := a.prepare(cmd, f, false)
	if err != nil {
		return err
	}
	task := agent.Task{Given: a.service.GivenCall(name, raw)}
	state, err := a.carry(cmd.Context(), silentWatcher{}, p.Who, p.Approve,
		func(ctx context.Context, f service.Front) (*agent.State, error) {
			return p.Run(ctx, task, f)
		})
	if state == nil || err != nil {
		return a.cutOff(state, err)
	}
	if f.json {
		run, err := a.service.Run(cmd.Context(), p.Who, string(state.Run))
		if err := errors.Join(err, printJSON(a.out, run, true)); err != nil {
			return err
		}
	} else if r := state.Trace[0].Result; r != nil {
		a.printResult(r.Content)
	}
	a.parked(cmd.Context(), p.Who, state)
	return silent(exitOfCall(state))
}

// printResult writes a result: as it is for programs, visible for people.
func (a *app) printResult(content string) {
	if a.outTerminal {
		content = guard.Visible(content)
	}
	fmt.Fprintln(a.out, strings.TrimSuffix(content, "\n"))
}

// silentWatcher shows nothing.
type silentWatcher struct{}

func (silentWatcher) Start()              {}
func (silentWatcher) Frame(journal.Frame) {}
func (silentWatcher) Stop()               {}

// exitOfCall is the exit code of tools call (contract §3).
func exitOfCall(s *agent.State) int {
	r := s.Trace[0].Result
	switch {
	case s.Status.Parked():
		return exitParked
	case s.Status == toolcrib.StatusCancelled:
		return exitCanceled
	case r == nil:
		return exitFailed
	case r.Status == toolcrib.ResultRefused:
		return exitRefused
	case r.Status != toolcrib.ResultOK:
		return exitFailed
	}
	return exitOK
}
