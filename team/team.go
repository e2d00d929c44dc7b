// Package team lets several agents work on one question. Confer asks all of them concurrently.
// Coordinate has one propose an answer, others criticise it, and one write the synthesis. Assess has
// judges score an answer by a rubric.
//
// Each of these is a run. Its model is not a language model but the conductor, a pure function from
// the transcript to the next questions, which are calls of spawn. So each agent answers in a child run
// of its own, through the same loop, gate and journal as all others, and crashes, budgets, approvals
// and replay need no further code.
//
// The agents of a team have no tools unless the request names some of fetch and verify. A worker may
// call them twice; see [HopBudget].
package team

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Kind is the way in which a team works.
type Kind string

const (
	Confer     Kind = "confer"
	Coordinate Kind = "coordinate"
	Assess     Kind = "assess"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Confer, Coordinate, Assess} }

// HopBudget is how often a worker may try to call a tool. Refused and broken calls are counted.
// After one more call it answers without tools.
const HopBudget = 2

// InnerTools returns the tools that a worker may be given at all.
func InnerTools() []string { return []string{"fetch", "verify"} }

// The modes of a cost cap.
const (
	CapWarn    = "warn"
	CapEnforce = toolcrib.BudgetEnforce
	CapOff     = toolcrib.BudgetOff
)

// Limits on a request.
const (
	MaxAgents      = 100
	MaxRubric      = 100
	DefaultTime    = 10 * time.Minute
	maxTime        = 24 * time.Hour
	maxText        = 1 << 20
	minAgents      = 2 // for a coordinate
	timeToAnswer   = 15 * time.Second
	conductorTurns = 12
)

// Provider is the provider of the conductor in journals. No provider in a configuration can have this
// name.
const Provider = ":team"

// Request asks a team. Zero fields have their defaults. Its JSON is that of HTTP and MCP.
type Request struct {
	Kind     Kind   `json:"-"`
	Question string `json:"question,omitempty" jsonschema:"the question to the agents; with assess: the question that the answer is about"`
	Context  string `json:"context,omitempty" jsonschema:"additional text for the agents"`
	// Untrusted marks the context as untrusted data: it is fenced, and agents that repeat its canary
	// are reported.
	Untrusted bool                  `json:"untrusted_input,omitempty" jsonschema:"the context is untrusted data"`
	Taint     []string              `json:"-"` // sources of untrusted data in the input
	Files     []toolcrib.OutputFile `json:"-"` // sent with the question to each agent

	Agents      []string `json:"agents,omitempty" jsonschema:"the agents to ask; default: the agents of the panel"`
	Proposer    string   `json:"proposer,omitempty" jsonschema:"for coordinate; default: the first agent"`
	Synthesizer string   `json:"synthesizer,omitempty" jsonschema:"for coordinate; default: the first agent"`

	// WorkerTools must be in [InnerTools].
	WorkerTools []string `json:"worker_tools,omitempty" jsonschema:"fetch, verify or both; default: none"`
	CostCapUSD  float64  `json:"-"` // a worker that has spent it may not call a tool; 0 or less means no cap
	CostCapMode string   `json:"-"` // [CapWarn], [CapEnforce] or [CapOff]; "" and unknown = warn

	Ballot bool `json:"ballot,omitempty" jsonschema:"for confer: each agent votes yes, no or abstain"`
	// StopAt implies Ballot.
	StopAt float64 `json:"stop_at,omitempty" jsonschema:"for confer: stop when this share of the agents has cast the same ballot, such as 0.7; 0 = ask all"`

	Subject string `json:"answer,omitempty" jsonschema:"for assess: the answer to assess"`
	// Rubric is [DefaultRubric] if nil.
	Rubric []Item `json:"rubric,omitempty" jsonschema:"for assess; default: the rubric of the configuration"`

	MaxTime    time.Duration `json:"-"` // for the whole run; 0 means [DefaultTime]
	MaxCostUSD float64       `json:"max_cost_usd,omitempty" jsonschema:"in total; 0 = only the budgets of the agents apply"`
}

// Item is one item of a rubric.
type Item struct {
	ID          string `json:"id"`
	Description string `json:"description"`
	Severity    string `json:"severity"` // low, medium or high
}

// DefaultRubric returns the items by which an answer is scored if a request has none.
func DefaultRubric() []Item {
	return []Item{
		{"factual_grounding", "Claims are true, and supported by evidence in the answer or its sources.", "high"},
		{"constraint_adherence", "The answer keeps to the constraints of the question.", "high"},
		{"no_pii_leak", "The answer tells no personal data that the question does not call for.", "high"},
		{"internally_consistent", "The answer does not contradict itself.", "medium"},
		{"covers_open_questions", "The answer says what it leaves open, and does not pass over parts of the question.", "medium"},
		{"actionability", "Somebody who reads the answer knows what to do next.", "low"},
	}
}

// Plan is a checked request, which the conductor carries out. It is stored in the journal of the run,
// as part of its model.
type Plan struct {
	Kind        Kind     `json:"kind"`
	Agents      []string `json:"agents"`
	Proposer    string   `json:"proposer,omitempty"`
	Synthesizer string   `json:"synthesizer,omitempty"`
	// Asked reports whether the request named worker tools. Tools are those that the workers get.
	Asked    bool     `json:"worker_tools_asked,omitempty"`
	Tools    []string `json:"worker_tools,omitempty"`
	Rejected []string `json:"worker_tools_rejected,omitempty"`
	CapUSD   float64  `json:"cost_cap_usd,omitempty"`
	CapMode  string   `json:"cost_cap_mode,omitempty"`
	Ballot   bool     `json:"ballot,omitempty"`
	StopAt   float64  `json:"stop_at,omitempty"`
	Rubric   []Item   `json:"rubric,omitempty"`
	// Time is the time limit of each worker.
	Time time.Duration `json:"worker_time_ns,omitempty"`
	// Canary marks untrusted data for all workers. The run of the conductor has its own.
	Canary string `json:"canary,omitempty"`
	// From is the index of the question among the messages of the run. The question is the first Lines
	// lines of that message's text. If From is 0, there is no question.
	From  int `json:"from,omitempty"`
	Lines int `json:"question_lines,omitempty"`
	// Again is set in a run that asks the failed agents of another one again: the number of messages
	// from that run, in which failures do not count.
	Again int `json:"again,omitempty"`
}

func badf(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)
}

// NoticeIgnored is the code of notices about ignored parts of a request.
const NoticeIgnored = "team_ignored"

// Plan checks the request and returns its plan. known reports whether an agent exists. Unknown agents
// and duplicates are dropped with a notice.
func (r *Request) Plan(known func(string) bool) (*Plan, []toolcrib.Notice, error) {
	var notices []toolcrib.Notice
	tell := func(format string, args ...any) {
		notices = append(notices, toolcrib.Notice{Code: NoticeIgnored, Message: fmt.Sprintf(format, args...)})
	}
	p := &Plan{Kind: r.Kind, Canary: newCanary(), Ballot: r.Ballot || r.StopAt > 0, StopAt: r.StopAt}
	if err := r.check(); err != nil {
		return nil, nil, err
	}
	for _, name := range r.Agents {
		switch {
		case slices.Contains(p.Agents, name):
			tell("agent %s is listed twice; it is asked once", guard.Visible(name))
		case !known(name):
			tell("there is no agent %s; the others are asked", guard.Visible(name))
		default:
			p.Agents = append(p.Agents, name)
		}
	}
	if err := p.roles(r, known); err != nil {
		return nil, notices, err
	}
	p.tools(r, tell)
	if r.Kind == Assess {
		if p.Rubric = r.Rubric; p.Rubric == nil {
			p.Rubric = DefaultRubric()
		}
	}
	if r.Question != "" {
		p.Lines = 1 + strings.Count(guard.Clean(r.Question), "\n")
	}
	p.Time = r.time()
	if r.Kind == Coordinate {
		p.Time /= 3 // one part for each of its stages
	}
	return p, notices, nil
}

func (r *Request) time() time.Duration {
	if r.MaxTime == 0 {
		return DefaultTime
	}
	return r.MaxTime
}

func (r *Request) check() error {
	switch {
	case !slices.Contains(Kinds(), r.Kind):
		return badf("kind: must be confer, coordinate or assess, not %q", r.Kind)
	case r.Kind == Assess && strings.TrimSpace(r.Subject) == "":
		return badf("the answer to assess is empty")
	case r.Kind != Assess && strings.TrimSpace(r.Question) == "":
		return badf("the question is empty")
	case len(r.Question) > maxText, len(r.Context) > maxText, len(r.Subject) > maxText:
		return badf("question, context and answer: each may have at most %d bytes", maxText)
	case r.Untrusted && r.Kind != Assess && strings.TrimSpace(r.Context) == "":
		return badf("untrusted_input marks the context as untrusted data, and there is no context")
	case len(r.Agents) > MaxAgents:
		return badf("agents: at most %d, not %d", MaxAgents, len(r.Agents))
	case r.StopAt < 0, r.StopAt > 1, math.IsNaN(r.StopAt):
		return badf("stop_at: must be a share of the agents, such as 0.7")
	case r.Kind != Confer && (r.StopAt > 0 || r.Ballot):
		return badf("ballot and stop_at are for confer")
	case r.MaxTime < 0, r.MaxTime > maxTime:
		return badf("max_time: must be at most %s", maxTime)
	case r.MaxCostUSD < 0, math.IsNaN(r.MaxCostUSD), math.IsInf(r.MaxCostUSD, 0):
		return badf("max_cost_usd: must be 0 or more")
	case math.IsNaN(r.CostCapUSD), math.IsInf(r.CostCapUSD, 0):
		return badf("worker_tool_cost_cap_usd: must be a finite number")
	}
	return checkRubric(r.Rubric)
}

func checkRubric(items []Item) error {
	if items != nil && len(items) == 0 {
		return badf("the rubric has no items; leave it out for the default one")
	}
	if len(items) > MaxRubric {
		return badf("the rubric has %d items; at most %d are allowed", len(items), MaxRubric)
	}
	seen := map[string]bool{}
	for i, item := range items {
		switch {
		case !toolcrib.ValidToolName(item.ID):
			return badf("rubric[%d].id: must have 1 to 64 letters, digits, _ or -", i)
		case seen[item.ID]:
			return badf("rubric[%d].id: duplicate %s", i, item.ID)
		case strings.TrimSpace(item.Description) == "" || len(item.Description) > 2000:
			return badf("rubric[%d].description: must have 1 to 2000 bytes", i)
		case severities[item.Severity] == 0:
			return badf("rubric[%d].severity: must be low, medium or high", i)
		}
		seen[item.ID] = true
	}
	return nil
}

// severities are the weights of items.
var severities = map[string]float64{"low": 1, "medium": 2, "high": 3}

// roles checks the roles of the agents.
func (p *Plan) roles(r *Request, known func(string) bool) error {
	switch {
	case len(p.Agents) == 0:
		return badf("agents: name at least one configured agent")
	case r.Kind != Coordinate && (r.Proposer != "" || r.Synthesizer != ""):
		return badf("proposer and synthesizer are for coordinate")
	case r.Kind != Coordinate:
		return nil
	}
	p.Proposer, p.Synthesizer = r.Proposer, r.Synthesizer
	for role, name := range map[string]*string{"proposer": &p.Proposer, "synthesizer": &p.Synthesizer} {
		if *name == "" {
			*name = p.Agents[0]
		} else if !known(*name) {
			return badf("%s: there is no agent %s", role, strconv.Quote(*name))
		}
	}
	if len(p.critics(p.Proposer)) == 0 {
		return badf("agents: coordinate needs at least %d: one proposes, the others criticise", minAgents)
	}
	return nil
}

// critics returns the agents that criticise the answer of proposer.
func (p *Plan) critics(proposer string) []string {
	return slices.DeleteFunc(slices.Clone(p.Agents), func(name string) bool { return name == proposer })
}

// tools divides the worker tools into those that the workers get and the others, in order (X5), and
// determines the cap.
func (p *Plan) tools(r *Request, tell func(string, ...any)) {
	p.Asked = len(r.WorkerTools) > 0
	for _, name := range r.WorkerTools {
		list := &p.Rejected
		if slices.Contains(InnerTools(), name) {
			list = &p.Tools
		}
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
	if !p.Asked || r.CostCapUSD <= 0 {
		return
	}
	p.CapUSD, p.CapMode = r.CostCapUSD, r.CostCapMode
	switch p.CapMode {
	case CapWarn, CapEnforce, CapOff:
	default:
		if p.CapMode != "" {
			tell("worker_tool_cost_cap_mode: %s is unknown; warn is used", guard.Visible(p.CapMode))
		}
		p.CapMode = CapWarn
	}
}

// capped reports whether a cap on cost is enforced or warned about.
func (p *Plan) capped() bool { return p.CapUSD > 0 && p.CapMode != CapOff }

// Model returns the conductor as the model of a run.
func (p *Plan) Model() (journal.ModelInfo, error) {
	raw, err := json.Marshal(p)
	return journal.ModelInfo{
		Ref: "team/" + string(p.Kind), Provider: Provider, ID: string(p.Kind), MaxOutput: 1, Extra: raw,
		Price: toolcrib.Price{Known: true},
	}, err
}

// PlanOf returns the plan of a run that a conductor drives, or nil for another run.
func PlanOf(start *journal.RunStarted) *Plan {
	if start == nil || len(start.Models) == 0 || start.Models[0].Provider != Provider {
		return nil
	}
	return planIn(start.Models[0].Extra)
}

func planIn(raw json.RawMessage) *Plan {
	var p Plan
	if json.Unmarshal(raw, &p) != nil || p.From < 0 {
		return nil
	}
	return &p
}

// Again changes the task of a run that continues s after its end, so that it asks the failed agents again.
func Again(s *agent.State, task *agent.Task) error {
	p := PlanOf(s.Start)
	p.Again = len(task.History)
	model, err := p.Model()
	task.Models = []journal.ModelInfo{model}
	return err
}

// Incomplete reports whether s is the run of a team that has ended, and some of its agents failed.
func Incomplete(s *agent.State) bool {
	p := PlanOf(s.Start)
	if p == nil || !s.Ended() || p.From >= len(s.Messages) {
		return false
	}
	all, _ := p.replies(s.Messages[p.From+1:])
	synthesized := p.Kind != Coordinate
	for i := range all {
		if r := &all[i]; r.role == roleSynthesizer {
			synthesized = synthesized || !r.failed
		} else if r.failed && r.role != roleProposer { // another one has proposed
			return true
		}
	}
	return !synthesized || len(all) == 0
}

// Fill makes task carry out a plan. The principal, the workspace and the input from the session must
// be set before.
func (r *Request) Fill(p *Plan, task *agent.Task) error {
	p.From = len(task.History)
	model, err := p.Model()
	if err != nil {
		return err
	}
	task.Agent = toolcrib.Agent{
		Name: string(p.Kind), Model: model.Ref, TaintWrites: "allow", // the request itself names the agents to ask
		Limits: toolcrib.Limits{
			MaxIterations: conductorTurns, MaxParallel: MaxAgents, MaxCallsPerTurn: MaxAgents, MaxTreeRuns: 10 * MaxAgents,
			WallTime: r.time() + timeToAnswer,
		}.WithDefaults(),
		Budget: toolcrib.Budget{MaxCostUSD: r.MaxCostUSD},
	}
	task.Models, task.Files = []journal.ModelInfo{model}, r.Files
	task.Taint = append(slices.Clone(task.Taint), r.Taint...)
	switch {
	case r.Untrusted && r.Context != "":
		task.Taint = append(task.Taint, "context")
	case r.Untrusted: // only in an assess
		task.Taint = append(task.Taint, subjectSource)
	}
	task.Prompt = r.prompt(p.Canary)
	return nil
}

func newCanary() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails; it ends the program instead
	return guard.CanaryPrefix + strings.ToUpper(hex.EncodeToString(b[:]))
}

// prompt returns the question in the form for the agents.
func (r *Request) prompt(canary string) string {
	parts, marked := []string{}, ""
	if r.Question != "" {
		parts = append(parts, r.Question)
	}
	if r.Untrusted {
		marked = canary
	}
	switch {
	case r.Context == "":
	case r.Untrusted:
		parts = append(parts, guard.Fit(toolcrib.Output{Text: r.Context, Untrusted: true}, guard.FitOptions{
			MaxBytes: 2 * maxText, Source: "context", Canary: canary,
		}).Content)
	default:
		parts = append(parts, r.Context)
	}
	if r.Kind == Assess {
		parts = append(parts, subjectText(r.Subject, marked))
	}
	return strings.Join(parts, "\n\n")
}
