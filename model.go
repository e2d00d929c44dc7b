package toolcrib

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"
)

// Model is a language model behind some API, or a substitute for one.
//
// Stream sends one request and yields the parts of the reply. The last delta of a complete reply has
// Finish; a stream that ends without it and without an error is broken (the loop treats it as class
// network). An error ends the stream and is a [*ModelError] if the cause is known. Stream never
// retries, sends no tools field if req.Tools is empty, and returns within 200 ms after ctx ends. A
// Model is safe for concurrent use by many runs and keeps no state of a run.
type Model interface {
	Stream(ctx context.Context, req *Request) iter.Seq2[Delta, error]
}

// Conversational is a [Model] that can keep the encoded history of one run, so that only the new part of a request
// must be encoded. Conversation returns a Model for one run and one goroutine; dropping it loses nothing.
type Conversational interface {
	Conversation() Model
}

// Request is one model request in a form that does not depend on a provider.
type Request struct {
	Model    string    `json:"model"` // provider's name of the model
	System   string    `json:"system,omitempty"`
	Messages []Message `json:"messages"`
	// Sorted by name, not to be modified; if empty, the field is not sent
	Tools           []Spec          `json:"tools,omitempty"`
	ToolChoice      ToolChoice      `json:"tool_choice,omitzero"`
	Temperature     *float64        `json:"temperature,omitempty"`       // if nil, not sent
	MaxOutputTokens int             `json:"max_output_tokens,omitempty"` // if 0, the default of the adapter or the API
	Reasoning       string          `json:"reasoning,omitempty"`         // low | medium | high | off; if "", not sent
	OutputSchema    json.RawMessage `json:"output_schema,omitempty"`
	Extra           json.RawMessage `json:"extra,omitempty"` // JSON object with further fields of the request body

	// Epoch changes whenever earlier messages change, by condensing or dropping. Within an epoch,
	// Messages only grows.
	Epoch int `json:"epoch,omitempty"`
	// Replaced is the number of the assistant's messages that were condensed or dropped.
	Replaced int `json:"replaced,omitempty"`
	// ToolsHash changes if and only if Tools changes. It is "" if unknown.
	ToolsHash string `json:"tools_hash,omitempty"`

	// Run is the run that asks, or "". It is for a model of another node.
	Run RunID `json:"-"`

	// Files returns the whole content of a [File] of the messages (at most [MaxFileBytes]). If nil, the model
	// accepts no files. An adapter sends a file of a type that the API accepts; otherwise it sends a line of text
	// in its place, with the notice [NoticeFileNotSent]. A file never makes a request fail.
	Files func(ctx context.Context, ref string) ([]byte, error) `json:"-"`
}

// MaxFileBytes bounds a file of a message.
const MaxFileBytes = 20 << 20

// The notices of adapters in [Finish.Notices].
const (
	NoticeFileNotSent      = "file_not_sent"      // a text was sent in place of a file
	NoticeToolUnusable     = "tool_unusable"      // a tool was left out of the request
	NoticeToolCallRepaired = "tool_call_repaired" // text around a call was ignored
)

// ToolChoice controls whether the model may, must not or must call a tool. The zero value is auto.
type ToolChoice struct {
	Mode string `json:"mode,omitempty"` // "" or auto | none | required | name
	Name string `json:"name,omitempty"` // the tool for mode name
}

// The modes of a [ToolChoice].
const (
	ChoiceAuto     = "auto"
	ChoiceNone     = "none"
	ChoiceRequired = "required"
	ChoiceName     = "name"
)

// Delta is one piece of a streamed reply. At most one field is set.
type Delta struct {
	Text      string         // text of the answer
	Thinking  string         // text of reasoning
	Signature string         // ends the current block of reasoning
	Redacted  string         // a whole block of encrypted reasoning
	ToolCall  *ToolCallDelta // a piece of a tool call
	Finish    *Finish        // the end of the reply, once, last
}

// ToolCallDelta is a piece of one tool call. Pieces with the same Index belong together; ID, Name and
// Signature come with the first piece or never, and the concatenated Arguments are the JSON text of the
// arguments as the model wrote it. Objects that an API sends whole come as their JSON text.
type ToolCallDelta struct {
	Index     int
	ID        string
	Name      string
	Arguments string
	Signature string
	// Problem says, for the model, why its text cannot be parsed as a call; Arguments is then the whole
	// text, JSON or not. It makes the call [ToolCall.Malformed].
	Problem string
}

// Finish ends a reply.
type Finish struct {
	Reason    FinishReason
	Usage     TokenUsage
	Model     string   // model that answered, as the API names it; may be ""
	RequestID string   // the API's ID of the request, for support; may be ""
	Notices   []Notice // such as tool_unusable
}

// FinishReason is the reason why a model stopped.
type FinishReason string

const (
	FinishStop      FinishReason = "stop"       // the answer is complete
	FinishToolCalls FinishReason = "tool_calls" // the model waits for results
	FinishLength    FinishReason = "length"     // cut by a token limit
	FinishFiltered  FinishReason = "filtered"   // refused or filtered by the provider
	FinishOther     FinishReason = "other"
)

// TokenUsage is the number of tokens of one request as the provider reports them. CachedInputTokens and
// CacheWriteTokens are part of InputTokens, ReasoningTokens part of OutputTokens. Reported is false if
// the provider reported nothing; the loop then estimates.
type TokenUsage struct {
	InputTokens       int64    `json:"input_tokens"`
	CachedInputTokens int64    `json:"cached_input_tokens"`
	CacheWriteTokens  int64    `json:"cache_write_tokens,omitempty"`
	OutputTokens      int64    `json:"output_tokens"`
	ReasoningTokens   int64    `json:"reasoning_tokens,omitempty"`
	CostUSD           *float64 `json:"cost_usd,omitempty"` // if nil, not reported by the provider
	Reported          bool     `json:"reported,omitempty"`
}

// Reply is a complete model reply.
type Reply struct {
	Message Message
	Finish  Finish
}

// ErrorClass classifies errors of model requests.
type ErrorClass string

const (
	ErrAuth          ErrorClass = "auth"
	ErrRateLimit     ErrorClass = "rate_limit"
	ErrOverloaded    ErrorClass = "overloaded"
	ErrContextLength ErrorClass = "context_length"
	ErrBadRequest    ErrorClass = "bad_request"
	ErrTimeout       ErrorClass = "timeout"
	ErrNetwork       ErrorClass = "network"
	ErrRefused       ErrorClass = "refused"
	ErrOther         ErrorClass = "other"
)

// Retryable reports whether the same request may succeed a little later.
func (c ErrorClass) Retryable() bool {
	switch c {
	case ErrRateLimit, ErrOverloaded, ErrTimeout, ErrNetwork:
		return true
	}
	return false
}

// ModelError is a model request that failed.
//
// Message is short and safe to show: it contains no key, no header, no URL with credentials and at most
// a line of the provider's text. Detail is for the operator's log and the journal under a ref; it is
// bounded (at most 8 KiB) and masked before it is stored.
type ModelError struct {
	Class      ErrorClass
	Provider   string
	Status     int           // HTTP status, 0 without a response
	Message    string        // for users
	Detail     string        // for operators
	RetryAfter time.Duration // delay that the provider asked for, or 0
	Unsent     bool          // true only if the request was certainly never sent (its budget is returned)
	NoTools    bool          // the API says that this model takes no tools
	Own        bool          // Message may be shown to any user: it quotes no provider and names no setting
	Err        error         // the cause, for errors.Is
}

func (e *ModelError) Error() string {
	if e.Provider == "" {
		return fmt.Sprintf("%s: %s", e.Class, e.Message)
	}
	return fmt.Sprintf("%s: %s: %s", e.Provider, e.Class, e.Message)
}

func (e *ModelError) Unwrap() error { return e.Err }
