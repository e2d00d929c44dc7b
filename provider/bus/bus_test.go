package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/bus"
	model "github.com/toolcrib/toolcrib/provider/bus"
	"github.com/toolcrib/toolcrib/toolcribtest/modeltest"
)

// serving returns a model of a node that serves llm.chat with h.
func serving(t *testing.T, o model.Options, h bus.Handler) toolcrib.Model {
	t.Helper()
	keys, err := bus.NewKeys(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	n, err := bus.New(bus.Options{Keys: keys, Trust: func(context.Context, bus.Key) (toolcrib.Trust, error) {
		return toolcrib.TrustAnchor, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	d := bus.Descriptor{Name: bus.Name{Name: "llm.chat", Major: 2}, Params: map[string][]any{"model": {"far/one", "model-a"}}}
	if err := n.Offer(d, h); err != nil {
		t.Fatal(err)
	}
	o.Name = "far"
	o.Open = func(ctx context.Context, _ toolcrib.RunID, r bus.Request) (*bus.Exchange, error) {
		return n.Open(ctx, r)
	}
	m, err := model.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// plays serves replies: the first to a request without a message of an assistant, and so on.
func plays(replies []toolcrib.Reply) bus.Handler {
	return func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
		var in struct {
			Input struct{ Messages []struct{ Role string } }
		}
		if err := json.Unmarshal(x.Body, &in); err != nil {
			return nil, err
		}
		n := 0
		for _, m := range in.Input.Messages {
			if m.Role == "assistant" {
				n++
			}
		}
		send := func(event string, data map[string]any) error {
			raw, err := json.Marshal(data)
			if err != nil {
				return err
			}
			return x.Send(ctx, bus.Frame{Event: event, Data: raw})
		}
		reply, reason := &replies[n], "end"
		for _, p := range reply.Message.Parts {
			event, data := "token", map[string]any{"text": p.Text}
			if c := p.ToolCall; c != nil {
				event, reason, data = "tool_call", "tool_calls", map[string]any{"id": c.ID, "name": c.Name, "arguments": c.Arguments}
			}
			if err := send(event, data); err != nil {
				return nil, err
			}
		}
		if reply.Finish.Reason == toolcrib.FinishLength {
			reason = "max_tokens"
		}
		return json.Marshal(map[string]any{
			"output": map[string]any{"message": map[string]any{"role": "assistant", "content": reply.Message.Text()}},
			"meta": map[string]any{
				"stop_reason": reason, "tokens_in": reply.Finish.Usage.InputTokens, "tokens_out": reply.Finish.Usage.OutputTokens,
			},
		})
	}
}

func TestSuite(t *testing.T) {
	modeltest.Run(t, modeltest.Subject{Uncached: true, New: func(t *testing.T, replies ...toolcrib.Reply) toolcrib.Model {
		return serving(t, model.Options{}, plays(replies))
	}})
}

func TestErrors(t *testing.T) {
	for code, class := range map[toolcrib.Code]toolcrib.ErrorClass{
		toolcrib.CodeUnauthorized: toolcrib.ErrAuth, toolcrib.CodeRateLimited: toolcrib.ErrRateLimit,
		toolcrib.CodeCapacityExceeded: toolcrib.ErrOverloaded, toolcrib.CodeProviderFailed: toolcrib.ErrOverloaded,
		toolcrib.CodeTimeout: toolcrib.ErrTimeout, toolcrib.CodePartition: toolcrib.ErrNetwork,
		toolcrib.CodeBadRequest: toolcrib.ErrBadRequest, toolcrib.CodeInternal: toolcrib.ErrOther,
	} {
		m := serving(t, model.Options{}, func(context.Context, *bus.Exchange) (json.RawMessage, error) {
			return nil, &toolcrib.Error{Code: code, Message: "why", RetryAfter: 2 * time.Second}
		})
		_, err := modeltest.Collect(t.Context(), m, modeltest.Request("hi"))
		after := 2 * time.Second
		if code == toolcrib.CodeInternal { // its details stay at the other node
			after = 0
		}
		var e *toolcrib.ModelError
		if !errors.As(err, &e) || e.Class != class || e.RetryAfter != after || e.Provider != "far" {
			t.Errorf("%s: %+v, want %s", code, err, class)
		}
	}
	m := serving(t, model.Options{Node: "nobody"}, plays(nil))
	_, err := modeltest.Collect(t.Context(), m, modeltest.Request("hi"))
	var e *toolcrib.ModelError
	if !errors.As(err, &e) || e.Class != toolcrib.ErrNetwork || !e.Unsent {
		t.Errorf("a node that is not there: %+v", err)
	}
}

// The error about a model that no node offers names those that there are, and is not tried again.
func TestUnknownModel(t *testing.T) {
	m := serving(t, model.Options{}, plays(nil))
	q := modeltest.Request("hi")
	q.Model = "far/other"
	_, err := modeltest.Collect(t.Context(), m, q)
	want := `not_found: no node offers llm.chat@2.0 with these params; model: {"asked":"far/other","offered":["far/one","model-a"]}`
	var e *toolcrib.ModelError
	if !errors.As(err, &e) || e.Class != toolcrib.ErrBadRequest || !e.Unsent || !strings.HasPrefix(e.Message, want) {
		t.Errorf("%+v", err)
	}
	m = serving(t, model.Options{}, func(context.Context, *bus.Exchange) (json.RawMessage, error) {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "input.messages: is missing")
	})
	if _, err = modeltest.Collect(t.Context(), m, modeltest.Request("hi")); !errors.As(err, &e) ||
		e.Message != "bad_request: input.messages: is missing" {
		t.Errorf("%+v", err)
	}
}

// A node that says nothing is given up, and so is one whose answer is not what it has streamed.
func TestBadNodes(t *testing.T) {
	ended := make(chan struct{})
	m := serving(t, model.Options{FirstToken: time.Millisecond}, func(ctx context.Context, _ *bus.Exchange) (json.RawMessage, error) {
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	_, err := modeltest.Collect(t.Context(), m, modeltest.Request("hi"))
	var e *toolcrib.ModelError
	if !errors.As(err, &e) || e.Class != toolcrib.ErrTimeout {
		t.Errorf("a silent node: %v", err)
	}
	<-ended
	for what, result := range map[string]string{
		"another text": `{"output":{"message":{"content":"other"}},"meta":{"stop_reason":"end"}}`, "no object": `7`,
	} {
		m := serving(t, model.Options{}, func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
			return json.RawMessage(result), x.Send(ctx, bus.Frame{Event: "token", Data: json.RawMessage(`{"text":"one"}`)})
		})
		if _, err := modeltest.Collect(t.Context(), m, modeltest.Request("hi")); !errors.As(err, &e) || e.Class != toolcrib.ErrNetwork {
			t.Errorf("%s: %v", what, err)
		}
	}
	m = serving(t, model.Options{}, func(ctx context.Context, x *bus.Exchange) (json.RawMessage, error) {
		return nil, x.Send(ctx, bus.Frame{Event: "token", Data: json.RawMessage(`[]`)})
	})
	if _, err := modeltest.Collect(t.Context(), m, modeltest.Request("hi")); !errors.As(err, &e) || e.Class != toolcrib.ErrBadRequest {
		t.Errorf("a broken frame: %v", err)
	}
}
