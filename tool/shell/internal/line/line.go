// Package line judges command lines by their syntax trees. It starts nothing.
//
// [Parse] refuses lines that no mode runs. [Rules.Judge] decides whether a line runs in a workspace, and
// returns a [Plan]: the commands to be run, the sandbox that they need, and the facts by which the gate
// judges the call. It asks an interface, [Files], about the file system, once for each word.
package line

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

const (
	maxCommands  = 64   // simple commands of one line
	maxWords     = 1000 // words of all commands, patterns expanded; a gate judges at most 1024 targets
	maxPathBytes = 4096 // PATH_MAX of Linux
	rootDir      = "/"  // as a workspace it contains the whole machine
	devNull      = "/dev/null"
)

// Line is a parsed command line.
type Line struct {
	Text string

	file     *syntax.File
	words    map[*syntax.Word]read // words read so far
	programs []toolcrib.Program    // programs that the line starts, in its order
	scripts  []*syntax.File        // scripts written on the line, as of sh -c '…'
	depth    int                   // depth of the current script
	sets     bool                  // whether the line sets variables that change where git finds its settings

	pipelines []pipeline // the line, if it has only simple commands
	construct error      // why it has others, or nil
}

// Parse parses a command line as bash does. Constructs that bash has beyond POSIX get nodes of
// their own, so that they are refused instead of being read as ordinary words. Parse refuses
// programs that no mode runs (C12). All errors are [*toolcrib.ToolError].
func Parse(text string) (*Line, error) {
	file, err := parse(text)
	if err != nil {
		return nil, err
	}
	l := &Line{Text: text, file: file, words: map[*syntax.Word]read{}}
	l.tree(file)
	if err := l.checkForbidden(); err != nil {
		return nil, err
	}
	l.pipelines, l.construct = l.simple()
	return l, nil
}

func parse(text string) (*syntax.File, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err == nil {
		return file, nil
	}
	message := err.Error()
	var problem syntax.ParseError
	if errors.As(err, &problem) {
		message = problem.Text
	}
	return nil, &toolcrib.ToolError{
		Kind: toolcrib.InvalidArguments, Message: "the command line cannot be read: " + Shorten(message), Err: err,
	}
}

// Rules say which lines run in one workspace. Paths are absolute. If Allow and Shells are empty, no line
// runs. The functions and Files must not be nil.
type Rules struct {
	// Any says that a shell runs each line. Otherwise only lines of simple commands run, without a
	// shell, and only programs in Allow. With Ask, other lines are run by a shell if a person approves.
	Any, Ask bool
	// Strict reports whether there is a sandbox in which a line can only read. A line with an unlisted
	// program then runs in it, unasked. Strict is called at most once for a line, and may be nil.
	Strict func() bool
	Allow  []string
	Shells []string // names of shells; the first one installed runs lines

	// Elsewhere says that another program runs the lines, with Home as the home folder of its user.
	Elsewhere bool
	Home      string

	// Dir is the workspace with symbolic links resolved, Given its path as the call has it.
	Dir, Given string
	// Hides reports whether a path may be neither read nor written, HoldsHidden whether a folder has
	// such a path below it, and Protects whether a name may be written nowhere in the workspace.
	Hides, HoldsHidden, Protects func(string) bool

	Files Files
}

// Files answers questions about the file system. Its methods only read. The answers may be outdated
// when a line runs: [Plan.Changed] asks again, and the sandbox confines what changes later.
type Files interface {
	// Resolve resolves a path relative to the workspace, as [beneath.Folder.Resolve] does.
	Resolve(name string) (beneath.Place, error)
	// ReadDir returns all entries of a folder of the workspace, or at least most of them. A folder that
	// is outside or cannot be opened has none. The error is [fs.ErrNotExist], or ENOTDIR for a file.
	ReadDir(name string, most int) ([]fs.DirEntry, error)
	// Real resolves the symbolic links of an absolute path as far as it exists, and reports whether
	// it is a folder.
	Real(abs string) (real string, folder bool)
	// Program returns the path of an installed program. If system is true, one of the system is
	// preferred. The error is a [*toolcrib.ToolError].
	Program(name string, system bool) (path string, err error)
	// GitConfig returns the texts of the configuration of the workspace's repository. gap names a part
	// of the repository that may give git other settings, or is "".
	GitConfig() (texts []string, gap string)
}

// Basis is the reason why a line only reads.
type Basis string

// Reasons.
const (
	MayWrite  Basis = ""        // it is not known to only read
	ByTable   Basis = "table"   // the built-in table has each program and option, and each operand is allowed
	BySandbox Basis = "sandbox" // it runs in a sandbox in which nothing else is possible
)

// Sandbox says what the programs of a line can write, in addition to a temporary folder.
type Sandbox string

// Sandboxes.
const (
	WritesWorkspace Sandbox = ""          // the workspace, except for protected files
	WritesNothing   Sandbox = "nothing"   // for programs of the built-in table
	ReadsWorkspace  Sandbox = "read_only" // nothing either, for any programs
)

// Plan is a judged line: the commands to be run, the sandbox that they need, and why. The zero value
// has no commands, and is not read-only.
type Plan struct {
	Line  *Line
	Steps []Step
	Shell string // name of the shell that runs the line, or "" if no shell is involved

	ReadOnly Basis             // why the line only reads
	Targets  []toolcrib.Target // files of the line, sorted by name
	// Programs are those that the line starts, in its order. If no shell is involved, patterns are
	// expanded.
	Programs []toolcrib.Program
	Concerns []toolcrib.Concern // programs that do not run unasked

	// Scope is the program with its subcommand for which an approval of the line can be remembered, or "".
	Scope string

	UsesGit   bool
	GitWrites bool   // whether the line may write a repository, except for its settings
	GitRuns   string // part of the repository that may name a program for git to run, or ""

	looked []looked
}

// Step is a pipeline.
type Step struct {
	Join     string // operator before it: "", ";", "&&" or "||"
	Commands []Command
}

// Command is one program with its arguments.
type Command struct {
	Path    string
	Args    []string // beginning with the name
	In      string   // regular file, relative to the workspace, links resolved; "" if none is named
	NoInput bool     // whether the input is empty, even in a pipe
	Out     Sink
	Err     Sink
}

// Sink is the destination of stdout or stderr of a command.
type Sink string

// Sinks.
const (
	ToOut  Sink = "out" // the next command of the pipeline, or stdout of the result
	ToErr  Sink = "err" // stderr of the result
	ToNull Sink = "null"
)

// looked is a word that was resolved for a plan.
type looked struct {
	word, real string
	reads      bool // whether it is opened for reading, so that it must not be special
}

// Sandbox returns the sandbox that the line needs.
func (p *Plan) Sandbox() Sandbox {
	switch p.ReadOnly {
	case ByTable:
		return WritesNothing
	case BySandbox:
		return ReadsWorkspace
	}
	return WritesWorkspace
}

// Effect returns the effect of the line. It is read-only if the line is. If only the table says so, the
// repository must not be able to make git start any program.
func (p *Plan) Effect() toolcrib.Effect {
	if p.ReadOnly == MayWrite || p.ReadOnly == ByTable && p.GitRuns != "" {
		return toolcrib.EffectNonIdempotentWrite
	}
	return toolcrib.EffectReadOnly
}

// Changed returns a part of the workspace that has changed since the line was judged, or "". now are the
// present rules.
func (p *Plan) Changed(now *Rules) string {
	if p.UsesGit && now.gitRuns() != p.GitRuns {
		return "the configuration of the repository"
	}
	for _, l := range p.looked {
		found, err := now.resolve(l.word)
		special := l.reads && found.Info != nil && !found.Info.Mode().IsRegular() && !found.Info.IsDir()
		if err != nil || found.Real != l.real || special || now.Hides(now.abs(found.Real)) {
			return Quote(l.word)
		}
	}
	return ""
}

// Judge decides whether a line runs, and how. All errors are [*toolcrib.ToolError]; their texts are for
// the model, and say what is allowed instead.
func (r *Rules) Judge(l *Line) (*Plan, error) {
	d := newDraft(r, l, map[string]resolved{})
	if r.Hides(r.Dir) {
		return nil, protects("the workspace is in a protected folder")
	}
	judge := d.withoutShell
	if r.Any {
		judge = d.withShell
	}
	if err := judge(); err != nil {
		return nil, err
	}
	d.repository()
	for _, script := range l.scripts {
		if err := d.named(script); err != nil {
			return nil, err
		}
	}
	d.confine()
	if d.ReadOnly == MayWrite && r.Dir == rootDir {
		return nil, refuse("the workspace is the root of the file system, where only programs of the built-in table are run; " +
			"start in the folder that is worked on")
	}
	d.Scope = d.scope()
	slices.SortFunc(d.Targets, func(a, b toolcrib.Target) int { return strings.Compare(a.Name, b.Name) })
	return &d.Plan, nil
}

// OnlyReads reports whether the built-in table has a program. Git is not in it, since some of its
// commands write.
func OnlyReads(program string) bool { return table()[program] != nil }

// refuse returns a refusal. The model reads its text (C15), which says what is allowed instead.
func refuse(format string, args ...any) error {
	return toolcrib.Failf(toolcrib.PermissionDenied, format, args...)
}

// protects is refuse for hidden files.
func protects(format string, args ...any) error {
	err := toolcrib.Failf(toolcrib.PermissionDenied, format, args...)
	err.Err = toolcrib.ErrProtected
	return err
}

// Shorten returns text for a message, shortened and on one line.
func Shorten(text string) string {
	return guard.Clip(strings.Join(strings.Fields(text), " "), 200)
}

const maxQuoted = 80 // bytes of a word in a message

// Quote returns a word of a command line for a message, shortened and on one line.
func Quote(word string) string {
	word = guard.Clip(word, maxQuoted)
	quoted := strconv.Quote(word)
	if quoted == `"`+word+`"` && !strings.ContainsAny(word, " \"'") && word != "" {
		return word
	}
	return quoted
}
