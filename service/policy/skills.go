package policy

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/standin"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/tool/builtin"
)

// The sources of a folder in skills.dirs.
const (
	skillsWorkspace  = "workspace"  // in the current folder; used once the folder is trusted
	skillsProject    = "project"    // named by a configuration of the current folder; each skill must be approved
	skillsConfigured = "configured" // named by a configuration that the user named
	skillsUser       = "user"       // in the user's own configuration folder
)

// The reasons why a skill is off, in addition to those from reading it.
const (
	skillChanged    = "changed"              // since it was reviewed
	SkillUnapproved = skill.ReasonUnapproved // not reviewed
	SkillUntrusted  = "untrusted"            // the folder is not trusted
)

// SkillOn is the state of a skill that can be used, skillOff that of any other.
const SkillOn, skillOff = "on", "off"

// Skill is a skill that was read, and whether it can be used. A skill that cannot be read has only name, source and
// path.
type Skill struct {
	*skill.Skill

	State string `json:"state"` // on | off

	seen trust.State // whether its content was reviewed
}

// off switches the skill off.
func (s *Skill) off(reason, detail string) { s.State, s.Reason, s.Detail = skillOff, reason, detail }

// Readable reports whether the skill could be read.
func (s *Skill) Readable() bool { return s.Hash != "" }

// Unreviewed reports whether the skill is off until its content has been reviewed.
func (s *Skill) Unreviewed() bool { return s.Reason == skillChanged || s.Reason == SkillUnapproved }

// Wrong reports whether the state of the skill is a problem.
func (s *Skill) Wrong() bool {
	return s.Unreviewed() || s.Reason == skill.ReasonBroken || s.Reason == SkillUntrusted
}

// Skills are all skills, as they were read at one time.
type Skills struct {
	All []Skill // by name; of several with one name, the first is used
	// Problems are problems of folders, and of folders in them without a usable name. PassedOver has the folders that are
	// not trusted.
	PassedOver, Problems []string

	unread string // why a folder that is not trusted cannot be read; "" if all can be read

	folders trust.Store // trusted folders
}

// Skills reads the skills in the configured folders.
func (p *Policy) Skills(seen Paths) (*Skills, error) {
	out := &Skills{}
	out.folders = p.env.TrustStore()
	c := p.env.Config
	named := c.IsSet("skills.dirs") && !c.ProjectSets("skills.dirs")
	var used, aside []skill.Dir
	passed := map[string]string{} // why a folder is not used
	for _, v := range c.Skills.Dirs {
		path, err := v.Resolve(config.Resolver{}) // tools read it as well; protection has learned the secrets
		if err != nil {
			return nil, err
		}
		if seen.at(path) == absent || !standin.Exists(path) { // most are missing, and each run asks
			continue
		}
		user := config.UserFolder(os.Getenv)
		if user != "" {
			user = seen.resolved(user)
		}
		dir := skill.Dir{Path: path, Source: sourceOf(path, seen.resolved(path), user, named)}
		dir.Links = dir.Source == skillsUser // elsewhere the user has not chosen the target of a link
		if slices.ContainsFunc(used, func(d skill.Dir) bool { return d.Path == path }) {
			continue
		}
		if dir.Source != skillsWorkspace {
			used = append(used, dir)
			continue
		}
		why := ""
		if dir.Files, why = out.workspace(path); why == "" {
			used = append(used, dir)
			continue
		}
		out.PassedOver, passed[path] = append(out.PassedOver, why), why
		if dir.Files == nil {
			out.unread = why
		} else {
			aside = append(aside, dir)
		}
	}
	out.Problems = slices.Clone(out.PassedOver)
	out.load(used, out.judge)
	out.load(aside, func(one *Skill) {
		if one.Reason != skill.ReasonShadowed {
			one.off(SkillUntrusted, passed[filepath.Dir(one.Path)])
		}
	})
	slices.SortStableFunc(out.All, func(a, b Skill) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.last(), b.last()))
	})
	return out, nil
}

// load reads the skills in some folders, and adds them and the problems of others.
func (k *Skills) load(dirs []skill.Dir, judge func(*Skill)) {
	if len(dirs) == 0 {
		return
	}
	found, problems := skill.Load(dirs, builtin.Aliases())
	for _, one := range found {
		v := Skill{Skill: one, State: SkillOn}
		if one.Reason != "" {
			v.State = skillOff
		}
		judge(&v)
		k.All = append(k.All, v)
	}
	for _, text := range problems {
		k.Problems = append(k.Problems, PathText(text))
	}
}

// last sorts skills that are not used for a name after the one that is.
func (s *Skill) last() int {
	return slices.Index([]string{SkillUntrusted, skill.ReasonShadowed}, s.Reason)
}

// sourceOf returns the source of a folder. real is its path without links. user is the user's own folder, or "" if
// there is none. named is set if the user named the configuration that has the folder.
func sourceOf(path, real, user string, named bool) string {
	switch {
	case path == ownSkills(), user != "" && insideReal(real, user):
		return skillsUser
	case named:
		return skillsConfigured
	case workspaceOf(path) != "":
		return skillsWorkspace
	}
	return skillsProject
}

// ownSkills returns the folder in which the user keeps skills for other agents, or "" if it is unknown.
func ownSkills() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".claude", "skills")
}

// workspaceOf returns the folder that must be trusted for a folder of skills, or "" if its name is not in
// [trust.SkillFolders].
func workspaceOf(path string) string {
	for _, name := range trust.SkillFolders() {
		if dir, ok := strings.CutSuffix(path, string(filepath.Separator)+filepath.FromSlash(name)); ok {
			return filepath.Join(dir, string(filepath.Separator))
		}
	}
	return ""
}

// Find returns the skill with a name.
func (k *Skills) Find(name string) (*Skill, error) {
	if one := k.named(name); one != nil {
		return one, nil
	}
	return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "%s", k.missing(skill.ShownName(name)))
}

// named returns the skill with a name, or nil.
func (k *Skills) named(name string) *Skill {
	if i := slices.IndexFunc(k.All, func(one Skill) bool { return one.Name == name }); i >= 0 {
		return &k.All[i]
	}
	return nil
}

// missing says why there is no skill with a name in the form of [skill.ShownName].
func (k *Skills) missing(name string) string {
	if k.unread != "" && skill.ValidName(name) {
		return fmt.Sprintf("skill %s is off: %s", name, k.unread)
	}
	if near := guard.Nearest(strings.Trim(name, `"`), k.Names()); near != "" {
		return fmt.Sprintf("there is no skill %s (did you mean %s?)", name, near)
	}
	return fmt.Sprintf("there is no skill %s; `toolcrib skills list` shows them all", name)
}

// Names returns the names of all skills that can be requested, sorted.
func (k *Skills) Names() (names []string) {
	for _, one := range k.All {
		if one.Readable() && one.Reason != SkillUntrusted {
			names = append(names, one.Name)
		}
	}
	return names
}

// Untrusted returns the folder that must be trusted before a skill can be used, or "" if the skill is not in such a
// folder.
func (k *Skills) Untrusted(name string) string {
	if one := k.named(name); one != nil && one.Reason == SkillUntrusted {
		return workspaceOf(filepath.Dir(one.Path))
	}
	return ""
}

// NoteEntries adds notices to each skill about entries of its allowed-tools that name no tool, or whose pattern matches
// no call.
func (p *Policy) NoteEntries(k *Skills) {
	tools, err := p.describedTools()
	if err != nil {
		return // nothing is known about entries
	}
	names := make([]string, len(tools))
	for i, tool := range tools {
		names[i] = tool.Spec().Name
	}
	for i := range k.All {
		one := &k.All[i]
		one.Notices = slices.Clip(one.Notices)
		for _, entry := range skill.Unknown(one.AllowedTools, names) {
			one.Notices = append(one.Notices, fmt.Sprintf("allowed-tools: %s names no tool and is ignored", entry))
		}
		for _, entry := range one.AllowedTools {
			if problem := skill.BadPattern(entry, tools); problem != "" {
				one.Notices = append(one.Notices, fmt.Sprintf("allowed-tools: %s allows nothing: %s", entry, problem))
			}
		}
	}
}

// Review returns a skill for a review, with its content at the last review. It returns nil if there is nothing to
// review.
func (k *Skills) Review(one *Skill) (*trust.File, error) {
	f := &trust.File{Path: one.Path, Name: one.Name, Hash: one.Hash, Before: k.lastTrusted(one)}
	if !one.Readable() || !one.Unreviewed() && (one.Reason != SkillUntrusted || f.Before == nil) {
		return nil, nil
	}
	if f.Before != nil {
		f.State = trust.Changed
	}
	var err error
	if f.Content, err = filesOf(one.Skill); err != nil {
		return nil, fmt.Errorf("skill %s cannot be read whole: %w", one.Name, err)
	}
	return f, nil
}

// lastTrusted returns the files of a skill at its last review, or nil if they are unknown. In the workspace they are
// part of a whole folder.
func (k *Skills) lastTrusted(one *Skill) map[string][]byte {
	dir := filepath.Dir(one.Path)
	if one.Source != skillsWorkspace {
		last, _ := k.folders.Skills().LastTrusted(dir, one.Name)
		return last.Files
	}
	top := workspaceOf(dir)
	name, _ := filepath.Rel(top, dir)
	last, ok := k.folders.LastTrusted(top, filepath.ToSlash(name))
	if !ok {
		return nil
	}
	files := map[string][]byte{}
	for name, data := range last.Files {
		if rest, ok := strings.CutPrefix(name, one.Name+"/"); ok {
			files[rest] = data
		}
	}
	return files
}

// ApproveSkill records that an administrator has reviewed a skill as it was read, so that it can be used. digest is the
// hash of the reviewed content.
func (p *Policy) ApproveSkill(ctx context.Context, who toolcrib.Principal, k *Skills, one *Skill,
	digest string,
) error {
	if _, err := env.Administrator(who); err != nil {
		return err
	}
	switch {
	case !one.Readable():
		return fmt.Errorf("skill %s cannot be used, so there is nothing to approve: %s", one.Name, one.Detail)
	case one.Source == skillsWorkspace && one.Reason == SkillUntrusted:
		return fmt.Errorf("skill %s: it is trusted with its whole folder: %s", one.Name, one.Detail)
	case digest != one.Hash:
		return toolcrib.Errorf(toolcrib.CodeConflict, "skill %s has the hash %s now, not %s; review it again", one.Name,
			one.Hash, digest)
	}
	if err := p.review(ctx, who, k, one.Skill, store.SystemSkillApproved); err != nil {
		return fmt.Errorf("skill %s: your review cannot be recorded: %w", one.Name, err)
	}
	if one.Unreviewed() {
		one.State, one.Reason, one.Detail = SkillOn, "", ""
	}
	return nil
}

// review records the content of a skill as valid, first in the audit log. kind says whether a person has reviewed it or
// it is used for the first time.
func (p *Policy) review(ctx context.Context, who toolcrib.Principal, k *Skills, one *skill.Skill,
	kind toolcrib.Kind,
) error {
	if err := p.env.OpenFor(ctx, who); err != nil {
		return err
	}
	changed := store.FileChanged{Path: one.Path, Name: one.Name, Hash: one.Hash}
	if err := p.env.RecordChanged(ctx, who, kind, changed); err != nil {
		return err
	}
	seen := trust.File{Name: one.Name, Hash: one.Hash}
	seen.Content, _ = filesOf(one) // without a copy, changes cannot be shown
	return k.folders.Skills().TrustFiles(filepath.Dir(one.Path), []trust.File{seen})
}

// SkillProblems returns errors for the skills that configured agents name and that cannot be used.
func (p *Policy) SkillProblems() (config.Errors, error) {
	var all config.Errors
	k, err := p.Skills(nil)
	if err != nil {
		return nil, err
	}
	c := p.env.Config
	for _, name := range c.AgentNames() {
		for i, one := range c.Agents[name].Skills {
			for _, o := range k.choose([]string{one}, func(one *Skill) bool { return one.State == SkillOn }).off {
				all = append(all, c.ErrorAt(fmt.Sprintf("%s.skills[%d]", config.JoinKey("agents", name), i), o.Message))
			}
		}
	}
	return all, nil
}

// workspace reads a folder that must be trusted. The files that are used are those that were hashed. why says why the
// folder is not used; files is nil if it cannot be read.
func (k *Skills) workspace(path string) (files map[string][]byte, why string) {
	dir := workspaceOf(path)
	name, _ := filepath.Rel(dir, path)
	found, err := k.folders.Check(dir, filepath.ToSlash(name))
	if err != nil && len(found) == 0 {
		found = []trust.File{{}}
	}
	switch {
	case err != nil:
		why = path + " is passed over: " + err.Error()
	case found[0].State != trust.Trusted:
		why = trust.PassedOver(dir, found[0])
	}
	return found[0].Content, why
}

// judge decides whether a skill with a valid name can be used. A trusted folder was reviewed. In the user's own
// folders, a skill is valid as it is when it is first used.
func (k *Skills) judge(v *Skill) {
	v.seen = trust.Trusted
	if v.Reason != "" || v.Source == skillsWorkspace {
		return
	}
	seen, err := k.folders.Skills().State(v.Path, v.Hash)
	v.seen = seen
	look := "look at it: toolcrib skills check " + v.Name
	switch {
	case err != nil:
		v.off(SkillUnapproved, err.Error())
	case v.seen == trust.Changed:
		v.off(skillChanged, "it has changed since it was reviewed; "+look)
	case v.seen != trust.Trusted && v.Source == skillsProject:
		v.off(SkillUnapproved, "it has not been reviewed yet; "+look)
	}
}

// filesOf returns the files of a skill, as they were when it was loaded.
func filesOf(s *skill.Skill) (map[string][]byte, error) {
	files := make(map[string][]byte, len(s.Files))
	for _, f := range s.Files {
		data, err := s.ReadFile(f.Name)
		if err != nil {
			return nil, err
		}
		files[f.Name] = data
	}
	return files, nil
}
