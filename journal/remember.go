package journal

import (
	"encoding/json"

	"github.com/toolcrib/toolcrib"
)

// Remember is the scope of an approval that extends to later calls.
type Remember struct {
	Scope string `json:"scope"` // run | session | user
	// Calls is tool (any call of the tool), arguments (the same arguments only), path
	// (writes of the same file) or folder (writes of files in the same folder). If "", the
	// narrowest that fits the call.
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
)

// RememberCalls returns the values of [Remember.Calls].
func RememberCalls() []string {
	return []string{RememberPath, RememberFolder, RememberArguments, RememberTool}
}

// Forgotten revokes in the run what an approval remembered; the revocation is already in the
// system journal. The fields except By identify the calls that were to pass.
type Forgotten struct {
	ApprovalID string          `json:"approval_id"`
	Tool       string          `json:"tool"`
	Arguments  json.RawMessage `json:"arguments,omitempty"` // if absent, any
	Path       string          `json:"path,omitempty"`
	Folder     bool            `json:"folder,omitempty"`
	By         string          `json:"by"`
}

// EventKind implements [toolcrib.Body].
func (*Forgotten) EventKind() toolcrib.Kind { return KindForgotten }
