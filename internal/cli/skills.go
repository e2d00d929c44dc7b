package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) skillsListCommand(cmd *cobra.Command) {
	a.answering(cmd, nil, func(call) (any, func(), error) {
		_, k, err := a.readSkills()
		if err != nil {
			return nil, nil, err
		}
		for _, text := range k.Problems {
			a.note(text)
		}
		return append([]service.Skill{}, k.All...), func() {
			table(a, "NAME|STATE|SOURCE|TOOLS|DESCRIPTION", k.All, func(v *service.Skill) []string {
				return []string{v.Name, stateOfSkill(v), v.Source, skillTools(v), cmp.Or(v.Description, v.Detail)}
			})
		}, nil
	})
}

// readSkills reads the skills.
func (a *app) readSkills() (*service.Service, *service.Skills, error) {
	kept, err := a.svc()
	if err != nil {
		return nil, nil, err
	}
	k, err := kept.Skills()
	return kept, k, err
}

func stateOfSkill(v *service.Skill) string {
	if v.Reason == "" {
		return v.State
	}
	return v.State + " (" + v.Reason + ")"
}

func skillTools(v *service.Skill) string {
	switch {
	case !v.Readable():
		return ""
	case v.AllowedTools == nil:
		return "any"
	case len(v.AllowedTools) == 0:
		return "none"
	}
	return strings.Join(v.AllowedTools, ", ")
}

// shownSkill is a skill as skills show --json has it.
type shownSkill struct {
	*service.Skill
	Text string `json:"text"`
}

func (a *app) skillsShowCommand(cmd *cobra.Command) {
	cmd.ValidArgsFunction = a.completeSkills
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		_, _, v, err := a.readSkill(c.arg())
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

// readSkill reads one skill among all.
func (a *app) readSkill(name string) (*service.Service, *service.Skills, *service.Skill, error) {
	kept, k, err := a.readSkills()
	if err != nil {
		return nil, nil, nil, err
	}
	kept.NoteEntries(k)
	v, err := k.Find(name)
	return kept, k, v, err
}

// showSkill prints everything about a skill except its text.
func (a *app) showSkill(v *service.Skill) {
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
	rows := [][2]string{
		{"  why", v.Detail},
		{"  source", v.Source},
		{"  folder", pathText(v.Path)},
		{"  hash", v.Hash},
		{"  tools", allowed},
		{"  license", v.License},
		{"  needs", v.Compatibility},
	}
	for _, f := range v.Files {
		rows = append(rows, [2]string{"  file", fmt.Sprintf("%s (%d bytes)", pathText(f.Name), f.Size)})
	}
	for _, n := range v.Notices {
		rows = append(rows, [2]string{"  notice", n})
	}
	a.fields(10, rows...)
}

// completeSkills completes the names of skills.
func (a *app) completeSkills(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	_, k, err := a.readSkills()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return k.Names(), cobra.ShellCompDirectiveNoFileComp
}

// skillFlag is --skill of commands that start or judge a run.
func (a *app) skillFlag(cmd *cobra.Command, f *runFlags) {
	cmd.Flags().StringArrayVar(&f.skills, "skill", nil, "")
	// The flag was just made, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("skill", a.completeSkills)
}

// trustSkills asks on a terminal about the skills folder of the current folder, if a
// run would have a skill of it. If nobody agrees, it is passed over, with a notice.
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
			folder, err := service.LookAt(dir)
			if err == nil {
				// What counts in the end is what is read anew, against what was shown.
				_, err = a.asksToTrust(ctx, folder)
			}
			return err
		}
	}
	return nil
}
