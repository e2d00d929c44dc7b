package toolcrib

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"
)

// Model is a language model behind some API, or a stand-in for one.
//
// Stream sends one request and yields what comes back. The last delta of a reply
// that arrived whole carries Finish; a stream that ends without it and without
// an error is a broken one (the loop treats it as class network). An error ends the stream and is
// a [*ModelError] where the cause is known. Stream never retries, sends no
// tools field when req.Tools is empty, and stops within 200 ms of ctx ending.
// A Model is safe for use by many runs at once and keeps no state of a run.
type Model interface {
	Stream(ctx context.Context, req *Request) iter.Seq2[Delta, error]
}

// Conversational is a [Model] that can keep the encoded history of one run, so
// that a request costs what is new in it. Conversation returns a Model for one
// run and one goroutine; dropping it loses nothing.
type Conversational interface {
	Conversation() Model
}

// Request is one model request, neutral of any provider.
type Request struct {
	Model           string          `json:"model"` // the provider's own name of the model
	System          string          `json:"system,omitempty"`
	Messages        []Message       `json:"messages"`
	Tools           []Spec          `json:"tools,omitempty"` // sorted by name, not to be changed; empty = no such field
	ToolChoice      ToolChoice      `json:"tool_choice,omitzero"`
	Temperature     *float64        `json:"temperature,omitempty"`       // nil = not sent
	MaxOutputTokens int             `json:"max_output_tokens,omitempty"` // 0 = the adapter's or the API's default
	Reasoning       string          `json:"reasoning,omitempty"`         // low | medium | high | off; "" = not sent
	OutputSchema    json.RawMessage `json:"output_schema,omitempty"`
	Extra           json.RawMessage `json:"extra,omitempty"` // JSON object: further fields of the request body

	// Epoch changes whenever messages that were sent before have changed
	// (condensed, dropped). Within an epoch Messages only grows.
	Epoch int `json:"epoch,omitempty"`
	// Replaced counts the assistant's messages that condensed or dropped ones stand
	// for.
	Replaced int `json:"replaced,omitempty"`
	// ToolsHash changes if and only if Tools changes; "" = unknown.
	ToolsHash string `json:"tools_hash,omitempty"`

	// Files opens what a [File] of the messages refers to, whole (at most
	// [MaxFileBytes]). nil = the model takes no files. An adapter sends a file that
	// the API takes, and otherwise a line of text in its place, with the notice
	// [NoticeFileNotSent]; a file never makes a request fail.
	Files func(ctx context.Context, ref string) ([]byte, error) `json:"-"`
}

// MaxFileBytes bounds a file of a message.
const MaxFileBytes = 20 << 20

// The notices that adapters give in [Finish.Notices].
const (
	NoticeFileNotSent      = "file_not_sent"      // a text is in a file's place
	NoticeToolUnusable     = "tool_unusable"      // a tool was left out of the request
	NoticeToolCallRepaired = "tool_call_repaired" // what stood around a call was passed over
)

// ToolChoice says whether the model may, must not or must call a tool (H13).
// The zero value is auto.
type ToolChoice struct {
	Mode string `json:"mode,omitempty"` // "" or auto | none | required | name
	Name string `json:"name,omitempty"` // with mode name: that tool
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

// ToolCallDelta is a piece of one tool call. Pieces with the same Index belong
// together; ID, Name and Signature come with the first piece (or never), the
// Arguments of all pieces joined are the arguments' JSON text as the model wrote
// it. Objects sent whole by an API come as their JSON text.
type ToolCallDelta struct {
	Index     int
	ID        string
	Name      string
	Arguments string
	Signature string
	// Problem says why what the model wrote cannot be read as a call, in words for
	// the model; Arguments is then all that it wrote, JSON or not. It makes the call
	// [ToolCall.Malformed].
	Problem string
}

// Finish ends a reply.
type Finish struct {
	Reason    FinishReason
	Usage     TokenUsage
	Model     string   // the model that answered, as the API names it; may be ""
	RequestID string   // the API's ID of the request, for support; may be ""
	Notices   []Notice // such as tool_unusable
}

// FinishReason says why a model stopped.
type FinishReason string

const (
	FinishStop      FinishReason = "stop"       // the answer is whole
	FinishToolCalls FinishReason = "tool_calls" // the model waits for results
	FinishLength    FinishReason = "length"     // cut by a token limit
	FinishFiltered  FinishReason = "filtered"   // refused or filtered by the provider
	FinishOther     FinishReason = "other"
)

// TokenUsage counts the tokens of one request as the provider reports them.
// CachedInputTokens and CacheWriteTokens are part of InputTokens, ReasoningTokens
// part of OutputTokens. Reported is false where the provider said nothing; the
// loop then estimates.
type TokenUsage struct {
	InputTokens       int64    `json:"input_tokens"`
	CachedInputTokens int64    `json:"cached_input_tokens"`
	CacheWriteTokens  int64    `json:"cache_write_tokens,omitempty"`
	OutputTokens      int64    `json:"output_tokens"`
	ReasoningTokens   int64    `json:"reasoning_tokens,omitempty"`
	CostUSD           *float64 `json:"cost_usd,omitempty"` // as reported by the provider; nil = not reported
	Reported          bool     `json:"reported,omitempty"`
}

// Reply is a whole model reply.
type Reply struct {
	Message Message
	Finish  Finish
}

// ErrorClass sorts what can go wrong with a model request (contract §4).
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
// Message is short and safe to show: it holds no key, no header, no URL with
// credentials and no more than a line of what the provider said. Detail is for
// the operator's log and the journal under a ref; it is bounded (at most 8 KiB)
// and masked before it is kept.
type ModelError struct {
	Class      ErrorClass
	Provider   string
	Status     int           // HTTP status, 0 if none came
	Message    string        // for users
	Detail     string        // for operators
	RetryAfter time.Duration // as the provider asked; 0 = it did not
	Unsent     bool          // true only if the request certainly never left (its budget is given back)
	NoTools    bool          // the API says that this model takes no tools
	Own        bool          // Message is for everybody: it repeats no provider and names no setting
	Err        error         // the cause, for errors.Is
}

func (e *ModelError) Error() string {
	if e.Provider == "" {
		return fmt.Sprintf("%s: %s", e.Class, e.Message)
	}
	return fmt.Sprintf("%s: %s: %s", e.Provider, e.Class, e.Message)
}

func (e *ModelError) Unwrap() error { return e.Err }
