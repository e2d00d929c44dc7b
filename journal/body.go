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

// Format is the version of the bodies below, stored in [RunStarted]. A journal with a
// higher one was written by a later version of toolcrib, and its run is not continued.
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

// RunStarted is the first event of every run, with all of its inputs. The agent is a
// snapshot; the policy is not stored, because the current one always applies.
type RunStarted struct {
	Format    int                `json:"format"`
	Version   string             `json:"version,omitempty"` // version of toolcrib
	Agent     toolcrib.Agent     `json:"agent"`
	Models    []ModelInfo        `json:"models"` // the agent's model, then its fallbacks
	Principal toolcrib.Principal `json:"principal"`
	Session   toolcrib.SessionID `json:"session_id,omitempty"`
	Parent    toolcrib.RunID     `json:"parent_id,omitempty"`
	Depth     int                `json:"depth,omitempty"`
	// ForkedFrom is the run whose first ForkedRound rounds this run begins with.
	ForkedFrom  toolcrib.RunID `json:"forked_from,omitempty"`
	ForkedRound int            `json:"forked_round,omitempty"`
	Compact     bool           `json:"compact,omitempty"` // the run only condenses its input
	// Before is the usage of the session before the run tree. For a child run, Worked includes the time of the runs above.
	Before SessionUse `json:"before,omitzero"`
	// Ran lists calls that took effect in the runs that this run begins from, or while a person was
	// making calls in the session.
	Ran       []RanCall `json:"ran,omitempty"`
	Workspace string    `json:"workspace,omitempty"`
	Driver    string    `json:"driver,omitempty"` // cli | server
	// Site identifies the folder of workspaces that has Workspace, where servers may have different ones.
	Site string `json:"site,omitempty"`
	// Once is the hash of the request's key, a colon, and the hash of the request. If "", it had no key.
	Once string `json:"once,omitempty"`
	// Asked is a digest of the request without its conversation; only a request with the same digest
	// continues the run.
	Asked string `json:"asked,omitempty"`

	System      string             `json:"system,omitempty"` // the whole system text
	Input       []toolcrib.Message `json:"input"`            // the earlier messages of the session, then the task
	RunTools    []string           `json:"run_tools"`        // null means no restriction
	SkillTools  []string           `json:"skill_tools"`      // null means no restriction
	WorkerTools []string           `json:"worker_tools"`     // null means no restriction
	// Skills are the active skills of the run, with their versions. SkillTools is
	// derived from them, and their text is in Input.
	Skills []Skill `json:"skills,omitempty"`
	// Listed are further skills that the run may read. They are listed in Input.
	Listed  []Skill `json:"listed_skills,omitempty"`
	Approve string  `json:"approve,omitempty"`
	Offer   Offer   `json:"offer"`
	// Taint lists the sources of untrusted data in Input; Canary is the token that
	// marks such data in this run.
	Taint  []string `json:"taint,omitempty"`
	Canary string   `json:"canary,omitempty"`
	// Given is the only call of a run without a model (tools call, a nested call). The run
	// ends with its result.
	Given *toolcrib.ToolCall `json:"given,omitempty"`
	// Beside is the session during which a person made the given call. The run does not
	// belong to it, but is removed with it.
	Beside toolcrib.SessionID `json:"beside,omitempty"`

	// Retry bounds the retries of a failing provider.
	Retry Retry `json:"retry"`

	// Above and Share are set for a run that another run started. Above is how the runs
	// above restrict it in addition to WorkerTools; Share is its part of their budget. If nil,
	// there is no restriction, and no cap.
	Above *Above `json:"above,omitempty"`
	Share *Share `json:"share,omitempty"`
	// CostCap names the cost limit that the user's budgets or the session set, if they do. A run
	// with one sends no request to a model whose price is unknown.
	CostCap string `json:"cost_cap,omitempty"`
	// Worker bounds the tool calls of one turn of a worker. It is nil unless the
	// run is one.
	Worker *WorkerLimits `json:"worker,omitempty"`
	// ClientTools are the tools that the client carries out ([toolcrib.ByClient]).
	ClientTools []toolcrib.Spec `json:"client_tools,omitempty"`
}

// RanCall is a call that took effect in another run.
type RanCall struct {
	Run       toolcrib.RunID `json:"run_id"`
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Arguments string         `json:"arguments"` // hex SHA-256 of the arguments that it ran with
	// Does are hashes of the effects of the call, however it was written: a call with the
	// same effects repeats it. If empty, only the same arguments do.
	Does []string `json:"does,omitempty"`
}

// Retry bounds the retries of a failing provider, from its first failure on. If a field is
// 0, it permits none.
type Retry struct {
	First      time.Duration `json:"first_ns,omitempty"`       // before the run has a reply
	MaxElapsed time.Duration `json:"max_elapsed_ns,omitempty"` // after that; then the run parks
	// how long a server retries a parked run by itself; if less than 0, the run fails instead of parking
	Park time.Duration `json:"park_ns,omitempty"`
}

// DefaultRetry returns the default bounds.
func DefaultRetry() Retry {
	return Retry{First: 30 * time.Second, MaxElapsed: 5 * time.Minute, Park: 24 * time.Hour}
}

// WorkerLimits bound the tool calls of a worker.
type WorkerLimits struct {
	Hops int `json:"hops,omitempty"` // all calls, including refused and broken ones; if 0, no bound
	// CostCapUSD bounds the cost of the run at the time a call is judged; if 0, no cap. Mode is
	// warn (or ""), enforce or off.
	CostCapUSD  float64 `json:"cost_cap_usd,omitempty"`
	CostCapMode string  `json:"cost_cap_mode,omitempty"`
}

// Skill names a skill of a run and its version.
type Skill struct {
	Name string `json:"name"`
	Hash string `json:"hash"` // sha256:… over all files of its folder
}

// ModelInfo is the description of a model that the loop needs.
type ModelInfo struct {
	Ref       string         `json:"ref"`      // name of the model in the agent
	Provider  string         `json:"provider"` // name of the provider in the configuration
	ID        string         `json:"id"`       // name of the model at the provider
	Price     toolcrib.Price `json:"price"`
	Context   int            `json:"context,omitempty"` // tokens; if 0, unknown
	MaxOutput int            `json:"max_output,omitempty"`
	Tools     string         `json:"tools,omitempty"` // native (or ""), [ToolsText] or [ToolsNone]
	Files     string         `json:"files,omitempty"` // [FilesNone], [FilesImages], or "" if the API decides
	Reasoning string         `json:"reasoning,omitempty"`
	// Extra has additional fields of the request body, as a JSON object.
	Extra json.RawMessage `json:"extra,omitempty"`
}

// Values of [ModelInfo.Tools] (the text protocol, or no tools) and [ModelInfo.Files] (no files, or images at least).
const (
	ToolsText   = "text"
	ToolsNone   = "none"
	FilesNone   = "none"
	FilesImages = "images"
)

// TakenUp records that a driver has taken up the run. Epoch counts how often that happened.
type TakenUp struct {
	Worker string `json:"worker"`
	Epoch  int    `json:"epoch"`
	// Children is the number of child runs that have begun and not ended. Their progress is
	// counted there.
	Children int `json:"children,omitempty"`
}

// Offered records that the offer has changed since the run began.
type Offered struct {
	Offer Offer `json:"offer"`
}

// ModelRequest records that a request is about to be sent, and the most that it may cost.
type ModelRequest struct {
	Request   int `json:"request"`   // number of the request in the run, from 1
	Iteration int `json:"iteration"` // number of the round, from 1; the closing request repeats the last one
	Attempt   int `json:"attempt"`   // attempt of this request on this model, from 1
	Model     int `json:"model"`     // index into RunStarted.Models, to which each [ModelChosen] appends one
	// DelayMS is how long the run waited for the provider before the request, without jitter.
	DelayMS int64 `json:"delay_ms,omitempty"`
	Closing bool  `json:"closing,omitempty"`
	// Purpose is "condense" for a request whose reply is not part of the conversation
	// but becomes a [Condensed], else "".
	Purpose   string `json:"purpose,omitempty"`
	OfferHash string `json:"offer_hash,omitempty"` // "" if sent without tools
	Hash      string `json:"hash,omitempty"`       // hash of the provider-neutral request
	// Choice is the tool choice that was sent; if it is none, no tools are.
	Choice toolcrib.ToolChoice `json:"tool_choice,omitzero"`
	// Amounts that are reserved until the reply settles them.
	ReservedInput  int64   `json:"reserved_input"`
	ReservedOutput int64   `json:"reserved_output"`
	ReservedUSD    float64 `json:"reserved_usd"`
	MaxOutput      int     `json:"max_output,omitempty"` // value that was sent; if 0, the provider's default
	// UserLeft is the number of output tokens that the user's budgets left. If 0, they did
	// not bound the request.
	UserLeft int64 `json:"user_left,omitempty"`
}

// ModelFailed records that a request failed. Its reservation is released if it
// was never sent, and otherwise settled by Charged.
type ModelFailed struct {
	Request      int                 `json:"request"`
	Class        toolcrib.ErrorClass `json:"class"`
	Provider     string              `json:"provider,omitempty"`
	Status       int                 `json:"status,omitempty"`
	Message      string              `json:"message"`
	Detail       string              `json:"detail,omitempty"` // for operators, referred to by Ref
	Ref          string              `json:"ref,omitempty"`
	RetryAfterMS int64               `json:"retry_after_ms,omitempty"` // as requested by the provider
	Unsent       bool                `json:"unsent,omitempty"`
	OutputBegan  bool                `json:"output_began,omitempty"` // part of the output may have been shown
	// the model does not support tools: it is asked again with the text protocol
	NoTools    bool                `json:"no_tools,omitempty"`
	DurationMS int64               `json:"duration_ms"`
	Charged    toolcrib.TokenUsage `json:"charged,omitzero"` // estimated; zero if unsent or refused by the provider
	ChargedUSD float64             `json:"charged_usd,omitempty"`
	Sum        toolcrib.Usage      `json:"sum"`
}

// Message is a complete reply of the model. Its tool-call parts have only an ID and a name;
// the calls follow as [ToolCall] events of the same append.
type Message struct {
	Request    int                   `json:"request"`
	Iteration  int                   `json:"iteration"`
	Parts      []toolcrib.Part       `json:"parts"`
	Finish     toolcrib.FinishReason `json:"finish_reason"`
	Model      string                `json:"model,omitempty"`      // name that the API reports for the model that answered
	RequestID  string                `json:"request_id,omitempty"` // assigned by the API
	Closing    bool                  `json:"closing,omitempty"`
	DurationMS int64                 `json:"duration_ms"`
	FirstMS    int64                 `json:"first_token_ms,omitempty"`
}

// ToolCall is one call of a reply, as it is judged, shown and run.
type ToolCall struct {
	Iteration int `json:"iteration"`
	toolcrib.ToolCall
}

// Usage settles a request and contains the totals of the run.
type Usage struct {
	Request   int                 `json:"request"`
	Tokens    toolcrib.TokenUsage `json:"tokens"`
	CostUSD   float64             `json:"cost_usd"`
	Estimated bool                `json:"estimated,omitempty"`
	Sum       toolcrib.Usage      `json:"sum"`
}

// Verdicts are the gate's verdicts on the calls of one turn, in their order.
type Verdicts struct {
	Iteration int       `json:"iteration"`
	Again     bool      `json:"again,omitempty"` // judged again, after a decision or at resume
	Verdicts  []Verdict `json:"verdicts"`
}

// Verdict is the gate's verdict on one call, as it is stored.
type Verdict struct {
	CallID   string            `json:"call_id"`
	Tool     string            `json:"tool"`
	Decision toolcrib.Decision `json:"decision"` // if "", refused
	Reason   toolcrib.Reason   `json:"reason,omitempty"`
	// Message is the text that the model reads of a refusal; for an ask, the reason.
	Message      string            `json:"message,omitempty"`
	Questions    []Question        `json:"questions,omitempty"` // only for an ask: the separate reasons
	Changed      string            `json:"changed,omitempty"`   // only for an ask: changes since an earlier approval
	Binding      *Binding          `json:"binding,omitempty"`   // only for an ask: the state that an approval is bound to
	OperatorHint string            `json:"operator_hint,omitempty"`
	Rule         string            `json:"rule,omitempty"`
	SchemaError  json.RawMessage   `json:"schema_error,omitempty"` // only for invalid_arguments
	Position     string            `json:"position,omitempty"`     // FILE:LINE that decided; never for the model
	Detail       string            `json:"detail,omitempty"`       // for operators; never for the model
	Ref          string            `json:"ref,omitempty"`          // reference of a panic; the log has its details
	Effect       toolcrib.Effect   `json:"effect,omitempty"`       // effect of this call
	Targets      []toolcrib.Target `json:"targets,omitempty"`
	Preview      *toolcrib.Preview `json:"preview,omitempty"` // only for an ask
	Untrusted    bool              `json:"untrusted,omitempty"`
	Approval     string            `json:"approval,omitempty"`    // the approval that let it pass
	ApprovedBy   string            `json:"approved_by,omitempty"` // if the approval was remembered, who gave it
	TimeoutMS    int64             `json:"timeout_ms,omitempty"`
	MaxBytes     int               `json:"max_result_bytes,omitempty"`
	AnsweredBy   string            `json:"answered_by,omitempty"` // see toolcrib.Spec
	NoEffect     bool              `json:"no_effect,omitempty"`   // not asked about, because it would change nothing
	Counted      bool              `json:"counted,omitempty"`     // counted among the calls of the access token
}

// Question is one reason why a person is asked about a call. The facts that it depends on
// have fields of their own, so that two questions are compared without their texts.
type Question struct {
	Reason  toolcrib.Reason `json:"reason"`            // needs_confirmation, tainted_flow, …
	Rule    string          `json:"rule,omitempty"`    // the rule that asks
	Says    string          `json:"says,omitempty"`    // hash of the explanation by the rule's author or the tool
	Setting string          `json:"setting,omitempty"` // the key path of the configuration that asks
	Mode    string          `json:"mode,omitempty"`    // value of that setting
	Effect  toolcrib.Effect `json:"effect,omitempty"`  // effect of the call, if it is relevant
	Sources []string        `json:"sources,omitempty"` // sources of the untrusted data that the run has read
	Text    string          `json:"text"`              // the question in words
	Run     bool            `json:"run,omitempty"`     // an approval also answers it for later calls of the run
}

// Same reports whether two questions are the same, whatever their texts.
func (q Question) Same(o Question) bool {
	return q.Reason == o.Reason && q.Rule == o.Rule && q.Says == o.Says && q.Setting == o.Setting && q.Mode == o.Mode &&
		q.Effect == o.Effect &&
		slices.Equal(q.Sources, o.Sources)
}

// Binding is the state that an approval is bound to, in addition to run, turn, call,
// arguments and principal.
type Binding struct {
	Source      string `json:"source,omitempty"`       // origin of the tool
	Workspace   string `json:"workspace"`              // path as the run names it; "" if it has none
	LeadsTo     string `json:"leads_to,omitempty"`     // that path with symbolic links resolved; "" if it does not exist
	FolderID    string `json:"folder_id,omitempty"`    // identifies that folder among others of the same name
	CommandLine bool   `json:"command_line,omitempty"` // the call runs a command line
	// Scope is the program of that line with its subcommand, if the approval may be remembered for it.
	Scope string `json:"scope,omitempty"`
	// Files are the states of the files that the call writes.
	Files []toolcrib.FileState `json:"files,omitempty"`
}

// ForAPerson reports whether the call has a question that only a person can answer, neither
// --approve all nor a rule. A remembered approval answers such a question only for an
// unlisted program, and only for exactly the same line or its program.
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

// ApprovalKind is the kind of a question to a person.
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
	// For kind input: the question, and the JSON Schema of the answer. Without
	// Calls, the question is whether to raise a limit that was reached.
	Question string          `json:"question,omitempty"`
	Schema   json.RawMessage `json:"schema,omitempty"`
}

// AsksForMore reports whether the run asks to raise a limit. Only such a question has no calls.
func (b *ConfirmationRequired) AsksForMore() bool {
	return b.Kind == ApprovalInput && len(b.Calls) == 0
}

// ApprovalItem is one call as shown to a person.
type ApprovalItem struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Arguments json.RawMessage   `json:"arguments"`
	Effect    toolcrib.Effect   `json:"effect"`
	Preview   *toolcrib.Preview `json:"preview"` // null if the tool has none
	Reason    string            `json:"reason,omitempty"`
	Questions []Question        `json:"questions,omitempty"`
	Changed   string            `json:"changed,omitempty"` // changes since an earlier approval
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
	// Open reports that calls of the approval are still undecided: this event decides
	// only those in Calls.
	Open       bool                    `json:"open,omitempty"`
	ApprovalID string                  `json:"approval_id"`
	Digest     string                  `json:"digest"`
	Decision   string                  `json:"decision"`
	By         string                  `json:"by"`
	User       string                  `json:"user,omitempty"`  // user who decided or permitted it; if "", see By
	Token      string                  `json:"token,omitempty"` // ID of the access token that was used
	Reason     string                  `json:"reason,omitempty"`
	Calls      map[string]CallDecision `json:"calls,omitempty"` // by call ID; a call that is absent has Decision
	// Remember extends approvals to later calls of this run, of its
	// session or of its user. If nil, they are for these calls only.
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
	Arguments json.RawMessage `json:"arguments,omitempty"` // as edited by a person
	Binding   *Binding        `json:"binding,omitempty"`   // with Arguments: the state that their approval is bound to
	Result    json.RawMessage `json:"result,omitempty"`    // for in_doubt, the actual outcome; for input, the answer
}

// Overall returns the decision as one value: Decision, or the decision on each call if those given call by
// call agree. edited reports whether a call runs with other arguments than the model's, which is not so
// if the calls were denied after such an edit.
func (r *ConfirmationResolved) Overall() (decision string, edited bool) {
	for _, d := range r.Calls {
		edited = edited || len(d.Arguments) > 0
		switch decision {
		case "", d.Decision:
			decision = d.Decision
		default:
			decision = DecisionMixed
		}
	}
	if r.Decision != DecisionMixed || r.Open || decision == "" {
		return r.Decision, edited && r.Decision != DecisionDeny
	}
	return decision, edited
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

// ToolStarted records that a call is about to run. For a write it is a barrier.
type ToolStarted struct {
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Write    bool            `json:"write,omitempty"`
	Prepared json.RawMessage `json:"prepared,omitempty"` // see toolcrib.Plan
}

// Reconciled records the state of a write that had started when its driver was
// lost. A write that is in doubt is shown to a person.
type Reconciled struct {
	ID    string                   `json:"id"`
	State toolcrib.ReconciledState `json:"state"` // if "", in doubt
}

// ToolResult is the one result of a call.
type ToolResult struct {
	ToolCallID string                `json:"tool_call_id"`
	Name       string                `json:"name"`
	Status     toolcrib.ResultStatus `json:"status"`
	IsError    bool                  `json:"is_error,omitempty"`
	Content    string                `json:"content"` // exactly the text that the model reads
	Reason     toolcrib.Reason       `json:"reason,omitempty"`
	DurationMS int64                 `json:"duration_ms"`
	Truncated  bool                  `json:"truncated,omitempty"`
	Untrusted  bool                  `json:"untrusted,omitempty"`
	Source     string                `json:"source,omitempty"`  // origin of untrusted data
	Sources    []string              `json:"sources,omitempty"` // further sources, which a child run has read
	Files      []toolcrib.File       `json:"files,omitempty"`   // files in the result; their Ref names run and key
	Ref        string                `json:"ref,omitempty"`     // reference of the whole result in the content store
	Bytes      int64                 `json:"bytes,omitempty"`   // size of the whole result
	Found      []string              `json:"found,omitempty"`   // tools that are shown from now on if they are offered
	By         string                `json:"by,omitempty"`      // the user whose client sent it; "" if no client did
	FaultRef   string                `json:"fault_ref,omitempty"`
	Fault      string                `json:"fault,omitempty"` // for operators, referred to by FaultRef; masked
}

// Notice is a notice to clients.
type Notice struct {
	toolcrib.Notice
}

// Noticef returns a notice with a formatted message.
func Noticef(code, format string, args ...any) *Notice {
	return &Notice{Notice: toolcrib.Notice{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// Stopping records that the run is to end early, and why. Running calls are
// cancelled, waiting calls are answered, and then the run ends.
type Stopping struct {
	Reason  toolcrib.StopReason `json:"reason"`
	Message string              `json:"message,omitempty"`
	By      string              `json:"by,omitempty"`
	Token   string              `json:"token,omitempty"` // as in ConfirmationResolved
}

// Granted raises limits of the run on behalf of a person (resume --add-…).
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
	ID   string `json:"id,omitempty"` // ID of the message in the store's inbox; "" if it was not there
	Text string `json:"text"`
	By   string `json:"by"`
}

// Resumed records that a request with a key has resumed the run, so that the same request does not do so
// again. Its additions to the run are in the same append.
type Resumed struct {
	Once string `json:"once"` // as [RunStarted.Once]
	By   string `json:"by"`
}

// Condensed replaces the oldest messages of the transcript, which would not have
// fitted into the model's context. Whole turns are replaced, so that no call is
// separated from its result; the first input of the run is kept.
type Condensed struct {
	Request   int    `json:"request,omitempty"` // the request that produced the summary; 0 if there was none
	Iteration int    `json:"iteration"`
	Strategy  string `json:"strategy"` // condense | drop
	// From is the index of the first message that is replaced, from 0; Messages is
	// their number.
	From     int    `json:"from"`
	Messages int    `json:"messages"`
	Text     string `json:"text"`          // the replacement, a message of the user
	Before   int64  `json:"tokens_before"` // estimated input tokens of the next request, before and after
	After    int64  `json:"tokens_after"`
	Reason   string `json:"reason,omitempty"` // context_length if the API refused the request because of its length
}

// AnswerChecked records whether an answer matches the agent's output_schema.
type AnswerChecked struct {
	Request int    `json:"request"`
	Valid   bool   `json:"valid,omitempty"`
	Answer  string `json:"answer,omitempty"`  // if valid: the JSON value alone, canonical
	Problem string `json:"problem,omitempty"` // the error message for the model
}

// ChildStarted records that a call is answered by a child run. It is appended before the
// first event of that run, so that a driver that takes up the parent finds the child, or
// starts it under this ID. It need not be a barrier: no event of the child survives without it.
type ChildStarted struct {
	ID    string         `json:"id"` // ID of the call
	Run   toolcrib.RunID `json:"run_id"`
	Agent string         `json:"agent"`
	// part of the parent's budget that is set aside until the child has ended; nil if it has no cap
	Share *Share `json:"share,omitempty"`
}

// ChildParked records that a child run waits for a person. When all calls of the turn are answered or
// wait, the parent also waits.
type ChildParked struct {
	ID      string          `json:"id"`
	Run     toolcrib.RunID  `json:"run_id"`
	Status  toolcrib.Status `json:"status"`
	Pending Pending         `json:"pending"` // its run_id is that of the child or of a run below it
}

// ChildResumed records that a child run that had waited continues.
type ChildResumed struct {
	ID  string         `json:"id"`
	Run toolcrib.RunID `json:"run_id"`
}

// ChildEnded records that a child run has ended, and the usage of it and the runs below
// it. The result of the call follows.
type ChildEnded struct {
	ID         string              `json:"id"`
	Run        toolcrib.RunID      `json:"run_id"`
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason"`
	Usage      toolcrib.Usage      `json:"usage"`
	Runs       int                 `json:"runs,omitempty"`  // includes the child itself
	Bytes      int64               `json:"bytes,omitempty"` // size of their journals
}

// Pending is the reason why a parked run waits.
type Pending struct {
	Kind string `json:"kind"` // approval | in_doubt | input | client_tool | provider
	// Run is the run below that waits, if it is not this one: the question is in its
	// journal, and this run is the one to resume.
	Run        toolcrib.RunID  `json:"run_id,omitempty"`
	ApprovalID string          `json:"approval_id,omitempty"`
	Digest     string          `json:"digest,omitempty"`
	Calls      []ApprovalItem  `json:"calls,omitempty"`
	Question   string          `json:"question,omitempty"`
	Schema     json.RawMessage `json:"schema,omitempty"`
	Error      *Outage         `json:"error,omitempty"` // only for kind provider
	// Only for kind client_tool: when the calls are answered without the client; nil if never.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// AsksForMore is [ConfirmationRequired.AsksForMore].
func (p *Pending) AsksForMore() bool { return p.Kind == string(ApprovalInput) && len(p.Calls) == 0 }

// Kinds of [Pending] that are not kinds of approvals.
const (
	PendingProvider   = "provider"    // its provider failed
	PendingClientTool = "client_tool" // its client has to carry out Calls
)

// Outage is the failure of the provider that a run waits for.
type Outage struct {
	Class    toolcrib.ErrorClass `json:"class"`
	Provider string              `json:"provider,omitempty"`
	Model    string              `json:"model"` // name of the model in the agent
	Message  string              `json:"message"`
	Ref      string              `json:"ref,omitempty"` // the log and journal have the details under it
	// RetryMS is the delay after which a server retries by itself. If 0, it does not, and the
	// run must be resumed.
	RetryMS int64 `json:"retry_ms,omitempty"`
	// Amounts to add to the run's budget, if failed requests have used it up.
	AddTokens   int64   `json:"add_tokens,omitempty"`
	AddCostUSD  float64 `json:"add_cost_usd,omitempty"`
	AddRequests int     `json:"add_requests,omitempty"`
}

// Adds returns these amounts as flags of `runs resume`, each after a space; "" if all are 0.
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

// Released records that the driver has released the run, which can be taken up again. It
// does not count as a lack of progress.
type Released struct {
	Cause string `json:"cause,omitempty"`
}

// Worked records how long the driver has worked since the event before, if that is not
// the time between the two: the machine slept, its clock was set, or the run waited for a
// provider.
type Worked struct {
	MS int64 `json:"ms"`
}

// ModelChosen appends a model to those of the run. The next request goes to it (resume
// --model), and those before it are not used again.
type ModelChosen struct {
	Model ModelInfo `json:"model"`
	By    string    `json:"by"`
}

// Paused records that the run is parked and its driver has released it.
type Paused struct {
	Status  toolcrib.Status `json:"status"`
	Pending Pending         `json:"pending"`
}

// ErrUnread is the error of an append that would end a run, or send a request to its model, while
// its inbox has a message that the run has not read.
var ErrUnread = errors.New("a message to the run came that it has not read")

// Done ends a run that completed or was cancelled.
type Done struct {
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason"`
	Content    string              `json:"content"`
	Truncated  bool                `json:"truncated"`
	Iterations int                 `json:"iterations"`
	Usage      toolcrib.Usage      `json:"usage"`
	Unread     int                 `json:"unread,omitempty"` // messages that arrived too late
}

// Error ends a run that failed.
type Error struct {
	Code       string              `json:"error"`           // such as provider_failed
	Class      toolcrib.ErrorClass `json:"class,omitempty"` // set if Message repeats an error of a provider
	Message    string              `json:"message"`
	Ref        string              `json:"ref,omitempty"`
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason"`
	Content    string              `json:"content,omitempty"`
	Truncated  bool                `json:"truncated,omitempty"`
	Iterations int                 `json:"iterations"`
	Usage      toolcrib.Usage      `json:"usage"`
	Unread     int                 `json:"unread,omitempty"` // as in [Done]
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
