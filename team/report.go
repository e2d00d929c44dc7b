package team

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Report is the outcome of a team's run, computed from its journal and those of its workers.
type Report struct {
	Tool     Kind     `json:"tool"`
	Question string   `json:"question"`
	Answers  []Answer `json:"answers"`

	// Ballots counts the ballots of a confer, or of the critics. StoppedEarly is set if some answers were not awaited.
	Ballots      map[string]int `json:"ballots,omitempty"`
	StoppedEarly bool           `json:"stopped_early,omitempty"`

	// For a coordinate: the answers with these roles, which are also in Answers.
	ProposalAnswer  *Answer           `json:"proposal_answer,omitempty"`
	CritiqueAnswers []Answer          `json:"critique_answers,omitempty"`
	SynthesisAnswer *Answer           `json:"synthesis_answer,omitempty"`
	Proposal        json.RawMessage   `json:"proposal_structured,omitempty"`
	Critiques       []json.RawMessage `json:"critique_structured,omitempty"`
	Synthesis       json.RawMessage   `json:"synthesis_structured,omitempty"`
	SynthesisErrors []string          `json:"synthesis_errors,omitempty"`

	Assessment *Assessment `json:"assessment,omitempty"`

	WorkerTools *WorkerTools   `json:"worker_tools,omitempty"`
	CanaryLeaks []CanaryLeak   `json:"canary_leaks,omitempty"`
	Usage       toolcrib.Usage `json:"usage"` // usage of the agents
}

// Answer is the answer of one agent, or the reason why it gave none.
type Answer struct {
	Agent     string         `json:"agent"`
	Role      string         `json:"role,omitempty"`
	RunID     toolcrib.RunID `json:"run_id,omitempty"`
	Provider  string         `json:"provider,omitempty"`
	Model     string         `json:"model,omitempty"`
	Status    string         `json:"status"` // completed, failed, cancelled, …
	Response  string         `json:"response,omitempty"`
	Ballot    string         `json:"ballot,omitempty"`
	Citations []string       `json:"citations,omitempty"` // for a coordinate
	Truncated bool           `json:"truncated,omitempty"`
	Error     string         `json:"error,omitempty"`
	ErrorKind string         `json:"error_kind,omitempty"`
	ElapsedMS int64          `json:"elapsed_ms"`
	Attempts  int            `json:"attempts"` // number of requests to the model
	Usage     toolcrib.Usage `json:"usage"`

	InnerCalls   []InnerCall `json:"inner_tool_calls,omitempty"`
	CostCap      *CostCap    `json:"cost_cap,omitempty"`
	CanaryLeaked bool        `json:"canary_leaked,omitempty"`
}

// InnerCall is a call that a worker attempted. Status is ok, error, timeout, refused, parse_error,
// hop_budget_exhausted or cost_cap_exceeded.
type InnerCall struct {
	Hop    int             `json:"hop"`
	Name   string          `json:"name"`
	Status string          `json:"status"`
	Reason toolcrib.Reason `json:"reason,omitempty"` // set if the call was refused
}

// CostCap is the part of its cap that a worker has spent.
type CostCap struct {
	CapUSD      float64 `json:"cap_usd"`
	ObservedUSD float64 `json:"observed_usd"`
	Mode        string  `json:"mode"`
	Exceeded    bool    `json:"exceeded"`
	Blocked     bool    `json:"blocked"`
}

// WorkerTools lists the tools that the workers had.
type WorkerTools struct {
	Accepted  []string    `json:"accepted"`
	Rejected  []string    `json:"rejected"`
	HopBudget int         `json:"hop_budget"`
	AppliesTo []string    `json:"applies_to,omitempty"`
	CostCap   *CapSummary `json:"cost_cap,omitempty"`
}

// CapSummary sums up the caps of all workers.
type CapSummary struct {
	CapUSD      float64     `json:"cap_usd"`
	Mode        string      `json:"mode"`
	ExceededAny bool        `json:"exceeded_any"`
	BlockedAny  bool        `json:"blocked_any"`
	PerProvider []WorkerCap `json:"per_provider,omitempty"`
	PerRole     []WorkerCap `json:"per_role,omitempty"`
	// OperatorPrompt is a question for the person who asked the team.
	OperatorPrompt string `json:"operator_prompt,omitempty"`
}

// WorkerCap is the cap of one worker.
type WorkerCap struct {
	Agent    string `json:"agent"`
	Provider string `json:"provider,omitempty"`
	Role     string `json:"role,omitempty"`
	CostCap
}

// CanaryLeak reports that an agent repeated untrusted data.
type CanaryLeak struct {
	Agent    string `json:"agent"`
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Count    int    `json:"count"`
}

// Answered reports whether an agent gave an answer.
func (r *Report) Answered() bool {
	return slices.ContainsFunc(r.Answers, func(a Answer) bool { return a.Response != "" })
}

// Loader reads a stored run.
type Loader func(ctx context.Context, run toolcrib.RunID) (*agent.State, error)

// ReportOf makes the report of a run, or returns nil if no conductor drives it. load loads the runs of
// workers; runs that it cannot load are left out.
func ReportOf(ctx context.Context, s *agent.State, load Loader) *Report {
	p := PlanOf(s.Start)
	if p == nil {
		return nil
	}
	r := &Report{Tool: p.Kind, Answers: []Answer{}}
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
	r.Usage = s.Children.Usage
	r.sum(p)
	if p.Kind == Assess && s.Done != nil {
		all, _ := p.replies(s.Messages[min(p.From, len(s.Messages)-1)+1:])
		if answered(all) > 0 {
			r.Assessment = p.assessment(all, subjectIn(task))
		}
	}
	return r
}

// answerOf returns the answer of one agent.
func (p *Plan) answerOf(ctx context.Context, c *core.Call, load Loader) Answer {
	var asked struct {
		Agent string `json:"agent"`
	}
	_ = json.Unmarshal(c.Arguments, &asked) // written by the conductor
	a := Answer{Agent: asked.Agent, Status: string(toolcrib.StatusQueued)}
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
func (p *Plan) of(a *Answer, s *agent.State) {
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
		call := InnerCall{Hop: i + 1, Name: name, Status: innerStatus(c.Result)}
		if c.Result != nil {
			call.Reason = c.Result.Reason
			blocked = blocked || c.Result.Reason == toolcrib.ReasonCostCapExceeded
		}
		a.InnerCalls = append(a.InnerCalls, call)
	}
	if p.capped() {
		spent := s.Spent().CostUSD
		a.CostCap = &CostCap{
			CapUSD: p.CapUSD, ObservedUSD: spent, Mode: p.CapMode, Exceeded: spent > p.CapUSD, Blocked: blocked,
		}
	}
}

// failed copies the reason why a call has no answer.
func (p *Plan) failed(a *Answer, r *journal.ToolResult) {
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
func (r *Report) sum(p *Plan) {
	for i := range r.Answers {
		a := &r.Answers[i]
		if a.Ballot != "" {
			if r.Ballots == nil {
				r.Ballots = map[string]int{}
			}
			r.Ballots[a.Ballot]++
		}
		r.StoppedEarly = r.StoppedEarly || p.StopAt > 0 && a.Status == string(toolcrib.StatusCancelled)
		if a.CanaryLeaked {
			r.CanaryLeaks = append(r.CanaryLeaks, CanaryLeak{
				a.Agent, a.Provider, a.Model, strings.Count(a.Response, guard.CanaryRedacted),
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
func (p *Plan) echo(answers []Answer) *WorkerTools {
	w := &WorkerTools{HopBudget: HopBudget}
	w.Accepted, w.Rejected = append([]string{}, p.Tools...), append([]string{}, p.Rejected...) // a JSON list, not null
	if p.Kind == Coordinate {
		w.AppliesTo = []string{roleProposer, roleCritic}
	}
	if !p.capped() {
		return w
	}
	c := &CapSummary{CapUSD: p.CapUSD, Mode: p.CapMode}
	for i := range answers {
		a := &answers[i]
		if a.CostCap == nil {
			continue
		}
		c.ExceededAny = c.ExceededAny || a.CostCap.Exceeded
		c.BlockedAny = c.BlockedAny || a.CostCap.Blocked
		one := WorkerCap{Agent: a.Agent, Provider: a.Provider, Role: a.Role, CostCap: *a.CostCap}
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
