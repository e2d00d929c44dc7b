package toolcrib

import (
	"encoding/json"
	"strings"
)

// Role says who speaks in a message. The system text is no message: it stands
// in [Request.System].
type Role string

const (
	RoleUser      Role = "user"      // the person, or text given as data
	RoleAssistant Role = "assistant" // the model
	RoleTool      Role = "tool"      // results, one part for each call of the turn before
)

// Message is one turn of a transcript, neutral of any provider.
type Message struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
	// Background names what a text of the user's side is that nobody said, such as notes;
	// "" = somebody said it. Models do not see it.
	Background string `json:"background,omitempty"`
}

// Part is one piece of a message. Exactly one field is set; a part with none set
// is an empty text.
type Part struct {
	Text       string      `json:"text,omitempty"`
	Thinking   *Thinking   `json:"thinking,omitempty"`
	ToolCall   *ToolCall   `json:"tool_call,omitempty"`
	ToolResult *ToolResult `json:"tool_result,omitempty"`
	File       *File       `json:"file,omitempty"`
}

// Thinking is a block of reasoning. Some APIs want it back byte for byte; its
// Signature or Redacted data is opaque and only good for the model that made it.
type Thinking struct {
	Text      string `json:"text,omitempty"`
	Signature string `json:"signature,omitempty"` // the API's proof that the text is its own
	Redacted  string `json:"redacted,omitempty"`  // encrypted reasoning, without text
	Model     string `json:"model,omitempty"`     // PROVIDER/MODEL that made the block
}

// ToolCall is a model's request to run a tool.
type ToolCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Arguments is always a valid canonical JSON object; {} if the model sent
	// none or sent something that is not a JSON object (then Broken is set).
	Arguments json.RawMessage `json:"arguments"`
	// Broken is what the model sent where that could not be read as one JSON
	// object, cut to a few KiB. A broken call is never run.
	Broken string `json:"broken,omitempty"`
	// Converted says, for people, what was converted in Arguments because it could only mean one
	// thing ([Agent.Arguments]); Sent is what the model wrote then, cut as Broken is.
	Converted []string `json:"converted,omitempty"`
	Sent      string   `json:"sent,omitempty"`
	// Problem says what is wrong with Broken, in words for the model.
	Problem string `json:"problem,omitempty"`
	// Malformed is set if the model meant a call and what it wrote cannot be read as
	// one (text protocol): what is in Broken or Arguments is then all that it
	// wrote, and the call is refused as parse_error with Problem.
	Malformed bool `json:"malformed,omitempty"`
	// Secret names a secret whose mark or value stood in the arguments (contract §11).
	// Where a value stood, Arguments have the mark, and the call is never run.
	Secret string `json:"secret,omitempty"`
	// Cut is set if the reply ended inside this call (finish reason length).
	Cut bool `json:"cut,omitempty"`
	// ProviderID is the ID as the provider sent it where ID replaces it.
	ProviderID string `json:"provider_id,omitempty"`
	// ProviderName is the name as the model sent it where it can be no tool's name;
	// Name is then [InvalidName].
	ProviderName string `json:"provider_name,omitempty"`
	// Duplicate is set if the ID was used before in the same turn.
	Duplicate bool `json:"duplicate,omitempty"`
	// Signature is opaque reasoning data that some APIs bind to a call.
	Signature string `json:"signature,omitempty"`
}

// InvalidName stands for a name that no tool can have, so that the transcript
// stays valid for every provider.
const InvalidName = "invalid_tool_name"

// ToolResult is what the model reads for one call: plain text, or a JSON value
// as text; already cleaned, cut and wrapped (contract §7).
type ToolResult struct {
	CallID  string `json:"call_id"`
	Name    string `json:"name"`
	Content string `json:"content"`
	IsError bool   `json:"is_error,omitempty"`
	Files   []File `json:"files,omitempty"` // images and documents that came with it
}

// File is an image or document, stored by reference.
type File struct {
	Ref       string `json:"ref"`        // key in the content store
	MediaType string `json:"media_type"` // RFC 6838, such as image/png
	Name      string `json:"name,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
}

// TextMessage makes a message of one text part.
func TextMessage(role Role, text string) Message {
	return Message{Role: role, Parts: []Part{{Text: text}}}
}

// Text joins the text parts of the message without a separator (C1).
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
