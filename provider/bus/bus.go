// Package bus asks models of other nodes through llm.chat@2.0. The other node returns tool calls; the next request has
// their results.
package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// DefaultModel names the model that the other node uses if none is asked for.
const DefaultModel = "default"

// Options are the options of [New].
type Options struct {
	Name string // of the provider, for errors
	// Open starts a call for a run; run may be "".
	Open  func(ctx context.Context, run toolcrib.RunID, r bus.Request) (*bus.Exchange, error)
	Node  bus.Key // that is asked; "" means any
	Token string  // presented with each call; may be ""

	FirstToken, Idle time.Duration // longest waits for the first frame, and between two; if 0, as long as a call lasts
}

// Model is a model of another node. It is safe for concurrent use.
type Model struct{ o Options }

// New returns a [Model].
func New(o Options) (*Model, error) {
	if o.Open == nil {
		return nil, errors.New("there is no node of the bus in this process")
	}
	return &Model{o}, nil
}

// Messages as llm.chat has them.
type (
	message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
		Calls   []call `json:"tool_calls,omitempty"`
		CallID  string `json:"tool_call_id,omitempty"`
	}
	call struct {
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	tool struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters_schema,omitempty"`
	}
	input struct {
		Messages    []message       `json:"messages"`
		Tools       []tool          `json:"tools,omitempty"`
		Choice      any             `json:"tool_choice,omitempty"`
		MaxTokens   int             `json:"max_tokens,omitempty"`
		Temperature *float64        `json:"temperature,omitempty"`
		Reasoning   string          `json:"reasoning,omitempty"`
		Schema      json.RawMessage `json:"output_schema,omitempty"`
	}
	result struct {
		Output struct {
			Message message `json:"message"`
		} `json:"output"`
		Meta struct {
			Model      string `json:"model"`
			TokensIn   int64  `json:"tokens_in"`
			TokensOut  int64  `json:"tokens_out"`
			StopReason string `json:"stop_reason"`
		} `json:"meta"`
	}
)

// Stream implements [toolcrib.Model].
func (m *Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		if err := m.stream(ctx, req, func(d toolcrib.Delta) bool { return yield(d, nil) }); err != nil {
			yield(toolcrib.Delta{}, err)
		}
	}
}

func (m *Model) stream(ctx context.Context, req *toolcrib.Request, yield func(toolcrib.Delta) bool) error {
	in, notices := inputOf(req)
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r := bus.Request{
		Name: bus.Name{Name: "llm.chat", Major: 2}, Input: raw, To: m.o.Node, Token: m.o.Token, Session: string(req.Run),
		Timeout: bus.MaxTimeout,
	}
	if req.Model != DefaultModel {
		if r.Params, err = json.Marshal(map[string]string{"model": req.Model}); err != nil {
			return err
		}
	}
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	slow := m.watch(stop, m.o.FirstToken)
	defer slow.Stop()
	x, err := m.o.Open(waiting, req.Run, r)
	if err != nil {
		return m.failed(ctx, waiting, err, true)
	}
	defer x.Cancel()
	var said strings.Builder
	for calls := 0; ; {
		f, err := x.Recv(waiting)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return m.failed(ctx, waiting, err, false)
		}
		slow.Reset(cmp.Or(m.o.Idle, bus.MaxTimeout))
		d, err := deltaOf(f, &calls, &notices)
		if err != nil {
			return m.failed(ctx, waiting, err, false)
		}
		said.WriteString(d.Text)
		if (d.Text != "" || d.ToolCall != nil) && !yield(d) {
			return nil
		}
	}
	raw, err = x.Result(waiting)
	if err != nil {
		return m.failed(ctx, waiting, err, false)
	}
	var done result
	if err := json.Unmarshal(raw, &done); err != nil || !strings.HasSuffix(said.String(), done.Output.Message.Content) {
		return &toolcrib.ModelError{
			Class: toolcrib.ErrNetwork, Provider: m.o.Name, Message: "the reply broke off and was begun again", Err: err,
		}
	}
	reason, ok := map[string]toolcrib.FinishReason{
		"end": toolcrib.FinishStop, "stop_sequence": toolcrib.FinishStop, "max_tokens": toolcrib.FinishLength,
		"tool_calls": toolcrib.FinishToolCalls,
	}[done.Meta.StopReason]
	if !ok {
		reason = toolcrib.FinishOther
	}
	yield(toolcrib.Delta{Finish: &toolcrib.Finish{
		Reason: reason, Model: done.Meta.Model, RequestID: x.ID, Notices: notices,
		Usage: toolcrib.TokenUsage{
			InputTokens: done.Meta.TokensIn, OutputTokens: done.Meta.TokensOut,
			Reported: done.Meta.TokensIn+done.Meta.TokensOut > 0,
		},
	}})
	return nil
}

// errSlow ends a call that has sent nothing for too long.
var errSlow = errors.New("the other node has sent nothing for too long")

func (m *Model) watch(stop context.CancelCauseFunc, after time.Duration) *time.Timer {
	return time.AfterFunc(cmp.Or(after, bus.MaxTimeout), func() { stop(errSlow) })
}

// maxNotices bounds the notices of a reply.
const maxNotices = 20

// deltaOf returns the delta of a frame, which may be empty. calls counts the tool calls so far.
func deltaOf(f bus.Frame, calls *int, notices *[]toolcrib.Notice) (d toolcrib.Delta, err error) {
	switch f.Event {
	case "token":
		var text struct{ Text string }
		err = json.Unmarshal(f.Data, &text)
		d.Text = text.Text
	case "tool_call":
		var c call
		if err = json.Unmarshal(f.Data, &c); err == nil {
			d.ToolCall = &toolcrib.ToolCallDelta{Index: *calls, ID: c.ID, Name: c.Name, Arguments: string(c.Arguments)}
			*calls++
		}
	case "notice":
		var n toolcrib.Notice
		if err = json.Unmarshal(f.Data, &n); err == nil && len(*notices) < maxNotices {
			*notices = append(*notices, toolcrib.Notice{Code: n.Code, Message: "the other node says: " + n.Message})
		}
	}
	if err != nil {
		err = toolcrib.Errorf(toolcrib.CodeSchemaMismatch, "a frame of llm.chat cannot be read: %v", err)
	}
	return d, err
}

// inputOf returns the input of a call. Files are not sent.
func inputOf(req *toolcrib.Request) (in input, notices []toolcrib.Notice) {
	in = input{
		MaxTokens: req.MaxOutputTokens, Temperature: req.Temperature, Reasoning: req.Reasoning, Schema: req.OutputSchema,
	}
	if req.System != "" {
		in.Messages = append(in.Messages, message{Role: "system", Content: req.System})
	}
	for _, m := range req.Messages {
		one := message{Role: string(m.Role)}
		for _, p := range m.Parts {
			switch {
			case p.ToolCall != nil:
				one.Calls = append(one.Calls, call{p.ToolCall.ID, p.ToolCall.Name, p.ToolCall.Arguments})
			case p.ToolResult != nil:
				r := p.ToolResult
				in.Messages = append(in.Messages, message{Role: "tool", CallID: r.CallID, Content: r.Content})
			case p.File != nil:
				one.Content += fmt.Sprintf("\n(A file, %s, is not shown to this model.)", p.File.MediaType)
				notices = append(notices, toolcrib.Notice{
					Code: toolcrib.NoticeFileNotSent, Message: p.File.MediaType + " is not sent: models of other nodes get text",
				})
			default:
				one.Content += p.Text
			}
		}
		if m.Role != toolcrib.RoleTool {
			in.Messages = append(in.Messages, one)
		}
	}
	for _, t := range req.Tools {
		in.Tools = append(in.Tools, tool{t.Name, t.Description, t.Parameters})
	}
	if len(in.Tools) > 0 {
		switch req.ToolChoice.Mode {
		case toolcrib.ChoiceName:
			in.Choice = map[string]string{"name": req.ToolChoice.Name}
		case toolcrib.ChoiceNone, toolcrib.ChoiceRequired:
			in.Choice = req.ToolChoice.Mode
		}
	}
	return in, notices
}

// failed returns the error of a call. unsent reports whether the call was not accepted.
func (m *Model) failed(ctx, waiting context.Context, err error, unsent bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(context.Cause(waiting), errSlow) {
		return &toolcrib.ModelError{Class: toolcrib.ErrTimeout, Provider: m.o.Name, Message: errSlow.Error(), Err: err}
	}
	e := &toolcrib.ModelError{Class: toolcrib.ErrOther, Provider: m.o.Name, Message: "the other node has failed", Err: err}
	var known *toolcrib.Error
	if errors.As(err, &known) {
		e.Class, e.RetryAfter = classOf(known.Code), known.RetryAfter
		e.Message, e.Detail = wire.Line(string(known.Code)+": "+known.Message), known.Message
		e.Unsent = unsent && known.Code != toolcrib.CodePartition && known.Code != toolcrib.CodeTimeout
	}
	var instead *bus.Alternatives
	if errors.As(err, &instead) && len(instead.Params) > 0 { // the model is misspelt, rather than its node away
		e.Class = toolcrib.ErrBadRequest
	}
	return e
}

func classOf(code toolcrib.Code) toolcrib.ErrorClass {
	switch code {
	case toolcrib.CodeUnauthorized, toolcrib.CodeForbidden, toolcrib.CodeTokenInvalid, toolcrib.CodeTokenExpired,
		toolcrib.CodeTokenRevoked, toolcrib.CodeScopeInsufficient, toolcrib.CodeRevoked, toolcrib.CodeFederation,
		toolcrib.CodeSignature:
		return toolcrib.ErrAuth
	case toolcrib.CodeRateLimited:
		return toolcrib.ErrRateLimit
	case toolcrib.CodeCapacityExceeded, toolcrib.CodeOverloaded, toolcrib.CodeProviderFailed:
		return toolcrib.ErrOverloaded
	case toolcrib.CodeTimeout:
		return toolcrib.ErrTimeout
	case toolcrib.CodePartition, toolcrib.CodeNotFound, toolcrib.CodeExpired: // a node may come back
		return toolcrib.ErrNetwork
	case toolcrib.CodeBadRequest, toolcrib.CodeSchemaMismatch, toolcrib.CodeTooLarge, toolcrib.CodeNotImplemented:
		return toolcrib.ErrBadRequest
	}
	return toolcrib.ErrOther
}
