package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
)

func (a *app) toolsExplainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain [NAME]",
		Short: "Tell why a tool is or is not offered: every layer's answer",
		Long: "Tell for one tool, or for all, what every layer of the gate answers, in its order, which rules may apply to its calls, " +
			"and what is asked about. The first that refuses is the one that counts. With --args that very call is judged, and " +
			"nothing runs. It is the same code that decides at a call.",
		Example: `toolcrib tools explain
toolcrib tools explain write_file --agent reader
toolcrib tools explain get_runtime_info --as guest
toolcrib tools explain --tools 'read_*,ghost' --json
toolcrib tools explain exec_shell --args '{"command":"git push"}'
toolcrib tools explain write_file --args '{"path":"a.txt","content":"x"}' --tainted web_fetch
toolcrib tools explain write_file --run last --args '{"path":"a.txt","content":"x"}'`,
		Args:              positional,
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd.Flags(), args); err != nil {
				return err
			}
			return a.explain(cmd, &f, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.agent, "agent", "", "agent of the configuration (default: default)")
	flags.StringVar(&f.tools, "tools", "", "the run's own list, as with run --tools; '' = none")
	a.skillFlag(cmd, &f.runFlags)
	flags.BoolVar(&f.readOnly, "read-only", false, "as with run --read-only")
	flags.StringVar(&f.args, "args", "", "judge a call of the tool with these arguments, a JSON object; - reads standard input")
	flags.StringArrayVar(&f.tainted, "tainted", nil, "with --args: as if the run had read untrusted data from here; may be repeated")
	flags.StringVar(&f.approve, "approve", "", "with --args: as with run --approve; deny refuses what would be asked")
	flags.StringVar(&f.workspace, "workspace", "", "as with run --workspace")
	flags.StringVar(&f.run, "run", "", "explain for the next call of this run: its agent, user, lists, skills and taint, and today's policy")
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	return cmd
}

func (a *app) explain(cmd *cobra.Command, f *explainFlags, names []string) error {
	if _, err := a.configuration(); err != nil {
		return err
	}
	var about *explained
	var err error
	if cmd.Flags().Changed("run") {
		about, err = a.explainedRun(cmd.Context(), f.run)
	} else {
		about, err = a.explainedAgent(cmd, f)
	}
	if err != nil {
		return err
	}
	answers := about.gate.Explain(cmd.Context(), about.who, about.scope, names...)
	kept, err := a.remembered(cmd.Context(), about, answers)
	if err != nil {
		return err
	}
	about.facts.Remembered = append(about.facts.Remembered, kept...)
	about.note(answers)
	if cmd.Flags().Changed("args") {
		return a.explainCall(cmd.Context(), about, f, &answers[0])
	}
	if f.json {
		return printJSON(a.out, answers, true)
	}
	if len(names) == 1 {
		a.explainOne(&answers[0])
		return nil
	}
	a.explainAll(answers)
	return nil
}

// explainAll is one line for each tool, and what on the lists means none.
func (a *app) explainAll(answers []gate.Explanation) {
	rows := [][]string{{"TOOL", "OFFERED", "BECAUSE"}}
	for i := range answers {
		x := &answers[i]
		answer, why := "yes", confirmText(x)
		if !x.Offered {
			answer = "no"
			if l := deciding(x); l != nil {
				why = layerText(l)
			}
		}
		rows = append(rows, []string{x.Tool, answer, why})
	}
	a.outStyle.Table(a.out, rows)
	if len(answers) == 0 {
		return
	}
	for _, l := range answers[0].Layers {
		if len(l.Unknown) > 0 {
			fmt.Fprintf(a.out, "\n%s: no tool is meant by %s\n", l.Layer, guard.Visible(strings.Join(l.Unknown, ", ")))
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
			fmt.Fprintf(a.out, "      %s\n", s.Dim("no tool is meant by "+guard.Visible(strings.Join(l.Unknown, ", "))))
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
