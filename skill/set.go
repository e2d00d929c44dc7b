package skill

import (
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib/guard"
)

// Set is the effective skills of a run: enabled, present, approved, each once
// (N16). The zero value, and nil, is no skill and no restriction.
type Set struct {
	skills []*Skill
	// withheld is set if a skill was asked for that does not count.
	withheld bool
}

// maxAsked bounds the names that a run may ask for.
const maxAsked = 1000

// Effective chooses the skills of a run by name, in the order given, and says why
// one that was asked for is not among them:
//
//   - a name that no folder has is missing;
//   - one that is switched off in its own front matter counts as not there (N16);
//   - one whose content approved does not confirm is off until a person has looked
//     at it. approved gets the name and [Skill.Hash]; nil confirms none;
//   - one that cannot be used stays off.
//
// What one that is missing, not approved or broken would have taken away is not known:
// it leaves the run without tools (contract §6).
func (l *Library) Effective(names []string, approved func(name, hash string) bool) (Set, []Problem) {
	var set Set
	var problems []Problem
	seen := make(map[string]bool, len(names))
	for i, name := range names {
		if i == maxAsked {
			set.withheld = true
			problems = append(problems, Problem{
				Code:    CodeTooMany,
				Message: fmt.Sprintf("more than %d skills are asked for; the rest are off", maxAsked),
			})
			break
		}
		if seen[name] {
			problems = append(problems, Problem{Code: CodeRepeated, Skill: ShownName(name), Message: "skill " +
				ShownName(name) + " is asked for twice; it counts once"})
			continue
		}
		seen[name] = true
		if p := l.choose(&set, name, approved); p != nil {
			set.withheld = set.withheld || p.Code != CodeDisabled
			problems = append(problems, *p)
		}
	}
	return set, problems
}

// choose adds the skill to the set, or says why not.
func (l *Library) choose(set *Set, name string, approved func(name, hash string) bool) *Problem {
	if broken, ok := l.Broken(name); ok {
		broken.Message = fmt.Sprintf("skill %s is off: %s; see: toolcrib skills check %s", name, broken.Message, name)
		return &broken
	}
	s := l.Skill(name)
	switch {
	case s == nil:
		return &Problem{
			Code: CodeUnknown, Skill: ShownName(name),
			Message: fmt.Sprintf("there is no skill %s; `toolcrib skills list` shows them all", ShownName(name)),
		}
	case !s.Enabled:
		return &Problem{
			Code: CodeDisabled, Skill: name, Path: s.Path,
			Message: fmt.Sprintf("skill %s is switched off by enabled: false in its %s", name, FileName),
		}
	case approved == nil || !approved(name, s.Hash):
		return &Problem{
			Code: CodeUnapproved, Skill: name, Path: s.Path,
			Message: fmt.Sprintf("skill %s is off: its present content has not been reviewed; review it with: toolcrib "+
				"skills check %s", name, name),
		}
	}
	set.skills = append(set.skills, s)
	return nil
}

// Skills returns the skills of the set, in the order that was asked for.
func (s *Set) Skills() []*Skill {
	if s == nil {
		return nil
	}
	return slices.Clone(s.skills)
}

// With returns the set with more skills to read. They neither narrow nor grant.
func (s *Set) With(more []*Skill) Set {
	return Set{skills: append(s.Skills(), more...), withheld: s.withheld}
}

// Names returns the names of the skills, in order; never nil.
func (s *Set) Names() []string {
	names := []string{}
	for _, one := range s.Skills() {
		names = append(names, one.Name)
	}
	return names
}

// Skill returns a skill of the set by its name; nil = the set does not have it.
func (s *Set) Skill(name string) *Skill {
	for _, one := range s.Skills() {
		if one.Name == name {
			return one
		}
	}
	return nil
}

// AllowedTools returns what the skills allow, in the canonical form that
// [ParseEntry] reads (N15): nil if none declares allowed-tools, which restricts
// nothing, else the union, sorted; empty = no tools, also if a skill that was asked for
// does not count. Every skill of the set counts, whatever [Set.Text] had room for.
func (s *Set) AllowedTools() []string {
	switch {
	case s == nil:
		return nil
	case s.withheld:
		return []string{}
	}
	var union []string
	for _, one := range s.skills {
		if one.AllowedTools == nil {
			continue
		}
		if union == nil {
			union = []string{}
		}
		union = append(union, one.AllowedTools...)
	}
	slices.Sort(union)
	return slices.Compact(union)
}

// UnknownVariables says which variables the skills have that vars does not.
func (s *Set) UnknownVariables(vars map[string]string) []Problem {
	var problems []Problem
	for _, one := range s.Skills() {
		for _, name := range one.Variables() {
			if _, ok := vars[name]; !ok {
				problems = append(problems, Problem{
					Code: CodeVariable, Skill: one.Name, Path: one.Path,
					Message: fmt.Sprintf("skill %s: the variable ${%s} has no value and stays as it is", one.Name,
						guard.Visible(name)),
				})
			}
		}
	}
	return problems
}
