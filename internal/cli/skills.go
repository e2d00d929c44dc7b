package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/policy"
)

func (a *app) skillsListCommand(cmd *cobra.Command) {
	listing(a, cmd, nil, "NAME|STATE|SOURCE|TOOLS|DESCRIPTION",
		func(c call) ([]policy.Skill, error) { return a.allSkills(c) },
		func(v *policy.Skill) []string {
			return []string{v.Name, stateOfSkill(v), v.Source, skillTools(v), cmp.Or(v.Description, v.Detail)}
		})
}

// allSkills returns the skills of this machine, or of the server.
func (a *app) allSkills(ctx context.Context) ([]policy.Skill, error) {
	if a.remote != nil {
		return a.remote.Skills(ctx)
	}
	_, k, err := a.readSkills()
	if err != nil {
		return nil, err
	}
	for _, text := range k.Problems {
		a.note(text)
	}
	return k.All, nil
}

// readSkills reads the skills.
func (a *app) readSkills() (*service.Service, *policy.Skills, error) {
	kept, err := a.svc()
	if err != nil {
		return nil, nil, err
	}
	k, err := kept.Policy.Skills(nil)
	return kept, k, err
}

func stateOfSkill(v *policy.Skill) string {
	if v.Reason == "" {
		return v.State
	}
	return v.State + " (" + v.Reason + ")"
}

func skillTools(v *policy.Skill) string {
	if !v.Readable() {
		return ""
	}
	return listText(v.AllowedTools, ", ", "any", "none")
}

// shownSkill is a skill in the form of skills show --json.
type shownSkill struct {
	*policy.Skill
	Text string `json:"text"`
}

func (a *app) skillsShowCommand(cmd *cobra.Command) {
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		var v *policy.Skill
		var err error
		if a.remote != nil {
			v, err = a.remote.Skill(c, c.arg())
		} else {
			_, _, v, err = a.readSkill(c.arg())
		}
		if err != nil {
			return nil, nil, err
		}
		return shownSkill{v, v.Body}, func() {
			a.showSkill(v)
			if text := strings.Trim(guard.Visible(v.Body), "\r\n"); text != "" {
				fmt.Fprintf(a.out, "\n%s\n", text)
			}
		}, nil
	})
}

// readSkill reads all skills and returns the one with the given name.
func (a *app) readSkill(name string) (*service.Service, *policy.Skills, *policy.Skill, error) {
	kept, k, err := a.readSkills()
	if err != nil {
		return nil, nil, nil, err
	}
	kept.Policy.NoteEntries(k)
	v, err := k.Find(name)
	return kept, k, v, err
}

// showSkill prints everything about a skill except its text.
func (a *app) showSkill(v *policy.Skill) {
	s := a.outStyle
	fmt.Fprintf(a.out, "%s  %s\n", s.Bold(guard.Visible(v.Name)), guard.Visible(stateOfSkill(v)))
	if v.Description != "" {
		fmt.Fprintf(a.out, "%s\n", guard.Visible(v.Description))
	}
	allowed := skillTools(v)
	switch allowed {
	case "any":
		allowed = "no restriction (it declares no allowed-tools)"
	case "none":
		allowed = "none (allowed-tools is empty)"
	}
	rows := []string{
		"  why", v.Detail, "  source", v.Source, "  folder", policy.PathText(v.Path), "  hash", v.Hash, "  tools", allowed,
	}
	for _, f := range v.Files {
		rows = append(rows, "  file", fmt.Sprintf("%s (%d bytes)", policy.PathText(f.Name), f.Size))
	}
	for _, n := range v.Notices {
		rows = append(rows, "  notice", n)
	}
	a.fields(10, rows...)
}

// trustSkills asks on a terminal about the skills folder of the current folder if a run would use a
// skill of it. If the user does not agree, the folder is skipped with a notice.
func (a *app) trustSkills(ctx context.Context, names []string) error {
	if len(names) == 0 || !a.inTerminal || !a.errTerminal {
		return nil
	}
	_, k, err := a.readSkills()
	if err != nil {
		return err
	}
	for _, name := range names {
		if dir := k.Untrusted(name); dir != "" {
			folder, err := policy.LookAt(a.service.Env.TrustStore(), dir)
			if err == nil {
				// What is read again is compared with what was shown.
				_, err = a.asksToTrust(ctx, folder)
			}
			return err
		}
	}
	return nil
}

func (a *app) skillsCheckCommand(cmd *cobra.Command) {
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
	kept.Policy.NoteEntries(k)
	ok := len(k.Problems) == 0
	for i := range k.All {
		ok = ok && !k.All[i].Wrong()
	}
	report := struct {
		OK       bool           `json:"ok"`
		Skills   []policy.Skill `json:"skills"`
		Problems []string       `json:"problems"`
	}{ok, append([]policy.Skill{}, k.All...), append([]string{}, k.Problems...)}
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

func (a *app) tellSkill(v *policy.Skill) {
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

// checkedSkill is the output of skills check NAME --json.
type checkedSkill struct {
	*policy.Skill
	Changes  *policy.Changes `json:"changes,omitempty"`
	Approved bool            `json:"approved"` // by this command
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
		checked.Changes = policy.ChangesOf(review.Before, review.Content)
	}
	return checked, func() {
		if checked.Approved {
			fmt.Fprintf(a.out, "approved %s %s\n", v.Name, v.Hash)
		}
	}, skillsChecked(!v.Wrong())
}

// approveSkill shows the changes to a skill and approves them if the user agrees. It returns false if
// they were not approved.
func (a *app) approveSkill(
	c call, kept *service.Service, k *policy.Skills, v *policy.Skill, review *trust.File, digest string,
) (bool, error) {
	ask := digest == "" && v.Unreviewed() && !c.json && a.inTerminal && a.errTerminal
	who, err := a.principal(c)
	if err != nil {
		return false, err
	}
	if digest != "" || ask {
		_, err := env.Administrator(who)
		if err != nil && !ask {
			return false, err
		}
		ask = ask && err == nil // a user is not asked about skills that they may not approve
	}
	switch {
	case ask:
		if a.agreesTo(fmt.Sprintf("Use the skill %s as it is now?", v.Name), "", []trust.File{*review}) != render.KeyYes {
			return false, nil
		}
		digest = v.Hash
	case review != nil && !c.json:
		head := "Since it was last reviewed: "
		if v.Reason == policy.SkillUnapproved {
			head = "It has not been reviewed; it contains: "
		}
		fmt.Fprintf(a.out, "\n%s\n%s", head, changesText(a.outStyle, policy.ChangesOf(review.Before, review.Content)))
	}
	if digest == "" {
		if v.Unreviewed() {
			a.notice("to use it as it is now: toolcrib skills check %s --digest %s", v.Name, v.Hash)
		}
		return false, nil
	}
	err = kept.Policy.ApproveSkill(c, who, k, v, digest)
	return err == nil, err
}

// skillsFinding returns doctor's finding about skills.
func (a *app) skillsFinding(c *config.Config) finding {
	f := finding{Check: "skills", Fix: "see toolcrib skills check"}
	k, err := a.about(c).Policy.Skills(nil)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	parts := k.Problems[len(k.PassedOver):]
	on, wrong := 0, len(parts)
	for i := range k.All {
		switch v := &k.All[i]; {
		case v.State == policy.SkillOn:
			on++
		case v.Reason == policy.SkillUntrusted: // reported under trust
		case v.Wrong():
			wrong++
			parts = append(parts, fmt.Sprintf("%s is off (%s): %s", v.Name, v.Reason, v.Detail))
		}
	}
	f.OK = wrong == 0
	f.Detail = strings.Join(append([]string{fmt.Sprintf("%d can be used", on)}, parts...), "\n")
	return f
}
