package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) runsResumeCommand(cmd *cobra.Command) {
	var f runFlags
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.additions(cmd.Flags()); err != nil {
			return err
		}
		return a.resume(cmd.Context(), service.ResumeRequest{Run: args[0], Add: f.add, Model: f.model, Message: f.message}, &f)
	}

	a.approveFlag(cmd, &f)
	flags := cmd.Flags()
	flags.IntVar(&f.add.Iterations, "add-iterations", 0, "")
	flags.Float64Var(&f.add.CostUSD, "add-cost", 0, "")
	flags.Int64Var(&f.add.Tokens, "add-tokens", 0, "")
	flags.IntVar(&f.add.Requests, "add-requests", 0, "")
	flags.StringVar(&f.model, "model", "", "")
	flags.StringVar(&f.message, "message", "", "")
	flags.BoolVar(&f.json, "json", false, "")
}

// additions checks what is added to a run that goes on.
func (f *runFlags) additions(flags *pflag.FlagSet) error {
	for _, name := range []string{"add-iterations", "add-cost", "add-tokens", "add-requests"} {
		if v, err := strconv.ParseFloat(flags.Lookup(name).Value.String(), 64); flags.Changed(name) && (err != nil || !(v > 0 && v < 1e15)) {
			return usagef("--%s: must be more than 0", name)
		}
	}
	switch {
	case flags.Changed("model") && f.model == "":
		return usagef("--model: must name a model")
	case f.add.CostUSD >= service.MaxAddedCost:
		return usagef("--add-cost: must be less than %d", int(service.MaxAddedCost))
	case flags.Changed("message") && strings.TrimSpace(f.message) == "":
		return usagef("--message: must not be empty")
	case len(f.message) > maxStdin || !utf8.ValidString(f.message):
		return usagef("--message: must be valid UTF-8 of at most %d bytes", maxStdin)
	}
	return nil
}

// resume takes a run up and drives it to its end, or until it parks again.
func (a *app) resume(ctx context.Context, q service.ResumeRequest, f *runFlags) error {
	s, who, err := a.changing(ctx)
	if err != nil {
		return err
	}
	if q.Approve, err = a.resumeApproval(ctx, who, q, f); err != nil {
		return err
	}
	return a.show(ctx, f.json, who, q.Approve, func(ctx context.Context, front service.Front) (*agent.State, error) {
		return s.Resume(ctx, who, q, front)
	})
}

// resumeApproval is what this process does about calls that need an approval. A run that
// was told from its start to approve or to refuse everything keeps to it.
func (a *app) resumeApproval(ctx context.Context, who toolcrib.Principal, q service.ResumeRequest, f *runFlags) (agent.Approve, error) {
	kept, err := a.service.KeptApprove(ctx, who, q)
	switch {
	case err != nil:
		return "", hint(err, q.Run, "`toolcrib runs list` shows what there is")
	case kept == "":
		return a.approval(f)
	case f.approve != "" && f.approve != string(kept):
		return "", usagef("--approve %s: run %s was started with --approve %s, which holds until it ends", f.approve, q.Run, kept)
	}
	return kept, nil
}

// resumeDecided continues a run after a decision about it. Where a process drives the run
// at the top, that one goes on by itself when all else of its turn is done.
func (a *app) resumeDecided(ctx context.Context, run toolcrib.RunID, f *runFlags) error {
	err := a.resume(ctx, service.ResumeRequest{Run: string(run), Decided: true}, f)
	var elsewhere *service.ElsewhereError
	if !errors.As(err, &elsewhere) {
		return err
	}
	fmt.Fprintf(a.err, "%v; `%s runs events %s --follow` shows it\n", err, a.self(), elsewhere.Top)
	return nil
}
