package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) runsResumeCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "resume RUN",
		Short: "Go on with a run that is parked, was decided on, or was cut off",
		Long: "Go on with a run where its journal ends. What has finished is not done again; a write that had started is put " +
			"to you unless its tool can tell what became of it. What it waits for is put to you on a terminal; one that waits " +
			"for a higher limit goes on with --add-iterations, --add-cost, --add-tokens or --add-requests; one whose provider " +
			"failed asks it again, or goes on from there with another --model. " +
			"RUN is an ID, the beginning of one, or last. Output and exit status are those of run.",
		Example: `toolcrib runs resume last
toolcrib runs resume run_01K --approve all
toolcrib runs resume last --add-iterations 10 --message "Be brief"
toolcrib runs resume run_01K --model anthropic/claude-haiku-4-5
toolcrib runs resume run_01K --json`,
		Args: positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.additions(cmd.Flags()); err != nil {
				return err
			}
			s, err := a.database(cmd.Context())
			if err != nil {
				return err
			}
			rec, err := a.findRun(cmd.Context(), s, args[0])
			if err != nil {
				return err
			}
			if rec.Parent != "" && !rec.Status.Ended() {
				a.notice("run %s is a part of run %s; the run at the top goes on", rec.ID, rec.Parent)
			}
			return a.resume(cmd.Context(), rec, &f)
		},
	}
	a.approveFlag(cmd, &f)
	flags := cmd.Flags()
	flags.IntVar(&f.add.Iterations, "add-iterations", 0, "rounds that the run may take more")
	flags.Float64Var(&f.add.CostUSD, "add-cost", 0, "US dollars that it may spend more")
	flags.Int64Var(&f.add.Tokens, "add-tokens", 0, "tokens that it may use more")
	flags.IntVar(&f.add.Requests, "add-requests", 0, "requests that it may send more")
	flags.StringVar(&f.model, "model", "", "model that goes on with it: a name of the configuration, or PROVIDER/MODEL")
	flags.StringVar(&f.message, "message", "", "a message of yours, which the model reads before it goes on")
	flags.BoolVar(&f.json, "json", false, "events as JSON, one a line")
	return cmd
}

// maxAddedCost bounds what may be added at once: more is a slip of the finger.
const maxAddedCost = 1e6

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
	case f.add.CostUSD >= maxAddedCost:
		return usagef("--add-cost: must be less than %d", int(maxAddedCost))
	case flags.Changed("message") && strings.TrimSpace(f.message) == "":
		return usagef("--message: must not be empty")
	case len(f.message) > maxStdin || !utf8.ValidString(f.message):
		return usagef("--message: must be valid UTF-8 of at most %d bytes", maxStdin)
	}
	return nil
}

// addTo adds what resume was given to a run, before it goes on.
func (f *runFlags) addTo(ctx context.Context, r *agent.Runner, run toolcrib.RunID, by string) error {
	if f.add != (journal.Granted{}) {
		granted := f.add
		granted.By = by
		if _, err := r.Grant(ctx, run, granted); err != nil {
			return err
		}
	}
	if f.chosen != nil {
		if err := f.useModel(ctx, r, run, by); err != nil {
			return err
		}
	}
	if f.message == "" {
		return nil
	}
	_, err := r.Say(ctx, run, f.message, by)
	return err
}

// useModel gives a run the model that --model names; where runs below it wait for their
// providers, those.
func (f *runFlags) useModel(ctx context.Context, r *agent.Runner, run toolcrib.RunID, by string) error {
	runs := []toolcrib.RunID{run}
	all, err := r.AllWaiting(ctx, run)
	if err != nil {
		return err
	}
	for _, at := range all {
		if at.Run != run && at.Pending.Kind == journal.PendingProvider {
			runs = append(runs, at.Run)
		}
	}
	if len(runs) > 1 {
		runs = runs[1:]
	}
	for _, run := range runs {
		if _, err := r.UseModel(ctx, run, *f.chosen, by); err != nil {
			return err
		}
	}
	return nil
}

// resume takes a run up and drives it to its end, or until it parks again.
func (a *app) resume(ctx context.Context, rec store.RunRecord, f *runFlags) error {
	who, err := a.principal(ctx)
	if err != nil {
		return err
	}
	named := rec.ID // what is added is added there
	if rec, err = a.toResume(ctx, rec); err != nil {
		return err
	}
	if err := a.takeUp(rec); err != nil {
		return err
	}
	state, err := a.load(ctx, a.store, rec.ID)
	if err != nil {
		return err
	}
	if state.Ended() {
		return toolcrib.Errorf(toolcrib.CodeConflict, "run %s (%s) has ended; there is nothing to go on with", rec.ID, state.Status)
	}
	if err := service.SameToken(who, state); err != nil {
		return err
	}
	approve, err := a.resumeApproval(state, f)
	if err != nil {
		return err
	}
	d, err := a.driveAgain(ctx, state, who, approve, f)
	if err != nil {
		return err
	}
	a.tellFourEyes(d.config, who, state.Start.Principal.User, approve)
	d.resumed = rec.ID
	if state.Turn != nil {
		d.seen = state.Turn.Calls
	}
	return d.show(ctx, f.json, func(ctx context.Context, r *agent.Runner) (*agent.State, error) {
		if err := f.addTo(ctx, r, named, nameOf(who)); err != nil {
			if service.IsConflict(err) {
				err = toolcrib.Errorf(toolcrib.CodeConflict, "%v", err)
			}
			return nil, err
		}
		return d.goOn(ctx, r, rec.ID)
	})
}

// takeUp holds the run for this process, so that no other drives it.
func (a *app) takeUp(rec store.RunRecord) error {
	if rec.Driver != "" && rec.Driver != driverName {
		return toolcrib.Errorf(toolcrib.CodeConflict, "run %s belongs to a %s, which goes on with it by itself", rec.ID, rec.Driver)
	}
	locks := a.service.Drivers
	if err := locks.Take(rec.ID); err != nil {
		return toolcrib.Errorf(toolcrib.CodeConflict,
			"run %s is going on: %s drives it; `toolcrib runs events %s --follow` shows it, `toolcrib runs cancel %s` ends it",
			rec.ID, locks.Process(rec.ID), rec.ID, rec.ID)
	}
	return nil
}

// resumeApproval is what this process does about calls that need an approval. A
// run that was told from its start to approve or to refuse everything keeps to it.
func (a *app) resumeApproval(s *agent.State, f *runFlags) (agent.Approve, error) {
	own := agent.Approve(s.Start.Approve)
	if own == agent.ApproveAll && a.config != nil && a.config.Approvals.FourEyes {
		return a.approval(f) // it was the word of whom the run acts for
	}
	switch own {
	case agent.ApproveAll, agent.ApproveDeny:
		if f.approve != "" && f.approve != string(own) {
			return "", usagef("--approve %s: run %s was started with --approve %s, which holds until it ends", f.approve, s.Run, own)
		}
		return own, nil
	}
	return a.approval(f)
}

// driveAgain makes a drive from what a stored run began with, under today's
// configuration. --model of f, if any, names the model that continues it.
func (a *app) driveAgain(ctx context.Context, s *agent.State, who toolcrib.Principal, approve agent.Approve, f *runFlags) (*drive, error) {
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	if err := a.supported(c, s.Start.Agent.Name); err != nil {
		return nil, err
	}
	if info, err := os.Stat(s.Start.Workspace); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("the workspace of run %s, %s, is not there any more; put it back, or cancel the run", s.Run, s.Start.Workspace)
	}
	needed := s.Model
	if f.model != "" {
		needed = -1
	}
	opened, err := a.service.ReopenModels(s.Models, needed)
	if err != nil {
		return nil, err
	}
	if f.model != "" {
		infos, err := a.service.OpenModels(opened, &toolcrib.Agent{Name: s.Start.Agent.Name, Model: f.model}, a.note)
		if err != nil {
			return nil, err
		}
		f.chosen = &infos[0]
	}
	return a.newDrive(ctx, c, setup{
		who: who, approve: approve, models: opened, workspace: s.Start.Workspace,
		agent: s.Start.Agent, runTools: s.Start.RunTools,
	})
}

// goOn drives a run as far as it goes. An approval that it waits for is put to
// whoever is there, or decided as --approve says.
func (d *drive) goOn(ctx context.Context, r *agent.Runner, run toolcrib.RunID) (*agent.State, error) {
	if err := d.expireAll(ctx, r, run); err != nil {
		return nil, err
	}
	state, err := r.Resume(ctx, run)
	return d.onward(ctx, r, state, err)
}

// onward continues a run as long as somebody answers what it waits for.
func (d *drive) onward(ctx context.Context, r *agent.Runner, state *agent.State, err error) (*agent.State, error) {
	for ; ; state, err = r.Resume(ctx, state.Run) {
		if err != nil || state.Pending == nil {
			return state, err
		}
		goesOn, err := d.answerEach(ctx, r, state, func(at *agent.State) (bool, error) {
			decided, err := d.decide(ctx, r, at)
			if toolcrib.CodeOf(err) == toolcrib.CodeForbidden {
				d.a.notice("%s", errorText(err))
				return false, nil
			}
			return decided, err
		})
		var cancel *agent.CancelError
		switch {
		case err == nil && goesOn:
			continue
		case errors.As(context.Cause(ctx), &cancel):
			return r.Cancel(context.WithoutCancel(ctx), state.Run, cancel.By)
		case err != nil && !service.IsConflict(err):
			return state, err
		}
		return state, context.Cause(ctx)
	}
}

// decide answers what a parked run waits for; false = nobody did.
func (d *drive) decide(ctx context.Context, r *agent.Runner, s *agent.State) (bool, error) {
	if s.Approval == nil || ctx.Err() != nil || !d.answers(s) {
		return false, nil
	}
	if expired, err := d.expire(ctx, r, s); expired || err != nil {
		return expired, err
	}
	word := agent.Decision{ApprovalID: s.Approval.ApprovalID, Digest: s.Approval.Digest, Who: d.who}
	if kind := s.Approval.Kind; kind != journal.ApprovalCall && (kind != journal.ApprovalInput || d.approve != agent.ApproveDeny) {
		return d.put(ctx, r, s)
	}
	switch {
	case d.approve != agent.ApproveDeny && d.another(s):
		return false, nil // another person must approve
	case d.approve == agent.ApproveAll && coveredByAll(s, &word):
		word.By = agent.ByAll
	case d.approve == agent.ApproveDeny:
		word.Decision, word.By = journal.DecisionDeny, agent.ByNobody
	case d.ask != nil:
		if ok, err := d.person(ctx, s, &word); err != nil || !ok {
			return false, err
		}
	default:
		return false, nil
	}
	_, err := r.Decide(ctx, s.Run, word)
	return err == nil, err
}

// person puts the open calls of an approval to whoever sits at the terminal; false
// = nobody answered.
func (d *drive) person(ctx context.Context, s *agent.State, word *agent.Decision) (bool, error) {
	open := *s.Approval
	open.Calls = service.OpenCalls(s)
	answer, ok, err := d.ask.Decide(ctx, s.Run, &open)
	if err != nil || !ok {
		return false, err
	}
	word.Reason, word.Calls, word.Remember = answer.Reason, answer.Calls, answer.Remember
	if answer.Decision != journal.DecisionMixed {
		word.Decision = answer.Decision
	}
	return true, nil
}

// coveredByAll makes the decision of --approve all: it approves every open call but
// those that only a person can answer (contract §6); false = there is none.
func coveredByAll(s *agent.State, word *agent.Decision) bool {
	person := map[string]bool{}
	if s.Turn != nil {
		for _, c := range s.Turn.Calls {
			person[c.ID] = c.Verdict.ForAPerson()
		}
	}
	open := service.OpenCalls(s)
	word.Calls = make(map[string]journal.CallDecision, len(open))
	for _, c := range open {
		if !person[c.ID] {
			word.Calls[c.ID] = journal.CallDecision{Decision: journal.DecisionApprove}
		}
	}
	if len(word.Calls) == len(open) {
		word.Decision, word.Calls = journal.DecisionApprove, nil
		return true
	}
	return len(word.Calls) > 0
}

// runnerOf makes a runner that writes something down about a run, and asks no
// model.
func (a *app) runnerOf(ctx context.Context, rec store.RunRecord) (*agent.Runner, error) {
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	d, err := a.newDrive(ctx, c, setup{models: &service.Models{}, workspace: rec.Workspace})
	if err != nil {
		return nil, err
	}
	options, err := d.options(silentWatcher{}, a.err)
	if err != nil {
		return nil, err
	}
	return agent.New(options)
}
