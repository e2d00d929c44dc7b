package store

import (
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// ToolCount counts the calls of a tool in all runs, also in those that were
// pruned since.
type ToolCount struct {
	Calls  int64 `json:"calls"`
	Errors int64 `json:"errors,omitempty"` // of these, such as failed or were refused
}

// maxToolName is the length of a tool's name in bytes.
const maxToolName = 64

// CountTool adds an event to counts, by the name of the tool. What is called by a
// name that no tool can have is not counted: a model may make up any.
func CountTool(counts map[string]ToolCount, body toolcrib.Body) {
	r, ok := body.(*journal.ToolResult)
	if !ok || !toolName(r.Name) {
		return
	}
	c := counts[r.Name]
	c.Calls++
	if r.Status != toolcrib.ResultOK {
		c.Errors++
	}
	counts[r.Name] = c
}

// toolName tells whether a tool can have this name: [A-Za-z0-9_-]{1,64}.
func toolName(name string) bool {
	if name == "" || len(name) > maxToolName {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
