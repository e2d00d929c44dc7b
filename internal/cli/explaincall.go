package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

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
	Call judgedCall `json:"call"`
}

// judgedCall is a call as it would be judged now.
type judgedCall struct {
	Arguments any             `json:"arguments"`
	Taint     []string        `json:"taint,omitempty"`
	Verdict   journal.Verdict `json:"verdict"`
	Programs  []programView   `json:"programs,omitempty"`
	// Content is what a model would read of a refusal.
	Content json.RawMessage `json:"content,omitempty"`
}

// explainCall judges one call as the next one of a run, or as the first of a new
// one, and tells the verdict. Nothing runs, and nothing is kept.
func (a *app) explainCall(ctx context.Context, about *explained, f *explainFlags, x *gate.Explanation) error {
	raw := []byte(f.args)
	if f.args == "-" {
		var err error
		if raw, err = a.readStdin(); err != nil {
			return err
		}
	}
	offer, err := about.gate.Offer(ctx, about.who, about.scope)
	if err != nil {
		return err
	}
	facts := about.facts
	facts.Offered, facts.DryRun, facts.Mask = offer.Set(), true, a.mask().Mask
	for _, source := range f.tainted {
		if !slices.Contains(facts.Taint, source) {
			facts.Taint = append(facts.Taint, source)
		}
	}
	call := a.given(x.Tool, raw)
	v := about.gate.Judge(ctx, about.who, about.scope, facts, []toolcrib.ToolCall{*call})[0]
	agent.MaskVerdict(a.mask(), &v)
	judged := judgedCall{Arguments: service.Arguments(call), Taint: facts.Taint, Verdict: v.Verdict, Programs: programViews(v.Programs)}
	if v.Refused() {
		judged.Content = json.RawMessage(v.Content)
	}
	if f.json {
		if v.Refused() {
			judged.Verdict.Decision = "refuse" // the journal leaves it empty
		}
		return printJSON(a.out, []explainedCall{{Explanation: *x, Call: judged}}, true)
	}
	a.explainOne(x)
	a.showVerdict(call, &judged)
	return nil
}

// showVerdict shows what the gate says about a call, and why.
func (a *app) showVerdict(call *toolcrib.ToolCall, j *judgedCall) {
	s, v := a.outStyle, &j.Verdict
	fmt.Fprintf(a.out, "\n%s", s.Call(call.Name, call.Arguments, ""))
	switch v.Decision {
	case toolcrib.Allow:
		fmt.Fprintf(a.out, "  %s %s\n", s.Green("✓"), s.Bold("would run"))
	case toolcrib.Ask:
		fmt.Fprintf(a.out, "  %s %s: %s\n", s.Yellow("?"), s.Bold("would be asked about ("+string(v.Reason)+")"), guard.Visible(v.Message))
	default:
		fmt.Fprintf(a.out, "  %s %s: %s\n", s.Red("✗"), s.Bold("would be refused ("+string(v.Reason)+")"), guard.Visible(v.Message))
	}
	rows := [][2]string{{"rule", v.Rule}, {"position", v.Position}, {"detail", v.Detail}}
	if v.Reason != toolcrib.ReasonNotRegistered {
		rows = append(rows, [2]string{"effect", string(v.Effect)}, [2]string{"targets", targetsText(v.Targets)}, [2]string{"programs", programsText(j.Programs)})
	}
	if v.Approval != "" {
		rows = append(rows, [2]string{"approval", v.Approval})
	}
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(a.out, "    %s %s\n", s.Dim(fmt.Sprintf("%-9s", row[0])), guard.Visible(row[1]))
		}
	}
	fmt.Fprint(a.out, s.Preview(v.Preview, true))
}

// programView is a program that a call starts; a word that only the call itself will
// show is null.
type programView struct {
	Name *string   `json:"name"`
	Args []*string `json:"args"`
}

func programViews(programs []toolcrib.Program) []programView {
	var views []programView
	word := func(w toolcrib.Word) *string {
		if w.Unknown {
			return nil
		}
		return &w.Text
	}
	for _, p := range programs {
		v := programView{Name: word(p.Name), Args: make([]*string, len(p.Args))}
		for i, w := range p.Args {
			v.Args[i] = word(w)
		}
		views = append(views, v)
	}
	return views
}

func programsText(programs []programView) string {
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
