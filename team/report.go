package team

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Loader reads a stored run.
type Loader func(ctx context.Context, run toolcrib.RunID) (*agent.State, error)

// ReportOf makes the report of a run, or returns nil if no conductor drives it. load loads the runs of
// workers; runs that it cannot load are left out.
func ReportOf(ctx context.Context, s *agent.State, load Loader) *api.Report {
	p := PlanOf(s.Start)
	if p == nil {
		return nil
	}
	r := &api.Report{Tool: string(p.Kind), Answers: []api.Answer{}}
	task := ""
	if p.From < len(s.Start.Input) {
		task = s.Start.Input[p.From].Text()
		r.Question = p.questionIn(task)
	}
	for _, c := range s.Trace {
		if c.Name != spawnTool {
			continue
		}
		r.Answers = append(r.Answers, p.answerOf(ctx, c, load))
	}
	if p.Again > 0 {
		if before, err := load(ctx, s.Start.ForkedFrom); err == nil && before.Start != nil {
			r.Answers = p.after(ReportOf(ctx, before, load), r.Answers)
		}
	}
	r.StoppedEarly = s.Done != nil && s.Done.Status == toolcrib.StatusCompleted && slices.ContainsFunc(r.Answers,
		func(a api.Answer) bool { return a.Status == string(toolcrib.StatusCancelled) })
	r.Usage = s.Children.Usage
	p.sum(r)
	if p.Kind == Assess && s.Done != nil {
		all, _ := p.replies(s.Messages[min(p.From, len(s.Messages)-1)+1:])
		if answered(all) > 0 {
			r.Assessment = p.assessment(all, subjectIn(task))
		}
	}
	return r
}

// after returns the answers of a report that are not asked for again, and the new ones.
func (p *Plan) after(before *api.Report, answers []api.Answer) (all []api.Answer) {
	if before == nil {
		return answers
	}
	for i := range before.Answers {
		old := &before.Answers[i]
		if old.Response != "" && !slices.ContainsFunc(answers, func(a api.Answer) bool {
			return a.Role == old.Role && (a.Agent == old.Agent || a.Role == roleSynthesizer)
		}) {
			all = append(all, *old)
		}
	}
	all = append(all, answers...)
	if p.Kind != Coordinate {
		slices.SortStableFunc(all, func(a, b api.Answer) int {
			return cmp.Compare(slices.Index(p.Agents, a.Agent), slices.Index(p.Agents, b.Agent))
		})
	}
	return all
}

// answerOf returns the answer of one agent.
func (p *Plan) answerOf(ctx context.Context, c *core.Call, load Loader) api.Answer {
	var asked struct {
		Agent string `json:"agent"`
	}
	_ = json.Unmarshal(c.Arguments, &asked) // written by the conductor
	a := api.Answer{Agent: asked.Agent, Status: string(toolcrib.StatusQueued)}
	if role := roleOf(c.ID); role != roleAsked {
		a.Role = role
	}
	var child *agent.State
	if c.Child != nil {
		a.RunID = c.Child.Run
		if found, err := load(ctx, c.Child.Run); err == nil && found.Start != nil {
			child = found
		}
	}
	if child != nil {
		p.of(&a, child)
	}
	if r := c.Result; r != nil && r.Status != toolcrib.ResultOK && (child == nil || child.Done == nil) {
		p.failed(&a, r)
	}
	return a
}

// of copies fields from the run of a worker.
func (p *Plan) of(a *api.Answer, s *agent.State) {
	if len(s.Models) > 0 {
		model := s.Models[min(s.Model, len(s.Models)-1)]
		a.Provider, a.Model = model.Provider, model.Ref
	}
	a.Status = string(s.Status)
	a.ElapsedMS, a.Usage = s.Updated.Sub(s.Started).Milliseconds(), s.Spent()
	a.Attempts = a.Usage.Requests
	switch {
	case s.Done != nil && s.Done.Content != "":
		a.Response, a.Truncated = s.Done.Content, s.Done.Truncated
		v, voted := ballotOf(a.Response)
		if voted && (p.Ballot || a.Role == roleCritic) {
			a.Ballot = v.Ballot
		}
		if p.Kind == Coordinate {
			a.Citations = v.Citations
		}
	case s.Done != nil:
		a.Error, a.ErrorKind = "no answer: "+string(s.Done.StopReason), "other"
		if s.Stopping != nil && s.Stopping.Message != "" {
			a.Error += ": " + s.Stopping.Message
		}
		if s.Done.StopReason == toolcrib.StopWallTime {
			a.ErrorKind = "timeout"
		}
	case s.Failed != nil:
		a.Error, a.ErrorKind = s.Failed.Text(), errorKind(s)
	}
	a.CanaryLeaked = strings.Contains(a.Response, guard.CanaryRedacted)
	if s.Start.Worker == nil {
		return
	}
	blocked := false
	for i, c := range s.Trace {
		name := c.Name
		if c.ProviderName != "" {
			name = c.ProviderName
		}
		call := api.InnerCall{Hop: i + 1, Name: name, Status: innerStatus(c.Result)}
		if c.Result != nil {
			call.Reason = c.Result.Reason
			blocked = blocked || c.Result.Reason == toolcrib.ReasonCostCapExceeded
		}
		a.InnerCalls = append(a.InnerCalls, call)
	}
	if p.capped() {
		spent := s.Spent().CostUSD
		a.CostCap = &api.CostCap{
			CapUSD: p.CapUSD, ObservedUSD: spent, Mode: p.CapMode, Exceeded: spent > p.CapUSD, Blocked: blocked,
		}
	}
}

// failed copies the reason why a call has no answer.
func (p *Plan) failed(a *api.Answer, r *journal.ToolResult) {
	if a.Error == "" {
		why := reply{text: r.Content}
		if a.Error = why.why(); r.Status == toolcrib.ResultRefused {
			a.Error = string(r.Reason) + ": " + a.Error
		}
		if r.Fault != "" {
			a.Error = r.Fault
		}
	}
	if a.Status == string(toolcrib.StatusQueued) {
		if a.Status = string(toolcrib.StatusFailed); r.Status == toolcrib.ResultCancelled {
			a.Status = string(toolcrib.StatusCancelled)
		}
	}
	switch {
	case a.ErrorKind != "":
	case r.Status == toolcrib.ResultTimeout:
		a.ErrorKind = "timeout"
	case r.Fault != "", r.Status == toolcrib.ResultRefused:
		a.ErrorKind = "config"
	default:
		a.ErrorKind = "other"
	}
}

// errorKind classifies the failure of a run.
func errorKind(s *agent.State) string {
	if s.Failed.Code == core.CodeSchemaMismatch {
		return "parse"
	}
	if s.LastFailed == nil {
		return "other"
	}
	switch class := s.LastFailed.Class; class {
	case toolcrib.ErrAuth, toolcrib.ErrRateLimit, toolcrib.ErrTimeout, toolcrib.ErrNetwork:
		return string(class)
	case toolcrib.ErrOverloaded:
		return "server"
	case toolcrib.ErrBadRequest, toolcrib.ErrContextLength:
		return "client"
	}
	return "other"
}

// sum adds the fields that are computed from the answers.
func (p *Plan) sum(r *api.Report) {
	for i := range r.Answers {
		a := &r.Answers[i]
		if a.Ballot != "" {
			if r.Ballots == nil {
				r.Ballots = map[string]int{}
			}
			r.Ballots[a.Ballot]++
		}
		if a.CanaryLeaked {
			r.CanaryLeaks = append(r.CanaryLeaks, api.CanaryLeak{
				Agent: a.Agent, Provider: a.Provider, Model: a.Model,
				Count: strings.Count(a.Response, guard.CanaryRedacted),
			})
		}
		switch a.Role {
		case roleProposer:
			r.ProposalAnswer, r.Proposal = a, object(a.Response)
		case roleCritic:
			r.CritiqueAnswers = append(r.CritiqueAnswers, *a)
			if one := object(a.Response); one != nil {
				r.Critiques = append(r.Critiques, one)
			}
		case roleSynthesizer:
			r.SynthesisAnswer = a
			if r.Synthesis = object(a.Response); a.Error != "" {
				r.SynthesisErrors = append(r.SynthesisErrors, a.Agent+": "+a.Error)
			}
		}
	}
	if p.Asked {
		r.WorkerTools = p.echo(r.Answers)
	}
}

// echo returns the tools that the workers had, and their cost (X5, X13, X15 to X18).
func (p *Plan) echo(answers []api.Answer) *api.WorkerTools {
	w := &api.WorkerTools{HopBudget: HopBudget}
	w.Accepted, w.Rejected = append([]string{}, p.Tools...), append([]string{}, p.Rejected...) // a JSON list, not null
	if p.Kind == Coordinate {
		w.AppliesTo = []string{roleProposer, roleCritic}
	}
	if !p.capped() {
		return w
	}
	c := &api.CapSummary{CapUSD: p.CapUSD, Mode: p.CapMode}
	for i := range answers {
		a := &answers[i]
		if a.CostCap == nil {
			continue
		}
		c.ExceededAny = c.ExceededAny || a.CostCap.Exceeded
		c.BlockedAny = c.BlockedAny || a.CostCap.Blocked
		one := api.WorkerCap{Agent: a.Agent, Provider: a.Provider, Role: a.Role, CostCap: *a.CostCap}
		if p.Kind == Coordinate {
			c.PerRole = append(c.PerRole, one)
		} else {
			c.PerProvider = append(c.PerProvider, one)
		}
	}
	switch {
	case !c.ExceededAny, c.BlockedAny:
	case p.CapMode == CapEnforce:
		c.OperatorPrompt = fmt.Sprintf("Workers have spent more than their cap of $%g each on answers that no call followed, so "+
			"no call was refused. Ask the person whether to raise the cap (worker_tool_cost_cap_usd) or to keep it.", p.CapUSD)
	default:
		c.OperatorPrompt = fmt.Sprintf("Workers have spent more than their cap of $%g each. Ask the person how to proceed: "+
			"enforce the cap, keep the warning, or switch the cap off (worker_tool_cost_cap_mode).", p.CapUSD)
	}
	w.CostCap = c
	return w
}
