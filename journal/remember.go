package journal

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib"
)

// Remember is the scope of an approval that extends to later calls.
type Remember struct {
	Scope string `json:"scope"` // run | session | user
	// Calls is tool (any call of the tool), arguments (the same arguments only), path
	// (writes of the same file), folder (writes of files in the same folder) or program (command
	// lines of the same program and subcommand). If "", the narrowest that fits the call.
	Calls string `json:"calls,omitempty"`
}

// The values of [Remember].
const (
	RememberRun       = "run"
	RememberSession   = "session"
	RememberUser      = "user"
	RememberTool      = "tool"
	RememberArguments = "arguments"
	RememberPath      = "path"
	RememberFolder    = "folder"
	RememberProgram   = "program"
)

// RememberCalls returns the values of [Remember.Calls].
func RememberCalls() []string {
	return []string{RememberPath, RememberFolder, RememberProgram, RememberArguments, RememberTool}
}

// Forgotten revokes, in the run, an approval that was remembered; the revocation is already in the
// system journal. The fields except By identify the calls that it permitted.
type Forgotten struct {
	ApprovalID string          `json:"approval_id"`
	Tool       string          `json:"tool"`
	Arguments  json.RawMessage `json:"arguments,omitempty"` // if absent, any
	Path       string          `json:"path,omitempty"`
	Folder     bool            `json:"folder,omitempty"`
	Program    string          `json:"program,omitempty"`
	By         string          `json:"by"`
}

// EventKind implements [toolcrib.Body].
func (*Forgotten) EventKind() toolcrib.Kind { return KindForgotten }

// Remembered is an approval that a person extended to later calls. It is valid in its workspace
// only, and lifts only what a rule's allow may lift: never a refusal, and never the question of
// settings.X.confirm: always.
type Remembered struct {
	Tool   string
	Source string // source of that tool; a tool of the same name from elsewhere is another one
	// Arguments are the canonical arguments that the approval applies to. If nil, it applies to
	// any.
	Arguments json.RawMessage
	// Path is the only file that a call may write or, if Folder is set, the folder of all files
	// that it may write; absolute, with symbolic links resolved. It is "" if the call writes no
	// files that an approval is bound to. See also [Remembered.AnyWriter].
	Path   string
	Folder bool
	// Program is the program with its subcommand, or several separated by ", ", of the only command lines that
	// the approval applies to ([toolcrib.Plan.Scope]). If "", the other fields decide.
	Program string
	// Effect is the effect of the approved calls. If the arguments may be any, a call with a worse
	// effect is asked about.
	Effect     toolcrib.Effect
	Scope      string // run | session | user
	ApprovalID string
	By         string
	// Workspace is the folder in which the approval is valid, with symbolic links resolved, and
	// FolderID distinguishes it from another one of the same name. Both are "" for runs without a
	// workspace.
	Workspace, FolderID string
}

// AnyWriter reports whether the approval applies to the writes of its files by all built-in tools, not by Tool alone.
func (m *Remembered) AnyWriter() bool {
	return m.Path != "" && m.Arguments == nil && m.Source == "builtin"
}

// RememberKinds returns the kinds of later calls that an approval of a call can be remembered for.
// The first is the narrowest usual one: the path for a file write, the arguments for a command
// line, the tool for a call that may be repeated safely, the arguments for any other call. It
// returns nil if no approval of the call can be remembered. See also [ApprovalItem.Widest].
func (c *ApprovalItem) RememberKinds() []string {
	switch b := c.Binding; {
	case b == nil || len(b.Files) > 1 || b.Workspace != "" && b.LeadsTo == "":
		return nil
	case len(b.Files) == 1:
		return []string{RememberPath, RememberFolder, RememberArguments}
	case b.CommandLine && b.Scope != "":
		return []string{RememberArguments, RememberProgram}
	case b.CommandLine:
		return []string{RememberArguments}
	case c.Effect.OrStrictest() == toolcrib.EffectNonIdempotentWrite:
		return []string{RememberArguments, RememberTool}
	}
	return []string{RememberTool, RememberArguments}
}

// Widest returns the widest kind that is safe: the folder for a file write, the program for a command
// line. It returns "" for other calls.
func (c *ApprovalItem) Widest() string {
	kinds := c.RememberKinds()
	for _, kind := range []string{RememberFolder, RememberProgram} {
		if slices.Contains(kinds, kind) {
			return kind
		}
	}
	return ""
}

// Extend returns the approval of a call as it applies to later ones. ok is false if no approval of
// the call can be remembered, or not for the calls that r names.
func (r Remember) Extend(approval *ConfirmationResolved, c *ApprovalItem) (m Remembered, ok bool) {
	kinds := c.RememberKinds()
	kind := r.Calls
	if kind == "" && len(kinds) > 0 {
		kind = kinds[0]
	}
	if !slices.Contains(kinds, kind) {
		return m, false
	}
	m = Remembered{
		Tool: c.Name, Source: c.Binding.Source, Effect: c.Effect.OrStrictest(), Scope: r.Scope,
		ApprovalID: approval.ApprovalID, By: approval.By,
		Workspace: c.Binding.LeadsTo, FolderID: c.Binding.FolderID,
	}
	for _, f := range c.Binding.Files { // there is one at most
		m.Path = f.Path
	}
	switch kind {
	case RememberFolder:
		m.Path, m.Folder = filepath.Dir(m.Path), true
	case RememberProgram:
		m.Program = c.Binding.Scope
	case RememberArguments:
		m.Arguments = c.Arguments
	}
	return m, true
}
