// Package skill reads skills of the Agent Skills convention: folders with a SKILL.md, whose front matter names the
// skill and may list the tools that it allows, and whose body is text for the model.
//
//   - [Parse] parses one SKILL.md, [Load] reads folders of skills.
//   - [Choose] selects the skills of a run: enabled, present, approved by content, each once.
//   - [Set.AllowedTools] lists the allowed tools, [Allowed] reports whether a call is allowed.
//   - [Set.Text] is the text of the skills for the model.
//
// A skill is untrusted data, and the role of a message is not a trust boundary. This has three consequences.
// A skill is used only with content that a person has reviewed: its hash covers every file of its folder, and a
// file is returned only if it still has the hash it was loaded with. Its allowed-tools can only remove tools. Its
// text belongs in the conversation, as data, in a message of the user; putting it into the system text breaks that.
//
// Anything ambiguous restricts: a misspelled allowed-tools key, an invalid entry, a pattern that cannot be matched.
// All functions are safe for concurrent use, and none panics for bad input.
package skill

import (
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Bounds of a skill and of a library. Larger ones are rejected, never cut.
const (
	MaxSkillBytes       = 256 << 10 // SKILL.md
	MaxFrontMatterBytes = 64 << 10  // between its two lines of ---
	MaxFileBytes        = 8 << 20   // any other file of a skill
	MaxFolderBytes      = 32 << 20  // all files of a skill
	MaxFolderFiles      = 1000      // files and folders of a skill
	MaxFolderDepth      = 8         // folders inside one another
	MaxSkills           = 500       // in a library, including shadowed and broken ones
	MaxLibraryBytes     = 128 << 20 // all files of all skills
	MaxDirs             = 100       // folders of skills

	maxNameBytes     = 64
	maxDescription   = 4096 // characters
	usualDescription = 1024 // characters that the convention allows
	maxNotices       = 32
)

// FileName is the file that makes a folder a skill.
const FileName = "SKILL.md"

// Skill is one skill. It must not be modified once it is in a set, because runs share it.
type Skill struct {
	Name        string `json:"name"`                  // also the name of its folder
	Description string `json:"description,omitempty"` // purpose and use, cleaned
	// AllowedTools are the entries of allowed-tools in their canonical form, each once. If nil, the
	// skill restricts nothing; if empty, it allows no tools.
	AllowedTools []string `json:"allowed_tools"`
	// Unlisted skills are only for runs that name them: disable-model-invocation in the front matter
	// excludes them from [List].
	Unlisted bool   `json:"unlisted,omitempty"`
	Body     string `json:"-"` // text after the front matter, unchanged
	// Notices are messages for a person about keys without effect, ignored entries and hidden
	// characters. At most 32.
	Notices []string `json:"notices,omitempty"`

	// Reason is the reason why the skill is off, and Detail explains it for people. If "", the skill is
	// usable once its content has been reviewed.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`

	// The following fields are set by [Load] only.
	Source string `json:"source"`          // Source of the [Dir]
	Path   string `json:"path"`            // the skill's folder
	Hash   string `json:"hash,omitempty"`  // sha256:… over the names and contents of all files
	Files  []File `json:"files,omitempty"` // sorted by name, including SKILL.md
	real   string // absolute path of the folder, or "" if unknown
}

// File is one file of a skill.
type File struct {
	Name string `json:"name"` // relative to the skill's folder, with slashes
	Size int64  `json:"bytes"`
	Hash string `json:"hash"` // sha256:… of the content
}

// Error describes a problem with a skill.
type Error struct {
	Line    int // line of SKILL.md, from 1; 0 for the whole file or folder
	Message string
}

// Error returns "SKILL.md:LINE: MESSAGE".
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("%s:%d: %s", FileName, e.Line, e.Message)
}

// Reasons why a skill is off, or why a requested name adds no skill to a [Set]. Other packages may define more.
const (
	ReasonBroken     = "broken"     // it cannot be read, or violates the convention or a bound
	ReasonShadowed   = "shadowed"   // an earlier folder has a skill of this name
	ReasonDisabled   = "disabled"   // enabled: false in the front matter
	ReasonUnapproved = "unapproved" // its content has not been reviewed
	ReasonUnknown    = "unknown"    // there is no skill of this name
	ReasonRepeated   = "repeated"   // requested twice; it is used once
	ReasonTooMany    = "too_many"   // more skills are requested than a run may have
)

var namePattern = lazyregexp.New(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// ValidName reports whether name is valid for a skill: 1 to 64 of the characters a-z, 0-9 and -,
// without a hyphen at either end or two in a row. So no two names look alike.
func ValidName(name string) bool { return len(name) <= maxNameBytes && namePattern.MatchString(name) }

// Set is the effective skills of a run: enabled, present, approved, each once. The zero value and
// nil contain no skills and restrict nothing.
type Set struct {
	skills []*Skill
	// withheld is set if a requested skill is not in the set.
	withheld bool
}

// maxAsked bounds the names that a run may request.
const maxAsked = 1000

// Off is a requested name that adds no skill to a [Set], with the reason.
type Off struct {
	Name    string // in the form of [ShownName]
	Reason  string
	Message string
}

// Choose selects the skills of a run by name, in the order of names, and returns the requested names that were not
// selected with their reasons. find returns the skill with a name, or nil. A skill with a [Skill.Reason] is off,
// and so is one whose content reviewed does not confirm; if reviewed is nil, none is confirmed.
//
// The restrictions of a skill that is missing, not reviewed or broken are unknown, so it leaves the run without
// tools. A skill that is disabled in its own front matter is treated as absent.
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

// Skills returns the skills of the set, in the requested order.
func (s *Set) Skills() []*Skill {
	if s == nil {
		return nil
	}
	return slices.Clone(s.skills)
}

// With returns the set with additional skills that can be read. They neither restrict nor grant.
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

// Skill returns a skill of the set by its name, or nil.
func (s *Set) Skill(name string) *Skill {
	for _, one := range s.Skills() {
		if one.Name == name {
			return one
		}
	}
	return nil
}

// AllowedTools returns the entries that the skills allow, in the canonical form that [ParseEntry]
// parses. It returns nil if no skill declares allowed-tools, which restricts nothing; otherwise
// the sorted union of them. An empty result means no tools, also if a requested skill is not in the
// set. All skills of the set are included, even those for which [Set.Text] had no room.
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
