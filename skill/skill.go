// Package skill reads skills of the Agent Skills convention: folders with a
// SKILL.md, whose front matter names the skill and may say which tools it allows,
// and whose body is text for the model (rows N15, N16, N26; requirements 1b, 4b).
//
//   - [Parse] reads one SKILL.md, [Load] the folders that hold skills.
//   - [Library.Effective] chooses the skills that a run has: enabled, present,
//     approved by content, each once.
//   - [Set.AllowedTools] is what they allow, [Allowed] says whether a call is among it.
//   - [Set.Text] is what the model reads of them.
//
// A skill is text of someone else, and a role of a message is no boundary of
// trust (N26). Three things follow. A skill counts only with the content that a
// person has looked at: its hash covers every file of its folder, and a file is
// given out only if it still has the hash it was loaded with. Its allowed-tools
// can only take tools away. Its text belongs into the conversation, as data, in a
// message of the user; whoever puts it into the system text breaks that.
//
// Whatever is unclear narrows: a key that looks like allowed-tools and is not
// quite it, an entry that cannot be read, a pattern that cannot be matched. All
// functions are safe for concurrent use, and none panics for bad input.
package skill

import (
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Bounds of a skill and of a library. What is larger is refused, never cut.
const (
	MaxSkillBytes       = 256 << 10 // SKILL.md
	MaxFrontMatterBytes = 64 << 10  // between its two lines of ---
	MaxFileBytes        = 8 << 20   // any other file of a skill
	MaxFolderBytes      = 32 << 20  // all files of a skill
	MaxFolderFiles      = 1000      // files and folders of a skill
	MaxFolderDepth      = 8         // folders inside one another
	MaxSkills           = 500       // of a library, shadowed and broken ones counted
	MaxLibraryBytes     = 128 << 20 // all files of all skills
	MaxDirs             = 100       // folders that hold skills

	maxNameBytes     = 64
	maxDescription   = 4096 // characters
	usualDescription = 1024 // characters that the convention allows
	maxCompatibility = 500  // characters
	maxLicense       = 1024 // characters
	maxMetadata      = 64   // keys
	maxMetadataBytes = 4096 // of one value
	maxNotices       = 32
)

// FileName is the file that makes a folder a skill.
const FileName = "SKILL.md"

// Skill is one skill. Nothing in it may be changed: libraries and sets share it.
type Skill struct {
	Name          string            `json:"name"`                  // of the folder too
	Description   string            `json:"description,omitempty"` // what it does and when to use it, cleaned
	License       string            `json:"license,omitempty"`
	Compatibility string            `json:"compatibility,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	// AllowedTools are the entries of allowed-tools in their canonical form, each
	// once. nil = the skill declares none and restricts nothing; empty = it allows
	// no tools (N15).
	AllowedTools []string `json:"allowed_tools"`
	Enabled      bool     `json:"-"` // enabled: false in the front matter switches a skill off
	// Unlisted skills are for runs that name them: disable-model-invocation in the front
	// matter keeps them out of [List].
	Unlisted bool   `json:"unlisted,omitempty"`
	Body     string `json:"-"` // the text after the front matter, unchanged
	// Notices are things that a person would want to know: keys that mean nothing
	// here, entries that are passed over, hidden characters. At most 32.
	Notices []string `json:"notices,omitempty"`

	// What follows is set by [Load] only.
	Source string `json:"source"`          // of the [Dir]
	Path   string `json:"path"`            // the skill's folder
	Hash   string `json:"hash,omitempty"`  // sha256:… over the names and contents of all files
	Files  []File `json:"files,omitempty"` // sorted by name, SKILL.md too
	real   string // absolute path of the folder; "" = not known
}

// File is one file of a skill.
type File struct {
	Name string `json:"name"` // relative to the skill's folder, with slashes
	Size int64  `json:"bytes"`
	Hash string `json:"hash"` // sha256:… of the content
}

// Error says what is wrong with a SKILL.md.
type Error struct {
	Skill   string // as the folder is called
	Line    int    // of SKILL.md, from 1; 0 = the file as a whole
	Message string
}

// Error returns "NAME/SKILL.md:LINE: MESSAGE".
func (e *Error) Error() string {
	at := FileName
	if e.Skill != "" {
		at = e.Skill + "/" + FileName
	}
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", at, e.Line)
	}
	return at + ": " + e.Message
}

// Code says what kind of problem there is with a skill.
type Code string

const (
	CodeInvalid    Code = "invalid"     // SKILL.md or the folder breaks the convention or a bound
	CodeUnreadable Code = "unreadable"  // the system does not let it be read
	CodeShadowed   Code = "shadowed"    // a folder before has a skill of this name
	CodeTooMany    Code = "too_many"    // more skills or bytes than a library takes
	CodeUnknown    Code = "unknown"     // asked for, and not found
	CodeDisabled   Code = "disabled"    // asked for, and switched off
	CodeUnapproved Code = "unapproved"  // asked for, and its content has not been reviewed
	CodeRepeated   Code = "repeated"    // asked for twice; it counts once
	CodeNotice     Code = "notice"      // works, but a person would want to know
	CodeNoFolder   Code = "no_folder"   // a folder of skills.dirs is not there
	CodeVariable   Code = "no_variable" // a ${name} without a value
)

// Problem is something that a person should know about a skill. Of its codes only
// notice, shadowed, repeated, no_folder and no_variable leave the skill itself in
// use.
type Problem struct {
	Code    Code
	Skill   string // "" = the folder as a whole
	Source  string // of the [Dir]; "" = of none
	Path    string // of the skill or of the folder that holds skills
	Line    int    // of SKILL.md; 0 = none
	Message string
}

// String returns the problem in a line for people.
func (p Problem) String() string {
	at := p.Path
	if at == "" && p.Skill != "" {
		at = "skill " + p.Skill
	}
	if p.Line > 0 {
		at = fmt.Sprintf("%s/%s:%d", at, FileName, p.Line)
	}
	if at == "" {
		return p.Message
	}
	return at + ": " + p.Message
}

var namePattern = lazyregexp.New(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// ValidName reports whether a skill may have this name: 1 to 64 of the characters
// a-z, 0-9 and -, with no hyphen at either end and no two in a row. So no two
// names can look alike.
func ValidName(name string) bool { return len(name) <= maxNameBytes && namePattern.MatchString(name) }

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
