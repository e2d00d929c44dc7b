// Package toolcribtest has fakes for testing what is built on toolcrib: a model that
// says what it is told to, and a tool that records its calls. None of them touches a
// network, a disk or the time, so that they can be used in a bubble of testing/synctest,
// whose clock stands still.
//
// The packages below it hold one suite for each interface, to run against every
// implementation: tooltest, modeltest, journaltest, gatetest.
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

// Reply is what a [Model] does with one request. The zero value is an empty reply.
type Reply struct {
	Parts  []toolcrib.Part // of the assistant's message
	Finish toolcrib.Finish // Reason "" = tool_calls if there are any, else stop

	Err error // comes instead of the end
	Cut bool  // the stream stops without an end and without an error
}

// Say is a reply of text alone.
func Say(text string) Reply { return Reply{Parts: []toolcrib.Part{{Text: text}}} }

// Ask is a reply that calls tools.
func Ask(calls ...toolcrib.ToolCall) Reply {
	var r Reply
	for i := range calls {
		r.Parts = append(r.Parts, toolcrib.Part{ToolCall: &calls[i]})
	}
	return r
}

// Fail is a reply that fails with an error of the class.
func Fail(class toolcrib.ErrorClass) Reply {
	return Reply{Err: &toolcrib.ModelError{Class: class, Provider: "toolcribtest", Message: "scripted " + string(class)}}
}

// CallOf makes a call for [Ask]. arguments is sent as it is, valid or not.
func CallOf(id, name, arguments string) toolcrib.ToolCall {
	return toolcrib.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(arguments)}
}

// Using sets the tokens that the reply reports.
func (r Reply) Using(input, output int64) Reply {
	r.Finish.Usage = toolcrib.TokenUsage{InputTokens: input, OutputTokens: output, Reported: true}
	return r
}

// Model is a model that replies as it is told to and records what it was asked.
// It is safe for use by many runs at once.
type Model struct {
	reply func(n int, req *toolcrib.Request) Reply

	mu       sync.Mutex
	requests []*toolcrib.Request
}

// NewModel returns a model that gives the replies in order, one for each request,
// whatever the request says. A request too many fails with class other. To choose
// by the request instead, see [NewModelFunc] and package provider/script.
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

// NewModelFunc returns a model whose replies are made by reply: for the nth
// request, from 0. reply is called by many goroutines if the model is, and may block.
func NewModelFunc(reply func(n int, req *toolcrib.Request) Reply) *Model {
	return &Model{reply: reply}
}

// Requests returns copies of the requests so far, in the order in which they came.
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

// clone copies what a caller may go on changing after the request.
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
