package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) runsResumeCommand(cmd *cobra.Command) {
	var f runFlags
	var q service.ResumeRequest
	a.approveFlag(cmd, &f)
	flags := cmd.Flags()
	flags.Func("add-iterations", "", more(&q.Add.Iterations))
	flags.Func("add-cost", "", more(&q.Add.CostUSD))
	flags.Func("add-tokens", "", more(&q.Add.Tokens))
	flags.Func("add-requests", "", more(&q.Add.Requests))
	flags.Func("model", "", filled(&q.Model))
	flags.StringVar(&q.Message, "message", "", "")
	outputFlags(cmd, &f)
	a.doing(cmd, nil, func(c call) error {
		switch {
		case q.Add.CostUSD >= service.MaxAddedCost:
			return usagef("--add-cost: must be less than %d", int(service.MaxAddedCost))
		case flags.Changed("message") && strings.TrimSpace(q.Message) == "":
			return usagef("--message: must not be empty")
		case len(q.Message) > maxStdin || !utf8.ValidString(q.Message):
			return usagef("--message: must be valid UTF-8 of at most %d bytes", maxStdin)
		}
		q.Run = c.arg()
		return a.resume(c, q, &f)
	})
}

// resume takes a run up and drives it to its end, or until it parks again.
func (a *app) resume(ctx context.Context, q service.ResumeRequest, f *runFlags) error {
	format, err := f.format()
	if err != nil {
		return err
	}
	s, who, err := a.opened(ctx, a.changing)
	if err != nil {
		return err
	}
	if q.Approve, err = a.resumeApproval(ctx, who, q, f); err != nil {
		return err
	}
	return a.show(ctx, format, who, q.Approve, func(ctx context.Context, front service.Front) (service.Run, error) {
		return s.Resume(ctx, who, q, front)
	})
}

// resumeApproval is what this process does about calls that need an approval. A run that
// was told from its start to approve or to refuse everything keeps to it.
func (a *app) resumeApproval(ctx context.Context, who toolcrib.Principal, q service.ResumeRequest,
	f *runFlags,
) (agent.Approve, error) {
	kept, err := a.api.KeptApprove(ctx, who, q)
	switch {
	case err != nil:
		return "", noRun(err, q.Run)
	case kept == "" && a.remote != nil && (f.approve == "all" || f.approve == "deny"):
		return "", usagef("--approve %s: on a server a run keeps to what it was started with; decide about its calls with: "+
			"%s approvals list", f.approve, a.self())
	case kept == "":
		return a.approval(f)
	case f.approve != "" && f.approve != string(kept):
		return "", usagef("--approve %s: run %s was started with --approve %s, which holds until it ends", f.approve,
			q.Run, kept)
	}
	return kept, nil
}

// resumeDecided continues a run after a decision about it. Where a process drives the run
// at the top, that one continues by itself when all else of its turn is done.
func (a *app) resumeDecided(ctx context.Context, run toolcrib.RunID, f *runFlags) error {
	err := a.resume(ctx, service.ResumeRequest{Run: string(run), Decided: true}, f)
	var elsewhere *service.ElsewhereError
	if !errors.As(err, &elsewhere) {
		return err
	}
	fmt.Fprintln(a.err, shortIDs(fmt.Sprintf("%v; `%s runs events %s --follow` shows it", err, a.self(), elsewhere.Top)))
	return nil
}
