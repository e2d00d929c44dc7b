package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/policy"
)

// onBus opens the service and looks for tools of other nodes.
func (a *app) onBus(open opening) opening {
	return func(ctx context.Context) (*service.Service, toolcrib.Principal, error) {
		s, who, err := open(ctx)
		if err == nil {
			if err := s.Bus.Need(ctx); err != nil {
				a.notice("tools of other nodes are missing: %v", err)
			}
		}
		return s, who, err
	}
}

func (a *app) toolsListCommand(cmd *cobra.Command) {
	group := cmd.Flags().String("group", "", "")
	listing(a, cmd, a.onBus(a.reading), "NAME|STATE|+FOR|+EFFECT|+SOURCE|DESCRIPTION", func(c call) ([]policy.Tool, error) {
		list, err := c.at.Tools(c, c.who)
		if *group != "" {
			list = slices.DeleteFunc(list, func(v policy.Tool) bool { return v.Group != *group })
		}
		if err == nil && *group != "" && len(list) == 0 {
			err = toolcrib.Errorf(toolcrib.CodeNotFound, "there is no group %q", *group)
		}
		return list, err
	}, func(v *policy.Tool) []string {
		who := "all"
		if v.RequiresAdmin {
			who = "admin"
		}
		// The lines after the first are details, such as spawn's list of agents.
		about, _, _ := strings.Cut(v.Description, "\n")
		return []string{v.Name, stateText(v.State), who, string(v.Effect), v.Source, about}
	})
}

// maxWhy bounds the reason why a tool cannot be used, in a list.
const maxWhy = 80

// stateText says whether a tool is enabled, and by which setting.
func stateText(s gate.State) string {
	text := "disabled"
	if s.Enabled {
		text = "enabled"
	}
	switch {
	case s.AllDisabled:
		return text + " (tools.enabled)"
	case s.Unusable != "":
		return text + " (" + guard.Clip(s.Unusable, maxWhy) + ")"
	case s.GroupDisabled:
		return text + " (group)"
	case s.Overridden:
		return text + " (override)"
	}
	return text
}

func (a *app) toolsShowCommand(cmd *cobra.Command) {
	a.answering(cmd, a.onBus(a.reading), func(c call) (any, func(), error) {
		v, err := c.at.Tool(c, c.who, c.arg())
		return v, func() { a.showTool(v) }, err
	})
}

func (a *app) showTool(v policy.Tool) {
	s := a.outStyle
	fmt.Fprintf(a.out, "%s  %s\n%s\n\n", s.Bold(guard.Visible(v.Name)), stateText(v.State), guard.Visible(v.Description))
	who, usual := "everybody", "disabled"
	if v.RequiresAdmin {
		who = "administrators"
	}
	if v.EnabledByDefault {
		usual = "enabled"
	}
	a.fields(11, "effect", string(v.Effect), "group", v.Group, "source", v.Source, "for", who, "by default", usual,
		"calls", fmt.Sprintf("%d, %d of them failed", v.Calls, v.Errors), "unusable", v.Unusable)
	fmt.Fprintf(a.out, "\n%s\n%s\n", s.Dim("parameters"), render.Indented(json.RawMessage(v.Parameters)))
}

func (a *app) toolsSwitchCommand(cmd *cobra.Command) {
	var q policy.SwitchRequest
	cmd.Flags().StringVar(&q.Group, "group", "", "")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case q.Group != "" && len(args) > 0:
			return usagef("give a tool or --group, not both")
		case q.Group == "" && len(args) != 1:
			return usagef("give the name of one tool, or --group")
		}
		return nil
	}
	a.answering(cmd, a.forAdministrators(a.onBus(a.changing)), func(c call) (any, func(), error) {
		word := map[string]string{"enable": "enabled", "disable": "disabled", "reset": "reset to the default"}[cmd.Name()]
		q.Enabled, q.Reset, q.Tool = cmd.Name() == "enable", cmd.Name() == "reset", c.arg()
		done, err := c.at.SwitchTool(c, c.who, q)
		if err != nil {
			return nil, nil, err
		}
		if !done.Changed {
			word += " already"
		}
		if q.Group != "" {
			return append([]policy.Tool{}, done.Tools...), func() { a.says("group "+q.Group, word) }, nil
		}
		said := func() { a.says(q.Tool, word) }
		if len(done.Tools) == 0 {
			return nil, said, nil
		}
		t := done.Tools[0]
		switch {
		case cmd.Name() == "disable":
		case t.AllDisabled:
			a.notice("%s stays off, because tools.enabled is false", t.Name)
		case t.GroupDisabled:
			a.notice("%s stays off, because its group is: toolcrib tools enable --group %s", t.Name, t.Group)
		}
		return t, said, nil
	})
}

func (a *app) toolsCallCommand(cmd *cobra.Command) {
	var f runFlags
	var args string
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

// call makes a run of one given call.
func (a *app) call(cmd *cobra.Command, f *runFlags, name string, raw []byte) error {
	at, who, err := a.opened(cmd.Context(), a.knowing)
	if err != nil {
		return err
	}
	r, err := a.request(cmd, f)
	if err != nil {
		return err
	}
	r.Given = at.GivenCall(name, raw)
	do := func(ctx context.Context, f service.Front) (service.Run, error) { return at.Start(ctx, who, r, f) }
	run, err := a.carry(cmd.Context(), nil, nil, who, r.Approve, do)
	if err != nil {
		return a.cutOff(&run, err)
	}
	if f.json {
		if err := printJSON(a.out, run, true); err != nil {
			return err
		}
	} else if r := run.Trace[0]; r.Status != "" {
		content := r.Result // unchanged for programs, with visible control characters for people
		if a.outTerminal {
			content = guard.Visible(content)
		}
		fmt.Fprintln(a.out, strings.TrimSuffix(content, "\n"))
	}
	a.parked(cmd.Context(), who, &run)
	return silent(exitOfCall(&run))
}

// exitOfCall returns the exit code of tools call.
func exitOfCall(run *service.Run) int {
	switch {
	case run.Status.Parked():
		return exitParked
	case run.Status == toolcrib.StatusCancelled:
		return exitCanceled
	case run.Trace[0].Status == toolcrib.ResultRefused:
		return exitRefused
	case run.Trace[0].Status != toolcrib.ResultOK: // also without a result
		return exitFailed
	}
	return exitOK
}

func (a *app) toolsExplainCommand(cmd *cobra.Command) {
	var f explainFlags
	flags := cmd.Flags()
	flags.StringVar(&f.agent, "agent", "", "")
	flags.StringVar(&f.tools, "tools", "", "")
	flags.StringArrayVar(&f.skills, "skill", nil, "")
	flags.BoolVar(&f.readOnly, "read-only", false, "")
	flags.StringVar(&f.args, "args", "", "")
	flags.StringArrayVar(&f.tainted, "tainted", nil, "")
	approveFlag(cmd, &f.runFlags)
	flags.Func("workspace", "", filled(&f.workspace))
	flags.Func("run", "", filled(&f.run))
	a.answering(cmd, nil, func(c call) (value any, text func(), err error) {
		var r service.StartRequest
		if err = f.check(flags, c.args); err == nil {
			c.at, c.who, err = a.opened(c, a.onBus(a.reading))
		}
		if err == nil {
			r, err = a.request(cmd, &f.runFlags)
		}
		q := r.Explain()
		q.Run, q.Tainted, q.Tool = f.run, f.tainted, c.arg()
		if err == nil && flags.Changed("args") {
			var raw []byte
			raw, err = a.jsonArgument(f.args)
			q.Given = c.at.GivenCall(q.Tool, raw)
		}
		if err != nil {
			return nil, nil, err
		}
		x, err := c.at.Explain(c, c.who, q)
		if q.Tool == "" {
			for _, n := range x.Notices {
				a.notice("%s", n.Message)
			}
		}
		if err == nil && q.Tool != "" && !x.Tools[0].Registered {
			all, err := c.at.Tools(c, c.who)
			names, _ := listed(all, func(t policy.Tool) string { return t.Name }, err) // no names if that fails
			if near := guard.Nearest(q.Tool, names); near != "" {
				a.notice("did you mean %s?", near)
			}
		}
		switch {
		case err != nil:
			return nil, nil, noSuch("runs", err, f.run)
		case x.Call != nil:
			return []explainedCall{{Explanation: x.Tools[0], Call: *x.Call}}, func() {
				a.explainOne(&x.Tools[0])
				a.showVerdict(q.Given, x.Call)
			}, nil
		case q.Tool != "":
			return x.Tools, func() { a.explainOne(&x.Tools[0]) }, nil
		}
		return x.Tools, func() { a.explainAll(x.Tools) }, nil
	})
}

// jsonArgument returns the value of a flag, or standard input for -.
func (a *app) jsonArgument(text string) ([]byte, error) {
	if text == "-" {
		return a.readStdin()
	}
	return []byte(text), nil
}

// explainAll prints one line for each tool, and the entries of the lists that match no tool.
func (a *app) explainAll(answers []gate.Explanation) {
	table(a, "TOOL|OFFERED|BECAUSE", answers, func(x *gate.Explanation) []string {
		answer, why := "yes", confirmText(x)
		if !x.Offered {
			answer = "no"
			if l := deciding(x); l != nil {
				why = layerText(l)
			}
		}
		return []string{x.Tool, answer, why}
	})
	if len(answers) == 0 {
		return
	}
	for _, l := range answers[0].Layers {
		if len(l.Unknown) > 0 {
			fmt.Fprintf(a.out, "\n%s: no tool matches %s\n", l.Layer, guard.Visible(strings.Join(l.Unknown, ", ")))
		}
	}
}

// deciding returns the first layer that refuses.
func deciding(x *gate.Explanation) *gate.LayerAnswer {
	for i := range x.Layers {
		if !x.Layers[i].Allowed {
			return &x.Layers[i]
		}
	}
	return nil
}

func layerText(l *gate.LayerAnswer) string { return because(string(l.Layer), l.Detail, l.Position) }

func confirmText(x *gate.Explanation) string {
	text := "calls need no approval"
	if x.Confirm.Asks {
		text = "calls need an approval"
	}
	return because(text, x.Confirm.Why, x.Confirm.Position)
}

// because formats a text with its reason and position.
func because(text, why, position string) string {
	if why != "" {
		text += ": " + why
	}
	if position != "" {
		text += " (" + position + ")"
	}
	return text
}

// explainOne prints everything about one tool.
func (a *app) explainOne(x *gate.Explanation) {
	s := a.outStyle
	defer func() {
		for _, n := range x.Notes {
			fmt.Fprintf(a.out, "  %s\n", s.Dim(guard.Visible(n)))
		}
	}()
	if !x.Registered {
		fmt.Fprintf(a.out, "%s: there is no such tool (%s)\n", s.Bold(guard.Visible(x.Tool)), x.Reason)
		return
	}
	verdict := s.Green("is offered")
	if !x.Offered {
		verdict = s.Red("is not offered: " + string(x.Reason))
	}
	fmt.Fprintf(a.out, "%s %s\n", s.Bold(guard.Visible(x.Tool)), verdict)
	decides := deciding(x)
	for i := range x.Layers {
		l := &x.Layers[i]
		mark, note := s.Green("✓"), ""
		if !l.Allowed {
			mark = s.Red("✗")
		}
		if l == decides {
			note = s.Bold("  ← this decides")
		}
		fmt.Fprintf(a.out, "  %s %s%s\n", mark, guard.Visible(layerText(l)), note)
		if len(l.Unknown) > 0 {
			fmt.Fprintf(a.out, "      %s\n", s.Dim("no tool matches "+guard.Visible(strings.Join(l.Unknown, ", "))))
		}
	}
	fmt.Fprintf(a.out, "  %s\n", guard.Visible(confirmText(x)))
	for _, r := range x.Rules {
		fmt.Fprintf(a.out, "  %s\n", guard.Visible(ruleText(r)))
	}
}

// explainFlags are the flags of tools explain.
type explainFlags struct {
	runFlags
	args    string
	tainted []string
	run     string
}

// check rejects flags that have no meaning without others.
func (f *explainFlags) check(flags *pflag.FlagSet, names []string) error {
	if flags.Changed("run") {
		for _, name := range []string{"agent", "tools", "skill", "read-only", "workspace", "approve"} {
			if flags.Changed(name) {
				return usagef("--%s: the run has its own; leave it out, or leave out --run", name)
			}
		}
	}
	if flags.Changed("args") {
		if len(names) != 1 {
			return usagef("--args: judges a call of one tool; give its name")
		}
		return nil
	}
	for _, name := range []string{"tainted", "approve"} {
		if flags.Changed(name) {
			return usagef("--%s: is about a call; give its arguments with --args", name)
		}
	}
	return nil
}

// explainedCall is an explanation with the verdict on one call.
type explainedCall struct {
	gate.Explanation
	Call policy.JudgedCall `json:"call"`
}

// showVerdict shows the gate's verdict on a call, and the reason.
func (a *app) showVerdict(call *toolcrib.ToolCall, j *policy.JudgedCall) {
	s, v := a.outStyle, &j.Verdict
	fmt.Fprintf(a.out, "\n%s", s.Call(call.Name, call.Arguments, ""))
	mark, word := s.Red("✗"), "would be refused"
	if v.Decision == toolcrib.Ask {
		mark, word = s.Yellow("?"), "would be asked about"
	}
	if v.Decision == toolcrib.Allow {
		fmt.Fprintf(a.out, "  %s %s\n", s.Green("✓"), s.Bold("would run"))
	} else {
		fmt.Fprintf(a.out, "  %s %s: %s\n", mark, s.Bold(word+" ("+string(v.Reason)+")"), guard.Visible(v.Message))
	}
	rows := []string{"    rule", v.Rule, "    position", v.Position, "    detail", v.Detail}
	if v.Reason != toolcrib.ReasonNotRegistered {
		rows = append(rows, "    effect", string(v.Effect), "    targets", targetsText(v.Targets), "    programs",
			programsText(j.Programs))
	}
	rows = append(rows, "    approval", v.Approval)
	a.fields(13, rows...)
	fmt.Fprint(a.out, s.Preview(v.Preview, true))
}

func programsText(programs []policy.Program) string {
	lines := make([]string, len(programs))
	for i, p := range programs {
		for _, w := range append([]*string{p.Name}, p.Args...) {
			text := "…"
			if w != nil {
				text = *w
			}
			lines[i] += " " + text
		}
	}
	return strings.TrimSpace(strings.Join(lines, ","))
}

func targetsText(targets []toolcrib.Target) string {
	parts := make([]string, len(targets))
	for i, t := range targets {
		parts[i] = t.Kind + " " + t.Name
		if t.Write {
			parts[i] += " (written)"
		}
		if t.Tree {
			parts[i] += " (and what is below it)"
		}
	}
	return strings.Join(parts, ", ")
}

// ruleText formats a rule on one line: its subject, its effect, and its position.
func ruleText(r gate.RuleInfo) string {
	text := fmt.Sprintf("rule %s: %s", r.Name, r.Then)
	if when := strings.Join(strings.Fields(r.When), " "); when != "" {
		text += " when " + when
	}
	return because(text, "", r.Position)
}
