package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) skillsCheckCommand(cmd *cobra.Command) {
	cmd.ValidArgsFunction = a.completeSkills
	digest := cmd.Flags().String("digest", "", "")
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		switch {
		case len(c.args) > 0:
			return a.checkSkill(c, *digest)
		case *digest != "":
			return nil, nil, usagef("--digest is about one skill; give its name")
		}
		return a.checkSkills()
	})
}

// checkSkills reports on all skills.
func (a *app) checkSkills() (any, func(), error) {
	kept, k, err := a.readSkills()
	if err != nil {
		return nil, nil, err
	}
	kept.NoteEntries(k)
	ok := len(k.Problems) == 0
	for i := range k.All {
		ok = ok && !k.All[i].Wrong()
	}
	report := struct {
		OK       bool            `json:"ok"`
		Skills   []service.Skill `json:"skills"`
		Problems []string        `json:"problems"`
	}{ok, append([]service.Skill{}, k.All...), append([]string{}, k.Problems...)}
	return report, func() {
		for i := range k.All {
			a.tellSkill(&k.All[i])
		}
		for _, text := range k.Problems {
			fmt.Fprintf(a.out, "%s %s\n", a.outStyle.Red("✗"), guard.Visible(text))
		}
		if len(k.All) == 0 && len(k.Problems) == 0 {
			fmt.Fprintln(a.out, "there are no skills")
		}
	}, skillsChecked(ok)
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
func (a *app) checkSkill(c call, digest string) (any, func(), error) {
	kept, k, v, err := a.readSkill(c.arg())
	if err != nil {
		return nil, nil, err
	}
	review, err := k.Review(v)
	if err != nil {
		return nil, nil, err
	}
	if !c.json {
		a.showSkill(v)
	}
	checked := checkedSkill{Skill: v}
	if checked.Approved, err = a.approveSkill(c, kept, k, v, review, digest); err != nil {
		return nil, nil, err
	}
	if review != nil {
		checked.Changes = service.ChangesOf(review.Before, review.Content)
	}
	return checked, func() {
		if checked.Approved {
			fmt.Fprintf(a.out, "approved %s %s\n", v.Name, v.Hash)
		}
	}, skillsChecked(!v.Wrong())
}

// approveSkill shows what has changed of a skill, and approves that if its person says
// so; false = nobody did.
func (a *app) approveSkill(
	c call, kept *service.Service, k *service.Skills, v *service.Skill, review *trust.File, digest string,
) (bool, error) {
	ask := digest == "" && v.Unreviewed() && !c.json && a.inTerminal && a.errTerminal
	who, err := a.principal(c)
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
	case review != nil && !c.json:
		head := "Since it was last reviewed: "
		if v.Reason == service.SkillUnapproved {
			head = "It has not been reviewed; it contains: "
		}
		fmt.Fprintf(a.out, "\n%s\n%s", head, changesText(a.outStyle, service.ChangesOf(review.Before, review.Content)))
	}
	if digest == "" {
		if v.Unreviewed() {
			a.notice("to use it as it is now: toolcrib skills check %s --digest %s", v.Name, v.Hash)
		}
		return false, nil
	}
	err = kept.ApproveSkill(c, who, k, v, digest)
	return err == nil, err
}

// skillsFinding is what doctor reports about skills.
func (a *app) skillsFinding(c *config.Config) finding {
	f := finding{Check: "skills", Fix: "see toolcrib skills check"}
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
