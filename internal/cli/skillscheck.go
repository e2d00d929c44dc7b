package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	udiff "github.com/aymanbagabas/go-udiff"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/store"
)

// checkFlags are the flags of skills check.
type checkFlags struct {
	approve, json bool
	digest        string
}

func (a *app) skillsCheckCommand() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check [NAME]",
		Short: "Tell what is wrong with skills; look at one that has changed, and approve it",
		Long: "Tell what is wrong with the skills, or with one. A skill that has changed since you looked at it is off: with NAME it " +
			"is shown what has changed, and on a terminal you are asked whether it may be used as it is now. Without a terminal " +
			"--digest approves exactly the content of that hash, --approve whatever it holds now. " +
			"Exit status: 0 nothing is wrong, 1 something is.",
		Example: `toolcrib skills check
toolcrib skills check release-notes
toolcrib skills check release-notes --digest sha256:9f86d081…`,
		Args:              positional,
		ValidArgsFunction: a.completeSkills,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if f.approve || f.digest != "" {
					return usagef("--approve and --digest are about one skill; give its name")
				}
				return a.checkSkills(cmd.Context(), f.json)
			}
			return a.checkSkill(cmd.Context(), args[0], &f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.approve, "approve", false, "approve what the skill holds now, without a question")
	flags.StringVar(&f.digest, "digest", "", "approve the skill if it has this hash, as skills list and check show it")
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	return cmd
}

// wrong tells whether the state of a skill is something to mend.
func (v *skillView) wrong() bool {
	switch v.Reason {
	case offBroken, offChanged, offUnapproved, offUntrusted:
		return true
	}
	return false
}

// checkSkills tells about all skills.
func (a *app) checkSkills(ctx context.Context, asJSON bool) error {
	s, err := a.skillShelf()
	if err != nil {
		return err
	}
	views, problems := s.views(), s.folderProblems()
	tools := a.toolNames(ctx)
	ok := len(problems) == 0
	for i := range views {
		views[i].noteUnknown(tools)
		ok = ok && !views[i].wrong()
	}
	if asJSON {
		report := struct {
			OK       bool        `json:"ok"`
			Skills   []skillView `json:"skills"`
			Problems []string    `json:"problems"`
		}{ok, append([]skillView{}, views...), append([]string{}, problems...)}
		if err := printJSON(a.out, report, true); err != nil {
			return err
		}
		return skillsChecked(ok)
	}
	for i := range views {
		a.tellSkill(&views[i])
	}
	for _, text := range problems {
		fmt.Fprintf(a.out, "%s %s\n", a.outStyle.Red("✗"), guard.Visible(text))
	}
	if len(views) == 0 && len(problems) == 0 {
		fmt.Fprintln(a.out, "there are no skills")
	}
	return skillsChecked(ok)
}

func skillsChecked(ok bool) error {
	if ok {
		return nil
	}
	return silent(exitFailed)
}

func (a *app) tellSkill(v *skillView) {
	mark := a.outStyle.Green("✓")
	if v.wrong() {
		mark = a.outStyle.Red("✗")
	}
	fmt.Fprintf(a.out, "%s %s %s\n", mark, a.outStyle.Bold(guard.Visible(v.Name)), guard.Visible(stateOfSkill(v)))
	for _, text := range append([]string{v.Detail}, v.Notices...) {
		if text != "" {
			fmt.Fprintf(a.out, "    %s\n", guard.Visible(text))
		}
	}
}

// toolNames are the tools that there are; nil = it cannot be told.
func (a *app) toolNames(ctx context.Context) []string {
	c, err := a.configuration()
	if err != nil {
		return nil
	}
	command, err := a.execShell(c, gate.Protected{})
	if err != nil {
		return nil
	}
	var names []string
	for _, tool := range a.builtIn(ctx, c, nil, gate.Protected{}, gate.PathRules{}, command) {
		names = append(names, tool.Spec().Name)
	}
	return names
}

// noteUnknown notes the entries of allowed-tools that mean no tool.
func (v *skillView) noteUnknown(tools []string) {
	if tools == nil {
		return
	}
	for _, entry := range skill.Unknown(v.AllowedTools, tools) {
		v.Notices = append(slices.Clip(v.Notices), fmt.Sprintf("allowed-tools: no tool is meant by %s; it is dropped", entry))
	}
}

// skillChanges is what has changed since a skill was approved.
type skillChanges struct {
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Diff    string   `json:"diff,omitempty"` // of its SKILL.md
}

// checkedSkill is what skills check NAME --json prints.
type checkedSkill struct {
	*skillView
	Changes  *skillChanges `json:"changes,omitempty"`
	Approved bool          `json:"approved"` // by this command
}

// checkSkill tells about one skill, and approves it if its person says so.
func (a *app) checkSkill(ctx context.Context, name string, f *checkFlags) error {
	s, err := a.skillShelf()
	if err != nil {
		return err
	}
	v, err := s.findSkill(name)
	if err != nil {
		return err
	}
	v.noteUnknown(a.toolNames(ctx))
	changes := s.changes(v)
	if !f.json {
		a.showSkill(v)
		a.showChanges(changes)
	}
	approved, err := a.approveSkill(ctx, s, v, f)
	if err != nil {
		return err
	}
	if approved {
		*v = s.view(v.skill)
	}
	if f.json {
		if err := printJSON(a.out, checkedSkill{v, changes, approved}, true); err != nil {
			return err
		}
	} else if approved {
		fmt.Fprintf(a.out, "approved %s %s\n", v.Name, v.Hash)
	}
	return skillsChecked(!v.wrong())
}

// approveSkill approves the content that was shown; false = nobody said so.
func (a *app) approveSkill(ctx context.Context, s *shelf, v *skillView, f *checkFlags) (bool, error) {
	asked := f.approve || f.digest != ""
	open := v.Reason == offChanged || v.Reason == offUnapproved
	switch {
	case !asked && !open:
		return false, nil
	case asked && v.skill == nil:
		return false, failedf("skill %s cannot be used, so there is nothing to approve: %s", v.Name, v.Detail)
	case asked && v.Source == sourceWorkspace && v.Reason == offUntrusted:
		return false, failedf("skill %s: its folder counts as a whole: %s", v.Name, v.Detail)
	case f.digest != "" && f.digest != v.Hash:
		return false, failedf("conflict: skill %s has the hash %s now, not %s; look at it again", v.Name, v.Hash, f.digest)
	case !asked && (f.json || !a.inTerminal || !a.errTerminal):
		a.notice("to use it as it is now: toolcrib skills check %s --digest %s", v.Name, v.Hash)
		return false, nil
	case !asked && !a.confirm(fmt.Sprintf("Use the skill %s as it is now?", v.Name)):
		return false, nil
	}
	if _, err := a.administrator(ctx); err != nil {
		return false, err
	}
	if err := s.looked.approve(v.skill, store.SystemSkillApproved); err != nil {
		return false, fmt.Errorf("skill %s: it cannot be kept that you have looked at it: %w", v.Name, err)
	}
	return true, nil
}

// changes is what a skill differs in from what was approved; nil = nothing, or there
// is no copy of it.
func (s *shelf) changes(v *skillView) *skillChanges {
	if v.skill == nil {
		return nil
	}
	old, ok := s.looked.kept(v.skill)
	if !ok || old.Hash == v.Hash {
		return nil
	}
	c := &skillChanges{}
	now := map[string]string{}
	for _, f := range v.skill.Files {
		now[f.Name] = f.Hash
		switch was, known := old.Files[f.Name]; {
		case !known:
			c.Added = append(c.Added, f.Name)
		case was != f.Hash:
			c.Changed = append(c.Changed, f.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old.Files)) {
		if _, there := now[name]; !there {
			c.Removed = append(c.Removed, name)
		}
	}
	text, err := v.skill.ReadFile(skill.FileName)
	if err != nil || old.Text == string(text) {
		return c
	}
	c.Diff, err = udiff.ToUnified("a/"+skill.FileName, "b/"+skill.FileName, old.Text, udiff.Lines(old.Text, string(text)), udiff.DefaultContextLines)
	if err != nil {
		c.Diff = ""
	}
	return c
}

func (a *app) showChanges(c *skillChanges) {
	if c == nil {
		return
	}
	fmt.Fprintln(a.out, "\nSince somebody looked at it:")
	for _, list := range []struct {
		what  string
		names []string
	}{{"changed", c.Changed}, {"added", c.Added}, {"removed", c.Removed}} {
		for _, name := range list.names {
			fmt.Fprintf(a.out, "  %-8s %s\n", list.what, pathText(name))
		}
	}
	fmt.Fprint(a.out, a.outStyle.Preview(&toolcrib.Preview{Kind: "diff", Text: c.Diff}, true))
}

// skillsFinding is what doctor tells of skills.
func (a *app) skillsFinding(c *config.Config) finding {
	f := finding{Check: "skills", Mend: "toolcrib skills check tells more"}
	s, err := a.readShelf(c)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	var parts []string
	on, wrong := 0, 0
	known := map[string]bool{}
	for _, v := range s.views() {
		known[v.Name] = true
		switch {
		case v.State == stateOn:
			on++
		case v.Reason == offUntrusted: // told of as trust
		case v.wrong():
			wrong++
			parts = append(parts, fmt.Sprintf("%s is off (%s): %s", v.Name, v.Reason, v.Detail))
		}
	}
	for _, p := range s.problems {
		if p.Skill == "" && p.Code != skill.CodeNoFolder && p.Code != skill.CodeNotice {
			wrong++
			parts = append(parts, pathText(p.Path)+": "+p.Message)
		}
	}
	for _, name := range c.AgentNames() {
		for _, asked := range c.Agents[name].Skills {
			if !known[asked] {
				wrong++
				parts = append(parts, fmt.Sprintf("agents.%s.skills: there is no skill %s", name, asked))
			}
		}
	}
	f.OK = wrong == 0
	f.Detail = strings.Join(append([]string{fmt.Sprintf("%d can be used", on)}, parts...), "\n")
	return f
}
