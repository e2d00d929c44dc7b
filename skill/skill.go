// Package skill reads skills of the Agent Skills convention: folders with a
// SKILL.md, whose front matter names the skill and may say which tools it allows,
// and whose body is text for the model (rows N15, N16, N26; requirements 1b, 4b).
//
//   - [Parse] reads one SKILL.md, [Load] the folders that hold skills.
//   - [Choose] chooses the skills that a run has: enabled, present, approved by content,
//     each once.
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
	maxNotices       = 32
)

// FileName is the file that makes a folder a skill.
const FileName = "SKILL.md"

// Skill is one skill. Nothing in it may be changed once a set has it: runs share it.
type Skill struct {
	Name        string `json:"name"`                  // of the folder too
	Description string `json:"description,omitempty"` // what it does and when to use it, cleaned
	// AllowedTools are the entries of allowed-tools in their canonical form, each
	// once. nil = the skill declares none and restricts nothing; empty = it allows
	// no tools (N15).
	AllowedTools []string `json:"allowed_tools"`
	// Unlisted skills are for runs that name them: disable-model-invocation in the front
	// matter keeps them out of [List].
	Unlisted bool   `json:"unlisted,omitempty"`
	Body     string `json:"-"` // the text after the front matter, unchanged
	// Notices are things that a person would want to know: keys that mean nothing
	// here, entries that are passed over, hidden characters. At most 32.
	Notices []string `json:"notices,omitempty"`

	// Reason says why the skill is off, Detail in words for people. "" = it is not, once
	// its content has been reviewed.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`

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

// Error says what is wrong with a skill.
type Error struct {
	Line    int // of SKILL.md, from 1; 0 = the file or the folder as a whole
	Message string
}

// Error returns "SKILL.md:LINE: MESSAGE".
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("%s:%d: %s", FileName, e.Line, e.Message)
}

// Why a skill is off, or a name that was asked for adds none to a [Set]. Others may have
// reasons of their own.
const (
	ReasonBroken     = "broken"     // it cannot be read, or breaks the convention or a bound
	ReasonShadowed   = "shadowed"   // a folder before has a skill of this name
	ReasonDisabled   = "disabled"   // enabled: false in the front matter
	ReasonUnapproved = "unapproved" // its content has not been reviewed
	ReasonUnknown    = "unknown"    // there is no skill of this name
	ReasonRepeated   = "repeated"   // asked for twice; it counts once
	ReasonTooMany    = "too_many"   // more are asked for than a run may have
)

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

// Off says why a name that was asked for adds no skill to a [Set].
type Off struct {
	Name    string // as [ShownName] has it
	Reason  string
	Message string
}

// Choose chooses the skills of a run by name, in the order given, and says why one that
// was asked for is not among them. find returns the skill that has a name; nil = none.
// One that has a [Skill.Reason] is off, and so is one whose content reviewed does not
// confirm; nil confirms none.
//
// What one that is missing, not reviewed or broken would have taken away is not known:
// it leaves the run without tools (contract §6). One that is switched off in its own
// front matter counts as not there (N16).
func Choose(names []string, find func(name string) *Skill, reviewed func(*Skill) bool) (set Set, off []Off) {
	if len(names) > maxAsked {
		names, set.withheld = names[:maxAsked], true
		off = append(off, Off{"", ReasonTooMany, fmt.Sprintf("more than %d skills are asked for; the rest are off", maxAsked)})
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		shown := ShownName(name)
		add := func(reason, format string, args ...any) {
			set.withheld = set.withheld || reason != ReasonDisabled && reason != ReasonRepeated
			off = append(off, Off{shown, reason, "skill " + shown + " is " + fmt.Sprintf(format, args...)})
		}
		s := find(name)
		switch {
		case seen[name]:
			add(ReasonRepeated, "asked for twice; it counts once")
		case s == nil:
			set.withheld = true
			off = append(off, Off{shown, ReasonUnknown, "there is no skill " + shown + "; `toolcrib skills list` shows them all"})
		case s.Reason == ReasonDisabled:
			add(s.Reason, "switched off by enabled: false in its %s", FileName)
		case s.Reason == ReasonBroken:
			add(s.Reason, "off: %s; see: toolcrib skills check %s", s.Detail, name)
		case s.Reason != "":
			add(s.Reason, "off: %s", s.Detail)
		case reviewed == nil || !reviewed(s):
			add(ReasonUnapproved, "off: its present content has not been reviewed; review it with: toolcrib skills check %s", name)
		default:
			set.skills = append(set.skills, s)
		}
		seen[name] = true
	}
	return set, off
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
