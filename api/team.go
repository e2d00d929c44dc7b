package api

import (
	"encoding/json"
	"slices"

	"github.com/toolcrib/toolcrib"
)

// Report is the outcome of a team's run, computed from its journal and those of its workers.
type Report struct {
	Tool     string   `json:"tool"`
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

// Assessment is the result of the judges on an answer.
type Assessment struct {
	Score  float64 `json:"score"` // mean over the judges
	Passed bool    `json:"passed"`
	// Agreement is 1 less the mean distance between the highest and the lowest score of an item. It is
	// absent if there is one judge.
	Agreement *float64       `json:"agreement,omitempty"`
	Items     []AssessedItem `json:"items"`
	Judges    []Judge        `json:"judges"`
}

// AssessedItem is one item of the rubric with its judgements.
type AssessedItem struct {
	ID       string      `json:"id"`
	Severity string      `json:"severity"`
	Score    float64     `json:"score"` // mean over the judges
	Low      float64     `json:"low"`
	High     float64     `json:"high"`
	Passed   bool        `json:"passed"`
	Says     []Judgement `json:"says"`
}

// Judgement is one judge's judgement of an item.
type Judgement struct {
	Agent    string     `json:"agent"`
	Score    float64    `json:"score"`
	Comment  string     `json:"comment,omitempty"`
	Evidence []Evidence `json:"evidence,omitempty"`
}

// Evidence is a quotation with its place. Found reports whether the words are there.
type Evidence struct {
	Place string `json:"place"`
	Quote string `json:"quote"`
	Found bool   `json:"found"`
}

// Judge is the complete assessment by one judge.
type Judge struct {
	Agent   string  `json:"agent"`
	Score   float64 `json:"score"` // mean of the items, weighted by severity
	Passed  bool    `json:"passed"`
	Summary string  `json:"summary,omitempty"`
	Error   string  `json:"error,omitempty"` // why the judge gave no assessment
}
