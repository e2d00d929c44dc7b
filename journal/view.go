package journal

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/toolcrib/toolcrib"
)

// views are the data types of frames, by kind, unless they are the body of the event.
var views = map[string]any{
	FrameToken: TextView{}, FrameThinking: TextView{},
	FrameToolCallDelta: CallDeltaView{}, FrameToolProgress: ProgressView{},
	string(KindRunStarted): StartedView{}, string(KindMessage): MessageView{}, string(KindToolCall): CallView{},
	string(KindConfirmationRequired): ConfirmationView{}, string(KindConfirmationResolved): ResolvedView{},
	string(KindToolStarted): CallStartedView{}, string(KindToolResult): ResultView{}, string(KindUsage): toolcrib.Usage{},
	string(KindNotice): toolcrib.Notice{}, string(KindChildStarted): ChildView{}, string(KindDone): DoneView{},
	string(KindError): ErrorView{}, FrameUserMessage: UserMessageView{},
}

// ReadFrame decodes a frame from its JSON. The data of a frame of an unknown kind is kept
// as JSON.
func ReadFrame(seq toolcrib.Seq, event string, data []byte) (Frame, error) {
	f := Frame{Seq: seq, Event: event, Data: json.RawMessage(data)}
	var err error
	if view, ok := views[event]; ok {
		v := reflect.New(reflect.TypeOf(view))
		err = json.Unmarshal(data, v.Interface())
		f.Data = v.Elem().Interface()
	} else if bodies[toolcrib.Kind(event)] != nil {
		f.Data, err = Decode(toolcrib.Kind(event), data)
	}
	if err != nil {
		err = fmt.Errorf("journal: the data of %s: %w", event, err)
	}
	return f, err
}

// Frame is an event as clients see it, in every API.
type Frame struct {
	Seq   toolcrib.Seq `json:"seq,omitempty"` // 0 for live-only frames
	Event string       `json:"event"`
	// Data is one of the views below, a [toolcrib.Usage], a [toolcrib.Notice], or the event
	// itself ([*ChildResumed], [*ChildEnded], [*Paused]).
	Data any `json:"data"`

	public any // Data as users of a server read it; nil if there is no difference
}

// Public returns the frame as users of a server read it.
func (f Frame) Public() Frame {
	if f.public != nil {
		f.Data = f.public
	}
	return f
}

// Live-only frames; they have no number and are not stored.
const (
	FrameToken         = "token"
	FrameThinking      = "thinking"
	FrameToolCallDelta = "tool_call_delta"
	FrameToolProgress  = "tool_progress"
)

// FrameUserMessage is a message to an active run.
const FrameUserMessage = "user_message"

// Data of the live-only frames.
type (
	// TextView is a piece of an answer or of its reasoning.
	TextView struct {
		Text string `json:"text"`
		From int    `json:"-"` // bytes of the reply before this piece, for clients that connect later
	}
	// CallDeltaView is a piece of a call that the model is writing.
	CallDeltaView struct {
		ID             string `json:"id"`
		Name           string `json:"name,omitempty"`
		ArgumentsDelta string `json:"arguments_delta"`
	}
	// ProgressView is the progress of a call.
	ProgressView struct {
		ID       string  `json:"id"`
		Message  string  `json:"message"`
		Fraction float64 `json:"fraction"`
	}
)

// StartedView is the data of run_started.
type StartedView struct {
	RunID     toolcrib.RunID     `json:"run_id"`
	Agent     string             `json:"agent"`
	Model     string             `json:"model"`
	Principal string             `json:"principal"`
	SessionID toolcrib.SessionID `json:"session_id"`
	Offered   []string           `json:"offered"`
}

// MessageView is the data of message.
type MessageView struct {
	Iteration int                   `json:"iteration"`
	Text      string                `json:"text"`
	Thinking  string                `json:"thinking"`
	Finish    toolcrib.FinishReason `json:"finish_reason"`
}

// CallView is the data of tool_call.
type CallView struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // an object, or the original text as a string if it was not one
	Converted []string        `json:"converted,omitempty"`
}

// ConfirmationView is the data of confirmation_required.
type ConfirmationView struct {
	ApprovalID string         `json:"approval_id"`
	Digest     string         `json:"digest"`
	Kind       ApprovalKind   `json:"kind"`
	Calls      []ApprovalItem `json:"calls"`
	Reason     string         `json:"reason"`
	// Only for kind input.
	Question string          `json:"question,omitempty"`
	Schema   json.RawMessage `json:"schema,omitempty"`
	// Only if a run below asks: that run, and the call of this run that it answers.
	RunID  toolcrib.RunID `json:"run_id,omitempty"`
	CallID string         `json:"call_id,omitempty"`
}

// ResolvedView is the data of confirmation_resolved.
type ResolvedView struct {
	ApprovalID string `json:"approval_id"`
	Decision   string `json:"decision"`
	By         string `json:"by"`
}

// CallStartedView is the data of tool_started.
type CallStartedView struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// ResultView is the data of tool_result.
type ResultView struct {
	ToolCallID string                `json:"tool_call_id"`
	Name       string                `json:"name"`
	Status     toolcrib.ResultStatus `json:"status"`
	IsError    bool                  `json:"is_error"`
	Content    string                `json:"content"`
	Reason     toolcrib.Reason       `json:"reason"`
	DurationMS int64                 `json:"duration_ms"`
	Truncated  bool                  `json:"truncated"`
	Untrusted  bool                  `json:"untrusted"`
}

// UserMessageView is the data of user_message.
type UserMessageView struct {
	Text string `json:"text"`
	By   string `json:"by"`
}

// ChildView is the data of child_started.
type ChildView struct {
	ID    string         `json:"id"`
	Run   toolcrib.RunID `json:"run_id"`
	Agent string         `json:"agent"`
}

// DoneView is the data of done.
type DoneView struct {
	RunID toolcrib.RunID `json:"run_id"`
	Done
}

// ErrorView is the data of error.
type ErrorView struct {
	Code       string              `json:"error"`
	Class      toolcrib.ErrorClass `json:"-"` // Message begins with it
	Message    string              `json:"message"`
	RunID      toolcrib.RunID      `json:"run_id"`
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason"`
	Usage      toolcrib.Usage      `json:"usage"`
}

// View returns the event as clients see it; false for events that are internal to the
// journal. An event has at most one frame, so that the numbers of frames
// rise strictly.
func View(run toolcrib.RunID, e toolcrib.Event) (Frame, bool) {
	data := viewData(run, e.Body)
	if data == nil {
		return Frame{}, false
	}
	kind := e.Body.EventKind()
	switch kind {
	case KindChildParked:
		kind = KindConfirmationRequired // a client of this run need not distinguish which run asks
	case KindSaid:
		kind = FrameUserMessage
	}
	f := Frame{Seq: e.Seq, Event: string(kind), Data: data}
	if public := Public(e.Body); public != e.Body {
		f.public = viewData(run, public)
	}
	return f, true
}

func viewData(run toolcrib.RunID, body toolcrib.Body) any {
	switch b := body.(type) {
	case *RunStarted:
		return StartedView{
			RunID: run, Agent: b.Agent.Name, Model: b.Agent.Model, Principal: b.Principal.User,
			SessionID: b.Session, Offered: b.Offer.Names(),
		}
	case *Message:
		m := toolcrib.Message{Parts: b.Parts}
		return MessageView{Iteration: b.Iteration, Text: m.Text(), Thinking: thinking(b.Parts), Finish: b.Finish}
	case *ToolCall:
		return ViewCall(&b.ToolCall)
	case *ConfirmationRequired:
		calls := append([]ApprovalItem{}, b.Calls...) // an empty list, not null
		return ConfirmationView{
			ApprovalID: b.ApprovalID, Digest: b.Digest, Kind: b.Kind, Calls: calls, Reason: b.Reason,
			Question: b.Question, Schema: b.Schema,
		}
	case *ConfirmationResolved:
		return ResolvedView{ApprovalID: b.ApprovalID, Decision: b.Decision, By: b.By}
	case *ToolStarted:
		return CallStartedView{ID: b.ID, Name: b.Name}
	case *ToolResult:
		return b.View()
	case *Said:
		return UserMessageView{Text: b.Text, By: b.By}
	case *Usage:
		return b.Sum
	case *Notice:
		n := b.Notice
		n.Public = ""
		return n
	case *ChildStarted:
		return ChildView{ID: b.ID, Run: b.Run, Agent: b.Agent}
	case *ChildParked:
		if b.Pending.Kind == PendingProvider {
			return nil // there is no question
		}
		return askedBelow(b)
	case *ChildResumed, *ChildEnded, *Paused:
		return b
	case *Done:
		return DoneView{RunID: run, Done: *b}
	case *Error:
		return ErrorView{
			Code: b.Code, Class: b.Class, Message: b.Text(), RunID: run, Status: b.Status,
			StopReason: b.StopReason, Usage: b.Usage,
		}
	}
	return nil
}

// askedBelow returns the question of a run below.
func askedBelow(b *ChildParked) ConfirmationView {
	p := &b.Pending
	v := ConfirmationView{
		ApprovalID: p.ApprovalID, Digest: p.Digest, Kind: ApprovalKind(p.Kind), Calls: append([]ApprovalItem{}, p.Calls...),
		Question: p.Question, Schema: p.Schema, RunID: p.Run, CallID: b.ID,
	}
	if len(p.Calls) > 0 {
		v.Reason = p.Calls[0].Reason
	}
	if v.Reason == "" {
		v.Reason = p.Question
	}
	return v
}

// Text returns the message, with the ref under which administrators find the detail.
func (b *Error) Text() string { return withRef(b.Message, b.Ref) }

func withRef(message, ref string) string {
	if ref == "" {
		return message
	}
	return message + " (" + ref + ")"
}

// ViewCall returns a call as clients see it: its arguments as an object, or, if the model sent
// something else, as that text.
func ViewCall(c *toolcrib.ToolCall) CallView {
	v := CallView{ID: c.ID, Name: c.Name, Arguments: c.Arguments, Converted: c.Converted}
	switch {
	case c.Broken != "":
		v.Arguments, _ = EncodeJSON(c.Broken) // encoding a string never fails
	case len(c.Arguments) == 0:
		v.Arguments = json.RawMessage("{}")
	}
	return v
}

// View returns a result as clients see it.
func (b *ToolResult) View() ResultView {
	return ResultView{
		ToolCallID: b.ToolCallID, Name: b.Name, Status: b.Status, IsError: b.IsError, Content: b.Content,
		Reason: b.Reason, DurationMS: b.DurationMS, Truncated: b.Truncated, Untrusted: b.Untrusted,
	}
}

func thinking(parts []toolcrib.Part) string {
	var s string
	for _, p := range parts {
		if p.Thinking != nil {
			s += p.Thinking.Text
		}
	}
	return s
}

// Secret reports whether the answer is a secret that must not be shown while it is typed: its schema has writeOnly.
func (b *ConfirmationRequired) Secret() bool {
	var schema struct {
		WriteOnly bool `json:"writeOnly"`
	}
	return json.Unmarshal(b.Schema, &schema) == nil && schema.WriteOnly
}

// RunError is the error with which a run failed, as it is shown.
type RunError struct {
	Code    string              `json:"error"`
	Class   toolcrib.ErrorClass `json:"class,omitempty"` // set if Message quotes a provider
	Message string              `json:"message"`
	Ref     string              `json:"ref,omitempty"` // reference under which log and journal have the details
}
