package wire

import (
	"bytes"
	"encoding/json"
)

// WithSchemaInstruction is a system text with a request in words for an answer that is
// valid against a JSON Schema, for models and APIs that have no means of their own. The
// same schema always gives the same bytes; one that is empty, null or no JSON asks nothing.
func WithSchemaInstruction(system string, schema json.RawMessage) string {
	var compact bytes.Buffer
	if len(bytes.TrimSpace(schema)) == 0 || json.Compact(&compact, schema) != nil || compact.String() == "null" {
		return system
	}
	if Blank(system) {
		system = ""
	} else {
		system += "\n\n"
	}
	return system + "When you give your final answer, give it as one JSON value that is valid against the JSON Schema " +
		"below: no text around it and no code fence. You may call tools before that.\n" + compact.String()
}
