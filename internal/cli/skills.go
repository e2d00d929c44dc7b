package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/skill"
)

func (a *app) skillsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "skills",
		Short:   "List, show and check skills: what a model should know for one kind of task",
		Example: "toolcrib skills list\ntoolcrib skills show release-notes\ntoolcrib skills check",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.skillsListCommand(), a.skillsShowCommand(), a.skillsCheckCommand())
	return cmd
}

// skillView is a skill as people and programs are shown it.
type skillView struct {
	Name   string `json:"name"`
	State  string `json:"state"`            // on | off
	Reason string `json:"reason,omitempty"` // why it is off
	Detail string `json:"detail,omitempty"`
	Source string `json:"source"` // workspace | project | configured | user
	Path   string `json:"path"`
	Hash   string `json:"hash,omitempty"`
	// AllowedTools is null if the skill declares none and restricts nothing.
	AllowedTools  []string          `json:"allowed_tools"`
	Description   string            `json:"description,omitempty"`
	License       string            `json:"license,omitempty"`
	Compatibility string            `json:"compatibility,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	Files         []skillFileView   `json:"files,omitempty"`
	Notices       []string          `json:"notices,omitempty"`

	skill *skill.Skill // nil = it cannot be read
}

type skillFileView struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	Hash  string `json:"hash"`
}

// Why a skill is off.
const (
	offChanged    = "changed"    // since somebody looked at it
	offUnapproved = "unapproved" // nobody has looked at it
	offUntrusted  = "untrusted"  // its folder is not trusted
	offDisabled   = "disabled"   // enabled: false
	offBroken     = "broken"     // it cannot be read, or breaks the convention
	offShadowed   = "shadowed"   // a folder before has a skill of this name
)

const (
	stateOn  = "on"
	stateOff = "off"
)

// views are all skills that there are, by name; of one name the first is the one
// that counts.
func (s *shelf) views() []skillView {
	var views []skillView
	for _, one := range s.library.Skills() {
		views = append(views, s.view(one))
	}
	for _, one := range s.aside.Skills() {
		v := viewOfSkill(one)
		v.State, v.Reason, v.Detail = stateOff, offUntrusted, s.folderOf(one.Path).passed
		views = append(views, v)
	}
	for _, p := range slices.Concat(s.problems, s.asideProblems) {
		if p.Skill == "" {
			continue
		}
		v := skillView{Name: p.Skill, State: stateOff, Reason: offBroken, Detail: problemText(p), Path: p.Path, Source: s.folderOf(p.Path).source}
		switch p.Code {
		case skill.CodeShadowed:
			v.Reason = offShadowed
		case skill.CodeNotice:
			continue
		}
		views = append(views, v)
	}
	slices.SortStableFunc(views, func(a, b skillView) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(lastOf(a), lastOf(b)))
	})
	return views
}

// lastOf puts behind what does not have the name.
func lastOf(v skillView) int {
	switch v.Reason {
	case offShadowed:
		return 2
	case offUntrusted:
		return 1
	}
	return 0
}

// problemText is a problem without the path that stands beside it.
func problemText(p skill.Problem) string {
	if p.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", skill.FileName, p.Line, p.Message)
	}
	return p.Message
}

func viewOfSkill(one *skill.Skill) skillView {
	v := skillView{
		Name: one.Name, State: stateOn, Source: one.Source, Path: one.Path, Hash: one.Hash, AllowedTools: one.AllowedTools,
		Description: one.Description, License: one.License, Compatibility: one.Compatibility, Metadata: one.Metadata,
		Notices: one.Notices, skill: one,
	}
	for _, f := range one.Files {
		v.Files = append(v.Files, skillFileView{Name: f.Name, Bytes: f.Size, Hash: f.Hash})
	}
	return v
}

// view is a skill that has its name, with the state that it would have in a run.
func (s *shelf) view(one *skill.Skill) skillView {
	v := viewOfSkill(one)
	state, err := trust.Trusted, error(nil)
	source := s.folderOf(one.Path).source
	if source != sourceWorkspace {
		state, err = s.looked.standing(one)
	}
	look := "look at it: toolcrib skills check " + one.Name
	switch {
	case !one.Enabled:
		v.State, v.Reason, v.Detail = stateOff, offDisabled, "enabled: false in its "+skill.FileName
	case err != nil:
		v.State, v.Reason, v.Detail = stateOff, offUnapproved, err.Error()
	case state == trust.Changed:
		v.State, v.Reason, v.Detail = stateOff, offChanged, "it has changed since somebody looked at it; "+look
	case state != trust.Trusted && source == sourceProject:
		v.State, v.Reason, v.Detail = stateOff, offUnapproved, "nobody has looked at it yet; "+look
	}
	return v
}

// folderProblems are what is wrong with folders as a whole, and with folders in them
// that no name can mean.
func (s *shelf) folderProblems() []string {
	var texts []string
	for _, f := range s.folders {
		if f.passed != "" {
			texts = append(texts, f.passed)
		}
	}
	for _, p := range slices.Concat(s.problems, s.asideProblems) {
		switch {
		case p.Skill != "", p.Code == skill.CodeNoFolder, p.Code == skill.CodeNotice:
		default:
			texts = append(texts, pathText(p.Path)+": "+p.Message)
		}
	}
	return texts
}

func (a *app) skillsListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the skills and whether they can be used",
		Example: "toolcrib skills list\ntoolcrib skills list --json",
		Args:    positional,
		RunE: func(*cobra.Command, []string) error {
			s, err := a.skillShelf()
			if err != nil {
				return err
			}
			views := s.views()
			for _, text := range s.folderProblems() {
				a.notice("%s", text)
			}
			if asJSON {
				return printJSON(a.out, append([]skillView{}, views...), true)
			}
			rows := [][]string{{"NAME", "STATE", "SOURCE", "TOOLS", "DESCRIPTION"}}
			for i := range views {
				v := &views[i]
				rows = append(rows, []string{v.Name, stateOfSkill(v), v.Source, v.toolsText(), cmp.Or(v.Description, v.Detail)})
			}
			a.outStyle.Table(a.out, rows)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) skillShelf() (*shelf, error) {
	c, err := a.configuration()
	if err != nil {
		return nil, err
	}
	return a.readShelf(c)
}

func stateOfSkill(v *skillView) string {
	if v.Reason == "" {
		return v.State
	}
	return v.State + " (" + v.Reason + ")"
}

func (v *skillView) toolsText() string {
	switch {
	case v.skill == nil:
		return ""
	case v.AllowedTools == nil:
		return "any"
	case len(v.AllowedTools) == 0:
		return "none"
	}
	return strings.Join(v.AllowedTools, ", ")
}

// findSkill is the skill that has a name.
func (s *shelf) findSkill(name string) (*skillView, error) {
	views := s.views()
	for i := range views {
		if views[i].Name == name {
			return &views[i], nil
		}
	}
	text := fmt.Sprintf("not found: there is no skill %s", name)
	if s.unread != "" {
		text += "; " + s.unread
	}
	if near := nearest(name, s.names()); near != "" {
		text += fmt.Sprintf(" (did you mean %s?)", near)
	}
	return nil, fmt.Errorf("%s", text)
}

func (a *app) skillsShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "Show a skill: where it is, what it allows, its files and its text",
		Example:           "toolcrib skills show release-notes\ntoolcrib skills show release-notes --json",
		Args:              positional,
		ValidArgsFunction: a.completeSkills,
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := a.skillShelf()
			if err != nil {
				return err
			}
			v, err := s.findSkill(args[0])
			if err != nil {
				return err
			}
			text := ""
			if v.skill != nil {
				text = v.skill.Body
			}
			if asJSON {
				return printJSON(a.out, struct {
					*skillView
					Text string `json:"text"`
				}{v, text}, true)
			}
			a.showSkill(v)
			if text = strings.Trim(guard.Visible(text), "\r\n"); text != "" {
				fmt.Fprintf(a.out, "\n%s\n", text)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

// showSkill tells everything about a skill but its text.
func (a *app) showSkill(v *skillView) {
	s := a.outStyle
	fmt.Fprintf(a.out, "%s  %s\n", s.Bold(guard.Visible(v.Name)), guard.Visible(stateOfSkill(v)))
	if v.Description != "" {
		fmt.Fprintf(a.out, "%s\n", guard.Visible(v.Description))
	}
	rows := [][2]string{{"why", v.Detail}, {"source", v.Source}, {"folder", pathText(v.Path)}, {"hash", v.Hash}, {"tools", v.allowedText()}, {"license", v.License}, {"needs", v.Compatibility}}
	for _, f := range v.Files {
		rows = append(rows, [2]string{"file", fmt.Sprintf("%s (%d bytes)", pathText(f.Name), f.Bytes)})
	}
	for _, n := range v.Notices {
		rows = append(rows, [2]string{"notice", n})
	}
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(a.out, "  %s %s\n", s.Dim(fmt.Sprintf("%-8s", row[0])), guard.Visible(row[1]))
		}
	}
}

func (v *skillView) allowedText() string {
	switch text := v.toolsText(); text {
	case "any":
		return "no restriction (it declares no allowed-tools)"
	case "none":
		return "none (allowed-tools is empty)"
	default:
		return text
	}
}

// completeSkills completes the names of skills.
func (a *app) completeSkills(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	s, err := a.skillShelf()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return s.names(), cobra.ShellCompDirectiveNoFileComp
}

// skillFlag is --skill of commands that start or judge a run.
func (a *app) skillFlag(cmd *cobra.Command, f *runFlags) {
	cmd.Flags().StringArrayVar(&f.skills, "skill", nil, "a skill that the run has besides those of the agent; may be repeated")
	// The flag was just made, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("skill", a.completeSkills)
}

// withSkills adds the skills of --skill to those of the agent.
func withSkills(names, more []string) ([]string, error) {
	for _, name := range more {
		if strings.TrimSpace(name) == "" {
			return nil, usagef("--skill: must name a skill")
		}
		if !slices.Contains(names, name) {
			names = append(slices.Clip(names), name)
		}
	}
	return names, nil
}
