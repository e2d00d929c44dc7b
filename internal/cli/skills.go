package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/store"
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
	for _, one := range s.Library.Skills() {
		views = append(views, s.view(one))
	}
	for _, one := range s.Aside.Skills() {
		v := viewOfSkill(one)
		v.State, v.Reason, v.Detail = stateOff, offUntrusted, s.FolderOf(one.Path).Passed
		views = append(views, v)
	}
	for _, p := range slices.Concat(s.Problems, s.AsideProblems) {
		if p.Skill == "" {
			continue
		}
		v := skillView{Name: p.Skill, State: stateOff, Reason: offBroken, Detail: problemText(p), Path: p.Path, Source: s.FolderOf(p.Path).Source}
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
	source := s.FolderOf(one.Path).Source
	if source != service.SourceWorkspace {
		state, err = s.Looked.Standing(one)
	}
	look := "look at it: toolcrib skills check " + one.Name
	switch {
	case !one.Enabled:
		v.State, v.Reason, v.Detail = stateOff, offDisabled, "enabled: false in its "+skill.FileName
	case err != nil:
		v.State, v.Reason, v.Detail = stateOff, offUnapproved, err.Error()
	case state == trust.Changed:
		v.State, v.Reason, v.Detail = stateOff, offChanged, "it has changed since somebody looked at it; "+look
	case state != trust.Trusted && source == service.SourceProject:
		v.State, v.Reason, v.Detail = stateOff, offUnapproved, "nobody has looked at it yet; "+look
	}
	return v
}

// folderProblems are what is wrong with folders as a whole, and with folders in them
// that no name can mean.
func (s *shelf) folderProblems() []string {
	var texts []string
	for _, f := range s.Folders {
		if f.Passed != "" {
			texts = append(texts, f.Passed)
		}
	}
	for _, p := range slices.Concat(s.Problems, s.AsideProblems) {
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
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.skillShelf(cmd.Context())
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

// shelf is the skills that there are, with what the commands show of them.
type shelf struct{ *service.Shelf }

func (a *app) skillShelf(ctx context.Context) (*shelf, error) {
	who, err := a.principal(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := a.svc()
	if err != nil {
		return nil, err
	}
	s, err := kept.ReadShelf(who)
	return &shelf{s}, err
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
	if s.Unread != "" {
		text += "; " + s.Unread
	}
	if near := nearest(name, s.Names()); near != "" {
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
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.skillShelf(cmd.Context())
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
func (a *app) completeSkills(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	s, err := a.skillShelf(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return s.Names(), cobra.ShellCompDirectiveNoFileComp
}

// skillFlag is --skill of commands that start or judge a run.
func (a *app) skillFlag(cmd *cobra.Command, f *runFlags) {
	cmd.Flags().StringArrayVar(&f.skills, "skill", nil, "a skill that the run has besides those of the agent; may be repeated")
	// The flag was just made, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("skill", a.completeSkills)
}

// trustSkills asks on a terminal about the skills folder of the current folder, if a
// run would have a skill of it.
func (a *app) trustSkills(ctx context.Context, names []string) error {
	if len(names) == 0 || !a.inTerminal || !a.errTerminal {
		return nil
	}
	s, err := a.skillShelf(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		one := s.Aside.Skill(name)
		if one == nil || s.Library.Skill(name) != nil {
			continue
		}
		trusted, err := a.trustStore()
		if err != nil {
			return err
		}
		dir := filepath.Dir(filepath.Dir(one.Path))
		_, files, err := trusted.Check(dir)
		if err != nil {
			return err
		}
		if !a.agreesToFolder(trusted, dir, files) {
			return nil // it is passed over, with a notice
		}
		// What counts in the end is what is read anew, against what was shown.
		if err := trusted.TrustFiles(dir, files); err != nil {
			return err
		}
		a.recordTrust(ctx, store.SystemTrustGiven, dir, "", files...)
		return nil
	}
	return nil
}
