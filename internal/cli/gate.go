package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/service/policy"
)

// The values of --fail-on.
const (
	failWidened = "widened"
	failChanged = "changed"
)

func (a *app) gateBacktestCommand(cmd *cobra.Command) {
	var r policy.BacktestRequest
	var failOn string
	flags := cmd.Flags()
	sinceUntil(flags, &r.Since, &r.Until)
	flags.StringVar(&r.User, "user", "", "")
	flags.StringVar(&r.Agent, "agent", "", "")
	flags.Func("run", "", filled(&r.Run))
	flags.IntVar(&r.Limit, "limit", 1000, "")
	choice(cmd, "fail-on", &failOn, failWidened, failChanged)
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		switch {
		case r.Limit < 0:
			return nil, nil, usagef("--limit: must be 1 or more, or 0 for all")
		case r.Run != "" && slices.ContainsFunc([]string{"since", "until", "user", "agent", "limit"}, flags.Changed):
			return nil, nil, usagef("--run: cannot be combined with other filters")
		}
		b, err := a.backtest(c, r, c.json)
		if err == nil && (len(b.Summary.Damaged) > 0 || len(failures(&b, failOn)) > 0) {
			err = silent(exitFailed)
		}
		return b, func() { a.summarize(&b, failOn) }, noSuch("runs", err, r.Run)
	})
}

// backtest judges the stored calls again and shows progress. Unless the output is JSON, it shows the
// calls with a different verdict.
func (a *app) backtest(ctx context.Context, r policy.BacktestRequest, asJSON bool) (b policy.Backtest, err error) {
	if _, err := a.administering(ctx); err != nil {
		return b, err
	}
	c, err := a.configuration()
	if err == nil {
		_, err = a.about(c).Policy.CheckRules() // before a store is created for it
	}
	if err == nil {
		err = a.openRuns(ctx, c)
	}
	if err != nil {
		return b, err
	}
	s, who, err := a.reading(ctx)
	if err != nil {
		return b, err
	}
	shown, told := &progress{a: a}, toolcrib.RunID("")
	defer shown.end()
	r.Looked = func(runs, calls int) { shown.show(render.Count(runs, "run") + ", " + render.Count(calls, "call")) }
	if !asJSON {
		r.Damaged = func(err error) { shown.end(); a.complain(err.Error()) }
		r.Changed = func(c policy.ChangedCall) {
			shown.end()
			a.showChanged(&c, told != c.Run)
			told = c.Run
		}
	}
	return s.Policy.Backtest(ctx, who, r)
}

// showChanged shows a call with a different verdict, under the name of its run if it is the run's
// first.
func (a *app) showChanged(c *policy.ChangedCall, first bool) {
	out, s := a.out, a.outStyle
	if first {
		fmt.Fprintf(out, "%s  %s  %s\n", s.Bold(short(c.Run)), minute(c.Time),
			guard.Visible(c.User+", "+c.Agent))
	}
	const most = 100 // bound of its arguments, in characters
	word := map[agent.Change]string{
		agent.Wider: s.Red("wider"), agent.Narrower: s.Yellow("narrower"), agent.Otherwise: s.Dim("reason"),
	}[c.Change]
	fmt.Fprintf(out, "  %s  %s %s\n", word, guard.Visible(c.Tool), render.Arguments(c.Arguments, most))
	fmt.Fprintf(out, "    %s -> %s\n", guard.Visible(verdictText(c.Old, false)), guard.Visible(verdictText(c.New, true)))
}

// verdictText formats a verdict and where it was decided.
func verdictText(v policy.ShownVerdict, position bool) string {
	text := map[toolcrib.Decision]string{toolcrib.Allow: "allowed", toolcrib.Ask: "asked"}[v.Decision]
	if text == "" {
		text = "refused"
	}
	var why []string
	if v.Reason != "" {
		why = append(why, string(v.Reason))
	}
	if v.Rule != "" {
		why = append(why, "rule "+v.Rule)
	}
	if position && v.Position != "" {
		why = append(why, v.Position)
	}
	if len(why) > 0 {
		text += " (" + strings.Join(why, ", ") + ")"
	}
	return text
}

// failures lists the findings that --fail-on selects.
func failures(b *policy.Backtest, on string) (found []string) {
	s := &b.Summary
	add := func(n int, noun, text string) {
		if n > 0 {
			found = append(found, render.Count(n, noun)+" "+text)
		}
	}
	if on == "" {
		return nil
	}
	add(s.Wider, "call", "decided wider")
	add(s.Offered, "tool", "newly offered")
	if on == failChanged {
		add(s.Narrower, "call", "decided narrower")
		add(s.Otherwise, "call", "decided for another reason")
		add(s.Withdrawn, "tool", "no longer offered")
	}
	if s.Judged == 0 { // no calls were judged, which is not a pass
		found = append(found, "no call was judged")
	}
	return found
}

func (a *app) summarize(b *policy.Backtest, failOn string) {
	out, s := a.out, &b.Summary
	a.summarizeOffers(b.Offers)
	under := "no configuration file"
	if b.Config != "" {
		under = policy.PathText(b.Config)
	}
	fmt.Fprintf(out, "%s of %s judged under %s: %d unchanged, %d wider, %d narrower, %d for another reason\n",
		render.Count(s.Judged, "call"), render.Count(s.Runs, "run"), under, s.Unchanged, s.Wider, s.Narrower, s.Otherwise)
	for _, why := range [][2]string{
		{string(agent.UnjudgedTool), "the tool no longer exists"},
		{string(agent.UnjudgedCount), "refused for a number of calls or a budget that was used up then"},
		{string(agent.UnjudgedRights), "what the user might do had changed since the run began"},
		{string(agent.UnjudgedWorkspace), "the workspace of the run can no longer be used"},
		{string(agent.UnjudgedToken), "the access token of the run is no longer known"},
	} {
		if n := s.Unjudged[agent.Unjudged(why[0])]; n > 0 {
			fmt.Fprintf(out, "%s could not be judged: %s\n", render.Count(n, "call"), why[1])
		}
	}
	if s.Pruned > 0 {
		fmt.Fprintf(out, "%s could not be judged: the content was pruned\n", render.Count(s.Pruned, "run"))
	}
	if n := len(s.Damaged); n > 0 {
		fmt.Fprintf(out, "%s could not be read to the end\n", render.Count(n, "run"))
	}
	if s.More {
		fmt.Fprintf(out, "there are older runs that fit; --limit looks at more than %s\n", render.Number(int64(s.Limit)))
	}
	if found := failures(b, failOn); len(found) > 0 {
		fmt.Fprintf(out, "--fail-on %s: %s\n", failOn, strings.Join(found, ", "))
	}
}

// summarizeOffers shows the tools that would be offered differently, grouped by kind.
func (a *app) summarizeOffers(offers []*policy.ChangedOffer) {
	var kinds []string
	tools := map[string][]string{}
	for _, o := range offers {
		kind := "would be offered in " + render.Count(o.Runs, "run")
		if !o.Offered {
			why := verdictText(policy.ShownVerdict{Reason: o.Reason, Position: o.Position}, true)
			kind = "would not be offered in " + render.Count(o.Runs, "run") + strings.TrimPrefix(why, "refused")
		}
		if tools[kind] == nil {
			kinds = append(kinds, kind)
		}
		tools[kind] = append(tools[kind], o.Tool)
	}
	for _, kind := range kinds {
		fmt.Fprintln(a.out, guard.Visible(kind+": "+strings.Join(tools[kind], ", ")))
	}
}

// openRuns opens the store of the stored runs. A configuration under test selects the store only if it
// sets the data folder; otherwise the configuration in use does.
func (a *app) openRuns(ctx context.Context, c *config.Config) error {
	if a.configFlag == "" || a.dataFlag != "" || c.IsSet("data_dir") {
		return nil // the default
	}
	now, err := config.Load(config.Find("", os.Getenv), a.trustedAlready)
	if err != nil {
		return nil // the tested configuration is not in use
	}
	a.config = now
	defer func() { a.config = c }()
	dir, err := a.dataDir()
	if err != nil {
		return err
	}
	_, _, err = a.reading(ctx)
	a.dataFlag = dir
	return err
}

func (a *app) gateRulesCommand(cmd *cobra.Command) {
	var from time.Time
	cmd.Flags().Func("since", "", since(&from))
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		uses, err := c.Policy.RuleUses(c, c.who, from)
		return uses, func() { a.showRules(uses) }, err
	})
}

func (a *app) showRules(uses []*policy.RuleUse) {
	if len(uses) == 0 {
		fmt.Fprintln(a.out, "there are no rules; see docs/rules.md")
		return
	}
	table(a, "RULE|THEN|TOOLS|CALLS|LAST|WHERE|WHEN", uses, func(of **policy.RuleUse) []string {
		u := *of
		then, last, tools := u.Then, "never", toolsText(u.Tools)
		if u.LastUsed != nil {
			last = minute(*u.LastUsed)
		}
		if then == "" {
			then, tools = "(gone)", ""
		}
		return []string{u.Name, then, tools, fmt.Sprint(u.Hits), last, u.Position, u.When}
	})
}

// The hook of another agent: that agent makes its call unless the hook ends with 0 and a decision
// against the call, or with 2. So every failure must end with 2.

const (
	hookPath     = "toolcrib gate hook"
	hookEvent    = "PreToolUse"
	maxHookBytes = 8 << 20
	hookTime     = 10 * time.Second
)

// hookInput is the input of PreToolUse hooks in Claude Code.
type hookInput struct {
	Session string          `json:"session_id"`
	Cwd     string          `json:"cwd"`
	Event   string          `json:"hook_event_name"`
	Tool    string          `json:"tool_name"`
	Input   json.RawMessage `json:"tool_input"`
}

// answersHook ensures that the process ends with 0 or 2 within a bounded time, even if it is signaled
// to end or blocks.
func (a *app) answersHook(cmd *cobra.Command) {
	limit, err := cmd.Flags().GetDuration("timeout")
	if err != nil || limit <= 0 {
		limit = hookTime
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	judged := make(chan struct{})
	a.hook = func() { close(judged) } // a later signal ends nothing
	go func() {
		why := "it took longer than " + limit.String()
		select {
		case <-judged:
			return
		case s := <-signals:
			why = "it was told to end (" + s.String() + ")"
		case <-time.After(limit):
		}
		fmt.Fprintf(os.Stderr, "toolcrib: the call was not judged: %s\n", why)
		os.Exit(exitUsage)
	}()
}

func (a *app) gateHookCommand(cmd *cobra.Command) {
	var request policy.OtherCall
	flags := cmd.Flags()
	flags.Func("agent", "", filled(&request.Agent))
	flags.Func("workspace", "", filled(&request.Workspace))
	flags.Duration("timeout", hookTime, "")
	allow := flags.Bool("allow", false, "")
	a.doing(cmd, nil, func(c call) error {
		_, err := guard.Contain(func() (struct{}, error) { return struct{}{}, a.judgeHook(c, request, *allow) })
		return err
	})
}

// judgeHook answers a hook. It writes nothing if the other agent's own permissions are to decide.
func (a *app) judgeHook(c call, request policy.OtherCall, allow bool) error {
	err := a.readHook(&request)
	if err != nil {
		return err
	}
	if c.Service, c.who, err = a.changing(c); err != nil {
		return err
	}
	d, err := c.Policy.DecideOther(c, c.who, request)
	if err != nil || d.Decision == api.OtherAllow && !allow {
		return err
	}
	reason := "toolcrib: " + d.Reason
	if d.Rule != "" {
		reason += " (rule " + d.Rule + ")"
	}
	err = printJSON(a.out, map[string]any{"hookSpecificOutput": map[string]string{
		"hookEventName": hookEvent, "permissionDecision": d.Decision, "permissionDecisionReason": reason,
	}}, false)
	if err == nil {
		err = a.out.unread()
	}
	if err != nil { // the exit code decides; standard error has the reason
		return fmt.Errorf("%s: %s; standard output: %w", d.Decision, strings.TrimPrefix(reason, "toolcrib: "), err)
	}
	return nil
}

// readHook reads the call from standard input.
func (a *app) readHook(request *policy.OtherCall) error {
	if a.inTerminal {
		return usagef("standard input must be what a PreToolUse hook is given; see docs/hook.md")
	}
	raw, err := io.ReadAll(io.LimitReader(a.in, maxHookBytes+1))
	if err == nil && len(raw) > maxHookBytes {
		err = fmt.Errorf("it is longer than %d MiB", maxHookBytes>>20)
	}
	if err == nil {
		raw, err = guard.JSONLimits{MaxBytes: maxHookBytes}.Canonical(raw)
	}
	var in hookInput
	if err == nil && json.Unmarshal(raw, &in) != nil {
		err = errors.New("must be one JSON object; hook_event_name, tool_name, cwd and session_id are texts")
	}
	switch {
	case err != nil:
	case in.Event != hookEvent:
		err = errors.New("hook_event_name must be " + hookEvent)
	case in.Tool == "" || in.Cwd == "" || len(in.Input) == 0:
		err = errors.New("tool_name, tool_input and cwd must be there")
	}
	if err != nil {
		return usagef("standard input: %v", err)
	}
	if project := os.Getenv("CLAUDE_PROJECT_DIR"); request.Workspace == "" {
		request.Workspace = project
	}
	request.Tool, request.Arguments, request.Cwd, request.Session = in.Tool, in.Input, in.Cwd, in.Session
	return nil
}
