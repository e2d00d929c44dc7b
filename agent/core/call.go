package core

import (
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// NewResult returns a result of the call.
func (c *Call) NewResult(status toolcrib.ResultStatus, content string) *journal.ToolResult {
	return &journal.ToolResult{
		ToolCallID: c.ID, Name: c.Name, Status: status, IsError: status != toolcrib.ResultOK, Content: content,
	}
}

// Noted adds a note to the model to a result if a person changed the arguments of the call.
func (c *Call) Noted(content string) string {
	if c.Decision == nil || len(c.Decision.Arguments) == 0 {
		return content
	}
	return textEdited + string(c.Decision.Arguments) + "\n" + content
}
