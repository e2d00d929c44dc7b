package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
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

// kit is what the skills of a run come to.
type kit struct {
	set   skill.Set
	tools []string        // null = no restriction
	off   []skill.Problem // what was named and does not count
}

// used names the skills for the journal.
func (k *kit) used() []journal.Skill {
	var used []journal.Skill
	for _, s := range k.set.Skills() {
		used = append(used, journal.Skill{Name: s.Name, Hash: s.Hash})
	}
	return used
}

// giveSkills gives the run of a task the skills of its agent: what they allow, and,
// where a model reads it, their text. tell hears what a person should know, each
// thing once in a process.
func (a *app) giveSkills(c *config.Config, task *agent.Task, tell func(string)) error {
	k, err := a.kit(c, task.Agent.Skills, task.Agent.ToldSkills, true, tell)
	if err != nil {
		return err
	}
	task.SkillTools, task.Skills = k.tools, k.used()
	a.skills.keep(k, task.Skills)
	if task.Given == nil && len(task.Skills) > 0 {
		a.sayOnce(task, k, a.once(tell))
	}
	return nil
}

// keep keeps what a run is given: what changes from now on is not the run's.
func (s *skillState) keep(k *kit, used []journal.Skill) {
	if len(used) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets == nil || len(s.sets) >= maxRunSkills {
		s.sets = map[string]skill.Set{}
	}
	s.sets[skillsKey(used)] = k.set
	s.given = k.set.Skills()
}

// skillsKey tells sets of skills apart by their content.
func skillsKey(used []journal.Skill) string {
	var key strings.Builder
	for _, s := range used {
		fmt.Fprintf(&key, "%s %s\n", s.Name, s.Hash)
	}
	return key.String()
}

// once leaves out what was told before.
func (a *app) once(tell func(string)) func(string) {
	return func(text string) {
		a.skills.mu.Lock()
		known := a.skills.told[text]
		if a.skills.told == nil {
			a.skills.told = map[string]bool{}
		}
		a.skills.told[text] = true
		a.skills.mu.Unlock()
		if !known {
			tell(text)
		}
	}
}

// kit works out which of the named skills count and what they allow. One that is named
// and does not count, because it is missing, broken, or changed since a person looked,
// leaves the run without tools: nobody knows what it would have taken away. One that is
// switched off is ignored. Those that a person told beside the agent's own are an error
// instead. With record a skill that is seen for the first time is written down as looked
// at.
func (a *app) kit(c *config.Config, names, told []string, record bool, tell func(string)) (*kit, error) {
	k := &kit{}
	if len(names) == 0 {
		return k, nil
	}
	a.preparing.Lock()
	defer a.preparing.Unlock()
	s, err := a.readShelf(c)
	if err != nil {
		return nil, err
	}
	tell = a.once(tell)
	var problems []skill.Problem
	k.set, problems = s.library.Effective(names, func(name, _ string) bool { return s.approved(s.library.Skill(name), record, tell) })
	k.tools = k.set.AllowedTools()
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
			return nil, usagef("--skill: %s", p.Message)
		}
		tell(p.Message)
		k.off = append(k.off, p)
	}
	if len(k.off) > 0 {
		k.tools = []string{}
		tell("the run has no tools, because one of its skills cannot be used")
	}
	return k, nil
}

// missing says why there is no skill of a name, of which the library says no more than
// message.
func (s *shelf) missing(name, message string) string {
	if passed := s.passedOver(name); passed != "" {
		return fmt.Sprintf("skill %s is off: %s", name, passed)
	}
	if near := nearest(name, s.names()); near != "" {
		return fmt.Sprintf("%s (did you mean %s?)", message, near)
	}
	return message
}

// skillProblems are the skills that agents name and that do not count.
func (a *app) skillProblems(c *config.Config) (config.Errors, error) {
	var all config.Errors
	for _, name := range c.AgentNames() {
		for i, one := range c.Agents[name].Skills {
			k, err := a.kit(c, []string{one}, nil, false, func(string) {})
			if err != nil {
				return nil, err
			}
			for _, p := range k.off {
				all = append(all, c.ErrorAt(fmt.Sprintf("%s.skills[%d]", config.JoinKey("agents", name), i), p.Message))
			}
		}
	}
	return all, nil
}

// approved reports whether a person has looked at what the skill holds. A folder that
// is trusted was looked at. In folders of the user's own the first sight of a skill
// counts, and is told; from then on a change switches it off.
func (s *shelf) approved(one *skill.Skill, record bool, tell func(string)) bool {
	folder := s.folderOf(one.Path)
	if folder.source == sourceWorkspace {
		if record {
			s.looked.keep(one)
		}
		return true
	}
	state, err := s.looked.standing(one)
	switch {
	case err != nil:
		tell(fmt.Sprintf("skill %s: it cannot be told whether somebody has looked at it: %v", one.Name, err))
		return false
	case state == trust.Trusted:
		return true
	case state != trust.Untrusted || folder.source == sourceProject:
		return false
	case !record:
		return true
	}
	if err := s.looked.approve(one, store.SystemSkillSeen); err != nil {
		tell(fmt.Sprintf("skill %s: it cannot be kept what it holds: %v", one.Name, err))
		return false
	}
	tell(fmt.Sprintf("skill %s is new here (%s); if it changes, it is off until you have looked at it: toolcrib skills check %s",
		one.Name, pathText(one.Path), one.Name))
	return true
}

// skillsLead begins the text of skills in a transcript.
const skillsLead = "The skills of this run follow: "

// skillsAgain ends it where skills were given before with another text.
const skillsAgain = "\nThey take the place of the skills that stand above.\n"

// isSkillsText reports whether a message of the user's side is the text of skills. It
// decides nothing but how a transcript is shown, and whether the text stands there.
func isSkillsText(m *toolcrib.Message) bool {
	return m.Role == toolcrib.RoleUser && strings.HasPrefix(m.Text(), skillsLead)
}

// sayOnce puts the text of the skills into the conversation: as data, in a message
// of the user's side before the prompt, never into the system text (N26). A session
// that has the same text already does not get it twice.
func (a *app) sayOnce(task *agent.Task, k *kit, tell func(string)) {
	vars := skillVariables(task.Workspace, task.Principal.User, task.Agent.Name, time.Now())
	for _, p := range k.set.UnknownVariables(vars) {
		tell(p.Message)
	}
	budget := skill.DefaultTextBytes
	if len(task.Models) > 0 && task.Models[0].Context > 0 {
		budget = min(budget, task.Models[0].Context) // bytes: about a quarter of the context's tokens
	}
	text, cut := k.set.Text(budget, vars)
	if len(cut) > 0 {
		tell(fmt.Sprintf("not all of the skills fits into the conversation: %s; read_skill has the rest, if they allow it", strings.Join(cut, ", ")))
	}
	if text == "" {
		return
	}
	text = a.mask().Mask(text)
	before := ""
	for i := range task.History {
		if isSkillsText(&task.History[i]) {
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

// unknownSkillTools tells which entries of allowed-tools mean no tool and are
// dropped.
func (a *app) unknownSkillTools(g *gate.Gate) {
	a.skills.mu.Lock()
	given := a.skills.given
	a.skills.given = nil // told once
	a.skills.mu.Unlock()
	for _, one := range given {
		for _, entry := range skill.Unknown(one.AllowedTools, g.Names()) {
			a.unknownTool(g, "skill "+one.Name+", allowed-tools", entry)
		}
	}
}

// trustSkills asks on a terminal about the skills folder of the current folder, if a
// run would have a skill of it.
func (a *app) trustSkills(c *config.Config, names []string) error {
	if len(names) == 0 || !a.inTerminal || !a.errTerminal {
		return nil
	}
	s, err := a.readShelf(c)
	if err != nil {
		return err
	}
	for _, name := range names {
		one := s.aside.Skill(name)
		if one == nil || s.library.Skill(name) != nil {
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
		a.recordTrust(context.Background(), store.SystemTrustGiven, dir, "", files...) // there is no other context yet
		return nil
	}
	return nil
}

// maxRunSkills bounds the runs whose skills are held for read_skill.
const maxRunSkills = 64

// skillsOfRun finds the skills that a run began with, with the content that they had
// then: what has changed since is not given out.
type skillsOfRun func(toolcrib.Call) runSkills

func (f skillsOfRun) set(call toolcrib.Call) *skill.Set {
	set := f(call).set
	return &set
}

func (f skillsOfRun) vars(call toolcrib.Call) map[string]string { return f(call).vars }

func (a *app) skillsOfRun(ctx context.Context, journaled toolcrib.Journal) skillsOfRun {
	return func(call toolcrib.Call) runSkills {
		a.skills.mu.Lock()
		defer a.skills.mu.Unlock()
		if known, ok := a.skills.runs[call.Run]; ok {
			return known
		}
		var found runSkills
		for e, err := range journaled.Read(ctx, call.Run, 0) {
			if err != nil {
				return runSkills{}
			}
			start, ok := e.Body.(*journal.RunStarted)
			if !ok {
				return runSkills{}
			}
			found.vars = skillVariables(start.Workspace, start.Principal.User, start.Agent.Name, e.Time.Local())
			found.set = a.sameSkills(start.Skills)
			break
		}
		if a.skills.runs == nil || len(a.skills.runs) >= maxRunSkills {
			a.skills.runs = map[toolcrib.RunID]runSkills{}
		}
		a.skills.runs[call.Run] = found
		return found
	}
}

// sameSkills finds skills with exactly this content: those that a run of this process
// was given, else among those that there are now.
func (a *app) sameSkills(want []journal.Skill) skill.Set {
	set, ok := a.skills.sets[skillsKey(want)]
	if ok || a.config == nil {
		return set
	}
	names := make([]string, len(want))
	hashes := make(map[string]string, len(want))
	for i, w := range want {
		names[i], hashes[w.Name] = w.Name, w.Hash
	}
	same := func(name, hash string) bool { return hash != "" && hashes[name] == hash }
	if s, err := a.readShelf(a.config); err == nil {
		set, _ = s.library.Effective(names, same) // what is wrong with a skill was told when the run began
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
