package wire

import (
	"bytes"
	"encoding/json"
)

// SchemaInstruction asks in words for an answer that is valid against a JSON
// Schema, for models and APIs that have no means of their own. It is to be put
// behind the system text, after a blank line; the same schema always gives the
// same bytes. A schema that is empty, null or no JSON gives "".
func SchemaInstruction(schema json.RawMessage) string {
	var compact bytes.Buffer
	if len(bytes.TrimSpace(schema)) == 0 || json.Compact(&compact, schema) != nil || compact.String() == "null" {
		return ""
	}
	return "When you give your final answer, give it as one JSON value that is valid against the JSON Schema below: " +
		"no text around it and no code fence. You may call tools before that.\n" + compact.String()
}

// WithSchemaInstruction is system with [SchemaInstruction] behind it.
func WithSchemaInstruction(system string, schema json.RawMessage) string {
	instruction := SchemaInstruction(schema)
	switch {
	case instruction == "":
		return system
	case Blank(system):
		return instruction
	}
	return system + "\n\n" + instruction
}
