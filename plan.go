package toolcrib

import (
	"context"
	"encoding/json"
)

// Planner is a tool whose calls are worked out before they are judged. The gate asks for the plan of
// a call once and judges it; the permit holds that plan, and Run of that plan is what is executed.
// Call of a Planner is used only by programs that call the tool themselves; see [RunPlan].
type Planner interface {
	Tool
	// Plan decodes the arguments and works the call out. It may look at files, and must not change
	// anything. An error refuses the call: with the reason protected_path if it is an
	// [ErrProtected], otherwise with tool_policy. The text of a [*ToolError] is for the model.
	Plan(ctx context.Context, call Call) (*Plan, error)
}

// Plan is a call worked out: the facts that the gate judges, and the work that follows. The zero
// value of a field is the strictest reading. A plan keeps nothing open, so that one which is never
// run needs no cleanup.
//
// The functions are called with the call as it was judged, but without its arguments: they use only
// what Plan has read of them. All may be nil except Run.
type Plan struct {
	Effect Effect // effect of this call; if "", that of the spec, which is the worst
	// NoEffect reports whether the call would change nothing as things are now: it fails, or finds what it
	// would write. No person is asked about it then, and it runs as one that only reads: without
	// [Plan.Prepare] Run must change nothing, whatever has changed since.
	NoEffect bool
	Targets  []Target // for the order of calls, for protected paths, sinks and rules
	// CommandLine reports whether the call runs a command line. Programs are the programs that it
	// starts, in the order of the line, each followed by those that it is told to start itself (env,
	// sh -c). What a program does beyond that is not known.
	CommandLine bool
	Programs    []Program
	// Scope is the program of the line with its subcommand (go test), if an approval of the line may be
	// remembered for all lines with the same Scope: they name no other program, no path outside the workspace
	// and no other output. For a line of several commands it is those of all, separated by ", " (git add, git
	// commit); an approval of these is also one of a line with some of them. If "", an approval can be
	// remembered for the same line only.
	Scope    string
	Concerns []Concern // reasons to ask a person
	// Hide returns a plan of the same call that cannot touch the given paths, absolute, nor anything below
	// them, or nil if that is not possible. The gate calls it if a rule would deny access to these paths and
	// it is not known whether the call needs them. Hidden are the paths that were hidden. If Hide is nil,
	// nothing can be hidden.
	Hide   func(paths []string) *Plan
	Hidden []string
	// Content has the texts that, together with the written targets, distinguish the call from
	// others of the tool, such as the content of a file. If nil, only the arguments do.
	Content []string
	// Matches reports whether patterns of skills (allowed-tools) allow the call. The text of an
	// error is for the model, and means no. If nil, no pattern allows it.
	Matches func(patterns []string) (bool, error)
	// Files returns the present state of the files that the call writes, to which an approval is
	// bound. If nil, an approval is bound to no file.
	Files func(ctx context.Context) ([]FileState, error)
	// Preview shows what the call would change. It must not change anything.
	Preview func(ctx context.Context) (Preview, error)
	// Prepare is called just before Run for a call that writes. What it returns is journaled with
	// the start of the call, durably, and given to Reconcile after a crash.
	Prepare func(ctx context.Context, call Call) (json.RawMessage, error)
	// Reconcile finds out whether a write that was cut off happened.
	Reconcile func(ctx context.Context, call Call, prepared json.RawMessage) (Reconciled, error)
	// Run does the work. It has the duties of [Tool.Call].
	Run func(ctx context.Context, call Call) (Output, error)
}

// PlanFacts says which facts about a call of a tool depend on its arguments.
type PlanFacts struct {
	Effect   bool // the effect; otherwise each call has that of the spec
	Targets  bool // the plan names all targets; otherwise a tool that is not built in may read any file
	Policy   bool // the plan may refuse the call
	Concerns bool // the plan may have reasons to ask a person
}

// RunPlan plans a call and runs the plan, for the Call method of a [Planner].
func RunPlan(ctx context.Context, tool Planner, call Call) (Output, error) {
	if err := ctx.Err(); err != nil {
		return Output{}, err
	}
	p, err := tool.Plan(ctx, call)
	if err != nil {
		return Output{}, err
	}
	return p.Run(ctx, call.WithoutArguments())
}

// WithoutArguments returns the call as it is given to the functions of a [Plan].
func (c Call) WithoutArguments() Call {
	c.Arguments = nil
	return c
}

// Target is one thing that a call touches.
type Target struct {
	Kind  string `json:"kind"` // file | host | agent | …
	Name  string `json:"name"` // file: absolute path, symbolic links resolved as far as it exists
	Write bool   `json:"write,omitempty"`
	// Tree reports whether the call may also touch anything below a folder: it searches it, or runs
	// a program that may open any file there.
	Tree bool `json:"tree,omitempty"`
}

// The kinds of targets that the gate knows: a file or folder, and an agent that the call sets to
// work. The principal of the run must have access to that agent.
const (
	TargetFile  = "file"
	TargetAgent = "agent"
)

// Program is one program that a call starts, read from the syntax tree by which the line is judged
// and run.
type Program struct {
	Name Word // without its folder: git for /usr/bin/git
	Args []Word
}

// Word is one word of a command line, as the program gets it.
type Word struct {
	Text string
	// Unknown reports whether only the shell works the word out, when the line runs ($NAME, $(…), a
	// pattern). It may become any number of words. Text is then a pattern as it is written, or "".
	Unknown bool
}

// Concern is a reason to ask a person about a call, whatever tools.confirm says. Only a person's
// decision answers it, not a rule's allow.
type Concern struct {
	// Reason is [ReasonUnlistedProgram], which a remembered approval of the same arguments or the same
	// [Plan.Scope] answers as well, but --approve all does not; or [ReasonNeedsConfirmation], which is asked each time.
	Reason Reason
	Why    string // what the call does, to be read after the name of the tool
	// Instead is advice that would let the call run without a person. It may be "".
	Instead string
	// Run reports whether an approval also answers the same concern of later calls of the run.
	Run bool
}

// Preview is shown to a person before a decision. The gate bounds it.
type Preview struct {
	Kind string `json:"kind"` // diff (a unified diff) | text
	Text string `json:"text"`
}

// FileState is the state of a file at some moment.
type FileState struct {
	Path string `json:"path"` // absolute, symbolic links resolved as far as it exists
	// State does not change as long as the file does not: [FileAbsent], or what its tool compares,
	// such as sha256:HEX of the content.
	State string `json:"state"`
}

// FileAbsent is the [FileState.State] of a file that does not exist.
const FileAbsent = "absent"

// Reconciled is the outcome of an interrupted call.
type Reconciled struct {
	State  ReconciledState
	Output Output // result of the call, if State is Happened
}

// ReconciledState is the outcome of an interrupted call. The zero value leaves it in doubt.
type ReconciledState string

const (
	InDoubt     ReconciledState = ""
	Happened    ReconciledState = "happened"
	NotHappened ReconciledState = "not_happened"
)
