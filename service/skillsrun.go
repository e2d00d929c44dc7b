package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/store"
)

// skillState is what this process knows of skills.
type skillState struct {
	mu    sync.Mutex
	told  map[string]bool
	given []*skill.Skill       // to the last run
	sets  map[string]skill.Set // that runs were given, by skillsKey
	runs  map[toolcrib.RunID]runSkills
}

// runSkills are the skills of a run, as read_skill has them.
type runSkills struct {
	set  skill.Set
	vars map[string]string
}

// Kit is what the skills of a run come to.
type Kit struct {
	Set   skill.Set
	Tools []string        // null = no restriction
	Off   []skill.Problem // what was named and does not count
}

// used names the skills for the journal.
func (k *Kit) used() []journal.Skill {
	var used []journal.Skill
	for _, s := range k.Set.Skills() {
		used = append(used, journal.Skill{Name: s.Name, Hash: s.Hash})
	}
	return used
}

// GiveSkills gives the run of a task the skills of its agent: what they allow, and,
// where a model reads it, their text. tell hears what a person should know, each
// thing once in a process.
func (s *Service) GiveSkills(task *agent.Task, tell func(string)) error {
	k, err := s.Kit(task.Principal, task.Agent.Skills, task.Agent.ToldSkills, true, tell)
	if err != nil {
		return err
	}
	task.SkillTools, task.Skills = k.Tools, k.used()
	s.skills.keep(k, task.Skills)
	if task.Given == nil && len(task.Skills) > 0 {
		s.sayOnce(task, k, s.Once(tell))
	}
	return nil
}

// keep keeps what a run is given: what changes from now on is not the run's.
func (s *skillState) keep(k *Kit, used []journal.Skill) {
	if len(used) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets == nil || len(s.sets) >= maxRunSkills {
		s.sets = map[string]skill.Set{}
	}
	s.sets[skillsKey(used)] = k.Set
	s.given = k.Set.Skills()
}

// skillsKey tells sets of skills apart by their content.
func skillsKey(used []journal.Skill) string {
	var key strings.Builder
	for _, s := range used {
		fmt.Fprintf(&key, "%s %s\n", s.Name, s.Hash)
	}
	return key.String()
}

// Once leaves out what was told before.
func (s *Service) Once(tell func(string)) func(string) {
	return func(text string) {
		s.skills.mu.Lock()
		known := s.skills.told[text]
		if s.skills.told == nil {
			s.skills.told = map[string]bool{}
		}
		s.skills.told[text] = true
		s.skills.mu.Unlock()
		if !known {
			tell(text)
		}
	}
}

// Kit works out which of the named skills count and what they allow. One that is named
// and does not count, because it is missing, broken, or changed since a person looked,
// leaves the run without tools: nobody knows what it would have taken away. One that is
// switched off is ignored. Those that a person told beside the agent's own are an error
// instead. With record a skill that is seen for the first time is written down as looked
// at.
func (svc *Service) Kit(
	who toolcrib.Principal, names, told []string, record bool, tell func(string),
) (*Kit, error) {
	k := &Kit{}
	if len(names) == 0 {
		return k, nil
	}
	svc.preparing.Lock()
	defer svc.preparing.Unlock()
	s, err := svc.ReadShelf(who)
	if err != nil {
		return nil, err
	}
	tell = svc.Once(tell)
	var problems []skill.Problem
	k.Set, problems = s.Library.Effective(names, func(name, _ string) bool { return s.approved(s.Library.Skill(name), record, tell) })
	k.Tools = k.Set.AllowedTools()
	for _, p := range problems {
		is := func(name string) bool { return skill.ShownName(name) == p.Skill }
		switch p.Code {
		case skill.CodeDisabled, skill.CodeRepeated:
			tell(p.Message)
			continue
		case skill.CodeUnknown:
			p.Message = s.missing(names[slices.IndexFunc(names, is)], p.Message)
		}
		if slices.ContainsFunc(told, is) {
			return nil, badRequestf("--skill: %s", p.Message)
		}
		tell(p.Message)
		k.Off = append(k.Off, p)
	}
	if len(k.Off) > 0 {
		k.Tools = []string{}
		tell("the run has no tools, because one of its skills cannot be used")
	}
	return k, nil
}

// missing says why there is no skill of a name, of which the library says no more than
// message.
func (s *Shelf) missing(name, message string) string {
	if passed := s.passedOver(name); passed != "" {
		return fmt.Sprintf("skill %s is off: %s", name, passed)
	}
	if near := guard.Nearest(name, s.Names()); near != "" {
		return fmt.Sprintf("%s (did you mean %s?)", message, near)
	}
	return message
}

// SkillProblems are the skills that agents name and that do not count.
func (s *Service) SkillProblems() (config.Errors, error) {
	var all config.Errors
	c := s.Config
	for _, name := range c.AgentNames() {
		for i, one := range c.Agents[name].Skills {
			k, err := s.Kit(toolcrib.Principal{}, []string{one}, nil, false, func(string) {})
			if err != nil {
				return nil, err
			}
			for _, p := range k.Off {
				all = append(all, c.ErrorAt(fmt.Sprintf("%s.skills[%d]", config.JoinKey("agents", name), i), p.Message))
			}
		}
	}
	return all, nil
}

// approved reports whether a person has looked at what the skill holds. A folder that
// is trusted was looked at. In folders of the user's own the first sight of a skill
// counts, and is told; from then on a change switches it off.
func (s *Shelf) approved(one *skill.Skill, record bool, tell func(string)) bool {
	folder := s.FolderOf(one.Path)
	if folder.Source == SourceWorkspace {
		if record {
			s.Looked.keep(one)
		}
		return true
	}
	state, err := s.Looked.Standing(one)
	switch {
	case err != nil:
		tell(fmt.Sprintf("skill %s: it cannot be told whether somebody has looked at it: %v", one.Name, err))
		return false
	case state == trust.Trusted:
		return true
	case state != trust.Untrusted || folder.Source == SourceProject:
		return false
	case !record:
		return true
	}
	if err := s.Looked.Approve(one, store.SystemSkillSeen); err != nil {
		tell(fmt.Sprintf("skill %s: it cannot be kept what it holds: %v", one.Name, err))
		return false
	}
	tell(fmt.Sprintf("skill %s is new here (%s); if it changes, it is off until you have looked at it: toolcrib skills check %s",
		one.Name, PathText(one.Path), one.Name))
	return true
}

// skillsLead begins the text of skills in a transcript.
const skillsLead = "The skills of this run follow: "

// skillsAgain ends it where skills were given before with another text.
const skillsAgain = "\nThey take the place of the skills that stand above.\n"

// IsSkillsText reports whether a message of the user's side is the text of skills. It
// decides nothing but how a transcript is shown, and whether the text stands there.
func IsSkillsText(m *toolcrib.Message) bool {
	return m.Role == toolcrib.RoleUser && strings.HasPrefix(m.Text(), skillsLead)
}

// sayOnce puts the text of the skills into the conversation: as data, in a message
// of the user's side before the prompt, never into the system text (N26). A session
// that has the same text already does not get it twice.
func (s *Service) sayOnce(task *agent.Task, k *Kit, tell func(string)) {
	vars := skillVariables(task.Workspace, task.Principal.User, task.Agent.Name, time.Now())
	for _, p := range k.Set.UnknownVariables(vars) {
		tell(p.Message)
	}
	budget := skill.DefaultTextBytes
	if len(task.Models) > 0 && task.Models[0].Context > 0 {
		budget = min(budget, task.Models[0].Context) // bytes: about a quarter of the context's tokens
	}
	text, cut := k.Set.Text(budget, vars)
	if len(cut) > 0 {
		tell(fmt.Sprintf("not all of the skills fits into the conversation: %s; read_skill has the rest, if they allow it", strings.Join(cut, ", ")))
	}
	if text == "" {
		return
	}
	text = s.Mask.Mask(text)
	before := ""
	for i := range task.History {
		if IsSkillsText(&task.History[i]) {
			before = task.History[i].Text()
		}
	}
	switch {
	case strings.TrimSuffix(before, skillsAgain) == text:
		return
	case before != "":
		text += skillsAgain
	}
	history := append([]toolcrib.Message(nil), task.History...) // others may hold it
	task.History = append(history, toolcrib.TextMessage(toolcrib.RoleUser, text))
}

func skillVariables(workspace, user, agentName string, at time.Time) map[string]string {
	return map[string]string{"workspace": workspace, "user": user, "agent": agentName, "date": at.Format(time.DateOnly)}
}

// TellUnknown names those of lists mean no tool and are dropped: those of a run's own
// list, of its agent, and of the skills that it was given.
func (s *Service) TellUnknown(g *gate.Gate, a *toolcrib.Agent, runTools []string) {
	for _, name := range g.UnknownNames(runTools) {
		s.unknownTool(g, "--tools", name)
	}
	for _, name := range g.UnknownNames(a.Tools) {
		s.unknownTool(g, "agents."+a.Name+".tools", name)
	}
	s.skills.mu.Lock()
	given := s.skills.given
	s.skills.given = nil // told once
	s.skills.mu.Unlock()
	for _, one := range given {
		for _, entry := range skill.Unknown(one.AllowedTools, g.Names()) {
			s.unknownTool(g, "skill "+one.Name+", allowed-tools", entry)
		}
	}
}

// unknownTool tells that a name of a list means no tool and is dropped.
func (s *Service) unknownTool(g *gate.Gate, where, name string) {
	text := fmt.Sprintf("%s: there is no tool %q; it is dropped", where, name)
	if near := guard.Nearest(name, g.Names()); near != "" {
		text += fmt.Sprintf(" (did you mean %q?)", near)
	}
	s.Notice(text)
}

// maxRunSkills bounds the runs whose skills are held for read_skill.
const maxRunSkills = 64

func (s *Service) skillSet(call toolcrib.Call) *skill.Set {
	set := s.skillsOfRun(s.store, call).set
	return &set
}

func (s *Service) skillVars(call toolcrib.Call) map[string]string {
	return s.skillsOfRun(s.store, call).vars
}

// skillsOfRun finds the skills that a run began with, with the content that they had
// then: what has changed since is not given out.
func (s *Service) skillsOfRun(journaled toolcrib.Journal, call toolcrib.Call) runSkills {
	s.skills.mu.Lock()
	defer s.skills.mu.Unlock()
	if known, ok := s.skills.runs[call.Run]; ok {
		return known
	}
	var found runSkills
	for e, err := range journaled.Read(context.Background(), call.Run, 0) { // the beginning of a run, once
		if err != nil {
			return runSkills{}
		}
		start, ok := e.Body.(*journal.RunStarted)
		if !ok {
			return runSkills{}
		}
		found.vars = skillVariables(start.Workspace, start.Principal.User, start.Agent.Name, e.Time.Local())
		found.set = s.SameSkills(start.Skills)
		break
	}
	if s.skills.runs == nil || len(s.skills.runs) >= maxRunSkills {
		s.skills.runs = map[toolcrib.RunID]runSkills{}
	}
	s.skills.runs[call.Run] = found
	return found
}

// SameSkills finds skills with exactly this content: those that a run of this process
// was given, else among those that there are now.
func (s *Service) SameSkills(want []journal.Skill) skill.Set {
	set, ok := s.skills.sets[skillsKey(want)]
	if ok {
		return set
	}
	names := make([]string, len(want))
	hashes := make(map[string]string, len(want))
	for i, w := range want {
		names[i], hashes[w.Name] = w.Name, w.Hash
	}
	same := func(name, hash string) bool { return hash != "" && hashes[name] == hash }
	if shelf, err := s.ReadShelf(toolcrib.Principal{}); err == nil {
		set, _ = shelf.Library.Effective(names, same) // what is wrong with a skill was told when the run began
	}
	return set
}

// maxSkillRules bounds the lists of allowed-tools that are held ready.
const maxSkillRules = 64

// skillArguments judges what entries of allowed-tools say about arguments (N15).
func skillArguments() gate.SkillArguments {
	var mu sync.Mutex
	ready := map[string]*skill.Rules{}
	compiled := func(entries []string) *skill.Rules {
		key := strings.Join(entries, "\x00")
		mu.Lock()
		defer mu.Unlock()
		if r, ok := ready[key]; ok {
			return r
		}
		if len(ready) >= maxSkillRules {
			clear(ready)
		}
		r := skill.Compile(entries)
		ready[key] = r
		return r
	}
	return func(entries []string, call toolcrib.Call, targets []toolcrib.Target) (bool, error) {
		if entries == nil {
			return true, nil
		}
		return compiled(entries).Allowed(call.Name, call.Arguments, skill.Place{Workspace: call.Workspace, Targets: targets})
	}
}

// WithSkills adds the skills that a person told to those of the agent.
func WithSkills(names, more []string) ([]string, error) {
	for _, name := range more {
		if strings.TrimSpace(name) == "" {
			return nil, badRequestf("--skill: must name a skill")
		}
		if !slices.Contains(names, name) {
			names = append(slices.Clip(names), name)
		}
	}
	return names, nil
}
