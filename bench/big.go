package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"runtime"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/tool"
)

// bigResult measures what a result of 1 MB costs in memory: a run with it, less the
// same run with a small one. The text itself exists before.
func bigResult() error {
	small, err := allocated(16)
	if err != nil {
		return err
	}
	big, err := allocated(1 << 20)
	if err != nil {
		return err
	}
	fmt.Printf("\na result of 1 MB, journal in memory: %.2f MB allocated\n", float64(big-small)/(1<<20))
	return nil
}

// turns answers from a list, by the number of requests.
type turns struct {
	replies [][]toolcrib.Delta
	n       int
}

func (t *turns) Stream(context.Context, *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		for _, d := range t.replies[t.n] {
			if !yield(d, nil) {
				return
			}
		}
		t.n++
	}
}

func allocated(size int) (uint64, error) {
	text := strings.Repeat("x", size)
	read, err := tool.Func(toolcrib.Spec{
		Name: "read", Effect: toolcrib.EffectReadOnly,
		Parameters: json.RawMessage(`{"type":"object"}`),
	},
		func(context.Context, toolcrib.Call, struct{}) (string, error) { return text, nil })
	if err != nil {
		return 0, err
	}
	g, err := gate.New(gate.Options{Tools: []toolcrib.Tool{read}, Availability: enabled{}})
	if err != nil {
		return 0, err
	}
	end := toolcrib.Delta{Finish: &toolcrib.Finish{Reason: toolcrib.FinishStop}}
	var least uint64
	for range 10 {
		kept := &journal.Memory{}
		model := &turns{replies: [][]toolcrib.Delta{
			{{ToolCall: &toolcrib.ToolCallDelta{Name: "read"}}, end},
			{{Text: "ok"}, end},
		}}
		runner, err := agent.New(agent.Options{
			Journal: kept, Contents: kept, Gate: g,
			Models: func(context.Context, journal.ModelInfo) (toolcrib.Model, error) { return model, nil },
		})
		if err != nil {
			return 0, err
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := runner.Run(context.Background(), agent.Task{
			Agent:  toolcrib.Agent{Name: "default", Limits: toolcrib.DefaultLimits()},
			Models: []journal.ModelInfo{{Ref: "m", Provider: "m", ID: "m"}}, Prompt: "go",
		}); err != nil {
			return 0, err
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; least == 0 || n < least {
			least = n
		}
	}
	return least, nil
}
