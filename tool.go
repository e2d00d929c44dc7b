package toolcrib

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Tool is a tool that a model may call. Call is only called through a permit of the gate. A
// tool whose calls differ in effect, targets or policy is a [Planner].
//
// Call must return soon after ctx ends, and stop the work that it started. An error for the model is
// a [*ToolError]. Any other error, and a panic, is a fault: the model reads a neutral text with a
// reference, and the operator the detail.
type Tool interface {
	Spec() Spec
	Call(ctx context.Context, call Call) (Output, error)
}

// Spec describes a tool. The zero value of every field is the strictest reading:
// off by default, a write that must not be repeated.
type Spec struct {
	Name        string `json:"name"` // [A-Za-z0-9_-]{1,64}
	Description string `json:"description,omitempty"`
	// As names a tool of which this one is a narrower form: lists, grants, switches, settings and
	// rules about that tool also apply to this one. It may be "".
	As string `json:"as,omitempty"`
	// JSON Schema 2020-12 of an object. If empty, {"type":"object"}.
	Parameters json.RawMessage `json:"parameters,omitempty"`

	Effect           Effect `json:"effect,omitempty"` // the worst effect of a call; see [Plan]
	Group            string `json:"group,omitempty"`
	Source           string `json:"source,omitempty"` // builtin, go, mcp:SERVER, bus:NODE, client
	EnabledByDefault bool   `json:"enabled_by_default,omitempty"`
	RequiresAdmin    bool   `json:"requires_admin,omitempty"`
	Untrusted        bool   `json:"untrusted,omitempty"` // results are untrusted data
	Sink             bool   `json:"sink,omitempty"`      // even a read can carry data out
	Nested           bool   `json:"nested,omitempty"`    // calls tools or agents itself; bounded by max_depth
	// AnsweredBy says who answers calls of the tool, if it is not executed: the run parks until the
	// result comes. If "", the tool itself answers.
	AnsweredBy string `json:"answered_by,omitempty"` // person | agent | client

	Timeout        time.Duration `json:"timeout_ns,omitempty"`       // if 0, limits.tool_timeout
	MaxResultBytes int           `json:"max_result_bytes,omitempty"` // if 0, limits.max_result_bytes

	// Plans says which facts about a call only its plan tells. It is for a [Planner].
	Plans PlanFacts `json:"-"`

	// TimeoutAsked reports whether a call may ask for its own timeout, up to Timeout. A
	// limits.tool_timeout that the configuration sets bounds such a tool as well.
	TimeoutAsked bool `json:"timeout_asked,omitempty"`
}

// GroupFiles is the group of the tools for the files of a workspace. If the configuration marks one
// of them that reads as untrusted, it marks the files, whatever tool reads them.
const GroupFiles = "files"

// GroupClient is the group of client tools ([ByClient]).
const GroupClient = "client"

// toolName is the pattern of a tool's name.
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

// ByPerson is the [Spec.AnsweredBy] of tools that ask the person, as ask_user does. The arguments
// are question (text) and schema (JSON Schema of the answer, optional). The status of the run is
// waiting_for_input meanwhile.
const ByPerson = "person"

// ByAgent is the [Spec.AnsweredBy] of tools whose calls another agent answers in a run of its own (a
// child run), as spawn does. The arguments are agent (a name), task (text) and tools (names and
// globs, optional). Each call of that run passes the gate itself.
const ByAgent = "agent"

// ByClient is the [Spec.AnsweredBy] of client tools, which the program that started the run executes
// itself. The status of the run is waiting_for_tool meanwhile.
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

// Call is one call of a tool, as judged. The arguments are canonical JSON, valid against the tool's
// schema, and the ones that a person was shown.
type Call struct {
	ID        string
	Name      string
	Arguments json.RawMessage
	Run       RunID
	Session   SessionID
	Principal Principal
	Workspace string // absolute path; if "", the tool must refuse the call
	Depth     int    // 0 for a call of a person's run
	MaxBytes  int    // bound of the result as the model reads it, in bytes of JSON; 0 if not known
	Tainted   bool   // whether the run had read untrusted data when the call was judged
	// Approved is the state of the files that the call writes at the time of a person's approval. If
	// they have changed, nothing is written. If nil, no approval is bound to files.
	Approved []FileState
	// Buffers are the texts of files that a person has open in an editor. If nil, there is no editor.
	Buffers Buffers
	Images  bool // whether the model of the run is known to take images

	// Progress reports the progress of the call to those who watch the run. fraction is 0 to 1, or
	// negative if unknown. Progress does not block. It is not nil while a call runs.
	Progress func(message string, fraction float64)
	// Alive restarts the timeout of the call, for a tool that learns of progress from elsewhere. The
	// whole call has ten times its timeout, and not more than an hour unless the timeout is longer.
	// It is nil if nothing bounds the call.
	Alive func()
	// Behind runs work in parallel with later calls, until the run parks or ends: then ctx ends, and
	// the run waits for work. It returns false if the run has parked or ended. It is nil while the
	// call is judged, and where no work may outlast a call.
	Behind func(work func(ctx context.Context)) bool
	// Notice adds a notice to the events of the run. After the end of the run it has no effect. It is
	// nil while the call is judged.
	Notice func(n Notice)
	// Offered returns the tools of the run's offer, for a [Finder] to search. They belong to the gate
	// and must not be changed. It is nil for every other tool.
	Offered func() []Spec
	// Invoke calls another tool through the same gate, as a child run. It is nil while the call is
	// judged.
	Invoke func(ctx context.Context, name string, arguments json.RawMessage) (Invoked, error)
}

// Buffers are the texts of files in an editor, which may not be saved. A tool asks only for a file that the call may
// read by the policy on paths.
type Buffers interface {
	// Buffer returns the text of the file with this absolute path. ok is false if the editor has none. An error
	// means that it is not known.
	Buffer(ctx context.Context, path string) (text string, ok bool, err error)
}

// Invoked is the outcome of a nested call.
type Invoked struct {
	Status  ResultStatus
	Reason  Reason // set if the call was refused
	Content string
}

// Output is the output of a tool: a JSON value or a text, not both.
type Output struct {
	Text string          // plain text, in any encoding; it is cleaned
	JSON json.RawMessage // a JSON value; if set, Text is ignored
	// IsError marks an output that reports a failure (a test that failed, an exit status) without
	// being an error of the tool.
	IsError bool
	// Untrusted marks this result as untrusted data. Source names its source.
	Untrusted bool
	Source    string
	// Long names texts among the fields of an object in JSON. If the whole is too long, only they are
	// cut. Each keeps its beginning and its end, or with LongEnd only its end.
	Long    []string
	LongEnd bool
	// Cut reports whether the tool left out some of its output itself.
	Cut bool
	// Found names tools that the model is shown from now on, if they are in the offer. Only that of a
	// [Finder] is used.
	Found []string
	// Files are images and documents that belong to the output: at most [MaxOutputFiles], each of at
	// most [MaxFileBytes]. Others are left out, and the text says so.
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

// ToolErrorKind says what went wrong with a call.
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

// ToolError is a failure with a text for the model, which is shown unchanged. It must not
// contain a secret or a path outside the workspace.
type ToolError struct {
	Kind    ToolErrorKind
	Message string
	Err     error // for the operator only; may be nil
	// Hint tells an operator how to allow a call that [Planner] refuses. It may be "".
	Hint string
	// Untrusted is the source of untrusted data in Message, or "".
	Untrusted string
}

// Error returns the text that the model reads: "not found: notes.txt", "timeout after 30s".
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

// Finder is a tool with which a model finds other tools, in the [Call.Offered] of its calls. It is
// offered only if an offer is too large to be shown whole. About returns its description; groups are
// the groups, without repetition, of the tools that are not shown from the start.
type Finder interface {
	About(groups []string) string
}
