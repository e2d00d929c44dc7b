package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) toolsExplainCommand(cmd *cobra.Command) {
	var f explainFlags
	cmd.ValidArgsFunction = a.completeTools
	flags := cmd.Flags()
	flags.StringVar(&f.agent, "agent", "", "")
	flags.StringVar(&f.tools, "tools", "", "")
	a.skillFlag(cmd, &f.runFlags)
	flags.BoolVar(&f.readOnly, "read-only", false, "")
	flags.StringVar(&f.args, "args", "", "")
	flags.StringArrayVar(&f.tainted, "tainted", nil, "")
	flags.StringVar(&f.approve, "approve", "", "")
	flags.Func("workspace", "", filled(&f.workspace))
	flags.Func("run", "", filled(&f.run))
	a.answering(cmd, nil, func(c call) (value any, text func(), err error) {
		q := service.ExplainRequest{Run: f.run, Tainted: f.tainted, Tool: c.arg()}
		if err = f.check(flags, c.args); err == nil {
			q.StartRequest, err = a.request(cmd, &f.runFlags)
		}
		if err == nil {
			c.at, c.who, err = a.opened(c, a.reading)
		}
		if err == nil && flags.Changed("args") {
			var raw []byte
			raw, err = a.jsonArgument(f.args)
			q.Given = c.at.GivenCall(q.Tool, raw)
		}
		if err != nil {
			return nil, nil, err
		}
		x, err := c.at.Explain(c, c.who, q)
		switch {
		case err != nil:
			return nil, nil, noRun(err, f.run)
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

// jsonArgument is the value of a flag, or what standard input holds for -.
func (a *app) jsonArgument(text string) ([]byte, error) {
	if text == "-" {
		return a.readStdin()
	}
	return []byte(text), nil
}

// explainAll is one line for each tool, and what on the lists means none.
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

// deciding is the first layer that refuses.
func deciding(x *gate.Explanation) *gate.LayerAnswer {
	for i := range x.Layers {
		if !x.Layers[i].Allowed {
			return &x.Layers[i]
		}
	}
	return nil
}

func layerText(l *gate.LayerAnswer) string {
	text := string(l.Layer)
	if l.Detail != "" {
		text += ": " + l.Detail
	}
	if l.Position != "" {
		text += " (" + l.Position + ")"
	}
	return text
}

func confirmText(x *gate.Explanation) string {
	text := "calls need no approval"
	if x.Confirm.Asks {
		text = "calls need an approval"
	}
	if x.Confirm.Why != "" {
		text += ": " + x.Confirm.Why
	}
	if x.Confirm.Position != "" {
		text += " (" + x.Confirm.Position + ")"
	}
	return text
}

// explainOne tells everything about one tool.
func (a *app) explainOne(x *gate.Explanation) {
	s := a.outStyle
	if !x.Registered {
		fmt.Fprintf(a.out, "%s: there is no such tool (%s)\n", s.Bold(guard.Visible(x.Tool)), x.Reason)
		return
	}
	verdict := s.Green("is offered")
	if !x.Offered {
		verdict = s.Red("is not offered: " + string(x.Reason))
	}
	fmt.Fprintf(a.out, "%s %s\n", s.Bold(guard.Visible(x.Tool)), verdict)
	first := toolcrib.Reason("")
	for i := range x.Layers {
		l := &x.Layers[i]
		mark := s.Green("✓")
		note := ""
		if !l.Allowed {
			mark = s.Red("✗")
			if first == "" {
				first, note = l.Layer, s.Bold("  ← this decides")
			}
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
	for _, n := range x.Notes {
		fmt.Fprintf(a.out, "  %s\n", s.Dim(guard.Visible(n)))
	}
}

// explainFlags are the flags of tools explain.
type explainFlags struct {
	runFlags
	args    string
	tainted []string
	run     string
}

// check refuses flags that mean nothing without others.
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
	Call service.JudgedCall `json:"call"`
}

// showVerdict shows what the gate says about a call, and why.
func (a *app) showVerdict(call *toolcrib.ToolCall, j *service.JudgedCall) {
	s, v := a.outStyle, &j.Verdict
	fmt.Fprintf(a.out, "\n%s", s.Call(call.Name, call.Arguments, ""))
	switch v.Decision {
	case toolcrib.Allow:
		fmt.Fprintf(a.out, "  %s %s\n", s.Green("✓"), s.Bold("would run"))
	case toolcrib.Ask:
		fmt.Fprintf(a.out, "  %s %s: %s\n", s.Yellow("?"), s.Bold("would be asked about ("+string(v.Reason)+")"),
			guard.Visible(v.Message))
	default:
		fmt.Fprintf(a.out, "  %s %s: %s\n", s.Red("✗"), s.Bold("would be refused ("+string(v.Reason)+")"),
			guard.Visible(v.Message))
	}
	rows := [][2]string{{"    rule", v.Rule}, {"    position", v.Position}, {"    detail", v.Detail}}
	if v.Reason != toolcrib.ReasonNotRegistered {
		rows = append(rows, [2]string{"    effect", string(v.Effect)},
			[2]string{"    targets", targetsText(v.Targets)}, [2]string{"    programs", programsText(j.Programs)})
	}
	rows = append(rows, [2]string{"    approval", v.Approval})
	a.fields(13, rows...)
	fmt.Fprint(a.out, s.Preview(v.Preview, true))
}

func programsText(programs []service.Program) string {
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

// ruleText tells a rule in one line: what it is about, what it says, and where it
// stands.
func ruleText(r gate.RuleInfo) string {
	text := fmt.Sprintf("rule %s: %s", r.Name, r.Then)
	if when := strings.Join(strings.Fields(r.When), " "); when != "" {
		text += " when " + when
	}
	if r.Position != "" {
		text += " (" + r.Position + ")"
	}
	return text
}
