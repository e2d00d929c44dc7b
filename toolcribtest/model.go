// Package toolcribtest provides fakes for testing programs that are built on toolcrib: a model that
// plays given replies, and a tool that records its calls. They use no network, disk or clock, so that
// they work in a bubble of testing/synctest.
//
// The packages below it contain a suite for each interface, to run against every implementation:
// tooltest, modeltest, journaltest, gatetest.
package toolcribtest

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/deltas"
)

// Reply is the reply of a [Model] to one request. The zero value is an empty reply.
type Reply struct {
	Parts  []toolcrib.Part // parts of the assistant's message
	Finish toolcrib.Finish // if Reason is "", it is tool_calls if there are calls, otherwise stop

	Err error // error in place of the end
	Cut bool  // the stream stops without an end and without an error
}

// Say returns a reply of text.
func Say(text string) Reply { return Reply{Parts: []toolcrib.Part{{Text: text}}} }

// Ask returns a reply that calls tools.
func Ask(calls ...toolcrib.ToolCall) Reply {
	var r Reply
	for i := range calls {
		r.Parts = append(r.Parts, toolcrib.Part{ToolCall: &calls[i]})
	}
	return r
}

// Fail returns a reply that fails with an error of the class.
func Fail(class toolcrib.ErrorClass) Reply {
	return Reply{Err: &toolcrib.ModelError{Class: class, Provider: "toolcribtest", Message: "scripted " + string(class)}}
}

// CallOf returns a call for [Ask]. arguments is sent unchanged, valid or not.
func CallOf(id, name, arguments string) toolcrib.ToolCall {
	return toolcrib.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(arguments)}
}

// Using returns the reply with the tokens that it reports.
func (r Reply) Using(input, output int64) Reply {
	r.Finish.Usage = toolcrib.TokenUsage{InputTokens: input, OutputTokens: output, Reported: true}
	return r
}

// Model is a model that plays replies and records its requests. It is safe for concurrent use by many runs.
type Model struct {
	reply func(n int, req *toolcrib.Request) Reply

	mu       sync.Mutex
	requests []*toolcrib.Request
}

// NewModel returns a model that plays the replies in order, one for each request, regardless of the
// request. Further requests fail with class other. To choose a reply by the request, use [NewModelFunc]
// or package provider/script.
func NewModel(replies ...Reply) *Model {
	return NewModelFunc(func(n int, _ *toolcrib.Request) Reply {
		if n < len(replies) {
			return replies[n]
		}
		return Reply{Err: &toolcrib.ModelError{
			Class: toolcrib.ErrOther, Provider: "toolcribtest", Unsent: true,
			Message: fmt.Sprintf("the test has %d replies; this is request %d", len(replies), n+1),
		}}
	})
}

// NewModelFunc returns a model that calls reply for its replies, with the number of the request from 0.
// reply is called concurrently if the model is, and may block.
func NewModelFunc(reply func(n int, req *toolcrib.Request) Reply) *Model {
	return &Model{reply: reply}
}

// Requests returns copies of the requests so far, in order.
func (m *Model) Requests() []*toolcrib.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Stream records req and plays the reply.
func (m *Model) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		m.mu.Lock()
		n := len(m.requests)
		m.requests = append(m.requests, clone(req))
		m.mu.Unlock()
		m.play(ctx, m.reply(n, req), yield)
	}
}

func (m *Model) play(ctx context.Context, r Reply, yield func(toolcrib.Delta, error) bool) {
	message := toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: r.Parts}
	for d := range deltas.Of(message) {
		if err := ctx.Err(); err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		if !yield(d, nil) {
			return
		}
	}
	switch err := ctx.Err(); {
	case err != nil:
		yield(toolcrib.Delta{}, err)
	case r.Err != nil:
		yield(toolcrib.Delta{}, r.Err)
	case !r.Cut:
		finish := r.Finish
		if finish.Reason == "" {
			finish.Reason = deltas.Reason(message)
		}
		yield(toolcrib.Delta{Finish: &finish}, nil)
	}
}

// clone copies the parts that a caller may modify after the request.
func clone(req *toolcrib.Request) *toolcrib.Request {
	c := *req
	c.Messages, c.Tools = slices.Clone(req.Messages), slices.Clone(req.Tools)
	for i := range c.Messages {
		c.Messages[i].Parts = slices.Clone(c.Messages[i].Parts)
	}
	if req.Temperature != nil {
		c.Temperature = new(*req.Temperature)
	}
	return &c
}
