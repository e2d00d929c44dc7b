package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	udiff "github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"

	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/team"
)

// teamFlags are the flags of confer, coordinate and assess.
type teamFlags struct {
	runFlags
	service.TeamRequest
	agents, inner, context, file string
	cap, capMode                 string
	maxTime                      time.Duration
	failBelow                    float64
	diff                         bool
}

// teamCommand adds a command that asks several agents: confer, coordinate or assess.
func (a *app) teamCommand(cmd *cobra.Command) {
	f, kind := &teamFlags{}, team.Kind(cmd.Name())
	f.Kind = kind
	flags := cmd.Flags()
	flags.StringVar(&f.agents, "agents", "", "")
	flags.Func("panel", "", filled(&f.Panel))
	flags.Func("context", "", filled(&f.context))
	flags.BoolVar(&f.Untrusted, "untrusted", false, "")
	flags.StringVar(&f.inner, "worker-tools", "", "")
	flags.StringVar(&f.cap, "worker-tool-cost-cap", "", "")
	flags.StringVar(&f.capMode, "worker-tool-cost-cap-mode", "", "")
	flags.DurationVar(&f.maxTime, "max-time", 0, "")
	flags.Float64Var(&f.MaxCostUSD, "max-cost", 0, "")
	flags.StringArrayVar(&f.attach, "attach", nil, "")
	a.sessionFlags(cmd, &f.runFlags)
	flags.Func("workspace", "", filled(&f.workspace))
	approveFlag(cmd, &f.runFlags)
	outputFlags(cmd, &f.runFlags)
	switch kind {
	case team.Confer:
		flags.BoolVar(&f.Ballot, "ballot", false, "")
		flags.Float64Var(&f.StopAt, "stop-at", 0, "")
		flags.BoolVar(&f.diff, "diff", false, "")
	case team.Coordinate:
		flags.Func("proposer", "", filled(&f.Proposer))
		flags.Func("synthesizer", "", filled(&f.Synthesizer))
	case team.Assess:
		flags.Func("run", "", filled(&f.Run))
		flags.Func("of-session", "", filled(&f.Of))
		flags.Func("file", "", filled(&f.file))
		flags.Func("rubric", "", filled(&f.RubricFile))
		flags.BoolVar(&f.AllowSelf, "allow-self", false, "")
		flags.Float64Var(&f.failBelow, "fail-below", 0, "")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		format, err := f.format()
		if err != nil {
			return err
		}
		ask := a.piped
		if f.context == "-" { // standard input is the context
			ask = a.words
		}
		if f.Question, err = ask(args); err == nil && kind != team.Assess {
			err = checkPrompt(cmd, f.Question)
		}
		if err != nil {
			return err
		}
		return a.team(cmd, f, format)
	}
}

// team asks the agents and shows their answers.
func (a *app) team(cmd *cobra.Command, f *teamFlags, format string) error {
	ctx := cmd.Context()
	s, err := a.svc()
	if err != nil {
		return err
	}
	who, err := a.principal(ctx)
	if err != nil {
		return err
	}
	if err := a.readTeam(cmd, f); err != nil {
		return err
	}
	r := service.StartRequest{
		Team: &f.TeamRequest, Admin: a.adminFlag, Session: f.session, Continue: f.last, Workspace: f.workspace,
	}
	if r.Approve, err = a.approval(&f.runFlags); err != nil {
		return err
	}
	if err := a.attachTo(ctx, who, &r, "--attach", f.attach...); err != nil {
		return err
	}
	a.passedOver()
	a.hurries()
	var last service.Run
	do := func(ctx context.Context, f service.Front) (run service.Run, err error) {
		last, err = s.Start(ctx, who, r, f)
		return last, err
	}
	if format != outputText {
		return f.failed(&last, a.show(ctx, format, who, r.Approve, do))
	}
	return f.failed(&last, a.showAgents(ctx, who, r.Approve, f.diff, do))
}

// failed returns the error of an assessed answer whose score is lower than --fail-below, or err.
func (f *teamFlags) failed(run *service.Run, err error) error {
	if f.failBelow == 0 || err != nil || run.Team == nil {
		return err
	}
	if a := run.Team.Assessment; a != nil && a.Score >= f.failBelow {
		return nil
	}
	return &exitError{code: exitFailed, message: fmt.Sprintf("the score is lower than --fail-below %g", f.failBelow)}
}

// readTeam reads the flags that have a syntax of their own.
func (a *app) readTeam(cmd *cobra.Command, f *teamFlags) (err error) {
	flags := cmd.Flags()
	if err := oneOf(flags, "run", "of-session", "file"); err != nil {
		return err
	}
	if flags.Lookup("of-session") != nil && f.Run+f.Of+f.file == "" {
		return usagef("give one of --run, --of-session and --file\nSee: %s --help", cmd.CommandPath())
	}
	if flags.Changed("agents") {
		if f.Agents = splitList(f.agents); len(f.Agents) == 0 {
			return usagef("--agents: name at least one")
		}
	}
	f.WorkerTools = splitList(f.inner)
	if f.failBelow < 0 || f.failBelow > 1 {
		return usagef("--fail-below: must be a score from 0 to 1")
	}
	if flags.Changed("max-time") {
		f.MaxSeconds = new(f.maxTime.Seconds())
	}
	if flags.Changed("worker-tool-cost-cap") {
		usd, err := strconv.ParseFloat(strings.TrimPrefix(f.cap, "$"), 64)
		if err != nil {
			return usagef("--worker-tool-cost-cap: must be an amount such as 0.05, not %q", f.cap)
		}
		f.CostCap = &usd
	}
	if flags.Changed("worker-tool-cost-cap-mode") {
		f.CostCapMode = &f.capMode
	}
	for flag, into := range map[string]struct {
		path string
		text *string
	}{"--context": {f.context, &f.Context}, "--file": {f.file, &f.Subject}} {
		switch {
		case into.path == "":
			continue
		case into.path == "-" && into.text == &f.Context:
			if f.Context, err = a.readText(); err == nil && strings.TrimSpace(f.Context) == "" {
				err = usagef("--context: standard input is empty")
			}
			if err != nil {
				return err
			}
			continue
		}
		data, err := safefile.Read(into.path, toolcrib.MaxFileBytes)
		if _, err = attached(into.path, data, err); err != nil {
			return usagef("%s: %s %v", flag, guard.Visible(into.path), err)
		}
		*into.text = string(data)
	}
	if f.RubricFile != "" {
		if _, err := os.Stat(f.RubricFile); err != nil {
			return usagef("--rubric: %s does not exist", guard.Visible(f.RubricFile))
		}
	}
	return nil
}

// showTeam writes a table of the agents to w, with the reasons of those that failed, and their answers.
func (a *app) showTeam(w io.Writer, r *api.Report, content string, diff bool) {
	if w != a.out {
		defer func(out *output) { a.out = out }(a.out)
		a.out = &output{w: w}
	}
	head := "AGENT|ROLE|MODEL|STATUS|BALLOT|CALLS|TIME|COST"
	why := slices.ContainsFunc(r.Answers, func(one api.Answer) bool { return one.Error != "" })
	if why {
		head += "|WHY"
	}
	table(a, head, r.Answers, func(one *api.Answer) []string {
		calls := make([]string, len(one.InnerCalls))
		for i, c := range one.InnerCalls {
			calls[i] = c.Name + " " + c.Status
		}
		status := one.Status
		if status == string(toolcrib.StatusCompleted) && one.Response == "" {
			status = "no answer"
		}
		cells := []string{
			one.Agent, cmp.Or(one.Role, "-"), cmp.Or(one.Model, "-"), status, cmp.Or(one.Ballot, "-"),
			cmp.Or(strings.Join(calls, ", "), "-"), render.Duration(time.Duration(one.ElapsedMS) * time.Millisecond),
			render.Cost(one.Usage, !one.Usage.Estimated),
		}
		if why {
			cells = append(cells, cmp.Or(one.Error, "-"))
		}
		return cells
	})
	var tally []string
	for _, ballot := range slices.Sorted(maps.Keys(r.Ballots)) {
		tally = append(tally, fmt.Sprintf("%d %s", r.Ballots[ballot], ballot))
	}
	if len(tally) > 0 {
		fmt.Fprintf(a.out, "\nballots: %s\n", strings.Join(tally, ", "))
	}
	if w := r.WorkerTools; w != nil && w.CostCap != nil && w.CostCap.OperatorPrompt != "" {
		other := "; --worker-tool-cost-cap-mode enforce refuses further calls, off switches the cap off"
		if w.CostCap.Mode == team.CapEnforce {
			other = " on answers that no call followed, so no call was refused"
		}
		a.notice("workers have spent more than their cap of $%g each%s; --worker-tool-cost-cap raises it", w.CostCap.CapUSD, other)
	}
	fmt.Fprintln(a.out)
	switch {
	case r.Assessment != nil:
		a.showAssessment(r.Assessment)
	case r.Synthesis != nil:
		a.showSynthesis(r.Synthesis)
		for i := range r.Answers {
			one, said := &r.Answers[i], team.Summary(r.Answers[i].Response)
			if one.Role == "critic" && said != "" {
				fmt.Fprint(a.out, a.outStyle.Hanging("  "+one.Agent, "("+cmp.Or(one.Ballot, "critic")+") "+said))
			}
		}
	case content != "":
		fmt.Fprintln(a.out, guard.Visible(content))
	}
	for i := range r.Answers {
		for _, c := range r.Answers[i].Citations {
			fmt.Fprint(a.out, a.outStyle.Hanging("  @", c+" ("+r.Answers[i].Agent+")"))
		}
	}
	if diff {
		a.showDiffs(r.Answers)
	}
}

// showDiffs writes how each answer differs from the first.
func (a *app) showDiffs(answers []api.Answer) {
	first := -1
	for i := range answers {
		if answers[i].Response == "" {
			continue
		}
		if first < 0 {
			first = i
			continue
		}
		from, to := answers[first].Response+"\n", answers[i].Response+"\n"
		text, err := udiff.ToUnified(answers[first].Agent, answers[i].Agent, from, udiff.Lines(from, to),
			udiff.DefaultContextLines)
		if err == nil && text != "" {
			fmt.Fprint(a.out, "\n"+guard.Visible(text))
		}
	}
}

// showSynthesis writes the result of a coordinate.
func (a *app) showSynthesis(raw []byte) {
	var s team.Synthesis
	if err := json.Unmarshal(raw, &s); err != nil {
		fmt.Fprintln(a.out, guard.Visible(string(raw)))
		return
	}
	fmt.Fprintf(a.out, "%s\n", guard.Visible(strings.TrimSpace(s.Consensus)))
	a.fields(12, "confidence", percent(s.Confidence))
	for _, c := range s.Claims {
		text := fmt.Sprintf("%s (%s)", c.Claim, percent(c.Confidence))
		if len(c.Supporters) > 0 {
			text += "; for: " + strings.Join(c.Supporters, ", ")
		}
		if len(c.Dissenters) > 0 {
			text += "; against: " + strings.Join(c.Dissenters, ", ")
		}
		fmt.Fprint(a.out, a.outStyle.Hanging("  -", text))
	}
	for _, d := range s.Dissent {
		text := strings.Join(d.Providers, ", ") + ": " + d.Claim + " " + d.Rationale
		fmt.Fprint(a.out, a.outStyle.Hanging("  ≠", strings.TrimSpace(text)))
	}
	for _, q := range s.Open {
		fmt.Fprint(a.out, a.outStyle.Hanging("  ?", q))
	}
}

func percent(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) }

// showAssessment writes the scores, and the evidence with its positions.
func (a *app) showAssessment(s *api.Assessment) {
	word := "does not pass"
	if s.Passed {
		word = "passes"
	}
	head := fmt.Sprintf("%.2f: the answer %s (%.2f is needed)", s.Score, word, team.PassMark)
	if s.Agreement != nil {
		head += fmt.Sprintf("; the judges agree to %s", percent(*s.Agreement))
	}
	fmt.Fprintln(a.out, a.outStyle.Bold(head))
	table(a, "ITEM|SEVERITY|SCORE|LOW|HIGH|", s.Items, func(i *api.AssessedItem) []string {
		passed := "fails"
		if i.Passed {
			passed = "passes"
		}
		return []string{
			i.ID, i.Severity, fmt.Sprintf("%.2f", i.Score), fmt.Sprintf("%.2f", i.Low), fmt.Sprintf("%.2f", i.High), passed,
		}
	})
	for _, item := range s.Items {
		for _, says := range item.Says {
			if says.Comment != "" || len(says.Evidence) > 0 {
				fmt.Fprint(a.out, a.outStyle.Hanging("  "+guard.Visible(says.Agent), item.ID+": "+says.Comment))
			}
			for _, e := range says.Evidence {
				found := ""
				if !e.Found {
					found = " (is not there)"
				}
				fmt.Fprint(a.out, a.outStyle.Hanging("    "+guard.Visible(e.Place), strconv.Quote(e.Quote)+found))
			}
		}
	}
}
