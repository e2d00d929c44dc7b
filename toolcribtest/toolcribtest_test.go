package toolcribtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/toolcribtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask sends one request and joins the reply.
func ask(ctx context.Context, m toolcrib.Model, req *toolcrib.Request) (toolcrib.ReplyBuilder, error) {
	var b toolcrib.ReplyBuilder
	for d, err := range m.Stream(ctx, req) {
		if err != nil {
			return b, err
		}
		b.Add(d)
	}
	return b, nil
}

func TestModel_RepliesInOrderAndRecords(t *testing.T) {
	m := toolcribtest.NewModel(
		toolcribtest.Ask(toolcribtest.CallOf("a", "read_file", `{"path":"x"}`),
			toolcribtest.CallOf("", "list_directory", `{`)),
		toolcribtest.Fail(toolcrib.ErrRateLimit),
		toolcribtest.Say("done").Using(7, 3),
		toolcribtest.Reply{Parts: []toolcrib.Part{{Text: "half"}}, Cut: true},
	)
	req := &toolcrib.Request{
		Messages:    []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "hello")},
		Temperature: new(0.5),
	}
	got, err := ask(t.Context(), m, req)
	if err != nil {
		t.Fatal(err)
	}
	want := toolcrib.Reply{
		Message: toolcrib.Message{Role: toolcrib.RoleAssistant, Parts: []toolcrib.Part{
			{ToolCall: &toolcrib.ToolCall{ID: "a", Name: "read_file", Arguments: []byte(`{"path":"x"}`)}},
			{ToolCall: &toolcrib.ToolCall{Name: "list_directory", Arguments: []byte(`{`)}},
		}},
		Finish: toolcrib.Finish{Reason: toolcrib.FinishToolCalls},
	}
	if diff := cmp.Diff(want, got.Reply()); diff != "" {
		t.Errorf("first reply (-want +got):\n%s", diff)
	}
	req.Messages[0].Parts[0].Text, *req.Temperature = "changed", 1

	var failed *toolcrib.ModelError
	if _, err := ask(t.Context(), m, req); !errors.As(err, &failed) || failed.Class != toolcrib.ErrRateLimit {
		t.Errorf("second reply: %v", err)
	}
	got, err = ask(t.Context(), m, req)
	if reply := got.Reply(); err != nil || reply.Message.Text() != "done" || reply.Finish.Usage.OutputTokens != 3 {
		t.Errorf("third reply: %+v, %v", reply, err)
	}
	if got, err = ask(t.Context(), m, req); err != nil || got.Finished() || !got.Started() {
		t.Errorf("a cut reply: finished %v, error %v", got.Finished(), err)
	}
	if _, err := ask(t.Context(), m, req); !errors.As(err, &failed) ||
		!strings.Contains(failed.Message, "has 4 replies; this is request 5") {
		t.Errorf("a request too many: %v", err)
	}
	requests := m.Requests()
	if len(requests) != 5 {
		t.Fatalf("recorded %d requests, want 5", len(requests))
	}
	if text, temperature := requests[0].Messages[0].Text(), *requests[0].Temperature; text != "hello" ||
		temperature != 0.5 {
		t.Errorf("the record changed with the request: %q, %v", text, temperature)
	}
}

func TestModel_HonoursCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := toolcribtest.NewModelFunc(func(int, *toolcrib.Request) toolcribtest.Reply {
		cancel()
		return toolcribtest.Reply{}
	})
	if _, err := ask(ctx, m, &toolcrib.Request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestTool_RecordsCalls(t *testing.T) {
	tool := toolcribtest.NewTool(toolcribtest.ToolOptions{
		Spec: toolcrib.Spec{Name: "slow"},
		Do: func(_ context.Context, call toolcrib.Call) (toolcrib.Output, error) {
			return toolcrib.Output{Text: "for " + call.ID}, nil
		},
	})
	var calls sync.WaitGroup
	for i := range 3 {
		calls.Go(func() {
			id := fmt.Sprint(i)
			out, err := tool.Call(t.Context(), toolcrib.Call{ID: id, Arguments: []byte(`{}`)})
			if err != nil || out.Text != "for "+id {
				t.Errorf("call %s: %q, %v", id, out.Text, err)
			}
		})
	}
	calls.Wait()
	if len(tool.Calls()) != 3 {
		t.Errorf("%d calls", len(tool.Calls()))
	}
}

func TestTool_HonoursCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := toolcribtest.ReadOnly("x", "y").Call(ctx, toolcrib.Call{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	writer := toolcribtest.Writer("w", "written")
	if err := writer.Spec().Check(); err != nil || !writer.Spec().Effect.Writes() {
		t.Errorf("writer: %v, %q", err, writer.Spec().Effect)
	}
}
