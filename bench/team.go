package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/bench/stat"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
	"github.com/toolcrib/toolcrib/provider/openai"
	"github.com/toolcrib/toolcrib/team"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/tool/verify"
)

// panel asks several agents one question. The models of its agents are those of the mock server, whose
// names say how they answer.
type panel struct {
	model toolcrib.Model
	gates map[int]*gate.Gate // by the number of agents
}

// options are those of a team, and of one agent alone. A journal holds what belongs to one question.
func (p *panel) options(models []string) agent.Options {
	all := make([]spawn.Agent, len(models))
	for i := range models {
		all[i].Name = member(i)
	}
	g, kept := p.gates[len(models)], &inmemory.Journal{}
	if g == nil {
		var err error
		g, err = gate.New(gate.Options{
			Tools: append(verify.New(verify.Options{}), spawn.New(all)), Availability: gate.Overrides{},
		})
		if err != nil {
			panic(err) // of tools of our own
		}
		p.gates[len(models)] = g
	}
	return agent.Options{
		Gate: g, Journal: kept, Contents: kept, Retry: &journal.Retry{},
		Models: func(context.Context, journal.ModelInfo) (toolcrib.Model, error) { return p.model, nil },
		Agents: func(_ context.Context, _ toolcrib.Principal, name, _ string) (agent.Task, error) {
			i := slices.IndexFunc(all, func(a spawn.Agent) bool { return a.Name == name })
			if i < 0 {
				return agent.Task{}, fmt.Errorf("there is no agent %s", name)
			}
			return agent.Task{
				Agent: toolcrib.Agent{Name: name, Model: "mock/" + models[i], System: system},
				Models: []journal.ModelInfo{{
					Ref: "mock/" + models[i], Provider: "mock", ID: models[i],
					Price: toolcrib.Price{Input: 0.25, Output: 2, Known: true},
				}},
			}, nil
		},
	}
}

func member(i int) string { return fmt.Sprintf("agent-%d", i) }

// ask asks all of them.
func (p *panel) ask(models, tools []string, most time.Duration) (*api.Report, *agent.State, error) {
	r := team.Request{Kind: team.Confer, Question: prompt, WorkerTools: tools, MaxTime: most}
	for i := range models {
		r.Agents = append(r.Agents, member(i))
	}
	return team.Run(context.Background(), p.options(models), agent.Task{
		Principal: toolcrib.Principal{User: "bench"}, Workspace: "/",
		Hosted: agent.Hosted{Driver: "cli"},
	}, r)
}

// alone asks one agent, as a run of its own.
func (p *panel) alone(model string, tools []string) error {
	o := p.options([]string{model})
	runner, err := agent.New(o)
	if err != nil {
		return err
	}
	task, err := o.Agents(context.Background(), toolcrib.Principal{}, member(0), "/")
	if err != nil {
		return err
	}
	task.Principal, task.Prompt, task.Workspace, task.Driver = toolcrib.Principal{User: "bench"}, prompt, "/", "cli"
	task.RunTools = append([]string{}, tools...)
	s, err := runner.Run(context.Background(), task)
	if err == nil && (s.Done == nil || s.Done.Content != mockAnswer) {
		err = fmt.Errorf("one agent alone: %+v %+v", s.Done, s.Failed)
	}
	return err
}

// teams measures ten agents on one question, compared with one agent alone, and a panel of fifty whose
// agents are cut, slow, busy and silent.
func teams(url string, runs int) error {
	model, err := openai.New(openai.Options{
		BaseURL: url, APIKey: "key", Proxy: "none", NoStream: true,
	})
	if err != nil {
		return err
	}
	p := &panel{model, map[int]*gate.Gate{}}
	fmt.Printf("\nten agents on one question, JSON, journal in memory\n")
	for _, work := range []struct {
		name, model string
		tools       []string
	}{{"one request each", "rounds-1", nil}, {"with two calls of worker tools each", "checks-2", []string{"verify"}}} {
		if err := p.ten(work.name, work.model, work.tools, max(runs/30, 3)); err != nil {
			return err
		}
	}
	if err := p.slowest(); err != nil {
		return err
	}
	return p.fifty()
}

// ten compares the CPU of ten agents side by side with ten times that of one alone.
func (p *panel) ten(name, model string, tools []string, n int) error {
	models := slices.Repeat([]string{model}, 10)
	kinds := []kind{
		{"alone", func(context.Context, string, int) (string, error) {
			for range 10 {
				if err := p.alone(model, tools); err != nil {
					return "", err
				}
			}
			return mockAnswer, nil
		}},
		{"team", func(context.Context, string, int) (string, error) {
			report, s, err := p.ask(models, tools, 0)
			if err != nil {
				return "", err
			}
			if s.Done == nil || strings.Count(s.Done.Content, mockAnswer) != 10 || report.Usage.Requests != 10*(1+2*len(tools)) {
				return "", fmt.Errorf("a team of ten: %+v %+v", s.Done, s.Failed)
			}
			return mockAnswer, nil
		}},
	}
	all, err := inTurns(kinds, "", 0, 1, n)
	if err != nil {
		return err
	}
	alone, together := all[0], all[1]
	fmt.Printf("  %-38s CPU %8s, %.2f × ten runs alone; %d allocations, %d bytes\n", name+":",
		stat.Median(together.cpu).Round(time.Microsecond), stat.Ratio(together.cpu, alone.cpu), together.allocs,
		together.bytes)
	return nil
}

// slowest compares the time of ten agents with that of the slowest of them.
func (p *panel) slowest() error {
	const most = 500
	var models []string
	for i := range 10 {
		models = append(models, fmt.Sprintf("wait-%d", most*(i+1)/10))
	}
	var one, ten []time.Duration
	for range 5 {
		began := time.Now()
		if err := p.alone(models[9], nil); err != nil {
			return err
		}
		one = append(one, time.Since(began))
		began = time.Now()
		if _, s, err := p.ask(models, nil, 0); err != nil || s.Done == nil {
			return fmt.Errorf("a team of ten: %w", err)
		}
		ten = append(ten, time.Since(began))
	}
	fmt.Printf("  %-38s wall %.2f × the slowest (%d ms)\n", "one after 50 ms, the last after 500:",
		stat.Ratio(ten, one), most)
	return nil
}

// fifty asks a panel of which some answer, some are cut or slow, and some never answer, within a time.
func (p *panel) fifty() error {
	const most = 2 * time.Second
	var models []string
	for range 10 {
		models = append(models, "rounds-1", "cut", "wait-300", "busy", "silent")
	}
	began := time.Now()
	report, s, err := p.ask(models, nil, most)
	took := time.Since(began)
	if err != nil {
		return err
	}
	count := map[string]int{}
	for i := range report.Answers {
		count[models[i]+" "+report.Answers[i].Status+" "+report.Answers[i].ErrorKind]++
	}
	fmt.Printf("  fifty, of whom ten are cut, ten slow, ten busy, ten silent: %s of at most %s; %v\n",
		took.Round(time.Millisecond), most, count)
	if s.Done == nil || took > most+most/2 {
		return fmt.Errorf("the panel of fifty took %s: %+v", took, s.Failed)
	}
	return nil
}

func onlyTeams(runs int) error {
	url, stop, err := startMock()
	if err != nil {
		return err
	}
	defer stop()
	return teams(url, runs)
}
