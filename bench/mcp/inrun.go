package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal/inmemory"
	"github.com/toolcrib/toolcrib/mcp"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// What a model asks for in a run: so many turns, with so many calls each.
const (
	runTurns  = 8
	turnCalls = 8
)

// inRun makes the calls in runs of the library: the gateway is the gate in front of the MCP client.
type inRun struct {
	self  string // has the tool's server
	store string // a folder, for SQLite with the durable barrier; "" = in memory
	model toolcrib.Model
	each  int // calls of a run; 1 = it is given the call, and asks no model
}

func newInRun(self, store string, each int) (*inRun, error) {
	var text bytes.Buffer
	for turn := range runTurns {
		text.WriteString("- tool_calls:\n")
		for call := range turnCalls {
			fmt.Fprintf(&text, "  - {name: up__lookup, arguments: {word: gate %d %d}}\n", turn, call)
		}
	}
	text.WriteString("- text: done\n")
	model, err := script.New(script.Options{Bytes: text.Bytes()})
	return &inRun{self: self, store: store, model: model, each: each}, err
}

// calls makes calls of the tool in runs; the time of one is its part of that of its run.
func (r *inRun) calls(n int) (walls []time.Duration, err error) {
	ctx := context.Background()
	server := mcp.Server{Name: "up", Command: r.self, Args: []string{"upstream"}, Trusted: true}
	client, err := mcp.New(server, mcp.Options{})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	client.Start()
	client.Wait(ctx)
	if len(client.Definitions()) != 1 {
		return nil, fmt.Errorf("the server: %+v", client.State())
	}
	o := agent.Options{Tools: []toolcrib.Tool{client.Tool(client.Definitions()[0])}, Model: r.model}
	memory := &inmemory.Journal{}
	o.Journal, o.Contents = memory, memory
	if r.store != "" {
		db, err := sqlite.Open(ctx, filepath.Join(r.store, "runs.db"), sqlite.Options{})
		if err != nil {
			return nil, err
		}
		defer db.Close()
		o.Journal, o.Contents = db, db
	}
	runner, err := agent.New(o)
	if err != nil {
		return nil, err
	}
	for range n / r.each {
		from := time.Now()
		if err := r.run(ctx, runner); err != nil {
			return nil, err
		}
		for range r.each {
			walls = append(walls, time.Since(from)/time.Duration(r.each))
		}
	}
	return walls, nil
}

// run makes one run of so many calls.
func (r *inRun) run(ctx context.Context, runner *agent.Runner) error {
	task := agent.Task{Principal: toolcrib.Principal{User: "bench"}, Prompt: "Look the words up."}
	if r.each == 1 {
		task.Prompt = ""
		task.Given = &toolcrib.ToolCall{ID: "call_1", Name: "up__lookup", Arguments: json.RawMessage(`{"word":"gate"}`)}
	}
	s, err := runner.Run(ctx, task)
	if err != nil {
		return err
	}
	if len(s.Trace) != r.each {
		return fmt.Errorf("%d calls of %d: %+v", len(s.Trace), r.each, s.Failed)
	}
	for _, c := range s.Trace {
		if c.Result == nil || c.Result.Status != toolcrib.ResultOK {
			return errors.New("a call has failed")
		}
	}
	return nil
}
