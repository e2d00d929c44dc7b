package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/tool"
)

// crib is toolcrib's loop on the same work: gate, validation and journal on.
type crib struct {
	runner *agent.Runner
	stop   func() error
}

// store is what a runner keeps runs in.
type store interface {
	toolcrib.Journal
	toolcrib.Contents
}

// newCrib returns toolcrib's loop over a model at url. If called is not nil, it is called for each
// tool call.
func newCrib(url string, stream bool, s store, stop func() error, called func()) (*crib, error) {
	model, err := openai.New(openai.Options{
		BaseURL: url, APIKey: "key", Proxy: "none",
		NoStream: !stream,
	})
	if err != nil {
		return nil, err
	}
	look, err := tool.Func(toolcrib.Spec{
		Name: "lookup", Description: lookupDescription, Parameters: json.RawMessage(lookupSchema),
		Effect: toolcrib.EffectReadOnly,
	}, func(_ context.Context, _ toolcrib.Call, a lookupArgs) (lookupResult, error) {
		if called != nil {
			called()
		}
		return lookup(a), nil
	})
	if err != nil {
		return nil, err
	}
	runner, err := agent.New(agent.Options{Journal: s, Contents: s, Tools: []toolcrib.Tool{look}, Model: model})
	return &crib{runner: runner, stop: stop}, err
}

func newMemoryCrib(url string, stream bool) (*crib, error) {
	return newCrib(url, stream, &perRun{}, func() error { return nil }, nil)
}

func newSQLiteCrib(url string, stream bool, dir string) (*crib, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s, err := sqlite.Open(context.Background(), filepath.Join(dir, "crib.db"), sqlite.Options{})
	if err != nil {
		return nil, err
	}
	return newCrib(url, stream, s, s.Close, nil)
}

// newPostgresCrib uses a server of PostgreSQL on this machine, which syncs as it does by default.
func newPostgresCrib(url string, stream bool, dir string) (*crib, error) {
	ctx := context.Background()
	database, err := postgrestest.Start(ctx, "fsync=on")
	if err != nil {
		return nil, err
	}
	address, keys := database.URL("postgres").String(), filepath.Join(dir, "keys")
	_, err = postgres.Migrate(ctx, address, postgres.MigrateOptions{Keys: keys})
	var s *postgres.Store
	if err == nil {
		s, err = postgres.Open(ctx, address, postgres.Options{Keys: keys})
	}
	if err != nil {
		return nil, errors.Join(err, database.Stop())
	}
	return newCrib(url, stream, s, func() error { return errors.Join(s.Close(), database.Stop()) }, nil)
}

func (c *crib) run(ctx context.Context, model string, rounds int) (string, error) {
	limits := toolcrib.DefaultLimits()
	limits.MaxIterations = min(rounds+1, toolcrib.MaxIterationsCeiling)
	s, err := c.runner.Run(ctx, agent.Task{
		Agent: toolcrib.Agent{Name: "default", Model: "mock/" + model, System: system, Limits: limits},
		Models: []journal.ModelInfo{{
			Ref: "mock/" + model, Provider: "mock", ID: model,
			Price: toolcrib.Price{Input: 0.25, Output: 2, Known: true},
		}},
		Principal: toolcrib.Principal{User: "bench"},
		Prompt:    prompt, Workspace: "/",
		Hosted: agent.Hosted{Driver: "cli"},
	})
	if err != nil {
		return "", err
	}
	if s.Done == nil {
		return "", fmt.Errorf("the run did not complete: %+v", s.Failed)
	}
	return s.Done.Content, nil
}
