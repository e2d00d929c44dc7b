package modeltest

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib"
)

// ErrNoFinish says that a stream ended without Finish and without an error.
var ErrNoFinish = errors.New("the stream ended without finish")

// Collect sends a request and joins what comes back. It returns an error for
// whatever breaks the rules of [toolcrib.Model]: two things in one delta,
// anything after the end, or no end.
func Collect(ctx context.Context, m toolcrib.Model, req *toolcrib.Request) (toolcrib.Reply, error) {
	var b toolcrib.ReplyBuilder
	var failed error
	for d, err := range m.Stream(ctx, req) {
		switch {
		case failed != nil:
			return b.Reply(), errors.Join(failed, errors.New("something came after the error"))
		case err != nil:
			failed = err
			continue
		case b.Finished():
			return b.Reply(), errors.New("something came after finish")
		}
		if n := fields(d); n > 1 {
			return b.Reply(), fmt.Errorf("a delta has %d fields set", n)
		}
		b.Add(d)
	}
	switch {
	case failed != nil:
		return b.Reply(), failed
	case !b.Finished():
		return b.Reply(), ErrNoFinish
	}
	return b.Reply(), nil
}

func fields(d toolcrib.Delta) (n int) {
	for _, set := range [...]bool{d.Text != "", d.Thinking != "", d.Signature != "", d.Redacted != "", d.ToolCall != nil, d.Finish != nil} {
		if set {
			n++
		}
	}
	return n
}

// Request is a plain request of one user text, for tests.
func Request(text string) *toolcrib.Request {
	return &toolcrib.Request{Model: "model-a", Messages: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, text)}}
}
