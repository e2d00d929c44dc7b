package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/toolcrib/toolcrib"
)

// Format is the version of the bodies below. It is in [RunStarted]; a journal
// with a higher one was written by a later toolcrib and is not driven by this one.
const Format = 1

// The kinds of events.
const (
	KindRunStarted           toolcrib.Kind = "run_started"
	KindTakenUp              toolcrib.Kind = "taken_up"
	KindOffered              toolcrib.Kind = "offered"
	KindModelRequest         toolcrib.Kind = "model_request"
	KindModelFailed          toolcrib.Kind = "model_failed"
	KindMessage              toolcrib.Kind = "message"
	KindToolCall             toolcrib.Kind = "tool_call"
	KindUsage                toolcrib.Kind = "usage"
	KindVerdicts             toolcrib.Kind = "verdicts"
	KindConfirmationRequired toolcrib.Kind = "confirmation_required"
	KindConfirmationResolved toolcrib.Kind = "confirmation_resolved"
	KindToolStarted          toolcrib.Kind = "tool_started"
	KindForgotten            toolcrib.Kind = "forgotten"
	KindReconciled           toolcrib.Kind = "reconciled"
	KindToolResult           toolcrib.Kind = "tool_result"
	KindNotice               toolcrib.Kind = "notice"
	KindStopping             toolcrib.Kind = "stopping"
	KindGranted              toolcrib.Kind = "granted"
	KindSaid                 toolcrib.Kind = "said"
	KindResumed              toolcrib.Kind = "resumed"
	KindCondensed            toolcrib.Kind = "condensed"
	KindAnswerChecked        toolcrib.Kind = "answer_checked"
	KindChildStarted         toolcrib.Kind = "child_started"
	KindChildParked          toolcrib.Kind = "child_parked"
	KindChildResumed         toolcrib.Kind = "child_resumed"
	KindChildEnded           toolcrib.Kind = "child_ended"
	KindPaused               toolcrib.Kind = "paused"
	KindReleased             toolcrib.Kind = "released"
	KindWorked               toolcrib.Kind = "worked"
	KindModelChosen          toolcrib.Kind = "model_chosen"
	KindDone                 toolcrib.Kind = "done"
	KindError                toolcrib.Kind = "error"
)

// RunStarted is the first event of every run: all that was given. The agent is a
// snapshot; the policy is not here, because it is always today's.
type RunStarted struct {
	Format    int                `json:"format"`
	Version   string             `json:"version,omitempty"` // of toolcrib
	Agent     toolcrib.Agent     `json:"agent"`
	Models    []ModelInfo        `json:"models"` // the agent's model, then its fallbacks
	Principal toolcrib.Principal `json:"principal"`
	Session   toolcrib.SessionID `json:"session_id,omitempty"`
	Parent    toolcrib.RunID     `json:"parent_id,omitempty"`
	Depth     int                `json:"depth,omitempty"`
	// ForkedFrom names the run whose first rounds are the beginning of this one.
	ForkedFrom  toolcrib.RunID `json:"forked_from,omitempty"`
	ForkedRound int            `json:"forked_round,omitempty"`
	Compact     bool           `json:"compact,omitempty"` // the run only condenses its input
	// Ran are the calls that took effect in what this run begins from, or beside it.
	Ran       []RanCall `json:"ran,omitempty"`
	Workspace string    `json:"workspace,omitempty"`
	Driver    string    `json:"driver,omitempty"` // cli | server
	// Once is the hash of the run's key, a colon, and that of what it was asked with; "" = no key.
	Once string `json:"once,omitempty"`

	System      string             `json:"system,omitempty"` // the whole system text
	Input       []toolcrib.Message `json:"input"`            // what came before in the session, then the task
	RunTools    []string           `json:"run_tools"`        // null = no restriction
	SkillTools  []string           `json:"skill_tools"`      // null = no restriction
	WorkerTools []string           `json:"worker_tools"`     // null = no restriction
	// Skills are those that count for the run, each with the content that it had.
	// SkillTools comes from them, and their text is in Input.
	Skills []Skill `json:"skills,omitempty"`
	// Listed are those that the run may read besides: Input has a list of them.
	Listed  []Skill `json:"listed_skills,omitempty"`
	Approve string  `json:"approve,omitempty"`
	Offer   Offer   `json:"offer"`
	// Taint names the sources of untrusted data in Input; Canary is the token that
	// marks such data in this run.
	Taint  []string `json:"taint,omitempty"`
	Canary string   `json:"canary,omitempty"`
	// Given is the call of a run that has one given call and no model (tools
	// call, a nested call). The run ends with its result.
	Given *toolcrib.ToolCall `json:"given,omitempty"`
	// Beside is the session between whose runs a person made the given call. The run is no
	// part of it, and is removed with it.
	Beside toolcrib.SessionID `json:"beside,omitempty"`

	// Retry says how long a failing provider is retried.
	Retry Retry `json:"retry"`

	// Of a run that another run started. Above is how the runs above narrow it besides
	// WorkerTools, Share what it may spend of their budget; nil = not at all, no cap.
	Above *Above `json:"above,omitempty"`
	Share *Share `json:"share,omitempty"`
	// CostCap names the ceiling of cost that the budgets set for the user; "" = none. No
	// model without a known price is asked under it.
	CostCap string `json:"cost_cap,omitempty"`
	// Worker bounds the tool calls of one turn of a worker (requirements X6, X15); nil =
	// the run is none.
	Worker *WorkerLimits `json:"worker,omitempty"`
	// ClientTools are carried out by whoever started the run ([toolcrib.ByClient]).
	ClientTools []toolcrib.Spec `json:"client_tools,omitempty"`
}

// RanCall is a call that took effect in another run.
type RanCall struct {
	Run       toolcrib.RunID `json:"run_id"`
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Arguments string         `json:"arguments"` // hex SHA-256 of those that it ran with
	// Does is what it did, however it was spelled, as hashes: the same things done again
	// are a repetition. Empty = only its arguments tell it.
	Does []string `json:"does,omitempty"`
}

// Retry says how long a provider that fails is retried, from its first failure on; 0 =
// not at all.
type Retry struct {
	First      time.Duration `json:"first_ns,omitempty"`       // before the run has a reply
	MaxElapsed time.Duration `json:"max_elapsed_ns,omitempty"` // after that; then the run parks
	// how long a server tries a parked run again by itself; less than 0 = the run fails instead of parking
	Park time.Duration `json:"park_ns,omitempty"`
}

// DefaultRetry returns the waits of contract §2.
func DefaultRetry() Retry {
	return Retry{First: 30 * time.Second, MaxElapsed: 5 * time.Minute, Park: 24 * time.Hour}
}

// Above is what a run inherits of the runs above it. It only narrows.
type Above struct {
	// the list of each run above that has one; each holds for the arguments of calls, too
	SkillTools  [][]string `json:"skill_tools,omitempty"`
	ReadOnly    bool       `json:"read_only,omitempty"`    // a run above may only read
	TaintWrites string     `json:"taint_writes,omitempty"` // the strictest of the runs above: ask | deny | allow
	MaxDepth    int        `json:"max_depth,omitempty"`    // the smallest of theirs; 0 = none
}

// Share is the part of a parent's budget, and of the caps of its tree, that a child
// run may use, together with the runs that it starts itself. 0 = no cap of this kind.
type Share struct {
	CostUSD  float64 `json:"max_cost_usd,omitempty"`
	Tokens   int64   `json:"max_tokens,omitempty"`
	Requests int     `json:"max_requests,omitempty"`
	Runs     int     `json:"max_runs,omitempty"`  // the child itself among them
	Bytes    int64   `json:"max_bytes,omitempty"` // of journals
}

// WorkerLimits bound the tool calls of a worker (requirements X6, X15 to X18).
type WorkerLimits struct {
	Hops int `json:"hops,omitempty"` // calls in all, also refused and broken ones; 0 = no bound
	// CostCapUSD bounds what the run has spent when a call is judged; 0 = no cap. Mode is
	// warn (or ""), enforce or off.
	CostCapUSD  float64 `json:"cost_cap_usd,omitempty"`
	CostCapMode string  `json:"cost_cap_mode,omitempty"`
}

// Skill names a skill of a run and the version of it.
type Skill struct {
	Name string `json:"name"`
	Hash string `json:"hash"` // sha256:… over all files of its folder
}

// ModelInfo is what the loop must know of a model.
type ModelInfo struct {
	Ref       string         `json:"ref"`      // as the agent names it
	Provider  string         `json:"provider"` // name of the provider in the configuration
	ID        string         `json:"id"`       // the provider's own name of the model
	Price     toolcrib.Price `json:"price"`
	Context   int            `json:"context,omitempty"` // tokens; 0 = unknown
	MaxOutput int            `json:"max_output,omitempty"`
	Tools     string         `json:"tools,omitempty"` // native (or "") | text | none
	Files     string         `json:"files,omitempty"` // none = the model is known to take no files; "" = as its API
	Reasoning string         `json:"reasoning,omitempty"`
	// Extra holds further fields of the request body, a JSON object.
	Extra json.RawMessage `json:"extra,omitempty"`
}

// Offer is the set of tools that a request may show to the model.
type Offer struct {
	Hash  string        `json:"hash"` // changes if and only if Tools changes
	Tools []OfferedTool `json:"tools"`
	Bytes int64         `json:"bytes,omitempty"` // of the specs as a model is shown them
	// Finder is the tool by which a model finds the tools that it is not shown from the
	// start; "" = all of them are shown.
	Finder string `json:"finder,omitempty"`
}

// OfferedTool names a tool and the version of its spec (hex SHA-256 of its JSON).
type OfferedTool struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
	// Bytes and Shown are set where there is a Finder: the size of the spec, and whether
	// it is shown from the start.
	Bytes int  `json:"bytes,omitempty"`
	Shown bool `json:"shown,omitempty"`
}

// Names returns the names of the offered tools; never nil.
func (o Offer) Names() []string {
	names := make([]string, len(o.Tools))
	for i, t := range o.Tools {
		names[i] = t.Name
	}
	return names
}

// TakenUp says that a driver has taken up the run. Epoch counts the takings-up.
type TakenUp struct {
	Worker string `json:"worker"`
	Epoch  int    `json:"epoch"`
	// Children is how many child runs have begun and not ended: what they achieve is
	// counted there.
	Children int `json:"children,omitempty"`
}

// Offered says that the offer has changed since the run began.
type Offered struct {
	Offer Offer `json:"offer"`
}

// ModelRequest says that a request is about to be sent, with what it may cost.
type ModelRequest struct {
	Request   int `json:"request"`   // counts the requests of the run, from 1
	Iteration int `json:"iteration"` // counts rounds, from 1; the closing request repeats the last
	Attempt   int `json:"attempt"`   // of this request on this model, from 1
	Model     int `json:"model"`     // index into RunStarted.Models, to which each [ModelChosen] adds one
	// DelayMS is how long the run waited for the provider before it, but for jitter.
	DelayMS int64 `json:"delay_ms,omitempty"`
	Closing bool  `json:"closing,omitempty"`
	// Purpose is condense for a request whose reply is not part of the conversation
	// but becomes a [Condensed]; "" = the conversation continues.
	Purpose   string `json:"purpose,omitempty"`
	OfferHash string `json:"offer_hash,omitempty"` // "" = sent without tools
	Hash      string `json:"hash,omitempty"`       // of the provider-neutral request
	// Choice is the tool choice as sent; with none, nothing is offered.
	Choice toolcrib.ToolChoice `json:"tool_choice,omitzero"`
	// What is reserved until the reply settles it.
	ReservedInput  int64   `json:"reserved_input"`
	ReservedOutput int64   `json:"reserved_output"`
	ReservedUSD    float64 `json:"reserved_usd"`
	MaxOutput      int     `json:"max_output,omitempty"` // as sent; 0 = the provider's default
	// UserLeft is how many tokens of output the budgets of the user left room for; 0 =
	// they did not bound the request.
	UserLeft int64 `json:"user_left,omitempty"`
}

// ModelFailed says that a request failed. What it reserved is given back if it
// was never sent, else settled as Charged says.
type ModelFailed struct {
	Request      int                 `json:"request"`
	Class        toolcrib.ErrorClass `json:"class"`
	Provider     string              `json:"provider,omitempty"`
	Status       int                 `json:"status,omitempty"`
	Message      string              `json:"message"`
	Detail       string              `json:"detail,omitempty"` // for operators, under Ref
	Ref          string              `json:"ref,omitempty"`
	RetryAfterMS int64               `json:"retry_after_ms,omitempty"` // as the provider asked
	Unsent       bool                `json:"unsent,omitempty"`
	OutputBegan  bool                `json:"output_began,omitempty"` // somebody may have seen a part
	// the model takes no tools: it is asked again by the text protocol
	NoTools    bool                `json:"no_tools,omitempty"`
	DurationMS int64               `json:"duration_ms"`
	Charged    toolcrib.TokenUsage `json:"charged,omitzero"` // estimated; zero if unsent or refused by the provider
	ChargedUSD float64             `json:"charged_usd,omitempty"`
	Sum        toolcrib.Usage      `json:"sum"`
}

// Message is a whole model reply. Its tool-call parts hold ID and name only; the
// calls follow as [ToolCall] events of the same append.
type Message struct {
	Request    int                   `json:"request"`
	Iteration  int                   `json:"iteration"`
	Parts      []toolcrib.Part       `json:"parts"`
	Finish     toolcrib.FinishReason `json:"finish_reason"`
	Model      string                `json:"model,omitempty"`      // as the API names the model that answered
	RequestID  string                `json:"request_id,omitempty"` // of the API
	Closing    bool                  `json:"closing,omitempty"`
	DurationMS int64                 `json:"duration_ms"`
	FirstMS    int64                 `json:"first_token_ms,omitempty"`
}

// ToolCall is one call of a reply, as it will be judged, shown and run.
type ToolCall struct {
	Iteration int `json:"iteration"`
	toolcrib.ToolCall
}

// Usage settles a request, and sums up.
type Usage struct {
	Request   int                 `json:"request"`
	Tokens    toolcrib.TokenUsage `json:"tokens"`
	CostUSD   float64             `json:"cost_usd"`
	Estimated bool                `json:"estimated,omitempty"`
	Sum       toolcrib.Usage      `json:"sum"`
}

// Verdicts holds the gate's answers to the calls of one turn, in their order.
type Verdicts struct {
	Iteration int       `json:"iteration"`
	Again     bool      `json:"again,omitempty"` // judged again, after a decision or at resume
	Verdicts  []Verdict `json:"verdicts"`
}

// Verdict is the gate's answer to one call, as it is kept.
type Verdict struct {
	CallID   string            `json:"call_id"`
	Tool     string            `json:"tool"`
	Decision toolcrib.Decision `json:"decision"` // "" = refused
	Reason   toolcrib.Reason   `json:"reason,omitempty"`
	// Message is what the model reads of a refusal; for an ask, why.
	Message      string            `json:"message,omitempty"`
	Questions    []Question        `json:"questions,omitempty"` // only for an ask: why, one by one
	Changed      string            `json:"changed,omitempty"`   // only for an ask: what is no longer as it was approved
	Binding      *Binding          `json:"binding,omitempty"`   // only for an ask: what an approval is bound to
	OperatorHint string            `json:"operator_hint,omitempty"`
	Rule         string            `json:"rule,omitempty"`
	SchemaError  json.RawMessage   `json:"schema_error,omitempty"` // only for invalid_arguments
	Position     string            `json:"position,omitempty"`     // FILE:LINE of what decided; never for the model
	Detail       string            `json:"detail,omitempty"`       // for operators; never for the model
	Ref          string            `json:"ref,omitempty"`          // of a panic, in the log
	Effect       toolcrib.Effect   `json:"effect,omitempty"`       // of this call
	Targets      []toolcrib.Target `json:"targets,omitempty"`
	Preview      *toolcrib.Preview `json:"preview,omitempty"` // only for an ask
	Untrusted    bool              `json:"untrusted,omitempty"`
	Approval     string            `json:"approval,omitempty"`    // the approval that let it pass
	ApprovedBy   string            `json:"approved_by,omitempty"` // if that was remembered: by whom
	TimeoutMS    int64             `json:"timeout_ms,omitempty"`
	MaxBytes     int               `json:"max_result_bytes,omitempty"`
	AnsweredBy   string            `json:"answered_by,omitempty"` // see toolcrib.Spec
	Counted      bool              `json:"counted,omitempty"`     // among the calls of the access token
}

// Question is one reason why a person is asked about a call. What it depends on stands
// in fields of its own, so that two are told apart without their words.
type Question struct {
	Reason  toolcrib.Reason `json:"reason"`            // needs_confirmation, tainted_flow, …
	Rule    string          `json:"rule,omitempty"`    // the rule that asks
	Says    string          `json:"says,omitempty"`    // what the rule's author, or the tool, says of it, hashed
	Setting string          `json:"setting,omitempty"` // the key path of the configuration that asks
	Mode    string          `json:"mode,omitempty"`    // what it says
	Effect  toolcrib.Effect `json:"effect,omitempty"`  // of the call, if that matters
	Sources []string        `json:"sources,omitempty"` // of the untrusted data that the run has read
	Text    string          `json:"text"`              // in words
}

// Same reports whether two are the same question, in whatever words.
func (q Question) Same(o Question) bool {
	return q.Reason == o.Reason && q.Rule == o.Rule && q.Says == o.Says && q.Setting == o.Setting && q.Mode == o.Mode &&
		q.Effect == o.Effect &&
		slices.Equal(q.Sources, o.Sources)
}

// Binding is what an approval is bound to besides run, turn, call, arguments and
// principal (contract §6).
type Binding struct {
	Source      string `json:"source,omitempty"`       // where the tool comes from
	Workspace   string `json:"workspace"`              // as the run names it; "" = it has none
	LeadsTo     string `json:"leads_to,omitempty"`     // the same with symbolic links resolved; "" = nowhere
	FolderID    string `json:"folder_id,omitempty"`    // tells that folder from another one of the same name
	CommandLine bool   `json:"command_line,omitempty"` // the call runs a command line
	// Files are those that the call writes, as they were.
	Files []toolcrib.FileState `json:"files,omitempty"`
}

// ForAPerson reports whether the call is asked about for a reason that only a person can
// answer (contract §6): not --approve all, and not a rule. A program that is not listed may
// be answered by what was remembered of exactly this line; the others by nothing remembered.
func (v *Verdict) ForAPerson() bool {
	if v == nil || v.Decision != toolcrib.Ask {
		return false
	}
	return slices.ContainsFunc(v.Questions, func(q Question) bool {
		switch q.Reason {
		case toolcrib.ReasonTaintedFlow, toolcrib.ReasonAlreadyRan, toolcrib.ReasonRuleDenied, toolcrib.ReasonUnlistedProgram:
			return true
		}
		return false
	})
}

// ApprovalKind says what is asked of a person.
type ApprovalKind string

const (
	ApprovalCall    ApprovalKind = "approval"
	ApprovalInDoubt ApprovalKind = "in_doubt"
	ApprovalInput   ApprovalKind = "input"
)

// ConfirmationRequired asks a person about calls of a turn. No call of the turn
// runs before it is resolved.
type ConfirmationRequired struct {
	ApprovalID string         `json:"approval_id"`
	Digest     string         `json:"digest"` // see [Digest]
	Kind       ApprovalKind   `json:"kind"`
	Iteration  int            `json:"iteration"`
	Calls      []ApprovalItem `json:"calls"`
	Reason     string         `json:"reason"`
	// For kind input: what is asked, and the JSON Schema of the answer. Without
	// Calls the question is whether a limit that was reached is raised.
	Question string          `json:"question,omitempty"`
	Schema   json.RawMessage `json:"schema,omitempty"`
}

// AsksForMore reports whether the run asks that a limit be raised. Such a question has no calls.
func (b *ConfirmationRequired) AsksForMore() bool {
	return b.Kind == ApprovalInput && len(b.Calls) == 0
}

// ApprovalItem is one call as a person is shown it.
type ApprovalItem struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Arguments json.RawMessage   `json:"arguments"`
	Effect    toolcrib.Effect   `json:"effect"`
	Preview   *toolcrib.Preview `json:"preview"` // null = the tool shows none
	Reason    string            `json:"reason,omitempty"`
	Questions []Question        `json:"questions,omitempty"`
	Changed   string            `json:"changed,omitempty"` // what is no longer as it was approved before
	Binding   *Binding          `json:"binding,omitempty"`
}

// The values of [ConfirmationResolved.Decision] and of [CallDecision.Decision].
// The last three answer an approval of kind in_doubt.
const (
	DecisionApprove     = "approve"
	DecisionDeny        = "deny"
	DecisionMixed       = "mixed" // see Calls
	DecisionRetry       = "retry"
	DecisionHappened    = "happened"
	DecisionNotHappened = "not_happened"
	// DecisionAnswer answers an approval of kind input.
	DecisionAnswer = "answer"
)

// ConfirmationResolved is a person's decision. It is used once.
type ConfirmationResolved struct {
	// Open says that calls of the approval are still undecided: only those in
	// Calls are decided by this event.
	Open       bool                    `json:"open,omitempty"`
	ApprovalID string                  `json:"approval_id"`
	Digest     string                  `json:"digest"`
	Decision   string                  `json:"decision"`
	By         string                  `json:"by"`
	User       string                  `json:"user,omitempty"`  // whose word it is, or who let it be said; "" = By tells
	Token      string                  `json:"token,omitempty"` // the ID of the access token by which it was said
	Reason     string                  `json:"reason,omitempty"`
	Calls      map[string]CallDecision `json:"calls,omitempty"` // by call ID; absent = Decision
	// Remember makes approvals hold for later calls, too: of this run, of its
	// session or of its user. "" = for these calls only.
	Remember *Remember `json:"remember,omitempty"`
}

// Known reports whether Decision is one of the values above; the zero value is not.
func (c *ConfirmationResolved) Known() bool {
	switch c.Decision {
	case DecisionApprove, DecisionDeny, DecisionMixed, DecisionRetry, DecisionHappened, DecisionNotHappened,
		DecisionAnswer:
		return true
	}
	return false
}

// CallDecision is the decision on one call of an approval.
type CallDecision struct {
	Decision  string          `json:"decision"`
	Arguments json.RawMessage `json:"arguments,omitempty"` // as a person changed them
	Binding   *Binding        `json:"binding,omitempty"`   // with Arguments: what the approval of these is bound to
	Result    json.RawMessage `json:"result,omitempty"`    // for in_doubt: what happened; for input: the answer
}

// Word returns what was decided, as a person would say it: words on calls that were
// named one by one are one word on all of them where they agree. edited reports whether
// a call runs with other arguments than the model's; a denial after such an approval is not it.
func (r *ConfirmationResolved) Word() (word string, edited bool) {
	for _, d := range r.Calls {
		edited = edited || len(d.Arguments) > 0
		switch word {
		case "", d.Decision:
			word = d.Decision
		default:
			word = DecisionMixed
		}
	}
	if r.Decision != DecisionMixed || r.Open || word == "" {
		return r.Decision, edited && r.Decision != DecisionDeny
	}
	return word, edited
}

// Of returns the decision on one call.
func (r ConfirmationResolved) Of(callID string) CallDecision {
	if d, ok := r.Calls[callID]; ok {
		return d
	}
	if r.Decision == DecisionMixed || r.Open {
		return CallDecision{}
	}
	return CallDecision{Decision: r.Decision}
}

// ToolStarted says that a call is about to run. For a write it is a barrier.
type ToolStarted struct {
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Write    bool            `json:"write,omitempty"`
	Prepared json.RawMessage `json:"prepared,omitempty"` // see toolcrib.Preparer
}

// Reconciled says what became of a write that had started when its driver was
// lost (design.md §2). A write that is in doubt is shown to a person.
type Reconciled struct {
	ID    string                   `json:"id"`
	State toolcrib.ReconciledState `json:"state"` // "" = in doubt
}

// ToolResult is the one result of a call.
type ToolResult struct {
	ToolCallID string                `json:"tool_call_id"`
	Name       string                `json:"name"`
	Status     toolcrib.ResultStatus `json:"status"`
	IsError    bool                  `json:"is_error,omitempty"`
	Content    string                `json:"content"` // exactly what the model reads
	Reason     toolcrib.Reason       `json:"reason,omitempty"`
	DurationMS int64                 `json:"duration_ms"`
	Truncated  bool                  `json:"truncated,omitempty"`
	Untrusted  bool                  `json:"untrusted,omitempty"`
	Source     string                `json:"source,omitempty"`  // of untrusted data
	Sources    []string              `json:"sources,omitempty"` // more of them, that a child run has read
	Files      []toolcrib.File       `json:"files,omitempty"`   // that came with it; their Ref names run and key
	Ref        string                `json:"ref,omitempty"`     // of the whole result, in the content store
	Bytes      int64                 `json:"bytes,omitempty"`   // of the whole result
	Found      []string              `json:"found,omitempty"`   // tools that are shown from now on, if they are offered
	By         string                `json:"by,omitempty"`      // whose client gave it; "" = it did not come from a client
	FaultRef   string                `json:"fault_ref,omitempty"`
	Fault      string                `json:"fault,omitempty"` // for operators, under FaultRef; masked
}

// Notice is a notice to clients.
type Notice struct {
	toolcrib.Notice
}

// Stopping says that the run is to end early, and why. Calls that run are
// cancelled, calls that wait are answered, then the run ends.
type Stopping struct {
	Reason  toolcrib.StopReason `json:"reason"`
	Message string              `json:"message,omitempty"`
	By      string              `json:"by,omitempty"`
	Token   string              `json:"token,omitempty"` // as in ConfirmationResolved
}

// Granted raises limits of the run, by a person's word (resume --add-…).
type Granted struct {
	Iterations int     `json:"iterations,omitempty"`
	CostUSD    float64 `json:"cost_usd,omitempty"`
	Tokens     int64   `json:"tokens,omitempty"`
	Requests   int     `json:"requests,omitempty"`
	By         string  `json:"by"`
	Token      string  `json:"token,omitempty"` // as in ConfirmationResolved
}

// Said is a message that a person adds to a run that has not ended. The model
// reads it before its next reply.
type Said struct {
	ID   string `json:"id,omitempty"` // of the message in the inbox of the store; "" = it was in none
	Text string `json:"text"`
	By   string `json:"by"`
}

// Resumed says that a request with a key has resumed the run: the same request does not again. What
// it adds to the run comes in the same append.
type Resumed struct {
	Once string `json:"once"` // as [RunStarted.Once]
	By   string `json:"by"`
}

// Condensed replaces the oldest messages of the transcript, which would not have
// fitted into the model's context. Whole turns are replaced, so that no call is
// parted from its result; the input that the run began with is kept.
type Condensed struct {
	Request   int    `json:"request,omitempty"` // that wrote the summary; 0 = none was asked for
	Iteration int    `json:"iteration"`
	Strategy  string `json:"strategy"` // condense | drop
	// From and Messages name the messages that are replaced: the first, from 0, and
	// how many.
	From     int    `json:"from"`
	Messages int    `json:"messages"`
	Text     string `json:"text"`          // what is in their place, as a message of the user
	Before   int64  `json:"tokens_before"` // estimates of the next request's input
	After    int64  `json:"tokens_after"`
	Reason   string `json:"reason,omitempty"` // context_length if the API refused the request for its length
}

// AnswerChecked says whether an answer fits the agent's output_schema.
type AnswerChecked struct {
	Request int    `json:"request"`
	Valid   bool   `json:"valid,omitempty"`
	Answer  string `json:"answer,omitempty"`  // if valid: the JSON value alone, canonical
	Problem string `json:"problem,omitempty"` // what the model is told
}

// ChildStarted says that a call is answered by a run of its own. It stands before the
// first event of that run: whoever takes the parent up finds the child, or starts it
// under this very ID. It is no barrier: what survives of the child, it precedes.
type ChildStarted struct {
	ID    string         `json:"id"` // of the call
	Run   toolcrib.RunID `json:"run_id"`
	Agent string         `json:"agent"`
	// of the parent's budget, set aside until the child has ended; null = no cap
	Share *Share `json:"share,omitempty"`
}

// ChildParked says that a child run waits for a person. When all calls of the turn are
// answered or wait, the parent waits too.
type ChildParked struct {
	ID      string          `json:"id"`
	Run     toolcrib.RunID  `json:"run_id"`
	Status  toolcrib.Status `json:"status"`
	Pending Pending         `json:"pending"` // its run_id is the child's, or that of a run below it
}

// ChildResumed says that a child run that had waited continues.
type ChildResumed struct {
	ID  string         `json:"id"`
	Run toolcrib.RunID `json:"run_id"`
}

// ChildEnded says that a child run has ended, and what it has used together with the
// runs below it. The result of the call follows.
type ChildEnded struct {
	ID         string              `json:"id"`
	Run        toolcrib.RunID      `json:"run_id"`
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason"`
	Usage      toolcrib.Usage      `json:"usage"`
	Runs       int                 `json:"runs,omitempty"`  // itself and those below it
	Bytes      int64               `json:"bytes,omitempty"` // of their journals
}

// Pending is what a parked run waits for (contract §9).
type Pending struct {
	Kind string `json:"kind"` // approval | in_doubt | input | client_tool | provider
	// Run is the run below that waits, if it is not this one: what is to be decided
	// is in its journal, and this run is the one to be resumed.
	Run        toolcrib.RunID  `json:"run_id,omitempty"`
	ApprovalID string          `json:"approval_id,omitempty"`
	Digest     string          `json:"digest,omitempty"`
	Calls      []ApprovalItem  `json:"calls,omitempty"`
	Question   string          `json:"question,omitempty"`
	Schema     json.RawMessage `json:"schema,omitempty"`
	Error      *Outage         `json:"error,omitempty"` // only for kind provider
	// Only for kind client_tool: when the calls are answered without the client; nil = never.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// AsksForMore is [ConfirmationRequired.AsksForMore].
func (p *Pending) AsksForMore() bool { return p.Kind == string(ApprovalInput) && len(p.Calls) == 0 }

// The kinds of what a run waits for that is not an approval.
const (
	PendingProvider   = "provider"    // its provider failed
	PendingClientTool = "client_tool" // its client carries out Calls
)

// Outage is why a run waits for its provider.
type Outage struct {
	Class    toolcrib.ErrorClass `json:"class"`
	Provider string              `json:"provider,omitempty"`
	Model    string              `json:"model"` // as the agent names it
	Message  string              `json:"message"`
	Ref      string              `json:"ref,omitempty"` // the detail is in the log and journal under it
	// RetryMS is after how long a server tries again by itself; 0 = it does not: somebody
	// must resume the run.
	RetryMS int64 `json:"retry_ms,omitempty"`
	// What to add to the run's budget, if requests that failed have used it up.
	AddTokens   int64   `json:"add_tokens,omitempty"`
	AddCostUSD  float64 `json:"add_cost_usd,omitempty"`
	AddRequests int     `json:"add_requests,omitempty"`
}

// Adds returns what to add as flags of `runs resume`, each after a space; "" if nothing.
func (o *Outage) Adds() (flags string) {
	if o == nil {
		return ""
	}
	if o.AddTokens > 0 {
		flags += fmt.Sprintf(" --add-tokens %d", o.AddTokens)
	}
	if o.AddCostUSD > 0 {
		flags += " --add-cost " + strconv.FormatFloat(o.AddCostUSD, 'f', -1, 64)
	}
	if o.AddRequests > 0 {
		flags += fmt.Sprintf(" --add-requests %d", o.AddRequests)
	}
	return flags
}

// Released says that the driver has released a run that it was told to leave as it is,
// so that it can be taken up again. That is no lack of progress.
type Released struct {
	Cause string `json:"cause,omitempty"`
}

// Worked says how long the driver has worked since the event before, where that is not
// the time between the two: the machine slept, its clock was set, or the run waited for a
// provider.
type Worked struct {
	MS int64 `json:"ms"`
}

// ModelChosen adds a model to those of the run: the next request goes to it (resume
// --model), and none of those before it is asked again.
type ModelChosen struct {
	Model ModelInfo `json:"model"`
	By    string    `json:"by"`
}

// Paused says that the run is parked and its driver has released it.
type Paused struct {
	Status  toolcrib.Status `json:"status"`
	Pending Pending         `json:"pending"`
}

// ErrUnread is the error of an append that would end a run for which a message came that it does
// not know of, or have it ask its model first.
var ErrUnread = errors.New("a message to the run came that it has not read")

// Done ends a run that completed or was cancelled.
type Done struct {
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason"`
	Content    string              `json:"content"`
	Truncated  bool                `json:"truncated"`
	Iterations int                 `json:"iterations"`
	Usage      toolcrib.Usage      `json:"usage"`
	Unread     int                 `json:"unread,omitempty"` // messages that came too late to be read
}

// Error ends a run that failed.
type Error struct {
	Code       string              `json:"error"`           // such as provider_failed
	Class      toolcrib.ErrorClass `json:"class,omitempty"` // if Message says what a provider said
	Message    string              `json:"message"`
	Ref        string              `json:"ref,omitempty"`
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason"`
	Content    string              `json:"content,omitempty"`
	Truncated  bool                `json:"truncated,omitempty"`
	Iterations int                 `json:"iterations"`
	Usage      toolcrib.Usage      `json:"usage"`
	Unread     int                 `json:"unread,omitempty"` // likewise
}

func (*RunStarted) EventKind() toolcrib.Kind           { return KindRunStarted }
func (*TakenUp) EventKind() toolcrib.Kind              { return KindTakenUp }
func (*Offered) EventKind() toolcrib.Kind              { return KindOffered }
func (*ModelRequest) EventKind() toolcrib.Kind         { return KindModelRequest }
func (*ModelFailed) EventKind() toolcrib.Kind          { return KindModelFailed }
func (*Message) EventKind() toolcrib.Kind              { return KindMessage }
func (*ToolCall) EventKind() toolcrib.Kind             { return KindToolCall }
func (*Usage) EventKind() toolcrib.Kind                { return KindUsage }
func (*Verdicts) EventKind() toolcrib.Kind             { return KindVerdicts }
func (*ConfirmationRequired) EventKind() toolcrib.Kind { return KindConfirmationRequired }
func (*ConfirmationResolved) EventKind() toolcrib.Kind { return KindConfirmationResolved }
func (*ToolStarted) EventKind() toolcrib.Kind          { return KindToolStarted }
func (*Reconciled) EventKind() toolcrib.Kind           { return KindReconciled }
func (*ToolResult) EventKind() toolcrib.Kind           { return KindToolResult }
func (*Notice) EventKind() toolcrib.Kind               { return KindNotice }
func (*Stopping) EventKind() toolcrib.Kind             { return KindStopping }
func (*Granted) EventKind() toolcrib.Kind              { return KindGranted }
func (*Said) EventKind() toolcrib.Kind                 { return KindSaid }
func (*Resumed) EventKind() toolcrib.Kind              { return KindResumed }
func (*Condensed) EventKind() toolcrib.Kind            { return KindCondensed }
func (*AnswerChecked) EventKind() toolcrib.Kind        { return KindAnswerChecked }
func (*ChildStarted) EventKind() toolcrib.Kind         { return KindChildStarted }
func (*ChildParked) EventKind() toolcrib.Kind          { return KindChildParked }
func (*ChildResumed) EventKind() toolcrib.Kind         { return KindChildResumed }
func (*ChildEnded) EventKind() toolcrib.Kind           { return KindChildEnded }
func (*Paused) EventKind() toolcrib.Kind               { return KindPaused }
func (*Released) EventKind() toolcrib.Kind             { return KindReleased }
func (*Worked) EventKind() toolcrib.Kind               { return KindWorked }
func (*ModelChosen) EventKind() toolcrib.Kind          { return KindModelChosen }
func (*Done) EventKind() toolcrib.Kind                 { return KindDone }
func (*Error) EventKind() toolcrib.Kind                { return KindError }
