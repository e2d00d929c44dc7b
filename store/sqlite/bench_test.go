package sqlite_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// turn is what one turn with one call appends at once, about 2 KiB.
func turn() []toolcrib.Event {
	now := time.Now()
	bodies := []toolcrib.Body{
		&journal.Message{Request: 1, Iteration: 1, Finish: toolcrib.FinishToolCalls, Parts: []toolcrib.Part{{Text: strings.Repeat("text ", 50)}}},
		&journal.ToolCall{Iteration: 1, ToolCall: toolcrib.ToolCall{ID: "call_1", Name: "read_file", Arguments: []byte(`{"path":"README.md"}`)}},
		&journal.Usage{Request: 1, Sum: toolcrib.Usage{InputTokens: 1000, OutputTokens: 100, TotalTokens: 1100, Requests: 1}},
		&journal.Verdicts{Iteration: 1, Verdicts: []journal.Verdict{{CallID: "call_1", Tool: "read_file", Decision: toolcrib.Allow}}},
		&journal.ToolResult{ToolCallID: "call_1", Name: "read_file", Status: toolcrib.ResultOK, Content: strings.Repeat("line\n", 200)},
	}
	events := make([]toolcrib.Event, len(bodies))
	for i, b := range bodies {
		events[i] = toolcrib.Event{Time: now, Body: b}
	}
	return events
}

func barrier() []toolcrib.Event {
	return []toolcrib.Event{{Time: time.Now(), Body: &journal.ToolStarted{ID: "call_1", Name: "write_file", Write: true}}}
}

// wholeRun appends what a run with 5 rounds does, as the loop groups it: 13 appends, the
// last of them a barrier.
func wholeRun(b *testing.B, s *sqlite.Store, run toolcrib.RunID) {
	var after toolcrib.Seq
	var sum toolcrib.Usage
	add := func(bodies ...toolcrib.Body) {
		events := make([]toolcrib.Event, len(bodies))
		for i, body := range bodies {
			events[i] = toolcrib.Event{Time: time.Now(), Body: body}
		}
		if err := s.Append(b.Context(), run, after, events...); err != nil {
			b.Error(err)
		}
		after += toolcrib.Seq(len(events))
	}
	start := started("ann", "default", "", "")
	start.Models = []journal.ModelInfo{{Ref: "mock/m", Provider: "mock", ID: "m"}}
	add(start)
	result := []toolcrib.Body{&journal.TakenUp{Worker: "w", Epoch: 1}}
	for i := 1; i <= 5; i++ {
		add(append(result, &journal.ModelRequest{Request: i, Iteration: i, Attempt: 1, ReservedInput: 1000, ReservedOutput: 100})...)
		sum.InputTokens, sum.OutputTokens, sum.Requests = sum.InputTokens+1000, sum.OutputTokens+100, i
		add(
			&journal.Message{Request: i, Iteration: i, Finish: toolcrib.FinishToolCalls, Parts: []toolcrib.Part{{Text: strings.Repeat("text ", 20)}}},
			&journal.ToolCall{Iteration: i, ToolCall: toolcrib.ToolCall{ID: "call_1", Name: "read_file", Arguments: []byte(`{"path":"README.md"}`)}},
			&journal.Usage{Request: i, Sum: sum, Tokens: toolcrib.TokenUsage{InputTokens: 1000, OutputTokens: 100}},
			&journal.Verdicts{Iteration: i, Verdicts: []journal.Verdict{{CallID: "call_1", Tool: "read_file", Decision: toolcrib.Allow}}},
			&journal.ToolStarted{ID: "call_1", Name: "read_file"},
		)
		result = []toolcrib.Body{&journal.ToolResult{ToolCallID: "call_1", Name: "read_file", Status: toolcrib.ResultOK, Content: strings.Repeat("line\n", 50)}}
	}
	add(append(result, &journal.ModelRequest{Request: 6, Iteration: 6, Attempt: 1})...)
	sum.Requests++
	add(&journal.Message{Request: 6, Iteration: 6, Finish: toolcrib.FinishStop}, &journal.Usage{Request: 6, Sum: sum},
		&journal.Done{Status: toolcrib.StatusCompleted, StopReason: toolcrib.StopCompleted, Content: "ready", Usage: sum})
}

// BenchmarkRun is whole runs, one after another; BenchmarkRuns32 has 32 at once.
func BenchmarkRun(b *testing.B) {
	s := open(b)
	for i := 0; b.Loop(); i++ {
		wholeRun(b, s, toolcrib.RunID(fmt.Sprintf("run_%d", i)))
	}
}

func BenchmarkRuns32(b *testing.B) {
	s := open(b)
	var runs atomic.Int64
	b.SetParallelism(max(1, 32/runtime.GOMAXPROCS(0)))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			wholeRun(b, s, toolcrib.RunID(fmt.Sprintf("run_%d", runs.Add(1))))
		}
	})
	b.ReportMetric(float64(s.Stats().Commits)/float64(b.N), "commits/op")
	b.ReportMetric(float64(s.Stats().Synced)/float64(b.N), "synced/op")
}

func benchAppend(b *testing.B, events func() []toolcrib.Event) {
	s := open(b)
	var after toolcrib.Seq
	b.ReportAllocs()
	for b.Loop() {
		e := events()
		if err := s.Append(b.Context(), "run_a", after, e...); err != nil {
			b.Fatal(err)
		}
		after += toolcrib.Seq(len(e))
	}
}

func BenchmarkAppendTurn(b *testing.B) { benchAppend(b, turn) }

func BenchmarkAppendSmall(b *testing.B) {
	benchAppend(b, func() []toolcrib.Event {
		return []toolcrib.Event{{Time: time.Now(), Body: &journal.ToolStarted{ID: "call_1", Name: "read_file"}}}
	})
}

func BenchmarkAppendBarrier(b *testing.B) { benchAppend(b, barrier) }

// BenchmarkManyRuns appends barriers to 32 runs at once; commits/op shows how many of them share a
// sync.
func BenchmarkManyRuns(b *testing.B) {
	s := open(b)
	var runs atomic.Int64
	b.SetParallelism(16) // of 2 processors and more
	b.RunParallel(func(pb *testing.PB) {
		run := toolcrib.RunID(fmt.Sprintf("run_%d", runs.Add(1)))
		for after := toolcrib.Seq(0); pb.Next(); after++ {
			if err := s.Append(b.Context(), run, after, barrier()...); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(s.Stats().Commits)/float64(b.N), "commits/op")
}

func BenchmarkRead100(b *testing.B) {
	s := open(b)
	for i := range 20 {
		if err := s.Append(b.Context(), "run_a", toolcrib.Seq(5*i), turn()...); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		for _, err := range s.Read(b.Context(), "run_a", 0) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkOverrides(b *testing.B) {
	s := open(b)
	for b.Loop() {
		if _, err := s.Overrides(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen is the cold start on a database that exists.
func BenchmarkOpen(b *testing.B) {
	path := open(b).Path()
	for b.Loop() {
		s, err := sqlite.Open(b.Context(), path, sqlite.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
