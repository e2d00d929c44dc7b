package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service"
)

// checkFlags are the flags of skills check.
type checkFlags struct {
	json   bool
	digest string
}

func (a *app) skillsCheckCommand(cmd *cobra.Command) {
	var f checkFlags
	cmd.ValidArgsFunction = a.completeSkills
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			if f.digest != "" {
				return usagef("--digest is about one skill; give its name")
			}
			return a.checkSkills(f.json)
		}
		return a.checkSkill(cmd.Context(), args[0], &f)
	}

	flags := cmd.Flags()
	flags.StringVar(&f.digest, "digest", "", "")
	flags.BoolVar(&f.json, "json", false, "")
}

// checkSkills reports on all skills.
func (a *app) checkSkills(asJSON bool) error {
	kept, k, err := a.readSkills()
	if err != nil {
		return err
	}
	kept.NoteEntries(k)
	ok := len(k.Problems) == 0
	for i := range k.All {
		ok = ok && !k.All[i].Wrong()
	}
	if asJSON {
		report := struct {
			OK       bool            `json:"ok"`
			Skills   []service.Skill `json:"skills"`
			Problems []string        `json:"problems"`
		}{ok, append([]service.Skill{}, k.All...), append([]string{}, k.Problems...)}
		if err := printJSON(a.out, report, true); err != nil {
			return err
		}
		return skillsChecked(ok)
	}
	for i := range k.All {
		a.tellSkill(&k.All[i])
	}
	for _, text := range k.Problems {
		fmt.Fprintf(a.out, "%s %s\n", a.outStyle.Red("✗"), guard.Visible(text))
	}
	if len(k.All) == 0 && len(k.Problems) == 0 {
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

func (a *app) tellSkill(v *service.Skill) {
	mark := a.outStyle.Green("✓")
	if v.Wrong() {
		mark = a.outStyle.Red("✗")
	}
	fmt.Fprintf(a.out, "%s %s %s\n", mark, a.outStyle.Bold(guard.Visible(v.Name)), guard.Visible(stateOfSkill(v)))
	for _, text := range append([]string{v.Detail}, v.Notices...) {
		if text != "" {
			fmt.Fprintf(a.out, "    %s\n", guard.Visible(text))
		}
	}
}

// checkedSkill is what skills check NAME --json prints.
type checkedSkill struct {
	*service.Skill
	Changes  *service.Changes `json:"changes,omitempty"`
	Approved bool             `json:"approved"` // by this command
}

// checkSkill reports on one skill, and approves it if the user agrees.
func (a *app) checkSkill(ctx context.Context, name string, f *checkFlags) error {
	kept, k, err := a.readSkills()
	if err != nil {
		return err
	}
	kept.NoteEntries(k)
	v, err := k.Find(name)
	if err != nil {
		return err
	}
	review, err := k.Review(v)
	if err != nil {
		return err
	}
	if !f.json {
		a.showSkill(v)
	}
	approved, err := a.approveSkill(ctx, kept, k, v, review, f)
	if err != nil {
		return err
	}
	if f.json {
		out := checkedSkill{Skill: v, Approved: approved}
		if review != nil {
			out.Changes = service.ChangesOf(review.Before, review.Content)
		}
		if err := printJSON(a.out, out, true); err != nil {
			return err
		}
	} else if approved {
		fmt.Fprintf(a.out, "approved %s %s\n", v.Name, v.Hash)
	}
	return skillsChecked(!v.Wrong())
}

// approveSkill shows what has changed of a skill, and approves that if its person says
// so; false = nobody did.
func (a *app) approveSkill(
	ctx context.Context, kept *service.Service, k *service.Skills, v *service.Skill, review *trust.File, f *checkFlags,
) (bool, error) {
	digest, ask := f.digest, f.digest == "" && v.Unreviewed() && !f.json && a.inTerminal && a.errTerminal
	who, err := a.principal(ctx)
	if err != nil {
		return false, err
	}
	if digest != "" || ask {
		_, err := service.Administrator(who)
		if err != nil && !ask {
			return false, err
		}
		ask = ask && err == nil // nobody is asked about what is not theirs to say
	}
	switch {
	case ask:
		if !a.agreesTo(fmt.Sprintf("Use the skill %s as it is now?", v.Name), "", []trust.File{*review}) {
			return false, nil
		}
		digest = v.Hash
	case review != nil && !f.json:
		head := "Since somebody looked at it:"
		if v.Reason == service.SkillUnapproved {
			head = "Nobody has looked at it; it holds:"
		}
		fmt.Fprintf(a.out, "\n%s\n%s", head, changesText(a.outStyle, service.ChangesOf(review.Before, review.Content)))
	}
	if digest == "" {
		if v.Unreviewed() {
			a.notice("to use it as it is now: toolcrib skills check %s --digest %s", v.Name, v.Hash)
		}
		return false, nil
	}
	err = kept.ApproveSkill(ctx, who, k, v, digest)
	return err == nil, err
}

// skillsFinding is what doctor reports about skills.
func (a *app) skillsFinding(c *config.Config) finding {
	f := finding{Check: "skills", Fix: "toolcrib skills check tells more"}
	k, err := a.about(c).Skills()
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	parts := k.Problems[len(k.PassedOver):]
	on, wrong := 0, len(parts)
	known := map[string]bool{}
	for i := range k.All {
		v := &k.All[i]
		known[v.Name] = true
		switch {
		case v.State == service.SkillOn:
			on++
		case v.Reason == service.SkillUntrusted: // reported as trust
		case v.Wrong():
			wrong++
			parts = append(parts, fmt.Sprintf("%s is off (%s): %s", v.Name, v.Reason, v.Detail))
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
