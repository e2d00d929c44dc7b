package cli

import (
	"context"
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
	var do driving
	var who toolcrib.Principal
	var approve agent.Approve
	if a.remote != nil {
		r, err := a.request(cmd, f)
		if err != nil {
			return err
		}
		who, approve, r.Given = a.acting.who, r.Approve, a.remote.GivenCall(name, raw)
		do = func(ctx context.Context, f service.Front) (service.Run, error) { return a.remote.Start(ctx, who, r, f) }
	} else {
		p, err := a.prepare(cmd, f, false)
		if err != nil {
			return err
		}
		who, approve = p.Who, p.Approve
		task := agent.Task{Given: a.service.GivenCall(name, raw)}
		do = func(ctx context.Context, f service.Front) (service.Run, error) { return p.Run(ctx, task, f) }
	}
	run, err := a.carry(cmd.Context(), silentWatcher{}, who, approve, do)
	if err != nil {
		return a.cutOff(&run, err)
	}
	if f.json {
		if err := printJSON(a.out, run, true); err != nil {
			return err
		}
	} else if r := run.Trace[0]; r.Status != "" {
		a.printResult(r.Result)
	}
	a.parked(cmd.Context(), who, &run)
	return silent(exitOfCall(&run))
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
func exitOfCall(run *service.Run) int {
	switch {
	case run.Status.Parked():
		return exitParked
	case run.Status == toolcrib.StatusCancelled:
		return exitCanceled
	case run.Trace[0].Status == toolcrib.ResultRefused:
		return exitRefused
	case run.Trace[0].Status != toolcrib.ResultOK: // also if there is no result
		return exitFailed
	}
	return exitOK
}
