package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/store"
)

// checkFlags are the flags of skills check.
type checkFlags struct {
	json   bool
	digest string
}

func (a *app) skillsCheckCommand() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check [NAME]",
		Short: "Tell what is wrong with skills; look at one that has changed, and approve it",
		Long: "Tell what is wrong with the skills, or with one. A skill that has changed since you looked at it is off: with NAME it " +
			"is shown what has changed, page by page, and on a terminal you are asked whether it may be used as it is now. " +
			"Without a terminal --digest approves exactly the content of that hash. " +
			"Exit status: 0 nothing is wrong, 1 something is.",
		Example: `toolcrib skills check
toolcrib skills check release-notes
toolcrib skills check release-notes --digest sha256:9f86d081…`,
		Args:              positional,
		ValidArgsFunction: a.completeSkills,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if f.digest != "" {
					return usagef("--digest is about one skill; give its name")
				}
				return a.checkSkills(cmd.Context(), f.json)
			}
			return a.checkSkill(cmd.Context(), args[0], &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.digest, "digest", "", "approve the skill if it has this hash, as skills list and check show it")
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	return cmd
}

// wrong reports whether the state of a skill is something to mend.
func (v *skillView) wrong() bool {
	switch v.Reason {
	case offBroken, offChanged, offUnapproved, offUntrusted:
		return true
	}
	return false
}

// checkSkills tells about all skills.
func (a *app) checkSkills(ctx context.Context, asJSON bool) error {
	s, err := a.skillShelf(ctx)
	if err != nil {
		return err
	}
	views, problems := s.views(), s.folderProblems()
	tools := a.toolNames()
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
func (a *app) toolNames() []string {
	c, err := a.configuration()
	if err != nil {
		return nil
	}
	n, err := a.namesNow(c)
	if err != nil {
		return nil
	}
	return n.tools
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

// checkedSkill is what skills check NAME --json prints.
type checkedSkill struct {
	*skillView
	Changes  *fileChanges `json:"changes,omitempty"`
	Approved bool         `json:"approved"` // by this command
}

// checkSkill tells about one skill, and approves it if its person says so.
func (a *app) checkSkill(ctx context.Context, name string, f *checkFlags) error {
	s, err := a.skillShelf(ctx)
	if err != nil {
		return err
	}
	v, err := s.findSkill(name)
	if err != nil {
		return err
	}
	v.noteUnknown(a.toolNames())
	changes, err := s.changes(v)
	if err != nil {
		return err
	}
	if !f.json {
		a.showSkill(v)
	}
	approved, err := a.approveSkill(ctx, s, v, changes, f)
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

// approveSkill shows what has changed of a skill, and approves that if its person says
// so; false = nobody did.
func (a *app) approveSkill(ctx context.Context, s *shelf, v *skillView, changes *fileChanges, f *checkFlags) (bool, error) {
	open := v.Reason == offChanged || v.Reason == offUnapproved
	ask := f.digest == "" && open && !f.json && a.inTerminal && a.errTerminal
	if f.digest != "" || ask {
		_, err := a.administrator(ctx)
		if err != nil && !ask {
			return false, err
		}
		ask = ask && err == nil // nobody is asked about what is not theirs to say
	}
	if changes != nil && !f.json && !ask {
		head := "Since somebody looked at it:"
		if v.Reason == offUnapproved {
			head = "Nobody has looked at it; it holds:"
		}
		fmt.Fprintf(a.out, "\n%s\n%s", head, changesText(a.outStyle, changes))
	}
	switch {
	case f.digest == "" && !open:
		return false, nil
	case f.digest != "" && v.skill == nil:
		return false, fmt.Errorf("skill %s cannot be used, so there is nothing to approve: %s", v.Name, v.Detail)
	case f.digest != "" && v.Source == service.SourceWorkspace && v.Reason == offUntrusted:
		return false, fmt.Errorf("skill %s: its folder counts as a whole: %s", v.Name, v.Detail)
	case f.digest != "" && f.digest != v.Hash:
		return false, toolcrib.Errorf(toolcrib.CodeConflict, "skill %s has the hash %s now, not %s; look at it again", v.Name, v.Hash, f.digest)
	case f.digest == "" && !ask:
		a.notice("to use it as it is now: toolcrib skills check %s --digest %s", v.Name, v.Hash)
		return false, nil
	case ask && !a.agreesToSkill(v, changes):
		return false, nil
	}
	if err := s.Looked.Approve(v.skill, store.SystemSkillApproved); err != nil {
		return false, fmt.Errorf("skill %s: it cannot be kept that you have looked at it: %w", v.Name, err)
	}
	return true, nil
}

// agreesToSkill shows a skill, or what has changed of it, and asks whether it may be used.
func (a *app) agreesToSkill(v *skillView, changes *fileChanges) bool {
	return a.agreesTo(fmt.Sprintf("Use the skill %s as it is now?", v.Name), func(whole bool) (string, bool) {
		if whole {
			if files, err := service.SkillFiles(v.skill); err == nil {
				changes = compare(nil, files)
			}
		}
		return changesText(a.style, changes), !whole && v.Reason == offChanged
	})
}

// changes is what a skill differs in from what was approved, all of it where there is no
// copy of that; nil = nothing.
func (s *shelf) changes(v *skillView) (*fileChanges, error) {
	if v.skill == nil {
		return nil, nil
	}
	old, ok := s.Looked.Approved(v.skill)
	if v.Source == service.SourceWorkspace {
		old, ok = s.Looked.Kept(v.skill) // its folder counts as a whole, elsewhere
	}
	same, open := ok && old.Hash == v.Hash, v.Reason == offUnapproved || v.Reason == offChanged
	if !open && (same || !ok) {
		return nil, nil
	}
	if same {
		old = trust.Copy{} // it is asked about all the same: all of it
	}
	now, err := service.SkillFiles(v.skill)
	if err != nil {
		return nil, fmt.Errorf("skill %s cannot be read whole: %v", v.Name, err)
	}
	return compare(old.Files, now), nil
}

// skillsFinding is what doctor tells of skills.
func (a *app) skillsFinding(c *config.Config) finding {
	f := finding{Check: "skills", Fix: "toolcrib skills check tells more"}
	read, err := a.about(c).ReadShelf(toolcrib.Principal{})
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	s := shelf{read}
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
	for _, p := range s.Problems {
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
