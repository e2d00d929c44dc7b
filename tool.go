package toolcrib

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Tool is something that a model may call (N1). Call is only ever reached through
// a permit of the gate.
//
// Call must return soon after ctx ends and stop what it started. An error made
// for the model is a [*ToolError]; any other error, and a panic, is a fault: the
// model reads a neutral text with a ref, the detail goes to the operator (N21).
type Tool interface {
	Spec() Spec
	Call(ctx context.Context, call Call) (Output, error)
}

// Spec describes a tool. The zero value of every field is the strictest reading:
// off by default, a write that must not be repeated.
type Spec struct {
	Name        string `json:"name"` // [A-Za-z0-9_-]{1,64}
	Description string `json:"description,omitempty"`
	// As names a tool of which this one is a narrower form: what lists, grants, switches,
	// settings and rules say of that one holds for this one, too. "" = of none.
	As string `json:"as,omitempty"`
	// JSON Schema 2020-12 of an object; empty = {"type":"object"}
	Parameters json.RawMessage `json:"parameters,omitempty"`

	Effect           Effect `json:"effect,omitempty"` // the worst that a call may do; see [Effector]
	Group            string `json:"group,omitempty"`
	Source           string `json:"source,omitempty"` // builtin, go, mcp:SERVER, bus:NODE, client
	EnabledByDefault bool   `json:"enabled_by_default,omitempty"`
	RequiresAdmin    bool   `json:"requires_admin,omitempty"`
	Untrusted        bool   `json:"untrusted,omitempty"` // results are untrusted data
	Sink             bool   `json:"sink,omitempty"`      // even a read can carry data out
	Nested           bool   `json:"nested,omitempty"`    // calls tools or agents itself; counts against max_depth
	// AnsweredBy says that nobody executes the tool: its result comes from outside,
	// and the run parks until then. "" = the tool itself answers.
	AnsweredBy string `json:"answered_by,omitempty"` // person | agent | client

	Timeout        time.Duration `json:"timeout_ns,omitempty"`       // 0 = limits.tool_timeout
	MaxResultBytes int           `json:"max_result_bytes,omitempty"` // 0 = limits.max_result_bytes

	// TimeoutAsked reports whether a call may ask for its own timeout, up to Timeout.
	// A limits.tool_timeout that was set on purpose bounds such a tool as well.
	TimeoutAsked bool `json:"timeout_asked,omitempty"`
}

// GroupFiles is the group of the tools for the files of a workspace. Where the
// configuration marks one of them that reads as untrusted, it says so of the files,
// whatever reads them.
const GroupFiles = "files"

// GroupClient is the group of client tools ([ByClient]).
const GroupClient = "client"

// toolName is what a tool's name must match (design.md §5).
const toolName = `^[A-Za-z0-9_-]{1,64}$`

// ValidToolName reports whether a tool may have this name: 1 to 64 ASCII letters,
// digits, _ and -.
func ValidToolName(name string) bool {
	if len(name) == 0 || len(name) > 64 || name == InvalidName {
		return false
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// Check returns an error if the spec is invalid.
func (s Spec) Check() error {
	if !ValidToolName(s.Name) {
		return fmt.Errorf("tool name %q: must match %s", s.Name, toolName)
	}
	switch s.Effect {
	case "", EffectReadOnly, EffectIdempotentWrite, EffectNonIdempotentWrite:
	default:
		return fmt.Errorf("tool %s: unknown effect %q", s.Name, s.Effect)
	}
	return nil
}

// ByPerson is the [Spec.AnsweredBy] of tools that put a question to the person,
// as ask_user does: arguments question (text) and schema (JSON Schema of the answer,
// optional); the run is waiting_for_input meanwhile.
const ByPerson = "person"

// ByAgent is the [Spec.AnsweredBy] of tools whose calls another agent answers, in a
// run of its own (a child run), as spawn does: arguments agent (a name), task (text)
// and tools (names and globs, optional). Each call of that run passes the gate itself.
const ByAgent = "agent"

// ByClient is the [Spec.AnsweredBy] of tools that the program which started the run carries
// out itself (client tools); the run is waiting_for_tool meanwhile.
const ByClient = "client"

// Effect is what a call may do to the world.
type Effect string

const (
	EffectReadOnly           Effect = "read_only"
	EffectIdempotentWrite    Effect = "idempotent_write"
	EffectNonIdempotentWrite Effect = "non_idempotent_write"
)

// Writes reports whether the effect is a write. The zero value is one.
func (e Effect) Writes() bool { return e != EffectReadOnly }

// OrStrictest returns e, and for the zero value or an unknown one the strictest effect.
func (e Effect) OrStrictest() Effect {
	switch e {
	case EffectReadOnly, EffectIdempotentWrite:
		return e
	}
	return EffectNonIdempotentWrite
}

// Call is one call of a tool, as judged: the arguments are canonical JSON, valid
// against the tool's schema, and exactly what a person was shown.
type Call struct {
	ID        string
	Name      string
	Arguments json.RawMessage
	Run       RunID
	Session   SessionID
	Principal Principal
	Workspace string // absolute path; "" = the tool must refuse
	Depth     int    // 0 = called by the run of a person
	MaxBytes  int    // bound of the result as the model reads it, in bytes of JSON; 0 = not known
	Tainted   bool   // the run had read untrusted data when the call was judged
	// Approved is what the files that the call writes were when a person approved it:
	// where they differ, nothing is written. nil = no approval binds to files.
	Approved []FileState

	// Progress tells watchers how far the call is; never nil when a tool is
	// called. fraction is 0 to 1, negative if unknown. It does not block.
	Progress func(message string, fraction float64)
	// Alive begins the timeout of the call again, for a tool that hears of progress from elsewhere. In all a call has
	// ten times its timeout, but not more than an hour unless the timeout is. nil where nothing bounds the call.
	Alive func()
	// Behind runs work beside the calls that follow, until the run parks or ends: then ctx
	// ends, and the run waits for work. It returns false if that has happened; nil while
	// the call is only judged, and where nothing outlasts a call.
	Behind func(work func(ctx context.Context)) bool
	// Notice adds a notice to the run, for those who read its events; nil while the call is only judged. One that comes
	// after the end of the run is dropped.
	Notice func(n Notice)
	// Offered returns the tools of the offer of the run, for a [Finder] to search: they are
	// the gate's own, and nothing in them may be changed. nil for every other tool.
	Offered func() []Spec
	// Invoke calls another tool through the same gate, as a child run. nil while
	// the call is only judged.
	Invoke func(ctx context.Context, name string, arguments json.RawMessage) (Invoked, error)
}

// Invoked is the outcome of a nested call.
type Invoked struct {
	Status  ResultStatus
	Reason  Reason // set if refused
	Content string
}

// Output is what a tool returns: a JSON value or a text, not both.
type Output struct {
	Text string          // plain text, in any encoding: it is cleaned
	JSON json.RawMessage // a JSON value; wins over Text
	// IsError marks an output that reports a failure (a test that failed, an
	// exit status) without being an error of the tool.
	IsError bool
	// Untrusted marks this one result as untrusted data; Source names it.
	Untrusted bool
	Source    string
	// Long names texts among the fields of an object in JSON: where the whole is too long they are
	// cut, and nothing else of it. Each keeps its beginning and its end, with LongEnd its end only.
	Long    []string
	LongEnd bool
	// Cut is set by a tool that left some of its output out itself.
	Cut bool
	// Found names tools that the model is shown from now on, if they are in the offer;
	// only of a [Finder].
	Found []string
	// Files are images and documents that belong to the output: at most
	// [MaxOutputFiles], each of at most [MaxFileBytes]; more is left out, and the
	// text says so.
	Files []OutputFile
}

// MaxOutputFiles bounds the files of one output.
const MaxOutputFiles = 8

// OutputFile is an image or document that a tool returns.
type OutputFile struct {
	MediaType string // RFC 6838, such as image/png
	Name      string
	Data      []byte
}

// ToolErrorKind is one of the seven kinds of C15.
type ToolErrorKind string

const (
	ToolNotFound         ToolErrorKind = "tool not found"
	InvalidArguments     ToolErrorKind = "invalid arguments"
	ExecutionFailed      ToolErrorKind = "execution failed"
	PermissionDenied     ToolErrorKind = "permission denied"
	NotFound             ToolErrorKind = "not found"
	InvalidPath          ToolErrorKind = "invalid path"
	ToolTimeout          ToolErrorKind = "timeout"
	toolTimeoutSeparator               = " after "
)

// ToolError is a failure made for the model: its text is shown as it is (C3,
// C15). It must hold no secret and no path outside the workspace.
type ToolError struct {
	Kind    ToolErrorKind
	Message string
	Err     error // for the operator only; may be nil
	// Hint says how an operator could let a call through that [Admitter] refuses; "" = nothing is said.
	Hint string
}

// Error returns the text of C15: "not found: notes.txt", "timeout after 30s".
func (e *ToolError) Error() string {
	if e.Kind == ToolTimeout {
		return string(e.Kind) + toolTimeoutSeparator + e.Message
	}
	return string(e.Kind) + ": " + e.Message
}

func (e *ToolError) Unwrap() error { return e.Err }

// Failf makes a [*ToolError].
func Failf(kind ToolErrorKind, format string, args ...any) *ToolError {
	return &ToolError{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// What follows are optional interfaces of a [Tool]. All of them are called by the
// gate and by what holds its permit, never by another tool: so no tool judges for
// itself, and explain tells the truth. The Call has neither Progress nor Invoke.

// Admitter is a tool with a policy of its own (a path outside, a host that is not
// allowed). A non-nil error refuses the call with reason tool_policy, an
// [ErrProtected] with protected_path; a [*ToolError]'s text is what the model reads.
// Admit may look at files, and must not change anything.
type Admitter interface {
	Admit(call Call) error
}

// Effector is a tool whose effect depends on its arguments. The answer replaces
// Spec.Effect for this call; the empty answer is the strictest effect.
type Effector interface {
	EffectOf(call Call) Effect
}

// Targeter reports what a call touches: for the order of calls on one target, for
// protected paths, sinks and rules.
type Targeter interface {
	Targets(call Call) []Target
}

// Target is one thing that a call touches.
type Target struct {
	Kind  string `json:"kind"` // file | host | agent | …
	Name  string `json:"name"` // file: absolute path, symbolic links resolved as far as it exists
	Write bool   `json:"write,omitempty"`
	// Tree says that the call may also touch anything below a folder: it searches it, or
	// runs a program that may open any file there.
	Tree bool `json:"tree,omitempty"`
}

// The kinds of targets that the gate knows: a file or folder, and an agent whom the
// call lets work. Whom the run acts for must be let use that agent.
const (
	TargetFile  = "file"
	TargetAgent = "agent"
)

// Commander reports which programs the command line of a call starts, for rules: in
// the order of the line, and each with those that it is told to start itself (env,
// sh -c). What a program does beyond that is not known.
type Commander interface {
	Programs(call Call) []Program
}

// Program is one program that a call starts, read from the syntax tree by which the
// line is judged and run.
type Program struct {
	Name Word // without its folder: git for /usr/bin/git
	Args []Word
}

// Word is one word of a command line, as the program gets it.
type Word struct {
	Text string
	// Unknown says that only the shell works the word out, when the line runs ($NAME,
	// $(…), a pattern): it may become any number of words. Text is then a pattern as it
	// is written, or empty.
	Unknown bool
}

// Finder is a tool through which a model finds others, in the [Call.Offered] of its
// calls. It is offered only where an offer is too large to be shown whole, with About as
// its description: it is given the groups, each once, of the tools that are not shown from the
// start.
type Finder interface {
	About(groups []string) string
}

// Asker is a tool with calls that a person is asked about, whatever tools.confirm
// says: Asks returns why, and nothing for any other call. Only a person's decision lifts
// the question, not a rule's allow.
type Asker interface {
	Asks(call Call) []Concern
}

// Concern is a reason to ask a person about a call.
type Concern struct {
	// Reason is [ReasonUnlistedProgram], which a remembered approval of the same arguments
	// answers too, but --approve all does not; else [ReasonNeedsConfirmation], asked each time.
	Reason Reason
	Why    string // what the call does, to be read after the name of the tool
	// Instead says what would let the call run without a person; "" = nothing.
	Instead string
}

// Previewer shows what a call would change, for the person who decides about it.
// It must not change anything. Text is a unified diff where there is one.
type Previewer interface {
	Preview(ctx context.Context, call Call) (Preview, error)
}

// Preview is what a person is shown before deciding; bounded by the gate.
type Preview struct {
	Kind string `json:"kind"` // diff | text
	Text string `json:"text"`
}

// Binder is a write of files: an approval of a call binds to what these are when it is
// shown (contract §6). It must not change anything.
type Binder interface {
	Bind(ctx context.Context, call Call) ([]FileState, error)
}

// FileState is the state of a file at some moment.
type FileState struct {
	Path string `json:"path"` // absolute, symbolic links resolved as far as it exists
	// State is the same as long as the file is: [FileAbsent], or what its tool tells it
	// by, such as sha256:HEX of the content.
	State string `json:"state"`
}

// FileAbsent is the [FileState.State] of a file that does not exist.
const FileAbsent = "absent"

// Preparer is a write that can tell afterwards whether it happened. Prepare is
// called just before the call runs; what it returns is journaled with the start
// of the call, durably, and given to Reconcile after a crash.
type Preparer interface {
	Prepare(ctx context.Context, call Call) (json.RawMessage, error)
	Reconcile(ctx context.Context, call Call, prepared json.RawMessage) (Reconciled, error)
}

// Reconciled is the outcome of an interrupted call.
type Reconciled struct {
	State  ReconciledState
	Output Output // with Happened: the result to use
}

// ReconciledState: the zero value is the careful one.
type ReconciledState string

const (
	InDoubt     ReconciledState = ""
	Happened    ReconciledState = "happened"
	NotHappened ReconciledState = "not_happened"
)
