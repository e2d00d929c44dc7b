package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/tool/plan"
)

// program is a program that uses the library. It makes a run for each line that it reads.
type program struct{ *process }

func (b *bench) startLibrary(_ context.Context, dir string) (*program, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := startProcess(exec.Command(self, "library", dir, b.model.url), false)
	return &program{p}, err
}

func (p *program) run() error {
	if _, err := fmt.Fprintln(p.in, "run"); err != nil {
		return err
	}
	line, err := p.out.ReadString('\n')
	if err == nil && line != answer+"\n" {
		err = fmt.Errorf("another answer: %q", line)
	}
	return err
}

func library(dir, url string) error {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, filepath.Join(dir, "library.db"), sqlite.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	r, err := runnerOn(s, url)
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		state, err := r.Run(ctx, task("cli", dir))
		if err != nil {
			return err
		}
		text, err := state.Answer()
		if err != nil {
			return err
		}
		fmt.Println(text)
	}
	return nil
}

// runnerOn makes a runner with the tool and the model that the server has.
func runnerOn(s *sqlite.Store, url string) (*agent.Runner, error) {
	model, err := openai.New(openai.Options{BaseURL: url, APIKey: "none", Proxy: "none"})
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Options{Journal: s, Contents: s, Tools: []toolcrib.Tool{plan.New()}, Model: model})
}

// task is the run that a request for one begins.
func task(driver, workspace string) agent.Task {
	return agent.Task{
		Agent:     toolcrib.Agent{Name: "default", Model: "mock/rounds", System: system, Tools: []string{"update_plan"}},
		Models:    []journal.ModelInfo{{Ref: "mock/rounds", Provider: "mock", ID: "rounds"}},
		Principal: toolcrib.Principal{User: "admin"}, Prompt: prompt, Workspace: workspace,
		Approve: agent.ApproveNone,
		Hosted:  agent.Hosted{Driver: driver},
	}
}
