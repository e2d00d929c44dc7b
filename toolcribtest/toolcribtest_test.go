package toolcribtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

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

func TestClock_SleepersWakeInTheirTime(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clock := toolcribtest.NewClock(start)
	woken := make(chan time.Duration, 3)
	var sleepers sync.WaitGroup
	for _, d := range []time.Duration{time.Second, time.Minute, time.Hour} {
		sleepers.Go(func() {
			if err := clock.Sleep(t.Context(), d); err != nil {
				t.Error(err)
			}
			woken <- d
		})
	}
	for i, d := range []time.Duration{time.Second, time.Minute, time.Hour} {
		if err := clock.WaitForSleepers(t.Context(), 3-i); err != nil {
			t.Fatal(err)
		}
		clock.Advance(start.Add(d).Sub(clock.Now()) - 1)
		select {
		case early := <-woken:
			t.Fatalf("%s was over before its time", early)
		default:
		}
		clock.Advance(1)
		if got := <-woken; got != d {
			t.Errorf("woken %s, want %s", got, d)
		}
	}
	sleepers.Wait()
	if got := clock.Now(); !got.Equal(start.Add(time.Hour)) {
		t.Errorf("clock stands at %s", got)
	}
}

func TestClock_SleepEndsWithItsContext(t *testing.T) {
	clock := toolcribtest.NewClock(time.Time{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- clock.Sleep(ctx, time.Second) }()
	if err := clock.WaitForSleepers(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := clock.Sleep(t.Context(), 0); err != nil {
		t.Errorf("no sleep at all: %v", err)
	}
	if err := clock.WaitForSleepers(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for nobody: %v", err)
	}
}

func TestModel_RepliesInOrderAndRecords(t *testing.T) {
	m := toolcribtest.NewModel(
		toolcribtest.Ask(toolcribtest.CallOf("a", "read_file", `{"path":"x"}`), toolcribtest.CallOf("", "list_directory", `{`)),
		toolcribtest.Fail(toolcrib.ErrRateLimit),
		toolcribtest.Say("done").Using(7, 3),
		toolcribtest.Reply{Parts: []toolcrib.Part{{Text: "half"}}, Cut: true},
	)
	req := &toolcrib.Request{Messages: []toolcrib.Message{toolcrib.TextMessage(toolcrib.RoleUser, "hello")}, Temperature: new(0.5)}
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

func TestModel_StallsUntilReleasedOrCancelled(t *testing.T) {
	release := make(chan struct{})
	m := toolcribtest.NewModelFunc(func(n int, _ *toolcrib.Request) toolcribtest.Reply {
		r := toolcribtest.Say("late")
		if n == 0 {
			r.Wait = release
		} else {
			r.Hold = make(chan struct{})
		}
		return r
	})
	done := make(chan error)
	go func() { _, err := ask(t.Context(), m, &toolcrib.Request{}); done <- err }()
	if err := m.WaitForRequests(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("released: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, err := ask(ctx, m, &toolcrib.Request{}); done <- err }()
	if err := m.WaitForRequests(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestModel_Panics(t *testing.T) {
	defer func() {
		if got := recover(); got != "boom" {
			t.Errorf("recovered %v", got)
		}
	}()
	_, _ = ask(t.Context(), toolcribtest.NewModel(toolcribtest.Reply{Panic: "boom"}), &toolcrib.Request{})
}

func TestTool_RecordsCalls(t *testing.T) {
	release := make(chan struct{})
	tool := toolcribtest.NewTool(toolcribtest.ToolOptions{
		Spec: toolcrib.Spec{Name: "slow"}, Hold: release,
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
	if err := tool.WaitForCalls(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if tool.Running() != 3 {
		t.Errorf("%d calls run, want 3", tool.Running())
	}
	close(release)
	calls.Wait()
	if len(tool.Calls()) != 3 || tool.Running() != 0 {
		t.Errorf("calls %d, running %d", len(tool.Calls()), tool.Running())
	}
}

func TestTool_FailsFaultsPanicsAndHonoursCancel(t *testing.T) {
	fault := errors.New("disk on fire")
	for _, want := range []error{toolcrib.Failf(toolcrib.NotFound, "x"), fault} {
		if _, err := toolcribtest.NewTool(toolcribtest.ToolOptions{Err: want}).Call(t.Context(), toolcrib.Call{}); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := toolcribtest.ReadOnly("x", "y").Call(ctx, toolcrib.Call{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	writer := toolcribtest.Writer("w", "written")
	if err := writer.Spec().Check(); err != nil || !writer.Spec().Effect.Writes() {
		t.Errorf("writer: %v, %q", err, writer.Spec().Effect)
	}
	defer func() {
		if got := recover(); got != "boom" {
			t.Errorf("recovered %v", got)
		}
	}()
	_, _ = toolcribtest.NewTool(toolcribtest.ToolOptions{Panic: "boom"}).Call(t.Context(), toolcrib.Call{})
}
