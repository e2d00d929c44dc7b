package journal

import (
	"encoding/json"

	"github.com/toolcrib/toolcrib"
)

// Remember says for what an approval holds besides the calls that it was about.
type Remember struct {
	Scope string `json:"scope"` // run | session | user
	// Calls is tool (any call of the tool), arguments (the same arguments only), path
	// (writes of the same file) or folder (writes of files in the same folder); "" is the
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

// Forgotten revokes what an approval was remembered for in the run; who revoked it wrote that
// to the system journal before. Its fields but By say which calls were to pass.
type Forgotten struct {
	ApprovalID string          `json:"approval_id"`
	Tool       string          `json:"tool"`
	Arguments  json.RawMessage `json:"arguments,omitempty"` // absent = any
	Path       string          `json:"path,omitempty"`
	Folder     bool            `json:"folder,omitempty"`
	By         string          `json:"by"`
}

// EventKind implements [toolcrib.Body].
func (*Forgotten) EventKind() toolcrib.Kind { return KindForgotten }
