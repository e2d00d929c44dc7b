package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/tool"
	"github.com/toolcrib/toolcrib/toolcribtest"
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
	var least uint64
	for range 10 {
		runner, err := agent.New(agent.Options{
			Tools: []toolcrib.Tool{read},
			Model: toolcribtest.NewModel(toolcribtest.Ask(toolcribtest.CallOf("", "read", "")), toolcribtest.Say("ok")),
		})
		if err != nil {
			return 0, err
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := runner.Run(context.Background(), agent.Task{Prompt: "go"}); err != nil {
			return 0, err
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; least == 0 || n < least {
			least = n
		}
	}
	return least, nil
}
