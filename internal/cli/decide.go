package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
)

// decideFlags are the flags of the commands that decide.
type decideFlags struct {
	calls                []string
	edit, reason, digest string
	resume, json         bool

	retry, notHappened bool
	happened           string
	answer             string // for approvals answer

	remember, rememberCalls string // for approvals approve: applies to later calls
}

// maxWords bounds the text of a reason, in bytes.
const maxWords = 4 << 10

func (f *decideFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.calls, "call", nil, "")
	cmd.Flags().StringVar(&f.reason, "reason", "", "")
	f.registerWord(cmd)
}

// registerWord adds the flags that approvals answer shares.
func (f *decideFlags) registerWord(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.digest, "digest", "", "")
	flags.BoolVar(&f.resume, "resume", false, "")
	flags.BoolVar(&f.json, "json", false, "")
}

func (a *app) approvalsDecideCommand(cmd *cobra.Command) {
	var f decideFlags
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		word := journal.CallDecision{Decision: cmd.Name()}
		if cmd.Flags().Changed("edit") {
			if text := strings.TrimSpace(f.edit); !strings.HasPrefix(text, "{") {
				return usagef("--edit: must be the arguments as a JSON object, such as {\"path\":\"a.txt\"}, not %q",
					service.OneLine(text, 40))
			}
			word.Arguments = json.RawMessage(f.edit)
		}
		if f.rememberCalls != "" && f.remember == "" {
			return usagef("--remember-calls: goes with --remember")
		}
		return a.decide(cmd.Context(), args[0], word, &f)
	}

	f.register(cmd)
	if cmd.Name() == journal.DecisionApprove {
		cmd.Flags().StringVar(&f.edit, "edit", "", "")
		choice(cmd, "remember", &f.remember, journal.RememberRun, journal.RememberSession, journal.RememberUser)
		choice(cmd, "remember-calls", &f.rememberCalls, journal.RememberCalls()...)
	}
}

func (a *app) approvalsAnswerCommand(cmd *cobra.Command) {
	var f decideFlags
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		text, err := guard.Clean(strings.Join(args[1:], " ")), error(nil)
		if text == "-" {
			text, err = a.readText()
		}
		if err != nil {
			return err
		}
		if text = strings.TrimSpace(text); text == "" || len(text) > maxStdin {
			return usagef("the answer must be a text, not empty, of at most %d bytes", maxStdin)
		}
		f.answer = text
		return a.decide(cmd.Context(), args[0], journal.CallDecision{Decision: journal.DecisionAnswer}, &f)
	}

	f.registerWord(cmd)
}

func (a *app) approvalsResolveCommand(cmd *cobra.Command) {
	var f decideFlags
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var words []journal.CallDecision
		if f.retry {
			words = append(words, journal.CallDecision{Decision: journal.DecisionRetry})
		}
		if cmd.Flags().Changed("happened") {
			words = append(words, journal.CallDecision{Decision: journal.DecisionHappened, Result: json.RawMessage(f.happened)})
		}
		if f.notHappened {
			words = append(words, journal.CallDecision{Decision: journal.DecisionNotHappened})
		}
		if len(words) != 1 {
			return usagef("give one of --retry, --happened JSON and --not-happened")
		}
		return a.decide(cmd.Context(), args[0], words[0], &f)
	}

	f.register(cmd)
	cmd.Flags().BoolVar(&f.retry, "retry", false, "")
	cmd.Flags().StringVar(&f.happened, "happened", "", "")
	cmd.Flags().BoolVar(&f.notHappened, "not-happened", false, "")
}

// decide records a person's decision about an approval, and continues the run if asked to.
func (a *app) decide(ctx context.Context, name string, word journal.CallDecision, f *decideFlags) error {
	if f.reason = guard.Clean(f.reason); len(f.reason) > maxWords {
		return usagef("--reason: must have at most %d bytes", maxWords)
	}
	s, who, err := a.opened(ctx, a.changing)
	if err != nil {
		return err
	}
	v, err := s.Approval(ctx, who, name)
	if err != nil {
		return noApproval(err, name)
	}
	if word.Decision == journal.DecisionAnswer && v.Status == api.ApprovalPending && v.Fits(word.Decision) {
		if word.Result, err = service.AnswerJSON(v.Schema, f.answer); err != nil {
			return err
		}
	}
	// A person is not asked about decisions that they may not make.
	d := service.Decision{CallDecision: word, Calls: f.calls, Digest: f.digest, Reason: f.reason, Remember: f.remembered()}
	if err := s.Check(ctx, who, v, d); err != nil {
		return a.withWay(err, v, word)
	}
	if d.Digest == "" {
		if !a.inTerminal || !a.errTerminal {
			return usagef("--digest: is required without a terminal, so that the decision is about what was reviewed; read "+
				"it with: %s approvals show %s", a.self(), v.ID)
		}
		d.Digest = v.Digest
		asks := a.agrees
		if word.Decision == journal.DecisionApprove {
			asks = a.asks
		}
		if ok, err := asks(ctx, v, &d); err != nil || !ok {
			return cmp.Or(err, errors.New("nothing was decided"))
		}
	}
	view, err := s.Decide(ctx, who, v, d)
	if err != nil {
		return a.withWay(err, v, word)
	}
	return a.decided(ctx, v, view, who, &d, f)
}

// asks shows an approval as a run does on a terminal, and records the answer of the person. Edited
// arguments are shown with the change that they would make.
func (a *app) asks(ctx context.Context, v *service.Approval, d *service.Decision) (ok bool, err error) {
	ask := *v.Request()
	ask.Calls = callsNamed(ask.Calls, d.Calls)
	if d.Arguments != nil {
		if ask.Calls[0], err = a.api.Edited(ctx, v, ask.Calls[0], d.Arguments); err != nil {
			return false, err
		}
	}
	if d.Remember != nil {
		a.note("y: " + render.RememberText(ask.Calls, *d.Remember))
	}
	a.asking(func(ctx context.Context, answers *terminal.Input) {
		approver := &render.Approver{In: answers, Out: a.err, Style: a.style, Hint: hintText}
		var said render.Answer
		if said, ok = approver.Answer(ctx, render.Question{Ask: ask}); !ok {
			return
		}
		d.Reason = cmp.Or(said.Reason, d.Reason)
		switch {
		case len(said.Calls) > 0:
			d.Each, d.CallDecision = said.Calls, journal.CallDecision{}
		case said.Decision != journal.DecisionApprove:
			d.CallDecision, d.Remember = journal.CallDecision{Decision: said.Decision}, nil
		case said.Remember != nil:
			d.Remember = said.Remember
		}
	})
	return ok, nil
}

// callsNamed returns the calls with these IDs, or all calls if ids is empty.
func callsNamed(calls []journal.ApprovalItem, ids []string) []journal.ApprovalItem {
	return slices.DeleteFunc(slices.Clone(calls), func(c journal.ApprovalItem) bool {
		return len(ids) > 0 && !slices.Contains(ids, c.ID)
	})
}

// agrees shows the subject of a decision and asks for confirmation.
func (a *app) agrees(_ context.Context, v *service.Approval, d *service.Decision) (bool, error) {
	s := a.style
	if v.Question != "" {
		fmt.Fprint(a.err, s.Quoted(v.Question))
	}
	calls := callsNamed(v.Request().Calls, d.Calls)
	for i := range calls {
		if v.Kind != journal.ApprovalInput {
			fmt.Fprint(a.err, s.Item(&calls[i], true))
		}
	}
	question := map[string]string{
		journal.DecisionDeny: "Deny", journal.DecisionRetry: "Run once more", journal.DecisionHappened: "Count as happened",
		journal.DecisionNotHappened: "Count as not happened", journal.DecisionAnswer: "Answer with " + string(d.Result),
	}[d.Decision]
	if ask := v.Request(); ask.Secret() {
		question = "Answer"
	}
	what := "this call"
	switch {
	case v.Kind == journal.ApprovalInput:
		what = "this question"
	case len(calls) > 1:
		what = fmt.Sprintf("these %d calls", len(calls))
	}
	return a.confirm(question + ": " + what + "?"), nil
}

// decided reports the decision and how to continue, or continues.
func (a *app) decided(
	ctx context.Context, v *service.Approval, view api.Decided, who toolcrib.Principal, d *service.Decision,
	f *decideFlags,
) error {
	servers := v.Driver() == env.DriverServer // the server continues it
	switch {
	case f.json && f.resume && !servers:
	case f.json:
		return printJSON(a.out, view, true)
	default:
		text := v.ID + ": " + strings.ReplaceAll(view.Decision, "_", " ")
		each := make([]string, len(view.Calls))
		for i, id := range view.Calls {
			each[i] = strings.TrimSpace(id + " " + d.Each[id].Decision)
		}
		if len(each) > 0 {
			text += " (" + strings.Join(each, ", ") + ")"
		}
		fmt.Fprintln(a.out, guard.Visible(text))
		if d.Remember != nil {
			fmt.Fprintln(a.out, render.RememberText(v.Items(view.Calls), *d.Remember))
		}
		if len(view.Open) > 0 {
			fmt.Fprintf(a.out, "still open: %s\n", guard.Visible(strings.Join(view.Open, ", ")))
		} else if a.remote != nil && !f.resume {
			fmt.Fprintf(a.out, "the server continues the run: %s runs events %s --follow\n", a.self(), short(v.Run))
		} else if servers {
			fmt.Fprintln(a.out, a.toContinue(v.Driver(), v.Run))
		} else if !f.resume {
			if !env.Visible(who, v.User) {
				fmt.Fprintf(a.out, "%s can continue the run: ", guard.Visible(v.User))
			}
			fmt.Fprintf(a.out, "%s runs resume %s\n", a.self(), short(v.Run))
		}
	}
	if !f.resume || servers {
		return nil
	}
	return a.resumeDecided(ctx, v.Run, &runFlags{json: f.json})
}

// remembered returns what to remember, or nil for nothing.
func (f *decideFlags) remembered() *journal.Remember {
	if f.remember == "" {
		return nil
	}
	return &journal.Remember{Scope: f.remember, Calls: f.rememberCalls}
}

// anotherText says who must approve. It returns "" if any user may.
func (a *app) anotherText(who toolcrib.Principal, user string, kind journal.ApprovalKind) string {
	if !a.api.NeedsAnother(who, user) {
		return ""
	}
	const text = "approvals.four_eyes: another person than %s must %s, an administrator or one with the role " +
		agent.RoleApprover
	switch kind {
	case journal.ApprovalCall:
		return fmt.Sprintf(text, guard.Visible(user), "approve")
	case journal.ApprovalInDoubt:
		return fmt.Sprintf(text, guard.Visible(user), "decide that calls run once more")
	}
	return ""
}

// withWay adds the next step to an error about a refused decision.
func (a *app) withWay(err error, v *service.Approval, word journal.CallDecision) error {
	switch {
	case errors.Is(err, agent.ErrFourEyes):
		return fmt.Errorf("%w\nAnother person, who is an administrator or has the role %s, decides with: "+
			"%s approvals show %s", err, agent.RoleApprover, a.self(), v.ID)
	case v.Status == api.ApprovalExpired:
		return fmt.Errorf("%w; %s", err, a.toContinue(v.Driver(), v.Run))
	case v.Status == api.ApprovalPending && !v.Fits(word.Decision):
		what, commands := service.NextCommands(a.self(), a.resumer(v.Driver()), v.Run, v.Request(), true)
		return usagef("approval %s waits for %s, and %s does not fit; use: %s", v.ID, what,
			strings.ReplaceAll(word.Decision, "_", " "), strings.Join(commands, "\n  or: "))
	}
	return err
}

// asking opens the terminal for the questions of a command that does not drive a run. A signal ends the
// process once the terminal is restored.
func (a *app) asking(ask func(ctx context.Context, answers *terminal.Input)) {
	if cause := a.asked(ask); cause != nil {
		fmt.Fprintln(a.err)
		os.Exit(codeOf(cause))
	}
}

// asked opens the terminal for questions. A signal ends them, and is returned as the cause.
func (a *app) asked(ask func(ctx context.Context, answers *terminal.Input)) (cause error) {
	answers, err := terminal.Open(a.in, a.err)
	if err != nil {
		a.notice("the terminal: %v", err)
		return nil // without a terminal there is no answer
	}
	ctx, stop := a.interruptible(context.Background(), "", io.Discard)
	unhook := context.AfterFunc(ctx, answers.Cancel)
	ask(ctx, answers)
	cause = context.Cause(ctx)
	unhook()
	_ = answers.Close() // was only read
	stop()
	return cause
}

// unanswered is the key returned if there was no answer.
const unanswered = "unanswered"

// answer asks one question once no key has been typed for the duration calm, and returns the key that
// answers it, or unanswered.
func (a *app) answer(
	ctx context.Context, answers *terminal.Input, question, tail string, calm time.Duration, keys []render.Key,
) string {
	answers.Settle(ctx, calm)
	if ctx.Err() != nil {
		return unanswered
	}
	fmt.Fprint(a.err, a.style.Question(question+" "+tail)+" ")
	line, err := answers.Line()
	if err != nil {
		fmt.Fprintln(a.err)
		return unanswered
	}
	return render.Pressed(keys, line)
}
