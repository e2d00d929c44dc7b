package policy

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/project"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/skill"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/tool/skillread"
)

// skillState is the state of a process about the skills of its runs.
type skillState struct {
	mu    sync.Mutex
	given []*skill.Skill       // given to runs, with entries that are not checked yet
	sets  map[string]skill.Set // given to runs, by skillsKey
}

// maxRunSkills is the most sets that are kept for read_skill.
const maxRunSkills = 64

// runSkills are the skills of a run, for read_skill.
type runSkills struct {
	set  skill.Set
	vars map[string]string
}

// chosenSkills are the skills of a run.
type chosenSkills struct {
	Tools   []string // the tools that they allow; nil does not restrict them
	Ignored []string // names without an effect

	set  skill.Set
	free []*skill.Skill // not named; may be listed
	off  []skill.Off    // named, but cannot be used
}

// Notices returns notices about the named skills that cannot be used.
func (c *chosenSkills) Notices() (notices []toolcrib.Notice) {
	for _, o := range c.off {
		notices = append(notices, toolcrib.Notice{Code: "skill_" + o.Reason, Message: o.Message})
	}
	if len(c.off) > 0 {
		const text = "the run has no tools, because one of its skills cannot be used"
		notices = append(notices, toolcrib.Notice{Code: "skill_off", Message: text})
	}
	return notices
}

// Tell calls tell with each message for a person.
func (c *chosenSkills) Tell(tell func(string)) {
	for _, text := range c.Ignored {
		tell(text)
	}
	for _, n := range c.Notices() {
		tell(n.Message)
	}
}

// choose determines which of the named skills are used and what they allow. If a named skill is missing, broken or
// changed since its review, the run has no tools, because its restrictions are unknown. A disabled skill is ignored.
func (k *Skills) choose(names []string, approved func(*Skill) bool) *chosenSkills {
	c := &chosenSkills{}
	find := func(name string) *skill.Skill {
		if one := k.named(name); one != nil {
			return one.Skill
		}
		return nil
	}
	var off []skill.Off
	c.set, off = skill.Choose(names, find, func(one *skill.Skill) bool { return approved(k.named(one.Name)) })
	c.Tools = c.set.AllowedTools()
	for _, o := range off {
		switch o.Reason {
		case skill.ReasonDisabled, skill.ReasonRepeated:
			c.Ignored = append(c.Ignored, o.Message)
			continue
		case skill.ReasonUnknown:
			o.Message = k.missing(o.Name)
		}
		c.off = append(c.off, o)
	}
	for i := range k.All {
		one := &k.All[i]
		if one.State == SkillOn && !one.Unlisted && c.set.Skill(one.Name) == nil {
			c.free = append(c.free, one.Skill)
		}
	}
	return c
}

// chooseSkills returns the skills of a run that names these. It records nothing.
func (p *Policy) chooseSkills(names []string) (*chosenSkills, error) {
	k, err := p.Skills(nil)
	if err != nil {
		return nil, err
	}
	return k.choose(names, func(one *Skill) bool { return one.State == SkillOn }), nil
}

// AddSkills adds the skills of its agent to a task: the tools that they allow and, if there is a model, their text. The
// first use of a skill in the user's own folders records its content; after a later change the skill is off. Named
// skills that cannot be used become notices of the run, or an error if they were requested for this run. tell receives
// other messages for a person, each once per process. Other usable skills are listed for the model: it may read them,
// and they neither restrict nor allow tools.
func (p *Policy) AddSkills(task *agent.Task, tell func(string), seen Paths) error {
	if len(task.Agent.Skills) == 0 && task.Given != nil {
		return nil
	}
	p.preparing.Lock()
	defer p.preparing.Unlock()
	k, err := p.Skills(seen)
	if err != nil {
		return err
	}
	tell = p.env.Once(tell)
	c := k.choose(task.Agent.Skills, func(one *Skill) bool { return p.firstSight(task.Principal, k, one, tell) })
	for _, o := range c.off {
		if slices.ContainsFunc(task.Agent.RunSkills, func(name string) bool { return skill.ShownName(name) == o.Name }) {
			return env.BadRequestf("--skill: %s", o.Message)
		}
	}
	for _, text := range c.Ignored {
		tell(text)
	}
	task.Notices = append(task.Notices, c.Notices()...)
	task.SkillTools, task.Skills, task.Listed = c.Tools, recorded(c.set.Skills()), nil
	list := ""
	if task.Given != nil { // without a conversation
		c.free = nil
	} else {
		for _, text := range k.PassedOver {
			tell(text)
		}
		list, c.free = listOf(task, c.free, tell)
		task.Listed = recorded(c.free)
	}
	if len(task.Skills)+len(task.Listed) == 0 {
		return nil
	}
	p.skills.keep(c.set.With(c.free), slices.Concat(task.Skills, task.Listed), c.set.Skills()...)
	if task.Given == nil {
		p.sayOnce(task, &c.set, tell)
	}
	if list != "" {
		p.background(task, backgroundSkillList, list, listAgain)
	}
	return nil
}

// record writes the skills into the first event of a run.
func (c *chosenSkills) record(start *journal.RunStarted) {
	start.SkillTools, start.Skills, start.Listed = c.Tools, recorded(c.set.Skills()), recorded(c.free)
}

// recorded returns skills as the first event of a run names them.
func recorded(skills []*skill.Skill) (named []journal.Skill) {
	for _, one := range skills {
		named = append(named, journal.Skill{Name: one.Name, Hash: one.Hash})
	}
	return named
}

// listOf returns the list of skills for the model of a run, and the skills in it. There are none if the run's lists of
// tools do not allow read_skill.
func listOf(task *agent.Task, free []*skill.Skill, tell func(string)) (text string, listed []*skill.Skill) {
	for _, list := range [][]string{task.Agent.Tools, task.RunTools, task.SkillTools} {
		if list != nil && len(skill.Unknown(list, []string{skillread.Name})) == len(list) {
			return "", nil
		}
	}
	budget := skill.DefaultListBytes
	if len(task.Models) > 0 && task.Models[0].Context > 0 {
		budget = min(budget, task.Models[0].Context/2) // bytes: about an eighth of the context's tokens
	}
	text, shown := skill.List(free, budget)
	if left := len(free) - shown; left > 0 {
		tell(fmt.Sprintf("not listed for the model, for lack of room: %d of %s; name one with --skill to use it",
			left, guard.Count(len(free), "skill")))
	}
	return text, free[:shown]
}

// firstSight reports whether a skill can be used, and records the content of one that is used for the first time.
func (p *Policy) firstSight(who toolcrib.Principal, k *Skills, one *Skill, tell func(string)) bool {
	if one.State == SkillOn && one.seen == trust.Untrusted {
		// Skills are read for the whole process, which has no other context.
		if err := p.review(context.Background(), who, k, one.Skill, store.SystemSkillSeen); err != nil {
			tell(fmt.Sprintf("skill %s: its content cannot be recorded: %v", one.Name, err))
			return false
		}
		tell(fmt.Sprintf("skill %s is new here (%s); if it changes, it is off until you have reviewed it: toolcrib "+
			"skills check %s", one.Name, PathText(one.Path), one.Name))
	}
	return one.State == SkillOn
}

// keep keeps the skills of a run, which later changes do not affect.
func (s *skillState) keep(set skill.Set, used []journal.Skill, given ...*skill.Skill) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sets == nil || len(s.sets) >= maxRunSkills {
		s.sets = map[string]skill.Set{}
	}
	s.sets[skillsKey(used)] = set
	s.given = append(s.given, given...)
}

// skillsKey returns a key that differs for skills with different content.
func skillsKey(used []journal.Skill) string {
	var key strings.Builder
	for _, s := range used {
		fmt.Fprintf(&key, "%s %s\n", s.Name, s.Hash)
	}
	return key.String()
}

// skillsAgain ends the text of skills if the conversation has an earlier one.
const skillsAgain = "\nThey take the place of the skills that stand above.\n"

// listAgain ends the list of skills if the conversation has an earlier one.
const listAgain = "\nThis list takes the place of the one above.\n"

// sayOnce adds the text of the skills to the conversation.
func (p *Policy) sayOnce(task *agent.Task, set *skill.Set, tell func(string)) {
	vars := skillVariables(task.Workspace, task.Principal.User, task.Agent.Name, time.Now())
	budget := skill.DefaultTextBytes
	if len(task.Models) > 0 && task.Models[0].Context > 0 {
		budget = min(budget, task.Models[0].Context) // bytes: about a quarter of the context's tokens
	}
	text, cut := set.Text(budget, vars)
	if len(cut) > 0 {
		tell(fmt.Sprintf("not all of the skills fits into the conversation: %s; read_skill has the rest, if they allow it",
			strings.Join(cut, ", ")))
	}
	if text == "" {
		return
	}
	p.background(task, backgroundSkills, text, skillsAgain)
}

func skillVariables(workspace, user, agentName string, at time.Time) map[string]string {
	return map[string]string{"workspace": workspace, "user": user, "agent": agentName, "date": at.Format(time.DateOnly)}
}

// UnknownNames returns a text for each list with names that match no tool: the run's own list, its agent's, and those
// of the skills that were given to runs since the last call.
func (p *Policy) UnknownNames(g *gate.Gate, a *toolcrib.Agent, runTools []string) (texts []string) {
	own := "--tools"
	if p.env.Driver == env.DriverServer {
		own = "tools"
	}
	list := func(where string, names []string) {
		if len(names) > 0 {
			texts = append(texts, where+": "+unknownTools(g, names))
		}
	}
	list(own, g.UnknownNames(runTools))
	list("agents."+a.Name+".tools", g.UnknownNames(a.Tools))
	p.skills.mu.Lock()
	given := p.skills.given
	p.skills.given = nil // each is reported once
	p.skills.mu.Unlock()
	for _, one := range given {
		list("skill "+one.Name+", allowed-tools", skill.Unknown(one.AllowedTools, g.Names()))
	}
	return texts
}

// unknownShown and unknownBytes bound the unknown names in a notice, since a client chooses how many there are.
const (
	unknownShown = 3
	unknownBytes = 80
)

// unknownTools returns a text about names that match no tool and are ignored.
func unknownTools(g *gate.Gate, names []string) string {
	if len(names) == 1 {
		return fmt.Sprintf("there is no tool %q; it is ignored%s", guard.Clip(names[0], unknownBytes),
			guard.DidYouMean(names[0], g.Names()))
	}
	shown := make([]string, min(len(names), unknownShown))
	for i := range shown {
		shown[i] = strconv.Quote(guard.Clip(names[i], unknownBytes))
	}
	more := ""
	if n := len(names) - len(shown); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("there is no tool %s%s; they are ignored", strings.Join(shown, ", "), more)
}

func (p *Policy) skillSet(call toolcrib.Call) *skill.Set {
	set := p.skillsOfRun(p.env.Store, call.Run).set
	return &set
}

func (p *Policy) skillVars(call toolcrib.Call) map[string]string {
	return p.skillsOfRun(p.env.Store, call.Run).vars
}

// skillsOfRun returns the skills with which a run began, with the content of that time. It leaves out skills that have
// changed.
func (p *Policy) skillsOfRun(journaled toolcrib.Journal, run toolcrib.RunID) (found runSkills) {
	for e, err := range journaled.Read(context.Background(), run, 0) { // reads only the first event
		start, ok := e.Body.(*journal.RunStarted)
		if err != nil || !ok {
			return runSkills{}
		}
		found.vars = skillVariables(start.Workspace, start.Principal.User, start.Agent.Name, e.Time.Local())
		found.set = p.SameSkills(slices.Concat(start.Skills, start.Listed))
		break
	}
	return found
}

// SameSkills returns the skills with exactly this content: those of a run of this process, or else those that exist
// now.
func (p *Policy) SameSkills(want []journal.Skill) skill.Set {
	p.skills.mu.Lock()
	set, ok := p.skills.sets[skillsKey(want)]
	p.skills.mu.Unlock()
	if ok || len(want) == 0 {
		return set
	}
	k, err := p.Skills(nil)
	if err != nil {
		return set
	}
	var same []*skill.Skill
	for i := range k.All {
		one := &k.All[i]
		usable := one.Readable() && one.Reason != SkillUntrusted
		if usable && slices.Contains(want, journal.Skill{Name: one.Name, Hash: one.Hash}) {
			same = append(same, one.Skill)
		}
	}
	set = set.With(same)
	p.skills.keep(set, want)
	return set
}

// withSkills adds the skills that were requested for a run to those of its agent.
func withSkills(names, more []string) ([]string, error) {
	for _, name := range more {
		if strings.TrimSpace(name) == "" {
			return nil, env.BadRequestf("--skill: must name a skill")
		}
		if !slices.Contains(names, name) {
			names = append(slices.Clip(names), name)
		}
	}
	return names, nil
}

// notesAgain ends the text of notes if the conversation has earlier ones.
const notesAgain = "\nThey take the place of the notes that stand above.\n"

// The kinds of messages that the user has not written ([toolcrib.Message.Background]).
const (
	backgroundNotes     = "notes"
	backgroundSkills    = "skills"
	backgroundSkillList = "skill_list"
)

// background adds a text to the conversation as data, in a user message before the prompt and never in the system text
// (N26). If the conversation already has the same text, nothing is added. If it has another text of the same kind,
// again is appended, which says that the new one replaces it.
func (p *Policy) background(task *agent.Task, kind, text, again string) {
	text = p.env.Mask.Mask(text)
	before := ""
	for i := range task.History {
		if task.History[i].Background == kind {
			before = task.History[i].Text()
		}
	}
	switch {
	case strings.TrimSuffix(before, again) == text:
		return
	case before != "":
		text += again
	}
	history := slices.Clone(task.History) // the slice may be shared
	said := toolcrib.TextMessage(toolcrib.RoleUser, text)
	said.Background = kind
	task.History = append(history, said)
}

// AddProject adds to the system text of a task where the run works, and to its conversation the notes of the project
// around the workspace, as data. Notes in a folder that the user has not trusted are not read.
func (p *Policy) AddProject(task *agent.Task, tell func(string), seen Paths) {
	if task.Given != nil || task.Compact || task.Workspace == "" {
		return
	}
	var found project.Project
	var err error
	if seen.at(task.Workspace) == there {
		found, err = project.FindFrom(task.Workspace, func(path string) bool { return seen.at(path) != absent })
	} else {
		found, err = project.Find(task.Workspace)
	}
	if err != nil {
		return // the tools of the run report a missing workspace
	}
	if task.Agent.System != "" {
		task.Agent.System += "\n\n"
	}
	task.Agent.System += project.Environment(found, task.Workspace, time.Now())

	tell = p.env.Once(tell)
	names := found.Names(p.env.Config.Notes.Files)
	if len(names) == 0 {
		return
	}
	trusted, left := p.trustedProject(found, names)
	if len(left) > 0 {
		tell(fmt.Sprintf("%s: not read, because %s is not trusted yet; review it, then run: toolcrib trust %s",
			pathTexts(left), PathText(found.Root), PathText(found.Root)))
	}
	if trusted == nil {
		return
	}
	notes, problems := trusted.Read(p.env.Config.Notes.Files, p.env.Config.Notes.MaxBytes)
	for _, text := range problems {
		tell(PathText(text))
	}
	if cut := slices.IndexFunc(notes, func(n project.Note) bool { return n.Cut }); cut >= 0 {
		tell(fmt.Sprintf("%s does not fit into notes.max_bytes (%d): the rest of it is left out",
			PathText(notes[cut].Path), p.env.Config.Notes.MaxBytes))
	}
	if len(notes) > 0 {
		p.background(task, backgroundNotes, project.NotesText(notes), notesAgain)
	}
}

// trustedProject returns the part of a project that the user trusts, and the names of the notes outside of it. It is
// the whole project, or the folder in which the run works and all below it. If the user trusts neither, trusted is nil.
func (p *Policy) trustedProject(of project.Project, names []string) (trusted *project.Project, left []string) {
	folder := project.Project{Root: filepath.Join(of.Root, filepath.FromSlash(of.Folder)), Folder: "."}
	switch {
	case p.hasSeenNotes(of):
		return &of, nil
	case of.Folder == "." || !p.hasSeenNotes(folder):
		return nil, names
	}
	return &folder, slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return path.Dir(name) == of.Folder
	})
}

// hasSeenNotes reports whether the user trusts the root of a project and has reviewed the notes in it. The init command
// trusts only files that it has written.
func (p *Policy) hasSeenNotes(of project.Project) bool {
	trusted := p.env.TrustStore()
	folders, err := trusted.Folders()
	if err != nil || !slices.Contains(folders, of.Root) {
		return false
	}
	names := of.Names(p.env.Config.Notes.Files)
	if len(names) == 0 || !slices.Contains(trust.Names(), names[0]) {
		return true
	}
	files, err := trusted.Check(of.Root, names[0])
	return err == nil && (files[0].State == trust.Trusted || files[0].State == trust.Changed)
}
