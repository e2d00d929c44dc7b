package skill

import (
	"fmt"
	"regexp"
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

var namePattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// ValidName reports whether a skill may have this name: 1 to 64 of the characters
// a-z, 0-9 and -, with no hyphen at either end and no two in a row. So no two
// names can look alike.
func ValidName(name string) bool { return len(name) <= maxNameBytes && namePattern.MatchString(name) }
