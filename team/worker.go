package team

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
)

// workers configures the runs of the agents that a conductor asks.
type workers struct {
	file    func(context.Context, *toolcrib.File) (toolcrib.OutputFile, error)
	anyHost bool
}

// shape implements [agent.Options.Shape]. Without worker tools the agent's request is the same as
// without a team and without tools (X4).
func (w workers) shape(ctx context.Context, above *journal.RunStarted, call string, task *agent.Task) error {
	p := PlanOf(above)
	if p == nil {
		return nil
	}
	role := roleOf(call)
	def := &task.Agent
	def.ToolChoice = toolcrib.ToolChoice{} // the agent has none of the tools that it could choose
	if schema := p.schema(role); schema != nil {
		def.OutputSchema = schema
	}
	def.Limits = def.Limits.WithDefaults()
	def.Limits.WallTime = min(def.Limits.WallTime, p.Time)
	if def.Limits.OnLimit == toolcrib.OnLimitAsk {
		def.Limits.OnLimit = toolcrib.OnLimitFinalize
	}
	// A failing worker is named, and delays the others no longer than this.
	task.Retry = &journal.Retry{
		First: min(above.Retry.First, p.Time/2), MaxElapsed: min(above.Retry.MaxElapsed, p.Time/2),
		Park: -time.Nanosecond,
	}
	task.Canary = p.Canary
	if len(p.toolsOf(role)) > 0 {
		if err := p.bound(task, w.anyHost); err != nil {
			return err
		}
	}
	return w.input(ctx, p, above, task)
}

// bound gives a worker its tools, with their limits.
func (p *Plan) bound(task *agent.Task, anyHost bool) error {
	def := &task.Agent
	task.Worker = &journal.WorkerLimits{Hops: HopBudget}
	if p.capped() {
		task.Worker.CostCapUSD, task.Worker.CostCapMode = p.CapUSD, p.CapMode
	}
	if p.capped() && p.CapMode == CapEnforce && len(task.Models) > 0 {
		if first := &task.Models[0]; !first.Price.Known {
			return fmt.Errorf("model %s has no known price, so the cost cap of workers cannot be enforced: set "+
				"models.NAME.price {input, output} in dollars per 1M tokens", first.Ref)
		}
		task.Models = slices.DeleteFunc(slices.Clone(task.Models), func(m journal.ModelInfo) bool { return !m.Price.Known })
	}
	if def.System != "" {
		def.System += "\n\n"
	}
	def.System += fmt.Sprintf(hint, HopBudget)
	def.TaintWrites = WorkerTaint(def.TaintWrites, anyHost)
	return nil
}

// WorkerTaint returns the taint.writes of a worker whose agent has writes. Asking a person about the
// second call would park the whole team, so a worker may reach the hosts that the configuration names.
// If that allows any host, a page could name one to send the question to.
func WorkerTaint(writes string, anyHost bool) string {
	switch {
	case writes == gate.TaintDeny, writes == gate.TaintAllow:
		return writes
	case anyHost:
		return gate.TaintDeny
	}
	return gate.TaintAllow
}

// input adds the files of the question to the task of a worker, and the conversation before it.
func (w workers) input(ctx context.Context, p *Plan, above *journal.RunStarted, task *agent.Task) error {
	if p.From >= len(above.Input) {
		return errors.New("the question is missing")
	}
	task.History = slices.Concat(said(above.Input[:p.From]), task.History)
	for _, part := range above.Input[p.From].Parts {
		if part.File == nil {
			continue
		}
		if w.file == nil {
			return errors.New("files cannot be read here")
		}
		f, err := w.file(ctx, part.File)
		if err != nil {
			return err
		}
		task.Files = append(task.Files, f)
	}
	return nil
}

// said returns a conversation without the questions and answers of a team, which are also in the answer
// of its run.
func said(messages []toolcrib.Message) []toolcrib.Message {
	roles := []string{roleAsked, roleProposer, roleCritic, roleSynthesizer, roleJudge}
	return slices.DeleteFunc(slices.Clone(messages), func(m toolcrib.Message) bool {
		return slices.ContainsFunc(m.Parts, func(p toolcrib.Part) bool {
			return p.ToolCall != nil && slices.Contains(roles, roleOf(p.ToolCall.ID)) ||
				p.ToolResult != nil && slices.Contains(roles, roleOf(p.ToolResult.CallID))
		})
	})
}

// innerStatus returns the status of a worker's call in reports (X6, X8, X9).
func innerStatus(r *journal.ToolResult) string {
	if r == nil {
		return "cancelled"
	}
	if r.Status != toolcrib.ResultRefused {
		return string(r.Status)
	}
	switch r.Reason {
	case toolcrib.ReasonParseError, toolcrib.ReasonHopBudgetExhausted, toolcrib.ReasonCostCapExceeded:
		return string(r.Reason)
	}
	return string(toolcrib.ResultRefused)
}

// object returns text if it is a JSON object, or nil.
func object(text string) json.RawMessage {
	var any map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &any) != nil || any == nil {
		return nil
	}
	return json.RawMessage(text)
}
