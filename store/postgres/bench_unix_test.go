//go:build unix

package postgres_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// wholeRun appends what a run with 5 rounds does, as the loop groups it: 13 appends.
func wholeRun(b *testing.B, s store.Store, run toolcrib.RunID) {
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
	start := &journal.RunStarted{Agent: toolcrib.Agent{Name: "default"}, Principal: toolcrib.Principal{User: "ann"}}
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

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it does not fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// both runs a benchmark with SQLite and PostgreSQL.
func both(b *testing.B, bench func(*testing.B, store.Store)) {
	measured := func(b *testing.B, s store.Store) {
		before := cpu()
		bench(b, s)
		b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
	}
	b.Run("sqlite", func(b *testing.B) {
		s, err := sqlite.Open(b.Context(), b.TempDir()+"/toolcrib.db", sqlite.Options{})
		if err != nil {
			b.Fatal(err)
		}
		measured(b, s)
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	b.Run("postgres", func(b *testing.B) {
		_, address, keys := migrated(b)
		measured(b, openAt(b, address, postgres.Options{Keys: keys}))
	})
}

// BenchmarkRun is whole runs, one after another; BenchmarkRuns32 has 32 at once.
func BenchmarkRun(b *testing.B) {
	both(b, func(b *testing.B, s store.Store) {
		for i := 0; b.Loop(); i++ {
			wholeRun(b, s, toolcrib.RunID(fmt.Sprintf("run_%d", i)))
		}
	})
}

func BenchmarkRuns32(b *testing.B) {
	both(b, func(b *testing.B, s store.Store) {
		var runs atomic.Int64
		b.SetParallelism(max(1, 32/runtime.GOMAXPROCS(0)))
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				wholeRun(b, s, toolcrib.RunID(fmt.Sprintf("run_%d", runs.Add(1))))
			}
		})
	})
}

// BenchmarkServers is whole runs on several servers at once, 16 on each.
func BenchmarkServers(b *testing.B) {
	for _, n := range []int{1, 2, 4} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			_, address, keys := migrated(b)
			stores := make([]store.Store, n)
			for i := range stores {
				stores[i] = openAt(b, address, postgres.Options{Keys: keys})
			}
			var runs atomic.Int64
			b.SetParallelism(max(1, 16*n/runtime.GOMAXPROCS(0)))
			b.RunParallel(func(pb *testing.PB) {
				s := stores[runs.Add(1)%int64(n)]
				for pb.Next() {
					wholeRun(b, s, toolcrib.RunID(fmt.Sprintf("run_%d", runs.Add(1))))
				}
			})
		})
	}
}
