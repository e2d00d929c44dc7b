package toolcrib

import (
	"encoding/json"
	"strings"
)

// Role is the author of a message. The system text is not a message: it is in [Request.System].
type Role string

const (
	RoleUser      Role = "user"      // the person, or text given as data
	RoleAssistant Role = "assistant" // the model
	RoleTool      Role = "tool"      // results, one part for each call of the previous turn
)

// Message is one turn of a transcript in a form that does not depend on a provider.
type Message struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
	// Background describes a text of the user's side that no person wrote, such as notes. It is "" for
	// a person's text. Models do not see it.
	Background string `json:"background,omitempty"`
}

// Part is one piece of a message. Exactly one field is set; if none is, the part is an empty text.
type Part struct {
	Text       string      `json:"text,omitempty"`
	Thinking   *Thinking   `json:"thinking,omitempty"`
	ToolCall   *ToolCall   `json:"tool_call,omitempty"`
	ToolResult *ToolResult `json:"tool_result,omitempty"`
	File       *File       `json:"file,omitempty"`
}

// Thinking is a block of reasoning. Some APIs require it back byte for byte; its Signature or Redacted
// data is opaque and valid only for the model that made it.
type Thinking struct {
	Text      string `json:"text,omitempty"`
	Signature string `json:"signature,omitempty"` // proof of the API that the text is its own
	Redacted  string `json:"redacted,omitempty"`  // encrypted reasoning, without text
	Model     string `json:"model,omitempty"`     // PROVIDER/MODEL that made the block
}

// ToolCall is a model's request to run a tool.
type ToolCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Arguments is always a canonical JSON object. It is {} if the model sent none, or sent something
	// else than a JSON object (then Broken is set).
	Arguments json.RawMessage `json:"arguments"`
	// Broken is the text that the model sent if it is not a single JSON object, cut to a few KiB. A
	// broken call is never run.
	Broken string `json:"broken,omitempty"`
	// Converted lists, for people, the conversions of arguments that had only one possible meaning
	// ([Agent.Arguments]). Sent is then the model's original text, cut like Broken.
	Converted []string `json:"converted,omitempty"`
	Sent      string   `json:"sent,omitempty"`
	// Problem is the error in Broken, in words for the model.
	Problem string `json:"problem,omitempty"`
	// Malformed is set if the model meant a call but its text cannot be parsed as one (text protocol). Broken or
	// Arguments then contain the whole text, and the call is refused as parse_error with Problem.
	Malformed bool `json:"malformed,omitempty"`
	// Secret names a secret whose mark or value occurred in the arguments. If it was the value,
	// Arguments contains the mark, and the call is never run.
	Secret string `json:"secret,omitempty"`
	// Cut is set if the reply ended inside this call (finish reason length).
	Cut bool `json:"cut,omitempty"`
	// ProviderID is the ID that the provider sent, if ID replaces it.
	ProviderID string `json:"provider_id,omitempty"`
	// ProviderName is the name that the model sent, if it is not valid for a tool. Name is then [InvalidName].
	ProviderName string `json:"provider_name,omitempty"`
	// Duplicate is set if the ID was used before in the same turn.
	Duplicate bool `json:"duplicate,omitempty"`
	// Signature is opaque reasoning data that some APIs bind to a call.
	Signature string `json:"signature,omitempty"`
}

// InvalidName replaces a name that is not valid for a tool, so that the transcript stays valid for every provider.
const InvalidName = "invalid_tool_name"

// ToolResult is the result of one call for the model: plain text, or a JSON value as text, which has
// been cleaned, cut and wrapped.
type ToolResult struct {
	CallID  string `json:"call_id"`
	Name    string `json:"name"`
	Content string `json:"content"`
	IsError bool   `json:"is_error,omitempty"`
	Files   []File `json:"files,omitempty"` // images and documents of the result
}

// File is an image or document, stored by reference.
type File struct {
	Ref       string `json:"ref"`        // key in the content store
	MediaType string `json:"media_type"` // RFC 6838, such as image/png
	Name      string `json:"name,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
}

// TextMessage returns a message with one text part.
func TextMessage(role Role, text string) Message {
	return Message{Role: role, Parts: []Part{{Text: text}}}
}

// Text joins the text parts of the message without a separator.
func (m Message) Text() string {
	if len(m.Parts) == 1 {
		return m.Parts[0].Text
	}
	var b strings.Builder
	for i := range m.Parts {
		b.WriteString(m.Parts[i].Text)
	}
	return b.String()
}

// ToolCalls returns the calls of the message, in order.
func (m Message) ToolCalls() []*ToolCall {
	var calls []*ToolCall
	for i := range m.Parts {
		if m.Parts[i].ToolCall != nil {
			calls = append(calls, m.Parts[i].ToolCall)
		}
	}
	return calls
}
